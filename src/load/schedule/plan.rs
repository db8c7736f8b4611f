//! The plan of an open loop: which arrival comes how long after the start.
//!
//! # Exactness
//! Time is summed in integers of 2^-32 ns. A gap is rounded once, to that unit, and the error of a sum does not grow with
//! what is summed already, as it does in floating point: after k arrivals it is at most k * 2^-33 ns (1e7 arrivals: 1.2e-3 ns).
//! To that comes what a gap's own `f64` lacks, 1e-16 of the time that has passed: 1 ns in four months.
//!
//! # The same plan on any machine
//! The generator is named (`ChaCha8`) and so are the samplers (`rand_distr`'s ziggurat for the exponential, Marsaglia and
//! Tsang's method for gamma). They are only as stable as that crate: another version may draw differently, and every plan
//! would change with it. A test holds plans that were written down.
//!
//! # Shards
//! Each arrival of the whole plan belongs to one shard, so the union of the shards is the whole plan, indices included.
//! Constant: in turn. Poisson: by a seeded draw (thinning), so each shard is a Poisson process of its own. Gamma: by the same
//! draw. A shard alone is then nearer to Poisson than the whole; dealt in turn it would be smoother than the whole. Neither
//! keeps the burstiness, which only the gateway sees, in the union. The draw needs no agreement on the start: pods that begin
//! at different times still add up to the rate without a pattern. Every shard draws the whole plan: 35 ns an
//! arrival for Poisson, 60 to 180 ns for gamma.

use std::num::NonZeroU32;
use std::time::Duration;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, Gamma};
use thiserror::Error;

/// Highest rate, in arrivals per second: their times are told in nanoseconds.
const MAX_RATE: f64 = 1e9;

/// Least and largest burstiness: beyond, a gap is all or nothing, or cannot be told from constant.
const BURSTINESS: std::ops::RangeInclusive<f64> = 1e-3..=1e6;

const NANOS_PER_SEC: f64 = 1e9;

/// Binary places of a nanosecond, and the unit that they make.
const FRACTION: u32 = 32;
const UNITS_PER_NANO: f64 = (1_u64 << FRACTION) as f64;

/// How the gaps between arrivals vary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spacing {
    /// Not at all.
    Constant,
    /// Exponentially: independent users.
    Poisson,
    /// Gamma with `shape = burstiness` and the mean `1 / rate`; their coefficient of variation is `1 / sqrt(burstiness)`.
    Gamma {
        /// As in vLLM: 1 is Poisson, larger is smoother, smaller comes in bursts.
        burstiness: f64,
    },
}

/// One of several daemons that share a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    count: NonZeroU32,
}

/// Why there is no such plan.
#[derive(Debug, Error, PartialEq)]
pub enum PlanError {
    /// `rate` is not above 0 and at most 1e9.
    #[error("rate is {rate}, wants arrivals per second: above 0 and at most 1e9")]
    Rate {
        /// As given.
        rate: f64,
    },
    /// `burstiness` is not within 0.001 to 1e6.
    #[error("burstiness is {burstiness}, wants 0.001 to 1e6")]
    Burstiness {
        /// As given.
        burstiness: f64,
    },
    /// `shard.index` is not below `shard.count`.
    #[error("shard index is {index}, wants less than the count of {count}")]
    Shard {
        /// As given.
        index: u32,
        /// As given.
        count: NonZeroU32,
    },
}

/// The arrivals of one shard of a load, as a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    seed: u64,
    rate: f64,
    spacing: Spacing,
    shard: Shard,
}

/// One arrival of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Position in the whole plan, over all shards, from 0.
    pub position: u64,
    /// Time since the start. The first arrival of the whole plan is at 0.
    pub offset: Duration,
}

/// The arrivals of a plan, one after the other, without end.
#[derive(Debug)]
pub struct Arrivals {
    gaps: Gaps,
    shard: Shard,
    /// Draws the shard that an arrival belongs to.
    owners: ChaCha8Rng,
    next: u64,
    /// Time of `next`, in 2^-32 ns.
    elapsed: u128,
}

#[derive(Debug)]
enum Gaps {
    Constant { gap: u128 },
    Poisson { rng: ChaCha8Rng, mean: f64 },
    Gamma { rng: ChaCha8Rng, distribution: Gamma<f64> },
}

impl Shard {
    /// The only one.
    pub const WHOLE: Self = Self { index: 0, count: NonZeroU32::MIN };

    /// The shard with this index, from 0, of so many.
    ///
    /// # Errors
    /// When the index is not below the count.
    pub const fn new(index: u32, count: NonZeroU32) -> Result<Self, PlanError> {
        if index < count.get() { Ok(Self { index, count }) } else { Err(PlanError::Shard { index, count }) }
    }

    /// Of how many it is one.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count.get()
    }

    /// Its part of `total` things that cannot be divided; the remainder goes to the low indices. May be 0.
    #[must_use]
    pub const fn part_of(self, total: u32) -> u32 {
        let count = self.count.get();
        total / count + if self.index < total % count { 1 } else { 0 }
    }

    /// The position in the whole of the n-th thing of this shard, when they are dealt in turn.
    #[must_use]
    pub fn position(self, n: u64) -> u64 {
        n * u64::from(self.count.get()) + u64::from(self.index)
    }
}

