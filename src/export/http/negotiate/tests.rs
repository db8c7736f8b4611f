//! What scrapers and browsers really send, and what they get.

use axum::http::{HeaderName, HeaderValue};

use super::*;

fn headers(name: HeaderName, values: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(name.clone(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

const PROTO: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

#[test]
fn each_scraper_gets_the_form_it_asks_for() {
    let native_2_42 = format!(
        "{PROTO},application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
         text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    );
    let native_3 = format!(
        "{PROTO};q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
         application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
         text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
    );
    for (accept, format) in [
        // Prometheus 2.42, without and with native histograms.
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            Format::OpenMetrics,
        ),
        (&native_2_42, Format::Protobuf),
        // Prometheus 3, without and with.
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
             text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            Format::OpenMetrics,
        ),
        (&native_3, Format::Protobuf),
        // Prometheus 3 told to ask for text.
        ("text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.2", Format::Text),
        // curl, Firefox, Chrome, and an agent that wants plain text.
        ("*/*", Format::Text),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Format::Text),
        (
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,\
             application/signed-exchange;v=b3;q=0.7",
            Format::Text,
        ),
        ("text/plain;version=0.0.4;q=1,*/*;q=0.1", Format::Text),
    ] {
        assert_eq!(wanted(&headers(ACCEPT, &[accept])), format, "{accept}");
    }
    assert_eq!(wanted(&HeaderMap::new()), Format::Text, "nothing said");
}

#[test]
fn odd_wishes_are_met_as_far_as_they_can_be() {
    for (accept, format) in [
        ("application/openmetrics-text", Format::OpenMetrics),
        ("Application/OpenMetrics-Text; Version=\"1.0.0\"", Format::OpenMetrics),
        ("application/*", Format::OpenMetrics),
        ("text/*", Format::Text),
        ("text/plain, application/openmetrics-text", Format::Text),
        ("application/openmetrics-text, text/plain", Format::OpenMetrics),
        ("application/openmetrics-text, */*", Format::OpenMetrics),
        ("*/*, application/openmetrics-text", Format::OpenMetrics),
        ("application/openmetrics-text;q=0, */*", Format::Text),
        ("text/plain;q=0, */*", Format::OpenMetrics),
        ("application/openmetrics-text;version=0.0.1", Format::Text),
        ("application/json", Format::Text),
        ("application/vnd.google.protobuf", Format::Text),
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", Format::Text),
        ("application/openmetrics-text;q=2", Format::Text),
        ("application/openmetrics-text;q=nan", Format::Text),
        ("application/openmetrics-text;q=", Format::Text),
        (",,;;,=;q=0.5,/", Format::Text),
        ("", Format::Text),
    ] {
        assert_eq!(wanted(&headers(ACCEPT, &[accept])), format, "{accept}");
    }
    let split = headers(ACCEPT, &["text/plain;q=0.5", "application/openmetrics-text;version=1.0.0;q=0.9"]);
    assert_eq!(wanted(&split), Format::OpenMetrics, "two headers are one list");
}

#[test]
fn gzip_is_sent_to_those_who_allow_it() {
    for (accepted, allowed) in [
        ("gzip", true),
        ("gzip, deflate, br", true),
        ("deflate, GZIP;q=0.1", true),
        ("x-gzip", true),
        ("*", true),
        ("*;q=0", false),
        ("gzip;q=0", false),
        ("gzip;q=0.000", false),
        ("gzip;q=0, *", false),
        ("identity", false),
        ("identity;q=1, gzip;q=0.5", false),
        ("identity;q=0.5, gzip;q=1", true),
        ("br", false),
        ("", false),
        ("gzip;q=bad", false),
    ] {
        assert_eq!(gzip(&headers(ACCEPT_ENCODING, &[accepted])), allowed, "{accepted}");
    }
    assert!(!gzip(&HeaderMap::new()));
}
