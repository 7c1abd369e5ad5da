//! Statements of a database file: record, field, info, alias, include, path.

use std::sync::Arc;

use fodo_data::Text;

use crate::breaktable::BreakTable;
use crate::common::number;
use crate::field::FieldInfo;
use crate::limit::{INCLUDE_DEPTH_MAX, LOAD_ERRORS_MAX, NAME_BYTES_MAX};
use crate::load::error::suggestion;
use crate::load::lexer::{Lexer, Place, Token, unescaped};
use crate::load::{LoadError, Macros, OpenFile, Stage, bare_error, record_type};

const STATEMENTS: [&str; 7] = ["record", "grecord", "alias", "breaktable", "include", "path", "addpath"];
const ITEMS: [&str; 3] = ["field", "info", "alias"];
/// What stands in `.dbd` files, which describe what here is built in.
const DESCRIPTIONS: [&str; 8] = ["menu", "recordtype", "device", "driver", "link", "registrar", "function", "variable"];

/// Reads a file into the stage; errors are added, at most [`LOAD_ERRORS_MAX`].
pub(crate) fn file(stage: &mut Stage, file: &str, macros: &Macros, open: &mut OpenFile, errors: &mut Vec<LoadError>) {
    let mut files = Files { macros, open, paths: Vec::new(), depth: 0 };
    match (files.open)(file) {
        Ok(bytes) => read(stage, file, &bytes, &mut files, errors),
        Err(error) => errors.push(bare_error(file, format!("cannot be read: {error}"))),
    }
    errors.truncate(LOAD_ERRORS_MAX);
}

struct Files<'a, 'b> {
    macros: &'a Macros,
    open: &'a mut OpenFile<'b>,
    /// Folders that `path` and `addpath` name.
    paths: Vec<String>,
    depth: usize,
}

fn read(stage: &mut Stage, name: &str, bytes: &[u8], files: &mut Files, errors: &mut Vec<LoadError>) {
    let source = Text::from_bytes(bytes);
    if source.len() != bytes.len() {
        errors.push(bare_error(name, format!("byte {} is a NUL: this is no text", source.len() + 1)));
        return;
    }
    let source = source.to_str();
    let macros = files.macros;
    let mut parser = Parser { lexer: Lexer::new(name, &source, macros), stage, files, name, errors };
    while parser.errors.len() < LOAD_ERRORS_MAX {
        match parser.statement() {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                parser.errors.push(error);
                parser.recover();
            }
        }
    }
    let found = std::mem::take(&mut parser.lexer.errors);
    // A line whose macros are wrong is wrong in other ways because of it.
    errors.retain(|error| error.file != name || found.iter().all(|other| other.line != error.line));
    errors.extend(found);
    errors.sort_by(|a, b| (a.file != name).cmp(&(b.file != name)).then(a.line.cmp(&b.line)));
}

struct Parser<'a, 's, 'l, 'f, 'b> {
    lexer: Lexer<'l>,
    stage: &'a mut Stage<'s>,
    files: &'a mut Files<'f, 'b>,
    name: &'a str,
    errors: &'a mut Vec<LoadError>,
}

