//! A set of PVs saved together in one file.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fodo_data::TimeStamp;
use fodo_db::{Database, FieldRef};
use fodo_net::log::Level;
use jiff::Zoned;

use super::request::RequestedPv;
use super::status::{Health, SaveStatus, time_text};
use super::{AutosaveSettings, disk, format};
use crate::limit::TRIGGER_PERIOD;

/// What triggers a save.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SaveTrigger {
    /// A value that differs from the one in the file, checked once per period.
    Changed(Duration),
    /// Time: once per period.
    Every(Duration),
    /// Processing of, or a write to, the trigger PV.
    Triggered(FieldRef),
    /// `manual_save` only.
    Asked,
}

/// The state of saving.
#[derive(Clone, Debug, PartialEq)]
enum SaveState {
    /// Nothing has been saved yet.
    New,
    /// The file is up to date.
    Good,
    /// The last `n_attempts` attempts to write the file or a sequence file failed.
    Failing { trouble: SaveError, n_attempts: usize },
}

/// The reason why a set is not saved.
#[derive(Clone, Debug, PartialEq)]
struct SaveError {
    health: Health,
    why: String,
}

impl SaveError {
    fn of_file(why: String) -> SaveError {
        SaveError { health: Health::Failure, why }
    }
}

/// One PV of a set.
#[derive(Debug)]
struct SetMember {
    pv: String,
    /// `None` if this IOC does not have the PV.
    field: Option<FieldRef>,
}

/// A set of PVs; see the module.
#[derive(Debug)]
pub struct SaveSet {
    /// The name used in commands: that of its request file.
    pub name: String,
    /// The path of the save file.
    pub path: PathBuf,
    when: SaveTrigger,
    members: Vec<SetMember>,
    due: Instant,
    /// The contents of the file after its header; `None` if unknown.
    written: Option<String>,
    /// The trigger's time stamp and value at the last check.
    trigger: Option<(TimeStamp, String)>,
    state: SaveState,
    /// When the file was last written, as text.
    saved_at: Option<String>,
    /// The last action, until `take_recent` takes it.
    recent: Option<String>,
    sequence: Sequence,
}

/// The number of the next sequence file, and when the last one was written.
#[derive(Debug, Default)]
struct Sequence {
    number: usize,
    last: Option<Instant>,
}

/// A log message about a set.
pub type LogMessage = (Level, String);

impl SaveSet {
    /// Creates a set that is first due after one period.
    pub fn new(name: &str, path: PathBuf, when: SaveTrigger, pvs: &[RequestedPv], database: &Database) -> SaveSet {
        let member = |RequestedPv { pv, .. }: &RequestedPv| SetMember { pv: pv.clone(), field: database.field(pv) };
        let mut set = SaveSet {
            name: name.to_owned(),
            written: disk::body(&path),
            path,
            when,
            members: pvs.iter().map(member).collect(),
            due: Instant::now(),
            trigger: None,
            state: SaveState::New,
            saved_at: None,
            recent: None,
            sequence: Sequence::default(),
        };
        if let SaveTrigger::Triggered(field) = when {
            set.trigger = Some(glance(database, field));
        }
        set.due += set.period().unwrap_or_default();
        set
    }

    /// Changes the file that the set is saved to.
    pub fn move_to(&mut self, path: PathBuf) {
        self.written = disk::body(&path);
        self.path = path;
    }

    fn period(&self) -> Option<Duration> {
        match self.when {
            SaveTrigger::Changed(period) | SaveTrigger::Every(period) => Some(period),
            SaveTrigger::Triggered(_) => Some(TRIGGER_PERIOD),
            SaveTrigger::Asked => None,
        }
    }

    /// Whether the last save failed.
    pub fn is_failing(&self) -> bool {
        matches!(self.state, SaveState::Failing { .. })
    }

