//! Request files, which list the PVs to save.
//!
//! Source: the documentation of synApps autosave, "Write request files".
//!
//! ```
//! use fodo_db::Macros;
//! use fodo_ioc::autosave::request::{self, RequestedPv};
//!
//! # fn main() -> std::io::Result<()> {
//! let mut macros = Macros::default();
//! macros.define("P", "X:");
//! let text = "$(P)gap\n$(P)gap.DRVH\n";
//! let request = request::read("gap.req", &macros, &mut |_| Ok(text.into()))?;
//! let names: Vec<&str> = request.pvs.iter().map(|RequestedPv { pv, .. }| pv.as_str()).collect();
//! assert_eq!(names, ["X:gap", "X:gap.DRVH"]);
//! assert!(request.errors.is_empty());
//! # Ok(())
//! # }
//! ```

use std::collections::HashSet;
use std::io;

use fodo_db::{LoadError, Macros, OpenFile};

use crate::limit::{REQUEST_DEPTH_MAX, REQUEST_ERRORS_MAX, REQUEST_LINES_MAX};

/// A PV to save.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedPv {
    /// The name as written in the file: `rec`, `rec.FIELD`, `rec.FIELD$`.
    pub pv: String,
    /// The line that requests it, with an empty message.
    pub at: LoadError,
}

/// The contents of a request file and the files it includes, as returned by [`read`].
#[derive(Debug, Default)]
pub struct RequestFile {
    /// The PVs in the order of the lines, without duplicates.
    pub pvs: Vec<RequestedPv>,
    /// Errors in lines; the other lines are used.
    pub errors: Vec<LoadError>,
}

/// Parses a request file and expands its macros. `open` returns the bytes of a file. Fails if `file` cannot be opened.
pub fn read(file: &str, macros: &Macros, open: &mut OpenFile) -> io::Result<RequestFile> {
    let bytes = open(file)?;
    let mut reader =
        RequestParser { open, request: RequestFile::default(), known: HashSet::new(), within: vec![], n_lines: 0 };
    reader.file(file, &bytes, macros);
    Ok(reader.request)
}

struct RequestParser<'a, 'f> {
    open: &'a mut OpenFile<'f>,
    request: RequestFile,
    known: HashSet<String>,
    /// The stack of files being read, outermost first, each with its current position.
    within: Vec<(String, String)>,
    n_lines: usize,
}

impl RequestParser<'_, '_> {
    fn file(&mut self, name: &str, bytes: &[u8], macros: &Macros) {
        self.within.push((name.to_owned(), String::new()));
        let text = String::from_utf8_lossy(bytes);
        for (index, source) in text.lines().enumerate() {
            self.n_lines += 1;
            if self.n_lines > REQUEST_LINES_MAX {
                let message = format!("all request files together have more than {REQUEST_LINES_MAX} lines");
                self.report(name, (index, source), 0, message);
                break;
            }
            self.line(name, (index, source), macros);
        }
        self.within.pop();
    }

