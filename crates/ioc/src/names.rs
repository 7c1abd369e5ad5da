//! Looks up field names and suggests similar names.

use fodo_db::{Database, FieldRef, closest_match};

use crate::limit::COMPARED_NAMES_MAX;

/// Looks up a field by name; the error is a message with a suggestion.
pub fn field_of(database: &Database, name: &str) -> Result<FieldRef, String> {
    if let Some(field) = database.field(name) {
        return Ok(field);
    }
    let (record, field) = name.split_once('.').unwrap_or((name, ""));
    if database.field(record).is_none() {
        let guess = suggestion_text(closest_match(record, database.record_names().take(COMPARED_NAMES_MAX)));
        return Err(format!("there is no record \"{record}\"{guess}"));
    }
    let guess = suggestion_text(closest_match(field, database.field_names(record)));
    Err(format!("record \"{record}\" has no field \"{field}\"{guess}"))
}

/// `; did you mean "dbl"?`, or nothing.
pub fn suggestion_text(name: Option<&str>) -> String {
    name.map_or(String::new(), |name| format!("; did you mean \"{name}\"?"))
}
