//! The shell of a soft IOC: runs the commands of `st.cmd` files, from files or typed by a user.
//!
//! It has its own environment and folder, so that a script changes nothing in the process. With [`Purpose::Check`] it
//! follows a script without starting, writing or running anything, and collects the findings.
//!
//! # Check a script
//!
//! ```
//! use fodo_ioc::shell::{FindingLevel, Purpose, Shell};
//!
//! # fn main() -> std::io::Result<()> {
//! # let folder = std::env::temp_dir().join(format!("fodo-shell-check-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! std::fs::write(folder.join("st.cmd"), "dbLoadRecords gap.db\niocInit\n")?;
//!
//! let (out, err) = (Box::new(std::io::sink()), Box::new(std::io::stderr()));
//! let mut shell = Shell::new(Purpose::Check, &folder, std::env::vars(), out, err);
//! shell.run_script("st.cmd");
//! for finding in shell.into_findings() {
//!     println!("{:?}: {}", finding.weight, finding.error);
//!     assert_eq!(finding.weight, FindingLevel::Error); // gap.db does not exist
//! }
//! # std::fs::remove_dir_all(folder)
//! # }
//! ```
//!
//! # Run a script
//!
//! [`RunConfig`] contains what the commands of a script do not determine. `iocInit` puts the IOC into the slot that
//! [`Shell::place`] returns. Routines of `sub` and `aSub` records are registered with [`Shell::loader`] before.
//!
//! ```
//! use fodo_ioc::Policy;
//! use fodo_ioc::shell::{Flow, Purpose, RunConfig, Shell, is_command};
//! use fodo_net::ServerConfig;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("fodo-shell-run-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! let config = RunConfig {
//!     configure: Box::new(|_variable| Ok(ServerConfig::isolated())),
//!     policy: Policy::default(),
//!     has_put_log: false,
//!     ready: Box::new(|ioc| format!("serving {} records\n", ioc.n_records())),
//!     complete: Box::new(String::new),
//!     date: Box::new(|_format| String::new()),
//!     log: None,
//!     metrics: None,
//!     reccaster: None,
//! };
//! std::fs::write(folder.join("gap.db"), r#"record(ao, "$(P)gap") { field(VAL, "12.5") }"#)?;
//! std::fs::write(folder.join("st.cmd"), "dbLoadRecords gap.db P=$(PREFIX)\niocInit\ndbgf X:gap\nexit 3\n")?;
//!
//! let variables = [("PREFIX".to_owned(), "X:".to_owned())].into_iter();
//! let (out, err) = (Box::new(std::io::stdout()), Box::new(std::io::stderr()));
//! let mut shell = Shell::new(Purpose::Run(Box::new(config)), &folder, variables, out, err);
//! shell.be_strict();
//! if let Some(loader) = shell.loader() {
//!     loader.routine("double", |call| Ok(call.args.iter_mut().for_each(|arg| *arg *= 2.0)));
//! }
//! assert_eq!(shell.variable("PREFIX"), Some("X:"));
//! assert_eq!(shell.run_script("st.cmd"), Flow::Exit(3));
//! assert!(shell.is_running());
//!
//! // Lines that a user types, and their completion.
//! let (start, words) = shell.completer().complete("dbgf X:g", 8);
//! assert_eq!((start, words), (5, vec!["X:gap".to_owned()]));
//! assert!(is_command("dbgf X:gap"));
//! assert_eq!(shell.run_line("dbgf X:gap"), Flow::Next);
//! assert!(shell.attempt(&["dbgf", "X:absent"]).is_err());
//!
//! // The IOC stops when it is dropped.
//! drop(shell.place().lock().take());
//! # std::fs::remove_dir_all(folder)?;
//! # Ok(())
//! # }
//! ```

mod access;
mod autosave;
mod check;
mod complete;
mod environment;
mod files;
mod groups;
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
use std::sync::Arc;

use fodo_db::{Database, LoadError, Loader, Macros};
use fodo_lock::{Mutex, Rank};
use fodo_net::log::Log;
use fodo_net::{ConfigError, ServerConfig, Source};

use crate::driver::DatabaseDriver;
use crate::printable;
use crate::site::SharedEnvironment;
use crate::stats::VERSION;
use crate::{CountMissingPuts, Policy, RunningIoc};

pub use check::{CheckFinding, FindingLevel, check_groups, check_request_file};
pub use complete::Completer;
pub(crate) use records::matches;
pub use script::Flow;
pub use table::is_command;
use words::Word;

