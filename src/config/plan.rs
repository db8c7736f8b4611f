//! What the loads will ask for in a day, before any of it is sent.
//!
//! Only open loops can be planned: a closed loop goes as fast as the gateway answers. The plan is that of all shards
//! together, since the budget is for all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use crate::config::sections::{Config, Load, Pace, ShardOf, Workload};

/// Seconds in a day.
const DAY_SECS: f64 = 86_400.0;

/// The plan of every load.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// One line a load, by name.
    pub loads: Vec<PlannedLoad>,
    /// Which part of it this daemon carries.
    pub shard: ShardOf,
}

/// The plan of one load.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedLoad {
    /// The load's name.
    pub name: String,
    /// Its pace.
    pub pace: Pace,
    /// Mean of the output tokens asked for by each request; `None` when its data set has them.
    pub output_tokens: Option<f64>,
}

impl Plan {
    /// The plan of a checked configuration.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let loads = config.loads.iter().map(|(name, load)| (name.as_str(), load));
        Self { shard: config.shard, ..Self::of_loads(loads, &config.workloads) }
    }

    /// The plan of these loads for one daemon. A load without its workload is left out: it is refused elsewhere.
    pub(super) fn of_loads<'a>(
        loads: impl Iterator<Item = (&'a str, &'a Load)>,
        workloads: &BTreeMap<String, Workload>,
    ) -> Self {
        let loads = loads.filter_map(|(name, load)| {
            let output_tokens = workloads.get(&load.workload)?.mean_output_tokens();
            Some(PlannedLoad { name: name.to_owned(), pace: load.pace, output_tokens })
        });
        Self { loads: loads.collect(), shard: ShardOf::default() }
    }

    /// Output tokens a day over all open loops: the sum of `rate * 86400 * output_tokens`.
    #[must_use]
    pub fn output_tokens_per_day(&self) -> f64 {
        self.loads.iter().filter_map(PlannedLoad::output_tokens_per_day).sum()
    }

    /// Requests a day over all open loops: the sum of `rate * 86400`.
    #[must_use]
    pub fn requests_per_day(&self) -> f64 {
        self.loads.iter().filter_map(PlannedLoad::requests_per_day).sum()
    }

    /// The largest rate of each open loop at which all of them fit into `budget`, every rate being lowered by the same
    /// factor. Rounded down to three digits, so that what is shown does fit.
    pub(super) fn fitting_rates(&self, budget: f64) -> Vec<(&str, f64)> {
        let factor = budget / self.output_tokens_per_day();
        let rates = self.loads.iter().filter_map(|load| match load.pace {
            Pace::Rate(rate) if load.output_tokens.is_some() => {
                Some((load.name.as_str(), rounded_down(rate.per_second * factor)))
            }
            Pace::Rate(_) | Pace::Concurrency(_) => None,
        });
        rates.collect()
    }
}

impl PlannedLoad {
    /// `rate * 86400`; `None` for a closed loop, whose rate is the gateway's.
    #[must_use]
    pub fn requests_per_day(&self) -> Option<f64> {
        match self.pace {
            Pace::Rate(rate) => Some(rate.per_second * DAY_SECS),
            Pace::Concurrency(_) => None,
        }
    }

    /// `rate * 86400 * output_tokens`, every answer taken to be as long as asked for; `None` for a closed loop, and when the
    /// data set has the lengths.
    #[must_use]
    pub fn output_tokens_per_day(&self) -> Option<f64> {
        Some(self.requests_per_day()? * self.output_tokens?)
    }
}

