//! Expands templates to text: macros, `include` and `substitute`, like `msi` of EPICS Base.

use crate::limit::{INCLUDE_DEPTH_MAX, INCLUDES_MAX, LOAD_ERRORS_MAX};
use crate::load::error::{column, shown_line, too_many_includes};
use crate::load::macros::LineSource;
use crate::load::{LoadError, Macros, OpenFile};

/// How an undefined macro without default is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndefinedMacros {
    /// `$(NAME)`
    Keep,
    /// `$(NAME,undefined)`
    Mark,
}

/// The expanded text of a template.
#[derive(Debug, Default)]
pub struct ExpandedTemplate {
    /// The whole text, as bytes: bytes of the file that are not UTF-8 are copied unchanged.
    pub text: Vec<u8>,
    /// The undefined macros, with their places; at most a hundred.
    pub undefined: Vec<LoadError>,
}

/// Expands the macros of a template.
///
/// A line `include "FILE"` is replaced by that file's text, and `substitute "A=1,B=2"` defines macros for the lines
/// after it, which remain in `macros`. `open` reads the files. Fails if a file cannot be read.
pub fn expand(
    file: &str,
    macros: &mut Macros,
    undefined: UndefinedMacros,
    open: &mut OpenFile,
) -> Result<ExpandedTemplate, LoadError> {
    let source = LineSource::Template { marks_undefined: undefined == UndefinedMacros::Mark };
    let out = ExpandedTemplate::default();
    let mut work = TemplateExpander { source, open, within: Vec::new(), n_read: 0, out };
    work.file(file, macros, None)?;
    Ok(work.out)
}

struct TemplateExpander<'a, 'b> {
    source: LineSource,
    open: &'a mut OpenFile<'b>,
    within: Vec<String>,
    n_read: usize,
    out: ExpandedTemplate,
}

impl TemplateExpander<'_, '_> {
    /// Expands a file. `place`: the line that includes it.
    fn file(&mut self, file: &str, macros: &mut Macros, place: Option<&LoadError>) -> Result<(), LoadError> {
        let fail = |message: String| match place {
            Some(place) => LoadError { message, ..place.clone() },
            None => LoadError::of_file(file, message),
        };
        if self.within.iter().any(|name| name == file) || self.within.len() >= INCLUDE_DEPTH_MAX {
            let round = self.within.join(" -> ");
            return Err(fail(format!("circular or too deep include: {round} -> {file}")));
        }
        if self.n_read >= INCLUDES_MAX {
            return Err(fail(too_many_includes()));
        }
        self.n_read += 1;
        // Without a place, the error contains the name already.
        let named = place.map_or(String::new(), |_| format!("\"{file}\" "));
        let bytes = (self.open)(file).map_err(|error| fail(format!("{named}cannot be read: {error}")))?;
        let text = readable(&bytes);
        self.within.push(file.to_owned());
        for (index, line) in text.split_inclusive('\n').enumerate() {
            self.line(file, index + 1, line, macros)?;
        }
        self.within.pop();
        Ok(())
    }

    /// Expands one line. `line` includes the line end.
    fn line(&mut self, file: &str, number: usize, line: &str, macros: &mut Macros) -> Result<(), LoadError> {
        let shown = line.trim_end_matches(['\r', '\n']);
        let at = |position: usize, message: String| LoadError {
            file: file.to_owned(),
            line: number,
            column: column(shown, position),
            message,
            source: shown_line(shown),
            from: Vec::new(),
        };
        match command(shown) {
            Some(("include", inner)) => {
                let position = line.len() - line.trim_start().len();
                return self.file(inner, macros, Some(&at(position, String::new())));
            }
            Some((_, list)) => {
                // The error is ignored: a name without a value becomes undefined, which is reported where it is used.
                let _ = macros.add(list);
                return Ok(());
            }
            None => {}
        }
        let expanded = macros.expand(line, self.source);
        self.out.text.extend(as_read(&expanded.text));
        for error in expanded.errors {
            if self.out.undefined.len() < LOAD_ERRORS_MAX {
                self.out.undefined.push(at(error.position, error.message));
            }
        }
        Ok(())
    }
}

