//! `.substitutions` files: templates and the macros to load them with, like in `msi` and `dbLoadTemplate`.

use crate::limit::{INCLUDE_DEPTH_MAX, INCLUDES_MAX, INSTANCES_MAX, LOAD_ERRORS_MAX};
use crate::load::error::{LOADS_NOTHING, shown_line, suggestion, too_many_includes};
use crate::load::{LoadError, Macros, OpenFile};

/// One instance of a template.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The template's file name.
    pub file: String,
    /// The global macros, and those of the instance, which take precedence.
    pub macros: Macros,
    /// `file:line:column` of the instance's row.
    pub place: String,
}

/// The template instances of a `.substitutions` file, in its order, and the errors.
///
/// `macros` are defined before the file is read, for file names and values. `open` reads the file and its includes.
/// Invalid rows are left out and reported as errors.
pub fn instances(file: &str, macros: &Macros, open: &mut OpenFile) -> (Vec<Instance>, Vec<LoadError>) {
    let (found, errors, _) = instances_with_warnings(file, macros, open);
    (found, errors)
}

/// The same, and warnings about what loads nothing.
pub(crate) fn instances_with_warnings(
    file: &str,
    macros: &Macros,
    open: &mut OpenFile,
) -> (Vec<Instance>, Vec<LoadError>, Vec<LoadError>) {
    let mut reading = SubstitutionsParser {
        open,
        within: Vec::new(),
        n_read: 0,
        global: macros.clone(),
        found: Vec::new(),
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    reading.file(file, None);
    (reading.found, reading.errors, reading.warnings)
}

struct SubstitutionsParser<'a, 'b> {
    open: &'a mut OpenFile<'b>,
    /// The current file, and the files that include it.
    within: Vec<String>,
    n_read: usize,
    global: Macros,
    found: Vec<Instance>,
    errors: Vec<LoadError>,
    warnings: Vec<LoadError>,
}

/// A token of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SubstitutionsToken {
    /// A word or a quoted text; quotes and escapes are resolved.
    Text(String),
    /// `{`, `}`, `,` or `=`
    Mark(char),
    End,
}

impl SubstitutionsToken {
    fn shown(&self) -> String {
        match self {
            SubstitutionsToken::Text(text) => format!("\"{text}\""),
            SubstitutionsToken::Mark(mark) => format!("'{mark}'"),
            SubstitutionsToken::End => "the end of the file".into(),
        }
    }
}

/// Splits one file into tokens.
struct SubstitutionsLexer<'a> {
    file: &'a str,
    source: &'a str,
    offset: usize,
}

