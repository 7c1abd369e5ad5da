//! PagedSubscriptions: their pages, each of which is one registration in the CLU.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use fodo_data::{Now, Scalar};

use super::requests::{ReplyForm, RequestPurpose, Requests, Resend};
use super::{Answer, Availability, ClientEvent, ClientOutput, CluClient, RequestOutcome, SubmitError};
use crate::limit;
use crate::script::{self, CluItem};

/// A subscription of a client; no two have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CluSubscription(u64);

/// Consecutive items of a subscription, registered together.
#[derive(Debug)]
struct RegisteredPage {
    subscription: CluSubscription,
    items: Range<usize>,
    state: PageState,
    /// Whether the registration was ever sent, so that the CLU may know it.
    was_requested: bool,
    /// Whether the CLU has confirmed the registration at any time.
    was_confirmed: bool,
    /// How many registrations have failed since the last values.
    n_failed: u32,
}

/// The state of a registration; each comment says what the page waits for.
#[derive(Clone, Copy, Debug)]
enum PageState {
    /// This time, at which it is registered.
    Due(Instant),
    /// The reply to the registration.
    Registering,
    /// Reports, and the time to renew the registration.
    Registered { renew_at: Instant, reported_at: Instant },
}

impl RegisteredPage {
    /// When it is registered, for the first time or again.
    fn due_at(&self) -> Option<Instant> {
        match self.state {
            PageState::Due(at) => Some(at),
            PageState::Registering => None,
            PageState::Registered { renew_at, reported_at } => Some(renew_at.min(reported_at + limit::REPORT_SILENCE)),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct PagedSubscriptions {
    items: BTreeMap<CluSubscription, Vec<CluItem>>,
    /// By client id.
    pages: BTreeMap<u32, RegisteredPage>,
    n_subscriptions: u64,
}

impl PagedSubscriptions {
    pub(super) fn add(
        &mut self,
        items: Vec<CluItem>,
        now: Instant,
        requests: &mut Requests,
    ) -> Result<CluSubscription, SubmitError> {
        let ranges = page_ranges(&items);
        if self.pages.len() + ranges.len() > limit::PAGES_MAX {
            return Err(SubmitError::TooManySubscriptions);
        }
        self.n_subscriptions += 1;
        let subscription = CluSubscription(self.n_subscriptions);
        for range in ranges {
            self.add_page(subscription, range, 0, now, requests);
        }
        self.items.insert(subscription, items);
        Ok(subscription)
    }

    fn add_page(
        &mut self,
        subscription: CluSubscription,
        items: Range<usize>,
        n_failed: u32,
        now: Instant,
        requests: &mut Requests,
    ) {
        // 16 bits, because CLUs use such numbers.
        let mut client_id = requests.random_u32() & 0xffff;
        while client_id == 0 || self.pages.contains_key(&client_id) {
            client_id = (client_id + 1) & 0xffff;
        }
        let state = PageState::Due(now);
        let page = RegisteredPage { subscription, items, state, was_requested: false, was_confirmed: false, n_failed };
        self.pages.insert(client_id, page);
    }

    /// Removes a subscription. Returns the client ids that the CLU may know.
    pub(super) fn remove(&mut self, subscription: CluSubscription) -> Vec<u32> {
        self.items.remove(&subscription);
        let mut known = Vec::new();
        self.pages.retain(|client_id, page| {
            let is_removed = page.subscription == subscription;
            if is_removed && page.was_requested {
                known.push(*client_id);
            }
            !is_removed
        });
        known
    }

    /// Removes all subscriptions. Returns the client ids that the CLU may know.
    pub(super) fn clear(&mut self) -> Vec<u32> {
        self.items.clear();
        let pages = std::mem::take(&mut self.pages);
        pages.into_iter().filter(|(_, page)| page.was_requested).map(|(client_id, _)| client_id).collect()
    }

    /// Registers all pages again, except for those whose registration is in flight.
    pub(super) fn all_due(&mut self, now: Instant) {
        for page in self.pages.values_mut().filter(|page| !matches!(page.state, PageState::Registering)) {
            page.state = PageState::Due(now);
            page.n_failed = 0;
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.pages.values().filter_map(RegisteredPage::due_at).min()
    }

    /// The number of items of a registration.
    pub(super) fn n_items(&self, client_id: u32) -> Option<usize> {
        self.pages.get(&client_id).map(|page| page.items.len())
    }

    /// Replaces a page by its two halves. A CLU rejects a registration with one unknown item, or whose values are too long.
    ///
    /// The halves continue the count of failures. Returns whether the CLU may know the page.
    fn split(&mut self, client_id: u32, now: Instant, requests: &mut Requests) -> bool {
        let Some(page) = self.pages.remove(&client_id) else { return false };
        let middle = page.items.start + page.items.len() / 2;
        for half in [page.items.start..middle, middle..page.items.end] {
            self.add_page(page.subscription, half, page.n_failed, now, requests);
        }
        page.was_confirmed
    }
}

/// Consecutive ranges of items, each of which is one registration.
fn page_ranges(items: &[CluItem]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut n_bytes) = (0, limit::REGISTRATION_BYTES);
    for (index, item) in items.iter().enumerate() {
        let item_bytes = item.listed_bytes_max();
        if index - start == limit::PAGE_ITEMS_MAX || n_bytes + item_bytes > limit::PAGE_BYTES_MAX {
            ranges.push(start..index);
            (start, n_bytes) = (index, limit::REGISTRATION_BYTES);
        }
        n_bytes += item_bytes;
    }
    if start < items.len() {
        ranges.push(start..items.len());
    }
    ranges
}

impl CluClient {
    /// Whether the CLU can be expected to accept registrations.
    fn can_register(&self) -> bool {
        !self.config.checks_availability || self.availability() == Availability::Available
    }

    pub(super) fn pages_deadline(&self) -> Option<Instant> {
        self.subscriptions.deadline().filter(|_| self.can_register())
    }

    /// Adds the registrations that are due to the queue.
    pub(super) fn register_due_pages(&mut self, now: Now) {
        if self.pages_deadline().is_none_or(|at| now.monotonic < at) {
            return;
        }
        let is_due = |page: &RegisteredPage| page.due_at().is_some_and(|at| at <= now.monotonic);
        let due = self.subscriptions.pages.iter().filter(|(_, page)| is_due(page));
        let due: Vec<u32> = due.map(|(client_id, _)| *client_id).collect();
        let mut text = Vec::new();
        for client_id in due {
            let Some(page) = self.subscriptions.pages.get(&client_id) else { continue };
            let items =
                self.subscriptions.items.get(&page.subscription).and_then(|items| items.get(page.items.clone()));
            text.clear();
            script::write_register(self.config.report_target, client_id, items.unwrap_or_default(), &mut text);
            let (purpose, expected) = (RequestPurpose::Register(client_id), ReplyForm::Report(client_id));
            let is_accepted = self.submit_internal(&text, purpose, expected, Resend::Safe, now).is_ok();
            let retry = PageState::Due(now.monotonic + limit::REGISTER_RETRY);
            if let Some(page) = self.subscriptions.pages.get_mut(&client_id) {
                page.state = if is_accepted { PageState::Registering } else { retry };
                page.was_requested |= is_accepted;
            }
        }
    }

    pub(super) fn register_ended(&mut self, client_id: u32, outcome: RequestOutcome, now: Now, out: &mut ClientOutput) {
        let can_register = self.can_register();
        // The subscription may have ended.
        let Some(page) = self.subscriptions.pages.get_mut(&client_id) else { return };
        match outcome {
            RequestOutcome::Answered(Answer::Values(values)) => {
                page.was_confirmed = true;
                page.state =
                    PageState::Registered { renew_at: now.monotonic + limit::RENEW_AFTER, reported_at: now.monotonic };
                self.update(client_id, values, now, out);
            }
            outcome if can_register => self.register_failed(client_id, &outcome, now, out),
            _ => page.state = PageState::Due(now.monotonic + limit::REGISTER_RETRY),
        }
        if let Some(at) = self.pages_deadline() {
            self.wake_by(at);
        }
    }

    /// The CLU is available but did not accept a registration: finds the items for which that holds, and reports them.
    fn register_failed(&mut self, client_id: u32, outcome: &RequestOutcome, now: Now, out: &mut ClientOutput) {
        let Some(page) = self.subscriptions.pages.get_mut(&client_id) else { return };
        page.n_failed += 1;
        page.state = PageState::Due(now.monotonic + limit::REGISTER_RETRY);
        let is_answered = !matches!(outcome, RequestOutcome::TimedOut { .. } | RequestOutcome::Cancelled);
        // A CLU refuses requests while it is busy; while its scripts start, known objects are missing.
        let n_may_pass = match outcome {
            RequestOutcome::Refused => limit::REFUSED_REGISTRATIONS,
            _ => u32::from(page.was_confirmed || !is_answered),
        };
        if page.n_failed <= n_may_pass {
            return;
        }
        if is_answered && page.items.len() > 1 {
            if self.subscriptions.split(client_id, now.monotonic, &mut self.requests) {
                self.destroy(client_id, now);
            }
            return;
        }
        if is_answered {
            page.state = PageState::Due(now.monotonic + limit::RENEW_AFTER);
        }
        if is_answered || page.n_failed == 2 {
            let subscription = page.subscription;
            out.events.extend(page.items.clone().map(|index| ClientEvent::Missing { subscription, index }));
        }
    }

    /// Reports the values of a page.
    pub(super) fn update(&mut self, client_id: u32, values: Vec<Option<Scalar>>, now: Now, out: &mut ClientOutput) {
        let Some(page) = self.subscriptions.pages.get_mut(&client_id) else { return };
        if let PageState::Registered { reported_at, .. } = &mut page.state {
            *reported_at = now.monotonic;
        }
        page.n_failed = 0;
        let (subscription, first) = (page.subscription, page.items.start);
        out.events.push(ClientEvent::Update { subscription, first, values });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_at_most_16_items_and_1800_bytes() {
        let short: Vec<CluItem> = (0..40).filter_map(|index| CluItem::feature("DOU1", index)).collect();
        let long_name = "N".repeat(limit::NAME_BYTES_MAX);
        let long: Vec<CluItem> = (0..40).filter_map(|index| CluItem::feature(&long_name, index)).collect();

        assert_eq!(page_ranges(&short), [0..16, 16..32, 32..40]);
        assert_eq!(page_ranges(&[]), []);
        let ranges = page_ranges(&long);
        assert_eq!(ranges.first().map(|range| range.start), Some(0));
        assert_eq!(ranges.last().map(|range| range.end), Some(40));
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        for range in ranges {
            let mut text = Vec::new();
            let target = script::ReportTarget::Address([255, 255, 255, 255].into(), u16::MAX);
            script::write_register(target, 65535, &long[range.clone()], &mut text);
            let command_bytes = text.len() + "req:255.255.255.255:00000000:\r\n".len();
            assert!(command_bytes <= limit::PAGE_BYTES_MAX, "{range:?}: {command_bytes}");
        }
    }
}
