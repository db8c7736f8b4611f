//! The TLS configuration of the load path: rustls with ring, the system's authorities, and the target's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Why no TLS configuration can be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file named by `ca_file` cannot be read or holds no certificate.
    #[error("ca_file {} cannot be used: {reason}", .path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// ring does not offer what rustls asks for: a fault of the build.
    #[error("the TLS library cannot be set up")]
    Provider(#[from] rustls::Error),
}

/// What a TLS connection needs; shared by all connections of a target.
pub type TlsConfig = Arc<ClientConfig>;

/// A client configuration that trusts the system's authorities and those in `ca_file`, and speaks HTTP/1.1 only.
///
/// A machine without authorities (a bare container) is no error here: the handshake will say that the issuer is unknown.
///
/// # Errors
/// When `ca_file` is unusable.
pub fn client_config(ca_file: Option<&Path>) -> Result<TlsConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    // Some system bundles hold certificates that no library can read; the others are still good.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        let failed = |reason: String| TlsError::CaFile { path: path.to_owned(), reason };
        let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|error| failed(error.to_string()))?;
        if certificates.is_empty() {
            return Err(failed("it holds no certificate".to_owned()));
        }
        for certificate in certificates {
            roots.add(certificate).map_err(|error| failed(error.to_string()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
