//! Builds an IOC inside a program.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fodo_db::{LoadError, Loader, ProgramDirection, RecordDefinition};

use super::output::{OutputHandler, OutputHandlers, OutputRequest};
use crate::autosave::restore::{Messages, restore_early};
use crate::autosave::set::{SaveSet, SaveTrigger};
use crate::autosave::{AutosaveSettings, info_sets};
use crate::limit::{INFO_SAVE_PERIOD, SAVE_PERIOD_MAX, SAVE_PERIOD_MIN};
use crate::names::field_of;
use crate::{Ioc, IocError, file};

/// Builds an IOC inside a program: its records come from files, from texts, or are defined one by one, and may have DTYP
/// Program, which makes the program their device.
///
/// Several IOCs can run in a process. Each stops completely and can be built again.
///
/// ```
/// use fodo_ioc::{IocBuilder, RecordDefinition};
/// use fodo_net::{Context, ServerConfig, Value};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("fodo-builder-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let (file, values) = (folder.join("sum.db"), folder.join("values"));
/// std::fs::write(&file, r#"record(calc, "$(P)double") { field(CALC, "A*2") field(INPA, "$(P)gap CP") }"#)?;
///
/// let mut builder = IocBuilder::new();
/// builder.load(&file, "P=X:")?;
/// builder.load_text(r#"record(ao, "$(P)offset") { info(autosaveFields, "VAL") }"#, "P=X:")?;
/// let gap = RecordDefinition::new("ao", "X:gap").field("DTYP", "Program").field("EGU", "mm").value(12.5);
/// builder.define(&gap)?;
/// builder.loader().routine("nothing", |_| Ok(()));
/// builder.on_output("X:gap", |request| request.complete());
/// builder.keep_values_in(&values);
/// builder.set_save_period(std::time::Duration::from_secs(30));
///
/// let ioc = builder.build()?;
/// ioc.autosave_warnings().iter().for_each(|warning| eprintln!("{warning}"));
/// // On loopback and free ports; `ServerConfig::from_env` serves on the network. Both serve both protocols.
/// let running = ioc.serve(ServerConfig::isolated())?;
///
/// let context = Context::new(running.client_config());
/// context.channel("pva://X:gap")?.put(20.0)?;
/// assert_eq!(running.record("X:gap")?.read().value, Value::from(20.0));
/// running.stop()?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
pub struct IocBuilder {
    loader: Loader,
    handlers: Vec<(String, OutputHandler)>,
    /// The folder for the values of info items.
    values: Option<PathBuf>,
    save_period: Duration,
}

impl fmt::Debug for IocBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IocBuilder").field("loader", &self.loader).finish_non_exhaustive()
    }
}

impl Default for IocBuilder {
    fn default() -> IocBuilder {
        IocBuilder::new()
    }
}

impl IocBuilder {
    /// An IOC without records.
    pub fn new() -> IocBuilder {
        let mut loader = Loader::default();
        loader.enable_program();
        IocBuilder { loader, handlers: Vec::new(), values: None, save_period: INFO_SAVE_PERIOD }
    }

    /// Loads a `.db` file with its macros (`"P=X:,R=1"`), or a `.substitutions` file.
    ///
    /// After an error, the valid part is loaded, but the builder should not be used further.
    pub fn load(&mut self, path: impl AsRef<Path>, macros: &str) -> Result<(), IocError> {
        let path = path.as_ref();
        let name = path.to_string_lossy();
        let mut open = |name: &str| file::read(name);
        let loaded = match path.extension().is_some_and(|extension| extension == "substitutions") {
            true => self.loader.load_template(&name, macros, &mut open),
            false => self.loader.load(&name, macros, &mut open),
        };
        loaded.map_err(IocError::Load)
    }

