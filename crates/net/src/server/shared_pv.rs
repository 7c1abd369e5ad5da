//! A ready-made PV that holds its value.

use std::fmt;
use std::sync::{Arc, Weak};

use fodo_data::{ConvertError, EventMask, Kind, Meta, Reading, Value};
use fodo_engine::Rights;
use fodo_engine::ring::Post;
use fodo_lock::{Mutex, Rank};

use super::{Completion, Peer, Posts, PutRefusal, Pv, PvFacts};
use crate::{clock, limit};

/// A PV that holds its value. Clones are cheap and refer to the same PV.
///
/// The program changes the value with [`SharedPv::post`], on any thread; clients read and monitor it. Clients can write
/// it only if it was built with [`SharedPvBuilder::on_put`] or [`SharedPvBuilder::on_put_deferred`]. A server publishes
/// it by name as part of a [`PvTable`](crate::PvTable) or of another [`Source`](crate::Source).
///
/// The [`Kind`] of the initial value is that of the PV. Clients of Channel Access see this type:
///
/// | kind | type of Channel Access |
/// | --- | --- |
/// | `I8`, `U8` | `DBR_CHAR`; a negative `I8` is seen as 256 more |
/// | `I16` | `DBR_SHORT` |
/// | `U16`, `I32` | `DBR_LONG` |
/// | `F32` | `DBR_FLOAT` |
/// | `F64`, `U32`, `I64`, `U64` | `DBR_DOUBLE`; integers above 2^53 are rounded |
/// | `Enum` | `DBR_ENUM` |
/// | `Text` | `DBR_STRING`; a text is truncated to 39 bytes, unlike one of [`Value::characters`] |
///
/// ```
/// use std::time::SystemTime;
///
/// use fodo_net::{Alarm, Meta, PutRefusal, Reading, Severity, SharedPv, Status, Value};
///
/// // Read-only for clients.
/// let pressure = SharedPv::builder(1.0e-9).meta(Meta { units: "mbar".into(), ..Meta::default() }).build();
/// pressure.post(1.2e-9);
/// let (value, alarm) = (Value::from(1.0e-3), Alarm { severity: Severity::Major, status: Status::HIHI });
/// pressure.post_reading(Reading { alarm, time: SystemTime::now().into(), ..Reading::bare(value) });
///
/// // Clients can write values from 0 to 5.
/// let voltage = SharedPv::builder(0.0)
///     .on_put(|value, _client| match value.to_f64() {
///         Ok(0.0..=5.0) => Ok(value),
///         _ => Err(PutRefusal::Rejected("must be between 0 and 5".into())),
///     })
///     .build();
/// assert_eq!(pressure.reading().alarm, alarm);
/// assert_eq!(voltage.value(), Value::from(0.0));
/// ```
#[derive(Clone)]
pub struct SharedPv(Arc<SharedPvCore>);

/// What all clones of a [`SharedPv`] share.
struct SharedPvCore {
    kind: Kind,
    is_array: bool,
    count_max: u32,
    meta: Mutex<Arc<Meta>>,
    rights: Option<Box<RightsRule>>,
    on_put: Option<OnPut>,
    reading: Mutex<Reading>,
    posts: Posts,
    /// Itself, for the puts that it defers.
    me: Weak<SharedPvCore>,
}

type AcceptPut = dyn Fn(Value, &Peer) -> Result<Value, PutRefusal> + Send + Sync;
type StartPut = dyn Fn(DeferredPut) + Send + Sync;
pub(super) type RightsRule = dyn Fn(&Peer) -> Rights + Send + Sync;

/// What a put of a client does.
enum OnPut {
    /// Returns the value to post, or refuses the put.
    Now(Box<AcceptPut>),
    /// Receives the put and completes it later.
    Deferred(Box<StartPut>),
}

