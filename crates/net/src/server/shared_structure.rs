//! A ready-made PV that holds a structure.

use std::fmt;
use std::sync::Arc;

use fodo_data::{Structure, StructureBuilder, StructureError, StructureType};
use fodo_engine::Rights;
use fodo_lock::{Mutex, Rank};

use super::shared_pv::RightsRule;
use super::{Call, Completion, Peer, PutRefusal, ServedPv, SharedPv, StructurePosts, StructuredPv};
use crate::{clock, limit};

/// A structured PV that holds its value, such as a table or an image, or a procedure. Clones are cheap and refer to the
/// same PV. Only clients of pvAccess see it.
///
/// The program changes parts of the value with [`SharedStructure::post`]; clients read and monitor it. Clients can write
/// and call it only if it was built with [`SharedStructureBuilder::on_put`] or [`SharedStructureBuilder::on_call`].
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_net::{Kind, PvTable, SharedPv, Structure, StructureBuilder, Text};
///
/// let mut build = StructureBuilder::new("epics:nt/NTTable:1.0");
/// build.array("labels", Kind::Text);
/// build.open("value", "").array("position", Kind::F64).array("current", Kind::F64).close();
/// let mut table = Structure::new(Arc::new(build.finish()));
/// table.set("labels", ["position", "current"].map(Text::from).to_vec())?;
/// let scan = SharedPv::structured(table);
/// let pvs = PvTable::new();
/// pvs.insert("lab:scan", scan.clone());
///
/// // Sends only what it marks: the two columns.
/// let mut row = scan.new_value();
/// row.set("value.position", vec![0.5, 1.0])?;
/// row.set("value.current", vec![1.2e-9, 1.4e-9])?;
/// scan.post(&row)?;
/// assert_eq!(scan.value().get("value.position"), Some(&vec![0.5, 1.0].into()));
/// # Ok::<(), fodo_net::StructureError>(())
/// ```
#[derive(Clone)]
pub struct SharedStructure(Arc<SharedStructureCore>);

/// What all clones of a [`SharedStructure`] share.
struct SharedStructureCore {
    kind: Arc<StructureType>,
    rights: Option<Box<RightsRule>>,
    on_put: Option<Box<AcceptStructure>>,
    on_call: Option<Box<StartCall>>,
    /// Node 0 is marked: every node is valid.
    value: Mutex<Arc<Structure>>,
    posts: StructurePosts,
}

type AcceptStructure = dyn Fn(Structure, &Peer) -> Result<Structure, PutRefusal> + Send + Sync;
type StartCall = dyn Fn(Call) + Send + Sync;

/// Builds a [`SharedStructure`].
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_net::{Kind, PutRefusal, Rights, SharedStructure, Structure, StructureBuilder};
///
/// let mut build = StructureBuilder::new("motor_t");
/// let motor = Structure::new(Arc::new(build.scalar("position", Kind::F64).scalar("speed", Kind::F64).finish()));
/// let motor = SharedStructure::builder(motor)
///     .on_put(|change, _client| match change.get("speed").map(|speed| speed.to_f64()) {
///         Some(Ok(0.0..=5.0)) => Ok(change),
///         _ => Err(PutRefusal::Rejected("the speed must be between 0 and 5".into())),
///     })
///     .rights(|client| Rights { read: true, write: client.address.ip().is_loopback() })
///     .build();
/// # drop(motor);
/// ```
#[must_use]
pub struct SharedStructureBuilder {
    value: Structure,
    rights: Option<Box<RightsRule>>,
    on_put: Option<Box<AcceptStructure>>,
    on_call: Option<Box<StartCall>>,
}

impl SharedPv {
    /// A structured PV that clients cannot write, with this initial value; the same as [`SharedStructure::new`].
    ///
    /// ```
    /// use fodo_net::{SharedPv, Structure, StructureBuilder};
    /// # use std::sync::Arc;
    ///
    /// let kind = Arc::new(StructureBuilder::new("empty_t").finish());
    /// assert_eq!(SharedPv::structured(Structure::new(kind)).value().kind().id(), &"empty_t".into());
    /// ```
    pub fn structured(value: Structure) -> SharedStructure {
        SharedStructure::new(value)
    }
}

