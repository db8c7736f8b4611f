//! What a budget limits, and over how long.

use std::num::NonZeroU64;

/// What is counted against a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetKind {
    /// Requests that were sent, whatever became of them.
    Requests,
    /// Tokens of prompts.
    InputTokens,
    /// Tokens of answers.
    OutputTokens,
}

/// Over how long: hours and days of UTC, as quotas are. They begin on the hour and at midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetPeriod {
    /// An hour.
    Hour,
    /// A day.
    Day,
}

/// One number for each kind: what was spent, what a request costs, or what is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerKind<T>(pub [T; BudgetKind::ALL.len()]);

/// The limits of one target; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits([PerKind<Option<NonZeroU64>>; BudgetPeriod::ALL.len()]);

impl BudgetKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Requests, Self::InputTokens, Self::OutputTokens];

    /// The label value, and the first part of the setting's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
        }
    }
}

impl BudgetPeriod {
    /// Both, the shorter one first.
    pub const ALL: [Self; 2] = [Self::Hour, Self::Day];

    /// The label value, and the last part of the setting's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// How long it is: no hour and no day of Unix time is longer than another.
    #[must_use]
    pub const fn secs(self) -> u32 {
        match self {
            Self::Hour => 3600,
            Self::Day => 86_400,
        }
    }
}

impl<T: Copy> PerKind<T> {
    /// The number of this kind.
    #[must_use]
    pub fn of(&self, kind: BudgetKind) -> T {
        self.0[kind as usize]
    }
}

impl Limits {
    /// The limit of this kind in this period.
    #[must_use]
    pub fn get(&self, kind: BudgetKind, period: BudgetPeriod) -> Option<NonZeroU64> {
        self.0[period as usize].of(kind)
    }

    /// Sets it.
    pub fn set(&mut self, kind: BudgetKind, period: BudgetPeriod, limit: Option<NonZeroU64>) {
        self.0[period as usize].0[kind as usize] = limit;
    }

    /// Every limit that there is.
    pub fn iter(&self) -> impl Iterator<Item = (BudgetKind, BudgetPeriod, u64)> {
        BudgetPeriod::ALL.into_iter().flat_map(|period| BudgetKind::ALL.map(|kind| (kind, period))).filter_map(
            |(kind, period)| {
                let limit = self.get(kind, period)?;
                Some((kind, period, limit.get()))
            },
        )
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
