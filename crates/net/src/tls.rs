//! TLS for circuits of pvAccess: keychains, the verification of peers, and encrypted streams.
//!
//! A circuit with TLS has a [`TlsStream`] beside its socket; without TLS it has none, and its bytes take the same path as
//! before. The handshake is driven without blocking, by the reactor that owns the socket.

mod certificate;
mod ec_key;
mod keychain;
mod policy;
mod reason;
mod rounds;
mod stream;
mod verifier;

pub use self::certificate::TlsPeer;
pub use self::keychain::{Keychain, KeychainError};
pub use self::policy::{ClientCertificates, TlsPolicy};
pub(crate) use self::reason::failure;
pub(crate) use self::stream::{HandshakeProgress, TlsStream};
