//! One call of the database: processing, links, timers, and deferred work.

use std::collections::HashMap;
use std::time::Instant;

use fodo_data::{EventMask, Kind, Now, Scalar, Status, Text, TimeStamp, Value};

use crate::common::Common;
use crate::core::Core;
use crate::device::DeviceSupport;
use crate::event::{Event, Stream};
use crate::field::DELAY;
use crate::input::Processing;
use crate::limit::{CHAIN_MAX, DEPTH_MAX, EVENTS_PENDING_MAX, LOCK_COUNT_MAX, SLICE_MAX};
use crate::link::inherit::InheritedAlarm;
use crate::link::{Inherit, LinkAccess, LinkError, Target, Trigger, TriggerCondition};
use crate::menu;
use crate::process::deferred::{CompletionWaiter, Deferred, DeferredQueue};
use crate::process::post::RecordPosts;
use crate::process::program::ProgramValues;
use crate::process::put::PutOrigin;
use crate::process::request_queue::{QueuedRequest, RequestQueue};
use crate::process::scan::{ScanPosition, Scans};
use crate::process::step::ProcessCause;
use crate::process::timers::{EngineTimers, Timer, delay};
use crate::program::ProgramDirection;
use crate::record::contract::{CHANGED, Record, with};
use crate::scan_menu::ScanMenu;

const STAT: u16 = Common::at("STAT");
const SEVR: u16 = Common::at("SEVR");
pub(crate) const PROC: u16 = Common::at("PROC");

/// The state behind the processing lock.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) is_started: bool,
    pub(crate) scans: Scans,
    /// How often a record was processed.
    pub(crate) n_processed: u64,
    pub(crate) timers: EngineTimers,
    pub(crate) deferred: DeferredQueue,
    /// The waiters, each with an active record that it waits for.
    pub(crate) waits: Vec<(CompletionWaiter, u32)>,
    /// The queue of each record with queued puts; bounded by the number of puts that the server accepts.
    pub(crate) request_queues: HashMap<u32, RequestQueue>,
    pub(crate) tasks: Vec<ProcessingTask>,
    pub(crate) program: ProgramValues,
    /// The next call is due at this time because work is left over.
    pub(crate) resume_at: Option<Instant>,
}

impl Engine {
    pub(crate) fn new(scan_menu: &ScanMenu) -> Engine {
        Engine {
            is_started: false,
            scans: Scans::new(scan_menu),
            n_processed: 0,
            timers: EngineTimers::default(),
            deferred: DeferredQueue::default(),
            waits: Vec::new(),
            request_queues: HashMap::new(),
            tasks: Vec::new(),
            program: ProgramValues::default(),
            resume_at: None,
        }
    }

    /// When the next call is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let scan = if self.is_started { self.scans.deadline() } else { None };
        [self.resume_at, self.timers.next_due(), scan].into_iter().flatten().min()
    }
}

/// A processing step on an explicit stack, so that a long FLNK chain cannot overflow the thread's stack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProcessingTask {
    Process { record: u32, cause: ProcessCause },
    Finish { record: u32 },
}

/// One call of [`crate::Database::handle`].
#[derive(Debug)]
pub(crate) struct EngineCall<'a> {
    pub(crate) core: &'a Core,
    pub(crate) engine: &'a mut Engine,
    pub(crate) now: Now,
    pub(crate) events: &'a mut Vec<Event>,
    /// The waiters of the current chain: one, or several if they all wait for the same record.
    pub(crate) waiters: Vec<CompletionWaiter>,
    pub(crate) depth: u16,
    /// How many records the current chain may still process.
    chain_left: u64,
    /// How often processing ended with [`crate::process::step::ProcessOutcome::Failed`].
    pub(crate) n_failed: u32,
}

