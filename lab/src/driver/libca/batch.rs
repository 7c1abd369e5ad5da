//! Batches of channels: requests with callbacks, one flush, one wait.
//!
//! libca's own threads run the callbacks. They access only [`GetSlot`]s, which contain only atomics and live until every
//! channel of their set is cleared: `ca_clear_channel` waits for running callbacks and starts no more. A [`ChannelSet`]
//! clears its channels when it is dropped, also during a panic. It leaks its slots if libca does not confirm that every
//! channel is cleared. The same holds for the other memory of a set: the arrays of its gets and the tallies of its counters.

mod rounds;

use std::collections::HashSet;
use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::{ChannelId, ContextId, Libca, NORMAL, PREEMPTIVE, SubscriptionId, TIME_DOUBLE, TimeDouble, c_name};
use crate::driver::batch::ns;
use crate::driver::sockets::wait_for_sockets;
use crate::driver::{CloseBy, ConnectedChannels, DriverFailure, Timed, YesNoAnswer};
use crate::limit::{BATCH_MAX, IN_FLIGHT_MAX, OPERATION_MAX};

/// `CA_OP_CONN_UP`.
const UP: c_long = 6;
/// `cs_conn`.
const CONNECTED: c_int = 2;
/// `DBR_DOUBLE`.
const DOUBLE: c_long = 6;
/// `DBE_VALUE` and `DBE_ALARM`.
pub(super) const VALUE_AND_ALARM: c_long = 1 | 4;

/// `struct connection_handler_args`.
#[repr(C)]
pub struct ConnectionArgs {
    channel: ChannelId,
    what: c_long,
}

/// `struct event_handler_args`.
#[repr(C)]
pub struct EventArgs {
    pub(super) user: *mut c_void,
    channel: ChannelId,
    pub(super) kind: c_long,
    pub(super) count: c_long,
    pub(super) payload: *const c_void,
    pub(super) status: c_int,
}

/// How a connection callback finds its slot: its only argument is the channel.
pub type UserOf = unsafe extern "C" fn(ChannelId) -> *mut c_void;
static USER_OF: OnceLock<UserOf> = OnceLock::new();

/// How many callbacks have run, and the thread that waits for them.
struct CallbackCount {
    n: AtomicUsize,
    n_expected: AtomicUsize,
    waiter: Thread,
}

/// The result of one callback.
struct GetSlot {
    has_arrived: AtomicBool,
    status: AtomicI32,
    value_bits: AtomicU64,
    arrivals: Arc<CallbackCount>,
}

impl GetSlot {
    fn arrive(&self) {
        if self.has_arrived.swap(true, Ordering::AcqRel) {
            return;
        }
        let n = 1 + self.arrivals.n.fetch_add(1, Ordering::AcqRel);
        if n == self.arrivals.n_expected.load(Ordering::Acquire) {
            self.arrivals.waiter.unpark();
        }
    }
}

/// One slot per channel, for one kind of callback.
struct Slots {
    slots: Vec<GetSlot>,
    arrivals: Arc<CallbackCount>,
}

impl Slots {
    fn new(n: usize) -> Slots {
        let waiter = std::thread::current();
        let arrivals = Arc::new(CallbackCount { n: AtomicUsize::new(0), n_expected: AtomicUsize::new(n), waiter });
        let slot = || GetSlot {
            has_arrived: AtomicBool::new(false),
            status: AtomicI32::new(NORMAL),
            value_bits: AtomicU64::new(f64::NAN.to_bits()),
            arrivals: arrivals.clone(),
        };
        Slots { slots: (0..n).map(|_| slot()).collect(), arrivals }
    }

