//! The autosave thread. It reads values under the records' read locks, so no record waits for a disk.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use fodo_lock::{Condvar, Mutex, Rank};
use fodo_net::log::Log;

use super::AutosaveSettings;
use super::set::{LogMessage, SaveSet};
use super::status::StatusRecords;
use crate::driver::DatabaseDriver;

/// Saves sets of PVs until it is dropped; then saves changed values one last time.
pub struct Saver {
    shared: Arc<SaverShared>,
    thread: Option<JoinHandle<usize>>,
}

struct SaverShared {
    driver: Arc<DatabaseDriver>,
    log: Log,
    work: Mutex<SaverState>,
    /// Signals that the sets have changed or the thread must stop.
    changed: Condvar,
}

#[derive(Default)]
struct SaverState {
    sets: Vec<SaveSet>,
    settings: AutosaveSettings,
    status: Option<StatusRecords>,
    is_stopped: bool,
}

impl fmt::Debug for Saver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saver").finish_non_exhaustive()
    }
}

impl Saver {
    /// Starts the thread; fails if the system cannot create one.
    pub fn start(driver: Arc<DatabaseDriver>, log: Log) -> io::Result<Saver> {
        let work = Mutex::ranked(Rank::Autosave, SaverState::default());
        let shared = Arc::new(SaverShared { driver, log, work, changed: Condvar::new() });
        let ours = shared.clone();
        let thread = std::thread::Builder::new().name("fodo-autosave".into()).spawn(move || ours.run())?;
        Ok(Saver { shared, thread: Some(thread) })
    }

    /// Replaces the settings.
    pub fn set_settings(&self, settings: AutosaveSettings) {
        self.shared.work.lock().settings = settings;
    }

    /// Sets the status records to update; `None` stops updating.
    pub fn set_status(&self, status: Option<StatusRecords>) {
        self.shared.work.lock().status = status;
        self.shared.changed.notify_all();
    }

    /// Adds a set and replaces one of the same name. Fails with the name of another set that uses the same file.
    pub fn add(&self, set: SaveSet) -> Result<(), String> {
        let mut work = self.shared.work.lock();
        if let Some(other) = work.sets.iter().find(|other| other.path == set.path && other.name != set.name) {
            return Err(other.name.clone());
        }
        work.sets.retain(|other| other.name != set.name);
        work.sets.push(set);
        drop(work);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Removes a set; returns whether it existed.
    pub fn remove(&self, name: &str) -> bool {
        let mut work = self.shared.work.lock();
        let n_before = work.sets.len();
        work.sets.retain(|set| set.name != name);
        work.sets.len() < n_before
    }

    /// Calls `visit` with the set of this name; `None` if there is none.
    pub fn with<T>(&self, name: &str, visit: impl FnOnce(&mut SaveSet) -> T) -> Option<T> {
        self.shared.work.lock().sets.iter_mut().find(|set| set.name == name).map(visit)
    }

    /// Saves a set now, on this thread; returns a message to report. The outer `None` means that there is no such set.
    pub fn save(&self, name: &str) -> Option<Option<LogMessage>> {
        let mut work = self.shared.work.lock();
        let SaverState { sets, settings, .. } = &mut *work;
        let set = sets.iter_mut().find(|set| set.name == name)?;
        let note = set.save(self.shared.driver.database(), settings, Instant::now(), false);
        drop(work);
        // The thread retries a failed save.
        self.shared.changed.notify_all();
        Some(note)
    }

    /// Saves changed values one last time and stops the thread; returns how many sets could not be saved.
    pub fn finish(mut self) -> usize {
        self.end()
    }

    fn end(&mut self) -> usize {
        self.shared.work.lock().is_stopped = true;
        self.shared.changed.notify_all();
        let Some(thread) = self.thread.take() else { return 0 };
        // A panic is already on stderr; after it no set was saved at the end.
        thread.join().unwrap_or_else(|_| self.shared.work.lock().sets.len())
    }

    /// The names of all sets.
    pub fn names(&self) -> Vec<String> {
        self.shared.work.lock().sets.iter().map(|set| set.name.clone()).collect()
    }

    /// One line for each set, and with `is_long` for each PV.
    pub fn shown(&self, is_long: bool) -> String {
        self.shared.work.lock().sets.iter().map(|set| set.describe(is_long)).collect()
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        // A caller who needs the result calls `finish`.
        let _ = self.end();
    }
}

impl SaverShared {
    /// Saves until stopped; returns how many sets could not be saved at the end.
    fn run(&self) -> usize {
        let mut work = self.work.lock();
        while !work.is_stopped {
            let now = Instant::now();
            let SaverState { sets, settings, status, .. } = &mut *work;
            for set in sets.iter_mut() {
                let note = set.tick(self.driver.database(), settings, now);
                self.report(note);
            }
            if let Some(status) = status {
                status.tick(&self.driver, sets, now);
            }
            let due =
                work.sets.iter().filter_map(SaveSet::due).chain(work.status.as_ref().map(StatusRecords::due)).min();
            match due {
                Some(due) => {
                    let pause = due.saturating_duration_since(Instant::now());
                    self.changed.wait_for(&mut work, pause);
                }
                None => self.changed.wait(&mut work),
            }
        }
        let SaverState { sets, settings, .. } = &mut *work;
        for set in sets.iter_mut() {
            let note = set.finish(self.driver.database(), settings);
            self.report(note);
        }
        sets.iter().filter(|set| set.is_failing()).count()
    }

    fn report(&self, note: Option<LogMessage>) {
        if let Some((level, text)) = note {
            self.log.note(level, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use fodo_db::Loader;
    use fodo_net::log::Level;

    use super::*;
    use crate::access_control::AccessControl;
    use crate::autosave::set::SaveTrigger;
    use crate::testing::Folder;

    #[test]
    fn a_set_that_cannot_be_saved_is_logged_and_counted() {
        let mut loader = Loader::default();
        loader.load("a.db", "", &mut |_| Ok(b"record(ao, a) {}".to_vec())).unwrap();
        let driver = DatabaseDriver::new(loader.finish().unwrap(), AccessControl::open());
        let (sender, lines) = channel();
        let saver = Saver::start(driver.clone(), Log::new(Level::Info, move |line| drop(sender.send(line.clone()))));
        let (saver, folder) = (saver.unwrap(), Folder::new());
        let every = SaveTrigger::Every(Duration::from_millis(1));

        saver.add(SaveSet::new("s.req", folder.path("no/s.sav"), every, &[], driver.database())).unwrap();

        let line = lines.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(line.level == Level::Error && line.what.contains("s.sav"), "{line:?}");
        assert_eq!(format!("{saver:?}"), "Saver { .. }");
        assert_eq!(saver.finish(), 1);
    }
}
