//! What stands for a record of a type that is not here, where such records are simulated: it has the fields of every
//! record, VAL, and those that its file sets. It keeps what is put to them, and does nothing.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use fodo_data::{Kind, Meta, Reading, Status, Text, Value};

use crate::common::{Common, number};
use crate::field::{ASL0, Dbf, FieldInfo, PP, Slot};
use crate::limit::{INERT_FIELDS_MAX, INERT_TEXT_BYTES};
use crate::link::Target;
use crate::post::{Posts, reading};
use crate::record::{CHANGED, Cell, Fields, Record, RecordType, lock};
use crate::step::{Entry, Outcome, Step};
use crate::turn::Turn;

const VAL: u16 = Common::COUNT;

/// A record of a type that is not here.
#[derive(Clone, Debug)]
struct Inert {
    common: Common,
    kind: &'static RecordType,
    /// VAL, where it is a number.
    number: f64,
    /// VAL, where the file says a text.
    text: Text,
    /// The fields that its file sets, in the order of the rows behind VAL.
    fields: Vec<Text>,
    /// VAL as it was last posted.
    posted: Value,
}

/// A new record of a type of this name.
pub(crate) fn cell(record_type: &str) -> Box<dyn Cell> {
    InertCell::boxed(plain(record_type))
}

impl Fields for Inert {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn slot(&mut self, field: u16) -> Option<Slot<'_>> {
        if let Some(slot) = Common::SLOTS.get(usize::from(field)) {
            return Some(slot(&mut self.common));
        }
        match field - VAL {
            0 if self.kind.has_text() => Some(Slot::String(&mut self.text)),
            0 => Some(Slot::Double(&mut self.number)),
            index => self.fields.get_mut(usize::from(index) - 1).map(Slot::String),
        }
    }

    fn record_type(&self) -> &'static RecordType {
        self.kind
    }
}

impl Record for Inert {
    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        if field == VAL {
            meta.units = self.text_of("EGU").cloned().unwrap_or_default();
            let digits = self.text_of("PREC").and_then(|text| text.to_str().trim().parse().ok());
            meta.precision = digits.unwrap_or(meta.precision);
        }
        None
    }

    fn process(step: &mut Step<'_, '_, Self>) -> Outcome {
        step.stamp(None);
        step.post(Inert::monitor);
        Outcome::Done
    }
}

impl Inert {
    /// A field, if its file sets it.
    fn text_of(&self, name: &str) -> Option<&Text> {
        let index = self.kind.rows.iter().position(|row| row.name == name)?;
        self.fields.get(index.checked_sub(1)?)
    }

    fn monitor(&mut self, posts: &mut Posts) {
        if self.common.undefined != 0 {
            self.common.raise(Status::UDF, self.common.undefined_severity);
        }
        let mut mask = posts.alarms(self);
        let value = if self.kind.has_text() { self.text.clone().into() } else { self.number.into() };
        if value != self.posted {
            self.posted = value;
            mask |= CHANGED;
        }
        if !mask.is_empty() {
            posts.post(self, VAL, mask);
        }
    }
}

/// An inert record behind its lock; its type is that of this one record.
struct InertCell {
    kind: &'static RecordType,
    body: Mutex<Inert>,
}

impl InertCell {
    fn boxed(kind: &'static RecordType) -> Box<dyn Cell> {
        let (common, text, posted) = (Common::default(), Text::EMPTY, Value::from(0.0));
        let body = Inert { common, kind, number: 0.0, text, fields: Vec::new(), posted };
        Box::new(InertCell { kind, body: Mutex::new(body) })
    }
}

impl Cell for InertCell {
    fn record_type(&self) -> &'static RecordType {
        self.kind
    }

    fn visit(&self, visit: &mut dyn FnMut(&mut dyn Record)) {
        visit(&mut *lock(&self.body));
    }

    fn reading(&self, field: u16) -> Reading {
        reading(&mut *lock(&self.body), field)
    }

    fn own_facts(&self, field: u16) -> (Option<(Kind, u32)>, u16) {
        let record = lock(&self.body);
        (record.own_facts(field), record.text_size())
    }

    fn after_put(&self, _field: u16, _posts: &mut Posts) -> Result<(), &'static str> {
        Ok(())
    }

    fn process(&self, turn: &mut Turn<'_>, record: u32, entry: Entry) {
        Step::new(turn, &self.body, record, entry).run(entry);
    }

    fn duplicate(&self) -> Box<dyn Cell> {
        Box::new(InertCell { kind: self.kind, body: Mutex::new(lock(&self.body).clone()) })
    }

    fn grown(&self, field: &str, value: &Text) -> Option<Box<dyn Cell>> {
        let becomes_text = field == "VAL" && !self.kind.has_text() && value.to_str().trim().parse::<f64>().is_err();
        let is_new =
            number(self.kind.rows, field).is_none() && self.kind.rows.len() < INERT_FIELDS_MAX && is_name(field);
        if !becomes_text && !is_new {
            return None;
        }
        let kind = grown(self.kind, field);
        let mut body = Inert { kind, ..lock(&self.body).clone() };
        body.fields.resize(kind.rows.len() - 1, Text::EMPTY);
        Some(Box::new(InertCell { kind, body: Mutex::new(body) }))
    }
}

/// What fields are called.
fn is_name(field: &str) -> bool {
    const BYTES_MAX: usize = 8;
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    field.len() <= BYTES_MAX
        && field.starts_with(|first: char| first.is_ascii_uppercase())
        && field.bytes().all(is_part)
}

impl RecordType {
    /// Whether VAL of an inert record is a text.
    fn has_text(&self) -> bool {
        self.rows.first().is_some_and(|value| value.dbf == Dbf::String)
    }
}

/// The types of inert records. Like the others they are there until the process ends; there are as many as files have
/// sets of fields, which are few beside their records.
#[derive(Default)]
struct Shapes {
    /// With VAL alone, by name.
    plain: HashMap<String, &'static RecordType>,
    /// With one field more than another shape, which is found by its address.
    grown: HashMap<(usize, String), &'static RecordType>,
}

static SHAPES: LazyLock<Mutex<Shapes>> = LazyLock::new(Mutex::default);

fn plain(name: &str) -> &'static RecordType {
    let mut shapes = lock(&SHAPES);
    shapes.plain.entry(name.to_owned()).or_insert_with(|| shape(name.to_owned().leak(), vec![value_row(Dbf::Double)]))
}

/// A type with one more field, or with a text for its VAL.
fn grown(kind: &'static RecordType, field: &str) -> &'static RecordType {
    let mut shapes = lock(&SHAPES);
    let key = (std::ptr::from_ref(kind).addr(), field.to_owned());
    shapes.grown.entry(key).or_insert_with(|| {
        let mut rows = kind.rows.to_vec();
        match rows.first_mut().filter(|_| field == "VAL") {
            Some(value) => *value = value_row(Dbf::String),
            None => rows.push(text_row(field.to_owned().leak(), Dbf::String, 0)),
        }
        shape(kind.name, rows)
    })
}

fn shape(name: &'static str, rows: Vec<FieldInfo>) -> &'static RecordType {
    let create = || cell("");
    Box::leak(Box::new(RecordType { name, rows: rows.leak(), devices: &[], value: VAL, create }))
}

fn value_row(dbf: Dbf) -> FieldInfo {
    text_row("VAL", dbf, ASL0 | PP)
}

fn text_row(name: &'static str, dbf: Dbf, flags: u8) -> FieldInfo {
    let size = if dbf == Dbf::String { INERT_TEXT_BYTES } else { 0 };
    FieldInfo { name, dbf, size, menu: &[], flags }
}
