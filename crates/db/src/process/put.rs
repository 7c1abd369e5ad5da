//! Puts: writing a value to a field, for clients and for links.

use fodo_data::{AcknowledgePut, Array, ConvertError, EventMask, Kind, Scalar, Status, Text, Value};

use crate::common::{Common, row};
use crate::device::DeviceSupport;
use crate::error::PutError;
use crate::event::Event;
use crate::field::{
    DEVICE, Dbf, FieldInfo, NOMOD, OLD_SIMULATION_MODE, PP, PROP, SCAN, SIMULATION_MODE, SIMULATION_SCAN, SPECIAL,
    Slot, fitting_text,
};
use crate::input::Processing;
use crate::link::{ParsedLink, Target, parse};
use crate::menu;
use crate::process::engine::EngineCall;
use crate::process::post::{RecordPosts, prime_filters};
use crate::process::scan::Scans;
use crate::process::step::ProcessCause;
use crate::record::contract::{CHANGED, Record, with};
use crate::reference::{FieldRef, KindAndCount, LONG_STRING, RTYP};

const DISP: u16 = Common::at("DISP");
const PROC: u16 = Common::at("PROC");
const ACKS: u16 = Common::at("ACKS");
const ACKT: u16 = Common::at("ACKT");
const ASG: u16 = Common::at("ASG");

