//! Restores record fields from save files.

use std::path::{Path, PathBuf};

use fodo_data::{Kind, Now, Scalar, Text, Value};
use fodo_db::{Database, FieldRef, Input, Loader, Macros, RestoreError};

use super::AutosaveSettings;
use super::disk::{self, SaveFileSearch};
use super::format::{self, Content, SaveFile, SavedValue};
use super::status::{Health, SaveStatus};
use crate::limit::RESTORE_ERRORS_MAX;
use crate::names::field_of;

/// The point during start-up at which a file is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestorePass {
    /// Before record initialisation: records and device support see the values as if a `.db` file contained them.
    Early,
    /// After record initialisation and before any record processes: overwrites the values set by initialisation.
    Late,
}

/// A file to restore.
#[derive(Clone, Debug)]
pub struct RestoreFile {
    /// The path of the save file.
    pub path: PathBuf,
    /// Macros to expand in its lines; usually none.
    pub macros: Option<Macros>,
    /// When to restore it.
    pub pass: RestorePass,
    /// Whether a missing file is reported.
    pub is_expected: bool,
    /// The result, for `dbrestoreShow`.
    pub outcome: String,
    /// The result, for the status records.
    pub health: Health,
}

/// The save file that was found, and its contents.
#[derive(Debug)]
pub struct FoundSaveFile {
    /// The file.
    pub path: PathBuf,
    /// Its contents.
    pub saved: SaveFile,
}

/// A save file and the values to restore late: all, or those that the early pass could not restore.
#[derive(Debug)]
pub struct RestoredFile {
    source: FoundSaveFile,
    left: Option<Vec<SavedValue>>,
}

/// Messages about values that could not be restored; the restore continues.
pub type Messages = Vec<String>;

impl RestoreFile {
    /// The result, for the status records.
    pub fn status(&self) -> SaveStatus {
        match self.health {
            Health::Good => SaveStatus::good(),
            health => SaveStatus::new(health, &self.outcome),
        }
    }

    /// Finds the newest good file and reports newer files that cannot be used.
    pub fn find(&mut self, takes_incomplete: bool) -> (Option<FoundSaveFile>, Messages) {
        match disk::find(&self.path, self.macros.as_ref()) {
            SaveFileSearch::Good { path, saved, mut passed_over } => {
                if !passed_over.is_empty() {
                    passed_over.push(format!("{} is restored instead", path.display()));
                }
                if saved.n_missing > 0 && !takes_incomplete {
                    let n = saved.n_missing;
                    let why = format!("{n} PVs had no value when it was saved, and IncompleteSetsOk(0) requires all");
                    passed_over.push(format!("{} is not restored: {why}", path.display()));
                    self.outcome = "not restored: incomplete".to_owned();
                    self.health = Health::Failure;
                    return (None, passed_over);
                }
                let flaws = saved.flaws.iter().map(|(line, why)| format!("{}:{line}: {why}", path.display()));
                passed_over.extend(flaws.take(RESTORE_ERRORS_MAX));
                self.health = if passed_over.is_empty() { Health::Good } else { Health::Warning };
                (Some(FoundSaveFile { path, saved }), passed_over)
            }
            SaveFileSearch::Nothing => {
                self.outcome = "the file does not exist yet".to_owned();
                self.health = if self.is_expected { Health::Failure } else { Health::Good };
                let complaint = format!("{} does not exist yet: nothing is restored from it", self.path.display());
                (None, if self.is_expected { vec![complaint] } else { vec![] })
            }
            SaveFileSearch::Bad(mut why) => {
                self.outcome = "no good file".to_owned();
                self.health = Health::Failure;
                let path = self.path.display();
                why.push(format!("nothing is restored from {path}: the IOC starts without its values"));
                (None, why)
            }
        }
    }
}

/// Restores the files of the early pass and finds the files of the late pass. `files`: those of the early pass first.
pub fn restore_early(
    files: &mut [RestoreFile],
    settings: &AutosaveSettings,
    loader: &mut Loader,
) -> (Vec<RestoredFile>, Messages) {
    let (mut restored, mut complaints) = (Vec::new(), Messages::new());
    for index in 0..files.len() {
        let (before, rest) = files.split_at_mut(index);
        let Some((file, rest)) = rest.split_first_mut() else { break };
        let (source, trouble) = file.find(settings.takes_incomplete);
        let is_second = before.iter().any(|other| other.path == file.path);
        // Errors of the file itself were already reported in the first pass.
        complaints.extend(if is_second { Vec::new() } else { trouble });
        let Some(source) = source else { continue };
        if !is_second {
            complaints.extend(copy(&source, &file.path, settings));
        }
        let mut left = None;
        if file.pass == RestorePass::Early {
            let (later, trouble) = source.restore_early(loader);
            left = Some(later);
            // If the same file also has a late pass, that pass reports what cannot be restored.
            let has_late = rest.iter().any(|other| (&other.path, other.pass) == (&file.path, RestorePass::Late));
            complaints.extend(if has_late { Vec::new() } else { trouble });
        }
        file.outcome = format!("{} values of {}", source.saved.values.len(), source.path.display());
        restored.push(RestoredFile { source, left });
    }
    (restored, complaints)
}

