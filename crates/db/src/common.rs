//! The fields that every record has.

use std::sync::Arc;

use fodo_data::{Alarm, Severity, Status, Text, TimeStamp};

use crate::field::{FieldInfo, position, record_fields};
use crate::filter::FilterChain;
use crate::link::inherit::InheritedAlarm;
use crate::link::{Inherit, TriggerCondition};
use crate::menu;

record_fields! {
    /// The fields that every record type has.
    Common
    fields {
        "NAME" name: String(61), NOMOD INTEREST0;
        "DESC" description: String(41), INTEREST0;
        "ASG" access_group: String(29), INTEREST0;
        "SCAN" scan: Menu(menu::SCAN), SCAN;
        "PINI" process_at_init: Menu(menu::PINI);
        "PHAS" phase: Short, SCAN;
        "EVNT" event: String(40), SCAN;
        "TSE" time_event: Short;
        "TSEL" time_link: InLink;
        "DTYP" device: Device;
        "DISV" disable_value: Short = 1, INTEREST0;
        "DISA" disable: Short, INTEREST0;
        "SDIS" disable_link: InLink;
        "DISP" puts_disabled: UChar;
        "PROC" process: UChar, PP INTEREST3;
        "STAT" status: Menu(menu::ALARM_STAT) = Status::UDF.0, NOMOD INTEREST0;
        "SEVR" severity: Menu(menu::ALARM_SEVR), NOMOD INTEREST0;
        "AMSG" message: String(40), NOMOD INTEREST0;
        "NSTA" new_status: Menu(menu::ALARM_STAT), NOMOD INTEREST2;
        "NSEV" new_severity: Menu(menu::ALARM_SEVR), NOMOD INTEREST2;
        "NAMSG" new_message: String(40), NOMOD INTEREST0;
        "ACKS" acknowledge_severity: Menu(menu::ALARM_SEVR), NOMOD INTEREST2;
        "ACKT" acknowledge_transient: Menu(menu::YES_NO) = menu::YES, NOMOD INTEREST2;
        "DISS" disable_severity: Menu(menu::ALARM_SEVR);
        "LCNT" lock_count: UChar, NOMOD INTEREST2;
        "PACT" is_active: UChar, NOMOD;
        "PUTF" put_process: UChar, NOMOD;
        "RPRO" reprocess: UChar, NOMOD;
        "PRIO" priority: Menu(menu::PRIORITY), SCAN;
        "TPRO" trace: UChar, INTEREST0;
        "UDF" undefined: UChar = 1, PP;
        "UDFS" undefined_severity: Menu(menu::ALARM_SEVR) = menu::INVALID;
        "UTAG" user_tag: UInt64, NOMOD INTEREST3;
        "FLNK" forward: FwdLink;
    }
    arrays {
    }
    private {
        time: TimeStamp;
        /// AMSG, as readings contain it.
        alarm_message: Option<Arc<Text>>;
        subscriptions: Option<Box<FieldSubscribers>>;
        is_in_chain: bool;
        has_failed: bool;
    }
}

/// The subscribers to a record's changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldSubscribers {
    /// The numbers of the fields whose changes are posted to clients, as in [`crate::reference::FieldRef`].
    pub(crate) posted_fields: Vec<u16>,
    /// Records with a CP or CPP link to a field of this record.
    pub(crate) followers: Vec<Follower>,
    /// The filters of followers whose links have filters.
    pub(crate) filtered_followers: Vec<FilteredFollower>,
}

/// The filters between a field and a follower.
#[derive(Clone, Debug)]
pub(crate) struct FilteredFollower {
    pub(crate) follower: Follower,
    pub(crate) chain: FilterChain,
    /// Whether the filters have received the follower's first value.
    pub(crate) is_primed: bool,
}

/// A record that processes when a field of another record changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Follower {
    pub(crate) field: u16,
    pub(crate) record: u32,
    /// The link field.
    pub(crate) link_field: u16,
    pub(crate) when: TriggerCondition,
    /// Whether changes pass through filters first.
    pub(crate) is_filtered: bool,
}

impl Common {
    /// The number of common fields. The fields of the record type are numbered from here.
    pub(crate) const COUNT: u16 = Common::ROWS.len() as u16;

    /// The number of a common field.
    pub(crate) const fn at(name: &str) -> u16 {
        position(Common::ROWS, name)
    }

    /// Raises an alarm during processing. Among alarms of the highest severity, the first one is kept.
    pub(crate) fn raise(&mut self, status: Status, severity: u16) -> bool {
        self.raise_with_message(status, severity, Text::EMPTY)
    }

    /// Sets AMSG.
    pub(crate) fn set_message(&mut self, message: Text) {
        self.alarm_message = (!message.is_empty()).then(|| Arc::new(message.clone()));
        self.message = message;
    }

    /// As [`Common::raise`], with a message for AMSG.
    pub(crate) fn raise_with_message(&mut self, status: Status, severity: u16, message: Text) -> bool {
        if self.new_severity >= severity {
            return false;
        }
        self.new_status = status.0;
        self.new_severity = severity;
        self.new_message = message;
        true
    }

    /// Raises the alarm that a link transfers.
    pub(crate) fn inherit(&mut self, how: Inherit, alarm: InheritedAlarm) {
        if let Some(InheritedAlarm { status, severity, message }) = alarm.through(how) {
            self.raise_with_message(Status(status), severity, message);
        }
    }

    /// Prepares the target of a link for processing: passes PUTF on. If the record is active outside this chain and the
    /// chain came from a put, sets RPRO instead.
    ///
    /// Source: EPICS Base 7.0, processTarget.
    pub(crate) fn prepare_target(&mut self, put_process: u8) {
        if self.is_active == 0 {
            self.put_process = put_process;
        } else if put_process != 0 && !self.is_in_chain {
            self.put_process = 0;
            self.reprocess = 1;
        }
    }

    /// Ends processing. Returns whether the record must be processed once more (RPRO).
    pub(crate) fn finish(&mut self) -> bool {
        self.put_process = 0;
        self.is_active = 0;
        self.is_in_chain = false;
        std::mem::take(&mut self.reprocess) != 0
    }

    /// The record's alarm.
    pub(crate) fn alarm(&self) -> Alarm {
        Alarm { severity: Severity::from_code(self.severity), status: Status(self.status) }
    }
}

/// The row of a field by number. `own`: the rows of the record type, which follow the common ones.
pub(crate) fn row(own: &'static [FieldInfo], field: u16) -> Option<&'static FieldInfo> {
    match Common::ROWS.get(usize::from(field)) {
        Some(row) => Some(row),
        None => own.get(usize::from(field - Common::COUNT)),
    }
}

/// The number of a field by name.
pub(crate) fn number(own: &'static [FieldInfo], name: &str) -> Option<u16> {
    let find = |rows: &[FieldInfo]| rows.iter().position(|row| row.name == name);
    match find(own) {
        Some(index) => Some(Common::COUNT + index as u16),
        None => find(Common::ROWS).map(|index| index as u16),
    }
}
