//! Answers that are no answer: errors in the words of real servers.
//!
//! The texts are vLLM 0.32's unless they name another server, taken from what these servers sent.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value as Json, json};

use crate::clock;
use crate::sim::fault::{FieldForm, JsonErrorForm, RetryForm, StatusBody};

/// A whole response that refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// Headers beside the length.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

const JSON: &str = "application/json";

impl Refusal {
    pub(crate) fn json(status: u16, body: &Json) -> Self {
        Self { status, headers: vec![("content-type", JSON.to_owned())], body: body.to_string() }
    }

    fn text(status: u16, body: &str) -> Self {
        Self { status, headers: vec![("content-type", "text/plain; charset=utf-8".to_owned())], body: body.to_owned() }
    }

    fn html(status: u16, body: String) -> Self {
        Self {
            status,
            headers: vec![("server", "nginx/1.22.1".to_owned()), ("content-type", "text/html".to_owned())],
            body,
        }
    }

    fn vllm(status: u16, message: &str, kind: &str, param: Option<&str>) -> Self {
        Self::json(status, &json!({"error": {"message": message, "type": kind, "param": param, "code": status}}))
    }

    pub(crate) fn unauthorized() -> Self {
        Self::json(401, &json!({"error": "Unauthorized"}))
    }

    pub(crate) fn not_found() -> Self {
        Self::json(404, &json!({"detail": "Not Found"}))
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::json(405, &json!({"detail": "Method Not Allowed"}))
    }

    pub(crate) fn unknown_model(asked: &str, known: &str) -> Self {
        let message = format!("The model `{asked}` does not exist. Valid aliases: {known}.");
        Self::vllm(404, &message, "NotFoundError", Some("model"))
    }

    pub(crate) fn bad_request(message: &str, param: &str) -> Self {
        Self::vllm(400, message, "BadRequestError", Some(param))
    }

    /// A body that does not have the shape that FastAPI's models ask for.
    pub(crate) fn invalid(kind: &str, loc: &str, message: &str) -> Self {
        let text = format!("1 validation error:\n  {{'type': '{kind}', 'loc': '{loc}', 'msg': '{message}'}}");
        Self::vllm(400, &text, "Bad Request", Some(loc))
    }

    pub(crate) fn body_too_large(limit: usize) -> Self {
        Self::vllm(413, &format!("the request body is larger than {limit} bytes"), "Request Entity Too Large", None)
    }

    /// The gateway's own complaint about its fault header or its administration.
    pub(crate) fn bad_fault(message: &str) -> Self {
        Self::vllm(400, message, "SimFaultError", Some("x-sim-fault"))
    }

    pub(crate) fn unknown_field(field: &str, form: FieldForm) -> Self {
        match form {
            FieldForm::Transformers => {
                Self::json(422, &json!({"detail": format!("Unexpected fields in the request: {{'{field}'}}")}))
            }
            FieldForm::Fastapi => {
                let part = json!({"type": "extra_forbidden", "loc": ["body", field], "msg": "Extra inputs are not permitted", "input": true});
                Self::json(422, &json!({"detail": [part]}))
            }
            FieldForm::Openai => {
                let message = format!("Unrecognized request argument supplied: {field}");
                let error = json!({"message": message, "type": "invalid_request_error", "param": null, "code": null});
                Self::json(400, &json!({"error": error}))
            }
        }
    }

    /// A status with the body that servers give with it.
    pub(crate) fn of_status(status: u16, body: StatusBody, retry_after: Option<String>) -> Self {
        let mut refusal = match body {
            StatusBody::Auto => Self::usual(status),
            StatusBody::Json => Self::vllm(status, phrase(status), phrase(status), None),
            StatusBody::Html => Self::html(status, nginx_page(status)),
            StatusBody::Text => Self::text(status, phrase(status)),
            StatusBody::Empty => Self { status, headers: Vec::new(), body: String::new() },
        };
        refusal.headers.extend(retry_after.map(|value| ("retry-after", value)));
        refusal
    }

    /// What `Retry-After` holds with this status: a 429 always has one.
    pub(crate) fn retry_after(status: u16, secs: Option<u32>, form: RetryForm) -> Option<String> {
        let secs = secs.or((status == 429).then_some(1))?;
        Some(match form {
            RetryForm::Seconds => secs.to_string(),
            RetryForm::Date => httpdate::fmt_http_date(clock::wall_now() + Duration::from_secs(secs.into())),
        })
    }

    fn usual(status: u16) -> Self {
        match status {
            401 => Self::unauthorized(),
            403 => Self::vllm(403, "You are not allowed to use this model", "PermissionDeniedError", None),
            404 => Self::not_found(),
            422 => Self::json(
                422,
                &json!({"detail": [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required", "input": null}]}),
            ),
            429 => {
                let error = json!({"message": "Rate limit reached for requests", "type": "requests", "param": null, "code": "rate_limit_exceeded"});
                Self::json(429, &json!({"error": error}))
            }
            500 => Self::vllm(500, "Internal server error", "InternalServerError", None),
            502 | 504 => Self::html(status, nginx_page(status)),
            503 => Self::text(503, "no healthy upstream"),
            _ => Self::vllm(status, phrase(status), phrase(status), None),
        }
    }
}

/// A JSON error that stands in a 200.
pub(crate) fn json_error(form: JsonErrorForm) -> Json {
    let message = "EngineCore encountered an issue. See stack trace (above) for the root cause.";
    match form {
        JsonErrorForm::Openai => {
            json!({"error": {"message": message, "type": "InternalServerError", "param": null, "code": 500}})
        }
        JsonErrorForm::Object => {
            json!({"object": "error", "message": message, "type": "InternalServerError", "param": null, "code": 500})
        }
        JsonErrorForm::Text => json!({"error": message}),
    }
}

/// The reason phrase of a status.
pub(crate) fn phrase(status: u16) -> &'static str {
    StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Unknown")
}

fn nginx_page(status: u16) -> String {
    let title = format!("{status} {}", phrase(status));
    format!(
        "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n<hr><center>nginx/1.22.1</center>\r\n</body>\r\n</html>\r\n"
    )
}
