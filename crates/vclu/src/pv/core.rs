//! What the PVs of a CLU share: the CLU, the values and the tasks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use fodo_clu::client::Availability;
use fodo_clu::interface::MethodInterface;
use fodo_data::{EventMask, Reading, Scalar, Status, Structure, TimeStamp, Value, normative_type};
use fodo_lock::{Condvar, Mutex};
use fodo_net::clu::CluUpdate;
use fodo_net::{Call, DeferredPut, PutRefusal, SharedStructure};

use super::end::{CluEnd, SetReply, ValueItem};
use super::lights;
use super::limits::LiveLimits;
use super::shape::{ValueShape, is_taken};
use super::status::LinkPvs;
use super::tasks::TaskQueue;
use super::value::{QueuedPut, ValuePv};
use crate::actor::VirtualClu;
use crate::limit::{FETCH_ITEMS_MAX, POLL_ITEMS, POLL_PERIOD, READ_BACKS_MAX, SILENCE_MAX};

/// The PVs of one CLU.
pub(super) struct PvCore {
    pub end: CluEnd,
    pub tasks: Arc<TaskQueue>,
    pub values: Vec<ValuePv>,
    pub methods: Vec<RpcMethod>,
    /// The classes of the objects whose PVs these are, by the names in Lua.
    pub classes: HashMap<String, u32>,
    /// The objects of a CLU in this process that have another class since its scripts were started again.
    pub replaced: Mutex<HashSet<String>>,
    /// The objects of a CLU in this process that have no PVs because its scripts have created them later.
    pub new_objects: Mutex<NewObjects>,
    /// The structures of the objects.
    pub objects: Vec<SharedStructure>,
    /// The values that are read or subscribed to, by their place in the subscription.
    pub read: Vec<usize>,
    pub status: LinkPvs,
    /// The values that are not known yet.
    pub n_unknown: Mutex<usize>,
    pub is_all_known: Condvar,
    pub polling: Mutex<PollTimes>,
    /// Held while values are posted, so that those of another thread are posted before or after all of them.
    pub posting: Mutex<()>,
}

/// A method with several arguments.
pub(super) struct RpcMethod {
    pub object: String,
    pub interface: MethodInterface,
}

/// The objects without PVs, by the lists of the CLU.
#[derive(Default)]
pub(super) struct NewObjects {
    /// The objects without PVs in the first list, such as those that scripts create for themselves.
    first: Option<HashSet<String>>,
    /// The objects that were created since.
    names: BTreeSet<String>,
}

/// The read requests in progress.
#[derive(Default)]
pub(super) struct PollTimes {
    /// When the current read began.
    since: Option<Instant>,
    /// When the last one began.
    began: Option<Instant>,
}

impl PvCore {
    /// Stores values of the CLU, by their indices.
    fn store(&self, values: impl IntoIterator<Item = (usize, Option<Scalar>)>) {
        let posting = self.posting.lock();
        let n_known = self.store_locked(values);
        drop(posting);
        self.note_known(n_known);
    }

    /// The same for one value, unless another one was stored after the first `n_stored` of it.
    fn store_after(&self, index: usize, value: Option<Scalar>, n_stored: u64) -> bool {
        let posting = self.posting.lock();
        if self.values.get(index).is_some_and(|pv| pv.n_stored.load(Ordering::Relaxed) != n_stored) {
            return false;
        }
        let n_known = self.store_locked([(index, value)]);
        drop(posting);
        self.note_known(n_known);
        true
    }

    /// Returns how many values were not known before.
    fn store_locked(&self, values: impl IntoIterator<Item = (usize, Option<Scalar>)>) -> usize {
        let time = now();
        let mut changes = BTreeMap::new();
        let mut colours = BTreeSet::new();
        let mut n_known = 0;
        for (index, value) in values {
            let Some(pv) = self.values.get(index) else { continue };
            if let Some(reading) = pv.update(value.as_ref(), time) {
                self.stage(pv, &reading, &mut changes);
                self.limit_others(pv, time, &mut changes);
                colours.extend(pv.colour);
            }
            n_known += usize::from(pv.becomes_known());
        }
        self.compose(colours, time);
        self.post(changes);
        n_known
    }

