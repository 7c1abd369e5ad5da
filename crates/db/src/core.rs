//! The records of a database, and the operations that do not process: name lookup, field properties, metadata,
//! conversions.

use std::collections::HashMap;
use std::sync::Arc;

use fodo_data::{AcknowledgeState, ConvertError, Kind, Meta, STRING_BYTES, Scalar, Severity, Text, TimeStamp, Value};
use fodo_lock::Mutex;

use crate::breaktable::BreakTable;
use crate::common::{Common, FilteredFollower, Follower, number, row};
use crate::device::{DeviceSupport, INERT, choices};
use crate::error::PutError;
use crate::external_pv::{LinkUsage, PvaLink};
use crate::field::{ASL0, DEVICE, Dbf, NOMOD, NUMBERED, Slot};
use crate::filter::{ChannelError, ChannelField, FilterChain, FilterContext, FilterError, FilterFault, filters};
use crate::hash::NameMap;
use crate::limit::{LINK_TEXT_BYTES, META_DEPTH_MAX};
use crate::link::external::{DIGITS, ExternalPv, PendingReports, digits};
use crate::link::{Link, LinkExtra, Modifiers, Target};
use crate::meta::empty;
use crate::record::contract::{LockedRecord, Record, labels, with};
use crate::reference::{AccessLevel, FieldFacts, FieldRef, KindAndCount, LONG_STRING, RTYP};
use crate::scan_menu::ScanMenu;
use crate::site::Site;
use crate::state::States;

/// Marks a precision that the record type did not set.
const UNSAID: i16 = i16::MIN;

/// Breakpoint tables by name.
pub(crate) type BreakTables = HashMap<String, Arc<BreakTable>>;

/// The records. Their number is fixed once the database runs.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) records: Vec<Box<dyn LockedRecord>>,
    /// By name and alias.
    pub(crate) index: NameMap<u32>,
    /// In the order of loading.
    pub(crate) names: Vec<Text>,
    pub(crate) tables: BreakTables,
    pub(crate) site: Arc<dyn Site>,
    pub(crate) states: States,
    pub(crate) scan_menu: ScanMenu,
    /// Links to other IOCs that are not yet reported to the caller.
    pub(crate) pending_reports: Mutex<PendingReports>,
    /// The names of device supports that are not available; see [`crate::device::INERT`].
    pub(crate) devices: Vec<Text>,
    /// Whether a program sets and takes values.
    pub(crate) has_program: bool,
}

impl Core {
    pub(crate) fn cell(&self, record: u32) -> Option<&dyn LockedRecord> {
        self.records.get(record as usize).map(|cell| &**cell)
    }

    /// Locks a record briefly.
    pub(crate) fn with<T>(&self, record: u32, visit: impl FnOnce(&mut dyn Record) -> T) -> Option<T> {
        with(self.cell(record)?, visit)
    }

    /// The field that a channel name without filters selects.
    pub(crate) fn find(&self, name: &str) -> Option<FieldRef> {
        let (field, rest) = self.find_part(name)?;
        match rest {
            "" => Some(field),
            "$" => self.as_characters(field),
            _ => None,
        }
    }

