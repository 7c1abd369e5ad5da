//! Sends every request once to each driver. Workers are the calling program started again, so this test is a separate
//! program: started as `lab ...` it is the laboratory, otherwise it runs the tests.

use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};

use serde_json::Value;

mod harness;
mod ioc;

/// The abilities that a client must have. `equal` refers to separate channels to one PV.
struct Abilities {
    client: &'static str,
    has_contexts: bool,
    has_scopes: bool,
    has_equal_channels: bool,
    gets_equal_at_once: bool,
    /// Whether it creates channels without an operation.
    creates_channels: bool,
    /// Over pvAccess gets of every field are tried, too. A client of both protocols is there twice.
    is_of_pvaccess: bool,
    gets_in_flight: bool,
    /// Including puts without waiting, and gets in flight from separate channels to one PV.
    answers_every_request: bool,
}

static CLIENTS: [Abilities; 13] = [
    Abilities {
        client: "fodo",
        has_contexts: true,
        has_scopes: true,
        has_equal_channels: true,
        gets_equal_at_once: true,
        creates_channels: true,
        is_of_pvaccess: false,
        gets_in_flight: true,
        answers_every_request: true,
    },
    Abilities {
        client: "libca",
        has_contexts: true,
        has_scopes: false,
        has_equal_channels: true,
        gets_equal_at_once: true,
        creates_channels: true,
        is_of_pvaccess: false,
        gets_in_flight: true,
        answers_every_request: true,
    },
    Abilities {
        client: "aioca",
        has_contexts: false,
        has_scopes: false,
        has_equal_channels: false,
        gets_equal_at_once: true,
        creates_channels: true,
        is_of_pvaccess: false,
        gets_in_flight: false,
        answers_every_request: false,
    },
    Abilities {
        client: "pyepics",
        has_contexts: true,
        has_scopes: false,
        has_equal_channels: false,
        gets_equal_at_once: false,
        creates_channels: true,
        is_of_pvaccess: false,
        gets_in_flight: false,
        answers_every_request: false,
    },
    Abilities {
        client: "caproto",
        has_contexts: true,
        has_scopes: true,
        has_equal_channels: false,
        gets_equal_at_once: true,
        creates_channels: true,
        is_of_pvaccess: false,
        gets_in_flight: false,
        answers_every_request: false,
    },
    Abilities {
        client: "psi-ca",
        has_contexts: true,
        has_scopes: true,
        has_equal_channels: true,
        gets_equal_at_once: true,
        creates_channels: true,
        is_of_pvaccess: false,
        gets_in_flight: false,
        answers_every_request: false,
    },
    Abilities {
        client: "fodo-java",
        has_contexts: true,
        has_scopes: true,
        has_equal_channels: true,
        gets_equal_at_once: true,
        creates_channels: true,
        is_of_pvaccess: false,
        gets_in_flight: true,
        answers_every_request: true,
    },
    Abilities {
        client: "pvxs",
        has_contexts: false,
        has_scopes: false,
        has_equal_channels: false,
        gets_equal_at_once: true,
        creates_channels: false,
        is_of_pvaccess: true,
        gets_in_flight: true,
        answers_every_request: false,
    },
    Abilities {
        client: "spvirit",
        has_contexts: false,
        has_scopes: false,
        has_equal_channels: true,
        gets_equal_at_once: true,
        creates_channels: false,
        is_of_pvaccess: true,
        gets_in_flight: true,
        answers_every_request: false,
    },
    Abilities {
        client: "p4p",
        has_contexts: true,
        has_scopes: true,
        has_equal_channels: false,
        gets_equal_at_once: true,
        creates_channels: false,
        is_of_pvaccess: true,
        gets_in_flight: false,
        answers_every_request: false,
    },
    Abilities {
        client: "core-pva",
        has_contexts: false,
        has_scopes: false,
        has_equal_channels: true,
        gets_equal_at_once: true,
        creates_channels: true,
        is_of_pvaccess: true,
        gets_in_flight: true,
        answers_every_request: false,
    },
    Abilities {
        client: "repics",
        has_contexts: true,
        has_scopes: false,
        has_equal_channels: true,
        gets_equal_at_once: true,
        creates_channels: true,
        is_of_pvaccess: false,
        gets_in_flight: false,
        answers_every_request: false,
    },
    Abilities {
        client: "repics",
        has_contexts: true,
        has_scopes: true,
        has_equal_channels: false,
        gets_equal_at_once: true,
        creates_channels: false,
        is_of_pvaccess: true,
        gets_in_flight: false,
        answers_every_request: false,
    },
];

