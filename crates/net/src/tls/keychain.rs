//! Keychain files: the own certificate with its key, and the certificates of those that are trusted.

use std::fmt;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::Read as _;
use std::sync::{Arc, OnceLock};

use p12_keystore::Pkcs12Archive;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, Error, RootCertStore, ServerConfig};

use super::certificate::{self, TlsPeer};
use super::ec_key;
use super::policy::ClientCertificates;
use super::rounds;
use super::verifier::{ClientVerifier, ServerVerifier, Trusted};
use crate::limit;

/// The application protocol in a handshake. Peers that name none are accepted: core-pva does not.
const ALPN: &[u8] = b"pva/1";

/// A keychain: the own certificate with its private key, if there is one, and the certificates that are trusted. Cheap to
/// clone.
///
/// A file has the format PKCS#12 (`.p12`, `.pfx`) or PEM, which is recognized by its content. Trusted are: authorities that
/// issued their certificate themselves (roots), with all certificates below them; certificates that issued themselves, as
/// they are; and in PKCS#12 those that `keytool -importcert` has marked as trusted. The private key is never shown.
///
/// # Examples
///
/// ```
/// use fodo_net::Keychain;
///
/// let error = Keychain::load("/nowhere/client.p12", "secret").unwrap_err();
/// assert!(error.to_string().starts_with("the keychain \"/nowhere/client.p12\" cannot be read"));
/// ```
#[derive(Clone)]
pub struct Keychain(Arc<KeychainParts>);

struct KeychainParts {
    /// The name of the file, for messages.
    file: String,
    identity: Option<TlsPeer>,
    certificates: Vec<CertificateDer<'static>>,
    /// The own certificate and those that issued it, with the key.
    own: Option<OwnChain>,
    trusted: Arc<Trusted>,
    client: Arc<ClientConfig>,
}

/// A keychain that cannot be used. The text contains neither password nor key.
///
/// See the example of [`Keychain`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeychainError {
    /// The file.
    pub file: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for KeychainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the keychain {:?} {}", self.file, self.reason)
    }
}

impl std::error::Error for KeychainError {}

/// What a file contains.
struct KeychainContents {
    certificates: Vec<CertificateDer<'static>>,
    /// Those that the file marks as trusted.
    marked: Vec<CertificateDer<'static>>,
    key: Option<PrivateKeyDer<'static>>,
}

