//! Answers in the shapes that all routes use.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::export::http::negotiate;
use crate::export::metrics;
use crate::export::view::View;

/// An answer that is only of this moment.
pub(super) fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(super) fn json(status: StatusCode, value: &Value) -> Response {
    answer(status, "application/json", format!("{value}\n"))
}

pub(super) fn error(status: StatusCode, text: &str) -> Response {
    json(status, &json!({ "error": text }))
}

/// One line, for people and probes.
pub(super) fn line(status: StatusCode, text: &str) -> Response {
    answer(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

/// The exposition in the form and coding that is wanted.
pub(super) fn exposition(view: &Arc<View>, coarse: bool, asked: &HeaderMap) -> Response {
    let format = negotiate::wanted(asked);
    let zipped = negotiate::gzip(asked);
    let body = if zipped {
        // The fastest level: text this repetitive shrinks to a twentieth all the same.
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        metrics::write(view, coarse, format, &mut gzip).and_then(|()| gzip.finish())
    } else {
        let mut plain = Vec::new();
        metrics::write(view, coarse, format, &mut plain).map(|()| plain)
    };
    let body = match body {
        Ok(body) => body,
        Err(failure) => {
            tracing::error!(error = %failure, "cannot write the metrics");
            return error(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written; the log says why");
        }
    };
    let mut response = answer(StatusCode::OK, format.content_type(), body);
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
    if zipped {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}
