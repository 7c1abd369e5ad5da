//! The text mode of TFTP: lines end with CR and LF, and a CR that ends no line is followed by a zero.

/// Converts a file to its transferred form.
pub(super) fn to_netascii(file: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(file.len());
    let mut rest = file;
    while let [byte, after @ ..] = rest {
        rest = after;
        match (byte, after) {
            (b'\r', [b'\n', after @ ..]) => {
                text.extend_from_slice(b"\r\n");
                rest = after;
            }
            (b'\r', _) => text.extend_from_slice(b"\r\0"),
            (b'\n', _) => text.extend_from_slice(b"\r\n"),
            (byte, _) => text.push(*byte),
        }
    }
    text
}

/// Converts a transferred text, block by block, to a file whose lines end with LF.
#[derive(Debug, Default)]
pub(super) struct NetasciiReader {
    /// Whether the last block ended with a CR, whose meaning depends on the next byte.
    has_cr: bool,
}

impl NetasciiReader {
    /// Appends the content of a block to `file`.
    pub(super) fn read(&mut self, content: &[u8], file: &mut Vec<u8>) {
        for byte in content {
            if std::mem::take(&mut self.has_cr) {
                match byte {
                    b'\n' => {
                        file.push(b'\n');
                        continue;
                    }
                    0 => {
                        file.push(b'\r');
                        continue;
                    }
                    _ => file.push(b'\r'),
                }
            }
            match byte {
                b'\r' => self.has_cr = true,
                byte => file.push(*byte),
            }
        }
    }

    /// Appends what the end of the text means.
    pub(super) fn end(&mut self, file: &mut Vec<u8>) {
        if std::mem::take(&mut self.has_cr) {
            file.push(b'\r');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], block: usize) -> Vec<u8> {
        let (mut reader, mut file) = (NetasciiReader::default(), Vec::new());
        text.chunks(block).for_each(|content| reader.read(content, &mut file));
        reader.end(&mut file);
        file
    }

    #[test]
    fn line_ends_are_converted_in_both_directions_whatever_the_blocks() {
        assert_eq!(to_netascii(b"a\nb\r\nc\rd\r"), b"a\r\nb\r\nc\r\0d\r\0");
        for block in 1..12 {
            assert_eq!(read(b"a\r\nb\r\nc\r\0d\r\0", block), b"a\nb\nc\rd\r");
            assert_eq!(read(b"a\r\r\nb\r", block), b"a\r\nb\r");
        }
    }

    #[test]
    fn a_file_whose_lines_end_with_lf_is_read_as_it_was_sent() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..500 {
            let file: Vec<u8> = (0..random.usize(0..40)).map(|_| *random.choice(b"ab\n\0\r").unwrap()).collect();
            if file.windows(2).any(|pair| pair == b"\r\n") {
                continue;
            }
            assert_eq!(read(&to_netascii(&file), random.usize(1..8)), file);
        }
    }
}