    /// The user pointer of each slot.
    fn pointers(&self) -> impl Iterator<Item = *mut c_void> + '_ {
        self.slots.iter().map(|slot| std::ptr::from_ref(slot).cast_mut().cast())
    }

    /// Prepares for another callback of each slot. Nothing may be in flight that writes to them.
    fn reset(&self) {
        self.slots.iter().for_each(|slot| slot.has_arrived.store(false, Ordering::Release));
        self.arrivals.n.store(0, Ordering::Release);
    }

    fn n_arrived(&self) -> usize {
        self.arrivals.n.load(Ordering::Acquire)
    }

    fn wait(&self, n_expected: usize, timeout: Duration) -> Result<(), DriverFailure> {
        let deadline = Instant::now() + timeout;
        self.arrivals.n_expected.store(n_expected, Ordering::Release);
        while self.n_arrived() < n_expected {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(DriverFailure::WrongCount { n: self.n_arrived(), expected: n_expected });
            }
            std::thread::park_timeout(left);
        }
        Ok(())
    }

    fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.slots.iter().map(|slot| f64::from_bits(slot.value_bits.load(Ordering::Acquire)))
    }

    fn check(&self, libca: &Libca, what: &str) -> Result<(), DriverFailure> {
        self.slots.iter().try_for_each(|slot| libca.check(what, slot.status.load(Ordering::Acquire)))
    }
}

/// The channels of one request, and all memory that libca may still write to.
pub struct ChannelSet {
    channels: Vec<ChannelId>,
    connections: Slots,
    events: Vec<Slots>,
    arrays: Vec<Vec<f64>>,
    counters: Vec<rounds::CounterSlot>,
    clear_channel: ClearChannel,
}

type ClearChannel = unsafe extern "C" fn(ChannelId) -> c_int;

impl ChannelSet {
    fn new(n: usize, clear_channel: ClearChannel) -> ChannelSet {
        ChannelSet {
            channels: Vec::with_capacity(n),
            connections: Slots::new(n),
            events: Vec::new(),
            arrays: Vec::new(),
            counters: Vec::new(),
            clear_channel,
        }
    }
}

impl Drop for ChannelSet {
    fn drop(&mut self) {
        let mut are_cleared = true;
        for channel in self.channels.drain(..) {
            // SAFETY: the handle is from ca_create_channel and is cleared once, because it is drained; the function
            // belongs to the `Libca` that created the set and outlives it.
            are_cleared &= unsafe { (self.clear_channel)(channel) } == NORMAL;
        }
        if !are_cleared {
            // A callback may still write to any slot until the process ends.
            std::mem::forget(std::mem::replace(&mut self.connections, Slots::new(0)));
            std::mem::forget(std::mem::take(&mut self.events));
            std::mem::forget(std::mem::take(&mut self.arrays));
            std::mem::forget(std::mem::take(&mut self.counters));
        }
    }
}

unsafe extern "C" fn on_connection(connection: ConnectionArgs) {
    let Some(user_of) = USER_OF.get().filter(|_| connection.what == UP) else { return };
    // SAFETY: the channel of a callback is valid during it; its user pointer is that of a `GetSlot`, set when the channel
    // was created, and slots outlive their channels (see the top of this file).
    if let Some(slot) = unsafe { user_of(connection.channel).cast::<GetSlot>().as_ref() } {
        slot.arrive();
    }
}

unsafe extern "C" fn on_event(event: EventArgs) {
    // SAFETY: every request with this callback passes a pointer to a `GetSlot` of its set, which outlives the channel
    // (see the top of this file); slots are only shared, never borrowed mutably.
    let Some(slot) = (unsafe { event.user.cast::<GetSlot>().as_ref() }) else { return };
    if slot.has_arrived.load(Ordering::Acquire) {
        return;
    }
    slot.status.store(event.status, Ordering::Release);
    if event.status == NORMAL && event.kind == TIME_DOUBLE && event.count == 1 && !event.payload.is_null() {
        // SAFETY: libca passes a payload of the kind and count in the event, valid during the callback.
        let double = unsafe { event.payload.cast::<TimeDouble>().read_unaligned() };
        slot.value_bits.store(double.value.to_bits(), Ordering::Release);
    }
    slot.arrive();
}