    /// A value has changed that contains limits of others.
    fn limit_others(&self, pv: &ValuePv, time: TimeStamp, changes: &mut BTreeMap<usize, Structure>) {
        for (limited, kind) in &pv.limits_of {
            let Some(limited) = self.values.get(*limited) else { continue };
            if let Some(reading) = limited.set_limit(*kind, pv.number(), time) {
                self.stage(limited, &reading, changes);
            }
        }
    }

    /// Parts of these colours have changed: a colour has the alarm of the worst part.
    fn compose(&self, colours: BTreeSet<usize>, time: TimeStamp) {
        for pv in colours.into_iter().filter_map(|index| self.values.get(index)) {
            let ValueItem::Colour { parts, .. } = &pv.item else { continue };
            let readings = || parts.iter().filter_map(|part| Some(self.values.get(*part)?.pv.reading()));
            let alarm = readings().map(|reading| reading.alarm).max_by_key(|alarm| alarm.severity);
            let numbers = readings().map(|reading| reading.value.to_f64().unwrap_or_default() as i32);
            pv.compose(numbers.collect::<Vec<_>>().into(), alarm.unwrap_or_default(), time);
        }
    }

    /// The CLU is silent: all values become INVALID.
    pub fn lose(&self) {
        self.invalidate(&self.values, Status::COMM);
        self.status.set_availability(Availability::Unavailable);
    }

