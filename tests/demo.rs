//! `steadyload demo` as a newcomer sees it: what it prints, that what it names answers, and that nothing is left behind.
//!
//! Each test has a place for temporary files of its own, so that what is left there is seen. Ports are whatever is free: the tests
//! run side by side.

#![expect(clippy::unwrap_used, clippy::panic, clippy::string_slice, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "what the demo printed is shown when a test fails")]
#![expect(clippy::disallowed_methods, reason = "it waits for another process")]

#[expect(dead_code, reason = "a demo brings its own daemon and gateway")]
#[path = "support/daemon.rs"]
mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use steadyload::clock;
use support::{Folder, PATIENCE, Samples, ask, until};

/// Answers that take a fraction of a second, so that tests do.
const QUICK: [&str; 8] = ["--preset", "none", "--set", "ttft=20ms", "--set", "gap=1ms", "--every", "1s"];

/// A running demo.
struct Demo {
    child: Child,
    out: Arc<Mutex<String>>,
    temporary: Folder,
}

fn command(temporary: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadyload"));
    command.arg("demo").args(arguments).env("TMPDIR", &temporary.0);
    // Meant for another daemon: it must not matter here.
    command.env("STEADYLOAD__LOADS__CANARY__RATE", "2");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Demo {
    /// Returns when it has said where everything is.
    fn start(arguments: &[&str]) -> Self {
        let temporary = Folder::new();
        let mut child = command(&temporary, arguments).spawn().unwrap();
        let out = Arc::new(Mutex::new(String::new()));
        let (stdout, kept) = (child.stdout.take().unwrap(), Arc::clone(&out));
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                kept.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let demo = Self { child, out, temporary };
        demo.until_shown("Rates and outcomes");
        demo
    }

    fn out(&self) -> String {
        self.out.lock().unwrap().clone()
    }

    fn until_shown(&self, text: &str) {
        until(text, || self.out().contains(text));
    }

    /// The address in the line that begins with this word.
    fn address(&self, what: &str) -> SocketAddr {
        let out = self.out();
        let line = out.lines().find(|line| line.starts_with(what)).unwrap();
        let (_, rest) = line.split_once("http://").unwrap();
        rest.split(['/', ' ']).next().unwrap().parse().unwrap()
    }

    /// The cells of each line of figures so far, and what follows them.
    fn rows(&self) -> Vec<(Vec<String>, String)> {
        let is_row =
            |line: &&str| line.starts_with("  ") && line.trim_start().starts_with(|c: char| c.is_ascii_digit());
        let row = |line: &str| {
            let cells: Vec<_> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            (words, (*cells.last().unwrap()).to_owned())
        };
        // After the end begins, what is indented is the summary.
        let out = self.out();
        out.split("\nstopping").next().unwrap().lines().filter(is_row).map(row).collect()
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success(), "kill -{name}");
    }

    /// Waits for its end: its exit code, and what it said to standard error.
    fn ended(&mut self) -> (Option<i32>, String) {
        let mut status = None;
        until("it ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (status.unwrap().code(), errors)
    }

    /// Names of what is in the place for temporary files.
    fn left(&self) -> Vec<String> {
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        fs::read_dir(&self.temporary.0).unwrap().map(name).collect()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if thread::panicking() {
            println!("the demo printed:\n{}", self.out());
        }
    }
}

/// What the summary says was planned, and the numbers that are to add up to it.
fn law(out: &str) -> (u64, Vec<u64>) {
    let line = out.lines().find(|line| line.starts_with("  requests ")).unwrap_or_else(|| panic!("{out}"));
    let (planned, parts) = line.split_once(" planned = ").unwrap();
    let first = |text: &str| text.split_whitespace().next().unwrap().parse().unwrap();
    (planned.split_whitespace().last().unwrap().parse().unwrap(), parts.split(" + ").map(first).collect())
}

fn millis(words: &[String], at: usize) -> f64 {
    assert_eq!(words[at + 1], "ms", "{words:?}");
    words[at].parse().unwrap()
}

#[test]
fn it_says_at_once_where_everything_is_and_all_of_it_answers() {
    let begun = clock::now();
    let demo = Demo::start(&["--every", "1s"]);
    assert!(clock::now() - begun < Duration::from_secs(5), "{:?}", clock::now() - begun);
    let (daemon, gateway) = (demo.address("page"), demo.address("gateway"));
    assert_eq!([demo.address("metrics"), demo.address("status")], [daemon; 2]);
    for path in ["/", "/metrics", "/api/v1/status", "/-/healthy", "/-/ready"] {
        assert_eq!(ask(daemon, "GET", path, "").0, 200, "{path}");
    }
    assert_eq!(ask(gateway, "GET", "/v1/models", "").0, 200);
    let samples = Samples::parse(&ask(daemon, "GET", "/metrics", "").2);
    samples.assert_law();
    assert_eq!(samples.get("target_requests_per_second", &[("load", "demo")]), Some(3.0));
}

#[test]
fn lines_come_with_numbers_that_can_be_and_ctrl_c_ends_it_without_a_trace() {
    let mut demo = Demo::start(&["--every", "1s", "--rate", "5"]);
    until("lines come", || demo.rows().len() >= 5);
    let (words, ended) = demo.rows().remove(4);
    // The engine takes 50 ms to a first token and 17 ms for a further one when it is idle, and it is a third busy.
    let [ttft, ttft_p99, tpot, tpot_p99] = [5, 7, 10, 12].map(|at| millis(&words, at));
    assert!((45.0..150.0).contains(&ttft) && (ttft..400.0).contains(&ttft_p99), "{words:?}");
    assert!((17.0..28.0).contains(&tpot) && (tpot..60.0).contains(&tpot_p99), "{words:?}");
    assert_eq!(words[9], words[14], "so many TTFTs as TPOTs: {words:?}");
    assert!(ended.contains("all ok"), "{ended}");
    let planned: f64 =
        demo.rows().iter().map(|(words, _)| words[1].trim_end_matches("/s").parse::<f64>().unwrap()).sum();
    let rate = planned / f64::from(u32::try_from(demo.rows().len()).unwrap());
    assert!((1.0..12.0).contains(&rate), "{rate} instead of 5/s");
    assert!(demo.out().lines().filter(|line| line.starts_with("  ")).all(|line| line.chars().count() <= 110));

    assert!(demo.left().iter().all(|name| name.starts_with("steadyload-demo-")) && demo.left().len() == 1);
    demo.signal("INT");
    let (code, errors) = demo.ended();
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(demo.left(), Vec::<String>::new());
    demo.until_shown("tokens/s");
    let (planned, parts) = law(&demo.out());
    assert_eq!(planned, parts.iter().sum::<u64>(), "{}", demo.out());
}

#[test]
fn it_ends_by_itself_and_every_request_is_accounted_for() {
    let mut demo = Demo::start(
        &[&QUICK[..], &["--for", "2s", "--rate", "50", "--set", "api_key=k", "--set", "prefix=/api"]].concat(),
    );
    assert_eq!(demo.ended().0, Some(0));
    demo.until_shown("tokens/s");
    let (planned, parts) = law(&demo.out());
    assert!((50..200).contains(&planned), "{}", demo.out());
    assert_eq!(planned, parts.iter().sum::<u64>(), "{}", demo.out());
    assert!(demo.out().contains(" ok\n"), "a key and a prefix are no hindrance: {}", demo.out());
    assert_eq!(demo.left(), Vec::<String>::new());
}

#[test]
fn a_fault_is_named_by_its_outcome() {
    let fault = ["--rate", "30", "--fault", "status:code=503,share=0.5"];
    let demo = Demo::start(&[&QUICK[..], &fault].concat());
    until("a line names it", || demo.rows().iter().any(|(_, ended)| ended.contains("http_5xx ")));
    let rows = demo.rows();
    assert!(rows.iter().all(|(_, ended)| !ended.contains("all ok")), "{rows:?}");
}

#[test]
fn a_closed_loop_says_how_many_are_under_way() {
    let demo = Demo::start(&["--concurrency", "4", "--every", "1s"]);
    until("a line comes", || !demo.rows().is_empty());
    let (words, _) = demo.rows().remove(0);
    assert_eq!((words[1..4].join(" ").as_str(), words[6].as_str()), ("4 under way", "4"), "{words:?}");
}

#[test]
fn a_port_that_is_taken_is_said_and_another_one_serves() {
    // Another demo may have it for the moment, or something else for good.
    let take = |port: u16| {
        let begun = clock::now();
        loop {
            match TcpListener::bind(("127.0.0.1", port)) {
                Err(_) if clock::now() - begun < PATIENCE / 2 => thread::sleep(Duration::from_millis(50)),
                taken => return taken,
            }
        }
    };
    let _taken = [9877, 9878].map(take);
    let demo = Demo::start(&["--for", "5s"]);
    let (daemon, gateway) = (demo.address("page"), demo.address("gateway"));
    assert!(daemon.port() > 9878 && gateway.port() > 9878 && daemon != gateway, "{}", demo.out());
    for (usual, what, is) in [(9877, "page", daemon), (9878, "gateway", gateway)] {
        let said = format!("port {usual} is taken, so the {what} is on {}\n", is.port());
        assert!(demo.out().contains(&said), "{said}{}", demo.out());
    }
    assert_eq!(ask(daemon, "GET", "/metrics", "").0, 200);
}

#[test]
fn the_load_can_be_paused_and_its_settings_changed_and_read_again() {
    let demo = Demo::start(&QUICK);
    let daemon = demo.address("page");
    let folder = demo.temporary.0.join(&demo.left()[0]);
    assert!(demo.out().contains(folder.to_str().unwrap()));
    let pause =
        |token: &str| ask(daemon, "POST", "/api/v1/loads/demo/pause", &format!("authorization: Bearer {token}\r\n")).0;
    assert_eq!(pause("guessed"), 401);
    assert_eq!(pause(&fs::read_to_string(folder.join("admin-token")).unwrap()), 200);
    until("a line says so", || demo.out().contains("paused"));

    let settings = folder.join("steadyload.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace("\nrate = 3\n", "\nrate = 7\n")).unwrap();
    demo.signal("HUP");
    let rate = || Samples::parse(&ask(daemon, "GET", "/metrics", "").2).get("target_requests_per_second", &[]);
    until("the new rate is in force", || rate() == Some(7.0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut demo = Demo::start(&["--preset", "none", "--set", "ttft=60s", "--rate", "50"]);
    until("requests are under way", || {
        Samples::parse(&ask(demo.address("page"), "GET", "/metrics", "").2).sum("requests_in_flight", &[]) > 0.0
    });
    demo.signal("INT");
    demo.until_shown("another Ctrl-C ends it at once");
    thread::sleep(steadyload::app::signals::ECHO * 2);
    demo.signal("INT");
    assert_eq!(demo.ended().0, Some(130));
}

#[test]
fn when_nobody_reads_any_more_it_ends_quietly() {
    let temporary = Folder::new();
    let mut child = command(&temporary, &QUICK).spawn().unwrap();
    let mut first = String::new();
    // Dropped, and with it the pipe.
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("steadyload sends"), "{first}");
    let mut demo = Demo { child, out: Arc::default(), temporary };
    assert_eq!(demo.ended(), (Some(0), String::new()));
    assert_eq!(demo.left(), Vec::<String>::new());
}

#[test]
fn flags_that_make_no_sense_are_refused_by_their_names() {
    let temporary = Folder::new();
    for (arguments, says) in [
        (&["--for", "0s"][..], "--for: is 0, wants some time"),
        (&["--for", "soon"], "--for: is \"soon\", wants a time such as"),
        (&["--every", "10ms"], "--every: is 10ms, wants a second or more"),
        (&["--rate", "0"], "--rate: is 0, wants requests per second: above 0"),
        (&["--rate", "nan"], "--rate: is the text \"nan\", wants a number"),
        (&["--rate", "-1"], "--rate: is -1"),
        (&["--concurrency", "0"], "--concurrency: is 0, wants a whole number from 1"),
        (&["--rate", "1", "--concurrency", "2"], "'--rate <NUMBER>' cannot be used with '--concurrency <NUMBER>'"),
        (&["--fault", "bogus"], "--fault bogus: no fault is called `bogus`"),
        (&["--set", "ttft"], "--set ttft: wants KEY=VALUE"),
    ] {
        let output = command(&temporary, arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {errors}");
        assert!(errors.contains(says) && !errors.contains("loads."), "{arguments:?}: {errors}");
    }
    assert_eq!(fs::read_dir(&temporary.0).unwrap().count(), 0);
}

#[test]
fn without_a_place_for_its_files_it_cannot_run() {
    let temporary = Folder::new();
    let output = command(&temporary, &[]).env("TMPDIR", temporary.0.join("nowhere")).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("nowhere; TMPDIR names another place"), "{errors}");
}
