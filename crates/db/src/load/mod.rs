//! Loading `.db` files: tokens, macros, statements, and the resulting records.

mod define;
mod describe;
pub(crate) mod error;
mod groups;
mod invalid_links;
pub(crate) mod lexer;
mod macros;
mod msi;
mod parse;
mod restore;
mod simulate;
mod substitutions;
mod template;
mod value;
mod warnings;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use fodo_data::{Text, Value};
use fodo_lock::Mutex;

pub use define::RecordDefinition;
use define::fitting_values;
use error::{Errors, Suggestions};
pub use error::{LoadError, Omitted, closest_match};
use groups::GroupParts;
pub use groups::{GroupDefinition, GroupDefinitions, MemberDefinition, MemberMapping, MemberPath, PathStep};
pub use lexer::unescaped;
pub use macros::{MacroError, Macros};
pub use msi::{TemplateStatement, template_sets};
pub use restore::RestoreError;
pub use simulate::InertRecords;
pub use substitutions::{Instance, instances};
pub use template::{ExpandedTemplate, UndefinedMacros, expand};

use crate::breaktable::BreakTable;
use crate::common::Common;
use crate::core::{BreakTables, Core};
use crate::device::DeviceSupport;
use crate::field::DEVICE;
use crate::hash::NameMap;
use crate::link::Target;
use crate::load::warnings::FieldPlace;
use crate::record::contract::{LockedRecord, RecordType, link_of, with};
use crate::record::field_table::has_table;
use crate::record::registry::{find, record_types};
use crate::reference::Name;
use crate::routine::{ASubCall, RoutineFailed, Routines, SubCall};
use crate::scan_menu::ScanMenu;
use crate::site::{DefaultSite, Site};
use crate::state::States;

/// Reads a file by name, for `include` and for loading.
pub type OpenFile<'a> = dyn FnMut(&str) -> std::io::Result<Vec<u8>> + 'a;

/// An info item: a record, a name, and a value.
pub(crate) type Info = (u32, Text, Text);

/// Loads records from files, and finally makes a database of them.
#[derive(Default)]
pub struct Loader {
    records: Vec<Box<dyn LockedRecord>>,
    names: Vec<Text>,
    index: NameMap<u32>,
    infos: Vec<Info>,
    groups: GroupParts,
    routines: Routines,
    /// Records that a later file deleted; [`Loader::finish`] removes them.
    deleted: HashSet<u32>,
    /// The places of fields that a warning or an invalid link is about.
    placed: Vec<FieldPlace>,
    /// Whether all places are kept, for warnings. Otherwise only those of addresses are kept.
    keeps_places: bool,
    warnings: Vec<LoadError>,
    records_once_only: bool,
    include_trace: Vec<String>,
    tables: BreakTables,
    site: Option<Arc<dyn Site>>,
    states: States,
    /// Whether records of unknown types or DTYPs are loaded as inert records.
    simulates: bool,
    scan_menu: ScanMenu,
    /// Whether a file has defined `menuScan`; no other file can then define a different one.
    has_scan_menu: bool,
    /// Whether a field has a periodic choice of `menuScan`; the menu can then no longer change.
    uses_scan_menu: bool,
    /// The names of unknown device supports.
    devices: Vec<Text>,
    omitted: Omitted,
    suggestions: Suggestions,
    /// The names of records that were not loaded because of errors.
    omitted_records: HashSet<String>,
    /// Records that must not process, with the text for AMSG.
    disabled: HashMap<u32, Text>,
    /// Whether records can have DTYP Program.
    has_program: bool,
    /// Values of VAL that no file can contain.
    initial_values: Vec<(u32, Value)>,
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("n_records", &self.records.len()).finish_non_exhaustive()
    }
}

