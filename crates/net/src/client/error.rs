use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_data::{Kind, Text};

use crate::protocol::Protocol;

/// Why an operation on a PV failed.
///
/// [`Error::kind`] says what happened, with the data that a program can act on, [`Error::pv`] to which PV, and
/// [`Error::advice`] what to do. The text of an error contains all three. Errors are equal if they have the same PV and kind.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use fodo_net::{ClientConfig, Context, ErrorKind, Refusal};
///
/// # fn main() -> Result<(), fodo_net::Error> {
/// // No server listens on this port.
/// let context = Context::new(ClientConfig::with_addresses(vec!["127.0.0.1:9".parse().unwrap()]));
/// let channel = context.channel("demo:temperature")?;
/// let error = channel.get_timeout(Duration::from_millis(10)).unwrap_err();
///
/// let advice = error.advice().unwrap();
/// assert!(advice.starts_with("check that its server is running"));
/// let expected = format!("\"demo:temperature\": no server claimed the name within 0.01 s; {advice}");
/// assert_eq!(error.to_string(), expected);
/// assert!(error.is_timeout());
/// match error.kind() {
///     ErrorKind::NotFound { .. } | ErrorKind::NoReply { .. } => println!("{} does not respond", error.pv()),
///     ErrorKind::Refused { refusal: Refusal::ReadAccess, .. } => println!("{} cannot be read", error.pv()),
///     _ => println!("{error}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Error {
    // Boxed, so that the result of an operation stays small.
    inner: Box<Inner>,
}

#[derive(Clone)]
struct Inner {
    pv: Box<str>,
    kind: ErrorKind,
    source: Option<Arc<io::Error>>,
}

/// What made an operation fail. The variants differ in what the caller can do.
///
/// An operation ends with `NotFound`, `NoReply` or `ConnectionClosed` only when its time is up: until then the client
/// searches and connects again. So it does after a refused TCP connection ([`Refusal::Connection`]), and when the
/// system has no descriptor for a socket. All other kinds end it at once.
///
/// A put may have been carried out although it ended with `NoReply` or `Disconnected`; a program that tries again may
/// write twice.
///
/// See the example of [`Error`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No server claimed the name in time. Nothing was sent.
    NotFound {
        /// The protocol of the search.
        protocol: Protocol,
        /// How long the client waited.
        after: Duration,
    },
    /// A server claimed the name, then did not reply in time: to the connection, the request for the channel, or the
    /// operation itself. A put that takes longer than its timeout ends like this, and continues on the server.
    NoReply {
        /// The server that claimed it.
        server: SocketAddr,
        /// How long the client waited.
        after: Duration,
    },
    /// A server claimed the name, but the connection ended before the server confirmed the channel: it was closed, lost, or
    /// ended by this client after an invalid message. The client retries until the timeout; this is the last failure.
    ConnectionClosed {
        /// The server that claimed it.
        server: SocketAddr,
    },
    /// The server refused the request.
    Refused {
        /// The server that refused.
        server: SocketAddr,
        /// What was refused.
        refusal: Refusal,
    },
    /// The handshake of TLS with the server failed: one side does not accept the other. The client retries until the timeout;
    /// this is the last failure.
    Handshake {
        /// The server that claimed the name.
        server: SocketAddr,
        /// Why, about the server: "its certificate has expired".
        reason: String,
    },
    /// The server sent a reply of another type or length than requested.
    WrongReply {
        /// The server that sent it.
        server: SocketAddr,
        /// What is wrong with it.
        reply: WrongReply,
    },
    /// The circuit was lost after the request was queued, and before its reply: whether a put was carried out is
    /// unknown.
    Disconnected {
        /// The server of the circuit.
        server: SocketAddr,
    },
    /// The context was closed by [`Context::close`](crate::Context::close); create a new one.
    ContextClosed,
    /// The call is invalid: an empty name, or a value that cannot be sent.
    Misuse {
        /// What is wrong.
        reason: String,
        /// What to do instead; empty where the reason says it.
        advice: &'static str,
    },
    /// The operating system provided no socket or thread. The text does not contain the system's error, which is the
    /// [`source`](std::error::Error::source).
    System {
        /// The kind of the system's error.
        kind: io::ErrorKind,
    },
}

