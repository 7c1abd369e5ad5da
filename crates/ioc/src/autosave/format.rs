//! Save files: the values of PVs, one line each, in the format of synApps autosave.
//!
//! Source: the documentation of synApps autosave, "About save files", and how release 5.11 reads them: a name, one
//! space, and the value with C escapes up to the end of the line. Arrays are written as `@array@ { "1" "2" }`, possibly
//! over several lines. `<END>` marks the end of a complete file.
//!
//! ```
//! use fodo_ioc::autosave::format::{self, Content, SavedValue, Unusable};
//!
//! let mut file = format::header("261122-184500");
//! file += &format::missing_line(1);
//! file += &format::value_line("gap", &12.5.into());
//! file += &format::absent_line("offset");
//! assert_eq!(format::check(file.as_bytes()), Err(Unusable::Truncated));
//! file += format::LAST_LINE;
//!
//! let saved = format::read(file.as_bytes(), None).unwrap();
//! assert_eq!(saved.values, [SavedValue { pv: "gap".into(), value: Content::Scalar("12.5".into()), line: 3 }]);
//! assert_eq!(saved.n_missing, 1);
//! ```

use std::borrow::Cow;

use fodo_data::{Array, Scalar, Text, Value};
use fodo_db::{Macros, unescaped};

const END: &[u8] = b"<END>";
const ARRAY: &[u8] = b"@array@";

/// The contents of a save file, as returned by [`read`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SaveFile {
    /// In the order of the file.
    pub values: Vec<SavedValue>,
    /// The number of PVs that had no value when the file was written.
    pub n_missing: usize,
    /// Invalid lines: line number and reason.
    pub flaws: Vec<(usize, &'static str)>,
}

/// The value of one PV.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedValue {
    /// The name as written in the file: `rec`, `rec.FIELD`, `rec.FIELD$`.
    pub pv: String,
    /// The saved value.
    pub value: Content,
    /// The line on which it begins, counted from 1.
    pub line: usize,
}

/// A value in the file.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A text, a number, or a state number.
    Scalar(Text),
    /// The elements of an array, each as a text.
    Array(Vec<Text>),
}

/// Why a file is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It contains no bytes, or only white space.
    Empty,
    /// It lacks the end mark of a complete file.
    Truncated,
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Unusable::Empty => "it is empty",
            Unusable::Truncated => "it does not end with <END>, so it is incomplete",
        })
    }
}

/// Checks that a file is complete. A file that does not begin with a comment was written by hand and needs no end mark.
///
/// Source: synApps autosave 5.11, checkFile; files of releases before 1.8 have no end mark either.
pub fn check(bytes: &[u8]) -> Result<(), Unusable> {
    if bytes.trim_ascii().is_empty() {
        return Err(Unusable::Empty);
    }
    let is_whole = bytes.trim_ascii_end().ends_with(END);
    if is_whole || !bytes.starts_with(b"#") || version(bytes).is_some_and(|version| version < (1, 8)) {
        return Ok(());
    }
    Err(Unusable::Truncated)
}

/// The release that wrote the file: `R5.11` or `V4.9` in its first line.
fn version(bytes: &[u8]) -> Option<(u32, u32)> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let (_, rest) = line.split_once(['R', 'V'])?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let mut numbers = rest.get(..end)?.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Parses a save file. `macros`, if given, are expanded in its lines.
pub fn read(bytes: &[u8], macros: Option<&Macros>) -> Result<SaveFile, Unusable> {
    check(bytes)?;
    let mut saved = SaveFile::default();
    let mut rest = LineReader { bytes, number: 0 };
    while let Some(line) = rest.next() {
        let expanded = macros.and_then(|macros| macros.expand_line(std::str::from_utf8(line).ok()?).ok());
        let line = expanded.as_deref().map_or(line, str::as_bytes);
        let start = line.trim_ascii_start();
        if start.is_empty() {
            continue;
        }
        if start.starts_with(b"<") {
            break;
        }
        let name_end = start.iter().position(u8::is_ascii_whitespace).unwrap_or(start.len());
        let (name, value) = start.split_at_checked(name_end).unwrap_or((start, &[]));
        // One space ends the name; further spaces belong to the value.
        let value = value.get(1..).unwrap_or_default();
        let number = rest.number;
        let content = match value.strip_prefix(ARRAY) {
            Some(list) => rest.elements(list).map(Content::Array),
            None => Ok(Content::Scalar(Text::from_bytes(&unescaped_bytes(value)))),
        };
        if name.starts_with(b"#") {
            continue;
        }
        if let Some(count) = name.strip_prefix(b"!") {
            saved.n_missing = missing(count, value);
            continue;
        }
        match (std::str::from_utf8(name), content) {
            (Ok(name), Ok(value)) => saved.values.push(SavedValue { pv: name.to_owned(), value, line: number }),
            (_, Err(why)) => saved.flaws.push((number, why)),
            (Err(_), _) => saved.flaws.push((number, "not a valid PV name")),
        }
    }
    Ok(saved)
}

