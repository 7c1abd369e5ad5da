//! The shell of a soft IOC: the commands of `st.cmd` files, read from files or from a person.
//!
//! It has an environment and a folder of its own, so that a script changes nothing in the process. With
//! [`Purpose::Check`] it follows a script without starting, writing or running anything, and collects what is wrong.

mod access;
mod autosave;
mod check;
mod complete;
mod environment;
mod files;
mod program;
mod put_log;
mod reccaster;
mod records;
mod report;
mod script;
mod show;
mod table;
mod words;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fodo_db::{Database, LoadError, Loader, Macros};
use fodo_net::log::Log;
use fodo_net::{ConfigError, ServerConfig};

use crate::printable;
use crate::site::Environment;
use crate::stats::VERSION;
use crate::turn::Crank;
use crate::{LeftOut, Policy, RunningIoc};

pub use autosave::mistakes_in_request;
pub use check::{Finding, Weight};
pub use complete::Completer;
pub(crate) use records::matches;
pub use script::Flow;
pub use table::is_command;
use words::Word;

/// Looks a variable of the environment up.
pub type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// What `iocInit` needs of whoever runs the shell.
pub struct Start {
    /// The configuration that the shell's environment means, and what else counts.
    #[expect(clippy::type_complexity, reason = "said once")]
    pub configure: Box<dyn Fn(&Lookup) -> Result<ServerConfig, ConfigError> + Send>,
    /// What clients may do, besides what the access file of the shell says.
    pub policy: Policy,
    /// The policy's puts go to a log.
    pub has_put_log: bool,
    /// The line on stdout that tells that it serves; empty for none.
    pub ready: Box<dyn Fn(&RunningIoc) -> String + Send>,
    /// The line on stderr that tells that `iocInit` has ended; empty for none.
    pub complete: Box<dyn Fn() -> String + Send>,
    /// The time on the wall as a `strftime` format wants it.
    pub date: Box<dyn Fn(&str) -> String + Send>,
    /// What happens on the network is told to this.
    pub log: Option<Log>,
    /// Where what is counted is read over HTTP, with what counts the lines that a put log leaves out.
    pub metrics: Option<(SocketAddr, Option<LeftOut>)>,
    /// The UDP port where announcements of RecCeivers are heard, who are told the records; none: nobody is told.
    pub reccaster: Option<u16>,
}

/// What the shell is for.
pub enum Purpose {
    /// Commands do what they say.
    Run(Box<Start>),
    /// Commands are checked.
    Check,
}

/// Where an IOC that serves is found, by the shell that started it and by whoever stops it.
pub type Place = Arc<Mutex<Option<RunningIoc>>>;

/// What is loaded, and whether it runs.
enum Stage {
    /// Records may be loaded.
    Loading(Box<Loader>),
    /// `iocInit` has begun to serve.
    Running(Arc<Crank>),
    /// `iocInit` came, and only a check goes on.
    Checked(Box<Database>),
    /// `iocInit` failed: there are no records any more.
    Failed,
}

/// A shell; see the module.
pub struct Shell {
    purpose: Purpose,
    macros: Macros,
    /// The variables among them, for records that read one.
    environment: Environment,
    folder: PathBuf,
    stage: Stage,
    place: Place,
    completer: Completer,
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    variables: BTreeMap<&'static str, i64>,
    /// Commands whose absence is told already.
    told: HashSet<String>,
    /// The access security file that `iocInit` is to load, and its macros.
    access_file: Option<PathBuf>,
    access_macros: String,
    /// An error ends a script, unless it says otherwise.
    is_strict: bool,
    /// Records that errors have left out: what names them is no further error.
    missing: HashSet<String>,
    /// Lines on records that are simulated, once `iocInit` has come.
    inert: Option<String>,
    /// Commands that wait for `iocInit`.
    afterwards: Vec<String>,
    autosave: autosave::Plan,
    /// What scripts want RecCeivers to be told, or not.
    recsync: reccaster::Wishes,
    findings: Vec<Finding>,
    /// The scripts that are read, innermost last.
    within: Vec<script::Within>,
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Why a command did not do what it says.
#[derive(Debug)]
enum Failure {
    /// A word of the line is wrong; 0 is the command.
    Word(usize, String),
    /// Files are wrong, each in its places.
    Files(Vec<LoadError>),
}

impl Failure {
    /// There are no records yet that one could ask.
    fn too_early() -> Failure {
        Failure::Word(0, "iocInit has not come yet, and this works behind it".into())
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::Word(0, message)
    }
}

/// A command with its words, the first of which is its name.
struct Call<'a> {
    words: &'a [Word],
}

impl<'a> Call<'a> {
    /// An argument, counted from 1.
    fn argument(&self, index: usize) -> Option<&'a str> {
        self.words.get(index).map(|word| word.text.as_str())
    }

    /// One that must be there.
    fn needed(&self, index: usize, what: &str) -> Result<&'a str, Failure> {
        self.argument(index).filter(|text| !text.is_empty()).ok_or_else(|| {
            let name = self.argument(0).unwrap_or_default();
            let usage = table::find(name).map_or(String::new(), |command| format!("; usage: {}", command.usage));
            Failure::Word(0, format!("{what} is missing{usage}"))
        })
    }
}

