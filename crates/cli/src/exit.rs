//! Exit codes and error messages.

use std::error::Error as _;

use fodo_net::config::{self, VariableUser};
use fodo_net::{Error, ErrorKind, Protocol, Refusal};

/// The exit code. The numbers are documented in every `--help` and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Done = 0,
    /// Any other error: a file, the environment, the network of this host.
    Other = 1,
    /// No server claimed the name of a PV.
    NotFound = 3,
    /// A server claimed the name but sent no valid response, or the circuit was lost.
    NoReply = 4,
    /// A server refused: access rights, or the status of the operation.
    Refused = 5,
    /// A value that cannot be converted or sent.
    BadValue = 6,
    /// Several PVs failed, for different reasons.
    Mixed = 7,
}

impl Exit {
    /// The exit code for an error of the client.
    pub fn of(error: &Error) -> Exit {
        match error.kind() {
            ErrorKind::NotFound { .. } => Exit::NotFound,
            ErrorKind::NoReply { .. }
            | ErrorKind::ConnectionClosed { .. }
            | ErrorKind::Disconnected { .. }
            | ErrorKind::WrongReply { .. } => Exit::NoReply,
            ErrorKind::Refused { .. } | ErrorKind::Handshake { .. } => Exit::Refused,
            ErrorKind::Misuse { .. } => Exit::BadValue,
            _ => Exit::Other,
        }
    }

    /// The exit code after both `self` and `other`.
    #[must_use]
    pub fn and(self, other: Exit) -> Exit {
        match (self, other) {
            (Exit::Done, other) => other,
            (same, Exit::Done) => same,
            (one, other) if one == other => one,
            _ => Exit::Mixed,
        }
    }

    /// The name in JSON output.
    pub const fn class(self) -> &'static str {
        match self {
            Exit::Done => "done",
            Exit::Other => "other",
            Exit::NotFound => "not_found",
            Exit::NoReply => "no_reply",
            Exit::Refused => "refused",
            Exit::BadValue => "bad_value",
            Exit::Mixed => "mixed",
        }
    }

    /// The number.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// The section of every `--help` on exit codes.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  an error on this host: a file, the environment, a port
  2  invalid command line
  3  not found: no server claimed the name in time
  4  no reply: the server was silent, disconnected, or sent an invalid reply
  5  refused: access rights, or the server's status
  6  a value that cannot be converted or sent
  7  several PVs failed, for different reasons";

/// The section of `--help` on the environment, for client commands.
pub fn client_environment() -> String {
    let variables = config::help(|side| side != VariableUser::Server);
    format!("Environment, with defaults in parentheses (fodo config shows values in effect):\n{variables}\n{TERMINAL}")
}

const TERMINAL: &str = "  \
  NO_COLOR                         set and not empty: no colour at a terminal
  TZ                               the time zone of printed time stamps";

/// Why a server closes a connection before it confirms the channel.
pub fn causes_of_loss(protocol: Protocol) -> String {
    format!(
        "its IOC may be starting or stopping, have reached its client limit, or not be a {} server",
        protocol_name(protocol)
    )
}

/// The name of a protocol in a sentence.
pub const fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Pva => "pvAccess",
        _ => "Channel Access",
    }
}

/// One line that explains an error of Channel Access and what to do.
pub fn explain(error: &Error) -> String {
    explain_named(error.pv(), Protocol::Ca, error)
}

/// One line that explains an error and what to do, with the name as the user typed it and its protocol.
pub fn explain_named(pv: &str, protocol: Protocol, error: &Error) -> String {
    let address_list = match protocol {
        Protocol::Pva => "EPICS_PVA_ADDR_LIST",
        _ => "EPICS_CA_ADDR_LIST",
    };
    let reason = match error.kind() {
        ErrorKind::NotFound { after } => format!(
            "no server claimed the name within {} s: check that its IOC is running and its network is in \
             {address_list}",
            after.as_secs_f64()
        ),
        ErrorKind::NoReply { server, after } => format!(
            "{server} claimed the name but did not respond within {} s: the IOC may be busy or suspended; try a longer \
             --timeout",
            after.as_secs_f64()
        ),
        ErrorKind::ConnectionClosed { server } => format!(
            "{server} claimed the name but the connection ended before it confirmed the channel: {}",
            causes_of_loss(protocol)
        ),
        ErrorKind::WrongReply { server, reply } => format!("{server} sent {reply}: this is an error of that server"),
        ErrorKind::Disconnected { server } => {
            format!("the circuit to {server} was lost: its IOC may have stopped; try again")
        }
        ErrorKind::Refused { server, refusal } => format!("{server} {}", explain_refusal(refusal)),
        kind => match error.source() {
            Some(cause) => format!("{kind}: {cause}"),
            None => kind.to_string(),
        },
    };
    match error.pv() {
        "" => reason,
        _ => format!("\"{pv}\": {reason}"),
    }
}

