//! Links to PVs of other IOCs while records are processed: reads, writes, and changes of the PVs.

use fodo_data::{Kind, Status, Value};

use crate::common::row;
use crate::event::Event;
use crate::external_pv::{ExternalLinkId, ExternalPvEvent};
use crate::field::SPECIAL;
use crate::link::external::{Effects, ExternalPv, ExternalValue};
use crate::link::inherit::InheritedAlarm;
use crate::link::{LinkAccess, LinkError, Target};
use crate::menu::INVALID;
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
        match external.read(kind) {
            Ok(ExternalValue { value, alarm, time }) => {
                if alarm.is_some() || time.is_some() {
                    self.with(record, |body, _| {
                        let common = body.common();
                        if let Some(InheritedAlarm { status, severity, message }) = alarm {
                            common.raise_with_message(Status(status), severity, message);
                        }
                        if let Some((time, tag)) = time {
                            (common.time, common.user_tag) = (time, u64::from(tag as u32));
                        }
                    });
                }
                Ok(Some(value))
            }
            Err(LinkError) => {
                if external.pva.is_some() {
                    self.note_unreadable(record, external);
                }
                Err(LinkError)
            }
        }
    }

    /// A link over pvAccess cannot be read: raises the alarm with the message of pvxs, and sets the time of the loss.
    fn note_unreadable(&mut self, record: u32, external: &ExternalPv) {
        let row = self.core.cell(record).and_then(|cell| row(cell.record_type().rows, external.link.field));
        let message = format!("{} Disconn", row.map_or("", |row| row.name));
        self.with(record, |body, _| {
            let common = body.common();
            common.raise_with_message(Status::LINK, INVALID, message.as_str().into());
            if let Some(time) = external.lost_at() {
                (common.time, common.user_tag) = (time, 0);
            }
        });
    }

    /// A value that a link has written was not sent: raises the alarm of a broken link. A record that waits for the end of
    /// the put reports it when it completes, any other one now.
    fn note_unwritten(&mut self, record: u32, name: &str) {
        self.with(record, |body, posts| {
            body.common().raise_with_message(Status::LINK, INVALID, format!("field {name}").as_str().into());
            if body.common().is_active == 0 {
                let mask = posts.alarms(body);
                let value = body.record_type().value;
                if !mask.is_empty() {
                    posts.post(body, value, mask);
                }
            }
        });
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
        self.events.push(Event::ExternalPut { link: external.link, value, put, is_awaited: awaited.is_some() });
        Ok(())
    }

    /// Processes the target of a forward link through a channel, by a put to PROC. A forward link to any other field
    /// has no effect, as in Base. A failure raises no alarm, unless the link is over pvAccess.
    pub(crate) fn forward_by_put(&mut self, record: u32, access: &LinkAccess) {
        if let Some((external, is_accepted)) = access.external().and_then(|pv| Some((pv, pv.accepts_pva()?))) {
            if is_accepted {
                self.events.push(Event::ExternalProcess { link: external.link });
            } else {
                self.with(record, |body, _| body.common().raise_with_message(Status::LINK, INVALID, "Disconn".into()));
            }
            return;
        }
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
        let Effects { is_connection_new, is_change, written, is_refused } = external.apply(event, self.now.wall);
        let row = self.core.cell(record).and_then(|cell| row(cell.record_type().rows, field));
        if is_connection_new && row.is_some_and(|row| row.has(SPECIAL)) {
            self.with(record, |body, posts| body.link_state_changed(field, posts));
        }
        if is_refused {
            self.note_unwritten(record, row.map_or("", |row| row.name));
        }
        if let Some(number) = written {
            self.engine.deferred.push(Deferred::PutDone { record, number });
        }
        if let Some(when) = external.follows.filter(|_| is_change) {
            self.engine.deferred.follow(record, when);
        }
    }
}
