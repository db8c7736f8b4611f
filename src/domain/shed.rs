//! Why a planned request was never sent.

use std::fmt;

/// The reason, which is the label of `requests_shed_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ShedReason {
    /// All of `max_in_flight` was in use until the request was too late. The gateway's doing.
    InflightCap,
    /// The budget of the day or month is spent.
    Budget,
    /// The load was paused.
    Paused,
    /// It could have been sent, but we came too late. Our doing.
    Late,
    /// The worker rested after a failure that came fast. The gateway's doing.
    Backoff,
    /// No prompt was ready. Our doing.
    NoPrompt,
    /// The daemon ended first.
    Shutdown,
}

impl ShedReason {
    /// Every reason, in the order of the enum.
    pub const ALL: [Self; 7] =
        [Self::InflightCap, Self::Budget, Self::Paused, Self::Late, Self::Backoff, Self::NoPrompt, Self::Shutdown];

    /// The label value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InflightCap => "inflight_cap",
            Self::Budget => "budget",
            Self::Paused => "paused",
            Self::Late => "late",
            Self::Backoff => "backoff",
            Self::NoPrompt => "no_prompt",
            Self::Shutdown => "shutdown",
        }
    }
}

impl fmt::Display for ShedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
