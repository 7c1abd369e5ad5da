//! Records, fields, links, scans, alarms, calc and `.db` files. No network, no IO, no clock.
//!
//! [`Database`] is a machine: puts and the time go in, posts and completions come out.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use fodo_data::{ConvertError, EventMask, Kind, Meta, Now, Reading, Value};

/// Reads what `include` names and what is loaded by name: the bytes of a file.
pub type OpenFile<'a> = dyn FnMut(&str) -> std::io::Result<Vec<u8>> + 'a;

/// What is wrong in a database file, and where. `Display` names file, line, column and what was expected.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadError {}

/// Collects records from files; nothing runs yet.
#[derive(Debug, Default)]
pub struct Loader {}

impl Loader {
    /// Loads one `.db` file. `macros`: `"P=X:,R=1"`. All of the file is taken or nothing.
    pub fn load(&mut self, file: &str, macros: &str, open: &mut OpenFile) -> Result<(), Vec<LoadError>> {
        let _ = (file, macros, open);
        todo!()
    }

    /// Joins links and scan lists.
    pub fn finish(self) -> Result<Database, Vec<LoadError>> {
        todo!()
    }
}

/// One field of one record; small, for ever valid in its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldRef {
    record: u32,
    field: u16,
}

/// What a client is told of a field when it connects.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The kind of an element; menus and devices count as enums, links as texts.
    pub kind: Kind,
    /// How many elements it can hold.
    pub count_max: u32,
    /// Whether a put is refused whatever it says.
    pub is_read_only: bool,
    /// The record's type, as `DBR_CLASS_NAME` gives it.
    pub record_type: &'static str,
}

/// The number of a put that wants to know when its processing is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PutId(pub u64);

/// What goes in.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The IOC starts: initial values, PINI.
    Start,
    /// Time has passed; see [`Database::deadline`].
    Tick,
    /// Somebody writes a field. `put`: completion is told by [`Event::PutDone`].
    Put { field: FieldRef, value: Value, put: Option<PutId> },
    /// Alarm acknowledgement (ACKT, ACKS).
    Acknowledge { field: FieldRef, transient: Option<bool>, severity: Option<fodo_data::Severity> },
}

/// What comes out.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A watched field changed.
    Posted { field: FieldRef, mask: EventMask, reading: Reading },
    /// All processing that the put began has ended.
    PutDone { put: PutId },
}

/// Why a put was refused; nothing was changed.
#[derive(Clone, Debug, PartialEq)]
pub enum PutError {
    /// The field may not be written.
    ReadOnly,
    /// The record's DISP forbids puts.
    Disabled,
    /// The value cannot become the field's kind.
    Convert(ConvertError),
    /// The record says no, in words.
    Rejected(&'static str),
}

/// A running database. Shared by threads: reads take a small lock per record, processing one lock.
#[derive(Debug)]
pub struct Database {}

impl Database {
    /// The field a channel name means: `rec`, `rec.`, `rec.FIELD`, `rec.FIELD$` (long string).
    pub fn field(&self, name: &str) -> Option<FieldRef> {
        let _ = name;
        todo!()
    }

    /// The name of every record, in the order of loading.
    pub fn record_names(&self) -> impl Iterator<Item = &str> {
        std::iter::empty()
    }

    /// What a client is told of the field.
    pub fn facts(&self, field: FieldRef) -> Facts {
        let _ = field;
        todo!()
    }

    /// Value, alarm and time of a field as they are now; takes the record's small lock only.
    pub fn read(&self, field: FieldRef) -> Reading {
        let _ = field;
        todo!()
    }

    /// Units, limits, labels and acknowledge state of a field.
    pub fn meta(&self, field: FieldRef) -> Arc<Meta> {
        let _ = field;
        todo!()
    }

    /// From now on changes of the field are posted, or no longer.
    pub fn watch(&self, field: FieldRef, is_watched: bool) {
        let _ = (field, is_watched);
        todo!()
    }

    /// Turns the crank. The caller delivers `out` before it calls again, in order; one thread at a
    /// time is inside (the caller holds its own lock around call and delivery).
    pub fn handle(&self, input: Input, now: Now, out: &mut Vec<Event>) -> Result<(), PutError> {
        let _ = (input, now, out);
        todo!()
    }

    /// The latest moment to call with [`Input::Tick`].
    pub fn deadline(&self) -> Option<Instant> {
        todo!()
    }
}