impl EngineCall<'_> {
    /// A client's put. Rejected if DISP is set. Processes the record if the field is PP or PROC, unless the client decides
    /// otherwise.
    ///
    /// Source: EPICS Base 7.0, dbPutField.
    pub(crate) fn put_field(
        &mut self,
        record: u32,
        field: u16,
        value: Value,
        processing: Processing,
    ) -> Result<(), PutError> {
        let number = field & !LONG_STRING;
        let row = self.core.cell(record).and_then(|cell| row(cell.record_type().rows, number));
        let Some(row) = row else { return Err(PutError::ReadOnly) };
        if field == RTYP || row.has(NOMOD) {
            return Err(PutError::ReadOnly);
        }
        // DISP is checked before the value is converted. For a simple put, `write` does it, to lock the record once.
        let is_simple = is_own(&value, row) && !row.has(SPECIAL) && !row.dbf.is_link();
        let is_disabled = |body: &mut dyn Record| PutOrigin::Client.is_disabled(body, number);
        if !is_simple && self.with(record, |body, _| is_disabled(body)) == Some(true) {
            return Err(PutError::Disabled);
        }
        let value = if field & LONG_STRING != 0 { Value::from(text_of_bytes(&value)?) } else { value };
        if row.dbf.is_link() {
            return self.put_link(record, number, row, &value);
        }
        self.write(record, number, value, PutOrigin::Client)?;
        let n_failed = self.n_failed;
        let always = number == PROC || processing == Processing::Always;
        self.process_for_put(record, always, row.has(PP) && processing != Processing::Never);
        // A put with completion succeeds even if processing failed, as in Base.
        let has_failed = self.n_failed != n_failed
            && self.waiters.is_empty()
            && self.with(record, |body, _| body.common().has_failed) == Some(true);
        if has_failed { Err(PutError::ProcessingFailed) } else { Ok(()) }
    }

    /// Restores a saved value before the start, without processing. The queued work and the scan lists are reset, since
    /// the start fills them.
    pub(crate) fn restore(&mut self, FieldRef { record, field }: FieldRef, value: Value) -> Result<(), PutError> {
        let value = if field & LONG_STRING != 0 { Value::from(text_of_bytes(&value)?) } else { value };
        let number = field & !LONG_STRING;
        if self.engine.is_started || self.core.is_link(record, number) {
            return Err(PutError::Rejected("only fields that are not links can be restored, and only before iocInit"));
        }
        self.write_initial_values();
        let result = self.write(record, number, value, PutOrigin::Record);
        self.engine.deferred.clear();
        self.engine.scans = Scans::new(&self.core.scan_menu);
        result
    }

    /// Processes a record for a put: always, or if it is passive. An active record is processed once more when it is
    /// done.
    pub(crate) fn process_for_put(&mut self, record: u32, always: bool, if_passive: bool) {
        if always || if_passive {
            self.run(record, ProcessCause::Put { always });
        }
    }

    /// Sets a field to a value: converts it, calls the record's hook, posts. Does not process the record.
    ///
    /// Source: EPICS Base 7.0, dbPut.
    pub(crate) fn write(&mut self, record: u32, field: u16, value: Value, origin: PutOrigin) -> Result<(), PutError> {
        let core = self.core;
        let Some(cell) = core.cell(record) else { return Err(PutError::ReadOnly) };
        let Some(row) = row(cell.record_type().rows, field) else { return Err(PutError::ReadOnly) };
        if row.has(NOMOD) {
            return Err(PutError::ReadOnly);
        }
        if row.dbf.is_link() {
            return self.put_link(record, field, row, &value);
        }
        if value.is_empty() && row.dbf != Dbf::Array {
            let is_value = field == cell.record_type().value;
            self.with(record, |body, _| {
                let common = body.common();
                common.raise(Status::LINK, menu::INVALID);
                // As in Base, every put to VAL clears UDF.
                common.undefined *= u8::from(!is_value);
            });
            return Ok(());
        }
        if row.has(SIMULATION_MODE) {
            with(cell, save_simulation_mode);
        }
        let is_taken = row.dbf == Dbf::Array || is_own(&value, row);
        let value = match if is_taken { Ok(value) } else { core.to_field(record, field, &value) } {
            Ok(value) => value,
            Err(refused) => {
                if row.has(SPECIAL) {
                    // As in Base, the hook is called although the put failed. The put is rejected whatever it returns.
                    let _ = cell.after_put(field, &mut self.posts(record));
                }
                return Err(refused);
            }
        };
        // Most fields have no hook, so the record is locked only once.
        let has_hook = row.has(SPECIAL) || row.dbf == Dbf::Array;
        let set = self.with(record, |body, posts| {
            if origin.is_disabled(body, field) {
                return Err(PutError::Disabled);
            }
            let before = StateBefore { scan: body.common().scan, property: property(body, field, row) };
            set(body, field, row, value)?;
            let scan = (!has_hook).then(|| post_change(body, posts, field, row, &before));
            Ok((before, scan))
        });
        let Some((before, scan)) = set.transpose()? else { return Ok(()) };
        let scan = match scan {
            Some(scan) => Some(scan),
            None => {
                cell.after_put(field, &mut self.posts(record)).map_err(PutError::Rejected)?;
                self.with(record, |body, posts| post_change(body, posts, field, row, &before))
            }
        };
        if row.has(SCAN) || scan != Some(before.scan) {
            self.rescan(record, before.scan);
        }
        if field == ASG {
            self.events.push(Event::AccessGroupChanged);
        }
        Ok(())
    }

    fn put_link(&mut self, record: u32, field: u16, row: &'static FieldInfo, value: &Value) -> Result<(), PutError> {
        let text = match value.first() {
            Some(Scalar::Text(text)) => text,
            Some(Scalar::I8(_) | Scalar::U8(_)) => text_of_bytes(value)?,
            Some(_) => return Err(PutError::Rejected("a link must be set to a text")),
            None => Text::EMPTY,
        };
        let text = text.to_str();
        let link_kind = row.link_kind();
        let parsed = parse(&text, link_kind);
        if parsed == ParsedLink::HardwareAddress {
            return Err(PutError::Rejected("no device support accepts this address"));
        }
        if matches!(parsed, ParsedLink::Invalid(_)) {
            return Err(PutError::Rejected("invalid JSON link"));
        }
        let core = self.core;
        let link = crate::link::Link::from_parsed(&text, &parsed, link_kind);
        let checked = self.with(record, |body, _| match row.has(DEVICE) {
            true => DeviceSupport::of(body).check_address(body.record_type().name, &link),
            false if parsed == ParsedLink::Address => Err("no device support accepts this address"),
            false => Ok(()),
        });
        checked.unwrap_or(Ok(())).map_err(PutError::Rejected)?;
        core.unregister_follower(record, field);
        self.release_external(record, field);
        let link = core.join(record, field, link);
        let is_joined = matches!(link.target(), Target::Field { .. });
        if let Target::Field { record: followed, .. } = link.target() {
            self.with(followed, |body, _| prime_filters(body));
        }
        let follows = link.modifiers().follows(field).filter(|_| is_joined);
        self.with(record, |body, posts| {
            if let Some(Slot::InLink(place) | Slot::OutLink(place) | Slot::FwdLink(place)) = body.slot(field) {
                *place = link;
            }
            posts.post(body, field, CHANGED);
        });
        self.report_external_links();
        if row.has(SPECIAL)
            && let Some(cell) = core.cell(record)
        {
            cell.after_put(field, &mut self.posts(record)).map_err(PutError::Rejected)?;
        }
        if let Some(when) = follows {
            // The first value of a CP link's target counts as a change, as after a connection.
            self.engine.deferred.follow(record, when);
        }
        Ok(())
    }

    /// Alarm acknowledgement.
    ///
    /// Source: EPICS Base 7.0, putAckt and putAcks.
    pub(crate) fn acknowledge(&mut self, record: u32, put: AcknowledgePut) {
        self.with(record, |body, posts| {
            let mask = EventMask::VALUE | EventMask::ALARM;
            let common = body.common();
            match put {
                AcknowledgePut::Transient { is_required } => {
                    if common.acknowledge_transient == u16::from(is_required) {
                        return;
                    }
                    common.acknowledge_transient = u16::from(is_required);
                    posts.post(body, ACKT, mask);
                    let common = body.common();
                    if !is_required && common.acknowledge_severity > common.severity {
                        common.acknowledge_severity = common.severity;
                        posts.post(body, ACKS, mask);
                    }
                }
                AcknowledgePut::Severity(severity) => {
                    if severity.code() < common.acknowledge_severity {
                        return;
                    }
                    common.acknowledge_severity = menu::NO_ALARM;
                    posts.post(body, ACKS, mask);
                }
            }
            posts.post_all(body, EventMask::ALARM);
        });
    }
}