/// A table: requests and output tokens a day, load by load, and their sum; with several shards, what this one has of it.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.loads.iter().map(|load| load.name.len());
        let width = names.chain(["total".len()]).max().unwrap_or(0);
        writeln!(f, "{:width$}  {:>15}  {:>19}", "load", "requests/day", "output tokens/day")?;
        for load in &self.loads {
            match (load.pace, load.requests_per_day(), load.output_tokens_per_day()) {
                (Pace::Concurrency(workers), ..) => {
                    writeln!(f, "{:width$}  closed loop of {workers}: as fast as the gateway answers", load.name)?;
                }
                (Pace::Rate(_), requests, tokens) => {
                    let tokens = tokens.map_or_else(|| "as in its file".to_owned(), grouped);
                    let requests = grouped(requests.unwrap_or_default());
                    writeln!(f, "{:width$}  {requests:>15}  {tokens:>19}", load.name)?;
                }
            }
        }
        let (requests, tokens) = (self.requests_per_day(), self.output_tokens_per_day());
        write!(f, "{:width$}  {:>15}  {:>19}", "total", grouped(requests), grouped(tokens))?;
        let ShardOf { index, count } = self.shard;
        if count == NonZeroU32::MIN {
            return Ok(());
        }
        write!(f, "\nover all {count} shards; this is the one with index {index}")?;
        if requests > 0.0 {
            // A shard's part is random for random arrivals, so this is what it has on average.
            let part = |sum: f64| grouped(sum / f64::from(count.get()));
            write!(f, ", which sends some {} requests and {} output tokens of it", part(requests), part(tokens))?;
        }
        Ok(())
    }
}

/// A whole number in groups of three, as TOML may have it: `40_000_000`. Rounded up, since it is compared with a limit.
pub(super) fn grouped(number: f64) -> String {
    // A rate such as 3.3 has no exact binary form: what is off by less than a millionth is not a token more.
    let digits = format!("{:.0}", (number - 1e-6).ceil().max(0.0));
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

/// Three leading digits, the rest cut off.
fn rounded_down(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.log10().floor() - 2.0);
    let rounded = (rate / unit).floor() * unit;
    // Powers of ten are inexact, and digits like 4.619999 help nobody.
    let text = format!("{rounded:.12}");
    text.parse().ok().filter(|shown| *shown > 0.0 && *shown <= rate).unwrap_or(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sections::Rate;

    fn planned(name: &str, pace: Pace) -> PlannedLoad {
        PlannedLoad { name: name.to_owned(), pace, output_tokens: Some(100.0) }
    }

    fn rate(per_second: f64) -> Pace {
        Pace::Rate(Rate::of(per_second))
    }

    fn plan() -> Plan {
        let closed = Pace::Concurrency(NonZeroU32::MIN);
        Plan { loads: vec![planned("canary", rate(3.5)), planned("closed", closed)], shard: ShardOf::default() }
    }

    #[test]
    fn the_plan_counts_open_loops_and_names_closed_ones() {
        assert_eq!(plan().loads[0].output_tokens_per_day(), Some(30_240_000.0));
        assert_eq!(plan().loads[1].output_tokens_per_day(), None);
        let want = "load       requests/day    output tokens/day\n\
                    canary          302_400           30_240_000\n\
                    closed  closed loop of 1: as fast as the gateway answers\n\
                    total           302_400           30_240_000";
        assert_eq!(plan().to_string(), want);
    }

    #[test]
    fn the_plan_of_a_shard_is_that_of_all_and_says_what_this_one_has_of_it() {
        let shard = ShardOf { index: 3, count: NonZeroU32::new(4).unwrap() };
        let whole = plan();
        let sharded = Plan { shard, ..plan() };
        let want = "\nover all 4 shards; this is the one with index 3, which sends some 75_600 requests and 7_560_000 \
                    output tokens of it";
        assert_eq!(sharded.to_string(), format!("{whole}{want}"));
        let closed = Plan { loads: whole.loads.into_iter().skip(1).collect(), shard };
        assert!(closed.to_string().ends_with("\nover all 4 shards; this is the one with index 3"), "{closed}");
    }

    #[test]
    fn the_rates_said_to_fit_do_fit() {
        for budget in [1.0, 999.0, 1e6, 2e7, 30_239_999.0] {
            let mut plan = plan();
            plan.loads.push(planned("other", rate(0.123)));
            let fitting: Vec<f64> = plan.fitting_rates(budget).into_iter().map(|(_, rate)| rate).collect();
            let open = plan.loads.iter_mut().filter(|load| matches!(load.pace, Pace::Rate(_)));
            open.zip(fitting).for_each(|(load, per_second)| load.pace = rate(per_second));
            let tokens = plan.output_tokens_per_day();
            assert!(tokens <= budget && tokens > 0.98 * budget, "{budget}: {tokens}");
        }
    }
}
