//! The keys of a project as text: `keys.json`, the same as in OpenGr8ton's virtual CLU.
//!
//! The file is opened by a caller, who must make sure that only its owner can read it.

use std::fmt;

use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

use crate::cipher::{Block, CipherKey, PIN_BYTES, Pin};
use crate::limit;

/// The keys of a CLU, or of a client, which needs only that of the project.
///
/// ```
/// use fodo_clu::cipher::CipherKey;
/// use fodo_clu::keys::KeyFile;
///
/// let keys = KeyFile { project: CipherKey::new([1; 16], [2; 16]), initial_iv: None, pin: None };
/// let text = keys.to_text();
/// assert_eq!(KeyFile::parse(&text), Ok(keys));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    /// The key of the project: `key` and `iv`.
    pub project: CipherKey,
    /// The initialisation vector of the first key of a CLU: `defaultIV`.
    pub initial_iv: Option<Block>,
    /// The PIN of a CLU: `pin`.
    pub pin: Option<Pin>,
}

/// Why the text of a key file, or of a key in a project, was rejected. It contains nothing of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The text is not JSON.
    NoJson {
        /// The line with the error, counted from 1.
        line: usize,
    },
    /// The text is JSON, but not an object.
    NoObject,
    /// The text has more than [`limit::KEY_FILE_BYTES_MAX`].
    TooLong,
    /// This member is missing.
    Missing(&'static str),
    /// This member is not Base64 of the expected length.
    Invalid {
        /// The name of the member.
        name: &'static str,
        /// How many bytes it must have.
        expected_bytes: usize,
    },
    /// The PIN is not 8 visible characters of ASCII.
    InvalidPin,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::NoJson { line } => write!(f, "line {line} is not valid JSON"),
            KeyError::NoObject => f.write_str("the JSON must be an object with the members key and iv"),
            KeyError::TooLong => write!(f, "the file has more than {} bytes", limit::KEY_FILE_BYTES_MAX),
            KeyError::Missing(name) => write!(f, "\"{name}\" is missing"),
            KeyError::Invalid { name, expected_bytes } => {
                write!(f, "\"{name}\" must be Base64 of {expected_bytes} bytes")
            }
            KeyError::InvalidPin => write!(f, "\"pin\" must be Base64 of {PIN_BYTES} visible characters of ASCII"),
        }
    }
}

impl std::error::Error for KeyError {}

impl KeyFile {
    /// Parses the text of the file. Members that are not keys are ignored.
    pub fn parse(text: &str) -> Result<KeyFile, KeyError> {
        if text.len() > limit::KEY_FILE_BYTES_MAX {
            return Err(KeyError::TooLong);
        }
        let json: serde_json::Value =
            serde_json::from_str(text).map_err(|error| KeyError::NoJson { line: error.line() })?;
        let serde_json::Value::Object(mut members) = json else { return Err(KeyError::NoObject) };
        let mut member = |name: &str| match members.get_mut(name).map(serde_json::Value::take) {
            Some(serde_json::Value::String(text)) => Some(Zeroizing::new(text)),
            _ => None,
        };
        let key = member("key").ok_or(KeyError::Missing("key"))?;
        let iv = member("iv").ok_or(KeyError::Missing("iv"))?;
        let project = project_key(("key", &key), ("iv", &iv))?;
        let initial_iv = member("defaultIV").map(|text| bytes("defaultIV", &text).map(|iv| *iv)).transpose()?;
        let pin = member("pin").map(|text| {
            let characters: Zeroizing<[u8; PIN_BYTES]> = bytes("pin", &text)?;
            std::str::from_utf8(&*characters).ok().and_then(Pin::new).ok_or(KeyError::InvalidPin)
        });
        Ok(KeyFile { project, initial_iv, pin: pin.transpose()? })
    }

    /// The text of the file, which must be stored so that only its owner can read it.
    pub fn to_text(&self) -> Zeroizing<String> {
        let members = [
            ("key", Some(&self.project.key()[..])),
            ("iv", Some(&self.project.iv()[..])),
            ("defaultIV", self.initial_iv.as_ref().map(|iv| &iv[..])),
            ("pin", self.pin.as_ref().map(|pin| &pin.as_bytes()[..])),
        ];
        // Enough memory from the start, so that no part of a key remains where the text was before.
        let mut text = Zeroizing::new(String::with_capacity(limit::KEY_FILE_BYTES_MAX));
        text.push_str("{\n");
        for (name, value) in members.iter().filter_map(|(name, value)| value.map(|value| (name, value))) {
            if text.len() > 2 {
                text.push_str(",\n");
            }
            let mut encoded = Zeroizing::new([0; 2 * crate::cipher::BLOCK_BYTES]);
            let encoded = Base64::encode(value, &mut encoded[..]).unwrap_or_default();
            for part in ["  \"", name, "\": \"", encoded, "\""] {
                text.push_str(part);
            }
        }
        text.push_str("\n}\n");
        text
    }
}

