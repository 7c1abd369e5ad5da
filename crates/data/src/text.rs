use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Size in bytes of an EPICS string, for example of an element of a string array: the text and a terminating NUL.
pub const STRING_BYTES: usize = 40;

/// Maximum length in bytes of the text in an EPICS string, without the NUL.
pub const STRING_BYTES_MAX: usize = STRING_BYTES - 1;

/// Size in bytes of the label of an enum's state, with its terminating NUL.
pub const LABEL_BYTES: usize = 26;

/// A string as transferred on the wire: UTF-8 bytes at most sites, Latin-1 at old ones.
///
/// Keeping the bytes lets a client write back unchanged what it read. Cloning is cheap.
///
/// ```
/// use fodo_data::Text;
///
/// let units = Text::from_bytes(b"\xb0C\0\0"); // Latin-1, padded
/// assert_eq!(units.to_str(), "°C");
/// assert_eq!((units.as_bytes(), units.len()), (&b"\xb0C"[..], 2));
///
/// assert_eq!(Text::from("mm").to_string(), "mm");
/// assert!(Text::EMPTY.is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Option<Arc<[u8]>>);

impl Text {
    /// The empty text; costs no allocation.
    pub const EMPTY: Text = Text(None);

    /// Creates a text from the bytes before the first NUL.
    pub fn from_bytes(bytes: &[u8]) -> Text {
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        match &bytes[..end] {
            [] => Text::EMPTY,
            bytes => Text(Some(Arc::from(bytes))),
        }
    }

    /// The bytes, without the terminating NUL.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    /// The characters: UTF-8 if the bytes are valid UTF-8, otherwise Latin-1.
    pub fn to_str(&self) -> Cow<'_, str> {
        match std::str::from_utf8(self.as_bytes()) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => Cow::Owned(self.as_bytes().iter().map(|&b| char::from(b)).collect()),
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether the text has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl Default for Text {
    fn default() -> Self {
        Text::EMPTY
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text::from_bytes(text.as_bytes())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text::from_bytes(text.as_bytes())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_str())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_at_the_first_nul_and_falls_back_to_latin_1() {
        let padded = Text::from_bytes(b"mm\0junk");
        let latin = Text::from_bytes(b"\xb0C");

        assert_eq!(padded.as_bytes(), b"mm");
        assert_eq!(latin.to_str(), "\u{b0}C");
        assert_eq!(latin.as_bytes(), b"\xb0C");
    }

    #[test]
    fn the_sizes_of_strings_are_those_of_the_wire() {
        // EPICS Base: MAX_STRING_SIZE, of which the NUL takes one byte, and MAX_ENUM_STRING_SIZE.
        assert_eq!((STRING_BYTES, STRING_BYTES_MAX, LABEL_BYTES), (40, 39, 26));
    }
}
