//! Errors of the client commands for servers that claim a name but do not serve it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]

#[path = "../../net/tests/scripted/mod.rs"]
#[allow(dead_code, reason = "each test program uses a part of it")]
mod scripted;
#[expect(dead_code, reason = "the other tests use the rest")]
mod support;

use fodo_ca::message::Request;

use scripted::{Scripted, created, error};
use support::{fodo, free_port, run, text};

/// The exit code of a command and its stderr.
fn reported(port: u16, arguments: &[&str]) -> (i32, String) {
    let output = run(fodo(port).args(arguments));
    (output.status.code().unwrap(), text(&output.stderr))
}

#[test]
fn every_verb_distinguishes_silent_closing_and_missing_servers() {
    let (silent, closing) = (Scripted::start(|_| None), Scripted::closing_at_create());
    let cases = [
        (silent.address().port(), 4, format!("{} claimed the name but did not respond", silent.tcp())),
        (closing.address().port(), 4, format!("{} claimed the name but the connection ended", closing.tcp())),
        (free_port(), 3, "\"x\": no server claimed the name".to_owned()),
    ];

    for (port, code, words) in &cases {
        for verb in [&["get", "-w", "1.5", "x"][..], &["info", "-w", "1.5", "x"], &["put", "-w", "1.5", "x", "1"]] {
            let (exit, err) = reported(*port, verb);
            assert!(exit == *code && err.contains(words), "{verb:?} ends with {exit}: {err}");
        }
        let (exit, err) = reported(*port, &["monitor", "-w", "1.5", "--for", "2.5", "x"]);
        assert!(exit == *code && err.contains(words), "monitor ends with {exit}: {err}");
    }
}

#[test]
fn the_refusal_message_of_a_server_is_printed() {
    let server = Scripted::start(|request| match *request {
        Request::CreateChan { cid, .. } => Some(created(cid, 1)),
        Request::ReadNotify { .. } => Some(error(request, fodo_ca::eca::Eca::GETFAIL, "the beam is off")),
        _ => None,
    });

    let (exit, err) = reported(server.address().port(), &["get", "x"]);

    assert!(exit == 5 && err.contains("ECA_GETFAIL") && err.contains("\"the beam is off\""), "{exit}: {err}");
}
