//! What to change when a request fails: for every outcome a sentence that names the setting.
//!
//! Pure: what the client saw goes in, words come out. Where the server's own words tell causes apart (a field it does not
//! know, a model it does not have) they are read for that and for nothing else.

use crate::config::sections::{SecretSource, Target};
use crate::domain::outcome::Outcome;
use crate::domain::timeline::Timeline;
use crate::load::client::body;

/// What a hint may depend on besides the request.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings {
    /// This process runs in a container, where 127.0.0.1 is the container itself.
    pub in_container: bool,
}

/// What to change, as one or two sentences; `None` when the request ended well or we ended it.
#[must_use]
pub fn hint(target: &Target, timeline: &Timeline, surroundings: Surroundings) -> Option<String> {
    let said = timeline.detail.as_deref().unwrap_or_default();
    let setting = Setting { target: &target.name };
    Some(match timeline.outcome {
        Outcome::Ok | Outcome::Canceled => return None,
        Outcome::Dns => format!("correct the host in {} or this machine's resolver", setting.name("base_url")),
        Outcome::Connect => connect(target, setting, surroundings),
        Outcome::Tls => tls(setting, said),
        Outcome::TimeoutConnect => no_connection(target, setting, said),
        Outcome::Reset => format!(
            "the connection was broken by the gateway or something before it; look for {} in its log, and check whether {} has to begin with {}://",
            timeline.request_id,
            setting.name("base_url"),
            other_scheme(target)
        ),
        Outcome::Http3xx if said.starts_with("location") => format!(
            "redirects are never followed, because a redirected POST loses its body or its key: put the address it names into {}",
            setting.name("base_url")
        ),
        Outcome::Http3xx => format!("a redirect that names no address: something else than the gateway is at {}", setting.name("base_url")),
        Outcome::Http401 => format!("the key was not accepted; it {}", key_origin(target, setting)),
        Outcome::Http403 => format!(
            "not allowed: the key may not use model {:?} here ({}), or is the wrong one; it {}",
            target.model,
            setting.name("model"),
            key_origin(target, setting)
        ),
        Outcome::Http404 => not_found(target, setting, said),
        Outcome::Http429 => {
            "a quota or rate limit of the gateway was reached: lower loads.NAME.rate or loads.NAME.concurrency on this target, or have the limit of its key raised"
                .to_owned()
        }
        Outcome::Http4xx => refused(target, setting, timeline.status, said),
        Outcome::Http5xx => format!(
            "the gateway answers {} itself or for its engine: look for {} in its log, and whether an engine serves model {:?} ({})",
            timeline.status.unwrap_or_default(),
            timeline.request_id,
            target.model,
            setting.name("model")
        ),
        Outcome::Truncated => truncated(target, setting, timeline),
        Outcome::Parse => unreadable(target, setting, timeline),
        Outcome::BadResponse => not_expected(target, setting, said),
        Outcome::TimeoutFirstToken | Outcome::TimeoutIdle | Outcome::TimeoutTotal => too_slow(target, setting, timeline),
        Outcome::InBandError => format!(
            "the engine reported an error inside a 200; look for {} in its log, and check {} and {} if it names the request",
            timeline.request_id,
            setting.name("model"),
            setting.name("body")
        ),
        Outcome::ShortOutput => short(setting, timeline),
        Outcome::Empty if timeline.answer.cut || timeline.answer.finish_reason.is_none() => format!(
            "the answer ended before its first token: an engine that crashed, a proxy that gave up, or an api that does not fit ({}); look for {} in their logs",
            setting.name("api"),
            timeline.request_id
        ),
        Outcome::Empty => format!(
            "the answer was finished but had no text: check {} and {}, and look for {} in the engine's log",
            setting.name("api"),
            setting.name("model"),
            timeline.request_id
        ),
        Outcome::Local => format!(
            "this machine has no descriptors, ports or memory left (`ulimit -n`), not the gateway; raise the limit before blaming {}",
            setting.name("base_url")
        ),
    })
}

/// Writes dotted keys.
#[derive(Clone, Copy)]
struct Setting<'a> {
    target: &'a str,
}

impl Setting<'_> {
    fn name(self, key: &str) -> String {
        format!("targets.{}.{key}", self.target)
    }
}

fn connect(target: &Target, setting: Setting<'_>, surroundings: Surroundings) -> String {
    let base_url = setting.name("base_url");
    let loopback = match target.base_url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    let host = target.base_url.host_str().unwrap_or_default();
    if loopback && surroundings.in_container {
        return format!(
            "inside this container {host} is the container itself: use the gateway's service name or the host's address in {base_url}, or start the gateway in here"
        );
    }
    format!("nothing accepts connections there: start the gateway, or correct host and port in {base_url}")
}

