//! A set of PVs that are saved together in one file.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fodo_data::TimeStamp;
use fodo_db::{Database, FieldRef};
use fodo_net::log::Level;
use jiff::Zoned;

use super::request::Wanted;
use super::status::{Health, Status, time_text};
use super::{Settings, disk, format};
use crate::limit::TRIGGER_PERIOD;

/// What has a set saved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// A value that is another than the one in the file, looked for once a period.
    Changed(Duration),
    /// Time.
    Every(Duration),
    /// The PV that triggers it was processed or written.
    Triggered(FieldRef),
    /// `manual_save` alone.
    Asked,
}

/// How saving goes.
#[derive(Clone, Debug, PartialEq)]
enum State {
    /// Nothing was to be saved yet.
    New,
    /// The file holds what it should.
    Good,
    /// What should be in the file, or in a copy of it, is not, for so many attempts.
    Failing { trouble: Trouble, n_attempts: usize },
}

/// Why a set is not saved.
#[derive(Clone, Debug, PartialEq)]
struct Trouble {
    health: Health,
    why: String,
}

impl Trouble {
    fn of_file(why: String) -> Trouble {
        Trouble { health: Health::Failure, why }
    }
}

/// One PV of a set.
#[derive(Debug)]
struct Member {
    pv: String,
    /// None for a PV that this IOC does not have.
    field: Option<FieldRef>,
}

/// A set of PVs; see the module.
#[derive(Debug)]
pub struct Set {
    /// The name that commands give it: that of its request file.
    pub name: String,
    /// Where it is saved.
    pub path: PathBuf,
    when: When,
    members: Vec<Member>,
    due: Instant,
    /// What the file holds behind its header; none when that is not known.
    written: Option<String>,
    /// What the trigger was when it was last looked at, and since when.
    trigger: Option<(TimeStamp, String)>,
    state: State,
    /// When the file was last written, for a person.
    saved_at: Option<String>,
    /// What was last done, until somebody asks.
    recent: Option<String>,
    sequence: Sequence,
}

/// Which copy is the next one in turn.
#[derive(Debug, Default)]
struct Sequence {
    number: usize,
    last: Option<Instant>,
}

/// A line to tell about a set.
pub type Note = (Level, String);

impl Set {
    /// A set that begins now.
    pub fn new(name: &str, path: PathBuf, when: When, wanted: &[Wanted], database: &Database) -> Set {
        let member = |wanted: &Wanted| Member { pv: wanted.pv.clone(), field: database.field(&wanted.pv) };
        let mut set = Set {
            name: name.to_owned(),
            written: disk::body(&path),
            path,
            when,
            members: wanted.iter().map(member).collect(),
            due: Instant::now(),
            trigger: None,
            state: State::New,
            saved_at: None,
            recent: None,
            sequence: Sequence::default(),
        };
        if let When::Triggered(field) = when {
            set.trigger = Some(glance(database, field));
        }
        set.due += set.period().unwrap_or_default();
        set
    }

    /// Has it saved to another file from now on.
    pub fn move_to(&mut self, path: PathBuf) {
        self.written = disk::body(&path);
        self.path = path;
    }

    fn period(&self) -> Option<Duration> {
        match self.when {
            When::Changed(period) | When::Every(period) => Some(period),
            When::Triggered(_) => Some(TRIGGER_PERIOD),
            When::Asked => None,
        }
    }

    /// Whether its file lacks what should be in it.
    pub fn is_failing(&self) -> bool {
        matches!(self.state, State::Failing { .. })
    }

    /// When it wants to be looked at.
    pub fn due(&self) -> Option<Instant> {
        (self.period().is_some() || self.is_failing()).then_some(self.due)
    }

    /// Saves what is to be saved by now; gives what is to be told.
    pub fn tick(&mut self, database: &Database, settings: &Settings, now: Instant) -> Option<Note> {
        if self.due().is_none_or(|due| now < due) {
            return None;
        }
        let is_owed = self.is_failing();
        let is_wanted = match self.when {
            When::Changed(_) | When::Every(_) => true,
            When::Triggered(field) => {
                let seen = Some(glance(database, field));
                let is_new = seen != self.trigger;
                self.trigger = seen;
                is_new || is_owed
            }
            When::Asked => is_owed,
        };
        let note = if is_wanted { self.save(database, settings, now, self.when.is_lazy()) } else { None };
        let pause = match self.state {
            State::Failing { .. } => settings.retry,
            _ => self.period().unwrap_or_default(),
        };
        self.due = now + pause;
        note
    }

    /// Saves a last time, what has changed since.
    pub fn finish(&mut self, database: &Database, settings: &Settings) -> Option<Note> {
        let is_wanted = self.is_failing() || matches!(self.when, When::Changed(_) | When::Every(_));
        if is_wanted { self.save(database, settings, Instant::now(), true) } else { None }
    }

