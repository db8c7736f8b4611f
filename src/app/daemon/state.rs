//! The daemon's state: what runs, what has been counted of it, and how well the client is. One task owns it; once a second it
//! takes in what the load threads recorded and makes the picture that exporters read.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::events::{Events, Failures, Told};
use super::fleet::{Fleet, Place};
use super::journal::{Journal, Minute};
use super::minute::{Ended, Minutes};
use super::spec::Spec;
use crate::clock;
use crate::domain::arrival::Arrival;
use crate::domain::outcome::Outcome;
use crate::domain::sample::ItlBasis;
use crate::domain::shed::ShedReason;
use crate::domain::timeline::{Answer, Timeline};
use crate::export::view::{ClientView, LoadView, PauseReason, Phase, ReloadView, StateView, View};
use crate::load::client::hint::{self, Surroundings};
use crate::load::schedule::Event;
use crate::load::worker::{Gone, Report, Standing};
use crate::measure::notable::Notable;
use crate::measure::recorder::Delta;
use crate::measure::snapshot::Ledger;
use crate::measure::totals::{Quantity, Totals};
use crate::watch::client_health::probe::Probe;
use crate::watch::client_health::{MinuteHealth, Second, TaintReason};

/// How long after the last arrival that could not leave a load counts as not kept.
const NOT_KEPT: Duration = Duration::from_secs(60);

/// An hour of notable requests.
const HOUR: Duration = Duration::from_secs(3600);

/// A load that runs.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) spec: Spec,
    pub(super) account: usize,
    pub(super) place: Place,
    pub(super) paused: bool,
    pub(super) next_index: u64,
    /// Why it ends, if it does.
    pub(super) ending: Option<Ending>,
    /// Its last request has ended.
    gone: bool,
    rested: Duration,
    minute: MinuteHealth,
    not_kept_at: Option<Instant>,
    failures: Failures,
    /// What had been counted when the last second ended.
    shed: [u64; ShedReason::ALL.len()],
    outcomes: [u64; Outcome::ALL.len()],
}

/// Why a load ends: nothing new is sent, and what is in flight is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// It is no longer configured: its series end with it.
    Removed,
    /// Another loop goes on under its account.
    Replaced,
    /// The daemon stops.
    Shutdown,
}

/// All of it.
#[derive(Debug)]
pub(super) struct State {
    pub(super) fleet: Fleet,
    /// In the order of their names, those that end included.
    pub(super) loads: Vec<Active>,
    pub(super) events: Events,
    pub(super) phase: Phase,
    pub(super) reload: ReloadView,
    ledger: Ledger,
    probe: Probe,
    client: ClientView,
    minutes: Minutes,
    journal: Option<Journal>,
    hour_ends: Instant,
    second_ended_at: Instant,
    surroundings: Surroundings,
}

impl State {
    /// Nothing runs yet.
    pub(super) fn new(fleet: Fleet, journal: Option<Journal>, surroundings: Surroundings) -> Self {
        let (now, unix) = (clock::now(), clock::unix_now());
        Self {
            fleet,
            loads: Vec::new(),
            events: Events::default(),
            phase: Phase::Starting,
            reload: ReloadView { successful: true, succeeded_unix: unix, ..ReloadView::default() },
            ledger: Ledger::default(),
            probe: Probe::new(),
            client: ClientView::default(),
            minutes: Minutes::starting(now, unix),
            journal,
            hour_ends: now + HOUR,
            second_ended_at: now,
            surroundings,
        }
    }

    /// Notes an event and logs it.
    pub(super) fn note(&mut self, kind: &'static str, load: Option<&str>, text: String) {
        tracing::info!(load, "{text}");
        self.events.note(clock::unix_now(), kind, load, text);
    }

    /// Notes an event that somebody should look at, and logs it as a warning.
    pub(super) fn warn(&mut self, kind: &'static str, load: Option<&str>, text: String) {
        tracing::warn!(load, "{text}");
        self.events.note(clock::unix_now(), kind, load, text);
    }

    /// Starts a load, under an account of its own unless it goes on with one: with the one that it is given, or with that of a
    /// load of the same labels whose last requests have not ended. There can be but one series of a name.
    pub(super) async fn start(&mut self, spec: Spec, account: Option<usize>, paused: bool) -> anyhow::Result<()> {
        let account = account.or_else(|| self.come_back(&spec)).unwrap_or_else(|| self.ledger.open());
        let place = self.fleet.start(&spec, account, paused).await?;
        let counted = self.ledger.totals(account);
        let active = Active {
            account,
            place,
            paused,
            next_index: 0,
            ending: None,
            gone: false,
            rested: Duration::ZERO,
            minute: MinuteHealth::default(),
            not_kept_at: None,
            failures: Failures::default(),
            shed: counted.map_or([0; _], |totals| ShedReason::ALL.map(|reason| totals.shed(reason))),
            outcomes: counted.map_or([0; _], |totals| Outcome::ALL.map(|outcome| totals.outcome(outcome))),
            spec,
        };
        let at = self.loads.partition_point(|load| load.spec.name < active.spec.name);
        self.loads.insert(at, active);
        Ok(())
    }