impl Loader {
    /// Loads one `.db` file. `macros`: `"P=X:,R=1"`.
    ///
    /// Invalid parts are left out and counted ([`Loader::omitted`]); the rest is loaded. A field with an invalid value
    /// keeps its default. A record of an unknown type is left out. A record with an unknown DTYP does not process. A
    /// syntax error ends the file. Returns the errors, at most the first hundred of a file.
    pub fn load(&mut self, file: &str, macros: &str, open: &mut OpenFile) -> Result<(), Vec<LoadError>> {
        self.load_file(file, macros, open, false)
    }

    /// Loads a `.dbd` file: the site's `menuScan`, breakpoint tables, and records if it has any. Unknown record types
    /// and device supports are ignored; a record that needs one is reported when it is loaded.
    ///
    /// A `menuScan` replaces the scan rates of EPICS Base. It must be loaded before records use its choices.
    pub fn load_description(&mut self, file: &str, macros: &str, open: &mut OpenFile) -> Result<(), Vec<LoadError>> {
        self.load_file(file, macros, open, true)
    }

    fn load_file(
        &mut self,
        file: &str,
        macros: &str,
        open: &mut OpenFile,
        is_description: bool,
    ) -> Result<(), Vec<LoadError>> {
        let mut errors = Errors::default();
        let macros = Macros::defined(file, macros, &mut errors);
        let mut load = FileLoad { is_description, ..FileLoad::new(self) };
        parse::file(&mut load, file, &macros, open, &mut errors);
        let changes = load.changes;
        self.take(changes, errors)
    }

    /// Loads every template instance of a `.substitutions` file, like `dbLoadTemplate`. Invalid parts are left out, as
    /// in [`Loader::load`].
    pub fn load_template(&mut self, file: &str, macros: &str, open: &mut OpenFile) -> Result<(), Vec<LoadError>> {
        let mut errors = Errors::default();
        let macros = Macros::defined(file, macros, &mut errors);
        let (instances, wrong, warnings) = substitutions::instances_with_warnings(file, &macros, open);
        wrong.into_iter().for_each(|error| errors.add_omission(error));
        // Hundreds of instances share a few files, so each file is read once.
        let mut read: HashMap<String, Vec<u8>> = HashMap::new();
        let mut open = |name: &str| match read.get(name) {
            Some(bytes) => Ok(bytes.clone()),
            None => open(name).inspect(|bytes| drop(read.insert(name.to_owned(), bytes.clone()))),
        };
        let mut load = FileLoad::new(self);
        load.changes.warnings = warnings;
        for instance in &instances {
            let mut found = Errors::default();
            load.instance = Some(instance.place.clone());
            let (n_placed, n_remarks) = (load.changes.placed.len(), load.changes.warnings.len());
            parse::file(&mut load, &instance.file, &instance.macros, &mut open, &mut found);
            let placed = load.changes.placed.iter_mut().skip(n_placed).map(|placed| &mut placed.at);
            for error in placed.chain(load.changes.warnings.iter_mut().skip(n_remarks)).chain(&mut found.list) {
                error.from.push(instance.place.clone());
            }
            found.list.retain(|error| {
                let same = |other: &LoadError| {
                    (&other.file, other.line, &other.message) == (&error.file, error.line, &error.message)
                };
                !errors.list.iter().any(same)
            });
            errors.extend(found);
        }
        let changes = load.changes;
        self.take(changes, errors)
    }

    /// The names of records that were not loaded because of errors.
    pub fn omitted_records(&self) -> &HashSet<String> {
        &self.omitted_records
    }

    /// How much was not loaded because of errors so far.
    pub fn omitted(&self) -> Omitted {
        self.omitted
    }

    /// Makes a repeated record definition an error from now on, like `dbRecordsOnceOnly`. `record("*", name)`, which
    /// adds fields to an existing record, is still allowed.
    pub fn set_records_once_only(&mut self, once: bool) {
        self.records_once_only = once;
    }

    /// Sets the places that load the next files, innermost first. Warnings and invalid links show them.
    pub fn set_include_trace(&mut self, places: Vec<String>) {
        self.include_trace = places;
    }

