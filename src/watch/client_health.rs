//! Whether this client is well: what it may blame on itself before it blames the gateway.

use std::time::Duration;

/// Why a second is tainted: something of ours stood between the gateway and the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaintReason {
    /// A request left much later than planned.
    ScheduleLag,
    /// Arrivals were shed as late: there was a slot, and we came too late.
    Late,
    /// No prompt was ready.
    NoPrompt,
    /// A load thread did not come to its events in time.
    EventLoopDelay,
    /// A load thread used its core nearly all the time.
    CpuShare,
    /// The control group's CPU quota held us back.
    CpuThrottled,
    /// The file descriptors are nearly used up.
    Descriptors,
    /// Requests ended `local`: no port, no descriptor, no memory.
    Local,
}

impl TaintReason {
    /// Every reason, in the order in which the documentation lists them.
    pub const ALL: [Self; 8] = [
        Self::ScheduleLag,
        Self::Late,
        Self::NoPrompt,
        Self::EventLoopDelay,
        Self::CpuShare,
        Self::CpuThrottled,
        Self::Descriptors,
        Self::Local,
    ];

    /// The label value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScheduleLag => "schedule_lag",
            Self::Late => "late",
            Self::NoPrompt => "no_prompt",
            Self::EventLoopDelay => "event_loop_delay",
            Self::CpuShare => "cpu_share",
            Self::CpuThrottled => "cpu_throttled",
            Self::Descriptors => "descriptors",
            Self::Local => "local",
        }
    }
}

/// What the system says of this process. What it does not say is `None`, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reading {
    /// The largest share of a core that a load thread used since the last reading; 1 is all of it.
    pub cpu_share: Option<f64>,
    /// How long the control group's quota held the process back since the last reading.
    pub throttled: Option<Duration>,
    /// The process as a whole.
    pub process: Process,
}

/// The standard `process_*` metrics.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Process {
    /// CPU time, user and system, since the start.
    pub cpu_seconds: Option<f64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// How many there may be.
    pub max_fds: Option<u64>,
    /// Resident memory.
    pub resident_bytes: Option<u64>,
    /// Virtual memory.
    pub virtual_bytes: Option<u64>,
    /// The start, in Unix seconds.
    pub start_time_unix: Option<f64>,
    /// Threads.
    pub threads: Option<u64>,
}

/// What a second was like: what `client_health` judges.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Second {
    /// The largest schedule lag of a request that ended in it.
    pub schedule_lag: Option<Duration>,
    /// Arrivals shed as late.
    pub late: u64,
    /// Arrivals shed without a prompt.
    pub no_prompt: u64,
    /// Requests that ended `local`.
    pub local: u64,
    /// The longest time that a load thread came late to an event.
    pub event_loop_delay: Duration,
    /// What the system says.
    pub reading: Reading,
}

/// How well the client is, and how long it was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    now: [bool; TaintReason::ALL.len()],
    seconds: [u64; TaintReason::ALL.len()],
}

impl Health {
    /// Whether the last second was tainted for this reason.
    #[must_use]
    pub fn is_tainted_by(&self, reason: TaintReason) -> bool {
        self.now[reason as usize]
    }

    /// Whether the last second was tainted.
    #[must_use]
    pub fn is_tainted(&self) -> bool {
        self.now.iter().any(|now| *now)
    }

    /// Seconds tainted for this reason, since the start.
    #[must_use]
    pub fn seconds(&self, reason: TaintReason) -> u64 {
        self.seconds[reason as usize]
    }
}
