//! What a simulated gateway pretends to be, as the command line says it.

use anyhow::{Context, anyhow};

use crate::sim::fault::rule::FaultRule;
use crate::sim::settings::Settings;

/// What it pretends to be, and what is wrong with it.
#[derive(Debug, clap::Args)]
pub(super) struct Simulated {
    /// What the gateway pretends to be, such as ttft=100ms or gap=lognormal:20ms,0.3; `gateway --list` shows all.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// What is wrong with it, such as stall:after=3 or status:code=503,share=0.01; `gateway --list` shows all.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<String>,
}

impl Simulated {
    /// The settings of the command, changed as the flags say.
    pub(super) fn settings(&self, mut settings: Settings) -> anyhow::Result<Settings> {
        // The one place for whole sets of settings that a flag names: before single ones, which change them.
        for text in &self.settings {
            let (key, value) =
                text.split_once('=').ok_or_else(|| anyhow!("--set {text}: wants KEY=VALUE, such as ttft=100ms"))?;
            settings.set(key.trim(), value.trim()).with_context(|| format!("--set {text}"))?;
        }
        for text in &self.faults {
            settings.faults.push(FaultRule::parse(text).with_context(|| format!("--fault {text}"))?);
        }
        Ok(settings)
    }
}
