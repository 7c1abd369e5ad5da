//! Records, fields, links, scans, alarms, calc, access rules, `.db` and `.acf` files. No network, no IO, no clock.
//!
//! [`Database`] is a machine: puts and the time go in, posts and completions come out.
#![forbid(unsafe_code)]

mod along;
mod breaktable;
mod calc;
mod common;
mod core;
mod database;
mod deferred;
mod field;
mod filter;
mod hash;
mod inherit;
mod inspect;
mod interest;
mod jlink;
mod json;
mod limit;
mod line;
mod link;
mod load;
mod menu;
mod meta;
mod outside;
mod post;
mod put;
mod record;
mod routine;
mod scan;
mod scan_menu;
mod security;
mod site;
mod state;
mod step;
mod strftime;
mod timers;
mod turn;

use std::fmt;

use fodo_data::{ConvertError, EventMask, Kind, Reading, Severity, Text, Value};

pub use crate::load::unescaped;
pub use database::Database;
pub use filter::{Chain, Filter, FilterError, FilterFault, Moment, SyncMode, TimeForm};
pub use hash::{ByField, OwnHasher};
pub use inspect::{LeadsTo, LinkFacts, record_types};
pub use load::{
    ExpandedTemplate, InertRecords, Instance, LoadError, Loader, MacroError, Macros, Omitted, OpenFile, RestoreError,
    TemplateSet, Undefined, closest, expand, instances, template_sets,
};
pub use outside::{News, OutsideFacts, OutsideLink, OutsideStatus, Use};
pub use record::array::KINDS;
pub use routine::{ArrayCall, ArrayElement, Call, RoutineFailed};
pub use scan::ScanCounts;
pub use security::{Access, AccessFile, AccessInput, AccessLevel, AccessPart, Granted, Security};
pub use site::{Site, Zone};
pub use state::{State, States};

/// One field of one record; small, for ever valid in its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldRef {
    record: u32,
    field: u16,
}

/// What a client is told of a field when it connects.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The kind of an element; menus and devices count as enums, links as texts.
    pub kind: Kind,
    /// How many elements it can hold.
    pub count_max: u32,
    /// Whether a put is refused whatever it says.
    pub is_read_only: bool,
    /// The record's type, as `DBR_CLASS_NAME` gives it.
    pub record_type: &'static str,
}

/// What the name of a channel means.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// The field.
    pub field: FieldRef,
    /// What its readings go through, first things first; most often nothing.
    pub filters: Vec<Filter>,
}

/// Why a name is the name of no channel.
#[derive(Clone, Debug, PartialEq)]
pub enum ChannelError {
    /// There is no such record or field.
    Unknown,
    /// There is, but what stands behind it cannot be.
    Filter(FilterError),
}

/// The number of a put that wants to know when its processing is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PutId(pub u64);

/// What goes in.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The IOC starts: initial values, PINI.
    Start,
    /// Time has passed; see [`Database::deadline`].
    Tick,
    /// Somebody writes a field. `put`: completion is told by [`Event::PutDone`]; while the record is active such a put
    /// waits in line, and is refused by [`Event::PutRefused`] if that is what comes of it.
    Put {
        /// The field.
        field: FieldRef,
        /// What it is set to; converted to the field's kind.
        value: Value,
        /// The number to tell completion with.
        put: Option<PutId>,
    },
    /// A field is to hold what it held when the IOC ran before. Goes in before [`Input::Start`]: nothing is processed,
    /// and nobody is told.
    Restore {
        /// The field; links are set in the loader, see [`Loader::restore`].
        field: FieldRef,
        /// What it is set to; converted to the field's kind.
        value: Value,
    },
    /// Who gave a put has gone: it does not begin if it still waits for its record.
    GiveUp {
        /// The field.
        field: FieldRef,
        /// The number that the put gave.
        put: PutId,
    },
    /// The network tells of a link to another IOC.
    Outside {
        /// Which, as [`Event::Wanted`] gave it.
        link: OutsideLink,
        /// What.
        news: News,
    },
    /// Records that are scanned by an event are to process.
    PostEvent {
        /// As EVNT names it; nothing happens when it names no event.
        name: Text,
    },
    /// Alarm acknowledgement (ACKT, ACKS).
    Acknowledge {
        /// Any field of the record.
        field: FieldRef,
        /// Whether alarms that went by themselves still want to be acknowledged.
        transient: Option<bool>,
        /// Alarms up to this severity are acknowledged.
        severity: Option<Severity>,
    },
}

/// What comes out.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A watched field changed.
    Posted {
        /// The field.
        field: FieldRef,
        /// What kind of change.
        mask: EventMask,
        /// Value, alarm and time at that moment.
        reading: Reading,
    },
    /// A record with the device support stdio writes a line, or the database reports what it had to bound.
    Printed {
        /// Where to.
        stream: Stream,
        /// The line without its end.
        line: Text,
    },
    /// All processing that the put began has ended.
    PutDone {
        /// The number that the put gave.
        put: PutId,
    },
    /// A record has another access security group (ASG) now.
    Regrouped,
    /// A link leads to a PV that no record here has: [`Input::Outside`] is to tell of it.
    Wanted {
        /// What it is called from now on.
        link: OutsideLink,
        /// The PV's name.
        name: Text,
        /// What the link does with it.
        usage: Use,
    },
    /// A link leads there no more.
    Unwanted {
        /// Which.
        link: OutsideLink,
    },
    /// A link writes a value. What cannot be written at once may be replaced by what it writes later.
    Driven {
        /// Which.
        link: OutsideLink,
        /// The value, of the PV's own kind, or the name of one of its states.
        value: Value,
        /// The number to tell the end of all processing there with, [`News::Written`]; `None`: nobody waits.
        put: Option<u64>,
    },
    /// A put that had to wait for its record was refused when its turn came.
    PutRefused {
        /// The number that the put gave.
        put: PutId,
        /// Why.
        error: PutError,
    },
}

/// Where the device support stdio writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The standard output.
    Out,
    /// The standard error.
    Error,
    /// The log.
    Log,
}

/// Why a put was refused; nothing was processed, and nothing changed but where a variant says so.
#[derive(Clone, Debug, PartialEq)]
pub enum PutError {
    /// The field may not be written.
    ReadOnly,
    /// The record's DISP forbids puts.
    Disabled,
    /// The value cannot become the field's kind.
    Convert(ConvertError),
    /// The record says no, in words. A CALC that cannot be compiled stays in its field, as in Base.
    Rejected(&'static str),
    /// The value is written, but the record that it processed could not reach its input or output. Only puts without a
    /// [`PutId`] report this, as in Base.
    Unprocessed,
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PutError::ReadOnly => write!(f, "the field cannot be written"),
            PutError::Disabled => write!(f, "the record's DISP forbids puts"),
            PutError::Convert(error) => write!(f, "{error}"),
            PutError::Rejected(reason) => write!(f, "{reason}"),
            PutError::Unprocessed => {
                write!(f, "the value is written, but the record could not reach its input or output")
            }
        }
    }
}

impl std::error::Error for PutError {}
