//! Channel names and link texts as a hostile client would write them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use fastrand::Rng;
use fodo_data::{EventMask, Now, Value};
use fodo_db::{Database, FilterChain, Input, Loader, PutError};

const RECORDS: &str = r#"
record(waveform, "wave") { field(FTVL, "LONG") field(NELM, "8") field(INP, "[1,2,3,4,5]") }
record(ai, "ai") { field(INP, "3") }
record(stringin, "text") { field(INP, "{const:'words'}") }
"#;

/// The parts that are combined and mutated.
const PARTS: &[&str] = &[
    ".",
    "$",
    "[1]",
    "[-3:2:-1]",
    "[::",
    "[2147483647:2:-2147483648]",
    "{",
    "}",
    "{arr:{s:-2147483648,i:2147483647,e:2147483647}}",
    "{dbnd:{abs:NaN}}",
    "{\"dbnd\":{\"rel\":-Infinity}}",
    "{dec:{n:2147483647}}",
    "{ts:{num:'ts',epoch:'unix'}}",
    "{ts:{str:'iso'}}",
    "{ts:{}}",
    "{utag:{M:-1,V:-1}}",
    "{sync:{while:'on'}}",
    "{sync:{m:'before',s:'on'}}",
    ":",
    ",",
    "'",
    "\"",
    "\\u0000",
    "\\",
    "/*",
    "//",
    "\u{e9}",
    "0x8000000000000000",
    "-9223372036854775809",
    "1e999",
    " ",
    "{const:",
    "{state:'on'}",
    "{calc:{expr:'A/0',args:[",
    "{calc:{expr:'A',args:{state:'!on'},major:'VAL'}}",
    "]}}",
    "null",
];

/// Concatenates some parts, and sometimes drops or duplicates a character.
fn text(random: &mut Rng) -> String {
    let mut text = String::new();
    for _ in 0..=random.usize(..5) {
        text.push_str(PARTS[random.usize(..PARTS.len())]);
    }
    let mut characters: Vec<char> = text.chars().collect();
    let at = random.usize(..characters.len());
    match random.u8(..4) {
        0 => drop(characters.remove(at)),
        1 => characters.insert(at, characters[at]),
        _ => {}
    }
    characters.into_iter().collect()
}

fn database() -> Database {
    let mut loader = Loader::default();
    loader.states().create("on");
    loader.load("hostile.db", "", &mut |_| Ok(RECORDS.as_bytes().to_vec())).unwrap();
    loader.finish().unwrap()
}

#[test]
fn every_channel_name_opens_a_working_channel_or_returns_an_error() {
    let database = database();
    let (mut random, mut n_filtered, mut n_refused) = (Rng::with_seed(1), 0, 0);

    for _ in 0..100_000 {
        let field = ["wave.", "wave.VAL", "ai.", "text.DESC", "text.DESC$"][random.usize(..5)];
        let name = format!("{field}{}", text(&mut random));
        match database.channel(&name) {
            Ok(channel) => {
                n_filtered += usize::from(!channel.filters.is_empty());
                let mut facts = database.facts(channel.field);
                let mut chain = FilterChain::new(channel.filters, &mut facts);
                let moment = database.filter_context(channel.field, Now::for_test().wall);
                let read = chain.read(database.read(channel.field), &moment);
                assert!(read.value.len() <= facts.count_max as usize, "{name}");
                for _ in 0..3 {
                    chain.update(EventMask::VALUE, database.read(channel.field), &moment);
                }
            }
            Err(error) => n_refused += usize::from(!format!("{error:?}").is_empty()),
        }
    }

    assert!(n_filtered > 1000 && n_refused > 1000, "{n_filtered} {n_refused}");
}

#[test]
fn random_puts_to_a_link_field_never_prevent_record_processing() {
    let database = database();
    let (link, process) = (database.field("ai.INP").unwrap(), database.field("ai.PROC").unwrap());
    let mut events = Vec::new();
    let mut put = |field, value| database.handle(Input::Put { field, value, put: None }, Now::for_test(), &mut events);
    let (mut random, mut n_taken) = (Rng::with_seed(2), 0);

    for _ in 0..20_000 {
        n_taken += usize::from(put(link, Value::from(text(&mut random).as_str())).is_ok());
        let done = put(process, Value::from(1_i32));
        assert!(matches!(done, Ok(()) | Err(PutError::ProcessingFailed)), "{done:?}");
    }

    assert!(n_taken > 1000, "{n_taken}");
}
