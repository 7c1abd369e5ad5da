//! Formats readings like the EPICS tools.

use std::fmt::{self, Display};

use fodo_net::{Detail, Error, ErrorKind, Kind, Meta, Reading, Refusal, Scalar, Status, Value};

use super::dbr::Dbr;
use super::escape::escaped;
use super::printf::{self, Notation};
use super::status;
use crate::local_time::Clock;

/// Maximum number of states of an enum in Channel Access.
const STATES_MAX: u16 = 16;

/// The base in which integers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Decimal.
    Decimal,
    /// `0xFF`
    Hexadecimal,
    /// `0o17`
    Octal,
    /// `1010`
    Binary,
}

impl Base {
    /// Parses the value of `-l` or `-0`.
    pub fn of(letter: &str) -> Option<Base> {
        match letter.bytes().next() {
            Some(b'x') => Some(Base::Hexadecimal),
            Some(b'o') => Some(Base::Octal),
            Some(b'b') => Some(Base::Binary),
            _ => None,
        }
    }

    fn write(self, number: i32) -> String {
        match self {
            Base::Decimal => number.to_string(),
            Base::Hexadecimal => format!("0x{number:X}"),
            Base::Octal => format!("0o{number:o}"),
            Base::Binary => format!("{number:b}"),
        }
    }
}

/// The output format of values.
#[derive(Clone, Debug)]
pub struct Style {
    /// Floating point numbers (`-e`, `-f`, `-g`).
    pub notation: Notation,
    /// The base for floating point numbers rounded to integers (`-l`); decimal means no rounding.
    pub float_base: Base,
    /// The base for integers (`-0`).
    pub integer_base: Base,
    /// Enums as numbers (`-n`).
    pub enums_as_numbers: bool,
    /// Arrays of char as one string (`-S`).
    pub chars_as_text: bool,
    /// The requested number of elements (`-#`); 0 if not given.
    pub count_requested: u32,
    /// The field separator (`-F`).
    pub separator: char,
    /// The clock for time stamps.
    pub clock: Clock,
}

impl Style {
    /// The format without flags.
    pub fn new(clock: Clock) -> Style {
        Style {
            notation: Notation::General(6),
            float_base: Base::Decimal,
            integer_base: Base::Decimal,
            enums_as_numbers: false,
            chars_as_text: false,
            count_requested: 0,
            separator: ' ',
            clock,
        }
    }

    /// The name and its separator; padded to 30 characters before a single element.
    pub fn name(&self, name: &str, n_elements: usize) -> String {
        let separator = self.separator;
        if n_elements <= 1 && separator == ' ' {
            format!("{name:<30}{separator}")
        } else {
            format!("{name}{separator}")
        }
    }

    /// The type to request without `-d`: the native type with time stamps, but enums as strings or shorts, and floating
    /// point numbers as strings with `floats_as_text`.
    pub fn request_type(&self, native: Kind, floats_as_text: bool) -> Dbr {
        let dbr = Dbr::of(native, Detail::Time);
        let kind = match dbr.kind() {
            Kind::Enum if self.enums_as_numbers => Kind::I16,
            Kind::Enum => Kind::Text,
            Kind::F32 | Kind::F64 if floats_as_text => Kind::Text,
            kind => kind,
        };
        Dbr::of(kind, Detail::Time)
    }

    /// The elements, preceded by their number if there may be several.
    ///
    /// Elements are written one by one, because the text of a whole array needs several times the memory of its values.
    pub fn counted_value<'a>(&'a self, value: &'a Value) -> impl Display + 'a {
        fmt::from_fn(move |f| {
            if let Some(text) = self.as_text(value) {
                return f.write_str(&text);
            }
            if self.is_counted(value) {
                write!(f, "{}{}", value.len(), self.separator)?;
            }
            self.write_elements(value, None, f)
        })
    }

