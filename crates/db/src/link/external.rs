//! Links to PVs of other IOCs: the requests to the network, and the cached state of each PV.
//!
//! Source: EPICS Base 7.0.10, dbCa.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fodo_data::{Kind, Meta, Reading, Text, TimeStamp, Value};

use crate::Event;
use crate::common::row;
use crate::core::{Core, DIGITS};
use crate::field::SPECIAL;
use crate::link::inherit::{InheritedAlarm, inherit};
use crate::link::{Inherit, Link, LinkAccess, LinkExtra, Target, TriggerCondition};
use crate::process::deferred::Deferred;
use crate::process::engine::{EngineCall, PROC};
use crate::process::step::Broken;
use crate::record::contract::link_of;

/// Identifies a link to a PV outside this database. A link whose text changes gets a new identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExternalLinkId {
    record: u32,
    field: u16,
    generation: u32,
}

/// Whether a link reads or writes its PV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkUsage {
    /// The link needs every update: value, alarm, time, units, limits and labels.
    Reads,
    /// The link only writes.
    Writes,
}

/// A change of the state of a link's PV, reported by the network.
#[derive(Clone, Debug, PartialEq)]
pub enum ExternalPvEvent {
    /// The PV is connected. Earlier values are discarded.
    Connected(ExternalPvFacts),
    /// The access rights changed.
    AccessRights {
        /// Whether the PV may be read.
        may_read: bool,
        /// Whether the PV may be written.
        may_write: bool,
    },
    /// A new value.
    Updated(Reading),
    /// The server no longer responds; the last value may be stale.
    Unresponsive,
    /// The server responds again.
    Responsive,
    /// The PV is disconnected.
    Disconnected,
    /// A put of [`Event::ExternalPut`] has ended, successfully or not.
    PutDone {
        /// The put's identifier in the event.
        put: u64,
    },
}

/// The properties of a PV, as its server reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalPvFacts {
    /// The kind of an element.
    pub kind: Kind,
    /// The maximum number of elements.
    pub count_max: u32,
    /// Whether the PV may be read.
    pub may_read: bool,
    /// Whether the PV may be written.
    pub may_write: bool,
}

/// The connection state of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalLinkStatus {
    /// The link.
    pub link: ExternalLinkId,
    /// The properties of the PV; `None` while it is not connected.
    pub facts: Option<ExternalPvFacts>,
    /// How often the connection was lost.
    pub n_lost: u64,
}

/// A link to a PV outside this database, with the cached state of the PV.
#[derive(Debug)]
pub(crate) struct ExternalPv {
    link: ExternalLinkId,
    name: Text,
    /// When changes of the PV process the record (CP and CPP).
    follows: Option<TriggerCondition>,
    inherit: Inherit,
    state: Mutex<ExternalPvState>,
}

#[derive(Debug, Default)]
struct ExternalPvState {
    facts: Option<ExternalPvFacts>,
    is_silent: bool,
    /// The latest reading since the PV connected.
    reading: Option<Reading>,
    n_puts: u64,
    /// The put whose completion the record waits for, and the record's own number for it.
    awaited: Option<(u64, u8)>,
    n_lost: u64,
}

/// What the record must do after a change.
#[derive(Debug, Default)]
struct Effects {
    is_connection_new: bool,
    is_change: bool,
    /// The record's number of a put that has ended.
    written: Option<u8>,
}

/// Links that are not yet reported to the network.
#[derive(Debug, Default)]
pub(crate) struct PendingReports {
    n_generations: u32,
    events: Vec<Event>,
}

impl ExternalPvState {
    /// The properties of the PV, while its server responds.
    fn facts(&self) -> Option<ExternalPvFacts> {
        self.facts.filter(|_| !self.is_silent)
    }
}

