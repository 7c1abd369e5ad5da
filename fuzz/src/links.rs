//! Texts of links, and channel names with filters.
//!
//! The input is lines: `FIELD=TEXT` writes a text to a link and processes; any other line is a channel name.

use fodo_data::{EventMask, Now, Reading, Value};
use fodo_db::{Database, Event, ExternalPvEvent, ExternalPvFacts, FilterChain, Input, Loader};

const RECORDS: &str = r#"
record(waveform, "wave") { field(FTVL, "LONG") field(NELM, "8") field(INP, "[1,2,3,4,5]") }
record(waveform, "words") { field(FTVL, "STRING") field(NELM, "4") }
record(ai, "ai") { field(INP, "3") field(SIML, "wave") field(SIOL, "ao") field(FLNK, "calc") }
record(ao, "ao") { field(OMSL, "closed_loop") field(OUT, "wave PP") }
record(calc, "calc") { field(CALC, "A+B") }
record(dfanout, "spread") {}
record(stringin, "text") { field(INP, "{const:'words'}") }
"#;

/// The maximum number of lines. With links in a loop, each line causes several thousand rounds of processing.
const LINES_MAX: usize = 20;

/// The records that have the links and are processed.
const PROCESSED: [&str; 7] = ["wave", "words", "ai", "ao", "calc", "spread", "text"];

/// Processes one input.
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
                connect(&database, text, &mut events);
                process(&database, &mut events);
            }
            _ => read(&database, line),
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

/// Connects the links that were opened last; the PV of each has this text.
fn connect(database: &Database, text: &str, events: &mut Vec<Event>) {
    let added = events.iter().filter_map(|event| match event {
        Event::ExternalLinkAdded { link, .. } => Some(*link),
        _ => None,
    });
    let value = Value::from(text);
    let facts = ExternalPvFacts { kind: value.kind(), count_max: 1, may_read: true, may_write: true };
    let changes = added.flat_map(|link| {
        let update = ExternalPvEvent::Updated(Reading::bare(value.clone()));
        [(link, ExternalPvEvent::Connected(facts)), (link, update)]
    });
    let changes = changes.collect();
    events.clear();
    give(database, Input::ExternalPvs { events: changes }, events);
}

fn give(database: &Database, input: Input, events: &mut Vec<Event>) {
    // A text that is not a valid link for this field is rejected.
    let _ = database.handle(input, Now::for_test(), events);
    events.retain(|event| matches!(event, Event::ExternalLinkAdded { .. }));
}

/// A channel name works, or is rejected with a position in the name.
fn read(database: &Database, name: &str) {
    let channel = match database.channel(name) {
        Ok(channel) => channel,
        Err(fodo_db::ChannelError::Filter(error)) => {
            assert!(error.at <= name.len() && !error.to_string().is_empty());
            return;
        }
        Err(_) => return,
    };
    assert!(database.has_channel(name), "the database claims the name of every channel");
    let mut facts = database.facts(channel.field);
    let mut chain = FilterChain::new(channel.filters, &mut facts);
    let moment = database.filter_context(channel.field, Now::for_test().wall);
    let read = chain.read(database.read(channel.field), &moment);
    assert!(read.value.len() <= facts.count_max as usize, "a filter does not make a value longer");
    for mask in [EventMask::VALUE, EventMask::LOG, EventMask::PROPERTY] {
        chain.update(mask, database.read(channel.field), &moment);
    }
}
