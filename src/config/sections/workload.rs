//! What is sent: where its text comes from, how long it is, and how alike two prompts are.
//!
//! Lengths are declared here and drawn in `load`. Their means are here as well, because a plan is made before anything is
//! sent.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// What is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Where the text comes from.
    pub dataset: Dataset,
    /// Tokens of a prompt, with what the server's template adds. `None`: each entry of the data set has its own.
    pub input_tokens: Option<Length>,
    /// Output tokens asked for. `None`: each entry of the data set has its own.
    pub output_tokens: Option<Length>,
    /// Fixes every prompt.
    pub seed: u64,
    /// What two prompts have in common.
    pub cache: Cache,
    /// Turns of a conversation, each of which is a request.
    pub turns: NonZeroU32,
    /// A folder with the model's tokenizer, to count with. `None`: lengths are estimates.
    pub tokenizer: Option<PathBuf>,
}

/// Where the text comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dataset {
    /// Ordinary pieces of the vocabulary, at random.
    Random,
    /// Lines of a text, at random.
    Sonnet {
        /// The text; `None` for the built-in one.
        path: Option<PathBuf>,
        /// So many tokens of its first lines begin every prompt.
        prefix_tokens: Option<NonZeroU32>,
    },
    /// A JSON list of conversations, of which the first two turns are a prompt and the length of its answer.
    ShareGpt(DataFile),
    /// A JSON object a line: `prompt` or `messages`, and `max_tokens`.
    Jsonl(DataFile),
    /// System prompts that many requests share, each with a question of its own.
    SharedPrefix {
        /// So many system prompts.
        groups: NonZeroU32,
        /// Tokens of each.
        prefix_tokens: NonZeroU32,
    },
}

/// A data set in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// Where it is.
    pub path: PathBuf,
    /// What becomes of entries that cannot be used.
    pub broken: BrokenLines,
}

/// What becomes of entries that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BrokenLines {
    /// The whole file is refused.
    #[default]
    Refuse,
    /// They are left out, and counted.
    Skip,
}

/// What two prompts of a workload have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cache {
    /// Nothing from their first words on: no prefix cache can answer for the engine.
    #[default]
    Unique,
    /// So many tokens at their beginning, and nothing after.
    SharedPrefix(NonZeroU32),
    /// Everything: each prompt is the first one.
    Repeat,
}

/// A number of tokens, or how it is drawn.
#[derive(Debug, Clone, PartialEq)]
pub enum Length {
    /// Always the same.
    Fixed(NonZeroU32),
    /// Each whole number of the range as often as any other.
    Uniform(Bounds),
    /// Normal, rounded; what is outside of the bounds is put on them.
    Normal {
        /// Mean before that.
        mean: f64,
        /// Standard deviation before that.
        sd: f64,
        /// Least and most.
        bounds: Bounds,
    },
    /// `median * exp(sigma * z)` with a standard normal z, rounded; what is outside of the bounds is put on them.
    LogNormal {
        /// Half of them are shorter.
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Least and most.
        bounds: Bounds,
    },
    /// One of these, as often as its weight says. None of them is a mixture.
    Mixture(Vec<Share>),
}

/// Least and most, both included, the least not above the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Least.
    pub min: NonZeroU32,
    /// Most.
    pub max: NonZeroU32,
}

/// A part of a mixture.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    /// How often, against the sum of all weights. Positive and finite.
    pub weight: f64,
    /// What it is.
    pub length: Length,
}

impl Workload {
    /// Prompts of the built-in kind, with these lengths and everything else as it is unless told.
    #[must_use]
    pub const fn random(input_tokens: NonZeroU32, output_tokens: NonZeroU32, seed: u64) -> Self {
        Self {
            dataset: Dataset::Random,
            input_tokens: Some(Length::Fixed(input_tokens)),
            output_tokens: Some(Length::Fixed(output_tokens)),
            seed,
            cache: Cache::Unique,
            turns: NonZeroU32::MIN,
            tokenizer: None,
        }
    }

    /// Mean of the input tokens of a request: `q * (turns + 1) / 2 + a * (turns - 1) / 2` for questions of q and answers of a
    /// tokens on average, since a turn repeats those before it; `None` when the data set has the lengths.
    #[must_use]
    pub fn mean_input_tokens(&self) -> Option<f64> {
        let question = self.input_tokens.as_ref().map(Length::mean)?;
        let turns = f64::from(self.turns.get());
        if self.turns.get() == 1 {
            return Some(question);
        }
        Some(question * (turns + 1.0) / 2.0 + self.mean_output_tokens()? * (turns - 1.0) / 2.0)
    }

    /// Mean of the output tokens asked for; `None` when the data set has them. The lines of a `jsonl` file that have a
    /// `max_tokens` of their own are not known here.
    #[must_use]
    pub fn mean_output_tokens(&self) -> Option<f64> {
        self.output_tokens.as_ref().map(Length::mean)
    }