/// There is no wheel of repics for Linux on ARM.
const HAS_REPICS: bool = !cfg!(all(target_os = "linux", target_arch = "aarch64"));

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == "lab") {
        return fodo_lab::run(words.into_iter().skip(1));
    }
    if words.first().is_some_and(|word| word == "ioc") {
        return ioc::become_fodo(&words);
    }
    let list = lab(&["list"]).output().expect("this program starts");
    let has_peers = String::from_utf8_lossy(&list.stdout).contains("libca and softIoc of EPICS Base");
    // Elsewhere the peers may be missing; `cargo xtask test` installs them, FODO_PEERS selects others.
    let should_run = has_peers || std::env::var_os("CI").is_some();
    let test = |abilities: &'static Abilities| {
        let name = match abilities.client {
            "repics" if abilities.is_of_pvaccess => "repics over pvAccess",
            client => client,
        };
        (name, move || every_request_is_answered_right_or_refused_in_words(abilities))
    };
    let clients = CLIENTS.iter().filter(|abilities| HAS_REPICS || abilities.client != "repics");
    harness::run(clients.map(test), should_run)
}

fn lab(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.arg("lab").args(words).stdin(Stdio::null());
    command
}

fn every_request_is_answered_right_or_refused_in_words(abilities: &Abilities) {
    if !abilities.is_of_pvaccess {
        return every_request_with(abilities, &["--protocol", "ca"]);
    }
    every_request_with(abilities, &["--protocol", "pva"]);
    // Servers of pvAccess use different parts of the protocol.
    if ioc::has_fodo() {
        every_request_with(abilities, &["--protocol", "pva", "--server", "fodo"]);
    }
}

fn every_request_with(abilities: &Abilities, options: &[&str]) {
    let client = abilities.client;

    let words = ["worker", "try-driver", client, "--n", "20"];
    let output = lab(&[&words[..], options].concat()).output().expect("this program starts");

    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    if client == "fodo-java" && complaint.contains("`cargo xtask java package` builds it") {
        println!("not tested: {client}: {}", complaint.trim());
        return;
    }
    assert!(output.status.success(), "{client}: {complaint}");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let hello = lines.next().expect("a greeting");
    assert_eq!(hello["hello"]["client"], client);
    assert!(hello["hello"]["version"].as_str().is_some_and(|version| version.contains('.')), "{hello}");
    let mut n_answers = 0;
    for exchange in lines {
        assert_eq!(verdict(&exchange["answer"]), expected(&exchange["asked"], abilities), "{client}: {exchange}");
        n_answers += 1;
    }
    let n_more = [
        usize::from(abilities.is_of_pvaccess),
        2 * usize::from(abilities.gets_in_flight),
        2 * usize::from(abilities.answers_every_request),
    ];
    assert_eq!(n_answers, 22 + n_more.iter().sum::<usize>(), "{client}");
}

/// The kind of the answer, including the kind of a failure.
fn verdict(answer: &Value) -> String {
    let (kind, about) = only_member(answer);
    match kind {
        "failed" => format!("failed: {}", only_member(about).0),
        "answered" => format!("answered: {}", about["yes"]),
        _ => kind.to_owned(),
    }
}

fn expected(request: &Value, abilities: &Abilities) -> String {
    let (verb, about) = only_member(request);
    let is_equal = about["variant"] == "equal";
    let can = match verb {
        "open" if about["n_channels"] == 1 || abilities.has_equal_channels => return "opened".into(),
        "open" => false,
        "get_scalars" => return "scalars".into(),
        "move_array" => return "array".into(),
        // Received values are compared with the expected ones, so a PV with a different value must be detected.
        "get_at_once" | "monitor_at_once" | "get_in_flight" if about["pattern"] == "wrong:{:06}" => {
            return "failed: wrong_value".into();
        }
        "context_close" if about["how"] == "scope" && abilities.has_scopes => return "answered: true".into(),
        "context_close" if about["how"] == "explicit" && abilities.has_contexts => return "answered: true".into(),
        "context_close" => false,
        "create_contexts" => abilities.has_contexts || ["pvxs", "spvirit", "core-pva"].contains(&abilities.client),
        "create_channels" if !abilities.creates_channels => false,
        "get_at_once" => !is_equal || abilities.gets_equal_at_once,
        "monitor_at_once" => true,
        _ => !is_equal || abilities.has_equal_channels,
    };
    if can { "timed".into() } else { "failed: operation".into() }
}

fn only_member(object: &Value) -> (&str, &Value) {
    let member = object.as_object().and_then(|members| members.iter().next());
    member.map(|(name, value)| (name.as_str(), value)).expect("an object of one member")
}
