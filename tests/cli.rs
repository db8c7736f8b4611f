//! The program as users run it: exit codes, what it prints, and that the hints lead to the setting.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_steadyload");

fn run(args: &[&str]) -> Output {
    run_with(args, &[])
}

fn run_with(args: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(PROGRAM).args(args).env_clear().envs(env.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn expect(output: &Output, code: i32, shown: &[&str]) {
    let all = format!("{}{}", out(output), err(output));
    assert_eq!(output.status.code(), Some(code), "{all}");
    for part in shown {
        assert!(all.contains(part), "{part:?} is not in:\n{all}");
    }
}

/// A folder that is gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("steadyload-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// A simulated gateway on a free port, ended when it is dropped.
struct Gateway {
    child: Child,
    url: String,
}

impl Gateway {
    fn with(args: &[&str]) -> Self {
        let listen = ["gateway", "--listen", "127.0.0.1:0", "--set", "ttft=20ms", "--set", "gap=1ms"];
        let mut child = Command::new(PROGRAM).args(listen).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let url = first.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
        Self { child, url }
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn config(base_url: &str, more: &str) -> String {
    format!(
        "[targets.t]\nbase_url = \"{base_url}\"\nmodel = \"sim-model\"\n{more}\n\
         [workloads.w]\noutput_tokens = 20\n[loads.l]\ntarget = \"t\"\nworkload = \"w\"\nrate = 1\n"
    )
}

#[test]
fn a_good_configuration_is_valid_and_can_be_shown() {
    expect(
        &run(&["check", "-c", "examples"]),
        0,
        &["the configuration is valid: 1 target, 1 workload, 1 load", "17_280_000"],
    );
    let shown = run_with(
        &["check", "-c", "examples/steadyload.toml", "--print", "--set", "workloads.chat.seed=7"],
        &[("STEADYLOAD__LOADS__CANARY__RATE", "0.5")],
    );
    expect(
        &shown,
        0,
        &["environment STEADYLOAD__LOADS__CANARY__RATE", "flag --set", "examples/steadyload.toml:", "default"],
    );
}

#[test]
fn a_bad_configuration_ends_with_2_and_every_fault() {
    let folder = Folder::new("bad");
    let path = folder.write("bad.toml", &config("http://h", "modle = 1").replace("rate = 1", "rate = \"1\""));
    expect(&run(&["check", "-c", &path]), 2, &["bad.toml:4: targets.t.modle", "bad.toml:10: loads.l.rate", "2 faults"]);
    expect(&run(&["check", "-c", "/nowhere/at/all.toml"]), 2, &["/nowhere/at/all.toml"]);
    for args in [&["check"][..], &["chekc"], &[], &["check", "-c", "examples", "--simulate"]] {
        expect(&run(args), 2, &["Usage"]);
    }
    expect(&run(&["check", "-c", "examples", "--set", "x"]), 2, &["wants KEY=VALUE"]);
    expect(&run(&["check", "-c", "examples", "--set", "targets.staging.gpu=nvml"]), 2, &["not in this version"]);
}

#[test]
fn a_check_brings_its_own_gateway_when_asked() {
    // On a port of its own, so that it cannot meet another test's gateway.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("targets.staging.base_url=http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let output = run(&["check", "--online", "--simulate", "-c", "examples", "--set", &base_url]);
    expect(&output, 0, &["target staging: ok", "100 of 100 asked for", "ignore_eos and min_tokens honoured", "TTFT 2"]);
    let elsewhere = run(&[
        "check",
        "--online",
        "--simulate",
        "-c",
        "examples",
        "--set",
        "targets.staging.base_url=http://example.com",
    ]);
    expect(&elsewhere, 4, &["--simulate needs an http:// address of this machine"]);
}

#[test]
fn a_target_that_answers_is_fine_and_says_what_it_shows() {
    let folder = Folder::new("fine");
    for (settings, shown) in [
        (
            &[][..],
            &["20 of 20 asked for, 20 events, 1.00 tokens per chunk", "counted with every event", "20 events in "][..],
        ),
        (
            &["--set", "tokens_per_chunk=4"],
            &["20 of 20 asked for, 5 events, 4.00 tokens per chunk: chunks hold several tokens"],
        ),
        (&["--set", "usage=final"], &["counted once", "basis chunk"]),
        (&["--set", "usage=none"], &["unknown of 20 asked for, 20 events", "no TPOT can be computed"]),
        (&["--set", "cached_tokens=3"], &["cached 3"]),
        (&["--set", "reasoning=shown", "--set", "reasoning_tokens=5"], &["first answer text after", "reasoning 5"]),
        (
            &["--fault", "coalesced"],
            &["20 events in 1 reads: something on the way collects the whole answer (a buffering proxy)"],
        ),
        (&["--fault", "compressed"], &["compressed although identity was asked for"]),
    ] {
        let gateway = Gateway::with(settings);
        let path = folder.write("fine.toml", &config(&gateway.url, ""));
        expect(&run(&["check", "--online", "-c", &path]), 0, &[&["target t: ok"], shown].concat());
    }
}

#[test]
fn a_target_that_fails_ends_with_1_and_a_hint_that_names_the_setting() {
    let folder = Folder::new("fails");
    let key = "api_key_env = \"GATEWAY_KEY\"";
    for (settings, more, shown) in [
        (&["--set", "api_key=sk-right"][..], key, &["target t: http_401 (fault: request)", "variable GATEWAY_KEY"][..]),
        (&["--set", "api_key=sk-right"], "", &["http_401", "name its environment variable in targets.t.api_key_env"]),
        (
            &["--set", "prefix=/api"],
            "",
            &["http_404", "/v1/chat/completions: does targets.t.base_url lack a path prefix such as /api"],
        ),
        (
            &["--set", "model=sim-modle"],
            "",
            &[
                "http_404",
                "\"sim-model\" is not listed, only \"sim-modle\"; did you mean \"sim-modle\"?",
                "targets.t.model",
            ],
        ),
        (&["--set", "strict_fields=openai"], "", &["http_4xx", "set targets.t.send."]),
        (
            &["--set", "honour_ignore_eos=false", "--set", "honour_min_tokens=false", "--set", "natural_tokens=5"],
            "",
            &["short_output (fault: engine)", "not honoured: it stopped after 5", "targets.t.send.ignore_eos = false"],
        ),
        (&["--fault", "html_page"], "", &["bad_response", "targets.t.api is \"openai-chat\""]),
        (&["--fault", "stall"], "timeouts = { idle = \"200ms\" }", &["timeout_idle", "targets.t.timeouts.idle"]),
        (&["--fault", "status:code=429,retry_after=9"], "", &["http_429", "retry-after: 9"]),
    ] {
        let gateway = Gateway::with(settings);
        let path = folder.write("fails.toml", &config(gateway.url.trim_end_matches("/api"), more));
        let output = run_with(&["check", "--online", "-c", &path], &[("GATEWAY_KEY", "sk-wrong-one")]);
        expect(&output, 1, shown);
        assert!(!format!("{}{}", out(&output), err(&output)).contains("sk-wrong-one"), "the key is shown");
    }
}

#[test]
fn a_gateway_without_v1_is_found_and_the_setting_named() {
    let folder = Folder::new("sdk");
    // Under /api there is no /v1: what the common Python SDK would use is there.
    let gateway = Gateway::with(&["--set", "prefix=/api", "--set", "sdk_paths=true"]);
    let base_url = gateway.url.replace("/api", "");
    let path = folder.write("sdk.toml", &config(&format!("{base_url}/api"), ""));
    expect(&run(&["check", "--online", "-c", &path]), 0, &["target t: ok"]);
    let path = folder.write("sdk.toml", &config(&format!("{base_url}/api"), "endpoint = \"/v2/chat/completions\""));
    expect(&run(&["check", "--online", "-c", &path]), 1, &["answers: set targets.t.endpoint = \"/chat/completions\""]);
}

#[test]
fn a_path_too_much_is_found_and_the_setting_named() {
    let folder = Folder::new("prefix");
    let gateway = Gateway::with(&[]);
    let path = folder.write("prefix.toml", &config(&format!("{}/api", gateway.url), ""));
    let setting = format!("set targets.t.base_url = \"{}\"", gateway.url);
    expect(&run(&["check", "--online", "-c", &path]), 1, &["http_404", &setting]);
    let path = folder.write("endpoint.toml", &config(&format!("{}/v1/chat/completions", gateway.url), ""));
    expect(&run(&["check", "-c", &path]), 2, &[&format!("write `base_url = \"{}\"`", gateway.url)]);
}

#[test]
fn a_secret_that_a_server_echoes_is_never_shown() {
    let folder = Folder::new("echo");
    let key = "plainSECRETkey0123456789";
    // In a model id, in a finish_reason, and in the words of a refusal, cut by control characters or by the end.
    let escaped = format!("x: {}\u{0}{}", key.split_at(11).0, key.split_at(11).1);
    for (models, answer) in [
        (
            format!("{{\"data\":[{{\"id\":\"a-{key}-b\"}}]}}"),
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
        ),
        ("{}".to_owned(), format!("HTTP/1.1 500 X\r\ncontent-length: {}\r\n\r\n{escaped}", escaped.len())),
        ("{}".to_owned(), format!("HTTP/1.1 401 X\r\ncontent-length: 215\r\n\r\n{}{key}{}", "x".repeat(190), "y")),
        ("{}".to_owned(), format!("HTTP/1.1 302 X\r\nlocation: http://h/?key={key}\r\ncontent-length: 0\r\n\r\n")),
        ("{}".to_owned(), {
            let event = format!(
                "data: {{\"choices\":[{{\"delta\":{{\"content\":\"a\"}},\"finish_reason\":\"{key}\"}}]}}\n\ndata: [DONE]\n\n"
            );
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{event}", event.len())
        }),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            // Two connections: one asks for the models, one for the answer.
            for stream in listener.incoming().take(2) {
                let mut stream = stream.unwrap();
                let mut head = [0; 16 << 10];
                let read = std::io::Read::read(&mut stream, &mut head).unwrap();
                let models =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{models}", models.len());
                let text = if head[..read].starts_with(b"GET") { &models } else { &answer };
                std::io::Write::write_all(&mut stream, text.as_bytes()).unwrap();
            }
        });
        let path = folder.write("echo.toml", &config(&base_url, "api_key_env = \"ECHO_KEY\""));
        let output = run_with(&["check", "--online", "-c", &path, "--log-level", "trace"], &[("ECHO_KEY", key)]);
        server.join().unwrap();
        let shown = format!("{}{}", out(&output), err(&output)).replace([' ', '\u{0}'], "");
        assert!(shown.contains("[redacted]") && !shown.contains("SECRETkey"), "{shown}");
    }
}

#[test]
fn no_gateway_is_a_refused_connection() {
    let folder = Folder::new("none");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let path = folder.write("none.toml", &config(&format!("http://{}", listener.local_addr().unwrap()), ""));
    drop(listener);
    expect(
        &run(&["check", "--online", "-c", &path]),
        1,
        &["target t: connect (fault: network)", "start the gateway", "targets.t.base_url", "none came up"],
    );
}

#[test]
fn too_few_descriptors_are_our_own_fault() {
    let folder = Folder::new("files");
    let gateway = Gateway::with(&[]);
    let path = folder.write("files.toml", &config(&gateway.url, ""));
    // The runtime takes its own first; what is left is found by going down until the connection is what fails.
    let ended_as_local = (8..40).rev().any(|limit| {
        let script = format!("ulimit -n {limit}; exec {PROGRAM} check --online -c {path}");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        out(&output).contains("target t: local (fault: client)") && out(&output).contains("ulimit -n")
    });
    assert!(ended_as_local);
}

#[test]
fn so_few_descriptors_that_nothing_starts_is_no_panic() {
    for limit in 3..12 {
        // A port on which nothing listens, whatever else runs on this machine.
        let elsewhere = "--set targets.staging.base_url=http://127.0.0.1:1";
        let script = format!("ulimit -n {limit}; exec {PROGRAM} check --online -c examples {elsewhere}");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        // Below that the system cannot even load the program.
        assert!([Some(1), Some(2), Some(4), Some(127)].contains(&output.status.code()), "{limit}: {}", err(&output));
        assert!(!err(&output).contains("panicked"), "{limit}: {}", err(&output));
    }
}

#[test]
fn the_gateway_stops_at_the_first_signal() {
    for signal in ["-TERM", "-INT"] {
        let mut gateway = Gateway::with(&[]);
        gateway.signal(signal);
        assert_eq!(gateway.child.wait().unwrap().code(), Some(0), "{signal}");
    }
}

#[test]
fn a_check_stops_at_a_signal() {
    let folder = Folder::new("signal");
    let gateway = Gateway::with(&["--fault", "silence"]);
    let path = folder.write("signal.toml", &config(&gateway.url, ""));
    let mut child = Command::new(PROGRAM)
        .args(["check", "--online", "-c", &path])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Signals are the program's own to handle once the kernel says so; it asks before it sends the request.
    while !catches_signals(child.id()) {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
}

/// Whether the process has handlers for SIGINT and SIGTERM.
fn catches_signals(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let wanted = (1 << (2 - 1)) | (1 << (15 - 1));
    caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & wanted == wanted)
}

#[test]
fn wrong_settings_of_the_gateway_are_explained() {
    for (args, shown) in [
        (&["gateway", "--set", "tftt=1s"][..], "no setting is called `tftt`"),
        (&["gateway", "--listen", "localhost:9878"][..], "wants an IP address and a port, such as 127.0.0.1:9878"),
        (&["gateway", "--set", "ttft"], "wants KEY=VALUE"),
        (&["gateway", "--set", "ttft=fast"], "--set ttft=fast"),
        (&["gateway", "--fault", "stal"], "--fault stal"),
        (&["gateway", "--listen", "nowhere"], "--listen"),
    ] {
        expect(&run(args), 2, &[shown]);
    }
    let taken = Gateway::with(&[]);
    let address = taken.url.strip_prefix("http://").unwrap();
    expect(&run(&["gateway", "--listen", address]), 4, &["cannot listen on", "in use"]);
    expect(&run(&["gateway", "--list"]), 0, &["ttft = 200ms", "split_utf8:pause=1ms"]);
}

#[test]
fn a_closed_pipe_is_no_failure() {
    for (command, first) in [("gateway --list", "settings"), ("completions bash", "_steadyload"), ("man", "")] {
        let script = format!("{PROGRAM} {command} | head -n 1; exit ${{PIPESTATUS[0]}}");
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        expect(&output, 0, &[first]);
        assert_eq!(err(&output), "");
    }
}

#[test]
fn a_check_that_nobody_reads_is_not_passed() {
    let folder = Folder::new("unread");
    let path = folder.write("unread.toml", &config("http://127.0.0.1:1", ""));
    let script = format!("{PROGRAM} check --online -c {path} | true; exit ${{PIPESTATUS[0]}}");
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert!([Some(1), Some(4)].contains(&output.status.code()), "{:?}", output.status);
}

#[test]
fn a_key_that_is_a_word_garbles_no_word_of_ours() {
    let folder = Folder::new("word");
    let gateway = Gateway::with(&["--fault", "empty_body"]);
    for key in ["EMPTY", "http", "status", "model", "sim-model-secret1"] {
        let path = folder.write("word.toml", &config(&gateway.url, "api_key_env = \"WORD_KEY\""));
        let output = run_with(&["check", "--online", "-c", &path], &[("WORD_KEY", key)]);
        let shown = [
            "target t: empty (fault: engine)",
            "POST http://",
            "/v1/chat/completions as openai-chat",
            "  status     200",
            "  models     \"sim-model\" is listed",
        ];
        expect(&output, 1, &shown);
    }
}

#[test]
fn help_and_version_are_there() {
    expect(&run(&["--version"]), 0, &[env!("CARGO_PKG_VERSION")]);
    for args in [&["--help"][..], &["check", "--help"], &["gateway", "--help"]] {
        expect(&run(args), 0, &["Usage", "Examples:\n  # "]);
    }
}

const COMMANDS: [&str; 8] = ["demo", "run", "check", "prompts", "gateway", "metrics", "completions", "man"];

#[test]
fn completions_are_read_by_bash_and_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        expect(&output, 0, &COMMANDS);
        expect(&output, 0, &["simulate", "log-format"]);
    }
    let folder = Folder::new("completions");
    let path = folder.write("steadyload.bash", &out(&run(&["completions", "bash"])));
    expect(&Command::new("bash").args(["-n", &path]).output().unwrap(), 0, &[]);
    // What the Tab key would offer after `steadyload check --on`.
    let script = format!(
        "source {path}; COMP_WORDS=(steadyload check --on); COMP_CWORD=2; \
         _steadyload steadyload --on check; echo \"${{COMPREPLY[@]}}\""
    );
    expect(&Command::new("bash").args(["-c", &script]).output().unwrap(), 0, &["--online"]);
    expect(&run(&["completions", "tcsh"]), 2, &["possible values: bash, elvish, fish, powershell, zsh"]);
}

