//! What the caller and the database report to each other about links to PVs of other IOCs.

use fodo_data::{Kind, Reading};

use crate::reference::FieldRef;

/// Identifies a link to a PV outside this database. A link whose text changes gets a new identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExternalLinkId {
    pub(crate) record: u32,
    pub(crate) field: u16,
    pub(crate) generation: u32,
}

impl ExternalLinkId {
    /// The field that contains the link.
    pub fn field(self) -> FieldRef {
        FieldRef { record: self.record, field: self.field }
    }
}

/// Whether a link reads or writes its PV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkUsage {
    /// The link needs every update: value, alarm, time, units, limits and labels.
    Reads,
    /// The link only writes.
    Writes,
}

/// A change of the state of a link's PV, reported by the network.
#[derive(Clone, Debug, PartialEq)]
pub enum ExternalPvEvent {
    /// The PV is connected. Earlier values are discarded.
    Connected(ExternalPvFacts),
    /// The access rights changed.
    AccessRights {
        /// Whether the PV may be read.
        may_read: bool,
        /// Whether the PV may be written.
        may_write: bool,
    },
    /// A new value.
    Updated(Reading),
    /// The server no longer responds; the last value may be stale.
    Unresponsive,
    /// The server responds again.
    Responsive,
    /// The PV is disconnected.
    Disconnected,
    /// A put of [`Event::ExternalPut`] has ended, successfully or not.
    PutDone {
        /// The put's identifier in the event.
        put: u64,
    },
}

/// The properties of a PV, as its server reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalPvFacts {
    /// The kind of an element.
    pub kind: Kind,
    /// The maximum number of elements.
    pub count_max: u32,
    /// Whether the PV may be read.
    pub may_read: bool,
    /// Whether the PV may be written.
    pub may_write: bool,
}

/// The connection state of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalLinkStatus {
    /// The link.
    pub link: ExternalLinkId,
    /// The properties of the PV; `None` while it is not connected.
    pub facts: Option<ExternalPvFacts>,
    /// How often the connection was lost.
    pub n_lost: u64,
}