impl Libca {
    /// Does `work` with the set's own channels, and clears them afterwards.
    pub(super) fn with_set(
        &self,
        batch: &ConnectedChannels,
        work: fn(&Libca, &ConnectedChannels, &mut ChannelSet) -> Result<Timed, DriverFailure>,
    ) -> Result<Timed, DriverFailure> {
        // The first one stores it; the function does not change while this process has one libca.
        let _ = USER_OF.set(self.functions.ca_puser);
        let mut set = ChannelSet::new(batch.n, self.functions.ca_clear_channel);
        let outcome = work(self, batch, &mut set);
        let start = Instant::now();
        drop(set);
        let flushed = self.flush();
        let close_ns = Some(ns(start.elapsed()));
        let timed = outcome?;
        flushed?;
        Ok(Timed { close_ns, ..timed })
    }

    pub(super) fn flush(&self) -> Result<(), DriverFailure> {
        // SAFETY: takes no argument; sends what this thread's context has collected.
        self.check("ca_flush_io", unsafe { (self.functions.ca_flush_io)() })
    }

    fn create(&self, name: &std::ffi::CStr, user: *mut c_void, set: &mut ChannelSet) -> Result<(), DriverFailure> {
        let mut channel: ChannelId = std::ptr::null_mut();
        // SAFETY: the name is copied during the call; the callback and its pointer follow the rules at the top of this
        // file; `channel` is written during the call only.
        let status = unsafe {
            (self.functions.ca_create_channel)(name.as_ptr(), Some(on_connection), user, 0, &raw mut channel)
        };
        self.check("ca_create_channel", status)?;
        set.channels.push(channel);
        Ok(())
    }

    fn create_all(&self, batch: &ConnectedChannels, set: &mut ChannelSet) -> Result<(u64, Instant), DriverFailure> {
        let names = batch.names().iter().map(|name| c_name(name)).collect::<Result<Vec<_>, _>>()?;
        let users: Vec<*mut c_void> = set.connections.pointers().collect();
        let start = Instant::now();
        for (name, user) in names.iter().zip(users) {
            self.create(name, user, set)?;
        }
        Ok((ns(start.elapsed()), start))
    }

    fn n_connected(&self, set: &ChannelSet) -> usize {
        // SAFETY: the handles are from ca_create_channel and are not cleared before the set ends.
        set.channels.iter().filter(|channel| unsafe { (self.functions.ca_state)(**channel) } == CONNECTED).count()
    }

    fn connect_all(&self, batch: &ConnectedChannels, set: &mut ChannelSet) -> Result<Timed, DriverFailure> {
        let (created_ns, start) = self.create_all(batch, set)?;
        self.flush()?;
        set.connections.wait(batch.n, BATCH_MAX)?;
        let timed = Timed::since(start, 0);
        Ok(Timed { created_ns: Some(created_ns), n: self.n_connected(set), ..timed })
    }

    pub(super) fn time_creating(
        &self,
        batch: &ConnectedChannels,
        set: &mut ChannelSet,
    ) -> Result<Timed, DriverFailure> {
        let (created_ns, _) = self.create_all(batch, set)?;
        let distinct: HashSet<ChannelId> = set.channels.iter().copied().collect();
        Ok(Timed { ns: created_ns, n: distinct.len(), ..Timed::default() })
    }

    pub(super) fn time_connecting(
        &self,
        batch: &ConnectedChannels,
        set: &mut ChannelSet,
    ) -> Result<Timed, DriverFailure> {
        self.connect_all(batch, set)
    }

    pub(super) fn time_one_by_one(
        &self,
        batch: &ConnectedChannels,
        set: &mut ChannelSet,
    ) -> Result<Timed, DriverFailure> {
        let names = batch.names().iter().map(|name| c_name(name)).collect::<Result<Vec<_>, _>>()?;
        let users: Vec<*mut c_void> = set.connections.pointers().collect();
        let start = Instant::now();
        for (index, (name, user)) in names.iter().zip(users).enumerate() {
            self.create(name, user, set)?;
            self.flush()?;
            set.connections.wait(index + 1, OPERATION_MAX)?;
        }
        let timed = Timed::since(start, 0);
        Ok(Timed { n: self.n_connected(set), ..timed })
    }