/// Makes a backup copy of a restored file next to it, as synApps does.
fn copy(source: &FoundSaveFile, path: &Path, settings: &AutosaveSettings) -> Messages {
    let date = jiff::Zoned::now().strftime("_%y%m%d-%H%M%S").to_string();
    let suffix = if settings.dates_copies { date } else { ".bu".to_owned() };
    match disk::copy(&source.path, &disk::with_suffix(path, &suffix)) {
        Ok(()) => Vec::new(),
        Err(error) => vec![format!("cannot make a backup copy of {}: {error}", source.path.display())],
    }
}

impl RestoredFile {
    /// Restores the values of the late pass and those that the early pass could not restore.
    pub fn restore_late(&self, database: &Database) -> Messages {
        self.source.restore_late(database, self.left.as_deref())
    }
}

impl FoundSaveFile {
    /// Sets fields before record initialisation. Returns the values that can only be set after it.
    pub fn restore_early(&self, loader: &mut Loader) -> (Vec<SavedValue>, Messages) {
        let (mut later, mut complaints) = (Vec::new(), Messages::new());
        for value in &self.saved.values {
            let result = match &value.value {
                Content::Array(_) => Err(RestoreError::Deferred),
                Content::Scalar(text) => loader.restore(&value.pv, text),
            };
            match result {
                Ok(()) => {}
                Err(RestoreError::Deferred) => later.push(value.clone()),
                // The search for similar names is slow, so only the first errors get a suggestion.
                Err(RestoreError::Unknown) if complaints.len() < RESTORE_ERRORS_MAX => {
                    complaints.push(self.complaint(value, &loader.unknown_name_message(&value.pv)));
                }
                Err(error) => complaints.push(self.complaint(value, &error.to_string())),
            }
        }
        (later, counted(complaints))
    }

    /// Sets fields after record initialisation: `values`, or all values of the file.
    pub fn restore_late(&self, database: &Database, values: Option<&[SavedValue]>) -> Messages {
        let now = Now { monotonic: std::time::Instant::now(), wall: std::time::SystemTime::now().into() };
        // There are no subscribers before the start.
        let mut unheard = Vec::new();
        let mut put = |field, value| {
            let result = database.handle(Input::Restore { field, value }, now, &mut unheard);
            result.map_err(|error| error.to_string())
        };
        self.put_all(database, values.unwrap_or(&self.saved.values), &mut put)
    }

    /// Writes all values like a client, through `put`.
    pub fn put_back(
        &self,
        database: &Database,
        put: &mut dyn FnMut(FieldRef, Value) -> Result<(), String>,
    ) -> Messages {
        self.put_all(database, &self.saved.values, put)
    }

    fn put_all(
        &self,
        database: &Database,
        values: &[SavedValue],
        put: &mut dyn FnMut(FieldRef, Value) -> Result<(), String>,
    ) -> Messages {
        let mut complaints = Messages::new();
        for value in values {
            let Some(field) = database.field(&value.pv) else {
                let has_time = complaints.len() < RESTORE_ERRORS_MAX;
                let why = if has_time { field_of(database, &value.pv).err() } else { None };
                complaints.push(self.complaint(value, &why.unwrap_or_default()));
                continue;
            };
            let result = value_to_write(database, field, value).and_then(|value| put(field, value));
            // A field that cannot be written now may have been restored before initialisation, for example a link.
            if let Err(why) = result
                && !holds(database, field, value)
            {
                complaints.push(self.complaint(value, &why));
            }
        }
        counted(complaints)
    }

    fn complaint(&self, value: &SavedValue, why: &str) -> String {
        format!("{}:{}: \"{}\" is not restored: {why}", self.path.display(), value.line, value.pv)
    }
}

