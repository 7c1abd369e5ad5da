//! `.substitutions` files with the grammar of `msi` of EPICS Base: less strict than `dbLoadTemplate`, and with rows for
//! the template on its command line.

use crate::limit::INSTANCES_MAX;
use crate::load::error::{column, shown_line};
use crate::load::template::readable;
use crate::load::{LoadError, Macros};

/// One element of the file, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateStatement {
    /// `global { ... }`: macros for everything that follows.
    Global(String),
    /// An instance of a template.
    Instance {
        /// The template; `None` for the one on the command line.
        template: Option<String>,
        /// `A=1,B="2"`
        macros: String,
        /// `file:line` of the instance's row.
        place: String,
    },
}

/// Parses a `.substitutions` file. `environment`: the macros for the names of templates.
///
/// Also returns warnings: rows with more values than their pattern has names.
pub fn template_sets(
    file: &str,
    bytes: &[u8],
    environment: &Macros,
) -> Result<(Vec<TemplateStatement>, Vec<LoadError>), LoadError> {
    let text = readable(bytes);
    let lines = text.lines().collect();
    let words = MsiLexer { file, lines, line: 0, offset: 0 };
    let mut reading =
        MsiParser { words, environment, token: MsiToken::Separator, sets: Vec::new(), warnings: Vec::new() };
    reading.all()?;
    Ok((reading.sets, reading.warnings))
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum MsiToken {
    Open,
    Close,
    /// A comma, or the end of a line.
    Separator,
    /// A word or a quoted text, with its quotes.
    Text(String),
    End,
}

impl MsiToken {
    fn shown(&self) -> String {
        match self {
            MsiToken::Open => "'{'".into(),
            MsiToken::Close => "'}'".into(),
            MsiToken::Separator => "','".into(),
            MsiToken::Text(text) => format!("\"{}\"", text.trim_matches('"')),
            MsiToken::End => "the end of the file".into(),
        }
    }
}

struct MsiLexer<'a> {
    file: &'a str,
    lines: Vec<&'a str>,
    line: usize,
    offset: usize,
}

impl MsiLexer<'_> {
    fn error(&self, message: String) -> LoadError {
        let line = self.lines.get(self.line).or(self.lines.last()).copied().unwrap_or_default();
        LoadError {
            file: self.file.to_owned(),
            line: self.line.min(self.lines.len().saturating_sub(1)) + 1,
            column: column(line, self.offset.min(line.len())),
            message,
            source: shown_line(line),
            from: Vec::new(),
        }
    }

    fn next(&mut self) -> Result<MsiToken, LoadError> {
        let Some(line) = self.lines.get(self.line).copied() else { return Ok(MsiToken::End) };
        let rest = line.get(self.offset..).unwrap_or_default().trim_start();
        self.offset = line.len() - rest.len();
        let (token, n_bytes) = match rest.chars().next() {
            None | Some('#') => {
                self.line += 1;
                self.offset = 0;
                return Ok(if self.line < self.lines.len() { MsiToken::Separator } else { MsiToken::End });
            }
            Some('{') => (MsiToken::Open, 1),
            Some('}') => (MsiToken::Close, 1),
            Some(',') => {
                let is_more = |character: char| character == ',' || character.is_whitespace();
                (MsiToken::Separator, rest.len() - rest.trim_start_matches(is_more).len())
            }
            Some('"') => {
                let mut is_escaped = false;
                let is_end = |character: char| {
                    let ends = character == '"' && !is_escaped;
                    is_escaped = character == '\\' && !is_escaped;
                    ends
                };
                let end = rest.get(1..).and_then(|inside| inside.find(is_end));
                let end = end.ok_or_else(|| self.error("the closing '\"' is missing on this line".into()))?;
                (MsiToken::Text(rest.get(..end + 2).unwrap_or_default().to_owned()), end + 2)
            }
            Some(_) => {
                let is_end = |character: char| character.is_whitespace() || "\",{}".contains(character);
                let end = rest.find(is_end).unwrap_or(rest.len());
                (MsiToken::Text(rest.get(..end).unwrap_or_default().to_owned()), end)
            }
        };
        self.offset += n_bytes;
        Ok(token)
    }
}

/// The position in the file, which decides what may follow.
#[derive(Clone, Copy, PartialEq)]
enum MsiPosition {
    /// Outside of a `file` block.
    Outside,
    /// Directly after `file NAME {`: `pattern` or a row must follow.
    BlockStart,
    /// In a `file` block after `pattern` or a row: the block may end.
    Block,
    /// In a `file` block after `global`: the block must not end.
    BlockAfterGlobal,
}

impl MsiPosition {
    fn expected(self) -> &'static str {
        match self {
            MsiPosition::Outside => "file, global, pattern or '{'",
            MsiPosition::Block => "pattern, '{' or '}'",
            MsiPosition::BlockStart | MsiPosition::BlockAfterGlobal => "pattern or '{'",
        }
    }

    /// The position after `pattern` or a row.
    fn after_row(self) -> MsiPosition {
        if self == MsiPosition::Outside { self } else { MsiPosition::Block }
    }
}

struct MsiParser<'a> {
    words: MsiLexer<'a>,
    environment: &'a Macros,
    token: MsiToken,
    sets: Vec<TemplateStatement>,
    warnings: Vec<LoadError>,
}

