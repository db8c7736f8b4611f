//! The objectives against which goodput is counted.

use std::time::Duration;

use crate::domain::outcome::Outcome;
use crate::domain::sample::Sample;

/// Upper limits on one request. An objective that is not set is met by every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slo {
    /// Limit on the time to first token.
    pub ttft: Option<Duration>,
    /// Limit on the mean time per output token.
    pub tpot: Option<Duration>,
    /// Limit on the end-to-end latency.
    pub e2el: Option<Duration>,
}

impl Slo {
    /// Whether a request was good: it ended `ok` and every objective that is set holds, the limit itself included.
    ///
    /// A quantity that the request does not have (no TPOT because the server counted no tokens, or because the answer
    /// came in one lump) cannot be shown to meet its objective, so it does not: goodput may be too low, never too high.
    #[must_use]
    pub fn is_met(&self, sample: &Sample) -> bool {
        let within = |limit: Option<Duration>, value: Option<Duration>| {
            limit.is_none_or(|limit| value.is_some_and(|value| value <= limit))
        };
        sample.outcome == Outcome::Ok
            && within(self.ttft, sample.ttft)
            && within(self.tpot, sample.tpot)
            && within(self.e2el, sample.e2el)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(outcome: Outcome, ttft: Option<u64>, tpot: Option<u64>) -> Sample {
        let ms = |value: Option<u64>| value.map(Duration::from_millis);
        Sample {
            outcome,
            ttft: ms(ttft),
            tpot: ms(tpot),
            e2el: ms(Some(900)),
            ttfo: None,
            ttfc: None,
            corrected_ttft: None,
            corrected_e2el: None,
            stream_close: None,
            schedule_lag: None,
            output_tokens: None,
            tokens_per_chunk: None,
        }
    }

    #[test]
    fn a_good_request_is_ok_and_meets_every_objective() {
        let slo = Slo { ttft: Some(Duration::from_millis(500)), tpot: Some(Duration::from_millis(50)), e2el: None };
        assert!(slo.is_met(&sample(Outcome::Ok, Some(500), Some(50))), "the limit itself is good");
        assert!(!slo.is_met(&sample(Outcome::Ok, Some(501), Some(50))));
        assert!(!slo.is_met(&sample(Outcome::Ok, Some(500), Some(51))));
        assert!(!slo.is_met(&sample(Outcome::Ok, Some(500), None)), "an unknown TPOT is not shown to be good");
        assert!(!slo.is_met(&sample(Outcome::ShortOutput, Some(1), Some(1))), "a short answer is the engine's fault");
    }

    #[test]
    fn without_objectives_every_ok_request_is_good() {
        assert!(Slo::default().is_met(&sample(Outcome::Ok, None, None)));
        assert!(!Slo::default().is_met(&sample(Outcome::Empty, None, None)));
    }
}
