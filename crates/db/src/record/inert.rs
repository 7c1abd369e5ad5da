//! Stand-in for a record of a type that Fodo does not implement. With a table of its type, it has the fields of that
//! table; otherwise the common fields, VAL, and those that its file sets, as texts. It stores what is put, and does
//! nothing else.

use std::collections::HashMap;
use std::sync::LazyLock;

use fodo_data::{Array, Kind, Limits, Meta, Reading, Scalar, Text, Value};
use fodo_lock::Mutex;

use crate::common::{Common, number, row};
use crate::field::{ASL0, Dbf, FieldInfo, INTEREST0, PP, Slot};
use crate::limit::{ELEMENTS_MAX, INERT_FIELDS_MAX, INERT_TEXT_BYTES};
use crate::link::{Link, Target};
use crate::process::engine::EngineCall;
use crate::process::post::{RecordPosts, reading};
use crate::process::step::{ProcessCause, ProcessOutcome, Step};
use crate::record::array::kind_of;
use crate::record::field_table::{ArrayOf, CapacityOf, FieldTable, KindOf, table};
use crate::record::{Fields, LockedRecord, Record, RecordType, changes, locked, post_value, raise_undefined};
use crate::reference::KindAndCount;

macro_rules! field_values {
    ($($dbf:ident $rust:ty;)*) => {
        /// A field of an inert record.
        #[derive(Clone, Debug)]
        pub(super) enum FieldValue {
            $($dbf($rust),)*
            Array(Array),
        }

        impl FieldValue {
            /// An empty field.
            pub(super) fn new(dbf: Dbf) -> FieldValue {
                match dbf {
                    $(Dbf::$dbf => FieldValue::$dbf(Default::default()),)*
                    Dbf::Array => FieldValue::Array(Array::empty(Kind::F64)),
                }
            }

            pub(super) fn slot(&mut self) -> Slot<'_> {
                match self {
                    $(FieldValue::$dbf(field) => Slot::$dbf(field),)*
                    FieldValue::Array(field) => Slot::Array(field),
                }
            }
        }
    };
}

field_values! {
    String Text; Char i8; UChar u8; Short i16; UShort u16; Long i32; ULong u32; Int64 i64; UInt64 u64; Float f32;
    Double f64; Enum u16; Menu u16; Device u16; InLink Link; OutLink Link; FwdLink Link;
}

/// A record of a type that Fodo does not implement.
#[derive(Clone, Debug)]
struct StandInRecord {
    common: Common,
    stand_in: &'static StandInType,
    /// The fields, in the order of the rows.
    fields: Vec<FieldValue>,
    /// VAL as last posted.
    posted: Option<Value>,
}

/// The type of an inert record.
#[derive(Debug)]
struct StandInType {
    record_type: RecordType,
    /// The fields of a new record.
    fields: Vec<FieldValue>,
    arrays: Vec<(usize, ArrayOf)>,
    /// Whether its fields come from a table, so that a file cannot add any.
    has_table: bool,
}

/// Creates a record of the type with this name.
pub(crate) fn cell(record_type: &str) -> Box<dyn LockedRecord> {
    let stand_in = plain(record_type);
    let fields = stand_in.fields.clone();
    let mut body = StandInRecord { common: Common::default(), stand_in, fields, posted: None };
    body.fit_arrays();
    body.posted = body.value();
    Box::new(LockedStandIn { stand_in, body: locked(body) })
}

impl Fields for StandInRecord {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn slot(&mut self, field: u16) -> Option<Slot<'_>> {
        if let Some(slot) = Common::SLOTS.get(usize::from(field)) {
            return Some(slot(&mut self.common));
        }
        self.fields.get_mut(usize::from(field - Common::COUNT)).map(FieldValue::slot)
    }

    fn record_type(&self) -> &'static RecordType {
        &self.stand_in.record_type
    }
}

impl Record for StandInRecord {
    fn init(&mut self) {
        self.fit_arrays();
        self.posted = self.value();
    }