    /// The field at the start of a name, and the rest of the name: `$`, a range, filters, or invalid text.
    ///
    /// Source: EPICS Base 7.0, dbFindRecordPart and dbFindFieldPart.
    pub(crate) fn find_part<'n>(&self, name: &'n str) -> Option<(FieldRef, &'n str)> {
        // Byte by byte: for short names, the standard character search costs more than the rest of this function.
        let end = name.bytes().position(|byte| byte == b'.').unwrap_or(name.len());
        let (record, rest) = name.split_at_checked(end)?;
        let record = *self.index.get(record.as_bytes())?;
        let kind = self.cell(record)?.record_type();
        let Some(rest) = rest.strip_prefix('.') else { return Some((FieldRef { record, field: kind.value }, rest)) };
        let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let n_bytes = match rest.starts_with(|first: char| first.is_ascii_digit()) {
            true => 0,
            false => rest.find(|character| !is_part(character)).unwrap_or(rest.len()),
        };
        let (field, rest) = rest.split_at_checked(n_bytes)?;
        let field = match field {
            "" => kind.value,
            "RTYP" => RTYP,
            field => number(kind.rows, field)?,
        };
        Some((FieldRef { record, field }, rest))
    }

    /// The long string form of a text, of the first element of a text array, or of a link.
    pub(crate) fn as_characters(&self, FieldRef { record, field }: FieldRef) -> Option<FieldRef> {
        let cell = self.cell(record)?;
        let row = row(cell.record_type().rows, field).filter(|_| field != RTYP)?;
        let is_text_array = || matches!(cell.own_kind_and_count(field).0, Some(KindAndCount { kind: Kind::Text, .. }));
        let is_text = row.dbf == Dbf::String || row.dbf.is_link() || row.dbf == Dbf::Array && is_text_array();
        is_text.then_some(FieldRef { record, field: field | LONG_STRING })
    }

    /// The field and the filters that a channel name selects.
    pub(crate) fn channel(&self, name: &str) -> Result<ChannelField, ChannelError> {
        let (field, rest) = self.find_part(name).ok_or(ChannelError::Unknown)?;
        let at = name.len() - rest.len();
        let (field, rest_at) = match rest.starts_with('$') {
            true => (self.as_characters(field), at + 1),
            false => (Some(field), at),
        };
        let no_text = FilterError { at, fault: FilterFault::NotText };
        let field = field.ok_or(ChannelError::Filter(no_text))?;
        let filters = filters(name, rest_at, &self.states).map_err(ChannelError::Filter)?;
        Ok(ChannelField { field, filters })
    }

    pub(crate) fn facts(&self, FieldRef { record, field }: FieldRef) -> FieldFacts {
        let number = field & !LONG_STRING;
        let (record_type, row, own, text_size) = match self.cell(record) {
            Some(cell) => {
                let kind = cell.record_type();
                let (own, text_size) = cell.own_kind_and_count(number);
                (kind.name, row(kind.rows, number), own, text_size)
            }
            None => ("", None, None, 0),
        };
        let Some(row) = row.filter(|_| field != RTYP) else {
            return FieldFacts { kind: Kind::Text, count_max: 1, is_read_only: true, record_type };
        };
        let (kind, count_max) = match own {
            Some(KindAndCount { kind: Kind::Text, .. }) if field & LONG_STRING != 0 => (Kind::U8, STRING_BYTES as u32),
            Some(KindAndCount { kind, count_max }) => (kind, count_max),
            None if field & LONG_STRING == 0 => (row.dbf.kind(), 1),
            None if row.dbf.is_link() => (Kind::U8, LINK_TEXT_BYTES),
            None if row.size == 0 => (Kind::U8, text_size.into()),
            None => (Kind::U8, u32::from(row.size)),
        };
        FieldFacts { kind, count_max, is_read_only: row.has(NOMOD), record_type }
    }

    /// The context that the filters of a field of this record need.
    pub(crate) fn filter_context(&self, record: u32, now: TimeStamp) -> FilterContext<'_> {
        let user_tag = self.with(record, |body| body.common().user_tag).unwrap_or_default();
        FilterContext { now, user_tag, site: &*self.site }
    }

    pub(crate) fn name(&self, FieldRef { record, field }: FieldRef) -> String {
        let name = self.names.get(record as usize).cloned().unwrap_or_default();
        let row = self.cell(record).and_then(|cell| row(cell.record_type().rows, field & !LONG_STRING));
        let field_name = row.filter(|_| field != RTYP).map_or("RTYP", |row| row.name);
        let mark = if field & LONG_STRING == 0 { "" } else { "$" };
        format!("{}.{field_name}{mark}", name.to_str())
    }

    pub(crate) fn access_level(&self, FieldRef { record, field }: FieldRef) -> AccessLevel {
        let row = self.cell(record).and_then(|cell| row(cell.record_type().rows, field & !LONG_STRING));
        match row.is_some_and(|row| row.has(ASL0)) {
            true => AccessLevel::Asl0,
            false => AccessLevel::Asl1,
        }
    }

    /// Units, limits, labels and acknowledge state, as clients read them, and what `visit` returns. The record is locked
    /// once for both.
    pub(crate) fn meta_and<T>(
        &self,
        FieldRef { record, field }: FieldRef,
        visit: impl FnOnce(&mut dyn Record) -> T,
    ) -> (Meta, Option<T>) {
        let (mut visit, mut visited) = (Some(visit), None);
        let mut meta = self.meta_of(record, field & !LONG_STRING, META_DEPTH_MAX, &mut |body| {
            let common = body.common();
            let acknowledge = AcknowledgeState {
                transient: common.acknowledge_transient != 0,
                severity: Severity::from_code(common.acknowledge_severity),
            };
            visited = visit.take().map(|visit| (acknowledge, visit(body)));
        });
        if !self.has_precision(FieldRef { record, field }) {
            meta.precision = 0;
        }
        let (acknowledge, visited) = visited.unzip();
        meta.acknowledge = acknowledge;
        (meta, visited)
    }

    /// Whether clients and links read a precision of this field: only floating-point numbers have one. A conversion to
    /// text uses the precision of the record for other fields, too.
    ///
    /// Source: EPICS Base 7.0, getOptions.
    fn has_precision(&self, field: FieldRef) -> bool {
        matches!(self.facts(field).kind, Kind::F32 | Kind::F64)
    }

    /// Units, limits and labels, as conversions use them. `visit` receives the record while it is locked.
    fn meta_of(&self, record: u32, field: u16, depth: u8, visit: &mut dyn FnMut(&mut dyn Record)) -> Meta {
        let mut meta = empty();
        let Some(cell) = self.cell(record) else { return meta };
        let kind = cell.record_type();
        let Some(own) = row(kind.rows, field) else {
            with(cell, visit);
            return meta;
        };
        match own.dbf {
            Dbf::Float | Dbf::Double | Dbf::String => meta.precision = UNSAID,
            Dbf::Menu => meta.labels = labels(&self.scan_menu.choices_of(own)),
            Dbf::Device => {
                meta.labels = labels(choices(kind.devices, self.has_program));
                let device = with(cell, |body| body.common().device).and_then(|device| device.checked_sub(INERT));
                let inert = device.and_then(|index| self.devices.get(usize::from(index)).cloned());
                meta.label_for_unlabelled = Some(inert.unwrap_or(Text::EMPTY));
            }
            _ => {}
        }
        let linked = with(cell, |body| {
            visit(body);
            body.meta(field, &mut meta)
        });
        let linked = linked.flatten();
        if meta.precision == UNSAID {
            // If the record type sets no precision, Base prints six digits and reports precision 0 to clients.
            (meta.precision, meta.text_digits) = (0, Some(DIGITS));
        }
        if let (Some(Target::Field { record, field, .. }), Some(depth)) = (linked, depth.checked_sub(1)) {
            let there = self.meta_of(record, field, depth, &mut |_| ());
            let precision = if self.has_precision(FieldRef { record, field }) { there.precision } else { 0 };
            return Meta { control: meta.control, precision, ..there };
        }
        meta
    }

    fn conversion_meta(&self, record: u32, field: u16) -> Meta {
        self.meta_of(record, field, META_DEPTH_MAX, &mut |_| ())
    }

    /// Converts a field's value to the kind that a link reads. As for a client, an element of an array of ENUM is not a
    /// text, because no state has a name.
    pub(crate) fn convert(&self, record: u32, field: u16, value: Value, kind: Kind) -> Result<Value, ConvertError> {
        if value.kind() == kind {
            return Ok(value);
        }
        if kind == Kind::Text {
            let meta = self.conversion_meta(record, field);
            let has_names = !meta.labels.is_empty() || meta.label_for_unlabelled.is_some();
            if value.kind() == Kind::Enum && !value.is_empty() && !has_names {
                return Err(ConvertError::NoSuchState(Text::EMPTY));
            }
            return value.to_kind(kind, Some(&meta));
        }
        value.to_kind(kind, None)
    }

    /// As [`Core::convert`], for a link through a channel: a number becomes a text with C's default number of digits,
    /// whatever the target's PREC.
    pub(crate) fn convert_for_channel(
        &self,
        record: u32,
        field: u16,
        value: Value,
        kind: Kind,
    ) -> Result<Value, ConvertError> {
        if kind == Kind::Text && matches!(value.kind(), Kind::F32 | Kind::F64) {
            return value.to_kind(kind, Some(&digits(None)));
        }
        self.convert(record, field, value, kind)
    }

    /// Converts the first element of a value to the kind of a scalar field.
    pub(crate) fn to_field(&self, record: u32, field: u16, value: &Value) -> Result<Value, PutError> {
        let Some(row) = self.cell(record).and_then(|cell| row(cell.record_type().rows, field)) else {
            return Err(PutError::ReadOnly);
        };
        let kind = row.dbf.kind();
        let scalar = value.first().ok_or(PutError::Convert(ConvertError::Empty))?;
        if scalar.kind() == kind {
            return Ok(Value::Scalar(scalar));
        }
        let facts_kind = self.facts(FieldRef { record, field }).kind;
        if let (Kind::Enum, Kind::U16, Scalar::Text(text)) = (kind, facts_kind, &scalar) {
            // An mbbo without states is a plain number; a text is parsed as for an array element, as in Base.
            if text.is_empty() {
                return Err(PutError::Convert(ConvertError::NotANumber(text.clone())));
            }
            let number = scalar.to_kind(Kind::U16, None).and_then(|number| number.to_kind(kind, None));
            return number.map(Value::Scalar).map_err(PutError::Convert);
        }
        let needs_labels = kind == Kind::Enum && scalar.kind() == Kind::Text;
        // A number is converted to text with the precision of the receiving record, as in Base.
        let needs_digits = kind == Kind::Text && matches!(scalar.kind(), Kind::F32 | Kind::F64);
        let meta = (needs_labels || needs_digits).then(|| self.conversion_meta(record, field));
        if let (Some(meta), Scalar::Text(text)) = (&meta, &scalar)
            && facts_kind == Kind::Enum
            && meta.labels.is_empty()
        {
            // If no state has a name, Base rejects every text, even a number.
            return Err(PutError::Convert(ConvertError::NoSuchState(text.clone())));
        }
        if let (Some(meta), Scalar::Text(text)) = (&meta, &scalar)
            && row.has(NUMBERED)
            && !text.is_empty()
            && !meta.labels.contains(text)
            && let Ok(Scalar::U16(index)) = scalar.to_kind(Kind::U16, None)
            && usize::from(index) < meta.labels.len()
        {
            // For mbbo only, any text may follow the number of the state, as in Base.
            return Ok(Value::Scalar(Scalar::Enum(index)));
        }
        scalar.to_kind(kind, meta.as_ref()).map(Value::Scalar).map_err(PutError::Convert)
    }

    pub(crate) fn is_link(&self, record: u32, field: u16) -> bool {
        let row = self.cell(record).and_then(|cell| row(cell.record_type().rows, field));
        row.is_some_and(|row| row.dbf.is_link())
    }

    /// Resolves the target of a link, and registers a CP link with its target.
    pub(crate) fn join(&self, record: u32, field: u16, mut link: Link) -> Link {
        if let Some(LinkExtra::Json(json)) = link.extra().map(|extra| &**extra) {
            json.open(&self.states);
        }
        if self.with(record, |body| DeviceSupport::of(body)) == Some(DeviceSupport::State) && !link.address().is_empty()
        {
            self.states.create(&link.address().to_str());
        }
        if let Some(LinkExtra::Pva(pva)) = link.extra().map(|extra| &**extra) {
            let pva = pva.clone();
            self.set_external(record, field, pva.pv.clone(), Some(pva), false, &mut link);
            return link;
        }
        let Some(name) = link.name().cloned() else { return link };
        let (name, is_time) = match name.to_str().strip_suffix(".TIME") {
            Some(record_name) if field == const { Common::at("TSEL") } => (Text::from(record_name), true),
            _ => (name, false),
        };
        let text = name.to_str();
        let record_name = text.split_once('.').map_or(&*text, |(record_name, _)| record_name);
        if !self.index.contains_key(record_name.as_bytes()) {
            self.set_external(record, field, name.clone(), None, is_time, &mut link);
            return link;
        }
        // A link to an invalid field keeps the target `Missing`.
        if let Ok(ChannelField { field: found, filters }) = self.channel(&name.to_str()) {
            let mut facts = self.facts(found);
            let chain = (!filters.is_empty()).then(|| FilterChain::new(filters, &mut facts));
            if let Some(chain) = &chain {
                link.filter(chain.clone(), facts);
            }
            if self.is_input_of_async_device(record, field) {
                link.remove_trigger();
            }
            let modifiers = Modifiers { is_time, ..link.modifiers() };
            link.set_target(Target::Field { record: found.record, field: found.field, modifiers });
            if let Some(when) = modifiers.follows(field) {
                let follower =
                    Follower { field: found.field, record, link_field: field, when, is_filtered: chain.is_some() };
                self.with(found.record, |body| {
                    let subscriptions = body.common().subscriptions.get_or_insert_default();
                    subscriptions.followers.push(follower);
                    subscriptions.filtered_followers.extend(chain.map(|chain| FilteredFollower {
                        follower,
                        chain,
                        is_primed: false,
                    }));
                });
            }
        }
        link
    }

    /// Whether the field is the INP of a record with Async Soft Channel.
    fn is_input_of_async_device(&self, record: u32, field: u16) -> bool {
        let row = self.cell(record).and_then(|cell| row(cell.record_type().rows, field));
        row.is_some_and(|row| row.has(DEVICE) && row.dbf == Dbf::InLink)
            && self.with(record, |body| DeviceSupport::of(body)) == Some(DeviceSupport::Async)
    }

    /// Makes a PV outside this database, or any PV over pvAccess, the target of a link, and queues the report of it.
    fn set_external(
        &self,
        record: u32,
        field: u16,
        name: Text,
        pva: Option<Arc<PvaLink>>,
        is_time: bool,
        link: &mut Link,
    ) {
        let row = self.cell(record).and_then(|cell| row(cell.record_type().rows, field));
        let usage = if row.is_some_and(|row| row.dbf == Dbf::InLink) { LinkUsage::Reads } else { LinkUsage::Writes };
        let id = self.pending_reports.lock().add(record, field, name.clone(), usage, pva.clone());
        let modifiers = link.modifiers();
        link.set_external(ExternalPv::new(id, name, modifiers.follows(field), modifiers.inherit, pva), is_time);
    }

    /// Unregisters a link from its target, before the link changes.
    pub(crate) fn unregister_follower(&self, record: u32, field: u16) {
        let target = self.with(record, |body| match body.slot(field) {
            Some(Slot::InLink(link)) => link.target(),
            _ => Target::Constant,
        });
        if let Some(Target::Field { record: followed, .. }) = target {
            self.with(followed, |body| {
                if let Some(subscriptions) = &mut body.common().subscriptions {
                    subscriptions
                        .followers
                        .retain(|follower| (follower.record, follower.link_field) != (record, field));
                    subscriptions
                        .filtered_followers
                        .retain(|filtered| (filtered.follower.record, filtered.follower.link_field) != (record, field));
                }
            });
        }
    }
}
