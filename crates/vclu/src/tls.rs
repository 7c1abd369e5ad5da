//! TLS of the connections to brokers and HTTP servers.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// The certificates to trust: `ca.crt` of the folder, otherwise those of the operating system. With `certificate.crt` and
/// `key.pem`, the client has a certificate too. Reads files; fails with a text that names the file.
pub(crate) fn client_config(folder: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(folder)?);
    let own = folder.map(|folder| (folder.join("certificate.crt"), folder.join("key.pem")));
    let config = match own.filter(|(certificate, _)| certificate.exists()) {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let failed = |error: rustls::pki_types::pem::Error| format!("{}: {error}", key.display());
            let private = PrivateKeyDer::from_pem_file(&key).map_err(failed)?;
            builder
                .with_client_auth_cert(certificates(&certificate)?, private)
                .map_err(|error| format!("{}: {error}", certificate.display()))?
        }
    };
    Ok(Arc::new(config))
}

fn roots(folder: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let file = folder.map(|folder| folder.join("ca.crt"));
    match file.filter(|file| file.exists()) {
        Some(file) => {
            for certificate in certificates(&file)? {
                roots.add(certificate).map_err(|error| format!("{}: {error}", file.display()))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            // The operating system may list certificates that this library cannot use.
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() {
        return Err("there is no certificate to trust: put ca.crt into the folder of certificates".into());
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |reason: String| format!("{}: {reason}", path.display());
    let text = fs::read(path).map_err(|error| failed(error.to_string()))?;
    let found: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| failed(error.to_string()))?;
    if found.is_empty() { Err(failed("the file contains no certificate".into())) } else { Ok(found) }
}