/// The scheme that `base_url` does not have.
fn other_scheme(target: &Target) -> &'static str {
    if target.base_url.scheme() == "http" { "https" } else { "http" }
}

fn no_connection(target: &Target, setting: Setting<'_>, said: &str) -> String {
    let (within, base_url, limit) =
        (target.timeouts.connect, setting.name("base_url"), setting.name("timeouts.connect"));
    let why = if said.contains("tls phase") {
        format!("something accepts the connection but does not speak TLS: {base_url} may have to begin with http://")
    } else if said.contains("dns phase") {
        format!("the resolver of this machine does not answer for the host in {base_url}")
    } else {
        format!("a firewall that drops packets, a wrong port in {base_url}, or a queue that is full")
    };
    format!("no connection within {within:?}: {why}; {limit} sets the limit")
}

/// Fewer tokens than asked for, although the server was told not to stop.
fn short(setting: Setting<'_>, timeline: &Timeline) -> String {
    let switch = setting.name("send.ignore_eos = false");
    match timeline.answer.finish_reason.as_deref() {
        Some(reason) if reason.contains("filter") => format!(
            "a content filter ended the answer ({reason}): have it let these prompts pass, or other answers than these are measured; {switch} only stops counting it"
        ),
        _ => format!(
            "the server stopped before output_tokens: it ignores ignore_eos and min_tokens, or the context is full; {switch} accepts answers of any length"
        ),
    }
}

fn tls(setting: Setting<'_>, said: &str) -> String {
    // What rustls says; before it stands the host's name, which may be any word.
    let said = said.split_once(" failed: ").map_or(said, |(_, said)| said).to_ascii_lowercase();
    if said.contains("not valid for name") {
        let base_url = setting.name("base_url");
        return format!("the certificate is for another host name: use the name it was made for in {base_url}");
    }
    if said.contains("expired") || said.contains("notvalidyet") || said.contains("not valid yet") {
        let base_url = setting.name("base_url");
        return format!(
            "the certificate of the host in {base_url} is out of its dates: renew it, or correct this machine's clock"
        );
    }
    if said.contains("causedasendentity") {
        let ca_file = setting.name("ca_file");
        return format!(
            "the gateway shows a certificate authority as its own certificate: give it a certificate made for its name (with openssl: basicConstraints=CA:FALSE), and name the authority in {ca_file}"
        );
    }
    if said.contains("unknownissuer") || said.contains("unknown issuer") {
        let ca_file = setting.name("ca_file");
        return format!("the certificate's authority is not known here: name its PEM file in {ca_file}");
    }
    let (base_url, ca_file) = (setting.name("base_url"), setting.name("ca_file"));
    format!(
        "if the gateway speaks plain HTTP, {base_url} has to begin with http://; if it uses its own authority, name it in {ca_file}"
    )
}

/// Where the key came from, for whoever has to replace it.
fn key_origin(target: &Target, setting: Setting<'_>) -> String {
    match &target.api_key {
        Some(SecretSource::Env(name)) => {
            format!("came from the environment variable {name} ({})", setting.name("api_key_env"))
        }
        Some(SecretSource::File(path)) => {
            format!("came from the file {} ({})", path.display(), setting.name("api_key_file"))
        }
        None => format!("is missing: name its environment variable in {}", setting.name("api_key_env")),
    }
}

fn not_found(target: &Target, setting: Setting<'_>, said: &str) -> String {
    if said.to_ascii_lowercase().contains("model") {
        let model = setting.name("model");
        return format!("the gateway does not have the model {:?}: correct {model}", target.model);
    }
    let (base_url, endpoint, model) = (setting.name("base_url"), setting.name("endpoint"), setting.name("model"));
    format!(
        "nothing is at {}: does {base_url} lack a path prefix such as /api, or does the gateway serve another path ({endpoint})? Some say so of an unknown model too ({model})",
        target.request_url()
    )
}

