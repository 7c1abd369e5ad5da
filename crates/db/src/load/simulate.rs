//! Simulation: records of unknown types, or with an unknown DTYP, are loaded as inert records.

use std::collections::BTreeMap;
use std::fmt;

use fodo_data::{Scalar, Text};

use crate::device::INERT;
use crate::limit::INERT_DEVICES_MAX;
use crate::load::{FileLoad, Loader};
use crate::record::contract::{RecordType, with};
use crate::record::field_table::has_table;
use crate::record::registry::find;

/// The hint for an unknown record type or DTYP that is not similar to a known one.
pub(super) const INERT_HINT: &str = "; with --simulate such records are loaded and do nothing";

/// A group of records that do nothing, since their type or device support is not implemented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InertRecords {
    /// The record type.
    pub record_type: String,
    /// The DTYP, if it is unknown; `None` if the type is.
    pub device: Option<String>,
    /// The number of these records.
    pub n_records: usize,
}

impl fmt::Display for InertRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InertRecords { record_type, device, n_records } = self;
        match device {
            Some(device) => write!(f, "{n_records} {record_type} inert: unknown DTYP \"{device}\""),
            None if has_table(record_type) => {
                write!(f, "{n_records} {record_type} inert: no record support for this type")
            }
            None => write!(f, "{n_records} {record_type} inert: unknown record type"),
        }
    }
}

impl Loader {
    /// Loads records of an unknown type or DTYP as inert records from now on, instead of reporting errors. An inert
    /// record stores what is put to it and does nothing else. With an unknown DTYP, INP and OUT have no target. With an
    /// unknown type, the record has the common fields, VAL, and the fields that its file sets, as texts.
    pub fn enable_simulation(&mut self) {
        self.simulates = true;
    }

    /// The inert records, by type and DTYP; empty without [`Loader::enable_simulation`].
    pub fn inert_records(&self) -> Vec<InertRecords> {
        if !self.simulates {
            return Vec::new();
        }
        let mut counts: BTreeMap<(String, Option<String>), usize> = BTreeMap::new();
        for (record, cell) in self.records.iter().enumerate() {
            let kind = cell.record_type();
            let device = with(&**cell, |body| body.common().device).unwrap_or_default();
            let device = device.checked_sub(INERT).and_then(|index| self.devices.get(usize::from(index)));
            let is_known = find(kind.name).is_some();
            if (is_known && device.is_none()) || self.deleted.contains(&(record as u32)) {
                continue;
            }
            let device = device.filter(|_| is_known).map(|device| device.to_str().into_owned());
            *counts.entry((kind.name.to_owned(), device)).or_default() += 1;
        }
        let counted = counts.into_iter();
        counted.map(|((record_type, device), n_records)| InertRecords { record_type, device, n_records }).collect()
    }
}

impl FileLoad<'_> {
    pub(crate) fn simulates(&self) -> bool {
        self.loader.simulates
    }

    /// Adds a record of an unknown type.
    pub(crate) fn add_inert(&mut self, kind: &str, name: &str) -> u32 {
        self.add_cell(crate::record::inert::cell(kind), name)
    }

    /// The type of a record before one of its fields is set. An inert record gets the field if it does not have it.
    pub(crate) fn kind_for(&mut self, record: u32, field: &str, value: &Text) -> Option<&'static RecordType> {
        let cell = self.cell(record)?;
        let Some(grown) = cell.with_field(field, value) else { return Some(cell.record_type()) };
        let kind = grown.record_type();
        match (record as usize).checked_sub(self.loader.records.len()) {
            Some(index) => *self.changes.added.get_mut(index)? = grown,
            None => drop(self.changes.changed.insert(record, grown)),
        }
        Some(kind)
    }

    /// The number for DTYP that represents an unknown device support.
    pub(crate) fn inert_device(&mut self, name: &Text) -> Result<Scalar, String> {
        let known = self.loader.devices.iter().chain(&self.changes.devices);
        let n_known = known.clone().count();
        let index = known.clone().position(|known| known == name).unwrap_or(n_known);
        if index == n_known {
            if n_known >= INERT_DEVICES_MAX {
                return Err(format!("DTYP cannot be \"{name}\": more than {INERT_DEVICES_MAX} are unknown"));
            }
            self.changes.devices.push(name.clone());
        }
        Ok(Scalar::Enum(INERT + index as u16))
    }
}
