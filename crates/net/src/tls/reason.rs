//! Why a handshake failed, as text for people.

use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

/// An error of TLS within an [`io::Error`].
#[derive(Debug)]
pub(super) struct TlsError(pub(super) Error);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&reason(&self.0))
    }
}

impl std::error::Error for TlsError {}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// Why TLS failed; `None` if the connection failed for another reason.
pub(crate) fn failure(error: &io::Error) -> Option<String> {
    error.get_ref()?.downcast_ref::<TlsError>().map(ToString::to_string)
}

/// The reason, as it follows the name of the peer and a colon.
fn reason(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::NoCertificatesPresented => "it has no certificate, which is required".into(),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            "it sends something other than TLS".into()
        }
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::Tls13RequiredForQuic,
        ) => "it does not support TLS 1.3".into(),
        Error::NoApplicationProtocol => "it uses TLS for another protocol than pvAccess".into(),
        error => error.to_string(),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet; check the clocks of both hosts".into()
        }
        CertificateError::UnknownIssuer => {
            "its certificate is not signed by an authority in the keychain, and is not itself in the keychain".into()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is not meant for this side of a connection (extended key usage)".into()
        }
        CertificateError::BadEncoding => "its certificate cannot be decoded".into(),
        CertificateError::BadSignature => {
            "its certificate is signed by another key than that of the authority with this name in the keychain".into()
        }
        error => format!("its certificate is rejected: {error}"),
    }
}

fn of_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "it requires a certificate of this program; the keychain has no private key".into()
        }
        AlertDescription::UnknownCA => "it does not trust the authority of this program's certificate".into(),
        AlertDescription::CertificateExpired => "it reports that this program's certificate has expired".into(),
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => "it rejects this program's certificate".into(),
        AlertDescription::NoApplicationProtocol => "it uses TLS for another protocol than pvAccess".into(),
        AlertDescription::ProtocolVersion => "it does not support TLS 1.3".into(),
        alert => format!("it ended the handshake with the alert {alert:?}"),
    }
}
