//! The budgets, and whether the loads fit into them.
//!
//! A budget is the quota of a key, so each target has its own: `[budget]` is the one of every target that has none itself.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::reader::{Checker, Entry, Section};
use super::vocabulary;
use crate::config::fault::Finding;
use crate::config::origin::Literal;
use crate::config::plan::{Plan, grouped};
use crate::config::sections::{Budget, Load, Pace, Workload};
use crate::domain::budget::{BudgetKind, BudgetPeriod};

/// Share by which a plan may seem above its budget: 3.3 requests a second are not exactly so in binary.
const ROUNDING: f64 = 1e-9;

/// A budget as it was written.
struct Written<'t> {
    budget: Budget,
    /// Where each limit stands.
    limits: Vec<(BudgetKind, BudgetPeriod, u64, Entry<'t>)>,
}

/// The budget of each target. The loads and workloads are those without a fault: a plan that is above the budget with some of
/// them is above it with all.
pub(super) fn budgets(
    checker: &mut Checker<'_>,
    root: &Section<'_>,
    targets: &[String],
    loads: &BTreeMap<String, Load>,
    workloads: &BTreeMap<String, Workload>,
) -> Option<BTreeMap<String, Budget>> {
    let mut whole = true;
    let general = match checker.entry(root, "budget") {
        Some(entry) => {
            let written = budget(checker, &entry);
            whole &= written.is_some();
            written
        }
        None => None,
    };
    let mut budgets = BTreeMap::new();
    for name in targets {
        let own = of_target(checker, root, name);
        let written = match own.map(|entry| budget(checker, &entry)) {
            Some(Some(own)) => Some(own),
            Some(None) => {
                whole = false;
                continue;
            }
            None => None,
        };
        let Some(written) = written.as_ref().or(general.as_ref()) else { continue };
        let of_target = loads.iter().filter(|(_, load)| load.target == *name);
        let plan = Plan::of_loads(of_target.map(|(name, load)| (name.as_str(), load)), workloads);
        let whose = if targets.len() > 1 { format!("the loads of targets.{name}") } else { "the loads".to_owned() };
        whole &= fits(checker, written, &plan, &whose).is_some();
        if !written.budget.limits.is_empty() {
            budgets.insert(name.clone(), written.budget);
        }
    }
    whole.then_some(budgets)
}

/// A target's own budget, if it has one.
fn of_target<'t>(checker: &Checker<'_>, root: &Section<'t>, name: &str) -> Option<Entry<'t>> {
    let below = |entry: Entry<'t>| {
        let table = entry.as_table()?;
        Some(Section { path: entry.path, origin: entry.origin, table })
    };
    let targets = checker.entry(root, "targets").and_then(below)?;
    let target = checker.entry(&targets, name).and_then(below)?;
    checker.entry(&target, "budget")
}

fn budget<'t>(checker: &mut Checker<'_>, entry: &Entry<'t>) -> Option<Written<'t>> {
    let section = checker.table(entry, &Literal::table("output_tokens_per_day", Literal::bare("40000000")))?;
    checker.close(&section, &vocabulary::BUDGET);
    let mut written = Written { budget: Budget::default(), limits: Vec::new() };
    let mut whole = true;
    for kind in BudgetKind::ALL {
        for period in BudgetPeriod::ALL {
            let Some(entry) = checker.entry(&section, &key(kind, period)) else { continue };
            let limit = checker.whole(&entry, 1..=u64::MAX, example(kind, period));
            whole &= limit.is_some();
            written.budget.limits.set(kind, period, limit.and_then(NonZeroU64::new));
            written.limits.extend(limit.map(|limit| (kind, period, limit, entry)));
        }
    }
    whole.then_some(written)
}

/// The setting of a limit.
fn key(kind: BudgetKind, period: BudgetPeriod) -> String {
    format!("{}_per_{}", kind.name(), period.name())
}

/// A limit as it might be.
fn example(kind: BudgetKind, period: BudgetPeriod) -> u64 {
    match (kind, period) {
        (BudgetKind::Requests, BudgetPeriod::Hour) => 20_000,
        (BudgetKind::Requests, BudgetPeriod::Day) => 400_000,
        (BudgetKind::InputTokens | BudgetKind::OutputTokens, BudgetPeriod::Hour) => 2_000_000,
        (BudgetKind::InputTokens | BudgetKind::OutputTokens, BudgetPeriod::Day) => 40_000_000,
    }
}

fn fits(checker: &mut Checker<'_>, written: &Written<'_>, plan: &Plan, whose: &str) -> Option<()> {
    let mut all = Some(());
    for (at, (kind, period, limit, entry)) in written.limits.iter().enumerate() {
        // Said once, of the first limit.
        for load in plan.loads.iter().filter(|load| at == 0 && matches!(load.pace, Pace::Concurrency(_))) {
            let what = format!("does not bound loads.{}: a closed loop goes as fast as the gateway answers", load.name);
            let finding = Finding::at(&entry.origin, &entry.path, what, "give that load a rate to have it planned");
            checker.warn(finding);
        }
        for load in plan.loads.iter().filter(|load| load.asked.of(*kind).is_none()) {
            let what = format!("does not bound loads.{}: the lengths are in its data set", load.name);
            let help = format!("give its workload {} to have it planned", kind.name());
            checker.warn(Finding::at(&entry.origin, &entry.path, what, help));
        }
        if one_fits(checker, (*kind, *period, *limit), entry, plan, whose).is_none() {
            all = None;
        }
    }
    all
}

fn one_fits(
    checker: &mut Checker<'_>,
    (kind, period, limit): (BudgetKind, BudgetPeriod, u64),
    entry: &Entry<'_>,
    plan: &Plan,
    whose: &str,
) -> Option<()> {
    // Exact up to 2^53, and no plan is as large.
    let budget: f64 = limit.to_string().parse().ok()?;
    let planned = plan.planned(kind, period);
    if planned <= budget * (1.0 + ROUNDING) {
        return Some(());
    }
    let (secs, unit) = match period {
        BudgetPeriod::Hour => ("3_600 s", "an hour"),
        BudgetPeriod::Day => ("86_400 s", "a day"),
    };
    let open = plan.loads.iter().filter_map(|load| match (load.pace, kind) {
        (Pace::Rate(rate), BudgetKind::Requests) => Some(format!("{}: {}/s * {secs}", load.name, rate.per_second)),
        (Pace::Rate(rate), BudgetKind::InputTokens | BudgetKind::OutputTokens) => {
            let tokens = (load.asked.of(kind)? * 10.0).round() / 10.0;
            Some(format!("{}: {}/s * {secs} * {tokens} tokens", load.name, rate.per_second))
        }
        (Pace::Concurrency(_), _) => None,
    });
    let sum: Vec<_> = open.collect();
    let rates = plan.fitting_rates(kind, period, budget);
    let rates: Vec<_> = rates.iter().map(|(name, rate)| format!("loads.{name}.rate = {rate}")).collect();
    let what = format!(
        "{whose} plan {} {} {unit} ({}), above the budget of {}",
        grouped(planned),
        kind.name().replace('_', " "),
        sum.join(" + "),
        grouped(budget)
    );
    let larger = entry.written(&Literal::Bare(grouped(planned).replace('_', "")));
    checker.wrong(entry, what, format!("write at most {}, or `{larger}`", rates.join(" and ")))
}
