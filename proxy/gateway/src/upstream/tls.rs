//! Whom to trust: the certificates that we were given, and for single upstreams an authority of their
//! own.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::config::ConfigError;

/// Adds the certificates of a PEM file.
pub(super) fn with_ca(mut roots: RootCertStore, ca: &Path) -> Result<RootCertStore, String> {
    let read = |error: &dyn std::fmt::Display| format!("{}: {error}", ca.display());
    let certificates = CertificateDer::pem_file_iter(ca).map_err(|error| read(&error))?;
    let mut n_added = 0;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| read(&error))?;
        roots.add(certificate).map_err(|error| read(&error))?;
        n_added += 1;
    }
    if n_added == 0 {
        return Err(read(&"there is no certificate in it (PEM is expected)"));
    }
    Ok(roots)
}

/// TLS with rustls on ring.
pub(super) fn config(roots: RootCertStore) -> Result<ClientConfig, ConfigError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| ConfigError::Tls {
        reason: error.to_string(),
    })?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