    /// Loads the text of a `.db` file. It may include files.
    pub fn load_text(&mut self, text: &str, macros: &str) -> Result<(), IocError> {
        let mut text = Some(text.as_bytes().to_vec());
        let mut open = |name: &str| text.take().map_or_else(|| file::read(name), Ok);
        self.loader.load("text", macros, &mut open).map_err(IocError::Load)
    }

    /// Adds a record.
    pub fn define(&mut self, definition: &RecordDefinition) -> Result<(), IocError> {
        self.loader.define(definition).map_err(IocError::Load)
    }

    /// The loader, to register routines of `sub` and `aSub` records, or to read a site's `.dbd` file.
    pub fn loader(&mut self) -> &mut Loader {
        &mut self.loader
    }

    /// Calls `handler` with each value that an output with DTYP Program has to write. [`OutputRequest`] has an example. A
    /// second handler for a record replaces the first. An output without a handler completes at once.
    ///
    /// The IOC calls all handlers on one thread of its own (`fodo-program`), one at a time, in the order of processing.
    /// A handler may use handles, and wait; then the outputs of other records wait, too. If it panics, the output is
    /// refused, and the log reports that. A stop waits at most 5 s for a handler.
    pub fn on_output(&mut self, record: &str, handler: impl FnMut(OutputRequest) + Send + 'static) {
        self.handlers.push((record.to_owned(), Box::new(handler)));
    }

    /// Saves the fields that records name in info items (`info(autosaveFields, "VAL PREC")`) in a folder, as
    /// [`crate::autosave`] describes, and restores them now.
    pub fn keep_values_in(&mut self, folder: impl AsRef<Path>) {
        self.values = Some(folder.as_ref().to_owned());
    }

    /// Sets how often [`IocBuilder::keep_values_in`] looks for values that have changed: from a second to a year. Default: 5 s.
    pub fn set_save_period(&mut self, period: Duration) {
        self.save_period = period.clamp(SAVE_PERIOD_MIN, SAVE_PERIOD_MAX);
    }

    /// Builds the IOC. Fails if the records contain errors, or if a handler is for a record that does not exist or is not
    /// an output with DTYP Program.
    pub fn build(self) -> Result<Ioc, IocError> {
        let IocBuilder { mut loader, handlers, values, save_period } = self;
        let (restored, mut warnings) = match &values {
            Some(folder) => restore_early(&mut info_sets::files(folder), &AutosaveSettings::default(), &mut loader),
            None => (Vec::new(), Messages::new()),
        };
        let ioc = Ioc::of(loader)?;
        for file in &restored {
            warnings.extend(file.restore_late(&ioc.database));
        }
        let mut sets = Vec::new();
        if let Some(folder) = &values {
            let (found, remarks) = info_sets::sets(&ioc.database, folder);
            warnings.extend(remarks);
            let trigger = SaveTrigger::Changed(save_period);
            sets = found
                .into_iter()
                .map(|set| SaveSet::new(set.name, set.path, trigger, &set.pvs, &ioc.database))
                .collect();
        }
        let handlers = registered(&ioc, handlers)?;
        Ok(Ioc { handlers, sets, autosave_warnings: warnings, ..ioc })
    }
}

/// The handlers by record.
fn registered(ioc: &Ioc, handlers: Vec<(String, OutputHandler)>) -> Result<OutputHandlers, IocError> {
    let (mut registered, mut errors) = (OutputHandlers::default(), Vec::new());
    for (name, handler) in handlers {
        let found = field_of(&ioc.database, &name).and_then(|field| match ioc.database.program_direction(field) {
            Some(ProgramDirection::Output) if !name.contains('.') => Ok(field),
            _ => Err(format!("\"{name}\" is not an output record with DTYP Program, so it calls no handler")),
        });
        match found {
            Ok(field) => drop(registered.0.insert(field, handler)),
            Err(message) => errors.push(LoadError { message, ..LoadError::default() }),
        }
    }
    if errors.is_empty() { Ok(registered) } else { Err(IocError::Load(errors)) }
}