impl Shell {
    /// A shell in a folder, with the variables of an environment. Output goes to `out`, complaints to `err`.
    pub fn new(
        purpose: Purpose,
        folder: &Path,
        environment: impl Iterator<Item = (String, String)>,
        out: Box<dyn Write + Send>,
        err: Box<dyn Write + Send>,
    ) -> Shell {
        let mut macros = Macros::default();
        let mut variables = HashMap::new();
        for (name, value) in environment {
            macros.define(&name, &value);
            variables.insert(name, value);
        }
        let loader = match purpose {
            Purpose::Run(_) => Loader::default(),
            Purpose::Check => Loader::that_keeps_places(),
        };
        Shell {
            purpose,
            macros,
            environment: Arc::new(Mutex::new(variables)),
            folder: folder.to_owned(),
            stage: Stage::Loading(Box::new(loader)),
            place: Place::default(),
            completer: Completer::default(),
            out,
            err,
            variables: environment::variables(),
            told: HashSet::new(),
            access_file: None,
            access_macros: String::new(),
            is_strict: false,
            missing: HashSet::new(),
            inert: None,
            afterwards: Vec::new(),
            autosave: autosave::Plan::default(),
            recsync: reccaster::Wishes::default(),
            findings: Vec::new(),
            within: Vec::new(),
        }
    }

    /// From now on a record type or a DTYP that is not here is no error; `iocInit` tells how many records are inert for it.
    pub fn simulate(&mut self) {
        if let Stage::Loading(loader) = &mut self.stage {
            loader.simulate();
        }
    }

    /// From now on an error ends a script, as after `on error break`, and so does a link that cannot be what it says.
    pub fn be_strict(&mut self) {
        self.is_strict = true;
    }

    /// Serves the records of softIoc's `-x`: `PREFIX:exit`, a sub whose processing calls `exit` with the code 0, or 1 when
    /// its A is not 0, and `PREFIX:BaseVersion`, a stringin with the version. Fails when a name is invalid.
    ///
    /// `exit` is called inside the processing, so it must not wait for the IOC to end.
    pub fn serve_exit(
        &mut self,
        prefix: &str,
        exit: impl Fn(u8) + Send + Sync + 'static,
    ) -> Result<(), Vec<LoadError>> {
        let records = format!(
            "record(sub, \"$(IOC):exit\") {{ field(DESC, \"Ends the IOC\") field(SNAM, \"exit\") }}\n\
             record(stringin, \"$(IOC):BaseVersion\") {{ field(DESC, \"Version\") field(VAL, \"{VERSION}\")\
             field(PINI, \"YES\") field(DISP, \"1\") }}\n"
        );
        let Stage::Loading(loader) = &mut self.stage else { return Ok(()) };
        loader.routine("exit", move |call| {
            exit(u8::from(call.args.first().is_some_and(|code| *code != 0.0)));
            Ok(())
        });
        loader.load("softIocExit.db", &format!("IOC={prefix}"), &mut |_| Ok(records.clone().into_bytes()))
    }

    /// The loader of this IOC, to register routines with. `None` from `iocInit` on.
    pub fn loader(&mut self) -> Option<&mut Loader> {
        match &mut self.stage {
            Stage::Loading(loader) => Some(loader),
            _ => None,
        }
    }

    /// Where the IOC is found once it serves. Who takes it out stops it.
    pub fn place(&self) -> Place {
        self.place.clone()
    }

    /// What a variable of the shell's environment says.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.macros.value(name)
    }

    /// What completes a line for a person.
    pub fn completer(&self) -> Completer {
        self.completer.clone()
    }

    /// Whether `iocInit` has come and succeeded.
    pub fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Running(_))
    }

    fn is_check(&self) -> bool {
        matches!(self.purpose, Purpose::Check)
    }

    fn database(&self) -> Result<&Database, Failure> {
        match &self.stage {
            Stage::Running(crank) => Ok(crank.database()),
            Stage::Checked(database) => Ok(database),
            Stage::Loading(_) => Err(Failure::too_early()),
            Stage::Failed => Err(Failure::Word(0, "iocInit has failed, so there are no records".into())),
        }
    }

    /// A file name as the shell's folder means it.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Reads files for a loader: from the shell's folder, else from the folders that `path` and then
    /// EPICS_DB_INCLUDE_PATH name, separated by ':'.
    fn open_along(&self, path: &str) -> impl FnMut(&str) -> io::Result<Vec<u8>> + use<> {
        let variable = self.macros.value("EPICS_DB_INCLUDE_PATH").unwrap_or_default();
        let named = path.split(':').chain(variable.split(':')).filter(|folder| !folder.is_empty());
        let folders: Vec<PathBuf> = std::iter::once("").chain(named).map(|folder| self.folder.join(folder)).collect();
        move |name| {
            let mut missing = io::Error::from(io::ErrorKind::NotFound);
            for folder in &folders {
                match crate::file::read(folder.join(name)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => missing = error,
                    result => return result,
                }
            }
            Err(missing)
        }
    }

    fn say(&mut self, text: &str) {
        self.say_as_it_is(printable(text).as_bytes());
    }

    /// Control characters that a script means stay.
    fn say_as_it_is(&mut self, bytes: &[u8]) {
        // Nothing is left to do when the output fails.
        let _ = self.out.write_all(bytes);
        let _ = self.out.flush();
    }

    fn complain(&mut self, text: &str) {
        self.complain_as_it_is(format!("{}\n", printable(text)).as_bytes());
    }

    fn complain_as_it_is(&mut self, bytes: &[u8]) {
        // As above.
        let _ = self.err.write_all(bytes);
        let _ = self.err.flush();
    }
}

/// A thread that panicked while it held the lock has left what is in it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