    fn meta(&mut self, field: u16, meta: &mut Meta) -> Option<Target> {
        let row = row(self.stand_in.record_type.rows, field)?;
        crate::meta::ranges(row, meta);
        if let Some(digits) = self.number("PREC").filter(|_| matches!(row.dbf, Dbf::Float | Dbf::Double)) {
            meta.precision = crate::meta::precision(row, digits as i16);
        }
        if !matches!(row.dbf, Dbf::String | Dbf::Menu)
            && let Some(Value::Scalar(Scalar::Text(units))) = self.field("EGU")
        {
            meta.units = units;
        }
        if field == self.stand_in.record_type.value
            && let (Some(low), Some(high)) = (self.number("LOPR"), self.number("HOPR"))
        {
            meta.display = Limits { low, high };
            meta.control = meta.display;
        }
        None
    }

    fn own_kind_and_count(&self, field: u16) -> Option<KindAndCount> {
        let index = usize::from(field.checked_sub(Common::COUNT)?);
        let (_, array) = self.stand_in.arrays.iter().find(|(of, _)| *of == index)?;
        Some(self.array_facts(*array))
    }

    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome {
        step.stamp(None);
        step.post(StandInRecord::monitor);
        ProcessOutcome::Done
    }
}

impl StandInRecord {
    /// The value of a field; `None` if the record does not have it.
    fn field(&self, name: &str) -> Option<Value> {
        let index = self.stand_in.record_type.rows.iter().position(|row| row.name == name)?;
        self.fields.get(index).map(|field| field.clone().slot().value())
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.field(name)?.first()?.to_f64().ok()
    }

    fn value(&mut self) -> Option<Value> {
        self.slot(self.stand_in.record_type.value).map(|slot| slot.value())
    }

    fn array_facts(&self, array: ArrayOf) -> KindAndCount {
        let number = |index: usize| {
            let value = self.fields.get(index).and_then(|field| field.clone().slot().value().first());
            value.and_then(|scalar| scalar.to_f64().ok()).unwrap_or_default()
        };
        let kind = match array.kind {
            KindOf::Fixed(kind) => kind,
            KindOf::Row(index) => kind_of(number(index) as u16),
        };
        let capacity = match array.capacity {
            CapacityOf::Fixed(capacity) => capacity,
            CapacityOf::Row(index) => number(index) as u32,
        };
        KindAndCount { kind, count_max: capacity.clamp(1, ELEMENTS_MAX) }
    }

    /// Makes the arrays empty and of their own kind, before any value is put to them.
    fn fit_arrays(&mut self) {
        for (index, array) in &self.stand_in.arrays {
            let kind = self.array_facts(*array).kind;
            if let Some(FieldValue::Array(array)) = self.fields.get_mut(*index) {
                *array = Array::empty(kind);
            }
        }
    }

    fn monitor(&mut self, posts: &mut RecordPosts) {
        raise_undefined(&mut self.common);
        let value = self.value();
        let changes = changes(&mut self.posted, &value);
        post_value(self, changes, posts);
    }
}

/// An inert record behind its lock.
struct LockedStandIn {
    stand_in: &'static StandInType,
    body: Mutex<StandInRecord>,
}

impl LockedRecord for LockedStandIn {
    fn record_type(&self) -> &'static RecordType {
        &self.stand_in.record_type
    }

    fn with_locked(&self, visit: &mut dyn FnMut(&mut dyn Record)) {
        visit(&mut *self.body.lock());
    }

    fn reading(&self, field: u16) -> Reading {
        reading(&mut *self.body.lock(), field)
    }

    fn own_kind_and_count(&self, field: u16) -> (Option<KindAndCount>, u16) {
        let record = self.body.lock();
        (record.own_kind_and_count(field), record.text_size())
    }

    fn after_put(&self, _field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str> {
        Ok(())
    }

    fn process(&self, call: &mut EngineCall<'_>, record: u32, cause: ProcessCause) {
        Step::new(call, &self.body, record, cause).run(cause);
    }

    fn duplicate(&self) -> Box<dyn LockedRecord> {
        Box::new(LockedStandIn { stand_in: self.stand_in, body: locked(self.body.lock().clone()) })
    }

    fn with_field(&self, field: &str, value: &Text) -> Option<Box<dyn LockedRecord>> {
        let rows = self.stand_in.record_type.rows;
        let becomes_text = field == "VAL" && !self.stand_in.has_text() && value.to_str().trim().parse::<f64>().is_err();
        let is_new = number(rows, field).is_none() && rows.len() < INERT_FIELDS_MAX && is_name(field);
        if self.stand_in.has_table || !becomes_text && !is_new {
            return None;
        }
        let stand_in = type_with_field(self.stand_in, field);
        let mut body = StandInRecord { stand_in, ..self.body.lock().clone() };
        match body.fields.first_mut().filter(|_| becomes_text) {
            Some(value) => *value = FieldValue::new(Dbf::String),
            None => body.fields.push(FieldValue::new(Dbf::String)),
        }
        Some(Box::new(LockedStandIn { stand_in, body: locked(body) }))
    }
}

