//! All HTTP that is not load, over `reqwest`: small documents from servers that may be slow, wrong or hostile.

use std::any::Any;
use std::error::Error;
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use crate::config::secrets::{Secrets, bearer};

/// Largest document that is read. A list of a thousand models is some 300 kB.
const MAX_DOCUMENT: usize = 4 << 20;
/// A document that takes longer is not worth waiting for.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Fetches documents from one server.
#[derive(Debug)]
pub struct Fetcher {
    client: Client,
}

/// A response, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The HTTP status.
    pub status: u16,
    /// The body as text.
    pub text: String,
}

/// Why there is no document.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The fetcher could not be built: a header or TLS configuration that cannot be used.
    #[error("the HTTP client cannot be set up: {0}")]
    Setup(String),
    /// No response, or not all of it: the server is not reachable, too slow, or broke off.
    #[error("no answer from {url}: {reason}")]
    NoAnswer {
        /// What was asked for.
        url: Url,
        /// The innermost cause.
        reason: String,
    },
    /// More than the limit.
    #[error("{url} sends more than {MAX_DOCUMENT} bytes")]
    TooLarge {
        /// What was asked for.
        url: Url,
    },
}

impl Fetcher {
    /// A fetcher that sends the target's key and headers, and trusts what `tls` (a rustls client configuration) trusts.
    ///
    /// No proxy, no redirects, no retries: the same way to the server as the load takes, and `connect` as patient.
    ///
    /// # Errors
    /// When a header or `tls` cannot be used.
    pub fn new(secrets: &Secrets, tls: impl Any, connect: Duration) -> Result<Self, FetchError> {
        let setup = |error: String| FetchError::Setup(error);
        let mut headers = HeaderMap::new();
        for header in &secrets.headers {
            let name: HeaderName = header.name.parse().map_err(|_| setup(format!("header name {:?}", header.name)))?;
            let value =
                HeaderValue::from_str(header.value.expose()).map_err(|_| setup(format!("value of header {name}")))?;
            headers.insert(name, value);
        }
        if let Some(key) = &secrets.key {
            let mut value = HeaderValue::from_str(&bearer(key))
                .map_err(|_| setup("the key cannot stand in a header".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(reqwest::header::AUTHORIZATION, value);
        }
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .default_headers(headers)
            .user_agent(concat!("steadyload/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .http1_only()
            .connect_timeout(connect.min(TIMEOUT))
            .timeout(TIMEOUT)
            .build()
            .map_err(|error| setup(root_cause(&error)))?;
        Ok(Self { client })
    }

    /// The document at `url`.
    ///
    /// # Errors
    /// When there is no response, or too much of one. A 4xx or 5xx is a document.
    pub async fn get(&self, url: &Url) -> Result<Document, FetchError> {
        let no_answer = |error: reqwest::Error| FetchError::NoAnswer { url: url.clone(), reason: root_cause(&error) };
        let mut response = self.client.get(url.clone()).send().await.map_err(no_answer)?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(no_answer)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_DOCUMENT {
                return Err(FetchError::TooLarge { url: url.clone() });
            }
        }
        Ok(Document { status: response.status().as_u16(), text: String::from_utf8_lossy(&bytes).into_owned() })
    }
}

/// The innermost cause: reqwest's own words only say that something was wrong with the request.
fn root_cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return if error.is_connect() {
            "no connection in time".to_owned()
        } else {
            format!("nothing within {TIMEOUT:?}")
        };
    }
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
