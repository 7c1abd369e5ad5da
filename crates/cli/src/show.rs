//! Values for people: short at a terminal, whole elsewhere.

use std::io::IsTerminal as _;

use fodo_data::Limits;
use fodo_net::{Kind, Meta, Reading, Scalar, Severity, Value};

use crate::local_time::Clock;

/// Elements of an array that a terminal shows.
const ELEMENTS_AT_TERMINAL: usize = 8;

/// How values are to look.
#[derive(Clone, Debug)]
pub struct Look {
    /// Enums as numbers.
    pub numeric: bool,
    /// Arrays of char as text.
    pub text: bool,
    /// Units, limits and labels in lines of their own.
    pub with_meta: bool,
    /// All elements, also at a terminal.
    pub full: bool,
    /// The text goes to a terminal.
    pub is_terminal: bool,
    /// Alarms in colour.
    pub colour: bool,
    /// Where time stamps are.
    pub clock: Clock,
}

impl Look {
    /// What suits the program's stdout. `NO_COLOR` is honoured.
    pub fn of_stdout() -> Look {
        let is_terminal = std::io::stdout().is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|text| !text.is_empty());
        Look { is_terminal, colour: is_terminal && !no_colour, ..Look::plain(Clock::local()) }
    }

    /// No flags, no terminal.
    pub const fn plain(clock: Clock) -> Look {
        Look { numeric: false, text: false, with_meta: false, full: false, is_terminal: false, colour: false, clock }
    }

    /// The look of one PV: a field that is asked for as a long string, `x.DESC$`, is text to whoever asks.
    pub fn of(&self, pv: &str) -> Look {
        Look { text: self.text || is_long_string(pv), ..self.clone() }
    }

    /// The value with its units: `1.500 mm`, `[1, 2.5, 3] A`, `Switched on`.
    pub fn value(&self, reading: &Reading) -> String {
        let meta = reading.meta.as_deref();
        let mut text = match &reading.value {
            value if self.is_text(value) => quiet(&value.long_text().unwrap_or_default().to_str()),
            Value::Scalar(scalar) => self.element(scalar, meta),
            Value::Array(array) => {
                let n_shown = if self.is_terminal && !self.full { ELEMENTS_AT_TERMINAL } else { usize::MAX };
                let shown = (0..array.len().min(n_shown)).filter_map(|index| array.scalar(index));
                let mut parts: Vec<String> = shown.map(|scalar| self.quoted(&scalar, meta)).collect();
                if array.len() > n_shown {
                    parts.push(format!("... {} more (--full shows all)", array.len() - n_shown));
                }
                format!("[{}]", parts.join(", "))
            }
        };
        if let Some(meta) = meta.filter(|meta| !meta.units.is_empty() && reading.value.kind() != Kind::Text) {
            text.push(' ');
            text.push_str(&quiet(&meta.units.to_str()));
        }
        text
    }

    /// `2026-11-21 03:28:24.451042 +01:00`
    pub fn time(&self, reading: &Reading) -> String {
        self.clock.for_people(reading.time)
    }

    /// `MAJOR HIHI`, coloured; empty without an alarm.
    pub fn alarm(&self, reading: &Reading) -> String {
        let alarm = reading.alarm;
        let text = format!("{} {}", alarm.severity, alarm.status);
        match alarm.severity {
            Severity::None => String::new(),
            _ if !self.colour => text,
            Severity::Minor => format!("\x1b[33m{text}\x1b[0m"),
            Severity::Major => format!("\x1b[31m{text}\x1b[0m"),
            Severity::Invalid => format!("\x1b[35m{text}\x1b[0m"),
        }
    }

    /// Lines on what the value means, each with its name.
    pub fn meta_lines(&self, kind: Kind, meta: &Meta) -> Vec<(&'static str, String)> {
        let span = |limits: Limits| format!("{} to {}", number(limits.low), number(limits.high));
        if !meta.labels.is_empty() {
            let labels = meta.labels.iter().enumerate();
            let states = labels.map(|(index, label)| format!("{index} {}", quiet(&label.to_str())));
            return vec![("states", states.collect::<Vec<_>>().join(", "))];
        }
        if matches!(kind, Kind::Text | Kind::Enum) {
            return Vec::new();
        }
        let mut lines = vec![("units", quiet(&meta.units.to_str()))];
        if matches!(kind, Kind::F32 | Kind::F64) {
            lines.push(("precision", meta.precision.to_string()));
        }
        lines.push(("display", span(meta.display)));
        lines.push(("warning", span(meta.warning)));
        lines.push(("alarm", span(meta.alarm)));
        lines.push(("control", span(meta.control)));
        lines
    }

    /// Whether a value is chars to be shown as text.
    pub fn is_text(&self, value: &Value) -> bool {
        self.text && matches!(value.kind(), Kind::U8 | Kind::I8)
    }

    fn quoted(&self, scalar: &Scalar, meta: Option<&Meta>) -> String {
        match scalar {
            Scalar::Text(text) => format!("{:?}", text.to_str()),
            other => self.element(other, meta),
        }
    }

    fn element(&self, scalar: &Scalar, meta: Option<&Meta>) -> String {
        let precision = meta.map_or(0, |meta| meta.precision);
        match scalar {
            Scalar::Text(text) => quiet(&text.to_str()),
            Scalar::F64(value) if precision > 0 => fodo_data::format_f64(*value, precision),
            Scalar::F32(value) if precision > 0 => fodo_data::format_f32(*value, precision),
            Scalar::F64(value) => number(*value),
            Scalar::F32(value) => without_point(&format!("{value:?}")),
            Scalar::Enum(index) if !self.numeric => match scalar.to_text(meta) {
                label if label.is_empty() => index.to_string(),
                label => quiet(&label.to_str()),
            },
            other => other.to_text(None).to_str().into_owned(),
        }
    }
}

