//! Base URLs and endpoints.

use url::{Host, Url};

use super::reader::{Checker, Entry};
use crate::config::origin::Literal;
use crate::config::redact;

/// What a base URL looks like, for corrections.
pub(super) const EXAMPLE: &str = "https://gateway.example/api";

/// A base URL: http or https, a host, perhaps a port and a path. Anything else in it would be lost or sent by surprise
/// when the endpoint is joined to it. Nothing of a URL with a user, a query or a fragment is echoed: keys stand there.
pub(super) fn base_url(checker: &mut Checker<'_>, entry: &Entry<'_>) -> Option<Url> {
    // Not `Checker::text`: a key in a URL is told below, with what to write instead.
    let Some(text) = entry.as_text() else {
        return checker.wrong_type(entry, "a text", &Literal::text(EXAMPLE));
    };
    let lower = text.to_ascii_lowercase();
    if !lower.starts_with("http://") && !lower.starts_with("https://") {
        return without_scheme(checker, entry, text);
    }
    let written = |text: &str| entry.written(&Literal::text(text));
    let help = format!("write `{}`", written(EXAMPLE));
    if text.contains(char::is_whitespace) || text.contains(char::is_control) {
        return checker.wrong(entry, "has white space in it, which no URL has", help);
    }
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => return checker.wrong(entry, format!("is no URL: {error}"), help),
    };
    if !url.username().is_empty() || url.password().is_some() {
        let help = "take user and password out of the URL; a key goes into a variable named by api_key_env";
        return checker.wrong(entry, "has a user or password in it: a key written in the file (not shown here)", help);
    }
    let mut bare = url.clone();
    bare.set_query(None);
    bare.set_fragment(None);
    let bare_text = bare.as_str().trim_end_matches('/');
    let shown = if redact::must_hide(bare_text) { help } else { format!("write `{}`", written(bare_text)) };
    if url.query().is_some() {
        return checker.wrong(entry, "has a query (?…), which a base URL cannot have", shown);
    }
    if url.fragment().is_some() {
        return checker.wrong(entry, "has a fragment (#…), which no server would see", shown);
    }
    if url.port() == Some(0) {
        return checker.wrong(entry, "has port 0, on which nothing listens", "write the gateway's port");
    }
    if redact::is_key(text) {
        return checker.key_written(entry);
    }
    let path = url.path().trim_end_matches('/');
    if let Some(endpoint) = ENDPOINTS.iter().find(|endpoint| path.ends_with(*endpoint)) {
        let mut base = url.clone();
        base.set_path(path.strip_suffix(endpoint).unwrap_or_default());
        let base = base.as_str().trim_end_matches('/');
        let what = format!("ends with {endpoint}, which is joined to it again");
        return checker.wrong(entry, what, format!("write `{}`", written(base)));
    }
    checker.keep(entry, format!("\"{url}\""));
    Some(url)
}

/// What people copy along with the base URL, longest first.
const ENDPOINTS: [&str; 5] =
    ["/v1/chat/completions", "/v1/completions", "/chat/completions", "/completions", "/generate"];

fn without_scheme(checker: &mut Checker<'_>, entry: &Entry<'_>, text: &str) -> Option<Url> {
    if redact::is_key(text) {
        return checker.key_written(entry);
    }
    let told = if text.contains(['@', '?', '#']) { "this text".to_owned() } else { redact::quoted(text) };
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest).trim_matches('/');
    let guess = format!("http://{rest}");
    let usable = !rest.is_empty()
        && Url::parse(&guess)
            .is_ok_and(|url| url.host_str().is_some_and(|h| h.contains(['.', ':']) || h == "localhost"));
    let sayable =
        usable && !told.starts_with("this") && !redact::must_hide(text) && !text.contains(char::is_whitespace);
    let example = if sayable { guess.as_str() } else { EXAMPLE };
    let written = entry.written(&Literal::text(example));
    let what = if text.trim().is_empty() {
        "is empty".to_owned()
    } else {
        format!("is {told}, wants a URL that begins with http:// or https://")
    };
    checker.wrong(entry, what, format!("write `{written}`"))
}

/// A path that is joined to the base URL.
pub(super) fn endpoint(checker: &mut Checker<'_>, entry: &Entry<'_>) -> Option<String> {
    let text = checker.filled_text(entry, "/v1/chat/completions")?;
    let written = |text: &str| format!("write `{}`", entry.written(&Literal::text(text)));
    if text.contains(['?', '#']) {
        let path = text.split(['?', '#']).next().unwrap_or_default();
        let help = if path.starts_with('/') && !redact::must_hide(path) { written(path) } else { String::new() };
        return checker.wrong(entry, "has a query or a fragment, wants a path only", help);
    }
    if text.contains("://") {
        return checker.wrong(entry, "is a whole URL, wants its path only", "put scheme and host into base_url");
    }
    if let Some(odd) = text
        .chars()
        .find(|c| !c.is_ascii_graphic() || matches!(c, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}'))
    {
        return checker.wrong(entry, format!("holds {odd:?}, which no path can"), "write it percent-encoded");
    }
    if !text.starts_with('/') {
        let what = format!("is {}, wants a path that begins with /", redact::quoted(text));
        return checker.wrong(entry, what, written(&format!("/{text}")));
    }
    checker.keep(entry, format!("\"{text}\""));
    Some(text.to_owned())
}

/// Whether the URL stays on this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
