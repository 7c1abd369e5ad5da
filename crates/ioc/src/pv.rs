//! Serves record fields as PVs.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use fodo_data::{AcknowledgePut, Array, EventMask, Kind, Meta, Reading, STRING_BYTES, Scalar, Text, Value};
use fodo_db::{
    ChannelError, ChannelField, FieldFacts, FieldMap, FieldRef, Filter, FilterChain, Input, Presentation, Processing,
    PutError, PutId,
};
use fodo_lock::{Mutex, Rank};
use fodo_net::{
    ChannelAccessPv, Completion, NormativeShape, Peer, Post, Posts, ProcessOption, PutRefusal, Pv, PvAccessPv, PvFacts,
    Rights, ServedPv, Source,
};

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

    fn open(&self, name: &str) -> Option<ServedPv> {
        let ChannelField { field, filters } = self.driver.database().channel(name).ok()?;
        let pv = self.open_field(field);
        // Filters have state, so each channel with filters needs its own PV.
        Some(ServedPv::Flat(if filters.is_empty() { pv } else { RecordPv::filtered(pv, filters) }))
    }

    fn refusal_reason(&self, name: &str) -> Option<String> {
        match self.driver.database().channel(name) {
            Err(ChannelError::Filter(error)) => Some(error.to_string()),
            Err(ChannelError::Unknown) | Ok(_) => None,
        }
    }

    /// The records and their aliases.
    fn names(&self) -> Vec<String> {
        let database = self.driver.database();
        let aliases = database.aliases();
        let aliases = aliases.iter().map(|(alias, _)| alias.to_str().into_owned());
        database.record_names().map(str::to_owned).chain(aliases).collect()
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
    is_read_only: bool,
    posts: Posts,
    me: Weak<RecordPv>,
    filtered: Option<Box<FilterState>>,
    /// Subscribed channels with filters, which receive the same posts.
    fed: OnceLock<Mutex<Vec<Arc<RecordPv>>>>,
    /// Determined when a client of pvAccess opens the PV.
    presentation: OnceLock<Presentation>,
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
        let facts = driver.database().facts(field);
        RecordPv::with(driver, field, &facts, None)
    }

    fn filtered(of: Arc<RecordPv>, filters: Vec<Filter>) -> Arc<RecordPv> {
        let (driver, field) = (of.driver.clone(), of.field);
        let mut facts = driver.database().facts(field);
        let chain = Mutex::ranked(Rank::FilterChain, FilterChain::new(filters, &mut facts));
        let state = FilterState { of, facts: facts.clone(), chain, subscribed: AtomicU8::new(0) };
        RecordPv::with(driver, field, &facts, Some(Box::new(state)))
    }

    fn with(
        driver: Arc<DatabaseDriver>,
        field: FieldRef,
        facts: &FieldFacts,
        filtered: Option<Box<FilterState>>,
    ) -> Arc<RecordPv> {
        let posts = Posts::new(n_posts(facts.count_max));
        let is_read_only = facts.is_read_only;
        Arc::new_cyclic(|me| RecordPv {
            driver,
            field,
            is_read_only,
            posts,
            me: me.clone(),
            filtered,
            fed: OnceLock::new(),
            presentation: OnceLock::new(),
        })
    }

    pub fn field(&self) -> FieldRef {
        self.field
    }

    fn presentation(&self) -> &Presentation {
        self.presentation.get_or_init(|| {
            let database = self.driver.database();
            match &self.filtered {
                Some(filtered) => database.presentation(self.field, &filtered.facts),
                None => database.presentation(self.field, &database.facts(self.field)),
            }
        })
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

    /// A property of the field that never changes; its other facts are those of the record now.
    fn is_read_only(&self) -> bool {
        self.is_read_only
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

    fn pv_access(&self) -> Option<&dyn PvAccessPv> {
        Some(self)
    }
}

impl PvAccessPv for RecordPv {
    fn shape(&self) -> NormativeShape {
        let Presentation { kind, is_array, parts, tag_bits, .. } = *self.presentation();
        NormativeShape { kind, is_array, parts, tag_bits }
    }

    fn meta(&self) -> Arc<Meta> {
        let mut meta = Pv::meta(self);
        let own = Arc::make_mut(&mut meta);
        own.description = self.driver.database().description(self.field);
        own.form = self.presentation().form;
        meta
    }

    fn put(
        &self,
        value: Value,
        process: ProcessOption,
        by: &Peer,
        completion: Option<Completion>,
    ) -> Result<(), PutRefusal> {
        let PvFacts { kind, count_max, .. } = self.facts();
        let value = stored_value(value, kind, count_max);
        self.driver.put_processing(self.field, value, processing_of(process), Some(by), completion).map_err(refusal)
    }

    fn process(&self, by: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
        let database = self.driver.database();
        let field = database.processing_field(self.field);
        if !self.driver.guard().allowed(database, field, by).write {
            return Err(PutRefusal::ReadOnly);
        }
        self.driver.put(field, Value::from(1_u8), Some(by), completion).map_err(refusal)
    }
}

impl ChannelAccessPv for RecordPv {
    fn class_name(&self) -> &'static str {
        self.driver.database().facts(self.field).record_type
    }

    fn acknowledge(&self, put: AcknowledgePut) -> Result<(), PutRefusal> {
        // As in rsrv, a read-only channel rejects acknowledgements too.
        if self.is_read_only {
            return Err(PutRefusal::ReadOnly);
        }
        self.driver.input(Input::Acknowledge { field: self.field, put }).map_err(refusal)
    }
}

