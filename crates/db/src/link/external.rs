//! Links to PVs of other IOCs: the requests to the network, and the cached state of each PV.
//!
//! Sources: EPICS Base 7.0.10, dbCa; pvxs 1.5.3, pvalink.

use std::sync::Arc;

use fodo_data::{Kind, Meta, Reading, STRING_BYTES_MAX, Status, Text, TimeStamp, Value};
use fodo_lock::Mutex;

use crate::event::Event;
use crate::external_pv::{ExternalLinkId, ExternalLinkStatus, ExternalPvEvent, ExternalPvFacts, LinkUsage, PvaLink};
use crate::link::inherit::InheritedAlarm;
use crate::link::{Inherit, Link, LinkAccess, LinkError, LinkExtra, TriggerCondition};
use crate::menu::INVALID;
use crate::reference::KindAndCount;

/// Digits after the decimal point in records without PREC: the default of C's `printf`.
pub(crate) const DIGITS: i16 = 6;

/// A link to a PV outside this database, or to any PV over pvAccess, with the cached state of the PV.
#[derive(Debug)]
pub(crate) struct ExternalPv {
    pub(crate) link: ExternalLinkId,
    pub(crate) name: Text,
    /// When changes of the PV process the record (CP and CPP).
    pub(crate) follows: Option<TriggerCondition>,
    inherit: Inherit,
    /// The options of a link over pvAccess.
    pub(crate) pva: Option<Arc<PvaLink>>,
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
    /// When the connection was lost.
    lost_at: Option<TimeStamp>,
}

/// What a link reads.
#[derive(Debug)]
pub(crate) struct ExternalValue {
    pub(crate) value: Value,
    /// The alarm that the record raises.
    pub(crate) alarm: Option<InheritedAlarm>,
    /// The time stamp and user tag that the record takes.
    pub(crate) time: Option<(TimeStamp, i32)>,
}

/// What the record must do after a change.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) is_connection_new: bool,
    pub(crate) is_change: bool,
    /// The record's number of a put that has ended.
    pub(crate) written: Option<u8>,
    /// Whether the last value that the record has written was not sent.
    pub(crate) is_refused: bool,
}

/// Links that are not yet reported to the network.
#[derive(Debug, Default)]
pub(crate) struct PendingReports {
    n_generations: u32,
    events: Vec<Event>,
}

impl PendingReports {
    /// Adds the report of a link, and returns its identifier.
    pub(crate) fn add(
        &mut self,
        record: u32,
        field: u16,
        name: Text,
        usage: LinkUsage,
        pva: Option<Arc<PvaLink>>,
    ) -> ExternalLinkId {
        self.n_generations = self.n_generations.wrapping_add(1);
        let link = ExternalLinkId { record, field, generation: self.n_generations };
        self.events.push(Event::ExternalLinkAdded { link, name, usage, pva });
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
        pva: Option<Arc<PvaLink>>,
    ) -> ExternalPv {
        ExternalPv { link, name, follows, inherit, pva, state: Mutex::default() }
    }

    /// The kind and the maximum number of elements, while the PV is connected. Over pvAccess, which has no maximum, the
    /// number of the last update.
    pub(crate) fn facts(&self) -> Option<KindAndCount> {
        let state = self.state.lock();
        let ExternalPvFacts { kind, count_max, .. } = state.facts()?;
        let count_max = match &state.reading {
            Some(reading) if self.pva.is_some() => u32::try_from(reading.value.len().max(1)).unwrap_or(u32::MAX),
            _ => count_max,
        };
        Some(KindAndCount { kind, count_max })
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.state.lock().facts().is_some()
    }

    /// The time stamp of the latest value; `None` if it has none.
    pub(crate) fn time(&self) -> Option<TimeStamp> {
        let state = self.state.lock();
        state.reading.as_ref().map(|reading| reading.time).filter(|time| self.has_time(*time))
    }

    /// Whether this is a time stamp: over pvAccess, the value may have none.
    fn has_time(&self, time: TimeStamp) -> bool {
        self.pva.is_none() || time != TimeStamp::NEVER
    }

    /// When the connection was lost, if the record takes the time stamp of the PV.
    pub(crate) fn lost_at(&self) -> Option<TimeStamp> {
        self.pva.as_ref().filter(|pva| pva.copies_time)?;
        self.state.lock().lost_at
    }

    /// Units, limits and labels.
    pub(crate) fn meta(&self) -> Option<Arc<Meta>> {
        self.state.lock().reading.as_ref().and_then(|reading| reading.meta.clone())
    }

    pub(crate) fn status(&self) -> ExternalLinkStatus {
        let state = self.state.lock();
        let (link, is_pva) = (self.link, self.pva.is_some());
        ExternalLinkStatus { link, facts: state.facts(), is_pva, n_lost: state.n_lost }
    }

