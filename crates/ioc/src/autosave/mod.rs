//! Autosave: saves values to files while the IOC runs and restores them around record initialisation.
//!
//! Request files and save files have the format of synApps autosave, so files can be exchanged with an existing
//! installation in both directions. The parsers, [`request`] and [`mod@format`], do no IO.
//!
//! The [`Shell`](crate::shell::Shell) has the commands of synApps autosave. Without any command,
//! [`Shell::keep_values_in`](crate::shell::Shell::keep_values_in) saves the fields that records name in info items.
//! Values are also saved when the IOC stops.
//!
//! ```
//! use fodo_ioc::shell::{Purpose, Shell};
//! use fodo_net::{Context, Value};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("fodo-autosave-{}", std::process::id()));
//! # std::fs::create_dir_all(folder.join("saved"))?;
//! std::fs::write(folder.join("gap.db"), r#"record(ao, "gap") { info(autosaveFields, "VAL") }"#)?;
//!
//! for expected in [0.0, 20.0] {
//!     // `configuration`: a function that returns a `RunConfig`.
//! #   let configuration = || include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/run_config.rs"));
//!     let (out, err) = (Box::new(std::io::sink()), Box::new(std::io::stderr()));
//!     let mut shell = Shell::new(Purpose::Run(Box::new(configuration())), &folder, std::env::vars(), out, err);
//!     shell.keep_values_in("saved".as_ref());
//!     shell.run_line("dbLoadRecords gap.db");
//!     shell.run_line("iocInit");
//!
//!     let running = shell.place().lock().take().ok_or("the IOC does not run")?;
//!     let context = Context::new(running.client_config());
//!     let gap = context.channel("gap")?;
//!     assert_eq!(gap.get()?.value, Value::from(expected));
//!     gap.put(20.0)?;
//!     running.stop()?;
//! }
//! # std::fs::remove_dir_all(folder)?;
//! # Ok(())
//! # }
//! ```

pub(crate) mod disk;
pub mod format;
pub(crate) mod info_sets;
pub mod request;
pub(crate) mod restore;
pub(crate) mod saver;
pub(crate) mod set;
pub(crate) mod status;

use std::time::Duration;

use fodo_db::Database;

/// The info item that lists fields to restore before and after record initialisation.
pub(crate) const BOTH: &str = "autosaveFields";
/// The info item that lists fields to restore before record initialisation.
pub(crate) const EARLY: &str = "autosaveFields_pass0";
/// The info item that lists fields to restore after record initialisation.
pub(crate) const LATE: &str = "autosaveFields_pass1";

/// Settings of all sets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AutosaveSettings {
    /// Whether sets with missing PVs are saved and restored.
    pub(crate) takes_incomplete: bool,
    /// Whether the copy of a restored file has the date in its name.
    pub(crate) dates_copies: bool,
    /// The number of sequence files: copies that are overwritten in rotation.
    pub(crate) n_sequence: usize,
    /// The time between two sequence files.
    pub(crate) sequence_period: Duration,
    /// The delay before a failed save is retried.
    pub(crate) retry: Duration,
}

impl Default for AutosaveSettings {
    /// The defaults of synApps, with three exceptions: no sequence files and no dated copies, because dated copies fill
    /// the disk over time; and a shorter retry delay, because a local disk recovers sooner than a file server.
    fn default() -> AutosaveSettings {
        AutosaveSettings {
            takes_incomplete: true,
            dates_copies: false,
            n_sequence: 0,
            sequence_period: Duration::from_secs(60),
            retry: Duration::from_secs(10),
        }
    }
}

/// The PVs listed in info items of this name, in record order, and a message for each name that is not a field.
pub(crate) fn listed(database: &Database, info: &str) -> (Vec<String>, Vec<String>) {
    let (mut pvs, mut strangers) = (Vec::new(), Vec::new());
    for record in database.record_names() {
        let lists = database.info_items(record).filter(|(name, _)| name.as_bytes() == info.as_bytes());
        for (_, list) in lists {
            for field in list.to_str().split(|c: char| c.is_whitespace() || c == ',').filter(|field| !field.is_empty())
            {
                let pv = format!("{record}.{field}");
                if database.field(&pv).is_some() {
                    pvs.push(pv);
                    continue;
                }
                let guess = crate::names::suggestion_text(fodo_db::closest_match(field, database.field_names(record)));
                strangers
                    .push(format!("info({info}) of {record} names \"{field}\", which is not a field of it{guess}"));
            }
        }
    }
    (pvs, strangers)
}
