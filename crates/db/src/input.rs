//! The inputs of a database.

use fodo_data::{Severity, Text, Value};

use crate::external_pv::{ExternalLinkId, ExternalPvEvent};
use crate::reference::{FieldRef, PutId};

/// An input of [`crate::Database::handle`].
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The IOC starts: initial values, PINI.
    Start,
    /// Time has passed; see [`crate::Database::deadline`].
    Tick,
    /// A client writes a field. With `put`, [`Event::PutDone`] reports the completion. While the record is active, such
    /// a put is queued; if it is rejected later, [`Event::PutRefused`] reports that.
    Put {
        /// The field.
        field: FieldRef,
        /// The new value; it is converted to the field's kind.
        value: Value,
        /// Identifies the put when its completion is reported.
        put: Option<PutId>,
    },
    /// Restores the value that a field had when the IOC last ran. Must precede [`Input::Start`]. No record is
    /// processed, and nothing is posted.
    Restore {
        /// The field. Links are restored in the loader, see [`crate::Loader::restore`].
        field: FieldRef,
        /// The new value; it is converted to the field's kind.
        value: Value,
    },
    /// The client of a put has disconnected: the put is dropped if it is still queued.
    CancelPut {
        /// The field.
        field: FieldRef,
        /// The put's identifier.
        put: PutId,
    },
    /// The state of a link to another IOC changed.
    ExternalPv {
        /// The link, as in [`Event::ExternalLinkAdded`].
        link: ExternalLinkId,
        /// What changed.
        event: ExternalPvEvent,
    },
    /// Processes the records whose SCAN is Event and whose EVNT names this event.
    PostEvent {
        /// The event's name, as in EVNT. A text that names no event is ignored.
        name: Text,
    },
    /// Alarm acknowledgement.
    Acknowledge {
        /// Any field of the record.
        field: FieldRef,
        /// The field to write, and its value.
        put: AcknowledgePut,
    },
}

/// A value for one of the two fields of alarm acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcknowledgePut {
    /// ACKT.
    Transient {
        /// Whether alarms that have cleared still need an acknowledgement.
        is_required: bool,
    },
    /// ACKS: alarms up to this severity are acknowledged.
    Severity(Severity),
}
