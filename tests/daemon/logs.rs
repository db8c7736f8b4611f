//! The log, and that nothing in it or in any answer is a secret.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value;

use crate::rig::{base, bearer, command, goes_on, load, nobody, quick};
use crate::support::{Daemon, Folder, Samples, try_ask, until};

#[test]
fn json_is_an_object_a_line_and_the_level_changes_with_a_reload() {
    let folder = Folder::new();
    let rest = base(nobody(), "") + &load("a", "rate = 100");
    let text = |level: &str| format!("[log]\nformat = \"json\"\nlevel = {level:?}\n{rest}");
    let daemon = Daemon::start(&folder.write("c.toml", &text("info")), &[]);
    let enough = |before: f64| {
        let total = |samples: &Samples| samples.sum("requests_total", &[]);
        total(&daemon.scrape_until("requests fail", |samples| total(samples) >= before + 100.0))
    };
    let single = || daemon.log().matches("request failed").count();
    let lines = || daemon.log().lines().count();
    let total = enough(0.0);
    assert_eq!(single(), 0, "{}", daemon.log());
    folder.write("c.toml", &text("debug"));
    daemon.signal("HUP");
    until("single requests are logged", || single() > 50);
    folder.write("c.toml", &text("warn"));
    daemon.signal("HUP");
    let total = enough(total);
    let before = lines();
    enough(total);
    assert!(lines() <= before + 2, "{}", daemon.log());
    folder.write("c.toml", &text("info"));
    daemon.signal("HUP");
    let (code, _, log) = daemon.stop();
    assert_eq!(code, Some(0), "{log}");
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(["timestamp", "level"].iter().all(|key| line[key].is_string()) && line["fields"].is_object(), "{line}");
    }
}

#[test]
fn a_thousand_failures_are_a_handful_of_lines() {
    let folder = Folder::new();
    let text = base(nobody(), "") + &load("a", "rate = 1000\nmax_in_flight = 500") + &load("b", "concurrency = 8");
    let daemon = Daemon::start(&folder.write("c.toml", &text), &[]);
    daemon.scrape_until("a thousand fail", |samples| samples.sum("requests_total", &[]) > 2000.0);
    let log = daemon.stop().2;
    let about_them = log.lines().filter(|line| line.contains("(connect)")).count();
    assert!((2..=4).contains(&about_them), "{log}");
    assert!(log.lines().count() < 25, "{log}");
}

/// A gateway that gives back every word it was sent, in as many ways as there are.
struct Echo(SocketAddr);

impl Echo {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for (n, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                thread::spawn(move || answer(n, stream));
            }
        });
        Self(address)
    }
}

