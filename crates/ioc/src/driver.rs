//! Drives the database: passes puts, scans and link events to it one at a time, and delivers its events.

mod groups;
mod printer;
mod turn;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use fodo_data::{EventMask, Now, Reading, Value};
use fodo_db::{
    Database, Event, ExternalLinkId, ExternalPvEvent, FieldMap, FieldRef, FilterContext, Input, LinkUsage, OutputId,
    OutputResult, Processing, ProgramError, ProgramValue, PutError, PutId,
};
use fodo_lock::{Condvar, Mutex, Rank};
use fodo_net::{Completion, Peer, Post, RightsSignal};

use self::printer::Printer;
use self::turn::{EndedPuts, Turn};
use crate::access_control::{AccessControl, LocalInputs, OutsideInputs, PutEvent, Rules};
use crate::group::GroupPv;
use crate::limit;
use crate::link_client::{LinkRequests, RequestTarget};
use crate::program::output::{OutputQueue, WaitingOutput};
use crate::pv::{RecordPv, refusal};

/// The database with the lock that serialises its processing.
#[derive(Debug)]
pub struct DatabaseDriver {
    database: Database,
    guard: AccessControl,
    turn: Mutex<DriverState>,
    /// Signals that the next deadline has changed or the IOC must stop.
    changed: Condvar,
    link_requests: Arc<LinkRequests>,
    printer: Printer,
    /// Values of outputs that the program takes.
    outputs: OutputQueue,
    /// The number of threads waiting for the lock, so that late scans can yield to them.
    n_waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct DriverState {
    events: Vec<Event>,
    watched: FieldMap<Arc<RecordPv>>,
    /// The members of groups that clients subscribe to, by their fields: groups with the indexes of their members.
    group_fields: FieldMap<Vec<(Arc<GroupPv>, usize)>>,
    /// The groups with members that were triggered in this turn.
    triggered: Vec<Arc<GroupPv>>,
    /// Inputs of access rules: fields, and PVs of other IOCs.
    inputs: LocalInputs,
    outside_inputs: OutsideInputs,
    /// The current readings of `outside_inputs`; none while disconnected.
    outside_readings: HashMap<Arc<str>, Reading>,
    /// Notifies the server that access rights may have changed.
    signal: Option<RightsSignal>,
    puts: HashMap<PutId, PendingPut>,
    /// Puts of the program that ended in this turn.
    ended: EndedPuts,
    n_program_puts: u64,
    /// The last known deadline of the database; every change of it passes through `handle`.
    deadline: Option<Instant>,
    /// Whether scanning is paused.
    is_paused: bool,
    is_stopped: bool,
}

/// The changes that inputs of access rules receive, as in Base.
const INPUT_CHANGES: EventMask = EventMask::VALUE.with(EventMask::ALARM);

/// Reports how a put of the program has ended.
pub type ProgramPut = Box<dyn FnOnce(Result<(), ProgramPutError>) + Send>;

/// Why a put of the program has failed.
#[derive(Debug)]
pub enum ProgramPutError {
    Refused(PutError),
    /// The IOC stopped before the put had ended.
    Stopped,
}

/// Who waits for a put.
enum PutOwner {
    Client(Completion),
    Program(ProgramPut),
}

impl fmt::Debug for PutOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, PutOwner::Client(_)) { "Client" } else { "Program" })
    }
}

/// One write of a client.
#[derive(Debug)]
pub struct FieldWrite {
    pub field: FieldRef,
    pub value: Value,
    pub processing: Processing,
}

/// A put that has not completed.
#[derive(Debug)]
struct PendingPut {
    owner: PutOwner,
    /// The log entry to complete after the write, while the put waits for its record.
    written: Option<PutToLog>,
}

/// The part of a put's log entry that is known before the write.
#[derive(Debug)]
struct PutToLog {
    field: FieldRef,
    by: Peer,
    old: Value,
}

impl DriverState {
    /// Reports the end of a put; to the program when the lock is free again.
    fn end_put(&mut self, owner: PutOwner, result: Result<(), PutError>) {
        match (owner, result) {
            (PutOwner::Client(completion), Ok(())) => completion.complete(),
            (PutOwner::Client(completion), Err(error)) => completion.refuse(refusal(error)),
            (PutOwner::Program(ended), result) => self.ended.push(ended, result.map_err(ProgramPutError::Refused)),
        }
    }