/// A put of a client that the program completes when it has carried it out.
///
/// The program posts what it likes, for instance the value with an alarm:
///
/// ```
/// use std::time::SystemTime;
///
/// use fodo_net::{Alarm, DeferredPut, PutRefusal, Reading, Severity, SharedPv, Status};
///
/// fn carry_out(put: DeferredPut) {
///     match put.value.to_f64() {
///         Ok(degrees) if degrees.abs() <= 90.0 => {
///             let alarm = match degrees.abs() {
///                 80.0.. => Alarm { severity: Severity::Minor, status: Status::HIGH },
///                 _ => Alarm::default(),
///             };
///             let time = SystemTime::now().into();
///             put.pv.post_reading(Reading { alarm, time, ..Reading::bare(put.value.clone()) });
///             put.complete();
///         }
///         _ => put.refuse(PutRefusal::Rejected("must be between -90 and 90".into())),
///     }
/// }
///
/// let angle = SharedPv::builder(0.0).on_put_deferred(carry_out).build();
/// # drop(angle);
/// ```
///
/// Dropping it without [`DeferredPut::complete`] refuses the put.
#[derive(Debug)]
pub struct DeferredPut {
    /// The PV. The value of the put is not posted by itself: post it, or a readback, when it is valid.
    pub pv: SharedPv,
    /// The value, converted to the kind of the PV.
    pub value: Value,
    /// The client.
    pub by: Peer,
    completion: Option<Completion>,
}

impl DeferredPut {
    /// Reports to the client that the put is carried out. Does nothing for a client that did not request it.
    pub fn complete(self) {
        self.completion.into_iter().for_each(Completion::complete);
    }

    /// Reports to the client that the put failed. Does nothing for a client that did not request the result.
    pub fn refuse(self, refusal: PutRefusal) {
        if let Some(completion) = self.completion {
            completion.refuse(refusal);
        }
    }
}

/// Builds a [`SharedPv`]; see there for an example.
#[must_use]
pub struct SharedPvBuilder {
    value: Value,
    count_max: Option<u32>,
    meta: Meta,
    rights: Option<Box<RightsRule>>,
    on_put: Option<OnPut>,
}

impl SharedPvBuilder {
    /// Units, precision, limits and labels. By default there are none.
    ///
    /// They only inform clients: a `SharedPv` raises no alarm at a limit, and accepts puts beyond [`Meta::control`]
    /// unless its `on_put` refuses them.
    pub fn meta(mut self, meta: Meta) -> SharedPvBuilder {
        self.meta = meta;
        self
    }

    /// The maximum number of elements of an array; by default the length of the initial value, at least 1.
    ///
    /// ```
    /// use fodo_net::SharedPv;
    ///
    /// let spectrum = SharedPv::builder(Vec::<f64>::new()).count_max(4096).build();
    /// spectrum.post(vec![0.0, 1.0, 4.0]);
    /// ```
    pub fn count_max(mut self, count_max: u32) -> SharedPvBuilder {
        self.count_max = Some(count_max);
        self
    }

    /// The access rights of each client. By default every client may read, and may write if the PV accepts puts.
    ///
    /// `rights`: called on the server's threads when a client creates a channel, and after
    /// [`RightsSignal::notify_changed`](crate::RightsSignal::notify_changed); must not block. A panic refuses the
    /// channel, or later closes the connection of the client. [`Server::rights_signal`] has an example.
    ///
    /// [`Server::rights_signal`]: crate::Server::rights_signal
    pub fn rights(mut self, rights: impl Fn(&Peer) -> Rights + Send + Sync + 'static) -> SharedPvBuilder {
        self.rights = Some(Box::new(rights));
        self
    }

    /// Accepts puts of clients. Replaces an earlier `on_put` or `on_put_deferred`.
    ///
    /// `accept`: called on the server's threads with the value, converted to the kind of the PV, and the client; must
    /// not block. The value that it returns is posted, with the current time and without an alarm, and the put is
    /// confirmed; an error refuses the put. To post an alarm, use [`SharedPvBuilder::on_put_deferred`]; [`DeferredPut`]
    /// has an example. A panic is logged and fails the put; the value is unchanged.
    pub fn on_put(
        mut self,
        accept: impl Fn(Value, &Peer) -> Result<Value, PutRefusal> + Send + Sync + 'static,
    ) -> SharedPvBuilder {
        self.on_put = Some(OnPut::Now(Box::new(accept)));
        self
    }