impl ExternalPv {
    fn lock(&self) -> MutexGuard<'_, ExternalPvState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kind and the maximum number of elements, while the PV is connected.
    pub(crate) fn facts(&self) -> Option<(Kind, u32)> {
        self.lock().facts().map(|facts| (facts.kind, facts.count_max))
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.lock().facts().is_some()
    }

    /// The time stamp of the latest value.
    pub(crate) fn time(&self) -> Option<TimeStamp> {
        self.lock().reading.as_ref().map(|reading| reading.time)
    }

    /// Units, limits and labels.
    pub(crate) fn meta(&self) -> Option<Arc<Meta>> {
        self.lock().reading.as_ref().and_then(|reading| reading.meta.clone())
    }

    pub(crate) fn status(&self) -> ExternalLinkStatus {
        let state = self.lock();
        ExternalLinkStatus { link: self.link, facts: state.facts(), n_lost: state.n_lost }
    }

    /// The latest value, converted to a kind, and its alarm.
    fn read(&self, kind: Kind) -> Result<(Value, InheritedAlarm), Broken> {
        let state = self.lock();
        state.facts().filter(|facts| facts.may_read).ok_or(Broken)?;
        let reading = state.reading.as_ref().ok_or(Broken)?;
        let value = reading.value.to_kind(kind, Some(&digits(reading.meta.as_deref()))).map_err(|_| Broken)?;
        // Channel Access does not transfer the alarm message.
        let (status, severity) = (reading.alarm.status.0, reading.alarm.severity.code());
        Ok((value, InheritedAlarm { status, severity, message: Text::EMPTY }))
    }

    /// Converts a value to the PV's kind. Also returns the number of the put.
    fn accept(&self, value: &Value, awaited: Option<u8>) -> Result<(Value, u64), Broken> {
        let mut state = self.lock();
        let facts = state.facts().filter(|facts| facts.may_write).ok_or(Broken)?;
        let is_name_of_state =
            facts.kind == Kind::Enum && value.first().is_some_and(|first| first.kind() == Kind::Text);
        let kind = if is_name_of_state { Kind::Text } else { facts.kind };
        let value = match value.to_kind(kind, Some(&digits(None))).map_err(|_| Broken)? {
            Value::Array(array) if array.is_empty() => return Err(Broken),
            Value::Array(array) => Value::Array(array.truncated(facts.count_max as usize)),
            scalar => scalar,
        };
        state.n_puts += 1;
        let put = state.n_puts;
        if let Some(number) = awaited {
            state.awaited = Some((put, number));
        }
        Ok((value, put))
    }

    fn apply(&self, event: ExternalPvEvent) -> Effects {
        let mut state = self.lock();
        match event {
            ExternalPvEvent::Connected(facts) => {
                (state.facts, state.reading, state.is_silent) = (Some(facts), None, false);
                Effects { is_connection_new: true, ..Effects::default() }
            }
            ExternalPvEvent::AccessRights { may_read, may_write } => {
                if let Some(facts) = &mut state.facts {
                    (facts.may_read, facts.may_write) = (may_read, may_write);
                }
                Effects { is_change: !(may_read && may_write), ..Effects::default() }
            }
            ExternalPvEvent::Updated(reading) => {
                state.reading = Some(reading);
                Effects { is_change: true, ..Effects::default() }
            }
            ExternalPvEvent::Unresponsive | ExternalPvEvent::Responsive => {
                state.is_silent = event == ExternalPvEvent::Unresponsive;
                Effects { is_connection_new: true, is_change: true, written: None }
            }
            ExternalPvEvent::Disconnected => {
                (state.facts, state.reading) = (None, None);
                state.n_lost += 1;
                let written = state.awaited.take().map(|(_, number)| number);
                Effects { is_connection_new: true, is_change: true, written }
            }
            ExternalPvEvent::PutDone { put } => {
                let written = state.awaited.take_if(|(awaited, _)| *awaited == put).map(|(_, number)| number);
                Effects { written, ..Effects::default() }
            }
        }
    }
}

