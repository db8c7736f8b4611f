//! Whether this client is well: what it may blame on itself before it blames the gateway.
//!
//! Once a second [`probe`] reads what the system says of this process, and [`Health::step`] judges it together with what the
//! load threads saw: pure, with the present as an argument. Only faults of ours taint. A full `max_in_flight` and the rests
//! after failures are the gateway's doing and never do.
//!
//! # Where the limits come from
//! A second is tainted when its latencies may be wrong by 5 % at P99, which is what the drift test looks for, taking a TTFT
//! of 200 ms and a TPOT of 20 ms. Only the first can be wrong by that much before anything else shows: what delays a stream by
//! 20 ms delays one of its 100 tokens, which is 1 % of its TPOT. So 10 ms, [`HARM`], is what must not happen to more than one
//! request in a hundred. Two consequences:
//!
//! * A stall of length d makes the stamps of that second late by 0 to d, evenly, so (d - 10 ms) / 1 s of its requests are late
//!   by 10 ms or more. That is one in a hundred at d = 20 ms: [`STALL`].
//! * A lag is not inside TTFT but in full inside the corrected one; so 10 ms itself is the limit: [`HARM`].
//!
//! Both take the worst case, latencies that hardly vary. Where they vary as those of a real engine do, the same stall moves
//! P99 by less.
//!
//! # A hiccup is no illness
//! Any machine that is shared has a second like that now and then. What is judged in the end is a minute
//! ([`MinuteHealth`]), which bears a tenth of its seconds, as long as the stalls themselves stay below a hundredth of it.

use std::time::Duration;

pub mod descriptors;
pub mod probe;

/// What a TTFT of 200 ms must not be wrong by: 5 % of it. A request that leaves later than this is tainted by its lag.
pub const HARM: Duration = Duration::from_millis(10);

/// The shortest stall that makes one in a hundred requests of a second late by [`HARM`]: see the module. It is also far above
/// what a thread waits for its turn on a machine that is busy but not overloaded, a slice of 3 to 4 ms.
pub const STALL: Duration = Duration::from_millis(20);

/// Share of a core above which a load thread does not keep up. It is a mean over a second, in which tokens come in bursts of as
/// many streams as there are: at 0.9 an event waits for nine others in the mean, at 0.95 for nineteen, and a burst that
/// takes the 0.1 s that are left moves into the next. A thread that has little to do is far below: waiting awake for the next
/// arrival costs a twentieth.
pub const MAX_CPU_SHARE: f64 = 0.9;

/// Percent of the descriptors that may be in use. Latencies are not yet wrong above it, but the next burst of connections ends
/// `local`, and then the load is no longer the one that was asked for.
pub const MAX_DESCRIPTORS_PERCENT: u64 = 90;

/// How long a reason must be gone before it counts as ended. Without, a client at its limit would report an event every
/// second; with it, a reason reports two a minute at most.
pub const CALM_SECONDS: u32 = 60;

/// One second in so many of a minute may be tainted. If every one of those seconds had a stall of 100 ms, still less than
/// one request in a hundred of the minute would be late by [`HARM`].
pub const BEARABLE_PART: u32 = 10;

/// How much of a minute may be stalls: a hundredth. Beyond, more than one request in a hundred was stamped late, however few the
/// seconds were: a virtual machine that stood still for a second while it was moved.
pub const STALLED_PART: u32 = 100;

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
    /// How long it lasted: one second, but for a process that stood still. Less than one and a half counts as one.
    pub lasted: Duration,
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

/// Some of the reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reasons([bool; TaintReason::ALL.len()]);

impl Reasons {
    /// Whether this one is among them.
    #[must_use]
    pub fn contains(self, reason: TaintReason) -> bool {
        self.0[reason as usize]
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Each of them, in the order of [`TaintReason::ALL`].
    pub fn iter(self) -> impl Iterator<Item = TaintReason> {
        TaintReason::ALL.into_iter().filter(move |reason| self.contains(*reason))
    }
}

impl FromIterator<TaintReason> for Reasons {
    fn from_iter<I: IntoIterator<Item = TaintReason>>(reasons: I) -> Self {
        let mut some = Self::default();
        reasons.into_iter().for_each(|reason| some.0[reason as usize] = true);
        some
    }
}

impl Second {
    /// How many seconds it stands for, at least one.
    fn count(&self) -> u32 {
        let rounded = self.lasted.saturating_add(Duration::from_millis(500)).as_secs();
        u32::try_from(rounded).unwrap_or(u32::MAX).max(1)
    }

