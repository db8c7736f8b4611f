//! What the pretended server says about itself: health, models, version, configuration and metrics.
//!
//! Paths and fields are those of vLLM 0.33 (with its development mode on, for `/server_info`) and SGLang 0.5.23 (with
//! `--enable-metrics`). Of their configurations only what a client can use is shown; a limit that does not exist is null.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::routing::{get, post};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::clock;
use crate::sim::exposition;
use crate::sim::http::House;
use crate::sim::refusal::Refusal;
use crate::sim::reply::Reply;
use crate::sim::settings::{ServerKind, Settings};
use crate::sim::stats::{EngineStats, Stats};
use crate::sim::tokenize::{detokenize, tokenize};

const VLLM_VERSION: &str = "0.33.0-sim";

const SGLANG_VERSION: &str = "0.5.23-sim";

/// As the Python client of Prometheus sends it, which both servers use.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The routes that this kind of server has beside those for answers.
pub(crate) fn routes(kind: ServerKind) -> Router<Arc<House>> {
    let both = Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/server_info", get(server_info))
        .route("/v1/models", get(models));
    match kind {
        ServerKind::Vllm => both.route("/version", get(version)),
        ServerKind::Sglang => both
            .route("/health_generate", get(health))
            .route("/v1/tokenize", post(tokenize))
            .route("/v1/detokenize", post(detokenize))
            .route("/get_server_info", get(server_info))
            .route("/model_info", get(model_info))
            .route("/get_model_info", get(model_info)),
    }
}

async fn health() -> Reply {
    Reply::plain(200, Vec::new(), Bytes::new())
}

async fn metrics(State(house): State<Arc<House>>) -> Reply {
    let text = exposition::text(&house.settings, &house.stats, &house.engine(), clock::now());
    Reply::plain(200, vec![("content-type", METRICS_TYPE.to_owned())], text.into())
}

fn reply(allowed: Result<(), Refusal>, answer: impl FnOnce() -> Json) -> Reply {
    Reply::refusal(allowed.map_or_else(|refusal| refusal, |()| Refusal::json(200, &answer())))
}

/// `GET /v1/models`.
pub(crate) async fn models(State(house): State<Arc<House>>, headers: HeaderMap) -> Reply {
    reply(house.check_key(&headers), || {
        let Settings { model, max_model_len, .. } = house.settings.as_ref();
        let owner = match house.settings.server {
            ServerKind::Vllm => "vllm",
            ServerKind::Sglang => "sglang",
        };
        let created = clock::unix_now().as_secs();
        let model = json!({
            "id": model, "object": "model", "created": created, "owned_by": owner, "root": model, "parent": null,
            "max_model_len": max_model_len,
        });
        json!({"object": "list", "data": [model]})
    })
}

async fn version() -> Reply {
    reply(Ok(()), || json!({"version": VLLM_VERSION}))
}

async fn model_info(State(house): State<Arc<House>>, headers: HeaderMap) -> Reply {
    reply(house.check_key_outside_v1(&headers), || {
        let model = &house.settings.model;
        json!({
            "model_path": model, "tokenizer_path": model, "is_generation": true, "preferred_sampling_params": null,
            "weight_version": "default", "has_image_understanding": false, "has_audio_understanding": false,
            "model_type": "sim", "architectures": ["SimForCausalLM"],
        })
    })
}

/// How vLLM is to show its configuration: as Python text, or as JSON.
#[derive(Debug, Deserialize)]
struct InfoQuery {
    config_format: Option<String>,
}

async fn server_info(State(house): State<Arc<House>>, Query(query): Query<InfoQuery>, headers: HeaderMap) -> Reply {
    reply(house.check_key_outside_v1(&headers), || {
        let (settings, engine) = (&house.settings, house.engine());
        match settings.server {
            ServerKind::Vllm => vllm_info(settings, &engine, query.config_format.as_deref() == Some("json")),
            ServerKind::Sglang => sglang_info(settings, &engine, &house.stats),
        }
    })
}

fn vllm_info(settings: &Settings, engine: &EngineStats, as_json: bool) -> Json {
    let Settings { model, max_model_len, .. } = settings;
    let blocks = engine.kv.map(|kv| kv.capacity_tokens / u64::from(kv.block_tokens.max(1)));
    let block_size = engine.kv.map(|kv| kv.block_tokens);
    let config = json!({
        "model_config": {"model": model, "served_model_name": model, "max_model_len": max_model_len},
        "cache_config": {"block_size": block_size, "num_gpu_blocks": blocks},
        "scheduler_config": {
            "max_num_seqs": engine.max_running_requests, "max_num_batched_tokens": engine.max_prefill_tokens,
            "max_model_len": max_model_len,
        },
    });
    let config = if as_json {
        config
    } else {
        json!(format!("model='{model}', served_model_name={model}, max_seq_len={max_model_len}"))
    };
    json!({"vllm_config": config})
}

fn sglang_info(settings: &Settings, engine: &EngineStats, stats: &Stats) -> Json {
    let Settings { model, max_model_len, .. } = settings;
    let throughput = stats.tokens_per_second(clock::now());
    json!({
        "model_path": model, "tokenizer_path": model, "served_model_name": model, "context_length": max_model_len,
        "max_running_requests": engine.max_running_requests, "max_prefill_tokens": engine.max_prefill_tokens,
        "page_size": engine.kv.map(|kv| kv.block_tokens), "max_total_num_tokens": engine.kv.map(|kv| kv.capacity_tokens),
        "max_req_input_len": max_model_len.saturating_sub(1), "enable_metrics": true, "status": "ready",
        "internal_states": [{"last_gen_throughput": throughput}],
        "version": SGLANG_VERSION,
    })
}