/// 400 and 422: a field that the gateway does not take, or a prompt that does not fit.
fn refused(target: &Target, setting: Setting<'_>, status: Option<u16>, said: &str) -> String {
    let (base_url, endpoint) = (setting.name("base_url"), setting.name("endpoint"));
    match status {
        Some(405) => {
            return format!("{} takes no POST: correct {base_url} or {endpoint}", target.request_url());
        }
        Some(407) => return format!("a proxy before {base_url} wants a login; steadyload itself uses no proxy"),
        Some(408) => {
            return format!("the server waited too long for the request: look at what is slow before {base_url}");
        }
        Some(413) => {
            return format!(
                "the request is too large for the gateway at {base_url}: lower input_tokens of the workload"
            );
        }
        _ => {}
    }
    let lower = said.to_ascii_lowercase();
    // Before the fields: engines name max_tokens when prompt and answer do not fit.
    if lower.contains("context") || lower.contains("too long") {
        return "prompt and answer together do not fit the model's context: lower input_tokens or output_tokens of the workload"
            .to_owned();
    }
    let optional = body::optional_fields(target);
    // In the order of that list: `stream_options` stands for what is inside it.
    if let Some((field, switch)) = optional.iter().find(|(field, _)| said.contains(field)) {
        return format!("the gateway does not take the field {field}: set {}", setting.name(switch));
    }
    let said = lower;
    if said.contains("key") || said.contains("token") && said.contains("auth") {
        return format!("the key was not accepted; it {}", key_origin(target, setting));
    }
    if said.contains("model") {
        return format!("the gateway does not take the model {:?}: correct {}", target.model, setting.name("model"));
    }
    let mut switches: Vec<_> = optional.iter().map(|(_, switch)| setting.name(switch)).collect();
    switches.dedup();
    format!(
        "the gateway refuses the request with {}; if it does not know one of our fields, these switch them off: {}",
        status.unwrap_or_default(),
        switches.join(", ")
    )
}

/// Bytes that are not HTTP, not an event stream, not JSON, or more than we take.
fn unreadable(target: &Target, setting: Setting<'_>, timeline: &Timeline) -> String {
    let base_url = setting.name("base_url");
    let said = timeline.detail.as_deref().unwrap_or_default();
    let (id, api) = (&timeline.request_id, setting.name("api"));
    if timeline.status.is_none() && said.contains("too large") {
        return format!(
            "the response head is larger than any gateway's: look what adds headers on the way to {base_url}"
        );
    }
    if timeline.status.is_none() {
        return format!(
            "the response is not one that HTTP allows ({said}): correct {base_url}, perhaps to {}://, or look at what is on the way",
            other_scheme(target)
        );
    }
    format!(
        "the answer cannot be read on: something between {base_url} and the engine damages it or writes what is no event; look for {id} in their logs, and check that {api} fits if every request ends so"
    )
}

/// An answer, but not the one we asked for.
fn not_expected(target: &Target, setting: Setting<'_>, said: &str) -> String {
    let (base_url, api, endpoint) = (setting.name("base_url"), setting.name("api"), setting.name("endpoint"));
    if said.starts_with("content-encoding") {
        return format!(
            "the answer was compressed although identity was asked for: switch that off in the proxy before {base_url}"
        );
    }
    format!(
        "endpoint and api kind do not fit: {api} is {:?} and the request went to {} ({endpoint}, {base_url}); or something else answers there",
        target.api.name(),
        target.request_url()
    )
}

/// The connection or the body ended too early, in good order or not.
fn truncated(target: &Target, setting: Setting<'_>, timeline: &Timeline) -> String {
    if timeline.status.is_none() {
        return format!(
            "the connection was closed without a response: check that {} names the gateway and its scheme, and that the gateway is not restarting",
            setting.name("base_url")
        );
    }
    format!(
        "the answer was cut off: an engine that crashed, or a proxy with a shorter limit than {} = {:?}; look for {} in their logs",
        setting.name("timeouts.total"),
        target.timeouts.total,
        timeline.request_id
    )
}

