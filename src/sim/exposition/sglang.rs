//! The series of SGLang 0.5.23 with `--enable-metrics`, one rank, without those for LoRA, speculation, disaggregation
//! and storage.

use tokio::time::Instant;

use crate::sim::exposition::{Page, number, share};
use crate::sim::stats::{ByForm, EngineStats, FinishReason, Stats};

pub(super) fn page(model: &str, stats: &Stats, engine: &EngineStats, now: Instant) -> String {
    let shared = [("engine_type", "unified"), ("model_name", model)];
    let ranks = [("moe_ep_rank", "0"), ("pp_rank", "0"), ("tp_rank", "0")];
    let mut scheduler = Page::new(&[shared.as_slice(), ranks.as_slice()].concat());
    gauges(&mut scheduler, engine, stats.tokens_per_second(now));
    let mut page = Page::new(&shared);
    counters(&mut page, stats);
    histograms(&mut page, stats);
    scheduler.text + &page.text
}

fn gauges(page: &mut Page<'_>, engine: &EngineStats, tokens_per_second: u64) {
    page.gauge("sglang:num_running_reqs", "The number of running requests.", number(engine.running));
    page.gauge("sglang:num_queue_reqs", "The number of requests in the waiting queue.", number(engine.waiting));
    page.gauge("sglang:num_retracted_reqs", "The number of retracted requests.", number(engine.preemptions));
    let throughput = number(tokens_per_second);
    page.gauge("sglang:gen_throughput", "The generation throughput (token/s).", throughput);
    let hit_rate = share(engine.prefix_hits_tokens, engine.prefix_queries_tokens);
    page.gauge("sglang:cache_hit_rate", "The prefix cache hit rate.", hit_rate);
    if let Some(kv) = engine.kv {
        page.gauge("sglang:num_used_tokens", "The number of used tokens.", number(kv.used_tokens));
        page.gauge("sglang:token_usage", "The token usage.", share(kv.used_tokens, kv.capacity_tokens));
        let capacity = number(kv.capacity_tokens);
        page.gauge("sglang:max_total_num_tokens", "The maximum total number of tokens.", capacity);
        page.gauge("sglang:page_size", "The number of tokens in a page.", f64::from(kv.block_tokens));
    }
}

fn counters(page: &mut Page<'_>, stats: &Stats) {
    page.counter("sglang:prompt_tokens_total", "Number of prefill tokens processed.", stats.prompt_tokens());
    page.counter("sglang:generation_tokens_total", "Number of generation tokens processed.", stats.generation_tokens());
    let name = "sglang:cached_tokens_total";
    page.head(name, "counter", "Number of cached prompt tokens by source (device/host/storage).");
    page.sample(name, &[("cache_source", "device")], number(stats.cached_tokens()));
    let all = FinishReason::ALL.iter().map(|reason| stats.finished(*reason)).sum();
    page.counter("sglang:num_requests_total", "Number of requests processed.", all);
    let aborted = stats.finished(FinishReason::Abort) + stats.finished(FinishReason::Error);
    page.counter("sglang:num_aborted_requests_total", "Number of requests aborted.", aborted);
}

/// One histogram with a series for streams and one for whole answers.
fn by_form(page: &mut Page<'_>, name: &str, help: &str, times: &ByForm) {
    page.head(name, "histogram", help);
    page.buckets(name, &[("is_streaming", "true")], &times.streams.read());
    page.buckets(name, &[("is_streaming", "false")], &times.wholes.read());
}

fn histograms(page: &mut Page<'_>, stats: &Stats) {
    let itl = stats.itl.read();
    page.histogram("sglang:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", &itl);
    for (name, help, times) in [
        ("sglang:time_to_first_token_seconds", "Histogram of time to first token in seconds.", &stats.ttft),
        (
            "sglang:request_time_per_output_token_seconds",
            "Histogram of time per output token of a request in seconds.",
            &stats.tpot,
        ),
        ("sglang:e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds", &stats.e2e),
    ] {
        by_form(page, name, help, times);
    }
    let queue = stats.times.queue.read();
    page.histogram("sglang:queue_time_seconds", "Histogram of queueing time in seconds.", &queue);
    let prompt = stats.prompt_lengths.read();
    page.histogram("sglang:prompt_tokens_histogram", "Histogram of prompt token length.", &prompt);
    let generation = stats.generation_lengths.read();
    page.histogram("sglang:generation_tokens_histogram", "Histogram of generation token length.", &generation);
}
