//! The options in the pvRequest of an operation.
//!
//! Source: pvxs 1.5.3, `servermon.cpp`, `ioc/iocsource.cpp` and `ioc/singlesource.cpp`. Options that a server does not
//! know are ignored; values that it does not understand are reported to the client.

use fodo_data::{EventMask, Text};

use super::event::{AtomicOption, ProcessOption, PutOptions, SubscriptionOptions};
use crate::limit;
use crate::request::PvRequest;

/// The kinds of change that cause an update unless the client requests others.
const EVENTS: EventMask = EventMask::VALUE.with(EventMask::ALARM);

/// The kinds that a client can request.
const REQUESTABLE: [(&str, EventMask); 3] =
    [("VALUE", EventMask::VALUE), ("ARCHIVE", EventMask::LOG), ("ALARM", EventMask::ALARM)];

/// Reads the options of a put; `invalid` receives a text for each value that is not understood.
pub(super) fn of_put(request: &PvRequest, mut invalid: impl FnMut(String)) -> PutOptions {
    let mut options = PutOptions::default();
    if let Some(value) = request.option("process") {
        match (value.as_bytes(), boolean(value)) {
            (b"passive", _) => {}
            (_, Ok(true)) => options.process = ProcessOption::Always,
            (_, Ok(false)) => options.process = ProcessOption::Never,
            (_, Err(NotABoolean)) => invalid(format!("process must be true, false or passive, not {value:?}")),
        }
    }
    flag(request, "block", &mut options.is_blocking, &mut invalid);
    options.atomic = of_structure(request, invalid).atomic;
    options
}

/// The same as [`of_put`] for a get of a structure, which has no record that a get could process.
pub(super) fn of_structure(request: &PvRequest, mut invalid: impl FnMut(String)) -> PutOptions {
    let mut options = PutOptions::default();
    if let Some(value) = request.option("atomic") {
        match boolean(value) {
            Ok(true) => options.atomic = AtomicOption::Yes,
            Ok(false) => options.atomic = AtomicOption::No,
            Err(NotABoolean) => invalid(format!("atomic must be true or false, not {value:?}")),
        }
    }
    options
}

/// The same as [`of_put`] for a subscription.
pub(super) fn of_monitor(request: &PvRequest, mut invalid: impl FnMut(String)) -> SubscriptionOptions {
    let mut options = SubscriptionOptions { events: EVENTS, queue_size: limit::QUEUE_SIZE, has_flow_control: false };
    if let Some(value) = request.option("DBE") {
        match events(value) {
            Some(events) => options.events = events,
            None => invalid(format!("DBE must contain VALUE, ARCHIVE or ALARM, not {value:?}")),
        }
    }
    if let Some(value) = request.option("queueSize") {
        match value.to_str().parse::<f64>() {
            Ok(size) if size > limit::QUEUE_SIZE_MAX as f64 => {
                options.queue_size = limit::QUEUE_SIZE_MAX;
                invalid(format!("queueSize must be at most {}, not {value}", limit::QUEUE_SIZE_MAX));
            }
            // One update is always on its way to the client, so a queue of one could not take the next.
            Ok(size) if size >= 0.0 => options.queue_size = (size as usize).max(2),
            _ => invalid(format!("queueSize must be a number, not {value:?}")),
        }
    }
    flag(request, "pipeline", &mut options.has_flow_control, invalid);
    options
}

fn flag(request: &PvRequest, name: &str, flag: &mut bool, mut invalid: impl FnMut(String)) {
    let Some(value) = request.option(name) else { return };
    match boolean(value) {
        Ok(is_set) => *flag = is_set,
        Err(NotABoolean) => invalid(format!("{name} must be true or false, not {value:?}")),
    }
}

struct NotABoolean;

/// A boolean as a word or a number.
fn boolean(value: &Text) -> Result<bool, NotABoolean> {
    match value.as_bytes() {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => value.to_str().parse::<i64>().map(|number| number != 0).map_err(|_| NotABoolean),
    }
}