impl<'a> EngineCall<'a> {
    pub(crate) fn new(core: &'a Core, engine: &'a mut Engine, now: Now, events: &'a mut Vec<Event>) -> EngineCall<'a> {
        EngineCall { core, engine, now, events, waiters: Vec::new(), depth: 0, chain_left: CHAIN_MAX, n_failed: 0 }
    }

    /// Runs `piece`, each time as a new chain, until it returns false or the limit of this slice is reached. Then the
    /// caller releases its lock. `n_slices`: the number of slices that share the limit of one call.
    pub(crate) fn slice(&mut self, n_slices: u64, mut piece: impl FnMut(&mut Self) -> bool) {
        let (mut spent, max) = (0, SLICE_MAX / n_slices.max(1));
        loop {
            self.begin_chain();
            if !piece(self) {
                return;
            }
            spent += (CHAIN_MAX - self.chain_left).max(1);
            if spent >= max {
                return;
            }
        }
    }

    /// Starts a new chain: resets its count of records.
    pub(crate) fn begin_chain(&mut self) {
        self.chain_left = CHAIN_MAX;
    }

    /// Counts one more record of the current chain. False: the chain is too long and ends here.
    pub(crate) fn count(&mut self, record: u32) -> bool {
        if self.chain_left == 1 {
            let name = self.core.names.get(record as usize).cloned().unwrap_or_default();
            let line =
                format!("a chain of links processes more than {CHAIN_MAX} records: {} is not processed", name.to_str());
            self.events.push(Event::Printed { stream: Stream::Error, line: line.into() });
        }
        self.chain_left = self.chain_left.saturating_sub(1);
        self.chain_left > 0
    }

    pub(crate) fn posts(&mut self, record: u32) -> RecordPosts<'_> {
        RecordPosts { record, events: self.events, deferred: &mut self.engine.deferred }
    }

    /// Locks a record briefly.
    pub(crate) fn with<T>(
        &mut self,
        record: u32,
        visit: impl FnOnce(&mut dyn Record, &mut RecordPosts) -> T,
    ) -> Option<T> {
        let cell = self.core.cell(record)?;
        let mut posts = RecordPosts { record, events: self.events, deferred: &mut self.engine.deferred };
        with(cell, |body| visit(body, &mut posts))
    }

    /// Processes a record, and the records that its links process.
    pub(crate) fn process(&mut self, record: u32) {
        self.run(record, ProcessCause::Called);
    }

    /// Processes a record because a value that it reads has changed. An active record is processed once more when it is
    /// done, and this does not count as an attempt to process it (LCNT). As after a put (PUTF), that holds as well for the
    /// records that this record processes.
    ///
    /// Source: EPICS Base 7.0.10, dbCaTask.
    pub(crate) fn process_for_change(&mut self, record: u32) {
        let is_active = self.with(record, |body, _| {
            let common = body.common();
            let is_active = common.is_active != 0;
            let mark = if is_active { &mut common.reprocess } else { &mut common.put_process };
            *mark = 1;
            is_active
        });
        if is_active == Some(false) {
            self.process(record);
        }
    }

    /// Completes a record that waited.
    pub(crate) fn complete(&mut self, record: u32) {
        // The waiters of this record also wait for the records that it processes now.
        let waits = &self.engine.waits;
        let waiters = waits.iter().filter(|(_, of)| *of == record).map(|(waiter, _)| *waiter).collect();
        self.with_waiters(waiters, |call| call.run(record, ProcessCause::Completion));
    }

    /// Posts an event. If too many are pending, that is reported once, as in Base.
    pub(crate) fn post_event(&mut self, name: Text) {
        if self.engine.deferred.event(name.clone()) {
            let line = format!("{EVENTS_PENDING_MAX} events are pending: the event {} is dropped", name.to_str());
            self.events.push(Event::Printed { stream: Stream::Error, line: line.into() });
        }
    }

