//! The routes: what is asked becomes a [`Reply`], which `connection` then writes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use ring::digest::{SHA256, digest};
use tokio::time::Instant;

use crate::clock;
use crate::domain::api::Api;
use crate::sim::admin;
use crate::sim::answer::{Answer, Occasion};
use crate::sim::ask::Ask;
use crate::sim::engine::{LiveEngine, Ticking};
use crate::sim::fault::rule::{Rules, Struck};
use crate::sim::fault::{Fault, FaultError, ReplyFault};
use crate::sim::model::Engine;
use crate::sim::refusal::Refusal;
use crate::sim::reply::Reply;
use crate::sim::server;
use crate::sim::settings::{ServerKind, Settings};
use crate::sim::stats::{EngineStats, Stats};
use crate::sim::truth::{End, Truth, TruthLog};

/// Header in which a request asks for a fault.
pub(crate) const FAULT_HEADER: &str = "x-sim-fault";

/// What all connections share.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) settings: Arc<Settings>,
    pub(crate) rules: Rules,
    pub(crate) truth: TruthLog,
    /// `None` where times are drawn.
    pub(crate) engine: Option<LiveEngine>,
    pub(crate) stats: Arc<Stats>,
    requests: AtomicU64,
}

/// When a request was read to its end, and which path it asked for.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) at: Instant,
    pub(crate) path: String,
}

/// Carries a reply through axum's response, of which only this is used.
#[derive(Clone)]
pub(crate) struct Carrier(Arc<Mutex<Option<Reply>>>);

impl Carrier {
    pub(crate) fn take(self) -> Option<Reply> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(Carrier(Arc::new(Mutex::new(Some(self)))));
        response
    }
}

impl House {
    pub(crate) fn new(settings: Settings, ticking: Ticking) -> Self {
        let start = clock::now();
        let capacity = usize::try_from(settings.truth_capacity).unwrap_or(usize::MAX);
        let stats = Stats::new(settings.server, settings.max_model_len, start, clock::unix_now());
        Self {
            stats: Arc::new(stats),
            rules: Rules::new(settings.seed, &settings.faults, start),
            truth: TruthLog::new(capacity, start),
            engine: settings.engine.map(|params| LiveEngine::new(Engine::new(params, settings.seed), start, ticking)),
            requests: AtomicU64::new(0),
            settings: Arc::new(settings),
        }
    }

    /// What the engine says of itself.
    pub(crate) fn engine(&self) -> EngineStats {
        match (&self.engine, self.settings.engine) {
            (Some(engine), Some(params)) => EngineStats::modelled(engine.status(), &params),
            (None, _) | (_, None) => EngineStats::drawn(&self.stats),
        }
    }

    /// The key as each server checks it: the word `Bearer` in any case for vLLM, exactly so for SGLang.
    pub(crate) fn check_key(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(key) = &self.settings.api_key else { return Ok(()) };
        let given = headers.get("authorization").and_then(|value| value.to_str().ok());
        let is_right = given.and_then(|given| given.split_once(' ')).is_some_and(|(scheme, given)| {
            let is_bearer = match self.settings.server {
                ServerKind::Vllm => scheme.eq_ignore_ascii_case("Bearer"),
                ServerKind::Sglang => scheme == "Bearer",
            };
            is_bearer && given == key.expose()
        });
        if is_right { Ok(()) } else { Err(Refusal::unauthorized()) }
    }

    /// As [`House::check_key`], on a route outside `/v1`: vLLM leaves these open, SGLang only `/health…` and `/metrics`.
    pub(crate) fn check_key_outside_v1(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match self.settings.server {
            ServerKind::Vllm => Ok(()),
            ServerKind::Sglang => self.check_key(headers),
        }
    }

