//! One load as configured: everything that is needed to start it, and what a new configuration changes of it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::Context;
use tokio::time::Instant;

use super::journal::Series;
use crate::config::Environment;
use crate::config::secrets::Secrets;
use crate::config::sections::{ArrivalProcess, Config, Load, Pace, Rate, Target, Workload};
use crate::load::client::tls::{self, TlsConfig};
use crate::load::prompt;
use crate::load::schedule::closed::{self, ClosedLoop};
use crate::load::schedule::dispatch::Dispatch;
use crate::load::schedule::open::OpenLoop;
use crate::load::schedule::plan::{Plan, PlanError, Shard, Spacing};
use crate::load::schedule::{Event, Schedule};
use crate::load::worker::Link;
use crate::load::worker::prepare::Source;

/// A load with all that it refers to.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) load: Load,
    pub(super) workload: Workload,
    /// What is sent, with its data set opened.
    pub(super) prompts: Arc<prompt::Source>,
    pub(super) shard: Shard,
    pub(super) link: Link,
    /// What `ca_file` holds: a new authority under the same name is a new link.
    authorities: Option<Vec<u8>>,
}

/// What has to be done so that a running load is as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Difference {
    /// Nothing, or what can be changed while it runs.
    InPlace {
        /// The way to the target.
        link: bool,
        /// What is sent: another target, or another workload. Its windows begin anew.
        content: bool,
        /// When it is sent.
        pace: bool,
    },
    /// Another kind of loop: it ends, and another begins under the same account.
    Restart,
    /// Other labels: it is another load.
    Another,
}

impl Spec {
    /// Every load of a configuration, with its secrets read.
    ///
    /// # Errors
    /// When a secret or a file that the configuration names cannot be read.
    pub(super) fn all(config: &Config, environment: &Environment) -> anyhow::Result<Vec<Self>> {
        let shard = Shard::new(config.shard.index, config.shard.count)?;
        // Reading the system's authorities takes a while and a megabyte: once for all targets that trust the same.
        let mut trusted: BTreeMap<_, TlsConfig> = BTreeMap::new();
        let mut links = BTreeMap::new();
        for (name, target) in &config.targets {
            let context = || format!("targets.{name} cannot be used");
            let secrets = Secrets::read(target, environment)
                .with_context(|| format!("targets.{name}: its key (api_key_*) or a secret header cannot be read"))?;
            let tls = match trusted.get(&target.ca_file) {
                Some(tls) => Arc::clone(tls),
                None => {
                    let tls = tls::client_config(target.ca_file.as_deref()).with_context(context)?;
                    trusted.insert(&target.ca_file, Arc::clone(&tls));
                    tls
                }
            };
            let link = Link { target: Arc::new(target.clone()), secrets, tls };
            link.client().with_context(context)?;
            let authorities = target.ca_file.as_ref().map(fs::read).transpose().with_context(context)?;
            links.insert(name, (link, authorities));
        }
        // A data set is indexed once for all loads that send it alike.
        let mut opened = BTreeMap::new();
        let loads = config.loads.iter().map(|(name, load)| {
            let context = || format!("loads.{name} names what is not there");
            let (link, authorities) = links.get(&load.target).with_context(context)?.clone();
            let workload = config.workloads.get(&load.workload).with_context(context)?.clone();
            let prompts = match opened.entry((&load.workload, link.target.api.name())) {
                Entry::Occupied(there) => Arc::clone(there.get()),
                Entry::Vacant(place) => {
                    let prompts = prompt::Source::of(&load.workload, &workload, link.target.api)?;
                    Arc::clone(place.insert(Arc::new(prompts)))
                }
            };
            Ok(Self { name: name.clone(), load: load.clone(), workload, prompts, shard, link, authorities })
        });
        loads.collect()
    }

    /// What its series are told apart by: load, target, model.
    pub(super) fn labels(&self) -> (&str, &str, &str) {
        let Target { name, model, .. } = &*self.link.target;
        (&self.name, name, model)
    }

    /// What a minute of it is saved under.
    pub(super) fn series(&self) -> Series {
        let (workload, hash) = (self.workload.described(), self.prompts.hash());
        let Target { name, model, base_url, api, .. } = &*self.link.target;
        let load = &self.name;
        Series(format!(
            "load={load}\ntarget={name}\nmodel={model}\nbase_url={base_url}\napi={api}\n{workload}\n\
             workload={hash}"
        ))
    }

    /// This shard's part of the pace; `None` when it has no part of a concurrency.
    pub(super) fn part(&self) -> Option<Pace> {
        match self.load.pace {
            Pace::Rate(rate) => {
                let max_in_flight = self.max_in_flight(&rate);
                let per_second = rate.per_second / f64::from(self.shard.count());
                Some(Pace::Rate(Rate { per_second, max_in_flight, ..rate }))
            }
            Pace::Concurrency(workers) => NonZeroU32::new(self.shard.part_of(workers.get())).map(Pace::Concurrency),
        }
    }

