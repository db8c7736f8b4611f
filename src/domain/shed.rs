//! Why a planned request was never sent.

use std::fmt;

/// The reason for which a planned request was dropped instead of sent. It has no outcome then.
///
/// Only `Late` and `NoPrompt` are this client's own doing. `InflightCap` and `Backoff` are the gateway's: a gateway that
/// cannot take the load must not look faster for it, so a request shed at the cap counts as a slow one
/// (`measure::window`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ShedReason {
    /// As many requests as `max_in_flight` allows were under way until `late_cap` had passed.
    InflightCap,
    /// The budget of the hour or the day is spent.
    Budget,
    /// The load is paused.
    Paused,
    /// There was a slot, but the request could not leave within `late_cap`: we were too slow.
    Late,
    /// The gateway asked for patience, or fails so fast that the load holds back.
    Backoff,
    /// No prompt was ready.
    NoPrompt,
    /// Still unsent when the program stopped.
    Shutdown,
}

impl ShedReason {
    /// Every reason, in the order in which the documentation lists them.
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
