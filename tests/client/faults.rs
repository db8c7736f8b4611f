//! Every fault that the simulated gateway knows, and the outcome, the detail and the hint that the client makes of it.
//!
//! In memory under a paused clock, so that a time-out of a minute takes none. What needs a socket (RST, TLS, a name that does
//! not resolve) has one, on loopback.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use steadyload::clock::{self, Instant};
use steadyload::config::secrets::{Header, Secrets};
use steadyload::config::sections::Target;
use steadyload::domain::api::Api;
use steadyload::domain::arrival::Arrival;
use steadyload::domain::outcome::Outcome;
use steadyload::domain::prompt::{Message, Prompt};
use steadyload::domain::secret::Secret;
use steadyload::domain::timeline::{ConnectPhases, Timeline};
use steadyload::load::client::dial::{Dial, Dialed, Dialing};
use steadyload::load::client::hint::{self, Surroundings};
use steadyload::load::client::{Client, Prepared};
use steadyload::sim::fault::{ALL, Fault};
use steadyload::sim::settings::Settings;
use steadyload::sim::{Gateway, Simulator};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::sending;

/// Output tokens asked for.
const ASKED: u32 = 20;

/// A fault, the outcome that it has to have, a word that the hint has to have (the setting), and how many events came.
type Row = (&'static str, Outcome, &'static str, Option<usize>);

