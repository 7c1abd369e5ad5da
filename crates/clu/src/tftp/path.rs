//! The names of files of a CLU.

use std::fmt;

use crate::limit;

/// The name of a file of a CLU: a drive and one or more names, `a:\MAIN.LUA`. Comparisons ignore the case of ASCII letters.
///
/// ```
/// use fodo_clu::tftp::FilePath;
///
/// let path = FilePath::parse(b"A:\\main.lua").unwrap();
/// assert_eq!(path, FilePath::parse(b"a:/MAIN.LUA").unwrap());
/// assert_eq!(path.drive(), 'a');
/// assert_eq!(path.names().collect::<Vec<_>>(), ["main.lua"]);
/// assert_eq!(path.to_string(), "a:\\main.lua");
/// assert!(FilePath::parse(b"a:\\..\\keys.json").is_none());
/// ```
#[derive(Clone, Debug)]
pub struct FilePath {
    drive: char,
    /// With `/` between the names.
    names: String,
}

impl FilePath {
    /// Parses a name; without a drive it is on the drive `a`. `\` and `/` are the same.
    ///
    /// `None` if a part is empty, `.` or `..`, contains `:` or a control character, or ends with a blank or a point, which
    /// some file systems ignore; or if the name is too long or has too many parts. So a path never leaves its drive.
    pub fn parse(text: &[u8]) -> Option<FilePath> {
        let text = std::str::from_utf8(text).ok()?;
        if text.len() > limit::TFTP_PATH_BYTES_MAX {
            return None;
        }
        let (drive, rest) = match text.as_bytes() {
            [drive, b':', ..] if drive.is_ascii_alphabetic() => (drive.to_ascii_lowercase(), text.get(2..)?),
            _ => (b'a', text),
        };
        let names = rest.replace('\\', "/");
        let names = names.strip_prefix('/').unwrap_or(&names);
        let is_valid = |name: &str| {
            !name.is_empty()
                && !name.ends_with(['.', ' '])
                && !name.contains(|character: char| character == ':' || character.is_control())
        };
        let is_path = names.split('/').count() <= limit::TFTP_PATH_PARTS_MAX && names.split('/').all(is_valid);
        is_path.then(|| FilePath { drive: char::from(drive), names: names.to_string() })
    }

    /// The letter of the drive in lower case.
    pub fn drive(&self) -> char {
        self.drive
    }

    /// The names of the folders and of the file, as the client wrote them. Find the file without regard to case.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.split('/')
    }
}

impl PartialEq for FilePath {
    fn eq(&self, other: &FilePath) -> bool {
        self.drive == other.drive && self.names.eq_ignore_ascii_case(&other.names)
    }
}

impl Eq for FilePath {}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:\\{}", self.drive, self.names.replace('/', "\\"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<String> {
        FilePath::parse(text.as_bytes()).map(|path| path.to_string())
    }

    #[test]
    fn names_have_a_drive_and_either_separator() {
        for text in ["a:\\MAIN.LUA", "A:/MAIN.LUA", "a:MAIN.LUA", "/MAIN.LUA", "MAIN.LUA"] {
            assert_eq!(parsed(text).as_deref(), Some("a:\\MAIN.LUA"), "{text}");
        }
        assert_eq!(parsed("m:\\x\\y.txt").as_deref(), Some("m:\\x\\y.txt"));
    }

    #[test]
    fn no_name_leaves_its_drive() {
        let escapes = [
            "",
            "a:",
            "a:\\",
            "..",
            "a:\\..",
            "a:\\..\\x",
            "a:/x/../../y",
            "//etc/passwd",
            "a:\\\\host\\x",
            "a:\\b:\\x",
            "1:\\x",
            "ab:\\x",
            ".",
            "a:\\.\\x",
            "x\0y",
            "x\ny",
            "x/",
            "... ",
            "x.",
            "x ",
        ];
        for text in escapes {
            assert_eq!(parsed(text), None, "{text:?}");
        }
        assert_eq!(FilePath::parse(b"\xff"), None);
        assert_eq!(parsed(&"x".repeat(limit::TFTP_PATH_BYTES_MAX + 1)), None);
        assert!(parsed("x/".repeat(limit::TFTP_PATH_PARTS_MAX).trim_end_matches('/')).is_some());
        assert_eq!(parsed(&format!("{}x", "x/".repeat(limit::TFTP_PATH_PARTS_MAX))), None);
    }
}