    fn gets(&self, set: &mut ChannelSet) -> Result<Vec<f64>, DriverFailure> {
        self.gets_with(set, usize::MAX)
    }

    /// Gets from each channel, at most `n_in_flight` at a time. It flushes only before it waits, and then waits until
    /// half of the gets are complete: each flush is a system call, each wake-up another.
    fn gets_with(&self, set: &mut ChannelSet, n_in_flight: usize) -> Result<Vec<f64>, DriverFailure> {
        let slots = Slots::new(set.channels.len());
        let users: Vec<*mut c_void> = slots.pointers().collect();
        set.events.push(slots);
        for (index, (channel, user)) in set.channels.iter().zip(users).enumerate() {
            if let Some(slots) = set.events.last().filter(|slots| index - slots.n_arrived() >= n_in_flight) {
                self.flush()?;
                slots.wait(index - n_in_flight / 2, BATCH_MAX)?;
            }
            // SAFETY: a connected channel; callback and pointer follow the rules at the top of this file: the set
            // owns the slots from before the first request on, and moving them moves no slot.
            let status = unsafe { (self.functions.ca_array_get_callback)(TIME_DOUBLE, 1, *channel, on_event, user) };
            self.check("ca_array_get_callback", status)?;
        }
        self.flush()?;
        let Some(slots) = set.events.last() else { return Ok(Vec::new()) };
        slots.wait(set.channels.len(), BATCH_MAX)?;
        slots.check(self, "get")?;
        Ok(slots.values().collect())
    }

    fn puts(&self, set: &mut ChannelSet, values: &[f64]) -> Result<(), DriverFailure> {
        let slots = Slots::new(set.channels.len());
        let users: Vec<*mut c_void> = slots.pointers().collect();
        set.events.push(slots);
        for ((channel, user), value) in set.channels.iter().zip(users).zip(values) {
            let source = std::ptr::from_ref(value).cast();
            // SAFETY: the source is one double, copied during the call; otherwise as for the gets above.
            let status = unsafe { (self.functions.ca_array_put_callback)(DOUBLE, 1, *channel, source, on_event, user) };
            self.check("ca_array_put_callback", status)?;
        }
        self.flush()?;
        let Some(slots) = set.events.last() else { return Ok(()) };
        slots.wait(set.channels.len(), BATCH_MAX)?;
        slots.check(self, "put")
    }

    pub(super) fn time_gets(&self, batch: &ConnectedChannels, set: &mut ChannelSet) -> Result<Timed, DriverFailure> {
        self.time_gets_with(batch, set, usize::MAX)
    }

    pub(super) fn time_gets_in_flight(
        &self,
        batch: &ConnectedChannels,
        set: &mut ChannelSet,
    ) -> Result<Timed, DriverFailure> {
        self.time_gets_with(batch, set, IN_FLIGHT_MAX)
    }

    fn time_gets_with(
        &self,
        batch: &ConnectedChannels,
        set: &mut ChannelSet,
        n_in_flight: usize,
    ) -> Result<Timed, DriverFailure> {
        self.connect_all(batch, set)?;
        let start = Instant::now();
        let values = self.gets_with(set, n_in_flight)?;
        let timed = Timed::since(start, values.len());
        values.iter().enumerate().try_for_each(|(index, value)| batch.check(index, *value))?;
        Ok(timed)
    }

    pub(super) fn time_puts(&self, batch: &ConnectedChannels, set: &mut ChannelSet) -> Result<Timed, DriverFailure> {
        self.time_puts_by(batch, set, Libca::puts)
    }

    pub(super) fn time_puts_unconfirmed(
        &self,
        batch: &ConnectedChannels,
        set: &mut ChannelSet,
    ) -> Result<Timed, DriverFailure> {
        self.time_puts_by(batch, set, Libca::puts_unconfirmed)
    }