impl Error {
    /// An error of this kind. `pv`: the PV's name; empty if the error concerns no PV.
    ///
    /// See the example of [`Error::system`].
    pub fn new(pv: impl Into<Box<str>>, kind: ErrorKind) -> Error {
        Error { inner: Box::new(Inner { pv: pv.into(), kind, source: None }) }
    }

    /// An error of the operating system; its kind is [`ErrorKind::System`]. `source` is not part of the text; a program
    /// prints it as well.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::error::Error as _;
    /// use std::io;
    ///
    /// use fodo_net::{Error, ErrorKind};
    ///
    /// let refused = Error::misuse("demo:temperature", "\"warm\" is not a number", "write a number");
    /// assert_eq!(refused.to_string(), "\"demo:temperature\": \"warm\" is not a number; write a number");
    ///
    /// let failed = Error::system("demo:temperature", io::Error::from(io::ErrorKind::OutOfMemory));
    /// assert_eq!(failed.kind(), &ErrorKind::System { kind: io::ErrorKind::OutOfMemory });
    /// assert_eq!(failed.source().unwrap().to_string(), "out of memory");
    /// ```
    pub fn system(pv: impl Into<Box<str>>, source: io::Error) -> Error {
        Error::of_system(pv, Arc::new(source))
    }

    /// The same, for several channels that one error concerns.
    pub(crate) fn of_system(pv: impl Into<Box<str>>, source: Arc<io::Error>) -> Error {
        let kind = ErrorKind::System { kind: source.kind() };
        Error { inner: Box::new(Inner { pv: pv.into(), kind, source: Some(source) }) }
    }

    /// An invalid call: what is wrong, and what to do instead; `advice` is empty where the reason says it. See the example of [`Error::system`].
    pub fn misuse(pv: impl Into<Box<str>>, reason: impl Into<String>, advice: &'static str) -> Error {
        Error::new(pv, ErrorKind::Misuse { reason: reason.into(), advice })
    }

    /// What happened. See the example of [`Error`].
    pub fn kind(&self) -> &ErrorKind {
        &self.inner.kind
    }

    /// Whether the kind is one that only a timeout has: [`ErrorKind::NotFound`], [`ErrorKind::NoReply`] or
    /// [`ErrorKind::ConnectionClosed`]. See the example of [`Error`].
    pub fn is_timeout(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::NotFound { .. } | ErrorKind::NoReply { .. } | ErrorKind::ConnectionClosed { .. }
        )
    }

    /// The PV's name; empty if the error concerns no PV. See the example of [`Error`].
    pub fn pv(&self) -> &str {
        &self.inner.pv
    }

    /// What happened, with the system's error if there is one; without the PV's name and without advice.
    ///
    /// ```
    /// let failed = fodo_net::Error::system("demo:temperature", std::io::Error::from(std::io::ErrorKind::OutOfMemory));
    /// assert_eq!(failed.reason(), "the operating system provided no socket or thread: out of memory");
    /// ```
    pub fn reason(&self) -> String {
        match &self.inner.source {
            Some(source) => format!("{}: {source}", self.kind()),
            None => self.kind().to_string(),
        }
    }

    /// What to do about it, or what to check; `None` where only the server's own text can say that. See the example of
    /// [`Error`].
    pub fn advice(&self) -> Option<&'static str> {
        self.kind().advice()
    }
}

