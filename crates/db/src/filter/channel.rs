//! The field and the filters of a channel name.

use crate::filter::{Filter, FilterError};
use crate::reference::FieldRef;

/// The field and the filters that a channel name selects.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelField {
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
