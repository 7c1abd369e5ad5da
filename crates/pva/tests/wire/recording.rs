//! Reads the files that `capture.py` writes.

use std::fs;
use std::path::PathBuf;

use fodo_pva::frame::Sender;

/// One line of a file. Lines with decoded messages are generated from the bytes.
pub enum Line {
    /// A comment.
    Comment(String),
    /// A frame or a datagram, with the original line.
    Bytes(Sender, Vec<u8>, String),
}

/// One recording file.
pub struct Recording {
    /// Its name without `.txt`.
    pub name: String,
    /// The lines except those with decoded messages.
    pub lines: Vec<Line>,
    text: String,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/wire")
}

impl Recording {
    /// All files, sorted by name.
    pub fn all() -> Vec<Recording> {
        let paths = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<String> = paths
            .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names.iter().map(|name| Recording::named(name)).collect()
    }

    /// Opens one file.
    pub fn named(name: &str) -> Recording {
        let text = fs::read_to_string(folder().join(format!("{name}.txt"))).unwrap();
        let is_meaning = |line: &&str| line.starts_with("= ") || line.starts_with("~ ");
        let lines = text.lines().filter(|line| !is_meaning(line)).map(parsed).collect();
        Recording { name: name.into(), lines, text }
    }

    /// The contents of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Writes the file.
    pub fn save(&mut self, text: &str) {
        fs::write(folder().join(format!("{}.txt", self.name)), text).unwrap();
        self.text = text.into();
    }
}

fn parsed(line: &str) -> Line {
    let from = match line.as_bytes().first() {
        Some(b'>') => Sender::Client,
        Some(b'<') => Sender::Server,
        _ => return Line::Comment(line.into()),
    };
    Line::Bytes(from, line[1..].split_whitespace().flat_map(unpacked).collect(), line.into())
}

/// Decodes hex, or `00*40` for zeros.
fn unpacked(word: &str) -> Vec<u8> {
    if let Some(n_zeros) = word.strip_prefix("00*") {
        return vec![0; n_zeros.parse().unwrap()];
    }
    let digits = |index: usize| u8::from_str_radix(&word[index..index + 2], 16).unwrap();
    (0..word.len()).step_by(2).map(digits).collect()
}
