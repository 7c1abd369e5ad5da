//! The uses of open operations, and their pvRequests.

use std::borrow::Cow;
use std::sync::LazyLock;

use fodo_data::EventMask;
use fodo_pva::client::PreparedRequest;
use fodo_pva::request::{PvRequest, RequestedField};

use crate::client::{Detail, Failure, MonitorOptions};

/// What an open operation of a channel is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationUse {
    GetValue,
    GetAlarm,
    GetTime,
    GetAll,
    Put,
    PutUnconfirmed,
}

/// The number of uses.
pub(super) const N_USES: usize = 6;

/// The pvRequest of each use.
static OF_USES: LazyLock<[PreparedRequest; N_USES]> = LazyLock::new(|| {
    [
        prepared(&["value"], &[]),
        prepared(&["value", "alarm"], &[]),
        prepared(&["value", "alarm", "timeStamp"], &[]),
        prepared(&[], &[]),
        // Servers reply when the record has been processed.
        prepared(&["value"], &[("block", "true")]),
        prepared(&["value"], &[]),
    ]
});

/// The pvRequests of monitors of each get's attributes, with the default mask.
static OF_MONITORS: LazyLock<[PreparedRequest; 4]> = LazyLock::new(|| {
    [OperationUse::GetValue, OperationUse::GetAlarm, OperationUse::GetTime, OperationUse::GetAll]
        .map(|of| prepared(of.fields(), &[]))
});

impl OperationUse {
    /// The get with these attributes. Fails if they are of Channel Access only.
    #[inline]
    pub(super) fn of_get(detail: Detail) -> Result<OperationUse, Failure> {
        match detail {
            Detail::Value => Ok(OperationUse::GetValue),
            Detail::Alarm => Ok(OperationUse::GetAlarm),
            Detail::Time => Ok(OperationUse::GetTime),
            Detail::Graphic | Detail::Control | Detail::Full => Ok(OperationUse::GetAll),
            Detail::AcknowledgeState => Err(only_ca("the state of acknowledgement")),
            Detail::ClassName => Err(only_ca("the record type")),
        }
    }

    pub(super) fn is_put(self) -> bool {
        matches!(self, OperationUse::Put | OperationUse::PutUnconfirmed)
    }

    /// For a put: the other one.
    pub(super) fn other_put(self) -> OperationUse {
        if self == OperationUse::Put { OperationUse::PutUnconfirmed } else { OperationUse::Put }
    }

    pub(super) fn prepared_request(self) -> &'static PreparedRequest {
        &OF_USES[self as usize]
    }

    /// The fields of a get; none for all.
    fn fields(self) -> &'static [&'static str] {
        match self {
            OperationUse::GetValue | OperationUse::Put | OperationUse::PutUnconfirmed => &["value"],
            OperationUse::GetAlarm => &["value", "alarm"],
            OperationUse::GetTime => &["value", "alarm", "timeStamp"],
            OperationUse::GetAll => &[],
        }
    }
}

#[cold]
fn only_ca(what: &str) -> Failure {
    Failure::misuse(format!("{what} is available with Channel Access only"), "request the PV with \"ca://\"")
}

/// The pvRequest of a monitor. Fails if it requests attributes of Channel Access.
pub(super) fn of_monitor(options: &MonitorOptions) -> Result<Cow<'static, PreparedRequest>, Failure> {
    let of = OperationUse::of_get(options.request.detail)?;
    let has_default_mask = options.mask == EventMask::VALUE | EventMask::ALARM;
    if has_default_mask && options.window.is_none() {
        return Ok(Cow::Borrowed(&OF_MONITORS[of as usize]));
    }
    let window = options.window.map(|window| window.to_string());
    let mut request_options = Vec::new();
    if let Some(window) = &window {
        request_options.extend([("pipeline", "true"), ("queueSize", window)]);
    }
    // QSRV2 sends updates for value and alarm unless this option names other kinds of change.
    let named = kinds_of_change(options.mask);
    if !has_default_mask {
        request_options.push(("DBE", &named));
    }
    Ok(Cow::Owned(prepared(of.fields(), &request_options)))
}