impl Keychain {
    /// Reads a file. `password`: of a file in PKCS#12; may be empty. Fails if the file cannot be read, is above 1 MiB, states
    /// more than 2 million rounds of key derivation or contains no certificate, if the password is wrong, and if no certificate
    /// belongs to its private key.
    pub fn load(file: &str, password: &str) -> Result<Keychain, KeychainError> {
        let failed = |reason| KeychainError { file: file.to_owned(), reason };
        let mut bytes = Vec::new();
        File::open(file)
            .and_then(|file| file.take(limit::KEYCHAIN_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|error| failed(format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > limit::KEYCHAIN_BYTES {
            return Err(failed(format!("is larger than {} bytes", limit::KEYCHAIN_BYTES)));
        }
        Keychain::parse(file, &bytes, password)
    }

    /// Parses the bytes of a file. `file`: its name, for messages. Fails like [`Keychain::load`].
    ///
    /// ```
    /// use fodo_net::Keychain;
    ///
    /// let error = Keychain::parse("empty.pem", b"-----BEGIN", "").unwrap_err();
    /// assert_eq!(error.to_string(), "the keychain \"empty.pem\" contains no certificate");
    /// ```
    pub fn parse(file: &str, bytes: &[u8], password: &str) -> Result<Keychain, KeychainError> {
        let failed = |reason: String| KeychainError { file: file.to_owned(), reason };
        let is_pem = bytes.windows(PEM.len()).any(|window| window == PEM);
        let contents = if is_pem { of_pem(bytes) } else { of_pkcs12(bytes, password) };
        let contents = contents.map_err(failed)?;
        if contents.certificates.is_empty() {
            return Err(failed("contains no certificate".into()));
        }
        let tls = |error: Error| failed(format!("cannot be used: {error}"));
        let trusted = Arc::new(trusted(&contents).map_err(tls)?);
        let KeychainContents { certificates, key, .. } = contents;
        let own = match key {
            None => None,
            Some(key) => Some(own_chain(&key, &certificates).ok_or_else(|| {
                failed("contains a private key that cannot be used, or none of its certificates belongs to it".into())
            })?),
        };
        let identity = own.as_ref().map(|(chain, _)| certificate::identity(chain, &certificates));
        let client = Arc::new(client_config(&trusted, own.as_ref()).map_err(tls)?);
        let file = file.to_owned();
        Ok(Keychain(Arc::new(KeychainParts { file, identity, certificates, own, trusted, client })))
    }

    /// The name of the file. See the example of [`Keychain::identity`].
    pub fn file(&self) -> &str {
        &self.0.file
    }

    /// The identity in the own certificate; `None` if the keychain has no private key, as that of a client which only
    /// verifies servers.
    ///
    /// ```no_run
    /// let keychain = fodo_net::Keychain::load("/etc/epics/client.p12", "secret")?;
    /// match keychain.identity() {
    ///     Some(identity) => println!("{}: {}, issued by {}", keychain.file(), identity.name, identity.authority),
    ///     None => println!("{} has no private key", keychain.file()),
    /// }
    /// # Ok::<(), fodo_net::KeychainError>(())
    /// ```
    pub fn identity(&self) -> Option<&TlsPeer> {
        self.0.identity.as_ref()
    }

    /// The identity in the chain that a peer has sent, which is verified.
    pub(super) fn identity_of(&self, chain: &[CertificateDer<'static>]) -> TlsPeer {
        certificate::identity(chain, &self.0.certificates)
    }

    pub(super) fn client_config(&self) -> Arc<ClientConfig> {
        self.0.client.clone()
    }

    /// The configuration of a server. Fails if the keychain has no private key.
    pub(crate) fn server_config(&self, clients: ClientCertificates) -> Result<Arc<ServerConfig>, KeychainError> {
        let failed = |reason: String| KeychainError { file: self.0.file.clone(), reason };
        let Some((chain, key)) = &self.0.own else {
            return Err(failed("contains no private key, which a server needs".into()));
        };
        let is_required = clients == ClientCertificates::Required;
        let config = ClientVerifier::new(self.0.trusted.clone(), is_required).and_then(|verifier| {
            ServerConfig::builder_with_provider(provider())
                .with_protocol_versions(&[&TLS13])?
                .with_client_cert_verifier(Arc::new(verifier))
                .with_single_cert(chain.clone(), key.clone_key())
        });
        let mut config = config.map_err(|error| failed(format!("cannot be used: {error}")))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Without tickets each handshake verifies certificates, so one that has expired opens no further circuit.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

impl PartialEq for Keychain {
    /// Whether both have the same file name, certificates and key.
    fn eq(&self, other: &Keychain) -> bool {
        let (one, other) = (&self.0, &other.0);
        let key = |parts: &KeychainParts| parts.own.as_ref().map(|(_, key)| key.secret_der().to_vec());
        Arc::ptr_eq(one, other)
            || (&one.file, &one.certificates, key(one)) == (&other.file, &other.certificates, key(other))
    }
}

impl Eq for Keychain {}

impl Hash for Keychain {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.0.file, &self.0.certificates).hash(state);
    }
}

impl fmt::Debug for Keychain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keychain")
            .field("file", &self.0.file)
            .field("identity", &self.0.identity)
            .finish_non_exhaustive()
    }
}

const PEM: &[u8] = b"-----BEGIN";
const ENCRYPTED_KEY: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY";

/// The cryptography: ring.
pub(super) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}

fn of_pem(bytes: &[u8]) -> Result<KeychainContents, String> {
    if bytes.windows(ENCRYPTED_KEY.len()).any(|window| window == ENCRYPTED_KEY) {
        return Err("contains an encrypted private key; use a file in PKCS#12, or a key without a password".into());
    }
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(bytes) {
        let certificate = certificate.map_err(|error| format!("contains a certificate that is not PEM: {error}"))?;
        if !certificates.contains(&certificate) {
            certificates.push(certificate);
        }
    }
    let key = match PrivateKeyDer::from_pem_slice(bytes) {
        Ok(key) => Some(key),
        Err(rustls::pki_types::pem::Error::NoItemsFound) => None,
        Err(error) => return Err(format!("contains a private key that is not PEM: {error}")),
    };
    Ok(KeychainContents { certificates, marked: Vec::new(), key })
}

fn of_pkcs12(bytes: &[u8], password: &str) -> Result<KeychainContents, String> {
    let n_rounds = rounds::stated(bytes);
    if n_rounds > limit::KEYCHAIN_ROUNDS {
        let most = limit::KEYCHAIN_ROUNDS;
        return Err(format!(
            "states {n_rounds} rounds of key derivation; at most {most} are accepted, so make it again with fewer"
        ));
    }
    let Pkcs12Archive { keys, certs, .. } = Pkcs12Archive::from_pkcs12(bytes, password)
        .map_err(|error| format!("is neither PEM nor PKCS#12 with this password: {error}"))?;
    if keys.len() > 1 {
        return Err(format!("contains {} private keys; a keychain has one", keys.len()));
    }
    let key = keys.first().map(|bag| PrivatePkcs8KeyDer::from(bag.key.as_der().to_vec()).into());
    let mut contents = KeychainContents { certificates: Vec::new(), marked: Vec::new(), key };
    for bag in certs {
        contents.add(bag.cert.as_der());
        if bag.trusted {
            contents.marked.push(bag.cert.as_der().to_vec().into());
        }
    }
    Ok(contents)
}

impl KeychainContents {
    fn add(&mut self, der: &[u8]) {
        if !self.certificates.iter().any(|known| known.as_ref() == der) {
            self.certificates.push(der.to_vec().into());
        }
    }
}

fn trusted(contents: &KeychainContents) -> Result<Trusted, Error> {
    let (mut roots, mut exact) = (RootCertStore::empty(), Vec::new());
    for der in &contents.certificates {
        let kind = certificate::kind(der)?;
        if kind.is_self_issued || contents.marked.contains(der) {
            exact.push(der.clone());
            if kind.is_authority {
                roots.add(der.clone())?;
            }
        }
    }
    Ok(Trusted { roots: Arc::new(roots), exact })
}

/// A certificate with those that issued it up to the root, which a peer must have, and its key.
type OwnChain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn own_chain(key: &PrivateKeyDer<'static>, certificates: &[CertificateDer<'static>]) -> Option<OwnChain> {
    let (own, key) = certificates.iter().find_map(|der| Some((der, key_of(der, key)?)))?;
    let mut chain = vec![own.clone()];
    while let Some(last) = chain.last()
        && let Some(issuer) = certificates.iter().find(|other| certificate::issued_by(other, last))
        && !chain.contains(issuer)
        && chain.len() < limit::CHAIN_CERTIFICATES
    {
        chain.push(issuer.clone());
    }
    Some((chain, key))
}

/// The key as ring accepts it, if it belongs to this certificate.
fn key_of(der: &CertificateDer<'static>, key: &PrivateKeyDer<'static>) -> Option<PrivateKeyDer<'static>> {
    let completed = ec_key::with_public_key(key.secret_der(), der).map(|bytes| PrivatePkcs8KeyDer::from(bytes).into());
    let key = completed.unwrap_or_else(|| key.clone_key());
    let is_own = CertifiedKey::from_der(vec![der.clone()], key.clone_key(), &provider()).is_ok();
    is_own.then_some(key)
}

fn client_config(trusted: &Arc<Trusted>, own: Option<&OwnChain>) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ServerVerifier::new(trusted.clone())));
    let mut config = match own {
        Some((chain, key)) => builder.with_client_auth_cert(chain.clone(), key.clone_key())?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Names of hosts are not used, and each handshake verifies certificates.
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    Ok(config)
}