    /// The part of a wide line after the name: `timestamp value status severity`.
    pub fn wide<'a>(&'a self, stamp: &'a str, reading: &'a Reading) -> impl Display + 'a {
        fmt::from_fn(move |f| {
            let separator = self.separator;
            f.write_str(stamp)?;
            match self.as_text(&reading.value) {
                Some(text) => write!(f, "{separator}{text}")?,
                None => {
                    if self.is_counted(&reading.value) {
                        write!(f, "{separator}{}", reading.value.len())?;
                    }
                    // For an empty array, not even a separator is printed.
                    if !reading.value.is_empty() {
                        write!(f, "{separator}")?;
                        self.write_elements(&reading.value, None, f)?;
                    }
                }
            }
            let alarm = reading.alarm;
            match (alarm.status, alarm.severity.code()) {
                (Status::NO_ALARM, 0) => write!(f, "{separator}{separator}"),
                (status, _) => write!(f, "{separator}{status}{separator}{}", alarm.severity),
            }
        })
    }

    /// The block that `-d` prints below the name.
    pub fn block<'a>(&'a self, dbr: Dbr, native: Kind, reading: &'a Reading) -> impl Display + 'a {
        fmt::from_fn(move |f| {
            let native = super::dbr::native_name(native);
            writeln!(f, "    Native data type: {native}\n    Request type:     {}", dbr.name())?;
            let value = &reading.value;
            if dbr.detail() == Detail::ClassName {
                let name = value.first().map_or_else(String::new, |scalar| scalar.to_text(None).to_str().into_owned());
                return writeln!(f, "    Class Name:       {name}");
            }
            let empty = Meta::default();
            let is_graphic = matches!(dbr.detail(), Detail::Graphic | Detail::Control);
            let meta = reading.meta.as_deref().unwrap_or(&empty);
            write!(f, "    Element count:    {}\n    Value:            ", value.len())?;
            match self.as_text(value) {
                Some(text) => f.write_str(&text)?,
                None => self.write_elements(value, is_graphic.then_some(meta), f)?,
            }
            writeln!(f)?;
            for line in self.detail_lines(dbr, reading, meta) {
                writeln!(f, "    {:<18}{}", line.0, line.1)?;
            }
            Ok(())
        })
    }

    fn detail_lines(&self, dbr: Dbr, reading: &Reading, meta: &Meta) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        if dbr.detail() == Detail::Value {
            return lines;
        }
        if dbr.detail() == Detail::Time {
            lines.push(("Timestamp:", self.clock.for_epics(reading.time)));
        }
        lines.push(("Status:", reading.alarm.status.to_string()));
        lines.push(("Severity:", reading.alarm.severity.to_string()));
        match (dbr.detail(), dbr.kind()) {
            (Detail::AcknowledgeState, _) => {
                let acknowledge = meta.acknowledge;
                let is_transient = acknowledge.is_some_and(|acknowledge| acknowledge.transient);
                let severity = acknowledge.map(|acknowledge| acknowledge.severity).unwrap_or_default();
                lines.push(("Ack transient?:", if is_transient { "YES" } else { "NO" }.to_owned()));
                lines.push(("Ack severity:", severity.to_string()));
            }
            (Detail::Graphic | Detail::Control, Kind::Text) => {}
            (Detail::Graphic | Detail::Control, Kind::Enum) => lines.push(("Enums:", states(meta))),
            (Detail::Graphic | Detail::Control, kind) => limits(&mut lines, kind, dbr.detail(), meta),
            _ => {}
        }
        lines
    }

    /// Whether the number of elements is printed.
    fn is_counted(&self, value: &Value) -> bool {
        self.count_requested > 0 || value.len() > 1
    }

    /// An array of char as one string, if requested.
    fn as_text(&self, value: &Value) -> Option<String> {
        if !self.chars_as_text || !self.is_counted(value) || !matches!(value.kind(), Kind::U8 | Kind::I8) {
            return None;
        }
        let mut bytes = Vec::with_capacity(value.len());
        for scalar in scalars(value) {
            match scalar {
                Scalar::U8(byte) if byte != 0 => bytes.push(byte),
                Scalar::I8(byte) if byte != 0 => bytes.push(byte.cast_unsigned()),
                _ => break,
            }
        }
        Some(escaped(&bytes))
    }

    fn write_elements(&self, value: &Value, labels: Option<&Meta>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, scalar) in scalars(value).enumerate() {
            if index > 0 {
                write!(f, "{}", self.separator)?;
            }
            f.write_str(&self.element(&scalar, labels))?;
        }
        Ok(())
    }

    fn element(&self, scalar: &Scalar, labels: Option<&Meta>) -> String {
        match scalar {
            Scalar::Text(text) => escaped(text.as_bytes()),
            Scalar::F32(number) => self.float(f64::from(*number)),
            Scalar::F64(number) => self.float(*number),
            // The tools print DBR_CHAR as C's char, which is signed on their platforms.
            Scalar::U8(number) => number.cast_signed().to_string(),
            Scalar::I16(number) => self.integer_base.write(i32::from(*number)),
            Scalar::I32(number) => self.integer_base.write(*number),
            Scalar::Enum(index) => match labels {
                Some(meta) if !self.enums_as_numbers => state(*index, meta),
                _ => index.to_string(),
            },
            other => other.to_text(None).to_str().into_owned(),
        }
    }

    fn float(&self, number: f64) -> String {
        if self.float_base == Base::Decimal {
            return printf::number(number, self.notation);
        }
        let rounded = if number > 0.0 { number + 0.5 } else { number - 0.5 };
        // Out-of-range numbers become the smallest integer, as in the processor's own conversion.
        let fits = rounded > f64::from(i32::MIN) - 1.0 && rounded < f64::from(i32::MAX) + 1.0;
        self.float_base.write(if fits { rounded as i32 } else { i32::MIN })
    }
}

