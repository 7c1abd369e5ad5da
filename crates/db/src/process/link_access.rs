//! Reading and writing through links of every kind: plain links, links with filters, JSON links, links to other IOCs.

use fodo_data::{Kind, Scalar, Status, Value};

use crate::filter::FilterChain;
use crate::link::external::digits;
use crate::link::json_link::LinkAlarm;
use crate::link::{LinkAccess, LinkError, LinkExtra, Target};
use crate::process::engine::EngineCall;
use crate::reference::{FieldRef, KindAndCount};

impl EngineCall<'_> {
    /// As [`EngineCall::read_target`], for every kind of link.
    pub(crate) fn read_link(
        &mut self,
        record: u32,
        access: &LinkAccess,
        kind: Kind,
    ) -> Result<Option<Value>, LinkError> {
        let json = match access.extra.as_deref() {
            None => return self.read_target(record, access.target, kind),
            Some(LinkExtra::Filtered { chain, .. }) => return self.read_filtered(record, access.target, chain, kind),
            Some(LinkExtra::External(external)) => return self.read_external(record, external, kind),
            Some(LinkExtra::Pva(_)) => return Err(LinkError),
            Some(LinkExtra::Json(json)) => json,
        };
        let (value, raises) = json.read(&self.core.states);
        self.raise(record, raises);
        value.ok_or(LinkError)?.to_kind(kind, Some(&digits(None))).map(Some).map_err(|_| LinkError)
    }

    /// As [`EngineCall::read_target_first`], for every kind of link.
    pub(crate) fn read_link_first(
        &mut self,
        record: u32,
        access: &LinkAccess,
        kind: Kind,
    ) -> Result<Option<Scalar>, LinkError> {
        if access.extra.is_none() {
            return self.read_target_first(record, access.target, kind);
        }
        let value = self.read_link(record, access, kind)?;
        value.map(|value| value.first().ok_or(LinkError)).transpose()
    }

    /// The kind and the maximum number of elements of a link's target; `None` if the link has no readable target.
    pub(crate) fn link_facts(&self, access: &LinkAccess) -> Option<KindAndCount> {
        let facts = match (access.extra.as_deref(), access.target) {
            (Some(LinkExtra::Json(json)), _) => return Some(KindAndCount { kind: json.kind(), count_max: 1 }),
            (Some(LinkExtra::External(external)), _) => return external.facts(),
            (Some(LinkExtra::Filtered { facts, .. }), _) => facts.clone(),
            (None, Target::Field { record, field, .. }) => self.core.facts(FieldRef { record, field }),
            (Some(LinkExtra::Pva(_)), _) => return None,
            (None, Target::Constant | Target::External { .. } | Target::Missing) => return None,
        };
        Some(KindAndCount { kind: facts.kind, count_max: facts.count_max })
    }

    /// Reads the field twice: first like a plain link, to process the target and to inherit its alarm, then as input of
    /// the filters.
    fn read_filtered(
        &mut self,
        record: u32,
        target: Target,
        chain: &FilterChain,
        kind: Kind,
    ) -> Result<Option<Value>, LinkError> {
        let Target::Field { record: from, field, .. } = target else { return Err(LinkError) };
        let own_kind = self.core.facts(FieldRef { record: from, field }).kind;
        self.read_target(record, target, own_kind)?;
        let reading = self.with(from, |body, _| crate::process::post::reading(body, field)).ok_or(LinkError)?;
        let value = chain.read(reading, &self.core.filter_context(from, self.now.wall)).value;
        self.core.convert(from, field, value, kind).map(Some).map_err(|_| LinkError)
    }

    /// As [`EngineCall::write_target`], for every kind of link. Filters apply only to reads.
    pub(crate) fn write_link(&mut self, record: u32, access: &LinkAccess, value: Value) -> Result<(), LinkError> {
        match access.extra.as_deref() {
            None | Some(LinkExtra::Filtered { .. }) => self.write_target(record, access.target, value),
            Some(LinkExtra::External(external)) => self.write_external(external, &value, None),
            Some(LinkExtra::Pva(_)) => Err(LinkError),
            Some(LinkExtra::Json(json)) => {
                let raises = json.write(&value, &self.core.states).map_err(|()| LinkError)?;
                self.raise(record, raises);
                Ok(())
            }
        }
    }

    fn raise(&mut self, record: u32, raises: Option<LinkAlarm>) {
        if let Some(LinkAlarm { severity, message }) = raises {
            self.with(record, |body, _| body.common().raise_with_message(Status::LINK, severity, message.into()));
        }
    }
}
