//! The secrets of one target, read from where its section says.

use crate::config::credential::CredentialError;
use crate::config::environment::Environment;
use crate::config::sections::{HeaderSource, Target};
use crate::domain::secret::{Secret, redact};

/// What a client has to know and nobody may see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The key for `Authorization: Bearer`.
    pub key: Option<Secret>,
    /// Every extra header.
    pub headers: Vec<Header>,
}

/// One extra header with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value. One that is written in the file is no secret, but nothing is lost by keeping it like one.
    pub value: Secret,
    /// The value is a secret: it must not appear in what is shown.
    pub hidden: bool,
}

impl Secrets {
    /// Reads every secret that `target` names.
    ///
    /// # Errors
    /// When one is absent, empty, or unreadable.
    pub fn read(target: &Target, environment: &Environment) -> Result<Self, CredentialError> {
        let key = target.api_key.as_ref().map(|source| source.read(environment)).transpose()?;
        let header = |(name, source): (&String, &HeaderSource)| {
            let (value, hidden) = match source {
                HeaderSource::Text(text) => (Secret::new(text), false),
                HeaderSource::Secret(source) => (source.read(environment)?, true),
            };
            Ok(Header { name: name.clone(), value, hidden })
        };
        Ok(Self { key, headers: target.headers.iter().map(header).collect::<Result<_, _>>()? })
    }

    /// Takes every secret out of a text that may hold what a server sent.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let hidden = self.headers.iter().filter(|header| header.hidden).map(|header| &header.value);
        redact(hidden.chain(&self.key), text)
    }
}

/// The value of `Authorization` for a key. People also keep the whole header where the key should be; it is taken as meant.
#[must_use]
pub fn bearer(key: &Secret) -> String {
    let key = key.expose();
    let scheme = key.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "));
    if scheme { key.to_owned() } else { format!("Bearer {key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_brings_its_scheme_is_not_given_a_second_one() {
        for (key, expected) in [("sk-1", "Bearer sk-1"), ("Bearer sk-1", "Bearer sk-1"), ("bearer sk-1", "bearer sk-1")]
        {
            assert_eq!(bearer(&Secret::new(key)), expected);
        }
    }
}