/// What a client of pvAccess puts, as the field with this kind and number of elements stores it.
pub fn stored_value(value: Value, kind: Kind, count_max: u32) -> Value {
    match value {
        // A long string: characters, cut so that they fit with their NUL.
        Value::Scalar(Scalar::Text(text)) if matches!(kind, Kind::I8 | Kind::U8) && count_max > 1 => {
            let n_bytes = text.len().min((count_max as usize).saturating_sub(1));
            let bytes = text.as_bytes()[..n_bytes].iter().copied().chain([0]);
            Value::from(bytes.collect::<Vec<u8>>())
        }
        // Every element of an array of texts has the same size.
        Value::Array(Array::Text(texts)) if texts.iter().any(|text| text.len() >= STRING_BYTES) => {
            let fitting = |text: &Text| Text::from_bytes(&text.as_bytes()[..text.len().min(STRING_BYTES - 1)]);
            Value::from(texts.iter().map(fitting).collect::<Vec<Text>>())
        }
        value => value,
    }
}

/// Whether a put of a client of pvAccess processes its record.
pub fn processing_of(process: ProcessOption) -> Processing {
    match process {
        ProcessOption::Passive => Processing::Passive,
        ProcessOption::Always => Processing::Always,
        ProcessOption::Never => Processing::Never,
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
    use fodo_data::{DisplayForm, Severity};
    use fodo_db::Loader;

    fn records() -> Records {
        let mut loader = Loader::default();
        let text = r#"
            record(ai, a) { field(PREC, 3) field(DESC, "how far") info(Q:form, Hex) info(Q:time:tag, "nsec:lsb:8") }
            record(waveform, w) { field(FTVL, SHORT) field(NELM, 5) }
            record(waveform, t) { field(FTVL, CHAR) field(NELM, 5) info(Q:form, String) }
            record(waveform, s) { field(FTVL, STRING) field(NELM, 2) }
            record(calc, c) { field(CALC, "VAL+1") }
        "#;
        loader.load("a.db", "", &mut |_| Ok(text.into())).unwrap();
        Records::new(DatabaseDriver::new(loader.finish().unwrap(), AccessControl::open()))
    }

    fn flat(records: &Records, name: &str) -> Arc<dyn Pv> {
        records.open(name).and_then(ServedPv::flat).unwrap()
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
        let open = |name: &str| flat(&records, name);

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

        let seconds = flat(&records, "a.{ts:{num:'sec'}}");

        assert_eq!((seconds.facts().kind, seconds.meta().precision), (Kind::U32, 0));
        assert_eq!(flat(&records, "a").meta().precision, 3);
    }

    fn peer() -> Peer {
        Peer { user: "operator".into(), host: "console".into(), ..Peer::new(([127, 0, 0, 1], 1).into()) }
    }

    /// Puts over pvAccess and returns the value afterwards.
    fn put(records: &Records, name: &str, value: impl Into<Value>, process: ProcessOption) -> Value {
        let pv = flat(records, name);
        pv.pv_access().unwrap().put(value.into(), process, &peer(), None).unwrap();
        pv.read().value
    }

    #[test]
    fn pvaccess_shows_fields_as_their_record_says() {
        let records = records();
        let shape = |name: &str| flat(&records, name).pv_access().unwrap().shape();
        let shown = |name: &str| (shape(name).kind, shape(name).is_array);

        assert_eq!(
            (shown("t"), shown("t.EGU$"), shown("t.INP$")),
            ((Kind::Text, false), (Kind::I8, true), (Kind::Text, false))
        );
        assert_eq!((shown("w"), shown("a.DESC")), ((Kind::I16, true), (Kind::Text, false)));
        assert_eq!((shape("a").tag_bits, shape("w").tag_bits), (8, 0));
        let meta = flat(&records, "a").pv_access().unwrap().meta();
        assert_eq!((&*meta.description.to_str(), meta.form, meta.precision), ("how far", DisplayForm::Hex, 3));
        assert_eq!(flat(&records, "a.HIGH").pv_access().unwrap().meta().form, DisplayForm::Default);
    }

    #[test]
    fn a_text_put_over_pvaccess_is_cut_so_that_it_fits_its_field() {
        let records = records();
        let long = "x".repeat(50);

        assert_eq!(
            put(&records, "t", "ab", ProcessOption::Passive),
            Value::from(b"ab\0".map(|byte| byte as i8).to_vec())
        );
        assert_eq!(put(&records, "t", "abcdefgh", ProcessOption::Passive).long_text(), Some("abcd".into()));
        let texts: Vec<Text> = vec!["a".into(), Text::from(&*long)];
        let expected: Vec<Text> = vec!["a".into(), Text::from(&long[..39])];
        assert_eq!(put(&records, "s", texts, ProcessOption::Passive), expected.into());
    }

    #[test]
    fn a_put_over_pvaccess_processes_the_record_as_its_client_decides() {
        let records = records();

        assert_eq!(put(&records, "c", 10.0, ProcessOption::Passive), 10.0.into());
        assert_eq!(put(&records, "c", 10.0, ProcessOption::Always), 11.0.into());
        assert_eq!(put(&records, "c", 20.0, ProcessOption::Never), 20.0.into());
        let calc = flat(&records, "c");
        calc.pv_access().unwrap().process(&peer(), None).unwrap();
        assert_eq!(calc.read().value, 21.0.into());
        put(&records, "c.DISP", 1_u8, ProcessOption::Never);
        assert!(calc.pv_access().unwrap().process(&peer(), None).is_err(), "DISP forbids it");
    }

    #[test]
    fn only_writable_fields_accept_alarm_acknowledgements() {
        let records = records();
        let major = AcknowledgePut::Severity(Severity::Major);
        let acknowledge = |name: &str| flat(&records, name).channel_access().unwrap().acknowledge(major);

        assert!(acknowledge("a").is_ok());
        assert!(matches!(acknowledge("a.RTYP"), Err(PutRefusal::ReadOnly)));
    }
}
