//! Restores saved values of fields before the records are initialised.

use std::fmt;

use fodo_data::Text;

use crate::common::{Common, number, row};
use crate::field::Dbf;
use crate::load::error::{Errors, suggestion};
use crate::load::{FileLoad, Loader};

/// Why a field is not restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// The record or field does not exist; [`Loader::unknown_name_message`] describes which, with a suggestion.
    Unknown,
    /// The field can be restored only in the finished database: an array, or a text of variable size.
    Deferred,
    /// The value is invalid for this field, for the reason in the text.
    Invalid(String),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::Unknown => f.write_str("the record or field does not exist"),
            RestoreError::Invalid(message) => f.write_str(message),
            RestoreError::Deferred => f.write_str("the field can be restored only after the records are initialised"),
        }
    }
}

impl std::error::Error for RestoreError {}

impl Loader {
    /// Sets a field like a `.db` file; choices of menus may be numbers. `name`: `rec`, `rec.FIELD`, `rec.FIELD$`.
    ///
    /// The initialisation of the record or its device support may overwrite the value.
    pub fn restore(&mut self, name: &str, text: &Text) -> Result<(), RestoreError> {
        let (record_name, field_name) = name.split_once('.').unwrap_or((name, ""));
        let mut load = FileLoad::new(self);
        let record = load.find(record_name).ok_or(RestoreError::Unknown)?;
        let Some(kind) = load.cell(record).map(|cell| cell.record_type()) else { return Ok(()) };
        let (short, is_long) = field_name.strip_suffix('$').map_or((field_name, false), |name| (name, true));
        let field = if short.is_empty() { Some(kind.value) } else { number(kind.rows, short) };
        let field = field.ok_or(RestoreError::Unknown)?;
        let dbf = row(kind.rows, field).map(|row| (row.dbf, row.size));
        let is_text = dbf.is_some_and(|(dbf, _)| dbf == Dbf::String || dbf.is_link());
        if is_long && !is_text {
            return Err(RestoreError::Invalid(format!("\"{name}\" is not a text, so the name cannot end in '$'")));
        }
        if matches!(dbf, Some((Dbf::Array, _) | (Dbf::String, 0))) {
            return Err(RestoreError::Deferred);
        }
        load.set(record, field, text).map_err(|error| RestoreError::Invalid(error.message))?;
        let changes = load.changes;
        if field == kind.value {
            self.forget_initial(record);
        }
        // Always `Ok`, since the list of errors is empty.
        let _ = self.take(changes, Errors::default());
        Ok(())
    }

    /// The error message for the name of an unknown record or field. Slow, since it compares the name with thousands of
    /// others: not for large numbers of names.
    pub fn unknown_name_message(&self, name: &str) -> String {
        let (record_name, field_name) = name.split_once('.').unwrap_or((name, ""));
        let mut load = FileLoad::new(self);
        let record = load.find(record_name);
        let Some(kind) = record.and_then(|record| load.cell(record)).map(|cell| cell.record_type()) else {
            return format!("there is no record \"{record_name}\"{}", load.name_like(record_name));
        };
        let names = kind.rows.iter().chain(Common::ROWS).map(|row| row.name);
        let guess = suggestion(field_name, names);
        format!("no field \"{field_name}\" in record type {}{guess}", kind.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_data::Value;

    fn loader() -> Loader {
        let text = b"record(ao, x) { field(SCAN, \"1 second\") alias(y) }\nrecord(waveform, w) {}\nrecord(lso, l) {}";
        let mut loader = Loader::default();
        loader.load("a.db", "", &mut |_| Ok(text.to_vec())).unwrap();
        loader
    }

    #[test]
    fn restoring_sets_fields_like_a_database_file_and_menus_by_number() {
        let mut loader = loader();

        for (name, text) in [("x", "1.5"), ("y.SCAN", "5"), ("x.DESC$", "of old"), ("x.FLNK", "w")] {
            assert_eq!(loader.restore(name, &text.into()), Ok(()), "{name}");
        }

        let database = loader.finish().unwrap();
        let value = |name: &str| database.read(database.field(name).unwrap()).value;
        assert_eq!(value("x"), Value::from(1.5));
        assert_eq!(value("x.UDF"), Value::from(0_u8));
        assert_eq!(value("x.SCAN").first(), Some(fodo_data::Scalar::Enum(5)));
        assert_eq!((value("x.DESC"), value("x.FLNK")), (Value::from("of old"), Value::from("w")));
    }

    #[test]
    fn values_that_cannot_be_restored_return_an_error() {
        let mut loader = loader();
        for name in ["xx", "x.DSEC"] {
            assert_eq!(loader.restore(name, &"1".into()), Err(RestoreError::Unknown));
        }
        assert_eq!(loader.unknown_name_message("xx"), "there is no record \"xx\"; did you mean \"x\"?");
        assert_eq!(
            loader.unknown_name_message("x.DSEC"),
            "no field \"DSEC\" in record type ao; did you mean \"DESC\"?"
        );

        let mut rejection = |name: &str, text: &str| loader.restore(name, &text.into()).unwrap_err().to_string();
        assert_eq!(rejection("x", "much"), "VAL cannot be \"much\": expected a number");
        assert_eq!(rejection("x.VAL$", "1"), "\"x.VAL$\" is not a text, so the name cannot end in '$'");
        for name in ["w", "l.VAL$"] {
            assert_eq!(loader.restore(name, &"1".into()), Err(RestoreError::Deferred));
        }
    }
}
