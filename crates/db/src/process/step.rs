//! The operations of a record while it is processed: lock itself, read and write its links, set its time stamp.
//!
//! A step keeps its record locked until it accesses a link. Most records access none, so they are locked once. Every
//! access to another record calls [`Step::unlock`] first, so that two records are never locked at once.

use std::sync::Arc;

use fodo_data::{Kind, Scalar, Status, Text, TimeStamp, Value};
use fodo_lock::{Mutex, MutexGuard};

use crate::breaktable::BreakTable;
use crate::calc::escaped;
use crate::event::{Event, Stream};
pub(crate) use crate::link::LinkError;
use crate::link::external::ExternalPv;
use crate::link::{Link, LinkAccess, Target, Trigger};
use crate::menu;
use crate::process::deferred::{CompletionWaiter, Deferred};
use crate::process::engine::{EngineCall, ProcessingTask, count_active, set_disable_alarm};
use crate::process::post::RecordPosts;
use crate::process::program::ProgramValues;
use crate::process::timers::Timer;
use crate::record::contract::Record;
use crate::reference::{FieldRef, KindAndCount};
use crate::site::Site;

/// How the processing of a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessOutcome {
    /// Values are posted; the forward link is next.
    Done,
    /// As `Done`, but the input could not be read or the output not written: a PP link to the record counts as broken.
    Failed,
    /// As `Done`, but the forward link is not processed.
    NoForward,
    /// As `Done`, but its waiters and its forward link keep waiting: a busy record that is busy.
    Busy,
    /// The record stays active, and is called again to complete.
    Waiting,
}

impl ProcessOutcome {
    /// `Done` if `is_ok`, else `Failed`.
    pub(crate) fn done(is_ok: bool) -> ProcessOutcome {
        if is_ok { ProcessOutcome::Done } else { ProcessOutcome::Failed }
    }
}

/// Why a record is processed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProcessCause {
    /// Called directly, whatever its SCAN.
    Called,
    /// By a put: if the record is passive, or always.
    Put { always: bool },
    /// By a forward link: if the record is passive, and with the PUTF of the record that has the link.
    Forward { put_process: u8 },
    /// The record waited and completes now.
    Completion,
}

/// The processing of one record.
pub(crate) struct Step<'t, 'a, R> {
    call: &'t mut EngineCall<'a>,
    cell: &'t Mutex<R>,
    /// The record's lock, unless another record is being accessed.
    held: Option<MutexGuard<'t, R>>,
    record: u32,
    /// Whether the record waited and completes now.
    pub(crate) is_completion: bool,
}

impl<'t, 'a, R: Record> Step<'t, 'a, R> {
    pub(crate) fn new(call: &'t mut EngineCall<'a>, cell: &'t Mutex<R>, record: u32, cause: ProcessCause) -> Self {
        Step { call, cell, held: None, record, is_completion: matches!(cause, ProcessCause::Completion) }
    }

    /// Processes the record, unless it is active, disabled or not passive, and queues the following work in the call.
    pub(crate) fn run(mut self, cause: ProcessCause) {
        let is_next = match cause {
            ProcessCause::Called => self.begin(),
            ProcessCause::Put { always } => self.may_start_for_put(always) && self.begin(),
            ProcessCause::Forward { put_process } => {
                let common = self.lock().common();
                let is_passive = common.scan == menu::PASSIVE;
                if is_passive {
                    common.prepare_target(put_process);
                }
                is_passive && self.begin()
            }
            ProcessCause::Completion => true,
        };
        if !is_next {
            return;
        }
        let common = self.lock().common();
        common.is_active = 1;
        common.is_in_chain = true;
        let outcome = R::process(&mut self);
        self.end(outcome);
    }

    /// Whether a put may start processing. An active record is processed once more when it is done.
    fn may_start_for_put(&mut self, always: bool) -> bool {
        let record = self.record;
        let common = self.lock().common();
        common.has_failed = false;
        if !always && common.scan != menu::PASSIVE {
            return false;
        }
        if common.is_active != 0 {
            common.reprocess = 1;
            self.call.wait_for(record);
            return false;
        }
        common.put_process = 1;
        true
    }

