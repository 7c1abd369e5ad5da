//! Serves record fields as PVs.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use fodo_data::{EventMask, Kind, Meta, Reading, Severity, Value};
use fodo_db::{
    AcknowledgePut, ChannelError, ChannelField, FieldFacts, FieldMap, FieldRef, Filter, FilterChain, Input, PutError,
    PutId,
};
use fodo_lock::{Mutex, Rank};
use fodo_net::{ChannelAccessPv, Completion, Peer, Post, Posts, PutRefusal, Pv, PvFacts, Rights, Source};

use crate::driver::DatabaseDriver;
use crate::limit;

/// The records of a database as a source of PVs.
#[derive(Debug)]
pub struct Records {
    driver: Arc<DatabaseDriver>,
    /// One object for each field that has a channel.
    open: Mutex<OpenPvs>,
}

#[derive(Debug, Default)]
struct OpenPvs {
    pvs: FieldMap<Weak<RecordPv>>,
    /// At this size, unused objects are removed.
    prune_at: usize,
}

impl Records {
    pub fn new(driver: Arc<DatabaseDriver>) -> Records {
        Records { driver, open: Mutex::ranked(Rank::OpenPvs, OpenPvs::default()) }
    }
}

impl Source for Records {
    fn serves(&self, name: &str) -> bool {
        self.driver.database().has_channel(name)
    }

    fn open(&self, name: &str) -> Option<Arc<dyn Pv>> {
        let ChannelField { field, filters } = self.driver.database().channel(name).ok()?;
        let pv = self.open_field(field);
        // Filters have state, so each channel with filters needs its own PV.
        Some(if filters.is_empty() { pv } else { RecordPv::filtered(pv, filters) })
    }

    fn refusal_reason(&self, name: &str) -> Option<String> {
        match self.driver.database().channel(name) {
            Err(ChannelError::Filter(error)) => Some(error.to_string()),
            Err(ChannelError::Unknown) | Ok(_) => None,
        }
    }
}

impl Records {
    fn open_field(&self, field: FieldRef) -> Arc<RecordPv> {
        let mut open = self.open.lock();
        if let Some(pv) = open.pvs.get(&field).and_then(Weak::upgrade) {
            return pv;
        }
        let pv = RecordPv::new(self.driver.clone(), field);
        if open.pvs.len() >= open.prune_at {
            open.pvs.retain(|_, pv| pv.strong_count() > 0);
            open.prune_at = (2 * open.pvs.len()).max(limit::OPEN_PVS_PRUNED_MIN);
        }
        open.pvs.insert(field, Arc::downgrade(&pv));
        pv
    }
}

/// A field of a record, or one channel to it with filters.
#[derive(Debug)]
pub struct RecordPv {
    driver: Arc<DatabaseDriver>,
    field: FieldRef,
    posts: Posts,
    me: Weak<RecordPv>,
    filtered: Option<Box<FilterState>>,
    /// Subscribed channels with filters, which receive the same posts.
    fed: OnceLock<Mutex<Vec<Arc<RecordPv>>>>,
}

/// The additional state of a channel with filters.
#[derive(Debug)]
struct FilterState {
    /// The PV without filters.
    of: Arc<RecordPv>,
    facts: FieldFacts,
    chain: Mutex<FilterChain>,
    /// The event masks of all subscriptions; filters see only these events.
    subscribed: AtomicU8,
}

/// The number of posts to keep for a PV with up to `count_max` elements.
fn n_posts(count_max: u32) -> usize {
    if count_max == 1 { limit::SCALAR_POSTS } else { limit::ARRAY_POSTS }
}

impl RecordPv {
    fn new(driver: Arc<DatabaseDriver>, field: FieldRef) -> Arc<RecordPv> {
        let count_max = driver.database().facts(field).count_max;
        RecordPv::with(driver, field, count_max, None)
    }

    fn filtered(of: Arc<RecordPv>, filters: Vec<Filter>) -> Arc<RecordPv> {
        let (driver, field) = (of.driver.clone(), of.field);
        let mut facts = driver.database().facts(field);
        let chain = Mutex::ranked(Rank::FilterChain, FilterChain::new(filters, &mut facts));
        let count_max = facts.count_max;
        RecordPv::with(
            driver,
            field,
            count_max,
            Some(Box::new(FilterState { of, facts, chain, subscribed: AtomicU8::new(0) })),
        )
    }