impl SharedStructure {
    /// A PV that clients cannot write. Its type is that of `value`. [`SharedPv::structured`] has an example.
    pub fn new(value: Structure) -> SharedStructure {
        SharedStructure::builder(value).build()
    }

    /// A PV with this initial value, which determines its type; see [`SharedStructureBuilder`] for an example.
    pub fn builder(value: Structure) -> SharedStructureBuilder {
        SharedStructureBuilder { value, rights: None, on_put: None, on_call: None }
    }

    /// A procedure without a value. `call`: called on the server's threads with the argument and the client; must not
    /// block. Returns the result, or the text of an error.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use fodo_net::{Kind, SharedStructure, Structure, StructureBuilder};
    ///
    /// let mut build = StructureBuilder::new("epics:nt/NTScalar:1.0");
    /// let kind = Arc::new(build.scalar("value", Kind::Text).finish());
    /// let greet = SharedStructure::procedure(move |_argument, client| {
    ///     let mut result = Structure::new(kind.clone());
    ///     result.set("value", format!("hello {}", client.user)).map_err(|error| error.to_string())?;
    ///     Ok(result)
    /// });
    /// # drop(greet);
    /// ```
    pub fn procedure(
        call: impl Fn(&Structure, &Peer) -> Result<Structure, String> + Send + Sync + 'static,
    ) -> SharedStructure {
        SharedStructure::builder(nothing()).on_call(call).build()
    }

    /// The same as [`SharedStructure::procedure`] for a procedure that takes time; [`Call`] has an example.
    pub fn procedure_deferred(start: impl Fn(Call) + Send + Sync + 'static) -> SharedStructure {
        SharedStructure::builder(nothing()).on_call_deferred(start).build()
    }

    /// A value of this PV's type in which nothing is marked, for [`SharedStructure::post`].
    pub fn new_value(&self) -> Structure {
        Structure::new(self.0.kind.clone())
    }

    /// Changes the marked nodes to those of `change`, and sends them to all subscribers, also if they have the same values
    /// as before. Never blocks on a client: of a subscription that is not sent in time, the last 4 posts are kept, or as
    /// many as it requests.
    ///
    /// The node `timeStamp` is set to the current time if the type has one and `change` does not mark it. Fails if `change`
    /// has another type.
    pub fn post(&self, change: &Structure) -> Result<(), StructureError> {
        self.0.post(change)
    }

    /// The current value, with node 0 marked.
    pub fn value(&self) -> Arc<Structure> {
        self.0.value.lock().clone()
    }
}

/// A value without members.
fn nothing() -> Structure {
    Structure::new(Arc::new(StructureBuilder::new("").finish()))
}

impl SharedStructureBuilder {
    /// The access rights of each client; [`SharedPvBuilder::rights`](crate::SharedPvBuilder::rights) has an example. A call
    /// requires write access.
    pub fn rights(mut self, rights: impl Fn(&Peer) -> Rights + Send + Sync + 'static) -> SharedStructureBuilder {
        self.rights = Some(Box::new(rights));
        self
    }

    /// Accepts puts of clients.
    ///
    /// `accept`: called on the server's threads with a value in which the nodes of the put are marked, and the client; must
    /// not block. The change that it returns is posted as by [`SharedStructure::post`], and the put is confirmed; an error
    /// refuses the put. A panic is logged and fails the put.
    pub fn on_put(
        mut self,
        accept: impl Fn(Structure, &Peer) -> Result<Structure, PutRefusal> + Send + Sync + 'static,
    ) -> SharedStructureBuilder {
        self.on_put = Some(Box::new(accept));
        self
    }

    /// Accepts calls of clients that end at once; see [`SharedStructure::procedure`].
    pub fn on_call(
        self,
        call: impl Fn(&Structure, &Peer) -> Result<Structure, String> + Send + Sync + 'static,
    ) -> SharedStructureBuilder {
        self.on_call_deferred(move |request| match call(&request.argument, &request.by) {
            Ok(result) => request.complete(result),
            Err(reason) => request.refuse(reason),
        })
    }