/// One row or more for each fault of the gateway.
const ROWS: &[Row] = &[
    ("factor:by=3", Outcome::Ok, "", Some(20)),
    ("slow_accept", Outcome::Ok, "", Some(20)),
    ("idle_close", Outcome::Ok, "", Some(20)),
    ("stale_close", Outcome::Ok, "", Some(20)),
    ("status:code=400", Outcome::Http4xx, "t.send.ignore_eos = false", None),
    ("status:code=401", Outcome::Http401, "t.api_key_env", None),
    ("status:code=403", Outcome::Http403, "t.model", None),
    ("status:code=404", Outcome::Http404, "t.", None),
    ("status:code=404,body=html", Outcome::Http404, "t.base_url", None),
    ("status:code=422", Outcome::Http4xx, "t.send.", None),
    ("status:code=429,retry_after=7", Outcome::Http429, "loads.", None),
    ("status:code=429,retry_after=7,retry_form=date", Outcome::Http429, "loads.", None),
    ("status:code=500", Outcome::Http5xx, "t.model", None),
    ("status:code=502,body=html", Outcome::Http5xx, "t.model", None),
    ("status:code=503,body=empty", Outcome::Http5xx, "t.model", None),
    ("unknown_field:field=ignore_eos,form=transformers", Outcome::Http4xx, "t.send.ignore_eos = false", None),
    ("unknown_field:field=min_tokens,form=fastapi", Outcome::Http4xx, "t.send.min_tokens = false", None),
    (
        "unknown_field:field=continuous_usage_stats,form=openai",
        Outcome::Http4xx,
        "continuous_usage_stats = false",
        None,
    ),
    ("unknown_field:field=stream_options,form=openai", Outcome::Http4xx, "t.send.include_usage = false", None),
    ("unknown_field:field=max_tokens,form=openai", Outcome::Http4xx, "max_completion_tokens", None),
    ("redirect:code=302", Outcome::Http3xx, "t.base_url", None),
    ("redirect:code=307", Outcome::Http3xx, "t.base_url", None),
    ("redirect:code=308", Outcome::Http3xx, "t.base_url", None),
    ("json_error:form=openai", Outcome::InBandError, "t.model", Some(0)),
    ("json_error:form=object", Outcome::InBandError, "t.model", Some(0)),
    ("json_error:form=text", Outcome::InBandError, "t.model", Some(0)),
    ("html_page", Outcome::BadResponse, "t.endpoint", Some(0)),
    ("json_answer", Outcome::BadResponse, "t.api", Some(0)),
    ("big_json", Outcome::BadResponse, "t.api", Some(0)),
    ("empty_body", Outcome::Empty, "t.api", Some(0)),
    ("no_content", Outcome::Empty, "t.api", Some(0)),
    ("bad_finish:reason=error", Outcome::InBandError, "t.model", Some(3)),
    ("bad_finish:reason=abort", Outcome::InBandError, "t.model", Some(3)),
    ("role_chunk:when=early", Outcome::Ok, "", Some(20)),
    ("role_chunk:when=late", Outcome::Ok, "", Some(20)),
    ("usage:kind=missing", Outcome::Ok, "", Some(20)),
    ("usage:kind=huge", Outcome::Ok, "", Some(20)),
    ("usage:kind=negative", Outcome::Ok, "", Some(20)),
    ("usage:kind=float", Outcome::Ok, "", Some(20)),
    ("usage:kind=absurd", Outcome::Ok, "", Some(20)),
    ("usage:kind=strings", Outcome::Ok, "", Some(20)),
    // The finish event counts one token more than the last usage: by the rule of growth it bears one.
    ("usage:kind=disagree", Outcome::Ok, "", Some(21)),
    ("no_done", Outcome::Ok, "", Some(20)),
    ("no_finish", Outcome::Ok, "", Some(20)),
    ("finish_with_text", Outcome::Ok, "", Some(20)),
    ("content_type:form=number", Outcome::Ok, "", Some(20)),
    ("content_type:form=parts", Outcome::Ok, "", Some(20)),
    ("content_type:form=object", Outcome::Ok, "", Some(20)),
    // No text at all, but the server counts on: those are tokens that nobody sees.
    ("content_type:form=null", Outcome::Ok, "", Some(20)),
    ("error:form=data", Outcome::InBandError, "t.model", Some(3)),
    ("error:form=data,at=0,then=close", Outcome::InBandError, "t.model", Some(0)),
    ("error:form=event,then=close", Outcome::InBandError, "t.model", Some(3)),
    ("error:form=raw,then=open", Outcome::InBandError, "t.model", Some(3)),
    ("error:form=llama,then=open", Outcome::InBandError, "t.model", Some(3)),
    ("error:form=object,then=done", Outcome::InBandError, "t.model", Some(3)),
    ("error:form=data,then=open", Outcome::InBandError, "t.model", Some(3)),
    ("truncate", Outcome::Truncated, "t.timeouts.total", Some(3)),
    ("truncate:at=0", Outcome::Empty, "t.api", Some(0)),
    ("stall", Outcome::TimeoutIdle, "t.timeouts.idle", Some(3)),
    ("stall:at=0", Outcome::TimeoutFirstToken, "t.timeouts.first_token", Some(0)),
    ("stall_comments", Outcome::TimeoutIdle, "t.timeouts.idle", Some(3)),
    ("comments", Outcome::Ok, "", Some(20)),
    ("endless:of=tokens", Outcome::Parse, "t.api", None),
    ("endless:of=comments", Outcome::Parse, "t.api", Some(1)),
    ("giant_line:size=1GB,form=data", Outcome::Parse, "t.api", Some(3)),
    ("giant_line:size=1GB,form=raw", Outcome::Parse, "t.api", Some(3)),
    ("deep_json", Outcome::Parse, "t.api", Some(3)),
    ("nul_bytes", Outcome::Parse, "t.api", Some(3)),
    ("bad_utf8", Outcome::Parse, "t.api", Some(3)),
    ("bad_json", Outcome::Parse, "t.api", Some(3)),
    ("non_object", Outcome::Ok, "", Some(20)),
    ("crlf", Outcome::Ok, "", Some(20)),
    ("cr_only", Outcome::Ok, "", Some(20)),
    ("no_space", Outcome::Ok, "", Some(20)),
    ("multi_line", Outcome::Ok, "", Some(20)),
    ("bom", Outcome::Ok, "", Some(20)),
    ("blank_lines", Outcome::Ok, "", Some(20)),
    ("done_unterminated", Outcome::Ok, "", Some(20)),
    ("split_utf8", Outcome::Ok, "", Some(20)),
    ("one_byte", Outcome::Ok, "", Some(20)),
    ("coalesced", Outcome::Ok, "", Some(20)),
    ("compressed:with=gzip", Outcome::Ok, "", Some(20)),
    ("compressed:with=deflate", Outcome::Ok, "", Some(20)),
    ("cut:place=event", Outcome::Truncated, "t.timeouts.total", Some(3)),
    ("cut:place=between", Outcome::Truncated, "t.timeouts.total", Some(3)),
    ("close:when=before_head", Outcome::Truncated, "t.base_url", Some(0)),
    ("close:when=in_head", Outcome::Truncated, "t.base_url", Some(0)),
    ("silence:head=sent", Outcome::TimeoutFirstToken, "t.timeouts.first_token", Some(0)),
    ("silence:head=withheld", Outcome::TimeoutFirstToken, "t.timeouts.first_token", Some(0)),
    ("head_pieces", Outcome::Ok, "", Some(20)),
    ("huge_head:size=100kB", Outcome::Ok, "", Some(20)),
    ("huge_head:size=10MB", Outcome::Parse, "t.base_url", Some(0)),
    ("bad_status_line", Outcome::Parse, "t.base_url", Some(0)),
    ("short_length", Outcome::Truncated, "t.timeouts.total", Some(3)),
    ("close_delimited", Outcome::Ok, "", Some(20)),
];

