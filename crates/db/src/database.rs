//! The running database: reads at any time, one input at a time.

use std::sync::Arc;
use std::time::Instant;

use fodo_data::{Meta, Now, Reading, Text, TimeStamp, Value};
use fodo_lock::{Mutex, MutexGuard, Rank};

use crate::common::Common;
use crate::core::Core;
use crate::error::PutError;
use crate::event::Event;
use crate::filter::{ChannelError, ChannelField, FilterContext};
use crate::input::{Input, Processing};
use crate::load::{Info, LoadError, LoadedCore, Loader};
use crate::menu::{PINI_AT_START, PINI_RUNNING};
use crate::process::deferred::{CompletionWaiter, Deferred};
use crate::process::engine::{Engine, EngineCall, make_passive_without_interrupts};
use crate::process::post::{prime_filters, reading};
use crate::process::request_queue::QueuedRequest;
use crate::process::scan::{ScanCounts, ScanPosition, event_name};
use crate::program::{ProgramDirection, ProgramError, ProgramValue};
use crate::record::contract::Record;
use crate::reference::{AccessLevel, FieldFacts, FieldRef, PutId};
use crate::state::States;

/// A running database, shared by threads. A read locks one record briefly; processing takes one lock for all records.
#[derive(Debug)]
pub struct Database {
    core: Core,
    /// Info items, sorted by record number.
    infos: Vec<Info>,
    engine: Mutex<Engine>,
}

impl Database {
    fn new(LoadedCore { core, infos, initial_values }: LoadedCore) -> Database {
        let mut engine = Engine::new(&core.scan_menu);
        engine.program.set_initial(initial_values);
        Database { core, infos, engine: Mutex::ranked(Rank::Engine, engine) }
    }

    /// The field that a channel name selects: `rec`, `rec.`, `rec.FIELD`, `rec.FIELD$` (long string).
    pub fn field(&self, name: &str) -> Option<FieldRef> {
        self.core.find(name)
    }

    /// The field and the filters that a channel name selects.
    pub fn channel(&self, name: &str) -> Result<ChannelField, ChannelError> {
        self.core.channel(name)
    }

    /// Whether the server replies to a search for the name. As in Base, only the record and the field must exist; an
    /// invalid filter is reported when the channel is created.
    pub fn has_channel(&self, name: &str) -> bool {
        self.core.find_part(name).is_some()
    }

    /// The named states that filters, links and records of this database share.
    pub fn states(&self) -> &States {
        &self.core.states
    }