    /// When `tick` must be called next.
    pub fn due(&self) -> Option<Instant> {
        (self.period().is_some() || self.is_failing()).then_some(self.due)
    }

    /// Saves if a save is due; returns a message to report.
    pub fn tick(&mut self, database: &Database, settings: &AutosaveSettings, now: Instant) -> Option<LogMessage> {
        if self.due().is_none_or(|due| now < due) {
            return None;
        }
        let is_owed = self.is_failing();
        let is_due = match self.when {
            SaveTrigger::Changed(_) | SaveTrigger::Every(_) => true,
            SaveTrigger::Triggered(field) => {
                let seen = Some(glance(database, field));
                let is_new = seen != self.trigger;
                self.trigger = seen;
                is_new || is_owed
            }
            SaveTrigger::Asked => is_owed,
        };
        let note = if is_due { self.save(database, settings, now, self.when.is_lazy()) } else { None };
        let pause = match self.state {
            SaveState::Failing { .. } => settings.retry,
            _ => self.period().unwrap_or_default(),
        };
        self.due = now + pause;
        note
    }

    /// Saves changed values one last time.
    pub fn finish(&mut self, database: &Database, settings: &AutosaveSettings) -> Option<LogMessage> {
        let is_due = self.is_failing() || matches!(self.when, SaveTrigger::Changed(_) | SaveTrigger::Every(_));
        if is_due { self.save(database, settings, Instant::now(), true) } else { None }
    }

    /// Saves the set; with `is_lazy` only if its contents changed. Returns a message when saving starts to fail, fails
    /// for another reason, or works again.
    pub fn save(
        &mut self,
        database: &Database,
        settings: &AutosaveSettings,
        now: Instant,
        is_lazy: bool,
    ) -> Option<LogMessage> {
        let (body, n_missing) = self.body(database);
        if is_lazy && self.written.as_ref() == Some(&body) {
            return self.settle(Ok(()));
        }
        let result = match n_missing {
            n if n > 0 && !settings.takes_incomplete => {
                let why = format!("{n} of its PVs do not exist, and save_restoreSet_IncompleteSetsOk(0) requires all");
                Err(SaveError::of_file(why))
            }
            _ => {
                let date = Zoned::now().strftime("%y%m%d-%H%M%S").to_string();
                let written = disk::replace(&self.path, &(format::header(&date) + &body));
                written.map_err(|error| SaveError::of_file(error.to_string()))
            }
        };
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.recent = Some(if result.is_ok() { format!("Wrote '{file}'") } else { format!("Can't write '{file}'") });
        if result.is_ok() {
            self.saved_at = Some(time_text());
        }
        // After a failure the contents of the file are unknown, so the next save always writes.
        self.written = result.is_ok().then_some(body);
        let copied = if result.is_ok() { self.copy_in_turn(settings, now) } else { Ok(()) };
        self.settle(result.and(copied))
    }

    /// The contents of the file after its header, and how many PVs have no value.
    fn body(&self, database: &Database) -> (String, usize) {
        let n_missing = self.n_missing();
        let mut body = format::missing_line(n_missing);
        for member in &self.members {
            body += &match member.field {
                Some(field) => format::value_line(&member.pv, &database.read(field).value),
                None => format::absent_line(&member.pv),
            };
        }
        body += format::LAST_LINE;
        (body, n_missing)
    }

    fn n_missing(&self) -> usize {
        self.members.iter().filter(|member| member.field.is_none()).count()
    }

    /// The status with the texts of synApps.
    pub fn status(&self) -> SaveStatus {
        match (&self.state, self.n_missing()) {
            (SaveState::New, _) => SaveStatus::new(Health::Unknown, "Initialized"),
            (SaveState::Good, 0) => SaveStatus::good(),
            (SaveState::Good, 1) => SaveStatus::new(Health::Warning, "1 value not saved"),
            (SaveState::Good, n) => SaveStatus::new(Health::Warning, &format!("{n} values not saved")),
            (SaveState::Failing { trouble, .. }, _) if trouble.health == Health::SequenceFailure => {
                SaveStatus::new(Health::SequenceFailure, "Can't write sequence file")
            }
            (SaveState::Failing { .. }, _) => SaveStatus::new(Health::Failure, "Can't write .sav file"),
        }
    }