    fn signal_rights(&self) {
        if let Some(signal) = &self.signal {
            signal.notify_changed();
        }
    }
}

fn now() -> Now {
    Now { monotonic: Instant::now(), wall: SystemTime::now().into() }
}

impl DatabaseDriver {
    pub fn new(database: Database, guard: AccessControl) -> Arc<DatabaseDriver> {
        let turn = Mutex::ranked(Rank::Driver, DriverState::default());
        let (changed, n_waiting) = (Condvar::new(), AtomicUsize::new(0));
        let (link_requests, printer, outputs) = (Arc::default(), Printer::default(), OutputQueue::default());
        Arc::new(DatabaseDriver { database, guard, turn, changed, link_requests, printer, outputs, n_waiting })
    }

    /// The queued requests to other IOCs.
    pub fn link_requests(&self) -> &Arc<LinkRequests> {
        &self.link_requests
    }

    /// The values of outputs that the program has not taken yet.
    pub fn outputs(&self) -> &OutputQueue {
        &self.outputs
    }

    pub fn guard(&self) -> &AccessControl {
        &self.guard
    }

    /// Waits until the lines that records have printed are written, but not long for an output that is not read.
    pub fn flush_printed(&self) {
        self.printer.flush(limit::PRINT_FLUSH);
    }

    /// Replaces the access rules and sets their inputs to the current readings.
    pub fn set_rules(&self, rules: Rules) {
        let mut turn = self.lock();
        let before = std::mem::replace(&mut turn.inputs, rules.inputs);
        before.into_keys().for_each(|field| self.unwatch_unused(&turn, field));
        self.guard.set_rules(rules.security);
        for (field, inputs) in &turn.inputs {
            self.database.watch(*field);
            self.guard.set_input(inputs, Some(&self.database.read(*field)));
        }
        self.connect_remote_inputs(&mut turn, rules.outside_inputs);
        turn.signal_rights();
    }

    /// Connects the rule inputs of other IOCs; inputs that existed before keep their channel and reading.
    fn connect_remote_inputs(&self, turn: &mut DriverState, inputs: OutsideInputs) {
        let before = std::mem::replace(&mut turn.outside_inputs, inputs);
        for name in before.keys().filter(|name| !turn.outside_inputs.contains_key(*name)) {
            turn.outside_readings.remove(name);
            self.link_requests.close(RequestTarget::Input(name.clone()));
        }
        for (name, inputs) in &turn.outside_inputs {
            self.guard.set_input(inputs, turn.outside_readings.get(name));
            if !before.contains_key(name) {
                self.link_requests.open(RequestTarget::Input(name.clone()), name, LinkUsage::Reads);
            }
        }
    }

    /// Updates a rule input from another IOC; `None` when it is disconnected.
    pub fn set_remote_input(&self, name: &Arc<str>, reading: Option<Reading>) {
        let mut turn = self.lock();
        let Some(inputs) = turn.outside_inputs.get(name) else { return };
        if self.guard.set_input(inputs, reading.as_ref()) {
            turn.signal_rights();
        }
        match reading {
            Some(reading) => turn.outside_readings.insert(name.clone(), reading),
            None => turn.outside_readings.remove(name),
        };
    }

    /// Handles an event of a link to another IOC.
    pub fn handle_link_event(&self, link: ExternalLinkId, event: ExternalPvEvent) {
        let mut turn = self.lock();
        if !turn.is_stopped {
            // This input is never refused.
            let _ = self.handle(&mut turn, Input::ExternalPv { link, event });
        }
    }

    /// Handles events of several links together: all are visible before the first record is processed.
    pub fn handle_link_events(&self, events: Vec<(ExternalLinkId, ExternalPvEvent)>) {
        let mut turn = self.lock();
        if !turn.is_stopped {
            // This input is never refused.
            let _ = self.handle(&mut turn, Input::ExternalPvs { events });
        }
    }

