//! `check --online`: one streamed request per target, and everything that it shows about the way to the model.
//!
//! The request is a real one, through the client that the load uses, so what holds here holds for the load. It ends with
//! the finding that people come for: what to change.

use std::num::NonZeroU32;
use std::path::Path;

use url::Url;

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
use crate::load::prompt;
use crate::watch::fetch::Fetcher;

mod report;

pub use report::Report;

/// What is asked when no load says what it would send.
const DEFAULT_WORKLOAD: Workload =
    Workload { input_tokens: NonZeroU32::new(32).unwrap(), output_tokens: NonZeroU32::new(32).unwrap(), seed: 1000 };

/// Checks one target.
///
/// # Errors
/// When the check itself cannot be made: a secret or a file that the configuration names cannot be read. A gateway that
/// fails is no error but a [`Report`].
pub async fn check(config: &Config, target: &Target, environment: &Environment) -> anyhow::Result<Report> {
    let secrets = Secrets::read(target, environment)?;
    let tls = tls::client_config(target.ca_file.as_deref())?;
    let workload = workload_of(config, target);
    let prompt = prompt::words(workload, 0);

    let models = Fetcher::new(&secrets, (*tls).clone())?.get(&target.models_url()).await;
    let timeline = ask(target, &secrets, &tls, &prompt).await?;
    let sdk =
        if timeline.outcome == Outcome::Http404 { sdk_answers(target, &secrets, &tls, &prompt).await? } else { None };
    let hint = sdk.map(|(url, endpoint)| {
        format!("{url} answers, without /v1: set targets.{}.endpoint = {endpoint:?}", target.name)
    });
    let surroundings = Surroundings { in_container: in_container() };
    let hint = hint.or_else(|| hint::hint(target, &timeline, surroundings));
    Ok(Report { target: target.clone(), asked: prompt.output_tokens, models, timeline, hint })
}

/// What the first load on the target would send.
fn workload_of<'a>(config: &'a Config, target: &Target) -> &'a Workload {
    let load = config.loads.values().find(|load| load.target == target.name);
    load.and_then(|load| config.workloads.get(&load.workload)).unwrap_or(&DEFAULT_WORKLOAD)
}

/// Sends one request.
async fn ask(target: &Target, secrets: &Secrets, tls: &TlsConfig, prompt: &Prompt) -> anyhow::Result<Timeline> {
    let dialer = NetDialer::new(&target.request_url(), tls)?;
    let client = Client::new(target, secrets.clone(), Box::new(dialer))?;
    let request = Prepared::new(target, prompt, "check", 0);
    let arrival = Arrival { index: 0, planned_at: clock::now() };
    Ok(client.send(arrival, &request, std::future::pending()).await)
}

/// After a 404: whether the path that the common Python SDK would use answers.
async fn sdk_answers(
    target: &Target,
    secrets: &Secrets,
    tls: &TlsConfig,
    prompt: &Prompt,
) -> anyhow::Result<Option<(Url, &'static str)>> {
    let Some((url, endpoint)) = target.sdk_url() else { return Ok(None) };
    let elsewhere = Target { endpoint: Some(endpoint.to_owned()), ..target.clone() };
    let timeline = ask(&elsewhere, secrets, tls, prompt).await?;
    Ok(timeline.outcome.is_answered().then_some((url, endpoint)))
}

/// Whether this process runs in a container: what Docker, Podman and Kubernetes leave behind.
fn in_container() -> bool {
    ["/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io"].iter().any(|path| Path::new(path).exists())
}
