//! The one way to build an HTTP client of reqwest's.
//!
//! No redirects (a key must not follow one), no retries and no decompression behind our back, rustls
//! with ring, trusting the certificates that the caller hands in.

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

/// A client for servers anywhere, trusted by `roots`; the environment's proxies are used.
///
/// # Errors
/// [`HttpError`], where TLS cannot be set up.
pub fn http_client(roots: &Arc<RootCertStore>) -> Result<reqwest::Client, HttpError> {
    Ok(builder(roots)?.build()?)
}

/// The same for servers that close a connection after a few seconds, as uvicorn does after 5: it is not used again by then.
///
/// # Errors
/// [`HttpError`], where TLS cannot be set up.
pub fn http_client_with_brief_idle(
    roots: &Arc<RootCertStore>,
) -> Result<reqwest::Client, HttpError> {
    Ok(builder(roots)?.pool_idle_timeout(BRIEF_IDLE).build()?)
}

/// A client for servers on this machine, in plain HTTP: no proxy ever stands between, and no
/// certificate is trusted.
///
/// # Errors
/// [`HttpError`], where TLS cannot be set up.
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

/// TLS with rustls on ring, trusting `roots`.
///
/// # Errors
/// Where the provider has no version of TLS.
pub fn tls_config(roots: &Arc<RootCertStore>) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(Arc::clone(roots))
        .with_no_client_auth();
    Ok(config)
}