/// Bytes that are not UTF-8 are represented in a text by private characters of the last plane, starting here.
const KEPT_BYTES: u32 = 0x10_ff00;

/// The text of a file; each byte that is not UTF-8 becomes a private character.
pub(super) fn readable(bytes: &[u8]) -> String {
    let kept = |byte: &u8| char::from_u32(KEPT_BYTES + u32::from(*byte)).unwrap_or(char::REPLACEMENT_CHARACTER);
    let chunks = bytes.utf8_chunks();
    chunks.flat_map(|chunk| chunk.valid().chars().chain(chunk.invalid().iter().map(kept))).collect()
}

/// Converts a text back to the bytes of the file.
fn as_read(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for character in text.chars() {
        match u32::from(character).checked_sub(KEPT_BYTES).and_then(|byte| u8::try_from(byte).ok()) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

/// The keyword and the quoted text of a line with `include` or `substitute`.
fn command(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim();
    let word = ["include", "substitute"].into_iter().find(|word| line.starts_with(word))?;
    let inside = line.get(word.len()..)?.trim_start().strip_prefix('"')?;
    let mut is_escaped = false;
    let is_end = |character: char| {
        let ends = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        ends
    };
    let end = inside.find(is_end)?;
    (end + 1 == inside.len()).then(|| (word, inside.get(..end).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(
        files: &[(&str, &str)],
        macros: &str,
        undefined: UndefinedMacros,
    ) -> Result<(String, Vec<String>), String> {
        let mut macros = Macros::parse(macros).unwrap();
        let mut open = |requested: &str| {
            let found = files.iter().find(|(name, _)| *name == requested);
            found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| std::io::ErrorKind::NotFound.into())
        };
        let said = |error: &LoadError| format!("{}: {}", error.place(), error.message);
        let result = expand(files[0].0, &mut macros, undefined, &mut open).map_err(|error| said(&error))?;
        Ok((String::from_utf8(result.text).unwrap(), result.undefined.iter().map(said).collect()))
    }

    #[test]
    fn include_and_substitute_lines_take_effect_in_line_order() {
        let files = [
            ("a.template", "# for $(P)\r\nfirst $(P)\n  include \"b.template\"\nsubstitute \"P=$(P)y:\"\nlast $(P)"),
            ("b.template", "inner $(P) $(Q)\n"),
        ];

        let (text, undefined) = expanded(&files, "P=x:", UndefinedMacros::Keep).unwrap();

        assert_eq!(text, "# for x:\r\nfirst x:\ninner x: $(Q)\nlast x:y:");
        let said = "b.template:1:12: macro \"Q\" is not defined; give it a value, Q=..., or a default, $(Q=...)";
        assert_eq!(undefined, [said]);
    }

    #[test]
    fn undefined_macros_are_marked_with_their_position_and_circular_includes_rejected() {
        let (text, undefined) = expanded(&[("a", "one\n  $(PX)\n")], "P=1", UndefinedMacros::Mark).unwrap();

        assert_eq!(text, "one\n  $(PX,undefined)\n");
        assert_eq!(undefined, ["a:2:3: macro \"PX\" is not defined; did you mean \"P\"?"]);
        assert_eq!(
            expanded(&[("a", "include \"a\"")], "", UndefinedMacros::Keep),
            Err("a:1:1: circular or too deep include: a -> a".into())
        );
    }

    #[test]
    fn templates_preserve_bytes_that_are_not_utf_8() {
        let bytes = b"field(EGU, \"\xb0C\") # $(P) \xc3\xa4 \xff\n";

        let expanded =
            expand("a", &mut Macros::parse("P=\u{fc}").unwrap(), UndefinedMacros::Keep, &mut |_| Ok(bytes.to_vec()));

        assert_eq!(expanded.unwrap().text, b"field(EGU, \"\xb0C\") # \xc3\xbc \xc3\xa4 \xff\n");
    }
}