    /// Accepts puts of clients that take time. Replaces an earlier `on_put` or `on_put_deferred`.
    ///
    /// `start`: called on the server's threads; must not block. It passes the put on, for example to a thread that moves
    /// a motor, which posts the new value and calls [`DeferredPut::complete`]. A panic is logged and fails the put.
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// use fodo_net::SharedPv;
    ///
    /// let (sender, puts) = mpsc::channel::<fodo_net::DeferredPut>();
    /// // If the thread has ended, the put is dropped, and thereby refused.
    /// let position = SharedPv::builder(0.0).on_put_deferred(move |put| drop(sender.send(put))).build();
    /// std::thread::spawn(move || {
    ///     for put in puts {
    ///         // Move the motor to `put.value` here.
    ///         put.pv.post(put.value.clone());
    ///         put.complete();
    ///     }
    /// });
    /// # drop(position);
    /// ```
    pub fn on_put_deferred(mut self, start: impl Fn(DeferredPut) + Send + Sync + 'static) -> SharedPvBuilder {
        self.on_put = Some(OnPut::Deferred(Box::new(start)));
        self
    }

    /// The PV; its time stamp is the current time.
    pub fn build(self) -> SharedPv {
        let SharedPvBuilder { value, count_max, meta, rights, on_put } = self;
        let kind = value.kind();
        let is_array = matches!(value, Value::Array(_));
        let length = || u32::try_from(value.len()).unwrap_or(u32::MAX).max(1);
        let count_max = count_max.unwrap_or_else(length);
        let posts = Posts::new(if is_array { limit::ARRAY_POSTS } else { limit::SCALAR_POSTS });
        let reading = Mutex::ranked(Rank::SharedPv, Reading { time: clock::now().wall, ..Reading::bare(value) });
        let meta = Mutex::new(Arc::new(meta));
        SharedPv(Arc::new_cyclic(|me| SharedPvCore {
            kind,
            is_array,
            count_max,
            meta,
            rights,
            on_put,
            reading,
            posts,
            me: me.clone(),
        }))
    }
}

impl SharedPv {
    /// A PV that clients can read and monitor, without metadata.
    ///
    /// Its type and, for an array, its maximum length are those of `value`.
    pub fn new(value: impl Into<Value>) -> SharedPv {
        SharedPv::builder(value).build()
    }

    /// Builds a PV with this initial value, which determines the type; see [`SharedPv`] for an example.
    pub fn builder(value: impl Into<Value>) -> SharedPvBuilder {
        SharedPvBuilder { value: value.into(), count_max: None, meta: Meta::default(), rights: None, on_put: None }
    }

    /// Sets the value, with the current time and without an alarm, and sends it to all subscribers, also if it has not
    /// changed. Never blocks on a client: of a subscription that is not sent in time, the last 8 posts are kept, or the
    /// last 2 of an array.
    ///
    /// `value`: of the type that the PV was built with. A value of another type is converted for each client, and an
    /// array is truncated to the maximum length.
    pub fn post(&self, value: impl Into<Value>) {
        self.0.post(value.into());
    }

    /// Sets value, alarm and time stamp, and sends them to all subscribers, as [`SharedPv::post`] does.
    ///
    /// `reading`: its `meta` is ignored. Set its time: clients show [`Reading::bare`] alone as a value of the year
    /// 1990. Subscribers to alarms only are notified if the alarm has changed.
    pub fn post_reading(&self, reading: Reading) {
        self.0.post_reading(reading);
    }

    /// Replaces units, precision, limits and labels, and sends them to the subscribers of properties.
    ///
    /// ```
    /// use fodo_net::{Limits, Meta, SharedPv};
    ///
    /// let power = SharedPv::new(1.5);
    /// power.post_meta(Meta { units: "kW".into(), alarm: Limits { low: 0.0, high: 2.0 }, ..Meta::default() });
    /// ```
    pub fn post_meta(&self, meta: Meta) {
        let reading = self.0.reading.lock();
        *self.0.meta.lock() = Arc::new(meta);
        self.0.posts.post(Post { mask: EventMask::PROPERTY, reading: reading.clone() });
    }

