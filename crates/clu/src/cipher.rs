//! The cipher of datagrams: AES with 128 bits in CBC mode, with a constant initialisation vector.
//!
//! The initialisation vector is part of the key, and a datagram has no checksum and no counter. So equal commands are
//! equal datagrams, a recorded datagram can be sent again, and bits of it can be changed. The padding of a datagram
//! shows whether a key fits, with an error in one of 256.

use std::fmt;

use aes::Aes128;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, InnerIvInit, KeyInit};
use zeroize::Zeroizing;

/// Size of a key, of an initialisation vector and of a block.
pub const BLOCK_BYTES: usize = 16;

/// A key or an initialisation vector.
pub type Block = [u8; BLOCK_BYTES];

/// Size of the random bytes of a discovery.
pub const CHALLENGE_BYTES: usize = 30;

/// The random bytes by which a client and a CLU prove in a discovery that they have the same key.
pub type Challenge = [u8; CHALLENGE_BYTES];

/// An encrypted [`Challenge`].
pub type SealedChallenge = [u8; 2 * BLOCK_BYTES];

/// Length of a PIN.
pub const PIN_BYTES: usize = 8;

/// The key of discoveries, the same in all installations.
const BROADCAST_KEY: Block =
    [0x85, 0xde, 0x52, 0x1e, 0x9c, 0x65, 0xd0, 0xde, 0x7e, 0x58, 0x45, 0xd3, 0x5e, 0x53, 0xd0, 0x9b];

/// The initialisation vector of requests to discover CLUs.
const BROADCAST_IV: Block = [7, 6, 5, 4, 3, 2, 1, 0, 4, 2, 9, 3, 4, 1, 5, 7];

/// With a PIN this results in the first key of a CLU.
const PIN_CONSTANT: Block =
    [0xb9, 0xaf, 0xe3, 0x87, 0xf9, 0x19, 0xa3, 0xd3, 0xa0, 0xd7, 0x9a, 0xde, 0x8e, 0x11, 0xa1, 0x16];

/// A key with its initialisation vector and its schedule. All of it is overwritten when it is dropped, and its `Debug`
/// form contains none of it.
///
/// ```
/// use fodo_clu::cipher::CipherKey;
///
/// let key = CipherKey::new([1; 16], [2; 16]);
/// let mut datagram = Vec::new();
/// key.encrypt(b"req_start_ftp", &mut datagram);
/// assert_eq!(datagram.len(), 16);
///
/// let mut buffer = Vec::new();
/// assert_eq!(key.decrypt(&datagram, &mut buffer), Some(&b"req_start_ftp"[..]));
/// assert_eq!(key.decrypt(b"no whole blocks", &mut buffer), None);
/// assert_eq!(format!("{key:?}"), "CipherKey { .. }");
/// ```
#[derive(Clone)]
pub struct CipherKey {
    schedule: Aes128,
    key: Zeroizing<Block>,
    iv: Zeroizing<Block>,
}

impl CipherKey {
    /// Creates a key with its schedule.
    pub fn new(key: Block, iv: Block) -> CipherKey {
        let key = Zeroizing::new(key);
        CipherKey { schedule: Aes128::new((&*key).into()), key, iv: Zeroizing::new(iv) }
    }

    /// The key of requests to discover CLUs. The reply has the same key, with the initialisation vector that the request
    /// contains ([`CipherKey::with_iv`]).
    pub fn broadcast() -> CipherKey {
        CipherKey::new(BROADCAST_KEY, BROADCAST_IV)
    }

    /// The first key of a CLU, before it is given one. A CLU chooses `iv` and sends it in its reply to a discovery.
    pub fn initial(pin: &Pin, iv: Block) -> CipherKey {
        let mut key = Zeroizing::new(PIN_CONSTANT);
        let forward_and_back = pin.0.iter().chain(pin.0.iter().rev());
        for (byte, digit) in key.iter_mut().zip(forward_and_back) {
            *byte ^= digit;
        }
        CipherKey::new(*key, iv)
    }

    /// The same key with another initialisation vector.
    pub fn with_iv(&self, iv: Block) -> CipherKey {
        CipherKey { iv: Zeroizing::new(iv), ..self.clone() }
    }

    /// The bytes of the key. The caller must overwrite its copies.
    pub fn key(&self) -> &Block {
        &self.key
    }

    /// The initialisation vector.
    pub fn iv(&self) -> &Block {
        &self.iv
    }

    /// Appends the encrypted `message` to `out`: 1 to 16 bytes more, in whole blocks.
    pub fn encrypt(&self, message: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        // With space for the padding, so that no memory with the message is given back before it is encrypted.
        out.reserve(padded_bytes(message.len()));
        out.extend_from_slice(message);
        self.encrypt_from(start, out);
    }