/// Looks up an environment variable.
pub type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The configuration that `iocInit` needs from the caller. [The module](self#run-a-script) has an example.
pub struct RunConfig {
    /// Makes the server configuration from the shell's environment and the caller's own options.
    #[expect(clippy::type_complexity, reason = "used once")]
    pub configure: Box<dyn Fn(&Lookup) -> Result<ServerConfig, ConfigError> + Send>,
    /// The access policy; commands of the shell add the access file.
    pub policy: Policy,
    /// Whether the policy's puts are written to a log.
    pub has_put_log: bool,
    /// The line on stdout that reports that the IOC serves; empty for none.
    pub ready: Box<dyn Fn(&RunningIoc) -> String + Send>,
    /// The line on stderr that reports the end of `iocInit`; empty for none.
    pub complete: Box<dyn Fn() -> String + Send>,
    /// The current time in a `strftime` format.
    pub date: Box<dyn Fn(&str) -> String + Send>,
    /// The log for network events.
    pub log: Option<Log>,
    /// The address for metrics over HTTP, and the counter of puts missing from the put log.
    pub metrics: Option<(SocketAddr, Option<CountMissingPuts>)>,
    /// The UDP port for announcements of RecCeivers, which then receive the records; `None` for none.
    pub reccaster: Option<u16>,
}

/// The purpose of a shell.
pub enum Purpose {
    /// Commands are executed.
    Run(Box<RunConfig>),
    /// Commands are only checked.
    Check,
}

/// The running IOC, shared by the shell that started it and the caller who stops it.
pub type IocSlot = Arc<Mutex<Option<RunningIoc>>>;

/// The stage of the IOC.
enum IocStage {
    /// Records may be loaded.
    Loading(Box<Loader>),
    /// `iocInit` has started the server.
    Running(Arc<DatabaseDriver>),
    /// `iocInit` was reached in a check.
    Checked(Box<Database>),
    /// `iocInit` failed, so there are no records.
    Failed,
}

/// A shell; [the module](self) has examples.
pub struct Shell {
    purpose: Purpose,
    macros: Macros,
    /// The environment variables, for records that read them.
    environment: SharedEnvironment,
    folder: PathBuf,
    stage: IocStage,
    place: IocSlot,
    completer: Completer,
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    variables: BTreeMap<&'static str, i64>,
    /// Messages that have already been reported.
    reported: HashSet<String>,
    /// The access security file that `iocInit` loads, and its macros.
    access_file: Option<PathBuf>,
    access_macros: String,
    /// An error ends a script, unless `on error` changes this.
    is_strict: bool,
    /// Records left out because of errors; references to them are not reported as further errors.
    missing: HashSet<String>,
    /// Lines about simulated records, after `iocInit`.
    inert: Option<String>,
    /// Commands to run after `iocInit`.
    afterwards: Vec<String>,
    /// What `iocInit` serves beside the records.
    others: Vec<Arc<dyn Source>>,
    autosave: autosave::AutosavePlan,
    /// The RecCeiver configuration set by scripts.
    recsync: reccaster::RecSyncOptions,
    findings: Vec<CheckFinding>,
    /// The stack of running scripts, innermost last.
    within: Vec<script::RunningScript>,
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Why a command failed.
#[derive(Debug)]
enum CommandError {
    /// A word of the line is invalid; 0 is the command.
    Word(usize, String),
    /// Files contain errors.
    Files(Vec<LoadError>),
}

impl CommandError {
    /// The command needs records, which do not exist yet.
    fn too_early() -> CommandError {
        CommandError::Word(0, "iocInit has not run yet; this command works only after it".into())
    }
}

impl From<String> for CommandError {
    fn from(message: String) -> CommandError {
        CommandError::Word(0, message)
    }
}

/// A command line; the first word is the name of the command.
struct CommandLine<'a> {
    words: &'a [Word],
}

impl<'a> CommandLine<'a> {
    /// An argument, counted from 1.
    fn argument(&self, index: usize) -> Option<&'a str> {
        self.words.get(index).map(|word| word.text.as_str())
    }

    /// A required argument.
    fn needed(&self, index: usize, what: &str) -> Result<&'a str, CommandError> {
        self.argument(index).filter(|text| !text.is_empty()).ok_or_else(|| {
            let name = self.argument(0).unwrap_or_default();
            let usage = table::find(name).map_or(String::new(), |command| format!("; usage: {}", command.usage));
            CommandError::Word(0, format!("{what} is missing{usage}"))
        })
    }
}

