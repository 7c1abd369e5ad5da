//! Links to PVs of other IOCs while records are processed: reads, writes, and changes of the PVs.

use fodo_data::{Kind, Value};

use crate::common::row;
use crate::event::Event;
use crate::external_pv::{ExternalLinkId, ExternalPvEvent};
use crate::field::SPECIAL;
use crate::link::external::{Effects, ExternalPv};
use crate::link::{LinkAccess, LinkError, Target};
use crate::process::deferred::Deferred;
use crate::process::engine::{EngineCall, PROC};
use crate::record::contract::link_of;

impl EngineCall<'_> {
    /// Emits [`Event::ExternalLinkAdded`] for the links that are not yet reported.
    pub(crate) fn report_external_links(&mut self) {
        let mut pending_reports = self.core.pending_reports.lock();
        pending_reports.take_into(self.events);
    }

    /// Releases the PV of a link whose target is about to change.
    pub(crate) fn release_external(&mut self, record: u32, field: u16) {
        let access = self.with(record, |body, _| link_of(body, field).map(|link| link.access())).flatten();
        let Some(external) = access.as_ref().and_then(LinkAccess::external) else { return };
        self.events.push(Event::ExternalLinkRemoved { link: external.link });
        // The record must not wait for ever for the put's completion.
        if let Some(number) = external.take_awaited() {
            self.engine.deferred.push(Deferred::PutDone { record, number });
        }
    }

    pub(crate) fn read_external(
        &mut self,
        record: u32,
        external: &ExternalPv,
        kind: Kind,
    ) -> Result<Option<Value>, LinkError> {
        let (value, alarm) = external.read(kind)?;
        self.with(record, |body, _| body.common().inherit(external.inherit, alarm));
        Ok(Some(value))
    }

    /// Writes a value to a PV outside this database. `awaited`: the number that [`crate::record::contract::Record::writes_completed`]
    /// receives when the put has ended.
    pub(crate) fn write_external(
        &mut self,
        external: &ExternalPv,
        value: &Value,
        awaited: Option<u8>,
    ) -> Result<(), LinkError> {
        let (value, put) = external.accept(value, awaited)?;
        let put = awaited.is_some().then_some(put);
        self.events.push(Event::ExternalPut { link: external.link, value, put });
        Ok(())
    }

    /// Processes the target of a forward link through a channel, by a put to PROC. A forward link to any other field
    /// has no effect, as in Base. A failure raises no alarm.
    pub(crate) fn forward_by_put(&mut self, access: &LinkAccess) {
        if let Target::Field { record, field: PROC, .. } = access.target {
            let value = Value::from(1u8);
            let _ = self.engine.deferred.put(record, PROC, value, None);
        }
        if let Some(external) = access.external().filter(|external| external.name.to_str().ends_with(".PROC")) {
            let _ = self.write_external(external, &Value::from(1i16), None);
        }
    }

    /// Handles a change of the state of a link's PV. Ignored if the link has changed meanwhile.
    pub(crate) fn handle_external_event(&mut self, link: ExternalLinkId, event: ExternalPvEvent) {
        let ExternalLinkId { record, field, .. } = link;
        let access = self.with(record, |body, _| link_of(body, field).map(|link| link.access())).flatten();
        let Some(external) = access.as_ref().and_then(LinkAccess::external).filter(|external| external.link == link)
        else {
            return;
        };
        let Effects { is_connection_new, is_change, written } = external.apply(event);
        let row = self.core.cell(record).and_then(|cell| row(cell.record_type().rows, field));
        if is_connection_new && row.is_some_and(|row| row.has(SPECIAL)) {
            self.with(record, |body, posts| body.link_state_changed(field, posts));
        }
        if let Some(number) = written {
            self.engine.deferred.push(Deferred::PutDone { record, number });
        }
        if let Some(when) = external.follows.filter(|_| is_change) {
            self.engine.deferred.follow(record, when);
        }
    }
}
