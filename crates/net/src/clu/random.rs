//! Random numbers of the operating system.

use fodo_clu::RandomSource;

/// From this size on, bytes may be a key, and are read from the system directly.
const KEY_BYTES: usize = 16;

/// Random numbers that cannot be predicted, from the operating system. A number of fewer than 16 bytes is taken from a
/// stock, so that most requests to a CLU cost no system call.
///
/// # Panics
///
/// Panics if the system provides no random numbers: there is no safe value instead.
///
/// ```
/// let mut random = fodo_net::clu::random_source();
/// let (mut key, mut other) = ([0; 16], [0; 16]);
/// random(&mut key);
/// random(&mut other);
/// assert_ne!(key, other);
/// ```
pub fn random_source() -> RandomSource {
    // The same source as for TLS.
    let system = rustls::crypto::ring::default_provider().secure_random;
    let fill = move |bytes: &mut [u8]| {
        #[expect(clippy::panic, reason = "without random numbers, keys would be predictable")]
        if system.fill(bytes).is_err() {
            panic!("the operating system provides no random numbers");
        }
    };
    let (mut stock, mut n_used) = ([0; 1024], 1024);
    Box::new(move |bytes| {
        if bytes.len() >= KEY_BYTES {
            return fill(bytes);
        }
        if stock.len() - n_used < bytes.len() {
            fill(&mut stock);
            n_used = 0;
        }
        let end = n_used + bytes.len();
        bytes.copy_from_slice(&stock[n_used..end]);
        n_used = end;
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn short_and_long_numbers_do_not_repeat() {
        let mut random = random_source();
        let mut seen = BTreeSet::new();
        for n_bytes in (8..40).cycle().take(2000) {
            let mut bytes = vec![0; n_bytes];
            random(&mut bytes);
            assert!(seen.insert(bytes));
        }
    }
}
