//! What may be echoed in a report.
//!
//! People paste keys into the wrong place: under `model`, as the *name* of a variable, as a table's name. A report is
//! copied into tickets, so anything shown passes through here, and what looks like a key is not shown. The rules err
//! towards hiding: a hidden model name costs a look into the file, a shown key costs a rotation.

/// What stands in place of a hidden value.
pub(super) const HIDDEN: &str = "[redacted]";

/// Longest value echoed, in characters: enough to recognise a URL, short enough for one line.
const SHOWN_CHARS: usize = 60;

/// How issued keys begin, and how many more characters make it one rather than a word.
const KEY_PREFIXES: [(&str, usize); 17] = [
    ("sk-", 6),
    ("sk_", 6),
    ("rk_", 6),
    ("hf_", 6),
    ("gsk_", 6),
    ("nvapi-", 6),
    ("ghp_", 6),
    ("gho_", 6),
    ("ghs_", 6),
    ("github_pat_", 6),
    ("glpat-", 6),
    ("xoxb-", 6),
    ("xoxp-", 6),
    ("xai-", 16),
    ("akia", 16),
    ("aiza", 16),
    ("eyj", 16),
];

/// Letters and digits in a row, with both of them, from which a text is taken for a key although nothing announces it.
const OPAQUE_RUN: usize = 32;

/// Names under which people write keys, as whole words of a setting's name: `max_tokens` is none, `auth_token` is.
const SECRET_WORDS: [&str; 14] = [
    "key",
    "apikey",
    "token",
    "secret",
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "bearer",
    "auth",
    "authorization",
    "cookie",
    "credential",
    "credentials",
];

/// Whether the text is, or holds, an issued key.
pub(super) fn is_key(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    if ["bearer ", "basic "].iter().any(|scheme| lower.trim_start().starts_with(scheme)) {
        return true;
    }
    // A key begins where a word could: not in the middle of `disk-`, but behind the `__` of a variable's name.
    lower.char_indices().any(|(at, _)| {
        let (before, from) = lower.split_at_checked(at).unwrap_or((&lower, ""));
        !before.ends_with(|c: char| c.is_ascii_alphanumeric()) && begins_with_key(from)
    })
}

fn begins_with_key(text: &str) -> bool {
    let in_key = |c: &char| c.is_ascii_alphanumeric() || *c == '_' || *c == '-';
    KEY_PREFIXES.iter().any(|(prefix, more)| {
        text.strip_prefix(prefix).is_some_and(|rest| rest.chars().take_while(in_key).count() >= *more)
    })
}

/// The name of a variable or a dotted key, or [`HIDDEN`]. Not shortened: it must be found again.
pub(super) fn name(text: &str) -> String {
    if must_hide(text) { HIDDEN.to_owned() } else { on_one_line(text.chars()) }
}

/// The text in quotes and on one line, or [`HIDDEN`].
pub(super) fn quoted(text: &str) -> String {
    if must_hide(text) { HIDDEN.to_owned() } else { format!("\"{}\"", shortened(text)) }
}

/// The text without quotes and on one line, or [`HIDDEN`].
pub(super) fn plain(text: &str) -> String {
    if must_hide(text) { HIDDEN.to_owned() } else { shortened(text) }
}

/// Whether the text must not be echoed: an issued key, or one that only looks random.
pub(super) fn must_hide(text: &str) -> bool {
    is_key(text) || text.split(|c: char| !c.is_ascii_alphanumeric()).any(is_opaque)
}

/// Whether a setting of this name holds a secret, judged by its words.
pub(super) fn names_a_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| SECRET_WORDS.contains(&word))
        || lower.contains("apikey")
}

/// Whether a header of this name holds a secret. Any part counts: headers are called `x-goog-iap-jwt-authtoken`.
pub(super) fn header_names_a_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["key", "token", "secret", "auth", "cookie", "password", "credential"].iter().any(|part| lower.contains(part))
}

fn is_opaque(run: &str) -> bool {
    run.len() >= OPAQUE_RUN && run.bytes().any(|b| b.is_ascii_digit()) && run.bytes().any(|b| b.is_ascii_alphabetic())
}

fn shortened(text: &str) -> String {
    let mut shown = on_one_line(text.chars().take(SHOWN_CHARS));
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// Line breaks and controls escaped; quotes not, since the report is no string literal.
fn on_one_line(text: impl Iterator<Item = char>) -> String {
    text.fold(String::new(), |mut shown, c| {
        match c {
            '"' | '\'' | '\\' => shown.push(c),
            other => shown.extend(other.escape_debug()),
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issued_keys_are_recognised_wherever_they_stand() {
        for key in [
            "sk-abcdef123",
            "Bearer x",
            "https://u:sk-abcdef123@host",
            "SK-PLANTED0123",
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.e30",
        ] {
            assert!(is_key(key), "{key}");
            assert_eq!(quoted(key), HIDDEN);
        }
        assert_eq!(plain("0123456789abcdef0123456789abcdef"), HIDDEN);
    }

    #[test]
    fn models_hosts_and_numbers_are_shown() {
        for text in [
            "Qwen3.5-35B-A3B-Instruct-2507",
            "meta-llama/Llama-3.3-70B-Instruct",
            "https://gateway.example/api",
            "task-force-one",
            "2",
            "disk-cache",
            "sk-1",
        ] {
            assert_eq!(quoted(text), format!("\"{text}\""));
        }
    }

    #[test]
    fn a_name_is_judged_by_its_words() {
        for name in ["api_key", "apiKey", "key", "auth-token", "bearer", "OPENAI_API_KEY", "password"] {
            assert!(names_a_secret(name), "{name}");
        }
        for name in ["max_tokens", "output_tokens", "monkey", "author", "keyboard"] {
            assert!(!names_a_secret(name), "{name}");
        }
    }

    #[test]
    fn what_is_shown_stays_on_one_short_line() {
        assert_eq!(plain("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
        assert_eq!(plain(&"x".repeat(100)).chars().count(), 61);
    }
}
