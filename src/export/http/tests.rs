//! The server over real sockets. What may not take long is bounded by half a minute, so that a hang is a failure; no time is
//! measured.

use std::io::Read as _;
use std::net::Ipv4Addr;

use flate2::read::GzDecoder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use crate::export::metrics::tests::{odd_names, quiet, traffic};
use crate::export::view::{Change, Phase, Refusal};

mod changes;
mod hostile;

const TOKEN: &str = "t0ken-that-must-not-show";
const LONG: Duration = Duration::from_secs(30);

/// A server, and the app behind it.
struct House {
    server: Server,
    views: watch::Sender<Arc<View>>,
    requests: mpsc::Receiver<Request>,
    admin: watch::Sender<Option<Secret>>,
}

fn house(view: View, limits: Limits) -> House {
    let (views, seen) = watch::channel(Arc::new(view));
    let (ask, requests) = mpsc::channel(1);
    let (admin, token) = watch::channel(Some(Secret::new(TOKEN)));
    let surface = Surface { views: seen, requests: ask, admin: token, coarse: false };
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    House { server: start_with(listener, surface, limits).unwrap(), views, requests, admin }
}

fn usual() -> House {
    house(traffic(2), Limits::default())
}

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn error(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let value: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        value["error"].as_str().unwrap().to_owned()
    }
}

/// All that comes back until the server closes.
async fn raw(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let talk = async {
        let mut socket = TcpStream::connect(address).await.unwrap();
        // A server that has heard enough may close before it has all.
        socket.write_all(bytes).await.ok();
        let mut all = Vec::new();
        socket.read_to_end(&mut all).await.ok();
        all
    };
    timeout(LONG, talk).await.unwrap()
}

fn parse(all: &[u8]) -> Reply {
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no head: {all:?}"));
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head, body: all[end + 4..].to_vec() }
}

async fn ask(address: SocketAddr, line: &str, headers: &str) -> Reply {
    let request = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    parse(&raw(address, request.as_bytes()).await)
}

async fn get(house: &House, path: &str) -> Reply {
    ask(house.server.address(), &format!("GET {path}"), "").await
}

#[tokio::test]
async fn each_path_answers_in_its_own_type() {
    let house = usual();
    for (path, status, content_type) in [
        ("/", 200, "text/html; charset=utf-8"),
        ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8"),
        ("/-/healthy", 200, "text/plain; charset=utf-8"),
        ("/-/ready", 200, "text/plain; charset=utf-8"),
        ("/api/v1/status", 200, "application/json"),
        ("/api/v1/requests", 200, "application/json"),
        ("/api/v1/requests?load=load1", 200, "application/json"),
        ("/api/v1/requests?load=load0&load=load1", 400, "application/json"),
        ("/api/v1/requests?load=nobody", 404, "application/json"),
        ("/api/v1/events", 200, "application/json"),
        ("/metrics/", 404, "application/json"),
        ("/..", 404, "application/json"),
    ] {
        let reply = get(&house, path).await;
        assert_eq!((reply.status, reply.header("content-type")), (status, Some(content_type)), "{path}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{path}");
    }
    let policy = get(&house, "/").await;
    assert!(policy.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    assert!(get(&house, "/nothing").await.text().contains("/api/v1/loads/{name}/pause"), "names the known ones");
    assert_eq!(get(&house, "/api/v1/requests?load=no%22body").await.error(), "there is no load \"no\\\"body\"");
}

#[tokio::test]
async fn a_scrape_comes_in_the_form_and_coding_that_is_asked_for() {
    let house = usual();
    let scrape = async |headers: &str| ask(house.server.address(), "GET /metrics", headers).await;
    let plain = scrape("").await;
    assert!(plain.text().contains("steadyload_requests_planned_total{load=\"load0\""));
    assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("accept, accept-encoding")));
    let open_metrics = scrape("accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n").await;
    assert!(open_metrics.text().ends_with("# EOF\n"));
    let accept =
        "accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited\r\n";
    let protobuf = scrape(accept).await;
    assert!(protobuf.header("content-type").unwrap().starts_with("application/vnd.google.protobuf; proto="));
    for (accept, unzipped) in [("", &plain), (accept, &protobuf)] {
        let zipped = scrape(&format!("{accept}accept-encoding: gzip\r\n")).await;
        assert_eq!(zipped.header("content-encoding"), Some("gzip"));
        assert!(zipped.body.len() * 5 < unzipped.body.len(), "{} {}", zipped.body.len(), unzipped.body.len());
        let mut body = Vec::new();
        GzDecoder::new(&zipped.body[..]).read_to_end(&mut body).unwrap();
        assert_eq!(body, unzipped.body);
    }
}

#[tokio::test]
async fn a_head_has_no_body_and_the_wrong_method_learns_the_right_one() {
    let house = usual();
    let head = ask(house.server.address(), "HEAD /metrics", "").await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert!(head.header("content-length").unwrap().parse::<usize>().unwrap() > 10_000);
    for (line, allow) in [
        ("POST /metrics", "GET,HEAD"),
        ("DELETE /api/v1/status", "GET,HEAD"),
        ("GET /-/reload", "POST"),
        ("GET /api/v1/loads/load0/pause", "POST"),
        ("OPTIONS /api/v1/loads/load0/resume", "POST"),
    ] {
        let reply = ask(house.server.address(), line, "").await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some(allow)), "{line}");
        assert!(reply.error().contains("is not for"), "{line}");
    }
}

