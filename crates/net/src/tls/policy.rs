//! Whether circuits use TLS.

use super::Keychain;

/// Whether a client or a server of pvAccess uses TLS; the fields [`PvaClientConfig::tls`](crate::PvaClientConfig::tls) and
/// [`PvaServerConfig::tls`](crate::PvaServerConfig::tls). Channel Access has no encryption.
///
/// # Examples
///
/// ```no_run
/// use fodo_net::{ClientConfig, Keychain, TlsPolicy};
///
/// let mut config = ClientConfig::from_env()?;
/// // Never connects over pvAccess without encryption.
/// config.pva.tls = TlsPolicy::Only(Keychain::load("/etc/epics/client.p12", "secret")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TlsPolicy {
    /// All circuits are plain TCP.
    #[default]
    Off,
    /// A circuit uses TLS if the peer offers it, otherwise plain TCP.
    Preferred(Keychain),
    /// A client connects to no server without TLS, and a server has no port for plain TCP.
    Only(Keychain),
}

impl TlsPolicy {
    /// The keychain, if TLS is used. See the example of [`TlsPolicy::is_only`].
    pub fn keychain(&self) -> Option<&Keychain> {
        match self {
            TlsPolicy::Off => None,
            TlsPolicy::Preferred(keychain) | TlsPolicy::Only(keychain) => Some(keychain),
        }
    }

    /// Whether plain TCP is refused.
    ///
    /// ```
    /// use fodo_net::TlsPolicy;
    ///
    /// assert!(!TlsPolicy::Off.is_only() && TlsPolicy::Off.keychain().is_none());
    /// ```
    pub fn is_only(&self) -> bool {
        matches!(self, TlsPolicy::Only(_))
    }
}

/// Whether clients need a certificate; the field
/// [`PvaServerConfig::client_certificates`](crate::PvaServerConfig::client_certificates).
///
/// ```
/// use fodo_net::{ClientCertificates, PvaServerConfig};
///
/// let config = PvaServerConfig { client_certificates: ClientCertificates::Required, ..PvaServerConfig::isolated() };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// A client without a certificate is accepted. The certificate of another one is verified.
    #[default]
    Optional,
    /// The handshake with a client without a certificate fails.
    Required,
}
