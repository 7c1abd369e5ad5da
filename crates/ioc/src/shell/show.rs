//! The fields of a record as `dbpr` shows them: those of a level and below, laid out as EPICS Base does.

use std::collections::HashMap;

use fodo_data::{Scalar, TimeStamp, Value};
use fodo_db::{Database, LeadsTo};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::records::{put, shown};
use super::script::Flow;
use super::{Call, Failure, Shell};
use crate::names::field_of;

/// The level at which `dbtr` shows a record.
const LEVEL_OF_TRIAL: u8 = 3;

/// From this level on the time stamp is shown.
const LEVEL_OF_TIME: u8 = 2;

/// Characters of a line, and of the columns in which fields begin.
const LINE: usize = 80;
const COLUMN: usize = 20;

/// `dbpr record [level]`
pub(super) fn show_record(shell: &mut Shell, call: &Call<'_>) -> Result<Flow, Failure> {
    let level = level(call, 2)?;
    show(shell, call, level)
}

/// `dbtr record`
pub(super) fn process(shell: &mut Shell, call: &Call<'_>) -> Result<Flow, Failure> {
    let name = call.needed(1, "a record")?;
    let database = shell.database()?;
    let field = field_of(database, &format!("{name}.PROC")).map_err(|message| Failure::Word(1, message))?;
    if shell.is_check() {
        return Ok(Flow::Next);
    }
    let one = Value::Scalar(Scalar::U8(1));
    put(shell, field, one).map_err(|message| Failure::Word(1, format!("\"{name}\": {message}")))?;
    show(shell, call, LEVEL_OF_TRIAL)
}

/// An argument that says how much to show; 0 where it is left out.
pub(super) fn level(call: &Call<'_>, index: usize) -> Result<u8, Failure> {
    let Some(text) = call.argument(index).filter(|text| !text.is_empty()) else { return Ok(0) };
    text.parse().map_err(|_| Failure::Word(index, format!("\"{text}\" is no level; 0 shows least, 4 most")))
}

fn show(shell: &mut Shell, call: &Call<'_>, level: u8) -> Result<Flow, Failure> {
    let name = call.needed(1, "a record")?;
    let database = shell.database()?;
    let value = field_of(database, name).map_err(|message| Failure::Word(1, message))?;
    let record = name.split('.').next().unwrap_or(name);
    let mut fields = fields(database, record, level);
    if level >= LEVEL_OF_TIME {
        fields.push(("TIME", moment(database.read(value).time)));
        fields.sort_unstable();
    }
    let text = in_columns(fields.iter().map(|(name, value)| format!("{name:<4}: {value}")));
    shell.say(&text);
    Ok(Flow::Next)
}

/// Fields with their values; a link says as well whether it leads to a record of this IOC or of another.
fn fields(database: &Database, record: &str, level: u8) -> Vec<(&'static str, String)> {
    let links: HashMap<&str, &str> = database
        .links(record)
        .into_iter()
        .filter_map(|link| match link.leads_to {
            LeadsTo::Record(_) => Some((link.field, "DB_LINK ")),
            LeadsTo::Outside(_) => Some((link.field, "CA_LINK ")),
            LeadsTo::Nowhere => None,
        })
        .collect();
    let names = database.fields_of_interest(record, level).into_iter();
    let value = |name: &str| {
        let value = shown(database, database.field(&format!("{record}.{name}"))?);
        Some(format!("{}{value}", links.get(name).unwrap_or(&"")))
    };
    names.filter_map(|name| Some((name, value(name)?))).collect()
}

/// A time stamp on the clock of this place.
fn moment(at: TimeStamp) -> String {
    if at == TimeStamp::NEVER {
        return "<undefined>".to_owned();
    }
    match Timestamp::new(at.unix_s, at.nanos as i32) {
        Ok(moment) => moment.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S.%9f").to_string(),
        Err(_) => "beyond the calendar".to_owned(),
    }
}

/// Each cell takes as many whole columns as it needs.
fn in_columns(cells: impl Iterator<Item = String>) -> String {
    let (mut text, mut at) = (String::new(), 0);
    for cell in cells {
        let width = (cell.chars().count() / COLUMN + 1) * COLUMN;
        if at > 0 && at + width > LINE {
            text.push('\n');
            at = 0;
        }
        text += &format!("{cell:<width$}");
        at += width;
    }
    if at > 0 {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_in_four_columns_and_what_is_long_takes_more_of_them() {
        let cells =
            ["ADEL: 0", "OUT : CA_LINK x:far PP NMS", "PREC: 2", "EGU : mm", "DESC: a line of text that is long"];

        let text = in_columns(cells.into_iter().map(str::to_owned));

        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let first = "ADEL: 0             OUT : CA_LINK x:far PP NMS              PREC: 2";
        assert_eq!(lines, [first, "EGU : mm            DESC: a line of text that is long"]);
    }
}