    /// The current value.
    pub fn value(&self) -> Value {
        self.0.reading.lock().value.clone()
    }

    /// The current value, alarm and time stamp, without metadata.
    pub fn reading(&self) -> Reading {
        self.0.reading.lock().clone()
    }
}

impl From<SharedPv> for Arc<dyn Pv> {
    fn from(pv: SharedPv) -> Arc<dyn Pv> {
        pv.0
    }
}

impl SharedPvCore {
    fn post(&self, value: Value) {
        self.post_reading(Reading { time: clock::now().wall, ..Reading::bare(value) });
    }

    fn post_reading(&self, mut reading: Reading) {
        reading.meta = None;
        let mut current = self.reading.lock();
        let mut mask = EventMask::VALUE | EventMask::LOG;
        if reading.alarm != current.alarm {
            mask |= EventMask::ALARM;
        }
        current.clone_from(&reading);
        self.posts.post(Post { mask, reading });
    }

    /// The value of a put, converted to the type of this PV.
    fn converted(&self, value: Value) -> Result<Value, ConvertError> {
        let value = if value.kind() == self.kind { value } else { value.to_kind(self.kind, Some(&self.meta()))? };
        if self.is_array {
            return Ok(Value::Array(value.into_array()));
        }
        value.first().map(Value::Scalar).ok_or(ConvertError::Empty)
    }
}

impl Pv for SharedPvCore {
    fn facts(&self) -> PvFacts {
        PvFacts { kind: self.kind, count_max: self.count_max, is_read_only: self.on_put.is_none() }
    }

    fn read(&self) -> Reading {
        self.reading.lock().clone()
    }

    fn with_reading(&self, subscribe: &mut dyn FnMut(Reading)) {
        let reading = self.reading.lock();
        subscribe(reading.clone());
    }

    fn put(&self, value: Value, by: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
        let Some(on_put) = &self.on_put else { return Err(PutRefusal::ReadOnly) };
        if value.len() > self.count_max as usize {
            let reason = format!("{} elements, but the PV has at most {}", value.len(), self.count_max);
            return Err(PutRefusal::Rejected(reason));
        }
        let value = self.converted(value).map_err(|error| PutRefusal::Rejected(error.to_string()))?;
        match on_put {
            OnPut::Now(accept) => {
                self.post(accept(value, by)?);
                completion.into_iter().for_each(Completion::complete);
            }
            OnPut::Deferred(start) => {
                // A channel holds the PV during its call, so this succeeds.
                if let Some(pv) = self.me.upgrade().map(SharedPv) {
                    start(DeferredPut { pv, value, by: by.clone(), completion });
                }
            }
        }
        Ok(())
    }

    fn posts(&self) -> &Posts {
        &self.posts
    }

    fn meta(&self) -> Arc<Meta> {
        self.meta.lock().clone()
    }

    fn rights(&self, by: &Peer) -> Rights {
        self.rights.as_ref().map_or(Rights { read: true, write: true }, |rights| rights(by))
    }
}

impl fmt::Debug for SharedPv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SharedPvCore { kind, count_max, on_put, .. } = &*self.0;
        let is_read_only = on_put.is_none();
        let mut text = f.debug_struct("SharedPv");
        text.field("kind", kind).field("count_max", count_max).field("is_read_only", &is_read_only);
        text.finish_non_exhaustive()
    }
}

