//! Rounds of study 003: puts to PROC with the gets that follow them, and the subscriptions to the counters of an event.

use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use fodo_lock::Mutex;

use super::{
    ChannelId, ChannelSet, ConnectedChannels, DOUBLE, DriverFailure, EventArgs, Libca, NORMAL, Slots, SubscriptionId,
    TIME_DOUBLE, TimeDouble, USER_OF, VALUE_AND_ALARM, on_event,
};
use crate::driver::Variant;
use crate::driver::rounds::{
    COUNTER_LAST, CycleSums, CycleTally, EventRounds, ProcessGets, ProcessWay, RoundCheck, RoundTimes, next_of,
};
use crate::limit::{BATCH_MAX, EVENT_QUIET, OPERATION_MAX};

/// The tally of one counter, and the thread that waits for the last one.
pub struct CounterSlot {
    tally: Mutex<CycleTally>,
    is_failed: AtomicBool,
    is_last: bool,
    waiter: Thread,
}

impl CounterSlot {
    fn last(&self) -> Option<u16> {
        self.tally.lock().last()
    }
}

unsafe extern "C" fn on_counter(event: EventArgs) {
    // SAFETY: every subscription with this callback passes a pointer to a `CounterSlot` of its set, which outlives the
    // channel (see the top of `batch.rs`); slots are only shared, never borrowed mutably.
    let Some(slot) = (unsafe { event.user.cast::<CounterSlot>().as_ref() }) else { return };
    if event.status != NORMAL || event.kind != TIME_DOUBLE || event.count != 1 || event.payload.is_null() {
        slot.is_failed.store(true, Ordering::Release);
        return;
    }
    // SAFETY: libca passes a payload of the kind and count in the event, valid during the callback.
    let double = unsafe { event.payload.cast::<TimeDouble>().read_unaligned() };
    slot.tally.lock().add(double.value);
    if slot.is_last {
        slot.waiter.unpark();
    }
}

impl Libca {
    fn new_set(&self, n: usize) -> ChannelSet {
        // The first one stores it; the function does not change while this process has one libca.
        let _ = USER_OF.set(self.functions.ca_puser);
        ChannelSet::new(n, self.functions.ca_clear_channel)
    }

    pub(in crate::driver::libca) fn repeat_process_gets(
        &self,
        gets: &ProcessGets,
    ) -> Result<RoundTimes, DriverFailure> {
        if gets.way != ProcessWay::PutThenGet {
            return Err(DriverFailure::cannot("a get that processes"));
        }
        let n = gets.records.n;
        let pattern = format!("{}.PROC", gets.records.pattern);
        let (mut processing, mut records) = (self.new_set(n), self.new_set(n));
        self.connect_all(&ConnectedChannels { pattern, ..gets.records.clone() }, &mut processing)?;
        self.connect_all(&gets.records, &mut records)?;
        processing.events.push(Slots::new(n));
        records.events.push(Slots::new(n));
        if gets.n_elements > 0 {
            records.arrays = vec![vec![0.0; gets.n_elements]; n];
        }
        let mut check = RoundCheck::new(gets);
        let rounds_ns = gets.spans.repeat(|| {
            let start = Instant::now();
            self.put_all(&processing)?;
            if gets.n_elements > 0 {
                self.get_arrays(&mut records)?
            } else {
                self.get_all(&records)?
            }
            self.await_all(&processing, "put")?;
            let elapsed = start.elapsed();
            for (index, elements) in records.arrays.iter().enumerate() {
                check.array(index, elements)?;
            }
            if records.arrays.is_empty() {
                let values = records.events.iter().flat_map(Slots::values);
                values.enumerate().try_for_each(|(index, value)| check.number(index, value))?;
            }
            Ok(elapsed)
        })?;
        drop((processing, records));
        self.flush()?;
        Ok(RoundTimes { rounds_ns, n, ..RoundTimes::default() })
    }

    fn put_all(&self, set: &ChannelSet) -> Result<(), DriverFailure> {
        const ONE: f64 = 1.0;
        for slots in &set.events {
            slots.reset();
            for (channel, user) in set.channels.iter().zip(slots.pointers()) {
                let source = std::ptr::from_ref(&ONE).cast();
                // SAFETY: a connected channel; the source is one double, copied during the call; callback and pointer
                // follow the rules at the top of `batch.rs`.
                let status =
                    unsafe { (self.functions.ca_array_put_callback)(DOUBLE, 1, *channel, source, on_event, user) };
                self.check("ca_array_put_callback", status)?;
            }
        }
        Ok(())
    }

    fn get_all(&self, set: &ChannelSet) -> Result<(), DriverFailure> {
        for slots in &set.events {
            slots.reset();
            for (channel, user) in set.channels.iter().zip(slots.pointers()) {
                // SAFETY: as for the puts above.
                let status =
                    unsafe { (self.functions.ca_array_get_callback)(TIME_DOUBLE, 1, *channel, on_event, user) };
                self.check("ca_array_get_callback", status)?;
            }
        }
        self.flush()?;
        self.await_all(set, "get")
    }

    /// As a C program that reads arrays into memory of its own.
    fn get_arrays(&self, set: &mut ChannelSet) -> Result<(), DriverFailure> {
        for (channel, elements) in set.channels.iter().zip(&mut set.arrays) {
            let n_elements = elements.len() as c_ulong;
            // SAFETY: the destination has so many doubles. It is neither moved nor freed before its channel is cleared,
            // and not read before the next call has returned.
            let status =
                unsafe { (self.functions.ca_array_get)(DOUBLE, n_elements, *channel, elements.as_mut_ptr().cast()) };
            self.check("ca_array_get", status)?;
        }
        // SAFETY: takes a number and waits in the thread of the context, which is this one.
        let status = unsafe { (self.functions.ca_pend_io)(OPERATION_MAX.as_secs_f64()) };
        self.check("ca_pend_io after ca_array_get", status)
    }