    /// Runs `work` for `waiters`, and then reports completion to the waiters that wait for nothing more.
    pub(crate) fn with_waiters<T>(&mut self, waiters: Vec<CompletionWaiter>, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.waiters, waiters);
        let result = work(self);
        for waiter in std::mem::replace(&mut self.waiters, before) {
            self.complete_if_done(waiter);
        }
        result
    }

    /// The waiters of the current chain now also wait for this active record.
    pub(crate) fn wait_for(&mut self, record: u32) {
        for waiter in &self.waiters {
            if !self.engine.waits.contains(&(*waiter, record)) {
                self.engine.waits.push((*waiter, record));
            }
        }
    }

    pub(crate) fn complete_if_done(&mut self, waiter: CompletionWaiter) {
        if self.engine.waits.iter().any(|(waiting, _)| *waiting == waiter) {
            return;
        }
        match waiter {
            CompletionWaiter::Put(put) => self.events.push(Event::PutDone { put }),
            CompletionWaiter::Record { record, number } => {
                self.engine.deferred.push(Deferred::PutDone { record, number })
            }
        }
    }

    pub(crate) fn run(&mut self, record: u32, cause: ProcessCause) {
        let base = self.engine.tasks.len();
        self.engine.tasks.push(ProcessingTask::Process { record, cause });
        while self.engine.tasks.len() > base {
            match self.engine.tasks.pop() {
                Some(ProcessingTask::Process { record, cause }) => {
                    if let Some(cell) = self.core.cell(record) {
                        cell.process(self, record, cause);
                    }
                }
                Some(ProcessingTask::Finish { record }) => self.finish(record),
                None => return,
            }
        }
    }

    /// Processes the target of a forward link at once, inside the processing of `from`.
    pub(crate) fn process_forward_link(&mut self, from: u32, access: &LinkAccess) -> Result<(), LinkError> {
        let to = match access.target {
            Target::Field { record, modifiers, .. } if modifiers.trigger != Trigger::Channel => record,
            _ => {
                self.forward_by_put(from, access);
                return Ok(());
            }
        };
        if self.depth >= DEPTH_MAX {
            return Err(LinkError);
        }
        // A failure of the target is not a failure of this record.
        let _ = self.process_target(from, to);
        Ok(())
    }

    fn finish(&mut self, record: u32) {
        let must_reprocess = self.with(record, |body, _| body.common().finish());
        self.after_processing(record, must_reprocess == Some(true));
    }

    /// The record is done and no record is locked: starts the next queued request and reports completion to waiters.
    pub(crate) fn after_processing(&mut self, record: u32, must_reprocess: bool) {
        // In Base the order of queued requests and RPRO depends on a race; here queued requests come first.
        self.schedule_next_request(record);
        if must_reprocess {
            self.engine.deferred.push(Deferred::Reprocess { record });
        }
        if !self.engine.waits.is_empty() {
            let mut ended = Vec::new();
            self.engine.waits.retain(|&(waiter, of)| {
                // The waiters of the current chain are notified when the chain is done.
                if of == record && !self.waiters.contains(&waiter) {
                    ended.push(waiter);
                }
                of != record
            });
            for waiter in ended {
                self.complete_if_done(waiter);
            }
        }
    }

    /// Processes the target of a PP link, inside the processing of `from`.
    fn process_target(&mut self, from: u32, to: u32) -> Result<(), LinkError> {
        let is_passive = self.with(to, |body, _| body.common().scan == menu::PASSIVE);
        if is_passive != Some(true) {
            return Ok(());
        }
        self.process_nested(from, to)
    }

    fn process_nested(&mut self, from: u32, to: u32) -> Result<(), LinkError> {
        if self.depth >= DEPTH_MAX {
            return Err(LinkError);
        }
        // `from` counts as active meanwhile, so that a chain that leads back to it does not process it again.
        let before = self.with(from, |body, _| {
            let common = body.common();
            let before =
                (std::mem::replace(&mut common.is_active, 1), std::mem::replace(&mut common.is_in_chain, true));
            (before, common.put_process)
        });
        let (before, put_process) = before.unwrap_or_default();
        let was_active = self.with(to, |body, _| {
            let common = body.common();
            common.prepare_target(put_process);
            common.is_active != 0
        });
        self.depth += 1;
        self.process(to);
        self.depth -= 1;
        self.with(from, |body, _| {
            let common = body.common();
            (common.is_active, common.is_in_chain) = before;
        });
        // A link to a record that was already active is not broken, as in Base.
        let has_failed = self.with(to, |body, _| body.common().has_failed && was_active == Some(false));
        if has_failed == Some(false) { Ok(()) } else { Err(LinkError) }
    }

    /// Reads the target of a link of `record`, as elements of a kind. `None`: the link is constant.
    pub(crate) fn read_target(&mut self, record: u32, target: Target, kind: Kind) -> Result<Option<Value>, LinkError> {
        self.read_target_at_least(0, record, target, kind)
    }

    /// Reads the first element of a link's target. If the target is an empty array, the link is broken.
    pub(crate) fn read_target_first(
        &mut self,
        record: u32,
        target: Target,
        kind: Kind,
    ) -> Result<Option<Scalar>, LinkError> {
        Ok(self.read_target_at_least(1, record, target, kind)?.and_then(|value| value.first()))
    }

    fn read_target_at_least(
        &mut self,
        n_elements: usize,
        record: u32,
        target: Target,
        kind: Kind,
    ) -> Result<Option<Value>, LinkError> {
        let (from, field, modifiers) = match target {
            Target::Constant => return Ok(None),
            Target::External { .. } | Target::Missing => return Err(LinkError),
            Target::Field { record: from, field, modifiers } => (from, field, modifiers),
        };
        if modifiers.trigger == Trigger::Passive {
            self.process_target(record, from)?;
        }
        if self.core.is_link(from, field) {
            // As in Base, a link cannot read a link field.
            return Err(LinkError);
        }
        // A record inherits its own alarm only through a channel link, as in Base.
        let is_inherited = modifiers.inherit != Inherit::Not && (from != record || modifiers.is_channel());
        let read = self.with(from, |body, _| {
            let is_unset = field == body.record_type().value && body.is_unset();
            let value = if is_unset {
                Value::from(Vec::<Text>::new())
            } else {
                crate::process::post::reading(body, field).value
            };
            let common = body.common();
            let alarm =
                || InheritedAlarm { status: common.status, severity: common.severity, message: common.message.clone() };
            (value, is_inherited.then(alarm))
        });
        let (value, alarm) = read.ok_or(LinkError)?;
        let value = match modifiers.is_channel() {
            true => self.core.convert_for_channel(from, field, value, kind),
            false => self.core.convert(from, field, value, kind),
        };
        let value = value.map_err(|_| LinkError)?;
        if value.len() < n_elements {
            return Err(LinkError);
        }
        if let Some(alarm) = alarm {
            self.with(record, |body, _| body.common().inherit(modifiers.inherit, alarm));
        }
        Ok(Some(value))
    }

    /// Writes a value through a link of `from`, and processes the target if the link is PP.
    pub(crate) fn write_target(&mut self, from: u32, target: Target, value: Value) -> Result<(), LinkError> {
        let (to, field, modifiers) = match target {
            Target::Constant => return Ok(()),
            Target::External { .. } | Target::Missing => return Err(LinkError),
            Target::Field { record, field, modifiers } => (record, field, modifiers),
        };
        if modifiers.trigger == Trigger::Channel {
            return self.engine.deferred.put(to, field, value, None);
        }
        let written = self.write(to, field, value, PutOrigin::Record);
        if modifiers.inherit != Inherit::Not {
            let alarm = self.with(from, |body, _| {
                let common = body.common();
                let message = common.new_message.clone();
                InheritedAlarm { status: common.new_status, severity: common.new_severity, message }
            });
            self.with(to, |body, _| alarm.map(|alarm| body.common().inherit(modifiers.inherit, alarm)));
        }
        written.map_err(|_| LinkError)?;
        if field == PROC {
            return self.process_nested(from, to);
        }
        if modifiers.trigger == Trigger::Passive { self.process_target(from, to) } else { Ok(()) }
    }

    /// The time stamp and tag of a record.
    pub(crate) fn time_of(&mut self, record: u32) -> (TimeStamp, u64) {
        self.with(record, |body, _| (body.common().time, body.common().user_tag)).unwrap_or_default()
    }

    /// Starts a timer. `after_s`: in seconds, as a client wrote it; any number is accepted.
    pub(crate) fn start_timer(&mut self, after_s: f64, timer: Timer) {
        self.engine.timers.start(timer, self.now.monotonic + delay(after_s));
    }

    /// Moves a record to another scan list, after SCAN or PHAS changed. `before`: the previous SCAN.
    pub(crate) fn rescan(&mut self, record: u32, before: u16) {
        let position = self.with(record, |body, _| {
            make_passive_without_interrupts(body);
            ScanPosition::of(body.common())
        });
        if let Some(position) = position {
            self.engine.scans.remove(before, record);
            self.engine.scans.add(&position, record, self.now.monotonic);
        }
    }

    /// Runs one item of deferred work.
    pub(crate) fn run_deferred(&mut self, deferred: Deferred) {
        match deferred {
            Deferred::StartNextRequest { record } => self.start_next_request(record),
            Deferred::Reprocess { record } => self.process(record),
            Deferred::Complete { record } => self.complete(record),
            Deferred::DelayPosts { record } => self.delay_posts(record),
            Deferred::Event { name } => {
                let records = self.engine.scans.of_event(&name);
                self.engine.deferred.scan_by_event(records);
            }
            Deferred::ByEvent { record } => {
                if self.with(record, |body, _| body.common().scan) == Some(menu::EVENT) {
                    self.process(record);
                }
            }
            Deferred::Notify { from, to } => {
                // A request to process is never rejected.
                let _ =
                    self.execute(to, CompletionWaiter::Record { record: from, number: 0 }, QueuedRequest::Processing);
            }
            Deferred::Follow { record, when } => {
                let is_triggered = self.with(record, |body, _| match when {
                    TriggerCondition::Always => true,
                    TriggerCondition::IfPassive => body.common().scan == menu::PASSIVE,
                    TriggerCondition::IfInterrupt(field) => {
                        body.common().scan == menu::IO_INTERRUPT && body.is_interrupted_by(field)
                    }
                });
                if is_triggered == Some(true) {
                    self.process_for_change(record);
                }
            }
            Deferred::Put { record, field, value, waiter } => {
                let Some(waiter) = waiter else {
                    // As for a client's put without callback, no record receives a rejection.
                    let _ = self.put_field(record, field, value, Processing::Passive);
                    return;
                };
                let request = QueuedRequest::Put { field, value, processing: Processing::Passive };
                if self.execute(record, waiter, request).is_err() {
                    self.complete_if_done(waiter);
                }
            }
            Deferred::PutDone { record, number } => {
                if self.with(record, |body, posts| body.writes_completed(number, posts)) == Some(true) {
                    self.complete(record);
                }
            }
            Deferred::Abort { record } => {
                self.engine.timers.stop(Timer::Complete(record));
                if self.with(record, |body, _| body.common().is_active) == Some(1) {
                    self.complete(record);
                }
            }
        }
    }

    pub(crate) fn run_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Complete(record) => self.complete(record),
            Timer::Release(record) => self.release(record),
            Timer::Post(record) => {
                let now = self.now.wall;
                self.with(record, |body, posts| body.post_collected(now, posts));
                self.delay_posts(record);
            }
        }
    }

    /// Schedules the next post of the values that a record gathers, one interval from now. Without an interval, a timer
    /// that already runs is kept.
    fn delay_posts(&mut self, record: u32) {
        if let Some(interval_s) = self.with(record, |body, _| body.collect_interval_s()).flatten() {
            self.start_timer(interval_s, Timer::Post(record));
        }
    }

    /// Ends a momentary output (HIGH of bo): sets VAL to 0 and processes the record. If the record is active, tries
    /// again after HIGH.
    ///
    /// Source: EPICS Base 7.0, bo's myCallbackFunc.
    fn release(&mut self, record: u32) {
        let again = self.with(record, |body, _| {
            let is_active = body.common().is_active != 0;
            let kind = body.record_type();
            let high_s = match kind.field_with(DELAY).and_then(|field| body.slot(field)).map(|slot| slot.value()) {
                Some(Value::Scalar(Scalar::F64(seconds))) => seconds,
                _ => 0.0,
            };
            if !is_active && let Some(mut slot) = body.slot(kind.value) {
                slot.set(Scalar::Enum(0));
            }
            is_active.then_some(high_s)
        });
        match again.flatten() {
            Some(high_s) if high_s > 0.0 => self.start_timer(high_s, Timer::Release(record)),
            Some(_) => {}
            None => self.process(record),
        }
    }
}