    fn with(
        driver: Arc<DatabaseDriver>,
        field: FieldRef,
        count_max: u32,
        filtered: Option<Box<FilterState>>,
    ) -> Arc<RecordPv> {
        let posts = Posts::new(n_posts(count_max));
        Arc::new_cyclic(|me| RecordPv { driver, field, posts, me: me.clone(), filtered, fed: OnceLock::new() })
    }

    pub fn field(&self) -> FieldRef {
        self.field
    }

    pub fn has_listeners(&self) -> bool {
        self.posts.has_listeners() || self.fed.get().is_some_and(|fed| !fed.lock().is_empty())
    }

    /// Returns the PV to watch for this one. For a channel with filters that is the PV without filters; also registers
    /// this channel there if it has listeners, and removes it otherwise.
    pub fn register_with_source(self: &Arc<RecordPv>) -> &Arc<RecordPv> {
        let Some(filtered) = &self.filtered else { return self };
        let mut fed = filtered.of.fed.get_or_init(|| Mutex::ranked(Rank::FilteredPvs, Vec::new())).lock();
        fed.retain(|other| !Arc::ptr_eq(other, self));
        if self.posts.has_listeners() {
            fed.push(self.clone());
        }
        &filtered.of
    }

    pub fn post(&self, post: Post) {
        if let Some(fed) = self.fed.get() {
            fed.lock().iter().for_each(|pv| pv.feed(post.mask, &post.reading));
        }
        self.posts.post(post);
    }

    /// Posts the result of this channel's filters for a change.
    fn feed(&self, mask: EventMask, reading: &Reading) {
        let Some(filtered) = &self.filtered else { return };
        let mask = EventMask(mask.0 & filtered.subscribed.load(Ordering::Relaxed));
        if mask.is_empty() {
            return;
        }
        let moment = self.driver.filter_context(self.field);
        if let Some((mask, reading)) = filtered.chain.lock().update(mask, reading.clone(), &moment) {
            self.posts.post(Post { mask, reading });
        }
    }
}

impl Pv for RecordPv {
    fn facts(&self) -> PvFacts {
        let facts = match &self.filtered {
            Some(filtered) => filtered.facts.clone(),
            None => self.driver.database().facts(self.field),
        };
        PvFacts { kind: facts.kind, count_max: facts.count_max, is_read_only: facts.is_read_only }
    }

    fn read(&self) -> Reading {
        let reading = self.driver.database().read(self.field);
        match &self.filtered {
            Some(filtered) => filtered.chain.lock().read(reading, &self.driver.filter_context(self.field)),
            None => reading,
        }
    }

    fn meta(&self) -> Arc<Meta> {
        let meta = self.driver.database().meta(self.field);
        match &self.filtered {
            // An integer time stamp has no decimals, regardless of the record's PREC.
            Some(filtered) if filtered.facts.kind == Kind::U32 => {
                Arc::new(Meta { precision: 0, text_digits: None, ..(*meta).clone() })
            }
            _ => meta,
        }
    }

    fn rights(&self, by: &Peer) -> Rights {
        self.driver.guard().allowed(self.driver.database(), self.field, by)
    }

    fn put(&self, value: Value, by: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
        self.driver.put(self.field, value, Some(by), completion).map_err(refusal)
    }

    fn cancel_put(&self, put: u64) {
        self.driver.give_up(self.field, PutId(put));
    }

    fn posts(&self) -> &Posts {
        &self.posts
    }

    fn listeners_changed(&self) {
        if let Some(me) = self.me.upgrade() {
            self.driver.watch(&me);
        }
    }

    fn with_reading(&self, subscribe: &mut dyn FnMut(Reading)) {
        self.driver.while_locked(&mut || subscribe(self.driver.database().read(self.field)));
    }

    fn first_update(&self, reading: Reading, mask: EventMask) -> Option<Reading> {
        let Some(filtered) = &self.filtered else { return Some(reading) };
        filtered.subscribed.fetch_or(mask.0, Ordering::Relaxed);
        let moment = self.driver.filter_context(self.field);
        let (_, reading) = filtered.chain.lock().update(mask, reading, &moment)?;
        Some(reading)
    }