    /// Adds the records and changes of a loaded file.
    fn take(&mut self, changes: FileChanges, errors: Errors) -> Result<(), Vec<LoadError>> {
        let FileChanges { added, names, changed, index, infos, tables, deleted, devices, omitted_records, .. } =
            changes;
        let FileChanges { mut placed, mut warnings, scan_menu, uses_scan_menu, groups, .. } = changes;
        self.groups.extend(groups);
        self.omitted += errors.omitted;
        self.omitted_records.extend(omitted_records);
        self.tables.extend(tables);
        self.devices.extend(devices);
        if let Some(scan_menu) = scan_menu {
            (self.scan_menu, self.has_scan_menu) = (scan_menu, true);
        }
        self.uses_scan_menu |= uses_scan_menu;
        for error in placed.iter_mut().map(|placed| &mut placed.at).chain(&mut warnings) {
            error.from.extend_from_slice(&self.include_trace);
        }
        self.placed.extend(placed);
        self.warnings.extend(warnings);
        for (record, cell) in changed {
            if let Some(place) = self.records.get_mut(record as usize) {
                *place = cell;
            }
        }
        self.records.extend(added);
        self.names.extend(names);
        for (name, record) in index {
            match record {
                Some(record) => drop(self.index.insert(name, record)),
                None => drop(self.index.remove(name.0.as_bytes())),
            }
        }
        self.infos.extend(infos);
        self.deleted.extend(deleted);
        if errors.list.is_empty() { Ok(()) } else { Err(errors.list) }
    }

    /// Removes deleted records and renumbers the others.
    fn compact(&mut self) {
        if self.deleted.is_empty() {
            return;
        }
        let deleted = std::mem::take(&mut self.deleted);
        let mut moved = Vec::with_capacity(self.records.len());
        let mut next = 0;
        for record in 0..self.records.len() as u32 {
            let is_kept = !deleted.contains(&record);
            moved.push(is_kept.then_some(next));
            next += u32::from(is_kept);
        }
        let is_kept = |index: &mut usize| {
            *index += 1;
            moved.get(*index - 1).copied().flatten().is_some()
        };
        let (mut record, mut name) = (0, 0);
        self.records.retain(|_| is_kept(&mut record));
        self.names.retain(|_| is_kept(&mut name));
        let place = |record: u32| moved.get(record as usize).copied().flatten();
        self.index = std::mem::take(&mut self.index)
            .into_iter()
            .filter_map(|(name, record)| Some((name, place(record)?)))
            .collect();
        self.infos = std::mem::take(&mut self.infos)
            .into_iter()
            .filter_map(|(record, name, value)| Some((place(record)?, name, value)))
            .collect();
        self.initial_values = std::mem::take(&mut self.initial_values)
            .into_iter()
            .filter_map(|(record, value)| Some((place(record)?, value)))
            .collect();
        self.disabled = std::mem::take(&mut self.disabled)
            .into_iter()
            .filter_map(|(record, message)| Some((place(record)?, message)))
            .collect();
    }

