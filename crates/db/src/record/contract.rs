//! What every record type provides to the rest of the database, and the macro that connects a table of fields with it.

use std::fmt;
use std::sync::Arc;

use fodo_data::{EventMask, Meta, Reading, Status, Text, TimeStamp};
use fodo_lock::{Mutex, Rank};

use crate::calc::CalcError;
use crate::common::Common;
use crate::field::{DEVICE, Dbf, FieldInfo, PLAIN, Slot};
use crate::link::{Link, Target};
use crate::process::engine::EngineCall;
use crate::process::post::{RecordPosts, reading};
use crate::process::step::{ProcessCause, ProcessOutcome, Step};
use crate::reference::{KindAndCount, LONG_STRING};
use crate::routine::Routines;

/// What all records of a type share.
pub(crate) struct RecordType {
    pub(crate) name: &'static str,
    /// The fields of this type; the common fields precede them.
    pub(crate) rows: &'static [FieldInfo],
    /// The choices of DTYP.
    pub(crate) devices: &'static [&'static str],
    /// The number of the field VAL.
    pub(crate) value: u16,
    pub(crate) create: fn() -> Box<dyn LockedRecord>,
}

impl RecordType {
    /// The number of the first field of this type with an attribute.
    pub(crate) fn field_with(&self, attribute: u32) -> Option<u16> {
        let index = self.rows.iter().position(|row| row.has(attribute))?;
        Some(Common::COUNT + index as u16)
    }

    /// Whether the device support of this type writes OUT; otherwise it reads INP.
    pub(crate) fn has_output(&self) -> bool {
        self.rows.iter().find(|row| row.has(DEVICE)).is_some_and(|row| row.dbf == Dbf::OutLink)
    }

    /// Whether a change of a link's target may process records of this type whose SCAN is I/O Intr.
    pub(crate) fn is_interrupted_by_links(&self) -> bool {
        self.rows.iter().any(|row| row.has(PLAIN))
    }
}

impl fmt::Debug for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Access to the fields of a record; [`record_type!`] implements it.
pub(crate) trait Fields {
    /// The fields that every record has.
    fn common(&mut self) -> &mut Common;

    /// The storage of a field; `None` if no field has this number.
    fn slot(&mut self, field: u16) -> Option<Slot<'_>>;

    /// The type of the record.
    fn record_type(&self) -> &'static RecordType;
}

/// The behaviour of a record type.
pub(crate) trait Record: Fields + Send {
    /// Receives the routines of the program, before [`Record::init`].
    fn set_routines(&mut self, _routines: &Arc<Routines>) {}

    /// Sets fields that depend on others, after links are resolved and before any record is processed.
    fn init(&mut self) {}

    /// Overrides the defaults in `meta` with units, precision, limits and labels of one of the record's own fields. If
    /// it returns a target, they are taken from the field that this link points to.
    fn meta(&mut self, _field: u16, _meta: &mut Meta) -> Option<Target> {
        None
    }

    /// Kind and element count of VAL, if the record decides them.
    fn value_kind_and_count(&self) -> Option<KindAndCount> {
        None
    }

    /// Kind and element count of a field, if the record decides them.
    fn own_kind_and_count(&self, field: u16) -> Option<KindAndCount> {
        if field == self.record_type().value { self.value_kind_and_count() } else { None }
    }

    /// The size in bytes, including the NUL, of text fields whose row gives no size.
    fn text_size(&self) -> u16 {
        0
    }

    /// Whether VAL has no value yet that a link could read.
    fn is_unset(&self) -> bool {
        false
    }

    /// Called after a put to one of the record's own fields that has the flag SPECIAL or is an array.
    fn after_put(&mut self, _field: u16, _posts: &mut RecordPosts) -> Result<(), &'static str>
    where
        Self: Sized,
    {
        Ok(())
    }

    /// Compiles the expression for a field and keeps the program. Called before a file sets the field; fields without
    /// an expression accept any text.
    fn compile(&mut self, _field: u16, _expression: &Text) -> Result<(), CalcError> {
        Ok(())
    }