/// Whether a text is a valid field name.
fn is_name(field: &str) -> bool {
    const BYTES_MAX: usize = 8;
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    field.len() <= BYTES_MAX
        && field.starts_with(|first: char| first.is_ascii_uppercase())
        && field.bytes().all(is_part)
}

impl StandInType {
    /// Whether VAL is a text.
    fn has_text(&self) -> bool {
        self.record_type.rows.first().is_some_and(|value| value.dbf == Dbf::String)
    }
}

/// The types of inert records. Like all record types, they live until the process ends. There is one for each set of
/// fields that occurs in the files, far fewer than records.
#[derive(Default)]
struct StandInTypes {
    /// With the fields of a table or with VAL only, by type name.
    plain: HashMap<String, &'static StandInType>,
    /// With one field more than another type, by the address of that type and the name of the field.
    extended: HashMap<(usize, String), &'static StandInType>,
}

static STAND_IN_TYPES: LazyLock<Mutex<StandInTypes>> = LazyLock::new(Mutex::default);

fn plain(name: &str) -> &'static StandInType {
    let mut types = STAND_IN_TYPES.lock();
    types.plain.entry(name.to_owned()).or_insert_with(|| {
        let of_table = table(name);
        let has_table = of_table.is_some();
        let table = of_table.unwrap_or_else(|| FieldTable {
            rows: vec![value_row(Dbf::Double)],
            values: vec![FieldValue::new(Dbf::Double)],
            arrays: Vec::new(),
        });
        stand_in_type(name.to_owned().leak(), table, has_table)
    })
}

/// A type with one more field, or with a text as VAL.
fn type_with_field(of: &'static StandInType, field: &str) -> &'static StandInType {
    let mut types = STAND_IN_TYPES.lock();
    let key = (std::ptr::from_ref(of).addr(), field.to_owned());
    types.extended.entry(key).or_insert_with(|| {
        let mut table =
            FieldTable { rows: of.record_type.rows.to_vec(), values: of.fields.clone(), arrays: Vec::new() };
        match table.rows.first_mut().filter(|_| field == "VAL") {
            Some(value) => *value = value_row(Dbf::String),
            None => {
                table.rows.push(text_row(field.to_owned().leak(), Dbf::String, 0));
                table.values.push(FieldValue::new(Dbf::String));
            }
        }
        stand_in_type(of.record_type.name, table, false)
    })
}

fn stand_in_type(name: &'static str, table: FieldTable, has_table: bool) -> &'static StandInType {
    let FieldTable { rows, values: fields, arrays } = table;
    let value = rows.iter().position(|row| row.name == "VAL").unwrap_or_default() as u16;
    let create = || cell("");
    let record_type = RecordType { name, rows: rows.leak(), devices: &[], value: Common::COUNT + value, create };
    Box::leak(Box::new(StandInType { record_type, fields, arrays, has_table }))
}

fn value_row(dbf: Dbf) -> FieldInfo {
    text_row("VAL", dbf, ASL0 | PP | INTEREST0)
}

fn text_row(name: &'static str, dbf: Dbf, flags: u32) -> FieldInfo {
    let size = if dbf == Dbf::String { INERT_TEXT_BYTES } else { 0 };
    FieldInfo { name, dbf, size, menu: &[], flags }
}
