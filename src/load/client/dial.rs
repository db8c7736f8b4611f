//! Opening a connection, phase by phase.
//!
//! DNS, TCP and TLS are timed apart and never inside TTFT. The client sees only the [`Dial`] trait, so that a test can hand
//! it an in-memory pipe (whose time can be paused) or a dialer that fails in a chosen way.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use crate::clock;
use crate::domain::outcome::Outcome;
use crate::domain::timeline::ConnectPhases;
use crate::load::client::tls::TlsConfig;

/// A byte stream that a request can be sent over.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// An open connection, and what opening it took.
pub struct Dialed {
    /// The stream, TLS included.
    pub stream: Box<dyn Stream>,
    /// Duration of each phase that took place.
    pub phases: ConnectPhases,
}

impl fmt::Debug for Dialed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialed").field("phases", &self.phases).finish_non_exhaustive()
    }
}

/// The future that a dialer returns. It stays on its worker's thread.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = Result<Dialed, DialError>> + 'a>>;

/// Something that opens connections to one gateway.
pub trait Dial {
    /// Opens one connection, or fails at `deadline`.
    fn dial(&self, deadline: Instant) -> Dialing<'_>;
}

/// Why no connection came up.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address. Correct the host in `base_url`, or the resolver.
    #[error("{host} does not resolve: {source}")]
    Dns {
        /// The name that was looked up.
        host: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// Nothing listens there, or there is no way to it. Correct `base_url`, or start the gateway.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The last address that was tried.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The handshake failed. `ca_file` names further authorities; `http://` is a gateway without TLS.
    #[error("TLS handshake with {host} failed: {source}")]
    Tls {
        /// The name that the certificate has to match.
        host: String,
        /// What rustls or the peer says.
        source: io::Error,
    },
    /// `timeouts.connect` ran out.
    #[error("no connection after {after:.1?}, still in the {phase} phase")]
    Timeout {
        /// `dns`, `tcp` or `tls`.
        phase: &'static str,
        /// How long it was tried.
        after: Duration,
    },
    /// Our own descriptors, ports or memory are used up.
    #[error("this machine cannot open a connection: {source}")]
    Local {
        /// What the system says.
        source: io::Error,
    },
}

impl DialError {
    /// The request's outcome.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Dns { .. } => Outcome::Dns,
            Self::Connect { .. } => Outcome::Connect,
            Self::Tls { .. } => Outcome::Tls,
            Self::Timeout { .. } => Outcome::TimeoutConnect,
            Self::Local { .. } => Outcome::Local,
        }
    }
}

/// Opens TCP connections, with TLS for `https`.
pub struct NetDialer {
    host: Host<String>,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl fmt::Debug for NetDialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, tls } = self;
        f.debug_struct("NetDialer").field("host", host).field("port", port).field("tls", &tls.is_some()).finish()
    }
}

/// Why no dialer can be made for a URL.
#[derive(Debug, thiserror::Error)]
pub enum DialerError {
    /// `base_url` has no host or a scheme without a port.
    #[error("base_url {url} has no host and port to connect to")]
    NoHost {
        /// The URL.
        url: Url,
    },
    /// The host cannot stand in a certificate.
    #[error("host {host} of base_url is no name that TLS can verify")]
    NoServerName {
        /// The host.
        host: String,
    },
}

impl NetDialer {
    /// A dialer for the host of `url`; `tls` is used when the scheme is `https`.
    ///
    /// # Errors
    /// When the URL names no host, or one that no certificate can be for.
    pub fn new(url: &Url, tls: &TlsConfig) -> Result<Self, DialerError> {
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(DialerError::NoHost { url: url.clone() });
        };
        let server_name = || match &host {
            Host::Domain(name) => ServerName::try_from((*name).to_owned())
                .map_err(|_| DialerError::NoServerName { host: (*name).to_owned() }),
            Host::Ipv4(address) => Ok(ServerName::from(IpAddr::from(*address))),
            Host::Ipv6(address) => Ok(ServerName::from(IpAddr::from(*address))),
        };
        let tls = match url.scheme() {
            "https" => Some((TlsConnector::from(Arc::clone(tls)), server_name()?)),
            _ => None,
        };
        Ok(Self { host: host.to_owned(), port, tls })
    }

    async fn open(&self, deadline: Instant) -> Result<Dialed, DialError> {
        let started = clock::now();
        let timeout = |phase| DialError::Timeout { phase, after: clock::now() - started };
        let (addresses, dns) = timeout_at(deadline, self.resolve()).await.map_err(|_| timeout("dns"))??;

        let dialed_at = clock::now();
        let tcp_stream = connect(&addresses, deadline).await?.ok_or_else(|| timeout("tcp"))?;
        let connected_at = clock::now();
        let tcp = Some(connected_at - dialed_at);

        let Some((connector, name)) = &self.tls else {
            return Ok(Dialed { stream: Box::new(tcp_stream), phases: ConnectPhases { dns, tcp, tls: None } });
        };
        let stream = timeout_at(deadline, connector.connect(name.clone(), tcp_stream))
            .await
            .map_err(|_| timeout("tls"))?
            .map_err(|source| DialError::Tls { host: self.host.to_string(), source })?;
        let tls = Some(clock::now() - connected_at);
        Ok(Dialed { stream: Box::new(stream), phases: ConnectPhases { dns, tcp, tls } })
    }

    /// The addresses to try in order, and how long the look-up took; an address literal needs none.
    async fn resolve(&self) -> Result<(Vec<SocketAddr>, Option<Duration>), DialError> {
        let name = match &self.host {
            Host::Ipv4(address) => return Ok((vec![SocketAddr::new((*address).into(), self.port)], None)),
            Host::Ipv6(address) => return Ok((vec![SocketAddr::new((*address).into(), self.port)], None)),
            Host::Domain(name) => name,
        };
        let started = clock::now();
        let failed = |source| DialError::Dns { host: name.clone(), source };
        let addresses: Vec<_> = lookup_host((name.as_str(), self.port)).await.map_err(failed)?.collect();
        if addresses.is_empty() {
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
        }
        Ok((addresses, Some(clock::now() - started)))
    }
}

impl Dial for NetDialer {
    fn dial(&self, deadline: Instant) -> Dialing<'_> {
        Box::pin(self.open(deadline))
    }
}

/// Connects to the first address that answers; `None` when the deadline passes first.
///
/// Each address gets an equal part of the time that is left, so that a silent first one (often IPv6) does not use up the
/// time of the second.
async fn connect(addresses: &[SocketAddr], deadline: Instant) -> Result<Option<TcpStream>, DialError> {
    let mut failure = None;
    for (tried, &address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let now = clock::now();
        let until = now + deadline.saturating_duration_since(now) / left;
        match timeout_at(until, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Without it a small request could wait for the acknowledgement of the one before.
                stream.set_nodelay(true).map_err(|source| DialError::Local { source })?;
                return Ok(Some(stream));
            }
            Ok(Err(source)) if is_local(&source) => return Err(DialError::Local { source }),
            Ok(Err(source)) => failure = Some(DialError::Connect { address, source }),
            Err(_) => {}
        }
    }
    failure.map_or(Ok(None), Err)
}

/// Whether the error is this machine's: descriptors, ports, buffers, memory.
pub(super) fn is_local(error: &io::Error) -> bool {
    // ENOMEM, ENFILE, EMFILE, EADDRNOTAVAIL, ENOBUFS on Linux; std names only some of them.
    matches!(error.raw_os_error(), Some(12 | 23 | 24 | 99 | 105))
}