/// The text that the tools print instead of a value that could not be read.
pub fn error_text(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Refused { refusal: Refusal::ReadAccess, .. } => "*** no read access".to_owned(),
        ErrorKind::Refused { refusal: Refusal::Status { status, .. }, .. } => {
            format!("*** CA error {}", status::message(*status))
        }
        ErrorKind::WrongReply { reply, .. } => format!("*** CA error {reply}"),
        ErrorKind::NoReply { .. } => "*** no data available (timeout)".to_owned(),
        ErrorKind::Misuse { reason, .. } => format!("*** CA error {reason}"),
        ErrorKind::System { kind } => format!("*** CA error {kind}"),
        _ => "*** not connected".to_owned(),
    }
}

fn scalars(value: &Value) -> impl Iterator<Item = Scalar> + '_ {
    (0..value.len()).filter_map(move |index| match value {
        Value::Scalar(scalar) => Some(scalar.clone()),
        Value::Array(array) => array.scalar(index),
    })
}

fn state(index: u16, meta: &Meta) -> String {
    match meta.labels.get(usize::from(index)) {
        _ if index >= STATES_MAX => format!("Illegal Value ({index})"),
        Some(label) => label.to_str().into_owned(),
        None => format!("Enum Index Overflow ({index})"),
    }
}

fn states(meta: &Meta) -> String {
    let mut text = format!("({:2})", meta.labels.len());
    for (index, label) in meta.labels.iter().enumerate() {
        text.push_str(&format!("\n{:22}[{index:2}] {label}", ""));
    }
    text
}