    /// These values are the last ones and cannot be trusted.
    fn invalidate<'a>(&self, values: impl IntoIterator<Item = &'a ValuePv>, status: Status) {
        let _posting = self.posting.lock();
        let time = now();
        let (mut changes, mut colours) = (BTreeMap::new(), BTreeSet::new());
        for pv in values {
            if let Some(reading) = pv.lose(status, time) {
                self.stage(pv, &reading, &mut changes);
                colours.extend(pv.colour);
            }
        }
        self.compose(colours, time);
        self.post(changes);
    }

    /// Adds a reading to the change of its object.
    fn stage(&self, pv: &ValuePv, reading: &Reading, changes: &mut BTreeMap<usize, Structure>) {
        let Some(place) = &pv.member else { return };
        let Some(object) = self.objects.get(place.object) else { return };
        let mut part = Structure::new(place.layout.kind().clone());
        let mask = EventMask::VALUE | EventMask::ALARM;
        let mask = if reading.meta.is_some() { mask | EventMask::PROPERTY } else { mask };
        let written = place.layout.write(reading, mask, &mut part);
        debug_assert!(written.is_ok(), "the layout is that of the kind");
        let change = changes.entry(place.object).or_insert_with(|| object.new_value());
        for bit in part.changed().iter() {
            let set = part.value(bit).map(|value| change.set_value(place.offset + bit, value.clone()));
            debug_assert!(set.is_none_or(|set| set.is_ok()), "the member has the type of the part");
        }
    }

    fn post(&self, changes: BTreeMap<usize, Structure>) {
        for (object, change) in changes {
            let posted = self.objects.get(object).map(|object| object.post(&change));
            debug_assert!(posted.is_none_or(|posted| posted.is_ok()), "the change has the type of the object");
        }
    }

    fn note_known(&self, n_known: usize) {
        if n_known == 0 {
            return;
        }
        let mut n_unknown = self.n_unknown.lock();
        *n_unknown = n_unknown.saturating_sub(n_known);
        drop(n_unknown);
        self.is_all_known.notify_all();
    }

    /// Waits until every value has been read or cannot be. Returns whether that happened in time.
    pub fn wait_for_values(&self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        let mut n_unknown = self.n_unknown.lock();
        while *n_unknown > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // It may also return early: the loop checks again.
            let _ = self.is_all_known.wait_for(&mut n_unknown, left);
        }
        true
    }

    /// A report of a CLU on the network.
    pub fn reported(&self, update: CluUpdate) {
        // Returns also whether it was missing before.
        let missing = |index: usize, is_missing: bool| {
            let index = *self.read.get(index)?;
            Some((index, self.values.get(index)?.is_missing.swap(is_missing, Ordering::Relaxed)))
        };
        match update {
            CluUpdate::Values { first, values } => {
                self.status.note_report();
                let indexed = values.into_iter().enumerate();
                self.store(indexed.filter_map(|(offset, value)| Some((missing(first + offset, false)?.0, value))));
            }
            CluUpdate::Missing { index } => {
                // Its value is read in each period since the first report: see `poll_missing`.
                let newly = missing(index, true).filter(|(_, was_missing)| !was_missing);
                self.store(newly.map(|(index, _)| (index, None)));
            }
        }
    }

    /// The availability of a CLU on the network has changed. Values become valid again when they are reported.
    pub fn availability_changed(&self, availability: Availability) {
        match availability {
            Availability::Unavailable => self.invalidate(&self.values, Status::COMM),
            // Its objects do not exist then, and it reports no values.
            Availability::Emergency => self.invalidate(&self.values, Status::UDF),
            Availability::Unknown | Availability::Available => {}
        }
        self.status.set_availability(availability);
    }

    /// Called in each period, by the thread of the tasks.
    pub fn tick(self: &Arc<Self>) {
        let now = Instant::now();
        let mut polling = self.polling.lock();
        let silent_for = polling.since.map_or(Duration::ZERO, |since| now - since);
        let is_due = match &self.end {
            CluEnd::Process(_) => true,
            CluEnd::Network(_) => polling.began.is_none_or(|began| now - began >= POLL_PERIOD),
        };
        let starts = polling.since.is_none() && is_due;
        if starts {
            *polling = PollTimes { since: Some(now), began: Some(now) };
        }
        drop(polling);
        let n_new_objects = self.new_objects.lock().names.len();
        self.status.refresh(&self.end, self.n_missing(), n_new_objects);
        if starts {
            let core = self.clone();
            let is_accepted = self.tasks.spawn(async move {
                core.poll().await;
                core.polling.lock().since = None;
            });
            if !is_accepted {
                self.polling.lock().since = None;
            }
        } else if matches!(self.end, CluEnd::Process(_)) && silent_for >= SILENCE_MAX {
            self.lose();
        }
    }

    fn n_missing(&self) -> usize {
        self.values.iter().filter(|pv| pv.is_missing.load(Ordering::Relaxed)).count()
    }

    async fn poll(&self) {
        match &self.end {
            CluEnd::Process(clu) => {
                if self.fetch_all(clu).await.is_err() {
                    self.lose();
                }
            }
            CluEnd::Network(_) => self.poll_missing().await,
        }
    }

    /// Reads all values of a CLU in this process.
    async fn fetch_all(&self, clu: &VirtualClu) -> Result<(), String> {
        let started = Instant::now();
        let is_alive = CluEnd::is_alive(clu).await?;
        self.status.note_round_trip(started.elapsed());
        self.note_classes(clu, CluEnd::classes(clu).await?);
        for indices in self.read.chunks(FETCH_ITEMS_MAX) {
            let items: Vec<&ValueItem> = indices.iter().map(|index| &self.values[*index].item).collect();
            let values = self.end.read(&items).await?;
            let of_object = |(item, value): (&ValueItem, Option<Scalar>)| value.filter(|_| self.check(item).is_ok());
            let values: Vec<Option<Scalar>> = items.into_iter().zip(values).map(of_object).collect();
            self.store(indices.iter().copied().zip(values));
            self.status.note_report();
        }
        self.status.set_availability(if is_alive { Availability::Available } else { Availability::Emergency });
        Ok(())
    }

    /// Finds the objects that a reset has replaced by others of the same name, and new ones, which have no PVs. `listed`: the
    /// classes of all objects now.
    fn note_classes(&self, clu: &VirtualClu, listed: Vec<(String, u32)>) {
        let without_pvs =
            || listed.iter().map(|(name, _)| name).filter(|name| !self.classes.contains_key(*name)).cloned();
        let mut new_objects = self.new_objects.lock();
        let first = new_objects.first.get_or_insert_with(|| without_pvs().collect());
        let names: BTreeSet<String> = without_pvs().filter(|name| !first.contains(name)).collect();
        let before = mem::replace(&mut new_objects.names, names.clone());
        drop(new_objects);
        for name in names.difference(&before) {
            clu.warn(format!("object {name} has no PVs, because it is new: start the program with the PVs again"));
        }
        let is_other = |(name, class): &(String, u32)| self.classes.get(name).is_some_and(|known| known != class);
        *self.replaced.lock() = listed.into_iter().filter(is_other).map(|(name, _)| name).collect();
    }

    /// Fails if the object of an item has another class than its PVs, where the index of the item has another meaning.
    fn check(&self, item: &ValueItem) -> Result<(), String> {
        item.object().map_or(Ok(()), |object| self.check_object(object))
    }

    fn check_object(&self, object: &str) -> Result<(), String> {
        if self.replaced.lock().contains(object) {
            return Err(format!("object {object} has another class since the scripts of the CLU were started again"));
        }
        Ok(())
    }

    /// Reads the values that a CLU on the network does not report, one request after another.
    async fn poll_missing(&self) {
        let is_missing = |index: &usize| self.values[*index].is_missing.load(Ordering::Relaxed);
        let missing: Vec<usize> = self.read.iter().copied().filter(is_missing).collect();
        for indices in missing.chunks(POLL_ITEMS) {
            let items: Vec<&ValueItem> = indices.iter().map(|index| &self.values[*index].item).collect();
            match self.end.read(&items).await {
                Ok(values) => self.store(indices.iter().copied().zip(values)),
                // A CLU rejects a list with one unknown item.
                Err(_) => {
                    for (index, item) in indices.iter().zip(items) {
                        match self.end.read(&[item]).await {
                            Ok(values) => self.store(values.into_iter().map(|value| (*index, value))),
                            Err(_) => self.invalidate(self.values.get(*index), Status::COMM),
                        }
                    }
                }
            }
        }
    }

    /// A client writes a PV.
    pub fn start_put(self: &Arc<Self>, index: usize, put: DeferredPut) {
        let Some(pv) = self.values.get(index) else { return };
        if pv.add_put(put) == QueuedPut::Nothing {
            return;
        }
        let core = self.clone();
        let is_accepted = self.tasks.spawn(async move {
            let pv = &core.values[index];
            while let Some(put) = pv.next_put() {
                core.carry_out(index, put).await;
            }
        });
        if !is_accepted {
            pv.refuse_puts("too many requests to this CLU wait");
        }
    }

    /// Carries out one put: it completes when the CLU has answered and the value was read back.
    async fn carry_out(&self, index: usize, put: DeferredPut) {
        let item = &self.values[index].item;
        let result = match item {
            _ if let Err(reason) = self.check(item) => Err(reason),
            ValueItem::Method { object, index: method, has_argument } => {
                self.call(index, object, *method, *has_argument, &put.value).await
            }
            ValueItem::Colour { object, parts } => self.set_colour(index, object, parts, put.value.clone()).await,
            item => self.set(index, item, &put.value).await,
        };
        match result {
            Ok(()) => put.complete(),
            Err(reason) => {
                let (mut changes, pv) = (BTreeMap::new(), &self.values[index]);
                let posting = self.posting.lock();
                if let Some(reading) = pv.refuse(now()) {
                    self.stage(pv, &reading, &mut changes);
                }
                self.post(changes);
                drop(posting);
                put.refuse(PutRefusal::Rejected(reason));
            }
        }
    }

    async fn set(&self, index: usize, item: &ValueItem, value: &Value) -> Result<(), String> {
        let pv = &self.values[index];
        let sent = pv.shape.to_clu(value, &pv.limits.lock().clone())?;
        let reply = self.end.set(item, &sent).await?;
        if !pv.is_readable {
            pv.accept();
            self.store([(index, Some(sent))]);
            return Ok(());
        }
        for n_left in (0..READ_BACKS_MAX).rev() {
            let n_stored = pv.n_stored.load(Ordering::Relaxed);
            let read = self.end.read(&[item]).await;
            let read = read.map_err(|error| format!("the value was not read back: {error}"))?.into_iter().next();
            let read = read.flatten();
            let is_taken = reply == SetReply::Taken || is_taken(&sent, read.as_ref());
            if is_taken {
                pv.accept();
            }
            // A report that arrived meanwhile may be older or newer than what was read, so that it is read again.
            if self.store_after(index, read, n_stored) || n_left == 0 {
                return if is_taken { Ok(()) } else { Err("the CLU did not take the value".into()) };
            }
        }
        Ok(())
    }

    /// Sets red, green and blue by one method and white by another one, and reads the parts back.
    async fn set_colour(&self, index: usize, object: &str, parts: &[usize], value: Value) -> Result<(), String> {
        let pv = &self.values[index];
        let sent = pv.shape.colour_to_clu(value)?;
        if let [red, green, blue, ..] = sent[..] {
            let text = Scalar::Text(lights::rgb_text([red, green, blue]).as_str().into());
            self.end.call(object, lights::SET_RGB, &[text]).await?;
        }
        if let Some(white) = sent.get(3) {
            self.end.call(object, lights::SET_WHITE, &[Scalar::F64(f64::from(*white))]).await?;
        }
        let items: Vec<&ValueItem> = parts.iter().map(|part| &self.values[*part].item).collect();
        let read = self.end.read(&items).await.map_err(|error| format!("the colour was not read back: {error}"))?;
        pv.accept();
        self.store(parts.iter().copied().zip(read));
        // Also if no part has changed: the alarm of an earlier put ends.
        self.compose(BTreeSet::from([index]), now());
        Ok(())
    }

    async fn call(
        &self,
        index: usize,
        object: &str,
        method: u32,
        has_argument: bool,
        value: &Value,
    ) -> Result<(), String> {
        let pv = &self.values[index];
        let arguments = if has_argument { vec![pv.shape.to_clu(value, &LiveLimits::NONE)?] } else { Vec::new() };
        self.end.call(object, method, &arguments).await?;
        pv.accept();
        let count = || pv.pv.value().to_f64().map(|count| Scalar::F64(count + 1.0)).ok();
        self.store([(index, arguments.into_iter().next().or_else(count))]);
        Ok(())
    }

    /// A client calls a method with several arguments.
    pub fn start_call(self: &Arc<Self>, index: usize, call: Call) {
        let core = self.clone();
        // A call that is dropped, because too many wait, is refused.
        let _ = self.tasks.spawn(async move {
            let Some(method) = core.methods.get(index) else { return };
            match core.run_call(method, &call).await {
                Ok(Some(value)) => call.complete(value),
                Ok(None) => call.complete_without_result(),
                Err(reason) => call.refuse(reason),
            }
        });
    }

    async fn run_call(&self, method: &RpcMethod, call: &Call) -> Result<Option<Structure>, String> {
        let argument = |parameter| {
            let ParameterValue { name, shape } = ParameterValue::of(parameter);
            let value = call.get(name).ok_or_else(|| format!("the argument \"{name}\" is missing"))?;
            shape.to_clu(value, &LiveLimits::NONE).map_err(|error| format!("the argument \"{name}\": {error}"))
        };
        let arguments: Vec<Scalar> = method.interface.parameters.iter().map(argument).collect::<Result<_, String>>()?;
        self.check_object(&method.object)?;
        let value = self.end.call(&method.object, method.interface.index, &arguments).await?;
        let Some(value) = value else { return Ok(None) };
        let mut result = Structure::new(Arc::new(normative_type(value.kind(), false)));
        result.set("value", Value::Scalar(value)).map_err(|error| error.to_string())?;
        Ok(Some(result))
    }
}

