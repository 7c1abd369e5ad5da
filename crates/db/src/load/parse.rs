//! The statements of a database file: record, field, info, alias, include, path.

use fodo_data::Text;

use crate::common::{number, row};
use crate::field::FieldInfo;
use crate::limit::{INCLUDE_DEPTH_MAX, INCLUDES_MAX, LOAD_ERRORS_MAX};
use crate::load::error::{Errors, LOADS_NOTHING, suggestion, too_many_includes};
use crate::load::groups::GROUP_INFO;
use crate::load::lexer::{DbToken, Lexer, SourcePlace, unescaped};
use crate::load::warnings::has_warnings;
use crate::load::{FileLoad, LoadError, Macros, OpenFile, record_type};
use crate::record::field_table::has_table;

const STATEMENTS: [&str; 7] = ["record", "grecord", "alias", "breaktable", "include", "path", "addpath"];
/// Words that start a statement, wherever they are the first word on a line.
const STARTS: [&str; 6] = ["record", "grecord", "menu", "recordtype", "device", "breaktable"];
const ITEMS: [&str; 3] = ["field", "info", "alias"];

/// Reads a file into the file load. Invalid parts are left out, reported and counted; the rest is loaded.
///
/// A syntax error ends the file and the files that include it, as in EPICS Base. A loader that keeps places, for
/// `fodo check`, continues and loads the rest, so that one error does not cause others.
pub(crate) fn file(load: &mut FileLoad, file: &str, macros: &Macros, open: &mut OpenFile, errors: &mut Errors) {
    let mut files = OpenFiles { macros, open, paths: Vec::new(), within: Vec::new(), n_read: 0, is_cut: false };
    match (files.open)(file) {
        Ok(bytes) => read(load, file, &bytes, &mut files, errors),
        Err(error) => errors.add_omission(LoadError::of_file(file, format!("cannot be read: {error}"))),
    }
}

struct OpenFiles<'a, 'b> {
    macros: &'a Macros,
    open: &'a mut OpenFile<'b>,
    /// The folders of `path` and `addpath`.
    paths: Vec<String>,
    /// The current file, and the files that include it.
    within: Vec<String>,
    n_read: usize,
    /// Whether a syntax error has ended the file and all files that include it.
    is_cut: bool,
}

fn read(load: &mut FileLoad, name: &str, bytes: &[u8], files: &mut OpenFiles, errors: &mut Errors) {
    let source = Text::from_bytes(bytes);
    if source.len() != bytes.len() {
        errors.add_omission(LoadError::of_file(name, format!("byte {} is a NUL: not a text file", source.len() + 1)));
        return;
    }
    let source = source.to_str();
    let macros = files.macros;
    files.within.push(name.to_owned());
    files.n_read += 1;
    let mut parser = DbParser { lexer: Lexer::new(name, &source, macros), load, files, name, errors };
    let mut is_empty = true;
    while !parser.files.is_cut {
        match parser.statement() {
            Ok(true) => is_empty = false,
            Ok(false) if is_empty && parser.load.keeps_places() => {
                parser.load.warning(LoadError::of_file(name, LOADS_NOTHING.into()));
                break;
            }
            Ok(false) => break,
            Err(error) => {
                is_empty = false;
                parser.syntax_error(error);
            }
        }
    }
    let found = std::mem::take(&mut parser.lexer.errors);
    files.within.pop();
    errors.list.extend(without_duplicates(found));
    errors.list.sort_by(|a, b| (a.file != name).cmp(&(b.file != name)).then(a.line.cmp(&b.line)));
    errors.list.truncate(LOAD_ERRORS_MAX);
}

/// Reports each macro error once, at its first place, with the number of further lines that have it.
fn without_duplicates(found: Vec<LoadError>) -> impl Iterator<Item = LoadError> {
    let mut distinct: Vec<(LoadError, usize, usize)> = Vec::new();
    for error in found {
        match distinct.iter_mut().find(|(first, ..)| first.message == error.message) {
            Some((_, last_line, _)) if *last_line == error.line => {}
            Some((_, last_line, n_more)) => (*last_line, *n_more) = (error.line, *n_more + 1),
            None => {
                let line = error.line;
                distinct.push((error, line, 0));
            }
        }
    }
    distinct.into_iter().map(|(error, _, n_more)| match n_more {
        0 => error,
        1 => LoadError { message: format!("{}; another line uses it too", error.message), ..error },
        n_more => LoadError { message: format!("{}; {n_more} more lines use it", error.message), ..error },
    })
}

pub(super) struct DbParser<'a, 's, 'l, 'f, 'b> {
    pub(super) lexer: Lexer<'l>,
    pub(super) load: &'a mut FileLoad<'s>,
    files: &'a mut OpenFiles<'f, 'b>,
    name: &'a str,
    pub(super) errors: &'a mut Errors,
}

