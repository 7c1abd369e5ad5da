//! Flags common to several tools. As in the originals, an invalid value is reported and ignored.

use std::io::{self, Write};
use std::time::Duration;

use fodo_net::Priority;

use super::OutputStreams;
use super::format::{Base, Style};
use super::getopt::Flag;
use super::printf::Notation;
use crate::limit;
use crate::local_time::Clock;

/// Maximum number of digits of a double.
const DIGITS_MAX: i64 = 18;

/// The text of `-V`, with the protocol version of this implementation.
const VERSION: &str = concat!("Fodo ", env!("CARGO_PKG_VERSION"), ", CA Protocol version 4.13");

/// Handles help, version and invalid flags, which are the same for all tools, and returns the exit code to end with.
/// For any other flag it returns the letter and value.
pub fn handle_common<'a>(
    flag: &'a Flag,
    tool: &str,
    help: &str,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Result<(char, &'a str), u8>> {
    match flag {
        Flag::Set('h', _) => outlet.err.write_all(help.as_bytes()).map(|()| Err(0)),
        Flag::Set('V', _) => writeln!(outlet.out, "\n{VERSION}").map(|()| Err(0)),
        Flag::Set(letter, value) => Ok(Ok((*letter, value))),
        Flag::ValueMissing(letter) => {
            writeln!(outlet.err, "Option '-{letter}' requires an argument. ('{tool} -h' for help.)").map(|()| Err(1))
        }
        Flag::Unknown(letter) => {
            writeln!(outlet.err, "Unrecognized option: '-{letter}'. ('{tool} -h' for help.)").map(|()| Err(1))
        }
    }
}

/// The options set by flags common to the tools.
pub struct CommonOptions {
    /// The name of the tool, for messages.
    pub tool: &'static str,
    /// The output format of values.
    pub style: Style,
    /// The timeout in seconds; 0 means none.
    timeout_s: f64,
    /// The priority of the circuits.
    pub priority: Priority,
    /// Whether `-0` with a valid letter was given.
    pub integer_base_given: bool,
}

impl CommonOptions {
    /// The options without flags, with the timeout of `EPICS_CLI_TIMEOUT`.
    pub fn new(tool: &'static str, clock: &Clock, err: &mut dyn Write) -> io::Result<CommonOptions> {
        let mut timeout_s = 1.0;
        if let Ok(text) = std::env::var("EPICS_CLI_TIMEOUT") {
            match parse_f64(&text) {
                Some(number) => timeout_s = number,
                None => writeln!(
                    err,
                    "'{text}' is not a valid timeout value (from 'EPICS_CLI_TIMEOUT' in the environment) - ignored. \
                     (use '-h' for help.)"
                )?,
            }
        }
        Ok(CommonOptions { tool, style: Style::new(clock.clone()), timeout_s, priority: 0, integer_base_given: false })
    }

    /// The timeout.
    pub fn timeout(&self) -> Duration {
        if self.timeout_s <= 0.0 {
            return limit::FOREVER;
        }
        Duration::try_from_secs_f64(self.timeout_s).map_or(limit::FOREVER, |timeout| timeout.min(limit::FOREVER))
    }

    /// Applies a common flag; reports an invalid value.
    pub fn take(&mut self, letter: char, value: &str, err: &mut dyn Write) -> io::Result<()> {
        let tool = self.tool;
        match letter {
            'n' => self.style.enums_as_numbers = true,
            'S' => self.style.chars_as_text = true,
            'F' => self.style.separator = value.bytes().next().map_or('\0', char::from),
            'w' => match parse_f64(value) {
                Some(number) => self.timeout_s = number,
                None => writeln!(
                    err,
                    "'{value}' is not a valid timeout value - ignored, using '{:.1}'. ('{tool} -h' for help.)",
                    self.timeout_s
                )?,
            },
            'p' => match leading_integer(value) {
                Some(number) => self.priority = number.clamp(0, 99) as Priority,
                None => writeln!(err, "'{value}' is not a valid CA priority - ignored. ('{tool} -h' for help.)")?,
            },
            '#' => match leading_integer(value) {
                Some(number) => self.style.count_requested = u32::try_from(number).unwrap_or(u32::MAX),
                None => {
                    self.style.count_requested = 0;
                    writeln!(err, "'{value}' is not a valid array element count - ignored. ('{tool} -h' for help.)")?;
                }
            },
            'e' | 'f' | 'g' => self.take_notation(letter, value, err)?,
            'l' | '0' => match Base::of(value) {
                Some(base) if letter == '0' => {
                    self.style.integer_base = base;
                    self.integer_base_given = true;
                }
                Some(base) => self.style.float_base = base,
                None => writeln!(err, "Invalid argument '{value}' for option '-{letter}' - ignored.")?,
            },
            _ => {}
        }
        Ok(())
    }

    fn take_notation(&mut self, letter: char, value: &str, err: &mut dyn Write) -> io::Result<()> {
        let Some(digits) = leading_integer(value) else {
            return writeln!(err, "Invalid precision argument '{value}' for option '-{letter}' - ignored.");
        };
        match usize::try_from(digits) {
            Ok(count) if digits <= DIGITS_MAX => {
                self.style.notation = match letter {
                    'e' => Notation::Exponent(count),
                    'f' => Notation::Fixed(count),
                    _ => Notation::General(count),
                };
                Ok(())
            }
            _ => writeln!(err, "Precision {digits} for option '-{letter}' out of range - ignored."),
        }
    }
}

/// `scanf("%d")`: the integer at the start of a text.
pub fn leading_integer(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number: i64 = digits.get(..end)?.parse().ok()?;
    Some(if text.starts_with('-') { -number } else { number })
}

/// Parses the whole text as a number; `None` if it is empty.
fn parse_f64(text: &str) -> Option<f64> {
    if text.trim().is_empty() {
        return None;
    }
    fodo_data::parse_f64(&text.into()).ok()
}

/// `strtod`: the number at the start of a text.
pub fn leading_f64(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let mut end = text.len().min(64);
    while end > 0 {
        if let Some(number) = text.get(..end).and_then(parse_f64) {
            return Some(number);
        }
        end -= 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_leniently_like_c() {
        assert_eq!(leading_integer("10abc"), Some(10));
        assert_eq!(leading_integer(" -3"), Some(-3));
        assert_eq!(leading_integer("x"), None);
        assert_eq!(leading_f64("1.5volts"), Some(1.5));
        assert_eq!(leading_f64("1e"), Some(1.0));
        assert_eq!(leading_f64("Off"), None);
    }

    #[test]
    fn a_wait_time_of_zero_means_forever() {
        let mut common = CommonOptions::new("caget", &Clock::utc(), &mut io::sink()).unwrap();

        common.take('w', "0", &mut io::sink()).unwrap();

        assert_eq!(common.timeout(), limit::FOREVER);
    }
}
