//! Groups of PVs: in a JSON file, and in an info item of a record. What is loaded can be resolved; what is not has errors
//! with their places.
//!
//! A file follows the first line `%%`; what precedes it is the value of `info(Q:group, ...)` of a record.

use std::collections::HashSet;

use fodo_db::{GroupDefinitions, LoadError, Loader};
use fodo_ioc::shell::check_groups;

/// Records to which the channels of an input may refer.
const RECORDS: &str = "record(ai, a) {}\nrecord(mbbo, m) {}\nrecord(waveform, w) { field(FTVL, SHORT) field(NELM, 4) }\n\
    record(stringout, s) {}\nrecord(lso, l) {}\nrecord(waveform, t) { field(FTVL, CHAR) field(NELM, 9) info(Q:form, String) }\n";

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (info, file) = text.split_once("%%").unwrap_or(("", &text));
    let mut loader = Loader::with_places();
    let records = format!("{RECORDS}record(calc, c) {{ info(Q:group, {info}) }}\n");
    let mut errors = loader.load("records", "P=a,N=2", &mut |_| Ok(records.clone().into())).err().unwrap_or_default();
    let loaded = loader.load_groups("groups", "P=a,N=2", &mut |_| Ok(file.as_bytes().to_vec()));
    errors.extend(loaded.err().unwrap_or_default());

    let definitions = loader.take_groups();
    check(&definitions);
    errors.extend(definitions.errors.iter().cloned());
    loader.disable_invalid_links();
    let missing: HashSet<String> = loader.omitted_records().clone();
    if let Ok(database) = loader.finish() {
        errors.extend(check_groups(&database, definitions, &missing));
    }
    let is_placed = |error: &LoadError| !error.message.is_empty() && !error.file.is_empty();
    assert!(errors.iter().all(is_placed), "{errors:?}");
}

/// Members are in order, each once, and trigger members that have a channel.
fn check(definitions: &GroupDefinitions) {
    for group in &definitions.groups {
        assert!(!group.name.is_empty());
        let key = |index: usize| {
            let member = &group.members[index];
            (member.put_order.unwrap_or(i64::MIN), member.path.to_string())
        };
        assert!((1..group.members.len()).all(|index| key(index - 1) < key(index)), "{group:?}");
        for member in &group.members {
            assert!(member.triggers.iter().all(|index| !group.members[*index].channel.is_empty()), "{group:?}");
        }
    }
}