/// The rows that are only what they are over TCP.
const TCP_ROWS: &[Row] = &[
    ("reset:when=before_head", Outcome::Reset, "t.base_url", Some(0)),
    ("reset:when=after_head", Outcome::Reset, "t.base_url", Some(0)),
    ("reset:when=stream", Outcome::Reset, "t.base_url", Some(3)),
    ("stale_close:how=rst", Outcome::Ok, "", Some(20)),
];

/// The outcomes that the gateway cannot bring about, and where they are reached.
const ELSEWHERE: [Outcome; 8] = [
    Outcome::Dns,            // an_address_that_is_none_…
    Outcome::Connect,        // an_address_that_is_none_…
    Outcome::Tls,            // tls_that_cannot_be_trusted_…
    Outcome::TimeoutConnect, // a_handshake_that_never_ends_…
    Outcome::TimeoutTotal,   // answers_that_take_too_long_or_end_too_early_…
    Outcome::ShortOutput,    // answers_that_take_too_long_or_end_too_early_…
    Outcome::Local,          // in the client's own tests, and with `ulimit -n` in those of the command line
    Outcome::Canceled,       // in the client's own tests
];

/// A healthy gateway that is quick.
fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.set("model", "tiny").unwrap();
    settings.set("ttft", "40ms").unwrap();
    settings.set("gap", "5ms").unwrap();
    settings
}

/// Dials into a simulator within this process.
struct Piped {
    simulator: Simulator,
    serving: Rc<RefCell<JoinSet<()>>>,
}

impl Dial for Piped {
    fn dial(&self, _: Instant) -> Dialing<'_> {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let simulator = self.simulator.clone();
        self.serving.borrow_mut().spawn(async move { simulator.serve_stream(theirs).await });
        Box::pin(async { Ok(Dialed { stream: Box::new(ours), phases: ConnectPhases::default() }) })
    }
}

fn target(api: Api, base_url: &str) -> Target {
    let mut target = sending::target(base_url, api);
    target.name = "t".to_owned();
    target
}

/// The client's secrets, which are how a header is given to it; this one asks for a fault.
fn asking_for(fault: &str) -> Secrets {
    let header = Header { name: "x-sim-fault".to_owned(), value: Secret::new(fault), hidden: false };
    Secrets { key: None, headers: vec![header] }
}

async fn ask(client: &Client, target: &Target, index: u64) -> Timeline {
    let messages = vec![Message::user("hello there")];
    let prompt = Prompt { messages, output_tokens: ASKED, input_tokens: None, turn: 0 };
    let request = Prepared::new(target, &prompt, "faults", index);
    let arrival = Arrival { index, planned_at: clock::now() };
    client.send(arrival, &request, std::future::pending()).await
}

fn check(name: &str, target: &Target, timeline: &Timeline, row: &Row) {
    let (_, outcome, setting, events) = row;
    assert_eq!(timeline.outcome, *outcome, "{name}: {timeline:?}");
    if let Some(events) = events {
        assert_eq!(timeline.answer.tokens.len(), *events, "{name}: {timeline:?}");
    }
    let hint = hint::hint(target, timeline, Surroundings { in_container: false });
    assert_eq!(hint.is_none(), *outcome == Outcome::Ok, "{name}: {hint:?}");
    assert!(hint.clone().unwrap_or_default().contains(setting), "{name}: {hint:?}, {:?}", timeline.detail);
    assert_eq!(timeline.detail.is_none(), *outcome == Outcome::Ok, "{name}: {:?}", timeline.detail);
}

