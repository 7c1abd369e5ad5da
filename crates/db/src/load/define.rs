//! Records that a program defines instead of a file, with the same checks; and the checks of names, for both.

use fodo_data::{Scalar, Text, Value};

use crate::common::{Common, number, row};
use crate::core::Core;
use crate::field::Dbf;
use crate::limit::NAME_BYTES_MAX;
use crate::load::error::{Errors, suggestion};
use crate::load::groups::GROUP_INFO;
use crate::load::{FileLoad, LoadError, Loader, record_type};
use crate::record::field_table::has_table;

/// A record that a program defines, as a `record` statement of a `.db` file does. [`Loader::define`] adds it.
///
/// ```
/// use fodo_data::Value;
/// use fodo_db::{Loader, RecordDefinition};
///
/// let mut loader = Loader::default();
/// let gap = RecordDefinition::new("ao", "X:gap")
///     .field("EGU", "mm")
///     .field("PREC", 3)
///     .field("DRVH", 120.5)
///     .alias("X:undulator:gap")
///     .info("archive", "monitor 1")
///     .value(12.5);
/// loader.define(&gap)?;
/// let axis = RecordDefinition::new("waveform", "X:axis").field("FTVL", "DOUBLE").field("NELM", 3);
/// loader.define(&axis.value(vec![0.0, 0.5, 1.0]))?;
///
/// let errors = loader.define(&RecordDefinition::new("ai", "X:t").field("EUG", "K")).unwrap_err();
/// let message = "record \"X:t\": no field \"EUG\" in record type ai; did you mean \"EGU\"?";
/// assert_eq!(errors.first().map(|error| error.to_string()), Some(message.to_owned()));
///
/// let database = loader.finish()?;
/// let value = |name: &str| database.field(name).map(|field| database.read(field).value);
/// assert_eq!(value("X:undulator:gap.VAL"), Some(Value::from(12.5)));
/// assert_eq!(value("X:gap.EGU"), Some(Value::from("mm")));
/// # Ok::<(), Vec<fodo_db::LoadError>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RecordDefinition {
    record_type: String,
    name: String,
    fields: Vec<(String, Text)>,
    infos: Vec<(String, Text)>,
    aliases: Vec<String>,
    value: Option<Value>,
}

impl RecordDefinition {
    /// A record of a type, with the defaults of all fields. `*` as the type adds to a record that exists.
    pub fn new(record_type: &str, name: &str) -> RecordDefinition {
        RecordDefinition {
            record_type: record_type.to_owned(),
            name: name.to_owned(),
            fields: Vec::new(),
            infos: Vec::new(),
            aliases: Vec::new(),
            value: None,
        }
    }

    /// Sets a field to a number or a text: what a file contains between quotes, without escapes and macros.
    pub fn field(mut self, name: &str, value: impl ToString) -> RecordDefinition {
        self.fields.push((name.to_owned(), value.to_string().into()));
        self
    }

    /// Adds an info item.
    pub fn info(mut self, name: &str, value: impl ToString) -> RecordDefinition {
        self.infos.push((name.to_owned(), value.to_string().into()));
        self
    }

    /// Adds a second name.
    pub fn alias(mut self, name: &str) -> RecordDefinition {
        self.aliases.push(name.to_owned());
        self
    }

    /// Sets the initial value of VAL. Unlike [`RecordDefinition::field`], it may also be an array, a long string or the
    /// name of a state. A value that autosave restores replaces it.
    pub fn value(mut self, value: impl Into<Value>) -> RecordDefinition {
        self.value = Some(value.into());
        self
    }

    /// The name of the record.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Loader {
    /// Adds a record that a program defines. Fails with all errors of the definition; then nothing has changed.
    /// [`RecordDefinition`] has an example.
    ///
    /// A few errors are found later, by [`Loader::finish`]: links that DTYP does not accept, and initial values that
    /// are too long or that the record cannot convert.
    pub fn define(&mut self, definition: &RecordDefinition) -> Result<(), Vec<LoadError>> {
        let mut load = FileLoad::new(self);
        let (record, is_deferred) = load.define(definition).map_err(|messages| {
            let error = |message| LoadError {
                message: format!("record \"{}\": {message}", definition.name),
                ..LoadError::default()
            };
            messages.into_iter().map(error).collect::<Vec<LoadError>>()
        })?;
        let changes = load.changes;
        if let Some(value) = &definition.value {
            if definition.record_type == "*" {
                self.forget_initial(record);
            }
            self.initial_values.extend(is_deferred.then(|| (record, value.clone())));
        }
        self.take(changes, Errors::default())
    }