impl Plan {
    /// The plan of a shard of a load with this rate over all shards, in arrivals per second.
    ///
    /// # Errors
    /// When rate or burstiness are not finite, or outside their ranges.
    pub fn new(seed: u64, rate: f64, spacing: Spacing, shard: Shard) -> Result<Self, PlanError> {
        if !(rate > 0.0 && rate <= MAX_RATE) {
            return Err(PlanError::Rate { rate });
        }
        match spacing {
            Spacing::Gamma { burstiness } if !BURSTINESS.contains(&burstiness) => {
                Err(PlanError::Burstiness { burstiness })
            }
            Spacing::Constant | Spacing::Poisson | Spacing::Gamma { .. } => Ok(Self { seed, rate, spacing, shard }),
        }
    }

    /// The shard that it is for.
    #[must_use]
    pub fn shard(&self) -> Shard {
        self.shard
    }

    /// The arrivals from the start.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        let mean = NANOS_PER_SEC / self.rate;
        let rng = generator(self.seed, GAPS_STREAM);
        let gaps = match self.spacing {
            Spacing::Constant => Gaps::Constant { gap: fixed(mean) },
            Spacing::Poisson => Gaps::Poisson { rng, mean },
            Spacing::Gamma { burstiness } => match Gamma::new(burstiness, mean / burstiness) {
                Ok(distribution) => Gaps::Gamma { rng, distribution },
                // Cannot be: both are positive and finite. Were it so, the load would still have its rate.
                Err(_) => Gaps::Poisson { rng, mean },
            },
        };
        let owners = generator(self.seed, OWNERS_STREAM);
        let mut arrivals = Arrivals { gaps, shard: self.shard, owners, next: 0, elapsed: 0 };
        arrivals.find_first();
        arrivals
    }
}

impl Arrivals {
    /// The next arrival, without taking it.
    #[must_use]
    pub fn peek(&self) -> Planned {
        let nanos = u64::try_from(self.elapsed >> FRACTION).unwrap_or(u64::MAX);
        Planned { position: self.next, offset: Duration::from_nanos(nanos) }
    }

    /// Leaves out every arrival before `offset` and says how many those were.
    ///
    /// In one step when the spacing is constant. Otherwise each gap has to be drawn, or the rest of the plan would change.
    pub fn skip_before(&mut self, offset: Duration) -> u64 {
        let limit = offset.as_nanos() << FRACTION;
        if let Gaps::Constant { gap } = self.gaps {
            let step = gap.saturating_mul(u128::from(self.shard.count.get()));
            let skipped = u64::try_from(limit.saturating_sub(self.elapsed).div_ceil(step)).unwrap_or(u64::MAX);
            self.elapsed = self.elapsed.saturating_add(step.saturating_mul(u128::from(skipped)));
            self.next += skipped * u64::from(self.shard.count.get());
            return skipped;
        }
        let mut skipped = 0;
        while self.elapsed < limit {
            self.step();
            skipped += 1;
        }
        skipped
    }

    fn find_first(&mut self) {
        if let Gaps::Constant { gap } = self.gaps {
            self.next = self.shard.position(0);
            self.elapsed = gap.saturating_mul(u128::from(self.next));
        } else if !self.is_own() {
            self.step();
        }
    }

    /// On to the next arrival of this shard.
    fn step(&mut self) {
        if let Gaps::Constant { gap } = self.gaps {
            self.elapsed = self.elapsed.saturating_add(gap.saturating_mul(u128::from(self.shard.count.get())));
            self.next += u64::from(self.shard.count.get());
            return;
        }
        loop {
            self.elapsed = self.elapsed.saturating_add(self.gaps.draw());
            self.next += 1;
            if self.is_own() {
                return;
            }
        }
    }

    fn is_own(&mut self) -> bool {
        self.shard == Shard::WHOLE || self.owners.random_range(0..self.shard.count.get()) == self.shard.index
    }
}

impl Iterator for Arrivals {
    type Item = Planned;

    fn next(&mut self) -> Option<Planned> {
        let planned = self.peek();
        self.step();
        Some(planned)
    }
}

impl Gaps {
    /// In 2^-32 ns.
    fn draw(&mut self) -> u128 {
        match self {
            Self::Constant { gap } => *gap,
            Self::Poisson { rng, mean } => {
                let unit: f64 = Exp1.sample(rng);
                fixed(unit * *mean)
            }
            Self::Gamma { rng, distribution } => fixed(distribution.sample(rng)),
        }
    }
}

/// Gaps and owners are drawn from streams of their own, or the number of shards would change the plan.
const GAPS_STREAM: u64 = 0;
const OWNERS_STREAM: u64 = 1;

/// The generator of (seed, stream) for arrivals; the tag keeps it apart from the one that draws prompts from the same seed.
fn generator(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut key = *b"........steadyload arrival plan.";
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut rng = ChaCha8Rng::from_seed(key);
    rng.set_stream(stream);
    rng
}

/// Nanoseconds in units of 2^-32 ns.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "gaps are positive and the cast saturates")]
fn fixed(nanos: f64) -> u128 {
    (nanos * UNITS_PER_NANO).round() as u128
}

#[cfg(test)]
mod tests;