#[test]
fn there_is_a_page_for_each_command_with_every_option_of_it() {
    let folder = Folder::new("man");
    let pages = folder.0.join("to/make");
    expect(&run(&["man", "--out", pages.to_str().unwrap()]), 0, &["steadyload.1", "steadyload-check.1"]);
    // Without the backslashes of roff.
    let read = |name: &str| fs::read_to_string(pages.join(name)).unwrap().replace('\\', "");
    assert_eq!(fs::read_dir(&pages).unwrap().count(), COMMANDS.len() + 1);
    for command in COMMANDS {
        let help = out(&run(&[command, "--help"]));
        let (options, _) = help.split_once("Examples:").unwrap();
        let page = read(&format!("steadyload-{command}.1"));
        let named: Vec<_> = options.split([' ', ',', '\n']).filter(|word| word.starts_with("--")).collect();
        assert!(named.len() >= 3, "{options}");
        for option in named {
            // In bold, so not where another option or an example mentions it.
            let bold = format!("fB{}fR", option.trim_end_matches([':', ';']));
            let (_, options) = page.split_once(".SH OPTIONS").unwrap();
            assert!(options.contains(&bold), "{command}: {option} is not in\n{options}");
        }
        assert!(page.contains(".SH EXAMPLES\n.nf\n") && page.contains(&format!("steadyload {command}")), "{page}");
        assert!(read("steadyload.1").contains(&format!("steadyload-{command}(1)")));
    }
    let printed = out(&run(&["man"]));
    assert_eq!(printed.replace('\\', ""), read("steadyload.1"));
}

#[test]
fn pages_that_cannot_be_written_are_named() {
    let folder = Folder::new("unwritable");
    let file = folder.write("file", "");
    let below = format!("{file}/pages");
    expect(&run(&["man", "--out", &below]), 4, &["cannot make the folder", &below, "--out"]);
    fs::create_dir_all(folder.0.join("pages/steadyload-run.1")).unwrap();
    let pages = folder.0.join("pages");
    let taken = pages.join("steadyload-run.1");
    expect(&run(&["man", "--out", pages.to_str().unwrap()]), 4, &["cannot write", taken.to_str().unwrap()]);
}

#[test]
fn a_pipe_instead_of_a_file_is_told_apart_and_not_waited_for() {
    let folder = Folder::new("fifo");
    let path = folder.0.join("c.toml");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    expect(&run(&["check", "-c", path.to_str().unwrap()]), 2, &["is a pipe or a device, wants a file"]);
}

#[test]
fn a_mistyped_level_is_refused_and_does_not_silence_the_log() {
    for level in ["inof", "steadyload=loud"] {
        expect(&run(&["gateway", "--list", "--log-level", level]), 2, &["--log-level"]);
    }
}