    /// Whether the record is neither active nor disabled.
    ///
    /// Source: EPICS Base 7.0, dbProcess.
    fn begin(&mut self) -> bool {
        let common = self.lock().common();
        if common.is_active != 0 {
            self.post(|record, posts| count_active(record, posts));
            return false;
        }
        if !self.call.count(self.record) {
            self.lock().common().has_failed = true;
            return false;
        }
        let common = self.lock().common();
        common.has_failed = false;
        common.lock_count = 0;
        let disable_link = common.disable_link.access();
        match self.read_link_first(&disable_link, Kind::I16) {
            Ok(Some(Scalar::I16(number))) => self.lock().common().disable = number,
            Ok(_) => {}
            Err(LinkError) => self.raise_link_alarm("SDIS"),
        }
        let common = self.lock().common();
        if common.disable == common.disable_value {
            self.post(|record, posts| set_disable_alarm(record, posts));
            return false;
        }
        self.call.engine.n_processed += 1;
        true
    }

    /// Queues the work that follows an outcome: first the forward link, then the end of processing.
    fn end(&mut self, outcome: ProcessOutcome) {
        let record = self.record;
        self.call.n_failed += u32::from(outcome == ProcessOutcome::Failed);
        let common = self.lock().common();
        match outcome {
            ProcessOutcome::Waiting | ProcessOutcome::Busy => {
                common.is_active = u8::from(outcome == ProcessOutcome::Waiting);
                common.is_in_chain = false;
                self.call.wait_for(record);
                return;
            }
            ProcessOutcome::Done | ProcessOutcome::Failed | ProcessOutcome::NoForward => {
                common.has_failed = outcome == ProcessOutcome::Failed
            }
        }
        if outcome == ProcessOutcome::NoForward || common.forward.is_constant() {
            let must_reprocess = common.finish();
            self.held = None;
            return self.call.after_processing(record, must_reprocess);
        }
        let (forward, put_process) = (common.forward.access(), common.put_process);
        self.call.engine.tasks.push(ProcessingTask::Finish { record });
        match forward.target {
            Target::Field { record, modifiers, .. } if modifiers.trigger != Trigger::Channel => {
                self.call
                    .engine
                    .tasks
                    .push(ProcessingTask::Process { record, cause: ProcessCause::Forward { put_process } });
            }
            _ => self.unlock().0.forward_by_put(record, &forward),
        }
    }

    /// Locks the record, if it is not locked yet.
    pub(crate) fn lock(&mut self) -> &mut R {
        self.held.get_or_insert_with(|| self.cell.lock())
    }

    /// Locks the record and passes it to `visit`, with the means to post.
    pub(crate) fn post<T>(&mut self, visit: impl FnOnce(&mut R, &mut RecordPosts) -> T) -> T {
        let record = self.held.get_or_insert_with(|| self.cell.lock());
        visit(record, &mut self.call.posts(self.record))
    }

    /// Unlocks the record, so that the call can access other records. Also returns the record's number.
    fn unlock(&mut self) -> (&mut EngineCall<'a>, u32) {
        self.held = None;
        (self.call, self.record)
    }

    /// Reads the first element of a link's target.
    fn read_link_first(&mut self, access: &LinkAccess, kind: Kind) -> Result<Option<Scalar>, LinkError> {
        if access.target == Target::Constant {
            return Ok(None);
        }
        let (call, record) = self.unlock();
        call.read_link_first(record, access, kind)
    }

    /// Reads through a link. `Ok(None)`: the link is constant or empty, so nothing changes.
    pub(crate) fn read_link<T: Element>(
        &mut self,
        name: &'static str,
        link: impl Fn(&R) -> &Link,
    ) -> Result<Option<T>, LinkError> {
        let fetched = self.read_link_quietly(link);
        if fetched.is_err() {
            self.raise_link_alarm(name);
        }
        fetched
    }