/// The number in `! 7 channel(s) not connected`. A line without a number counts as one.
fn missing(first: &[u8], rest: &[u8]) -> usize {
    let word = if first.is_empty() { rest.split(u8::is_ascii_whitespace).next().unwrap_or_default() } else { first };
    std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()).unwrap_or(1)
}

/// Replaces C escapes. Text that is not UTF-8 is returned unchanged, since no writer escaped it.
fn unescaped_bytes(bytes: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(bytes) {
        Ok(text) => unescaped(text),
        Err(_) => bytes.to_vec(),
    }
}

struct LineReader<'a> {
    bytes: &'a [u8],
    number: usize,
}

impl<'a> LineReader<'a> {
    /// The next line without its line end.
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.bytes.is_empty() {
            return None;
        }
        self.number += 1;
        let end = self.bytes.iter().position(|byte| *byte == b'\n').unwrap_or(self.bytes.len());
        let (line, rest) = self.bytes.split_at(end);
        self.bytes = rest.get(1..).unwrap_or_default();
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Parses array elements: `first` is the rest of the line, `{ "1" "2" }`; the list may continue on further lines.
    fn elements(&mut self, first: &[u8]) -> Result<Vec<Text>, &'static str> {
        let mut elements = Vec::new();
        let mut open: Option<Vec<u8>> = None;
        let mut is_begun = false;
        let mut line = first.to_vec();
        loop {
            let mut bytes = line.iter().copied();
            while let Some(byte) = bytes.next() {
                match (&mut open, byte) {
                    (Some(_), b'"') => {
                        let element = open.take().unwrap_or_default();
                        elements.push(Text::from_bytes(&unescaped_bytes(&element)));
                    }
                    (Some(element), b'\\') => element.extend([byte].into_iter().chain(bytes.next())),
                    (Some(element), byte) => element.push(byte),
                    (None, b'"') if is_begun => open = Some(Vec::new()),
                    (None, b'{') => is_begun = true,
                    (None, b'}') if is_begun => return Ok(elements),
                    (None, _) => {}
                }
            }
            // The array continues until `}` or the end of the file.
            if self.bytes.trim_ascii_start().starts_with(END) {
                return Err("an array is not closed by '}'");
            }
            line = self.next().ok_or("an array is not closed by '}'")?.to_vec();
        }
    }
}

/// The first line of a file written at `date` (`261121-152500`).
pub fn header(date: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    // synApps reads the release after the first R of the line, so it takes this file for one of its release 5.11.
    format!("# autosave R5.11 (fodo ioc {version})\tAutomatically generated - DO NOT MODIFY - {date}\n")
}

/// The line that reports how many PVs have no value; empty if all have one.
pub fn missing_line(n_missing: usize) -> String {
    match n_missing {
        0 => String::new(),
        n => format!("! {n} channel(s) not connected - or not all gets were successful\n"),
    }
}

/// The last line.
pub const LAST_LINE: &str = "<END>\n";

/// The line for a PV that has no value.
pub fn absent_line(pv: &str) -> String {
    format!("#{pv} Search Issued\n")
}

/// The line for a PV with its value. A long string (`rec.FIELD$`) is written as text, not as an array of characters.
pub fn value_line(pv: &str, value: &Value) -> String {
    let mut line = format!("{pv} ");
    match value {
        Value::Array(array) if !pv.ends_with('$') => {
            line += "@array@ { ";
            for index in 0..array.len() {
                line += &format!("\"{}\" ", element(array, index));
            }
            line.push('}');
        }
        Value::Array(_) => line += &plain(&escaped(&value.long_text().unwrap_or_default(), "")),
        Value::Scalar(scalar) => line += &plain(&shown(scalar, "")),
    }
    line.push('\n');
    line
}