#[tokio::test]
async fn a_daemon_is_ready_only_while_it_is_at_work() {
    let house = usual();
    for phase in Phase::ALL {
        house.views.send_modify(|view| *view = Arc::new(View { phase, ..(**view).clone() }));
        let reply = get(&house, "/-/ready").await;
        assert_eq!(reply.status == 200, phase == Phase::Running, "{phase:?}");
        assert!(reply.status == 200 || reply.text() == format!("not ready: {}\n", phase.name()));
        assert_eq!(get(&house, "/-/healthy").await.status, 200, "{phase:?}");
    }
}

#[tokio::test]
async fn a_scrape_shows_the_last_view_whatever_names_are_in_it() {
    let house = house(quiet(1), Limits::default());
    let mut view = traffic(2);
    odd_names(&mut view);
    house.views.send_replace(Arc::new(view));
    let scrape = get(&house, "/metrics").await;
    assert!(scrape.text().contains("load=\"a\\\"b\\\\c\\nd1\",target=\"<b>\\\"模型\\\" \\\\ &amp;\""));
    assert_eq!(get(&house, "/api/v1/status").await.status, 200);
    assert_eq!(get(&house, "/").await.status, 200);
}

#[tokio::test]
async fn a_kept_connection_serves_request_after_request() {
    let house = usual();
    let three = "GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n".repeat(2)
        + "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let all = raw(house.server.address(), three.as_bytes()).await;
    assert_eq!(String::from_utf8(all).unwrap().matches("HTTP/1.1 200 OK").count(), 3);
}

#[tokio::test]
async fn the_last_answer_is_finished_and_then_nobody_listens() {
    let mut house = house(traffic(1), Limits { drain: 2 * LONG, ..Limits::default() });
    let address = house.server.address();
    let asked = async { ask(address, "POST /-/reload", &format!("authorization: Bearer {TOKEN}\r\n")).await };
    let app = async {
        let request = house.requests.recv().await.unwrap();
        let stopped = tokio::task::spawn_blocking(move || house.server.stop());
        // Only the stop lets this connection be refused.
        while TcpStream::connect(address).await.is_ok() {}
        request.reply.send(Ok("done".to_owned())).unwrap();
        stopped.await.unwrap().unwrap();
    };
    let (reply, ()) = timeout(LONG, async { tokio::join!(asked, app) }).await.unwrap();
    assert_eq!((reply.status, reply.text()), (200, "{\"message\":\"done\"}\n"));
}

#[tokio::test]
async fn an_answer_that_does_not_come_to_an_end_is_cut_off_at_the_end() {
    let mut house = house(traffic(1), Limits { drain: Duration::from_millis(1), ..Limits::default() });
    let address = house.server.address();
    let head = format!("POST /-/reload HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    let asked = raw(address, head.as_bytes());
    let app = async {
        let request = house.requests.recv().await.unwrap();
        tokio::task::spawn_blocking(move || house.server.stop()).await.unwrap().unwrap();
        drop(request);
    };
    let (nothing, ()) = timeout(LONG, async { tokio::join!(asked, app) }).await.unwrap();
    assert!(nothing.is_empty(), "{nothing:?}");
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_up_the_end() {
    let house = house(traffic(1), Limits { drain: 2 * LONG, head: 2 * LONG, ..Limits::default() });
    let mut socket = TcpStream::connect(house.server.address()).await.unwrap();
    socket.write_all(b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut byte = [0];
    socket.read_exact(&mut byte).await.unwrap();
    let stopped = tokio::task::spawn_blocking(move || house.server.stop());
    let mut rest = Vec::new();
    timeout(LONG, socket.read_to_end(&mut rest)).await.unwrap().unwrap();
    stopped.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_that_breaks_down_is_noticed() {
    let house = usual();
    tokio::select! {
        biased;
        () = house.server.ended() => unreachable!("it runs"),
        reply = get(&house, "/-/healthy") => assert_eq!(reply.status, 200),
    }
    let (alive, lives) = mpsc::channel(1);
    let thread = thread::spawn(move || {
        let _lives = lives;
        panic!("out of {}", "luck");
    });
    let server = Server { address: house.server.address(), stop: oneshot::channel().0, alive, thread };
    timeout(LONG, server.ended()).await.unwrap();
    timeout(LONG, server.ended()).await.unwrap();
    assert_eq!(server.stop().unwrap_err().to_string(), "the HTTP server broke down: out of luck");
}

#[tokio::test]
async fn an_address_that_cannot_be_had_is_named_with_its_setting() {
    let house = usual();
    let address = house.server.address();
    let taken = bind(address).unwrap_err();
    assert!(matches!(taken, BindError::InUse { .. }));
    let foreign = bind("192.0.2.1:9877".parse().unwrap()).unwrap_err();
    assert!(matches!(foreign, BindError::NotOurs { .. }));
    for (error, address) in [(taken, address.to_string()), (foreign, "192.0.2.1:9877".to_owned())] {
        assert!(error.to_string().contains(&address) && error.to_string().contains("server.listen"), "{error}");
    }
}

#[tokio::test]
async fn an_address_can_be_had_again_at_once() {
    let house = usual();
    let address = house.server.address();
    assert_eq!(get(&house, "/-/healthy").await.status, 200);
    tokio::task::spawn_blocking(move || house.server.stop()).await.unwrap().unwrap();
    bind(address).unwrap();
}
