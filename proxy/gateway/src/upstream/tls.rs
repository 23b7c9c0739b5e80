//! Whom to trust: the machine's certificates, else those that come with this program.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, crypto::ring};

use crate::config::ConfigError;

/// TLS with rustls on ring.
pub(super) fn config() -> Result<ClientConfig, ConfigError> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    let (n_added, n_ignored) = roots.add_parsable_certificates(native.certs);
    for error in native.errors {
        tracing::debug!(%error, "a certificate of this machine cannot be read");
    }
    if n_added == 0 {
        // A bare container has none.
        roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
    }
    tracing::debug!(n_added, n_ignored, n_roots = roots.len(), "certificates");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| ConfigError::Tls {
        reason: error.to_string(),
    })?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
