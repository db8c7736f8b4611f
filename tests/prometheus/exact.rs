//! Exact quantiles of what the gateway did, from its truth log: what the daemon's numbers are held against.

use std::time::Duration;

use steadyload::sim::truth::{Truth, TruthLog};

/// The four quantities that the program is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    Ttft,
    Tpot,
    Itl,
    E2el,
}

impl Quantity {
    pub(crate) const ALL: [Self; 4] = [Self::Ttft, Self::Tpot, Self::Itl, Self::E2el];

    /// As windows call it.
    pub(crate) const fn metric(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::Itl => "itl",
            Self::E2el => "e2el",
        }
    }
}

/// All values of some requests, each quantity in order.
#[derive(Debug)]
pub(crate) struct Exact([Vec<Duration>; Quantity::ALL.len()]);

impl Exact {
    /// By the formulas of `measure::sample`, worked out anew from the writes.
    pub(crate) fn of<'a>(requests: impl IntoIterator<Item = &'a Truth>) -> Self {
        let mut values = [const { Vec::new() }; Quantity::ALL.len()];
        for truth in requests {
            let (first, last) = (&truth.writes[0], &truth.writes[truth.writes.len() - 1]);
            let later = u32::try_from(truth.n).unwrap() - first.tokens;
            values[Quantity::Ttft as usize].push(first.after);
            values[Quantity::Tpot as usize].push((last.after - first.after) / later);
            values[Quantity::E2el as usize].push(last.after);
            for pair in truth.writes.windows(2) {
                let (gap, tokens) = (pair[1].after - pair[0].after, pair[1].tokens);
                values[Quantity::Itl as usize].extend((0..tokens).map(|_| gap / tokens));
            }
        }
        values.iter_mut().for_each(|values| values.sort_unstable());
        Self(values)
    }

    pub(crate) fn count(&self, quantity: Quantity) -> usize {
        self.0[quantity as usize].len()
    }

    /// The value of rank `ceil(n p)`.
    pub(crate) fn quantile(&self, quantity: Quantity, percent: usize) -> Duration {
        let values = &self.0[quantity as usize];
        values[(values.len() * percent).div_ceil(100) - 1]
    }
}

/// The requests of a load, by index, from its `x-request-id`: `load-index-random`.
pub(crate) fn of_load(log: &TruthLog, load: &str) -> Vec<Truth> {
    let mut requests: Vec<_> = log
        .all()
        .into_iter()
        .filter_map(|truth| {
            let id = truth.request_id.as_deref()?;
            let (index, _) = id.strip_prefix(load)?.strip_prefix('-')?.split_once('-')?;
            Some((index.parse::<u64>().unwrap(), truth))
        })
        .collect();
    requests.sort_by_key(|(index, _)| *index);
    requests.into_iter().map(|(_, truth)| truth).collect()
}
