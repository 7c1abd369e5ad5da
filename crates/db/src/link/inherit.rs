//! Inheritance of alarms through links (MS, MSI, MSS).

use fodo_data::{Status, Text};

use crate::link::Inherit;
use crate::menu::INVALID;

/// An alarm that a link transfers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InheritedAlarm {
    pub(crate) status: u16,
    pub(crate) severity: u16,
    pub(crate) message: Text,
}

impl InheritedAlarm {
    /// The alarm that the record with the link raises; `None`: no alarm.
    ///
    /// Source: EPICS Base 7.0, recGblInheritSevr. That MSS copies the message too was observed with softIoc.
    pub(crate) fn through(self, how: Inherit) -> Option<InheritedAlarm> {
        match how {
            Inherit::Not => None,
            Inherit::Invalid if self.severity < INVALID => None,
            Inherit::Invalid | Inherit::Severity => {
                Some(InheritedAlarm { status: Status::LINK.0, severity: self.severity, message: Text::EMPTY })
            }
            Inherit::Status => Some(self),
        }
    }
}
