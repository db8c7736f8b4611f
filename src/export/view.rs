//! The picture that exporters read: everything they show, as it was at one instant.
//!
//! The daemon makes one each second and swaps it in. A scrape or an API call reads that and nothing else, so it neither
//! waits for the load nor disturbs it, and all numbers of an answer belong together.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::sections::Pace;
use crate::domain::outcome::Outcome;
use crate::domain::sample::ItlBasis;
use crate::measure::snapshot::{LoadSnapshot, Snapshot};
use crate::watch::client_health::{Health, Process};

/// Everything that is shown.
#[derive(Debug, Clone)]
pub struct View {
    /// When it was made; `snapshot.taken_unix` is the same on the wall.
    pub taken_at: Instant,
    /// The loads' counts, histograms and windows.
    pub snapshot: Snapshot,
    /// What else there is to say of each load, in the same order.
    pub loads: Vec<LoadView>,
    /// Where the daemon stands.
    pub phase: Phase,
    /// How well the client is.
    pub client: ClientView,
    /// The last reload.
    pub reload: ReloadView,
    /// What is kept on disk; `None` without a `state.dir`.
    pub state: Option<StateView>,
    /// What bounded queues have dropped since the start: which queue, how many.
    pub dropped: Vec<(&'static str, u64)>,
    /// What happened, the oldest first. The oldest are forgotten.
    pub events: Arc<[Event]>,
}

/// One load.
#[derive(Debug, Clone)]
pub struct LoadView {
    /// The label `load`.
    pub name: String,
    /// The label `target`.
    pub target: String,
    /// The label `model_name`.
    pub model: String,
    /// What this shard is to keep; `None` when its share of a concurrency is 0.
    pub pace: Option<Pace>,
    /// Why it is paused, if it is.
    pub paused: Option<PauseReason>,
    /// Its pace was not kept within the last minute, and that was the gateway's doing.
    pub not_kept: bool,
    /// How requests have failed within the last minute.
    pub failing: Vec<Outcome>,
    /// When a request last ended `ok`, in Unix seconds.
    pub last_success_unix: Option<f64>,
    /// What an inter-token latency will stand for as long as nothing has been recorded.
    pub itl_basis: ItlBasis,
}

/// Why a load is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseReason {
    /// Somebody asked for it, over the API.
    Api,
}

impl PauseReason {
    /// Every reason.
    pub const ALL: [Self; 1] = [Self::Api];

    /// The label value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
        }
    }
}

/// Where the daemon stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Loads are being started; nothing has been sent.
    Starting,
    /// At work.
    Running,
    /// Asked to stop: requests in flight go on to their end or to the end of `grace`.
    Draining,
    /// All requests have ended; the last minute is written.
    Stopping,
}

impl Phase {
    /// Every phase, in its order.
    pub const ALL: [Self; 4] = [Self::Starting, Self::Running, Self::Draining, Self::Stopping];

    /// The label value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
        }
    }
}

/// How well the client is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ClientView {
    /// What taints, and for how long it has.
    pub health: Health,
    /// The longest time in the last second that a load thread came late to an event.
    pub event_loop_delay: Duration,
    /// The process.
    pub process: Process,
}

/// How the last reload went. The start counts as one that went well.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReloadView {
    /// Whether the configuration in force is the one that was last asked for.
    pub successful: bool,
    /// When it last went well, since the Unix epoch.
    pub succeeded_unix: Duration,
    /// The report of a failed one.
    pub failure: Option<String>,
    /// Settings that have changed in the files and want a restart.
    pub wants_restart: Vec<String>,
}

/// What is kept on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateView {
    /// Whether the last write went well.
    pub saved: bool,
    /// When one last did, since the Unix epoch; `None` when none has.
    pub saved_unix: Option<Duration>,
}

/// Something that happened to the daemon or a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When, since the Unix epoch.
    pub at_unix: Duration,
    /// What kind of thing, in one word: `started`, `reloaded`, `reload_failed`, `paused`, `resumed`, `tainted`, …
    pub kind: &'static str,
    /// Which load, if one.
    pub load: Option<String>,
    /// In a sentence.
    pub text: String,
}

impl View {
    /// Each load with its counts.
    pub fn loads(&self) -> impl Iterator<Item = (&LoadView, &LoadSnapshot)> {
        self.loads.iter().zip(&self.snapshot.loads)
    }
}

/// Something that a caller of the API wants changed.
#[derive(Debug)]
pub struct Request {
    /// What.
    pub change: Change,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Result<String, Refusal>>,
}

/// What can be changed while the daemon runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Send nothing more of this load.
    Pause {
        /// Its name.
        load: String,
    },
    /// Go on with it.
    Resume {
        /// Its name.
        load: String,
    },
    /// Read the configuration again.
    Reload,
}

/// Why a change was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such load.
    #[error("there is no load {0:?}")]
    UnknownLoad(String),
    /// The configuration is wrong; the old one stays in force. Holds the report.
    #[error("{0}")]
    Configuration(String),
    /// The daemon is about to stop.
    #[error("the daemon is stopping")]
    Stopping,
}
