//! Access security files: a loaded file grants rights, and reports when rights may have changed.
//!
//! Included files follow lines `%%NAME`.

use fodo_db::AccessInputState::{Invalid, Unknown, Value};
use fodo_db::{AccessClient, AccessDecision, AccessFile, AccessInput, AccessInputState, AccessLevel, Security};

use super::files;

/// The groups, users and hosts for which rights are queried.
const GROUPS: [&str; 4] = ["DEFAULT", "A", "READONLY", "none"];
const USERS: [&str; 3] = ["me", "operator", ""];
const HOSTS: [&str; 3] = ["here", "CONSOLE", "10.0.0.1"];

/// The values of inputs, in sequence.
const VALUES: [AccessInputState; 6] = [Value(0.0), Value(1.0), Unknown, Value(f64::NAN), Invalid, Value(-3.5)];

/// The maximum number of inputs changed; a file may have thousands, all alike.
const INPUTS_MAX: usize = 32;

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut file = match AccessFile::load("main", "P=X:,N=2", &mut files::open(&text)) {
        Ok(file) => file,
        Err(errors) => {
            assert!(!errors.is_empty());
            assert!(errors.iter().all(|error| !error.message.is_empty() && !error.to_string().is_empty()));
            return;
        }
    };
    file.resolve_hosts(&mut |host| (host.len() % 2 == 0).then(|| "10.0.0.1".to_owned()));
    assert!(file.warnings().iter().all(|warning| !warning.is_empty()));
    let mut security = Security::new(file);
    let inputs: Vec<AccessInput> = security.inputs().take(INPUTS_MAX).map(|(input, _)| input).collect();
    for value in VALUES {
        for input in &inputs {
            let before = answers(&security);
            let may_differ = security.set_input(*input, value);
            assert!(may_differ || answers(&security) == before, "rights changed without being reported");
        }
    }
    answers(&security);
}

fn answers(security: &Security) -> Vec<AccessDecision> {
    let levels = [AccessLevel::Asl0, AccessLevel::Asl1];
    let mut found = Vec::new();
    for (group, user) in GROUPS.iter().flat_map(|group| USERS.iter().map(move |user| (group, user))) {
        for (host, level) in HOSTS.iter().flat_map(|host| levels.iter().map(move |level| (host, level))) {
            let client = AccessClient { user, host, ..AccessClient::default() };
            found.push(security.decide(group, *level, &client));
        }
    }
    found
}
