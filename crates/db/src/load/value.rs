//! Parses and checks the values of fields in a `.db` file.

use fodo_data::{Scalar, Text, integer_at_start};

use crate::common::row;
use crate::device::choices;
use crate::field::{Dbf, EXPRESSION, FieldInfo};
use crate::link::{Link, ParsedLink, parse};
use crate::load::error::suggestion;
use crate::load::simulate::INERT_HINT;
use crate::load::{FileLoad, link_of};
use crate::record::contract::{RecordType, with};
use crate::record::field_table::has_table;
use crate::scan_menu::{is_of_scan, period};

/// Why the value of a field is invalid.
pub(crate) struct ValueError {
    pub(crate) message: String,
    /// The offset of the error in the value, as the file writes it, in bytes.
    pub(crate) offset: usize,
}

impl From<String> for ValueError {
    fn from(message: String) -> ValueError {
        ValueError { message, offset: 0 }
    }
}

impl FileLoad<'_> {
    /// Sets a field, or returns why the value is invalid.
    pub(crate) fn set(&mut self, record: u32, field: u16, text: &Text) -> Result<(), ValueError> {
        let Some(kind) = self.cell(record).map(|cell| cell.record_type()) else { return Ok(()) };
        let Some(row) = row(kind.rows, field) else { return Ok(()) };
        if row.dbf.is_link() {
            let words = text.to_str();
            let link_kind = row.link_kind();
            let parsed = parse(&words, link_kind);
            if let ParsedLink::Invalid(fault) = &parsed {
                let message = format!("{} cannot be \"{text}\": {}", row.name, fault.message);
                // Plus one for the opening quote.
                return Err(ValueError { message, offset: if fault.at == 0 { 0 } else { fault.at + 1 } });
            }
            let link = Link::from_parsed(&words, &parsed, link_kind);
            let Some(cell) = self.cell(record) else { return Ok(()) };
            with(cell, |body| {
                if let Some(place) = link_of(body, field) {
                    *place = link;
                }
            });
            return Ok(());
        }
        let scalar = match scalar(kind, row, text, self) {
            Err(message) if row.dbf == Dbf::Device => {
                let inert = self.inert_device(text)?;
                self.set_scalar(record, field, inert);
                return if self.simulates() || has_table(kind.name) { Ok(()) } else { Err(message.into()) };
            }
            scalar => scalar?,
        };
        if row.has(EXPRESSION)
            && let Some(Err(error)) = self.cell(record).and_then(|cell| with(cell, |body| body.compile(field, text)))
        {
            let message = format!("{} cannot be \"{text}\": {error}", row.name);
            // Plus one for the opening quote.
            return Err(ValueError { message, offset: error.position + 1 });
        }
        if field == kind.value {
            // Setting the value clears UDF, as in Base since 7.0.
            self.cell(record).and_then(|cell| with(cell, |body| body.common().undefined = 0));
        }
        self.note_scan_choice(row, &scalar);
        self.set_scalar(record, field, scalar);
        Ok(())
    }

    fn set_scalar(&mut self, record: u32, field: u16, scalar: Scalar) {
        self.cell(record).and_then(|cell| with(cell, |body| body.slot(field).is_some_and(|mut slot| slot.set(scalar))));
    }
}

