//! Save files and request files of autosave: the contents of a save file must survive writing and reading again, and
//! records accept the values they support.
//!
//! The first byte selects the kind of file. A request file may include the part after the byte 255 as `b` and `c`.

use fodo_data::Value;
use fodo_db::{Loader, Macros};
use fodo_ioc::autosave::format::{self, Content, SavedValue};
use fodo_ioc::autosave::request;

const RECORDS: &[u8] = b"record(ao, a) {}\nrecord(calcout, c) {}\nrecord(mbbo, m) {}\nrecord(waveform, w) {}\n\
    record(stringout, s) {}\nrecord(lso, l) {}\nrecord(printf, p) {}\nrecord(transform, t) {}";

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    match which % 3 {
        0 => feed_saved(rest, None),
        1 => feed_saved(rest, Macros::parse("P=a,Q=\"b c\",R=$(P)$(P)").ok().as_ref()),
        _ => feed_request(rest),
    }
}

fn feed_saved(bytes: &[u8], macros: Option<&Macros>) {
    let Ok(mut saved) = format::read(bytes, macros) else { return };
    // A long string is not an array.
    saved.values.retain(|saved| !(saved.pv.ends_with('$') && matches!(saved.value, Content::Array(_))));
    let mut again = format::header("261121-160000") + &format::missing_line(saved.n_missing);
    for SavedValue { pv, value, .. } in &saved.values {
        again += &match value {
            Content::Scalar(text) => format::value_line(pv, &Value::from(text.clone())),
            Content::Array(texts) => format::value_line(pv, &Value::from(texts.clone())),
        };
    }
    again += format::LAST_LINE;
    let twice = format::read(again.as_bytes(), None).expect("a written file is complete");
    assert_eq!((twice.n_missing, twice.flaws.len()), (saved.n_missing, 0));
    let values = |saved: Vec<SavedValue>| -> Vec<(String, Content)> {
        saved.into_iter().map(|SavedValue { pv, value, .. }| (pv, value)).collect()
    };
    let (saved, twice) = (values(saved.values), values(twice.values));
    assert_eq!(twice, saved);

    let mut loader = Loader::default();
    loader.load("a.db", "", &mut |_| Ok(RECORDS.to_vec())).expect("the records are valid");
    for (pv, value) in saved {
        if let Content::Scalar(text) = value {
            // Expected to fail for most names and texts, which do not fit these records.
            let _ = loader.restore(&pv, &text);
        }
    }
    // Device addresses are checked here; they may be invalid in an input.
    let _ = loader.finish();
}

fn feed_request(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\xff');
    let (outer, inner) = (parts.next().unwrap_or_default(), parts.next());
    let mut open = |name: &str| match (name, inner) {
        ("outer.req", _) => Ok(outer.to_vec()),
        ("b" | "c", Some(inner)) => Ok(inner.to_vec()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    let macros = Macros::parse("P=x:").expect("the macros are valid");
    let request = request::read("outer.req", &macros, &mut open).expect("the outer file exists");
    for requested in &request.pvs {
        assert!(!requested.pv.is_empty() && !requested.pv.contains(char::is_whitespace));
        assert!(requested.at.line > 0);
    }
    assert!(request.errors.iter().all(|error| error.line > 0 && !error.to_string().is_empty()));
}
