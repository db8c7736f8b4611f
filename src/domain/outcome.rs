//! How a request ended, and whose doing that was.
//!
//! Every planned request ends in exactly one [`Outcome`] or is shed without being sent:
//! `planned = shed + in_flight + sum(outcomes)`. Outcomes are an enum, never strings, so that the set of label values
//! is bounded and a new way to fail cannot appear without a place that counts it.

use std::fmt;

/// The single end of a request that was sent, or that we tried to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// 2xx, no error object, at least one token-bearing event, `finish_reason` or `[DONE]` seen, parse clean.
    Ok,
    /// As `Ok`, but fewer tokens than asked for while `ignore_eos` was on.
    ShortOutput,
    /// The host name did not resolve.
    Dns,
    /// The TCP connection was refused or could not be routed.
    Connect,
    /// The TLS handshake failed: an unknown authority, a wrong name, no common version.
    Tls,
    /// DNS, TCP and TLS together took longer than `timeouts.connect`.
    TimeoutConnect,
    /// The connection died by RST or by a TLS alert.
    Reset,
    /// A redirect, which is never followed.
    Http3xx,
    /// 401: the key was not accepted.
    Http401,
    /// 403: the key may not do this.
    Http403,
    /// 404: no such path, or no such model.
    Http404,
    /// 429: a quota or rate limit.
    Http429,
    /// Any other 4xx.
    Http4xx,
    /// Any 5xx.
    Http5xx,
    /// The body ended without `finish_reason` and without `[DONE]`.
    Truncated,
    /// Bad HTTP, SSE, JSON or UTF-8, or more of it than the limits allow.
    Parse,
    /// A 2xx that is not the expected shape (no `choices`, an HTML page, a non-stream body), or no status that is one.
    BadResponse,
    /// No token within `timeouts.first_token`.
    TimeoutFirstToken,
    /// No further token within `timeouts.idle`.
    TimeoutIdle,
    /// Not finished within `timeouts.total`.
    TimeoutTotal,
    /// An error object inside a 2xx, `event: error`, or a `finish_reason` of `error` or `abort`.
    InBandError,
    /// The body ended without a single token.
    Empty,
    /// Our own descriptors, ports or files.
    Local,
    /// Ended by us, at shutdown or reload.
    Canceled,
}

/// Whose doing an outcome is: the first question of everyone who reads an error rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The way to the gateway.
    Network,
    /// The gateway or a proxy on the way.
    Gateway,
    /// The engine behind the gateway.
    Engine,
    /// What we ask for: our configuration.
    Request,
    /// This client or its machine.
    Client,
}

impl Outcome {
    /// Every outcome, in the order of `semantics`: well ended, network, gateway, engine, request, client.
    pub const ALL: [Self; 24] = [
        Self::Ok,
        Self::ShortOutput,
        Self::Dns,
        Self::Connect,
        Self::Tls,
        Self::TimeoutConnect,
        Self::Reset,
        Self::Http3xx,
        Self::Http429,
        Self::Http5xx,
        Self::Truncated,
        Self::Parse,
        Self::BadResponse,
        Self::TimeoutFirstToken,
        Self::TimeoutIdle,
        Self::TimeoutTotal,
        Self::InBandError,
        Self::Empty,
        Self::Http401,
        Self::Http403,
        Self::Http404,
        Self::Http4xx,
        Self::Local,
        Self::Canceled,
    ];

    /// The label value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ShortOutput => "short_output",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::TimeoutConnect => "timeout_connect",
            Self::Reset => "reset",
            Self::Http3xx => "http_3xx",
            Self::Http401 => "http_401",
            Self::Http403 => "http_403",
            Self::Http404 => "http_404",
            Self::Http429 => "http_429",
            Self::Http4xx => "http_4xx",
            Self::Http5xx => "http_5xx",
            Self::Truncated => "truncated",
            Self::Parse => "parse",
            Self::BadResponse => "bad_response",
            Self::TimeoutFirstToken => "timeout_first_token",
            Self::TimeoutIdle => "timeout_idle",
            Self::TimeoutTotal => "timeout_total",
            Self::InBandError => "in_band_error",
            Self::Empty => "empty",
            Self::Local => "local",
            Self::Canceled => "canceled",
        }
    }

    /// Whose doing it is; `None` when the request ended well.
    #[must_use]
    pub const fn fault(self) -> Option<Fault> {
        match self {
            Self::Ok => None,
            Self::Dns | Self::Connect | Self::Tls | Self::TimeoutConnect | Self::Reset => Some(Fault::Network),
            Self::Http3xx | Self::Http429 | Self::Http5xx | Self::Truncated | Self::Parse | Self::BadResponse => {
                Some(Fault::Gateway)
            }
            Self::ShortOutput
            | Self::TimeoutFirstToken
            | Self::TimeoutIdle
            | Self::TimeoutTotal
            | Self::InBandError
            | Self::Empty => Some(Fault::Engine),
            Self::Http401 | Self::Http403 | Self::Http404 | Self::Http4xx => Some(Fault::Request),
            Self::Local | Self::Canceled => Some(Fault::Client),
        }
    }

    /// Whether the request's latencies are the gateway's real ones: `ok`, and `short_output` but for E2EL.
    #[must_use]
    pub const fn is_answered(self) -> bool {
        matches!(self, Self::Ok | Self::ShortOutput)
    }

    /// The outcome of a response status that is not 2xx; `None` for a 2xx.
    #[must_use]
    pub const fn of_status(status: u16) -> Option<Self> {
        match status {
            200..=299 => None,
            300..=399 => Some(Self::Http3xx),
            401 => Some(Self::Http401),
            403 => Some(Self::Http403),
            404 => Some(Self::Http404),
            429 => Some(Self::Http429),
            400..=499 => Some(Self::Http4xx),
            500..=599 => Some(Self::Http5xx),
            // 101 without having asked for it, or a number that means nothing.
            _ => Some(Self::BadResponse),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Fault {
    /// The word shown to people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Gateway => "gateway",
            Self::Engine => "engine",
            Self::Request => "request",
            Self::Client => "client",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_outcome_has_a_name_of_its_own() {
        let names: BTreeSet<_> = Outcome::ALL.into_iter().map(Outcome::name).collect();
        assert_eq!(names.len(), Outcome::ALL.len());
    }

    #[test]
    fn only_ok_is_nobodys_fault() {
        for outcome in Outcome::ALL {
            assert_eq!(outcome.fault().is_none(), outcome == Outcome::Ok, "{outcome}");
        }
    }

    #[test]
    fn every_status_but_2xx_has_an_outcome() {
        for status in 100..=999 {
            assert_eq!(Outcome::of_status(status).is_none(), (200..=299).contains(&status), "{status}");
        }
        assert_eq!(Outcome::of_status(422), Some(Outcome::Http4xx));
        assert_eq!(Outcome::of_status(308), Some(Outcome::Http3xx));
        for odd in [101, 199, 600, 999] {
            assert_eq!(Outcome::of_status(odd), Some(Outcome::BadResponse));
        }
    }
}
