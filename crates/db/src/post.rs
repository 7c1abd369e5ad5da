//! Posts: telling watchers what changed, while the record is locked.

use std::collections::VecDeque;

use fodo_data::{EventMask, Reading, Value};

use crate::common::Common;
use crate::record::Record;
use crate::turn::Deferred;
use crate::{Event, FieldRef};

/// The bit of a field's number that asks for it as a long string (`FIELD$`).
pub(crate) const LONG_STRING: u16 = 1 << 15;
/// The number of the pseudo field RTYP.
pub(crate) const RTYP: u16 = LONG_STRING - 1;

const SEVR: u16 = Common::at("SEVR");
const STAT: u16 = Common::at("STAT");
const AMSG: u16 = Common::at("AMSG");
const ACKS: u16 = Common::at("ACKS");

/// Where the posts of one record go.
#[derive(Debug)]
pub(crate) struct Posts<'a> {
    pub(crate) record: u32,
    pub(crate) events: &'a mut Vec<Event>,
    pub(crate) deferred: &'a mut VecDeque<Deferred>,
}

impl Posts<'_> {
    /// Tells those who watch the field, with the reading of this moment.
    pub(crate) fn post(&mut self, record: &mut dyn Record, field: u16, mask: EventMask) {
        let Some(watchers) = record.common().watchers.as_deref() else { return };
        let is_plain = watchers.posted.contains(&field);
        let is_long = watchers.posted.contains(&(field | LONG_STRING));
        if mask.meets(EventMask::VALUE | EventMask::ALARM) {
            for follower in watchers.followers.iter().filter(|follower| follower.field == field) {
                let deferred = Deferred::Follow { record: follower.record, when: follower.when };
                if self.deferred.back() != Some(&deferred) {
                    self.deferred.push_back(deferred);
                }
            }
        }
        if is_plain {
            self.emit(record, field, mask);
        }
        if is_long {
            self.emit(record, field | LONG_STRING, mask);
        }
    }

    /// Tells all who watch anything of the record.
    pub(crate) fn post_all(&mut self, record: &mut dyn Record, mask: EventMask) {
        let Some(watchers) = record.common().watchers.as_deref() else { return };
        for field in watchers.posted.clone() {
            self.emit(record, field, mask);
        }
    }

    /// The alarm raised in this round becomes the record's alarm. Returns what VAL's post has of it.
    ///
    /// Source: EPICS Base 7.0, recGblResetAlarms.
    pub(crate) fn alarms(&mut self, record: &mut dyn Record) -> EventMask {
        let common = record.common();
        let mut mask = EventMask::NONE;
        if common.message != common.new_message {
            common.message = std::mem::take(&mut common.new_message);
            mask = EventMask::ALARM;
        }
        let status = std::mem::take(&mut common.new_status);
        let severity = std::mem::take(&mut common.new_severity).min(3);
        let is_severity_new = std::mem::replace(&mut common.severity, severity) != severity;
        let is_status_new = std::mem::replace(&mut common.status, status) != status;
        if is_severity_new {
            mask = EventMask::ALARM;
            self.post(record, SEVR, EventMask::VALUE);
        }
        if is_status_new {
            mask |= EventMask::VALUE;
        }
        if mask.is_empty() {
            return EventMask::NONE;
        }
        self.post(record, STAT, mask);
        self.post(record, AMSG, mask);
        let common = record.common();
        if common.acknowledge_transient == 0 || severity >= common.acknowledge_severity {
            common.acknowledge_severity = severity;
            self.post(record, ACKS, EventMask::VALUE);
        }
        EventMask::ALARM
    }

    fn emit(&mut self, record: &mut dyn Record, field: u16, mask: EventMask) {
        let reading = reading(record, field);
        self.events.push(Event::Posted { field: FieldRef { record: self.record, field }, mask, reading });
    }
}

/// Value, alarm and time of a field as they are now.
pub(crate) fn reading(record: &mut dyn Record, field: u16) -> Reading {
    let value = value(record, field);
    let common = record.common();
    Reading { value, alarm: common.alarm(), time: common.time, meta: None }
}

fn value(record: &mut dyn Record, field: u16) -> Value {
    if field == RTYP {
        return Value::from(record.record_type().name);
    }
    let Some(slot) = record.slot(field & !LONG_STRING) else { return Value::from("") };
    let value = slot.value();
    match value {
        Value::Scalar(fodo_data::Scalar::Text(text)) if field & LONG_STRING != 0 => {
            let mut bytes = text.as_bytes().to_vec();
            bytes.push(0);
            Value::from(bytes)
        }
        Value::Scalar(fodo_data::Scalar::Enum(number)) if record.record_type().value == field => {
            // An mbbo without states is a plain number.
            match record.value_facts() {
                Some((fodo_data::Kind::U16, _)) => Value::from(number),
                _ => value,
            }
        }
        value => value,
    }
}