    /// Sets the signal for changed access rights.
    pub fn set_signal(&self, signal: RightsSignal) {
        let mut turn = self.lock();
        turn.signal = Some(signal);
        // Clients may have connected before this call.
        turn.signal_rights();
    }

    pub fn database(&self) -> &Database {
        &self.database
    }

    fn lock(&self) -> Turn<'_> {
        if let Some(turn) = self.turn.try_lock() {
            return Turn::new(turn);
        }
        self.n_waiting.fetch_add(1, Ordering::Relaxed);
        let turn = self.turn.lock();
        self.n_waiting.fetch_sub(1, Ordering::Relaxed);
        Turn::new(turn)
    }

    /// Yields to waiting threads; bounded, because new threads may arrive continuously.
    fn yield_to_waiters(&self) {
        for _ in 0..limit::YIELDS_MAX {
            if self.n_waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Sets initial values and processes PINI records.
    pub fn start(&self) {
        let mut turn = self.lock();
        // This input is never refused.
        let _ = self.handle(&mut turn, Input::Start);
    }

    /// Scans until [`DatabaseDriver::stop`]. Other threads can take the lock between two slices.
    pub fn run_scans(&self) {
        let mut turn = self.lock();
        while !turn.is_stopped {
            let now = Instant::now();
            match self.database.deadline().filter(|_| !turn.is_paused) {
                Some(due) if due <= now => {
                    // This input is never refused.
                    let _ = self.handle(&mut turn, Input::Tick);
                    drop(turn);
                    self.yield_to_waiters();
                    turn = self.lock();
                }
                Some(due) => drop(self.changed.wait_for(turn.guard(), due - now)),
                None => self.changed.wait(turn.guard()),
            }
        }
    }

    /// Pauses or resumes scans and all other timers.
    pub fn pause(&self, is_paused: bool) {
        self.lock().is_paused = is_paused;
        self.changed.notify_all();
    }

    /// Stops the scans. From now on the program can set nothing, and its puts end.
    pub fn stop(&self) {
        let mut turn = self.lock();
        turn.is_stopped = true;
        let puts = std::mem::take(&mut turn.puts);
        drop(turn);
        self.changed.notify_all();
        self.outputs.stop();
        for PendingPut { owner, .. } in puts.into_values() {
            if let PutOwner::Program(ended) = owner {
                ended(Err(ProgramPutError::Stopped));
            }
        }
    }

    /// Writes a field and runs the processing that this triggers, on this thread.
    ///
    /// `by`: the client; `None` for the shell, whose puts are not logged.
    pub fn put(
        &self,
        field: FieldRef,
        value: Value,
        by: Option<&Peer>,
        completion: Option<Completion>,
    ) -> Result<(), PutError> {
        self.put_processing(field, value, Processing::Passive, by, completion)
    }

    /// The same; the client decides whether the put processes the record.
    pub fn put_processing(
        &self,
        field: FieldRef,
        value: Value,
        processing: Processing,
        by: Option<&Peer>,
        completion: Option<Completion>,
    ) -> Result<(), PutError> {
        let by = by.filter(|by| self.guard.reports_puts(&self.database, field, by));
        let mut turn = self.lock();
        let result = self.put_in_turn(&mut turn, FieldWrite { field, value, processing }, by, completion);
        self.post_groups(&mut turn);
        result
    }

    /// Writes a field; the caller posts to groups. `by`: `None` if the put is not logged.
    #[inline]
    fn put_in_turn(
        &self,
        turn: &mut DriverState,
        FieldWrite { field, value, processing }: FieldWrite,
        by: Option<&Peer>,
        completion: Option<Completion>,
    ) -> Result<(), PutError> {
        if by.is_none() && completion.is_none() {
            // The fast path for most puts: neither logged nor awaited.
            return self.process_input(turn, Input::PutProcessing { field, value, processing, put: None });
        }
        let written = by.map(|by| PutToLog { field, by: by.clone(), old: self.database.read(field).value });
        let put = completion.map(|completion| {
            let put = PutId(completion.number());
            turn.puts.insert(put, PendingPut { owner: PutOwner::Client(completion), written: None });
            put
        });
        let result = self.process_input(turn, Input::PutProcessing { field, value, processing, put });
        if let (Err(_), Some(put)) = (&result, put) {
            turn.puts.remove(&put);
        }
        if let (Ok(()) | Err(PutError::ProcessingFailed), Some(written)) = (&result, written) {
            let waiting = put.filter(|put| self.database.is_put_queued(field, *put));
            match waiting.and_then(|put| turn.puts.get_mut(&put)) {
                Some(pending) => pending.written = Some(written),
                None => self.report_put(written),
            }
        }
        result
    }

    /// The program writes a field like a client without name; such puts are not logged. `ended`: is called without a lock
    /// held, unless the put is refused now.
    pub fn put_by_program(
        &self,
        field: FieldRef,
        value: Value,
        ended: Option<ProgramPut>,
    ) -> Result<(), ProgramPutError> {
        /// The numbers of the puts of clients are below.
        const FIRST: u64 = 1 << 63;
        let mut turn = self.lock();
        if turn.is_stopped {
            return Err(ProgramPutError::Stopped);
        }
        let put = ended.map(|ended| {
            turn.n_program_puts += 1;
            let put = PutId(FIRST | turn.n_program_puts);
            turn.puts.insert(put, PendingPut { owner: PutOwner::Program(ended), written: None });
            put
        });
        let result = self.handle(&mut turn, Input::Put { field, value, put });
        if let (Err(_), Some(put)) = (&result, put) {
            turn.puts.remove(&put);
        }
        result.map_err(ProgramPutError::Refused)
    }

    /// The program sets values of records with DTYP Program, under one lock. Returns the positions of the values that are
    /// refused, with the reasons; `None`: the IOC has stopped.
    pub fn set_by_program(
        &self,
        values: impl IntoIterator<Item = (FieldRef, ProgramValue)>,
    ) -> Option<Vec<(usize, ProgramError)>> {
        let mut turn = self.lock();
        if turn.is_stopped {
            return None;
        }
        let mut events = std::mem::take(&mut turn.events);
        let (refused, deadline) = self.database.set_by_program(values, now(), &mut events);
        self.deliver_all(&mut turn, events, deadline);
        self.post_groups(&mut turn);
        Some(refused)
    }

    /// The program has handled the value of an output. Ignored once the IOC has stopped.
    pub fn complete_output(&self, record: FieldRef, output: OutputId, result: OutputResult) {
        let mut turn = self.lock();
        if !turn.is_stopped {
            // This input is never refused.
            let _ = self.handle(&mut turn, Input::CompleteOutput { record, output, result });
        }
    }

    fn report_put(&self, PutToLog { field, by, old }: PutToLog) {
        let new = self.database.read(field).value;
        let (pv, meta) = (self.database.name(field), self.database.meta(field));
        self.guard.report_put(PutEvent { time: now().wall, by, pv, old, new, meta });
    }

    /// Cancels a put; if it still waits for its record, it is not executed.
    pub fn give_up(&self, field: FieldRef, put: PutId) {
        let mut turn = self.lock();
        let is_unwritten = self.database.is_put_queued(field, put);
        // This input is never refused.
        let _ = self.handle(&mut turn, Input::CancelPut { field, put });
        let written = turn.puts.remove(&put).and_then(|pending| pending.written);
        if let Some(written) = written.filter(|_| !is_unwritten) {
            self.report_put(written);
        }
    }

    /// Passes any other input to the database.
    pub fn input(&self, input: Input) -> Result<(), PutError> {
        self.handle(&mut self.lock(), input)
    }

    /// Posts the changes of a PV while it has listeners.
    ///
    /// Subscribing and unsubscribing threads may call this in either order, so it queries `has_listeners` for the
    /// current state.
    pub fn watch(&self, pv: &Arc<RecordPv>) {
        let mut turn = self.lock();
        let pv = pv.register_with_source();
        if pv.has_listeners() {
            turn.watched.insert(pv.field(), pv.clone());
            self.database.watch(pv.field());
            return;
        }
        turn.watched.remove(&pv.field());
        self.unwatch_unused(&turn, pv.field());
    }

    /// Stops posting changes of a field that is not needed any more.
    fn unwatch_unused(&self, turn: &DriverState, field: FieldRef) {
        let is_needed = turn.inputs.contains_key(&field)
            || turn.watched.contains_key(&field)
            || turn.group_fields.contains_key(&field);
        if !is_needed {
            self.database.unwatch(field);
        }
    }

    /// The fields that clients subscribe to.
    pub fn watched(&self) -> Vec<FieldRef> {
        self.lock().watched.keys().copied().collect()
    }

    /// The context that filters of a channel to the field need.
    pub fn filter_context(&self, field: FieldRef) -> FilterContext<'_> {
        self.database.filter_context(field, now().wall)
    }

    /// Calls `work` while no change can be posted.
    pub fn while_locked(&self, work: &mut dyn FnMut()) {
        let _turn = self.lock();
        work();
    }

    /// Passes one input to the database, delivers its events in order, and posts what it has triggered in groups.
    fn handle(&self, turn: &mut DriverState, input: Input) -> Result<(), PutError> {
        let result = self.process_input(turn, input);
        self.post_groups(turn);
        result
    }

    /// Passes one input to the database and delivers its events in order.
    fn process_input(&self, turn: &mut DriverState, input: Input) -> Result<(), PutError> {
        let mut events = std::mem::take(&mut turn.events);
        let (result, deadline) = self.database.handle_until(input, now(), &mut events);
        self.deliver_all(turn, events, deadline);
        result
    }

    /// Delivers events, and keeps their buffer and the new deadline.
    fn deliver_all(&self, turn: &mut DriverState, mut events: Vec<Event>, deadline: Option<Instant>) {
        if !events.is_empty() {
            self.deliver(turn, &mut events);
        }
        turn.events = events;
        if std::mem::replace(&mut turn.deadline, deadline) != deadline {
            self.changed.notify_one();
        }
    }

    fn deliver(&self, turn: &mut DriverState, events: &mut Vec<Event>) {
        let mut are_rights_new = false;
        for event in events.drain(..) {
            match event {
                Event::Posted { field, mask, reading } => {
                    if let Some(inputs) = turn.inputs.get(&field).filter(|_| mask.meets(INPUT_CHANGES)) {
                        are_rights_new |= self.guard.set_input(inputs, Some(&reading));
                    }
                    if !turn.group_fields.is_empty() {
                        let members = turn.group_fields.get(&field).into_iter().flatten();
                        let triggered = members.filter(|(group, index)| group.trigger(*index, mask, &reading));
                        turn.triggered.extend(triggered.map(|(group, _)| group.clone()));
                    }
                    if let Some(pv) = turn.watched.get(&field) {
                        pv.post(Post { mask, reading });
                    }
                }
                Event::Printed { stream, line } => self.printer.print(stream, line),
                Event::PutDone { put } => {
                    if let Some(PendingPut { owner, written }) = turn.puts.remove(&put) {
                        written.into_iter().for_each(|written| self.report_put(written));
                        turn.end_put(owner, Ok(()));
                    }
                }
                Event::PutRefused { put, error } => {
                    if let Some(PendingPut { owner, .. }) = turn.puts.remove(&put) {
                        turn.end_put(owner, Err(error));
                    }
                }
                Event::OutputReady { record, output, value, previous } => {
                    self.outputs.push(WaitingOutput { record, output, value, previous });
                }
                Event::ExternalLinkAdded { link, usage, pva: Some(options), .. } => {
                    self.link_requests.open_shared(link, options, usage);
                }
                Event::ExternalLinkAdded { link, name, usage, pva: None } => {
                    self.link_requests.open(RequestTarget::Link(link), &name.to_str(), usage)
                }
                Event::ExternalLinkRemoved { link } => self.link_requests.close(RequestTarget::Link(link)),
                Event::ExternalPut { link, value, put, is_awaited } => {
                    self.link_requests.put(link, value, put, is_awaited);
                }
                Event::ExternalProcess { link } => self.link_requests.process(link),
                Event::AccessGroupChanged => are_rights_new |= self.guard.has_rules(),
            }
        }
        if are_rights_new {
            turn.signal_rights();
        }
    }
}