    /// Puts without a reply, then gets from the last channel: the server handles a circuit's requests in order.
    fn puts_unconfirmed(&self, set: &mut ChannelSet, values: &[f64]) -> Result<(), DriverFailure> {
        for (channel, value) in set.channels.iter().zip(values) {
            // SAFETY: a connected channel; the source is one double, copied during the call.
            let status =
                unsafe { (self.functions.ca_array_put)(DOUBLE, 1, *channel, std::ptr::from_ref(value).cast()) };
            self.check("ca_array_put", status)?;
        }
        let Some(last) = set.channels.last() else { return Ok(()) };
        let slots = Slots::new(1);
        let users: Vec<*mut c_void> = slots.pointers().collect();
        set.events.push(slots);
        for user in users {
            // SAFETY: as for the gets above.
            let status = unsafe { (self.functions.ca_array_get_callback)(TIME_DOUBLE, 1, *last, on_event, user) };
            self.check("ca_array_get_callback", status)?;
        }
        self.flush()?;
        set.events.last().map_or(Ok(()), |slots| slots.wait(1, BATCH_MAX).and_then(|()| slots.check(self, "get")))
    }

    fn time_puts_by(
        &self,
        batch: &ConnectedChannels,
        set: &mut ChannelSet,
        put: fn(&Libca, &mut ChannelSet, &[f64]) -> Result<(), DriverFailure>,
    ) -> Result<Timed, DriverFailure> {
        self.connect_all(batch, set)?;
        let there = self.gets(set)?;
        let new: Vec<f64> = there.iter().map(|value| -1.0 - value).collect();
        let start = Instant::now();
        put(self, set, &new)?;
        let timed = Timed::since(start, new.len());
        let received = self.gets(set)?;
        self.puts(set, &there)?;
        match received.iter().zip(&new).find(|(received, new)| received != new) {
            Some((value, expected)) => Err(DriverFailure::WrongValue { value: *value, expected: expected.to_string() }),
            None => Ok(timed),
        }
    }

    pub(super) fn time_monitors(
        &self,
        batch: &ConnectedChannels,
        set: &mut ChannelSet,
    ) -> Result<Timed, DriverFailure> {
        self.connect_all(batch, set)?;
        let mut subscriptions = HashSet::with_capacity(batch.n);
        let slots = Slots::new(batch.n);
        let users: Vec<*mut c_void> = slots.pointers().collect();
        set.events.push(slots);
        let start = Instant::now();
        for (channel, user) in set.channels.iter().zip(users) {
            let mut subscription: SubscriptionId = std::ptr::null_mut();
            // SAFETY: as for the gets above; `subscription` is written during the call only, and ends with its channel.
            let status = unsafe {
                (self.functions.ca_create_subscription)(
                    TIME_DOUBLE,
                    1,
                    *channel,
                    VALUE_AND_ALARM,
                    on_event,
                    user,
                    &raw mut subscription,
                )
            };
            self.check("ca_create_subscription", status)?;
            subscriptions.insert(subscription);
        }
        self.flush()?;
        let Some(slots) = set.events.last() else { return Ok(Timed::default()) };
        slots.wait(batch.n, BATCH_MAX)?;
        let timed = Timed::since(start, subscriptions.len());
        slots.check(self, "monitor")?;
        slots.values().enumerate().try_for_each(|(index, value)| batch.check(index, value))?;
        Ok(timed)
    }

    /// Creates a separate context in this thread and returns it; this thread must have none.
    fn another_context(&self) -> Result<ContextId, DriverFailure> {
        // SAFETY: both take a number or nothing and affect only this thread's context.
        let status = unsafe { (self.functions.ca_context_create)(PREEMPTIVE) };
        self.check("ca_context_create", status)?;
        // SAFETY: as above.
        Ok(unsafe { (self.functions.ca_current_context)() })
    }

