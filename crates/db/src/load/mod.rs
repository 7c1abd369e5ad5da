//! Loading `.db` files: words, macros, statements, and the records they make.

mod error;
pub(crate) mod lexer;
mod macros;
mod parse;
mod value;

use std::collections::HashMap;
use std::fmt;

use fodo_data::Text;

pub use error::LoadError;
pub(crate) use macros::Macros;

use crate::common::Common;
use crate::core::{Core, Name};
use crate::database::Database;
use crate::field::Slot;
use crate::link::Link;
use crate::post::LONG_STRING;
use crate::record::{Cell, Record, RecordType, find, with};

/// Reads what `include` names and what is loaded by name: the bytes of a file.
pub type OpenFile<'a> = dyn FnMut(&str) -> std::io::Result<Vec<u8>> + 'a;

/// An info item: a record, a name, and what it says.
pub(crate) type Info = (u32, Text, Text);

/// Collects records from files; nothing runs yet.
#[derive(Default)]
pub struct Loader {
    records: Vec<Box<dyn Cell>>,
    names: Vec<Text>,
    index: HashMap<Name, u32>,
    infos: Vec<Info>,
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("n_records", &self.records.len()).finish_non_exhaustive()
    }
}

impl Loader {
    /// Loads one `.db` file. `macros`: `"P=X:,R=1"`. All of the file is taken or nothing.
    pub fn load(&mut self, file: &str, macros: &str, open: &mut OpenFile) -> Result<(), Vec<LoadError>> {
        let macros = Macros::parse(macros).map_err(|message| vec![bare_error(file, message)])?;
        let mut stage = Stage::new(self);
        let mut errors = Vec::new();
        parse::file(&mut stage, file, &macros, open, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        let Stage { added, names, changed, index, infos, .. } = stage;
        for (record, cell) in changed {
            if let Some(place) = self.records.get_mut(record as usize) {
                *place = cell;
            }
        }
        self.records.extend(added);
        self.names.extend(names);
        self.index.extend(index);
        self.infos.extend(infos);
        Ok(())
    }

    /// Joins links and scan lists.
    pub fn finish(self) -> Result<Database, Vec<LoadError>> {
        let Loader { records, names, index, mut infos } = self;
        let core = Core { records, index, names };
        for record in 0..core.records.len() as u32 {
            join_links(&core, record);
        }
        for record in 0..core.records.len() as u32 {
            core.with(record, |body| {
                let common = body.common();
                if common.undefined != 0 && common.status == fodo_data::Status::UDF.0 {
                    common.severity = common.undefined_severity;
                }
                body.init();
            });
        }
        infos.sort_by_key(|(record, ..)| *record);
        Ok(Database::new(core, infos))
    }
}

/// Finds where each link of a record leads.
fn join_links(core: &Core, record: u32) {
    let Some(cell) = core.cell(record) else { return };
    let n_fields = Common::COUNT + cell.record_type().rows.len() as u16;
    for field in 0..n_fields {
        let is_link = crate::common::row(cell.record_type().rows, field).is_some_and(|row| row.dbf.is_link());
        if !is_link {
            continue;
        }
        let link = with(cell, |body| link_of(body, field).map(std::mem::take)).flatten();
        let Some(link) = link.filter(|link| link.name().is_some() || !link.text().is_empty()) else { continue };
        let link = core.join(record, field, link);
        with(cell, |body| {
            if let Some(place) = link_of(body, field) {
                *place = link;
            }
        });
    }
}

fn link_of(body: &mut dyn Record, field: u16) -> Option<&mut Link> {
    debug_assert!(field & LONG_STRING == 0);
    match body.slot(field)? {
        Slot::InLink(link) | Slot::OutLink(link) | Slot::FwdLink(link) => Some(link),
        _ => None,
    }
}

pub(crate) fn bare_error(file: &str, message: String) -> LoadError {
    LoadError { file: file.to_owned(), line: 0, column: 0, message, source: String::new() }
}

/// What a file adds and changes, until all of it is known to be right.
pub(crate) struct Stage<'a> {
    loader: &'a Loader,
    added: Vec<Box<dyn Cell>>,
    names: Vec<Text>,
    changed: HashMap<u32, Box<dyn Cell>>,
    index: HashMap<Name, u32>,
    infos: Vec<Info>,
}

impl<'a> Stage<'a> {
    fn new(loader: &'a Loader) -> Stage<'a> {
        Stage {
            loader,
            added: Vec::new(),
            names: Vec::new(),
            changed: HashMap::new(),
            index: HashMap::new(),
            infos: Vec::new(),
        }
    }

    /// The record of a name or alias.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.index.get(name.as_bytes()).or_else(|| self.loader.index.get(name.as_bytes())).copied()
    }

    /// A record ready to be changed.
    pub(crate) fn cell(&mut self, record: u32) -> Option<&dyn Cell> {
        let n_before = self.loader.records.len();
        let index = record as usize;
        if index >= n_before {
            return self.added.get(index - n_before).map(|cell| &**cell);
        }
        let original = self.loader.records.get(index)?;
        Some(&**self.changed.entry(record).or_insert_with(|| original.duplicate()))
    }

    /// A new record.
    pub(crate) fn add(&mut self, kind: &'static RecordType, name: &str) -> u32 {
        let record = (self.loader.records.len() + self.added.len()) as u32;
        let name = Text::from(name);
        let cell = (kind.create)();
        with(&*cell, |body| body.common().name = name.clone());
        self.added.push(cell);
        self.names.push(name.clone());
        self.index.insert(Name(name), record);
        record
    }

    pub(crate) fn alias(&mut self, record: u32, alias: &str) {
        self.index.insert(Name(alias.into()), record);
    }

    pub(crate) fn info(&mut self, record: u32, name: &str, value: Text) {
        self.infos.push((record, name.into(), value));
    }
}

/// The record type of a name, or what to say.
pub(crate) fn record_type(name: &str) -> Result<&'static RecordType, String> {
    find(name).ok_or_else(|| {
        let names = crate::record::TYPES.iter().map(|kind| kind.name);
        let guess = error::suggestion(name, names.clone());
        let all: Vec<&str> = names.collect();
        let all = if guess.is_empty() { format!("; there are {}", all.join(", ")) } else { guess };
        format!("no record type \"{name}\"{all}")
    })
}
