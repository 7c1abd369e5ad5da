//! Inheritance of alarms through links (MS, MSI, MSS).

use fodo_data::{Status, Text};

use crate::common::Common;
use crate::link::Inherit;

/// An alarm that a link transfers.
pub(crate) struct InheritedAlarm {
    pub(crate) status: u16,
    pub(crate) severity: u16,
    pub(crate) message: Text,
}

/// Raises an inherited alarm.
///
/// Source: EPICS Base 7.0, recGblInheritSevr. That MSS copies the message too was observed with softIoc.
pub(crate) fn inherit(common: &mut Common, how: Inherit, alarm: InheritedAlarm) {
    match how {
        Inherit::Not => {}
        Inherit::Invalid if alarm.severity < 3 => {}
        Inherit::Invalid | Inherit::Severity => {
            common.raise(Status::LINK, alarm.severity);
        }
        Inherit::Status => {
            common.raise_saying(Status(alarm.status), alarm.severity, alarm.message);
        }
    }
}