    /// Encrypts the bytes of `out` from `start` on in place and appends their padding. A caller whose message is secret
    /// reserves the space for it, because an allocation for the padding would leave a copy of the message in memory.
    pub fn encrypt_from(&self, start: usize, out: &mut Vec<u8>) {
        let start = start.min(out.len());
        let n_message = out.len() - start;
        out.resize(start + padded_bytes(n_message), 0);
        let encryptor = cbc::Encryptor::inner_iv_init(&self.schedule, (&*self.iv).into());
        let is_padded = encryptor.encrypt_padded::<Pkcs7>(&mut out[start..], n_message).is_ok();
        debug_assert!(is_padded, "the blocks have space for the padding");
    }

    /// Decrypts a datagram; `None` if its length is not that of whole blocks, or if its padding is invalid, as with
    /// another key.
    ///
    /// `buffer`: its bytes are overwritten, its memory is reused. Its first bytes become the message.
    pub fn decrypt<'a>(&self, datagram: &[u8], buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        if !is_whole_blocks(datagram) {
            return None;
        }
        if buffer.len() < datagram.len() {
            buffer.resize(datagram.len(), 0);
        }
        let decryptor = cbc::Decryptor::inner_iv_init(&self.schedule, (&*self.iv).into());
        decryptor.decrypt_padded_b2b::<Pkcs7>(datagram, buffer).ok()
    }

    /// Encrypts random bytes, or their [`hash`].
    pub fn seal(&self, challenge: &Challenge) -> SealedChallenge {
        let mut sealed = [0; 2 * BLOCK_BYTES];
        sealed[..CHALLENGE_BYTES].copy_from_slice(challenge);
        let encryptor = cbc::Encryptor::inner_iv_init(&self.schedule, (&*self.iv).into());
        let is_padded = encryptor.encrypt_padded::<Pkcs7>(&mut sealed, CHALLENGE_BYTES).is_ok();
        debug_assert!(is_padded, "two blocks have space for 30 bytes and their padding");
        sealed
    }

    /// Decrypts what [`CipherKey::seal`] encrypted; `None` with another key.
    pub fn open(&self, sealed: &SealedChallenge) -> Option<Challenge> {
        let mut opened = *sealed;
        let decryptor = cbc::Decryptor::inner_iv_init(&self.schedule, (&*self.iv).into());
        decryptor.decrypt_padded::<Pkcs7>(&mut opened).ok()?.try_into().ok()
    }
}

impl PartialEq for CipherKey {
    fn eq(&self, other: &CipherKey) -> bool {
        (&*self.key, &*self.iv) == (&*other.key, &*other.iv)
    }
}

impl Eq for CipherKey {}

impl fmt::Debug for CipherKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CipherKey").finish_non_exhaustive()
    }
}

/// Size of a message with its padding.
const fn padded_bytes(n_message: usize) -> usize {
    (n_message / BLOCK_BYTES + 1) * BLOCK_BYTES
}

/// Whether a datagram can be decrypted: at least one block, and no part of one. Check this before any key is tried.
pub fn is_whole_blocks(datagram: &[u8]) -> bool {
    !datagram.is_empty() && datagram.len().is_multiple_of(BLOCK_BYTES)
}

/// The answer to the random bytes of a discovery. Bytes count as signed, and remainders have the sign of the dividend.
pub fn hash(challenge: &Challenge) -> Challenge {
    let mut hash = [0; CHALLENGE_BYTES];
    let mut last = (challenge[0] ^ challenge[CHALLENGE_BYTES - 1]) as i8;
    hash[0] = last as u8;
    for (out, byte) in hash.iter_mut().zip(challenge).skip(1) {
        let product = (i32::from(last) % 13 + 1) * (i32::from(*byte as i8) % 19 + 1);
        last = product as i8;
        *out = last as u8;
    }
    hash
}

/// The PIN on the label of a CLU: 8 characters of ASCII. It is overwritten when it is dropped, and its `Debug` form does
/// not contain it.
#[derive(Clone, PartialEq, Eq)]
pub struct Pin(Zeroizing<[u8; PIN_BYTES]>);

impl Pin {
    /// Creates a PIN; `None` unless it has 8 visible characters of ASCII.
    ///
    /// ```
    /// use fodo_clu::cipher::Pin;
    ///
    /// assert!(Pin::new("1234ABCD").is_some());
    /// assert!(Pin::new("1234").is_none());
    /// ```
    pub fn new(text: &str) -> Option<Pin> {
        let characters: [u8; PIN_BYTES] = text.as_bytes().try_into().ok()?;
        characters.iter().all(u8::is_ascii_graphic).then(|| Pin(Zeroizing::new(characters)))
    }