    /// The context that the filters of a channel to the field need.
    pub fn filter_context(&self, field: FieldRef, now: TimeStamp) -> FilterContext<'_> {
        self.core.filter_context(field.record, now)
    }

    /// The name of every record, in the order of loading.
    pub fn record_names(&self) -> impl Iterator<Item = &str> {
        // The loader accepts only names that are valid UTF-8.
        self.core.names.iter().map(|name| std::str::from_utf8(name.as_bytes()).unwrap_or_default())
    }

    /// The name of one record, counted in the order of loading.
    pub fn record_name(&self, index: usize) -> Option<&str> {
        // Valid UTF-8, as in `record_names`.
        self.core.names.get(index).map(|name| std::str::from_utf8(name.as_bytes()).unwrap_or_default())
    }

    /// The info items of a record, in the order of loading: names and values.
    pub fn info_items(&self, record: &str) -> impl Iterator<Item = (&Text, &Text)> {
        let number = self.core.index.get(record.as_bytes()).copied();
        let of = |info: &Info| Some(info.0);
        let start = self.infos.partition_point(|info| of(info) < number);
        self.infos
            .iter()
            .skip(start)
            .take_while(move |info| Some(info.0) == number)
            .map(|(_, name, value)| (name, value))
    }

    /// The value of an info item of a record; of several with the same name, the last one.
    pub(crate) fn info(&self, record: u32, name: &[u8]) -> Option<&Text> {
        let start = self.infos.partition_point(|info| info.0 < record);
        let own = self.infos.iter().skip(start).take_while(|info| info.0 == record);
        own.filter(|(_, own, _)| own.as_bytes() == name).last().map(|(_, _, value)| value)
    }

    /// The properties of the field that the server sends to clients.
    pub fn facts(&self, field: FieldRef) -> FieldFacts {
        self.core.facts(field)
    }

    /// Value, alarm and time of a field now. Locks only the record, briefly.
    pub fn read(&self, field: FieldRef) -> Reading {
        match self.core.cell(field.record) {
            Some(cell) => cell.reading(field.field),
            None => Reading::bare(Value::from("")),
        }
    }

    /// Units, limits, labels and acknowledge state of a field.
    pub fn meta(&self, field: FieldRef) -> Arc<Meta> {
        Arc::new(self.core.meta_and(field, |_| ()).0)
    }

    /// The same as [`Database::read`] with the metadata of the field and the description of its record (DESC), all of one
    /// moment.
    ///
    /// ```
    /// use fodo_db::Loader;
    ///
    /// let mut loader = Loader::default();
    /// let text = r#"record(ao, gap) { field(VAL, 5) field(EGU, mm) field(DESC, "how far") }"#;
    /// loader.load("a.db", "", &mut |_| Ok(text.into()))?;
    /// let database = loader.finish()?;
    ///
    /// let reading = database.read_with_meta(database.field("gap").expect("the record exists"));
    /// let meta = reading.meta.expect("it was read");
    /// assert_eq!((reading.value, &*meta.units.to_str(), &*meta.description.to_str()), (5.0.into(), "mm", "how far"));
    /// # Ok::<(), Vec<fodo_db::LoadError>>(())
    /// ```
    pub fn read_with_meta(&self, field: FieldRef) -> Reading {
        let visit = |body: &mut dyn Record| (reading(body, field.field), body.common().description.clone());
        let (mut meta, visited) = self.core.meta_and(field, visit);
        let (reading, description) = visited.unwrap_or_else(|| (Reading::bare(Value::from("")), Text::EMPTY));
        meta.description = description;
        Reading { meta: Some(Arc::new(meta)), ..reading }
    }

    /// The full name of a field: `rec.VAL`, `rec.DESC$`.
    pub fn name(&self, field: FieldRef) -> String {
        self.core.name(field)
    }

    /// The field PROC of a field's record: a put to it processes the record, whatever its SCAN. See [`Processing`].
    pub fn processing_field(&self, FieldRef { record, .. }: FieldRef) -> FieldRef {
        FieldRef { record, field: const { Common::at("PROC") } }
    }

    /// Whether puts to the field are rejected because DISP of its record is set.
    pub fn is_put_disabled(&self, field: FieldRef) -> bool {
        let is_set = self.core.with(field.record, |body| body.common().puts_disabled != 0) == Some(true);
        is_set && field.field != const { Common::at("DISP") }
    }

    /// The access security group of a field's record (ASG), and the level of the field.
    pub fn access_group(&self, field: FieldRef) -> (Text, AccessLevel) {
        let group = self.core.with(field.record, |body| body.common().access_group.clone());
        (group.unwrap_or_default(), self.core.access_level(field))
    }

    /// Starts posting changes of the field.
    pub fn watch(&self, field: FieldRef) {
        self.core.with(field.record, |body| {
            let posted = &mut body.common().subscriptions.get_or_insert_default().posted_fields;
            if !posted.contains(&field.field) {
                posted.push(field.field);
            }
        });
    }

    /// Stops posting changes of the field.
    pub fn unwatch(&self, field: FieldRef) {
        self.core.with(field.record, |body| {
            let subscriptions = &mut body.common().subscriptions;
            if let Some(watched) = subscriptions {
                watched.posted_fields.retain(|other| *other != field.field);
                if watched.posted_fields.is_empty() && watched.followers.is_empty() {
                    *subscriptions = None;
                }
            }
        });
    }

    /// Handles one input and appends the resulting events to `out`.
    ///
    /// The caller delivers the events in order before the next call. Only one thread may call at a time: the caller
    /// holds its own lock around the call and the delivery.
    pub fn handle(&self, input: Input, now: Now, out: &mut Vec<Event>) -> Result<(), PutError> {
        self.handle_until(input, now, out).0
    }

    /// As [`Database::handle`], and returns the new [`Database::deadline`].
    pub fn handle_until(
        &self,
        input: Input,
        now: Now,
        out: &mut Vec<Event>,
    ) -> (Result<(), PutError>, Option<Instant>) {
        let mut engine = self.engine();
        let mut call = EngineCall::new(&self.core, &mut engine, now, out);
        let result = match input {
            Input::Start => {
                start(&mut call);
                Ok(())
            }
            Input::Tick => {
                tick(&mut call);
                Ok(())
            }
            Input::Put { field, value, put: None } => {
                call.put_field(field.record, field.field, value, Processing::Passive)
            }
            Input::Put { field: FieldRef { record, field }, value, put: Some(put) } => {
                let request = QueuedRequest::Put { field, value, processing: Processing::Passive };
                call.execute(record, CompletionWaiter::Put(put), request)
            }
            Input::PutProcessing { field, value, processing, put: None } => {
                call.put_field(field.record, field.field, value, processing)
            }
            Input::PutProcessing { field: FieldRef { record, field }, value, processing, put: Some(put) } => {
                call.execute(record, CompletionWaiter::Put(put), QueuedRequest::Put { field, value, processing })
            }
            Input::Restore { field, value } => call.restore(field, value),
            Input::CancelPut { field, put } => {
                call.cancel_request(field.record, CompletionWaiter::Put(put));
                Ok(())
            }
            Input::ExternalPv { link, event } => {
                call.handle_external_event(link, event);
                Ok(())
            }
            Input::ExternalPvs { events } => {
                events.into_iter().for_each(|(link, event)| call.handle_external_event(link, event));
                Ok(())
            }
            Input::PostEvent { name } => {
                event_name(&name).into_iter().for_each(|name| call.post_event(name));
                Ok(())
            }
            Input::CompleteOutput { record, output, result } => {
                call.complete_output(record.record, output, result);
                Ok(())
            }
            Input::Acknowledge { field, put } => {
                call.acknowledge(field.record, put);
                Ok(())
            }
        };
        run_deferred(&mut call);
        (result, next_call(&mut engine, now))
    }

    /// The program sets values of records with DTYP Program, with a single lock for all of them and a single present
    /// time. `values`: each with the VAL of its record, from [`Database::field`].
    ///
    /// An input stores its value until the next one. If its SCAN is I/O Intr, it is processed now; otherwise it reads the
    /// newest value whenever it is processed. An output has the new value, as if it had written it.
    ///
    /// Appends events to `out`, as [`Database::handle`]. Returns the positions of the values that are refused, with the
    /// reasons, and the new [`Database::deadline`].
    ///
    /// ```
    /// use fodo_data::{Now, Severity, Status};
    /// use fodo_db::{Input, Loader, ProgramValue};
    ///
    /// let mut loader = Loader::default();
    /// loader.enable_program();
    /// let text = r#"record(ai, t) { field(DTYP, "Program") field(SCAN, "I/O Intr") }"#;
    /// loader.load("a.db", "", &mut |_| Ok(text.into()))?;
    /// let database = loader.finish()?;
    /// let t = database.field("t").expect("the record exists");
    /// let mut events = Vec::new();
    /// # database.handle(Input::Start, Now::for_test(), &mut events).expect("a start is never refused");
    ///
    /// let high = ProgramValue::new(21.5).with_alarm(Severity::Major, Status::HW_LIMIT);
    /// let (refused, _) = database.set_by_program([(t, high)], Now::for_test(), &mut events);
    /// assert!(refused.is_empty());
    /// assert_eq!(database.read(t).value, 21.5.into());
    /// assert_eq!(database.read(t).alarm.status, Status::HW_LIMIT);
    /// # Ok::<(), Vec<fodo_db::LoadError>>(())
    /// ```
    pub fn set_by_program(
        &self,
        values: impl IntoIterator<Item = (FieldRef, ProgramValue)>,
        now: Now,
        out: &mut Vec<Event>,
    ) -> (Vec<(usize, ProgramError)>, Option<Instant>) {
        let mut engine = self.engine();
        let mut call = EngineCall::new(&self.core, &mut engine, now, out);
        let mut refused = Vec::new();
        for (position, (field, value)) in values.into_iter().enumerate() {
            call.begin_chain();
            if let Err(error) = call.set_by_program(field.record, value) {
                refused.push((position, error));
            }
            run_deferred(&mut call);
        }
        (refused, next_call(&mut engine, now))
    }

    /// The direction of a field's record if its DTYP is Program; `None` for other records.
    pub fn program_direction(&self, field: FieldRef) -> Option<ProgramDirection> {
        self.core.program_direction(field.record)
    }

    /// Makes the program take the values of an output: from now on, the record reports each value that it has to write
    /// ([`Event::OutputReady`]) and waits for [`Input::CompleteOutput`]. Without this, such a record completes at once.
    ///
    /// ```
    /// use fodo_data::Now;
    /// use fodo_db::{Event, Input, Loader, OutputResult, PutId};
    ///
    /// let mut loader = Loader::default();
    /// loader.enable_program();
    /// loader.load("a.db", "", &mut |_| Ok(r#"record(ao, gap) { field(DTYP, "Program") }"#.into()))?;
    /// let database = loader.finish()?;
    /// let gap = database.field("gap").expect("the record exists");
    /// database.take_outputs(gap).expect("DTYP is Program");
    ///
    /// let mut events = Vec::new();
    /// let put = Input::Put { field: gap, value: 5.0.into(), put: Some(PutId(1)) };
    /// database.handle(put, Now::for_test(), &mut events).expect("it is accepted");
    /// let Some(Event::OutputReady { record, output, value, .. }) = events.pop() else { return Ok(()) };
    /// assert_eq!((record, value), (gap, 5.0.into()));
    ///
    /// let done = Input::CompleteOutput { record, output, result: OutputResult::Done };
    /// database.handle(done, Now::for_test(), &mut events).expect("never refused");
    /// assert_eq!(events, [Event::PutDone { put: PutId(1) }]);
    /// # Ok::<(), Vec<fodo_db::LoadError>>(())
    /// ```
    pub fn take_outputs(&self, field: FieldRef) -> Result<(), ProgramError> {
        if self.program_direction(field) != Some(ProgramDirection::Output) {
            return Err(ProgramError::NotProgram);
        }
        self.engine().program.take_outputs(field.record);
        Ok(())
    }

    /// Whether a put to `field` is still queued, so that nothing is written yet.
    pub fn is_put_queued(&self, field: FieldRef, put: PutId) -> bool {
        self.engine().request_queues.get(&field.record).is_some_and(|queue| queue.has(CompletionWaiter::Put(put)))
    }

    /// The latest time for the next [`Input::Tick`].
    pub fn deadline(&self) -> Option<Instant> {
        self.engine().deadline()
    }

    /// The counters of every period of SCAN, in the order of its menu.
    pub fn scan_counts(&self) -> Vec<ScanCounts> {
        self.engine().scans.counts(&self.core.scan_menu)
    }

    /// How often records were processed, whatever the cause.
    pub fn n_processed(&self) -> u64 {
        self.engine().n_processed
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock()
    }
}

