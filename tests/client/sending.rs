//! Clients and targets, built from the same parts as in the program.

use std::collections::BTreeMap;

use bytes::Bytes;
use steadyload::clock;
use steadyload::config::secrets::Secrets;
use steadyload::config::sections::{SendFields, Target, Timeouts};
use steadyload::domain::api::Api;
use steadyload::domain::arrival::Arrival;
use steadyload::domain::timeline::Timeline;
use steadyload::load::client::dial::{Dial, NetDialer};
use steadyload::load::client::{Client, Prepared, tls};
use url::Url;

/// A target with defaults for everything else.
pub(crate) fn target(base_url: &str, api: Api) -> Target {
    Target {
        name: "test".into(),
        base_url: Url::parse(base_url).unwrap(),
        endpoint: None,
        api_key: None,
        model: "tiny".into(),
        api,
        timeouts: Timeouts::default(),
        headers: BTreeMap::new(),
        body: serde_json::Map::new(),
        send: SendFields::default(),
        ca_file: None,
    }
}

/// A client that connects for real.
pub(crate) fn connecting(target: &Target) -> Client {
    connecting_with(target, Secrets::default())
}

/// A client that connects for real, with headers of its own.
pub(crate) fn connecting_with(target: &Target, secrets: Secrets) -> Client {
    let tls = tls::client_config(target.ca_file.as_deref()).unwrap();
    Client::new(target, secrets, Box::new(NetDialer::new(&target.request_url(), &tls).unwrap())).unwrap()
}

/// A client over connections of the test's own.
pub(crate) fn over(target: &Target, dialer: Box<dyn Dial>) -> Client {
    Client::new(target, Secrets::default(), dialer).unwrap()
}

/// Sends one request now and waits for its end.
pub(crate) async fn send(client: &Client, id: &str, body: impl Into<Bytes>, output_tokens: u32) -> Timeline {
    let request = Prepared { body: body.into(), output_tokens, request_id: id.to_owned() };
    let arrival = Arrival { index: 0, planned_at: clock::now() };
    client.send(arrival, &request, std::future::pending()).await
}
