//! Prints the notices of a context on stderr.

use std::io::{self, Write as _};
use std::thread;
use std::time::SystemTime;

use fodo_net::{Context, Notice};

use crate::limit;
use crate::local_time::Clock;

/// Prints the notices of a context while the program runs, formatted by `text`.
pub fn print(context: &Context, text: impl Fn(&Notice) -> Option<String> + Send + 'static) -> io::Result<()> {
    let context = context.clone();
    thread::Builder::new().name("fodo-notices".into()).spawn(move || {
        loop {
            if let Some(text) = context.next_notice(limit::QUIET).and_then(|notice| text(&notice)) {
                // There is no other place to report that stderr failed.
                let _ = io::stderr().write_all(text.as_bytes());
            }
        }
    })?;
    Ok(())
}

/// Formats a notice for fodo's own commands; the start of a server is expected and not reported.
pub fn own(notice: &Notice) -> Option<String> {
    match notice {
        Notice::ServerStarted { .. } => None,
        notice => Some(format!("fodo: {notice}\n")),
    }
}

/// Formats a notice like libca; notices that libca does not print are left out.
pub fn of_epics(notice: &Notice, clock: &Clock, now: SystemTime) -> Option<String> {
    let Notice::TwoServers { pv, used, ignored } = notice else { return None };
    Some(format!(
        "CA.Client.Exception...............................................\n    \
         Warning: \"Identical process variable names on multiple servers\"\n    \
         Context: \"Channel: \"{pv}\", Connecting to: {used}, Ignored: {ignored}\"\n    \
         Current Time: {}\n\
         ..................................................................\n",
        clock.for_epics(now.into()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duplicate_servers() -> Notice {
        let at = |text: &str| text.parse().unwrap();
        Notice::TwoServers { pv: "x:y".into(), used: at("10.0.0.1:5064"), ignored: at("10.0.0.2:5064") }
    }

    #[test]
    fn duplicate_servers_are_reported_by_fodo_and_epics_tools() {
        let epics = of_epics(&duplicate_servers(), &Clock::local(), SystemTime::now()).unwrap();
        let ours = own(&duplicate_servers()).unwrap();

        assert!(epics.contains("Identical process variable names on multiple servers"), "{epics}");
        assert!(epics.contains("Connecting to: 10.0.0.1:5064, Ignored: 10.0.0.2:5064"), "{epics}");
        assert!(ours.starts_with("fodo: two servers have \"x:y\""), "{ours}");
    }

    #[test]
    fn a_server_start_is_not_reported_on_the_terminal() {
        let started = Notice::ServerStarted { server: "10.0.0.1:5064".parse().unwrap() };

        assert_eq!(own(&started), None);
        assert_eq!(of_epics(&started, &Clock::local(), SystemTime::now()), None);
    }
}