/// The kinds of change in a text such as `VALUE|ALARM` or in a number; `None` if there are none.
fn events(value: &Text) -> Option<EventMask> {
    let text = value.to_str();
    let named = REQUESTABLE.iter().filter(|(name, _)| text.contains(name)).map(|(_, mask)| mask.0);
    let all = REQUESTABLE.iter().fold(0, |all, (_, mask)| all | mask.0);
    let bits =
        text.parse().map_or_else(|_| named.fold(0, |bits, mask| bits | mask), |number: i64| (number & 0xff) as u8);
    (bits & all != 0).then_some(EventMask(bits & all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(text: &str) -> (PutOptions, Vec<String>) {
        let mut invalid = Vec::new();
        let options = of_put(&PvRequest::parse(text).unwrap(), |text| invalid.push(text));
        (options, invalid)
    }

    fn monitor(text: &str) -> (SubscriptionOptions, Vec<String>) {
        let mut invalid = Vec::new();
        let options = of_monitor(&PvRequest::parse(text).unwrap(), |text| invalid.push(text));
        (options, invalid)
    }

    #[test]
    fn a_put_processes_the_record_according_to_its_option() {
        for (text, process, is_blocking) in [
            ("", ProcessOption::Passive, false),
            ("record[process=passive]", ProcessOption::Passive, false),
            ("record[process=true,block=true]", ProcessOption::Always, true),
            ("record[process=1,block=1]", ProcessOption::Always, true),
            ("record[process=false,block=false]", ProcessOption::Never, false),
            ("record[process=0]field(value)", ProcessOption::Never, false),
            ("record[unknown=1]", ProcessOption::Passive, false),
        ] {
            let expected = PutOptions { process, is_blocking, ..PutOptions::default() };
            assert_eq!(put(text), (expected, Vec::new()), "{text}");
        }
        let (options, invalid) = put("record[process=perhaps,block=soon]");
        assert_eq!(options, PutOptions::default());
        let expected =
            ["process must be true, false or passive, not \"perhaps\"", "block must be true or false, not \"soon\""];
        assert_eq!(invalid, expected);
    }

    #[test]
    fn a_client_can_request_that_a_group_is_handled_in_one_step_or_not() {
        for (text, atomic, n_reported) in [
            ("", AtomicOption::Unset, 0),
            ("record[atomic=true]", AtomicOption::Yes, 0),
            ("record[atomic=0]", AtomicOption::No, 0),
            ("record[atomic=perhaps]", AtomicOption::Unset, 1),
        ] {
            let (options, invalid) = put(text);
            assert_eq!((options.atomic, invalid.len()), (atomic, n_reported), "{text}");
        }
    }

    #[test]
    fn a_subscription_has_the_events_that_its_option_names() {
        for (text, events) in [
            ("", 1 | 4),
            ("record[DBE=VALUE]", 1),
            ("record[DBE=VALUE|ARCHIVE]", 1 | 2),
            ("record[DBE=ALARM]", 4),
            ("record[DBE=6]", 2 | 4),
            ("record[DBE=8]", 1 | 4),
            ("record[DBE=PROPERTY]", 1 | 4),
            ("record[DBE=nonsense]", 1 | 4),
        ] {
            assert_eq!(monitor(text).0.events, EventMask(events), "{text}");
        }
        assert_eq!(monitor("record[DBE=8]").1, ["DBE must contain VALUE, ARCHIVE or ALARM, not \"8\""]);
    }

    // Row 41 of docs/reference/faults.md.
    #[test]
    fn the_size_of_a_queue_is_limited_and_the_client_is_notified() {
        for (text, queue_size, n_reported) in [
            ("", 4, 0),
            ("record[queueSize=0]", 2, 0),
            ("record[queueSize=1]", 2, 0),
            ("record[queueSize=100]", 100, 0),
            ("record[queueSize=1024]", 1024, 0),
            ("record[queueSize=4294967295]", 1024, 1),
            ("record[queueSize=1e300]", 1024, 1),
            ("record[queueSize=-5]", 4, 1),
            ("record[queueSize=many]", 4, 1),
            ("record[queueSize=NaN]", 4, 1),
        ] {
            let (options, invalid) = monitor(text);
            assert_eq!((options.queue_size, invalid.len(), options.has_flow_control), (queue_size, n_reported, false));
        }
        assert!(monitor("record[pipeline=true,queueSize=10]").0.has_flow_control);
        assert_eq!(monitor("record[pipeline=maybe]").1, ["pipeline must be true or false, not \"maybe\""]);
    }
}