    /// The file name without its extension.
    pub fn short_name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// When the file was last written.
    pub fn saved_at(&self) -> Option<&str> {
        self.saved_at.as_deref()
    }

    /// Takes the text about the last action.
    pub fn take_recent(&mut self) -> Option<String> {
        self.recent.take()
    }

    fn copy_in_turn(&mut self, settings: &AutosaveSettings, now: Instant) -> Result<(), SaveError> {
        let is_due = self.sequence.last.is_none_or(|last| now >= last + settings.sequence_period);
        if settings.n_sequence == 0 || !is_due {
            return Ok(());
        }
        self.sequence.last = Some(now);
        let number = self.sequence.number % settings.n_sequence;
        self.sequence.number = number + 1;
        disk::copy(&self.path, &disk::with_suffix(&self.path, &number.to_string())).map_err(|error| SaveError {
            health: Health::SequenceFailure,
            why: format!("copy {number} of it: {error}"),
        })
    }

    fn settle(&mut self, result: Result<(), SaveError>) -> Option<LogMessage> {
        let path = self.path.display();
        match result {
            Ok(()) => match std::mem::replace(&mut self.state, SaveState::Good) {
                SaveState::Failing { n_attempts, .. } => {
                    Some((Level::Warning, format!("autosave: {path} is saved again; failed attempts: {n_attempts}")))
                }
                _ => None,
            },
            Err(trouble) => {
                let (before, n_attempts) = match &self.state {
                    SaveState::Failing { trouble, n_attempts } => (Some(trouble), *n_attempts),
                    _ => (None, 0),
                };
                let is_reported = before == Some(&trouble);
                let text = format!("autosave: cannot save {path}; the previous file is kept: {}", trouble.why);
                self.state = SaveState::Failing { trouble, n_attempts: n_attempts + 1 };
                (!is_reported).then_some((Level::Error, text))
            }
        }
    }

    /// One line of text about the set; with `is_long` also one for each PV.
    pub fn describe(&self, is_long: bool) -> String {
        let when = match self.when {
            SaveTrigger::Changed(period) => format!("after changes, every {period:?}"),
            SaveTrigger::Every(period) => format!("every {period:?}"),
            SaveTrigger::Triggered(_) => "when triggered".to_owned(),
            SaveTrigger::Asked => "by manual_save".to_owned(),
        };
        let state = match &self.state {
            SaveState::New => "not saved yet".to_owned(),
            SaveState::Good => "saved".to_owned(),
            SaveState::Failing { trouble, .. } => format!("NOT SAVED: {}", trouble.why),
        };
        let n_missing = self.n_missing();
        let n_there = self.members.len() - n_missing;
        let mut text =
            format!("{}: {n_there} PVs, {n_missing} missing, {when}, to {}: {state}\n", self.name, self.path.display());
        if is_long {
            for member in &self.members {
                let absent = if member.field.is_none() { " (missing)" } else { "" };
                text += &format!("  {}{absent}\n", member.pv);
            }
        }
        text
    }
}

/// A snapshot that differs after a write or processing. The value is text because NaN does not equal itself.
fn glance(database: &Database, field: FieldRef) -> (TimeStamp, String) {
    let reading = database.read(field);
    (reading.time, format::value_line("", &reading.value))
}

impl SaveTrigger {
    /// Whether the file is written only if its contents changed.
    fn is_lazy(self) -> bool {
        matches!(self, SaveTrigger::Changed(_))
    }
}

#[cfg(test)]
mod tests {
    use fodo_db::Loader;