/// A limit of ours ran out.
fn too_slow(target: &Target, setting: Setting<'_>, timeline: &Timeline) -> String {
    let Timeline { outcome, request_id, .. } = timeline;
    if *outcome == Outcome::TimeoutFirstToken {
        return format!(
            "no token came within {:?} ({}): the engine is queueing or hangs, or something on the way holds the answer back",
            target.timeouts.first_token,
            setting.name("timeouts.first_token")
        );
    }
    if *outcome == Outcome::TimeoutIdle {
        return format!(
            "the stream stalled for {:?} ({}); look for {request_id} in the engine's log",
            target.timeouts.idle,
            setting.name("timeouts.idle")
        );
    }
    format!(
        "the answer took longer than {:?} ({}): raise it, or lower output_tokens of the workload",
        target.timeouts.total,
        setting.name("timeouts.total")
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::clock;
    use crate::config::sections::tests::target;
    use crate::domain::arrival::Arrival;
    use crate::domain::timeline::Answer;

    const BARE: Surroundings = Surroundings { in_container: false };

    fn timeline(outcome: Outcome, status: Option<u16>, detail: &str) -> Timeline {
        let now = clock::now();
        Timeline {
            arrival: Arrival { index: 0, planned_at: now },
            request_id: "canary-0-ff".into(),
            outcome,
            opened: None,
            setup: Duration::ZERO,
            sent_at: None,
            headers_at: None,
            status,
            answer: Answer::default(),
            ended_at: now,
            resent: false,
            compressed: false,
            retry_after: None,
            detail: (!detail.is_empty()).then(|| detail.to_owned()),
        }
    }

    fn hint_of(outcome: Outcome, status: Option<u16>, detail: &str) -> String {
        hint(&target("http://gateway:8000/api"), &timeline(outcome, status, detail), BARE).unwrap_or_default()
    }

    #[test]
    fn every_failure_has_a_hint_that_names_a_setting() {
        for outcome in Outcome::ALL {
            let text = hint_of(outcome, Some(200), "");
            let named = text.contains("targets.t.") || text.contains("loads.NAME.rate");
            assert_eq!(named, !matches!(outcome, Outcome::Ok | Outcome::Canceled), "{outcome}: {text}");
        }
    }

    #[test]
    fn a_refused_key_is_traced_to_where_it_came_from() {
        let mut target = target("http://gateway");
        for (source, expected) in [
            (Some(SecretSource::Env("GATEWAY_API_KEY".into())), "GATEWAY_API_KEY"),
            (Some(SecretSource::File(PathBuf::from("/run/key"))), "/run/key"),
            (None, "targets.t.api_key_env"),
        ] {
            target.api_key = source;
            let text = hint(&target, &timeline(Outcome::Http401, Some(401), ""), BARE).unwrap();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn a_404_names_the_whole_url_or_the_model() {
        let text = hint_of(Outcome::Http404, Some(404), "Not Found");
        assert!(text.contains("http://gateway:8000/api/v1/chat/completions") && text.contains("/api"), "{text}");
        let text = hint_of(Outcome::Http404, Some(404), "The model `m` does not exist.");
        assert!(text.contains("targets.t.model"), "{text}");
    }

    #[test]
    fn a_field_that_is_refused_leads_to_its_switch() {
        for (said, expected) in [
            ("Extra inputs are not permitted: ignore_eos", "send.ignore_eos = false"),
            ("Unrecognized request argument supplied: min_tokens", "send.min_tokens = false"),
            ("Unknown parameter: 'stream_options.continuous_usage_stats'", "send.continuous_usage_stats = false"),
            ("unknown field `stream_options`", "send.include_usage = false"),
            ("Unsupported parameter: 'max_tokens'", "send.max_tokens_field = \"max_completion_tokens\""),
            ("max_tokens is too large: this model's maximum context length is 4096", "input_tokens"),
            ("Invalid model name", "targets.t.model"),
            ("Invalid proxy server key", "targets.t.api_key_env"),
            ("stream too slow", "targets.t.send.ignore_eos = false"),
            ("no", "targets.t.send.ignore_eos = false, targets.t.send.min_tokens = false"),
        ] {
            let text = hint_of(Outcome::Http4xx, Some(422), said);
            assert!(text.contains(expected), "{said}: {text}");
        }
    }

    #[test]
    fn statuses_that_are_not_about_fields_are_not_blamed_on_fields() {
        for (status, expected) in [(405, "targets.t.endpoint"), (407, "proxy"), (408, "slow"), (413, "input_tokens")] {
            let text = hint_of(Outcome::Http4xx, Some(status), "no model, no ignore_eos, no context");
            assert!(text.contains(expected) && !text.contains("send."), "{status}: {text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_certificate_is_told_apart() {
        for (said, expected) in [
            ("invalid peer certificate: certificate expired: verification time 5 (UNIX)", "clock"),
            ("invalid peer certificate: NotValidYet", "clock"),
            ("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", "CA:FALSE"),
            ("invalid peer certificate: UnknownIssuer", "name its PEM file in targets.t.ca_file"),
            ("invalid peer certificate: certificate not valid for name \"expired.example\"", "another host name"),
            ("received corrupt message of type InvalidContentType", "http://"),
        ] {
            let text = hint_of(Outcome::Tls, None, &format!("TLS handshake with h failed: {said}"));
            assert!(text.contains(expected), "{said}: {text}");
        }
    }

    #[test]
    fn loopback_inside_a_container_is_told_apart() {
        let refused = timeline(Outcome::Connect, None, "");
        for host in ["127.0.0.1", "localhost", "[::1]"] {
            let target = target(&format!("http://{host}:8000"));
            let text = hint(&target, &refused, Surroundings { in_container: true }).unwrap();
            assert!(text.contains("container"), "{text}");
            assert!(!hint(&target, &refused, BARE).unwrap().contains("container"));
        }
    }
}
