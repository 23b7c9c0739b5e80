//! Builds every HTTP client of reqwest.
//!
//! The clients follow no redirects (a key must not follow one), and neither retry nor decompress by themselves. They
//! use rustls with ring, and trust the certificates that the caller passes.

use std::{sync::Arc, time::Duration};

use reqwest::{ClientBuilder, redirect, retry};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

const CONNECT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(90);
const BRIEF_IDLE: Duration = Duration::from_secs(3);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// reqwest does not accept the settings.
    #[error("the HTTP client cannot be set up: {0}")]
    Client(#[from] reqwest::Error),
}

/// Makes a client for servers anywhere whose certificates are trusted by `roots`. It uses the proxies of the
/// environment.
///
/// # Errors
/// Returns [`HttpError`] if TLS cannot be set up.
pub fn http_client(roots: &Arc<RootCertStore>) -> Result<reqwest::Client, HttpError> {
    Ok(builder(roots)?.build()?)
}

/// Makes such a client for servers that close an idle connection after a few seconds, as uvicorn does after 5. The
/// client does not reuse a connection by then.
///
/// # Errors
/// Returns [`HttpError`] if TLS cannot be set up.
pub fn http_client_with_brief_idle(
    roots: &Arc<RootCertStore>,
) -> Result<reqwest::Client, HttpError> {
    Ok(builder(roots)?.pool_idle_timeout(BRIEF_IDLE).build()?)
}

/// Makes a client for servers on this machine, in plain HTTP. It uses no proxy and trusts no certificate.
///
/// # Errors
/// Returns [`HttpError`] if TLS cannot be set up.
pub fn loopback_client() -> Result<reqwest::Client, HttpError> {
    let none = Arc::new(RootCertStore::empty());
    Ok(builder(&none)?.no_proxy().build()?)
}

fn builder(roots: &Arc<RootCertStore>) -> Result<ClientBuilder, HttpError> {
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(tls_config(roots)?)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .user_agent(concat!("metaclaw/", env!("CARGO_PKG_VERSION"))))
}

/// Configures TLS with rustls on ring, and trusts `roots`.
///
/// # Errors
/// Fails if the provider supports no version of TLS.
pub fn tls_config(roots: &Arc<RootCertStore>) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(Arc::clone(roots))
        .with_no_client_auth();
    Ok(config)
}