/// What the body of a record applies to.
#[derive(Clone, Copy)]
enum BodyTarget {
    Record(u32),
    /// Nothing, because the record is not loaded. Groups that it belongs to lack a member.
    Omitted,
    /// Nothing, because the record is deleted, or exists and must not be defined again.
    Ignored,
}

impl DbParser<'_, '_, '_, '_, '_> {
    /// Parses one statement. False: the end of the file.
    fn statement(&mut self) -> Result<bool, LoadError> {
        let (token, place) = self.lexer.next(false)?;
        let word = match &token {
            DbToken::End => return Ok(false),
            DbToken::Bare(word) => word.as_str(),
            _ => "",
        };
        match word {
            "record" | "grecord" => self.record()?,
            "alias" => self.top_alias()?,
            "include" => self.include()?,
            "path" | "addpath" => {
                let (path, _) = self.text("a path in quotes")?;
                if word == "path" {
                    self.files.paths.clear();
                }
                self.files.paths.extend(path.split(':').map(str::to_owned));
            }
            "menu" => self.menu()?,
            "recordtype" => self.described_type()?,
            "device" => self.device()?,
            "driver" | "link" | "registrar" | "function" | "variable" => self.code()?,
            "breaktable" => self.breaktable()?,
            word => {
                let guess = suggestion(word, STATEMENTS.into_iter());
                let message = format!("found {}, expected record, alias or include{guess}", token.shown());
                return Err(self.lexer.error(place, message));
            }
        }
        Ok(true)
    }

    /// Handles a syntax error: the rest of the file is not loaded, unless places are kept.
    fn syntax_error(&mut self, error: LoadError) {
        if self.load.keeps_places() {
            self.omit_statement(error);
            self.recover();
        } else {
            let message = format!("{}; the rest of the file is not loaded", error.message);
            self.omit_statement(LoadError { message, ..error });
            self.files.is_cut = true;
        }
    }

    /// Reports that a record is not loaded.
    fn omit_record(&mut self, error: LoadError) {
        self.errors.omitted.n_records += 1;
        self.report(error);
    }

    /// Reports that a field keeps its default.
    fn omit_field(&mut self, error: LoadError) {
        self.errors.omitted.n_fields += 1;
        self.report(error);
    }

    /// Reports that another statement is not loaded.
    pub(super) fn omit_statement(&mut self, error: LoadError) {
        self.errors.omitted.n_others += 1;
        self.report(error);
    }

    /// Adds an error, unless the line has errors in macros: these cause further errors, which are not worth reporting.
    fn report(&mut self, error: LoadError) {
        if !self.lexer.is_flawed(error.line) {
            self.errors.add(error);
        }
    }

    /// After an error, skips to the next word that starts a statement.
    fn recover(&mut self) {
        loop {
            let line_start = self.lexer.is_at_line_start();
            let peeked = self.lexer.peek_word();
            match peeked {
                None => return,
                Some(word) if line_start && STARTS.contains(&word.as_str()) => return,
                Some(word) if self.lexer.is_at_column_one() && is_statement(&word) => return,
                Some(_) => {
                    // Errors here are consequences of the one already reported.
                    if matches!(self.lexer.next(false), Ok((DbToken::End, _))) {
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
        if kind_name == "#" {
            return self.delete(&name, name_place);
        }
        let is_new = self.load.find(&name).is_none();
        let is_duplicate = !is_new && kind_name != "*";
        let record = match self.load.target(&kind_name, &name) {
            Ok(_) if is_duplicate && self.load.records_once_only() => {
                let message = format!("record \"{name}\" already exists, and dbRecordsOnceOnly is set");
                self.omit_record(self.lexer.error(name_place, message));
                BodyTarget::Ignored
            }
            Ok(record) => {
                if is_new && has_table(&kind_name) && !self.load.simulates() {
                    let message = record_type(&kind_name).err().unwrap_or_default();
                    self.omit_statement(self.lexer.error(kind_place, message));
                }
                if is_duplicate && self.load.keeps_places() {
                    let message = format!(
                        "record \"{name}\" already exists; write record(\"*\", \"{name}\") to add fields to it"
                    );
                    self.load.warning(self.lexer.error(name_place, message));
                }
                BodyTarget::Record(record)
            }
            Err(_) if kind_name == "*" && self.load.is_omitted(&name) => {
                self.errors.omitted.n_others += 1;
                BodyTarget::Omitted
            }
            Err((is_name, message)) => {
                let place = if is_name { name_place } else { kind_place };
                self.load.omit(&name);
                self.omit_record(self.lexer.error(place, message));
                BodyTarget::Omitted
            }
        };
        self.body(&name, record)
    }

    /// Parses the body of a record, if it has one.
    fn body(&mut self, name: &str, record: BodyTarget) -> Result<(), LoadError> {
        if self.lexer.peek_mark() != Some('{') {
            return Ok(());
        }
        self.mark('{')?;
        let mut seen = Vec::new();
        loop {
            let (token, place) = self.lexer.next(false)?;
            match &token {
                DbToken::Mark('}') => return Ok(()),
                DbToken::Mark(',') => {}
                DbToken::Bare(word) if word == "field" => self.field(record, &mut seen)?,
                DbToken::Bare(word) if word == "info" => self.info(record)?,
                DbToken::Bare(word) if word == "alias" => self.inner_alias(record)?,
                token => {
                    let word = if let DbToken::Bare(word) = token { word } else { "" };
                    let hint = match *token == DbToken::End || STARTS.contains(&word) {
                        true => format!("; the '}}' of \"{name}\" is missing"),
                        false => suggestion(word, ITEMS.into_iter()),
                    };
                    let message = format!("found {}, expected field, info, alias or '}}'{hint}", token.shown());
                    return Err(self.lexer.error(place, message));
                }
            }
        }
    }

    /// Executes `record("#", name)`. An unknown name is an error, as in Base; a body is ignored.
    fn delete(&mut self, name: &str, place: SourcePlace) -> Result<(), LoadError> {
        if !self.load.delete(name) {
            let message = format!("there is no record \"{name}\" to delete{}", self.load.name_like(name));
            self.omit_statement(self.lexer.error(place, message));
        }
        self.body(name, BodyTarget::Ignored)
    }

    /// Parses a field. `seen`: the fields that this record body has already set.
    fn field(&mut self, record: BodyTarget, seen: &mut Vec<u16>) -> Result<(), LoadError> {
        self.mark('(')?;
        let (field, field_place) = self.text("a field name")?;
        self.mark(',')?;
        let (value, value_place) = self.value()?;
        self.mark(')')?;
        let BodyTarget::Record(record) = record else { return Ok(()) };
        if self.lexer.is_flawed_at(value_place) && has_macro(&value) {
            self.errors.omitted.n_fields += 1;
            return Ok(());
        }
        let result = match self.load.field_number(record, &field, &value) {
            None => return Ok(()),
            Some(Ok(number)) => {
                self.keep(record, number, &value, (field_place, value_place), seen);
                let result = self.load.set(record, number, &value);
                result.map_err(|error| (self.lexer.place_in_value(value_place, error.offset), error.message))
            }
            Some(Err(message)) => Err((field_place, message)),
        };
        if let Err((place, message)) = result {
            self.omit_field(self.lexer.error(place, message));
        }
        Ok(())
    }

    /// Keeps the place of a field, if the loader needs it.
    fn keep(&mut self, record: u32, field: u16, value: &Text, places: (SourcePlace, SourcePlace), seen: &mut Vec<u16>) {
        let (field_place, value_place) = places;
        let is_address = !self.load.simulates() && matches!(value.as_bytes(), [b'@' | b'#', ..]);
        if !self.load.keeps_places() && !is_address {
            return;
        }
        if seen.contains(&field) && self.load.keeps_places() {
            let warning = self.lexer.error(field_place, "this field is set twice in one body; the last value is used");
            self.load.warning(warning);
        }
        seen.push(field);
        let rows = self.load.cell(record).map(|cell| cell.record_type().rows);
        if rows.and_then(|rows| row(rows, field)).is_some_and(has_warnings) {
            let at = self.lexer.error(value_place, "");
            self.load.place(record, field, value, at);
        }
    }

    fn info(&mut self, record: BodyTarget) -> Result<(), LoadError> {
        self.mark('(')?;
        let (name, _) = self.text("the name of an info item")?;
        self.mark(',')?;
        let is_json = matches!(self.lexer.peek_mark(), Some('{'));
        let (value, place) = self.value()?;
        self.mark(')')?;
        if name == GROUP_INFO {
            self.groups(record, &value.to_str(), place, is_json);
        }
        if let BodyTarget::Record(record) = record {
            self.check_autosave_fields(record, &name, &value.to_str(), place);
            self.load.info(record, &name, value);
        }
        Ok(())
    }

    /// Adds the groups that an info item defines.
    fn groups(&mut self, record: BodyTarget, text: &str, place: SourcePlace, is_json: bool) {
        let lexer = &self.lexer;
        let at = |offset| lexer.error(if is_json { lexer.place_in_json(offset) } else { place }, "");
        let errors = match record {
            BodyTarget::Record(record) => self.load.groups(record, text, &at),
            BodyTarget::Omitted => {
                self.load.omit_groups(text, &at);
                Vec::new()
            }
            BodyTarget::Ignored => Vec::new(),
        };
        errors.into_iter().for_each(|error| self.omit_statement(error));
    }

    /// Checks the field names in info items for autosave, such as `info(autosaveFields, "VAL PREC")`.
    fn check_autosave_fields(&mut self, record: u32, name: &str, list: &str, place: SourcePlace) {
        if !self.load.keeps_places() || !name.starts_with("autosaveFields") {
            return;
        }
        let Some(kind) = self.load.cell(record).map(|cell| cell.record_type()) else { return };
        for word in list.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
            let field = word.strip_suffix('$').unwrap_or(word);
            if number(kind.rows, field).is_none() {
                let names = kind.rows.iter().chain(crate::common::Common::ROWS).map(|row: &FieldInfo| row.name);
                let guess = suggestion(field, names);
                let message = format!("no field \"{field}\" in record type {} to be saved{guess}", kind.name);
                let warning = self.lexer.error(place, message);
                self.load.warning(warning);
            }
        }
    }

    fn inner_alias(&mut self, record: BodyTarget) -> Result<(), LoadError> {
        self.mark('(')?;
        let (alias, place) = self.text("an alias")?;
        self.mark(')')?;
        if let BodyTarget::Record(record) = record {
            self.add_alias(record, &alias, place);
        }
        Ok(())
    }

    fn top_alias(&mut self) -> Result<(), LoadError> {
        self.mark('(')?;
        let (name, name_place) = self.text("a record name")?;
        self.mark(',')?;
        let (alias, place) = self.text("an alias")?;
        self.mark(')')?;
        match self.load.find(&name) {
            Some(record) => self.add_alias(record, &alias, place),
            None if self.load.is_omitted(&name) => self.errors.omitted.n_others += 1,
            None => {
                let message = format!("there is no record \"{name}\"{}", self.load.name_like(&name));
                self.omit_statement(self.lexer.error(name_place, message));
            }
        }
        Ok(())
    }

    fn add_alias(&mut self, record: u32, alias: &str, place: SourcePlace) {
        if let Err(message) = self.load.add_alias(record, alias) {
            self.omit_statement(self.lexer.error(place, message));
        }
    }

    fn include(&mut self) -> Result<(), LoadError> {
        let (file, place) = self.text("a file name in quotes")?;
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
        let (name, bytes) = match found {
            Ok(found) => found,
            Err(error) => {
                self.omit_statement(self.lexer.error(place, format!("\"{file}\" cannot be read: {error}")));
                return Ok(());
            }
        };
        if self.files.within.contains(&name) || self.files.within.len() >= INCLUDE_DEPTH_MAX {
            let round = format!("{} -> {name}", self.files.within.join(" -> "));
            let message = format!("circular or too deep include: {round}");
            self.omit_statement(self.lexer.error(place, message));
            return Ok(());
        }
        if self.files.n_read >= INCLUDES_MAX {
            self.omit_statement(self.lexer.error(place, too_many_includes()));
            return Ok(());
        }
        let mut inner = Errors::default();
        read(self.load, &name, &bytes, self.files, &mut inner);
        self.errors.extend(inner);
        Ok(())
    }

    pub(super) fn mark(&mut self, expected: char) -> Result<(), LoadError> {
        let (token, place) = self.lexer.next(false)?;
        if token == DbToken::Mark(expected) {
            return Ok(());
        }
        let hint = match (&token, expected) {
            (DbToken::Bare(_), ')') => "; several words need double quotes around them",
            _ => "",
        };
        Err(self.lexer.error(place, format!("found {}, expected '{expected}'{hint}", token.shown())))
    }

    /// Reads a word, with or without quotes.
    pub(super) fn text(&mut self, what: &str) -> Result<(String, SourcePlace), LoadError> {
        match self.lexer.next(false)? {
            (DbToken::Bare(text) | DbToken::Quoted(text), place) => Ok((text, place)),
            (token, place) => {
                Err(self.lexer.error(place, format!("found {}, expected {what} in {}", token.shown(), self.name)))
            }
        }
    }

    /// Reads a value: a word, or JSON.
    pub(super) fn value(&mut self) -> Result<(Text, SourcePlace), LoadError> {
        match self.lexer.next(true)? {
            (DbToken::Quoted(text), place) => Ok((Text::from_bytes(&unescaped(&text)), place)),
            (DbToken::Bare(text) | DbToken::Json(text), place) => Ok((text.into(), place)),
            (token, place) => Err(self.lexer.error(place, format!("found {}, expected a value", token.shown()))),
        }
    }
}

/// Whether a value still contains a macro reference.
fn has_macro(value: &Text) -> bool {
    let value = value.to_str();
    value.contains("$(") || value.contains("${")
}

/// Whether a word at the start of a line starts a statement, possibly a misspelt one.
fn is_statement(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_alphabetic()) && !ITEMS.contains(&word)
}