    use super::*;
    use crate::testing::Folder;

    const PERIOD: Duration = Duration::from_secs(30);
    const RETRY: Duration = Duration::from_secs(3);

    fn database() -> Database {
        let mut loader = Loader::default();
        loader.load("a.db", "", &mut |_| Ok(b"record(ao, a) { field(VAL, 1) }".to_vec())).unwrap();
        loader.finish().unwrap()
    }

    fn settings() -> AutosaveSettings {
        AutosaveSettings { retry: RETRY, ..AutosaveSettings::default() }
    }

    /// A set of one record, and of one PV that does not exist.
    fn set(path: PathBuf, when: SaveTrigger, database: &Database) -> SaveSet {
        let pvs = ["a", "missing"].map(|pv| RequestedPv { pv: pv.to_owned(), at: fodo_db::LoadError::default() });
        SaveSet::new("s.req", path, when, &pvs, database)
    }

    #[test]
    fn a_failing_set_is_retried_after_the_retry_delay_and_reported_once() {
        let (folder, database, settings) = (Folder::new(), database(), settings());
        let mut set = set(folder.path("later/s.sav"), SaveTrigger::Every(PERIOD), &database);
        let first = set.due().unwrap();

        assert_eq!(set.tick(&database, &settings, first - RETRY), None);
        assert_eq!(set.status(), SaveStatus::new(Health::Unknown, "Initialized"));
        let (level, text) = set.tick(&database, &settings, first).unwrap();
        assert!(level == Level::Error && text.contains("cannot save") && text.contains("s.sav"), "{text}");
        assert_eq!((set.due(), set.is_failing()), (Some(first + RETRY), true));
        assert_eq!(set.status(), SaveStatus::new(Health::Failure, "Can't write .sav file"));
        assert_eq!(set.take_recent().unwrap(), "Can't write 's.sav'");
        assert_eq!(set.tick(&database, &settings, first + RETRY), None);

        std::fs::create_dir(folder.path("later")).unwrap();
        let (level, text) = set.tick(&database, &settings, first + 2 * RETRY).unwrap();
        assert!(level == Level::Warning && text.ends_with("is saved again; failed attempts: 2"), "{text}");
        assert_eq!((set.due(), set.is_failing()), (Some(first + 2 * RETRY + PERIOD), false));
        assert_eq!(set.status(), SaveStatus::new(Health::Warning, "1 value not saved"));
    }

    #[test]
    fn a_manual_set_is_due_only_while_it_is_failing() {
        let (folder, database, settings) = (Folder::new(), database(), settings());
        let mut set = set(folder.path("later/s.sav"), SaveTrigger::Asked, &database);
        let now = Instant::now();
        assert_eq!((set.due(), set.tick(&database, &settings, now)), (None, None));

        assert!(set.save(&database, &settings, now, false).is_some());
        assert!(set.due().is_some());
        std::fs::create_dir(folder.path("later")).unwrap();

        assert!(set.tick(&database, &settings, now + RETRY).is_some());
        assert_eq!(set.due(), None);
        assert_eq!(disk::body(&folder.path("later/s.sav")).unwrap().lines().nth(1), Some("a 1"));
    }

    #[test]
    fn a_sequence_file_that_cannot_be_written_has_its_own_status() {
        let (folder, database) = (Folder::new(), database());
        let settings = AutosaveSettings { n_sequence: 2, sequence_period: PERIOD, ..settings() };
        std::fs::create_dir(folder.path("s.sav0")).unwrap();
        let mut set = set(folder.path("s.sav"), SaveTrigger::Asked, &database);
        let now = Instant::now();

        let (_, text) = set.save(&database, &settings, now, false).unwrap();

        assert!(text.contains("copy 0 of it: "), "{text}");
        assert_eq!(set.status(), SaveStatus::new(Health::SequenceFailure, "Can't write sequence file"));
        assert!(set.describe(false).contains("NOT SAVED: copy 0 of it: "));

        // The next period writes the next file, and the one after it the first again.
        std::fs::remove_dir(folder.path("s.sav0")).unwrap();
        for (n_periods, name) in [(1, "s.sav1"), (2, "s.sav0")] {
            assert!(!folder.path(name).exists());
            set.save(&database, &settings, now + n_periods * PERIOD, false);
            assert!(folder.path(name).exists());
        }
    }