impl MsiParser<'_> {
    fn all(&mut self) -> Result<(), LoadError> {
        let (mut template, mut pattern, mut position) = (None, None, MsiPosition::Outside);
        loop {
            let is_block_start = position == MsiPosition::BlockStart;
            match &self.token {
                MsiToken::Separator => {}
                MsiToken::End if !is_block_start => return Ok(()),
                MsiToken::Close if position == MsiPosition::Block => {
                    (template, pattern, position) = (None, None, MsiPosition::Outside);
                }
                MsiToken::Text(word) if word == "global" && !is_block_start => {
                    self.opened()?;
                    let macros = self.definitions()?;
                    self.sets.push(TemplateStatement::Global(macros));
                    if position == MsiPosition::Block {
                        position = MsiPosition::BlockAfterGlobal;
                    }
                }
                MsiToken::Text(word) if word == "file" && !is_block_start => {
                    template = Some(self.template_name()?);
                    self.opened()?;
                    (pattern, position) = (None, MsiPosition::BlockStart);
                }
                MsiToken::Text(word) if word == "pattern" => {
                    self.opened()?;
                    pattern = Some(self.texts("the name of a macro")?);
                    position = position.after_row();
                }
                MsiToken::Open => {
                    let place = format!("{}:{}", self.words.file, self.words.line + 1);
                    let macros = match &pattern {
                        Some(names) => self.row(names)?,
                        None => self.definitions()?,
                    };
                    if self.sets.len() >= INSTANCES_MAX {
                        return Err(self.words.error(format!("more than {INSTANCES_MAX} instances")));
                    }
                    self.sets.push(TemplateStatement::Instance { template: template.clone(), macros, place });
                    position = position.after_row();
                }
                token => {
                    let message = format!("found {}, expected {}", token.shown(), position.expected());
                    return Err(self.words.error(message));
                }
            }
            self.token = self.words.next()?;
        }
    }

    /// The next token that is not a separator.
    fn word(&mut self) -> Result<MsiToken, LoadError> {
        loop {
            match self.words.next()? {
                MsiToken::Separator => {}
                token => return Ok(token),
            }
        }
    }

    fn opened(&mut self) -> Result<(), LoadError> {
        match self.word()? {
            MsiToken::Open => Ok(()),
            token => Err(self.words.error(format!("found {}, expected '{{'", token.shown()))),
        }
    }

    /// Reads the name of a template, and expands environment variables in it.
    fn template_name(&mut self) -> Result<String, LoadError> {
        match self.words.next()? {
            MsiToken::Text(name) => {
                let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(&name);
                let expanded = self.environment.expand_line(name);
                expanded.map_err(|_| {
                    let message = format!("\"{name}\" has a macro that is not a variable of the environment");
                    self.words.error(message)
                })
            }
            token => Err(self.words.error(format!("found {}, expected the name of a template", token.shown()))),
        }
    }

    /// The content of a block in braces, with a comma for every separator.
    fn definitions(&mut self) -> Result<String, LoadError> {
        let mut all = String::new();
        loop {
            match self.words.next()? {
                MsiToken::Close => return Ok(all),
                MsiToken::Separator => all.push(','),
                MsiToken::Text(text) => all.push_str(&text),
                token => return Err(self.words.error(format!("found {}, expected '}}'", token.shown()))),
            }
        }
    }

    fn texts(&mut self, what: &str) -> Result<Vec<String>, LoadError> {
        let mut all = Vec::new();
        loop {
            match self.word()? {
                MsiToken::Close => return Ok(all),
                MsiToken::Text(text) => all.push(text),
                token => return Err(self.words.error(format!("found {}, expected {what} or '}}'", token.shown()))),
            }
        }
    }

    /// Reads the values of a row and assigns them to the names of its pattern.
    fn row(&mut self, names: &[String]) -> Result<String, LoadError> {
        let values = self.texts("a value")?;
        if values.len() > names.len() {
            let message = format!("this row has {} values, but its pattern has {} names", values.len(), names.len());
            self.warnings.push(self.words.error(message));
        }
        let pairs: Vec<String> = names.iter().zip(&values).map(|(name, value)| format!("{name}={value}")).collect();
        Ok(pairs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statements: `global MACROS` or `TEMPLATE MACROS`.
    fn parsed(text: &str) -> Result<Vec<String>, String> {
        let shown = |statement: TemplateStatement| match statement {
            TemplateStatement::Global(macros) => format!("global {macros}"),
            TemplateStatement::Instance { template, macros, .. } => {
                format!("{} {macros}", template.unwrap_or_default())
            }
        };
        let (statements, _) = template_sets("f", text.as_bytes(), &Macros::default()).map_err(|error| error.message)?;
        Ok(statements.into_iter().map(shown).collect())
    }

    #[test]
    fn global_in_a_file_block_follows_a_pattern_or_a_row_and_precedes_another_one() {
        let block = "file t { {a=1} global {b=2} {a=3} pattern {a} global {b=4} {5} }";
        let refused = |found: &str| Err(format!("found {found}, expected pattern or '{{'"));

        assert_eq!(parsed(block).unwrap(), ["t a=1", "global b=2", "t a=3", "global b=4", "t a=5"]);
        assert_eq!(parsed("file t { {a=1} global {b=2} file u { {a=3} }").unwrap(), ["t a=1", "global b=2", "u a=3"]);
        assert_eq!(parsed("file t { global {b=2} {a=1} }"), refused("\"global\""));
        assert_eq!(parsed("file t { {a=1} global {b=2} }"), refused("'}'"));
        assert_eq!(parsed("file t { }"), refused("'}'"));
        assert_eq!(parsed("file t {"), refused("the end of the file"));
    }

    #[test]
    fn a_quoted_value_ends_at_a_quote_that_is_not_escaped() {
        let text = r#"file t { pattern {A, B} { "a\\" "b" } { "a\"" "b" } { "\\\"" "" } }"#;

        assert_eq!(parsed(text).map(|found| found.len()), Ok(3), "{:?}", parsed(text));
    }
}
