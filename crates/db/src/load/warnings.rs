//! Warnings of `fodo check`: statements that load but are probably mistakes, with their places.

use std::collections::HashMap;

use fodo_data::{Scalar, Text};

use crate::common::{Common, number, row};
use crate::device::INERT;
use crate::external_pv::PvaLink;
use crate::field::{FieldInfo, NOMOD, Slot};
use crate::link::pva_link::ParsedPvaLink;
use crate::link::{LinkKind, Modifiers, ParsedLink, Trigger, parse};
use crate::load::error::suggestion;
use crate::load::{LoadError, Loader};
use crate::menu;
use crate::record::contract::{RecordType, with};
use crate::record::registry::find;

/// A field that a file sets, with its place.
#[derive(Debug)]
pub(crate) struct FieldPlace {
    pub(crate) record: u32,
    pub(crate) field: u16,
    pub(crate) text: Text,
    /// The place of the value; the message is empty.
    pub(crate) at: LoadError,
}

/// Every modifier of a link.
const MODIFIERS: [&str; 9] = ["NPP", "PP", "CPP", "CP", "CA", "NMS", "MS", "MSI", "MSS"];

/// Alarm limits and the fields of their severities.
const LIMITS: [(&str, &str); 4] = [("HIHI", "HHSV"), ("HIGH", "HSV"), ("LOW", "LSV"), ("LOLO", "LLSV")];

/// Pairs of limits; the first must not be above the second.
const RANGES: [(&str, &str); 2] = [("LOPR", "HOPR"), ("DRVL", "DRVH")];

/// Pairs of alarm limits; the first never raises an alarm if it is above the second.
const ORDER: [(&str, &str); 2] = [("HIGH", "HIHI"), ("LOLO", "LOW")];

/// Whether there are warnings about a field. The places of other fields are not kept.
pub(crate) fn has_warnings(row: &FieldInfo) -> bool {
    let is_limit = LIMITS.iter().any(|(limit, _)| *limit == row.name);
    let is_range = RANGES.iter().any(|(_, high)| *high == row.name);
    row.dbf.is_link() || is_limit || is_range || ["SCAN", "OMSL", "SNAM"].contains(&row.name)
}

impl Loader {
    /// Makes a loader that keeps the place of every field, for [`Loader::warnings`].
    pub fn with_places() -> Loader {
        Loader { keeps_places: true, ..Loader::default() }
    }

    /// Warnings about probable mistakes, in the order of loading: links to unknown records, modifiers and limits
    /// without effect. Empty if the loader keeps no places.
    pub fn warnings(&self) -> Vec<LoadError> {
        if !self.keeps_places {
            return Vec::new();
        }
        let mut found = self.warnings.clone();
        let placed = &self.placed;
        let mut last: HashMap<(u32, u16), usize> = HashMap::new();
        for (index, placed) in placed.iter().enumerate() {
            last.insert((placed.record, placed.field), index);
        }
        for (index, placed) in placed.iter().enumerate() {
            let counts = last.get(&(placed.record, placed.field)) == Some(&index);
            if !counts || self.deleted.contains(&placed.record) {
                continue;
            }
            let Some(messages) = self.check_field(placed) else { continue };
            found.extend(messages.into_iter().map(|message| LoadError { message, ..placed.at.clone() }));
        }
        found
    }

    fn check_field(&self, placed: &FieldPlace) -> Option<Vec<String>> {
        let kind = self.kind(placed.record)?;
        let row = row(kind.rows, placed.field)?;
        let messages = if row.dbf.is_link() {
            self.check_link(placed, row)
        } else {
            self.check_value(placed, row).into_iter().collect()
        };
        Some(messages)
    }

    fn check_value(&self, placed: &FieldPlace, row: &FieldInfo) -> Option<String> {
        let record = placed.record;
        if row.name == "SCAN" {
            return self.check_scan(record);
        }
        if row.name == "OMSL"
            && self.menu(record, "OMSL") == Some(menu::CLOSED_LOOP)
            && self.text(record, "DOL").is_some_and(|dol| dol.is_empty())
        {
            return Some("OMSL is closed_loop but DOL is empty, so no value is read".into());
        }
        if let Some((limit, severity)) = LIMITS.iter().find(|(limit, _)| *limit == row.name)
            && self.menu(record, severity) == Some(menu::NO_ALARM)
        {
            return Some(format!("{limit} is set but {severity} is NO_ALARM, so it raises no alarm"));
        }
        if row.name == "SNAM" {
            let name = self.text(record, "SNAM").filter(|name| !name.is_empty())?;
            let is_here = match self.kind(record)?.name {
                "aSub" => self.routines.find_array(&name.to_str()).is_some(),
                _ => self.routines.find(&name.to_str()).is_some(),
            };
            return (!is_here)
                .then(|| format!("no routine \"{name}\" is registered, so the record only goes into alarm"));
        }
        let (low, high) = RANGES.iter().chain(&ORDER).find(|(_, high)| *high == row.name)?;
        if ORDER.contains(&(low, high)) && !self.alarms(record, low) {
            return None;
        }
        let (below, above) = (self.real(record, low)?, self.real(record, high)?);
        (below > above).then(|| format!("{low} ({below}) is above {high} ({above})"))
    }

