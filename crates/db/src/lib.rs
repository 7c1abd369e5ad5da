//! Records, fields, links, scans, alarms, calc, access rules, `.db` and `.acf` files. No network, no I/O, no clock.
//!
//! [`Database`] is a state machine: its inputs are puts and the time, its outputs are posts and completions.
#![forbid(unsafe_code)]

mod breaktable;
mod calc;
mod common;
mod core;
mod database;
mod field;
mod filter;
mod hash;
mod inspect;
mod interest;
mod json;
mod limit;
mod link;
mod load;
mod menu;
mod meta;
mod process;
mod record;
mod routine;
mod scan_menu;
mod security;
mod site;
mod state;
mod strftime;

use std::fmt;

use fodo_data::{ConvertError, EventMask, Kind, Reading, Severity, Text, Value};

pub use crate::load::unescaped;
pub use database::Database;
pub use filter::{Filter, FilterChain, FilterContext, FilterError, FilterFault, SyncMode, TimeFormat};
pub use hash::{FieldMap, TrustedKeyHasher};
pub use inspect::{LinkInfo, LinkTarget, record_types};
pub use link::external::{ExternalLinkId, ExternalLinkStatus, ExternalPvEvent, ExternalPvFacts, LinkUsage};
pub use load::{
    ExpandedTemplate, InertRecords, Instance, LoadError, Loader, MacroError, Macros, Omitted, OpenFile, RestoreError,
    TemplateStatement, UndefinedMacros, closest_match, expand, instances, template_sets,
};
pub use process::scan::ScanCounts;
pub use record::array::KINDS;
pub use routine::{ASubCall, ArrayElement, RoutineFailed, SubCall};
pub use security::{Access, AccessDecision, AccessFile, AccessInput, AccessLevel, AccessSection, Security};
pub use site::{Site, Zone};
pub use state::{State, States};

/// One field of one record. Small, and valid as long as its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldRef {
    record: u32,
    field: u16,
}

/// The properties of a field that the server sends when a client connects.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldFacts {
    /// The kind of an element. Menus and devices are enums, links are texts.
    pub kind: Kind,
    /// The maximum number of elements.
    pub count_max: u32,
    /// Whether every put is rejected.
    pub is_read_only: bool,
    /// The record type, as `DBR_CLASS_NAME` reports it.
    pub record_type: &'static str,
}

/// The field and the filters that a channel name selects.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// The field.
    pub field: FieldRef,
    /// The filters of its readings, in the order in which they apply; usually empty.
    pub filters: Vec<Filter>,
}

/// Why a name is not a valid channel name.
#[derive(Clone, Debug, PartialEq)]
pub enum ChannelError {
    /// The record or the field does not exist.
    Unknown,
    /// The field exists, but the filters after its name are invalid.
    Filter(FilterError),
}

/// Identifies a put whose completion is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PutId(pub u64);

/// An input of [`Database::handle`].
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The IOC starts: initial values, PINI.
    Start,
    /// Time has passed; see [`Database::deadline`].
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
        /// The field. Links are restored in the loader, see [`Loader::restore`].
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
    /// Alarm acknowledgement (ACKT, ACKS).
    Acknowledge {
        /// Any field of the record.
        field: FieldRef,
        /// The new ACKT: whether alarms that have cleared still need an acknowledgement.
        transient: Option<bool>,
        /// Alarms up to this severity are acknowledged.
        severity: Option<Severity>,
    },
}

/// An output of [`Database::handle`].
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

/// Why a put was rejected. No record was processed and nothing changed, unless the variant says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub enum PutError {
    /// The field is read-only.
    ReadOnly,
    /// The record's DISP forbids puts.
    Disabled,
    /// The value cannot be converted to the field's kind.
    Convert(ConvertError),
    /// The record rejects the value, for the reason in the text. An invalid CALC stays in its field, as in Base.
    Rejected(&'static str),
    /// The value is written, but the record could not read its input or write its output when it was processed. Only
    /// puts without a [`PutId`] report this, as in Base.
    ProcessingFailed,
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PutError::ReadOnly => write!(f, "the field is read-only"),
            PutError::Disabled => write!(f, "the record's DISP forbids puts"),
            PutError::Convert(error) => write!(f, "{error}"),
            PutError::Rejected(reason) => write!(f, "{reason}"),
            PutError::ProcessingFailed => {
                write!(f, "the value is written, but the record could not read its input or write its output")
            }
        }
    }
}

impl std::error::Error for PutError {}