impl PartialEq for Error {
    fn eq(&self, other: &Error) -> bool {
        self.pv() == other.pv() && self.kind() == other.kind()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { pv, kind, source } = &*self.inner;
        let mut fields = f.debug_struct("Error");
        fields.field("pv", pv).field("kind", kind);
        if let Some(source) = source {
            fields.field("source", source);
        }
        fields.finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pv() {
            "" => self.kind().fmt(f)?,
            pv => write!(f, "\"{pv}\": {}", self.kind())?,
        }
        self.advice().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_deref().map(|source| source as _)
    }
}

impl ErrorKind {
    /// As [`Error::advice`].
    fn advice(&self) -> Option<&'static str> {
        Some(match self {
            ErrorKind::NotFound { protocol: Protocol::Ca, .. } => {
                "check that its server is running and that the client's address list (EPICS_CA_ADDR_LIST) includes its \
                 network"
            }
            ErrorKind::NotFound { protocol: Protocol::Pva, .. } => {
                "check that its server is running and that the client's address list (EPICS_PVA_ADDR_LIST) includes its \
                 network"
            }
            ErrorKind::NoReply { .. } => "its IOC may be busy or suspended: try a longer timeout",
            ErrorKind::ConnectionClosed { .. } => {
                "its IOC may be starting or stopping, or have reached its client limit, or another program uses this port"
            }
            ErrorKind::Refused { refusal, .. } => return refusal.advice(),
            ErrorKind::Handshake { .. } => "check the certificates and the authorities in the keychains of both ends",
            ErrorKind::WrongReply { reply, .. } => reply.advice(),
            ErrorKind::Disconnected { .. } => {
                "its IOC may have stopped: try again, but a put may have been carried out"
            }
            ErrorKind::ContextClosed => "create a new one",
            ErrorKind::Misuse { advice: "", .. } => return None,
            ErrorKind::Misuse { advice, .. } => advice,
            ErrorKind::System { .. } => {
                "check the network of this host, and the limits of this process on open files and threads"
            }
        })
    }
}

impl fmt::Display for ErrorKind {
    /// What happened, without advice.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::NotFound { after, .. } => {
                write!(f, "no server claimed the name within {} s", after.as_secs_f64())
            }
            ErrorKind::NoReply { server, after } => {
                write!(f, "{server} did not reply within {} s", after.as_secs_f64())
            }
            ErrorKind::ConnectionClosed { server } => {
                write!(f, "{server} claimed the name but the connection ended before it confirmed the channel")
            }
            ErrorKind::Refused { server, refusal } => write!(f, "{server} refused {refusal}"),
            ErrorKind::Handshake { server, reason } => write!(f, "the TLS handshake with {server} failed: {reason}"),
            ErrorKind::WrongReply { server, reply } => write!(f, "{server} sent {reply}"),
            ErrorKind::Disconnected { server } => write!(f, "the circuit to {server} was lost during the operation"),
            ErrorKind::ContextClosed => write!(f, "the context is closed"),
            ErrorKind::Misuse { reason, .. } => write!(f, "{reason}"),
            ErrorKind::System { .. } => write!(f, "the operating system provided no socket or thread"),
        }
    }
}

/// What a server refuses.
///
/// See the example of [`Error`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// The TCP connection.
    Connection,
    /// The channel.
    Channel {
        /// The server's text; empty when it sent none, as always with Channel Access.
        text: String,
    },
    /// Read access, also where the server replied with `ECA_NORDACCESS`.
    ReadAccess,
    /// Write access, also where the server replied with `ECA_NOWTACCESS`.
    WriteAccess,
    /// The operation, for another reason. Only with Channel Access.
    Status {
        /// The status code.
        status: Eca,
        /// The server's own explanation; empty when it sent none.
        text: String,
    },
    /// The subscription: structures require pvAccess, and the channel uses Channel Access.
    RequiresPva,
    /// Further updates: the server has ended the subscription without an error. Only with pvAccess.
    FurtherUpdates,
    /// The operation; with pvAccess the server's text is the only reason.
    Reported {
        /// The server's text; empty when it sent none.
        text: String,
    },
}