    /// Whether a limit can raise an alarm.
    fn alarms(&self, record: u32, limit: &str) -> bool {
        let severity = LIMITS.iter().find(|(name, _)| *name == limit).and_then(|(_, field)| self.menu(record, field));
        severity.is_some_and(|severity| severity != menu::NO_ALARM)
    }

    fn check_scan(&self, record: u32) -> Option<String> {
        match self.menu(record, "SCAN")? {
            menu::IO_INTERRUPT => {
                let kind = self.kind(record)?;
                let device =
                    self.menu(record, "DTYP").and_then(|device| kind.devices.get(usize::from(device)).copied());
                let is_inert =
                    find(kind.name).is_none() || self.menu(record, "DTYP").is_some_and(|device| device >= INERT);
                let is_soft = !is_inert && device.is_none_or(|device| device.ends_with("Soft Channel"));
                let is_silent = is_soft && !kind.is_interrupted_by_links();
                is_silent
                    .then(|| "a soft record has no interrupts, so with SCAN \"I/O Intr\" it is never processed".into())
            }
            menu::EVENT if self.text(record, "EVNT").is_some_and(|event| event.is_empty()) => {
                Some("SCAN is Event but EVNT is empty, so the record is never processed".into())
            }
            _ => None,
        }
    }

    fn check_link(&self, placed: &FieldPlace, row: &FieldInfo) -> Vec<String> {
        let text = placed.text.to_str();
        let link_kind = row.link_kind();
        let (name, modifiers) = match parse(&text, link_kind) {
            ParsedLink::Name { name, modifiers } => (name, modifiers),
            ParsedLink::Pva(parsed) => return self.check_pva_link(&parsed, row),
            _ => return Vec::new(),
        };
        let is_plain = matches!(link_kind, LinkKind::PlainIn | LinkKind::PlainOut);
        let mut messages = if is_plain { Vec::new() } else { modifiers_of(&text, row, link_kind) };
        let (record_name, field_name) = name.split_once('.').unwrap_or((&name, ""));
        let field_name = field_name.split(['$', '{', '[']).next().unwrap_or_default();
        let Some(&there) = self.index.get(record_name.as_bytes()) else {
            if self.omitted_records.contains(record_name) {
                return messages;
            }
            let guess = self.suggestions.suggestion(record_name, self.names.iter());
            let is_vain = link_kind == LinkKind::Forward && field_name != "PROC";
            let vain =
                if is_vain { "; a forward link to another IOC has no effect unless its target is PROC" } else { "" };
            let what = format!("{} is a link to \"{record_name}\", which is not in these files", row.name);
            messages.push(format!("{what}{guess}{vain}"));
            return messages;
        };
        let Some(kind) = self.kind(there) else { return messages };
        let field = if field_name.is_empty() { Some(kind.value) } else { number(kind.rows, field_name) };
        let Some(field) = field else {
            // The fields of an unknown record type are not known.
            if !["RTYP", "TIME"].contains(&field_name) && find(kind.name).is_some() {
                let names = kind.rows.iter().chain(Common::ROWS).map(|row| row.name);
                let guess = suggestion(field_name, names);
                messages.push(format!("record \"{record_name}\" ({}) has no field \"{field_name}\"{guess}", kind.name));
            }
            return messages;
        };
        messages.extend(self.check_target(placed, link_kind, modifiers, (there, field)));
        messages
    }