/// Explains a refusal; the text follows the name of the server in a sentence.
pub fn explain_refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Connection => "answered the search but refuses the TCP connection: check for a firewall".to_owned(),
        Refusal::Channel => {
            "claimed the name but refuses the channel: check that the field exists and has a value".to_owned()
        }
        Refusal::ReadAccess => "denies read access to this user: check the IOC's access security".to_owned(),
        Refusal::WriteAccess => {
            "denies write access to this user: the field is read-only, or access security forbids it".to_owned()
        }
        Refusal::Status { status, text } if text.is_empty() => format!("refused: {status}"),
        // Quoted, since it may contain control characters.
        Refusal::Status { status, text } => format!("refused: {status}; server message: {text:?}"),
        other => format!("refused {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_ca::eca::Eca;
    use std::time::Duration;

    fn not_found() -> Error {
        Error::new("x:y", ErrorKind::NotFound { after: Duration::from_secs(5) })
    }

    #[test]
    fn the_error_for_a_missing_pv_says_what_to_check() {
        assert_eq!(
            explain(&not_found()),
            "\"x:y\": no server claimed the name within 5 s: check that its IOC is running and its network is in \
             EPICS_CA_ADDR_LIST"
        );
    }

    #[test]
    fn an_error_of_pvaccess_has_the_name_as_typed_and_the_variable_of_pvaccess() {
        let text = explain_named("pva://x:y", Protocol::Pva, &not_found());
        let server = "10.0.0.1:5075".parse().unwrap();
        let closed = Error::new("x:y", ErrorKind::ConnectionClosed { server });

        assert!(
            text.starts_with("\"pva://x:y\": no server claimed the name") && text.ends_with(" EPICS_PVA_ADDR_LIST")
        );
        assert!(explain_named("pva://x:y", Protocol::Pva, &closed).ends_with("or not be a pvAccess server"));
    }

    #[test]
    fn server_messages_are_quoted_with_control_characters_escaped() {
        let refusal = Refusal::Status { status: Eca::PUTFAIL, text: "no\x1b[2J beam".into() };
        let text = explain_refusal(&refusal);

        assert!(text.starts_with(&format!("refused: {}", Eca::PUTFAIL)), "{text}");
        assert!(text.ends_with("; server message: \"no\\u{1b}[2J beam\""), "{text}");
    }

    #[test]
    fn equal_failures_keep_their_exit_code_and_different_ones_exit_as_mixed() {
        let missing = Exit::of(&not_found());

        assert_eq!(Exit::Done.and(missing).and(Exit::Done).and(missing), Exit::NotFound);
        assert_eq!(missing.and(Exit::Refused), Exit::Mixed);
        assert_eq!(Exit::Mixed.and(missing), Exit::Mixed);
    }

    #[test]
    fn exit_codes_are_the_same_as_documented() {
        let all = [Exit::Done, Exit::Other, Exit::NotFound, Exit::NoReply, Exit::Refused, Exit::BadValue, Exit::Mixed];

        assert_eq!(all.map(Exit::code), [0, 1, 3, 4, 5, 6, 7]);
        for exit in all {
            assert!(EXIT_CODES.contains(&format!("\n  {}  ", exit.code())), "{exit:?} is documented");
        }
    }

    #[test]
    fn every_error_has_an_exit_code_and_a_message_with_pv_and_server() {
        let (server, after) = ("10.0.0.1:5064".parse().unwrap(), Duration::from_millis(1500));
        let refused = |refusal| ErrorKind::Refused { server, refusal };
        let cases = [
            (ErrorKind::NoReply { server, after }, Exit::NoReply, "did not respond within 1.5 s"),
            (ErrorKind::ConnectionClosed { server }, Exit::NoReply, "the connection ended before"),
            (ErrorKind::Disconnected { server }, Exit::NoReply, "the circuit to 10.0.0.1:5064 was lost"),
            (refused(Refusal::Connection), Exit::Refused, "10.0.0.1:5064 answered the search but refuses the TCP"),
            (refused(Refusal::Channel), Exit::Refused, "refuses the channel"),
            (refused(Refusal::ReadAccess), Exit::Refused, "denies read access"),
            (refused(Refusal::WriteAccess), Exit::Refused, "denies write access"),
            (refused(Eca::PUTFAIL.into()), Exit::Refused, "10.0.0.1:5064 refused: "),
            (ErrorKind::Misuse { reason: "too long".into() }, Exit::BadValue, "\"x:y\": too long"),
            (ErrorKind::ContextClosed, Exit::Other, "closed"),
        ];
        for (kind, exit, words) in cases {
            let error = Error::new("x:y", kind);
            assert_eq!(Exit::of(&error), exit, "{error:?}");
            assert!(explain(&error).contains(words) && explain(&error).contains("x:y"), "{}", explain(&error));
        }
        let failed = Error::system("x:y", std::io::Error::from(std::io::ErrorKind::OutOfMemory));
        assert_eq!(Exit::of(&failed), Exit::Other);
        assert!(explain(&failed).ends_with(": out of memory"), "{}", explain(&failed));
        assert_eq!(explain(&Error::new("", ErrorKind::Misuse { reason: "no name".into() })), "no name");
        assert!(!explain_refusal(&Eca::PUTFAIL.into()).contains("server message"));
    }

    #[test]
    fn every_exit_code_has_a_unique_name() {
        let all = [Exit::Done, Exit::Other, Exit::NotFound, Exit::NoReply, Exit::Refused, Exit::BadValue, Exit::Mixed];

        let names = ["done", "other", "not_found", "no_reply", "refused", "bad_value", "mixed"];
        assert_eq!(all.map(Exit::class), names);
    }

    #[test]
    fn client_help_lists_only_client_environment_variables() {
        let help = client_environment();

        for name in ["EPICS_CA_ADDR_LIST", "NO_COLOR", "TZ"] {
            assert!(help.contains(&format!("\n  {name} ")), "{help}");
        }
        assert!(!help.contains("EPICS_CAS_"), "{help}");
    }
}
