//! Links to PVs of other IOCs: the requests to the network, and the cached state of each PV.
//!
//! Source: EPICS Base 7.0.10, dbCa.

use std::sync::Arc;

use fodo_data::{Kind, Meta, Reading, Text, TimeStamp, Value};
use fodo_lock::Mutex;

use crate::event::Event;
use crate::external_pv::{ExternalLinkId, ExternalLinkStatus, ExternalPvEvent, ExternalPvFacts, LinkUsage};
use crate::link::inherit::InheritedAlarm;
use crate::link::{Inherit, Link, LinkAccess, LinkError, LinkExtra, TriggerCondition};
use crate::reference::KindAndCount;

/// Digits after the decimal point in records without PREC: the default of C's `printf`.
pub(crate) const DIGITS: i16 = 6;

/// A link to a PV outside this database, with the cached state of the PV.
#[derive(Debug)]
pub(crate) struct ExternalPv {
    pub(crate) link: ExternalLinkId,
    pub(crate) name: Text,
    /// When changes of the PV process the record (CP and CPP).
    pub(crate) follows: Option<TriggerCondition>,
    pub(crate) inherit: Inherit,
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
pub(crate) struct Effects {
    pub(crate) is_connection_new: bool,
    pub(crate) is_change: bool,
    /// The record's number of a put that has ended.
    pub(crate) written: Option<u8>,
}

/// Links that are not yet reported to the network.
#[derive(Debug, Default)]
pub(crate) struct PendingReports {
    n_generations: u32,
    events: Vec<Event>,
}

impl PendingReports {
    /// Adds the report of a link, and returns its identifier.
    pub(crate) fn add(&mut self, record: u32, field: u16, name: Text, usage: LinkUsage) -> ExternalLinkId {
        self.n_generations = self.n_generations.wrapping_add(1);
        let link = ExternalLinkId { record, field, generation: self.n_generations };
        self.events.push(Event::ExternalLinkAdded { link, name, usage });
        link
    }

    /// Moves the reports to the end of `events`.
    pub(crate) fn take_into(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }
}

impl ExternalPvState {
    /// The properties of the PV, while its server responds.
    fn facts(&self) -> Option<ExternalPvFacts> {
        self.facts.filter(|_| !self.is_silent)
    }
}

impl ExternalPv {
    pub(crate) fn new(
        link: ExternalLinkId,
        name: Text,
        follows: Option<TriggerCondition>,
        inherit: Inherit,
    ) -> ExternalPv {
        ExternalPv { link, name, follows, inherit, state: Mutex::default() }
    }

    /// The kind and the maximum number of elements, while the PV is connected.
    pub(crate) fn facts(&self) -> Option<KindAndCount> {
        self.state.lock().facts().map(|facts| KindAndCount { kind: facts.kind, count_max: facts.count_max })
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.state.lock().facts().is_some()
    }

    /// The time stamp of the latest value.
    pub(crate) fn time(&self) -> Option<TimeStamp> {
        self.state.lock().reading.as_ref().map(|reading| reading.time)
    }

    /// Units, limits and labels.
    pub(crate) fn meta(&self) -> Option<Arc<Meta>> {
        self.state.lock().reading.as_ref().and_then(|reading| reading.meta.clone())
    }

    pub(crate) fn status(&self) -> ExternalLinkStatus {
        let state = self.state.lock();
        ExternalLinkStatus { link: self.link, facts: state.facts(), n_lost: state.n_lost }
    }

    /// Forgets the put whose completion the record waits for. Returns the record's number for it.
    pub(crate) fn take_awaited(&self) -> Option<u8> {
        self.state.lock().awaited.take().map(|(_, number)| number)
    }

    /// The latest value, converted to a kind, and its alarm.
    pub(crate) fn read(&self, kind: Kind) -> Result<(Value, InheritedAlarm), LinkError> {
        let state = self.state.lock();
        state.facts().filter(|facts| facts.may_read).ok_or(LinkError)?;
        let reading = state.reading.as_ref().ok_or(LinkError)?;
        let value = reading.value.to_kind(kind, Some(&digits(reading.meta.as_deref()))).map_err(|_| LinkError)?;
        // Channel Access does not transfer the alarm message.
        let (status, severity) = (reading.alarm.status.0, reading.alarm.severity.code());
        Ok((value, InheritedAlarm { status, severity, message: Text::EMPTY }))
    }

    /// Converts a value to the PV's kind. Also returns the number of the put.
    pub(crate) fn accept(&self, value: &Value, awaited: Option<u8>) -> Result<(Value, u64), LinkError> {
        let mut state = self.state.lock();
        let facts = state.facts().filter(|facts| facts.may_write).ok_or(LinkError)?;
        let is_name_of_state =
            facts.kind == Kind::Enum && value.first().is_some_and(|first| first.kind() == Kind::Text);
        let kind = if is_name_of_state { Kind::Text } else { facts.kind };
        let value = match value.to_kind(kind, Some(&digits(None))).map_err(|_| LinkError)? {
            Value::Array(array) if array.is_empty() => return Err(LinkError),
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

    /// Stores a change of the PV, and returns what it means for the record.
    pub(crate) fn apply(&self, event: ExternalPvEvent) -> Effects {
        let mut state = self.state.lock();
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
