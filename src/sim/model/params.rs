//! What an engine can do: the parameters of the model, and how long a step takes.

use std::time::Duration;

/// The parameters of an engine. `presets` has some, with their sources.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Params {
    /// Requests in the batch at most: vLLM's `max_num_seqs`, SGLang's `max_running_requests`.
    pub max_running_requests: u32,
    /// Prompt tokens in one step at most: vLLM's `max_num_batched_tokens`, SGLang's `chunked_prefill_size`.
    pub max_prefill_tokens: u32,
    /// Prompt tokens per second, bound by arithmetic.
    pub prefill_rate: f64,
    /// A step without anything in it: the weights are read once, the kernels are launched.
    pub step: Duration,
    /// What each decoding sequence adds to a step: sampling, its share of the arithmetic, of experts to be read.
    pub step_per_request: Duration,
    /// What each token of a decoding sequence's context adds to a step: its keys and values are read.
    pub step_per_kv_token: Duration,
    /// Tokens for which the KV cache has room.
    pub kv_tokens: u32,
    /// Whether blocks of prompts are found again.
    pub prefix_cache: bool,
    /// From a request's last byte to its place in the queue: parsing, chat template, tokeniser, message to the engine.
    pub request_overhead: Duration,
    /// Noise of the scheduler: a step's (and an overhead's) time is multiplied by a log-normal number of mean 1 with this standard deviation
    /// of its logarithm.
    pub jitter: f64,
    /// Slow modulation, such as clocks that follow the temperature of the room: steps become longer and shorter by this part.
    pub swing: f64,
    /// How long one such turn takes.
    pub swing_period: Duration,
}

/// Why there can be no such engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// A value that has to be more than nothing is not.
    #[error("{key} must be more than 0")]
    Zero {
        /// The parameter.
        key: &'static str,
    },
    /// A request of full length could never be answered.
    #[error("kv_tokens={kv_tokens} has no room for one request of max_model_len={max_model_len} tokens")]
    TooSmallCache {
        /// The cache.
        kv_tokens: u32,
        /// The longest request.
        max_model_len: u32,
    },
    /// Time would run backwards.
    #[error("swing={swing} is too much: steps can be longer and shorter by 0.9 at most")]
    TooMuchSwing {
        /// The modulation.
        swing: String,
    },
}

/// What one step has to do.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Batch {
    /// Sequences that make one more token.
    pub(super) decoding: u64,
    /// The tokens of their contexts together.
    pub(super) kv_tokens: u64,
    /// Prompt tokens that are computed.
    pub(super) prefill_tokens: u64,
}

impl Params {
    /// step + decoding · `step_per_request` + contexts · `step_per_kv_token` + prompt tokens / `prefill_rate`.
    #[expect(clippy::cast_precision_loss, reason = "counts of a batch are far below 2^52")]
    pub(super) fn step_time(&self, batch: Batch) -> Duration {
        let secs = self.step.as_secs_f64()
            + self.step_per_request.as_secs_f64() * batch.decoding as f64
            + self.step_per_kv_token.as_secs_f64() * batch.kv_tokens as f64
            + batch.prefill_tokens as f64 / self.prefill_rate;
        Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX).min(LONGEST_STEP)
    }

    /// Whether there can be such an engine for requests of up to `max_model_len` tokens.
    ///
    /// # Errors
    /// When a value is 0 that cannot be, or the cache is too small for a single request.
    pub fn check(&self, max_model_len: u32) -> Result<(), ParamsError> {
        let zero = [
            ("max_running_requests", self.max_running_requests == 0),
            ("max_prefill_tokens", self.max_prefill_tokens == 0),
            ("prefill_rate", self.prefill_rate <= 0.0),
            ("step", self.step.is_zero()),
            ("swing_period", self.swing > 0.0 && self.swing_period.is_zero()),
        ];
        if let Some((key, _)) = zero.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(ParamsError::Zero { key });
        }
        if self.swing > 0.9 {
            return Err(ParamsError::TooMuchSwing { swing: self.swing.to_string() });
        }
        if self.kv_tokens < max_model_len {
            return Err(ParamsError::TooSmallCache { kv_tokens: self.kv_tokens, max_model_len });
        }
        Ok(())
    }
}

/// A step that takes longer is a typing error; adding it to a time could overflow.
const LONGEST_STEP: Duration = Duration::from_hours(24);
