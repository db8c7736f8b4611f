//! Text that must not be seen.

use std::fmt;

/// A prefix of a secret that is as long is taken for the secret: servers echo keys cut off or half masked.
const TELLING: usize = 8;

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
    /// Found as it is, in any case, as JSON or a URL would escape it, with white space or control characters strewn into
    /// it, and cut off after eight characters or more. Not found in encodings that nobody echoes by accident (base64).
    /// Secrets of fewer than four characters are left alone: replacing them would only garble the text.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        if self.0.chars().count() < 4 {
            return text.to_owned();
        }
        let forms = [self.0.clone(), json_escaped(&self.0), percent_encoded(&self.0)];
        let forms = forms.map(|form| form.chars().filter(|c| !is_filler(*c)).collect::<Vec<_>>());
        // Every character that counts, with the place where it stands.
        let text_chars: Vec<(usize, char)> = text.char_indices().filter(|(_, c)| !is_filler(*c)).collect();
        let mut redacted = String::with_capacity(text.len());
        let (mut kept_to, mut at) = (0, 0);
        while at < text_chars.len() {
            let rest = text_chars.get(at..).unwrap_or_default();
            let length = forms.iter().map(|form| appearance(form, rest)).max().unwrap_or(0);
            if length == 0 {
                at += 1;
                continue;
            }
            let (from, last) = (text_chars.get(at), text_chars.get(at + length - 1));
            if let (Some((from, _)), Some((last, c))) = (from, last) {
                redacted.push_str(text.get(kept_to..*from).unwrap_or_default());
                redacted.push_str("[redacted]");
                kept_to = last + c.len_utf8();
            }
            at += length;
        }
        redacted.push_str(text.get(kept_to..).unwrap_or_default());
        redacted
    }
}

/// How many characters of `text` are an appearance of the secret; 0 for none.
fn appearance(form: &[char], text: &[(usize, char)]) -> usize {
    let alike = form.iter().zip(text).take_while(|(own, (_, other))| own.eq_ignore_ascii_case(other)).count();
    if alike == form.len() || alike >= TELLING { alike } else { 0 }
}

/// What a server may strew into an echo, and what [`fmt::Display`] of its answer may turn into a space.
fn is_filler(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || c == '\u{fffd}'
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}')
}

fn json_escaped(text: &str) -> String {
    text.chars().flat_map(|c| matches!(c, '"' | '\\').then_some('\\').into_iter().chain([c])).collect()
}

fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
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
    fn an_echoed_secret_is_redacted_however_it_is_echoed() {
        let secret = Secret::new("sk-SECRET-abc+/=7\"q\\z");
        for echo in [
            "sk-SECRET-abc+/=7\"q\\z",
            "SK-secret-ABC+/=7\"Q\\Z",
            "sk-SECRET-abc+/=7\\\"q\\\\z",
            "sk-SECRET-abc%2B%2F%3D7%22q%5Cz",
            "sk-SE CRET-abc+/=7\"q\\z",
            "sk-\r\n\0\u{200b}SECRET\u{fffd}-abc+/=7\"q\\z",
            "sk-SECRET-abc",
            "sk-SECRE",
        ] {
            let text = Secret::redact(&secret, &format!("wrong key {echo}, twice: {echo}."));
            assert_eq!(text, "wrong key [redacted], twice: [redacted].", "{echo}");
        }
        assert_eq!(secret.redact("***sk-SECRET-a***"), "***[redacted]***");
        assert_eq!(secret.redact("日本 sk-SECRET-abc 日本"), "日本 [redacted] 日本");
    }

    #[test]
    fn what_is_no_echo_stays() {
        let secret = Secret::new("sk-SECRET-abcdef");
        for text in ["", "sk-SEC", "a skeleton key", "the secret is out", "日本語"] {
            assert_eq!(secret.redact(text), text);
        }
        assert_eq!(Secret::new("abc").redact("abc"), "abc", "too short to be a key");
        assert_eq!(Secret::new("abcd").redact("xabcdx"), "x[redacted]x");
    }
}
