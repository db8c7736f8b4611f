//! The budget, and whether the loads fit into it.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::reader::{Checker, Entry, Section};
use super::vocabulary;
use crate::config::fault::Finding;
use crate::config::origin::Literal;
use crate::config::plan::{Plan, grouped};
use crate::config::sections::{Budget, Load, Pace, Workload};

/// Share by which a plan may seem above its budget: 3.3 requests a second are not exactly so in binary.
const ROUNDING: f64 = 1e-9;

/// The budget. The loads and workloads are those without a fault: a plan that is above the budget with some of them
/// is above it with all.
pub(super) fn budget(
    checker: &mut Checker<'_>,
    root: &Section<'_>,
    loads: &BTreeMap<String, Load>,
    workloads: &BTreeMap<String, Workload>,
) -> Option<Budget> {
    let Some(entry) = checker.entry(root, "budget") else { return Some(Budget::default()) };
    let section = checker.table(&entry, &Literal::table("output_tokens_per_day", Literal::bare("40000000")))?;
    checker.close(&section, &vocabulary::BUDGET);
    let Some(entry) = checker.entry(&section, "output_tokens_per_day") else { return Some(Budget::default()) };
    let tokens = checker.whole(&entry, 1..=u64::MAX, 40_000_000)?;
    let plan = Plan::of_loads(loads.iter().map(|(name, load)| (name.as_str(), load)), workloads);
    for load in plan.loads.iter().filter(|load| matches!(load.pace, Pace::Concurrency(_))) {
        let what = format!("does not bound loads.{}: a closed loop goes as fast as the gateway answers", load.name);
        let finding = Finding::at(&entry.origin, &entry.path, what, "give that load a rate to have it planned");
        checker.warn(finding);
    }
    for load in plan.loads.iter().filter(|load| load.output_tokens.is_none()) {
        let what = format!("does not bound loads.{}: the lengths of its answers are in its data set", load.name);
        let finding =
            Finding::at(&entry.origin, &entry.path, what, "give its workload output_tokens to have it planned");
        checker.warn(finding);
    }
    fits(checker, &entry, tokens, &plan)?;
    Some(Budget { output_tokens_per_day: NonZeroU64::new(tokens) })
}

fn fits(checker: &mut Checker<'_>, entry: &Entry<'_>, tokens: u64, plan: &Plan) -> Option<()> {
    // Exact up to 2^53, and no plan is as large.
    let budget: f64 = tokens.to_string().parse().ok()?;
    let planned = plan.output_tokens_per_day();
    if planned <= budget * (1.0 + ROUNDING) {
        return Some(());
    }
    let open = plan.loads.iter().filter_map(|load| match (load.pace, load.output_tokens) {
        (Pace::Rate(rate), Some(tokens)) => {
            let rate = rate.per_second;
            Some(format!("{}: {rate}/s * 86_400 s * {} tokens", load.name, (tokens * 10.0).round() / 10.0))
        }
        (Pace::Rate(_), None) | (Pace::Concurrency(_), _) => None,
    });
    let sum: Vec<_> = open.collect();
    let rates = plan.fitting_rates(budget);
    let rates: Vec<_> = rates.iter().map(|(name, rate)| format!("loads.{name}.rate = {rate}")).collect();
    let what = format!(
        "the loads plan {} output tokens a day ({}), above the budget of {}",
        grouped(planned),
        sum.join(" + "),
        grouped(budget)
    );
    let larger = entry.written(&Literal::Bare(grouped(planned).replace('_', "")));
    checker.wrong(entry, what, format!("write at most {}, or `{larger}`", rates.join(" and ")))
}
