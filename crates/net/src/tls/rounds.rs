//! The rounds of key derivation that a file in PKCS#12 states. They are counted before anything is derived, because a file may
//! state any number, and each round takes time.
//!
//! An encrypted part can contain further keys with rounds of their own, which are not seen before it is decrypted: only a
//! person who knows the password can make such a file.
//!
//! Source: RFC 7292 (PKCS#12), section 4 and appendix C; RFC 8018 (PBKDF2), appendix A.2; RFC 7914 (scrypt), section 7.

use x509_parser::asn1_rs::{Any, FromDer as _, Tag};

/// The object identifier 1.2.840.113549.1.5.12, in DER.
const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0c];
/// 1.3.6.1.4.1.11591.4.11.
const SCRYPT: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x04, 0x0b];
/// The start of the algorithms of PKCS#12 itself: 1.2.840.113549.1.12.1.
const PKCS12_ALGORITHMS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x0c, 0x01];

/// The sum of the rounds of all derivations. What is not DER counts nothing: it cannot be read either.
pub(super) fn stated(pkcs12: &[u8]) -> u64 {
    let mut n_rounds = of_mac(pkcs12).unwrap_or(0);
    // A list instead of a recursion, because a file may nest its elements as deeply as it likes. Strings of octets are searched as
    // well: PKCS#12 wraps its parts in them.
    let mut unread = vec![pkcs12];
    while let Some(bytes) = unread.pop() {
        let Ok((rest, element)) = Any::from_der(bytes) else { continue };
        if !rest.is_empty() {
            unread.push(rest);
        }
        if element.tag() == Tag::Sequence {
            n_rounds = n_rounds.saturating_add(of_algorithm(element.data).unwrap_or(0));
        }
        if element.header.is_constructed() || element.tag() == Tag::OctetString {
            unread.push(element.data);
        }
    }
    n_rounds
}

/// The rounds of the checksum of the file: the third element of its third part.
fn of_mac(pkcs12: &[u8]) -> Option<u64> {
    let (_version, rest) = next(sequence(pkcs12)?)?;
    let (_contents, rest) = next(rest)?;
    let (_digest, rest) = next(sequence(rest)?)?;
    let (_salt, rest) = next(rest)?;
    number(rest).map(|(n_rounds, _)| n_rounds)
}

/// The rounds of an algorithm: an identifier followed by its parameters.
fn of_algorithm(algorithm: &[u8]) -> Option<u64> {
    let (identifier, rest) = next(algorithm)?;
    if identifier.tag() != Tag::Oid {
        return None;
    }
    let of_parameters = || next(sequence(rest)?).map(|(_salt, rest)| rest);
    match identifier.data {
        PBKDF2 => number(of_parameters()?).map(|(n_rounds, _)| n_rounds),
        SCRYPT => {
            let (cost, rest) = number(of_parameters()?)?;
            let (block_size, rest) = number(rest)?;
            let (parallelism, _) = number(rest)?;
            Some(cost.saturating_mul(block_size).saturating_mul(parallelism))
        }
        // The key and the initialization vector are derived apart.
        other if other.starts_with(PKCS12_ALGORITHMS) => {
            number(of_parameters()?).map(|(n_rounds, _)| n_rounds.saturating_mul(2))
        }
        _ => None,
    }
}

/// The first element, and what follows it.
fn next(bytes: &[u8]) -> Option<(Any<'_>, &[u8])> {
    Any::from_der(bytes).ok().map(|(rest, element)| (element, rest))
}

/// The content of the first element, which is a sequence.
fn sequence(bytes: &[u8]) -> Option<&[u8]> {
    next(bytes).and_then(|(element, _)| (element.tag() == Tag::Sequence).then_some(element.data))
}

/// The number at the start, and what follows it. One above 64 bits, or below zero, is the greatest.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (element, rest) = next(bytes)?;
    let is_negative = element.data.first().is_some_and(|first| first & 0x80 != 0);
    let value = element.data.iter().try_fold(0_u64, |value, &byte| Some(value.checked_mul(256)? + u64::from(byte)));
    let value = value.filter(|_| !is_negative).unwrap_or(u64::MAX);
    (element.tag() == Tag::Integer).then_some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An element, with a length of up to 127 bytes.
    fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        [&[tag, u8::try_from(content.len()).unwrap()], content.as_slice()].concat()
    }

    fn algorithm(identifier: &[u8], numbers: &[&[u8]]) -> Vec<u8> {
        let numbers: Vec<u8> = numbers.iter().flat_map(|number| element(0x02, &[number])).collect();
        let parameters = element(0x30, &[&element(0x04, &[b"salt"]), &numbers]);
        element(0x30, &[&element(0x06, &[identifier]), &parameters])
    }

    #[test]
    fn the_rounds_of_each_kind_of_derivation_are_counted_wherever_it_is() {
        let of_pkcs12 = [PKCS12_ALGORITHMS, &[3]].concat();
        for (encoded, n_rounds) in [
            (algorithm(PBKDF2, &[&[0x27, 0x10]]), 10_000),
            (algorithm(PBKDF2, &[&[0x7f, 0xff, 0xff, 0xff]]), 0x7fff_ffff),
            (algorithm(PBKDF2, &[&[0x00, 0xff, 0xff, 0xff, 0xff]]), 0xffff_ffff),
            (algorithm(PBKDF2, &[&[0x80]]), u64::MAX),
            (algorithm(PBKDF2, &[&[1; 9]]), u64::MAX),
            (algorithm(SCRYPT, &[&[0x40, 0x00], &[8], &[2]]), 0x4000 * 8 * 2),
            (algorithm(&of_pkcs12, &[&[0x08, 0x00]]), 2 * 2048),
            (algorithm(b"\x2a\x03", &[&[0x08, 0x00]]), 0),
            (element(0x30, &[&element(0x06, &[PBKDF2])]), 0),
        ] {
            let in_octets = element(0x04, &[&encoded]);
            let twice = element(0x30, &[&element(0xa0, &[&in_octets]), &encoded]);

            assert_eq!((stated(&encoded), stated(&twice)), (n_rounds, n_rounds.saturating_mul(2)), "{encoded:x?}");
        }
    }

    #[test]
    fn the_rounds_of_the_checksum_are_counted() {
        let digest = element(0x30, &[&element(0x30, &[]), &element(0x04, &[b"digest"])]);
        let file = |number: &[u8]| {
            let mac = element(0x30, &[&digest, &element(0x04, &[b"salt"]), number]);
            element(0x30, &[&element(0x02, &[&[3]]), &element(0x30, &[]), &mac])
        };

        assert_eq!(stated(&file(&element(0x02, &[&[0x7f, 0xff, 0xff, 0xff]]))), 0x7fff_ffff);
        assert_eq!(stated(&file(&[])), 0, "one round, if the file names no number");
    }

    #[test]
    fn a_file_that_is_nested_deeply_takes_no_stack_and_one_that_is_cut_counts_nothing() {
        let mut nested = algorithm(PBKDF2, &[&[5]]);
        for _ in 0..5000 {
            let n_bytes = u32::try_from(nested.len()).unwrap().to_be_bytes();
            nested = [&[0x30, 0x84], &n_bytes[..], &nested].concat();
        }

        assert_eq!(stated(&nested), 5);
        nested.pop();
        assert_eq!(stated(&nested), 0);
    }
}
