//! Peers that are slow, broken or many.

use super::*;

#[tokio::test]
async fn a_head_that_does_not_come_to_an_end_is_not_waited_for() {
    let house = house(traffic(1), Limits { head: Duration::from_millis(50), connections: 1, ..Limits::default() });
    for start in [&b""[..], b"GET /met", b"GET /metrics HTTP/1.1\r\nhost: x\r\n"] {
        // The whole answer to it, after which the one connection there may be is free again.
        let said = raw(house.server.address(), start).await;
        assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&said));
    }
    assert_eq!(get(&house, "/-/healthy").await.status, 200);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let house = house(traffic(1), Limits { head: Duration::from_millis(50), ..Limits::default() });
    let all = raw(house.server.address(), b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(all.starts_with(b"HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn a_peer_that_does_not_read_loses_its_connection() {
    let limits = Limits { write: Duration::from_millis(50), connections: 1, ..Limits::default() };
    let house = house(quiet(100), limits);
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut deaf = socket.connect(house.server.address()).await.unwrap();
    deaf.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    // The one connection that there may be is the deaf one's, for as long as it lasts.
    assert_eq!(get(&house, "/-/healthy").await.status, 200);
    let mut taken = Vec::new();
    let ended = timeout(LONG, deaf.read_to_end(&mut taken)).await.unwrap();
    let promised: usize = parse(&taken).header("content-length").unwrap().parse().unwrap();
    assert!(ended.is_err() || taken.len() < promised, "{} of {promised}", taken.len());
}

/// Asks on a connection that is kept, and takes the whole answer.
async fn ask_again(socket: &mut TcpStream) {
    socket.write_all(READY).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nready\n") {
        assert!(timeout(LONG, socket.read_buf(&mut answer)).await.unwrap().unwrap() > 0, "closed");
    }
}

const READY: &[u8] = b"GET /-/ready HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn at_the_cap_the_next_one_waits_until_a_place_is_free() {
    let house = house(traffic(1), Limits { connections: 1, head: 2 * LONG, ..Limits::default() });
    let connect = async || TcpStream::connect(house.server.address()).await.unwrap();
    let mut first = connect().await;
    ask_again(&mut first).await;
    let mut second = connect().await;
    second.write_all(READY).await.unwrap();
    // Far less than the second after which the first would have been quiet for too long.
    for _ in 0..20 {
        // The server has one thread, and the second asked before this: were it let in, it would have its answer by now.
        ask_again(&mut first).await;
        tokio::select! {
            biased;
            _ = second.readable() => panic!("let in beyond the cap"),
            () = tokio::task::yield_now() => {}
        }
    }
    drop(first);
    let mut answer = [0; 12];
    timeout(LONG, second.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn peers_that_say_nothing_keep_nobody_waiting() {
    let house = house(traffic(1), Limits { connections: 4, head: 20 * LONG, ..Limits::default() });
    let address = house.server.address();
    let mut silent = Vec::new();
    for said in [&b""[..], b"GET /-/rea", READY, b""] {
        let mut peer = TcpStream::connect(address).await.unwrap();
        peer.write_all(said).await.unwrap();
        silent.push(peer);
    }
    for _ in 0..6 {
        let answered = timeout(LONG, ask(address, "GET /-/healthy", "")).await;
        assert_eq!(answered.unwrap().status, 200);
    }
}

#[tokio::test]
async fn two_hundred_at_once_are_all_answered() {
    let house = house(traffic(1), Limits { connections: 8, ..Limits::default() });
    let address = house.server.address();
    let mut peers = JoinSet::new();
    for _ in 0..200 {
        peers.spawn(async move { ask(address, "GET /metrics", "accept-encoding: gzip\r\n").await.status });
    }
    let statuses = timeout(LONG, peers.join_all()).await.unwrap();
    assert_eq!(statuses, [200; 200]);
}

#[tokio::test]
async fn garbage_is_refused_and_the_next_one_served() {
    let house = usual();
    let many = "x: y\r\n".repeat(500);
    for (bytes, status) in [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), Some("400")),
        (b"\0\0\0\0\r\n\r\n".to_vec(), Some("400")),
        (b"GET / HTTP/9.9\r\n\r\n".to_vec(), Some("400")),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), None),
        (format!("GET / HTTP/1.1\r\nhost: x\r\nlong: {}\r\n\r\n", "a".repeat(100_000)).into_bytes(), Some("431")),
        (format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(100_000)).into_bytes(), Some("431")),
        (format!("GET / HTTP/1.1\r\nhost: x\r\n{many}\r\n").into_bytes(), Some("431")),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n".to_vec(), Some("400")),
        (b"GET /-/ready\r\n\r\n".to_vec(), Some("400")),
    ] {
        let said = raw(house.server.address(), &bytes).await;
        let said = String::from_utf8_lossy(&said);
        assert!(!said.starts_with("HTTP/1.1 2"), "{said}");
        assert!(status.is_none_or(|status| said.split(' ').nth(1) == Some(status)), "{status:?} but {said}");
        assert_eq!(get(&house, "/-/healthy").await.status, 200);
    }
}

#[tokio::test]
async fn a_body_is_never_waited_for() {
    let house = usual();
    let head = "POST /-/reload HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000000\r\n\r\nabc";
    assert_eq!(parse(&raw(house.server.address(), head.as_bytes()).await).status, 401);
    let chunked = "POST /-/reload HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nffffffff\r\nabc";
    assert_eq!(parse(&raw(house.server.address(), chunked.as_bytes()).await).status, 401);
}