    /// Why this second is tainted. What could not be read taints nothing.
    #[must_use]
    pub fn taint(&self) -> Reasons {
        let Reading { cpu_share, throttled, process } = self.reading;
        let nearly_full = |open: u64, max: u64| open.saturating_mul(100) > max.saturating_mul(MAX_DESCRIPTORS_PERCENT);
        let is_tainted = |reason: &TaintReason| match reason {
            TaintReason::ScheduleLag => self.schedule_lag > Some(HARM),
            TaintReason::Late => self.late > 0,
            TaintReason::NoPrompt => self.no_prompt > 0,
            TaintReason::EventLoopDelay => self.event_loop_delay > STALL,
            TaintReason::CpuShare => cpu_share.is_some_and(|share| share > MAX_CPU_SHARE),
            TaintReason::CpuThrottled => throttled > Some(STALL),
            TaintReason::Descriptors => {
                process.open_fds.zip(process.max_fds).is_some_and(|(open, max)| nearly_full(open, max))
            }
            TaintReason::Local => self.local > 0,
        };
        TaintReason::ALL.into_iter().filter(is_tainted).collect()
    }
}

/// How well the client is, and how long it was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    now: Reasons,
    seconds: [u64; TaintReason::ALL.len()],
    /// Reasons that have been reported to have begun and not to have ended.
    reported: Reasons,
    /// For each, the seconds since it was last there.
    calm: [u32; TaintReason::ALL.len()],
}

/// What a second changed: each is worth one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// Reasons that taint from this second on.
    pub began: Reasons,
    /// Reasons that have not been seen for [`CALM_SECONDS`].
    pub ended: Reasons,
}

impl Health {
    /// Judges the second that has passed.
    ///
    /// The state and the counts follow every second; the changes do not flicker: a reason that comes and goes begins once, and
    /// ends when it has been gone for [`CALM_SECONDS`].
    pub fn step(&mut self, second: &Second) -> Changes {
        self.now = second.taint();
        let mut changes = Changes::default();
        for reason in TaintReason::ALL {
            let at = reason as usize;
            if self.now.contains(reason) {
                self.seconds[at] += u64::from(second.count());
                self.calm[at] = 0;
                changes.began.0[at] = !self.reported.contains(reason);
                self.reported.0[at] = true;
            } else if self.reported.contains(reason) {
                self.calm[at] = self.calm[at].saturating_add(second.count());
                changes.ended.0[at] = self.calm[at] >= CALM_SECONDS;
                self.reported.0[at] = !changes.ended.contains(reason);
            }
        }
        changes
    }

    /// Whether the last second was tainted for this reason.
    #[must_use]
    pub fn is_tainted_by(&self, reason: TaintReason) -> bool {
        self.now.contains(reason)
    }

    /// Whether the last second was tainted.
    #[must_use]
    pub fn is_tainted(&self) -> bool {
        !self.now.is_empty()
    }

    /// Seconds tainted for this reason, since the start.
    #[must_use]
    pub fn seconds(&self, reason: TaintReason) -> u64 {
        self.seconds[reason as usize]
    }
}

/// What the seconds of a minute amount to, for one load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MinuteHealth {
    seconds: u32,
    tainted: u32,
    covered: u32,
    stalled: Duration,
}

impl MinuteHealth {
    /// Adds a second that `health` has just judged. `under_load`: the load was neither paused nor resting.
    ///
    /// A tainted second counts as one even when the load was paused in it: requests that were sent before may have ended in it.
    pub fn add(&mut self, second: &Second, health: &Health, under_load: bool) {
        let count = second.count();
        self.seconds = self.seconds.saturating_add(count);
        if health.is_tainted() {
            self.tainted = self.tainted.saturating_add(count);
        } else if under_load {
            self.covered = self.covered.saturating_add(count);
        }
        if second.event_loop_delay > STALL {
            self.stalled += second.event_loop_delay;
        }
    }

    /// Whether the minute may feed no baseline and no verdict: more than one second in [`BEARABLE_PART`] was tainted, or more
    /// than one part in [`STALLED_PART`] of it was spent in stalls. Of a minute that was cut short, of its seconds.
    #[must_use]
    pub fn is_tainted(&self) -> bool {
        let stalled = self.stalled > Duration::from_secs(self.seconds.into()) / STALLED_PART;
        self.tainted.saturating_mul(BEARABLE_PART) > self.seconds || stalled
    }

    /// Time under load in which the client was well, to the second.
    #[must_use]
    pub fn covered(&self) -> Duration {
        Duration::from_secs(self.covered.into())
    }

    /// How many seconds were tainted.
    #[must_use]
    pub fn tainted_seconds(&self) -> u32 {
        self.tainted
    }
}

#[cfg(test)]
mod tests;