/// Escapes a leading `@`, so that a text is not read as an array.
fn plain(text: &str) -> Cow<'_, str> {
    match text.strip_prefix('@') {
        Some(rest) => format!("\\100{rest}").into(),
        None => text.into(),
    }
}

fn element(array: &Array, index: usize) -> String {
    // An unescaped quote would end the element.
    array.scalar(index).map_or(String::new(), |scalar| shown(&scalar, "\""))
}

/// A scalar as text: numbers with all digits, states as numbers, because their names may be unknown at restore time.
fn shown(scalar: &Scalar, special: &str) -> String {
    match scalar {
        Scalar::Text(text) => escaped(text, special),
        Scalar::F64(number) => number_text(*number, format!("{number}"), format!("{number:e}")),
        Scalar::F32(number) => number_text(f64::from(*number), format!("{number}"), format!("{number:e}")),
        Scalar::Enum(state) => state.to_string(),
        whole => whole.to_text(None).to_string(),
    }
}

/// Uses the exponent form for very large and very small numbers, because synApps limits the length of a line.
fn number_text(number: f64, plain: String, exponent: String) -> String {
    let is_long = number != 0.0 && number.is_finite() && !(1e-5..1e15).contains(&number.abs());
    if is_long { exponent } else { plain }
}

/// Escapes special characters as octal bytes, which every reader decodes the same way. Other escapes are ambiguous,
/// because synApps unescapes array elements twice.
fn escaped(text: &Text, special: &str) -> String {
    let mut out = String::new();
    for chunk in text.as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() || character == '\\' || special.contains(character) {
                let mut bytes = [0; 4];
                character.encode_utf8(&mut bytes).bytes().for_each(|byte| out += &format!("\\{byte:03o}"));
            } else {
                out.push(character);
            }
        }
        chunk.invalid().iter().for_each(|byte| out += &format!("\\{byte:03o}"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(pv: &str, text: &str, line: usize) -> SavedValue {
        SavedValue { pv: pv.into(), value: Content::Scalar(text.into()), line }
    }

    /// Based on the example in the synApps documentation.
    const FILE: &str = "# save/restore V4.9\tAutomatically generated - DO NOT MODIFY - 060720-154526\n\
        ! 1 channel(s) not connected - or not all gets were successful\n\
        xxx:SR_ao.DISP 0\n\
        xxx:SR_ao.VAL 4.1234567890123\n\
        xxx:SR_ao.DESC  two words \n\
        xxx:SR_ao.EGU\n\
        #i_dont_exist.VAL Search Issued\n\
        #xxx:unused @array@ { \"1\"\n\"xxx:no.VAL 3\" }\n\
        xxx:SR_char_array @array@ { \"1\" \"2\"\n \"30\" }\n\
        xxx:SR_string_array @array@ { \"abc\" \"de\\\"f\" \"g{hi\\\"\" \"jkl mno} pqr\" \"\" }\r\n\
        <END>\n";

    #[test]
    fn a_synapps_save_file_is_read() {
        let saved = read(FILE.as_bytes(), None).unwrap();

        let texts = |texts: &[&str]| Content::Array(texts.iter().map(|text| Text::from(*text)).collect());
        let array = |pv: &str, value, line| SavedValue { pv: pv.into(), value, line };
        assert_eq!(
            saved.values,
            [
                scalar("xxx:SR_ao.DISP", "0", 3),
                scalar("xxx:SR_ao.VAL", "4.1234567890123", 4),
                scalar("xxx:SR_ao.DESC", " two words ", 5),
                scalar("xxx:SR_ao.EGU", "", 6),
                array("xxx:SR_char_array", texts(&["1", "2", "30"]), 10),
                array("xxx:SR_string_array", texts(&["abc", "de\"f", "g{hi\"", "jkl mno} pqr", ""]), 12),
            ]
        );
        assert_eq!((saved.n_missing, saved.flaws.len()), (1, 0));
    }

    #[test]
    fn a_save_file_truncated_at_any_byte_is_rejected() {
        let whole = FILE.len() - "\n".len();
        for end in 0..whole {
            assert!(read(&FILE.as_bytes()[..end], None).is_err(), "{end}");
        }
        assert_eq!(read(&FILE.as_bytes()[..whole], None), read(FILE.as_bytes(), None));
    }

    #[test]
    fn old_and_handwritten_save_files_need_no_end_marker() {
        assert_eq!(read(b"# save/restore V1.7\tx\nx 1\n", None).unwrap().values, [scalar("x", "1", 2)]);
        assert_eq!(read(b"x.VAL 1\n", None).unwrap().values, [scalar("x.VAL", "1", 1)]);
        assert_eq!(read(b"# autosave R5.3\tx\nx 1\n", None), Err(Unusable::Truncated));
        assert_eq!(read(b" \n", None), Err(Unusable::Empty));
    }

    #[test]
    fn macros_in_a_save_file_are_expanded_if_defined() {
        let macros = Macros::parse("P=x:").unwrap();

        let saved = read(b"$(P)a 1\n$(Q)b $(P)\n", Some(&macros)).unwrap();

        assert_eq!(saved.values, [scalar("x:a", "1", 1), scalar("$(Q)b", "$(P)", 2)]);
        assert_eq!(read(b"a $(P)\n", None).unwrap().values, [scalar("a", "$(P)", 1)]);
    }

    #[test]
    fn an_unclosed_array_is_reported_and_the_values_before_it_are_used() {
        let saved = read(b"# autosave R5.11\tx\na 1\nb @array@ { \"1\" \"2\n<END>\n", None).unwrap();

        assert_eq!(saved.values, [scalar("a", "1", 2)]);
        assert_eq!(saved.flaws, [(3, "an array is not closed by '}'")]);
    }

    #[test]
    fn save_file_values_round_trip() {
        let texts = ["@array@ { ", " a \"b\" \\n \n\t", "\u{b5}m", "", "{\"const\":[1]}"];
        let numbers = [0.1, 1e300, -2.5e-9, 123_456_789.0, f64::INFINITY];
        let mut file = header("261121-152500") + &missing_line(2) + &absent_line("gone");
        for text in texts {
            file += &value_line("t", &Value::from(text));
        }
        for number in numbers {
            file += &value_line("n", &Value::from(number));
        }
        file += &value_line("s", &Value::Scalar(Scalar::Enum(3)));
        file += &value_line("l$", &Value::characters("long \u{b5}"));
        file += &value_line("e", &Value::from(Vec::<f64>::new()));
        file += &value_line("a", &Value::from(texts.map(Text::from).to_vec()));
        file += LAST_LINE;

        let saved = read(file.as_bytes(), None).unwrap();

        let mut scalars = saved.values.iter().filter_map(|saved| match &saved.value {
            Content::Scalar(text) => Some(text.to_string()),
            Content::Array(_) => None,
        });
        assert!(scalars.by_ref().take(texts.len()).eq(texts), "{file}");
        for number in numbers {
            assert_eq!(scalars.next().unwrap().parse(), Ok(number));
        }
        assert!(scalars.eq(["3", "long \u{b5}"]));
        let arrays: Vec<&Content> = saved.values.iter().rev().take(2).map(|saved| &saved.value).collect();
        assert_eq!(*arrays[0], Content::Array(texts.map(Text::from).to_vec()));
        assert_eq!(*arrays[1], Content::Array(Vec::new()));
        assert_eq!((saved.n_missing, saved.flaws.len()), (2, 0));
    }

    #[test]
    fn save_files_preserve_bytes_that_are_not_utf_8() {
        let latin = Text::from_bytes(b"\xb0C");

        let file = value_line("x.EGU", &Value::from(latin.clone()));

        assert_eq!(file, "x.EGU \\260C\n");
        assert_eq!(read(file.as_bytes(), None).unwrap().values[0].value, Content::Scalar(latin));
        assert_eq!(read(b"x.EGU \xb0C\n", None).unwrap().values[0].value, Content::Scalar(Text::from_bytes(b"\xb0C")));
    }

    #[test]
    fn the_elements_of_an_array_begin_at_its_bracket() {
        let saved = read(b"a @array@ \"no\" } { \"1\" , \"\\\"}\"\n \"3\" }\nb 1\n", None).unwrap();

        let elements = ["1", "\"}", "3"].map(Text::from).to_vec();
        let array = SavedValue { pv: "a".into(), value: Content::Array(elements), line: 1 };
        assert_eq!(saved.values, [array, scalar("b", "1", 3)]);
    }
}
