//! When a fault strikes: its share of the requests, its moment and its number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use crate::sim::fault::declare::Params;
use crate::sim::fault::{ConnectionFault, Fault, FaultError, LoadFault};
use crate::sim::value::{Value, words};

/// A fault and when it strikes.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultRule {
    /// What goes wrong.
    pub fault: Fault,
    /// For which share of the requests (of the connections, for a connection fault), 0 to 1.
    pub share: f64,
    /// From how long after the rule was set on.
    pub after: Duration,
    /// For how long then; `None` is for ever.
    pub lasting: Option<Duration>,
    /// How often at most; `None` is without limit.
    pub times: Option<u64>,
}

impl FaultRule {
    /// A rule that always strikes.
    #[must_use]
    pub const fn always(fault: Fault) -> Self {
        Self { fault, share: 1.0, after: Duration::ZERO, lasting: None, times: None }
    }

    /// A fault's text with, among its parameters, any of `share`, `after`, `for` and `times`:
    /// `factor:by=1.2,after=30s` or `status:code=503,share=0.01`.
    ///
    /// # Errors
    /// When the name, a parameter or a value does not exist.
    pub fn parse(text: &str) -> Result<Self, FaultError> {
        let mut params = Params::split(text)?;
        let mut rule = Self::always(Fault::build(&mut params)?);
        let share: Share = params.take("share", "1")?;
        rule.share = share.0;
        rule.after = params.take("after", "0")?;
        rule.lasting = params.take("for", "none")?;
        rule.times = params.take("times", "none")?;
        params.finish()?;
        Ok(rule)
    }

    /// As [`FaultRule::parse`], with share, moment and number from elsewhere when they are given there.
    pub(crate) fn parse_with(text: &str, given: &[(&'static str, String)]) -> Result<Self, FaultError> {
        let given: Vec<_> = given.iter().map(|(key, value)| format!("{key}={value}")).collect();
        if given.is_empty() {
            return Self::parse(text);
        }
        let joint = if text.contains([':', '=']) { ',' } else { ':' };
        Self::parse(&format!("{text}{joint}{}", given.join(",")))
    }
}

impl std::fmt::Display for FaultRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fault.fmt(f)?;
        write!(f, " share={} after={}", self.share, self.after.show())?;
        write!(f, " for={} times={}", self.lasting.show(), self.times.show())
    }
}

/// A share of something, 0 to 1.
struct Share(f64);

impl Value for Share {
    const SHAPE: &'static str = "a number from 0 to 1";