    /// Drops the initial value of a record, since another value replaces it.
    pub(super) fn forget_initial(&mut self, record: u32) {
        self.initial_values.retain(|(other, _)| *other != record);
    }
}

impl FileLoad<'_> {
    /// Adds a record. Returns its number, and whether its initial value can be set only when the record is initialised.
    fn define(&mut self, definition: &RecordDefinition) -> Result<(u32, bool), Vec<String>> {
        let RecordDefinition { record_type: type_name, name, fields, infos, aliases, value } = definition;
        if type_name != "*" && self.find(name).is_some() {
            return Err(vec!["a record of this name already exists".into()]);
        }
        let record = self.target(type_name, name).map_err(|(_, message)| vec![message])?;
        if type_name != "*" && has_table(type_name) && !self.simulates() {
            return Err(record_type(type_name).err().into_iter().collect());
        }
        let mut messages = Vec::new();
        for (field, text) in fields {
            let set = match self.field_number(record, field, text) {
                Some(Ok(number)) => self.set(record, number, text).map_err(|error| error.message),
                Some(Err(message)) => Err(message),
                None => Ok(()),
            };
            messages.extend(set.err());
        }
        for alias in aliases {
            messages.extend(self.add_alias(record, alias).err());
        }
        for (name, text) in infos {
            if name == GROUP_INFO {
                let errors = self.groups(record, &text.to_str(), &|_| LoadError::default());
                messages.extend(errors.into_iter().map(|error| error.message));
            }
            self.info(record, name, text.clone());
        }
        let is_deferred = value.as_ref().map_or(Ok(false), |value| self.set_initial(record, value));
        match is_deferred {
            Ok(is_deferred) if messages.is_empty() => Ok((record, is_deferred)),
            result => {
                messages.extend(result.err());
                Err(messages)
            }
        }
    }

    /// Sets the initial value of VAL. True: it can be set only when the record is initialised.
    fn set_initial(&mut self, record: u32, value: &Value) -> Result<bool, String> {
        let Some(kind) = self.cell(record).map(|cell| cell.record_type()) else { return Ok(false) };
        let Some(row) = row(kind.rows, kind.value) else { return Ok(false) };
        let text = match (value, row.dbf) {
            (Value::Array(_), _) | (_, Dbf::Array) => return Ok(true),
            (_, Dbf::String) if row.size == 0 => return Ok(true),
            (Value::Scalar(Scalar::Text(_)), Dbf::Enum) => return Ok(true),
            (Value::Scalar(scalar), _) => exact_text(scalar),
        };
        self.set(record, kind.value, &text).map_err(|error| error.message)?;
        Ok(false)
    }

    /// The record of a record statement. The flag in the error: the name is invalid, not the type.
    pub(crate) fn target(&mut self, kind_name: &str, name: &str) -> Result<u32, (bool, String)> {
        let found = self.find(name);
        if kind_name == "*" {
            let missing = || format!("there is no record \"{name}\" to add to{}", self.name_like(name));
            return found.ok_or_else(|| (true, missing()));
        }
        let kind = match record_type(kind_name) {
            Err(_) if has_table(kind_name) => None,
            Err(message) if !self.simulates() || !is_type_name(kind_name) => return Err((false, message)),
            kind => kind.ok(),
        };
        if let Some(record) = found {
            let existing = self.cell(record).map_or("", |cell| cell.record_type().name);
            if existing != kind_name {
                return Err((
                    true,
                    format!(
                        "record \"{name}\" already exists with type {existing}; a different type needs another name"
                    ),
                ));
            }
            return Ok(record);
        }
        check_name(name).map_err(|message| (true, message))?;
        Ok(match kind {
            Some(kind) => self.add(kind, name),
            None => self.add_inert(kind_name, name),
        })
    }

    /// The number of a field that is about to be set to a text, or the error message.
    pub(crate) fn field_number(&mut self, record: u32, field: &str, value: &Text) -> Option<Result<u16, String>> {
        let kind = self.kind_for(record, field, value)?;
        Some(number(kind.rows, field).ok_or_else(|| {
            let guess = suggestion(field, kind.rows.iter().chain(Common::ROWS).map(|row| row.name));
            format!("no field \"{field}\" in record type {}{guess}", kind.name)
        }))
    }

    /// Adds an alias, unless the record already has it.
    pub(crate) fn add_alias(&mut self, record: u32, alias: &str) -> Result<(), String> {
        match self.find(alias) {
            Some(other) if other == record => return Ok(()),
            Some(_) => return Err(format!("\"{alias}\" is already the name of a record")),
            None => check_name(alias)?,
        }
        self.alias(record, alias);
        Ok(())
    }

    /// Whether records can have DTYP Program.
    pub(crate) fn has_program(&self) -> bool {
        self.loader.has_program
    }
}

