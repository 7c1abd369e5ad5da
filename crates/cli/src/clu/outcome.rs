//! How requests to a CLU end: for people, in JSON, and as exit codes.

use std::io;
use std::time::Duration;

use fodo_clu::client::{RequestOutcome, SubmitError};
use serde_json::{Map, Value as Json, json};

use super::target::CluTarget;
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::show::escape_control;

/// Why a request has no value.
#[derive(Debug, PartialEq)]
pub struct CluFailure {
    /// The exit code.
    pub exit: Exit,
    /// The name in JSON output: `nil`, `refused`, `wrong`, `timeout`, `error`.
    pub outcome: &'static str,
    /// What happened, with the CLU.
    pub message: String,
}

impl CluFailure {
    /// The failure of a request; `None` if it was answered.
    ///
    /// `may_have_effects`: whether the CLU may have carried out a request without a reply.
    pub fn of(
        clu: &CluTarget,
        what: &str,
        outcome: &RequestOutcome,
        timeout: Duration,
        may_have_effects: bool,
    ) -> Option<CluFailure> {
        let (exit, outcome, reason) = match outcome {
            RequestOutcome::Answered(_) => return None,
            RequestOutcome::Nil => (
                Exit::NotFound,
                "nil",
                format!("{what} is nil: it has no value, or it failed; a CLU does not report which"),
            ),
            RequestOutcome::Wrong(reply) => {
                (Exit::NoReply, "wrong", format!("{what}: invalid reply \"{}\"", escape_control(&reply.to_str())))
            }
            RequestOutcome::Refused => {
                (Exit::Refused, "refused", format!("{what}: the CLU refused the request or does not know it"))
            }
            RequestOutcome::TimedOut { was_sent } => {
                let effects = match may_have_effects && *was_sent {
                    true => "; it may have been carried out",
                    false => "",
                };
                let seconds = timeout.as_secs_f64();
                let reason = format!(
                    "{what}: no reply within {seconds} s{effects}: check the address and the key, because a CLU does \
                     not answer requests with another key"
                );
                (Exit::NoReply, "timeout", reason)
            }
            RequestOutcome::Cancelled => (Exit::Other, "cancelled", format!("{what}: cancelled")),
        };
        Some(CluFailure { exit, outcome, message: format!("{clu}: {reason}") })
    }

    /// A request that cannot be sent.
    pub fn not_sent(clu: &CluTarget, what: &str, error: SubmitError) -> CluFailure {
        CluFailure { exit: Exit::BadValue, outcome: "not_sent", message: format!("{clu}: {what}: {error}") }
    }

    /// A reply that has another form than the request requires.
    pub fn invalid_reply(clu: &CluTarget, what: &str) -> CluFailure {
        CluFailure { exit: Exit::NoReply, outcome: "wrong", message: format!("{clu}: {what}: invalid reply") }
    }

    /// A failure of this host.
    pub fn of_host(message: impl Into<String>) -> CluFailure {
        CluFailure { exit: Exit::Other, outcome: "error", message: message.into() }
    }

    /// Adds `outcome` and `error` to an object.
    pub fn insert_into(&self, object: &mut Map<String, Json>) {
        object.insert("outcome".into(), self.outcome.into());
        let error = json!({"code": self.exit.code(), "class": self.exit.class(), "message": self.message});
        object.insert("error".into(), error);
    }

    /// Reports it on stderr and, with JSON output, on stdout as `object` with the keys of the failure.
    pub fn report(
        &self,
        object: Option<Map<String, Json>>,
        command: &str,
        outlet: &mut OutputStreams<'_>,
    ) -> io::Result<Exit> {
        if let Some(mut object) = object {
            self.insert_into(&mut object);
            outlet.out.write_all(json::line(object).as_bytes())?;
        }
        writeln!(outlet.err, "fodo clu {command}: {}", self.message)?;
        Ok(self.exit)
    }
}

/// Text of a CLU for people: control characters are escaped, except for ends of lines and tabulators.
pub fn printable_text(text: &str) -> String {
    let lines: Vec<String> =
        text.split('\n').map(|line| line.split('\t').map(escape_control).collect::<Vec<_>>().join("\t")).collect();
    lines.join("\n")
}
