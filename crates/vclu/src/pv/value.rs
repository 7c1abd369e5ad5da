//! One PV of a CLU: a feature, a user variable, an event, or a method with at most one argument.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fodo_data::{Alarm, Meta, NormativeLayout, Reading, Scalar, Severity, Status, TimeStamp, Value};
use fodo_lock::Mutex;
use fodo_net::{DeferredPut, PutRefusal, SharedPv};

use super::end::ValueItem;
use super::limits::{LimitKind, LiveLimits};
use super::shape::{self, ValueShape, invalid};
use super::view::ViewPv;
use crate::limit::PUTS_WAITING_MAX;

/// A PV and what it stands for in the CLU.
pub(super) struct ValuePv {
    pub item: ValueItem,
    pub shape: ValueShape,
    pub pv: SharedPv,
    /// The same value in other forms.
    pub views: Vec<Arc<ViewPv>>,
    description: String,
    is_settable: bool,
    /// The limits that other features of the object contain.
    pub limits: Mutex<LiveLimits>,
    /// The values whose limits this one contains.
    pub limits_of: Vec<(usize, LimitKind)>,
    /// The colour that this value is a part of.
    pub colour: Option<usize>,
    /// Whether the CLU has the value, so that it can be read.
    pub is_readable: bool,
    /// Its part of the structure of its object.
    pub member: Option<MemberPlace>,
    puts: Mutex<PutQueue>,
    /// The CLU has refused the last put.
    is_refused: AtomicBool,
    /// The value has been read, or cannot be.
    is_known: AtomicBool,
    /// The CLU does not report the value to subscribers.
    pub is_missing: AtomicBool,
    /// How often a value of the CLU was stored, also an unchanged one.
    pub n_stored: AtomicU64,
}

/// What a PV is and how clients see it.
pub(super) struct NewValue {
    pub item: ValueItem,
    pub shape: ValueShape,
    pub description: String,
    pub can_get: bool,
    pub can_set: bool,
}

/// Where the structure of an object contains a value.
pub(super) struct MemberPlace {
    /// The index of the object.
    pub object: usize,
    /// The node of the member.
    pub offset: usize,
    pub layout: Arc<NormativeLayout>,
}

/// The puts of one PV, which are carried out one after another.
#[derive(Default)]
struct PutQueue {
    waiting: VecDeque<DeferredPut>,
    is_running: bool,
}

/// What happens with a put that was added to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueuedPut {
    /// A task must carry out the puts of the queue.
    Start,
    /// A task that does so already runs, or the put was refused.
    Nothing,
}

impl ValuePv {
    pub fn new(new: NewValue, pv: SharedPv, is_settable: bool) -> ValuePv {
        let NewValue { item, shape, description, can_get: is_readable, .. } = new;
        // A method has no value to read, only the last call of this program.
        let status = if is_readable { invalid(Status::UDF) } else { Alarm::default() };
        pv.post_reading(Reading { alarm: status, ..pv.reading() });
        let (puts, member) = (Mutex::default(), None);
        let [is_refused, is_known, is_missing] = [false, !is_readable, false].map(AtomicBool::new);
        let n_stored = AtomicU64::new(0);
        let (views, limits, limits_of, colour) = (Vec::new(), Mutex::new(LiveLimits::NONE), Vec::new(), None);
        ValuePv {
            item,
            shape,
            pv,
            views,
            description,
            is_settable,
            limits,
            limits_of,
            colour,
            is_readable,
            member,
            puts,
            is_refused,
            is_known,
            is_missing,
            n_stored,
        }
    }

    /// Units, limits and labels now.
    pub fn meta(&self) -> Meta {
        self.shape.meta(&self.description, self.is_settable, &self.limits.lock())
    }

    /// Posts a value of the CLU; `None` is `nil`. Returns what was posted, or `None` if nothing has changed.
    pub fn update(&self, value: Option<&Scalar>, time: TimeStamp) -> Option<Reading> {
        self.n_stored.fetch_add(1, Ordering::Relaxed);
        let last = self.pv.reading();
        let (value, mut alarm) = self.shape.reading(value, last.value.clone(), &self.limits.lock());
        let is_same = value == last.value;
        if is_same && alarm == Alarm::default() && self.is_refused.load(Ordering::Relaxed) {
            alarm = invalid(Status::WRITE);
        }
        let is_first = !self.is_known.load(Ordering::Relaxed);
        (!is_same || alarm != last.alarm || is_first).then(|| self.post(value, alarm, time))
    }

