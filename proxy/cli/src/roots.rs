//! The trusted root certificates: the machine's, else those that are compiled in.

use std::sync::Arc;

use metaclaw_llm::HttpError;
use rustls::RootCertStore;

pub(crate) fn load() -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    let (n_added, n_ignored) = roots.add_parsable_certificates(native.certs);
    for error in native.errors {
        tracing::debug!(%error, "a certificate of this machine cannot be read");
    }
    if n_added == 0 {
        // A minimal container has none.
        roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
    }
    tracing::debug!(n_added, n_ignored, n_roots = roots.len(), "certificates");
    Arc::new(roots)
}

pub(crate) fn http_client() -> Result<reqwest::Client, HttpError> {
    metaclaw_llm::http_client(&load())
}
