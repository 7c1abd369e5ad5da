//! Device support: what DTYP selects, and how the record types that share it read and write values.

use fodo_data::{Kind, Status, Text, TimeStamp, Value};

use crate::Stream;
use crate::link::Link;
use crate::record::Record;
use crate::step::{Broken, Element, Step};
use crate::strftime::strftime;

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

/// The result of reading an input.
#[derive(Debug, PartialEq)]
pub(crate) enum Fetched<T> {
    /// INP is empty or constant: the value does not change.
    Nothing,
    Value(T),
    /// Reading failed; the alarm is raised.
    Failed,
    /// The record that INP processes has not completed; this record is called again then.
    Waiting,
}

/// The result of reading the input of a record with a raw value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// RVAL was read and has to be converted to VAL.
    Raw,
    /// VAL was read.
    Value,
    /// Reading failed; the alarm is raised.
    Failed,
    /// The record that INP processes has not completed; this record is called again then.
    Waiting,
}

impl Read {
    /// The result for a simulated value: RVAL if SIMM is RAW, else VAL.
    pub(crate) fn simulated(is_raw: bool) -> Read {
        if is_raw { Read::Raw } else { Read::Value }
    }
}

/// A record with INP.
pub(crate) trait Input: Record {
    fn input(&self) -> &Link;
}

/// Reads INP for Soft Channel and Async Soft Channel, and takes the time stamp of the source if TSE requests that.
pub(crate) fn fetch<R: Input, T: Element>(step: &mut Step<'_, '_, R>) -> Fetched<T> {
    let device = Device::of(step.lock());
    let is_async = device == Device::Async;
    if let Some(value) = told(step, device, T::KIND) {
        let told = value.to_kind(T::KIND, None).ok().and_then(|value| value.first()).and_then(T::of);
        return told.map_or(Fetched::Failed, Fetched::Value);
    }
    let first = |value: Value| value.first().and_then(T::of).ok_or(Broken);
    let fetched = match is_async {
        true if !step.is_completion && step.notify(R::input) => return Fetched::Waiting,
        true => step.fetch_only(R::input, T::KIND).and_then(|value| value.map(first).transpose()),
        false => step.fetch("INP", R::input),
    };
    match fetched {
        Ok(None) => Fetched::Nothing,
        Ok(Some(value)) => {
            step.stamp_from(R::input);
            Fetched::Value(value)
        }
        Err(Broken) => {
            if is_async {
                // As in Base, Soft Channel raises LINK, and Async Soft Channel READ.
                step.lock().common().raise(Status::READ, 3);
            }
            Fetched::Failed
        }
    }
}

/// The value from a device support that does not read through a link.
fn told<R: Input>(step: &mut Step<'_, '_, R>, device: Device, kind: Kind) -> Option<Value> {
    let address = step.lock().input().address();
    match device {
        Device::Timestamp => {
            step.stamp(None);
            let time = step.lock().common().time;
            Some(match kind {
                Kind::Text => strftime(&address.to_str(), time, &step.site().zone(time)).as_str().into(),
                _ => seconds(time).into(),
            })
        }
        Device::GeneralTime => Some(match kind {
            // The only time provider, as in an IOC of EPICS Base without time hardware.
            Kind::Text if address.to_str().eq_ignore_ascii_case("TOPTCP") => "OS Clock".into(),
            Kind::Text => {
                // No provider has been asked for the time yet.
                step.lock().common().raise(Status::READ, 2);
                "No working providers".into()
            }
            Kind::F64 => seconds(step.now()).into(),
            // The providers have no errors to count.
            _ => 0_i32.into(),
        }),
        Device::State => Some(u16::from(step.state(&address)).into()),
        Device::Environment => Some(step.site().variable(&address.to_str()).unwrap_or(Text::EMPTY).into()),
        Device::Soft | Device::Raw | Device::Async | Device::Stdio => None,
    }
}

/// Raises the alarm of an environment variable that is not set, after VAL has become empty.
pub(crate) fn check_environment<R: Input>(step: &mut Step<'_, '_, R>) {
    let device = Device::of(step.lock());
    let address = step.lock().input().address();
    if device == Device::Environment && step.site().variable(&address.to_str()).is_none() {
        let record = step.lock();
        let common = record.common();
        let severity = common.undefined_severity;
        common.undefined = 1;
        common.raise_saying(Status::UDF, severity, "No such ENV".into());
    }
}

/// Seconds since the EPICS epoch.
fn seconds(time: TimeStamp) -> f64 {
    f64::from(time.epics_seconds()) + f64::from(time.nanos) * 1e-9
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

#[cfg(test)]
mod tests {
    use crate::record::TYPES;

    #[test]
    fn the_first_device_of_every_type_is_soft_channel() {
        for record_type in TYPES {
            assert!(matches!(record_type.devices, [] | ["Soft Channel", ..]), "{record_type:?}");
        }
    }
}