    /// As [`Step::read_link`], without the alarm.
    pub(crate) fn read_link_quietly<T: Element>(&mut self, link: impl Fn(&R) -> &Link) -> Result<Option<T>, LinkError> {
        let access = link(self.lock()).access();
        match self.read_link_first(&access, T::KIND)? {
            None => Ok(None),
            Some(scalar) => T::of(scalar).map(Some).ok_or(LinkError),
        }
    }

    /// As [`Step::read_link`], for a kind that is known only at run time.
    pub(crate) fn read_link_scalar(
        &mut self,
        name: &'static str,
        link: impl Fn(&R) -> &Link,
        kind: Kind,
    ) -> Result<Option<Scalar>, LinkError> {
        let access = link(self.lock()).access();
        let fetched = self.read_link_first(&access, kind);
        if fetched.is_err() {
            self.raise_link_alarm(name);
        }
        fetched
    }

    /// Reads all elements of a link's target.
    pub(crate) fn read_link_array(
        &mut self,
        name: &'static str,
        link: impl Fn(&R) -> &Link,
        kind: Kind,
    ) -> Result<Option<Value>, LinkError> {
        let access = link(self.lock()).access();
        let (call, record) = self.unlock();
        let fetched = call.read_link(record, &access, kind);
        if fetched.is_err() {
            self.raise_link_alarm(name);
        }
        fetched
    }

    /// Reads a text through a link. In an array of characters, non-printable characters become C escapes.
    pub(crate) fn read_link_text(
        &mut self,
        name: &'static str,
        link: impl Fn(&R) -> &Link,
    ) -> Result<Option<Text>, LinkError> {
        match self.target_facts(&link) {
            Some(KindAndCount { kind: kind @ (Kind::I8 | Kind::U8), count_max: 2.. }) => {
                let value = self.read_link_array(name, &link, kind)?;
                let bytes = value.and_then(|value| value.long_text());
                Ok(bytes.map(|bytes| Text::from_bytes(&escaped(bytes.as_bytes()))))
            }
            _ => self.read_link(name, link),
        }
    }

    /// The maximum number of elements of a link's target; `None` if the link has no readable target.
    pub(crate) fn size_at(&mut self, link: impl Fn(&R) -> &Link) -> Option<u32> {
        self.target_facts(link).map(|facts| facts.count_max)
    }

    /// The kind of a link's target; `None` if the link has no readable target.
    pub(crate) fn kind_at(&mut self, link: impl Fn(&R) -> &Link) -> Option<Kind> {
        self.target_facts(link).map(|facts| facts.kind)
    }

    /// The kind and the maximum number of elements of a link's target; `None` if the link has no readable target.
    pub(crate) fn target_facts(&mut self, link: impl Fn(&R) -> &Link) -> Option<KindAndCount> {
        let link = link(self.lock());
        if link.is_constant() {
            return None;
        }
        let access = link.access();
        self.unlock().0.link_facts(&access)
    }

    /// Writes through a link, and processes its target if the link is PP.
    pub(crate) fn write_link(
        &mut self,
        name: &'static str,
        link: impl Fn(&R) -> &Link,
        value: impl Into<Value>,
    ) -> Result<(), LinkError> {
        let link = link(self.lock());
        if link.is_constant() {
            return Ok(());
        }
        let access = link.access();
        let (call, record) = self.unlock();
        let driven = call.write_link(record, &access, value.into());
        if driven.is_err() {
            self.raise_link_alarm(name);
        }
        driven
    }

    /// Processes the target of a forward link at once, before this record continues.
    pub(crate) fn process_forward_link(&mut self, name: &'static str, link: impl Fn(&R) -> &Link) {
        let access = link(self.lock()).access();
        let (call, record) = self.unlock();
        if call.process_forward_link(record, &access).is_err() {
            self.raise_link_alarm(name);
        }
    }