    #[test]
    fn a_set_is_saved_at_the_end_if_it_is_saved_periodically_or_its_last_save_has_failed() {
        let (folder, database, settings) = (Folder::new(), database(), settings());
        let trigger = database.field("a").unwrap();
        let is_saved_at_the_end = |name: &str, when| {
            let path = folder.path(name);
            assert_eq!(set(path.clone(), when, &database).finish(&database, &settings), None);
            path.exists()
        };

        assert!(is_saved_at_the_end("changed.sav", SaveTrigger::Changed(PERIOD)));
        assert!(is_saved_at_the_end("periodic.sav", SaveTrigger::Every(PERIOD)));
        assert!(!is_saved_at_the_end("triggered.sav", SaveTrigger::Triggered(trigger)));
        assert!(!is_saved_at_the_end("manual.sav", SaveTrigger::Asked));

        let mut failing = set(folder.path("later/s.sav"), SaveTrigger::Asked, &database);
        assert!(failing.save(&database, &settings, Instant::now(), false).is_some());
        std::fs::create_dir(folder.path("later")).unwrap();
        let (level, text) = failing.finish(&database, &settings).unwrap();
        assert!(level == Level::Warning && text.ends_with("is saved again; failed attempts: 1"), "{text}");
        assert!(folder.path("later/s.sav").exists());
    }

    #[test]
    fn a_set_saved_after_changes_is_not_written_while_nothing_changes() {
        let (folder, database, settings) = (Folder::new(), database(), settings());
        let path = folder.path("s.sav");
        let mut set = set(path.clone(), SaveTrigger::Changed(PERIOD), &database);
        let first = set.due().unwrap();
        set.tick(&database, &settings, first);

        std::fs::remove_file(&path).unwrap();
        set.tick(&database, &settings, first + PERIOD);
        assert!(!path.exists());

        set.move_to(path.clone());
        set.tick(&database, &settings, first + 2 * PERIOD);
        assert!(path.exists());
    }

    #[test]
    fn a_set_saved_periodically_is_written_also_while_nothing_changes() {
        let (folder, database, settings) = (Folder::new(), database(), settings());
        let path = folder.path("s.sav");
        let mut set = set(path.clone(), SaveTrigger::Every(PERIOD), &database);
        let first = set.due().unwrap();
        set.tick(&database, &settings, first);

        std::fs::remove_file(&path).unwrap();
        set.tick(&database, &settings, first + PERIOD);

        assert!(path.exists());
    }

    #[test]
    fn without_incomplete_sets_only_those_whose_pvs_all_exist_are_saved() {
        let (folder, database) = (Folder::new(), database());
        let settings = AutosaveSettings { takes_incomplete: false, ..settings() };
        let mut incomplete = set(folder.path("missing.sav"), SaveTrigger::Asked, &database);
        let pvs = [RequestedPv { pv: "a".to_owned(), at: fodo_db::LoadError::default() }];
        let mut whole = SaveSet::new("s.req", folder.path("whole.sav"), SaveTrigger::Asked, &pvs, &database);
        let now = Instant::now();

        assert!(
            incomplete.save(&database, &settings, now, false).is_some_and(|(_, text)| text.contains("1 of its PVs"))
        );
        assert_eq!(whole.save(&database, &settings, now, false), None);

        assert!(!folder.path("missing.sav").exists() && folder.path("whole.sav").exists());
        assert_eq!(whole.status(), SaveStatus::good());
    }
}
