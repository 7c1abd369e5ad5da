//! Drives the database: passes puts, scans and link events to it one at a time, and delivers its events.

mod printer;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use fodo_data::{Now, Reading, Value};
use fodo_db::{
    Database, Event, ExternalLinkId, ExternalPvEvent, FieldMap, FieldRef, FilterContext, Input, LinkUsage, PutError,
    PutId,
};
use fodo_lock::{Condvar, Mutex, MutexGuard, Rank};
use fodo_net::{Completion, Peer, Post, RightsSignal};

use self::printer::Printer;
use crate::access_control::{AccessControl, LocalInputs, OutsideInputs, PutEvent, Rules};
use crate::limit;
use crate::link_client::{LinkRequests, RequestTarget};
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
    /// The number of threads waiting for the lock, so that late scans can yield to them.
    n_waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct DriverState {
    events: Vec<Event>,
    watched: FieldMap<Arc<RecordPv>>,
    /// Inputs of access rules: fields, and PVs of other IOCs.
    inputs: LocalInputs,
    outside_inputs: OutsideInputs,
    /// The current readings of `outside_inputs`; none while disconnected.
    outside_readings: HashMap<Arc<str>, Reading>,
    /// Notifies the server that access rights may have changed.
    signal: Option<RightsSignal>,
    puts: HashMap<PutId, PendingPut>,
    /// The last known deadline of the database; every change of it passes through `handle`.
    deadline: Option<Instant>,
    /// Whether scanning is paused.
    is_paused: bool,
    is_stopped: bool,
}

/// A put that has not completed.
#[derive(Debug)]
struct PendingPut {
    completion: Completion,
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
        let (link_requests, printer) = (Arc::default(), Printer::default());
        Arc::new(DatabaseDriver { database, guard, turn, changed, link_requests, printer, n_waiting })
    }

    /// The queued requests to other IOCs.
    pub fn link_requests(&self) -> &Arc<LinkRequests> {
        &self.link_requests
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
        let is_needed = |field: &FieldRef| turn.inputs.contains_key(field) || turn.watched.contains_key(field);
        before.into_keys().filter(|field| !is_needed(field)).for_each(|field| self.database.unwatch(field));
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

    fn lock(&self) -> MutexGuard<'_, DriverState> {
        if let Some(turn) = self.turn.try_lock() {
            return turn;
        }
        self.n_waiting.fetch_add(1, Ordering::Relaxed);
        let turn = self.turn.lock();
        self.n_waiting.fetch_sub(1, Ordering::Relaxed);
        turn
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
                Some(due) => drop(self.changed.wait_for(&mut turn, due - now)),
                None => self.changed.wait(&mut turn),
            }
        }
    }

    /// Pauses or resumes scans and all other timers.
    pub fn pause(&self, is_paused: bool) {
        self.lock().is_paused = is_paused;
        self.changed.notify_all();
    }

    pub fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
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
        let by = by.filter(|by| self.guard.reports_puts(&self.database, field, by));
        let mut turn = self.lock();
        if by.is_none() && completion.is_none() {
            // The fast path for most puts: neither logged nor awaited.
            return self.handle(&mut turn, Input::Put { field, value, put: None });
        }
        let written = by.map(|by| PutToLog { field, by: by.clone(), old: self.database.read(field).value });
        let put = completion.map(|completion| {
            let put = PutId(completion.number());
            turn.puts.insert(put, PendingPut { completion, written: None });
            put
        });
        let result = self.handle(&mut turn, Input::Put { field, value, put });
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
        if !turn.inputs.contains_key(&pv.field()) {
            self.database.unwatch(pv.field());
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

    /// Passes one input to the database and delivers its events in order.
    fn handle(&self, turn: &mut DriverState, input: Input) -> Result<(), PutError> {
        let mut events = std::mem::take(&mut turn.events);
        let (result, deadline) = self.database.handle_until(input, now(), &mut events);
        if !events.is_empty() {
            self.deliver(turn, &mut events);
        }
        turn.events = events;
        if std::mem::replace(&mut turn.deadline, deadline) != deadline {
            self.changed.notify_one();
        }
        result
    }

    fn deliver(&self, turn: &mut DriverState, events: &mut Vec<Event>) {
        let mut are_rights_new = false;
        for event in events.drain(..) {
            match event {
                Event::Posted { field, mask, reading } => {
                    if let Some(inputs) = turn.inputs.get(&field) {
                        are_rights_new |= self.guard.set_input(inputs, Some(&reading));
                    }
                    if let Some(pv) = turn.watched.get(&field) {
                        pv.post(Post { mask, reading });
                    }
                }
                Event::Printed { stream, line } => self.printer.print(stream, line),
                Event::PutDone { put } => {
                    if let Some(PendingPut { completion, written }) = turn.puts.remove(&put) {
                        written.into_iter().for_each(|written| self.report_put(written));
                        completion.complete();
                    }
                }
                Event::PutRefused { put, error } => {
                    if let Some(PendingPut { completion, .. }) = turn.puts.remove(&put) {
                        completion.refuse(refusal(error));
                    }
                }
                Event::ExternalLinkAdded { link, name, usage } => {
                    self.link_requests.open(RequestTarget::Link(link), &name.to_str(), usage)
                }
                Event::ExternalLinkRemoved { link } => self.link_requests.close(RequestTarget::Link(link)),
                Event::ExternalPut { link, value, put } => self.link_requests.put(link, value, put),
                Event::AccessGroupChanged => are_rights_new |= self.guard.has_rules(),
            }
        }
        if are_rights_new {
            turn.signal_rights();
        }
    }
}