/// All the digits a number has, and no more.
fn number(value: f64) -> String {
    without_point(&format!("{value:?}"))
}

fn without_point(text: &str) -> String {
    match text {
        "NaN" => "nan".to_owned(),
        text => text.strip_suffix(".0").unwrap_or(text).to_owned(),
    }
}

/// Text from outside, harmless to a terminal: control characters are escaped.
pub fn quiet(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut quiet, character| {
        if character.is_control() {
            quiet.extend(character.escape_default())
        } else {
            quiet.push(character)
        }
        quiet
    })
}

/// Lines in columns, two blanks between, the last as long as it is.
pub fn columns(rows: &[Vec<String>]) -> String {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..n_columns).map(|column| width(column).unwrap_or(0).min(40)).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Whether a name asks for a text as an array of char, as `x.DESC$` does; a filter may follow.
pub fn is_long_string(pv: &str) -> bool {
    pv.split(['{', '[']).next().is_some_and(|name| name.ends_with('$'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn look() -> Look {
        Look::plain(Clock::utc())
    }

    fn reading(value: impl Into<Value>, meta: Meta) -> Reading {
        Reading { meta: Some(Arc::new(meta)), ..Reading::bare(value.into()) }
    }

    #[test]
    fn a_number_has_its_precision_and_its_units() {
        let meta = Meta { precision: 3, units: "mm".into(), ..Meta::default() };

        assert_eq!(look().value(&reading(1.5, meta.clone())), "1.500 mm");
        assert_eq!(look().value(&reading(vec![1.0, 2.5], meta)), "[1.000, 2.500] mm");
        assert_eq!(look().value(&reading(0.1 + 0.2, Meta::default())), "0.30000000000000004");
        assert_eq!(look().value(&reading(4.0, Meta::default())), "4");
        assert_eq!(look().value(&reading(0.1_f32, Meta::default())), "0.1");
        assert_eq!(look().value(&reading(f64::NAN, Meta::default())), "nan");
    }

    #[test]
    fn an_enum_is_its_label_unless_numbers_are_wanted() {
        let meta = Meta { labels: vec!["Off".into(), "On".into()], ..Meta::default() };
        let on = reading(Value::Scalar(Scalar::Enum(1)), meta);

        assert_eq!(look().value(&on), "On");
        assert_eq!(Look { numeric: true, ..look() }.value(&on), "1");
    }

    #[test]
    fn a_terminal_gets_the_start_of_an_array_and_how_to_see_all() {
        let many = reading((0..20).collect::<Vec<i32>>(), Meta::default());
        let terminal = Look { is_terminal: true, ..look() };

        assert_eq!(terminal.value(&many), "[0, 1, 2, 3, 4, 5, 6, 7, ... 12 more (--full shows all)]");
        assert!(look().value(&many).ends_with("18, 19]"));
        assert!(Look { full: true, ..terminal }.value(&many).ends_with("18, 19]"));
    }

    #[test]
    fn chars_are_text_when_wanted_and_cannot_command_a_terminal() {
        let bytes = reading(b"hi\x1b[2J\0junk".to_vec(), Meta::default());

        assert_eq!(Look { text: true, ..look() }.value(&bytes), "hi\\u{1b}[2J");
        assert!(look().value(&bytes).starts_with("[104, 105, 27"));
    }

    #[test]
    fn an_alarm_is_shown_only_when_there_is_one() {
        let mut major = reading(1.0, Meta::default());
        assert_eq!(look().alarm(&major), "");

        major.alarm = fodo_net::Alarm { severity: Severity::Major, status: fodo_net::Status::HIHI };
        assert_eq!(look().alarm(&major), "MAJOR HIHI");
        assert_eq!(Look { colour: true, ..look() }.alarm(&major), "\x1b[31mMAJOR HIHI\x1b[0m");
    }

    #[test]
    fn columns_line_up_and_leave_no_blanks_at_the_end() {
        let rows = [vec!["a".to_owned(), "1".to_owned(), String::new()], vec!["long".to_owned(), "22".to_owned()]];

        assert_eq!(columns(&rows), "a     1\nlong  22\n");
    }
}