impl SubstitutionsLexer<'_> {
    fn rest(&self) -> &str {
        self.source.get(self.offset..).unwrap_or_default()
    }

    fn error(&self, offset: usize, message: impl Into<String>) -> LoadError {
        let before = self.source.get(..offset).unwrap_or(self.source);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.source.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        LoadError {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.get(start..).unwrap_or_default().chars().count() + 1,
            message: message.into(),
            source: shown_line(line),
            from: Vec::new(),
        }
    }

    fn skip_blanks(&mut self) {
        loop {
            let trimmed = self.rest().trim_start();
            let n_left = match trimmed.strip_prefix('#') {
                Some(comment) => comment.find('\n').map_or(0, |newline| comment.len() - newline),
                None => trimmed.len(),
            };
            let is_over = n_left == trimmed.len();
            self.offset = self.source.len() - n_left;
            if is_over {
                return;
            }
        }
    }

    /// The next token and its position.
    fn next(&mut self) -> Result<(SubstitutionsToken, usize), LoadError> {
        self.skip_blanks();
        let start = self.offset;
        let Some(first) = self.rest().chars().next() else { return Ok((SubstitutionsToken::End, start)) };
        if matches!(first, '{' | '}' | ',' | '=') {
            self.offset += 1;
            return Ok((SubstitutionsToken::Mark(first), start));
        }
        if first == '"' || first == '\'' {
            return Ok((SubstitutionsToken::Text(self.quoted(first, start)?), start));
        }
        let n = bare_length(self.rest());
        let text = self.rest().get(..n).unwrap_or_default().to_owned();
        self.offset += n;
        Ok((SubstitutionsToken::Text(text), start))
    }

    fn peek(&mut self) -> Result<SubstitutionsToken, LoadError> {
        let before = self.offset;
        let token = self.next()?.0;
        self.offset = before;
        Ok(token)
    }

    /// Reads a text up to the same quote. A backslash protects the next character and is removed, as in macro values.
    fn quoted(&mut self, quote: char, start: usize) -> Result<String, LoadError> {
        let mut out = String::new();
        let mut is_escaped = false;
        for (position, character) in self.rest().char_indices().skip(1) {
            match character {
                '\n' => break,
                _ if is_escaped => {
                    out.push(character);
                    is_escaped = false;
                }
                '\\' => is_escaped = true,
                character if character == quote => {
                    self.offset += position + 1;
                    return Ok(out);
                }
                character => out.push(character),
            }
        }
        self.offset += self.rest().lines().next().map_or(0, str::len);
        Err(self.error(start, format!("the closing '{quote}' is missing on this line")))
    }

    fn mark(&mut self, expected: char) -> Result<usize, LoadError> {
        match self.next()? {
            (SubstitutionsToken::Mark(mark), place) if mark == expected => Ok(place),
            (token, place) => Err(self.error(place, format!("found {}, expected '{expected}'", token.shown()))),
        }
    }

    fn text(&mut self, what: &str) -> Result<(String, usize), LoadError> {
        match self.next()? {
            (SubstitutionsToken::Text(text), place) => Ok((text, place)),
            (token, place) => Err(self.error(place, format!("found {}, expected {what}", token.shown()))),
        }
    }

    /// Parses `{ a=1, b="2" }`.
    fn definitions(&mut self) -> Result<Vec<(String, String)>, LoadError> {
        self.mark('{')?;
        let mut pairs = Vec::new();
        loop {
            match self.next()? {
                (SubstitutionsToken::Mark('}'), _) => return Ok(pairs),
                (SubstitutionsToken::Mark(','), _) => {}
                (SubstitutionsToken::Text(name), _) => {
                    self.mark('=')?;
                    let is_empty = matches!(self.peek()?, SubstitutionsToken::Mark(',' | '}'));
                    let value = if is_empty { String::new() } else { self.text("a value")?.0 };
                    pairs.push((name, value));
                }
                (token, place) => {
                    let message = format!("found {}, expected NAME=value or '}}'", token.shown());
                    return Err(self.error(place, message));
                }
            }
        }
    }

    /// Parses `{ a, b "c" }`.
    fn values(&mut self, what: &str) -> Result<Vec<String>, LoadError> {
        self.mark('{')?;
        let mut values = Vec::new();
        loop {
            match self.next()? {
                (SubstitutionsToken::Mark('}'), _) => return Ok(values),
                (SubstitutionsToken::Mark(','), _) => {}
                (SubstitutionsToken::Text(value), _) => values.push(value),
                (token, place) => {
                    return Err(self.error(place, format!("found {}, expected {what} or '}}'", token.shown())));
                }
            }
        }
    }
}

/// The length of a word without quotes, including the brackets of macro references.
fn bare_length(text: &str) -> usize {
    let mut closing = Vec::new();
    let mut before = ' ';
    for (position, character) in text.char_indices() {
        match character {
            '(' if before == '$' || !closing.is_empty() => closing.push(')'),
            '{' if before == '$' => closing.push('}'),
            character if closing.last() == Some(&character) => drop(closing.pop()),
            '\n' => return position,
            _ if !closing.is_empty() => {}
            '{' | '}' | ',' | '=' | '"' | '\'' | '#' => return position.max(1),
            character if character.is_whitespace() => return position,
            _ => {}
        }
        before = character;
    }
    text.len()
}

