//! Code shared by the client commands: flags, the deadline and requests.

use std::time::{Duration, Instant};

use fodo_net::{Detail, Error, ErrorKind, Kind, Meta, Operation, Output, Request};

use crate::limit;
use crate::show::DisplayOptions;

/// Flags common to get, put, monitor and info.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientFlags {
    /// Timeout in seconds for searches and responses, for all PVs together
    #[arg(short = 'w', long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub timeout: Duration,
    /// Print one JSON object per line (keys: see `fodo get --help`)
    #[arg(long)]
    pub json: bool,
}

/// Flags for values.
#[derive(Clone, Debug, clap::Args)]
pub struct ValueFlags {
    /// Number of array elements to request; default: all
    #[arg(short = '#', long, value_name = "N")]
    pub count: Option<u32>,
    /// Request a type other than the PV's native type
    #[arg(short = 'd', long = "type", value_name = "TYPE")]
    pub kind: Option<RequestedType>,
    /// Print units, limits and labels as well
    #[arg(short = 'm', long)]
    pub meta: bool,
    /// Print enums as numbers
    #[arg(short = 'n', long)]
    pub numeric: bool,
    /// Print arrays of char as text; always done for names that end with $
    #[arg(short = 'S', long)]
    pub string: bool,
    /// Print all elements of an array, also at a terminal
    #[arg(long)]
    pub full: bool,
}

/// The types that can be requested from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[expect(missing_docs, reason = "the names are self-explanatory, and clap would show docs in the help")]
pub enum RequestedType {
    String,
    Short,
    Float,
    Enum,
    Char,
    Long,
    Double,
}

impl RequestedType {
    /// The kind of its elements.
    pub const fn kind(self) -> Kind {
        match self {
            RequestedType::String => Kind::Text,
            RequestedType::Short => Kind::I16,
            RequestedType::Float => Kind::F32,
            RequestedType::Enum => Kind::Enum,
            RequestedType::Char => Kind::U8,
            RequestedType::Long => Kind::I32,
            RequestedType::Double => Kind::F64,
        }
    }
}

/// The name of a kind; its Channel Access name if it has one.
pub const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "string",
        Kind::I16 => "short",
        Kind::F32 => "float",
        Kind::Enum => "enum",
        Kind::U8 => "char",
        Kind::I32 => "long",
        Kind::F64 => "double",
        Kind::I8 => "int8",
        Kind::U16 => "uint16",
        Kind::U32 => "uint32",
        Kind::I64 => "int64",
        Kind::U64 => "uint64",
    }
}

impl ValueFlags {
    /// The request for value, alarm and time.
    pub fn request(&self) -> Request {
        Request { kind: self.kind.map(RequestedType::kind), detail: Detail::Time, count: self.count.unwrap_or(0) }
    }

    /// The display options for values.
    pub fn look(&self) -> DisplayOptions {
        DisplayOptions {
            numeric: self.numeric,
            text: self.string,
            with_meta: self.meta,
            full: self.full,
            ..DisplayOptions::of_stdout()
        }
    }
}

/// The request for metadata. It is sent in addition to the request for the value, because no Channel Access type
/// contains both a time stamp and units.
pub const META: Request = Request { kind: None, detail: Detail::Control, count: 1 };

/// The result of a [`META`] request; `None` if it failed, because the value is more important.
pub fn meta_of(answer: Result<fodo_net::Reading, Error>) -> Option<std::sync::Arc<Meta>> {
    answer.ok().and_then(|reading| reading.meta)
}

/// One deadline for operations that have already started.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    timeout: Duration,
    start: Instant,
}

impl Deadline {
    /// `timeout` from now.
    pub fn after(timeout: Duration) -> Deadline {
        Deadline { timeout, start: Instant::now() }
    }

    /// The remaining time.
    pub fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.start.elapsed())
    }

    /// Waits for one operation; a timeout error contains the whole timeout.
    pub fn wait<T: Output>(&self, operation: Operation<T>) -> Result<T, Error> {
        operation.wait_timeout(self.left()).map_err(|error| self.whole(error))
    }

    fn whole(&self, error: Error) -> Error {
        let after = self.timeout;
        match *error.kind() {
            ErrorKind::NotFound { .. } => Error::new(error.pv(), ErrorKind::NotFound { after }),
            ErrorKind::NoReply { server, .. } => Error::new(error.pv(), ErrorKind::NoReply { server, after }),
            _ => error,
        }
    }
}

/// Parses a number of seconds; 0 means no timeout.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| format!("\"{text}\" is not a number of seconds"))?;
    match Duration::try_from_secs_f64(number) {
        Ok(Duration::ZERO) => Ok(limit::FOREVER),
        Ok(timeout) => Ok(timeout.min(limit::FOREVER)),
        Err(_) if number == f64::INFINITY => Ok(limit::FOREVER),
        Err(_) => Err(format!("\"{text}\" is not a valid timeout")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_parsed_as_seconds_and_zero_means_forever() {
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2500)));
        assert_eq!(seconds("0"), Ok(limit::FOREVER));
        assert_eq!(seconds("inf"), Ok(limit::FOREVER));
        assert!(seconds("-1").is_err());
        assert!(seconds("soon").is_err());
    }

    #[test]
    fn requested_types_are_parsed_and_shown_by_the_same_name() {
        use clap::ValueEnum as _;

        for requested in RequestedType::value_variants() {
            let name = requested.to_possible_value().unwrap();
            assert_eq!(kind_name(requested.kind()), name.get_name());
        }
        let others = [Kind::I8, Kind::U16, Kind::U32, Kind::I64, Kind::U64].map(kind_name);
        assert_eq!(others, ["int8", "uint16", "uint32", "int64", "uint64"]);
    }

    #[test]
    fn value_flags_set_the_request_and_the_display_options() {
        let flags = ValueFlags {
            count: Some(3),
            kind: Some(RequestedType::Float),
            meta: true,
            numeric: false,
            string: true,
            full: false,
        };

        assert_eq!(flags.request(), Request { kind: Some(Kind::F32), detail: Detail::Time, count: 3 });
        let look = flags.look();
        assert_eq!((look.with_meta, look.numeric, look.text, look.full), (true, false, true, false));
        let bare = ValueFlags { count: None, kind: None, meta: false, numeric: true, string: false, full: true };
        assert_eq!(bare.request(), Request { kind: None, detail: Detail::Time, count: 0 });
        let look = bare.look();
        assert_eq!((look.with_meta, look.numeric, look.text, look.full), (false, true, false, true));
    }

    #[test]
    fn a_timeout_error_contains_the_total_waiting_time() {
        let deadline = Deadline::after(Duration::from_secs(5));
        let server = "10.0.0.1:5064".parse().unwrap();

        let missing = deadline.whole(Error::new("x", ErrorKind::NotFound { after: Duration::ZERO }));
        let silent = deadline.whole(Error::new("x", ErrorKind::NoReply { server, after: Duration::ZERO }));

        assert_eq!(missing, Error::new("x", ErrorKind::NotFound { after: Duration::from_secs(5) }));
        assert_eq!(silent, Error::new("x", ErrorKind::NoReply { server, after: Duration::from_secs(5) }));
        assert!(deadline.left() <= Duration::from_secs(5) && deadline.left() > Duration::from_secs(1));
    }
}