/// The metadata for conversions to text: numbers get C's default number of digits, whatever the remote PREC, as in
/// Base.
pub(crate) fn digits(meta: Option<&Meta>) -> Meta {
    let (labels, unlabelled) =
        meta.map(|meta| (meta.labels.clone(), meta.label_for_unlabelled.clone())).unwrap_or_default();
    Meta { precision: DIGITS, labels, label_for_unlabelled: unlabelled, ..Meta::default() }
}

impl Link {
    /// The link's PV outside this database, if it has one.
    pub(crate) fn external(&self) -> Option<&ExternalPv> {
        self.extra().and_then(|extra| extra.external())
    }
}

impl LinkAccess {
    pub(crate) fn external(&self) -> Option<&ExternalPv> {
        self.extra.as_ref().and_then(|extra| extra.external())
    }
}

impl LinkExtra {
    fn external(&self) -> Option<&ExternalPv> {
        match self {
            LinkExtra::External(external) => Some(external),
            LinkExtra::Filtered { .. } | LinkExtra::Json(_) => None,
        }
    }
}

impl Core {
    /// Makes a PV outside this database the target of a link, and queues the report of it.
    pub(crate) fn set_external(
        &self,
        record: u32,
        field: u16,
        name: Text,
        usage: LinkUsage,
        is_time: bool,
        link: &mut Link,
    ) {
        let mut pending_reports = self.pending_reports.lock().unwrap_or_else(PoisonError::into_inner);
        pending_reports.n_generations = pending_reports.n_generations.wrapping_add(1);
        let external = ExternalLinkId { record, field, generation: pending_reports.n_generations };
        pending_reports.events.push(Event::ExternalLinkAdded { link: external, name: name.clone(), usage });
        let modifiers = link.modifiers();
        let (follows, inherit) = (modifiers.follows(field), modifiers.inherit);
        link.set_external(ExternalPv { link: external, name, follows, inherit, state: Mutex::default() }, is_time);
    }
}

impl EngineCall<'_> {
    /// Emits [`Event::ExternalLinkAdded`] for the links that are not yet reported.
    pub(crate) fn report_external_links(&mut self) {
        let mut pending_reports = self.core.pending_reports.lock().unwrap_or_else(PoisonError::into_inner);
        self.events.append(&mut pending_reports.events);
    }

    /// Releases the PV of a link whose target is about to change.
    pub(crate) fn release_external(&mut self, record: u32, field: u16) {
        let access = self.with(record, |body, _| link_of(body, field).map(|link| link.access())).flatten();
        let Some(external) = access.as_ref().and_then(LinkAccess::external) else { return };
        self.events.push(Event::ExternalLinkRemoved { link: external.link });
        // The record must not wait for ever for the put's completion.
        if let Some((_, number)) = external.lock().awaited.take() {
            self.engine.deferred.push(Deferred::PutDone { record, number });
        }
    }

    pub(crate) fn read_external(
        &mut self,
        record: u32,
        external: &ExternalPv,
        kind: Kind,
    ) -> Result<Option<Value>, Broken> {
        let (value, alarm) = external.read(kind)?;
        self.with(record, |body, _| inherit(body.common(), external.inherit, alarm));
        Ok(Some(value))
    }

    /// Writes a value to a PV outside this database. `awaited`: the number that [`crate::record::contract::Record::written`]
    /// receives when the put has ended.
    pub(crate) fn write_external(
        &mut self,
        external: &ExternalPv,
        value: &Value,
        awaited: Option<u8>,
    ) -> Result<(), Broken> {
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
            self.with(record, |body, posts| body.link_joined(field, posts));
        }
        if let Some(number) = written {
            self.engine.deferred.push(Deferred::PutDone { record, number });
        }
        if let Some(when) = external.follows.filter(|_| is_change) {
            self.engine.deferred.follow(record, when);
        }
    }
}
