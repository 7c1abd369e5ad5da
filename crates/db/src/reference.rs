//! References to fields and puts, and the names of records.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};

use fodo_data::{Kind, Text};

/// One field of one record. Small, and valid as long as its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldRef {
    pub(crate) record: u32,
    pub(crate) field: u16,
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

/// The kind of an element, and the maximum number of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KindAndCount {
    pub(crate) kind: Kind,
    pub(crate) count_max: u32,
}

/// The bit of a field number that selects the long string form (`FIELD$`).
pub(crate) const LONG_STRING: u16 = 1 << 15;
/// The number of the pseudo field RTYP.
pub(crate) const RTYP: u16 = LONG_STRING - 1;

/// The security level of a field, defined by its record type. A rule applies to fields of its own level and below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessLevel {
    /// Fields for normal operation, such as VAL.
    Asl0,
    /// The others.
    Asl1,
}

/// Identifies a put whose completion is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PutId(pub u64);

/// A record name as a map key, so that a lookup by bytes needs no allocation.
#[derive(Clone, Debug)]
pub(crate) struct Name(pub(crate) Text);

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.0 == other.0
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_bytes().hash(state);
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
