//! Inspection of a database, for the shell and for diagnosis: aliases, fields, links.

use fodo_data::Text;

use crate::common::{Common, row};
use crate::database::Database;
use crate::external_pv::ExternalLinkStatus;
use crate::field::{FieldInfo, Slot};
use crate::link::{Link, Target};
use crate::record::contract::with;

/// The target of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkTarget {
    /// A record of this database.
    Record(Text),
    /// A PV that is not in this database, but may be in another IOC.
    External(ExternalLinkStatus),
    /// None: the record does not have the field.
    Missing,
}

/// A link that is neither empty nor a constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// The link field.
    pub field: &'static str,
    /// Name and modifiers.
    pub text: Text,
    /// The target.
    pub target: LinkTarget,
}

impl Database {
    /// Every alias with its record, in alphabetical order.
    pub fn aliases(&self) -> Vec<(Text, Text)> {
        let names = &self.core().names;
        let own = |record: u32| names.get(record as usize).cloned();
        let mut found: Vec<(Text, Text)> = self
            .core()
            .index
            .iter()
            .filter_map(|(name, record)| Some((name.0.clone(), own(*record)?)))
            .filter(|(alias, record)| alias != record)
            .collect();
        found.sort_by(|(left, _), (right, _)| left.as_bytes().cmp(right.as_bytes()));
        found
    }

    /// The fields of a record or alias, in the order of its table; empty for an unknown name.
    pub fn field_names(&self, record: &str) -> impl Iterator<Item = &'static str> {
        self.rows(record).map(|row| row.name)
    }

    /// The fields of a record or alias that `dbpr` shows at a level from 0 to 4, in alphabetical order.
    pub fn fields_of_interest(&self, record: &str, level: u8) -> Vec<&'static str> {
        let shown = self.rows(record).filter(|row| row.interest_level() <= level);
        let mut names: Vec<&str> = shown.map(|row| row.name).collect();
        names.sort_unstable();
        names
    }

    /// The rows of the fields of a record or alias; empty for an unknown name.
    fn rows(&self, record: &str) -> impl Iterator<Item = &'static FieldInfo> {
        let number = self.core().index.get(record.as_bytes()).copied();
        let kind = number.and_then(|number| self.core().cell(number)).map(|cell| cell.record_type());
        kind.into_iter().flat_map(|kind| Common::ROWS.iter().chain(kind.rows))
    }

    /// The links of a record or alias that have a name, not a constant or an address.
    pub fn links(&self, record: &str) -> Vec<LinkInfo> {
        let core = self.core();
        let Some(cell) = core.index.get(record.as_bytes()).and_then(|number| core.cell(*number)) else {
            return Vec::new();
        };
        let rows = cell.record_type().rows;
        let n_fields = Common::COUNT + rows.len() as u16;
        let mut found = Vec::new();
        for (field, row) in (0..n_fields).filter_map(|field| Some((field, row(rows, field)?))) {
            let link = with(cell, |body| match body.slot(field) {
                Some(Slot::InLink(link) | Slot::OutLink(link) | Slot::FwdLink(link)) => Some(Link::clone(link)),
                _ => None,
            });
            let Some(link) = link.flatten().filter(|link| link.name().is_some()) else { continue };
            let target = match link.target() {
                Target::Field { record, .. } => {
                    core.names.get(record as usize).map_or(LinkTarget::Missing, |name| LinkTarget::Record(name.clone()))
                }
                _ => link.external().map_or(LinkTarget::Missing, |external| LinkTarget::External(external.status())),
            };
            found.push(LinkInfo { field: row.name, text: link.text(), target });
        }
        found
    }
}
