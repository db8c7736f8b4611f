//! Engines that somebody has measured, as parameters of the model.
//!
//! Each says what it resembles, which figures it was fitted to and which of its numbers are estimates. They are for trying out and
//! teaching, not for buying hardware.

use std::time::Duration;

use super::Params;

/// An engine with a name.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// The word of `--preset`.
    pub name: &'static str,
    /// The model that it says it serves.
    pub model: &'static str,
    /// Its context length.
    pub max_model_len: u32,
    /// What it resembles, in a line.
    pub resembles: &'static str,
    /// What its numbers come from.
    pub source: &'static str,
    /// The numbers.
    pub params: Params,
}

/// All of them.
pub const PRESETS: [Preset; 2] = [DENSE_7B, MOE_35B];

/// The preset of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// Fitted to a published sweep (256 prompt tokens, 100 output tokens on average): 2.09, 3.78, 6.44, 9.73 and 11.87 requests per second at
/// concurrency 4, 8, 16, 32 and 48. These lie on N/(1.72 s + N · 48 ms) to 3 %. Of the 1.72 s, a hundred steps of 17.2 ms are the weights
/// (14.5 GB at 84 % of 1008 GB/s). Of the 48 ms, 28 are the prompt (79 % of the card's 165 TFLOPS), 4 the KV cache (128 kB a token), and
/// the rest is fitted. Room for KV: 24 GB · 0.9 − 14.5 GB − 1.2 GB. `max_running_requests` is an operator's choice that keeps the time per
/// token below 25 ms: the engine's own default would be above the cache's room, and the knee above 64.
const DENSE_7B: Preset = Preset {
    name: "7b-rtx4090",
    model: "sim-7b",
    max_model_len: 32_768,
    resembles: "a dense 7B model in fp16 on one RTX 4090 (24 GB), vLLM with --max-num-seqs 32",
    source: "a sweep of Mistral-7B-Instruct-v0.3 with vLLM at concurrency 4 to 48, https://mushfiqrahman.dev/?p=1668",
    params: Params {
        max_running_requests: 32,
        max_prefill_tokens: 2048,
        prefill_rate: 9_000.0,
        step: Duration::from_micros(17_150),
        step_per_request: Duration::from_micros(160),
        step_per_kv_token: Duration::from_nanos(130),
        kv_tokens: 45_000,
        prefix_cache: true,
        request_overhead: Duration::from_millis(4),
        jitter: 0.04,
        swing: 0.0,
        swing_period: Duration::from_mins(10),
    },
};

/// Fitted to two published points: 100 tokens per second for one stream, and 283 for four. So a step is 10.0 ms and 14.1 ms long: with a
/// mixture of experts each further sequence reads further experts. Estimates: the prompt rate (a quarter of both cards' 142 TFLOPS at 6
/// GFLOP a token), the KV cache (10 of 40 layers keep one: 20 kB a token, of which 8 GB have room). Beyond some 30 sequences all experts
/// are read in every step and a real engine's steps grow more slowly than these.
const MOE_35B: Preset = Preset {
    name: "35b-a3b-2xrtx3090",
    model: "sim-35b-a3b",
    max_model_len: 32_768,
    resembles: "a mixture of experts, 35B with 3B active, in 4 bits on two RTX 3090 (tensor parallel), vLLM with --max-num-seqs 64",
    source: "Qwen3.6-35B-A3B with vLLM at concurrency 1 and 4, https://alexander-ollman.github.io/qwen3.6-on-rtx3090/qwen3.6-on-rtx3090.html",
    params: Params {
        max_running_requests: 64,
        max_prefill_tokens: 2048,
        prefill_rate: 6_000.0,
        step: Duration::from_micros(8_620),
        step_per_request: Duration::from_micros(1_350),
        step_per_kv_token: Duration::from_nanos(11),
        kv_tokens: 400_000,
        prefix_cache: true,
        request_overhead: Duration::from_millis(5),
        jitter: 0.04,
        swing: 0.0,
        swing_period: Duration::from_mins(10),
    },
};
