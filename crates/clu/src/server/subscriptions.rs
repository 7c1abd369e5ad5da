//! The subscriptions of a server: when their values are fetched, and which of them are sent.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::counts::CluServerCounts;
use crate::limit;
use crate::script::ReportTarget;
use crate::value::ClientReport;

/// A registration that a script has made or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationChange<I> {
    /// `SYSTEM:clientRegister`: a new subscription, or the renewal of the one with the same receiver and number.
    Register {
        /// Where to send the values.
        target: ReportTarget,
        /// The number that the client has chosen.
        client_id: u32,
        /// What to send.
        items: Vec<I>,
    },
    /// `SYSTEM:clientDestroy`.
    Destroy {
        /// Where the values were sent.
        target: ReportTarget,
        /// The number that the client has chosen.
        client_id: u32,
    },
}

/// A request for the values of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FetchId {
    subscription: u64,
    number: u64,
}

/// Where the values of a subscription are sent, and the number that the client has chosen.
type Receiver = (SocketAddr, u32);

pub(super) struct ServerSubscriptions<I> {
    interval: Duration,
    rows: BTreeMap<u64, ServerSubscription<I>>,
    by_receiver: HashMap<Receiver, u64>,
    n_by_address: HashMap<IpAddr, usize>,
    n_items: usize,
    /// The deadline of each row.
    timers: BTreeSet<(Instant, u64)>,
    next_row: u64,
    next_fetch: u64,
    /// When a change is considered that the caller has notified; `None` without one.
    change_due: Option<Instant>,
    /// Before this time no other change is considered.
    changes_from: Option<Instant>,
}

struct ServerSubscription<I> {
    receiver: Receiver,
    items: Arc<[I]>,
    expires_at: Instant,
    /// The last list that was sent; `None` before the first one.
    sent: Option<Vec<u8>>,
    sent_at: Instant,
    state: FetchState,
    /// The deadline in `timers`.
    due: Instant,
}

/// What a subscription waits for.
enum FetchState {
    /// For the time to fetch its values.
    Idle { fetch_at: Instant },
    /// For its values, until a time.
    Fetching { number: u64, until: Instant, is_changed: bool },
}

impl<I> ServerSubscription<I> {
    fn deadline(&self) -> Instant {
        let next = match self.state {
            FetchState::Idle { fetch_at } => fetch_at,
            FetchState::Fetching { until, .. } => until,
        };
        next.min(self.expires_at)
    }
}