impl Parser<'_, '_, '_, '_, '_> {
    /// One statement; false at the end of the file.
    fn statement(&mut self) -> Result<bool, LoadError> {
        let (token, place) = self.lexer.next(false)?;
        let word = match &token {
            Token::End => return Ok(false),
            Token::Bare(word) => word.as_str(),
            _ => "",
        };
        match word {
            "record" | "grecord" => self.record()?,
            "alias" => self.top_alias()?,
            "breaktable" => self.break_table()?,
            "include" => self.include()?,
            "path" | "addpath" => {
                let (path, _) = self.text("a path in quotes")?;
                if word == "path" {
                    self.files.paths.clear();
                }
                self.files.paths.extend(path.split(':').map(str::to_owned));
            }
            word if DESCRIPTIONS.contains(&word) => {
                let message =
                    format!("\"{word}\" belongs into a .dbd file; record types, menus and devices are built in");
                return Err(self.lexer.error(place, message));
            }
            word => {
                let guess = suggestion(word, STATEMENTS.into_iter());
                let message = format!("found {}, expected record, alias or include{guess}", token.shown());
                return Err(self.lexer.error(place, message));
            }
        }
        Ok(true)
    }

    /// After an error: on to the next word that starts a statement.
    fn recover(&mut self) {
        loop {
            let line_start = self.lexer.is_at_line_start();
            let peeked = self.lexer.peek_word();
            match peeked {
                None => return,
                Some(word) if line_start && (STATEMENTS[..2].contains(&word.as_str())) => return,
                Some(_) => {
                    // What was wrong is already reported.
                    if matches!(self.lexer.next(false), Ok((Token::End, _))) {
                        return;
                    }
                }
            }
        }
    }

    fn record(&mut self) -> Result<(), LoadError> {
        self.mark('(')?;
        let (kind_name, kind_place) = self.text("a record type")?;
        self.mark(',')?;
        let (name, name_place) = self.text("a record name")?;
        self.mark(')')?;
        let record = match self.target(&kind_name, &name) {
            Ok(record) => Some(record),
            Err((is_name, message)) => {
                let place = if is_name { name_place } else { kind_place };
                self.errors.push(self.lexer.error(place, message));
                None
            }
        };
        if self.lexer.peek_mark() != Some('{') {
            return Ok(());
        }
        self.mark('{')?;
        loop {
            let (token, place) = self.lexer.next(false)?;
            match &token {
                Token::Mark('}') => return Ok(()),
                Token::Mark(',') => {}
                Token::Bare(word) if word == "field" => self.field(record)?,
                Token::Bare(word) if word == "info" => self.info(record)?,
                Token::Bare(word) if word == "alias" => self.inner_alias(record)?,
                token => {
                    let word = if let Token::Bare(word) = token { word } else { "" };
                    let guess = suggestion(word, ITEMS.into_iter());
                    let message = format!("found {}, expected field, info, alias or '}}'{guess}", token.shown());
                    return Err(self.lexer.error(place, message));
                }
            }
        }
    }

    /// The record that a record statement is about. The flag: it is the name that is wrong.
    fn target(&mut self, kind_name: &str, name: &str) -> Result<u32, (bool, String)> {
        let found = self.stage.find(name);
        if kind_name == "*" {
            return found.ok_or_else(|| (true, format!("there is no record \"{name}\" to add to")));
        }
        let kind = record_type(kind_name).map_err(|message| (false, message))?;
        if let Some(record) = found {
            let existing = self.stage.cell(record).map_or("", |cell| cell.record_type().name);
            if existing != kind.name {
                return Err((true, format!("record \"{name}\" is already there, as {existing}")));
            }
            return Ok(record);
        }
        check_name(name).map_err(|message| (true, message))?;
        Ok(self.stage.add(kind, name))
    }

    fn field(&mut self, record: Option<u32>) -> Result<(), LoadError> {
        self.mark('(')?;
        let (field, field_place) = self.text("a field name")?;
        self.mark(',')?;
        let (value, value_place) = self.value()?;
        self.mark(')')?;
        let Some(record) = record else { return Ok(()) };
        let Some(kind) = self.stage.cell(record).map(|cell| cell.record_type()) else { return Ok(()) };
        let result = match number(kind.rows, &field) {
            Some(number) => self.stage.set(record, number, &value).map_err(|message| (value_place, message)),
            None => {
                let names = kind.rows.iter().chain(crate::common::Common::ROWS).map(|row: &FieldInfo| row.name);
                let guess = suggestion(&field, names);
                Err((field_place, format!("no field \"{field}\" in record type {}{guess}", kind.name)))
            }
        };
        if let Err((place, message)) = result {
            self.errors.push(self.lexer.error(place, message));
        }
        Ok(())
    }

    fn info(&mut self, record: Option<u32>) -> Result<(), LoadError> {
        self.mark('(')?;
        let (name, _) = self.text("the name of an info item")?;
        self.mark(',')?;
        let (value, _) = self.value()?;
        self.mark(')')?;
        if let Some(record) = record {
            self.stage.info(record, &name, value);
        }
        Ok(())
    }

    fn inner_alias(&mut self, record: Option<u32>) -> Result<(), LoadError> {
        self.mark('(')?;
        let (alias, place) = self.text("another name")?;
        self.mark(')')?;
        match record {
            Some(record) => self.add_alias(record, &alias, place),
            None => Ok(()),
        }
    }

    fn top_alias(&mut self) -> Result<(), LoadError> {
        self.mark('(')?;
        let (name, name_place) = self.text("a record name")?;
        self.mark(',')?;
        let (alias, place) = self.text("another name")?;
        self.mark(')')?;
        match self.stage.find(&name) {
            Some(record) => self.add_alias(record, &alias, place),
            None => Err(self.lexer.error(name_place, format!("there is no record \"{name}\""))),
        }
    }

    fn add_alias(&mut self, record: u32, alias: &str, place: Place) -> Result<(), LoadError> {
        match self.stage.find(alias) {
            Some(other) if other == record => return Ok(()),
            Some(_) => return Err(self.lexer.error(place, format!("\"{alias}\" is already the name of a record"))),
            None => {}
        }
        check_name(alias).map_err(|message| self.lexer.error(place, message))?;
        self.stage.alias(record, alias);
        Ok(())
    }

    /// A breakpoint table: its name, then raw values and values in engineering units.
    fn break_table(&mut self) -> Result<(), LoadError> {
        self.mark('(')?;
        let (name, place) = self.text("the name of a table")?;
        self.mark(')')?;
        self.mark('{')?;
        let mut numbers = Vec::new();
        loop {
            let (token, place) = self.lexer.next(false)?;
            let number = match &token {
                Token::Mark('}') => break,
                Token::Mark(',') => continue,
                Token::Bare(word) | Token::Quoted(word) => word.parse::<f64>().ok().filter(|number| number.is_finite()),
                _ => None,
            };
            let message = || format!("found {}, expected a number", token.shown());
            numbers.push(number.ok_or_else(|| self.lexer.error(place, message()))?);
        }
        match BreakTable::new(&numbers) {
            Ok(table) => self.stage.tables.push((name, Arc::new(table))),
            Err(reason) => self.errors.push(self.lexer.error(place, format!("the table \"{name}\" has {reason}"))),
        }
        Ok(())
    }

    fn include(&mut self) -> Result<(), LoadError> {
        let (file, place) = self.text("a file name in quotes")?;
        if self.files.depth >= INCLUDE_DEPTH_MAX {
            return Err(self.lexer.error(place, "files include one another without end"));
        }
        let mut found = (self.files.open)(&file).map(|bytes| (file.clone(), bytes));
        for path in self.files.paths.clone() {
            if found.is_ok() {
                break;
            }
            let name = format!("{path}/{file}");
            if let Ok(bytes) = (self.files.open)(&name) {
                found = Ok((name, bytes));
            }
        }
        let (name, bytes) =
            found.map_err(|error| self.lexer.error(place, format!("\"{file}\" cannot be read: {error}")))?;
        self.files.depth += 1;
        let mut inner = Vec::new();
        read(self.stage, &name, &bytes, self.files, &mut inner);
        self.errors.extend(inner);
        self.files.depth -= 1;
        Ok(())
    }

    fn mark(&mut self, wanted: char) -> Result<(), LoadError> {
        let (token, place) = self.lexer.next(false)?;
        if token == Token::Mark(wanted) {
            return Ok(());
        }
        Err(self.lexer.error(place, format!("found {}, expected '{wanted}'", token.shown())))
    }

    /// A word, with or without quotes.
    fn text(&mut self, what: &str) -> Result<(String, Place), LoadError> {
        match self.lexer.next(false)? {
            (Token::Bare(text) | Token::Quoted(text), place) => Ok((text, place)),
            (token, place) => {
                Err(self.lexer.error(place, format!("found {}, expected {what} in {}", token.shown(), self.name)))
            }
        }
    }

    /// A value: a word, or JSON.
    fn value(&mut self) -> Result<(Text, Place), LoadError> {
        match self.lexer.next(true)? {
            (Token::Quoted(text), place) => Ok((Text::from_bytes(&unescaped(&text)), place)),
            (Token::Bare(text) | Token::Json(text), place) => Ok((text.into(), place)),
            (token, place) => Err(self.lexer.error(place, format!("found {}, expected a value", token.shown()))),
        }
    }
}

/// What a record may be called.
fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a record needs a name".into());
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("the name is {} bytes long; {NAME_BYTES_MAX} are possible", name.len()));
    }
    if name.starts_with(['-', '+', '[', '{']) {
        return Err(format!("\"{name}\" cannot be a name: it starts with '{}'", &name[..1]));
    }
    let bad = name
        .chars()
        .find(|character| character.is_whitespace() || character.is_control() || "\"'.$".contains(*character));
    match bad {
        Some(bad) => Err(format!("\"{name}\" cannot be a name: it contains '{}'", bad.escape_default())),
        None => Ok(()),
    }
}