/// Converts the initial values of records to the types of their VAL.
pub(super) fn fitting_values(core: &Core, values: Vec<(u32, Value)>) -> Result<Vec<(u32, Value)>, Vec<LoadError>> {
    let (mut fitting, mut errors) = (Vec::new(), Vec::new());
    for (record, value) in values {
        match core.fit(record, value) {
            Ok(value) => fitting.push((record, value)),
            Err(error) => {
                let name = core.names.get(record as usize).cloned().unwrap_or_default();
                let message = format!("record \"{name}\": invalid initial value: {error}");
                errors.push(LoadError { message, ..LoadError::default() });
            }
        }
    }
    if errors.is_empty() { Ok(fitting) } else { Err(errors) }
}

/// A scalar as a text from which a file would give the same scalar.
fn exact_text(scalar: &Scalar) -> Text {
    match scalar {
        Scalar::F64(number) => number.to_string().into(),
        Scalar::F32(number) => number.to_string().into(),
        Scalar::Bool(is_true) => u8::from(*is_true).to_string().into(),
        Scalar::Enum(index) => index.to_string().into(),
        scalar => scalar.to_text(None),
    }
}

/// Whether a name can be the name of a record type.
fn is_type_name(name: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_part)
}

/// Checks the name of a record.
fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a record needs a name".into());
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("the name is {} bytes long; the maximum is {NAME_BYTES_MAX}", name.len()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Database;

    fn value(database: &Database, name: &str) -> Value {
        database.read(database.field(name).unwrap()).value
    }

    fn refusals(loader: &mut Loader, definition: RecordDefinition) -> Vec<String> {
        loader.define(&definition).unwrap_err().iter().map(LoadError::to_string).collect()
    }

    #[test]
    fn a_defined_record_has_its_fields_aliases_and_info_items() {
        let mut loader = Loader::default();
        let gap = RecordDefinition::new("ao", "gap").field("EGU", "mm").field("PREC", 3).field("DRVH", 1e-3);
        loader.define(&gap.alias("old").info("archive", "monitor 1").value(0.1)).unwrap();
        loader.define(&RecordDefinition::new("*", "old").field("DESC", "a gap").value(0.2)).unwrap();

        let database = loader.finish().unwrap();

        let fields = ["EGU", "PREC", "DRVH", "DESC", "VAL"].map(|field| value(&database, &format!("old.{field}")));
        assert_eq!(fields, ["mm".into(), 3_i16.into(), 1e-3.into(), "a gap".into(), 0.2.into()]);
        let infos: Vec<_> = database.info_items("gap").map(|(name, text)| format!("{name}={text}")).collect();
        assert_eq!(infos, ["archive=monitor 1"]);
    }

    #[test]
    fn a_definition_with_errors_reports_all_of_them_and_adds_nothing() {
        let mut loader = Loader::default();
        loader.define(&RecordDefinition::new("ai", "a")).unwrap();

        let wrong = RecordDefinition::new("ao", "b").field("PREK", 3).field("SCAN", "1 secnd").alias("a").value("x");
        assert_eq!(
            refusals(&mut loader, wrong),
            [
                "record \"b\": no field \"PREK\" in record type ao; did you mean \"PREC\"?",
                "record \"b\": SCAN has no choice \"1 secnd\"; did you mean \"1 second\"?",
                "record \"b\": \"a\" is already the name of a record",
                "record \"b\": VAL cannot be \"x\": expected a number",
            ]
        );
        let twice = RecordDefinition::new("ai", "a");
        assert_eq!(refusals(&mut loader, twice), ["record \"a\": a record of this name already exists"]);
        let unknown = refusals(&mut loader, RecordDefinition::new("aii", "c"));
        assert_eq!(unknown, ["record \"c\": no record type \"aii\"; did you mean \"ai\"?"]);
        let nameless = refusals(&mut loader, RecordDefinition::new("ai", "c d"));
        assert_eq!(nameless, ["record \"c d\": \"c d\" cannot be a name: it contains ' '"]);
        let inert = refusals(&mut loader, RecordDefinition::new("motor", "m"));
        assert!(inert[0].contains("no record support for \"motor\""), "{inert:?}");
        let absent = refusals(&mut loader, RecordDefinition::new("*", "d"));
        assert!(absent[0].contains("there is no record \"d\" to add to"), "{absent:?}");

        assert_eq!(loader.finish().unwrap().record_names().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn initial_values_can_be_arrays_long_strings_and_state_names() {
        let mut loader = Loader::default();
        let long = "x".repeat(100);
        let array = |kind: &str| RecordDefinition::new(kind, kind).field("FTVL", "DOUBLE").field("NELM", 3);
        for definition in [
            array("waveform").value(vec![1.5, 2.5]),
            array("aao").value(vec![1.5, 2.5]),
            RecordDefinition::new("lso", "lso").field("SIZV", 200).value(long.as_str()),
            RecordDefinition::new("bo", "bo").field("ONAM", "open").value("open"),
            RecordDefinition::new("int64out", "int64out").value(i64::MAX),
        ] {
            loader.define(&definition).unwrap();
        }
        let database = loader.finish().unwrap();
        database.handle(crate::Input::Start, fodo_data::Now::for_test(), &mut Vec::new()).unwrap();

        assert_eq!(value(&database, "waveform"), Value::from(vec![1.5, 2.5]));
        assert_eq!((value(&database, "aao"), value(&database, "aao.NORD")), (vec![1.5, 2.5].into(), 2_u32.into()));
        assert_eq!((value(&database, "lso"), value(&database, "lso.LEN")), (long.as_str().into(), 101_u32.into()));
        assert_eq!(value(&database, "bo").first(), Some(Scalar::Enum(1)));
        assert_eq!((value(&database, "int64out"), value(&database, "bo.UDF")), (i64::MAX.into(), 0_u8.into()));
    }

    #[test]
    fn an_initial_value_follows_its_record_and_gives_way_to_a_restored_one() {
        let mut loader = Loader::default();
        for (name, first) in [("a", 1.0), ("b", 2.0)] {
            let array = RecordDefinition::new("waveform", name).field("FTVL", "DOUBLE").field("NELM", 1);
            loader.define(&array.value(vec![first])).unwrap();
        }
        loader.define(&RecordDefinition::new("bo", "c").field("ONAM", "open").value("open")).unwrap();
        loader.load("a.db", "", &mut |_| Ok(b"record(\"#\", a)".to_vec())).unwrap();
        loader.restore("c", &"0".into()).unwrap();

        let database = loader.finish().unwrap();
        database.handle(crate::Input::Start, fodo_data::Now::for_test(), &mut Vec::new()).unwrap();

        assert_eq!(value(&database, "b"), Value::from(vec![2.0]));
        assert_eq!(value(&database, "c").first(), Some(Scalar::Enum(0)));
    }

    #[test]
    fn an_initial_value_that_is_too_long_or_invalid_is_reported_at_the_end() {
        let mut loader = Loader::default();
        loader.define(&RecordDefinition::new("waveform", "w").field("NELM", 1).value(vec![1.5, 2.5])).unwrap();
        loader.define(&RecordDefinition::new("bo", "b").field("ONAM", "open").value("closed")).unwrap();

        let errors = loader.finish().unwrap_err();

        let messages: Vec<String> = errors.iter().map(LoadError::to_string).collect();
        assert_eq!(
            messages,
            [
                "record \"w\": invalid initial value: the length of the value is 2; the record can store 1",
                "record \"b\": invalid initial value: \"closed\" is not a valid state",
            ]
        );
    }
}
