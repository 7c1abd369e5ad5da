//! Texts of links, and names of channels with filters.
//!
//! The input is lines: `FIELD=TEXT` puts a text to a link and processes, anything else is the name of a channel.

use fodo_data::{EventMask, Now, Value};
use fodo_db::{Chain, Database, Event, Input, Loader};

const RECORDS: &str = r#"
record(waveform, "wave") { field(FTVL, "LONG") field(NELM, "8") field(INP, "[1,2,3,4,5]") }
record(waveform, "words") { field(FTVL, "STRING") field(NELM, "4") }
record(ai, "ai") { field(INP, "3") field(SIML, "wave") field(SIOL, "ao") field(FLNK, "calc") }
record(ao, "ao") { field(OMSL, "closed_loop") field(OUT, "wave PP") }
record(calc, "calc") { field(CALC, "A+B") }
record(dfanout, "spread") {}
record(stringin, "text") { field(INP, "{const:'words'}") }
"#;

/// Lines of one input. Links in a circle make each of them some thousand rounds of processing.
const LINES_MAX: usize = 20;

/// Records and links that are put to.
const PROCESSED: [&str; 7] = ["wave", "words", "ai", "ao", "calc", "spread", "text"];

/// Feeds one input.
pub fn feed(bytes: &[u8]) {
    let mut loader = Loader::default();
    loader.states().create("on");
    let loaded = loader.load("links.db", "", &mut |_| Ok(RECORDS.as_bytes().to_vec()));
    assert_eq!(loaded, Ok(()));
    let Ok(database) = loader.finish() else { unreachable!("these records load") };
    let mut events = Vec::new();
    give(&database, Input::Start, &mut events);
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines().take(LINES_MAX) {
        match line.split_once('=').map(|(field, text)| (database.field(field), text)) {
            Some((Some(field), text)) => {
                give(&database, Input::Put { field, value: Value::characters(text), put: None }, &mut events);
                process(&database, &mut events);
            }
            _ => ask(&database, line),
        }
    }
}

fn process(database: &Database, events: &mut Vec<Event>) {
    for record in PROCESSED {
        if let Some(field) = database.field(&format!("{record}.PROC")) {
            give(database, Input::Put { field, value: Value::from(1_i32), put: None }, events);
        }
    }
}

fn give(database: &Database, input: Input, events: &mut Vec<Event>) {
    // A text that is no link of this field is refused.
    let _ = database.handle(input, Now::for_test(), events);
    events.clear();
}

/// What a name says works, or it is refused with a place in the name.
fn ask(database: &Database, name: &str) {
    let channel = match database.channel(name) {
        Ok(channel) => channel,
        Err(fodo_db::ChannelError::Filter(error)) => {
            assert!(error.at <= name.len() && !error.to_string().is_empty());
            return;
        }
        Err(_) => return,
    };
    assert!(database.claims(name), "who has a channel answers to its name");
    let mut facts = database.facts(channel.field);
    let mut chain = Chain::new(channel.filters, &mut facts);
    let moment = database.moment(channel.field, Now::for_test().wall);
    let read = chain.read(database.read(channel.field), &moment);
    assert!(read.value.len() <= facts.count_max as usize, "a filter makes nothing longer");
    for mask in [EventMask::VALUE, EventMask::LOG, EventMask::PROPERTY] {
        chain.update(mask, database.read(channel.field), &moment);
    }
}