    /// Does `work` while this thread has no context, then attaches the previous context again.
    fn without_context<T>(&self, work: impl FnOnce() -> Result<T, DriverFailure>) -> Result<T, DriverFailure> {
        // SAFETY: takes no argument; this thread has had a context since `load`.
        let own = unsafe { (self.functions.ca_current_context)() };
        // SAFETY: a context with preemptive callbacks may be detached; it stays alive.
        unsafe { (self.functions.ca_detach_context)() };
        let outcome = work();
        // SAFETY: `own` is alive, and `work` leaves this thread without a context.
        let status = unsafe { (self.functions.ca_attach_context)(own) };
        self.check("ca_attach_context", status)?;
        outcome
    }

    pub(super) fn contexts(&self, n: usize) -> Result<Timed, DriverFailure> {
        self.without_context(|| {
            let mut contexts = HashSet::with_capacity(n);
            let start = Instant::now();
            let mut outcome = Ok(());
            for _index in 0..n {
                match self.another_context() {
                    Ok(context) => contexts.insert(context),
                    Err(failure) => {
                        outcome = Err(failure);
                        break;
                    }
                };
                // SAFETY: as in `apart`.
                unsafe { (self.functions.ca_detach_context)() };
            }
            let timed = Timed::since(start, 0);
            let start = Instant::now();
            let mut n_alive = 0;
            for context in contexts {
                // SAFETY: created above, attached to no thread, and destroyed once.
                n_alive += usize::from(unsafe { (self.functions.ca_attach_context)(context) } == NORMAL);
                // SAFETY: destroys the context just attached, if any.
                unsafe { (self.functions.ca_context_destroy)() };
            }
            outcome?;
            let note = Some("a context opens its sockets with its first channel".into());
            Ok(Timed { n: n_alive, close_ns: Some(ns(start.elapsed())), note, ..timed })
        })
    }

