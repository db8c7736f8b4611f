//! Who may change something, and what comes of it.

use super::*;

const BEARER: &str = "authorization: Bearer t0ken-that-must-not-show\r\n";
const CHANGES: [(&str, &str); 3] = [
    ("POST /-/reload", "reload"),
    ("POST /api/v1/loads/load0/pause", "pause"),
    ("POST /api/v1/loads/load0/resume", "resume"),
];

async fn post(house: &House, line: &str, headers: &str) -> Reply {
    ask(house.server.address(), line, headers).await
}

#[tokio::test]
async fn nothing_is_changed_without_the_token() {
    let mut house = usual();
    for (line, _) in CHANGES {
        let missing = post(&house, line, "").await;
        assert_eq!((missing.status, missing.header("www-authenticate")), (401, Some("Bearer realm=\"steadyload\"")));
        // What a form of another page could send.
        let form = post(&house, line, "content-type: text/plain\r\norigin: http://evil\r\ncontent-length: 1\r\n").await;
        assert_eq!(form.status, 401);
        let wrong = post(&house, line, "authorization: Bearer t0ken-that-must-not-shox\r\n").await;
        assert_eq!(wrong.status, 401);
        assert!(wrong.header("www-authenticate").unwrap().contains("invalid_token"));
        assert_eq!(post(&house, &format!("{line}?token={TOKEN}"), "").await.status, 401);
        assert_eq!(post(&house, line, &format!("cookie: token={TOKEN}\r\n")).await.status, 401);
        house.admin.send_replace(None);
        let nobody = post(&house, line, BEARER).await;
        assert_eq!(nobody.status, 403);
        assert!(
            nobody.error().contains("server.admin_token_file") && nobody.error().contains("server.admin_token_env")
        );
        house.admin.send_replace(Some(Secret::new(TOKEN)));
    }
    assert!(house.requests.try_recv().is_err(), "the app heard of none of them");
}

#[tokio::test]
async fn a_change_goes_to_the_app_and_its_answer_comes_back() {
    let mut house = usual();
    for (line, change) in [
        ("POST /-/reload", Change::Reload),
        ("POST /api/v1/loads/load0/pause", Change::Pause { load: "load0".to_owned() }),
        ("POST /api/v1/loads/a%22b%0A%2F/resume", Change::Resume { load: "a\"b\n/".to_owned() }),
    ] {
        for (answer, status, text) in [
            (Ok("done".to_owned()), 200, "{\"message\":\"done\"}\n"),
            (Err(Refusal::UnknownLoad("x".to_owned())), 404, "{\"error\":\"there is no load \\\"x\\\"\"}\n"),
            (Err(Refusal::Configuration("line 3: no".to_owned())), 422, "{\"error\":\"line 3: no\"}\n"),
            (Err(Refusal::Stopping), 503, "{\"error\":\"the daemon is stopping\"}\n"),
        ] {
            let address = house.server.address();
            let asked = ask(address, line, BEARER);
            let app = async {
                let request = house.requests.recv().await.unwrap();
                assert_eq!(request.change, change);
                request.reply.send(answer).unwrap();
            };
            let (reply, ()) = tokio::join!(asked, app);
            assert_eq!((reply.status, reply.text()), (status, text));
        }
    }
    let bad = post(&house, "POST /api/v1/loads/%ff/pause", BEARER).await;
    assert_eq!((bad.status, bad.error().as_str()), (400, "the name of the load is not UTF-8"));
}

#[tokio::test]
async fn an_app_that_does_not_answer_is_not_waited_for_and_scrapes_go_on() {
    let limits = Limits { change: Duration::from_millis(20), ..Limits::default() };
    let mut house = house(traffic(1), limits);
    let late = post(&house, "POST /-/reload", BEARER).await;
    assert_eq!(late.status, 504, "the first is in the queue, and nobody takes it out");
    let full = post(&house, "POST /-/reload", BEARER).await;
    assert_eq!((full.status, full.error().as_str()), (503, "too many changes are waiting; try again later"));
    assert_eq!(get(&house, "/metrics").await.status, 200);
    assert_eq!(get(&house, "/-/healthy").await.status, 200);
    house.requests.close();
    let gone = post(&house, "POST /-/reload", BEARER).await;
    assert_eq!((gone.status, gone.error().as_str()), (503, "the daemon is stopping"));
}

#[tokio::test]
async fn an_app_that_drops_a_change_is_stopping() {
    let mut house = usual();
    let address = house.server.address();
    let app = async { drop(house.requests.recv().await.unwrap()) };
    let (reply, ()) = tokio::join!(ask(address, "POST /-/reload", BEARER), app);
    assert_eq!((reply.status, reply.error().as_str()), (503, "the daemon is stopping"));
}

#[tokio::test]
async fn the_token_is_in_no_answer() {
    let house = usual();
    for line in [
        "GET /",
        "GET /metrics",
        "GET /api/v1/status",
        "GET /api/v1/requests",
        "GET /api/v1/events",
        "GET /nothing",
        "DELETE /-/reload",
        "GET /-/ready",
    ] {
        let reply = post(&house, line, BEARER).await;
        assert!(!reply.head.contains(TOKEN) && !reply.text().contains(TOKEN), "{line}");
    }
    let wrong = post(&house, "POST /-/reload", "authorization: Bearer wr0ng-that-must-not-show\r\n").await;
    assert!(!wrong.text().contains("must-not-show"));
}
