//! Templates as text: macros replaced, `include` and `substitute` followed, as `msi` does it.

use crate::limit::{INCLUDE_DEPTH_MAX, INCLUDES_MAX, LOAD_ERRORS_MAX};
use crate::load::error::{column, shown_line, too_many_includes};
use crate::load::macros::Keep;
use crate::load::{LoadError, Macros, OpenFile};

/// What becomes of a macro that is not defined and has no default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undefined {
    /// It stays as it is: `$(NAME)`.
    Kept,
    /// It is an error.
    Refused,
}

/// The text of a template with its macros replaced.
///
/// A line `include "FILE"` is replaced by that file's text, and `substitute "A=1,B=2"` defines macros for the lines
/// after it. `open` finds the files. Every error is told, not the first alone.
pub fn expand(
    file: &str,
    macros: &Macros,
    undefined: Undefined,
    open: &mut OpenFile,
) -> Result<String, Vec<LoadError>> {
    let mut work = Work { undefined, open, within: Vec::new(), n_read: 0, errors: Vec::new(), out: String::new() };
    work.file(file, &mut macros.clone(), None);
    if work.errors.is_empty() { Ok(work.out) } else { Err(work.errors) }
}

struct Work<'a, 'b> {
    undefined: Undefined,
    open: &'a mut OpenFile<'b>,
    within: Vec<String>,
    n_read: usize,
    errors: Vec<LoadError>,
    out: String,
}

impl Work<'_, '_> {
    /// `place`: of the line that includes the file.
    fn file(&mut self, file: &str, macros: &mut Macros, place: Option<&LoadError>) {
        let fail = |message: String| match place {
            Some(place) => LoadError { message, ..place.clone() },
            None => LoadError::of_file(file, message),
        };
        if self.within.iter().any(|name| name == file) || self.within.len() >= INCLUDE_DEPTH_MAX {
            self.errors
                .push(fail(format!("files include one another without end: {} -> {file}", self.within.join(" -> "))));
            return;
        }
        if self.n_read >= INCLUDES_MAX {
            self.errors.push(fail(too_many_includes()));
            return;
        }
        self.n_read += 1;
        let bytes = match (self.open)(file) {
            Ok(bytes) => bytes,
            Err(error) => {
                // Without a place the error has the name already.
                let named = place.map_or(String::new(), |_| format!("\"{file}\" "));
                self.errors.push(fail(format!("{named}cannot be read: {error}")));
                return;
            }
        };
        let text = String::from_utf8_lossy(&bytes);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        self.within.push(file.to_owned());
        for (index, line) in text.lines().enumerate() {
            if self.errors.len() >= LOAD_ERRORS_MAX {
                break;
            }
            self.line(file, index + 1, line, macros);
        }
        self.within.pop();
    }

    fn line(&mut self, file: &str, number: usize, line: &str, macros: &mut Macros) {
        let at = |position: usize, message: String| LoadError {
            file: file.to_owned(),
            line: number,
            column: column(line, position),
            message,
            source: shown_line(line),
            from: Vec::new(),
        };
        let keep = if self.undefined == Undefined::Kept { Keep::Undefined } else { Keep::Nothing };
        let expanded = match macros.expand(line, keep) {
            Ok(expanded) => expanded.text,
            Err(error) => {
                self.errors.push(at(error.position, error.message));
                return;
            }
        };
        let position = line.len() - line.trim_start().len();
        match command(&expanded) {
            Some(("include", inner)) => self.file(inner, macros, Some(&at(position, String::new()))),
            Some((_, list)) => {
                if let Err(message) = macros.add(list) {
                    self.errors.push(at(position, message));
                }
            }
            None => {
                self.out.push_str(&expanded);
                self.out.push('\n');
            }
        }
    }
}

/// The word and the text in quotes of a line that is an instruction.
fn command(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim();
    let word = ["include", "substitute"].into_iter().find(|word| line.starts_with(word))?;
    let rest = line.get(word.len()..)?.trim();
    let inside = rest.strip_prefix('"')?.strip_suffix('"')?;
    Some((word, inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(files: &[(&str, &str)], macros: &str, undefined: Undefined) -> Result<String, Vec<String>> {
        let macros = Macros::parse(macros).unwrap();
        let mut open = |wanted: &str| {
            let found = files.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| std::io::ErrorKind::NotFound.into())
        };
        let result = expand(files[0].0, &macros, undefined, &mut open);
        result.map_err(|errors| errors.iter().map(|error| format!("{}: {}", error.place(), error.message)).collect())
    }

    #[test]
    fn includes_and_substitutes_are_followed_in_the_order_of_lines() {
        let files = [
            ("a.template", "# for $(P)\r\nfirst $(P)\n  include \"b.template\"\nsubstitute \"P=$(P)y:\"\nlast $(P)\n"),
            ("b.template", "inner $(P) $(Q)\n"),
        ];

        assert_eq!(
            expanded(&files, "P=x:", Undefined::Kept),
            Ok("# for x:\nfirst x:\ninner x: $(Q)\nlast x:y:\n".into())
        );
    }

    #[test]
    fn what_is_undefined_or_goes_round_is_told_with_its_place() {
        assert_eq!(
            expanded(&[("a", "one\n  $(PX)\n")], "P=1", Undefined::Refused),
            Err(vec!["a:2:3: macro \"PX\" is not defined; did you mean \"P\"?".into()])
        );
        assert_eq!(
            expanded(&[("a", "include \"a\"")], "", Undefined::Kept),
            Err(vec!["a:1:1: files include one another without end: a -> a".into()])
        );
    }
}
