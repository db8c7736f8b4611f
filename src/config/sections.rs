//! The checked configuration: what the rest of the program sees.
//!
//! Every value here has passed the strict pass, every reference names something that exists, and every default is
//! filled in. A part takes the section it needs, never the whole [`Config`].

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::domain::api::Api;
use crate::domain::budget::Limits;
use crate::domain::slo::Slo;

mod workload;

pub use self::workload::{Bounds, BrokenLines, Cache, DataFile, Dataset, Length, Share, Workload};

/// Everything that was configured.
#[derive(Debug, Clone)]
pub struct Config {
    /// `[targets.NAME]`: what is measured.
    pub targets: BTreeMap<String, Target>,
    /// `[workloads.NAME]`: what is sent.
    pub workloads: BTreeMap<String, Workload>,
    /// `[loads.NAME]`: how much of it.
    pub loads: BTreeMap<String, Load>,
    /// `[budget]` and `[targets.NAME.budget]`: what each target may cost, by its name. One without a budget is not there.
    pub budgets: BTreeMap<String, Budget>,
    /// `[server]`: metrics and API.
    pub server: Server,
    /// `[state]`: what survives a restart.
    pub state: State,
    /// `[log]`: what is logged, and how.
    pub log: Log,
    /// `shard`: which part of every load this daemon carries.
    pub shard: ShardOf,
}

/// Where metrics and API are served, and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The address that is listened on. Taken at the start only.
    pub listen: SocketAddr,
    /// What calls that change something have to carry; without one they are refused.
    pub admin_token: Option<SecretSource>,
    /// How fine the classic buckets of the latency histograms are. Taken at the start only.
    pub buckets: Buckets,
}

/// The classic buckets of the latencies that people compare. Native histograms are as fine either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Buckets {
    /// Growth 2^(1/8): a quantile to 1 %, some 1200 series a load.
    #[default]
    Fine,
    /// Powers of 2, some 800 series a load: for many loads, or beside native histograms.
    Coarse,
}

/// What survives a restart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// Where it is kept. `None`: nowhere; windows begin empty after a restart. Taken at the start only.
    pub dir: Option<PathBuf>,
}

/// What is logged, and how. A flag on the command line wins over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Log {
    /// The least important messages that are logged.
    pub level: LogLevel,
    /// How they are written. Taken at the start only.
    pub format: LogFormat,
}

/// How important a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogLevel {
    /// An operator must act.
    Error,
    /// Worth a look.
    Warn,
    /// What the daemon does, a line now and then.
    #[default]
    Info,
    /// What happens to single requests.
    Debug,
    /// Everything.
    Trace,
}

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// One of several daemons that share every load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardOf {
    /// Which, from 0; below `count`.
    pub index: u32,
    /// Of how many.
    pub count: NonZeroU32,
}

/// One gateway, and how to talk to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The configured name.
    pub name: String,
    /// Base URL; its path prefix is kept.
    pub base_url: Url,
    /// Path joined to `base_url` in place of the API's own.
    pub endpoint: Option<String>,
    /// Where the key comes from; `None` for a gateway without authentication.
    pub api_key: Option<SecretSource>,
    /// The model id sent with every request.
    pub model: String,
    /// Request shape.
    pub api: Api,
    /// Limits of one request.
    pub timeouts: Timeouts,
    /// Extra request headers, in the order of their names.
    pub headers: BTreeMap<String, HeaderSource>,
    /// Extra body fields, merged into every request.
    pub body: serde_json::Map<String, serde_json::Value>,
    /// Body fields of ours that some gateways refuse.
    pub send: SendFields,
    /// PEM file with certificate authorities trusted besides the system's.
    pub ca_file: Option<PathBuf>,
}

/// Where a secret is read from. The secret itself never stands in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// An environment variable, read once at start.
    Env(String),
    /// A file, read at start, on reload and after a 401.
    File(PathBuf),
}

/// The value of an extra header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderSource {
    /// Written in the file.
    Text(String),
    /// A secret kept elsewhere: `{ env = "NAME" }` or `{ file = "PATH" }`.
    Secret(SecretSource),
}

/// Limits of one request, each counted from the instant it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// DNS, TCP and TLS together.
    pub connect: Duration,
    /// From `sent_at` to the first token-bearing event.
    pub first_token: Duration,
    /// Between two token-bearing events. Comments and keep-alives do not reset it.
    pub idle: Duration,
    /// From `sent_at` to the end.
    pub total: Duration,
}

/// Body fields that fix the output length and ask for counts, each of which can be switched off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SendFields {
    /// `ignore_eos: true`.
    pub ignore_eos: bool,
    /// `min_tokens: N` (SGLang native: `min_new_tokens`).
    pub min_tokens: bool,
    /// `temperature`; `None` sends none.
    pub temperature: Option<f64>,
    /// `stream_options.include_usage`.
    pub include_usage: bool,
    /// `stream_options.continuous_usage_stats`.
    pub continuous_usage_stats: bool,
    /// Name of the field that carries the output length: `max_tokens` or `max_completion_tokens`.
    pub max_tokens_field: MaxTokensField,
}

