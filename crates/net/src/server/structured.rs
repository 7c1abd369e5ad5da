//! What a source serves: flat and structured PVs.

use std::fmt;
use std::sync::Arc;

use fodo_data::{Structure, StructureType};
use fodo_engine::Rights;
use fodo_pva::server::{AtomicOption, PutOptions};

use super::{Call, Completion, Peer, PutRefusal, Pv, SharedPv, StructurePosts};

/// A PV that a [`Source`](crate::Source) opens.
///
/// ```
/// use fodo_net::{ServedPv, SharedPv, Value};
///
/// let served: ServedPv = SharedPv::new(21.5).into();
/// assert!(served.clone().structured().is_none());
/// assert_eq!(served.flat().unwrap().read().value, Value::from(21.5));
/// ```
#[derive(Clone)]
pub enum ServedPv {
    /// A scalar, an array or an enum, over both protocols.
    Flat(Arc<dyn Pv>),
    /// A PV of any other type. Only pvAccess serves it: for Channel Access it does not exist.
    Structured(Arc<dyn StructuredPv>),
}

impl ServedPv {
    /// The scalar, array or enum; `None` if the PV is structured.
    pub fn flat(self) -> Option<Arc<dyn Pv>> {
        match self {
            ServedPv::Flat(pv) => Some(pv),
            ServedPv::Structured(_) => None,
        }
    }

    /// The structured PV; `None` if it is flat.
    pub fn structured(self) -> Option<Arc<dyn StructuredPv>> {
        match self {
            ServedPv::Flat(_) => None,
            ServedPv::Structured(pv) => Some(pv),
        }
    }
}

impl From<Arc<dyn Pv>> for ServedPv {
    fn from(pv: Arc<dyn Pv>) -> ServedPv {
        ServedPv::Flat(pv)
    }
}

impl From<Arc<dyn StructuredPv>> for ServedPv {
    fn from(pv: Arc<dyn StructuredPv>) -> ServedPv {
        ServedPv::Structured(pv)
    }
}

impl From<SharedPv> for ServedPv {
    fn from(pv: SharedPv) -> ServedPv {
        ServedPv::Flat(pv.into())
    }
}

impl fmt::Debug for ServedPv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServedPv::Flat(_) => "Flat",
            ServedPv::Structured(_) => "Structured",
        })
    }
}

/// A PV of any type, such as a table, an image or a procedure, for clients of pvAccess. Called on the server's threads;
/// must not block for long, and panics have the same effect as in [`Pv`].
///
/// [`SharedStructure`](crate::SharedStructure) is a ready-made one. A PV of its own kind has a type, reads its value, and
/// pushes its changes to [`StructurePosts`]. All other methods have a default.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_net::{Kind, Structure, StructureBuilder, StructurePosts, StructureType, StructuredPv};
///
/// /// The load of this computer, computed when a client reads it. It posts no changes.
/// struct Load {
///     kind: Arc<StructureType>,
///     posts: StructurePosts,
/// }
///
/// impl Load {
///     fn new() -> Load {
///         let mut build = StructureBuilder::new("load_t");
///         build.scalar("cpu", Kind::F64).scalar("memory", Kind::F64);
///         Load { kind: Arc::new(build.finish()), posts: StructurePosts::new(4) }
///     }
/// }
///
/// impl StructuredPv for Load {
///     fn kind(&self) -> Arc<StructureType> {
///         self.kind.clone()
///     }
///
///     fn read(&self) -> Arc<Structure> {
///         let mut load = Structure::new(self.kind.clone());
///         let _ = load.set("cpu", 0.25);
///         load.mark(0);
///         Arc::new(load)
///     }
///
///     fn with_value(&self, subscribe: &mut dyn FnMut(Arc<Structure>)) {
///         subscribe(self.read());
///     }
///
///     fn posts(&self) -> &StructurePosts {
///         &self.posts
///     }
/// }
/// assert!(Load::new().is_read_only());
/// # assert_eq!(Load::new().read().get("cpu"), Some(&0.25.into()));
/// ```
pub trait StructuredPv: Send + Sync {
    /// The type, which must not change.
    fn kind(&self) -> Arc<StructureType>;

    /// The current value. Only its marked nodes are sent: mark node 0 for all.
    fn read(&self) -> Arc<Structure>;

    /// The current value for a client that may request to read the members of a group in one step
    /// (`record[atomic=...]`). By default the same as [`StructuredPv::read`].
    fn read_with(&self, _atomic: AtomicOption) -> Arc<Structure> {
        self.read()
    }

    /// Calls `subscribe` once with the current value, marked as in [`StructuredPv::read`], while no change can be posted.
    fn with_value(&self, subscribe: &mut dyn FnMut(Arc<Structure>));

    /// The posts of this PV, to which it pushes its changes.
    fn posts(&self) -> &StructurePosts;

    /// Whether every put is refused, regardless of its value, as for a PV with only a value to read. By default it is.
    fn is_read_only(&self) -> bool {
        true
    }

    /// Writes the marked nodes of `value`, which has the type of this PV; the others have no meaning. The rest is the same
    /// as for [`Pv::put`].
    fn put(&self, _value: Structure, _by: &Peer, _completion: Option<Completion>) -> Result<(), PutRefusal> {
        Err(PutRefusal::ReadOnly)
    }

    /// The same as [`StructuredPv::put`], with what the client requests of a group of records, and its whole pvRequest. By
    /// default these options are ignored.
    fn put_with(
        &self,
        value: Structure,
        _options: PutOptions,
        by: &Peer,
        completion: Option<Completion>,
    ) -> Result<(), PutRefusal> {
        self.put(value, by, completion)
    }

    /// The first update of a subscription, from the value that [`StructuredPv::with_value`] returned. `queue_size`: how
    /// many updates the client wants to be queued. By default the value itself.
    fn first_update(&self, value: Arc<Structure>, _queue_size: usize) -> Arc<Structure> {
        value
    }

    /// Calls this PV as a procedure, which requires write access. [`Call`] has an example of a reply. By default the call
    /// is refused.
    fn call(&self, call: Call) {
        call.refuse("the PV is not a procedure");
    }

    /// The access rights of a client, as [`Pv::rights`] returns them. By default every client may read and write.
    fn rights(&self, _by: &Peer) -> Rights {
        Rights { read: true, write: true }
    }

    /// Whether the PV exists no longer, the same as [`Pv::is_closed`].
    fn is_closed(&self) -> bool {
        false
    }

    /// The client of a put in progress has disconnected, the same as [`Pv::cancel_put`].
    fn cancel_put(&self, put: u64) {
        let _ = put;
    }

    /// A circuit has started or stopped listening to [`StructuredPv::posts`], the same as [`Pv::listeners_changed`].
    fn listeners_changed(&self) {}
}
