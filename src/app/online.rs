//! `check --online`: one streamed request per target, and everything that it shows about the way to the model.
//!
//! The request is a real one, through the client that the load uses, so what holds here holds for the load. It ends with
//! the finding that people come for: what to change.

use std::num::NonZeroU32;
use std::path::Path;

use crate::clock;
use crate::config::Environment;
use crate::config::secrets::Secrets;
use crate::config::sections::{Config, Target, Workload};
use crate::domain::arrival::Arrival;
use crate::domain::outcome::Outcome;
use crate::domain::prompt::Prompt;
use crate::domain::timeline::Timeline;
use crate::load::client::dial::NetDialer;
use crate::load::client::hint::{self, Surroundings};
use crate::load::client::tls::{self, TlsConfig};
use crate::load::client::{Client, Prepared};
use crate::load::prompt::{Part, Source, Stream};
use crate::load::schedule::plan::Shard;
use crate::watch::fetch::Fetcher;

mod report;

pub use report::Report;

/// What is asked when no load says what it would send.
static DEFAULT_WORKLOAD: Workload = Workload::random(NonZeroU32::new(32).unwrap(), NonZeroU32::new(32).unwrap(), 1000);

/// Checks one target.
///
/// # Errors
/// When the check itself cannot be made: a secret or a file that the configuration names cannot be read. A gateway that
/// fails is no error but a [`Report`].
pub async fn check(config: &Config, target: &Target, environment: &Environment) -> anyhow::Result<Report> {
    let secrets = Secrets::read(target, environment)?;
    let tls = tls::client_config(target.ca_file.as_deref())?;
    let prompt = prompt_of(config, target)?;

    let models = Fetcher::new(&secrets, (*tls).clone(), target.timeouts.connect)?.get(&target.models_url()).await;
    let timeline = ask(target, &secrets, &tls, &prompt).await?;
    let not_there = timeline.outcome == Outcome::Http404;
    let hint = if not_there { found_elsewhere(target, &secrets, &tls, &prompt).await? } else { None };
    let surroundings = Surroundings { in_container: in_container() };
    let hint = hint.or_else(|| hint::hint(target, &timeline, surroundings));
    Ok(Report { target: target.clone(), secrets, asked: prompt.output_tokens, models, timeline, hint })
}

/// What the first load on the target would send.
fn prompt_of(config: &Config, target: &Target) -> anyhow::Result<Prompt> {
    let found = config.loads.iter().find(|(_, load)| load.target == target.name);
    let workload = found.and_then(|(_, load)| config.workloads.get_key_value(&load.workload));
    let default = (&"default".to_owned(), &DEFAULT_WORKLOAD);
    let (name, workload) = workload.unwrap_or(default);
    let source = Source::of(name, workload, target.api)?;
    // A check warms up: what the load sends first is not in the prefix cache for it.
    let load = found.map_or("check", |(name, _)| name).to_owned();
    Ok(source.prompt(&Stream { load, shard: Shard::WHOLE, part: Part::WarmUp }, 0)?)
}

/// Sends one request.
async fn ask(target: &Target, secrets: &Secrets, tls: &TlsConfig, prompt: &Prompt) -> anyhow::Result<Timeline> {
    let dialer = NetDialer::new(&target.request_url(), tls)?;
    let client = Client::new(target, secrets.clone(), Box::new(dialer))?;
    let request = Prepared::new(target, prompt, "check", 0);
    let arrival = Arrival { index: 0, planned_at: clock::now() };
    Ok(client.send(arrival, &request, std::future::pending()).await)
}

/// After a 404: whether one of the places that are commonly meant answers, and the setting that leads there.
async fn found_elsewhere(
    target: &Target,
    secrets: &Secrets,
    tls: &TlsConfig,
    prompt: &Prompt,
) -> anyhow::Result<Option<String>> {
    let name = &target.name;
    // What the common Python SDK appends to its base URL has no /v1.
    let without_version = target
        .as_sdk_target()
        .map(|(elsewhere, endpoint)| (elsewhere, format!("targets.{name}.endpoint = {endpoint:?}")));
    let mut root = target.base_url.clone();
    root.set_path("");
    let without_prefix = (!target.base_url.path().trim_end_matches('/').is_empty()).then(|| {
        let setting = format!("targets.{name}.base_url = \"{}\"", root.as_str().trim_end_matches('/'));
        (Target { base_url: root, ..target.clone() }, setting)
    });
    for (elsewhere, setting) in without_version.into_iter().chain(without_prefix) {
        if elsewhere.request_url() != target.request_url()
            && ask(&elsewhere, secrets, tls, prompt).await?.outcome.is_answered()
        {
            return Ok(Some(format!("{} answers: set {setting}", elsewhere.request_url())));
        }
    }
    Ok(None)
}

/// Whether this process runs in a container: what Docker, Podman and Kubernetes leave behind.
pub(super) fn in_container() -> bool {
    ["/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io"].iter().any(|path| Path::new(path).exists())
}