/// The origin of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutOrigin {
    /// A client, which DISP blocks.
    Client,
    /// A link, or the restore of a saved value.
    Record,
}

impl PutOrigin {
    fn is_disabled(self, body: &mut dyn Record, field: u16) -> bool {
        self == PutOrigin::Client && field != DISP && body.common().puts_disabled != 0
    }
}

/// Whether a value is one element of the field's own kind.
fn is_own(value: &Value, row: &FieldInfo) -> bool {
    matches!(value, Value::Scalar(scalar) if scalar.kind() == row.dbf.kind())
}

/// The state of a record before one of its fields is set.
struct StateBefore {
    scan: u16,
    /// The field's value, if a change of the field is a change of properties.
    property: Option<Value>,
}

fn property(body: &mut dyn Record, field: u16, row: &FieldInfo) -> Option<Value> {
    let slot = if row.has(PROP) { body.slot(field) } else { None };
    slot.map(|slot| slot.value())
}

/// Whether two values have the same bits: as in Base, 0 and -0 differ, and NaN is the same as before.
fn is_same(now: Option<&Value>, before: Option<&Value>) -> bool {
    match (now, before) {
        (Some(Value::Scalar(Scalar::F64(now))), Some(Value::Scalar(Scalar::F64(before)))) => {
            now.to_bits() == before.to_bits()
        }
        (now, before) => now == before,
    }
}