impl Refusal {
    /// The refusal that a server's status means. `text`: the server's explanation.
    pub(crate) fn of(status: Eca, text: String) -> Refusal {
        match status {
            Eca::NORDACCESS => Refusal::ReadAccess,
            Eca::NOWTACCESS => Refusal::WriteAccess,
            status => Refusal::Status { status, text },
        }
    }
}

impl Refusal {
    /// What to do about it, or what to check; `None` where only the server's own text can say that.
    ///
    /// ```
    /// use fodo_net::Refusal;
    ///
    /// assert_eq!(Refusal::ReadAccess.advice(), Some("check the access security of its IOC"));
    /// ```
    pub const fn advice(&self) -> Option<&'static str> {
        Some(match self {
            Refusal::Connection => "check that its IOC is still running, and that no firewall blocks the port",
            Refusal::Channel { .. } => "check that the field exists and has a value, and the filter after its name",
            Refusal::ReadAccess => "check the access security of its IOC",
            Refusal::WriteAccess => "the field is read-only, or the access security of its IOC forbids it",
            Refusal::RequiresPva => "request the PV with \"pva://\"",
            Refusal::FurtherUpdates => "subscribe again",
            Refusal::Status { .. } | Refusal::Reported { .. } => return None,
        })
    }
}

impl From<Eca> for Refusal {
    /// A refusal without an explanation.
    fn from(status: Eca) -> Refusal {
        Refusal::of(status, String::new())
    }
}

/// Why a reply is rejected.
///
/// See [`ErrorKind::WrongReply`], and the example of [`Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WrongReply {
    /// The values have another type. Only with Channel Access.
    Type {
        /// The requested type.
        requested: DbrType,
        /// The type of the reply.
        received: DbrType,
    },
    /// The number of elements is wrong: not 1 for a scalar, or more than requested for an array.
    Count {
        /// The requested number.
        requested: u32,
        /// The number in the reply.
        received: usize,
    },
    /// The value cannot be converted to the requested kind. Servers of pvAccess send values in their own kind; the
    /// client converts them.
    Kind {
        /// The requested kind.
        requested: Kind,
        /// The kind of the value.
        received: Kind,
    },
    /// The PV is a structure without a value of its own, such as a table or a group. Read it with
    /// [`Channel::get_structure`](crate::Channel::get_structure).
    Structure {
        /// The name of its type; may be empty.
        id: Text,
    },
    /// The PV is an array, a string or a structure, but a [`MonitorGroup`](crate::MonitorGroup) receives numbers. Use
    /// [`Channel::monitor`](crate::Channel::monitor).
    NotANumber {
        /// The type of an element; [`Kind::Text`] also for a structure.
        kind: Kind,
        /// The maximum number of elements, as [`ChannelFacts::count_max`](crate::ChannelFacts::count_max).
        count_max: u32,
    },
}

impl WrongReply {
    /// What to do about it.
    ///
    /// ```
    /// use fodo_net::WrongReply;
    ///
    /// let table = WrongReply::Structure { id: "epics:nt/NTTable:1.0".into() };
    /// assert_eq!(table.advice(), "read the PV as a structure");
    /// ```
    pub const fn advice(&self) -> &'static str {
        match self {
            WrongReply::Type { .. } | WrongReply::Count { .. } => "this is an error of that server",
            WrongReply::Kind { .. } => "request the kind of the PV",
            WrongReply::Structure { .. } => "read the PV as a structure",
            WrongReply::NotANumber { .. } => "use a monitor for this PV",
        }
    }
}

/// What a monitor group receives.
const ONLY_NUMBERS: &str = "a monitor group receives single numbers";

