//! What the loads will ask for in a day or an hour, before any of it is sent.
//!
//! Only open loops can be planned: a closed loop goes as fast as the gateway answers. The plan is that of all shards
//! together, since a budget is for all of them. Lengths are means: what each request asks for on average.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use crate::config::sections::{Config, Load, Pace, ShardOf, Workload};
use crate::domain::budget::{BudgetKind, BudgetPeriod, PerKind};

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
    /// Where it goes.
    pub target: String,
    /// Its pace.
    pub pace: Pace,
    /// What each request asks for on average: itself, and its tokens; `None` when only the data set knows.
    pub asked: PerKind<Option<f64>>,
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
            let workload = workloads.get(&load.workload)?;
            let asked = PerKind([Some(1.0), workload.mean_input_tokens(), workload.mean_output_tokens()]);
            Some(PlannedLoad { name: name.to_owned(), target: load.target.clone(), pace: load.pace, asked })
        });
        Self { loads: loads.collect(), shard: ShardOf::default() }
    }

    /// The sum over all open loops of what they plan of this kind in a period.
    #[must_use]
    pub fn planned(&self, kind: BudgetKind, period: BudgetPeriod) -> f64 {
        self.loads.iter().filter_map(|load| load.planned(kind, period)).sum()
    }

    /// The largest rate of each open loop at which all of them fit into `budget`, every rate being lowered by the same
    /// factor. Rounded down to three digits, so that what is shown does fit.
    pub(super) fn fitting_rates(&self, kind: BudgetKind, period: BudgetPeriod, budget: f64) -> Vec<(&str, f64)> {
        let factor = budget / self.planned(kind, period);
        let rates = self.loads.iter().filter_map(|load| match load.pace {
            Pace::Rate(rate) if load.asked.of(kind).is_some() => {
                Some((load.name.as_str(), rounded_down(rate.per_second * factor)))
            }
            Pace::Rate(_) | Pace::Concurrency(_) => None,
        });
        rates.collect()
    }
}

impl PlannedLoad {
    /// `rate * length of the period * what each request asks for`, every answer taken to be as long as asked for; `None` for
    /// a closed loop, whose rate is the gateway's, and when only the data set knows what is asked for.
    #[must_use]
    pub fn planned(&self, kind: BudgetKind, period: BudgetPeriod) -> Option<f64> {
        match self.pace {
            Pace::Rate(rate) => Some(rate.per_second * f64::from(period.secs()) * self.asked.of(kind)?),
            Pace::Concurrency(_) => None,
        }
    }
}

/// A table: requests, input and output tokens a day, load by load, and their sum; with several targets, that of each; with
/// several shards, what this one has of it.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut targets: Vec<_> = self.loads.iter().map(|load| load.target.as_str()).collect();
        targets.sort_unstable();
        targets.dedup();
        // With one target the total says the same.
        let of_targets: Vec<_> =
            targets.iter().filter(|_| targets.len() > 1).map(|target| format!("all of {target}")).collect();
        let labels = self.loads.iter().map(|load| &load.name).chain(&of_targets);
        let width = labels.map(String::len).chain(["total".len()]).max().unwrap_or(0);
        let line = |f: &mut fmt::Formatter<'_>, label: &str, [a, b, c]: [&str; 3]| {
            write!(f, "{label:width$}  {a:>15}  {b:>19}  {c:>19}")
        };
        line(f, "load", ["requests/day", "input tokens/day", "output tokens/day"])?;
        for load in &self.loads {
            writeln!(f)?;
            match load.pace {
                Pace::Concurrency(workers) => {
                    write!(f, "{:width$}  closed loop of {workers}: as fast as the gateway answers", load.name)?;
                }
                Pace::Rate(_) => {
                    let day = BudgetKind::ALL.map(|kind| load.planned(kind, BudgetPeriod::Day));
                    let day = day.map(|planned| planned.map_or_else(|| "as in its file".to_owned(), grouped));
                    line(f, &load.name, day.each_ref().map(String::as_str))?;
                }
            }
        }
        for (target, label) in targets.iter().zip(&of_targets) {
            writeln!(f)?;
            let loads = self.loads.iter().filter(|load| load.target == *target);
            line(f, label, a_day(loads).each_ref().map(String::as_str))?;
        }
        writeln!(f)?;
        line(f, "total", a_day(self.loads.iter()).each_ref().map(String::as_str))?;
        let ShardOf { index, count } = self.shard;
        if count == NonZeroU32::MIN {
            return Ok(());
        }
        write!(f, "\nover all {count} shards; this is the one with index {index}")?;
        let requests = self.planned(BudgetKind::Requests, BudgetPeriod::Day);
        if requests > 0.0 {
            // A shard's part is random for random arrivals, so this is what it has on average.
            let part = |sum: f64| grouped(sum / f64::from(count.get()));
            let tokens = self.planned(BudgetKind::OutputTokens, BudgetPeriod::Day);
            write!(f, ", which sends some {} requests and {} output tokens of it", part(requests), part(tokens))?;
        }
        Ok(())
    }
}

/// What these loads plan of each kind in a day.
fn a_day<'a>(loads: impl Iterator<Item = &'a PlannedLoad> + Clone) -> [String; 3] {
    BudgetKind::ALL.map(|kind| grouped(loads.clone().filter_map(|load| load.planned(kind, BudgetPeriod::Day)).sum()))
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
        let asked = PerKind([Some(1.0), Some(256.0), Some(100.0)]);
        PlannedLoad { name: name.to_owned(), target: "t".to_owned(), pace, asked }
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
        let planned = |load: usize| plan().loads[load].planned(BudgetKind::OutputTokens, BudgetPeriod::Day);
        assert_eq!((planned(0), planned(1)), (Some(30_240_000.0), None));
        let an_hour = plan().loads[0].planned(BudgetKind::InputTokens, BudgetPeriod::Hour);
        assert_eq!(an_hour, Some(3.5 * 3600.0 * 256.0));
        let want = "load       requests/day     input tokens/day    output tokens/day\n\
                    canary          302_400           77_414_400           30_240_000\n\
                    closed  closed loop of 1: as fast as the gateway answers\n\
                    total           302_400           77_414_400           30_240_000";
        assert_eq!(plan().to_string(), want);
    }

    #[test]
    fn with_several_targets_each_has_its_sum() {
        let mut plan = plan();
        plan.loads.push(PlannedLoad { target: "u".to_owned(), ..planned("third", rate(1.0)) });
        let text = plan.to_string();
        for line in [
            "all of t          302_400           77_414_400           30_240_000\n",
            "all of u           86_400           22_118_400            8_640_000\n",
            "total             388_800           99_532_800           38_880_000",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
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
        let (kind, period) = (BudgetKind::OutputTokens, BudgetPeriod::Day);
        for budget in [1.0, 999.0, 1e6, 2e7, 30_239_999.0] {
            let mut plan = plan();
            plan.loads.push(planned("other", rate(0.123)));
            let fitting: Vec<f64> =
                plan.fitting_rates(kind, period, budget).into_iter().map(|(_, rate)| rate).collect();
            let open = plan.loads.iter_mut().filter(|load| matches!(load.pace, Pace::Rate(_)));
            open.zip(fitting).for_each(|(load, per_second)| load.pace = rate(per_second));
            let tokens = plan.planned(kind, period);
            assert!(tokens <= budget && tokens > 0.98 * budget, "{budget}: {tokens}");
        }
    }
}