    /// The most input tokens that a prompt may have, about: what memory has to be kept for. `usual` is taken for entries
    /// that have their own length.
    #[must_use]
    pub fn most_input_tokens(&self, usual: u32) -> u32 {
        let question = self.input_tokens.as_ref().map_or(usual, |length| length.bounds().max.get());
        let answer = self.output_tokens.as_ref().map_or(usual, |length| length.bounds().max.get());
        let turns_before = self.turns.get() - 1;
        question.saturating_add(question.saturating_add(answer).saturating_mul(turns_before))
    }

    /// What is sent, in words that never change for the same workload; without the names of files, whose bytes matter.
    #[must_use]
    pub fn described(&self) -> String {
        let length = |length: &Option<Length>| length.as_ref().map_or_else(|| "own".to_owned(), Length::to_string);
        let (input, output) = (length(&self.input_tokens), length(&self.output_tokens));
        let Self { dataset, seed, cache, turns, .. } = self;
        format!(
            "dataset={dataset}\ninput_tokens={input}\noutput_tokens={output}\nseed={seed}\ncache={cache}\nturns={turns}"
        )
    }
}

impl Dataset {
    /// Its name in a configuration.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sonnet { .. } => "sonnet",
            Self::ShareGpt(_) => "sharegpt",
            Self::Jsonl(_) => "jsonl",
            Self::SharedPrefix { .. } => "shared-prefix",
        }
    }
}

impl fmt::Display for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sonnet { prefix_tokens: Some(tokens), .. } => write!(f, "sonnet({tokens})"),
            Self::SharedPrefix { groups, prefix_tokens } => write!(f, "shared-prefix({groups},{prefix_tokens})"),
            Self::Random | Self::Sonnet { .. } | Self::ShareGpt(_) | Self::Jsonl(_) => f.write_str(self.name()),
        }
    }
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unique => f.write_str("unique"),
            Self::SharedPrefix(tokens) => write!(f, "shared_prefix({tokens})"),
            Self::Repeat => f.write_str("repeat"),
        }
    }
}

impl Length {
    /// Expected number of tokens, as it is drawn: with what the bounds cut off put on them.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let middle = |bounds: &Bounds| f64::midpoint(bounds.min.get().into(), bounds.max.get().into());
        match self {
            Self::Fixed(tokens) => tokens.get().into(),
            Self::Uniform(bounds) => middle(bounds),
            Self::Normal { mean, sd, bounds } => bounds.mean_of(|x| upper_tail((x - mean) / sd)),
            Self::LogNormal { median, sigma, bounds } => bounds.mean_of(|x| upper_tail((x / median).ln() / sigma)),
            Self::Mixture(shares) => {
                let weights: f64 = shares.iter().map(|share| share.weight).sum();
                shares.iter().map(|share| share.weight / weights * share.length.mean()).sum()
            }
        }
    }

    /// The least and the most that is ever drawn.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        match self {
            Self::Fixed(tokens) => Bounds { min: *tokens, max: *tokens },
            Self::Uniform(bounds) | Self::Normal { bounds, .. } | Self::LogNormal { bounds, .. } => *bounds,
            Self::Mixture(shares) => {
                let all = || shares.iter().map(|share| share.length.bounds());
                let min = all().map(|bounds| bounds.min).min().unwrap_or(NonZeroU32::MIN);
                Bounds { min, max: all().map(|bounds| bounds.max).max().unwrap_or(NonZeroU32::MIN) }
            }
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(tokens) => write!(f, "{tokens}"),
            Self::Uniform(Bounds { min, max }) => write!(f, "uniform({min},{max})"),
            Self::Normal { mean, sd, bounds } => write!(f, "normal({mean:?},{sd:?},{},{})", bounds.min, bounds.max),
            Self::LogNormal { median, sigma, bounds } => {
                write!(f, "log_normal({median:?},{sigma:?},{},{})", bounds.min, bounds.max)
            }
            Self::Mixture(shares) => {
                let shares = shares.iter().map(|share| format!("{:?}*{}", share.weight, share.length));
                write!(f, "mixture({})", shares.collect::<Vec<_>>().join(","))
            }
        }
    }
}

impl Bounds {
    /// Mean of what has this upper tail and is put on the bounds where it is outside: `min + ∫ tail(x) dx`.
    fn mean_of(self, tail: impl Fn(f64) -> f64) -> f64 {
        let (min, max) = (f64::from(self.min.get()), f64::from(self.max.get()));
        // Midpoints: enough of them that a bell a hundredth as wide as the bounds is still seen.
        let steps = 4000_u32;
        let width = (max - min) / f64::from(steps);
        let heights = (0..steps).map(|step| tail(width.mul_add(f64::from(step) + 0.5, min)));
        width.mul_add(heights.sum::<f64>(), min)
    }
}

/// Share of a standard normal above z, to 1e-7 (Abramowitz and Stegun 26.2.17).
fn upper_tail(z: f64) -> f64 {
    const B: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / 0.231_641_9_f64.mul_add(z.abs(), 1.0);
    let sum = B.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    let tail = sum * (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if z < 0.0 { 1.0 - tail } else { tail }
}