impl Shell {
    /// Creates a shell in a folder with the given environment variables. Output is written to `out`, messages to `err`.
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
            Purpose::Check => Loader::with_places(),
        };
        let mut shell = Shell {
            purpose,
            macros,
            environment: Arc::new(Mutex::new(variables)),
            folder: folder.to_owned(),
            stage: IocStage::Loading(Box::new(loader)),
            place: Arc::new(Mutex::ranked(Rank::RunningIoc, None)),
            completer: Completer::default(),
            out,
            err,
            variables: environment::variables(),
            reported: HashSet::new(),
            access_file: None,
            access_macros: String::new(),
            is_strict: false,
            missing: HashSet::new(),
            inert: None,
            afterwards: Vec::new(),
            others: Vec::new(),
            autosave: autosave::AutosavePlan::default(),
            recsync: reccaster::RecSyncOptions::default(),
            findings: Vec::new(),
            within: Vec::new(),
        };
        shell.define_variables_of_base();
        shell
    }

    /// Accepts unknown record types and DTYPs; `iocInit` reports how many records are inert because of them.
    ///
    /// ```
    /// use fodo_ioc::shell::{Purpose, Shell};
    ///
    /// let (out, err) = (Box::new(std::io::sink()), Box::new(std::io::stderr()));
    /// let mut shell = Shell::new(Purpose::Check, ".".as_ref(), std::env::vars(), out, err);
    /// shell.simulate();
    /// ```
    pub fn simulate(&mut self) {
        if let IocStage::Loading(loader) = &mut self.stage {
            loader.enable_simulation();
        }
    }

    /// Makes every error end a script, as after `on error break`, including invalid links.
    pub fn be_strict(&mut self) {
        self.is_strict = true;
    }

    /// Loads the records of softIoc's `-x`: `PREFIX:exit`, a sub record whose processing calls `exit` with code 0, or
    /// 1 if its A is not 0, and `PREFIX:BaseVersion`, a stringin record with the version. Fails if a name is invalid.
    ///
    /// `exit` is called during record processing, so it must not wait for the IOC to end.
    ///
    /// ```
    /// use fodo_ioc::shell::{Purpose, Shell};
    ///
    /// let (out, err) = (Box::new(std::io::sink()), Box::new(std::io::stderr()));
    /// let mut shell = Shell::new(Purpose::Check, ".".as_ref(), std::env::vars(), out, err);
    /// let (sender, code) = std::sync::mpsc::channel();
    /// shell.serve_exit("X", move |code| drop(sender.send(code))).unwrap();
    /// ```
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
        let IocStage::Loading(loader) = &mut self.stage else { return Ok(()) };
        loader.routine("exit", move |call| {
            exit(u8::from(call.args.first().is_some_and(|code| *code != 0.0)));
            Ok(())
        });
        loader.load("softIocExit.db", &format!("IOC={prefix}"), &mut |_| Ok(records.clone().into_bytes()))
    }

    /// Serves other PVs beside the records, from `iocInit` on.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use fodo_ioc::shell::{Purpose, Shell};
    /// use fodo_net::{PvTable, SharedPv};
    ///
    /// let (out, err) = (Box::new(std::io::sink()), Box::new(std::io::stderr()));
    /// let mut shell = Shell::new(Purpose::Check, ".".as_ref(), std::env::vars(), out, err);
    /// shell.serve_also(Arc::new(PvTable::from([("lab:temperature", SharedPv::new(21.5))])));
    /// ```
    pub fn serve_also(&mut self, source: Arc<dyn Source>) {
        self.others.push(source);
    }

    /// The loader of this IOC, for registering routines; `None` after `iocInit`.
    pub fn loader(&mut self) -> Option<&mut Loader> {
        match &mut self.stage {
            IocStage::Loading(loader) => Some(loader),
            _ => None,
        }
    }

    /// The shared slot that contains the IOC while it runs. Dropping the IOC taken from it stops it.
    pub fn place(&self) -> IocSlot {
        self.place.clone()
    }

    /// The value of an environment variable of the shell.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.macros.value(name)
    }

    /// A completer for typed lines.
    pub fn completer(&self) -> Completer {
        self.completer.clone()
    }

    /// Whether `iocInit` has run successfully.
    pub fn is_running(&self) -> bool {
        matches!(self.stage, IocStage::Running(_))
    }

    fn is_check(&self) -> bool {
        matches!(self.purpose, Purpose::Check)
    }

    fn database(&self) -> Result<&Database, CommandError> {
        match &self.stage {
            IocStage::Running(driver) => Ok(driver.database()),
            IocStage::Checked(database) => Ok(database),
            IocStage::Loading(_) => Err(CommandError::too_early()),
            IocStage::Failed => Err(CommandError::Word(0, "iocInit has failed, so there are no records".into())),
        }
    }

    /// Resolves a file name relative to the shell's folder.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Opens files for a loader in the shell's folder, then in the folders of `path` and EPICS_DB_INCLUDE_PATH, which
    /// are separated by ':'.
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

    /// Writes bytes without escaping control characters.
    fn say_as_it_is(&mut self, bytes: &[u8]) {
        // There is no other place to report that the output failed.
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