    /// The account of a load that was removed and has not ended, if `spec` is that load again.
    fn come_back(&mut self, spec: &Spec) -> Option<usize> {
        let is_it = |load: &&mut Active| load.ending == Some(Ending::Removed) && load.spec.labels() == spec.labels();
        let load = self.loads.iter_mut().find(is_it)?;
        load.ending = Some(Ending::Replaced);
        let (account, is_the_same) = (load.account, load.spec.series() == spec.series());
        if !is_the_same {
            self.reset_windows(account);
        }
        Some(account)
    }

    /// The load of this name, unless it is about to end.
    pub(super) fn running(&mut self, name: &str) -> Option<&mut Active> {
        self.loads.iter_mut().find(|load| load.ending.is_none() && load.spec.name == name)
    }

    /// Begins the end of a load.
    pub(super) async fn stop(&mut self, name: &str, ending: Ending) -> Result<(), Gone> {
        let Some(load) = self.running(name) else { return Ok(()) };
        load.ending = Some(ending);
        let (place, next_index) = (load.place, load.next_index);
        self.fleet.tell(place, Event::Stop).await?;
        self.fleet.leaves(name, next_index);
        Ok(())
    }

    /// What is sent has changed: what was measured before says nothing about it.
    pub(super) fn reset_windows(&mut self, account: usize) {
        self.ledger.reset_windows(account);
    }

    /// Puts back minutes that were saved before the start.
    pub(super) fn restore(&mut self, minutes: Vec<Minute>) {
        let series: Vec<_> = self.loads.iter().map(|load| (load.spec.series(), load.account)).collect();
        for (of, minute) in minutes.into_iter().flatten() {
            if let Some((_, account)) = series.iter().find(|(series, _)| *series == of) {
                self.ledger.restore(*account, Arc::unwrap_or_clone(minute));
            }
        }
    }

    /// Whether nothing is left to end.
    pub(super) fn has_ended(&self) -> bool {
        self.loads.iter().all(|load| load.gone)
    }

    /// Whether every thread is alive.
    pub(super) fn is_whole(&self) -> bool {
        self.fleet.is_whole() && !self.journal.as_ref().is_some_and(Journal::is_gone)
    }

    /// Ends a second: takes in what was recorded, judges it, and shows it.
    pub(super) async fn second(&mut self) -> Result<View, Gone> {
        let reports = self.fleet.collect().await?;
        let (now, unix) = (clock::now(), clock::unix_now());
        let second = self.absorb(&reports, now);
        self.judge(&second);
        for at in 0..self.loads.len() {
            let standing = Fleet::standing(&reports, self.loads[at].place).flatten();
            self.look_at(at, &second, standing, now);
        }
        self.fleet.keep_indices(self.loads.iter().map(|load| (load.spec.name.as_str(), load.next_index)));
        self.let_go(&reports);
        while let Some(ended) = self.minutes.close(now, unix) {
            self.close(ended);
        }
        if now >= self.hour_ends {
            self.hour_ends = now + HOUR;
            self.ledger.turn_hour();
        }
        Ok(self.view(now, unix))
    }

    /// Takes in what was recorded, between two seconds: towards the end one does not want to wait for a whole one.
    pub(super) async fn look(&mut self) -> Result<(), Gone> {
        let reports = self.fleet.collect().await?;
        reports.iter().for_each(|(_, report)| self.ledger.absorb(&report.delta));
        self.let_go(&reports);
        Ok(())
    }

    /// What became of everything that was planned, load by load.
    pub(super) fn log_sums(&self) {
        for load in self.loads.iter().filter(|load| load.ending != Some(Ending::Replaced)) {
            let Some(totals) = self.ledger.totals(load.account) else { continue };
            let ended = |outcome: &Outcome| (outcome.name(), totals.outcome(*outcome));
            let shed = |reason: &ShedReason| (reason.name(), totals.shed(*reason));
            let counts = Outcome::ALL.iter().map(ended).chain(ShedReason::ALL.iter().map(shed));
            let counts: Vec<_> = counts.filter(|(_, n)| *n > 0).map(|(name, n)| format!("{n} {name}")).collect();
            let (planned, in_flight) = (totals.planned(), totals.in_flight());
            tracing::info!(load = load.spec.name, planned, in_flight, "sums: {}", counts.join(", "));
        }
    }

    /// Writes the last minute, which is cut short, and waits for the disk.
    pub(super) fn finish(&mut self) {
        self.close(self.minutes.cut_short(clock::unix_now()));
        if let Some(journal) = self.journal.take() {
            journal.finish();
        }
    }