    /// Registers a routine that `sub` records can name in SNAM and INAM. It replaces a routine of the same name.
    ///
    /// The routine runs while its record is processed and locked, so it must not wait for anything. A routine that
    /// panics counts as failed. A record that names an unknown routine goes into BAD_SUB alarm when it is processed.
    ///
    /// ```
    /// use fodo_db::{Input, Loader, RoutineFailed};
    /// use fodo_data::{Now, Value};
    ///
    /// let mut loader = Loader::default();
    /// loader.routine("ratio", |call| {
    ///     if call.args[1] == 0.0 {
    ///         return Err(RoutineFailed);
    ///     }
    ///     *call.value = call.args[0] / call.args[1];
    ///     Ok(())
    /// });
    /// let db = "record(sub, r) { field(SNAM, ratio) field(INPA, 6) field(INPB, 4) field(PINI, YES) }";
    /// loader.load("ratio.db", "", &mut |_| Ok(db.into())).unwrap();
    /// let database = loader.finish().unwrap();
    /// database.handle(Input::Start, Now::for_test(), &mut Vec::new()).unwrap();
    ///
    /// assert_eq!(database.read(database.field("r").unwrap()).value, Value::from(1.5));
    /// ```
    pub fn routine(
        &mut self,
        name: &str,
        routine: impl Fn(SubCall<'_>) -> Result<(), RoutineFailed> + Send + Sync + 'static,
    ) {
        self.routines.add(name, Arc::new(routine));
    }

    /// Registers a routine that `aSub` records can name in SNAM, INAM and through SUBL. It replaces a routine of the
    /// same name; a `sub` routine may have the same name.
    ///
    /// The routine returns the new VAL. The record writes its outputs only if VAL is 0. A negative result and
    /// [`RoutineFailed`], which counts as -1, raise SOFT alarm with the severity in BRSV. The rest is the same as in
    /// [`Loader::routine`].
    ///
    /// ```
    /// use fodo_db::{Input, Loader};
    /// use fodo_data::{Now, Value};
    ///
    /// let mut loader = Loader::default();
    /// loader.array_routine("cumulate", |call| {
    ///     let mut sum = 0.0;
    ///     let sums: Vec<f64> = call.input::<f64>('A')?.iter().map(|sample| { sum += sample; sum }).collect();
    ///     call.set_output('A', &sums)?;
    ///     call.set_output('B', &[sums.len() as i32])?;
    ///     Ok(0)
    /// });
    /// let db = "record(aSub, s) {
    ///     field(SNAM, cumulate) field(INPA, [1, 2, 4]) field(NOA, 10) field(NOVA, 10) field(FTVB, LONG) field(PINI, YES)
    /// }";
    /// loader.load("sums.db", "", &mut |_| Ok(db.into())).unwrap();
    /// let database = loader.finish().unwrap();
    /// database.handle(Input::Start, Now::for_test(), &mut Vec::new()).unwrap();
    ///
    /// let read = |name| database.read(database.field(name).unwrap()).value;
    /// assert_eq!(read("s.VALA"), Value::from(vec![1.0, 3.0, 7.0]));
    /// assert_eq!(read("s.VALB"), Value::from(vec![3_i32]));
    /// ```
    pub fn array_routine(
        &mut self,
        name: &str,
        routine: impl Fn(&mut ASubCall<'_>) -> Result<i32, RoutineFailed> + Send + Sync + 'static,
    ) {
        self.routines.add_array(name, Arc::new(routine));
    }

    /// Allows records to have DTYP Program: a program that embeds the database sets and takes their values, as
    /// [`crate::Database::set_by_program`] and [`crate::Database::take_outputs`] show. Must precede the files.
    pub fn enable_program(&mut self) {
        self.has_program = true;
    }

    /// Sets the access to environment variables and the time zone. The default is no variables, and UTC.
    pub fn set_site(&mut self, site: Arc<dyn Site>) {
        self.site = Some(site);
    }

    /// The named states of the future database. Filters find only states that exist.
    pub fn states(&self) -> &States {
        &self.states
    }

    /// Resolves the links and initialises the records. Returns them and the info items, sorted by record.
    pub(crate) fn into_core(mut self) -> Result<LoadedCore, Vec<LoadError>> {
        let invalid_links = self.invalid_links();
        if !invalid_links.is_empty() {
            return Err(invalid_links);
        }
        self.compact();
        self.find_unsupported();
        let Loader {
            records,
            names,
            index,
            mut infos,
            routines,
            tables,
            site,
            states,
            devices,
            disabled,
            scan_menu,
            has_program,
            initial_values,
            ..
        } = self;
        let routines = Arc::new(routines);
        let site = site.unwrap_or_else(|| Arc::new(DefaultSite));
        let pending_reports = Mutex::default();
        let core =
            Core { records, index, names, tables, site, states, devices, pending_reports, scan_menu, has_program };
        for record in 0..core.records.len() as u32 {
            join_links(&core, record);
        }
        for record in 0..core.records.len() as u32 {
            core.with(record, |body| {
                let common = body.common();
                if common.undefined != 0 && common.status == fodo_data::Status::UDF.0 {
                    common.severity = common.undefined_severity;
                }
                body.set_routines(&routines);
                body.init();
            });
        }
        for (record, message) in disabled {
            core.with(record, |body| invalid_links::disable_processing(body.common(), &message));
        }
        infos.sort_by_key(|(record, ..)| *record);
        let initial_values = fitting_values(&core, initial_values)?;
        Ok(LoadedCore { core, infos, initial_values })
    }
}

/// The records and what belongs to them.
pub(crate) struct LoadedCore {
    pub(crate) core: Core,
    /// Sorted by record number.
    pub(crate) infos: Vec<Info>,
    /// Values of VAL that the start sets, by record number.
    pub(crate) initial_values: Vec<(u32, Value)>,
}

/// Resolves the target of each link of a record.
fn join_links(core: &Core, record: u32) {
    let Some(cell) = core.cell(record) else { return };
    let rows = cell.record_type().rows;
    let is_inert = with(cell, |body| DeviceSupport::is_inert(body)).unwrap_or_default();
    let has_table = has_table(cell.record_type().name);
    for field in 0..Common::COUNT + rows.len() as u16 {
        let Some(row) = crate::common::row(rows, field).filter(|row| row.dbf.is_link()) else { continue };
        let link = with(cell, |body| link_of(body, field).map(std::mem::take)).flatten();
        let Some(link) = link.filter(|link| link.name().is_some() || !link.text().is_empty()) else { continue };
        let link = match is_inert && row.has(DEVICE) || has_table && field >= Common::COUNT {
            true => {
                let mut link = link;
                link.set_target(Target::Constant);
                link
            }
            false => core.join(record, field, link),
        };
        with(cell, |body| {
            if let Some(place) = link_of(body, field) {
                *place = link;
            }
        });
    }
}

/// The additions and changes of a file while it is read.
pub(crate) struct FileLoad<'a> {
    loader: &'a Loader,
    /// Whether the file is a `.dbd` file.
    is_description: bool,
    /// The place of the template instance that loads the file.
    instance: Option<String>,
    changes: FileChanges,
}

#[derive(Default)]
struct FileChanges {
    added: Vec<Box<dyn LockedRecord>>,
    names: Vec<Text>,
    changed: HashMap<u32, Box<dyn LockedRecord>>,
    /// Records by name or alias; `None` for a deleted alias.
    index: NameMap<Option<u32>>,
    infos: Vec<Info>,
    groups: GroupParts,
    tables: Vec<(String, Arc<BreakTable>)>,
    deleted: HashSet<u32>,
    devices: Vec<Text>,
    omitted_records: HashSet<String>,
    placed: Vec<FieldPlace>,
    warnings: Vec<LoadError>,
    scan_menu: Option<ScanMenu>,
    uses_scan_menu: bool,
}

impl<'a> FileLoad<'a> {
    fn new(loader: &'a Loader) -> FileLoad<'a> {
        FileLoad { loader, is_description: false, instance: None, changes: FileChanges::default() }
    }

    /// The record of a name or alias.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        let found = match self.changes.index.get(name.as_bytes()) {
            Some(found) => *found,
            None => self.loader.index.get(name.as_bytes()).copied(),
        };
        found.filter(|record| !self.changes.deleted.contains(record) && !self.loader.deleted.contains(record))
    }