    pub(super) fn close_with_channel(&self, pv: &str, how: CloseBy) -> Result<YesNoAnswer, DriverFailure> {
        if how == CloseBy::Scope {
            return Err(DriverFailure::Operation {
                what: "context_close".into(),
                why: "C does not close a context at the end of a scope".into(),
            });
        }
        let name = c_name(pv)?;
        let n_before = wait_for_sockets(|_| true, Duration::ZERO)?;
        self.without_context(|| {
            self.another_context()?;
            let mut channel: ChannelId = std::ptr::null_mut();
            // SAFETY: as in `open`: without a callback, ca_pend_io waits for the connection.
            let connected = unsafe {
                (self.functions.ca_create_channel)(name.as_ptr(), None, std::ptr::null_mut(), 0, &raw mut channel);
                (self.functions.ca_pend_io)(OPERATION_MAX.as_secs_f64())
            };
            let opened =
                self.check("connecting", connected).and_then(|()| wait_for_sockets(|n| n > n_before, OPERATION_MAX));
            // SAFETY: destroys the context created above; its channel's handle is not used afterwards.
            unsafe { (self.functions.ca_context_destroy)() };
            opened?;
            let is_closed = wait_for_sockets(|n| n <= n_before, OPERATION_MAX).is_ok();
            Ok(YesNoAnswer { yes: is_closed, words: None })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn callback_arguments_have_the_memory_layout_of_libca() {
        assert_eq!(size_of::<ConnectionArgs>(), size_of::<(ChannelId, c_long)>());
        assert_eq!(offset_of!(EventArgs, payload), 2 * size_of::<ChannelId>() + 2 * size_of::<c_long>());
        assert_eq!(offset_of!(EventArgs, status), offset_of!(EventArgs, payload) + size_of::<ChannelId>());
    }

    #[test]
    fn a_slot_counts_only_its_first_callback() {
        let slots = Slots::new(2);

        slots.slots[0].arrive();
        slots.slots[0].arrive();

        assert_eq!(slots.n_arrived(), 1);
        assert_eq!(slots.wait(1, Duration::ZERO), Ok(()));
        assert_eq!(slots.wait(2, Duration::ZERO), Err(DriverFailure::WrongCount { n: 1, expected: 2 }));
    }

    use std::cell::RefCell;
    use std::sync::Weak;

    use crate::driver::Variant;
    use crate::driver::libca::tests::doubles;

    thread_local! {
        /// Channels that the functions below created and have not cleared, and the slots that their callbacks would
        /// write to.
        static CHANNELS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
        static SLOTS: RefCell<Weak<CallbackCount>> = const { RefCell::new(Weak::new()) };
    }

    unsafe extern "C" fn create(
        _name: *const std::ffi::c_char,
        _on_connection: super::super::OnConnection,
        _user: *mut c_void,
        _priority: std::ffi::c_uint,
        channel: *mut ChannelId,
    ) -> c_int {
        let number = CHANNELS.with_borrow_mut(|channels| {
            channels.push(channels.len() + 1);
            channels.len()
        });
        // SAFETY: the caller passes the address of a handle.
        unsafe { *channel = std::ptr::without_provenance_mut(number) };
        NORMAL
    }

    unsafe extern "C" fn clear(channel: ChannelId) -> c_int {
        CHANNELS.with_borrow_mut(|channels| channels.retain(|known| *known != channel.addr()));
        NORMAL
    }

    unsafe extern "C" fn fail_to_clear(_channel: ChannelId) -> c_int {
        NORMAL + 1
    }

    unsafe extern "C" fn flush() -> c_int {
        NORMAL
    }

    unsafe extern "C" fn fail_to_flush() -> c_int {
        NORMAL + 1
    }

    fn libca(clear_channel: ClearChannel, flush_io: unsafe extern "C" fn() -> c_int) -> Libca {
        let mut functions = doubles();
        functions.ca_create_channel = create;
        functions.ca_clear_channel = clear_channel;
        functions.ca_flush_io = flush_io;
        Libca::over(functions)
    }

    fn note(set: &ChannelSet) {
        SLOTS.set(Arc::downgrade(&set.connections.arrivals));
    }

    fn make(libca: &Libca, batch: &ConnectedChannels, set: &mut ChannelSet) -> Result<Timed, DriverFailure> {
        note(set);
        libca.time_creating(batch, set)
    }

    fn make_and_panic(libca: &Libca, batch: &ConnectedChannels, set: &mut ChannelSet) -> Result<Timed, DriverFailure> {
        let _result = make(libca, batch, set);
        panic!("a panic in the work of a set");
    }

    fn three() -> ConnectedChannels {
        ConnectedChannels { pattern: "lab:{:06}".into(), n: 3, variant: Variant::Distinct }
    }

    fn n_channels() -> usize {
        CHANNELS.with_borrow(Vec::len)
    }

    fn are_slots_alive() -> bool {
        SLOTS.with_borrow(|slots| slots.upgrade().is_some())
    }

    #[test]
    fn a_round_clears_its_channels_before_freeing_their_callback_slots() {
        let result = libca(clear, flush).with_set(&three(), make);

        assert_eq!(result.map(|timed| timed.n), Ok(3));
        assert!(n_channels() == 0 && !are_slots_alive());
    }

    #[test]
    fn slots_of_uncleared_channels_are_kept_even_if_the_flush_fails() {
        let failed = libca(fail_to_clear, fail_to_flush).with_set(&three(), make);

        assert!(matches!(failed, Err(DriverFailure::Operation { what, .. }) if what == "ca_flush_io"));
        assert!(are_slots_alive());
    }

    #[test]
    fn a_panic_in_a_round_clears_its_channels_before_freeing_their_slots() {
        let batch = libca(clear, flush);

        let panicked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| batch.with_set(&three(), make_and_panic)));

        assert!(panicked.is_err());
        assert!(n_channels() == 0 && !are_slots_alive());
    }

    #[test]
    fn a_panic_keeps_the_slots_of_channels_that_cannot_be_cleared() {
        let batch = libca(fail_to_clear, flush);

        let panicked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| batch.with_set(&three(), make_and_panic)));

        assert!(panicked.is_err() && are_slots_alive());
    }
}
