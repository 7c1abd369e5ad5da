//! What certificates contain: names, validity, usage.

use std::collections::HashSet;
use std::fmt;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, Error};
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Name};

use crate::limit;

/// The identity of a peer, from its verified certificate. See the example of
/// [`Keychain::identity`](crate::Keychain::identity).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsPeer {
    /// The common name (CN) of its certificate; empty if it has none.
    pub name: String,
    /// The common names of the authorities that issued the certificate, the root first, separated by line feeds. Of a
    /// self-signed certificate, its own name.
    pub authority: String,
}

impl fmt::Display for TlsPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, issued by {:?}", self.name, self.authority.replace('\n', " / "))
    }
}

/// What a certificate is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertificateUsage {
    Server,
    Client,
}

/// What decides whether a certificate of a keychain is trusted.
pub(super) struct CertificateKind {
    /// Its issuer is itself.
    pub(super) is_self_issued: bool,
    /// It may issue other certificates.
    pub(super) is_authority: bool,
}

/// Parses a certificate; rejects what follows it.
pub(super) fn parsed(der: &[u8]) -> Result<X509Certificate<'_>, Error> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err(CertificateError::BadEncoding.into()),
    }
}

pub(super) fn kind(der: &[u8]) -> Result<CertificateKind, Error> {
    let certificate = parsed(der)?;
    let constraints = certificate.basic_constraints().map_err(|_| CertificateError::BadEncoding)?;
    Ok(CertificateKind {
        is_self_issued: certificate.subject().as_raw() == certificate.issuer().as_raw(),
        is_authority: constraints.is_some_and(|constraints| constraints.value.ca),
    })
}

/// Checks the validity and the usage of a certificate that is trusted as it is.
pub(super) fn check(der: &[u8], usage: CertificateUsage, now: UnixTime) -> Result<(), Error> {
    let certificate = parsed(der)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < certificate.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > certificate.validity().not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    let usages = certificate.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    let permits = |usages: &x509_parser::extensions::ExtendedKeyUsage<'_>| {
        usages.any || if usage == CertificateUsage::Server { usages.server_auth } else { usages.client_auth }
    };
    if usages.is_some_and(|usages| !permits(usages.value)) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    Ok(())
}

/// The identity in a verified chain. `others`: certificates that may have issued those of the chain.
///
/// The peer may have sent certificates that do not belong to its chain, so each issuer must have signed the one before it.
pub(super) fn identity<'a>(chain: &'a [CertificateDer<'static>], others: &'a [CertificateDer<'static>]) -> TlsPeer {
    let Some(Ok(leaf)) = chain.first().map(|leaf| parsed(leaf)) else { return TlsPeer::default() };
    let issuers: Vec<X509Certificate<'_>> =
        chain.iter().skip(1).chain(others).filter_map(|der| parsed(der).ok()).collect();
    let mut authorities = vec![common_name(leaf.issuer())];
    let (mut issued, mut issuer) = (&leaf, leaf.issuer());
    let mut seen = HashSet::from([leaf.subject().as_raw()]);
    while seen.insert(issuer.as_raw()) && authorities.len() < limit::CHAIN_CERTIFICATES {
        let Some(found) = issuers.iter().find(|other| has_issued(other, issued)) else { break };
        (issued, issuer) = (found, found.issuer());
        if issuer.as_raw() != found.subject().as_raw() {
            authorities.push(common_name(issuer));
        }
    }
    authorities.reverse();
    TlsPeer { name: common_name(leaf.subject()), authority: authorities.join("\n") }
}

/// Whether the first certificate has issued the second one; to build the chain of a key. The name alone does not show it:
/// an authority that is renewed with another key keeps its name.
pub(super) fn issued_by(issuer: &[u8], issued: &[u8]) -> bool {
    match (parsed(issuer), parsed(issued)) {
        (Ok(issuer), Ok(issued)) => has_issued(&issuer, &issued),
        _ => false,
    }
}

fn has_issued(issuer: &X509Certificate<'_>, issued: &X509Certificate<'_>) -> bool {
    issuer.subject().as_raw() == issued.issuer().as_raw() && issued.verify_signature(Some(issuer.public_key())).is_ok()
}

/// The common name; a line feed in it could be taken for the end of a name, so it is replaced.
fn common_name(name: &X509Name<'_>) -> String {
    let common_name = name.iter_common_name().find_map(|attribute| attribute.as_str().ok());
    common_name.unwrap_or_default().replace(['\n', '\r', '\0'], " ")
}
