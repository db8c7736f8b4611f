//! Text that must not be seen.

use std::fmt;

/// A secret that is shorter appears in ordinary words too.
const SHORTEST: usize = 4;

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

    /// The texts that a server may echo: the secret, and without the scheme that some keep with it (`Bearer …`), as it is,
    /// as JSON writes it and as a URL does.
    fn forms(&self) -> impl Iterator<Item = Vec<char>> {
        let bare = self.0.split_once(' ').map(|(_, rest)| rest.trim_start());
        let texts = [Some(self.0.as_str()), bare].into_iter().flatten().filter(|text| text.chars().count() >= SHORTEST);
        let forms = texts.flat_map(|text| [text.to_owned(), json_escaped(text), percent_encoded(text)]);
        forms.map(|form| form.chars().filter(|c| !is_filler(*c)).collect())
    }
}

/// Replaces every appearance of any of the secrets in `text`, for server answers that echo the key they refuse.
///
/// Found as they are, in any case, as JSON or a URL would escape them, with white space or control characters strewn into
/// them, and cut off after eight characters or more; where only the beginning is recognised, the word is taken out to its
/// end. The longest appearance wins, so that a secret does not hide another that begins like it. Not found in encodings that
/// nobody echoes by accident (base64), nor by their ends alone. Secrets of fewer than four characters are left alone:
/// replacing them would only garble the text.
#[must_use]
pub fn redact<'a>(secrets: impl IntoIterator<Item = &'a Secret>, text: &str) -> String {
    let forms: Vec<Vec<char>> = secrets.into_iter().flat_map(Secret::forms).collect();
    if forms.is_empty() {
        return text.to_owned();
    }
    // Every character that counts, with the place where it stands.
    let counting: Vec<(usize, char)> = text.char_indices().filter(|(_, c)| !is_filler(*c)).collect();
    let mut redacted = String::with_capacity(text.len());
    let (mut kept_to, mut at) = (0, 0);
    while at < counting.len() {
        let rest = counting.get(at..).unwrap_or_default();
        let found = forms.iter().map(|form| appearance(form, rest)).max().unwrap_or_default();
        let (Some((from, _)), Some((last, c))) = (rest.first(), rest.get(found.characters.wrapping_sub(1))) else {
            at += 1;
            continue;
        };
        let mut end = last + c.len_utf8();
        if !found.whole {
            end += end_of_word(text.get(end..).unwrap_or_default());
        }
        redacted.push_str(text.get(kept_to..*from).unwrap_or_default());
        redacted.push_str("[redacted]");
        kept_to = end;
        at += rest.iter().take_while(|(place, _)| *place < end).count();
    }
    redacted.push_str(text.get(kept_to..).unwrap_or_default());
    redacted
}

/// How much of a text is an appearance of a secret: the longer, and then the whole, is the greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Appearance {
    characters: usize,
    whole: bool,
}

fn appearance(form: &[char], text: &[(usize, char)]) -> Appearance {
    let alike = form.iter().zip(text).take_while(|(own, (_, other))| own.eq_ignore_ascii_case(other)).count();
    let whole = alike == form.len();
    if whole || alike >= TELLING { Appearance { characters: alike, whole } } else { Appearance::default() }
}

/// How many bytes of `rest` still belong to the word that it begins in: up to white space or a quote that is not escaped.
fn end_of_word(rest: &str) -> usize {
    let mut before = ' ';
    for (place, c) in rest.char_indices() {
        if c.is_whitespace() || (matches!(c, '"' | '\'' | '*') && before != '\\') {
            return place;
        }
        before = c;
    }
    rest.len()
}

/// What a server may strew into an echo, and what [`fmt::Display`] of its answer may turn into a space.
fn is_filler(c: char) -> bool {
    c.is_whitespace() || c == '\u{fffd}' || is_unseen(c)
}

/// Characters that a terminal does not show, or that reorder others.
#[must_use]
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{e0000}'..='\u{e01ef}')
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

    fn one(secret: &str, text: &str) -> String {
        redact([&Secret::new(secret)], text)
    }

    #[test]
    fn an_echoed_secret_is_redacted_however_it_is_echoed() {
        for echo in [
            "sk-SECRET-abc+/=7\"q\\z",
            "SK-secret-ABC+/=7\"Q\\Z",
            "sk-SECRET-abc+/=7\\\"q\\\\z",
            "sk-SECRET-abc%2B%2F%3D7%22q%5Cz",
            "sk-SE CRET-abc+/=7\"q\\z",
            "sk-\r\n\0\u{200b}SECRET\u{fffd}-abc\u{ad}+/=7\"q\\z",
            "sk-SECRET-abc",
            "sk-SECRE",
            "sk-SECRET-abc+\\/=7\\u0022q",
        ] {
            let text = one("sk-SECRET-abc+/=7\"q\\z", &format!("wrong key {echo} and {echo}"));
            assert_eq!(text, "wrong key [redacted] and [redacted]", "{echo}");
        }
        assert_eq!(one("sk-SECRET-abc", "***sk-SECRET-a***"), "***[redacted]***");
        assert_eq!(one("sk-SECRET-abc", "日本 sk-SECRET-abc 日本"), "日本 [redacted] 日本");
        assert_eq!(one("Bearer sk-SECRET", "bad key sk-SECRET, Bearer sk-SECRET"), "bad key [redacted], [redacted]");
    }

    #[test]
    fn secrets_that_begin_alike_do_not_hide_each_other() {
        let secrets =
            [Secret::new("sk-proj-AAAAotherAAAA"), Secret::new("sk-proj-BBBBSECRETBBBB"), Secret::new("proj")];
        for key in ["sk-proj-BBBBSECRETBBBB", "sk-proj-AAAAotherAAAA"] {
            assert_eq!(redact(&secrets, &format!("no: {key}, no")), "no: [redacted], no");
        }
    }

    #[test]
    fn what_is_no_echo_stays() {
        for text in ["", "sk-SEC", "a skeleton key", "the secret is out", "日本語"] {
            assert_eq!(one("sk-SECRET-abcdef", text), text);
        }
        assert_eq!(one("abc", "abc"), "abc", "too short to be a key");
        assert_eq!(one("abcd", "xabcdx"), "x[redacted]x");
    }
}