/// Limits the number of complaints and adds the number of the others.
fn counted(mut complaints: Messages) -> Messages {
    let n_more = complaints.len().saturating_sub(RESTORE_ERRORS_MAX);
    complaints.truncate(RESTORE_ERRORS_MAX);
    if n_more > 0 {
        complaints.push(format!("and {n_more} more are not restored"));
    }
    complaints
}

/// Converts a saved value to the value to write to a field.
fn value_to_write(database: &Database, field: FieldRef, saved: &SavedValue) -> Result<Value, String> {
    let facts = database.facts(field);
    let state = |text: &Text| {
        let number = text.to_str().trim().parse::<u16>();
        number.map_err(|_| format!("\"{text}\" is not a state number"))
    };
    let is_array = matches!(database.read(field).value, Value::Array(_)) && !saved.pv.ends_with('$');
    let texts = match &saved.value {
        Content::Array(texts) if is_array => texts.clone(),
        // synApps writes arrays of zero or one element as scalars.
        Content::Scalar(text) if is_array && text.is_empty() => Vec::new(),
        Content::Scalar(text) if is_array => vec![text.clone()],
        Content::Array(texts) => {
            let first = texts.first().cloned().unwrap_or_default();
            return value_to_write(database, field, &SavedValue { value: Content::Scalar(first), ..saved.clone() });
        }
        Content::Scalar(text) if facts.kind == Kind::Enum => return Ok(Value::Scalar(Scalar::Enum(state(text)?))),
        Content::Scalar(text) => return Ok(Value::from(text.clone())),
    };
    match facts.kind {
        Kind::Enum => texts.iter().map(state).collect::<Result<Vec<u16>, String>>().map(Value::from),
        _ => Ok(Value::from(texts)),
    }
}

