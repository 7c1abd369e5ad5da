//! Private keys of elliptic curves without their public key, as Java writes them in PKCS#12. ring requires the public key,
//! which is in the certificate.
//!
//! Source: RFC 5915 (ECPrivateKey) within RFC 5958 (PKCS#8).

use super::certificate;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
/// The optional public key of an ECPrivateKey.
const PUBLIC_KEY: u8 = 0xa1;

/// The key with the public key of a certificate added; `None` if it is not such a key, or already has one. Whether both belong
/// together is not checked here.
pub(super) fn with_public_key(pkcs8: &[u8], certificate: &[u8]) -> Option<Vec<u8>> {
    let certificate = certificate::parsed(certificate).ok()?;
    let public_key = &certificate.public_key().subject_public_key.data;
    let (key_info, []) = element(SEQUENCE, pkcs8)? else { return None };
    let (version, rest) = element(INTEGER, key_info)?;
    let (algorithm, rest) = element(SEQUENCE, rest)?;
    let (key, _attributes) = element(OCTET_STRING, rest)?;
    let (ec_key, []) = element(SEQUENCE, key)? else { return None };
    let ([1], rest) = element(INTEGER, ec_key)? else { return None };
    let (secret, []) = element(OCTET_STRING, rest)? else { return None };
    let bits = encoded(BIT_STRING, &[&[0], public_key]);
    let ec_key = encoded(
        SEQUENCE,
        &[&encoded(INTEGER, &[&[1]]), &encoded(OCTET_STRING, &[secret]), &encoded(PUBLIC_KEY, &[&bits])],
    );
    let parts = [encoded(INTEGER, &[version]), encoded(SEQUENCE, &[algorithm]), encoded(OCTET_STRING, &[&ec_key])];
    Some(encoded(SEQUENCE, &[&parts[0], &parts[1], &parts[2]]))
}

/// The content of the first element, which has this tag, and what follows it. Lengths up to 65535 bytes.
fn element(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (n_bytes, rest) = match *bytes {
        [first, n_bytes @ 0..=0x7f, ref rest @ ..] if first == tag => (usize::from(n_bytes), rest),
        [first, 0x81, n_bytes, ref rest @ ..] if first == tag => (usize::from(n_bytes), rest),
        [first, 0x82, high, low, ref rest @ ..] if first == tag => (usize::from(u16::from_be_bytes([high, low])), rest),
        _ => return None,
    };
    rest.split_at_checked(n_bytes)
}

/// An element with this content, up to 65535 bytes.
fn encoded(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut bytes = match (high, low) {
        (0, 0..=0x7f) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    bytes.extend_from_slice(&content);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_every_length_round_trip_and_a_cut_one_is_not_read() {
        for n_bytes in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff] {
            let content = vec![7; n_bytes];
            let mut bytes = encoded(OCTET_STRING, &[&content]);

            assert_eq!(element(OCTET_STRING, &bytes), Some((content.as_slice(), &[][..])), "{n_bytes}");
            assert_eq!(element(INTEGER, &bytes), None);
            bytes.pop();
            assert_eq!(element(OCTET_STRING, &bytes), None);
        }
    }
}