#[test]
fn every_fault_has_a_row_and_every_outcome_is_reached() {
    let named = |rows: &[Row]| rows.iter().map(|row| Fault::parse(row.0).unwrap().name()).collect::<BTreeSet<_>>();
    let tested: BTreeSet<_> = named(ROWS).union(&named(TCP_ROWS)).copied().collect();
    let known: BTreeSet<_> = ALL.iter().map(|doc| doc.name).collect();
    assert_eq!(tested, known);

    let mut reached: BTreeSet<_> = ROWS.iter().chain(TCP_ROWS).map(|row| row.1).collect();
    reached.extend(ELSEWHERE);
    assert_eq!(reached, Outcome::ALL.into_iter().collect());
}

#[tokio::test(start_paused = true)]
async fn patience_is_asked_for_by_a_429_and_a_503_only_in_either_form() {
    for (fault, least, most) in [
        ("status:code=429,retry_after=30", Some(30), 30),
        ("status:code=503,retry_after=30", Some(30), 30),
        // A date has whole seconds, and the wall clock runs meanwhile.
        ("status:code=429,retry_after=30,retry_form=date", Some(25), 30),
        ("status:code=503,retry_after=30,retry_form=date", Some(25), 30),
        ("status:code=429,retry_after=4000000", Some(3600), 3600),
        ("status:code=429,retry_after=0", None, 0),
        ("status:code=503", None, 0),
        ("status:code=500,retry_after=30", None, 0),
        ("status:code=404,retry_after=30", None, 0),
    ] {
        let target = target(Api::OpenAiChat, "http://gateway");
        let dialer = Piped { simulator: Simulator::new(settings()), serving: Rc::default() };
        let client = Client::new(&target, asking_for(fault), Box::new(dialer)).unwrap();
        let asked = ask(&client, &target, 0).await.retry_after;
        assert_eq!(asked.is_some(), least.is_some(), "{fault}: {asked:?}");
        let asked = asked.map_or(0, |asked| asked.as_secs());
        assert!((least.unwrap_or(0)..=most).contains(&asked), "{fault}: {asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_fault_ends_as_it_should() {
    let serving = Rc::default();
    for row in ROWS {
        let mut settings = settings();
        let mut secrets = asking_for(row.0);
        if matches!(Fault::parse(row.0).unwrap(), Fault::Connection(_)) {
            // A connection has no header: the fault is the gateway's own.
            settings.faults.push(steadyload::sim::fault::rule::FaultRule::parse(row.0).unwrap());
            secrets = Secrets::default();
        }
        let target = target(Api::OpenAiChat, "http://gateway");
        let dialer = Piped { simulator: Simulator::new(settings), serving: Rc::clone(&serving) };
        let client = Client::new(&target, secrets, Box::new(dialer)).unwrap();
        // The second request of a client meets what the first left behind. A flood takes its time and leaves nothing.
        let requests = if row.0.starts_with("endless") { 1 } else { 2 };
        for index in 0..requests {
            let timeline = ask(&client, &target, index).await;
            check(&format!("{}, request {index}", row.0), &target, &timeline, row);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_api_is_understood() {
    let serving = Rc::default();
    for (change, events, n) in [
        (vec![], 20, Some(20)),
        (vec![("tokens_per_chunk", "4")], 5, Some(20)),
        (vec![("usage", "none")], 20, None),
        (vec![("usage", "final")], 20, Some(20)),
        (vec![("usage", "final_with_choices")], 20, Some(20)),
        (vec![("usage", "continuous")], 20, Some(20)),
        (vec![("usage_null", "true"), ("usage", "final")], 20, Some(20)),
        (vec![("stream_output", "true")], 20, Some(20)),
        (vec![("role_chunk", "false")], 20, Some(20)),
        (vec![("split_chars", "3")], 20, Some(20)),
    ] {
        for api in Api::ALL {
            let mut settings = settings();
            for (key, value) in &change {
                settings.set(key, value).unwrap();
            }
            let target = target(api, "http://gateway");
            let dialer = Piped { simulator: Simulator::new(settings), serving: Rc::clone(&serving) };
            let client = Client::new(&target, Secrets::default(), Box::new(dialer)).unwrap();
            let timeline = ask(&client, &target, 0).await;
            let name = format!("{api}, {change:?}");
            assert_eq!(timeline.outcome, Outcome::Ok, "{name}: {timeline:?}");
            assert_eq!(timeline.answer.tokens.len(), events, "{name}: {timeline:?}");
            // SGLang's own form counts with every event, whatever OpenAI's options say.
            let n = if api == Api::SglangGenerate { Some(20) } else { n };
            assert_eq!(timeline.answer.output_tokens(), n, "{name}: {timeline:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_take_too_long_or_end_too_early_are_told_apart() {
    let serving = Rc::default();
    for (changes, outcome) in [
        (vec![("gap", "7s")], Outcome::TimeoutTotal),
        (
            vec![("honour_ignore_eos", "false"), ("honour_min_tokens", "false"), ("natural_tokens", "5")],
            Outcome::ShortOutput,
        ),
    ] {
        let mut settings = settings();
        for (key, value) in changes {
            settings.set(key, value).unwrap();
        }
        let target = target(Api::OpenAiChat, "http://gateway");
        let dialer = Piped { simulator: Simulator::new(settings), serving: Rc::clone(&serving) };
        let client = Client::new(&target, Secrets::default(), Box::new(dialer)).unwrap();
        let timeline = ask(&client, &target, 0).await;
        let setting = if outcome == Outcome::ShortOutput { "t.send.ignore_eos" } else { "t.timeouts.total" };
        check(outcome.name(), &target, &timeline, &("", outcome, setting, None));
    }
}

// ---- what needs a socket ----

/// Waits that a test is willing to spend in real time.
fn impatient(mut target: Target) -> Target {
    target.timeouts.connect = Duration::from_millis(300);
    target
}

#[tokio::test]
async fn a_reset_is_one() {
    for row in TCP_ROWS {
        let mut settings = settings();
        let mut secrets = asking_for(row.0);
        if matches!(Fault::parse(row.0).unwrap(), Fault::Connection(_)) {
            settings.faults.push(steadyload::sim::fault::rule::FaultRule::parse(row.0).unwrap());
            secrets = Secrets::default();
        }
        let gateway = Gateway::bind(settings, ([127, 0, 0, 1], 0).into()).await.unwrap();
        let target = target(Api::OpenAiChat, &format!("http://{}", gateway.local_addr()));
        let client = sending::connecting_with(&target, secrets);
        let asking = async {
            for index in 0..3 {
                let timeline = ask(&client, &target, index).await;
                check(&format!("{}, request {index}", row.0), &target, &timeline, row);
            }
        };
        gateway.run(asking).await.unwrap();
    }
}

#[tokio::test]
async fn an_address_that_is_none_or_where_nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for (base_url, outcome) in [("http://no..such..host:8000", Outcome::Dns), (&closed, Outcome::Connect)] {
        let target = target(Api::OpenAiChat, base_url);
        let timeline = ask(&sending::connecting(&target), &target, 0).await;
        check(base_url, &target, &timeline, &("", outcome, "t.base_url", None));
        assert!(timeline.sent_at.is_none() && timeline.opened.is_none());
    }
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_a_time_out_of_the_connect() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // The kernel completes TCP's handshake; TLS waits for a word that does not come.
    let target = impatient(target(Api::OpenAiChat, &format!("https://{}", listener.local_addr().unwrap())));
    let timeline = ask(&sending::connecting(&target), &target, 0).await;
    check("TLS", &target, &timeline, &("", Outcome::TimeoutConnect, "t.timeouts.connect", None));
    assert!(timeline.detail.unwrap().contains("tls"), "the phase is named");
}

/// A certificate for `localhost`, and a server that shows it and then serves the simulated gateway.
struct TlsServer {
    listener: TcpListener,
    acceptor: tokio_rustls::TlsAcceptor,
    pem: String,
}

impl TlsServer {
    async fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { listener, acceptor: Arc::new(config).into(), pem: made.cert.pem() }
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}", self.listener.local_addr().unwrap().port())
    }

    /// Serves one connection after another until dropped. With `cut` the connection is closed without TLS's farewell.
    async fn serve(&self, cut: bool) -> io::Result<()> {
        let simulator = Simulator::new(settings());
        loop {
            let (tcp, _) = self.listener.accept().await?;
            let Ok(mut tls) = self.acceptor.accept(tcp).await else { continue };
            if cut {
                let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nda";
                tls.write_all(head).await?;
                tls.flush().await?;
                drop(tls);
            } else {
                simulator.serve_stream(tls).await;
            }
        }
    }
}

#[tokio::test]
async fn tls_that_cannot_be_trusted_is_told_apart_and_a_ca_file_mends_it() {
    let server = TlsServer::new().await;
    let ca_file = std::env::temp_dir().join(format!("steadyload-ca-{}.pem", std::process::id()));
    std::fs::write(&ca_file, &server.pem).unwrap();
    let asking = async {
        let unknown = target(Api::OpenAiChat, &server.url("localhost"));
        let timeline = ask(&sending::connecting(&unknown), &unknown, 0).await;
        check("unknown authority", &unknown, &timeline, &("", Outcome::Tls, "t.ca_file", None));

        let mut misnamed = target(Api::OpenAiChat, &server.url("127.0.0.1"));
        misnamed.ca_file = Some(ca_file.clone());
        let timeline = ask(&sending::connecting(&misnamed), &misnamed, 0).await;
        check("another name", &misnamed, &timeline, &("", Outcome::Tls, "t.base_url", None));

        let mut good = target(Api::OpenAiChat, &server.url("localhost"));
        good.ca_file = Some(ca_file.clone());
        let timeline = ask(&sending::connecting(&good), &good, 0).await;
        check("the right authority", &good, &timeline, &("", Outcome::Ok, "", Some(20)));
        let phases = timeline.opened.unwrap();
        assert!(phases.dns.is_some() && phases.tcp.is_some() && phases.tls.is_some(), "{phases:?}");
        assert!(phases.total() <= timeline.setup, "set-up is more than its phases");
    };
    tokio::select! {
        served = server.serve(false) => served.unwrap(),
        () = asking => {}
    }
    std::fs::remove_file(&ca_file).unwrap();
}

#[tokio::test]
async fn tls_to_a_plain_port_and_plain_to_a_tls_port_are_both_explained() {
    let gateway = Gateway::bind(settings(), ([127, 0, 0, 1], 0).into()).await.unwrap();
    let tls_to_plain = target(Api::OpenAiChat, &format!("https://{}", gateway.local_addr()));
    gateway
        .run(async {
            let timeline = ask(&sending::connecting(&tls_to_plain), &tls_to_plain, 0).await;
            check("TLS to plain", &tls_to_plain, &timeline, &("", Outcome::Tls, "http://", None));
        })
        .await
        .unwrap();
    let server = TlsServer::new().await;
    let plain_to_tls = target(Api::OpenAiChat, &server.url("localhost").replace("https", "http"));
    let asking = async {
        let timeline = ask(&sending::connecting(&plain_to_tls), &plain_to_tls, 0).await;
        let hint = hint::hint(&plain_to_tls, &timeline, Surroundings { in_container: false }).unwrap();
        assert!(hint.contains("t.base_url"), "{timeline:?}: {hint}");
    };
    tokio::select! {
        served = server.serve(false) => served.unwrap(),
        () = asking => {}
    }
}

#[tokio::test]
async fn a_tls_stream_closed_without_its_farewell_is_cut_off() {
    let server = TlsServer::new().await;
    let ca_file = std::env::temp_dir().join(format!("steadyload-ca-cut-{}.pem", std::process::id()));
    std::fs::write(&ca_file, &server.pem).unwrap();
    let mut target = target(Api::OpenAiChat, &server.url("localhost"));
    target.ca_file = Some(ca_file.clone());
    let asking = async {
        let timeline = ask(&sending::connecting(&target), &target, 0).await;
        assert_eq!((timeline.outcome, timeline.answer.cut), (Outcome::Empty, true), "{timeline:?}");
    };
    tokio::select! {
        served = server.serve(true) => served.unwrap(),
        () = asking => {}
    }
    std::fs::remove_file(&ca_file).unwrap();
}