/// Converts a text to the type of a field.
fn scalar(kind: &RecordType, row: &FieldInfo, text: &Text, load: &FileLoad) -> Result<Scalar, String> {
    let words = text.to_str();
    let words = words.trim();
    let out_of_range =
        |least: i128, most: i128| format!("{} cannot be \"{text}\": it must be between {least} and {most}", row.name);
    macro_rules! whole {
        ($variant:ident, $rust:ty) => {
            whole(words)
                .ok_or_else(|| format!("{} cannot be \"{text}\": expected a whole number", row.name))
                .and_then(|number| {
                    <$rust>::try_from(number).map_err(|_| out_of_range(<$rust>::MIN.into(), <$rust>::MAX.into()))
                })
                .map(Scalar::$variant)
        };
    }
    // A number may use all bits of the field, signed or unsigned, since Base wraps numbers.
    macro_rules! bits {
        ($variant:ident, $rust:ty, $other:ty) => {
            whole(words)
                .ok_or_else(|| format!("{} cannot be \"{text}\": expected a whole number", row.name))
                .and_then(|number| {
                    let other = || <$other>::try_from(number).map(|number| number as $rust);
                    let is_wrong = |_| out_of_range(<$rust>::MIN.into(), <$rust>::MAX.into());
                    <$rust>::try_from(number).or_else(|_| other()).map_err(is_wrong)
                })
                .map(Scalar::$variant)
        };
    }
    match row.dbf {
        Dbf::String if row.size == 0 => Err(format!("{} cannot be set in a file", row.name)),
        Dbf::String => {
            let bytes_max = usize::from(row.size).saturating_sub(1);
            if row.name == "NAME" {
                return Err("the name of a record cannot be set as a field".into());
            }
            if text.len() > bytes_max {
                return Err(format!("{} can hold {bytes_max} bytes, the value has {}", row.name, text.len()));
            }
            Ok(Scalar::Text(text.clone()))
        }
        Dbf::Char => bits!(I8, i8, u8),
        Dbf::UChar => bits!(U8, u8, i8),
        Dbf::Short => bits!(I16, i16, u16),
        Dbf::UShort => bits!(U16, u16, i16),
        Dbf::Long => bits!(I32, i32, u32),
        Dbf::ULong => bits!(U32, u32, i32),
        Dbf::Int64 => whole!(I64, i64),
        Dbf::UInt64 => bits!(U64, u64, i64),
        Dbf::Enum => whole!(Enum, u16),
        Dbf::Float => real(words).map(|number| Scalar::F32(number as f32)).ok_or_else(|| no_number(row, text)),
        Dbf::Double => real(words).map(Scalar::F64).ok_or_else(|| no_number(row, text)),
        Dbf::Menu => {
            let chosen = choice(row.name, &load.scan_menu().choices_of(row), &text.to_str(), "");
            let is_rate = is_of_scan(row) && period(words).is_some();
            chosen.map_err(
                |message| if is_rate { message + " (a site's menuScan must be loaded first)" } else { message },
            )
        }
        Dbf::Device if kind.devices.is_empty() && words.is_empty() => Ok(Scalar::Enum(0)),
        Dbf::Device if kind.devices.is_empty() => Err(format!("{} has no device support and so no DTYP", kind.name)),
        Dbf::Device => choice(row.name, choices(kind.devices, load.has_program()), &text.to_str(), INERT_HINT),
        Dbf::InLink | Dbf::OutLink | Dbf::FwdLink | Dbf::Array => Err(format!("{} cannot be set in a file", row.name)),
    }
}

fn no_number(row: &FieldInfo, text: &Text) -> String {
    let with_point = text.to_str().replacen(',', ".", 1);
    let guess = real(with_point.trim()).map_or(String::new(), |_| format!("; did you mean \"{}\"?", with_point.trim()));
    format!("{} cannot be \"{text}\": expected a number{guess}", row.name)
}

/// Finds a choice by text or number. `hint` is added to the error if no choice is similar.
fn choice(field: &str, choices: &[&str], text: &str, hint: &str) -> Result<Scalar, String> {
    if let Some(index) = choices.iter().position(|choice| *choice == text) {
        return Ok(Scalar::Enum(index as u16));
    }
    let number = text.trim().parse::<u16>().ok().filter(|number| usize::from(*number) < choices.len());
    if let Some(index) = number {
        return Ok(Scalar::Enum(index));
    }
    if text.is_empty() {
        return Ok(Scalar::Enum(0));
    }
    let guess = suggestion(text, choices.iter().copied());
    let all = if guess.is_empty() { format!("; there are \"{}\"{hint}", choices.join("\", \"")) } else { guess };
    Err(format!("{field} has no choice \"{text}\"{all}"))
}

/// Parses a text that contains only an integer, by the rules of [`integer_at_start`]. An empty text is 0.
fn whole(words: &str) -> Option<i128> {
    if words.is_empty() {
        return Some(0);
    }
    integer_at_start(words).ok().filter(|(_, end)| *end == words.len()).map(|(number, _)| number)
}

fn real(words: &str) -> Option<f64> {
    match words.parse() {
        Ok(number) => Some(number),
        Err(_) => whole(words).map(|number| number as f64),
    }
}