/// Whether a field already has the saved value.
fn holds(database: &Database, field: FieldRef, saved: &SavedValue) -> bool {
    let Content::Scalar(text) = &saved.value else { return false };
    let line = format::value_line("x", &database.read(field).value);
    let now = format::read(line.as_bytes(), None).ok().and_then(|mut read| read.values.pop());
    now.is_some_and(|now| now.value == Content::Scalar(text.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    const RECORDS: &[u8] = b"record(ao, x) { field(DOL, 7) field(PINI, YES) field(FLNK, n) }\n\
        record(calc, n) { field(INPA, n) field(CALC, \"A+1\") }\n\
        record(mbbo, m) { field(ONST, one) }\n\
        record(waveform, w) { field(FTVL, DOUBLE) field(NELM, 3) }\n\
        record(waveform, e) { field(FTVL, ENUM) field(NELM, 3) }\n\
        record(waveform, one) { field(FTVL, LONG) field(NELM, 1) }\n\
        record(lso, l) { field(SIZV, 100) }";

    fn loader() -> Loader {
        let mut loader = Loader::default();
        loader.load("a.db", "", &mut |_| Ok(RECORDS.to_vec())).unwrap();
        loader
    }

    fn source(file: &str) -> FoundSaveFile {
        FoundSaveFile { path: "a.sav".into(), saved: format::read(file.as_bytes(), None).unwrap() }
    }

    fn value(database: &Database, name: &str) -> Value {
        database.read(database.field(name).unwrap()).value
    }

    #[test]
    fn an_incomplete_file_is_found_only_if_incomplete_files_are_allowed() {
        let folder = Folder::new();
        let find = |n_missing: usize, takes_incomplete: bool| {
            let path = folder.path("a.sav");
            let text = format!("# autosave R5.11\n{}x 8\n<END>\n", format::missing_line(n_missing));
            std::fs::write(&path, text).unwrap();
            let mut file = RestoreFile {
                path,
                macros: None,
                pass: RestorePass::Early,
                is_expected: true,
                outcome: String::new(),
                health: Health::Unknown,
            };
            let (found, messages) = file.find(takes_incomplete);
            (found.is_some(), messages.len(), file.health)
        };

        assert_eq!(find(0, false), (true, 0, Health::Good));
        assert_eq!(find(1, false), (false, 1, Health::Failure));
        assert_eq!(find(1, true), (true, 0, Health::Good));
    }

    #[test]
    fn early_restored_values_are_set_before_initialisation_and_arrays_after_it() {
        let file =
            "x.DOL 8\nx.SCAN 5\nm 1\nw @array@ { \"1\" \"2.5\" }\ne @array@ { \"2\" }\none 5\nl.VAL$ long text\n";
        let (source, mut loader) = (source(file), loader());

        let (later, complaints) = source.restore_early(&mut loader);
        let database = loader.finish().unwrap();
        assert_eq!((later.len(), complaints), (4, Vec::new()));
        assert_eq!(value(&database, "x"), Value::from(8.0));
        assert_eq!(value(&database, "x.SCAN").first(), Some(Scalar::Enum(5)));
        assert_eq!(value(&database, "m").first(), Some(Scalar::Enum(1)));

        assert_eq!(source.restore_late(&database, Some(&later)), Vec::<String>::new());
        assert_eq!(value(&database, "w"), Value::from(vec![1.0, 2.5]));
        assert_eq!(value(&database, "e").first(), Some(Scalar::Enum(2)));
        assert_eq!(format::value_line("one", &value(&database, "one")), "one @array@ { \"5\" }\n");
        assert_eq!(value(&database, "l.VAL$").long_text(), Some("long text".into()));
    }

    #[test]
    fn a_saved_array_restores_its_first_element_to_a_field_with_one_value() {
        let file = "x @array@ { \"8\" \"9\" }\nx.DESC @array@ { \"one\" \"two\" }\nm @array@ { \"1\" \"0\" }\n\
            l.VAL$ @array@ { \"long text\" \"more\" }\nx.EGU @array@ { }\n";
        let (source, mut loader) = (source(file), loader());

        let (later, complaints) = source.restore_early(&mut loader);
        let database = loader.finish().unwrap();
        let complaints = [complaints, source.restore_late(&database, Some(&later))].concat();

        assert_eq!(complaints, Vec::<String>::new());
        assert_eq!((value(&database, "x"), value(&database, "x.DESC")), (Value::from(8.0), Value::from("one")));
        assert_eq!(value(&database, "m").first(), Some(Scalar::Enum(1)));
        assert_eq!(value(&database, "l.VAL$").long_text(), Some("long text".into()));
        assert_eq!(value(&database, "x.EGU"), Value::from(""));
    }

    #[test]
    fn late_restored_values_override_initialisation_without_processing_records() {
        let (source, loader) = (source("x 1.5\nx.SCAN 6\nm 1\nw 4\nw \nx.FLNK n\n"), loader());
        let database = loader.finish().unwrap();
        assert_eq!(value(&database, "x"), Value::from(7.0));

        assert_eq!(source.restore_late(&database, None), Vec::<String>::new());

        assert_eq!((value(&database, "x"), value(&database, "x.UDF")), (Value::from(1.5), Value::from(0_u8)));
        assert_eq!(value(&database, "n"), Value::from(0.0));
        assert_eq!(value(&database, "w").len(), 0);
        assert_eq!(database.deadline(), None);
    }

    #[test]
    fn a_record_whose_scan_is_restored_late_is_scanned_once_per_period() {
        let (source, loader) = (source("n.SCAN 9\nn.INPA 1\n"), loader());
        let database = loader.finish().unwrap();
        // The saved link differs from the one in the database, and links cannot be restored late.
        assert_eq!(source.restore_late(&database, None).len(), 1);

        let now = Now::for_test();
        let mut events = Vec::new();
        database.handle(Input::Start, now, &mut events).unwrap();
        let before = value(&database, "n");
        let tick = now + std::time::Duration::from_millis(100);
        database.handle(Input::Tick, tick, &mut events).unwrap();

        let number = |value: Value| value.first().unwrap().to_f64().unwrap();
        assert_eq!(number(value(&database, "n")), number(before) + 1.0);
    }

    #[test]
    fn values_that_cannot_be_restored_are_reported_with_their_position() {
        let (source, mut loader) = (source("y 1\nx.VLA 1\nx much\nm on\n"), loader());

        let (_, early) = source.restore_early(&mut loader);
        let late = source.restore_late(&loader.finish().unwrap(), None);

        assert_eq!(early[0], "a.sav:1: \"y\" is not restored: there is no record \"y\"");
        assert_eq!((early.len(), late.len()), (4, 4));
        assert_eq!(late[3], "a.sav:4: \"m\" is not restored: \"on\" is not a state number");
    }

    #[test]
    fn restore_errors_above_the_limit_are_only_counted() {
        let file: String = (0..1000).map(|number| format!("none{number} 1\n")).collect();

        let (_, complaints) = source(&file).restore_early(&mut loader());

        assert_eq!(complaints.len(), RESTORE_ERRORS_MAX + 1);
        assert_eq!(complaints.last().unwrap(), &format!("and {} more are not restored", 1000 - RESTORE_ERRORS_MAX));
    }
}
