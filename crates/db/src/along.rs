//! Reading and writing through links of every kind: plain links, links with filters, JSON links, links to other IOCs.

use fodo_data::{Kind, Scalar, Status, Value};

use crate::jlink::Raises;
use crate::link::{Path, Special, Target};
use crate::outside::digits;
use crate::step::Broken;
use crate::turn::Turn;
use crate::{FieldRef, filter::Chain};

impl Turn<'_> {
    /// As [`Turn::fetch`], for every kind of link.
    pub(crate) fn fetch_along(&mut self, record: u32, path: &Path, kind: Kind) -> Result<Option<Value>, Broken> {
        let json = match path.special.as_deref() {
            None => return self.fetch(record, path.target, kind),
            Some(Special::Filtered { chain, .. }) => return self.fetch_filtered(record, path.target, chain, kind),
            Some(Special::Outside(outside)) => return self.fetch_outside(record, outside, kind),
            Some(Special::Json(json)) => json,
        };
        let (value, raises) = json.read(&self.core.states);
        self.raise(record, raises);
        value.ok_or(Broken)?.to_kind(kind, Some(&digits(None))).map(Some).map_err(|_| Broken)
    }

    /// As [`Turn::fetch_one`], for every kind of link.
    pub(crate) fn fetch_one_along(&mut self, record: u32, path: &Path, kind: Kind) -> Result<Option<Scalar>, Broken> {
        if path.special.is_none() {
            return self.fetch_one(record, path.target, kind);
        }
        let value = self.fetch_along(record, path, kind)?;
        value.map(|value| value.first().ok_or(Broken)).transpose()
    }

    /// The kind and the maximum number of elements of a link's target; `None` if the link has no readable target.
    pub(crate) fn facts_along(&self, path: &Path) -> Option<(Kind, u32)> {
        let facts = match (path.special.as_deref(), path.target) {
            (Some(Special::Json(json)), _) => return Some((json.kind(), 1)),
            (Some(Special::Outside(outside)), _) => return outside.facts(),
            (Some(Special::Filtered { facts, .. }), _) => facts.clone(),
            (None, Target::Field { record, field, .. }) => self.core.facts(FieldRef { record, field }),
            (None, Target::Constant | Target::Outside { .. } | Target::Missing) => return None,
        };
        Some((facts.kind, facts.count_max))
    }

    /// Reads the field twice: first like a plain link, to process the target and to inherit its alarm, then as input of
    /// the filters.
    fn fetch_filtered(
        &mut self,
        record: u32,
        target: Target,
        chain: &Chain,
        kind: Kind,
    ) -> Result<Option<Value>, Broken> {
        let Target::Field { record: from, field, .. } = target else { return Err(Broken) };
        let own_kind = self.core.facts(FieldRef { record: from, field }).kind;
        self.fetch(record, target, own_kind)?;
        let reading = self.with(from, |body, _| crate::post::reading(body, field)).ok_or(Broken)?;
        let value = chain.read(reading, &self.core.moment(from, self.now.wall)).value;
        self.core.convert(from, field, value, kind).map(Some).map_err(|_| Broken)
    }

    /// As [`Turn::drive`], for every kind of link. Filters apply only to reads.
    pub(crate) fn drive_along(&mut self, record: u32, path: &Path, value: Value) -> Result<(), Broken> {
        match path.special.as_deref() {
            None | Some(Special::Filtered { .. }) => self.drive(record, path.target, value),
            Some(Special::Outside(outside)) => self.drive_outside(outside, &value, None),
            Some(Special::Json(json)) => {
                let raises = json.write(&value, &self.core.states).map_err(|()| Broken)?;
                self.raise(record, raises);
                Ok(())
            }
        }
    }

    fn raise(&mut self, record: u32, raises: Option<Raises>) {
        if let Some(Raises { severity, message }) = raises {
            self.with(record, |body, _| body.common().raise_saying(Status::LINK, severity, message.into()));
        }
    }
}
