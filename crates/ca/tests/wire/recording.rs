//! Reads the files that `capture.py` writes.

use std::fs;
use std::path::PathBuf;

use fodo_ca::message::Header;

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `>`
    ToServer,
    /// `<`
    ToClient,
}

/// One message as it was on the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The decoded header.
    pub header: Header,
    /// The header's bytes.
    pub header_bytes: Vec<u8>,
    /// The payload with its padding.
    pub payload: Vec<u8>,
}

impl Message {
    /// Encodes the current header and payload.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.header.encode(&mut bytes);
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// Truncates the payload or extends it with zeros.
    pub fn resize(&mut self, payload_bytes: usize) {
        self.payload.resize(payload_bytes, 0);
        self.header.payload_bytes = payload_bytes as u32;
        self.header_bytes.clear();
        self.header.encode(&mut self.header_bytes);
    }
}

/// Splits a stream or a datagram, which must end with a complete message.
pub fn messages(mut bytes: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let (header, n_header) = Header::decode(bytes).unwrap();
        let end = n_header + header.payload_bytes as usize;
        let header_bytes = bytes[..n_header].to_vec();
        messages.push(Message { header, header_bytes, payload: bytes[n_header..end].to_vec() });
        bytes = &bytes[end..];
    }
    messages
}

/// One line of a file. Lines with decoded messages are generated from the bytes.
pub enum Line {
    /// A comment.
    Comment(String),
    /// A message or a datagram, with the original line.
    Bytes(Way, Vec<u8>, String),
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

    /// Whether the file contains a circuit, not datagrams.
    pub fn is_stream(&self) -> bool {
        self.text.starts_with("# Circuit")
    }

    /// The file with decoded messages after every message.
    pub fn with_meanings(&self, meanings: impl Fn(Way, &Message) -> Vec<String>) -> String {
        let mut out = String::new();
        for line in &self.lines {
            match line {
                Line::Comment(text) => out.push_str(&format!("{text}\n")),
                Line::Bytes(way, bytes, text) => {
                    out.push_str(&format!("{text}\n"));
                    let lines = messages(bytes).into_iter().flat_map(|message| meanings(*way, &message));
                    lines.for_each(|line| out.push_str(&format!("{line}\n")));
                }
            }
        }
        out
    }

    /// All messages that can be split into header and payload.
    pub fn messages(&self) -> Vec<(Way, Message)> {
        let bytes = self.lines.iter().filter_map(|line| match line {
            Line::Bytes(way, bytes, _) => Some((*way, bytes)),
            Line::Comment(_) => None,
        });
        bytes.flat_map(|(way, bytes)| messages(bytes).into_iter().map(move |message| (way, message))).collect()
    }

    /// The messages to one end.
    pub fn messages_to(&self, to: Way) -> Vec<Message> {
        self.messages().into_iter().filter(|(way, _)| *way == to).map(|(_, message)| message).collect()
    }

    /// The messages grouped by runs in the same direction.
    pub fn turns(&self) -> Vec<(Way, Vec<u8>, Vec<Message>)> {
        let mut turns: Vec<(Way, Vec<u8>, Vec<Message>)> = Vec::new();
        for (way, message) in self.messages() {
            match turns.last_mut() {
                Some(turn) if turn.0 == way => {
                    turn.1.extend(message.bytes());
                    turn.2.push(message);
                }
                _ => turns.push((way, message.bytes(), vec![message])),
            }
        }
        turns
    }
}

fn parsed(line: &str) -> Line {
    let way = match line.as_bytes().first() {
        Some(b'>') => Way::ToServer,
        Some(b'<') => Way::ToClient,
        _ => return Line::Comment(line.into()),
    };
    Line::Bytes(way, line[1..].split_whitespace().flat_map(decode_word).collect(), line.into())
}

/// Decodes hex, `00*40` for zeros, or `i32:0+7*20000` for a series of numbers.
fn decode_word(word: &str) -> Vec<u8> {
    if let Some(n_zeros) = word.strip_prefix("00*") {
        return vec![0; n_zeros.parse().unwrap()];
    }
    if let Some(rule) = word.strip_prefix("i32:") {
        let (first, rest) = rule.split_once('+').unwrap();
        let (step, n) = rest.split_once('*').unwrap();
        let (first, step, n): (i32, i32, i32) = (first.parse().unwrap(), step.parse().unwrap(), n.parse().unwrap());
        return (0..n).flat_map(|index| (first + step * index).to_be_bytes()).collect();
    }
    let digits = |index: usize| u8::from_str_radix(&word[index..index + 2], 16).unwrap();
    (0..word.len()).step_by(2).map(digits).collect()
}
