//! `dbpr` and `dbtr`: show the fields of a record up to an interest level, in the layout of EPICS Base.

use std::collections::HashMap;

use fodo_data::{Scalar, TimeStamp, Value};
use fodo_db::{Database, LinkTarget};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::records::{put, shown};
use super::script::Flow;
use super::{CommandError, CommandLine, Shell};
use crate::names::field_of;

/// The level at which `dbtr` shows a record.
const LEVEL_OF_TRIAL: u8 = 3;

/// The lowest level at which the time stamp is shown.
const LEVEL_OF_TIME: u8 = 2;

/// The width of a line, and of a column, in characters.
const LINE: usize = 80;
const COLUMN: usize = 20;

/// `dbpr record [level]`
pub(super) fn show_record(shell: &mut Shell, call: &CommandLine<'_>) -> Result<Flow, CommandError> {
    let level = level(call, 2)?;
    show(shell, call, level)
}

/// `dbtr record`
pub(super) fn process(shell: &mut Shell, call: &CommandLine<'_>) -> Result<Flow, CommandError> {
    let name = call.needed(1, "a record")?;
    let database = shell.database()?;
    let field = field_of(database, &format!("{name}.PROC")).map_err(|message| CommandError::Word(1, message))?;
    if shell.is_check() {
        return Ok(Flow::Next);
    }
    let one = Value::Scalar(Scalar::U8(1));
    put(shell, field, one).map_err(|message| CommandError::Word(1, format!("\"{name}\": {message}")))?;
    show(shell, call, LEVEL_OF_TRIAL)
}

/// Parses the level argument; 0 if it is omitted.
pub(super) fn level(call: &CommandLine<'_>, index: usize) -> Result<u8, CommandError> {
    let Some(text) = call.argument(index).filter(|text| !text.is_empty()) else { return Ok(0) };
    text.parse().map_err(|_| CommandError::Word(index, format!("\"{text}\" is not a level; use 0 (least) to 4 (most)")))
}

fn show(shell: &mut Shell, call: &CommandLine<'_>, level: u8) -> Result<Flow, CommandError> {
    let name = call.needed(1, "a record")?;
    let database = shell.database()?;
    let value = field_of(database, name).map_err(|message| CommandError::Word(1, message))?;
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

/// Fields with their values; for a link also whether its target is a record of this IOC or of another one.
fn fields(database: &Database, record: &str, level: u8) -> Vec<(&'static str, String)> {
    let links: HashMap<&str, &str> = database
        .links(record)
        .into_iter()
        .filter_map(|link| match link.target {
            LinkTarget::Record(_) => Some((link.field, "DB_LINK ")),
            LinkTarget::External(_) => Some((link.field, "CA_LINK ")),
            LinkTarget::Missing => None,
        })
        .collect();
    let names = database.fields_of_interest(record, level).into_iter();
    let value = |name: &str| {
        let value = shown(database, database.field(&format!("{record}.{name}"))?);
        Some(format!("{}{value}", links.get(name).unwrap_or(&"")))
    };
    names.filter_map(|name| Some((name, value(name)?))).collect()
}

/// A time stamp as local time.
fn moment(at: TimeStamp) -> String {
    if at == TimeStamp::NEVER {
        return "<undefined>".to_owned();
    }
    match Timestamp::new(at.unix_s, at.nanos as i32) {
        Ok(moment) => moment.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S.%9f").to_string(),
        Err(_) => "out of range".to_owned(),
    }
}

/// Lays out cells in columns; a long cell takes several whole columns.
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
    fn fields_are_shown_in_four_columns_and_long_values_span_several() {
        let cells =
            ["ADEL: 0", "OUT : CA_LINK x:far PP NMS", "PREC: 2", "EGU : mm", "DESC: a line of text that is long"];

        let text = in_columns(cells.into_iter().map(str::to_owned));

        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let first = "ADEL: 0             OUT : CA_LINK x:far PP NMS              PREC: 2";
        assert_eq!(lines, [first, "EGU : mm            DESC: a line of text that is long"]);
    }

    #[test]
    fn four_short_cells_fill_a_line_and_a_cell_of_a_whole_column_takes_two() {
        let lines = |cells: &[&str]| {
            let text = in_columns(cells.iter().map(|cell| (*cell).to_owned()));
            text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
        };
        let (short, column) = ("PREC: 2", "DESC: a line of text");
        assert_eq!(column.len(), COLUMN);

        assert_eq!(lines(&[short; 4]).len(), 1);
        assert_eq!(lines(&[short; 5]).len(), 2);
        assert_eq!(lines(&[short, column, short]).len(), 1);
        assert_eq!(lines(&[short, short, column, short]).len(), 2);
        assert_eq!(lines(&[&"x".repeat(200), short]).len(), 2);
    }
}