    /// Whether a change of this link's target processes the record while its SCAN is I/O Intr.
    fn is_interrupted_by(&self, _field: u16) -> bool {
        true
    }

    /// Seconds between two posts of values that the record collects without being processed (SDEL); `None`: no such
    /// posts.
    fn collect_interval_s(&self) -> Option<f64> {
        None
    }

    /// Called when the interval of [`Record::collect_interval_s`] has passed.
    fn post_collected(&mut self, _now: TimeStamp, _posts: &mut RecordPosts) {}

    /// Called when the PV of another IOC that this link points to connects or disconnects.
    fn link_state_changed(&mut self, _field: u16, _posts: &mut RecordPosts) {}

    /// Called when everything that the record started under this number, through a channel or with Async Soft Channel,
    /// has ended. Returns whether the record is to complete now.
    fn writes_completed(&mut self, _number: u8, _posts: &mut RecordPosts) -> bool {
        self.common().is_active != 0
    }

    /// Reads, converts, raises alarms, posts. The caller marks the record as active before the call.
    fn process(step: &mut Step<'_, '_, Self>) -> ProcessOutcome
    where
        Self: Sized;
}

/// The link in a field; `None` if the field is not a link.
pub(crate) fn link_of(body: &mut dyn Record, field: u16) -> Option<&mut Link> {
    debug_assert!(field & LONG_STRING == 0);
    match body.slot(field)? {
        Slot::InLink(link) | Slot::OutLink(link) | Slot::FwdLink(link) => Some(link),
        _ => None,
    }
}

/// A record of any type, behind its lock.
pub(crate) trait LockedRecord: Send + Sync {
    fn record_type(&self) -> &'static RecordType;

    /// Locks the record for the duration of the call; `visit` must not lock another record.
    fn with_locked(&self, visit: &mut dyn FnMut(&mut dyn Record));

    /// Current value, alarm and time of a field.
    fn reading(&self, field: u16) -> Reading;

    /// The results of [`Record::own_kind_and_count`] for a field, and of [`Record::text_size`].
    fn own_kind_and_count(&self, field: u16) -> (Option<KindAndCount>, u16);

    fn after_put(&self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str>;

    /// Processes the record if it may be processed now, and queues the resulting work in `call`.
    fn process(&self, call: &mut EngineCall<'_>, record: u32, cause: ProcessCause);

    fn duplicate(&self) -> Box<dyn LockedRecord>;

    /// The same record with one more field, which its file is about to set, if its type takes fields from files.
    fn with_field(&self, _field: &str, _value: &Text) -> Option<Box<dyn LockedRecord>> {
        None
    }
}

impl<R: Record + Clone + HasRecordType + 'static> LockedRecord for Mutex<R> {
    fn record_type(&self) -> &'static RecordType {
        R::TYPE
    }

    fn with_locked(&self, visit: &mut dyn FnMut(&mut dyn Record)) {
        visit(&mut *self.lock());
    }

    fn reading(&self, field: u16) -> Reading {
        reading(&mut *self.lock(), field)
    }

    fn own_kind_and_count(&self, field: u16) -> (Option<KindAndCount>, u16) {
        let record = self.lock();
        (record.own_kind_and_count(field), record.text_size())
    }

    fn after_put(&self, field: u16, posts: &mut RecordPosts) -> Result<(), &'static str> {
        self.lock().after_put(field, posts)
    }

    fn process(&self, call: &mut EngineCall<'_>, record: u32, cause: ProcessCause) {
        Step::new(call, self, record, cause).run(cause);
    }

    fn duplicate(&self) -> Box<dyn LockedRecord> {
        Box::new(locked(self.lock().clone()))
    }
}

impl fmt::Debug for dyn LockedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.record_type().name)
    }
}

/// Connects a struct with its record type.
pub(crate) trait HasRecordType {
    const TYPE: &'static RecordType;
}