fn limits(lines: &mut Vec<(&'static str, String)>, kind: Kind, detail: Detail, meta: &Meta) {
    let is_float = matches!(kind, Kind::F32 | Kind::F64);
    let number = |limit: f64| match kind {
        Kind::F32 => printf::short(f64::from(limit as f32)),
        Kind::F64 => printf::short(limit),
        Kind::U8 | Kind::I8 => format!("{:8}", limit as i64 as i8),
        _ => format!("{:8}", limit as i64),
    };
    lines.push(("Units:", meta.units.to_str().into_owned()));
    if is_float {
        lines.push(("Precision:", meta.precision.to_string()));
    }
    lines.push(("Lo disp limit:", number(meta.display.low)));
    lines.push(("Hi disp limit:", number(meta.display.high)));
    lines.push(("Lo alarm limit:", number(meta.alarm.low)));
    lines.push(("Lo warn limit:", number(meta.warning.low)));
    lines.push(("Hi warn limit:", number(meta.warning.high)));
    lines.push(("Hi alarm limit:", number(meta.alarm.high)));
    if detail == Detail::Control {
        lines.push(("Lo ctrl limit:", number(meta.control.low)));
        lines.push(("Hi ctrl limit:", number(meta.control.high)));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;
    use std::time::Duration;

    use fodo_ca::eca::Eca;
    use fodo_net::WrongReply;

    use super::*;

    fn style() -> Style {
        Style { chars_as_text: true, ..Style::new(Clock::utc()) }
    }

    #[test]
    fn each_error_is_shown_as_the_tools_do() {
        let server = SocketAddr::from(([127, 0, 0, 1], 5064));
        let refused = |refusal| ErrorKind::Refused { server, refusal };
        let of_status = Refusal::Status { status: Eca::GETFAIL, text: String::new() };
        let reply = WrongReply::Count { requested: 1, received: 2 };
        let of_reply = format!("*** CA error {reply}");
        let kinds = [
            (refused(Refusal::ReadAccess), "*** no read access".to_owned()),
            (refused(of_status), "*** CA error Channel read request failed".to_owned()),
            (ErrorKind::WrongReply { server, reply }, of_reply),
            (ErrorKind::NoReply { server, after: Duration::ZERO }, "*** no data available (timeout)".to_owned()),
            (ErrorKind::Misuse { reason: "an empty name".into(), advice: "" }, "*** CA error an empty name".to_owned()),
            (ErrorKind::System { kind: io::ErrorKind::OutOfMemory }, "*** CA error out of memory".to_owned()),
            (ErrorKind::Disconnected { server }, "*** not connected".to_owned()),
        ];

        for (kind, text) in kinds {
            assert_eq!(error_text(&Error::new("x", kind)), text);
        }
    }

    #[test]
    fn characters_are_shown_as_text_up_to_the_first_nul() {
        let shown = |value: Value| style().counted_value(&value).to_string();

        assert_eq!(shown(Value::from(b"ab\0c".to_vec())), "ab");
        assert_eq!(shown(Value::from(vec![98_i8, 0, 99])), "b");
        assert_eq!(shown(Value::from(b"a\n\x7f".to_vec())), "a\\n\\x7f");
        assert_eq!(shown(Value::from(vec![98_i16, 0])), "2 98 0");
    }

    #[test]
    fn a_state_is_shown_by_its_label_or_as_invalid() {
        let meta = Meta { labels: vec!["off".into(), "on".into()], ..Meta::default() };

        assert_eq!(
            [1, 2, 15, 16].map(|index| state(index, &meta)),
            ["on", "Enum Index Overflow (2)", "Enum Index Overflow (15)", "Illegal Value (16)"]
        );
    }

    #[test]
    fn numbers_in_another_base_are_rounded_and_limited() {
        let style = Style { float_base: Base::Hexadecimal, integer_base: Base::Octal, ..Style::new(Clock::utc()) };
        let shown = |value: Value| style.counted_value(&value).to_string();

        assert_eq!([9.5, -1.5, 0.4, 0.0].map(|number| shown(number.into())), ["0xA", "0xFFFFFFFE", "0x0", "0x0"]);
        assert_eq!(
            [2_147_483_646.9, 2_147_483_647.6, -2_147_483_648.4, -2_147_483_649.6].map(|number| shown(number.into())),
            ["0x7FFFFFFF", "0x80000000", "0x80000000", "0x80000000"]
        );
        assert_eq!(shown(Value::from(8_i32)), "0o10");
        assert_eq!(shown(Value::from(8_i16)), "0o10");
    }
}
