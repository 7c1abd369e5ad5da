//! What the caller and the database report to each other about links to PVs of other IOCs.

use fodo_data::{Kind, Reading, Text};

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

/// The options of a link over pvAccess, `{pva:{pv:"name",..}}`.
///
/// The database itself handles the options that concern its records: `sevr`, `time`, and `proc` of inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvaLink {
    /// The PV's name.
    pub pv: Text,
    /// Whether it is a forward link, which needs no value of the PV.
    pub is_forward: bool,
    /// The path of the field in the PV's structure; empty for the whole structure.
    pub field: Text,
    /// Whether the PV must be one of this IOC.
    pub is_local: bool,
    /// How many updates wait in the server and in this IOC.
    pub queue_size: u32,
    /// Whether the server waits until updates are acknowledged.
    pub is_pipelined: bool,
    /// Whether a put processes the record of the PV.
    pub processing: PvaProcessing,
    /// The position among the links to the same PV, in ascending order.
    pub order: i32,
    /// Whether the link belongs to the links that are updated before the others.
    pub is_atomic: bool,
    /// Whether a value is kept while the PV is disconnected.
    pub retries: bool,
    /// Whether a value is sent with the next put of another link to the same PV.
    pub defers: bool,
    /// Whether the record takes the time stamp of the PV.
    pub copies_time: bool,
}

/// Whether a put of a [`PvaLink`] processes the record of the PV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PvaProcessing {
    /// The server decides: usually if the record is passive and the field processes.
    #[default]
    ByServer,
    /// Always.
    Always,
    /// Never.
    Never,
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
    /// The value of [`Event::ExternalPut`] was not sent, because the type of the PV cannot hold it: the link of the record is
    /// broken, unless it has written another value since.
    PutRefused {
        /// The put's identifier in the event; `None` for a forward link.
        put: Option<u64>,
    },
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
    /// Whether it is a link over pvAccess.
    pub is_pva: bool,
    /// How often the connection was lost.
    pub n_lost: u64,
}
