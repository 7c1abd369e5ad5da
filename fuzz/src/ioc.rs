//! Runs a database from an input: starts it, processes records and reads every field.

use fodo_data::{Now, Value};
use fodo_db::{Database, Event, FieldRef, Input, OpenFile, PutId};

use super::files;

/// The number of records processed directly; scans and links reach more.
const RECORDS_MAX: usize = 24;

/// The maximum number of iterations for timers, scans and deferred work.
const TURNS_MAX: usize = 48;

/// The length of the longest text in bytes, that of an lsi or lso.
const TEXT_BYTES_MAX: usize = u16::MAX as usize;

/// Starts the database, processes its records, advances the time, and reads everything.
pub fn play(database: &Database) {
    let mut player = Player { database, now: Now::for_test(), events: Vec::new(), done: Vec::new() };
    let names: Vec<&str> = database.record_names().take(RECORDS_MAX).collect();
    for name in &names {
        database.watch(player.field(name, ""));
    }
    player.give(Input::Start);
    player.turn();
    for (number, name) in (0_u64..).zip(&names) {
        let field = player.field(name, "PROC");
        player.give(Input::Put { field, value: Value::from(1_i32), put: Some(PutId(number)) });
    }
    player.turn();
    for name in &names {
        player.look_at(name);
    }
}

struct Player<'a> {
    database: &'a Database,
    now: Now,
    events: Vec<Event>,
    done: Vec<PutId>,
}

impl Player<'_> {
    fn field(&self, record: &str, field: &str) -> FieldRef {
        let name = format!("{record}.{field}");
        self.database.field(&name).unwrap_or_else(|| unreachable!("{name} has just been named"))
    }

    fn give(&mut self, input: Input) {
        // A put may be rejected; then it does not complete.
        let _ = self.database.handle(input, self.now, &mut self.events);
        for event in self.events.drain(..) {
            if let Event::PutDone { put } | Event::PutRefused { put, .. } = event {
                assert!(!self.done.contains(&put), "a put ends once");
                self.done.push(put);
            }
        }
    }

    fn turn(&mut self) {
        for _ in 0..TURNS_MAX {
            let Some(due) = self.database.deadline() else { return };
            self.now = self.now + due.saturating_duration_since(self.now.monotonic);
            self.give(Input::Tick);
        }
    }

    fn look_at(&mut self, record: &str) {
        let fields: Vec<&str> = self.database.field_names(record).collect();
        for name in fields {
            let field = self.field(record, name);
            let (reading, facts) = (self.database.read(field), self.database.facts(field));
            assert!(reading.value.len() <= facts.count_max.max(1) as usize, "{record}.{name} has too many elements");
            let meta = self.database.meta(field);
            let text = reading.value.first().map(|first| first.to_text(Some(&meta)));
            assert!(text.is_none_or(|text| text.len() <= TEXT_BYTES_MAX), "{record}.{name}");
        }
        assert!(self.database.links(record).len() <= self.database.fields_of_interest(record, 4).len());
    }
}

/// Loads with `load`, and runs the resulting database.
pub fn load_and_play(text: &str, load: impl FnOnce(&mut fodo_db::Loader, &mut OpenFile)) {
    let mut loader = fodo_db::Loader::with_places();
    loader.states().create("on");
    load(&mut loader, &mut files::open(text));
    let _ = loader.warnings();
    loader.disable_invalid_links();
    if let Ok(database) = loader.finish() {
        play(&database);
    }
}