/// The kinds of change in a mask, as the option `DBE` names them.
fn kinds_of_change(mask: EventMask) -> String {
    let kinds = [(EventMask::VALUE, "VALUE"), (EventMask::LOG, "ARCHIVE"), (EventMask::ALARM, "ALARM")];
    let named: Vec<&str> = kinds.iter().filter(|(kind, _)| mask.meets(*kind)).map(|(_, name)| *name).collect();
    named.join("|")
}

/// The pvRequest of a monitor of structures: that of the caller, with the options that it does not contain itself.
pub(crate) fn of_structure_monitor(mut request: PvRequest, options: &MonitorOptions) -> PreparedRequest {
    if let Some(window) = options.window
        && request.option("pipeline").is_none()
    {
        request.set_option("pipeline", "true");
        request.set_option("queueSize", window.to_string());
    }
    if options.mask != EventMask::VALUE | EventMask::ALARM && request.option("DBE").is_none() {
        request.set_option("DBE", kinds_of_change(options.mask));
    }
    PreparedRequest::new(&request)
}

fn prepared(fields: &[&str], options: &[(&str, &str)]) -> PreparedRequest {
    let mut request = PvRequest::default();
    if !fields.is_empty() {
        let members =
            fields.iter().map(|&name| RequestedField { name: name.into(), ..RequestedField::default() }).collect();
        request.groups.push(RequestedField { name: "field".into(), options: Vec::new(), members });
    }
    for (name, value) in options {
        request.set_option(name, *value);
    }
    PreparedRequest::new(&request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Request;

    fn monitor(detail: Detail, mask: EventMask, window: Option<u32>) -> Cow<'static, PreparedRequest> {
        let request = Request { detail, ..Request::default() };
        of_monitor(&MonitorOptions { request, mask, window, ..MonitorOptions::default() }).unwrap()
    }

    fn parsed(text: &str) -> PreparedRequest {
        PreparedRequest::new(&PvRequest::parse(text).unwrap())
    }

    #[test]
    fn a_request_selects_the_fields_of_its_detail() {
        for (of, text) in [
            (OperationUse::GetValue, "field(value)"),
            (OperationUse::GetAlarm, "field(value,alarm)"),
            (OperationUse::GetTime, "field(value,alarm,timeStamp)"),
            (OperationUse::GetAll, ""),
            (OperationUse::Put, "record[block=true]field(value)"),
            (OperationUse::PutUnconfirmed, "field(value)"),
        ] {
            assert_eq!(*of.prepared_request(), parsed(text), "{of:?}");
        }
    }

    #[test]
    fn a_monitor_names_its_window_and_its_kinds_of_change_if_they_are_not_the_default() {
        let default = EventMask::VALUE | EventMask::ALARM;

        assert_eq!(*monitor(Detail::Time, default, None), parsed("field(value,alarm,timeStamp)"));
        let time = monitor(Detail::Time, default, Some(8));
        assert_eq!(*time, parsed("field(value,alarm,timeStamp)record[pipeline=true,queueSize=8]"));
        assert_eq!(time.window(), Some(8));
        let mut archive = PvRequest::default();
        archive.set_option("DBE", "VALUE|ARCHIVE");
        let full = monitor(Detail::Full, EventMask::VALUE | EventMask::LOG, None);
        assert_eq!(*full, PreparedRequest::new(&archive));
    }

    #[test]
    fn attributes_of_channel_access_are_an_error_with_the_way_out() {
        for detail in [Detail::AcknowledgeState, Detail::ClassName] {
            let Err(Failure::Misuse(misuse)) = OperationUse::of_get(detail) else { panic!("{detail:?}") };
            let (reason, advice) = *misuse;
            assert!(reason.contains("Channel Access only") && advice.contains("ca://"), "{reason}; {advice}");
        }
    }
}