/// A record behind its lock.
pub(crate) fn locked<R>(record: R) -> Mutex<R> {
    Mutex::ranked(Rank::Record, record)
}

/// Locks a record for the duration of `visit`, and returns what `visit` returns.
pub(crate) fn with<T>(cell: &dyn LockedRecord, visit: impl FnOnce(&mut dyn Record) -> T) -> Option<T> {
    let mut visit = Some(visit);
    let mut result = None;
    cell.with_locked(&mut |record| {
        if let Some(visit) = visit.take() {
            result = Some(visit(record));
        }
    });
    result
}

/// Connects a table of fields with its record type, and defines constants with the numbers of the fields listed last.
macro_rules! record_type {
    ($record:ident, $name:literal, [$($device:literal),*] $(, $($field:ident)+)?) => {
        $($(const $field: u16 = $record::at(stringify!($field));)+)?

        pub(super) static TYPE: $crate::record::contract::RecordType = $crate::record::contract::RecordType {
            name: $name,
            rows: $record::ROWS,
            devices: &[$($device),*],
            value: $record::at("VAL"),
            create: || Box::new($crate::record::contract::locked($record::default())),
        };

        impl $record {
            /// The number of one of its own fields.
            const fn at(name: &str) -> u16 {
                $crate::common::Common::COUNT + $crate::field::position($record::ROWS, name)
            }
        }

        impl $crate::record::contract::HasRecordType for $record {
            const TYPE: &'static $crate::record::contract::RecordType = &TYPE;
        }

        impl $crate::record::contract::Fields for $record {
            fn common(&mut self) -> &mut $crate::common::Common {
                &mut self.common
            }

            fn slot(&mut self, field: u16) -> Option<$crate::field::Slot<'_>> {
                match $crate::common::Common::SLOTS.get(usize::from(field)) {
                    Some(slot) => Some(slot(&mut self.common)),
                    None => {
                        let index = usize::from(field - $crate::common::Common::COUNT);
                        $record::SLOTS.get(index).map(|slot| slot(self))
                    }
                }
            }

            fn record_type(&self) -> &'static $crate::record::contract::RecordType {
                &TYPE
            }
        }
    };
}

pub(crate) use record_type;

/// VALUE and LOG.
pub(crate) const CHANGED: EventMask = EventMask::VALUE.with(EventMask::LOG);

/// Posts VAL if the alarm has changed or `changes` is not empty. Returns the mask of that post.
pub(crate) fn post_value<R: Record>(record: &mut R, changes: EventMask, posts: &mut RecordPosts) -> EventMask {
    let mask = posts.alarms(record) | changes;
    if !mask.is_empty() {
        let value = record.record_type().value;
        posts.post(record, value, mask);
    }
    mask
}

/// Sets `old` to the present value. Returns whether they differed.
pub(crate) fn is_changed<T: Clone + PartialEq>(old: &mut T, present: &T) -> bool {
    let is_changed = old != present;
    if is_changed {
        old.clone_from(present);
    }
    is_changed
}

/// As [`is_changed`], as the events to post.
pub(crate) fn changes<T: Clone + PartialEq>(old: &mut T, present: &T) -> EventMask {
    if is_changed(old, present) { CHANGED } else { EventMask::NONE }
}

/// Raises the alarm of a record whose value is undefined. Returns whether it is.
pub(crate) fn raise_undefined(common: &mut Common) -> bool {
    let is_undefined = common.undefined != 0;
    if is_undefined {
        common.raise(Status::UDF, common.undefined_severity);
    }
    is_undefined
}

/// The index of a field in a family of `n` fields, of which `first` is the number of the first one.
pub(crate) fn index_in(field: u16, first: u16, n: usize) -> Option<usize> {
    field.checked_sub(first).map(usize::from).filter(|index| *index < n)
}

/// The labels of a menu, as texts.
pub(crate) fn labels(choices: &[&str]) -> Vec<Text> {
    choices.iter().map(|choice| Text::from(*choice)).collect()
}