    /// Processes a link's target, and completes this record when that processing has ended. False: the target is not a
    /// field of this database.
    pub(crate) fn process_and_wait(&mut self, link: impl Fn(&R) -> &Link) -> bool {
        let target = link(self.lock()).target();
        let Target::Field { record: to, .. } = target else { return false };
        self.call.engine.deferred.push(Deferred::Notify { from: self.record, to });
        true
    }

    /// Writes through a channel (a link with CA or to another IOC). When all processing that this starts has ended,
    /// [`Record::writes_completed`] is called with `number`. False for any other link.
    pub(crate) fn write_link_with_completion(
        &mut self,
        link: impl Fn(&R) -> &Link,
        value: impl Into<Value>,
        number: u8,
    ) -> bool {
        let access = link(self.lock()).access();
        if let Some(external) = access.external() {
            return self.unlock().0.write_external(external, &value.into(), Some(number)).is_ok();
        }
        let Target::Field { record, field, modifiers } = access.target else { return false };
        if modifiers.trigger != Trigger::Channel {
            return false;
        }
        let waiter = Some(CompletionWaiter::Record { record: self.record, number });
        self.call.engine.deferred.put(record, field, value.into(), waiter).is_ok()
    }

    /// Reads through a link without processing its target, and without raising a LINK alarm.
    pub(crate) fn read_link_only(
        &mut self,
        link: impl Fn(&R) -> &Link,
        kind: Kind,
    ) -> Result<Option<Value>, LinkError> {
        let mut access = link(self.lock()).access();
        if let Target::Field { modifiers, .. } = &mut access.target {
            modifiers.trigger = Trigger::None;
        }
        let (call, record) = self.unlock();
        call.read_link(record, &access, kind)
    }

    /// Raises the alarm of a broken link.
    pub(crate) fn raise_link_alarm(&mut self, name: &'static str) {
        self.lock().common().raise_with_message(Status::LINK, menu::INVALID, format!("field {name}").into());
    }

    /// Sets the record's time stamp according to TSE and TSEL. `simulated`: SIOL, while SIMM is on.
    ///
    /// Source: EPICS Base 7.0, recGblGetTimeStampSimm.
    pub(crate) fn stamp(&mut self, simulated: Option<Target>) {
        let access = self.lock().common().time_link.access();
        match access.target {
            Target::Constant => {}
            Target::Field { record, modifiers, .. } if modifiers.is_time => {
                let (time, tag) = self.unlock().0.time_of(record);
                let common = self.lock().common();
                (common.time, common.user_tag) = (time, tag);
                return;
            }
            Target::External { is_time: true } => {
                if let Some(time) = access.external().and_then(ExternalPv::time) {
                    self.lock().common().time = time;
                }
                return;
            }
            Target::Field { .. } | Target::External { .. } | Target::Missing => {
                match self.read_link_first(&access, Kind::I16) {
                    Ok(value) => {
                        if let Some(Scalar::I16(event)) = value {
                            self.lock().common().time_event = event;
                        }
                    }
                    Err(LinkError) => self.raise_link_alarm("TSEL"),
                }
            }
        }
        let now = self.call.now.wall;
        let is_set_by_device = self.lock().common().time_event == -2;
        let time = match (is_set_by_device, simulated) {
            (false, _) => now,
            (true, None) => return,
            (true, Some(Target::Field { record, .. })) => {
                let (time, tag) = self.unlock().0.time_of(record);
                self.lock().common().user_tag = tag;
                time
            }
            (true, Some(_)) => now,
        };
        self.lock().common().time = time;
    }

    /// With TSE -2, copies the time of the record that an input link reads, as Soft Channel does.
    pub(crate) fn stamp_from(&mut self, link: impl Fn(&R) -> &Link) {
        let common = self.lock().common();
        if common.time_event != -2 || !common.time_link.is_constant() {
            return;
        }
        let access = link(self.lock()).access();
        let time = match access.target {
            Target::Field { record, .. } => Some(self.unlock().0.time_of(record).0),
            _ => access.external().and_then(ExternalPv::time),
        };
        if let Some(time) = time {
            self.lock().common().time = time;
        }
    }

