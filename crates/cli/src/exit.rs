//! Exit codes and error messages.

use fodo_net::config::{self, VariableUser};
use fodo_net::{Error, ErrorKind, Protocol};

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

/// The name of a protocol in a sentence.
pub const fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Pva => "pvAccess",
        _ => "Channel Access",
    }
}

/// One line that explains an error and what to do.
pub fn explain(error: &Error) -> String {
    explain_named(error.pv(), error)
}

/// The same, with the name as the user typed it.
pub fn explain_named(pv: &str, error: &Error) -> String {
    let what = with_advice(error.reason(), error.advice());
    match error.pv() {
        "" => what,
        _ => format!("\"{pv}\": {what}"),
    }
}

/// What happened, and what to do if that is known.
pub fn with_advice(what: String, advice: Option<&str>) -> String {
    match advice {
        Some(advice) => format!("{what}; {advice}"),
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_ca::eca::Eca;
    use fodo_net::Refusal;
    use std::time::Duration;

    fn not_found(protocol: Protocol) -> Error {
        Error::new("x:y", ErrorKind::NotFound { protocol, after: Duration::from_secs(5) })
    }

    #[test]
    fn the_error_for_a_missing_pv_has_the_name_as_typed_and_what_to_check() {
        let of_pva = not_found(Protocol::Pva);

        let text = explain_named("pva://x:y", &of_pva);

        let advice = of_pva.advice().unwrap();
        assert_eq!(text, format!("\"pva://x:y\": no server claimed the name within 5 s; {advice}"));
        assert!(advice.contains("EPICS_PVA_ADDR_LIST"), "{advice}");
        assert_eq!(explain(&not_found(Protocol::Ca)), not_found(Protocol::Ca).to_string());
    }

    #[test]
    fn equal_failures_keep_their_exit_code_and_different_ones_exit_as_mixed() {
        let missing = Exit::of(&not_found(Protocol::Ca));

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
            (ErrorKind::NoReply { server, after }, Exit::NoReply, "did not reply within 1.5 s"),
            (ErrorKind::ConnectionClosed { server }, Exit::NoReply, "the connection ended before"),
            (ErrorKind::Disconnected { server }, Exit::NoReply, "the circuit to 10.0.0.1:5064 was lost"),
            (refused(Refusal::Connection), Exit::Refused, "10.0.0.1:5064 refused the TCP connection"),
            (refused(Refusal::Channel { text: String::new() }), Exit::Refused, "refused the channel"),
            (refused(Refusal::ReadAccess), Exit::Refused, "no read access"),
            (refused(Refusal::WriteAccess), Exit::Refused, "no write access"),
            (refused(Eca::PUTFAIL.into()), Exit::Refused, "10.0.0.1:5064 refused the operation: "),
            (ErrorKind::Misuse { reason: "too long".into(), advice: "" }, Exit::BadValue, "\"x:y\": too long"),
            (ErrorKind::ContextClosed, Exit::Other, "closed"),
        ];
        for (kind, exit, words) in cases {
            let error = Error::new("x:y", kind);
            assert_eq!(Exit::of(&error), exit, "{error:?}");
            assert!(explain(&error).contains(words) && explain(&error).contains("x:y"), "{}", explain(&error));
        }
        let failed = Error::system("x:y", std::io::Error::from(std::io::ErrorKind::OutOfMemory));
        assert_eq!(Exit::of(&failed), Exit::Other);
        assert!(explain(&failed).contains(": out of memory; "), "{}", explain(&failed));
        assert_eq!(explain(&Error::misuse("", "no name", "")), "no name");
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
