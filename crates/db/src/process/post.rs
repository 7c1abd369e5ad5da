//! Posts: reporting changes of a locked record to its subscribers.

use fodo_data::{EventMask, Reading, Value};

use crate::common::{Common, Follower};
use crate::event::Event;
use crate::filter::FilterContext;
use crate::menu::INVALID;
use crate::process::deferred::DeferredQueue;
use crate::record::contract::Record;
use crate::reference::{FieldRef, KindAndCount, LONG_STRING, RTYP};
use crate::site::DefaultSite;

const SEVR: u16 = Common::at("SEVR");
const STAT: u16 = Common::at("STAT");
const AMSG: u16 = Common::at("AMSG");
const ACKS: u16 = Common::at("ACKS");

/// Collects the posts of one record.
#[derive(Debug)]
pub(crate) struct RecordPosts<'a> {
    pub(crate) record: u32,
    pub(crate) events: &'a mut Vec<Event>,
    pub(crate) deferred: &'a mut DeferredQueue,
}

impl RecordPosts<'_> {
    /// Posts a change of a field, with its present reading, and queues its followers.
    pub(crate) fn post(&mut self, record: &mut dyn Record, field: u16, mask: EventMask) {
        let Some(subscriptions) = record.common().subscriptions.as_deref() else { return };
        let is_plain = subscriptions.posted_fields.contains(&field);
        let is_long = subscriptions.posted_fields.contains(&(field | LONG_STRING));
        let is_filtered = !subscriptions.filtered_followers.is_empty();
        if mask.meets(EventMask::VALUE | EventMask::ALARM) {
            for follower in
                subscriptions.followers.iter().filter(|follower| follower.field == field && !follower.is_filtered)
            {
                self.deferred.follow(follower.record, follower.when);
            }
            if is_filtered {
                filter_followers(record, field, mask, false, |follower| {
                    self.deferred.follow(follower.record, follower.when)
                });
            }
        }
        if is_plain {
            self.emit(record, field, mask);
        }
        if is_long {
            self.emit(record, field | LONG_STRING, mask);
        }
    }

    /// Posts to the subscribers of any field of the record.
    pub(crate) fn post_all(&mut self, record: &mut dyn Record, mask: EventMask) {
        let Some(subscriptions) = record.common().subscriptions.as_deref() else { return };
        for field in subscriptions.posted_fields.clone() {
            self.emit(record, field, mask);
        }
    }

    /// Makes the alarm raised during processing the record's alarm. Returns the event mask that this adds to the post
    /// of VAL.
    ///
    /// Source: EPICS Base 7.0, recGblResetAlarms.
    pub(crate) fn alarms(&mut self, record: &mut dyn Record) -> EventMask {
        let common = record.common();
        let mut mask = EventMask::NONE;
        if common.message != common.new_message {
            let message = std::mem::take(&mut common.new_message);
            common.set_message(message);
            mask = EventMask::ALARM;
        }
        let status = std::mem::take(&mut common.new_status);
        let severity = std::mem::take(&mut common.new_severity).min(INVALID);
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

/// Calls `passed` for every follower of the field whose filters pass the change. `is_new`: only followers that are not
/// primed, else only primed ones.
fn filter_followers(
    record: &mut dyn Record,
    field: u16,
    mask: EventMask,
    is_new: bool,
    mut passed: impl FnMut(&Follower),
) {
    // A CP link subscribes to these events in Base.
    let mask = EventMask(mask.0 & (EventMask::VALUE | EventMask::ALARM).0);
    let reading = reading(record, field);
    let common = record.common();
    // Only whether the change passes matters here; the filtered value is not used, so the site is not needed.
    let moment = FilterContext { now: common.time, user_tag: common.user_tag, site: &DefaultSite };
    let filtered_followers =
        common.subscriptions.iter_mut().flat_map(|subscriptions| &mut subscriptions.filtered_followers);
    for filtered in
        filtered_followers.filter(|filtered| filtered.follower.field == field && filtered.is_primed != is_new)
    {
        filtered.is_primed = true;
        if filtered.chain.update(mask, reading.clone(), &moment).is_some() {
            passed(&filtered.follower);
        }
    }
}

/// Passes the first value to the filters of new followers.
pub(crate) fn prime_filters(record: &mut dyn Record) {
    let new = |record: &mut dyn Record| {
        let filtered_followers = &record.common().subscriptions.as_deref()?.filtered_followers;
        filtered_followers.iter().find(|filtered| !filtered.is_primed).map(|filtered| filtered.follower.field)
    };
    while let Some(field) = new(record) {
        filter_followers(record, field, EventMask::VALUE | EventMask::ALARM, true, |_| {});
    }
}

/// The present value, alarm and time of a field. Of the user tag, only the low 32 bits are served.
#[inline]
pub(crate) fn reading(record: &mut dyn Record, field: u16) -> Reading {
    let value = value(record, field);
    let common = record.common();
    Reading {
        value,
        alarm: common.alarm(),
        time: common.time,
        user_tag: common.user_tag as i32,
        message: common.alarm_message.clone(),
        meta: None,
    }
}

#[inline]
fn value(record: &mut dyn Record, field: u16) -> Value {
    if field == RTYP {
        return Value::from(record.record_type().name);
    }
    let Some(slot) = record.slot(field & !LONG_STRING) else { return Value::from("") };
    let value = slot.value();
    match value {
        value if field & LONG_STRING != 0 => match value.first() {
            Some(fodo_data::Scalar::Text(text)) => {
                let mut bytes = text.as_bytes().to_vec();
                bytes.push(0);
                Value::from(bytes)
            }
            _ => Value::from(Vec::<u8>::new()),
        },
        Value::Scalar(fodo_data::Scalar::Enum(number)) if record.record_type().value == field => {
            // An mbbo without states is a plain number.
            match record.value_kind_and_count() {
                Some(KindAndCount { kind: fodo_data::Kind::U16, .. }) => Value::from(number),
                _ => value,
            }
        }
        value => value,
    }
}