impl<I> ServerSubscriptions<I> {
    pub(super) fn new(interval: Duration) -> ServerSubscriptions<I> {
        ServerSubscriptions {
            interval: interval.clamp(limit::REPORT_INTERVAL_MIN, limit::REPORT_INTERVAL_MAX),
            rows: BTreeMap::new(),
            by_receiver: HashMap::new(),
            n_by_address: HashMap::new(),
            n_items: 0,
            timers: BTreeSet::new(),
            next_row: 0,
            next_fetch: 0,
            change_due: None,
            changes_from: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let first = self.timers.first().map(|(at, _)| *at);
        [first, self.change_due].into_iter().flatten().min()
    }

    /// Enters a registration. `value`: the reply of the script, which already contains the values if the script is nothing
    /// but the registration.
    pub(super) fn apply(
        &mut self,
        change: RegistrationChange<I>,
        source: SocketAddr,
        value: &[u8],
        now: Instant,
    ) -> Result<(), String> {
        match change {
            RegistrationChange::Register { target, client_id, items } => {
                let receiver = (address(target, source)?, client_id);
                let report = ClientReport::parse(value).filter(|report| report.client_id == client_id);
                self.register(receiver, items, report.map(|report| report.list.to_vec()), now)
            }
            RegistrationChange::Destroy { target, client_id } => {
                if let Some(row) = self.by_receiver.get(&(address(target, source)?, client_id)) {
                    self.remove(*row);
                }
                Ok(())
            }
        }
    }

    fn register(
        &mut self,
        receiver: Receiver,
        items: Vec<I>,
        sent: Option<Vec<u8>>,
        now: Instant,
    ) -> Result<(), String> {
        let known = self.by_receiver.get(&receiver).copied();
        let n_replaced = known.and_then(|row| self.rows.get(&row)).map_or(0, |row| row.items.len());
        let check = |n: usize, max: usize, what: &str| {
            if n > max { Err(format!("a CLU has space for {max} {what}")) } else { Ok(()) }
        };
        check(items.len(), limit::SUBSCRIPTION_ITEMS_MAX, "values in one registration")?;
        check(self.n_items - n_replaced + items.len(), limit::SUBSCRIBED_ITEMS_MAX, "values in all registrations")?;
        let address = receiver.0.ip();
        if known.is_none() {
            let n_of_address = self.n_by_address.get(&address).copied().unwrap_or(0);
            check(self.rows.len() + 1, limit::SUBSCRIPTIONS_MAX, "registrations")?;
            check(n_of_address + 1, limit::SUBSCRIPTIONS_OF_ADDRESS_MAX, "registrations of one address")?;
        }
        let previous = known.and_then(|row| self.remove(row));
        // Without its values in the reply, a new subscription gets a report at once, but not sooner than the last one allows.
        let sent_at = match (&sent, &previous) {
            (Some(_), _) => now,
            (None, Some(previous)) => previous.sent_at,
            (None, None) => now.checked_sub(self.interval).unwrap_or(now),
        };
        let expires_at = now + limit::SUBSCRIPTION_TIME;
        let state = FetchState::Idle { fetch_at: (sent_at + self.interval).max(now) };
        let mut row =
            ServerSubscription { receiver, items: items.into(), expires_at, sent, sent_at, state, due: expires_at };
        row.due = row.deadline();
        let number = self.next_row;
        self.next_row += 1;
        self.timers.insert((row.due, number));
        self.n_items += row.items.len();
        *self.n_by_address.entry(address).or_insert(0) += 1;
        self.by_receiver.insert(receiver, number);
        self.rows.insert(number, row);
        Ok(())
    }

    fn remove(&mut self, number: u64) -> Option<ServerSubscription<I>> {
        let row = self.rows.remove(&number)?;
        self.timers.remove(&(row.due, number));
        self.by_receiver.remove(&row.receiver);
        self.n_items -= row.items.len();
        let address = row.receiver.0.ip();
        if let Some(n) = self.n_by_address.get_mut(&address) {
            *n -= 1;
            if *n == 0 {
                self.n_by_address.remove(&address);
            }
        }
        Some(row)
    }

    /// The receiver of a list that must be sent; `None` if it has not changed, or if the answer is late.
    pub(super) fn fetched(
        &mut self,
        fetch: FetchId,
        list: &[u8],
        now: Instant,
        counts: &mut CluServerCounts,
    ) -> Option<Receiver> {
        let row = self.rows.get_mut(&fetch.subscription);
        let Some((row, is_changed)) = row.and_then(|row| match row.state {
            FetchState::Fetching { number, is_changed, .. } if number == fetch.number => Some((row, is_changed)),
            _ => None,
        }) else {
            counts.fetches_late += 1;
            return None;
        };
        let is_same = row.sent.as_deref() == Some(list);
        let is_sent = !is_same || now >= row.sent_at + limit::REPORT_REPEAT;
        if is_sent {
            row.sent_at = now;
            if !is_same {
                row.sent = Some(list.to_vec());
            }
        } else {
            counts.reports_unchanged += 1;
        }
        // Values that changed while they were fetched may be in the list or not.
        let fetch_at = if is_changed { (row.sent_at + self.interval).max(now) } else { now + self.interval };
        row.state = FetchState::Idle { fetch_at };
        let receiver = row.receiver;
        self.reschedule(fetch.subscription);
        is_sent.then_some(receiver)
    }

    /// The values of a subscription could not be read: it is fetched again after an interval.
    pub(super) fn not_fetched(&mut self, fetch: FetchId, now: Instant, counts: &mut CluServerCounts) {
        let Some(row) = self.rows.get_mut(&fetch.subscription) else { return };
        if !matches!(row.state, FetchState::Fetching { number, .. } if number == fetch.number) {
            return;
        }
        counts.fetches_unanswered += 1;
        row.state = FetchState::Idle { fetch_at: now + self.interval };
        self.reschedule(fetch.subscription);
    }

    fn reschedule(&mut self, number: u64) {
        if let Some(row) = self.rows.get_mut(&number) {
            let due = row.deadline();
            self.timers.remove(&(row.due, number));
            self.timers.insert((due, number));
            row.due = due;
        }
    }

    /// Notes that values may have changed. Many changes in a short time are considered together, because each takes a look
    /// at all subscriptions.
    pub(super) fn values_changed(&mut self, now: Instant) {
        if self.change_due.is_none() && !self.rows.is_empty() {
            self.change_due = Some(self.changes_from.map_or(now, |from| from.max(now)));
        }
    }

    fn consider_change(&mut self, now: Instant) {
        self.change_due = None;
        self.changes_from = Some(now + limit::CHANGE_SPACING);
        let mut earlier = Vec::new();
        for (number, row) in &mut self.rows {
            let fetch_from = (row.sent_at + self.interval).max(now);
            match &mut row.state {
                FetchState::Idle { fetch_at } if *fetch_at > fetch_from => {
                    *fetch_at = fetch_from;
                    earlier.push(*number);
                }
                FetchState::Idle { .. } => {}
                FetchState::Fetching { is_changed, .. } => *is_changed = true,
            }
        }
        for number in earlier {
            self.reschedule(number);
        }
    }

    /// Removes expired subscriptions and calls `fetch` for those whose values are due.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        counts: &mut CluServerCounts,
        mut fetch: impl FnMut(FetchId, Arc<[I]>),
    ) {
        if self.change_due.is_some_and(|due| due <= now) {
            self.consider_change(now);
        }
        while let Some(&(due, subscription)) = self.timers.first() {
            let Some(row) = self.rows.get_mut(&subscription).filter(|_| due <= now) else { return };
            if row.expires_at <= now {
                counts.subscriptions_expired += 1;
                self.remove(subscription);
                continue;
            }
            counts.fetches_unanswered += u64::from(matches!(row.state, FetchState::Fetching { .. }));
            let number = self.next_fetch;
            self.next_fetch += 1;
            row.state = FetchState::Fetching { number, until: now + limit::FETCH_TIMEOUT, is_changed: false };
            fetch(FetchId { subscription, number }, row.items.clone());
            self.reschedule(subscription);
        }
    }
}

/// Where a client receives its reports.
fn address(target: ReportTarget, source: SocketAddr) -> Result<SocketAddr, String> {
    let ReportTarget::Address(address, port) = target else { return Ok(source) };
    if port == 0 || address.is_unspecified() || address.is_broadcast() || address.is_multicast() {
        return Err(format!("reports cannot be sent to {address}, port {port}"));
    }
    Ok((address, port).into())
}
