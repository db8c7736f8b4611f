//! Who may change something.
//!
//! A bearer token in a header, never a cookie or a query: a page in somebody's browser cannot be made to send it, so there
//! is nothing to forge across sites. Compared in constant time; only its length can be learnt from how long that takes.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use subtle::ConstantTimeEq;

use crate::domain::secret::Secret;

/// Why somebody may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denial {
    /// There is no token, so nobody may.
    NoToken,
    /// None was sent.
    Missing,
    /// It is another.
    Wrong,
}

/// Whether the request carries the token.
pub(super) fn check(headers: &HeaderMap, token: Option<&Secret>) -> Result<(), Denial> {
    // An empty token would be matched by an empty header.
    let Some(token) = token.filter(|token| !token.expose().is_empty()) else { return Err(Denial::NoToken) };
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(given), None) = (given.next(), given.next()) else {
        return Err(if headers.contains_key(AUTHORIZATION) { Denial::Wrong } else { Denial::Missing });
    };
    let bearer = bearer(given.as_bytes()).ok_or(Denial::Missing)?;
    if bearer.ct_eq(token.expose().as_bytes()).into() { Ok(()) } else { Err(Denial::Wrong) }
}

/// What follows the scheme, whose case does not matter.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn given(values: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn only_the_token_itself_is_let_in() {
        let token = Secret::new("s3cret-token");
        for (values, verdict) in [
            (&[&b"Bearer s3cret-token"[..]][..], Ok(())),
            (&[b"bearer  s3cret-token "], Ok(())),
            (&[], Err(Denial::Missing)),
            (&[b"Basic czNjcmV0LXRva2Vu"], Err(Denial::Missing)),
            (&[b"s3cret-token"], Err(Denial::Missing)),
            (&[b"Bearer"], Err(Denial::Missing)),
            (&[b"Bearer "], Err(Denial::Wrong)),
            (&[b"Bearer s3cret-toke"], Err(Denial::Wrong)),
            (&[b"Bearer s3cret-tokenn"], Err(Denial::Wrong)),
            (&[b"Bearer S3cret-token"], Err(Denial::Wrong)),
            (&[b"Bearer \xff\xfe"], Err(Denial::Wrong)),
            (&[b"Bearer s3cret-token", b"Bearer s3cret-token"], Err(Denial::Wrong)),
        ] {
            assert_eq!(check(&given(values), Some(&token)), verdict, "{values:?}");
        }
    }

    #[test]
    fn without_a_token_nobody_is_let_in() {
        for token in [None, Some(&Secret::new(" \n"))] {
            for header in [&b"Bearer "[..], b"Bearer x"] {
                assert_eq!(check(&given(&[header]), token), Err(Denial::NoToken));
            }
        }
    }
}