    /// Saves it; `is_lazy`: only if something is to be written. Gives what is to be told: what has begun to fail, or
    /// fails otherwise, or works again.
    pub fn save(&mut self, database: &Database, settings: &Settings, now: Instant, is_lazy: bool) -> Option<Note> {
        let (body, n_missing) = self.body(database);
        if is_lazy && self.written.as_ref() == Some(&body) {
            return self.settle(Ok(()));
        }
        let result = match n_missing {
            n if n > 0 && !settings.takes_incomplete => {
                let why = format!("{n} of its PVs are not there, and save_restoreSet_IncompleteSetsOk(0) wants all");
                Err(Trouble::of_file(why))
            }
            _ => {
                let date = Zoned::now().strftime("%y%m%d-%H%M%S").to_string();
                let written = disk::replace(&self.path, &(format::header(&date) + &body));
                written.map_err(|error| Trouble::of_file(error.to_string()))
            }
        };
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.recent = Some(if result.is_ok() { format!("Wrote '{file}'") } else { format!("Can't write '{file}'") });
        if result.is_ok() {
            self.saved_at = Some(time_text());
        }
        // What half of a failed exchange of files has left is looked at no more.
        self.written = result.is_ok().then_some(body);
        let copied = if result.is_ok() { self.copy_in_turn(settings, now) } else { Ok(()) };
        self.settle(result.and(copied))
    }

    /// The file behind its header, and how many PVs have no value.
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

    /// How saving goes, in the words of synApps.
    pub fn status(&self) -> Status {
        match (&self.state, self.n_missing()) {
            (State::New, _) => Status::new(Health::Unknown, "Initialized"),
            (State::Good, 0) => Status::good(),
            (State::Good, 1) => Status::new(Health::Warning, "1 value not saved"),
            (State::Good, n) => Status::new(Health::Warning, &format!("{n} values not saved")),
            (State::Failing { trouble, .. }, _) if trouble.health == Health::SequenceFailure => {
                Status::new(Health::SequenceFailure, "Can't write sequence file")
            }
            (State::Failing { .. }, _) => Status::new(Health::Failure, "Can't write .sav file"),
        }
    }

    /// The name of its file without the ending.
    pub fn short_name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// When its file was last written.
    pub fn saved_at(&self) -> Option<&str> {
        self.saved_at.as_deref()
    }

    /// What was last done, once.
    pub fn take_recent(&mut self) -> Option<String> {
        self.recent.take()
    }

    fn copy_in_turn(&mut self, settings: &Settings, now: Instant) -> Result<(), Trouble> {
        let is_due = self.sequence.last.is_none_or(|last| now >= last + settings.sequence_period);
        if settings.n_sequence == 0 || !is_due {
            return Ok(());
        }
        self.sequence.last = Some(now);
        let number = self.sequence.number % settings.n_sequence;
        self.sequence.number = number + 1;
        disk::copy(&self.path, &disk::beside(&self.path, &number.to_string()))
            .map_err(|error| Trouble { health: Health::SequenceFailure, why: format!("copy {number} of it: {error}") })
    }

    fn settle(&mut self, result: Result<(), Trouble>) -> Option<Note> {
        let path = self.path.display();
        match result {
            Ok(()) => match std::mem::replace(&mut self.state, State::Good) {
                State::Failing { n_attempts, .. } => Some((
                    Level::Warning,
                    format!("autosave: {path} is saved again; attempts that failed: {n_attempts}"),
                )),
                _ => None,
            },
            Err(trouble) => {
                let (before, n_attempts) = match &self.state {
                    State::Failing { trouble, n_attempts } => (Some(trouble), *n_attempts),
                    _ => (None, 0),
                };
                let is_told = before == Some(&trouble);
                let text = format!("autosave: {path} cannot be saved, what was saved before stays: {}", trouble.why);
                self.state = State::Failing { trouble, n_attempts: n_attempts + 1 };
                (!is_told).then_some((Level::Error, text))
            }
        }
    }

    /// A line for a person; with `is_long` one for every PV as well.
    pub fn shown(&self, is_long: bool) -> String {
        let when = match self.when {
            When::Changed(period) => format!("after changes, every {period:?}"),
            When::Every(period) => format!("every {period:?}"),
            When::Triggered(_) => "when triggered".to_owned(),
            When::Asked => "by manual_save".to_owned(),
        };
        let state = match &self.state {
            State::New => "not saved yet".to_owned(),
            State::Good => "saved".to_owned(),
            State::Failing { trouble, .. } => format!("NOT SAVED: {}", trouble.why),
        };
        let n_missing = self.n_missing();
        let n_there = self.members.len() - n_missing;
        let mut text = format!(
            "{}: {n_there} PVs, {n_missing} not there, {when}, to {}: {state}\n",
            self.name,
            self.path.display()
        );
        if is_long {
            for member in &self.members {
                let absent = if member.field.is_none() { " (not there)" } else { "" };
                text += &format!("  {}{absent}\n", member.pv);
            }
        }
        text
    }
}

/// What tells that a field was written or its record processed. Its value as a text: NaN is not what it is.
fn glance(database: &Database, field: FieldRef) -> (TimeStamp, String) {
    let reading = database.read(field);
    (reading.time, format::value_line("", &reading.value))
}

impl When {
    /// Whether a file that holds the same already is left alone.
    fn is_lazy(self) -> bool {
        matches!(self, When::Changed(_))
    }
}
