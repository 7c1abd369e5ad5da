//! Formats values as text: shortened at a terminal, complete otherwise.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::io::{self, IsTerminal as _};

use fodo_data::Limits;
use fodo_net::{Kind, Meta, Reading, Scalar, Severity, Value};

use crate::limit;
use crate::local_time::Clock;

/// Display options for values.
#[derive(Clone, Debug)]
pub struct DisplayOptions {
    /// Enums as numbers.
    pub numeric: bool,
    /// Arrays of char as text.
    pub text: bool,
    /// Units, limits and labels on separate lines.
    pub with_meta: bool,
    /// All elements, also at a terminal.
    pub full: bool,
    /// Whether the output is a terminal.
    pub is_terminal: bool,
    /// Alarms in colour.
    pub colour: bool,
    /// The clock for time stamps.
    pub clock: Clock,
}

impl DisplayOptions {
    /// The options for the program's stdout; respects `NO_COLOR`, as <https://no-color.org> defines it.
    pub fn of_stdout() -> DisplayOptions {
        let is_terminal = std::io::stdout().is_terminal();
        let colour = is_terminal && permits_colour(std::env::var_os("NO_COLOR").as_deref());
        DisplayOptions { is_terminal, colour, ..DisplayOptions::plain(Clock::local()) }
    }

    /// The options without flags or a terminal.
    pub const fn plain(clock: Clock) -> DisplayOptions {
        DisplayOptions {
            numeric: false,
            text: false,
            with_meta: false,
            full: false,
            is_terminal: false,
            colour: false,
            clock,
        }
    }

    /// The options for one PV: a long string such as `x.DESC$` is always text.
    pub fn of(&self, pv: &str) -> DisplayOptions {
        DisplayOptions { text: self.text || is_long_string(pv), ..self.clone() }
    }

    /// The value with its units: `1.500 mm`, `[1, 2.5, 3] A`, `Switched on`.
    ///
    /// It is written element by element, because the text of an array needs several times the memory of its values.
    pub fn value<'a>(&self, reading: &'a Reading) -> impl Display + use<'a> {
        let look = self.clone();
        fmt::from_fn(move |f| look.write_value(reading, f))
    }

    fn write_value(&self, reading: &Reading, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meta = reading.meta.as_deref();
        match &reading.value {
            value if self.is_text(value) => {
                f.write_str(&escape_control(&value.long_text().unwrap_or_default().to_str()))?
            }
            Value::Scalar(scalar) => f.write_str(&self.element(scalar, meta))?,
            Value::Array(array) => {
                let n_shown = if self.is_terminal && !self.full { limit::ELEMENTS_AT_TERMINAL } else { usize::MAX };
                f.write_str("[")?;
                for (index, scalar) in (0..array.len().min(n_shown)).filter_map(|at| array.scalar(at)).enumerate() {
                    let separator = if index > 0 { ", " } else { "" };
                    write!(f, "{separator}{}", self.quoted(&scalar, meta))?;
                }
                if array.len() > n_shown {
                    write!(f, ", ... {} more (--full shows all)", array.len() - n_shown)?;
                }
                f.write_str("]")?;
            }
        }
        match meta.filter(|meta| !meta.units.is_empty() && reading.value.kind() != Kind::Text) {
            Some(meta) => write!(f, " {}", escape_control(&meta.units.to_str())),
            None => Ok(()),
        }
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

    /// The metadata of a value as names and texts.
    pub fn meta_lines(&self, kind: Kind, meta: &Meta) -> Vec<(&'static str, String)> {
        let span = |limits: Limits| format!("{} to {}", number(limits.low), number(limits.high));
        if !meta.labels.is_empty() {
            let labels = meta.labels.iter().enumerate();
            let states = labels.map(|(index, label)| format!("{index} {}", escape_control(&label.to_str())));
            return vec![("states", states.collect::<Vec<_>>().join(", "))];
        }
        if matches!(kind, Kind::Text | Kind::Enum) {
            return Vec::new();
        }
        let mut lines = vec![("units", escape_control(&meta.units.to_str()))];
        if matches!(kind, Kind::F32 | Kind::F64) {
            lines.push(("precision", meta.precision.to_string()));
        }
        lines.push(("display", span(meta.display)));
        lines.push(("warning", span(meta.warning)));
        lines.push(("alarm", span(meta.alarm)));
        lines.push(("control", span(meta.control)));
        lines
    }

    /// Whether a value is an array of char to be shown as text.
    pub fn is_text(&self, value: &Value) -> bool {
        self.text && matches!(value.kind(), Kind::U8 | Kind::I8)
    }

    fn quoted(&self, scalar: &Scalar, meta: Option<&Meta>) -> String {
        match scalar {
            Scalar::Text(text) => format!("{:?}", text.to_str()),
            other => self.element(other, meta),
        }
    }

    /// One element, without quotes and units.
    pub fn element(&self, scalar: &Scalar, meta: Option<&Meta>) -> String {
        let precision = meta.map_or(0, |meta| meta.precision);
        match scalar {
            Scalar::Text(text) => escape_control(&text.to_str()),
            Scalar::F64(value) if precision > 0 => fodo_data::format_f64(*value, precision),
            Scalar::F32(value) if precision > 0 => fodo_data::format_f32(*value, precision),
            Scalar::F64(value) => number(*value),
            Scalar::F32(value) => without_point(&format!("{value:?}")),
            Scalar::Enum(index) if !self.numeric => match scalar.to_text(meta) {
                label if label.is_empty() => index.to_string(),
                label => escape_control(&label.to_str()),
            },
            other => other.to_text(None).to_str().into_owned(),
        }
    }
}

