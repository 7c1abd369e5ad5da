//! Device support: what DTYP selects, and what it accepts in INP or OUT.

use crate::event::Stream;
use crate::link::Link;
use crate::record::contract::Record;

/// DTYP values from this number on are names of device supports that Fodo does not implement: the record is inert.
pub(crate) const INERT: u16 = 1 << 15;

/// The device supports of EPICS Base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
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
}

impl Device {
    /// The device support that DTYP selects. A record type without device supports is Soft.
    pub(crate) fn of(record: &mut dyn Record) -> Device {
        let number = record.common().device;
        if number == 0 {
            // The first choice of every type is Soft Channel; a test verifies this.
            return Device::Soft;
        }
        match record.record_type().devices.get(usize::from(number)) {
            Some(&"Raw Soft Channel") => Device::Raw,
            Some(&"Async Soft Channel") => Device::Async,
            Some(&"Soft Timestamp") => Device::Timestamp,
            Some(&"General Time") => Device::GeneralTime,
            Some(&"Db State") => Device::State,
            Some(&"getenv") => Device::Environment,
            Some(&"stdio") => Device::Stdio,
            _ => Device::Soft,
        }
    }

    /// Whether DTYP is a device support that Fodo does not implement, so that the record is inert.
    pub(crate) fn is_inert(record: &mut dyn Record) -> bool {
        record.common().device >= INERT
    }

    /// Checks whether this device support accepts what INP or OUT contains; returns why not.
    pub(crate) fn check(self, record_type: &str, link: &Link) -> Result<(), &'static str> {
        let address = link.address().to_str().to_ascii_uppercase();
        let is_address = matches!(link.text().as_bytes(), [b'@' | b'#', ..]);
        match (self, record_type) {
            (Device::Soft | Device::Raw | Device::Async, _) if is_address => {
                Err("this DTYP requires a link or a constant, not an address")
            }
            (Device::Soft | Device::Raw | Device::Async, _) => Ok(()),
            (Device::Timestamp, _) if is_address || link.text().is_empty() => Ok(()),
            (Device::Timestamp, _) => Err("Soft Timestamp takes a format, as in \"@%F %T\""),
            (Device::GeneralTime, "ai") if address == "TIME" => Ok(()),
            (Device::GeneralTime, "longin") if address == "GETERRCNT" => Ok(()),
            (Device::GeneralTime, "bo") if address == "RSTERRCNT" => Ok(()),
            (Device::GeneralTime, "stringin") if matches!(&*address, "BESTTCP" | "TOPTCP" | "BESTTEP") => Ok(()),
            (Device::GeneralTime, "ai") => Err("General Time takes \"@TIME\""),
            (Device::GeneralTime, "longin") => Err("General Time takes \"@GETERRCNT\""),
            (Device::GeneralTime, "bo") => Err("General Time takes \"@RSTERRCNT\""),
            (Device::GeneralTime, _) => Err("General Time takes \"@BESTTCP\", \"@TOPTCP\" or \"@BESTTEP\""),
            (Device::State, _) if address.is_empty() => Err("Db State takes the name of a state, as in \"@name\""),
            (Device::Environment, _) if address.is_empty() => {
                Err("getenv takes the name of a variable, as in \"@HOME\"")
            }
            (Device::State | Device::Environment, _) => Ok(()),
            (Device::Stdio, _) if stream(link).is_some() => Ok(()),
            (Device::Stdio, _) => Err("stdio takes \"@stdout\", \"@stderr\" or \"@errlog\""),
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
