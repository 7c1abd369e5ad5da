//! What is done with a database that an input made: it starts, processes, and is read in every field.

use fodo_data::{Now, Value};
use fodo_db::{Database, Event, FieldRef, Input, OpenFile, PutId};

use super::files;

/// Records that are processed by hand; what more of them find is found by scans and links.
const RECORDS_MAX: usize = 24;

/// Turns of the crank for timers, scans and what is deferred.
const TURNS_MAX: usize = 48;

/// Bytes of the longest text there is: an lsi or lso may hold as many.
const TEXT_BYTES_MAX: usize = u16::MAX as usize;

/// Starts the database, processes its records, lets time pass, and reads all there is.
pub fn play(database: &Database) {
    let mut player = Player { database, now: Now::for_test(), events: Vec::new(), done: Vec::new() };
    let names: Vec<&str> = database.record_names().take(RECORDS_MAX).collect();
    for name in &names {
        database.watch(player.field(name, ""), true);
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
        // A put may be refused; it is then not complete.
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
            assert!(reading.value.len() <= facts.count_max.max(1) as usize, "{record}.{name} holds what it can hold");
            let meta = self.database.meta(field);
            let text = reading.value.first().map(|first| first.to_text(Some(&meta)));
            assert!(text.is_none_or(|text| text.len() <= TEXT_BYTES_MAX), "{record}.{name}");
        }
        assert!(self.database.links(record).len() <= self.database.fields_of_interest(record, 4).len());
    }
}

/// Loads with what `load` does, and plays what comes of it.
pub fn load_and_play(text: &str, load: impl FnOnce(&mut fodo_db::Loader, &mut OpenFile)) {
    let mut loader = fodo_db::Loader::that_keeps_places();
    loader.states().create("on");
    load(&mut loader, &mut files::open(text));
    let _ = loader.remarks();
    loader.leave_misfits_out();
    if let Ok(database) = loader.finish() {
        play(&database);
    }
}