    /// Forgets the put whose completion the record waits for. Returns the record's number for it.
    pub(crate) fn take_awaited(&self) -> Option<u8> {
        self.state.lock().awaited.take().map(|(_, number)| number)
    }

    /// The latest value, converted to a kind, with what the record takes over.
    pub(crate) fn read(&self, kind: Kind) -> Result<ExternalValue, LinkError> {
        let state = self.state.lock();
        state.facts().filter(|facts| facts.may_read).ok_or(LinkError)?;
        let reading = state.reading.as_ref().ok_or(LinkError)?;
        let value = reading.value.to_kind(kind, Some(&digits(reading.meta.as_deref()))).map_err(|_| LinkError)?;
        let Some(pva) = &self.pva else {
            // Channel Access does not transfer the alarm message.
            let (status, severity) = (reading.alarm.status.0, reading.alarm.severity.code());
            let alarm = InheritedAlarm { status, severity, message: Text::EMPTY }.through(self.inherit);
            return Ok(ExternalValue { value, alarm, time: None });
        };
        let time = (reading.time, reading.user_tag);
        let time = Some(time).filter(|(time, _)| pva.copies_time && self.has_time(*time));
        Ok(ExternalValue { value, alarm: self.pva_alarm(reading), time })
    }

    /// The alarm that a link over pvAccess transfers: the status LINK with the severity and the message of the PV. As in
    /// pvxs, MSS is the same as MS.
    fn pva_alarm(&self, reading: &Reading) -> Option<InheritedAlarm> {
        let severity = reading.alarm.severity.code();
        let is_transferred = match self.inherit {
            Inherit::Not => false,
            Inherit::Invalid => severity >= INVALID,
            Inherit::Severity | Inherit::Status => severity > 0,
        };
        let message = || match &reading.message {
            Some(message) => {
                let text = message.to_str();
                text.get(..text.floor_char_boundary(STRING_BYTES_MAX)).unwrap_or_default().into()
            }
            None => reading.alarm.status.to_string().as_str().into(),
        };
        is_transferred.then(|| InheritedAlarm { status: Status::LINK.0, severity, message: message() })
    }

    /// Whether a put or forward link over pvAccess has an effect now or later; `None` for Channel Access.
    pub(crate) fn accepts_pva(&self) -> Option<bool> {
        let pva = self.pva.as_ref()?;
        Some(pva.retries || self.is_connected())
    }

    /// Converts a value to the PV's kind; over pvAccess this is left to the client, which knows the type of each field.
    /// Also returns the number of the put.
    pub(crate) fn accept(&self, value: &Value, awaited: Option<u8>) -> Result<(Value, u64), LinkError> {
        let accepts_pva = self.accepts_pva();
        let mut state = self.state.lock();
        let value = match accepts_pva {
            Some(true) => value.clone(),
            Some(false) => return Err(LinkError),
            None => state.facts().filter(|facts| facts.may_write).ok_or(LinkError)?.accepted(value)?,
        };
        state.n_puts += 1;
        let put = state.n_puts;
        if let Some(number) = awaited {
            state.awaited = Some((put, number));
        }
        Ok((value, put))
    }

    /// Stores a change of the PV, and returns what it means for the record.
    pub(crate) fn apply(&self, event: ExternalPvEvent, now: TimeStamp) -> Effects {
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
                Effects { is_connection_new: true, is_change: true, ..Effects::default() }
            }
            ExternalPvEvent::Disconnected => {
                (state.facts, state.reading) = (None, None);
                (state.n_lost, state.lost_at) = (state.n_lost + 1, Some(now));
                let written = state.awaited.take().map(|(_, number)| number);
                Effects { is_connection_new: true, is_change: true, written, ..Effects::default() }
            }
            ExternalPvEvent::PutRefused { put } => {
                Effects { is_refused: put.is_none_or(|put| put == state.n_puts), ..Effects::default() }
            }
            ExternalPvEvent::PutDone { put } => {
                let written = state.awaited.take_if(|(awaited, _)| *awaited == put).map(|(_, number)| number);
                Effects { written, ..Effects::default() }
            }
        }
    }
}

impl ExternalPvFacts {
    /// A value as a put over Channel Access sends it.
    fn accepted(&self, value: &Value) -> Result<Value, LinkError> {
        let is_name_of_state = self.kind == Kind::Enum && value.first().is_some_and(|first| first.kind() == Kind::Text);
        let kind = if is_name_of_state { Kind::Text } else { self.kind };
        match value.to_kind(kind, Some(&digits(None))).map_err(|_| LinkError)? {
            Value::Array(array) if array.is_empty() => Err(LinkError),
            Value::Array(array) => Ok(Value::Array(array.truncated(self.count_max as usize))),
            scalar => Ok(scalar),
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
            LinkExtra::Filtered { .. } | LinkExtra::Json(_) | LinkExtra::Pva(_) => None,
        }
    }
}