    /// Connections that it may have open at the same time.
    pub(super) fn connections(&self) -> u32 {
        match self.part() {
            Some(Pace::Rate(rate)) => rate.max_in_flight.get(),
            Some(Pace::Concurrency(workers)) => workers.get(),
            None => 0,
        }
    }

    /// When its requests leave; not begun. Indices are from `first_index` on.
    ///
    /// # Errors
    /// When there is no such plan, which the check of the configuration should have found.
    pub(super) fn schedule(&self, first_index: u64, now: Instant) -> Result<Schedule, PlanError> {
        let warmup = u64::from(self.shard.part_of(self.load.warmup_requests));
        Ok(match self.load.pace {
            Pace::Rate(rate) => {
                let mut open = OpenLoop::new(&self.plan(&rate)?, now, first_index);
                open.warm_up(warmup);
                Schedule::Open(Box::new(Dispatch::new(open, self.max_in_flight(&rate), rate.late_cap)))
            }
            Pace::Concurrency(workers) => Schedule::Closed(Box::new(ClosedLoop::new(closed::Settings {
                concurrency: workers.get(),
                shard: self.shard,
                seed: self.seed(),
                first_index,
                warmup,
            }))),
        })
    }

    /// Connections that are opened before it begins: an open loop has no first wave.
    pub(super) fn connections_ahead(&self) -> u32 {
        match self.part() {
            Some(Pace::Concurrency(workers)) => workers.get(),
            Some(Pace::Rate(_)) | None => 0,
        }
    }

    /// Its prompts, none of which has an index below `from`.
    pub(super) fn source(&self, first_index: u64, from: u64) -> Source {
        Source {
            load: self.name.clone(),
            target: Arc::clone(&self.link.target),
            prompts: Arc::clone(&self.prompts),
            first_index,
            from,
            shard: self.shard,
            per_second: match self.part() {
                Some(Pace::Rate(rate)) => rate.per_second,
                // Each worker may need its next one at once.
                Some(Pace::Concurrency(workers)) => f64::from(workers.get()),
                None => 0.0,
            },
        }
    }

    /// What has to be done to make `self` into `new`.
    pub(super) fn difference(&self, new: &Self) -> Difference {
        let (ours, theirs) = (&*self.link.target, &*new.link.target);
        if self.labels() != new.labels() {
            return Difference::Another;
        }
        if matches!(self.load.pace, Pace::Rate(_)) != matches!(new.load.pace, Pace::Rate(_)) {
            return Difference::Restart;
        }
        Difference::InPlace {
            link: ours != theirs || self.link.secrets != new.link.secrets || self.authorities != new.authorities,
            content: ours != theirs || self.workload != new.workload || self.prompts.hash() != new.prompts.hash(),
            pace: self.load.pace != new.load.pace || self.seed() != new.seed(),
        }
    }

    /// What its schedule has to be told to keep another pace.
    ///
    /// # Errors
    /// When there is no such plan.
    pub(super) fn pace_events(&self) -> Result<Vec<Event>, PlanError> {
        Ok(match self.load.pace {
            Pace::Rate(rate) => vec![
                Event::Cap { max_in_flight: self.max_in_flight(&rate), late_cap: rate.late_cap },
                Event::Replan(self.plan(&rate)?),
            ],
            Pace::Concurrency(workers) => vec![Event::Concurrency { concurrency: workers.get() }],
        })
    }

    fn plan(&self, rate: &Rate) -> Result<Plan, PlanError> {
        let spacing = match rate.arrival {
            ArrivalProcess::Constant => Spacing::Constant,
            ArrivalProcess::Poisson => Spacing::Poisson,
            ArrivalProcess::Gamma { burstiness } => Spacing::Gamma { burstiness },
        };
        Plan::new(self.seed(), rate.per_second, spacing, self.shard)
    }

    /// At least one: a shard that may send nothing would shed all of its arrivals.
    fn max_in_flight(&self, rate: &Rate) -> NonZeroU32 {
        NonZeroU32::new(self.shard.part_of(rate.max_in_flight.get())).unwrap_or(NonZeroU32::MIN)
    }

