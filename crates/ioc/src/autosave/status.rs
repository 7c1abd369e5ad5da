//! Status records of autosave, with the names and values of synApps autosave.
//!
//! Source: synApps autosave 5.11, save_restore.c and save_restoreStatus.db.

use std::collections::HashMap;
use std::time::Instant;

use fodo_data::{STRING_BYTES_MAX, Value};
use fodo_db::{Database, FieldRef};
use jiff::Zoned;

use super::set::SaveSet;
use crate::driver::DatabaseDriver;
use crate::limit::{STATUS_PERIOD, STATUS_SETS_MAX};

/// The status of saving or restoring; the worst first. The numbers are those of synApps autosave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// The status is not known yet.
    Unknown = 0,
    /// The file cannot be written or cannot be used.
    Failure = 1,
    /// Some values are missing.
    Warning = 2,
    /// The file is written, but a sequence file is not.
    SequenceFailure = 3,
    Good = 4,
}

/// A health with a text that fits a Channel Access string.
#[derive(Clone, Debug, PartialEq)]
pub struct SaveStatus {
    health: Health,
    words: String,
}

impl SaveStatus {
    /// Creates a status; truncates `words` to the length of an EPICS string.
    pub fn new(health: Health, words: &str) -> SaveStatus {
        let (words, _) = words.split_at(words.floor_char_boundary(STRING_BYTES_MAX));
        SaveStatus { health, words: words.to_owned() }
    }

    pub fn good() -> SaveStatus {
        SaveStatus::new(Health::Good, "Ok")
    }

    /// The first of the worst statuses; good if there are none.
    pub fn worst(all: impl Iterator<Item = SaveStatus>) -> SaveStatus {
        all.min_by_key(|status| status.health).unwrap_or(SaveStatus::good())
    }
}

/// The local time in the format of synApps autosave.
pub fn time_text() -> String {
    Zoned::now().strftime("%a %b %d %H:%M:%S").to_string()
}

/// The status records of one prefix, written once per period.
#[derive(Debug)]
pub struct StatusRecords {
    /// The fields of existing records, by record name without the prefix.
    fields: HashMap<String, FieldRef>,
    /// The values written last.
    written: HashMap<String, Value>,
    due: Instant,
    heartbeat: i32,
    restored: SaveStatus,
    restored_at: String,
}

impl StatusRecords {
    /// Finds the records of a prefix; `None` if no such record exists.
    ///
    /// `restored`: the status of the restore by `iocInit`.
    pub fn find(database: &Database, prefix: &str, restored: SaveStatus) -> Option<StatusRecords> {
        let general =
            ["status", "statusStr", "heartbeat", "recentlyStr", "rebootStatus", "rebootStatusStr", "rebootTime"];
        let of_set = |index| ["Name", "Status", "State", "StatusStr", "Time"].map(|what| format!("{index}_{what}"));
        let names = general.into_iter().map(str::to_owned).chain((0..STATUS_SETS_MAX).flat_map(of_set));
        let fields: HashMap<String, FieldRef> =
            names.filter_map(|name| Some((name.clone(), database.field(&format!("{prefix}SR_{name}"))?))).collect();
        let (written, due, heartbeat) = (HashMap::new(), Instant::now(), 0);
        (!fields.is_empty()).then(|| StatusRecords {
            fields,
            written,
            due,
            heartbeat,
            restored,
            restored_at: time_text(),
        })
    }

    /// When `tick` must be called next.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Writes changed values if due.
    pub fn tick(&mut self, driver: &DatabaseDriver, sets: &mut [SaveSet], now: Instant) {
        if now < self.due {
            return;
        }
        self.due = now + STATUS_PERIOD;
        self.heartbeat = 1 - self.heartbeat;
        let worst = SaveStatus::worst(sets.iter().map(SaveSet::status));
        let restored = self.restored.clone();
        self.put(driver, "heartbeat", self.heartbeat.into());
        self.put(driver, "status", (worst.health as i32).into());
        self.put(driver, "statusStr", worst.words.as_str().into());
        self.put(driver, "rebootStatus", (restored.health as i32).into());
        self.put(driver, "rebootStatusStr", restored.words.as_str().into());
        self.put(driver, "rebootTime", self.restored_at.as_str().into());
        for recent in sets.iter_mut().filter_map(SaveSet::take_recent) {
            self.put(driver, "recentlyStr", recent.as_str().into());
        }
        for index in 0..STATUS_SETS_MAX {
            let set = sets.get(index);
            let name = set.map_or("Not In Use".to_owned(), SaveSet::short_name);
            let status = set.map_or(SaveStatus::new(Health::Unknown, "Status unknown"), SaveSet::status);
            let time = set.and_then(SaveSet::saved_at).unwrap_or("Not yet saved");
            self.put(driver, &format!("{index}_Name"), name.as_str().into());
            self.put(driver, &format!("{index}_Status"), (status.health as i32).into());
            // The state names what the set waits for; here no set ever waits.
            self.put(driver, &format!("{index}_State"), 0.into());
            self.put(driver, &format!("{index}_StatusStr"), status.words.as_str().into());
            self.put(driver, &format!("{index}_Time"), time.into());
        }
    }

    fn put(&mut self, driver: &DatabaseDriver, name: &str, value: Value) {
        let Some(field) = self.fields.get(name).filter(|_| self.written.get(name) != Some(&value)) else { return };
        // A record that rejects the value, for example with DISP set, simply keeps its old value.
        let _ = driver.put(*field, value.clone(), None, None);
        self.written.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_save_status_wins_and_its_text_is_truncated_between_characters() {
        let (failure, warning) =
            (SaveStatus::new(Health::Failure, "no file"), SaveStatus::new(Health::Warning, "2 missing"));

        assert_eq!(SaveStatus::worst([warning, failure.clone(), SaveStatus::good()].into_iter()), failure);
        assert_eq!(SaveStatus::worst(std::iter::empty()), SaveStatus::good());
        assert_eq!(SaveStatus::new(Health::Good, &"ä".repeat(30)).words, "ä".repeat(19));
    }

    #[test]
    fn status_records_are_written_once_per_period() {
        let mut loader = fodo_db::Loader::default();
        let records = b"record(ao, \"x:SR_heartbeat\") {} record(ao, \"x:SR_status\") {}
            record(stringout, \"x:SR_0_Name\") {}";
        loader.load("a.db", "", &mut |_| Ok(records.to_vec())).unwrap();
        let database = loader.finish().unwrap();
        let driver = DatabaseDriver::new(database, crate::access_control::AccessControl::open());
        let mut records = StatusRecords::find(driver.database(), "x:", SaveStatus::good()).unwrap();
        let value = |name: &str| {
            let field = driver.database().field(&format!("x:SR_{name}")).unwrap();
            driver.database().read(field).value.first().unwrap().to_text(None).to_string()
        };
        let (due, just) = (records.due(), std::time::Duration::from_nanos(1));
        let mut beats = Vec::new();

        for now in [due - just, due, due + just, due + STATUS_PERIOD - just, due + STATUS_PERIOD] {
            records.tick(&driver, &mut [], now);
            beats.push(value("heartbeat"));
        }

        assert_eq!(beats, ["0", "1", "1", "1", "0"]);
        assert_eq!(records.due(), due + 2 * STATUS_PERIOD);
        assert_eq!([value("status"), value("0_Name")], ["4", "Not In Use"]);
        assert!(StatusRecords::find(driver.database(), "y:", SaveStatus::good()).is_none());
    }
}