fn answer(n: usize, mut stream: TcpStream) -> Option<()> {
    let mut bytes = Vec::new();
    let end = loop {
        let mut more = [0; 4096];
        let length = stream.read(&mut more).ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&more[..length]);
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let words = head.replace("\r\n", " ");
    let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
    let key = value("authorization: Bearer ");
    let error = serde_json::json!({ "error": { "message": format!("{key} {words}"), "code": key } });
    let event = |json: &Value| format!("data: {json}\n\n");
    let delta = |reason: Option<&str>| serde_json::json!({ "choices": [{ "index": 0, "delta": { "content": "x" }, "finish_reason": reason }] });
    let sse = "content-type: text/event-stream\r\n";
    let (status, headers, body) = match n % 10 {
        0 => ("400 Bad Request", String::new(), error.to_string()),
        1 => ("401 Unauthorized", String::new(), format!("invalid key {key}")),
        2 => ("500 Oops", String::new(), format!("<html>{}{words}</html>", "y".repeat(190 - key.len() / 2))),
        3 => ("307 Away", format!("location: http://127.0.0.1:1/{key}?k={key}\r\n"), String::new()),
        4 => ("200 OK", sse.to_owned(), event(&error)),
        5 => ("200 OK", sse.to_owned(), event(&delta(None)) + &event(&delta(Some(&key)))),
        6 => ("200 OK", sse.to_owned(), format!("data: {{{key}\n\n")),
        7 => ("200 OK", sse.to_owned(), format!("{words}\n\n")),
        8 => ("429 Slow down", format!("retry-after: {key}\r\nx-echo: {key}\r\n"), error.to_string()),
        _ => ("200 OK", String::new(), format!("{{\"{key}\": ")),
    };
    let response = format!(
        "HTTP/1.1 {status} {key}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(response.as_bytes()).ok()
}

#[test]
fn no_secret_is_shown_even_when_the_gateway_tells_it() {
    const SECRETS: [&str; 4] = ["sk-kept-secret-0123456789", "hidden-tenant-42", "open-sesame-77", "file-secret-9"];
    let (echo, folder) = (Echo::start(), Folder::new());
    let tenant = folder.write("tenant", SECRETS[3]);
    let target = format!(
        "api_key_env = \"THE_KEY\"\nheaders = {{ x-tenant = {{ env = \"THE_TENANT\" }}, x-file = {{ file = {:?} }} }}",
        tenant.display().to_string()
    );
    let server = "[server]\nadmin_token_env = \"THE_TOKEN\"\n";
    let text = server.to_owned() + &base(echo.0, &target) + &load("a", "rate = 100") + &load("b", "concurrency = 4");
    let mut command = command(&folder.write("c.toml", &text), &["--log-level", "trace"]);
    command.env("THE_KEY", SECRETS[0]).env("THE_TENANT", SECRETS[1]).env("THE_TOKEN", SECRETS[2]);
    let daemon = Daemon::spawn(command);
    let samples = daemon.scrape_until("each way was taken", |samples| samples.sum("requests_total", &[]) > 300.0);
    for outcome in
        ["http_4xx", "http_401", "http_5xx", "http_3xx", "in_band_error", "parse", "http_429", "bad_response"]
    {
        assert!(samples.sum("requests_total", &[("outcome", outcome)]) > 0.0, "{outcome}");
    }
    let mut shown = String::new();
    for path in ["/", "/metrics", "/api/v1/status", "/api/v1/events", "/api/v1/requests", "/-/ready", "/nowhere"] {
        shown += &daemon.ask("GET", path, &bearer(SECRETS[2])).2;
    }
    for path in ["/-/reload", "/api/v1/loads/a/pause", "/api/v1/loads/x/pause"] {
        shown += &daemon.ask("POST", path, &bearer(SECRETS[2])).2;
        shown += &daemon.ask("POST", path, &bearer("wrong")).2;
    }
    folder.write("c.toml", "broken");
    shown += &daemon.ask("POST", "/-/reload", &bearer(SECRETS[2])).2;
    shown += &daemon.stop().2;
    assert!(shown.contains("http_401") && shown.contains("request failed"), "nothing was said");
    for secret in SECRETS {
        // Halves too: a text may be cut within one.
        for part in [secret, &secret[..secret.len() * 2 / 3]] {
            let at = shown.find(part);
            assert!(at.is_none(), "{}", &shown[at.unwrap().saturating_sub(300)..][..400]);
        }
    }
}

#[test]
fn a_gateway_that_is_well_has_nothing_to_say() {
    let (gateway, folder) = (quick(), Folder::new());
    let text = base(gateway.address, "") + &load("a", "rate = 100");
    let daemon = Daemon::start(&folder.write("c.toml", &text), &["--log-level", "warn,steadyload=debug"]);
    goes_on(&daemon, "a", 200.0);
    let log = daemon.stop().2;
    assert!(log.lines().count() < 15, "{log}");
}

#[test]
fn a_log_that_nobody_reads_any_more_stops_nothing() {
    let folder = Folder::new();
    let text = base(nobody(), "") + &load("a", "rate = 100");
    let listener = nobody();
    let mut command = command(&folder.write("c.toml", &text), &["--log-level", "steadyload=debug"]);
    let set = format!("server.listen={listener}");
    let mut child = command.args(["--set", &set]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    log.find(|line| line.contains("metrics at")).unwrap();
    drop(log);
    let mut total = 0.0;
    until("it goes on", || {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        let Ok((200, _, text)) = try_ask(listener, "GET", "/metrics", "") else { return false };
        total = Samples::parse(&text).sum("requests_total", &[]);
        total > 300.0
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A container runtime that is stuck, a full pipe: whoever reads the log must not be able to stop the load.
#[test]
fn a_log_that_nobody_reads_stops_neither_load_nor_numbers_nor_the_end() {
    let folder = Folder::new();
    let config = folder.write("c.toml", &(base(nobody(), "") + &load("a", "rate = 2000\nmax_in_flight = 1000")));
    let mut child = command(&config, &["--log-level", "warn,steadyload=debug"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("metrics at http://") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended");
    }
    let address: SocketAddr = line.split("http://").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
    // From here on nobody reads, and a line is written for each request.
    let scrape = || {
        try_ask(address, "GET", "/metrics", "")
            .map_or_else(|_| Samples::default(), |(_, _, text)| Samples::parse(&text))
    };
    let counted = |samples: &Samples| samples.sum("requests_planned_total", &[]);
    let dropped = |samples: &Samples| samples.sum("dropped_total", &[("queue", "log")]);
    until("lines are dropped", || dropped(&scrape()) > 100.0);
    let before = counted(&scrape());
    until("the load goes on", || counted(&scrape()) > before + 2000.0);
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let mut status = None;
    until("it ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
    drop(stderr);
}