    /// The characters.
    pub fn as_bytes(&self) -> &[u8; PIN_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pin").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const PROJECT_KEY: Block =
        [0x78, 0x97, 0xb8, 0x66, 0x9e, 0xe8, 0x28, 0x90, 0xde, 0x3f, 0x25, 0xfa, 0x07, 0x69, 0x42, 0x5e];
    pub(crate) const PROJECT_IV: Block =
        [0x9b, 0xff, 0x07, 0xff, 0x7f, 0x73, 0x7e, 0x3e, 0xf1, 0x07, 0x19, 0x5f, 0xdb, 0xd5, 0xf9, 0xdc];

    /// The bytes of hexadecimal digits.
    pub(crate) fn bytes(digits: &str) -> Vec<u8> {
        let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    }

    fn challenge(first: u8) -> Challenge {
        std::array::from_fn(|index| first + index as u8)
    }

    // The keys, datagrams and hashes are those of OpenGr8ton, version of October 2025.

    #[test]
    fn the_first_key_depends_on_the_pin() {
        for (pin, expected) in
            [("00000000", "899fd3b7c92993e390e7aaeebe219126"), ("12345678", "889dd0b3cc2f94eb98e0acebba229327")]
        {
            assert_eq!(CipherKey::initial(&Pin::new(pin).unwrap(), [0; 16]).key()[..], bytes(expected), "{pin}");
        }
    }

    #[test]
    fn commands_are_encrypted_as_by_object_manager() {
        let key = CipherKey::new(PROJECT_KEY, PROJECT_IV);
        for (command, expected) in [
            (
                "req:127.0.0.1:0000abcd:checkAlive()\r\n",
                "044082004566077f7eba12064b89bb5a8fdd0eb11b77133074d6a6f80e479da57c53d39e667f13c5fa0cb86f263f313a",
            ),
            (
                "resp:127.0.0.1:0000abcd:00000000",
                "3448436b7c96dd39de4dbfdbb1febde6351ade1302fcfbece9d8a74afa7b2506db8ee1cf3ebd72647800a31cb32d4f59",
            ),
            ("req_start_ftp", "3679fcc9f69d232232751392facd8f02"),
            ("resp:OK", "49e4e63a06698af92a64a980c471033d"),
            ("resp:ERROR", "241a4b663d5f2a7ce10e18c50ceb5116"),
        ] {
            let (mut datagram, mut buffer) = (vec![1, 2, 3], Vec::new());
            key.encrypt(command.as_bytes(), &mut datagram);

            assert_eq!(datagram[3..], bytes(expected), "{command}");
            assert_eq!(key.decrypt(&datagram[3..], &mut buffer), Some(command.as_bytes()));
        }
    }

    #[test]
    fn the_hash_counts_with_signed_bytes() {
        let expected = bytes("1d081b082d2a1c186c3284b8b20e1e5033ea6801040f0c41063158635a8f");
        assert_eq!(hash(&challenge(0))[..], expected);
        let expected = bytes("1dd058922dc815ca05e81ef6090001de7079ba34f479ce5a98f924c908e5");
        assert_eq!(hash(&challenge(0x80))[..], expected);
        assert_eq!(hash(&[0xff; CHALLENGE_BYTES]), [0; CHALLENGE_BYTES]);
    }

    #[test]
    fn only_the_same_key_opens_a_sealed_challenge() {
        let key = CipherKey::new(PROJECT_KEY, PROJECT_IV);

        let sealed = key.seal(&challenge(5));

        assert_eq!(key.open(&sealed), Some(challenge(5)));
        assert_eq!(CipherKey::broadcast().open(&sealed), None);
        assert_eq!(key.with_iv([0; 16]).key(), key.key());
        assert_ne!(key.with_iv([0; 16]).open(&sealed), Some(challenge(5)));
    }

    #[test]
    fn parts_of_blocks_and_empty_datagrams_are_not_decrypted() {
        let (key, mut buffer) = (CipherKey::broadcast(), Vec::new());
        for n_bytes in [0, 1, 15, 17, 2047] {
            assert_eq!(key.decrypt(&vec![0; n_bytes], &mut buffer), None, "{n_bytes}");
        }
    }

    #[test]
    fn any_command_is_decrypted_to_itself_and_not_by_another_key() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut datagram, mut buffer, mut n_opened_by_other) = (Vec::new(), Vec::new(), 0);
        for n_bytes in 0..500 {
            let key = CipherKey::new(random.u128(..).to_ne_bytes(), random.u128(..).to_ne_bytes());
            let other = CipherKey::new(random.u128(..).to_ne_bytes(), *key.iv());
            let command: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(n_bytes).collect();
            datagram.clear();
            key.encrypt(&command, &mut datagram);

            assert_eq!(key.decrypt(&datagram, &mut buffer), Some(&command[..]));
            n_opened_by_other += usize::from(other.decrypt(&datagram, &mut buffer).is_some());
        }
        // The padding is valid by chance in one of 256 datagrams.
        assert!(n_opened_by_other < 20, "{n_opened_by_other}");
    }

    #[test]
    fn debug_forms_contain_no_secret() {
        let key = CipherKey::new(*b"secret-secret-01", *b"secret-secret-02");

        let shown = format!("{key:?} {:?}", Pin::new("12345678"));

        assert_eq!(shown, "CipherKey { .. } Some(Pin { .. })");
    }

    #[test]
    fn a_pin_has_eight_visible_characters() {
        for invalid in ["", "1234567", "123456789", "1234 678", "12345é7"] {
            assert!(Pin::new(invalid).is_none(), "{invalid}");
        }
        assert_eq!(Pin::new("1234abCD").map(|pin| *pin.as_bytes()), Some(*b"1234abCD"));
    }
}