    /// Accepts calls of clients that take time; [`Call`] has an example. `start`: called on the server's threads; must not
    /// block. A panic is logged and refuses the call.
    pub fn on_call_deferred(mut self, start: impl Fn(Call) + Send + Sync + 'static) -> SharedStructureBuilder {
        self.on_call = Some(Box::new(start));
        self
    }

    /// The PV. Its `timeStamp` is that of the initial value.
    pub fn build(self) -> SharedStructure {
        let SharedStructureBuilder { mut value, rights, on_put, on_call } = self;
        value.mark_only([0].into_iter().collect());
        SharedStructure(Arc::new(SharedStructureCore {
            kind: value.kind().clone(),
            rights,
            on_put,
            on_call,
            value: Mutex::ranked(Rank::SharedPv, Arc::new(value)),
            posts: StructurePosts::new(limit::STRUCTURE_POSTS),
        }))
    }
}

impl SharedStructureCore {
    fn post(&self, change: &Structure) -> Result<(), StructureError> {
        let mut current = self.value.lock();
        let mut value = (**current).clone();
        value.unmark_all();
        value.apply(change)?;
        if !value.changed().is_empty() {
            stamp(&mut value);
        }
        let changed = value.changed().clone();
        value.mark_only([0].into_iter().collect());
        *current = Arc::new(value);
        self.posts.post(current.clone(), changed);
        Ok(())
    }
}

/// Sets the time stamp of a change to the current time, unless the change contains one.
fn stamp(value: &mut Structure) {
    let kind = value.kind().clone();
    let Some(node) = kind.node("timeStamp") else { return };
    if kind.covered(value.changed()).any(|nodes| nodes.start < kind.nodes()[node].end as usize && node < nodes.end) {
        return;
    }
    let now = clock::now().wall;
    // A member that a type does not have is left out.
    let _ = value.set("timeStamp.secondsPastEpoch", now.unix_s);
    let _ = value.set("timeStamp.nanoseconds", i64::from(now.nanos));
}

impl StructuredPv for SharedStructureCore {
    fn kind(&self) -> Arc<StructureType> {
        self.kind.clone()
    }

    fn read(&self) -> Arc<Structure> {
        self.value.lock().clone()
    }

    fn with_value(&self, subscribe: &mut dyn FnMut(Arc<Structure>)) {
        let value = self.value.lock();
        subscribe(value.clone());
    }

    fn posts(&self) -> &StructurePosts {
        &self.posts
    }

    fn is_read_only(&self) -> bool {
        self.on_put.is_none()
    }

    fn put(&self, value: Structure, by: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
        let Some(accept) = &self.on_put else { return Err(PutRefusal::ReadOnly) };
        let change = accept(value, by)?;
        self.post(&change).map_err(|error| PutRefusal::Rejected(error.to_string()))?;
        completion.into_iter().for_each(Completion::complete);
        Ok(())
    }

    fn call(&self, call: Call) {
        match &self.on_call {
            Some(start) => start(call),
            None => call.refuse("the PV is not a procedure"),
        }
    }

    fn rights(&self, by: &Peer) -> Rights {
        self.rights.as_ref().map_or(Rights { read: true, write: true }, |rights| rights(by))
    }
}

impl From<SharedStructure> for Arc<dyn StructuredPv> {
    fn from(pv: SharedStructure) -> Arc<dyn StructuredPv> {
        pv.0
    }
}

impl From<SharedStructure> for ServedPv {
    fn from(pv: SharedStructure) -> ServedPv {
        ServedPv::Structured(pv.0)
    }
}

impl fmt::Debug for SharedStructure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedStructure").field("kind", &self.0.kind.to_string()).finish_non_exhaustive()
    }
}

impl fmt::Debug for SharedStructureBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedStructureBuilder").field("kind", &self.value.kind().to_string()).finish_non_exhaustive()
    }
}
