//! Reads single files of a ZIP archive in memory: stored or deflated, without encryption and without ZIP64.
//!
//! Source: PKWARE, APPNOTE.TXT, sections 4.3.7, 4.3.12 and 4.3.16.

use std::fmt;

use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_with_limit};
use zeroize::Zeroizing;

/// Why a file of an archive cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveFlaw {
    /// The bytes are not a ZIP archive, or its end is missing.
    NoArchive,
    /// A part of the archive is missing, or the file does not have its checksum.
    Damaged,
    /// The file is encrypted, or compressed by another method than deflate.
    Unsupported,
    /// The file has more bytes than the caller allows.
    TooLarge,
}

impl fmt::Display for ArchiveFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ArchiveFlaw::NoArchive => "not a ZIP archive, or its end is missing",
            ArchiveFlaw::Damaged => "the archive is damaged",
            ArchiveFlaw::Unsupported => "encryption or an unsupported method of compression",
            ArchiveFlaw::TooLarge => "the file is too large",
        })
    }
}

const END: (&[u8], usize) = (b"PK\x05\x06", 22);
const ENTRY: (&[u8], usize) = (b"PK\x01\x02", 46);
const LOCAL: (&[u8], usize) = (b"PK\x03\x04", 30);

/// The greatest length of the comment at the end of an archive.
const COMMENT_BYTES_MAX: usize = 0xffff;

/// The contents of the first file with this name, in any folder; `None` if there is none.
///
/// `bytes_max`: no more memory than this is allocated for the contents.
pub(crate) fn file(archive: &[u8], name: &str, bytes_max: usize) -> Result<Option<Zeroizing<Vec<u8>>>, ArchiveFlaw> {
    let end = end_of_directory(archive).ok_or(ArchiveFlaw::NoArchive)?;
    let mut directory = archive.get(number(end, 16, 4)..).ok_or(ArchiveFlaw::Damaged)?;
    for _ in 0..number(end, 10, 2) {
        let entry = header(directory, ENTRY).ok_or(ArchiveFlaw::Damaged)?;
        let path_end = ENTRY.1 + number(entry, 28, 2);
        let path = directory.get(ENTRY.1..path_end).ok_or(ArchiveFlaw::Damaged)?;
        if path.rsplit(|byte| *byte == b'/').next() == Some(name.as_bytes()) {
            return contents(archive, entry, bytes_max).map(Some);
        }
        let next = path_end + number(entry, 30, 2) + number(entry, 32, 2);
        directory = directory.get(next..).ok_or(ArchiveFlaw::Damaged)?;
    }
    Ok(None)
}

/// The last part of an archive, which has a comment of any length.
fn end_of_directory(archive: &[u8]) -> Option<&[u8]> {
    let last = archive.len().checked_sub(END.1)?;
    (last.saturating_sub(COMMENT_BYTES_MAX)..=last).rev().find_map(|start| header(archive.get(start..)?, END))
}

fn contents(archive: &[u8], entry: &[u8], bytes_max: usize) -> Result<Zeroizing<Vec<u8>>, ArchiveFlaw> {
    let (flags, method, checksum) = (number(entry, 8, 2), number(entry, 10, 2), number(entry, 16, 4));
    let (n_compressed, n_bytes) = (number(entry, 20, 4), number(entry, 24, 4));
    let local = archive.get(number(entry, 42, 4)..).ok_or(ArchiveFlaw::Damaged)?;
    let local_header = header(local, LOCAL).ok_or(ArchiveFlaw::Damaged)?;
    let start = LOCAL.1 + number(local_header, 26, 2) + number(local_header, 28, 2);
    let compressed = local.get(start..start.saturating_add(n_compressed)).ok_or(ArchiveFlaw::Damaged)?;
    if n_bytes > bytes_max {
        return Err(ArchiveFlaw::TooLarge);
    }
    let is_encrypted = flags & 1 != 0;
    let contents = match method {
        _ if is_encrypted => return Err(ArchiveFlaw::Unsupported),
        0 => compressed.to_vec(),
        8 => decompress_to_vec_with_limit(compressed, n_bytes.max(1)).map_err(|error| match error.status {
            // More bytes than the archive states.
            TINFLStatus::HasMoreOutput => ArchiveFlaw::TooLarge,
            _ => ArchiveFlaw::Damaged,
        })?,
        _ => return Err(ArchiveFlaw::Unsupported),
    };
    let contents = Zeroizing::new(contents);
    if contents.len() == n_bytes && crc32(&contents) as usize == checksum {
        Ok(contents)
    } else {
        Err(ArchiveFlaw::Damaged)
    }
}