    /// The reply to a request for an answer, with its place in the truth log.
    async fn respond(&self, api: Api, received: Received, headers: &HeaderMap, body: &[u8]) -> Reply {
        let asked = match asked_fault(headers) {
            Ok(asked) => asked,
            Err(error) => return Reply::refusal(Refusal::bad_fault(&error.to_string())),
        };
        let seq = self.requests.fetch_add(1, Ordering::Relaxed);
        let struck = self.rules.strike(seq, asked, received.at);
        let created = clock::unix_now().as_secs();
        let occasion = Occasion { seq, received_at: received.at, created, factor: struck.factor };
        let ask = self.check_key(headers).and_then(|()| Ask::read(api, body, &self.settings));
        let prompt_tokens = ask.as_ref().map_or(0, |ask| ask.prompt_tokens);
        let request_id = headers.get("x-request-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        let shape = if let Some(Fault::Shape(shape)) = &struck.fault { Some(shape) } else { None };
        let answer = ask.map(|ask| Answer::new(ask, Arc::clone(&self.settings), self.engine.as_ref(), occasion, shape));
        let order = answer.as_ref().ok().map(Answer::order);
        let truth = Truth {
            seq,
            request_id,
            path: received.path,
            status: 0,
            fault: struck.text.clone(),
            received_at: received.at,
            head_written_at: None,
            writes: Vec::new(),
            finished_at: None,
            end: End::Open,
            n: 0,
            prompt_tokens,
            body_sha256: sha256(body),
        };
        let mut recording = self.truth.open(truth, self.stats.meter(order, received.at));
        // A whole answer is written down with all that its usage says, which only the engine knows.
        let is_whole = matches!(&struck.fault, Some(Fault::Reply(ReplyFault::JsonAnswer {})));
        if let Ok(answer) = &answer
            && (is_whole || !answer.is_stream())
            && let Some(ticket) = answer.ticket()
        {
            ticket.made(0).await;
            recording.cached(ticket.cached_tokens());
        }
        let mut reply = reply(api, answer, struck);
        recording.answered(reply.status);
        reply.recording = Some(recording);
        reply
    }
}

fn sha256(body: &[u8]) -> [u8; 32] {
    let digest = digest(&SHA256, body);
    // It has 32 bytes, always.
    digest.as_ref().try_into().unwrap_or_default()
}

/// What comes of an answer, or of its refusal, with what is wrong with it.
fn reply(api: Api, answer: Result<Answer, Refusal>, struck: Struck) -> Reply {
    if let Some(Fault::Reply(fault)) = &struck.fault {
        return Reply::instead(fault, api, answer.ok());
    }
    let (mut event, mut format, mut wire) = (None, None, None);
    match struck.fault {
        Some(Fault::Event(fault)) => event = Some(fault),
        Some(Fault::Format(fault)) => format = Some(fault),
        Some(Fault::Wire(fault)) => wire = Some(fault),
        Some(Fault::Load(_) | Fault::Connection(_) | Fault::Reply(_) | Fault::Shape(_)) | None => {}
    }
    match answer {
        Ok(answer) => Reply::answer(answer, event, format.as_ref(), wire),
        Err(refusal) => Reply { wire, ..Reply::refusal(refusal) },
    }
}

fn asked_fault(headers: &HeaderMap) -> Result<Option<Fault>, FaultError> {
    let Some(text) = headers.get(FAULT_HEADER) else { return Ok(None) };
    let fault = Fault::parse(text.to_str().unwrap_or("(not text)"))?;
    if let Fault::Connection(fault) = &fault {
        return Err(FaultError::TooLate { name: fault.name().to_owned() });
    }
    Ok(Some(fault))
}

/// Every route that there is. `/admin` stands outside the prefix.
pub(crate) fn router(house: Arc<House>) -> Router {
    let settings = Arc::clone(&house.settings);
    let mut served = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/generate", post(generate))
        .merge(server::routes(settings.server));
    if settings.sdk_paths {
        served = served
            .route("/chat/completions", post(chat))
            .route("/completions", post(completions))
            .route("/models", get(server::models));
    }
    let all = if settings.prefix.is_empty() { served } else { Router::new().nest(&settings.prefix, served) };
    all.route("/admin/faults", get(admin::faults).put(admin::put_faults).delete(admin::delete_faults))
        .route("/admin/truth", get(admin::truth))
        .fallback(async || Reply::refusal(Refusal::not_found()))
        .method_not_allowed_fallback(async || Reply::refusal(Refusal::method_not_allowed()))
        .layer(DefaultBodyLimit::disable()) // the connection has its own limit
        .with_state(house)
}

async fn chat(
    State(house): State<Arc<House>>,
    Extension(received): Extension<Received>,
    headers: HeaderMap,
    body: Bytes,
) -> Reply {
    house.respond(Api::OpenAiChat, received, &headers, &body).await
}

async fn completions(
    State(house): State<Arc<House>>,
    Extension(received): Extension<Received>,
    headers: HeaderMap,
    body: Bytes,
) -> Reply {
    house.respond(Api::OpenAiCompletions, received, &headers, &body).await
}

async fn generate(
    State(house): State<Arc<House>>,
    Extension(received): Extension<Received>,
    headers: HeaderMap,
    body: Bytes,
) -> Reply {
    house.respond(Api::SglangGenerate, received, &headers, &body).await
}