    fn channel_access(&self) -> Option<&dyn ChannelAccessPv> {
        Some(self)
    }
}

impl ChannelAccessPv for RecordPv {
    fn class_name(&self) -> &'static str {
        self.driver.database().facts(self.field).record_type
    }

    fn acknowledge(&self, transient: Option<bool>, severity: Option<Severity>) -> Result<(), PutRefusal> {
        // As in rsrv, a read-only channel rejects acknowledgements too.
        if self.driver.database().facts(self.field).is_read_only {
            return Err(PutRefusal::ReadOnly);
        }
        let transient = transient.map(|is_required| AcknowledgePut::Transient { is_required });
        for put in transient.into_iter().chain(severity.map(AcknowledgePut::Severity)) {
            self.driver.input(Input::Acknowledge { field: self.field, put }).map_err(refusal)?;
        }
        Ok(())
    }
}

/// Converts an error of the database to an error of the server.
pub fn refusal(error: PutError) -> PutRefusal {
    match error {
        PutError::ReadOnly => PutRefusal::ReadOnly,
        PutError::ProcessingFailed => PutRefusal::ProcessingFailed(error.to_string()),
        other => PutRefusal::Rejected(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_control::AccessControl;
    use fodo_db::Loader;

    fn records() -> Records {
        let mut loader = Loader::default();
        let text = "record(ai, a) { field(PREC, 3) }\nrecord(waveform, w) { field(FTVL, SHORT) field(NELM, 5) }";
        loader.load("a.db", "", &mut |_| Ok(text.into())).unwrap();
        Records::new(DatabaseDriver::new(loader.finish().unwrap(), AccessControl::open()))
    }

    #[test]
    fn scalars_queue_more_posts_than_arrays() {
        assert!(n_posts(1) > n_posts(2));
        assert_eq!(n_posts(2), n_posts(1000));
    }

    #[test]
    fn a_name_is_served_if_the_record_has_the_field() {
        let records = records();

        for (name, is_served) in [("a", true), ("a.PREC", true), ("a.NOPE", false), ("b", false)] {
            assert_eq!(records.serves(name), is_served, "{name}");
            assert_eq!(records.open(name).is_some(), is_served, "{name}");
        }
    }

    #[test]
    fn unfiltered_channels_of_a_field_share_its_pv_and_a_filtered_one_does_not() {
        let records = records();
        let open = |name: &str| records.open(name).unwrap();

        let (first, second, filtered) = (open("w"), open("w.VAL"), open("w.[0:1]"));

        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &filtered));
        assert_eq!((first.facts().kind, first.facts().count_max), (Kind::I16, 5));
        assert_eq!(first.channel_access().map(ChannelAccessPv::class_name), Some("waveform"));
        assert_eq!(filtered.facts().count_max, 2);
        assert!(!first.facts().is_read_only && open("a.RTYP").facts().is_read_only);
    }

    #[test]
    fn an_invalid_filter_is_rejected_with_a_reason_and_an_unknown_name_without() {
        let records = records();

        assert!(records.refusal_reason("a.{\"nope\":{}}").is_some_and(|why| why.contains("nope")));
        assert_eq!((records.refusal_reason("a"), records.refusal_reason("b")), (None, None));
    }

    #[test]
    fn an_integer_time_stamp_has_precision_zero() {
        let records = records();

        let seconds = records.open("a.{ts:{num:'sec'}}").unwrap();

        assert_eq!((seconds.facts().kind, seconds.meta().precision), (Kind::U32, 0));
        assert_eq!(records.open("a").unwrap().meta().precision, 3);
    }

    #[test]
    fn only_writable_fields_accept_alarm_acknowledgements() {
        let records = records();
        let acknowledge =
            |name: &str| records.open(name).unwrap().channel_access().unwrap().acknowledge(None, Some(Severity::Major));

        assert!(acknowledge("a").is_ok());
        assert!(matches!(acknowledge("a.RTYP"), Err(PutRefusal::ReadOnly)));
    }
}
