//! Code shared by the client commands: flags, the deadline and requests.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fodo_net::{
    Channel, ClientConfig, ConfigError, Context, Detail, Error, ErrorKind, Kind, Meta, Operation, Output, Protocol,
    PvRequest, Reading, Request, Scalar, Value,
};

use crate::clu_pvs::CluNames;
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

/// The flag for names of CLUs.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CluFileFlag {
    /// File with the CLUs of names with clu://; default: FODO_CLU_FILE
    #[arg(long = "clu", value_name = "FILE")]
    pub clu_file: Option<PathBuf>,
}

/// The flag for the protocol of names.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct ProtocolFlag {
    /// Protocol of names without ca:// or pva://; default: FODO_PROTOCOL
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<NameProtocol>,
}

impl ProtocolFlag {
    /// The configuration of the environment variables, in which the flag, if given, overrides FODO_PROTOCOL.
    pub fn config_from_env(self) -> Result<ClientConfig, ConfigError> {
        let mut config = ClientConfig::from_env()?;
        match self.protocol {
            Some(NameProtocol::Ca) => config.default_protocol = Protocol::Ca,
            Some(NameProtocol::Pva) => config.default_protocol = Protocol::Pva,
            None => {}
        }
        Ok(config)
    }
}

/// The flag for a pvRequest.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RequestFlag {
    /// Fields and options that pvAccess requests, such as `field(value,alarm)` or `record[process=true]`
    #[arg(short, long, value_name = "PVREQUEST", value_parser = PvRequest::parse)]
    #[arg(conflicts_with_all = ["count", "kind"])]
    pub request: Option<PvRequest>,
}

/// The protocols that the flag selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[expect(missing_docs, reason = "the names are self-explanatory, and clap would show docs in the help")]
pub enum NameProtocol {
    Ca,
    Pva,
}

/// The section of `--help` on names.
pub const PV_NAMES: &str = "\
Names:
  pva://x:motor is a name of pvAccess, ca://x:motor one of Channel Access. --protocol or the
  variable FODO_PROTOCOL selects the protocol of names without either; by default it is Channel
  Access. With get, put, monitor and info, clu://NAME/OBJECT/FEATURE is a value of a Grenton CLU, and
  clu://NAME/VARIABLE a user variable; --clu or FODO_CLU_FILE names the file with the CLUs.";

/// The section of `--help` on pvRequests.
pub const PV_REQUESTS: &str = "\
pvRequests:
  field(..) selects fields, record[..] sets options, and both may be combined:
  'field(value,timeStamp)record[process=true]'. Records have the options process (true, false or
  passive), block (a put ends with the processing) and DBE (VALUE, ALARM or ARCHIVE updates); all
  servers have queueSize. Without field(..) all fields are requested. The flag is for pvAccess only.";

/// A context and the protocol of names without a scheme.
pub struct ClientContext {
    /// The context.
    pub context: Context,
    default_protocol: Protocol,
    /// The PVs of CLUs, if there are names of them.
    pub clus: Option<CluNames>,
}

impl ClientContext {
    /// A context of the environment variables, in which the flag, if given, overrides FODO_PROTOCOL.
    pub fn from_env(flag: ProtocolFlag) -> Result<ClientContext, ConfigError> {
        let config = flag.config_from_env()?;
        let default_protocol = config.default_protocol;
        Ok(ClientContext { context: Context::new(config), default_protocol, clus: None })
    }

    /// The protocol of a name as the user typed it.
    pub fn protocol(&self, pv: &str) -> Protocol {
        if CluNames::is_name(pv) {
            // The server of this process provides it over pvAccess.
            return Protocol::Pva;
        }
        Protocol::split(pv).0.unwrap_or(self.default_protocol)
    }
}

impl ClientContext {
    /// The channel of a name, also of a value of a CLU.
    pub fn channel(&self, pv: &str) -> Result<Channel, Error> {
        let of_clu = self.clus.as_ref().and_then(|clus| clus.channel(pv));
        of_clu.unwrap_or_else(|| self.context.channel(pv))
    }

    /// The address of the CLU of a name.
    pub fn clu_address(&self, pv: &str) -> Option<SocketAddr> {
        self.clus.as_ref()?.address(pv)
    }
}

