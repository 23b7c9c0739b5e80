//! TLS: the given certificates, and for single upstreams their own authority.

use std::{path::Path, sync::Arc};

use metaclaw_chat::regular;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

fn with_ca(mut roots: RootCertStore, ca: &Path) -> Result<RootCertStore, String> {
    let read = |error: &dyn std::fmt::Display| format!("{}: {error}", ca.display());
    let certificates = CertificateDer::pem_file_iter(regular(ca).map_err(|error| read(&error))?)
        .map_err(|error| read(&error))?;
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

/// Configures TLS with rustls on ring, which trusts `roots` and the certificates of `ca`.
///
/// # Errors
/// Returns why `ca` cannot be used.
pub(super) fn config(roots: RootCertStore, ca: Option<&Path>) -> Result<ClientConfig, String> {
    let roots = match ca {
        Some(ca) => with_ca(roots, ca)?,
        None => roots,
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

pub(super) fn advice(reason: &str) -> Option<&'static str> {
    const PLAIN: &str = ": the server does not speak TLS: is its address http:// and not https://?";
    const ADVICE: [(&str, &str); 4] = [
        ("InvalidContentType", PLAIN),
        ("tls handshake eof", PLAIN),
        (
            "CaUsedAsEndEntity",
            ": the server shows the certificate of an authority (CA:TRUE, as `openssl req -x509` makes it) for its own; give it one with `-addext basicConstraints=critical,CA:FALSE`, and name that as upstreams.<name>.ca",
        ),
        (
            "UnknownIssuer",
            ": name the certificate of the authority that signed the server's as upstreams.<name>.ca",
        ),
    ];
    let found = ADVICE.iter().find(|(name, _)| reason.contains(name));
    found.map(|(_, advice)| *advice)
}
