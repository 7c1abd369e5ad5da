//! The outputs of a database.

use fodo_data::{EventMask, Reading, Text, Value};

use crate::error::PutError;
use crate::external_pv::{ExternalLinkId, LinkUsage};
use crate::reference::{FieldRef, PutId};

/// An output of [`crate::Database::handle`].
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A watched field changed.
    Posted {
        /// The field.
        field: FieldRef,
        /// The kind of change.
        mask: EventMask,
        /// Value, alarm and time at that moment.
        reading: Reading,
    },
    /// A line of text: from a record with the device support stdio, or a report that the database reached a limit.
    Printed {
        /// Where to write it.
        stream: Stream,
        /// The line, without the line end.
        line: Text,
    },
    /// All processing that the put started has ended.
    PutDone {
        /// The put's identifier.
        put: PutId,
    },
    /// The access security group (ASG) of a record changed.
    AccessGroupChanged,
    /// A link points to a PV that is not in this database. The caller reports its state with [`Input::ExternalPv`].
    ExternalLinkAdded {
        /// Identifies the link from now on.
        link: ExternalLinkId,
        /// The PV's name.
        name: Text,
        /// Whether the link reads or writes the PV.
        usage: LinkUsage,
    },
    /// A link no longer points to its PV.
    ExternalLinkRemoved {
        /// The link.
        link: ExternalLinkId,
    },
    /// A link writes a value. A value that cannot be sent at once may be replaced by a later one.
    ExternalPut {
        /// The link.
        link: ExternalLinkId,
        /// The value, of the PV's own kind, or the name of one of its states.
        value: Value,
        /// Identifies the put in [`ExternalPvEvent::PutDone`], which reports its completion; `None`: no record waits for it.
        put: Option<u64>,
    },
    /// A queued put was rejected when it started.
    PutRefused {
        /// The put's identifier.
        put: PutId,
        /// The reason.
        error: PutError,
    },
}

/// Where a line of text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The standard output.
    Out,
    /// The standard error.
    Error,
    /// The log.
    Log,
}
