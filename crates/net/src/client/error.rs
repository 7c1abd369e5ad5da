use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;

/// Why an operation failed. The variants differ in what the caller can do.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// No server claimed the name in time.
    NotFound {
        /// The PV's name.
        pv: String,
        /// How long the client waited.
        after: Duration,
    },
    /// A server claimed the name, then did not answer in time.
    NoAnswer {
        /// The PV's name.
        pv: String,
        /// The server that claimed it.
        server: SocketAddr,
        /// How long the client waited.
        after: Duration,
    },
    /// A server claimed the name, then closed the connection before it confirmed the channel.
    Dropped {
        /// The PV's name.
        pv: String,
        /// The server that claimed it.
        server: SocketAddr,
    },
    /// The server refused the request.
    Refused {
        /// The PV's name.
        pv: String,
        /// The server that refused.
        server: SocketAddr,
        /// What was refused.
        refusal: Refusal,
    },
    /// The server sent a reply of another type or length than requested.
    WrongReply {
        /// The PV's name.
        pv: String,
        /// The server that sent it.
        server: SocketAddr,
        /// What is wrong with it.
        reply: WrongReply,
    },
    /// The circuit was lost before the operation ended.
    Disconnected {
        /// The PV's name.
        pv: String,
        /// The server of the circuit.
        server: SocketAddr,
    },
    /// The context was closed by [`Context::close`](crate::Context::close); create a new one.
    Closed {
        /// The PV's name.
        pv: String,
    },
    /// The call is invalid: an empty name, or a value that cannot be sent.
    Misuse {
        /// The PV's name.
        pv: String,
        /// What is wrong.
        reason: String,
    },
    /// The operating system provided no socket or thread.
    System {
        /// The PV's name.
        pv: String,
        /// The system's error text.
        reason: String,
    },
}

/// What a server refuses.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The TCP connection.
    Connection,
    /// The channel.
    Channel,
    /// Read access.
    ReadAccess,
    /// Write access.
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

/// Why a reply is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongReply {
    /// The values have another type.
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
            Refusal::Connection => write!(f, "the connection: check that a server is still running there"),
            Refusal::Channel => write!(f, "the channel: it claimed the name but does not serve it"),
            Refusal::ReadAccess => write!(f, "reading: this client has no read access"),
            Refusal::WriteAccess => write!(f, "writing: this client has no write access"),
            Refusal::Status { status, text } if text.is_empty() => write!(f, "the operation: {status}"),
            // Quoted, since text from the network may contain control characters.
            Refusal::Status { status, text } => write!(f, "the operation: {status}; the server reports {text:?}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotFound { pv, after } => write!(
                f,
                "no server claimed \"{pv}\" within {after:?}: check that its IOC is running and its network is in \
                 EPICS_CA_ADDR_LIST"
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
            Error::Closed { pv } => write!(f, "the context of \"{pv}\" is closed; create a new one"),
            Error::Misuse { pv, reason } => write!(f, "\"{pv}\": {reason}"),
            Error::System { pv, reason } => write!(f, "\"{pv}\": operating system error: {reason}"),
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
