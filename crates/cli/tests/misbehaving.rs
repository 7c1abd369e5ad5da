//! Errors of the client commands for servers that claim a name but do not serve it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]

#[path = "../../net/tests/scripted/mod.rs"]
#[allow(dead_code, reason = "each test program uses a part of it")]
mod scripted;
#[expect(dead_code, reason = "the other tests use the rest")]
mod support;

use std::process::Output;

use fodo_ca::message::Request;

use scripted::{Scripted, created, error};
use support::{fodo, free_port, run, text, with_patience};

/// The exit code of a command and its stderr.
fn reported(port: u16, arguments: &[&str]) -> (i32, String) {
    let output = run(fodo(port).args(arguments));
    (output.status.code().unwrap(), text(&output.stderr))
}

#[test]
fn every_verb_distinguishes_silent_closing_and_missing_servers() {
    let (silent, closing) = (Scripted::start(|_| None), Scripted::closing_at_create());
    let cases = [
        (silent.address().port(), 4, format!("{} did not reply within", silent.tcp())),
        (closing.address().port(), 4, format!("{} claimed the name but the connection ended", closing.tcp())),
        (free_port(), 3, "\"x\": no server claimed the name".to_owned()),
    ];

    for (port, code, words) in &cases {
        for (verb, value) in [("get", None), ("info", None), ("put", Some("1")), ("monitor", None)] {
            let is_expected =
                |output: &Output| output.status.code() == Some(*code) && text(&output.stderr).contains(words);
            let run_within = |timeout: &str| {
                let mut command = fodo(*port);
                command.args([verb, "-w", timeout, "x"]).args(value);
                if verb == "monitor" {
                    command.args(["--for", &format!("{timeout}.5")]);
                }
                run(&mut command)
            };
            let output = with_patience(run_within, is_expected);
            assert!(is_expected(&output), "{verb} ends with {}: {}", output.status, text(&output.stderr));
        }
    }
}

#[test]
fn the_refusal_message_of_a_server_is_printed() {
    let server = Scripted::start(|request| match *request {
        Request::CreateChan { cid, .. } => Some(created(cid, 1)),
        Request::ReadNotify { .. } => Some(error(request, fodo_ca::eca::Eca::GETFAIL, "the beam is off")),
        _ => None,
    });

    let (exit, err) = reported(server.address().port(), &["get", "-w", "20", "x"]);

    assert!(exit == 5 && err.contains("ECA_GETFAIL") && err.contains("\"the beam is off\""), "{exit}: {err}");
}