    fn absorb(&mut self, reports: &[(usize, Report<Delta>)], now: Instant) -> Second {
        let lasted = now.saturating_duration_since(self.second_ended_at);
        self.second_ended_at = now;
        let mut second = Second { lasted, reading: self.probe.read(now, &self.fleet.threads()), ..Second::default() };
        for (_, report) in reports {
            second.event_loop_delay = second.event_loop_delay.max(report.event_loop_delay);
            for delta in report.delta.loads() {
                let totals = &delta.totals;
                let lag = totals.histogram(Quantity::ScheduleLag).largest().map(Duration::from_secs_f64);
                second.schedule_lag = second.schedule_lag.max(lag);
                second.late += totals.shed(ShedReason::Late);
                second.no_prompt += totals.shed(ShedReason::NoPrompt);
                second.local += totals.outcome(Outcome::Local);
            }
            self.ledger.absorb(&report.delta);
        }
        self.client.event_loop_delay = second.event_loop_delay;
        self.client.process = second.reading.process;
        second
    }

    fn judge(&mut self, second: &Second) {
        let changes = self.client.health.step(second);
        for reason in changes.began.iter() {
            let text = format!("the client is unwell ({}): {}", reason.name(), describe(reason, second));
            self.warn("tainted", None, text);
        }
        for reason in changes.ended.iter() {
            self.note("untainted", None, format!("the client has been well for a minute ({})", reason.name()));
        }
    }

    /// One load's second.
    fn look_at(&mut self, at: usize, second: &Second, standing: Option<Standing>, now: Instant) {
        let load = &mut self.loads[at];
        let rested = standing.map_or(load.rested, |standing| standing.rested);
        let rests = rested.saturating_sub(load.rested) > Duration::from_millis(500);
        load.rested = rested;
        load.next_index = standing.map_or(load.next_index, |standing| standing.next_index);
        load.minute.add(second, &self.client.health, !load.paused && !rests && load.ending.is_none());
        let Some(totals) = self.ledger.totals(load.account) else { return };
        let shed = ShedReason::ALL.map(|reason| totals.shed(reason));
        let more = |reason: ShedReason| shed[reason as usize] > load.shed[reason as usize];
        let held_back = more(ShedReason::InflightCap) || more(ShedReason::Backoff);
        load.shed = shed;
        if held_back || standing.is_some_and(|standing| standing.at_cap) {
            load.not_kept_at = Some(now);
        }
        let mut told = Vec::new();
        for (outcome, before) in Outcome::ALL.into_iter().zip(&mut load.outcomes) {
            let count = totals.outcome(outcome) - std::mem::replace(before, totals.outcome(outcome));
            if !outcome.is_answered() && outcome != Outcome::Canceled {
                told.extend(load.failures.step(now, outcome, count).map(|what| (outcome, what)));
            }
        }
        for (outcome, what) in told {
            self.tell_failure(at, outcome, what);
        }
    }

    fn tell_failure(&mut self, at: usize, outcome: Outcome, told: Told) {
        let load = &self.loads[at];
        let name = load.spec.name.clone();
        let last = self.ledger.requests(load.account).and_then(|requests| {
            requests.failed().into_iter().find(|request| request.outcome == outcome).map(|request| {
                let target = &load.spec.link.target;
                let timeline = as_timeline(request);
                let hint = hint::hint(target, &timeline, self.surroundings).unwrap_or_default();
                let said = request.detail.as_deref().unwrap_or("no details");
                format!("the last, {}: {said}; {hint}", request.request_id)
            })
        });
        let last = last.map_or_else(String::new, |last| format!("; {last}"));
        let outcome = outcome.name();
        match told {
            Told::Began => self.warn("failing", Some(&name), format!("requests fail ({outcome}){last}")),
            Told::Continues(count) => {
                self.warn("failing", Some(&name), format!("{count} more requests failed ({outcome}){last}"));
            }
            Told::Ended(count) => {
                let more = if count > 0 { format!(", after {count} more") } else { String::new() };
                self.note("recovered", Some(&name), format!("no request has failed ({outcome}) for a minute{more}"));
            }
        }
    }

    /// Loads whose last request has ended. At a shutdown they are kept to be shown.
    fn let_go(&mut self, reports: &[(usize, Report<Delta>)]) {
        let mut gone = Vec::new();
        for load in self.loads.iter_mut().filter(|load| load.ending.is_some() && !load.gone) {
            load.gone = Fleet::standing(reports, load.place) == Some(None);
            if load.gone {
                self.fleet.ended(load.place);
                gone.push(load.account);
            }
        }
        self.loads.retain(|load| !load.gone || load.ending == Some(Ending::Shutdown));
        // An account may have several loops, of which all but one end.
        gone.retain(|account| self.loads.iter().all(|load| load.account != *account));
        gone.into_iter().for_each(|account| self.ledger.remove(account));
    }

