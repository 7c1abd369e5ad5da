//! Why a call has failed.

use fodo_net::{Error, ErrorKind};

/// The classes of the encoding.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
pub enum ErrorClass {
    NotFound = 0,
    NoAnswer = 1,
    Refused = 2,
    Disconnected = 3,
    Misuse = 4,
    Closed = 5,
    WrongReply = 6,
    System = 7,
}

/// Why a call has failed.
#[derive(Clone, Debug)]
pub struct JavaFailure {
    pub class: ErrorClass,
    /// The PV's name; may be empty.
    pub pv: String,
    pub reason: String,
    /// The address of the server; may be empty.
    pub server: String,
    /// What to do; empty where the reason says it, or only the server can.
    pub advice: &'static str,
}

impl JavaFailure {
    pub fn new(class: ErrorClass, pv: &str, reason: impl Into<String>) -> JavaFailure {
        JavaFailure { class, pv: pv.to_owned(), reason: reason.into(), server: String::new(), advice: "" }
    }

    pub fn misuse(pv: &str, reason: impl Into<String>) -> JavaFailure {
        JavaFailure::new(ErrorClass::Misuse, pv, reason)
    }

    pub fn closed(pv: &str, reason: impl Into<String>) -> JavaFailure {
        JavaFailure::new(ErrorClass::Closed, pv, reason)
    }

    /// The same about this PV, unless it names one already.
    pub fn about(self, pv: &str) -> JavaFailure {
        if self.pv.is_empty() { JavaFailure { pv: pv.to_owned(), ..self } } else { self }
    }
}

impl From<&Error> for JavaFailure {
    fn from(error: &Error) -> JavaFailure {
        let (class, server) = match error.kind() {
            ErrorKind::NotFound { .. } => (ErrorClass::NotFound, None),
            ErrorKind::NoReply { server, .. } | ErrorKind::ConnectionClosed { server } => {
                (ErrorClass::NoAnswer, Some(server))
            }
            ErrorKind::Refused { server, .. } | ErrorKind::Handshake { server, .. } => {
                (ErrorClass::Refused, Some(server))
            }
            ErrorKind::WrongReply { server, .. } => (ErrorClass::WrongReply, Some(server)),
            ErrorKind::Disconnected { server } => (ErrorClass::Disconnected, Some(server)),
            ErrorKind::ContextClosed => (ErrorClass::Closed, None),
            ErrorKind::Misuse { .. } => (ErrorClass::Misuse, None),
            _ => (ErrorClass::System, None),
        };
        let server = server.map(ToString::to_string).unwrap_or_default();
        let (pv, advice) = (error.pv().to_owned(), error.advice().unwrap_or_default());
        JavaFailure { class, pv, reason: error.reason(), server, advice }
    }
}

impl From<Error> for JavaFailure {
    fn from(error: Error) -> JavaFailure {
        JavaFailure::from(&error)
    }
}