    /// A record that may be changed; a copy, if an earlier file defined it.
    pub(crate) fn cell(&mut self, record: u32) -> Option<&dyn LockedRecord> {
        let n_before = self.loader.records.len();
        let index = record as usize;
        if index >= n_before {
            return self.changes.added.get(index - n_before).map(|cell| &**cell);
        }
        let original = self.loader.records.get(index)?;
        Some(&**self.changes.changed.entry(record).or_insert_with(|| original.duplicate()))
    }

    /// Adds a record.
    pub(crate) fn add(&mut self, kind: &'static RecordType, name: &str) -> u32 {
        self.add_cell((kind.create)(), name)
    }

    fn add_cell(&mut self, cell: Box<dyn LockedRecord>, name: &str) -> u32 {
        let record = (self.loader.records.len() + self.changes.added.len()) as u32;
        let name = Text::from(name);
        with(&*cell, |body| body.common().name = name.clone());
        self.changes.added.push(cell);
        self.changes.names.push(name.clone());
        self.changes.index.insert(Name(name), Some(record));
        record
    }

    pub(crate) fn alias(&mut self, record: u32, alias: &str) {
        self.changes.index.insert(Name(alias.into()), Some(record));
    }

    /// Deletes a record; for an alias, only the alias. False: the name is unknown.
    pub(crate) fn delete(&mut self, name: &str) -> bool {
        let Some(record) = self.find(name) else { return false };
        if self.name_of(record).as_bytes() == name.as_bytes() {
            self.changes.deleted.insert(record);
        } else {
            self.changes.index.insert(Name(name.into()), None);
        }
        true
    }

