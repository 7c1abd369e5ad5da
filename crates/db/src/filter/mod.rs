//! Channel filters: the ranges and JSON after a channel name, which change or drop its readings.
//!
//! Source: EPICS Base 7.0.10. The reference page lists the differences.

mod chain;
mod channel;
mod parse;
mod time;

use std::fmt;

use fodo_data::TimeStamp;

pub use self::chain::FilterChain;
pub use self::channel::{ChannelError, ChannelField};
pub(crate) use self::parse::filters;
use crate::site::Site;
use crate::state::DbState;

/// One filter of a channel name. Its state is in the [`FilterChain`].
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// `arr`, `[s:i:e]`: selects elements of an array; negative indices count from the end.
    Slice {
        /// The first element.
        start: i32,
        /// The step between elements, at least 1.
        step: i32,
        /// The last element.
        end: i32,
    },
    /// `dbnd`: drops changes of the value within a deadband.
    Deadband {
        /// The deadband, in units of the value or in percent.
        by: f64,
        /// Whether `by` is in percent of the last value that passed.
        is_relative: bool,
    },
    /// `ts{}`: sets the time stamp to the present time.
    Stamp,
    /// `ts{num:..}`, `ts{str:..}`: replaces the value by the time stamp.
    Time {
        /// The format of the value.
        form: TimeFormat,
        /// Whether numbers count from 1970 instead of 1990.
        is_unix: bool,
    },
    /// `sync`: passes values depending on a named state.
    Sync {
        /// Which values pass.
        mode: SyncMode,
        /// The state.
        state: DbState,
    },
    /// `dec`: passes the first of every `n` values.
    Decimate {
        /// At least 1.
        n: i32,
    },
    /// `utag`: passes values whose tag, masked with `mask`, equals `value`.
    Tag {
        /// The bits to compare.
        mask: i32,
        /// The required value of these bits.
        value: i32,
    },
}

/// The format of a time stamp as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFormat {
    /// Seconds with fraction, as a double.
    Double,
    /// Whole seconds.
    Seconds,
    /// The nanoseconds of the second.
    Nanos,
    /// Seconds and nanoseconds.
    Both,
    /// `2026-11-21 03:28:24.451042`, in local time.
    EpicsText,
    /// `2026-11-21T03:28:24.451042+0100`
    IsoText,
}

/// Which values pass, depending on a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// The last value before the state turns on.
    Before,
    /// The first value while the state is on.
    First,
    /// The last value while the state was on.
    Last,
    /// The first value after the state turns off.
    After,
    /// All values while the state is on.
    While,
    /// All values while the state is off.
    Unless,
}

/// The context of a reading that filters need.
#[derive(Clone, Copy, Debug)]
pub struct FilterContext<'a> {
    /// The present wall-clock time.
    pub now: TimeStamp,
    /// The record's UTAG.
    pub user_tag: u64,
    /// Provides the local time zone.
    pub site: &'a dyn Site,
}

/// An error in a filter, with its position in the channel name.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterError {
    /// In bytes from the start of the name.
    pub at: usize,
    /// The fault.
    pub fault: FilterFault,
}

/// The kinds of errors in filters.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterFault {
    /// The channel name is longer than the limit for names with filters.
    TooLong,
    /// A syntax error, with a description.
    Syntax(&'static str),
    /// The filter is unknown.
    UnknownFilter(String),
    /// The argument is unknown.
    UnknownArgument {
        /// The filter.
        filter: &'static str,
        /// The name of the argument.
        argument: String,
    },
    /// The value of the argument is invalid.
    InvalidValue {
        /// The argument.
        argument: &'static str,
        /// A description of valid values.
        expected: &'static str,
    },
    /// A required argument is missing.
    Missing {
        /// The filter.
        filter: &'static str,
        /// The missing argument.
        argument: &'static str,
    },
    /// The state does not exist.
    UnknownState(String),
    /// `$` follows a field that is neither a text nor a link.
    NotText,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at character {} of the name", self.fault, self.at + 1)
    }
}

impl fmt::Display for FilterFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterFault::TooLong => write!(f, "the name is longer than {} bytes", crate::limit::FILTER_BYTES_MAX),
            FilterFault::Syntax(what) => write!(f, "{what}"),
            FilterFault::UnknownFilter(name) => {
                write!(f, "unknown filter \"{}\"; known are {}", name.escape_debug(), parse::NAMES.join(", "))
            }
            FilterFault::UnknownArgument { filter, argument } => {
                write!(f, "the filter {filter} has no argument \"{}\"", argument.escape_debug())
            }
            FilterFault::InvalidValue { argument, expected } => write!(f, "{argument} must be {expected}"),
            FilterFault::Missing { filter, argument } => write!(f, "the filter {filter} needs {argument}"),
            FilterFault::UnknownState(name) => write!(f, "there is no state \"{}\"", name.escape_debug()),
            FilterFault::NotText => write!(f, "only texts and links can be read as characters with '$'"),
        }
    }
}

impl std::error::Error for FilterError {}