    /// The breakpoint table of a choice of LINR.
    pub(crate) fn break_table(&self, conversion: u16) -> Option<Arc<BreakTable>> {
        const FIRST_TABLE: u16 = 3;
        let name = menu::CONVERT.get(usize::from(conversion)).filter(|_| conversion >= FIRST_TABLE)?;
        self.call.core.tables.get(*name).cloned()
    }

    /// The wall clock.
    pub(crate) fn now(&self) -> TimeStamp {
        self.call.now.wall
    }

    /// The environment and the time zone.
    pub(crate) fn site(&self) -> &dyn Site {
        &*self.call.core.site
    }

    /// Whether a named state is on.
    pub(crate) fn state(&self, name: &Text) -> bool {
        self.call.core.states.create(&name.to_str()).is_on()
    }

    /// Switches a named state.
    pub(crate) fn set_state(&mut self, name: &Text, is_on: bool) {
        self.call.core.states.create(&name.to_str()).set(is_on);
    }

    /// Writes a line.
    pub(crate) fn print(&mut self, stream: Stream, line: Text) {
        self.call.events.push(Event::Printed { stream, line });
    }

    /// Seconds between `before` and the record's time.
    pub(crate) fn elapsed_s(&mut self, before: TimeStamp) -> f64 {
        let now = self.lock().common().time;
        (now.unix_s - before.unix_s) as f64 + (f64::from(now.nanos) - f64::from(before.nanos)) / 1e9
    }

    /// What the program and the records exchange, and the record's number.
    pub(crate) fn program(&mut self) -> (&mut ProgramValues, u32) {
        (&mut self.call.engine.program, self.record)
    }

    /// Hands a value of this record to the program. False: the program does not take it. Otherwise the program
    /// completes this record.
    pub(crate) fn hand_to_program(&mut self, value: Value) -> bool {
        let field = self.lock().record_type().value;
        let (call, record) = self.unlock();
        let field = FieldRef { record, field };
        let kind = call.core.facts(field).kind;
        let value = if value.kind() == kind { value } else { value.to_kind(kind, None).unwrap_or(value) };
        let Some((output, previous)) = call.engine.program.offer(record, value.clone()) else { return false };
        call.events.push(Event::OutputReady { record: field, output, value, previous });
        true
    }

    /// Schedules the completion of this record after a delay.
    pub(crate) fn complete_after(&mut self, delay_s: f64) -> ProcessOutcome {
        self.call.start_timer(delay_s, Timer::Complete(self.record));
        ProcessOutcome::Waiting
    }

    /// Schedules the completion of this record after the current chain, as Base's callback tasks do.
    pub(crate) fn complete_next(&mut self) -> ProcessOutcome {
        self.call.engine.deferred.push(Deferred::Complete { record: self.record });
        ProcessOutcome::Waiting
    }

    /// Processes the records that wait for an event, after the current chain.
    pub(crate) fn post_event(&mut self, name: Text) {
        self.call.post_event(name);
    }

    /// Schedules the end of a momentary output.
    pub(crate) fn release_after(&mut self, delay_s: f64) {
        self.call.start_timer(delay_s, Timer::Release(self.record));
    }

    /// Updates the scan list after the record itself changed SCAN.
    pub(crate) fn rescan(&mut self, before: u16) {
        let (call, record) = self.unlock();
        call.rescan(record, before);
    }
}

/// A type that a link can be read as.
pub(crate) trait Element: Sized {
    const KIND: Kind;

    fn of(scalar: Scalar) -> Option<Self>;
}

macro_rules! element {
    ($($rust:ty, $kind:ident;)*) => {$(
        impl Element for $rust {
            const KIND: Kind = Kind::$kind;

            fn of(scalar: Scalar) -> Option<Self> {
                match scalar {
                    Scalar::$kind(element) => Some(element),
                    _ => None,
                }
            }
        }
    )*};
}

element! { f64, F64; i64, I64; i32, I32; u32, U32; u16, U16; i16, I16; Text, Text; }