/// Accepts a name for commands that support only Channel Access, and takes `ca://` off it.
pub fn channel_access_name(text: &str) -> Result<String, String> {
    match Protocol::split(text) {
        (None | Some(Protocol::Ca), name) => Ok(name.to_owned()),
        (Some(_), name) => {
            Err(format!("this command supports only Channel Access; \"{name}\" or \"ca://{name}\" is a name of it"))
        }
    }
}

/// Accepts a name for commands that only pvAccess has, and adds `pva://` to a name without a scheme.
pub fn pva_name(text: &str) -> Result<String, String> {
    match Protocol::split(text) {
        (None | Some(Protocol::Pva), name) => Ok(format!("{}://{name}", Protocol::Pva)),
        (Some(_), name) => Err(format!("this command supports only pvAccess; \"pva://{name}\" is a name of it")),
    }
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
    /// Print all elements of an array and all rows of a table, also at a terminal
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
        Kind::Bool => "bool",
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

    /// Whether a number of elements or another type is requested, so that only the value is meant.
    pub fn selects_elements(&self) -> bool {
        self.count.is_some() || self.kind.is_some()
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

/// The number of states that Channel Access transmits the labels of.
pub const CA_LABELS_MAX: usize = 16;

/// Whether the value is a state whose label was not transmitted, because Channel Access transmits only the first ones.
pub fn lacks_label(value: &Value, meta: Option<&Meta>) -> bool {
    let Value::Scalar(Scalar::Enum(index)) = value else { return false };
    usize::from(*index) >= CA_LABELS_MAX && meta.is_some_and(|meta| meta.labels.len() == CA_LABELS_MAX)
}

/// A reading whose state has no label, because Channel Access transmits only the first ones, with the label as its value. This
/// costs a round trip for such a state.
pub fn with_label(reading: Reading, flags: &ValueFlags, channel: &Channel, deadline: &Deadline) -> Reading {
    if flags.numeric || !lacks_label(&reading.value, reading.meta.as_deref()) {
        return reading;
    }
    let request = Request { kind: Some(Kind::Text), ..flags.request() };
    match deadline.wait(channel.start_get(request)) {
        Ok(text) => Reading { meta: reading.meta, ..text },
        Err(_) => reading,
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
            ErrorKind::NotFound { protocol, .. } => Error::new(error.pv(), ErrorKind::NotFound { protocol, after }),
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
    fn a_command_for_channel_access_rejects_names_of_pvaccess() {
        assert_eq!(channel_access_name("x:y"), Ok("x:y".to_owned()));
        assert_eq!(channel_access_name("ca://x:y"), Ok("x:y".to_owned()));
        assert!(channel_access_name("pva://x:y").unwrap_err().contains("supports only Channel Access"));
    }

    #[test]
    fn a_command_for_pvaccess_adds_the_scheme_and_rejects_names_of_channel_access() {
        assert_eq!(pva_name("x:y"), Ok("pva://x:y".to_owned()));
        assert_eq!(pva_name("pva://x:y"), Ok("pva://x:y".to_owned()));
        assert!(pva_name("ca://x:y").unwrap_err().contains("supports only pvAccess"));
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
        assert!(flags.selects_elements());
        let look = flags.look();
        assert_eq!((look.with_meta, look.numeric, look.text, look.full), (true, false, true, false));
        let bare = ValueFlags { count: None, kind: None, meta: false, numeric: true, string: false, full: true };
        assert_eq!(bare.request(), Request { kind: None, detail: Detail::Time, count: 0 });
        assert!(!bare.selects_elements());
        let look = bare.look();
        assert_eq!((look.with_meta, look.numeric, look.text, look.full), (false, true, false, true));
    }

    #[test]
    fn a_timeout_error_contains_the_total_waiting_time() {
        let deadline = Deadline::after(Duration::from_secs(5));
        let server = "10.0.0.1:5064".parse().unwrap();

        let missing =
            deadline.whole(Error::new("x", ErrorKind::NotFound { protocol: Protocol::Ca, after: Duration::ZERO }));
        let silent = deadline.whole(Error::new("x", ErrorKind::NoReply { server, after: Duration::ZERO }));

        assert_eq!(
            missing,
            Error::new("x", ErrorKind::NotFound { protocol: Protocol::Ca, after: Duration::from_secs(5) })
        );
        assert_eq!(silent, Error::new("x", ErrorKind::NoReply { server, after: Duration::from_secs(5) }));
        assert!(deadline.left() <= Duration::from_secs(5) && deadline.left() > Duration::from_secs(1));
    }
}