/// A key from the texts of its two parts, each after its name.
pub(crate) fn project_key(
    (key_name, key): (&'static str, &str),
    (iv_name, iv): (&'static str, &str),
) -> Result<CipherKey, KeyError> {
    Ok(CipherKey::new(*bytes(key_name, key)?, *bytes(iv_name, iv)?))
}

/// Decodes Base64 of exactly `N` bytes.
fn bytes<const N: usize>(name: &'static str, text: &str) -> Result<Zeroizing<[u8; N]>, KeyError> {
    let mut decoded = Zeroizing::new([0; N]);
    let is_whole = Base64::decode(text.trim(), &mut decoded[..]).is_ok_and(|bytes| bytes.len() == N);
    if is_whole { Ok(decoded) } else { Err(KeyError::Invalid { name, expected_bytes: N }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cipher::tests::{PROJECT_IV, PROJECT_KEY};

    const FULL: &str = "{\"key\":\"eJe4Zp7oKJDePyX6B2lCXg==\", \"iv\" : \"m/8H/39zfj7xBxlf29X53A==\",\n\
                        \"defaultIV\":\"AAECAwQFBgcICQoLDA0ODw==\",\"pin\":\"MTIzNDU2Nzg=\",\"other\":[1]}";

    #[test]
    fn a_file_of_the_virtual_clu_is_read_and_written() {
        let keys = KeyFile::parse(FULL).expect("valid keys");

        assert_eq!(keys.project, CipherKey::new(PROJECT_KEY, PROJECT_IV));
        assert_eq!(keys.initial_iv, Some(std::array::from_fn(|index| index as u8)));
        assert_eq!(keys.pin, Pin::new("12345678"));
        let text = keys.to_text();
        assert!(text.contains("  \"pin\": \"MTIzNDU2Nzg=\"\n}"), "{}", *text);
        assert_eq!(KeyFile::parse(&text), Ok(keys));
    }

    #[test]
    fn a_client_needs_only_the_key_of_the_project() {
        let keys = KeyFile { project: CipherKey::new(PROJECT_KEY, PROJECT_IV), initial_iv: None, pin: None };

        let expected = "{\n  \"key\": \"eJe4Zp7oKJDePyX6B2lCXg==\",\n  \"iv\": \"m/8H/39zfj7xBxlf29X53A==\"\n}\n";
        assert_eq!(*keys.to_text(), expected);
        assert_eq!(KeyFile::parse(expected), Ok(keys));
    }

    #[test]
    fn errors_name_the_member_and_contain_no_key() {
        for (text, expected) in [
            ("{\n\"key\":", KeyError::NoJson { line: 2 }),
            ("[]", KeyError::NoObject),
            ("{}", KeyError::Missing("key")),
            (r#"{"key":"eJe4Zp7oKJDePyX6B2lCXg=="}"#, KeyError::Missing("iv")),
            (
                r#"{"key":"eJe4Zp7oKJDePyX6B2lC","iv":"m/8H/39zfj7xBxlf29X53A=="}"#,
                KeyError::Invalid { name: "key", expected_bytes: 16 },
            ),
            (r#"{"key":"eJe4Zp7oKJDePyX6B2lCXg==","iv":"****"}"#, KeyError::Invalid { name: "iv", expected_bytes: 16 }),
            (FULL.replace("MTIzNDU2Nzg=", "MTIzIDU2Nzg=").as_str(), KeyError::InvalidPin),
            (" ".repeat(limit::KEY_FILE_BYTES_MAX + 1).as_str(), KeyError::TooLong),
        ] {
            let error = KeyFile::parse(text).expect_err("an invalid file");
            assert_eq!(error, expected);
            assert!(!error.to_string().contains("eJe4"), "{error}");
        }
        assert!(!format!("{:?}", KeyFile::parse(FULL)).contains("120, 151"));
    }

    /// Any change of one byte is rejected or read, without a panic.
    #[test]
    fn damaged_files_cause_no_panic() {
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..5000 {
            let mut damaged = FULL.as_bytes().to_vec();
            let index = random.usize(..damaged.len());
            damaged[index] = random.u8(1..127);
            if let Ok(keys) = KeyFile::parse(&String::from_utf8_lossy(&damaged)) {
                assert_eq!(KeyFile::parse(&keys.to_text()), Ok(keys));
            }
        }
    }
}
