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

struct MsiParser<'a> {
    words: MsiLexer<'a>,
    environment: &'a Macros,
    token: MsiToken,
    sets: Vec<TemplateStatement>,
    warnings: Vec<LoadError>,
}

impl MsiParser<'_> {
    fn all(&mut self) -> Result<(), LoadError> {
        let (mut template, mut pattern, mut is_in_file) = (None, None, false);
        loop {
            match &self.token {
                MsiToken::Separator => {}
                MsiToken::End => return Ok(()),
                MsiToken::Close if is_in_file => (template, pattern, is_in_file) = (None, None, false),
                MsiToken::Text(word) if word == "global" => {
                    self.opened()?;
                    let macros = self.definitions()?;
                    self.sets.push(TemplateStatement::Global(macros));
                }
                MsiToken::Text(word) if word == "file" => {
                    template = Some(self.template_name()?);
                    self.opened()?;
                    (pattern, is_in_file) = (None, true);
                }
                MsiToken::Text(word) if word == "pattern" => {
                    self.opened()?;
                    pattern = Some(self.texts("the name of a macro")?);
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
                }
                token => {
                    let expected = if is_in_file { "pattern, '{' or '}'" } else { "file, global, pattern or '{'" };
                    return Err(self.words.error(format!("found {}, expected {expected}", token.shown())));
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
