//! The demo's folder: an ordinary configuration for an ordinary daemon, and the secrets that it names.
//!
//! Its name has a random end, so that two demos, or one after a crash, never meet; it is made, never taken over, and only its owner
//! may look inside.

use std::env;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{GRACE, LOAD, Places, Plan, TARGET};
use crate::config::sections::Pace;
use crate::domain::hex::hex;

/// How the folder's name begins.
const PREFIX: &str = "steadyload-demo-";

const CONFIGURATION: &str = "steadyload.toml";
const TOKEN: &str = "admin-token";
const GATEWAY_KEY: &str = "gateway-key";

/// Exists until it is dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes it.
    pub(super) fn create() -> io::Result<Self> {
        let path = env::temp_dir().join(format!("{PREFIX}{}", random::<4>()?));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Writes everything that the daemon reads.
    pub(super) fn furnish(&self, plan: &Plan, daemon: SocketAddr, gateway: SocketAddr) -> io::Result<Places> {
        let [configuration, token] = [CONFIGURATION, TOKEN].map(|name| self.0.join(name));
        write_secret(&token, &random::<16>()?)?;
        if let Some(key) = &plan.gateway.api_key {
            write_secret(&self.0.join(GATEWAY_KEY), key.expose())?;
        }
        let places = Places { daemon, gateway, configuration, token };
        fs::write(&places.configuration, text(plan, &places))?;
        Ok(places)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, "the demo's folder {} could not be removed", self.0.display());
        }
    }
}

/// The configuration. Paths in it are seen from its own folder.
fn text(plan: &Plan, places: &Places) -> String {
    let Places { daemon, gateway, .. } = places;
    let (prefix, model) = (&plan.gateway.prefix, quoted(&plan.gateway.model));
    let key =
        if plan.gateway.api_key.is_some() { format!("api_key_file = \"{GATEWAY_KEY}\"\n") } else { String::new() };
    let pace = match plan.pace {
        Pace::Rate(rate) => format!("rate = {}", rate.per_second),
        Pace::Concurrency(workers) => format!("concurrency = {workers}"),
    };
    let (pid, grace) = (std::process::id(), Duration::as_secs(&GRACE));
    format!(
        "# The configuration of a running `steadyload demo`; it is gone when the demo ends.\n\
         # Change the load, the workload or the target, and have it read again: kill -HUP {pid}\n\
         \n\
         [targets.{TARGET}]\nbase_url = \"http://{gateway}{prefix}\"\nmodel = {model}\n{key}\n\
         [workloads.chat]\ninput_tokens = 256\noutput_tokens = 100\n\n\
         [loads.{LOAD}]\ntarget = \"{TARGET}\"\nworkload = \"chat\"\n{pace}\ngrace = \"{grace}s\"\n\n\
         [server]\nlisten = \"{daemon}\"\nadmin_token_file = \"{TOKEN}\"\n\n\
         [state]\ndir = \"state\"\n\n\
         [log]\nlevel = \"warn\"\n"
    )
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                // Writing into a string does not fail.
                write!(quoted, "\\u{:04X}", u32::from(c)).ok();
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// For the owner only.
fn write_secret(path: &Path, secret: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(secret.as_bytes())
}

/// `N` bytes from the system, in hexadecimal.
fn random<const N: usize>() -> io::Result<String> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hex(&bytes))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::sections::Config;
    use crate::config::{self, Environment, LoadRequest};
    use crate::domain::secret::Secret;
    use crate::sim::settings::Settings;

    fn loaded(folder: &Folder, gateway: Settings) -> Config {
        let pace = Pace::Concurrency(NonZeroU32::new(7).unwrap());
        let plan = Plan { pace, length: None, every: Duration::from_secs(5), gateway };
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let places = folder.furnish(&plan, at(19_877), at(19_878)).unwrap();
        let request = LoadRequest { files: vec![places.configuration], overrides: Vec::new() };
        config::load(&request, &Environment::default()).unwrap().config
    }

    #[test]
    fn the_configuration_is_one_that_is_accepted_whatever_the_gateway_pretends_to_be() {
        let folder = Folder::create().unwrap();
        let gateway = Settings {
            model: "a \"b\" \\ é\n".to_owned(),
            prefix: "/api".to_owned(),
            api_key: Some(Secret::new("sk-hidden")),
            ..Settings::default()
        };
        let config = loaded(&folder, gateway);
        let target = &config.targets[TARGET];
        assert_eq!((target.base_url.as_str(), target.model.as_str()), ("http://127.0.0.1:19878/api", "a \"b\" \\ é\n"));
        assert!(matches!(config.loads[LOAD].pace, Pace::Concurrency(workers) if workers.get() == 7));
        assert_eq!(config.loads[LOAD].grace, GRACE);
        assert_eq!(config.server.listen.port(), 19_877);
        assert_eq!(config.state.dir, Some(folder.0.join("state")));
    }

    #[test]
    fn secrets_are_for_their_owner_and_all_is_gone_at_the_end() {
        let folder = Folder::create().unwrap();
        let config = loaded(&folder, Settings { api_key: Some(Secret::new("sk-hidden")), ..Settings::default() });
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.0), 0o700);
        assert_eq!([TOKEN, GATEWAY_KEY].map(|name| mode(&folder.0.join(name))), [0o600; 2]);
        let token = config.server.admin_token.unwrap().read(&Environment::default()).unwrap();
        assert_eq!(token.expose().len(), 32);
        let other = Folder::create().unwrap();
        loaded(&other, Settings::default());
        assert_ne!(fs::read(other.0.join(TOKEN)).unwrap(), token.expose().as_bytes());
        let path = folder.0.clone();
        drop(folder);
        assert!(!path.exists() && path.file_name().unwrap().to_str().unwrap().starts_with(PREFIX));
    }
}