    /// Two loads of one workload do not send at the same instants: the name is a part of the seed (FNV-1a).
    fn seed(&self) -> u64 {
        self.name.bytes().fold(self.workload.seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, LoadRequest};

    const BASE: &str = "targets.s.base_url=http://127.0.0.1:1
targets.s.model=m
targets.t.base_url=http://127.0.0.1:1
targets.t.model=m
workloads.w.output_tokens=5
workloads.v.output_tokens=6
loads.a.target=s
loads.a.workload=w
loads.a.rate=9";

    /// The load `a`, with some settings changed; one that is only a key is left out.
    fn spec(changes: &[&str]) -> Spec {
        let mut settings: BTreeMap<&str, &str> = BASE.lines().map(|line| line.split_once('=').unwrap()).collect();
        for change in changes {
            match change.split_once('=') {
                Some((key, value)) => drop(settings.insert(key, value)),
                None => drop(settings.remove(change)),
            }
        }
        let overrides = settings.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let loaded = config::load(&LoadRequest { files: Vec::new(), overrides }, &Environment::default()).unwrap();
        Spec::all(&loaded.config, &Environment::default()).unwrap().remove(0)
    }

    fn in_place(link: bool, content: bool, pace: bool) -> Difference {
        Difference::InPlace { link, content, pace }
    }

    #[test]
    fn only_what_changed_is_changed() {
        for (changes, expected) in [
            (&[][..], in_place(false, false, false)),
            (&["loads.a.rate=3"], in_place(false, false, true)),
            (&["loads.a.arrival=constant"], in_place(false, false, true)),
            (&["loads.a.max_in_flight=9"], in_place(false, false, true)),
            (&["loads.a.grace=1s"], in_place(false, false, false)),
            (&["workloads.v.output_tokens=7"], in_place(false, false, false)),
            (&["loads.a.workload=v"], in_place(false, true, false)),
            // The plan of the arrivals is drawn from the workload's seed.
            (&["workloads.w.seed=7"], in_place(false, true, true)),
            (&["targets.s.timeouts.total=99s"], in_place(true, true, false)),
            (&["targets.s.headers.x-a=b"], in_place(true, true, false)),
            (&["loads.a.rate", "loads.a.concurrency=4"], Difference::Restart),
            (&["loads.a.target=t"], Difference::Another),
            (&["targets.s.model=n"], Difference::Another),
        ] {
            assert_eq!(spec(&[]).difference(&spec(changes)), expected, "{changes:?}");
        }
    }

    #[test]
    fn a_key_that_has_vanished_since_the_check_names_its_setting_and_its_file() {
        let key = std::env::temp_dir().join(format!("steadyload-key-{}", std::process::id()));
        fs::write(&key, "sk-1").unwrap();
        let settings = BASE.lines().map(str::to_owned).chain([format!("targets.s.api_key_file={}", key.display())]);
        let overrides = settings.map(|line| line.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())).unwrap());
        let request = LoadRequest { files: Vec::new(), overrides: overrides.collect() };
        let loaded = config::load(&request, &Environment::default()).unwrap();
        fs::remove_file(&key).unwrap();
        let error = format!("{:#}", Spec::all(&loaded.config, &Environment::default()).unwrap_err());
        for part in ["targets.s", "api_key_", &key.display().to_string()] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn what_is_measured_against_the_same_is_saved_under_the_same_name() {
        let series = |changes: &[&str]| spec(changes).series();
        assert_eq!(series(&[]), series(&["loads.a.rate=3", "loads.a.grace=1s", "workloads.v.output_tokens=7"]));
        for change in ["targets.s.base_url=http://127.0.0.1:2", "targets.s.model=n", "workloads.w.input_tokens=7"] {
            assert_ne!(series(&[]), series(&[change]), "{change}");
        }
    }

    #[test]
    fn the_parts_of_the_shards_are_the_whole() {
        let part = |index: u32, change: &str| {
            let (index, rate) = (format!("shard.index={index}"), "loads.a.rate");
            let closed = change.contains("concurrency");
            let changes = if closed {
                vec!["shard.count=3", &index, change, rate]
            } else {
                vec!["shard.count=3", &index, change]
            };
            spec(&changes).part()
        };
        let workers = |index| match part(index, "loads.a.concurrency=2") {
            Some(Pace::Concurrency(workers)) => workers.get(),
            None => 0,
            Some(Pace::Rate(_)) => unreachable!("it is a closed loop"),
        };
        assert_eq!([0, 1, 2].map(workers), [1, 1, 0]);
        let rates = [0, 1, 2].map(|index| match part(index, "loads.a.max_in_flight=2") {
            Some(Pace::Rate(rate)) => (rate.per_second, rate.max_in_flight.get()),
            Some(Pace::Concurrency(_)) | None => unreachable!("it is an open loop"),
        });
        assert_eq!(rates, [(3.0, 1), (3.0, 1), (3.0, 1)], "a shard that may send nothing would shed all");
    }

    #[test]
    fn loads_of_one_workload_leave_at_instants_of_their_own() {
        let first = spec(&[]);
        let second = Spec { name: "b".to_owned(), ..first.clone() };
        assert_ne!(first.plan(&Rate::of(9.0)).unwrap(), second.plan(&Rate::of(9.0)).unwrap());
    }
}