/// Name of the field that carries the output length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxTokensField {
    /// `max_tokens`.
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

/// One steady load.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Name of the target.
    pub target: String,
    /// Name of the workload.
    pub workload: String,
    /// Open or closed loop, over all shards.
    pub pace: Pace,
    /// The first so many requests enter no latency.
    pub warmup_requests: u32,
    /// What a good request keeps.
    pub slo: Slo,
    /// How long requests in flight may go on when the load ends.
    pub grace: Duration,
}

/// A load has a rate or a concurrency, never both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Open loop.
    Rate(Rate),
    /// Closed loop: workers.
    Concurrency(NonZeroU32),
}

/// An open loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Requests per second, positive and finite.
    pub per_second: f64,
    /// How the gaps between them vary.
    pub arrival: ArrivalProcess,
    /// So many may be under way, over all shards.
    pub max_in_flight: NonZeroU32,
    /// A request later than this is not sent.
    pub late_cap: Duration,
}

/// How the gaps between arrivals vary.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum ArrivalProcess {
    /// Not at all.
    Constant,
    /// Exponentially: independent users.
    #[default]
    Poisson,
    /// Gamma.
    Gamma {
        /// Its shape: 1 is Poisson, larger is smoother, smaller comes in bursts.
        burstiness: f64,
    },
}

/// What the loads of one target may cost together, over all shards: the quota of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// How much, of what, and over how long.
    pub limits: Limits,
}

impl Default for Server {
    /// On this machine only, for nobody who wants to change something.
    fn default() -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9877)), admin_token: None, buckets: Buckets::default() }
    }
}

impl Default for ShardOf {
    /// The only one.
    fn default() -> Self {
        Self { index: 0, count: NonZeroU32::MIN }
    }
}

impl Rate {
    /// How late a request may leave unless told: a tenth of a second is felt by nobody and is far above any lag of ours.
    pub const LATE_CAP: Duration = Duration::from_millis(100);

    /// The fewest requests that may be under way unless told.
    const LEAST_IN_FLIGHT: f64 = 64.0;

    /// So many seconds of the rate may be under way unless told: a gateway that takes longer has stalled.
    const IN_FLIGHT_SECS: f64 = 10.0;

    /// So many may be under way at most, each of which has a connection: there are no more ports.
    pub const MOST_IN_FLIGHT: NonZeroU32 = NonZeroU32::MIN.saturating_add(65_535);

    /// The cap unless told: 64, or ten seconds of the rate if that is more, and never above
    /// [`MOST_IN_FLIGHT`](Self::MOST_IN_FLIGHT).
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and the cast saturates")]
    pub fn default_max_in_flight(per_second: f64) -> NonZeroU32 {
        let cap = (per_second * Self::IN_FLIGHT_SECS).ceil().max(Self::LEAST_IN_FLIGHT);
        NonZeroU32::new(cap as u32).map_or(Self::MOST_IN_FLIGHT, |cap| cap.min(Self::MOST_IN_FLIGHT))
    }

    /// A rate with everything else as it is unless told.
    #[must_use]
    pub fn of(per_second: f64) -> Self {
        Self {
            per_second,
            arrival: ArrivalProcess::default(),
            max_in_flight: Self::default_max_in_flight(per_second),
            late_cap: Self::LATE_CAP,
        }
    }
}

impl Load {
    /// How long requests may go on at the end unless told.
    pub const GRACE: Duration = Duration::from_secs(30);
}

impl Default for Timeouts {
    /// Long enough for a busy gateway, short enough that a hung request is noticed within a minute.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            first_token: Duration::from_secs(60),
            idle: Duration::from_secs(30),
            total: Duration::from_secs(120),
        }
    }
}

impl Default for SendFields {
    /// Everything on: a fixed output length, and counts with every event.
    fn default() -> Self {
        Self {
            ignore_eos: true,
            min_tokens: true,
            temperature: Some(0.0),
            include_usage: true,
            continuous_usage_stats: true,
            max_tokens_field: MaxTokensField::MaxTokens,
        }
    }
}

impl MaxTokensField {
    /// The field's name in the body and in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A target with defaults for everything but the URL.
    pub(crate) fn target(base_url: &str) -> Target {
        Target {
            name: "t".into(),
            base_url: Url::parse(base_url).unwrap(),
            endpoint: None,
            api_key: None,
            model: "m".into(),
            api: Api::OpenAiChat,
            timeouts: Timeouts::default(),
            headers: BTreeMap::new(),
            body: serde_json::Map::new(),
            send: SendFields::default(),
            ca_file: None,
        }
    }
}