    fn close(&mut self, ended: Ended) {
        let mut minute = Minute::new();
        for load in self.loads.iter_mut().filter(|load| load.ending != Some(Ending::Replaced)) {
            let health = std::mem::take(&mut load.minute);
            let tainted = ended.is_short || health.is_tainted();
            if let Some(window) = self.ledger.close(load.account, ended.at_unix, health.covered(), tainted) {
                minute.push((load.spec.series(), window));
            }
        }
        if let Some(journal) = &mut self.journal
            && !minute.is_empty()
        {
            journal.save(clock::wall_now(), &minute);
        }
    }

    /// The picture as it is now, with the counts of the last second.
    pub(super) fn view_now(&mut self) -> View {
        self.view(clock::now(), clock::unix_now())
    }

    fn view(&mut self, now: Instant, unix: Duration) -> View {
        let mut snapshot = self.ledger.snapshot(unix);
        let mut loads = Vec::with_capacity(snapshot.loads.len());
        snapshot.loads.retain(|counted| {
            let view = self.load_view(counted.id, &counted.totals, now, unix);
            let there = view.is_some();
            loads.extend(view);
            there
        });
        View {
            taken_at: now,
            snapshot,
            loads,
            phase: self.phase,
            client: self.client,
            reload: self.reload.clone(),
            state: self.journal.as_ref().map(|journal| {
                let minutes = journal.standing();
                StateView { saved: minutes.saved && self.fleet.are_indices_saved(), ..minutes }
            }),
            dropped: self.journal.iter().map(|journal| ("state", journal.dropped())).collect(),
            events: self.events.shown(),
        }
    }

    /// A load that is being replaced under its own account shows as the one that replaces it.
    fn load_view(&self, account: usize, totals: &Totals, now: Instant, unix: Duration) -> Option<LoadView> {
        let owns = |load: &&Active| load.account == account && load.ending != Some(Ending::Replaced);
        let load = self.loads.iter().find(owns)?;
        let target = &load.spec.link.target;
        Some(LoadView {
            name: load.spec.name.clone(),
            target: target.name.clone(),
            model: target.model.clone(),
            pace: load.spec.part().filter(|_| load.ending.is_none()),
            paused: load.paused.then_some(PauseReason::Api),
            failing: load.failures.open(),
            not_kept: load.not_kept_at.is_some_and(|at| now.saturating_duration_since(at) < NOT_KEPT),
            last_success_unix: totals
                .last_success_at
                .map(|at| unix.saturating_sub(now.saturating_duration_since(at)).as_secs_f64()),
            itl_basis: if target.send.continuous_usage_stats { ItlBasis::Token } else { ItlBasis::Chunk },
        })
    }
}

/// What was seen of a reason, for people.
fn describe(reason: TaintReason, second: &Second) -> String {
    let Second { schedule_lag, late, no_prompt, local, event_loop_delay, reading, .. } = second;
    match reason {
        TaintReason::ScheduleLag => {
            format!("a request left {:.1?} after it was planned", schedule_lag.unwrap_or_default())
        }
        TaintReason::Late => format!("{late} requests were too late to be sent"),
        TaintReason::NoPrompt => format!("{no_prompt} requests had no prompt ready"),
        TaintReason::EventLoopDelay => format!("a load thread came {event_loop_delay:.1?} late to its events"),
        TaintReason::CpuShare => {
            format!("a load thread used {:.0} % of its core", reading.cpu_share.unwrap_or(0.0) * 100.0)
        }
        TaintReason::CpuThrottled => {
            format!("the CPU quota of the control group held it back for {:.1?}", reading.throttled.unwrap_or_default())
        }
        TaintReason::Descriptors => {
            let count = |n: Option<u64>| n.map_or_else(|| "an unknown number".to_owned(), |n| n.to_string());
            let process = reading.process;
            format!("{} of {} file descriptors are in use", count(process.open_fds), count(process.max_fds))
        }
        TaintReason::Local => format!("{local} requests failed for want of ports, descriptors or memory"),
    }
}

/// As much of a timeline as a hint looks at.
fn as_timeline(request: &Notable) -> Timeline {
    Timeline {
        arrival: Arrival { index: request.index, planned_at: request.planned_at },
        request_id: request.request_id.to_string(),
        outcome: request.outcome,
        opened: None,
        setup: Duration::ZERO,
        sent_at: request.sent_at,
        headers_at: request.headers_at,
        status: request.status,
        answer: Answer::default(),
        ended_at: request.ended_at,
        resent: false,
        compressed: false,
        retry_after: None,
        detail: request.detail.as_deref().map(str::to_owned),
    }
}
