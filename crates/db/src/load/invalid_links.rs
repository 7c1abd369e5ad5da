//! Invalid links, and records whose type or device support is not implemented.

use fodo_data::{STRING_BYTES_MAX, Status, Text};

use crate::common::Common;
use crate::device::{DeviceSupport, INERT};
use crate::field::DEVICE;
use crate::limit::LOAD_ERRORS_MAX;
use crate::load::warnings::FieldPlace;
use crate::load::{LoadError, Loader, link_of};
use crate::menu::INVALID;
use crate::record::contract::{Record, with};
use crate::record::field_table::has_table;

impl Loader {
    /// Reports links that are an address although the field cannot have one, and INP or OUT that the DTYP does not
    /// accept. Each with its place, if the loader keeps places. At most a hundred.
    pub fn invalid_links(&self) -> Vec<LoadError> {
        let found = self.find_invalid_links();
        self.placed_invalid_links(found.into_iter().take(LOAD_ERRORS_MAX))
    }

    /// Disables what [`Loader::invalid_links`] reports, and returns it. The link becomes empty; but a record whose DTYP needs
    /// an address does not process and is INVALID, as in EPICS Base.
    pub fn disable_invalid_links(&mut self) -> Vec<LoadError> {
        let found = self.find_invalid_links();
        for invalid_link in &found {
            let Some(cell) = self.records.get(invalid_link.record as usize) else { continue };
            if invalid_link.is_of_device {
                self.disabled.insert(invalid_link.record, invalid_link.message.as_str().into());
            } else {
                with(&**cell, |body| drop(link_of(body, invalid_link.field).map(std::mem::take)));
            }
        }
        self.omitted.n_fields += found.len();
        self.placed_invalid_links(found.into_iter().take(LOAD_ERRORS_MAX))
    }

    fn find_invalid_links(&self) -> Vec<InvalidLink> {
        let records = self.records.iter().enumerate().map(|(record, cell)| (record as u32, cell));
        let records =
            records.filter(|(record, _)| !self.deleted.contains(record) && !self.disabled.contains_key(record));
        records
            .flat_map(|(record, cell)| with(&**cell, |body| invalid_links_of(record, body)).unwrap_or_default())
            .collect()
    }

    fn placed_invalid_links(&self, invalid_links: impl Iterator<Item = InvalidLink>) -> Vec<LoadError> {
        let at = |invalid_link: &InvalidLink| {
            let is_it =
                |placed: &&FieldPlace| (placed.record, placed.field) == (invalid_link.record, invalid_link.field);
            self.placed.iter().rfind(is_it).map(|placed| placed.at.clone()).unwrap_or_default()
        };
        invalid_links
            .map(|invalid_link| {
                let at = at(&invalid_link);
                LoadError { message: invalid_link.error, ..at }
            })
            .collect()
    }

    /// Marks records of an unknown type or DTYP, which must not process unless they are simulated.
    pub(super) fn find_unsupported(&mut self) {
        if self.simulates {
            return;
        }
        for (record, cell) in self.records.iter().enumerate() {
            let kind = cell.record_type();
            if has_table(kind.name) {
                self.disabled.insert(record as u32, format!("no record support \"{}\"", kind.name).as_str().into());
                continue;
            }
            let device = with(&**cell, |body| body.common().device).unwrap_or_default();
            let device = device.checked_sub(INERT).and_then(|index| self.devices.get(usize::from(index)));
            if let Some(device) = device {
                self.disabled.insert(record as u32, format!("no device support \"{device}\"").as_str().into());
            }
        }
    }
}

/// An invalid link.
struct InvalidLink {
    record: u32,
    field: u16,
    error: String,
    /// Whether the DTYP needs an address and this is not a valid one.
    is_of_device: bool,
    /// The text for AMSG, if the record cannot process because of this.
    message: String,
}

fn invalid_links_of(record: u32, body: &mut dyn Record) -> Vec<InvalidLink> {
    let kind = body.record_type();
    if has_table(kind.name) {
        return Vec::new();
    }
    let (is_inert, device) = (DeviceSupport::is_inert(body), DeviceSupport::of(body));
    let mut found = Vec::new();
    for field in 0..Common::COUNT + kind.rows.len() as u16 {
        let Some(row) = crate::common::row(kind.rows, field).filter(|row| row.dbf.is_link()) else { continue };
        let Some(link) = link_of(body, field).filter(|link| link.is_address() || row.has(DEVICE)) else { continue };
        let wrong = if row.has(DEVICE) && !kind.devices.is_empty() {
            if is_inert { Ok(()) } else { device.check_address(kind.name, link) }
        } else if link.is_address() {
            Err("an address needs a device support")
        } else {
            Ok(())
        };
        let Err(reason) = wrong else { continue };
        let text = link.text();
        let is_of_device =
            !matches!(device, DeviceSupport::Soft | DeviceSupport::Raw | DeviceSupport::Async) && row.has(DEVICE);
        let (place, name) = (row.name, body.common().name.clone());
        let error = format!("{place} of {name} cannot be \"{text}\": {reason}");
        found.push(InvalidLink { record, field, error, is_of_device, message: format!("wrong {place} \"{text}\"") });
    }
    found
}

/// Disables the processing of a record: PACT is set, as in EPICS Base, and the record is INVALID.
pub(super) fn disable_processing(common: &mut Common, message: &Text) {
    common.is_active = 1;
    common.status = Status::UDF.0;
    common.severity = INVALID;
    let message = message.to_str();
    common.set_message(message.get(..message.floor_char_boundary(STRING_BYTES_MAX)).unwrap_or_default().into());
}