impl fmt::Debug for SharedPvBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPvBuilder").field("value", &self.value).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use fodo_data::{Alarm, Severity, Status};

    use super::*;

    fn put(pv: &SharedPv, value: impl Into<Value>) -> Result<(), PutRefusal> {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 4000));
        pv.0.put(value.into(), &Peer { user: "op".into(), host: "desk".into(), ..Peer::new(address) }, None)
    }

    /// A PV that posts what is put.
    fn writable(value: impl Into<Value>) -> SharedPvBuilder {
        SharedPv::builder(value).on_put(|value, _| Ok(value))
    }

    #[test]
    fn a_pv_is_read_only_until_it_accepts_puts() {
        let (fixed, open) = (SharedPv::new(1.5), writable(1.5).build());

        assert!(fixed.0.facts().is_read_only && !open.0.facts().is_read_only);
        assert_eq!(put(&fixed, 2.5), Err(PutRefusal::ReadOnly));
        assert_eq!(put(&open, 2.5), Ok(()));
        assert_eq!((fixed.value(), open.value()), (Value::from(1.5), Value::from(2.5)));
    }

    #[test]
    fn a_put_is_converted_to_the_type_of_the_pv() {
        let (number, array) = (writable(0).build(), writable(vec![0.0]).count_max(3).build());

        assert_eq!((put(&number, "7"), put(&array, 2)), (Ok(()), Ok(())));
        assert!(matches!(put(&number, "seven"), Err(PutRefusal::Rejected(_))));
        assert!(matches!(put(&number, Vec::<i32>::new()), Err(PutRefusal::Rejected(_))));
        assert!(matches!(put(&array, vec![1.0; 4]), Err(PutRefusal::Rejected(reason)) if reason.contains("at most 3")));
        assert_eq!((number.value(), array.value()), (Value::from(7), Value::from(vec![2.0])));
    }

    #[test]
    fn a_rejected_put_leaves_the_value_unchanged() {
        let refused = || PutRefusal::Rejected("interlock".into());
        let pv = SharedPv::builder(1).on_put(move |_, _| Err(refused())).build();

        assert_eq!(put(&pv, 2), Err(refused()));
        assert_eq!(pv.value(), Value::from(1));
    }

    #[test]
    fn a_deferred_put_does_not_change_the_value_until_the_program_posts() {
        let (sender, puts) = std::sync::mpsc::channel();
        let pv = SharedPv::builder(1).on_put_deferred(move |put| drop(sender.send(put))).build();

        assert_eq!(put(&pv, 2), Ok(()));
        assert_eq!(pv.value(), Value::from(1));
        let put = puts.try_recv().unwrap();
        put.pv.post(put.value.clone());

        assert_eq!((pv.value(), put.by.user.as_str()), (Value::from(2), "op"));
    }

    #[test]
    fn new_limits_are_sent_to_subscribers_of_properties_only() {
        let pv = SharedPv::new(1.0);
        let cursor = |mask| pv.0.posts.with_ring(|ring| ring.cursor(mask));
        let (mut properties, mut values) = (cursor(EventMask::PROPERTY), cursor(EventMask::VALUE));

        pv.post_meta(Meta { units: "mm".into(), ..Meta::default() });

        let posted = |cursor: &mut _| pv.0.posts.with_ring(|ring| ring.next(cursor).is_some());
        assert_eq!((posted(&mut properties), posted(&mut values)), (true, false));
        assert_eq!((pv.0.meta().units.clone(), pv.value()), ("mm".into(), 1.0.into()));
    }

    #[test]
    fn a_post_has_the_alarm_event_only_when_the_alarm_changes() {
        let pv = SharedPv::new(1.0);
        let mut cursor = pv.0.posts.with_ring(|ring| ring.cursor(EventMask::ALARM));
        let alarm = Alarm { severity: Severity::Minor, status: Status::HIGH };

        pv.post(2.0);
        pv.post_reading(Reading { alarm, ..Reading::bare(Value::from(3.0)) });
        pv.post_reading(Reading { alarm, ..Reading::bare(Value::from(4.0)) });
        pv.post(5.0);

        let mut alarms = Vec::new();
        pv.0.posts.with_ring(|ring| {
            while let Some(post) = ring.next(&mut cursor) {
                alarms.push(post.reading.value.clone());
            }
        });
        assert_eq!(alarms, [Value::from(3.0), Value::from(5.0)]);
    }
}