/// Whether this value of `NO_COLOR` permits colours: it is not set, or empty.
fn permits_colour(no_color: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty)
}

/// A number with the digits needed to represent it exactly.
fn number(value: f64) -> String {
    without_point(&format!("{value:?}"))
}

fn without_point(text: &str) -> String {
    match text {
        "NaN" => "nan".to_owned(),
        text => text.strip_suffix(".0").unwrap_or(text).to_owned(),
    }
}

/// Escapes control characters in text from files or the network, so that it is safe for a terminal.
pub fn escape_control(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, character| {
        if character.is_control() {
            escaped.extend(character.escape_default())
        } else {
            escaped.push(character)
        }
        escaped
    })
}

/// A cell of a table.
pub type TableCell<'a> = Box<dyn Display + 'a>;

/// The widths of columns, which are separated by two spaces. Cells may be large, so their text is never stored.
#[derive(Debug)]
pub struct Columns(Vec<usize>);

impl Columns {
    /// The widths of the widest cells, up to a limit.
    pub fn of(rows: &[Vec<TableCell<'_>>]) -> Columns {
        let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(width).max();
        Columns((0..n_columns).map(|column| widest(column).unwrap_or(0)).collect())
    }

    /// Writes a line, without trailing spaces for empty cells at its end.
    pub fn write(&self, row: &[TableCell<'_>], out: &mut dyn io::Write) -> io::Result<()> {
        let n_cells = row.iter().rposition(|cell| width(cell) > 0).map_or(0, |last| last + 1);
        for (index, (cell, column)) in row.iter().zip(&self.0).take(n_cells).enumerate() {
            write!(out, "{cell}")?;
            if index + 1 < n_cells {
                write!(out, "{:n_blanks$}", "", n_blanks = column.saturating_sub(width(cell)) + 2)?;
            }
        }
        writeln!(out)
    }
}

/// The number of characters of a cell, counted up to the maximum width of a column.
fn width(cell: &TableCell<'_>) -> usize {
    struct CounterColumn(usize);
    impl fmt::Write for CounterColumn {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.chars().count();
            if self.0 < limit::COLUMN_CHARS { Ok(()) } else { Err(fmt::Error) }
        }
    }
    let mut counter = CounterColumn(0);
    // An error means that the maximum width was reached.
    let _ = fmt::Write::write_fmt(&mut counter, format_args!("{cell}"));
    counter.0.min(limit::COLUMN_CHARS)
}

/// Whether a name requests a long string as an array of char, as `x.DESC$` does; a filter may follow.
pub fn is_long_string(pv: &str) -> bool {
    pv.split(['{', '[']).next().is_some_and(|name| name.ends_with('$'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn look() -> DisplayOptions {
        DisplayOptions::plain(Clock::utc())
    }

    fn reading(value: impl Into<Value>, meta: Meta) -> Reading {
        Reading { meta: Some(Arc::new(meta)), ..Reading::bare(value.into()) }
    }

    #[test]
    fn a_number_is_shown_with_precision_and_units() {
        let meta = Meta { precision: 3, units: "mm".into(), ..Meta::default() };

        assert_eq!(look().value(&reading(1.5, meta.clone())).to_string(), "1.500 mm");
        assert_eq!(look().value(&reading(vec![1.0, 2.5], meta)).to_string(), "[1.000, 2.500] mm");
        assert_eq!(look().value(&reading(0.1 + 0.2, Meta::default())).to_string(), "0.30000000000000004");
        assert_eq!(look().value(&reading(4.0, Meta::default())).to_string(), "4");
        assert_eq!(look().value(&reading(0.1_f32, Meta::default())).to_string(), "0.1");
        assert_eq!(look().value(&reading(f64::NAN, Meta::default())).to_string(), "nan");
    }

    #[test]
    fn an_enum_is_shown_as_its_label_unless_numeric_is_set() {
        let meta = Meta { labels: vec!["Off".into(), "On".into()], ..Meta::default() };
        let on = reading(Value::Scalar(Scalar::Enum(1)), meta);

        assert_eq!(look().value(&on).to_string(), "On");
        assert_eq!(DisplayOptions { numeric: true, ..look() }.value(&on).to_string(), "1");
    }

    #[test]
    fn a_terminal_shows_the_start_of_an_array_and_the_flag_for_all_elements() {
        let many = reading((0..20).collect::<Vec<i32>>(), Meta::default());
        let terminal = DisplayOptions { is_terminal: true, ..look() };

        assert_eq!(terminal.value(&many).to_string(), "[0, 1, 2, 3, 4, 5, 6, 7, ... 12 more (--full shows all)]");
        assert!(look().value(&many).to_string().ends_with("18, 19]"));
        assert!(DisplayOptions { full: true, ..terminal }.value(&many).to_string().ends_with("18, 19]"));
    }

    #[test]
    fn char_arrays_are_shown_as_text_on_request_with_control_characters_escaped() {
        let bytes = reading(b"hi\x1b[2J\0junk".to_vec(), Meta::default());

        assert_eq!(DisplayOptions { text: true, ..look() }.value(&bytes).to_string(), "hi\\u{1b}[2J");
        assert!(look().value(&bytes).to_string().starts_with("[104, 105, 27"));
    }

    #[test]
    fn an_alarm_is_shown_only_if_the_pv_is_in_alarm() {
        let mut major = reading(1.0, Meta::default());
        assert_eq!(look().alarm(&major), "");

        major.alarm = fodo_net::Alarm { severity: Severity::Major, status: fodo_net::Status::HIHI };
        assert_eq!(look().alarm(&major), "MAJOR HIHI");
        assert_eq!(DisplayOptions { colour: true, ..look() }.alarm(&major), "\x1b[31mMAJOR HIHI\x1b[0m");
    }

    #[test]
    fn columns_are_aligned_without_trailing_blanks() {
        let rows: [Vec<TableCell<'_>>; 3] = [
            vec![Box::new("a"), Box::new("1"), Box::new("")],
            vec![Box::new("long"), Box::new("22")],
            vec![Box::new("b".repeat(50)), Box::new("3"), Box::new("end")],
        ];
        let (columns, mut text) = (Columns::of(&rows[..2]), Vec::new());

        rows.iter().for_each(|row| columns.write(row, &mut text).unwrap());

        let long = "b".repeat(50);
        assert_eq!(String::from_utf8(text).unwrap(), format!("a     1\nlong  22\n{long}  3   end\n"));
    }

    #[test]
    fn metadata_lines_depend_on_the_value_type() {
        let limits = |low, high| Limits { low, high };
        let meta = Meta {
            units: "mm".into(),
            precision: 3,
            display: limits(-1.0, 1.5),
            warning: limits(f64::NAN, 2.0),
            alarm: limits(-3.0, 3.0),
            control: limits(-4.0, 1e20),
            ..Meta::default()
        };
        let meta_lines_of = |kind| look().meta_lines(kind, &meta);
        let spans = ["-1 to 1.5", "nan to 2", "-3 to 3", "-4 to 1e20"].map(str::to_owned);
        let [display, warning, alarm, control] = spans;
        let limits = [("display", display), ("warning", warning), ("alarm", alarm), ("control", control)];

        assert_eq!(meta_lines_of(Kind::I32), [&[("units", "mm".to_owned())][..], &limits].concat());
        let first = [("units", "mm".to_owned()), ("precision", "3".to_owned())];
        assert_eq!(meta_lines_of(Kind::F64), [&first[..], &limits].concat());
        assert_eq!(meta_lines_of(Kind::F32), meta_lines_of(Kind::F64));
        assert_eq!((meta_lines_of(Kind::Text), meta_lines_of(Kind::Enum)), (vec![], vec![]));
        let states = Meta { labels: vec!["Off".into(), "On".into()], ..Meta::default() };
        assert_eq!(look().meta_lines(Kind::Enum, &states), [("states", "0 Off, 1 On".to_owned())]);
    }

    #[test]
    fn each_severity_has_a_distinct_terminal_colour() {
        let shown = |severity| {
            let alarm = fodo_net::Alarm { severity, status: fodo_net::Status::READ };
            DisplayOptions { colour: true, ..look() }.alarm(&Reading { alarm, ..Reading::bare(Value::from(1.0)) })
        };

        assert_eq!(shown(Severity::Minor), "\x1b[33mMINOR READ\x1b[0m");
        assert_eq!(shown(Severity::Major), "\x1b[31mMAJOR READ\x1b[0m");
        assert_eq!(shown(Severity::Invalid), "\x1b[35mINVALID READ\x1b[0m");
    }

    #[test]
    fn strings_in_an_array_are_quoted_and_have_no_units() {
        let meta = Meta { units: "mm".into(), precision: 2, labels: vec!["Off".into()], ..Meta::default() };
        let shown = |value: Value| look().value(&reading(value, meta.clone())).to_string();

        assert_eq!(shown(Value::from(vec![fodo_data::Text::from("a\"b"), "".into()])), "[\"a\\\"b\", \"\"]");
        assert_eq!(shown(Value::from("up")), "up");
        assert_eq!(shown(Value::from(1.5_f32)), "1.50 mm");
        assert_eq!(shown(Value::from(7)), "7 mm");
        assert_eq!(shown(Value::Scalar(Scalar::Enum(0))), "Off mm");
        assert_eq!(shown(Value::Scalar(Scalar::Enum(4))), "4 mm");
    }

    #[test]
    fn a_name_ending_with_a_dollar_sign_is_a_long_string_even_with_a_filter() {
        for (pv, is_text) in
            [("x.DESC$", true), ("x.DESC$[0:3]", true), ("x.DESC${arr:{}}", true), ("x.DESC", false), ("x[$", false)]
        {
            assert_eq!((is_long_string(pv), look().of(pv).text), (is_text, is_text), "{pv}");
        }
        assert!(DisplayOptions { text: true, ..look() }.of("x").text);
    }

    #[test]
    fn no_color_switches_colours_off_unless_it_is_empty() {
        assert_eq!(
            [None, Some(""), Some("0"), Some("1")].map(|value| permits_colour(value.map(OsStr::new))),
            [true, true, false, false]
        );
    }
}