impl fmt::Display for WrongReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WrongReply::Type { requested, received } => write!(f, "{received} where {requested} was requested"),
            WrongReply::Count { requested, received } => {
                write!(f, "a value with {received} elements where {requested} was requested")
            }
            WrongReply::Kind { requested, received } => {
                write!(f, "a value of kind {received:?} that cannot be converted to {requested:?}")
            }
            WrongReply::Structure { id } if id.is_empty() => {
                write!(f, "a structure without a type name: the PV has no value of its own")
            }
            WrongReply::Structure { id } => {
                write!(f, "a structure of type {:?}: the PV has no value of its own", id.to_str())
            }
            WrongReply::NotANumber { kind: Kind::Text, count_max: 1 } => write!(f, "a string, but {ONLY_NUMBERS}"),
            WrongReply::NotANumber { kind: Kind::Text, .. } => {
                write!(f, "strings or a structure, but {ONLY_NUMBERS}")
            }
            WrongReply::NotANumber { kind, .. } => write!(f, "an array of kind {kind:?}, but {ONLY_NUMBERS}"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Connection => write!(f, "the TCP connection"),
            Refusal::Channel { text } if text.is_empty() => {
                write!(f, "the channel: it claimed the name but does not serve it")
            }
            Refusal::Channel { text } => write!(f, "the channel: the server reports {text:?}"),
            Refusal::ReadAccess => write!(f, "reading: this client has no read access"),
            Refusal::WriteAccess => write!(f, "writing: this client has no write access"),
            Refusal::Status { status, text } if text.is_empty() => write!(f, "the operation: {status}"),
            // Quoted, since text from the network may contain control characters.
            Refusal::Status { status, text } => write!(f, "the operation: {status}; the server reports {text:?}"),
            Refusal::RequiresPva => {
                write!(f, "structures: that requires pvAccess")
            }
            Refusal::FurtherUpdates => write!(f, "further updates: it has ended the subscription without an error"),
            Refusal::Reported { text } if text.is_empty() => write!(f, "the operation without a reason"),
            Refusal::Reported { text } => write!(f, "the operation: the server reports {text:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_text_contains_the_pv_once_the_cause_the_server_and_what_to_do() {
        let (server, after) = ("10.0.0.9:5064".parse().unwrap(), Duration::from_millis(1500));
        let refused = |refusal| ErrorKind::Refused { server, refusal };
        let wrong = |reply| ErrorKind::WrongReply { server, reply };
        for (kind, texts) in [
            (ErrorKind::NotFound { protocol: Protocol::Ca, after }, ["within 1.5 s; check that", "EPICS_CA_ADDR_LIST"]),
            (ErrorKind::NotFound { protocol: Protocol::Pva, after }, ["no server", "EPICS_PVA_ADDR_LIST"]),
            (ErrorKind::NoReply { server, after }, ["10.0.0.9:5064", "1.5 s"]),
            (ErrorKind::ConnectionClosed { server }, ["10.0.0.9:5064", "before it confirmed"]),
            (refused(Refusal::Connection), ["10.0.0.9:5064 refused the TCP connection", "firewall"]),
            (refused(Refusal::Channel { text: String::new() }), ["the channel: it claimed", "check that the field"]),
            // Quoted, since text from the network may contain control characters.
            (refused(Refusal::Channel { text: "no \x1b[2J PV".into() }), ["the channel: ", "\"no \\u{1b}[2J PV\""]),
            (refused(Refusal::ReadAccess), ["10.0.0.9:5064", "no read access"]),
            (refused(Refusal::WriteAccess), ["10.0.0.9:5064", "no write access"]),
            (refused(Eca::GETFAIL.into()), ["channel read request failed", "ECA_GETFAIL"]),
            (
                refused(Refusal::Reported { text: "Put not permitted".into() }),
                ["the operation", "\"Put not permitted\""],
            ),
            (refused(Refusal::Reported { text: String::new() }), ["10.0.0.9:5064", "without a reason"]),
            (wrong(WrongReply::Structure { id: "x:table:1".into() }), ["\"x:table:1\"", "no value of its own"]),
            (wrong(WrongReply::Structure { id: Text::EMPTY }), ["without a type name", "no value of its own"]),
            (refused(Refusal::RequiresPva), ["requires pvAccess", "pva://"]),
            (refused(Refusal::FurtherUpdates), ["10.0.0.9:5064", "has ended the subscription"]),
            (wrong(WrongReply::Kind { requested: Kind::F64, received: Kind::Text }), ["kind Text", "to F64"]),
            (wrong(WrongReply::NotANumber { kind: Kind::Text, count_max: 1 }), ["a string", "use a monitor"]),
            (wrong(WrongReply::NotANumber { kind: Kind::Text, count_max: 0 }), ["structure", "use a monitor"]),
            (wrong(WrongReply::NotANumber { kind: Kind::I32, count_max: 9 }), ["array", "I32"]),
            (ErrorKind::Disconnected { server }, ["10.0.0.9:5064", "lost"]),
            (ErrorKind::ContextClosed, ["context", "closed"]),
            (ErrorKind::Misuse { reason: "too long".into(), advice: "shorten it" }, [": ", "too long; shorten it"]),
            (ErrorKind::System { kind: io::ErrorKind::OutOfMemory }, ["operating system", "no socket or thread"]),
        ] {
            let error = Error::new("x:y", kind);
            let text = error.to_string();
            assert!(texts.iter().all(|part| text.contains(part)), "{text}");
            assert_eq!(text.matches("x:y").count(), 1, "{text}");
            let only_the_server_knows = matches!(
                error.kind(),
                ErrorKind::Refused { refusal: Refusal::Status { .. } | Refusal::Reported { .. }, .. }
            );
            assert_eq!(error.advice().is_none(), only_the_server_knows, "{text}");
            assert!(error.advice().is_none_or(|advice| text.ends_with(&format!("; {advice}"))), "{text}");
        }
    }

    #[test]
    fn a_status_without_access_rights_is_a_refusal_of_that_right() {
        let of = |status| Refusal::of(status, "text".into());

        assert_eq!((of(Eca::NORDACCESS), of(Eca::NOWTACCESS)), (Refusal::ReadAccess, Refusal::WriteAccess));
        assert_eq!(of(Eca::PUTFAIL), Refusal::Status { status: Eca::PUTFAIL, text: "text".into() });
    }

    #[test]
    fn only_kinds_that_end_with_the_time_are_timeouts() {
        let (server, after) = ("10.0.0.9:5064".parse().unwrap(), Duration::from_secs(5));
        let is_timeout = |kind| Error::new("x", kind).is_timeout();

        assert!(
            is_timeout(ErrorKind::NotFound { protocol: Protocol::Ca, after })
                && is_timeout(ErrorKind::NoReply { server, after })
        );
        assert!(is_timeout(ErrorKind::ConnectionClosed { server }));
        assert!(!is_timeout(ErrorKind::Disconnected { server }) && !is_timeout(ErrorKind::ContextClosed));
    }

    #[test]
    fn an_error_without_a_pv_prints_its_kind_and_advice() {
        let error = Error::misuse("", "no name", "pass one");

        assert_eq!((error.to_string(), error.pv()), ("no name; pass one".into(), ""));
    }

    #[test]
    fn a_system_error_keeps_its_cause() {
        use std::error::Error as _;
        let error = Error::system("x", io::Error::from_raw_os_error(24));

        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());

        assert_eq!(source.and_then(io::Error::raw_os_error), Some(24));
        assert!(Error::misuse("x", "y", "z").source().is_none());
    }

    #[test]
    fn errors_are_compared_by_pv_and_kind_and_are_one_pointer_wide() {
        let failed = |pv: &str, kind| Error::system(pv, io::Error::from(kind));

        assert_eq!(failed("x", io::ErrorKind::OutOfMemory), failed("x", io::ErrorKind::OutOfMemory));
        assert_ne!(failed("x", io::ErrorKind::OutOfMemory), failed("x", io::ErrorKind::WouldBlock));
        assert_ne!(failed("x", io::ErrorKind::OutOfMemory), failed("y", io::ErrorKind::OutOfMemory));
        assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
    }
}