    /// Posts the parts of a colour. Returns what was posted, or `None` if nothing has changed.
    pub fn compose(&self, value: Value, alarm: Alarm, time: TimeStamp) -> Option<Reading> {
        let last = self.pv.reading();
        (value != last.value || alarm != last.alarm).then(|| self.post(value, alarm, time))
    }

    /// The number of the value, if it is valid.
    pub fn number(&self) -> Option<f64> {
        let reading = self.pv.reading();
        let is_valid = reading.alarm.severity < Severity::Invalid;
        reading.value.first().filter(|_| is_valid).as_ref().and_then(shape::number)
    }

    /// Another feature of the object has this limit. Returns what was posted, with the new limits, or `None` if they are the
    /// same.
    pub fn set_limit(&self, kind: LimitKind, limit: Option<f64>, time: TimeStamp) -> Option<Reading> {
        if !self.limits.lock().set(kind, limit) {
            return None;
        }
        let meta = self.meta();
        self.pv.post_meta(meta.clone());
        let last = self.pv.reading();
        let alarm = self.number().map(|number| self.shape.limit_alarm(number, &self.limits.lock()));
        let reading = match alarm.filter(|alarm| *alarm != last.alarm) {
            Some(alarm) => self.post(last.value, alarm, time),
            None => last,
        };
        Some(Reading { meta: Some(Arc::new(meta)), ..reading })
    }

    /// The value is the last one and cannot be trusted.
    pub fn lose(&self, status: Status, time: TimeStamp) -> Option<Reading> {
        let (last, alarm) = (self.pv.reading(), invalid(status));
        (self.is_readable && last.alarm != alarm).then(|| self.post(last.value, alarm, time))
    }

    fn post(&self, value: Value, alarm: Alarm, time: TimeStamp) -> Reading {
        if alarm.status != Status::WRITE {
            self.is_refused.store(false, Ordering::Relaxed);
        }
        let reading = Reading { alarm, time, ..Reading::bare(value) };
        let is_new_alarm = !self.views.is_empty() && self.pv.reading().alarm != alarm;
        self.pv.post_reading(reading.clone());
        self.views.iter().for_each(|view| view.post(&reading, is_new_alarm));
        reading
    }

    /// A put has failed: the value is the one before. The alarm stays until the value changes or is set. While the CLU is
    /// silent, the alarm is that of the silence.
    pub fn refuse(&self, time: TimeStamp) -> Option<Reading> {
        let last = self.pv.reading();
        if last.alarm == invalid(Status::COMM) {
            return None;
        }
        self.is_refused.store(true, Ordering::Relaxed);
        Some(self.post(last.value, invalid(Status::WRITE), time))
    }

    /// The CLU has taken a put.
    pub fn accept(&self) {
        self.is_refused.store(false, Ordering::Relaxed);
    }

    /// Whether this is the first time that the value is known.
    pub fn becomes_known(&self) -> bool {
        !self.is_known.swap(true, Ordering::Relaxed)
    }

    /// Adds a put. A full queue refuses it.
    pub fn add_put(&self, put: DeferredPut) -> QueuedPut {
        let mut puts = self.puts.lock();
        if puts.waiting.len() == PUTS_WAITING_MAX {
            drop(puts);
            put.refuse(PutRefusal::Rejected(format!("{PUTS_WAITING_MAX} puts to this PV already wait for the CLU")));
            return QueuedPut::Nothing;
        }
        puts.waiting.push_back(put);
        if mem::replace(&mut puts.is_running, true) { QueuedPut::Nothing } else { QueuedPut::Start }
    }

    /// The next put to carry out; without one, the task ends.
    pub fn next_put(&self) -> Option<DeferredPut> {
        let mut puts = self.puts.lock();
        let put = puts.waiting.pop_front();
        puts.is_running = put.is_some();
        put
    }

    /// Refuses all puts, because no task can carry them out.
    pub fn refuse_puts(&self, reason: &str) {
        while let Some(put) = self.next_put() {
            put.refuse(PutRefusal::Rejected(reason.to_string()));
        }
    }
}