impl SubstitutionsParser<'_, '_> {
    /// Reads a file. `place`: the line that includes it.
    fn file(&mut self, file: &str, place: Option<&LoadError>) {
        let fail = |message: String| match place {
            Some(place) => LoadError { message, ..place.clone() },
            None => LoadError::of_file(file, message),
        };
        if self.within.iter().any(|name| name == file) || self.within.len() >= INCLUDE_DEPTH_MAX {
            let round = self.within.join(" -> ");
            self.errors.push(fail(format!("circular or too deep include: {round} -> {file}")));
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
                // Without a place, the error contains the name already.
                let named = place.map_or(String::new(), |_| format!("\"{file}\" "));
                self.errors.push(fail(format!("{named}cannot be read: {error}")));
                return;
            }
        };
        let text = String::from_utf8_lossy(&bytes);
        let source = text.strip_prefix('\u{feff}').unwrap_or(&text);
        self.within.push(file.to_owned());
        let mut words = SubstitutionsLexer { file, source, offset: 0 };
        if words.peek() == Ok(SubstitutionsToken::End) {
            self.warnings.push(LoadError::of_file(file, LOADS_NOTHING.into()));
        }
        while self.errors.len() < LOAD_ERRORS_MAX {
            match self.statement(&mut words) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.errors.push(error);
                    recover(&mut words);
                }
            }
        }
        self.within.pop();
    }

    /// Parses one statement. False: the end of the file.
    fn statement(&mut self, words: &mut SubstitutionsLexer<'_>) -> Result<bool, LoadError> {
        let (token, place) = words.next()?;
        match &token {
            SubstitutionsToken::End => return Ok(false),
            SubstitutionsToken::Text(word) if word == "global" => self.define_global(words)?,
            SubstitutionsToken::Text(word) if word == "file" => self.template(words)?,
            SubstitutionsToken::Text(word) if word == "include" => {
                let (file, _) = words.text("a file name")?;
                self.file(&file, Some(&words.error(place, "")));
            }
            token => {
                let word = if let SubstitutionsToken::Text(word) = token { word } else { "" };
                let guess = suggestion(word, ["file", "global", "include"].into_iter());
                let message = format!("found {}, expected file, global or include{guess}", token.shown());
                return Err(words.error(place, message));
            }
        }
        Ok(true)
    }

    fn define_global(&mut self, words: &mut SubstitutionsLexer<'_>) -> Result<(), LoadError> {
        for (name, value) in words.definitions()? {
            self.global.define_plain(&name, &value);
        }
        Ok(())
    }

    /// Parses `file "x.template" { ... }` after the word `file`.
    fn template(&mut self, words: &mut SubstitutionsLexer<'_>) -> Result<(), LoadError> {
        let (file, place) = words.text("the name of a template")?;
        let file = self.global.expand_line(&file).map_err(|error| words.error(place, error.message))?;
        words.mark('{')?;
        let n_before = self.found.len();
        let mut pattern: Option<Vec<String>> = None;
        loop {
            let start = {
                words.skip_blanks();
                words.offset
            };
            match words.peek()? {
                SubstitutionsToken::Mark('}') => {
                    words.mark('}')?;
                    if self.found.len() == n_before {
                        self.warnings
                            .push(words.error(place, format!("\"{file}\" has no row here, so it is not loaded")));
                    }
                    return Ok(());
                }
                SubstitutionsToken::Mark(',') => drop(words.mark(',')?),
                SubstitutionsToken::Text(word) if word == "global" => {
                    words.next()?;
                    self.define_global(words)?;
                }
                SubstitutionsToken::Text(word) if word == "pattern" => {
                    words.next()?;
                    pattern = Some(words.values("the name of a macro")?);
                }
                SubstitutionsToken::Mark('{') => {
                    let pairs = match &pattern {
                        Some(names) => row(names, words, start)?,
                        None => words.definitions()?,
                    };
                    self.instance(&file, pairs, words.error(start, ""))?;
                }
                token => {
                    let guess = if let SubstitutionsToken::Text(word) = &token { word.as_str() } else { "" };
                    let guess = suggestion(guess, ["pattern", "global"].into_iter());
                    let message = format!("found {}, expected pattern, '{{' or '}}'{guess}", token.shown());
                    return Err(words.error(start, message));
                }
            }
        }
    }

    fn instance(&mut self, file: &str, pairs: Vec<(String, String)>, place: LoadError) -> Result<(), LoadError> {
        if self.found.len() >= INSTANCES_MAX {
            return Err(LoadError { message: format!("more than {INSTANCES_MAX} instances"), ..place });
        }
        let mut macros = self.global.clone();
        for (name, value) in pairs {
            macros.define_plain(&name, &value);
        }
        self.found.push(Instance { file: file.to_owned(), macros, place: place.place() });
        Ok(())
    }
}

