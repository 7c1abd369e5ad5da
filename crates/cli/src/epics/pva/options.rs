//! Flags common to several tools.

use std::io;
use std::time::Duration;

use fodo_net::PvRequest;

use super::pvdata::OutputMode;
use crate::epics::OutputStreams;
use crate::epics::getopt::Flag;
use crate::limit;

/// The text of `-V`, with the protocol version of this implementation.
pub const VERSION: &str = concat!("Fodo ", env!("CARGO_PKG_VERSION"), ", pvAccess protocol version 2");

/// The values of the flags that the tools of pvAccessCPP share.
pub struct PvOptions {
    pub tool: &'static str,
    pub timeout: Duration,
    pub request: String,
    pub provider: String,
    pub mode: OutputMode,
    pub verbosity: u32,
    pub is_quiet: bool,
}

impl PvOptions {
    /// The values without flags. `timeout_s`: in seconds.
    pub fn new(tool: &'static str, timeout_s: u64) -> PvOptions {
        PvOptions {
            tool,
            timeout: Duration::from_secs(timeout_s),
            request: String::new(),
            provider: "pva".to_owned(),
            mode: OutputMode::Nt,
            verbosity: 0,
            is_quiet: false,
        }
    }

    /// Applies a flag. The inner `Err` is the exit code to end with immediately; `Some`: a flag of this tool, or
    /// one without effect.
    pub fn take<'f>(
        &mut self,
        flag: &'f Flag,
        help: &str,
        outlet: &mut OutputStreams<'_>,
    ) -> io::Result<Result<Option<(char, &'f str)>, u8>> {
        let tool = self.tool;
        match flag {
            Flag::Unknown(letter) => {
                writeln!(outlet.err, "Unrecognized option: '-{letter}'. ('{tool} -h' for help.)")?;
                return Ok(Err(1));
            }
            Flag::ValueMissing(letter) => {
                writeln!(outlet.err, "Option '-{letter}' requires an argument. ('{tool} -h' for help.)")?;
                return Ok(Err(1));
            }
            Flag::Set('h', _) => {
                outlet.err.write_all(help.as_bytes())?;
                return Ok(Err(0));
            }
            Flag::Set('V', _) => {
                writeln!(outlet.out, "{VERSION}")?;
                return Ok(Err(0));
            }
            Flag::Set('f', _) => {
                writeln!(outlet.err, "Unsupported option -f")?;
                return Ok(Err(1));
            }
            Flag::Set('v', _) => self.verbosity += 1,
            Flag::Set('r', request) => self.request.clone_from(request),
            Flag::Set('p', provider) => self.provider.clone_from(provider),
            Flag::Set('q', _) => self.is_quiet = true,
            Flag::Set('w', text) => match seconds(text) {
                Some(timeout) => self.timeout = timeout,
                None => writeln!(
                    outlet.err,
                    "'{text}' is not a valid timeout value - ignored. ('{} -h' for help.)",
                    // As pvinfo prints it.
                    if tool == "pvinfo" { "pvget" } else { tool }
                )?,
            },
            Flag::Set('M', mode) => {
                self.mode = match mode.as_str() {
                    "raw" => OutputMode::Raw,
                    "nt" => OutputMode::Nt,
                    "json" => OutputMode::Json,
                    _ => {
                        writeln!(outlet.err, "Unknown output mode '{mode}'")?;
                        OutputMode::Raw
                    }
                }
            }
            Flag::Set(letter, value) => return Ok(Ok(Some((*letter, value)))),
        }
        Ok(Ok(None))
    }

    /// Selects raw mode if `-v` was given without `-M json`.
    pub fn imply_raw(&mut self) {
        if self.verbosity > 0 && self.mode == OutputMode::Nt {
            self.mode = OutputMode::Raw;
        }
    }

    /// Checks the provider and parses the pvRequest; reports what is wrong.
    pub fn pv_request(&self, outlet: &mut OutputStreams<'_>) -> io::Result<Option<PvRequest>> {
        match self.provider.as_str() {
            "pva" => {}
            "ca" => {
                writeln!(outlet.err, "Error: {} supports only pvAccess; use caget and its companions", self.tool)?;
                return Ok(None);
            }
            other => {
                writeln!(outlet.err, "Error: {other}")?;
                return Ok(None);
            }
        }
        match PvRequest::parse(&self.request) {
            Ok(request) => Ok(Some(request)),
            Err(error) => {
                writeln!(outlet.err, "failed to parse request string: {error}")?;
                Ok(None)
            }
        }
    }
}

/// A timeout in seconds; 0 or less means none. `None` if it is not a number.
pub fn seconds(text: &str) -> Option<Duration> {
    let number: f64 = text.trim().parse().ok()?;
    if number <= 0.0 {
        return Some(limit::FOREVER);
    }
    Some(Duration::try_from_secs_f64(number).map_or(limit::FOREVER, |timeout| timeout.min(limit::FOREVER)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_of_0_or_less_or_too_long_means_forever() {
        assert_eq!([seconds("1.5"), seconds(" 2 ")], [1500, 2000].map(|ms| Some(Duration::from_millis(ms))));
        assert_eq!(["0", "-1", "1e30", "inf"].map(seconds), [Some(limit::FOREVER); 4]);
        assert_eq!([seconds("x"), seconds("")], [None, None]);
    }

    fn take(options: &mut PvOptions, flag: &Flag) -> (Result<bool, u8>, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let taken = options.take(flag, "the help", &mut OutputStreams { out: &mut out, err: &mut err }).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (taken.map(|other| other.is_some()), text(out), text(err))
    }

    #[test]
    fn flags_set_options_print_or_are_left_to_the_tool() {
        let mut options = PvOptions::new("pvinfo", 3);
        let set = |letter, value: &str| Flag::Set(letter, value.to_owned());

        for flag in [
            set('v', ""),
            set('v', ""),
            set('r', "value"),
            set('p', "x"),
            set('q', ""),
            set('M', "json"),
            set('w', "9"),
        ] {
            assert_eq!(take(&mut options, &flag), (Ok(false), String::new(), String::new()), "{flag:?}");
        }
        assert_eq!((options.verbosity, options.request.as_str(), options.provider.as_str()), (2, "value", "x"));
        assert_eq!((options.is_quiet, options.mode, options.timeout), (true, OutputMode::Json, Duration::from_secs(9)));
        options.imply_raw();
        assert_eq!(options.mode, OutputMode::Json);
        assert_eq!(take(&mut options, &set('M', "nt")).0, Ok(false));
        options.imply_raw();
        assert_eq!(options.mode, OutputMode::Raw);
        assert_eq!(take(&mut options, &set('M', "x")).2, "Unknown output mode 'x'\n");
        assert_eq!(take(&mut options, &set('i', "")).0, Ok(true));
        assert_eq!(take(&mut options, &set('h', "")), (Err(0), String::new(), "the help".to_owned()));
        assert_eq!(take(&mut options, &set('V', "")), (Err(0), format!("{VERSION}\n"), String::new()));
        assert_eq!(take(&mut options, &set('f', "a")).0, Err(1));
        assert!(take(&mut options, &set('w', "x")).2.contains("('pvget -h' for help.)"));
        assert_eq!(options.timeout, Duration::from_secs(9));
    }
}