/// The start of `bytes` if it is the header with this signature and size.
fn header<'a>(bytes: &'a [u8], (signature, n_bytes): (&[u8], usize)) -> Option<&'a [u8]> {
    bytes.get(..n_bytes).filter(|header| header.starts_with(signature))
}

/// A number of a header, whose least byte is the first.
fn number(header: &[u8], at: usize, n_bytes: usize) -> usize {
    let bytes = header.get(at..at + n_bytes).unwrap_or_default();
    bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// The checksum of ZIP, PNG and Ethernet.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let (mut value, mut bit) = (index as u32, 0);
            while bit < 8 {
                value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    let step = |value: u32, byte: &u8| TABLE[usize::from(value as u8 ^ byte)] ^ (value >> 8);
    !bytes.iter().fold(u32::MAX, step)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// How a file is stored.
    #[derive(Clone, Copy)]
    pub(crate) enum Method {
        Stored,
        Deflated,
    }

    fn number(n_bytes: usize, number: usize) -> Vec<u8> {
        number.to_le_bytes()[..n_bytes].to_vec()
    }

    /// An archive with these files.
    pub(crate) fn archive(files: &[(&str, &str)], method: Method) -> Vec<u8> {
        let (mut bytes, mut directory) = (Vec::new(), Vec::new());
        for (name, text) in files {
            let (code, stored) = match method {
                Method::Stored => (0, text.as_bytes().to_vec()),
                Method::Deflated => (8, miniz_oxide::deflate::compress_to_vec(text.as_bytes(), 6)),
            };
            let shared = [
                number(2, 20),
                number(2, 0),
                number(2, code),
                number(4, 0),
                number(4, crc32(text.as_bytes()) as usize),
                number(4, stored.len()),
                number(4, text.len()),
                number(2, name.len()),
            ]
            .concat();
            let place = bytes.len();
            directory
                .extend([&b"PK\x01\x02\x14\0"[..], &shared, &[0; 12], &number(4, place), name.as_bytes()].concat());
            bytes.extend([&b"PK\x03\x04"[..], &shared, &[0; 2], name.as_bytes(), &stored].concat());
        }
        let (place, n_files) = (bytes.len(), number(2, files.len()));
        bytes.extend(&directory);
        let end =
            [&b"PK\x05\x06\0\0\0\0"[..], &n_files, &n_files, &number(4, directory.len()), &number(4, place)].concat();
        bytes.extend([&end[..], &number(2, 7), b"comment"].concat());
        bytes
    }

    #[test]
    fn stored_and_deflated_files_are_read_from_any_folder() {
        let text = "some text ".repeat(100);
        for method in [Method::Stored, Method::Deflated] {
            let bytes = archive(&[("a.xml", "first"), ("b/c/d.xml", &text), ("e", "")], method);

            let read = |name| file(&bytes, name, 1000).map(|file| file.map(|file| file.to_vec()));
            assert_eq!(read("a.xml"), Ok(Some(b"first".to_vec())));
            assert_eq!(read("d.xml"), Ok(Some(text.clone().into_bytes())));
            assert_eq!(read("e"), Ok(Some(vec![])));
            assert_eq!(read("xml"), Ok(None));
        }
    }

    #[test]
    fn a_file_that_is_larger_than_allowed_or_stated_is_rejected() {
        let mut bytes = archive(&[("a", &" ".repeat(1_000_000))], Method::Deflated);
        assert_eq!(file(&bytes, "a", 999_999), Err(ArchiveFlaw::TooLarge));

        // The size in the directory becomes 100.
        let directory = bytes.windows(4).position(|part| part == b"PK\x01\x02").unwrap();
        bytes[directory + 24..directory + 28].copy_from_slice(&number(4, 100));
        assert_eq!(file(&bytes, "a", 999_999), Err(ArchiveFlaw::TooLarge));
    }

    #[test]
    fn other_bytes_are_no_archive_and_changed_ones_are_damaged() {
        for bytes in [&b""[..], b"PK\x05\x06", &[b'x'; 200_000]] {
            assert_eq!(file(bytes, "a", 100), Err(ArchiveFlaw::NoArchive));
        }
        let mut bytes = archive(&[("a", "text")], Method::Stored);
        bytes[31] ^= 1;
        assert_eq!(file(&bytes, "a", 100), Err(ArchiveFlaw::Damaged));
    }

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
