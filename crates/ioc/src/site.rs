//! The site of the IOC: its environment and time zone.

use std::collections::HashMap;
use std::sync::Arc;

use fodo_data::{Text, TimeStamp};
use fodo_db::{Site, Zone};
use fodo_lock::Mutex;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Environment variables of a shell, shared with records that read them.
pub type SharedEnvironment = Arc<Mutex<HashMap<String, String>>>;

/// The site of this process.
#[derive(Debug)]
pub struct ProcessSite {
    zone: TimeZone,
    /// Replaces the environment of the process.
    environment: Option<SharedEnvironment>,
}

impl ProcessSite {
    pub fn new(environment: Option<SharedEnvironment>) -> ProcessSite {
        ProcessSite { zone: TimeZone::system(), environment }
    }
}

impl Site for ProcessSite {
    fn variable(&self, name: &str) -> Option<Text> {
        if let Some(environment) = &self.environment {
            return environment.lock().get(name).map(|value| value.as_str().into());
        }
        // `var_os` may panic on such names.
        if name.is_empty() || name.contains(['=', '\0']) {
            return None;
        }
        std::env::var_os(name).map(|value| Text::from_bytes(value.as_encoded_bytes()))
    }

    fn zone(&self, at: TimeStamp) -> Zone {
        let moment = Timestamp::from_second(at.unix_s).unwrap_or(Timestamp::UNIX_EPOCH);
        let about = self.zone.to_offset_info(moment);
        Zone { offset_s: about.offset().seconds(), name: about.abbreviation().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_those_of_the_process_unless_the_shell_has_its_own() {
        let own = SharedEnvironment::default();
        own.lock().insert("AREA".to_owned(), "hall 3".to_owned());

        let (of_shell, of_process) = (ProcessSite::new(Some(own)), ProcessSite::new(None));

        assert_eq!((of_shell.variable("AREA"), of_shell.variable("PATH")), (Some("hall 3".into()), None));
        assert!(of_process.variable("PATH").is_some());
        assert_eq!(["", "A=B", "A\0"].map(|name| of_process.variable(name)), [None, None, None]);
    }

    #[test]
    fn the_zone_of_a_time_has_its_offset_and_name() {
        let site = ProcessSite { zone: TimeZone::get("Europe/Berlin").unwrap(), environment: None };
        let at = |unix_s| {
            let zone = site.zone(TimeStamp { unix_s, ..TimeStamp::default() });
            (zone.offset_s, zone.name)
        };

        assert_eq!(at(1_700_000_000), (3600, "CET".to_owned()));
        assert_eq!(at(1_690_000_000), (7200, "CEST".to_owned()));
    }
}