    fn line(&mut self, name: &str, line: (usize, &str), macros: &Macros) {
        let (index, source) = line;
        let column = source.len() - source.trim_start().len();
        if source.trim_start().starts_with('#') {
            return;
        }
        let text = match macros.expand_line(source) {
            Ok(text) => text,
            Err(error) => return self.report(name, line, error.position, error.message),
        };
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            return;
        }
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        if word == "file" {
            if let Some((_, place)) = self.within.last_mut() {
                *place = format!("{name}:{}", index + 1);
            }
            return self.include(name, line, rest, macros);
        }
        if !word.starts_with(|first: char| first.is_alphanumeric() || "_$(:{[<-+".contains(first)) {
            return self.report(name, line, column, format!("\"{word}\" is not a valid PV name"));
        }
        if !rest.is_empty() && !rest.starts_with('#') {
            self.report(name, line, column, format!("a line names one PV; \"{rest}\" after it is ignored"));
        }
        if self.known.insert(word.to_owned()) {
            let at = self.at(name, line, column, String::new());
            self.request.pvs.push(RequestedPv { pv: word.to_owned(), at });
        }
    }

    /// `file NAME P=x:,M=m1`: quotes are ignored, and macros are separated by spaces or commas.
    fn include(&mut self, name: &str, line: (usize, &str), rest: &str, macros: &Macros) {
        let column = line.1.find("file").unwrap_or(0);
        let rest = rest.replace('"', "");
        let mut words = rest.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
        let Some(file) = words.next() else {
            return self.report(name, line, column, "file must be followed by the name of a request file".into());
        };
        let list = words.collect::<Vec<_>>().join(",");
        let mut inner = macros.clone();
        if let Err(message) = inner.add(&list) {
            return self.report(name, line, column, message);
        }
        if self.within.len() >= REQUEST_DEPTH_MAX || self.within.iter().any(|(outer, _)| outer == file) {
            let names: Vec<&str> = self.within.iter().map(|(name, _)| name.as_str()).collect();
            let message = format!("files include one another without end: {} -> {file}", names.join(" -> "));
            return self.report(name, line, column, message);
        }
        match (self.open)(file) {
            Ok(bytes) => self.file(file, &bytes, &inner),
            Err(error) => self.report(name, line, column, format!("\"{file}\" cannot be read: {error}")),
        }
    }

    fn report(&mut self, name: &str, line: (usize, &str), column: usize, message: String) {
        if self.request.errors.len() < REQUEST_ERRORS_MAX {
            let error = self.at(name, line, column, message);
            self.request.errors.push(error);
        }
    }

    /// Makes an error. `column` is a byte offset in the line, from 0.
    fn at(&self, name: &str, (index, source): (usize, &str), column: usize, message: String) -> LoadError {
        let outer = self.within.iter().rev().skip(1);
        LoadError {
            file: name.to_owned(),
            line: index + 1,
            column: source.get(..column).map_or(0, |before| before.chars().count()) + 1,
            message,
            source: source.to_owned(),
            from: outer.map(|(_, place)| place.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(macros: &str, files: &[(&str, &str)]) -> RequestFile {
        let mut open = |requested: &str| {
            let found = files.iter().find(|(name, _)| *name == requested);
            found.map(|(_, text)| text.as_bytes().to_vec()).ok_or(std::io::ErrorKind::NotFound.into())
        };
        read("a.req", &Macros::parse(macros).unwrap(), &mut open).unwrap()
    }

    fn names(request: &RequestFile) -> Vec<&str> {
        request.pvs.iter().map(|requested| requested.pv.as_str()).collect()
    }

    #[test]
    fn a_request_file_with_macros_comments_and_includes_is_read() {
        let files = [
            ("a.req", "# ours\n$(P)m1.VAL\n\n  $(P)m2.VAL # second\nfile \"b.req\" P=$(P), M=\"m3\"\n$(P)m1.VAL\r\n"),
            ("b.req", "$(P)$(M).DESC$\n$(P)$(M).$(F=EGU)\n"),
        ];

        let request = request("P=x:", &files);

        assert_eq!(names(&request), ["x:m1.VAL", "x:m2.VAL", "x:m3.DESC$", "x:m3.EGU"]);
        assert_eq!(request.errors, []);
        let at = &request.pvs[2].at;
        assert_eq!((at.place().as_str(), at.from.as_slice()), ("b.req:1:1", &["a.req:5".to_owned()][..]));
    }

    #[test]
    fn invalid_request_file_lines_are_reported_and_the_others_are_used() {
        let request = request("", &[("a.req", "x.VAL y.VAL\n$(Q)z\nfile\nfile none.req\n!!\nlast\n")]);

        assert_eq!(names(&request), ["x.VAL", "last"]);
        let errors: Vec<String> =
            request.errors.iter().map(|error| format!("{} {}", error.line, error.message)).collect();
        assert_eq!(errors[0], "1 a line names one PV; \"y.VAL\" after it is ignored");
        assert!(errors[1].starts_with("2 ") && errors[1].contains('Q'), "{errors:?}");
        assert_eq!(errors[2], "3 file must be followed by the name of a request file");
        assert!(errors[3].starts_with("4 \"none.req\" cannot be read"), "{errors:?}");
        assert_eq!(errors[4], "5 \"!!\" is not a valid PV name");
    }

    #[test]
    fn circular_includes_of_request_files_terminate() {
        let request = request("", &[("a.req", "file b.req\none"), ("b.req", "two\nfile a.req")]);

        assert_eq!(names(&request), ["two", "one"]);
        assert_eq!(request.errors[0].message, "files include one another without end: a.req -> b.req -> a.req");
        assert_eq!(request.errors[0].from, ["a.req:1"]);
    }
}
