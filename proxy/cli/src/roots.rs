//! The certificates that servers are trusted by: this machine's, else those that come with the program.

use std::sync::Arc;

use rustls::RootCertStore;

pub(crate) fn load() -> Arc<RootCertStore> {
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
    Arc::new(roots)
}
