//! Reading secrets from where the configuration says they are.
//!
//! A file is read anew each time, because tokens that are mounted into a container are replaced under the program; an
//! environment cannot change under it. What is read is checked once here, so that no caller finds out at the first
//! request that a key cannot stand in a header.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::config::environment::{Environment, Variable};
use crate::config::redact;
use crate::config::sections::SecretSource;
use crate::domain::secret::Secret;

/// Longest secret file. A token is a few kilobytes at most; more is the wrong file.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// Why a secret could not be read. No variant holds it, and none shows it.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The variable named by `api_key_env`, `admin_token_env` or a header's `env` does not exist. Export it to this
    /// process.
    #[error("environment variable {} is not set", redact::plain(.name))]
    Unset {
        /// The variable.
        name: String,
    },
    /// The variable named by `api_key_env`, `admin_token_env` or a header's `env` is set to nothing, as an
    /// undefined variable in a compose file or manifest is.
    #[error("environment variable {} is empty", redact::plain(.name))]
    Empty {
        /// The variable.
        name: String,
    },
    /// The variable named by `api_key_env`, `admin_token_env` or a header's `env` holds bytes that are not UTF-8.
    #[error("environment variable {} is not UTF-8 text", redact::plain(.name))]
    NotText {
        /// The variable.
        name: String,
    },
    /// The file named by `api_key_file`, `admin_token_file` or a header's `file` cannot be read: missing, a
    /// directory, or not ours.
    #[error("file {} cannot be read", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file named by `api_key_file`, `admin_token_file` or a header's `file` holds nothing but white space.
    #[error("file {} is empty", .path.display())]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },
    /// The file named by `api_key_file`, `admin_token_file` or a header's `file` is too long to be a key.
    #[error("file {} is longer than 64 KiB, which no key is", .path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The secret has a line break, a control character or a letter beyond ASCII inside. It would be refused, or cut,
    /// on its way.
    #[error(
        "{from} holds a character that no HTTP header can carry (a line break, a control or a non-ASCII character)"
    )]
    NotAHeader {
        /// The variable or the file, in words.
        from: String,
    },
}

impl SecretSource {
    /// Reads the secret.
    ///
    /// # Errors
    /// When it is absent, empty, unreadable, or cannot stand in a header. The error names the variable or the file.
    pub fn read(&self, environment: &Environment) -> Result<Secret, CredentialError> {
        let text = match self {
            Self::Env(name) => read_variable(name, environment)?,
            Self::File(path) => read_file(path)?,
        };
        let secret = Secret::new(&text);
        if secret.expose().bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
            return Ok(secret);
        }
        let from = match self {
            Self::Env(name) => format!("environment variable {}", redact::plain(name)),
            Self::File(path) => format!("file {}", path.display()),
        };
        Err(CredentialError::NotAHeader { from })
    }
}

fn read_variable(name: &str, environment: &Environment) -> Result<String, CredentialError> {
    let name = || name.to_owned();
    match environment.get(&name()) {
        None => Err(CredentialError::Unset { name: name() }),
        Some(Variable::NotText) => Err(CredentialError::NotText { name: name() }),
        Some(Variable::Text(text)) if text.trim().is_empty() => Err(CredentialError::Empty { name: name() }),
        Some(Variable::Text(text)) => Ok(text.clone()),
    }
}

fn read_file(path: &Path) -> Result<String, CredentialError> {
    let unreadable = |source| CredentialError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    // Opening a pipe that nobody writes to would wait for ever; a directory is told apart by reading it.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe or a device, not a file")));
    }
    // One byte more than allowed tells too long from just fitting.
    File::open(path).and_then(|file| file.take(MAX_SECRET_BYTES + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_SECRET_BYTES {
        return Err(CredentialError::TooLong { path: path.to_owned() });
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| CredentialError::NotAHeader { from: format!("file {}", path.display()) })?;
    if text.trim().is_empty() {
        return Err(CredentialError::EmptyFile { path: path.to_owned() });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_env(value: Option<&str>) -> Result<Secret, CredentialError> {
        let environment: Environment = value.map(|value| ("GATEWAY_API_KEY", value)).into_iter().collect();
        SecretSource::Env("GATEWAY_API_KEY".to_owned()).read(&environment)
    }

    #[test]
    fn a_variable_is_read_without_the_white_space_around_it() {
        assert_eq!(read_env(Some("sk-hidden\n")).unwrap().expose(), "sk-hidden");
    }

    #[test]
    fn every_refusal_names_the_variable_and_shows_no_value() {
        for (value, says) in [(None, "is not set"), (Some(" \n"), "is empty"), (Some("sk-hid\nden"), "line break")] {
            let error = read_env(value).unwrap_err().to_string();
            assert!(error.contains("GATEWAY_API_KEY") && error.contains(says), "{error}");
            assert!(!error.contains("hid\n") && !error.contains("sk-"), "{error}");
        }
    }

    #[test]
    fn a_directory_a_missing_file_and_an_endless_one_are_refused() {
        let none = Environment::default();
        for (path, says) in [("src", "cannot be read"), ("no/such", "cannot be read"), ("/dev/zero", "cannot be read")]
        {
            let error = SecretSource::File(path.into()).read(&none).unwrap_err().to_string();
            assert!(error.contains(path) && error.contains(says), "{error}");
        }
    }
}
