//! Text that must not be seen.

use std::fmt;

/// A key or token. Neither `Debug` nor `Display` shows it, so that no log line and no error can.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the text, without the white space that editors and `echo` leave at its end.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// The text itself, for the one header that carries it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Replaces every appearance of the secret in `text`, for server answers that echo the key they refuse.
    ///
    /// Secrets of fewer than four bytes are left alone: replacing them would only garble the text.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        if self.0.len() < 4 { text.to_owned() } else { text.replace(&self.0, "[redacted]") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_in_no_debug_output() {
        assert_eq!(format!("{:?}", Secret::new("sk-hidden\n")), "[redacted]");
        assert_eq!(Secret::new(" sk-hidden\n").expose(), "sk-hidden");
    }

    #[test]
    fn an_echoed_secret_is_redacted_wherever_it_stands() {
        let text = Secret::new("sk-1234").redact("key sk-1234 is wrong: sk-1234");
        assert_eq!(text, "key [redacted] is wrong: [redacted]");
    }
}