    fn await_all(&self, set: &ChannelSet, what: &str) -> Result<(), DriverFailure> {
        for slots in &set.events {
            slots.wait(set.channels.len(), BATCH_MAX)?;
            slots.check(self, what)?;
        }
        Ok(())
    }

    pub(in crate::driver::libca) fn repeat_events(&self, rounds: &EventRounds) -> Result<RoundTimes, DriverFailure> {
        let (mut event, mut counters) = (self.new_set(1), self.new_set(rounds.records.n));
        let of_event = ConnectedChannels { pattern: rounds.event.clone(), n: 1, variant: Variant::Equal };
        self.connect_all(&of_event, &mut event)?;
        self.connect_all(&rounds.records, &mut counters)?;
        self.subscribe_all(&mut counters)?;
        let counters = counters;
        let last = counters.counters.last().ok_or_else(DriverFailure::not_open)?;
        wait_until(OPERATION_MAX, Duration::from_millis(1), || {
            counters.counters.iter().all(|slot| slot.last().is_some())
        })
        .then_some(())
        .ok_or_else(|| lost("first updates are missing"))?;
        let first: Vec<Option<u16>> = counters.counters.iter().map(CounterSlot::last).collect();
        let mut n_events = 0;
        let rounds_ns = rounds.spans.repeat(|| {
            let next = last.last().map(next_of);
            let start = Instant::now();
            self.put_unconfirmed(&event)?;
            n_events += 1;
            // The callback of the last counter wakes this thread.
            let has_arrived = wait_until(OPERATION_MAX, OPERATION_MAX, || last.last() == next);
            let elapsed = start.elapsed();
            has_arrived.then_some(elapsed).ok_or_else(|| lost("no update of the last counter"))
        })?;
        self.settle(&counters, &first, n_events);
        if counters.counters.iter().any(|slot| slot.is_failed.load(Ordering::Acquire)) {
            return Err(lost("an update without a double"));
        }
        let mut updates = CycleSums::default();
        counters.counters.iter().for_each(|slot| updates.add(slot.tally.lock().sums()));
        let n = rounds.records.n;
        drop((event, counters));
        self.flush()?;
        Ok(RoundTimes { rounds_ns, n, n_events, updates })
    }

    /// Waits until each counter has the value that it has after the last event, or no update is received any more.
    fn settle(&self, set: &ChannelSet, first: &[Option<u16>], n_events: u64) {
        let cycle = u64::from(COUNTER_LAST) + 1;
        let end = |first: u16| ((u64::from(first) + n_events) % cycle) as u16;
        let is_settled = || {
            set.counters
                .iter()
                .zip(first)
                .all(|(slot, first)| first.is_none_or(|first| slot.last() == Some(end(first))))
        };
        let n_received = || set.counters.iter().map(|slot| slot.tally.lock().sums().received).sum::<u64>();
        let mut before = n_received();
        while !wait_until(EVENT_QUIET, Duration::from_millis(1), is_settled) {
            let now = n_received();
            if now == before {
                return;
            }
            before = now;
        }
    }

    fn subscribe_all(&self, set: &mut ChannelSet) -> Result<(), DriverFailure> {
        let n = set.channels.len();
        let waiter = std::thread::current();
        let slot = |index| CounterSlot {
            tally: Mutex::new(CycleTally::default()),
            is_failed: AtomicBool::new(false),
            is_last: index + 1 == n,
            waiter: waiter.clone(),
        };
        set.counters = (0..n).map(slot).collect();
        for (channel, slot) in set.channels.iter().zip(&set.counters) {
            let user: *mut c_void = std::ptr::from_ref(slot).cast_mut().cast();
            let mut subscription: SubscriptionId = std::ptr::null_mut();
            // SAFETY: a connected channel; callback and pointer follow the rules at the top of `batch.rs`: the set owns
            // the slots, which are not moved any more; `subscription` is written during the call only, and ends with its
            // channel.
            let status: c_int = unsafe {
                (self.functions.ca_create_subscription)(
                    TIME_DOUBLE,
                    1,
                    *channel,
                    VALUE_AND_ALARM,
                    on_counter,
                    user,
                    &raw mut subscription,
                )
            };
            self.check("ca_create_subscription", status)?;
        }
        self.flush()
    }

    fn put_unconfirmed(&self, set: &ChannelSet) -> Result<(), DriverFailure> {
        const ONE: f64 = 1.0;
        let channel: ChannelId = set.channels.first().copied().ok_or_else(DriverFailure::not_open)?;
        // SAFETY: a connected channel; the source is one double, copied during the call.
        let status = unsafe { (self.functions.ca_array_put)(DOUBLE, 1, channel, std::ptr::from_ref(&ONE).cast()) };
        self.check("ca_array_put", status)?;
        self.flush()
    }
}

/// Waits until `is_done`, which is asked when this thread is woken and after each `pause`; returns whether it is.
fn wait_until(timeout: Duration, pause: Duration, is_done: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    while !is_done() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        std::thread::park_timeout(left.min(pause));
    }
    true
}

fn lost(why: &str) -> DriverFailure {
    DriverFailure::Operation { what: "event".into(), why: why.into() }
}
