//! The outputs of a database.

use std::sync::Arc;

use fodo_data::{EventMask, Reading, Text, Value};

use crate::error::PutError;
use crate::external_pv::{ExternalLinkId, LinkUsage, PvaLink};
use crate::program::OutputId;
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
    /// A link points to a PV that is not in this database, or to any PV over pvAccess. The caller reports its state with
    /// [`Input::ExternalPv`].
    ExternalLinkAdded {
        /// Identifies the link from now on.
        link: ExternalLinkId,
        /// The PV's name.
        name: Text,
        /// Whether the link reads or writes the PV.
        usage: LinkUsage,
        /// The options of a link over pvAccess; `None` for Channel Access.
        pva: Option<Arc<PvaLink>>,
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
        /// The value. With Channel Access it is of the PV's own kind, or the name of one of its states.
        value: Value,
        /// Identifies the put among those of the link: later ones have greater numbers.
        put: u64,
        /// Whether a record waits for [`ExternalPvEvent::PutDone`], which reports the completion.
        is_awaited: bool,
    },
    /// A forward link over pvAccess processes the record of its PV.
    ExternalProcess {
        /// The link.
        link: ExternalLinkId,
    },
    /// A record with DTYP Program has a value to write, and waits for [`crate::Input::CompleteOutput`]. A record has at
    /// most one such value at a time.
    OutputReady {
        /// The record's VAL.
        record: FieldRef,
        /// Identifies the value when its result is reported.
        output: OutputId,
        /// The value, of the type of VAL.
        value: Value,
        /// The value that the program accepted or set before; the initial value if there was none.
        previous: Option<Value>,
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
