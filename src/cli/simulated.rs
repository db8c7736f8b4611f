//! What a simulated gateway pretends to be, as the command line says it.

use anyhow::{Context, anyhow};

use crate::sim::fault::rule::FaultRule;
use crate::sim::settings::Settings;

/// The preset without an engine.
const NONE: &str = "none";

/// What it pretends to be, and what is wrong with it.
#[derive(Debug, clap::Args)]
pub(super) struct Simulated {
    /// The engine behind the gateway: answers take as long as this one would take, with batches, queue, KV cache and prefix
    /// cache. With none, which is what `gateway` has, times are drawn (ttft, gap); the command gateway lists all.
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// What the gateway pretends to be, such as ttft=100ms or, with a preset, max_running_requests=8; the command gateway lists all.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// What is wrong with it, such as stall:at=3 or status:code=503,share=0.01; the command gateway lists all.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<String>,
}

impl Simulated {
    /// What the flags make of it; `preset` where none is named.
    pub(super) fn settings(&self, preset: Option<&str>) -> anyhow::Result<Settings> {
        let mut settings = Settings::default();
        if let Some(preset) = self.preset.as_deref().or(preset).filter(|name| *name != NONE) {
            settings.use_preset(preset).with_context(|| format!("--preset {preset}"))?;
        }
        for text in &self.settings {
            let (key, value) =
                text.split_once('=').ok_or_else(|| anyhow!("--set {text}: wants KEY=VALUE, such as ttft=100ms"))?;
            settings.set(key.trim(), value.trim()).with_context(|| format!("--set {text}"))?;
        }
        for text in &self.faults {
            settings.faults.push(FaultRule::parse(text).with_context(|| format!("--fault {text}"))?);
        }
        settings.check().context("these settings do not go together (--set)")?;
        Ok(settings)
    }
}
