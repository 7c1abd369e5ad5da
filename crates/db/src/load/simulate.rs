//! Simulation of what is not here: records of unknown types, and of unknown DTYPs, that are loaded all the same.

use std::collections::BTreeMap;
use std::fmt;

use fodo_data::{Scalar, Text};

use crate::limit::INERT_DEVICES_MAX;
use crate::load::{Loader, Stage};
use crate::record::device::INERT;
use crate::record::field_table::has_table;
use crate::record::{RecordType, find, with};

/// What to do about a record type or a DTYP that is not here, and like none that is.
pub(super) const INERT_HINT: &str = "; with --simulate such records are loaded and do nothing";

/// Records that are there and do nothing, since what they are made for is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InertRecords {
    /// Their type.
    pub record_type: String,
    /// Their DTYP, where that is what is missing and not the type.
    pub device: Option<String>,
    /// How many there are.
    pub n_records: usize,
}

impl fmt::Display for InertRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InertRecords { record_type, device, n_records } = self;
        match device {
            Some(device) => write!(f, "{n_records} {record_type} inert: there is no DTYP \"{device}\""),
            None if has_table(record_type) => {
                write!(f, "{n_records} {record_type} inert: there is no record support for this type")
            }
            None => write!(f, "{n_records} {record_type} inert: there is no such record type"),
        }
    }
}

impl Loader {
    /// From now on a record type or a DTYP that is not here is no error. Such records are inert: a record of an unknown
    /// DTYP has INP and OUT that lead nowhere, one of an unknown type has the common fields, VAL, and those that its file
    /// sets, as texts. What is put to them stays, and nothing else happens.
    pub fn simulate(&mut self) {
        self.simulates = true;
    }

    /// Which records are inert, by type and DTYP; none unless they are simulated.
    pub fn inert(&self) -> Vec<InertRecords> {
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

impl Stage<'_> {
    pub(crate) fn simulates(&self) -> bool {
        self.loader.simulates
    }

    /// A new record of a type that is not here.
    pub(crate) fn add_inert(&mut self, kind: &str, name: &str) -> u32 {
        self.add_cell(crate::record::inert::cell(kind), name)
    }

    /// The type of a record one of whose fields is about to be set; that of an inert record has the field from now on.
    pub(crate) fn kind_for(&mut self, record: u32, field: &str, value: &Text) -> Option<&'static RecordType> {
        let cell = self.cell(record)?;
        let Some(grown) = cell.grown(field, value) else { return Some(cell.record_type()) };
        let kind = grown.record_type();
        match (record as usize).checked_sub(self.loader.records.len()) {
            Some(index) => *self.staged.added.get_mut(index)? = grown,
            None => drop(self.staged.changed.insert(record, grown)),
        }
        Some(kind)
    }

    /// What stands in DTYP for a device support that is not here.
    pub(crate) fn inert_device(&mut self, name: &Text) -> Result<Scalar, String> {
        let known = self.loader.devices.iter().chain(&self.staged.devices);
        let n_known = known.clone().count();
        let index = known.clone().position(|known| known == name).unwrap_or(n_known);
        if index == n_known {
            if n_known >= INERT_DEVICES_MAX {
                return Err(format!("DTYP cannot be \"{name}\": more than {INERT_DEVICES_MAX} are not here"));
            }
            self.staged.devices.push(name.clone());
        }
        Ok(Scalar::Enum(INERT + index as u16))
    }
}