    fn read(text: &str) -> Option<Self> {
        f64::read(text).filter(|share| *share <= 1.0).map(Self)
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

words! {
    /// Who set a rule.
    Origin {
        /// The command line.
        Start = "start",
        /// `PUT /admin/faults`.
        Admin = "admin",
    }
}

/// What goes wrong with one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Struck {
    /// All times are multiplied by this.
    pub(crate) factor: f64,
    /// The one other thing that goes wrong. Two at once would hide each other's bytes.
    pub(crate) fault: Option<Fault>,
    /// All of it as text, for the truth log.
    pub(crate) text: Option<String>,
}

/// Every rule in force.
#[derive(Debug)]
pub(crate) struct Rules {
    seed: u64,
    rules: Mutex<Vec<Armed>>,
    connections: AtomicU64,
}

#[derive(Debug)]
struct Armed {
    origin: Origin,
    rule: FaultRule,
    set_at: Instant,
    hits: u64,
}

/// A rule as `GET /admin/faults` shows it.
pub(crate) struct RuleState {
    pub(crate) origin: Origin,
    pub(crate) rule: FaultRule,
    pub(crate) hits: u64,
}

impl Rules {
    pub(crate) fn new(seed: u64, start: &[FaultRule], now: Instant) -> Self {
        let arm = |rule: &FaultRule| Armed { origin: Origin::Start, rule: rule.clone(), set_at: now, hits: 0 };
        Self { seed, rules: Mutex::new(start.iter().map(arm).collect()), connections: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Armed>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts `rules` in place of what the administrator set before; they come before those of start-up.
    pub(crate) fn replace_admin(&self, rules: Vec<FaultRule>, now: Instant) {
        let mut all = self.lock();
        all.retain(|armed| armed.origin == Origin::Start);
        let new = rules.into_iter().map(|rule| Armed { origin: Origin::Admin, rule, set_at: now, hits: 0 });
        all.splice(0..0, new);
    }

    pub(crate) fn states(&self) -> Vec<RuleState> {
        let state = |armed: &Armed| RuleState { origin: armed.origin, rule: armed.rule.clone(), hits: armed.hits };
        self.lock().iter().map(state).collect()
    }

    /// What goes wrong with request number `seq`, whose header asked for `asked`.
    pub(crate) fn strike(&self, seq: u64, asked: Option<Fault>, now: Instant) -> Struck {
        let mut struck = Struck { factor: 1.0, fault: None, text: None };
        let mut texts = Vec::new();
        if let Some(fault) = asked {
            texts.push(fault.to_string());
            struck.add(fault);
        }
        for (index, armed) in self.lock().iter_mut().enumerate() {
            let room = match &armed.rule.fault {
                Fault::Load(_) => true,
                Fault::Connection(_) => false,
                Fault::Reply(_) | Fault::Shape(_) | Fault::Event(_) | Fault::Format(_) | Fault::Wire(_) => {
                    struck.fault.is_none()
                }
            };
            if room && armed.hits_now(self.seed, seq, index, now) {
                texts.push(armed.rule.fault.to_string());
                struck.add(armed.rule.fault.clone());
            }
        }
        struck.text = (!texts.is_empty()).then(|| texts.join(" + "));
        struck
    }

    /// What goes wrong with a connection that was just accepted.
    pub(crate) fn strike_connection(&self, now: Instant) -> Vec<ConnectionFault> {
        let mut rules = self.lock();
        if !rules.iter().any(|armed| matches!(armed.rule.fault, Fault::Connection(_))) {
            return Vec::new();
        }
        let seq = self.connections.fetch_add(1, Ordering::Relaxed);
        let mut faults = Vec::new();
        for (index, armed) in rules.iter_mut().enumerate() {
            let Fault::Connection(fault) = armed.rule.fault.clone() else { continue };
            if armed.hits_now(self.seed, seq, index, now) {
                faults.push(fault);
            }
        }
        faults
    }
}

impl Struck {
    fn add(&mut self, fault: Fault) {
        if let Fault::Load(LoadFault::Factor { by }) = fault {
            self.factor *= by;
        } else {
            self.fault = Some(fault);
        }
    }
}

impl Armed {
    /// Whether the rule strikes now; counts it if so. The draw depends on seed, request and place in the list alone.
    fn hits_now(&mut self, seed: u64, seq: u64, index: usize, now: Instant) -> bool {
        let from = self.set_at + self.rule.after;
        let over = self.rule.lasting.is_some_and(|lasting| now >= from + lasting);
        let spent = self.rule.times.is_some_and(|times| self.hits >= times);
        if now < from || over || spent {
            return false;
        }
        let place = u64::try_from(index).unwrap_or(u64::MAX).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hit = self.rule.share >= 1.0
            || StdRng::seed_from_u64(seed ^ place ^ seq.rotate_left(32)).random_bool(self.rule.share);
        self.hits += u64::from(hit);
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn rules(texts: &[&str]) -> Rules {
        let rules: Vec<_> = texts.iter().map(|text| FaultRule::parse(text).unwrap()).collect();
        Rules::new(7, &rules, clock::now())
    }

    fn names(rules: &Rules, count: u64, now: Instant) -> Vec<Option<String>> {
        (0..count).map(|seq| rules.strike(seq, None, now).text).collect()
    }

    #[test]
    fn a_rule_reads_its_share_moment_and_number_beside_the_parameters() {
        let rule = FaultRule::parse("status=503,share=0.1,after=2s,for=30s,times=3").unwrap();
        assert_eq!(rule.fault, Fault::parse("status:code=503").unwrap());
        assert!((rule.share - 0.1).abs() < 1e-9);
        assert_eq!(
            (rule.after, rule.lasting, rule.times),
            (Duration::from_secs(2), Some(Duration::from_secs(30)), Some(3))
        );
        for bad in ["crlf:share=1.1", "crlf:share=-1", "crlf:after=2", "crlf:tims=3"] {
            assert!(FaultRule::parse(bad).is_err(), "{bad}");
        }
        let error = FaultRule::parse("crlf:tims=3").unwrap_err().to_string();
        assert!(error.contains("share, after, for, times"), "{error}");
    }

    #[test]
    fn the_same_seed_strikes_the_same_requests_at_about_the_share() {
        let (one, other) = (rules(&["crlf:share=0.2"]), rules(&["crlf:share=0.2"]));
        let now = clock::now();
        let first = names(&one, 1000, now);
        assert_eq!(first, names(&other, 1000, now));
        let hits = first.iter().flatten().count();
        assert!((150..=250).contains(&hits), "{hits}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rule_strikes_from_its_moment_for_its_time() {
        let rules = rules(&["factor=1.2,after=30s,for=10s"]);
        let now = clock::now();
        let factor = |after: u64| rules.strike(0, None, now + Duration::from_secs(after)).factor;
        assert_eq!([29, 30, 39, 40].map(|after| factor(after) > 1.0), [false, true, true, false]);
    }

    #[test]
    fn a_rule_strikes_no_more_than_its_number() {
        assert_eq!(names(&rules(&["crlf:times=3"]), 9, clock::now()).iter().flatten().count(), 3);
    }

    #[test]
    fn header_beats_admin_beats_start_and_factors_multiply() {
        let rules = rules(&["crlf", "factor=2"]);
        let now = clock::now();
        rules.replace_admin(vec![FaultRule::parse("bom").unwrap(), FaultRule::parse("factor=3").unwrap()], now);
        assert_eq!(rules.strike(0, None, now).text.as_deref(), Some("bom + factor:by=3 + factor:by=2"));
        let struck = rules.strike(1, Some(Fault::parse("no_space").unwrap()), now);
        assert_eq!(struck.text.as_deref(), Some("no_space + factor:by=3 + factor:by=2"));
        assert!((struck.factor - 6.0).abs() < 1e-9);
        rules.replace_admin(Vec::new(), now);
        assert_eq!(rules.strike(2, None, now).text.as_deref(), Some("crlf + factor:by=2"));
    }
}