/// An argument of a call, by its name.
struct ParameterValue<'a> {
    name: &'a str,
    shape: ValueShape,
}

impl ParameterValue<'_> {
    fn of(parameter: &fodo_clu::interface::ParameterInterface) -> ParameterValue<'_> {
        ParameterValue { name: &parameter.name, shape: ValueShape::of_parameter(parameter) }
    }
}

/// The time of reception; the protocol has no time stamps.
pub(super) fn now() -> TimeStamp {
    SystemTime::now().into()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use fodo_clu::cipher::CipherKey;
    use fodo_clu::command::{Reply, Request, Session};
    use fodo_clu::om_lua::{UserVariable, VariableKind};
    use fodo_data::Alarm;
    use fodo_net::clu::{CluConnection, CluConnectionConfig};

    use super::super::shape::invalid;
    use super::super::{CluPvConfig, CluPvs};
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn key() -> CipherKey {
        CipherKey::new([1; 16], [2; 16])
    }

    /// The PV of a user variable of a CLU that does not answer.
    fn start() -> (Arc<CluPvs>, UdpSocket) {
        start_timeout(Duration::from_millis(10))
    }

    fn start_timeout(timeout: Duration) -> (Arc<CluPvs>, UdpSocket) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let mut connection = CluConnectionConfig::new(socket.local_addr().unwrap(), key());
        connection.timeout = timeout;
        connection.checks_availability = false;
        let mut config = CluPvConfig::new("t:", CluEnd::Network(CluConnection::open(connection).unwrap()));
        config.objects = Some(Vec::new());
        config.variables = vec![UserVariable { name: "target".into(), kind: VariableKind::Number }];
        (CluPvs::start(config).unwrap(), socket)
    }

    fn alarm(pvs: &CluPvs) -> Alarm {
        pvs.core.values[0].pv.reading().alarm
    }

    fn report() -> CluUpdate {
        CluUpdate::Values { first: 0, values: vec![Some(Scalar::F64(21.0))] }
    }

    /// The next request that contains `text`, unless the put ends before. The put continues meanwhile.
    fn request_of<T>(
        put: &mut Pin<&mut impl Future<Output = T>>,
        clu: &UdpSocket,
        text: &str,
    ) -> Result<(Session, SocketAddr), T> {
        let end = Instant::now() + LONG;
        while Instant::now() < end {
            if let Poll::Ready(ended) = put.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return Err(ended);
            }
            let (mut datagram, mut plain) = ([0; 2048], Vec::new());
            let Ok((n_bytes, from)) = clu.recv_from(&mut datagram) else { continue };
            let command = key().decrypt(&datagram[..n_bytes], &mut plain).and_then(Request::decode);
            if let Some(Request::Execute { session, script, .. }) = command
                && String::from_utf8_lossy(script).contains(text)
            {
                return Ok((session, from));
            }
        }
        panic!("no request contains {text}");
    }

    fn reply(clu: &UdpSocket, (session, to): (Session, SocketAddr), value: &str) {
        let (mut plain, mut datagram) = (Vec::new(), Vec::new());
        Reply::Executed { clu: None, session, value: value.as_bytes() }.encode(&mut plain);
        key().encrypt(&plain, &mut datagram);
        clu.send_to(&datagram, to).unwrap();
    }

    /// The CLU sends its report after the value that was read back.
    #[test]
    fn a_report_that_arrives_while_a_put_is_read_back_is_not_overwritten_by_the_older_value() {
        let (pvs, clu) = start_timeout(LONG);
        let CluEnd::Network(connection) = &pvs.core.end else { panic!("a CLU on the network") };
        let (item, value) = (pvs.core.values[0].item.clone(), Value::from(20.0));
        let mut put = pin!(pvs.core.set(0, &item, &value));

        let set = request_of(&mut put, &clu, "setVar").unwrap();
        reply(&clu, set, "20");
        let get = request_of(&mut put, &clu, "getVar").unwrap();
        reply(&clu, get, "20");
        let end = Instant::now() + LONG;
        while connection.counts().answered < 2 {
            assert!(Instant::now() < end, "the reply is not read");
            std::thread::yield_now();
        }
        pvs.core.reported(report());
        let ended = loop {
            match request_of(&mut put, &clu, "getVar") {
                Ok(get) => reply(&clu, get, "21"),
                Err(ended) => break ended,
            }
        };

        assert_eq!((ended, pvs.core.values[0].pv.reading().value), (Ok(()), 21.0.into()));
    }

    /// A CLU on the network forgets its subscribers when its scripts start.
    #[test]
    fn values_that_a_clu_reported_before_emergency_mode_are_undefined() {
        let (pvs, _clu) = start();
        pvs.core.reported(report());
        assert_eq!(alarm(&pvs), Default::default());

        pvs.core.availability_changed(Availability::Emergency);
        assert_eq!(alarm(&pvs), invalid(Status::UDF));

        pvs.core.reported(report());
        assert_eq!(alarm(&pvs), Default::default());
    }

    #[test]
    fn a_value_that_is_read_instead_of_reported_is_invalid_when_it_cannot_be_read() {
        let (pvs, _clu) = start();
        pvs.core.reported(CluUpdate::Missing { index: 0 });
        pvs.core.store([(0, Some(Scalar::F64(21.0)))]);
        let end = Instant::now() + Duration::from_secs(30);

        while alarm(&pvs) != invalid(Status::COMM) {
            assert!(Instant::now() < end, "{:?}", alarm(&pvs));
            pvs.core.tick();
        }
    }
}