/// Makes a record with SCAN I/O Intr passive, as Base does without interrupt support; except if its own links or the
/// program can trigger it.
pub(crate) fn make_passive_without_interrupts(body: &mut dyn Record) {
    if body.common().scan != menu::IO_INTERRUPT || body.record_type().is_interrupted_by_links() {
        return;
    }
    let direction = DeviceSupport::of(body).program_direction(body.record_type());
    if direction != Some(ProgramDirection::Input) {
        body.common().scan = menu::PASSIVE;
    }
}

/// Counts that an active record is processed again; beyond the limit the record goes into SCAN alarm.
pub(crate) fn count_active(body: &mut dyn Record, posts: &mut RecordPosts) {
    let common = body.common();
    if common.status == Status::SCAN.0 {
        return;
    }
    let count = common.lock_count;
    common.lock_count = count.wrapping_add(1);
    if count < LOCK_COUNT_MAX || common.severity >= menu::INVALID {
        return;
    }
    common.raise_with_message(Status::SCAN, menu::INVALID, "Async in progress".into());
    let mask = posts.alarms(body) | CHANGED;
    let value = body.record_type().value;
    posts.post(body, value, mask);
}

/// Sets the alarm of a disabled record: DISABLE, with the severity in DISS.
pub(crate) fn set_disable_alarm(body: &mut dyn Record, posts: &mut RecordPosts) {
    let common = body.common();
    common.reprocess = 0;
    common.put_process = 0;
    if common.status == Status::DISABLE.0 {
        return;
    }
    common.severity = common.disable_severity;
    common.status = Status::DISABLE.0;
    common.new_severity = menu::NO_ALARM;
    common.new_status = Status::NO_ALARM.0;
    posts.post(body, STAT, EventMask::VALUE);
    posts.post(body, SEVR, EventMask::VALUE);
    let value = body.record_type().value;
    posts.post(body, value, EventMask::VALUE | EventMask::ALARM);
}
