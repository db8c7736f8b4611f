//! The series of vLLM 0.33, one engine, without those for LoRA, several modalities, KV transfer and NaNs.

use crate::sim::exposition::{Page, number, share};
use crate::sim::stats::{ByForm, EngineStats, FinishReason, KvStats, Reading, Stats};

pub(super) fn page(model: &str, stats: &Stats, engine: &EngineStats) -> String {
    let mut page = Page::new(&[("engine", "0"), ("model_name", model)]);
    scheduler(&mut page, engine);
    if let Some(kv) = engine.kv {
        cache_config(&mut page, &kv);
    }
    counters(&mut page, stats, engine);
    lengths(&mut page, stats);
    times(&mut page, stats);
    page.text
}

fn scheduler(page: &mut Page<'_>, engine: &EngineStats) {
    let (running, waiting) = (number(engine.running), number(engine.waiting));
    page.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", running);
    page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", waiting);
    let name = "vllm:num_requests_waiting_by_reason";
    page.head(name, "gauge", "Number of requests waiting to be processed, by reason.");
    page.sample(name, &[("reason", "capacity")], waiting);
    page.sample(name, &[("reason", "deferred")], 0.0);
    let name = "vllm:engine_sleep_state";
    page.head(name, "gauge", "Engine sleep state; awake = 1 means engine is awake.");
    page.sample(name, &[("sleep_state", "awake")], 1.0);
    page.sample(name, &[("sleep_state", "discard_all")], 0.0);
    page.sample(name, &[("sleep_state", "weights_offloaded")], 0.0);
    if let Some(kv) = engine.kv {
        let usage = share(kv.used_tokens, kv.capacity_tokens);
        page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", usage);
    }
}

fn cache_config(page: &mut Page<'_>, kv: &KvStats) {
    let name = "vllm:cache_config_info";
    let blocks = (kv.capacity_tokens / u64::from(kv.block_tokens.max(1))).to_string();
    let labels = [("block_size", &*kv.block_tokens.to_string()), ("num_gpu_blocks", &*blocks)];
    page.head(name, "gauge", "Information of the LLMEngine CacheConfig.");
    page.sample(name, &labels, 1.0);
}

fn counters(page: &mut Page<'_>, stats: &Stats, engine: &EngineStats) {
    for (name, help, value) in [
        (
            "vllm:prefix_cache_queries_total",
            "Prefix cache queries, in terms of number of queried tokens.",
            engine.prefix_queries_tokens,
        ),
        (
            "vllm:prefix_cache_hits_total",
            "Prefix cache hits, in terms of number of cached tokens.",
            engine.prefix_hits_tokens,
        ),
        ("vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", engine.preemptions),
        ("vllm:prompt_tokens_total", "Number of prefill tokens processed.", stats.prompt_tokens()),
        (
            "vllm:prompt_tokens_cached_total",
            "Number of cached prompt tokens (local + external).",
            stats.cached_tokens(),
        ),
        ("vllm:generation_tokens_total", "Number of generation tokens processed.", stats.generation_tokens()),
    ] {
        page.counter(name, help, value);
    }
    let name = "vllm:request_success_total";
    page.head(name, "counter", "Count of successfully processed requests.");
    for reason in FinishReason::ALL {
        page.sample(name, &[("finished_reason", reason.word())], number(stats.finished(reason)));
    }
}

fn lengths(page: &mut Page<'_>, stats: &Stats) {
    let prompt = stats.prompt_lengths.read();
    page.histogram("vllm:request_prompt_tokens", "Number of prefill tokens processed.", &prompt);
    let generation = stats.generation_lengths.read();
    page.histogram("vllm:request_generation_tokens", "Number of generation tokens processed.", &generation);
}

/// vLLM does not tell streams from whole answers.
fn together(times: &ByForm) -> Reading {
    times.streams.read().plus(&times.wholes.read())
}

fn times(page: &mut Page<'_>, stats: &Stats) {
    let inside = &stats.times;
    for (name, help, reading) in [
        ("time_to_first_token", "Histogram of time to first token in seconds.", together(&stats.ttft)),
        ("inter_token_latency", "Histogram of inter-token latency in seconds.", stats.itl.read()),
        (
            "request_time_per_output_token",
            "Histogram of time_per_output_token_seconds per request.",
            together(&stats.tpot),
        ),
        ("e2e_request_latency", "Histogram of e2e request latency in seconds.", together(&stats.e2e)),
        ("request_queue_time", "Histogram of time spent in WAITING phase for request.", inside.queue.read()),
        ("request_inference_time", "Histogram of time spent in RUNNING phase for request.", inside.inference.read()),
        ("request_prefill_time", "Histogram of time spent in PREFILL phase for request.", inside.prefill.read()),
        ("request_decode_time", "Histogram of time spent in DECODE phase for request.", inside.decode.read()),
    ] {
        page.histogram(&format!("vllm:{name}_seconds"), help, &reading);
    }
}