impl Loader {
    /// Resolves the links, initialises the records, and makes the database.
    pub fn finish(self) -> Result<Database, Vec<LoadError>> {
        Ok(Database::new(self.into_core()?))
    }
}

/// Runs deferred work, up to the limit of one call.
fn run_deferred(call: &mut EngineCall) {
    call.slice(1, |call| {
        let deferred = call.engine.deferred.pop();
        deferred.map(|deferred| call.run_deferred(deferred)).is_some()
    });
}

/// Notes whether work is left over. Returns when the next call is due.
fn next_call(engine: &mut Engine, now: Now) -> Option<Instant> {
    let has_more = !engine.deferred.is_empty() || engine.scans.n_pending() > 0;
    engine.resume_at = has_more.then_some(now.monotonic);
    engine.deadline()
}

/// Fills the scan lists, processes the records with PINI, and queues the first processing for CP links.
fn start(call: &mut EngineCall) {
    if std::mem::replace(&mut call.engine.is_started, true) {
        return;
    }
    call.report_external_links();
    call.start_program();
    // Within a phase, records are processed in the order of their type names, as in Base.
    let mut at_init: Vec<(u16, i16, &str, u32)> = Vec::new();
    let (mut followers, mut filtered) = (Vec::new(), Vec::new());
    for record in 0..call.core.records.len() as u32 {
        let facts = call.core.with(record, |body| {
            make_passive_without_interrupts(body);
            if body.collect_interval_s().is_some() {
                call.engine.deferred.push(Deferred::DelayPosts { record });
            }
            let type_name = body.record_type().name;
            let common = body.common();
            let subscriptions = common.subscriptions.as_deref();
            followers
                .extend(subscriptions.into_iter().flat_map(|subscriptions| subscriptions.followers.iter().copied()));
            if subscriptions.is_some_and(|subscriptions| !subscriptions.filtered_followers.is_empty()) {
                filtered.push(record);
            }
            (ScanPosition::of(common), common.phase, type_name, common.process_at_init)
        });
        if let Some((position, phase, type_name, pini)) = facts {
            call.engine.scans.add(&position, record, call.now.monotonic);
            if PINI_AT_START.contains(&pini) {
                at_init.push((pini, phase, type_name, record));
            }
        }
    }
    at_init.sort_by_key(|(pini, phase, type_name, _)| (*pini, *phase, *type_name));
    let (before_scans, running): (Vec<_>, Vec<_>) = at_init.into_iter().partition(|(pini, ..)| *pini != PINI_RUNNING);
    // As in Base, no record receives an event that is posted before the scans run.
    for (.., record) in before_scans {
        call.begin_chain();
        call.process(record);
        call.engine.deferred.drop_events();
    }
    // The callback threads of Base do this meanwhile.
    call.slice(1, |call| {
        let record = call.engine.deferred.take_completion();
        record.map(|record| call.complete(record)).is_some()
    });
    call.engine.deferred.drop_events();
    for (.., record) in running {
        call.begin_chain();
        call.process(record);
    }
    for record in filtered {
        call.core.with(record, prime_filters);
    }
    call.engine.scans.start(call.now.monotonic);
    // A CP link whose target PINI has just changed is queued already; it is not queued twice.
    for follower in followers {
        call.engine.deferred.follow(follower.record, follower.when);
    }
}

/// Runs timers that are due, then scans, each up to the limit of one call.
fn tick(call: &mut EngineCall) {
    let now = call.now.monotonic;
    call.slice(1, |call| {
        let timer = call.engine.timers.pop_due(now);
        timer.map(|timer| call.run_timer(timer)).is_some()
    });
    call.engine.scans.collect(now);
    let n_lists = call.engine.scans.n_pending();
    for scan in call.engine.scans.last_choice_first() {
        call.slice(n_lists, |call| {
            let record = call.engine.scans.pop(scan);
            record.map(|record| call.process(record)).is_some()
        });
    }
}
