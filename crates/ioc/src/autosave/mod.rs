//! Values that outlive the IOC: saved in files while it runs, restored around the initialisation of the records.
//!
//! Request files and save files are those of synApps autosave, so that those of a running plant can be used, and ours
//! by it. What reads them, [`request`] and [`format`], does no IO.

pub(crate) mod disk;
pub mod format;
pub mod request;
pub(crate) mod restore;
pub(crate) mod saver;
pub(crate) mod set;
pub(crate) mod status;

use std::time::Duration;

use fodo_db::Database;

/// The info item of fields that are restored before and after the records are initialised.
pub(crate) const BOTH: &str = "autosaveFields";
/// Of those that are restored before.
pub(crate) const EARLY: &str = "autosaveFields_pass0";
/// Of those that are restored after.
pub(crate) const LATE: &str = "autosaveFields_pass1";

/// How often the sets are saved that are made of info items by themselves.
pub(crate) const OWN_PERIOD: Duration = Duration::from_secs(5);

/// What holds for all sets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Whether a set is saved and restored some of whose PVs are not there.
    pub(crate) takes_incomplete: bool,
    /// Whether the copy of what is restored has the date in its name.
    pub(crate) dates_copies: bool,
    /// How many copies of a file are kept in turn.
    pub(crate) n_sequence: usize,
    /// How long the youngest of them stays the youngest.
    pub(crate) sequence_period: Duration,
    /// How long a save that failed waits for its next attempt.
    pub(crate) retry: Duration,
}

impl Default for Settings {
    /// As synApps, but for three of them: no copies are kept in turn and none with a date, which fill a disk unless
    /// somebody looks after them, and a local disk is tried again sooner than a file server.
    fn default() -> Settings {
        Settings {
            takes_incomplete: true,
            dates_copies: false,
            n_sequence: 0,
            sequence_period: Duration::from_secs(60),
            retry: Duration::from_secs(10),
        }
    }
}

/// The PVs that info items of this name list, in the order of the records; and those that are none, with a reason.
pub(crate) fn listed(database: &Database, info: &str) -> (Vec<String>, Vec<String>) {
    let (mut pvs, mut strangers) = (Vec::new(), Vec::new());
    for record in database.record_names() {
        let lists = database.infos(record).filter(|(name, _)| name.as_bytes() == info.as_bytes());
        for (_, list) in lists {
            for field in list.to_str().split(|c: char| c.is_whitespace() || c == ',').filter(|field| !field.is_empty())
            {
                let pv = format!("{record}.{field}");
                if database.field(&pv).is_some() {
                    pvs.push(pv);
                    continue;
                }
                let guess = crate::names::meant(fodo_db::closest(field, database.field_names(record)));
                strangers
                    .push(format!("info({info}) of {record} names \"{field}\", which is none of its fields{guess}"));
            }
        }
    }
    (pvs, strangers)
}
