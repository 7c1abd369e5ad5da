//! Device support: what DTYP selects, and what it accepts in INP or OUT.

use crate::event::Stream;
use crate::link::Link;
use crate::program::ProgramDirection;
use crate::record::contract::{Record, RecordType};

/// DTYP values from this number on are names of device supports that Fodo does not implement: the record is inert.
pub(crate) const INERT: u16 = 1 << 15;

/// The device supports of EPICS Base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceSupport {
    /// Transfers the value through a link, unconverted.
    Soft,
    /// Transfers the raw value through a link; the record converts it.
    Raw,
    /// Like Soft, but the record completes only when everything that the link started has completed.
    Async,
    /// The record's time stamp, as seconds or as text.
    Timestamp,
    /// The current time.
    GeneralTime,
    /// A named flag that all records share.
    State,
    /// An environment variable.
    Environment,
    /// A line on standard output, standard error or in the log.
    Stdio,
    /// The program that embeds the database sets the value of an input, and takes the value of an output.
    Program,
    /// A waveform whose value clients put and the program takes.
    ProgramOutput,
}

/// The choices of DTYP that only a database with a program has. They are the last ones of each type.
const OF_PROGRAM: &str = "Program";

impl DeviceSupport {
    /// The device support that DTYP selects. A record type without device supports is Soft.
    pub(crate) fn of(record: &mut dyn Record) -> DeviceSupport {
        let number = record.common().device;
        if number == 0 {
            // The first choice of every type is Soft Channel; a test verifies this.
            return DeviceSupport::Soft;
        }
        match record.record_type().devices.get(usize::from(number)) {
            Some(&"Raw Soft Channel") => DeviceSupport::Raw,
            Some(&"Async Soft Channel") => DeviceSupport::Async,
            Some(&"Soft Timestamp") => DeviceSupport::Timestamp,
            Some(&"General Time") => DeviceSupport::GeneralTime,
            Some(&"Db State") => DeviceSupport::State,
            Some(&"getenv") => DeviceSupport::Environment,
            Some(&"stdio") => DeviceSupport::Stdio,
            Some(&"Program") => DeviceSupport::Program,
            Some(&"Program Output") => DeviceSupport::ProgramOutput,
            _ => DeviceSupport::Soft,
        }
    }

    /// The direction of a record of this type, if the program sets or takes its value.
    pub(crate) fn program_direction(self, record_type: &RecordType) -> Option<ProgramDirection> {
        match self {
            DeviceSupport::ProgramOutput => Some(ProgramDirection::Output),
            DeviceSupport::Program if record_type.has_output() => Some(ProgramDirection::Output),
            DeviceSupport::Program => Some(ProgramDirection::Input),
            _ => None,
        }
    }

    /// Whether DTYP is a device support that Fodo does not implement, so that the record is inert.
    pub(crate) fn is_inert(record: &mut dyn Record) -> bool {
        record.common().device >= INERT
    }

    /// Checks whether this device support accepts what INP or OUT contains; returns why not.
    pub(crate) fn check_address(self, record_type: &str, link: &Link) -> Result<(), &'static str> {
        let address = link.address().to_str().to_ascii_uppercase();
        let is_address = matches!(link.text().as_bytes(), [b'@' | b'#', ..]);
        match (self, record_type) {
            (DeviceSupport::Soft | DeviceSupport::Raw | DeviceSupport::Async, _) if is_address => {
                Err("this DTYP requires a link or a constant, not an address")
            }
            (DeviceSupport::Soft | DeviceSupport::Raw | DeviceSupport::Async, _) => Ok(()),
            (DeviceSupport::Timestamp, _) if is_address || link.text().is_empty() => Ok(()),
            (DeviceSupport::Timestamp, _) => Err("Soft Timestamp takes a format, as in \"@%F %T\""),
            (DeviceSupport::GeneralTime, "ai") if address == "TIME" => Ok(()),
            (DeviceSupport::GeneralTime, "longin") if address == "GETERRCNT" => Ok(()),
            (DeviceSupport::GeneralTime, "bo") if address == "RSTERRCNT" => Ok(()),
            (DeviceSupport::GeneralTime, "stringin") if matches!(&*address, "BESTTCP" | "TOPTCP" | "BESTTEP") => Ok(()),
            (DeviceSupport::GeneralTime, "ai") => Err("General Time takes \"@TIME\""),
            (DeviceSupport::GeneralTime, "longin") => Err("General Time takes \"@GETERRCNT\""),
            (DeviceSupport::GeneralTime, "bo") => Err("General Time takes \"@RSTERRCNT\""),
            (DeviceSupport::GeneralTime, _) => Err("General Time takes \"@BESTTCP\", \"@TOPTCP\" or \"@BESTTEP\""),
            (DeviceSupport::State, _) if address.is_empty() => {
                Err("Db State takes the name of a state, as in \"@name\"")
            }
            (DeviceSupport::Environment, _) if address.is_empty() => {
                Err("getenv takes the name of a variable, as in \"@HOME\"")
            }
            (DeviceSupport::State | DeviceSupport::Environment, _) => Ok(()),
            (DeviceSupport::Stdio, _) if stream(link).is_some() => Ok(()),
            // pythonSoftIOC writes an address, which has no meaning here.
            (DeviceSupport::Program | DeviceSupport::ProgramOutput, _) if is_address || link.text().is_empty() => {
                Ok(())
            }
            (DeviceSupport::Program | DeviceSupport::ProgramOutput, _) => {
                Err("this DTYP takes no link: the program sets or takes the value")
            }
            (DeviceSupport::Stdio, _) => Err("stdio takes \"@stdout\", \"@stderr\" or \"@errlog\""),
        }
    }
}

/// The stream that stdio writes to.
pub(crate) fn stream(link: &Link) -> Option<Stream> {
    match link.address().as_bytes() {
        b"stdout" => Some(Stream::Out),
        b"stderr" => Some(Stream::Error),
        b"errlog" => Some(Stream::Log),
        _ => None,
    }
}

/// The choices of DTYP that a database has. `has_program`: whether a program can set and take values.
pub(crate) fn choices<'a>(devices: &'a [&'static str], has_program: bool) -> &'a [&'static str] {
    let n_others = devices.iter().take_while(|device| !device.starts_with(OF_PROGRAM)).count();
    if has_program { devices } else { devices.get(..n_others).unwrap_or_default() }
}
