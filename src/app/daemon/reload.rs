//! A new configuration: all of it is checked before any of it is taken over.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow};

use super::spec::{Difference, Spec};
use super::state::Ending;
use super::{Daemon, admin_token, check_connections, counted};
use crate::clock;
use crate::config;
use crate::config::sections::Config;
use crate::export::view::Refusal;
use crate::load::schedule::Event;

/// A configuration that was read again, with everything that it names.
struct ReadAgain {
    config: Config,
    specs: Vec<Spec>,
    /// What differs in it and is only taken at the start.
    wants_restart: Vec<&'static str>,
}

/// What a reload did, for the log and the answer.
#[derive(Debug, Default)]
struct Done(Vec<String>);

impl Daemon {
    /// Reads the configuration again and takes it over, or keeps the old one and says why.
    pub(super) async fn reload(&mut self) -> Result<String, Refusal> {
        self.supervisor.reloading();
        let result = match self.read_again() {
            Ok(new) => self.take_over(new).await,
            Err(error) => Err(error),
        };
        self.supervisor.ready(&counted(self.state.loads.len()));
        match result {
            Ok(done) => {
                self.state.reload.successful = true;
                self.state.reload.succeeded_unix = clock::unix_now();
                self.state.reload.failure = None;
                self.state.note("reloaded", None, done.clone());
                self.show_now();
                Ok(done)
            }
            Err(error) => {
                let report = format!("{error:#}");
                tracing::error!("the configuration was not reloaded; the old one stays in force:\n{report}");
                self.state.events.note(clock::unix_now(), "reload_failed", None, report.clone());
                self.state.reload.successful = false;
                self.state.reload.failure = Some(report.clone());
                self.show_now();
                Err(Refusal::Configuration(report))
            }
        }
    }

    /// The configuration as it is now, with everything it names read.
    fn read_again(&self) -> anyhow::Result<ReadAgain> {
        let loaded = config::load(&self.settings.request, &self.settings.environment)
            .map_err(|faults| anyhow!("{}", faults.to_string().trim_end()))?;
        for warning in &loaded.warnings {
            tracing::warn!("{}", warning.to_string().trim_end());
        }
        let mut config = loaded.config;
        let wants_restart = config::restart_keys(&self.config, &config);
        // Named above, and not taken: the loads stay those of the shard that this daemon began as.
        config.shard = self.config.shard;
        let specs = Spec::all(&config, &self.settings.environment)?;
        check_connections(&specs)?;
        Ok(ReadAgain { config, specs, wants_restart })
    }

    async fn take_over(&mut self, new: ReadAgain) -> anyhow::Result<String> {
        let ReadAgain { config, specs, wants_restart } = new;
        self.admin.send_replace(admin_token(&config, &self.settings.environment)?);
        (self.settings.set_log_level)(config.log.level);
        let done = self.take_over_loads(specs).await?;
        let mut text = done.to_string();
        if !wants_restart.is_empty() {
            text.push_str(&format!("; a restart is needed for {}", wants_restart.join(", ")));
        }
        self.state.reload.wants_restart = wants_restart.into_iter().map(str::to_owned).collect();
        self.config.targets = config.targets;
        self.config.workloads = config.workloads;
        self.config.loads = config.loads;
        Ok(text)
    }

    async fn take_over_loads(&mut self, specs: Vec<Spec>) -> anyhow::Result<Done> {
        let mut done = Done::default();
        let mut new: BTreeMap<String, Spec> = specs.into_iter().map(|spec| (spec.name.clone(), spec)).collect();
        let running: Vec<String> =
            self.state.loads.iter().filter(|load| load.ending.is_none()).map(|load| load.spec.name.clone()).collect();
        for name in running {
            let context = || format!("loads.{name} cannot be changed");
            match new.remove(&name) {
                None => {
                    self.state.stop(&name, Ending::Removed).await?;
                    done.0.push(format!("{name} ends"));
                }
                Some(spec) => done.0.extend(self.become_like(&name, spec).await.with_context(context)?),
            }
        }
        for (name, spec) in new {
            self.state.start(spec, None, false).await.with_context(|| format!("loads.{name} cannot be started"))?;
            done.0.push(format!("{name} begins"));
        }
        Ok(done)
    }

    /// Makes a running load what `spec` says; only what changed restarts.
    async fn become_like(&mut self, name: &str, spec: Spec) -> anyhow::Result<Option<String>> {
        let Some(load) = self.state.running(name) else { return Ok(None) };
        let (place, account, next_index, paused) = (load.place, load.account, load.next_index, load.paused);
        let difference = load.spec.difference(&spec);
        let unchanged = difference == Difference::InPlace { link: false, content: false, pace: false }
            && load.spec.load == spec.load;
        match difference {
            _ if unchanged => return Ok(None),
            Difference::InPlace { link, content, pace } => {
                self.state.fleet.change(place, &spec, link, content.then_some(next_index)).await?;
                if pace {
                    for event in spec.pace_events()? {
                        self.state.fleet.tell(place, event).await?;
                    }
                }
                if content {
                    let count = u64::from(spec.shard.part_of(spec.load.warmup_requests));
                    self.state.fleet.tell(place, Event::WarmUp { count }).await?;
                    self.state.reset_windows(account);
                }
                if let Some(load) = self.state.running(name) {
                    load.spec = spec;
                }
            }
            Difference::Restart | Difference::Another => {
                let replaced = difference == Difference::Restart;
                let ending = if replaced { Ending::Replaced } else { Ending::Removed };
                self.state.stop(name, ending).await?;
                self.state.start(spec, replaced.then_some(account), paused).await?;
            }
        }
        let how = match difference {
            Difference::InPlace { content: true, .. } => "changes what it sends",
            Difference::InPlace { .. } => "changes in place",
            Difference::Restart => "becomes another kind of loop",
            Difference::Another => "becomes another load",
        };
        Ok(Some(format!("{name} {how}")))
    }
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.0 {
            [] => f.write_str("the configuration was reloaded: no load has changed"),
            changes => write!(f, "the configuration was reloaded: {}", changes.join(", ")),
        }
    }
}