/// Posts the new value of a field. Returns the present SCAN.
fn post_change(
    body: &mut dyn Record,
    posts: &mut RecordPosts,
    field: u16,
    row: &FieldInfo,
    before: &StateBefore,
) -> u16 {
    let is_value = field == body.record_type().value;
    if is_value {
        body.common().undefined = 0;
    }
    if !(is_value && row.has(PP)) {
        posts.post(body, field, CHANGED);
    }
    if !is_same(property(body, field, row).as_ref(), before.property.as_ref()) {
        posts.post_all(body, EventMask::PROPERTY);
    }
    body.common().scan
}

/// Saves SIMM in OLDSIMM before a put to SIMM, if SSCN is set: the change decides whether SCAN changes.
fn save_simulation_mode(body: &mut dyn Record) {
    let kind = body.record_type();
    let value = |body: &mut dyn Record, attribute| {
        let slot = kind.field_with(attribute).and_then(|field| body.slot(field));
        slot.and_then(|slot| slot.value().first())
    };
    let is_scan_set = value(body, SIMULATION_SCAN) != Some(Scalar::Enum(menu::NO_SCAN));
    if let (true, Some(mode)) = (is_scan_set, value(body, SIMULATION_MODE))
        && let Some(mut slot) = kind.field_with(OLD_SIMULATION_MODE).and_then(|field| body.slot(field))
    {
        slot.set(mode);
    }
}

/// Stores a value of the field's own kind.
fn set(body: &mut dyn Record, field: u16, row: &FieldInfo, value: Value) -> Result<(), PutError> {
    if row.dbf == Dbf::Array {
        let number = KindAndCount { kind: Kind::F64, count_max: 1 };
        let KindAndCount { kind, count_max } = body.own_kind_and_count(field).unwrap_or(number);
        let array = fitting(value, kind, count_max)?;
        let Some(Slot::Array(place)) = body.slot(field) else { return Err(PutError::ReadOnly) };
        *place = array;
        return Ok(());
    }
    let Some(scalar) = value.first() else { return Err(PutError::Convert(ConvertError::Empty)) };
    let scalar = match scalar {
        Scalar::Text(text) => {
            let size = usize::from(if row.size == 0 { body.text_size() } else { row.size });
            Scalar::Text(fitting_text(&text, size))
        }
        scalar => scalar,
    };
    let Some(mut slot) = body.slot(field) else { return Err(PutError::ReadOnly) };
    if slot.set(scalar) { Ok(()) } else { Err(PutError::Rejected("the value has the wrong type for this field")) }
}

/// Converts to an array of the field's kind, truncated to `count_max`. Moved, not copied, if nothing changes.
pub(crate) fn fitting(value: Value, kind: Kind, count_max: u32) -> Result<Array, PutError> {
    let array = of_kind(value.into_array(), kind)?;
    let count_max = count_max as usize;
    Ok(if array.len() > count_max { array.truncated(count_max) } else { array })
}

/// Converts to an array of the field's kind. Moved, not copied, if it has this kind.
pub(crate) fn of_kind(array: Array, kind: Kind) -> Result<Array, PutError> {
    if let Array::Text(texts) = &array {
        // As in Base, an array of numbers rejects empty texts and an array of enums rejects all texts, unlike scalars.
        let is_refused = |text: &&Text| kind == Kind::Enum || (kind != Kind::Text && text.is_empty());
        if let Some(text) = texts.iter().find(is_refused) {
            return Err(PutError::Convert(ConvertError::NotANumber(text.clone())));
        }
    }
    if array.kind() == kind { Ok(array) } else { array.to_kind(kind, None).map_err(PutError::Convert) }
}

/// The text in an array of characters, up to its NUL.
fn text_of_bytes(value: &Value) -> Result<Text, PutError> {
    match value {
        Value::Scalar(Scalar::Text(text)) => Ok(text.clone()),
        value => match value.to_kind(Kind::U8, None).map_err(PutError::Convert)?.into_array() {
            Array::U8(bytes) => Ok(Text::from_bytes(&bytes)),
            _ => Err(PutError::Rejected("a long string must be set to characters or a text")),
        },
    }
}
