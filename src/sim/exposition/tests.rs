use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::clock;
use crate::sim::stats::{FinishReason, KvStats, Order};
use crate::sim::truth::End;

const ORDER: Order = Order {
    prompt_tokens: 10,
    cached_tokens: 4,
    hidden_tokens: 0,
    tokens: 3,
    reason: FinishReason::Length,
    is_stream: true,
};

/// The text after one stream of three tokens and one whole answer.
fn page(kind: ServerKind, change: impl FnOnce(&mut EngineStats)) -> String {
    let start = clock::now();
    let settings = Settings { server: kind, model: "a\"b\\c".to_owned(), ..Settings::default() };
    let stats = Arc::new(Stats::new(kind, 100, start, Duration::from_secs(1_700_000_000)));
    for is_stream in [true, false] {
        let mut meter = stats.meter(Some(Order { is_stream, ..ORDER }), start);
        for at in [200, 220, 260] {
            let now = start + Duration::from_millis(at);
            meter.write(now, Some(now), 1);
        }
        meter.close(Some(start + Duration::from_millis(260)), End::Whole);
    }
    let mut engine = EngineStats::drawn(&stats);
    change(&mut engine);
    text(&settings, &stats, &engine, start + Duration::from_secs(1))
}

fn with_cache(engine: &mut EngineStats) {
    engine.kv = Some(KvStats { used_tokens: 320, capacity_tokens: 1280, block_tokens: 16 });
    engine.waiting = 3;
}

#[track_caller]
fn assert_has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|have| have == *line), "no line {line} in\n{text}");
    }
}

#[test]
fn vllm_has_its_names_labels_and_buckets() {
    let text = page(ServerKind::Vllm, with_cache);
    assert_has(
        &text,
        &[
            "process_start_time_seconds 1700000000.0",
            "# TYPE vllm:num_requests_running gauge",
            r#"vllm:num_requests_running{engine="0",model_name="a\"b\\c"} 0.0"#,
            r#"vllm:num_requests_waiting_by_reason{engine="0",model_name="a\"b\\c",reason="capacity"} 3.0"#,
            r#"vllm:kv_cache_usage_perc{engine="0",model_name="a\"b\\c"} 0.25"#,
            r#"vllm:cache_config_info{block_size="16",engine="0",model_name="a\"b\\c",num_gpu_blocks="80"} 1.0"#,
            r#"vllm:prefix_cache_queries_total{engine="0",model_name="a\"b\\c"} 20.0"#,
            r#"vllm:prefix_cache_hits_total{engine="0",model_name="a\"b\\c"} 8.0"#,
            r#"vllm:request_success_total{engine="0",finished_reason="length",model_name="a\"b\\c"} 2.0"#,
            "# TYPE vllm:time_to_first_token_seconds histogram",
            r#"vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="a\"b\\c"} 0.0"#,
            r#"vllm:time_to_first_token_seconds_bucket{engine="0",le="0.25",model_name="a\"b\\c"} 2.0"#,
            r#"vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="a\"b\\c"} 2.0"#,
            r#"vllm:time_to_first_token_seconds_sum{engine="0",model_name="a\"b\\c"} 0.4"#,
            r#"vllm:inter_token_latency_seconds_count{engine="0",model_name="a\"b\\c"} 4.0"#,
            r#"vllm:request_generation_tokens_bucket{engine="0",le="5.0",model_name="a\"b\\c"} 2.0"#,
            r#"sim:event_lag_seconds_bucket{le="1e-5",model_name="a\"b\\c"} 6.0"#,
            r#"sim:streams_written_tokens_total{model_name="a\"b\\c"} 6.0"#,
        ],
    );
    assert!(!text.contains("sglang:"));
}

#[test]
fn sglang_has_its_names_labels_and_buckets() {
    let text = page(ServerKind::Sglang, with_cache);
    let scheduler = r#"{engine_type="unified",model_name="a\"b\\c",moe_ep_rank="0",pp_rank="0",tp_rank="0"}"#;
    assert_has(
        &text,
        &[
            &format!("sglang:num_queue_reqs{scheduler} 3.0"),
            &format!("sglang:token_usage{scheduler} 0.25"),
            &format!("sglang:cache_hit_rate{scheduler} 0.4"),
            &format!("sglang:gen_throughput{scheduler} 6.0"),
            r#"sglang:cached_tokens_total{cache_source="device",engine_type="unified",model_name="a\"b\\c"} 8.0"#,
            r#"sglang:num_requests_total{engine_type="unified",model_name="a\"b\\c"} 2.0"#,
            r#"sglang:e2e_request_latency_seconds_count{engine_type="unified",is_streaming="true",model_name="a\"b\\c"} 1.0"#,
            r#"sglang:e2e_request_latency_seconds_count{engine_type="unified",is_streaming="false",model_name="a\"b\\c"} 1.0"#,
            r#"sim:requests_open{model_name="a\"b\\c"} 0.0"#,
        ],
    );
    assert!(!text.contains("vllm:"));
}

#[test]
fn where_there_is_no_cache_there_are_no_series_of_one() {
    let text = page(ServerKind::Vllm, |_| {}) + &page(ServerKind::Sglang, |_| {});
    for name in ["kv_cache_usage", "cache_config_info", "token_usage", "max_total_num_tokens"] {
        assert!(!text.contains(name), "{name}");
    }
}

/// Every histogram's buckets rise and end at its count, whatever the labels.
#[test]
fn the_last_bucket_is_the_count() {
    for kind in [ServerKind::Vllm, ServerKind::Sglang] {
        let text = page(kind, |_| {});
        let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
        let counts = text.lines().filter(|line| line.contains("_count{"));
        let mut seen = 0;
        for line in counts {
            let name = line.split("_count{").next().unwrap();
            let others = line.split(['{', '}']).nth(1).unwrap().to_owned();
            let is_mine = |bucket: &&str| {
                bucket.starts_with(&format!("{name}_bucket{{")) && others.split(',').all(|label| bucket.contains(label))
            };
            let buckets: Vec<_> = text.lines().filter(is_mine).map(value).collect();
            assert!(buckets.is_sorted() && buckets.last() == Some(&value(line)), "{line}: {buckets:?}");
            seen += 1;
        }
        assert!(seen > 8, "{seen}");
    }
}
