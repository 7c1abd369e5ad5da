//! Filters of channels: what the brackets and braces after a channel's name do to its readings.
//!
//! Source: EPICS Base 7.0.10, whose filters these are; the reference page says where they differ.

mod chain;
mod parse;
mod time;

use std::fmt;

use fodo_data::TimeStamp;

pub use self::chain::Chain;
pub(crate) use self::parse::filters;
use crate::site::Site;
use crate::state::State;

/// One filter as a channel's name asks for it; what it remembers is in its [`Chain`].
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// `arr`, `[s:i:e]`: some elements of an array; negative indices count from its end.
    Slice {
        /// The first element.
        start: i32,
        /// From one element to the next, at least 1.
        step: i32,
        /// The last element.
        end: i32,
    },
    /// `dbnd`: values that moved.
    Deadband {
        /// How far, in units of the value or in percent of it.
        by: f64,
        /// Whether `by` is in percent of the value that was passed on last.
        is_relative: bool,
    },
    /// `ts{}`: the present as the time stamp.
    Stamp,
    /// `ts{num:..}`, `ts{str:..}`: the time stamp as the value.
    Time {
        /// What is made of it.
        form: TimeForm,
        /// Whether numbers count from 1970 rather than from 1990.
        is_unix: bool,
    },
    /// `sync`: values as a state goes on and off.
    Sync {
        /// Which ones.
        mode: SyncMode,
        /// The state.
        state: State,
    },
    /// `dec`: the first of every `n` values.
    Decimate {
        /// At least 1.
        n: i32,
    },
    /// `utag`: values whose tag has the bits of `mask` as `value` has them.
    Tag {
        /// Which bits count.
        mask: i32,
        /// What they are to be.
        value: i32,
    },
}

/// What a time stamp becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeForm {
    /// Seconds with their fraction.
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

/// Which values a state lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// The last one before it went on.
    Before,
    /// The first one while it is on.
    First,
    /// The last one while it was on.
    Last,
    /// The first one after it went off.
    After,
    /// All while it is on.
    While,
    /// All while it is off.
    Unless,
}

/// What filters need to know of the moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The time on the wall.
    pub now: TimeStamp,
    /// The record's UTAG.
    pub user_tag: u64,
    /// Who knows the local time.
    pub site: &'a dyn Site,
}

/// What is wrong with a filter, and where in the channel's name.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterError {
    /// In bytes from the start of the name.
    pub at: usize,
    /// What it is.
    pub fault: FilterFault,
}

/// What is wrong with a filter.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterFault {
    /// The name is longer than names with filters may be.
    TooLong,
    /// It cannot be read at all, and why.
    Syntax(&'static str),
    /// No filter is called so.
    NoSuchFilter(String),
    /// The filter has no argument of that name.
    NoSuchArgument {
        /// Which filter.
        filter: &'static str,
        /// What it was given.
        argument: String,
    },
    /// The argument does not take this value.
    BadValue {
        /// Which argument.
        argument: &'static str,
        /// What it takes.
        expected: &'static str,
    },
    /// The filter lacks an argument.
    Missing {
        /// Which filter.
        filter: &'static str,
        /// What it lacks.
        argument: &'static str,
    },
    /// No state is called so.
    NoSuchState(String),
    /// A `$` behind a field that is no text and no link.
    NoText,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at character {} of the name", self.fault, self.at + 1)
    }
}

impl fmt::Display for FilterFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterFault::TooLong => write!(f, "a name with filters takes {} bytes", crate::limit::FILTER_BYTES_MAX),
            FilterFault::Syntax(what) => write!(f, "{what}"),
            FilterFault::NoSuchFilter(name) => {
                write!(f, "there is no filter \"{}\"; there are {}", name.escape_debug(), parse::NAMES.join(", "))
            }
            FilterFault::NoSuchArgument { filter, argument } => {
                write!(f, "the filter {filter} has no argument \"{}\"", argument.escape_debug())
            }
            FilterFault::BadValue { argument, expected } => write!(f, "{argument} takes {expected}"),
            FilterFault::Missing { filter, argument } => write!(f, "the filter {filter} needs {argument}"),
            FilterFault::NoSuchState(name) => write!(f, "there is no state \"{}\"", name.escape_debug()),
            FilterFault::NoText => write!(f, "only texts and links can be read as characters with '$'"),
        }
    }
}

impl std::error::Error for FilterError {}
