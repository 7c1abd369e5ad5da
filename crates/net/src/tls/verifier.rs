//! Which certificates of peers are accepted.
//!
//! A chain must end at an authority of the keychain, or the peer's certificate must equal a trusted one. Names of hosts are
//! not compared: clients find servers by the names of PVs, at any address.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, RootCertStore, SignatureScheme,
};

use super::certificate::{self, CertificateUsage};
use super::keychain::provider;

/// The certificates that a keychain trusts.
#[derive(Debug)]
pub(super) struct Trusted {
    /// Authorities whose certificates are accepted.
    pub(super) roots: Arc<RootCertStore>,
    /// Certificates that are accepted as they are.
    pub(super) exact: Vec<CertificateDer<'static>>,
}

impl Trusted {
    /// Checks a certificate that is trusted as it is; `None` if it is not.
    fn check_exact(
        &self,
        end_entity: &CertificateDer<'_>,
        usage: CertificateUsage,
        now: UnixTime,
    ) -> Option<Result<(), Error>> {
        let is_known = self.exact.iter().any(|trusted| trusted.as_ref() == end_entity.as_ref());
        is_known.then(|| certificate::check(end_entity, usage, now))
    }
}

/// Accepts servers.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    trusted: Arc<Trusted>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerVerifier {
    pub(super) fn new(trusted: Arc<Trusted>) -> ServerVerifier {
        ServerVerifier { trusted, algorithms: provider().signature_verification_algorithms }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Trusted { roots, .. } = &*self.trusted;
        match self.trusted.check_exact(end_entity, CertificateUsage::Server, now) {
            Some(checked) => checked?,
            None => {
                let parsed = ParsedCertificate::try_from(end_entity)?;
                verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, self.algorithms.all)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Accepts clients.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    trusted: Arc<Trusted>,
    /// Verifies chains; `None` if the keychain has no authority.
    chains: Option<Arc<dyn ClientCertVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
    is_required: bool,
}

impl ClientVerifier {
    /// `is_required`: a client must have a certificate.
    pub(super) fn new(trusted: Arc<Trusted>, is_required: bool) -> Result<ClientVerifier, Error> {
        let builder = || WebPkiClientVerifier::builder_with_provider(trusted.roots.clone(), provider()).build();
        let chains = match trusted.roots.is_empty() {
            true => None,
            false => Some(builder().map_err(|error| Error::General(error.to_string()))?),
        };
        let algorithms = provider().signature_verification_algorithms;
        Ok(ClientVerifier { trusted, chains, algorithms, is_required })
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    /// None: a client sends the certificate that it has, also one that is trusted as it is.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match (self.trusted.check_exact(end_entity, CertificateUsage::Client, now), &self.chains) {
            (Some(checked), _) => checked.map(|()| ClientCertVerified::assertion()),
            (None, Some(chains)) => chains.verify_client_cert(end_entity, intermediates, now),
            (None, None) => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
