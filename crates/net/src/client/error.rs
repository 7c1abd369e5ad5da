use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;

/// Why an operation did not give what it was asked for; the variant says whose turn it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// No server claimed the name in time.
    NotFound {
        /// The name.
        pv: String,
        /// How long was waited.
        after: Duration,
    },
    /// A server claimed the name, then did not answer in time.
    NoAnswer {
        /// The name.
        pv: String,
        /// Who claimed it.
        server: SocketAddr,
        /// How long was waited.
        after: Duration,
    },
    /// A server claimed the name, then closed the connection before it confirmed the channel.
    Dropped {
        /// The name.
        pv: String,
        /// Who claimed it.
        server: SocketAddr,
    },
    /// The server said no.
    Refused {
        /// The name.
        pv: String,
        /// Who refused.
        server: SocketAddr,
        /// What was refused.
        refusal: Refusal,
    },
    /// The server sent a reply of another type or length than requested.
    WrongReply {
        /// The name.
        pv: String,
        /// Who sent it.
        server: SocketAddr,
        /// What is wrong with it.
        reply: WrongReply,
    },
    /// The circuit was lost while the operation was under way.
    Disconnected {
        /// The name.
        pv: String,
        /// Whose circuit it was.
        server: SocketAddr,
    },
    /// The context was closed, by [`Context::close`](crate::Context::close): make another one.
    Closed {
        /// The name.
        pv: String,
    },
    /// The call cannot be right: an empty name, a value that cannot be sent.
    Misuse {
        /// The name.
        pv: String,
        /// What is wrong.
        reason: String,
    },
    /// The operating system gave no socket or thread.
    System {
        /// The name.
        pv: String,
        /// Its own words.
        reason: String,
    },
}

/// What a server says no to.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The TCP connection.
    Connection,
    /// The channel.
    Channel,
    /// Reading.
    ReadAccess,
    /// Writing.
    WriteAccess,
    /// The operation.
    Status {
        /// The status code.
        status: Eca,
        /// The server's own explanation; empty when it sent none.
        text: String,
    },
}

impl From<Eca> for Refusal {
    /// A refusal without an explanation.
    fn from(status: Eca) -> Refusal {
        Refusal::Status { status, text: String::new() }
    }
}

/// Why a reply is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongReply {
    /// Its values have another type.
    Type {
        /// The requested type.
        requested: DbrType,
        /// The type of the reply.
        received: DbrType,
    },
    /// It has another number of elements: not the one of a scalar, or more than requested of an array.
    Count {
        /// The requested number.
        requested: u32,
        /// The number in the reply.
        received: usize,
    },
}

impl fmt::Display for WrongReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WrongReply::Type { requested, received } => write!(f, "{received} where {requested} was requested"),
            WrongReply::Count { requested, received } => {
                write!(f, "a value with {received} elements where {requested} was requested")
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Connection => write!(f, "the connection: is a server still running there?"),
            Refusal::Channel => write!(f, "the channel: it claimed the name but does not serve it"),
            Refusal::ReadAccess => write!(f, "reading: this client has no read access"),
            Refusal::WriteAccess => write!(f, "writing: this client has no write access"),
            Refusal::Status { status, text } if text.is_empty() => write!(f, "the operation: {status}"),
            // Quoted, since a text from outside may hold control characters.
            Refusal::Status { status, text } => write!(f, "the operation: {status}; it says {text:?}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotFound { pv, after } => write!(
                f,
                "no server claimed \"{pv}\" within {after:?}: is its IOC running, and is its network in EPICS_CA_ADDR_LIST?"
            ),
            Error::NoAnswer { pv, server, after } => {
                write!(f, "{server} claimed \"{pv}\" but did not answer within {after:?}")
            }
            Error::Dropped { pv, server } => {
                write!(f, "{server} claimed \"{pv}\" but closed the connection before it confirmed the channel")
            }
            Error::WrongReply { pv, server, reply } => {
                write!(f, "{server} answered a request for \"{pv}\" with {reply}")
            }
            Error::Refused { pv, server, refusal } => write!(f, "{server} refused \"{pv}\" {refusal}"),
            Error::Disconnected { pv, server } => {
                write!(f, "the circuit to {server} was lost while \"{pv}\" was in use")
            }
            Error::Closed { pv } => write!(f, "the context of \"{pv}\" is closed: make another one"),
            Error::Misuse { pv, reason } => write!(f, "\"{pv}\": {reason}"),
            Error::System { pv, reason } => write!(f, "\"{pv}\": the operating system says: {reason}"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_pv_and_what_to_look_at() {
        let (pv, server, after) = ("x:y".to_owned(), "10.0.0.9:5064".parse().unwrap(), Duration::from_millis(1500));
        let refused = |refusal| Error::Refused { pv: pv.clone(), server, refusal };
        for (error, texts) in [
            (Error::NotFound { pv: pv.clone(), after }, ["\"x:y\"", "1.5s", "EPICS_CA_ADDR_LIST"]),
            (Error::NoAnswer { pv: pv.clone(), server, after }, ["\"x:y\"", "10.0.0.9:5064", "1.5s"]),
            (refused(Refusal::Connection), ["\"x:y\"", "10.0.0.9:5064", "the connection"]),
            (refused(Refusal::Channel), ["\"x:y\"", "10.0.0.9:5064", "the channel"]),
            (refused(Refusal::ReadAccess), ["\"x:y\"", "10.0.0.9:5064", "no read access"]),
            (refused(Refusal::WriteAccess), ["\"x:y\"", "10.0.0.9:5064", "no write access"]),
            (refused(Eca::GETFAIL.into()), ["\"x:y\"", "channel read request failed", "ECA_GETFAIL"]),
            (Error::Disconnected { pv: pv.clone(), server }, ["\"x:y\"", "10.0.0.9:5064", "lost"]),
            (Error::Closed { pv: pv.clone() }, ["\"x:y\"", "context", "closed"]),
            (Error::Misuse { pv: pv.clone(), reason: "too long".into() }, ["\"x:y\"", ": ", "too long"]),
            (
                Error::System { pv: pv.clone(), reason: "no thread".into() },
                ["\"x:y\"", "operating system", "no thread"],
            ),
        ] {
            let text = error.to_string();
            assert!(texts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