    /// Notes a record that is not loaded because of an error, so that references to it are not reported again.
    pub(crate) fn omit(&mut self, name: &str) {
        self.changes.omitted_records.insert(name.to_owned());
    }

    /// Whether a record of this name was not loaded because of an error.
    pub(crate) fn is_omitted(&self, name: &str) -> bool {
        self.loader.omitted_records.contains(name) || self.changes.omitted_records.contains(name)
    }

    /// Whether the places of all fields are kept.
    pub(crate) fn keeps_places(&self) -> bool {
        self.loader.keeps_places
    }

    pub(crate) fn records_once_only(&self) -> bool {
        self.loader.records_once_only
    }

    pub(crate) fn place(&mut self, record: u32, field: u16, text: &Text, at: LoadError) {
        self.changes.placed.push(FieldPlace { record, field, text: text.clone(), at });
    }

    pub(crate) fn warning(&mut self, warning: LoadError) {
        self.changes.warnings.push(warning);
    }

    pub(crate) fn info(&mut self, record: u32, name: &str, value: Text) {
        self.changes.infos.push((record, name.into(), value));
    }

    /// The name of a record.
    fn name_of(&self, record: u32) -> Text {
        let n_before = self.loader.names.len();
        let name = match (record as usize).checked_sub(n_before) {
            Some(index) => self.changes.names.get(index),
            None => self.loader.names.get(record as usize),
        };
        name.cloned().unwrap_or_default()
    }

    /// `; did you mean "X"?` with the most similar record name, or nothing.
    pub(crate) fn name_like(&self, name: &str) -> String {
        self.loader.suggestions.suggestion(name, self.loader.names.iter().chain(&self.changes.names))
    }
}

/// Record types of synApps that are not implemented. No similar type is suggested for them.
const NOT_IMPLEMENTED: [&str; 2] = ["luascript", "throttle"];

/// The record type of a name, or the error message.
pub(crate) fn record_type(name: &str) -> Result<&'static RecordType, String> {
    find(name).ok_or_else(|| {
        if has_table(name) {
            return format!(
                "no record support for \"{name}\", so the record does not process and is INVALID{}",
                simulate::INERT_HINT
            );
        }
        let is_meant = NOT_IMPLEMENTED.contains(&name);
        let guess = if is_meant { String::new() } else { error::suggestion(name, record_types()) };
        let mut all: Vec<&str> = record_types().collect();
        all.sort_unstable();
        let all =
            if guess.is_empty() { format!("; there are {}{}", all.join(", "), simulate::INERT_HINT) } else { guess };
        format!("no record type \"{name}\"{all}")
    })
}