    fn check_pva_link(&self, parsed: &ParsedPvaLink, row: &FieldInfo) -> Vec<String> {
        let is_output = row.link_kind() != LinkKind::In;
        let mut messages: Vec<String> = Vec::new();
        for option in &parsed.ineffective {
            let users = if is_output { "inputs" } else { "outputs" };
            messages.push(format!("{option} has no effect in {}: it is an option of {users}", row.name));
        }
        let PvaLink { pv, is_local, .. } = &*parsed.link;
        let name = pv.to_str();
        let record_name = name.split_once('.').map_or(&*name, |(record_name, _)| record_name);
        let is_here = self.index.contains_key(record_name.as_bytes()) || self.omitted_records.contains(record_name);
        if is_here || self.is_group(&name) {
            return messages;
        }
        let guess = self.suggestions.suggestion(record_name, self.names.iter());
        let what = format!("{} is a link to \"{name}\", which is not in these files", row.name);
        let demand = if *is_local { ", and local demands that it is in this IOC" } else { "" };
        messages.push(format!("{what}{guess}{demand}"));
        messages
    }

    /// Whether an info item makes a group of this name.
    fn is_group(&self, name: &str) -> bool {
        let groups = self.infos.iter().filter(|(_, info, _)| info.as_bytes() == b"Q:group");
        groups.into_iter().any(|(.., value)| value.to_str().contains(&format!("\"{name}\"")))
    }

    /// Checks a link to a known field.
    fn check_target(
        &self,
        placed: &FieldPlace,
        link_kind: LinkKind,
        modifiers: Modifiers,
        there: (u32, u16),
    ) -> Option<String> {
        let (record, field) = there;
        let target = row(self.kind(record)?.rows, field)?;
        if matches!(link_kind, LinkKind::Out | LinkKind::PlainOut) && target.has(NOMOD) {
            return Some(format!("{} is read-only", target.name));
        }
        if record == placed.record && link_kind == LinkKind::Forward {
            return Some("the forward link is to its own record, which has no effect".into());
        }
        if link_kind == LinkKind::Forward && modifiers.trigger == Trigger::Channel && target.name != "PROC" {
            return Some("a forward link through a channel (CA) has no effect unless its target is PROC".into());
        }
        let scan = self.menu(record, "SCAN").filter(|scan| *scan != menu::PASSIVE)?;
        let processes =
            (link_kind == LinkKind::Forward || modifiers.trigger == Trigger::Passive) && target.name != "PROC";
        let rate = &self.scan_menu.rates().get(usize::from(scan))?.choice;
        processes.then(|| {
            let what = if link_kind == LinkKind::Forward { "a forward link" } else { "PP" };
            format!("the linked record has SCAN \"{rate}\"; {what} processes only passive records")
        })
    }

    fn kind(&self, record: u32) -> Option<&'static RecordType> {
        self.records.get(record as usize).map(|cell| cell.record_type())
    }

    fn scalar(&self, record: u32, field: &str) -> Option<Scalar> {
        let cell = self.records.get(record as usize)?;
        let field = number(cell.record_type().rows, field)?;
        with(&**cell, |body| body.slot(field).and_then(|slot: Slot<'_>| slot.value().first())).flatten()
    }

    fn menu(&self, record: u32, field: &str) -> Option<u16> {
        match self.scalar(record, field)? {
            Scalar::Enum(index) => Some(index),
            _ => None,
        }
    }

    fn text(&self, record: u32, field: &str) -> Option<Text> {
        match self.scalar(record, field)? {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    fn real(&self, record: u32, field: &str) -> Option<f64> {
        match self.scalar(record, field)? {
            Scalar::F64(number) => Some(number),
            Scalar::I32(number) => Some(f64::from(number)),
            _ => None,
        }
    }
}

/// Checks the modifiers of a link.
fn modifiers_of(text: &str, row: &FieldInfo, link_kind: LinkKind) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().skip(1).collect();
    let mut messages = Vec::new();
    for word in &words {
        if !MODIFIERS.contains(word) {
            let guess = suggestion(word, MODIFIERS.into_iter());
            let all = if guess.is_empty() { format!("; there are {}", MODIFIERS.join(" ")) } else { guess };
            messages.push(format!("\"{word}\" is not a link modifier{all}"));
        } else if link_kind != LinkKind::In && ["CP", "CPP"].contains(word) {
            messages.push(format!(
                "{word} has no effect in {row}: only input links can process on changes",
                row = row.name
            ));
        }
    }
    for group in [&MODIFIERS[..5], &MODIFIERS[5..]] {
        let said: Vec<&str> = words.iter().copied().filter(|word| group.contains(word)).collect();
        if let [first, second, ..] = said.as_slice() {
            messages.push(format!("{first} and {second} cannot be combined"));
        }
    }
    messages
}
