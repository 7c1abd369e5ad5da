//! Keychains of TLS: a file is a keychain, or is rejected with a reason that shows nothing of it.

use fodo_net::Keychain;

/// The password of the inputs in PKCS#12.
const PASSWORD: &str = "secret";

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    match Keychain::parse("input", bytes, PASSWORD) {
        Ok(keychain) => {
            let again = Keychain::parse("input", bytes, PASSWORD).expect("it was valid before");
            assert_eq!(keychain, again);
            assert!(!format!("{keychain:?}").contains("PRIVATE"));
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!error.reason.is_empty() && !text.contains(PASSWORD), "{text}");
        }
    }
}
