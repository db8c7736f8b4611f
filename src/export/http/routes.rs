//! The routes.

use axum::Router;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::export::api;
use crate::export::http::admin::{self, Denial};
use crate::export::http::answer::{answer, error, exposition, json, line};
use crate::export::http::serve::Freshness;
use crate::export::http::{Limits, Surface};
use crate::export::page;
use crate::export::view::{Change, Phase, Refusal, Request};

/// The paths that there are, for whoever asked for another.
pub(super) const PATHS: [&str; 10] = [
    "/",
    "/metrics",
    "/-/healthy",
    "/-/ready",
    "/-/reload",
    "/api/v1/status",
    "/api/v1/requests",
    "/api/v1/events",
    "/api/v1/loads/{name}/pause",
    "/api/v1/loads/{name}/resume",
];

/// What the routes have at hand.
#[derive(Debug, Clone)]
pub(super) struct Front {
    pub(super) surface: Surface,
    pub(super) fresh: watch::Receiver<Freshness>,
    pub(super) limits: Limits,
}

pub(super) fn router(front: Front) -> Router {
    Router::new()
        .route("/", get(landing))
        .route("/metrics", get(metrics))
        .route("/-/healthy", get(healthy))
        .route("/-/ready", get(ready))
        .route("/-/reload", post(reload))
        .route("/api/v1/status", get(status))
        .route("/api/v1/requests", get(requests))
        .route("/api/v1/events", get(events))
        .route("/api/v1/loads/{name}/pause", post(pause))
        .route("/api/v1/loads/{name}/resume", post(resume))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(front)
}

async fn landing(State(front): State<Front>) -> Response {
    let view = front.surface.views.borrow().clone();
    let mut response = answer(StatusCode::OK, "text/html; charset=utf-8", page::landing(&view));
    // Nothing of what a load or a model is called can become a script here.
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    response
}

async fn metrics(State(front): State<Front>, headers: HeaderMap) -> Response {
    let view = front.surface.views.borrow().clone();
    exposition(&view, front.surface.coarse, &headers)
}

async fn healthy(State(front): State<Front>) -> Response {
    match *front.fresh.borrow() {
        Freshness::Fresh => line(StatusCode::OK, "healthy"),
        Freshness::Stale => {
            let text = format!("the daemon has shown nothing new for more than {:?}", front.limits.stale);
            line(StatusCode::SERVICE_UNAVAILABLE, &text)
        }
        Freshness::Gone => line(StatusCode::SERVICE_UNAVAILABLE, "the daemon has ended"),
    }
}

async fn ready(State(front): State<Front>) -> Response {
    let phase = front.surface.views.borrow().phase;
    match phase {
        Phase::Running => line(StatusCode::OK, "ready"),
        Phase::Starting | Phase::Draining | Phase::Stopping => {
            line(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {}", phase.name()))
        }
    }
}

async fn status(State(front): State<Front>) -> Response {
    json(StatusCode::OK, &api::status(&front.surface.views.borrow()))
}

async fn events(State(front): State<Front>) -> Response {
    json(StatusCode::OK, &api::events(&front.surface.views.borrow()))
}

/// Of which load.
#[derive(Debug, Deserialize)]
struct Which {
    load: Option<String>,
}

async fn requests(State(front): State<Front>, which: Result<Query<Which>, QueryRejection>) -> Response {
    let Ok(Query(which)) = which else {
        return error(StatusCode::BAD_REQUEST, "the query is not one: say ?load=NAME or nothing");
    };
    match api::requests(&front.surface.views.borrow(), which.load.as_deref()) {
        Some(requests) => json(StatusCode::OK, &requests),
        None => error(StatusCode::NOT_FOUND, &Refusal::UnknownLoad(which.load.unwrap_or_default()).to_string()),
    }
}

async fn reload(State(front): State<Front>, headers: HeaderMap) -> Response {
    change(&front, &headers, Change::Reload).await
}

/// The load that a path names.
type Named = Result<Path<String>, PathRejection>;

async fn pause(State(front): State<Front>, name: Named, headers: HeaderMap) -> Response {
    change_load(&front, name, &headers, |load| Change::Pause { load }).await
}

async fn resume(State(front): State<Front>, name: Named, headers: HeaderMap) -> Response {
    change_load(&front, name, &headers, |load| Change::Resume { load }).await
}

async fn change_load(front: &Front, name: Named, headers: &HeaderMap, into: fn(String) -> Change) -> Response {
    match name {
        Ok(Path(load)) => change(front, headers, into(load)).await,
        Err(_) => error(StatusCode::BAD_REQUEST, "the name of the load is not UTF-8"),
    }
}

/// Asks the app for a change, if whoever wants it may have it.
async fn change(front: &Front, headers: &HeaderMap, change: Change) -> Response {
    if let Err(denial) = admin::check(headers, front.surface.admin.borrow().as_ref()) {
        return denied(denial);
    }
    let (reply, answered) = oneshot::channel();
    match front.surface.requests.try_send(Request { change, reply }) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => {
            return error(StatusCode::SERVICE_UNAVAILABLE, "too many changes are waiting; try again later");
        }
        Err(TrySendError::Closed(_)) => return refused(&Refusal::Stopping),
    }
    match timeout(front.limits.change, answered).await {
        Ok(Ok(Ok(text))) => json(StatusCode::OK, &json!({ "message": text })),
        Ok(Ok(Err(refusal))) => refused(&refusal),
        // Dropped unanswered: whoever was to answer is no more.
        Ok(Err(_)) => refused(&Refusal::Stopping),
        Err(_) => {
            let text = format!("no answer within {:?}; the change may still be made", front.limits.change);
            error(StatusCode::GATEWAY_TIMEOUT, &text)
        }
    }
}

fn denied(denial: Denial) -> Response {
    let (status, text, challenge) = match denial {
        Denial::NoToken => (
            StatusCode::FORBIDDEN,
            "nothing can be changed over HTTP without a token: set server.admin_token_file or server.admin_token_env",
            None,
        ),
        Denial::Missing => (
            StatusCode::UNAUTHORIZED,
            "wants the header Authorization: Bearer TOKEN",
            Some("Bearer realm=\"steadyload\""),
        ),
        Denial::Wrong => (
            StatusCode::UNAUTHORIZED,
            "the token is not that of server.admin_token_file or server.admin_token_env",
            Some("Bearer realm=\"steadyload\", error=\"invalid_token\""),
        ),
    };
    let mut response = error(status, text);
    if let Some(challenge) = challenge {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    response
}

fn refused(refusal: &Refusal) -> Response {
    let status = match refusal {
        Refusal::UnknownLoad(_) => StatusCode::NOT_FOUND,
        Refusal::Configuration(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Refusal::Stopping => StatusCode::SERVICE_UNAVAILABLE,
    };
    error(status, &refusal.to_string())
}

async fn unknown() -> Response {
    json(StatusCode::NOT_FOUND, &json!({ "error": "there is no such path", "paths": PATHS }))
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    error(StatusCode::METHOD_NOT_ALLOWED, &format!("{method} is not for {}; see the header Allow", uri.path()))
}