/// Parses a row of a pattern: one value for each name. As in msi, fewer values are accepted; the other macros stay
/// undefined.
fn row(names: &[String], words: &mut SubstitutionsLexer<'_>, start: usize) -> Result<Vec<(String, String)>, LoadError> {
    let values = words.values("a value")?;
    if values.len() > names.len() {
        let message = format!("this row has {} values, but its pattern has {} names", values.len(), names.len());
        return Err(words.error(start, message));
    }
    Ok(names.iter().cloned().zip(values).collect())
}

/// After an error, skips to the next line that starts a statement.
fn recover(words: &mut SubstitutionsLexer<'_>) {
    while let Some(newline) = words.rest().find('\n') {
        words.offset += newline + 1;
        let starts_word = words.rest().starts_with(|character: char| character.is_alphabetic());
        if starts_word && !words.rest().starts_with("pattern") {
            return;
        }
    }
    words.offset = words.source.len();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str, macros: &str) -> Result<Vec<String>, Vec<String>> {
        let files = [("s", text), ("more", "file c.template { { N=3 } }")];
        let mut open = |requested: &str| {
            let found = files.iter().find(|(name, _)| *name == requested);
            found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| std::io::ErrorKind::NotFound.into())
        };
        let shown = |instance: &Instance| {
            let line = instance.macros.expand_line("$(P=) $(N=) $(DESC=)").unwrap();
            format!("{} {}: {line}", instance.place, instance.file)
        };
        match instances("s", &Macros::parse(macros).unwrap(), &mut open) {
            (found, errors) if errors.is_empty() => Ok(found.iter().map(shown).collect()),
            (_, errors) => Err(errors.iter().map(|error| format!("{}: {}", error.place(), error.message)).collect()),
        }
    }

    #[test]
    fn patterns_definitions_globals_and_includes_produce_instances() {
        let text = "\u{feff}# motors\r\nglobal { P=\"$(P)m:\" }\nfile \"$(DIR)/a.template\" {\n  pattern { N, DESC }\n  \
                    { 1, \"with, comma\" }\n  {2 $(N)nd}\n}\nfile b.template { { N=1, DESC=\"\" } {N=${P}2} }\ninclude \"more\"\n";

        assert_eq!(
            rows(text, "P=x:,DIR=db"),
            Ok(vec![
                "s:5:3 db/a.template: x:m: 1 with, comma".into(),
                "s:6:3 db/a.template: x:m: 2 2nd".into(),
                "s:8:19 b.template: x:m: 1 ".into(),
                "s:8:36 b.template: x:m: x:m:2 ".into(),
                "more:1:19 c.template: x:m: 3 ".into(),
            ])
        );
    }

    #[test]
    fn every_substitutions_error_is_reported_with_its_position() {
        let text = "file a { pattern {N} {1, 2} }\nfile b { patern {N} }\nfiel c {}\nfile \"d { {N=1} }\nfile e { {N} }\n\
                    file $(X) {}\ninclude s\ninclude none\nfile f { {N=1}\n";

        let errors = rows(text, "").unwrap_err();

        let places: Vec<&str> = errors.iter().map(|error| error.split(": ").next().unwrap()).collect();
        assert_eq!(places, ["s:1:22", "s:2:10", "s:3:1", "s:4:6", "s:5:12", "s:6:6", "s:7:1", "s:8:1", "s:10:1"]);
        assert!(errors[1].ends_with("did you mean \"pattern\"?"), "{}", errors[1]);
        assert!(errors[0].ends_with("this row has 2 values, but its pattern has 1 names"), "{}", errors[0]);
    }

    #[test]
    fn a_macro_reference_in_a_bare_word_may_contain_marks() {
        assert_eq!(rows("file c.template { { P=$(X=1) N=2 } }", ""), Ok(vec!["s:1:19 c.template: 1 2 ".into()]));
        assert_eq!(
            rows("file c.template { { P=${X=1} N=$(Y=a(b)) } }", ""),
            Ok(vec!["s:1:19 c.template: 1 a(b) ".into()])
        );
    }
}
