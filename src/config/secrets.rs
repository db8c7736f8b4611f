//! The secrets of one target, read from where its section says.

use crate::config::credential::CredentialError;
use crate::config::environment::Environment;
use crate::config::sections::{HeaderSource, Target};
use crate::domain::secret::Secret;

/// What a client has to know and nobody may see.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    /// The key for `Authorization: Bearer`.
    pub key: Option<Secret>,
    /// Name and value of every extra header. Those written in the file are no secrets, but nothing is lost by treating
    /// them alike.
    pub headers: Vec<(String, Secret)>,
}

impl Secrets {
    /// Reads every secret that `target` names.
    ///
    /// # Errors
    /// When one is absent, empty, or unreadable.
    pub fn read(target: &Target, environment: &Environment) -> Result<Self, CredentialError> {
        let key = target.api_key.as_ref().map(|source| source.read(environment)).transpose()?;
        let header = |(name, source): (&String, &HeaderSource)| {
            let value = match source {
                HeaderSource::Text(text) => Secret::new(text),
                HeaderSource::Secret(source) => source.read(environment)?,
            };
            Ok((name.clone(), value))
        };
        Ok(Self { key, headers: target.headers.iter().map(header).collect::<Result<_, _>>()? })
    }
}
