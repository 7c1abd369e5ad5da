//! Autosave commands, with the names of synApps autosave.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fodo_db::{LoadError, Loader, Macros};

use super::check::unknown_pvs;
use super::script::{CommandResult, Flow, seconds};
use super::{CommandError, CommandLine, IocStage, Shell, check};
use crate::autosave::info_sets::{self, InfoSet};
use crate::autosave::request::{self, RequestedPv};
use crate::autosave::restore::{RestoreFile, RestorePass, RestoredFile, restore_early};
use crate::autosave::saver::Saver;
use crate::autosave::set::{SaveSet, SaveTrigger};
use crate::autosave::status::{Health, SaveStatus, StatusRecords};
use crate::autosave::{AutosaveSettings, BOTH, EARLY, disk, listed};
use crate::limit::{INFO_SAVE_PERIOD, SAVE_PERIOD_MAX, SAVE_PERIOD_MIN, SEQUENCE_FILES_MAX};
use crate::names::field_of;
use crate::{Ioc, RunningIoc};

/// The autosave configuration set by commands.
#[derive(Default)]
pub(super) struct AutosavePlan {
    request_folders: Vec<PathBuf>,
    save_folder: Option<PathBuf>,
    files: Vec<RestoreFile>,
    settings: AutosaveSettings,
    /// Sets requested before `iocInit`, when there are no records yet.
    requested: Vec<SetRequest>,
    /// The folder of `--autosave`, which needs no command in a script.
    own_folder: Option<PathBuf>,
    /// The name prefix of the status records.
    status_prefix: String,
    leaves_status_alone: bool,
    /// Some values were not restored.
    has_complaints: bool,
    /// In a check: request files that commands would write.
    made: Vec<(PathBuf, String)>,
}

/// A requested set.
#[derive(Clone)]
struct SetRequest {
    request: String,
    macros: Macros,
    when: TriggerSpec,
}

/// The trigger of a set, with field names that are not resolved yet.
#[derive(Clone)]
enum TriggerSpec {
    Changed(Duration),
    Every(Duration),
    Triggered(String),
    Asked,
}

/// `set_requestfile_path("folder", "folder below")`
pub(super) fn add_request_folder(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let folder = folder(shell, call)?;
    if !folder.is_dir() {
        shell.remark(format!("there is no folder \"{}\"", folder.display()));
    }
    shell.autosave.request_folders.push(folder);
    Ok(Flow::Next)
}

/// `set_savefile_path("folder", "folder below")`
pub(super) fn set_save_folder(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let folder = folder(shell, call)?;
    if !folder.is_dir() {
        shell.remark(format!("there is no folder \"{}\": nothing can be saved until it exists", folder.display()));
    }
    shell.autosave.save_folder = Some(folder);
    Ok(Flow::Next)
}

fn folder(shell: &Shell, call: &CommandLine<'_>) -> Result<PathBuf, CommandError> {
    let (first, second) = (call.argument(1).unwrap_or_default(), call.argument(2).unwrap_or_default());
    if first.is_empty() && second.is_empty() {
        call.needed(1, "a folder")?;
    }
    // As in synApps, the second folder is inside the first, even if it begins with a slash.
    let below = if first.is_empty() { second } else { second.trim_start_matches('/') };
    Ok(shell.path(first).join(below))
}

/// `set_pass0_restoreFile("file.sav", "P=x:")`
pub(super) fn restore_before(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    add_file(shell, call, RestorePass::Early)
}

/// `set_pass1_restoreFile("file.sav", "P=x:")`
pub(super) fn restore_after(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    add_file(shell, call, RestorePass::Late)
}

fn add_file(shell: &mut Shell, call: &CommandLine<'_>, pass: RestorePass) -> CommandResult {
    let name = call.needed(1, "a save file")?;
    if !matches!(shell.stage, IocStage::Loading(_)) {
        return Err("iocInit restores files, so this command must precede it; use fdbrestore afterwards"
            .to_owned()
            .into());
    }
    let macros = match call.argument(2).filter(|list| !list.is_empty()) {
        Some(list) => Some(Macros::parse(list).map_err(|message| CommandError::Word(2, message))?),
        None => None,
    };
    // The folder may be set later.
    let (path, outcome) = (PathBuf::from(name), "not restored yet".to_owned());
    shell.autosave.files.push(RestoreFile { path, macros, pass, is_expected: true, outcome, health: Health::Unknown });
    Ok(Flow::Next)
}

/// `create_monitor_set("file.req", 30, "P=x:")`
pub(super) fn set_of_changes(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let Some((request, period)) = with_period(call)? else { return Ok(Flow::Next) };
    add_set(shell, call, 3, request, TriggerSpec::Changed(period))
}

/// `create_periodic_set("file.req", 30, "P=x:")`
pub(super) fn set_in_time(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let Some((request, period)) = with_period(call)? else { return Ok(Flow::Next) };
    add_set(shell, call, 3, request, TriggerSpec::Every(period))
}

/// `create_triggered_set("file.req", "x:save", "P=x:")`
pub(super) fn set_triggered(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let Some(request) = request_name(call) else { return Ok(Flow::Next) };
    let trigger = call.needed(2, "the PV that triggers it")?;
    add_set(shell, call, 3, request, TriggerSpec::Triggered(trigger.to_owned()))
}

/// `create_manual_set("file.req", "P=x:")`
pub(super) fn set_by_hand(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let Some(request) = request_name(call) else { return Ok(Flow::Next) };
    add_set(shell, call, 2, request, TriggerSpec::Asked)
}

/// `None` without a file name, which in synApps only starts the thread.
fn request_name<'a>(call: &CommandLine<'a>) -> Option<&'a str> {
    call.argument(1).filter(|name| !name.is_empty())
}

fn with_period<'a>(call: &CommandLine<'a>) -> Result<Option<(&'a str, Duration)>, CommandError> {
    let Some(request) = request_name(call) else { return Ok(None) };
    let text = call.needed(2, "the number of seconds")?;
    let period = seconds(text).map_err(|message| CommandError::Word(2, message))?;
    Ok(Some((request, period.clamp(SAVE_PERIOD_MIN, SAVE_PERIOD_MAX))))
}

fn add_set(
    shell: &mut Shell,
    call: &CommandLine<'_>,
    macros_at: usize,
    request: &str,
    when: TriggerSpec,
) -> CommandResult {
    let list = call.argument(macros_at).unwrap_or_default();
    let macros = Macros::parse(list).map_err(|message| CommandError::Word(macros_at, message))?;
    if ["SAVENAMEPV", "SAVEPATHPV"].iter().any(|name| macros.value(name).is_some()) {
        shell.remark("SAVENAMEPV and SAVEPATHPV are ignored: PVs cannot set the name of a save file".to_owned());
    }
    let order = SetRequest { request: request.to_owned(), macros, when };
    if matches!(shell.stage, IocStage::Loading(_)) {
        // There are no records yet.
        shell.autosave.requested.push(order);
        return Ok(Flow::Next);
    }
    shell.begin(&order)
}

/// `manual_save("file.req")`
pub(super) fn save_now(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let name = call.needed(1, "a request file")?;
    let saved = shell.saver(|saver| saver.save(name).ok_or_else(|| saver.names()))?;
    match saved {
        Ok(Some((fodo_net::log::Level::Error, why))) => Err(why.into()),
        Ok(_) => Ok(Flow::Next),
        Err(names) => Err(no_set(name, &names)),
    }
}

/// `remove_data_set("file.req")`
pub(super) fn forget(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let name = call.needed(1, "a request file")?;
    let removed = shell.saver(|saver| if saver.remove(name) { Ok(()) } else { Err(saver.names()) })?;
    removed.map(|()| Flow::Next).map_err(|names| no_set(name, &names))
}

/// `set_savefile_name("file.req", "other.sav")`
pub(super) fn rename(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let name = call.needed(1, "a request file")?;
    let path = shell.save_path(call.needed(2, "a save file")?);
    let moved = shell.saver(|saver| saver.with(name, |set| set.move_to(path)).ok_or_else(|| saver.names()))?;
    moved.map(|()| Flow::Next).map_err(|names| no_set(name, &names))
}

fn no_set(name: &str, names: &[String]) -> CommandError {
    let guess = super::table::closest(name, names.iter().map(String::as_str));
    CommandError::Word(1, format!("there is no autosave set \"{name}\"{guess}"))
}

/// `save_restoreShow [level]`
pub(super) fn show_sets(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let is_long = call.argument(1).is_some_and(|level| level != "0");
    let text = shell.saver(|saver| saver.shown(is_long))?;
    shell.say(&text);
    Ok(Flow::Next)
}

/// `dbrestoreShow`
pub(super) fn show_restored(shell: &mut Shell, _: &CommandLine<'_>) -> CommandResult {
    let line = |file: &RestoreFile| {
        let when = if file.pass == RestorePass::Early { "before" } else { "after" };
        format!("{} {when} initialisation: {}\n", file.path.display(), file.outcome)
    };
    let text: String = shell.autosave.files.iter().map(line).collect();
    shell.say(&text);
    Ok(Flow::Next)
}

/// `fdbrestore("file.sav")`
pub(super) fn put_back(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let path = shell.save_path(call.needed(1, "a save file")?);
    let IocStage::Running(driver) = &shell.stage else {
        return Err("iocInit has not run yet; use set_pass0_restoreFile to restore a file".to_owned().into());
    };
    let driver = driver.clone();
    let outcome = String::new();
    let mut file = RestoreFile {
        path,
        macros: None,
        pass: RestorePass::Late,
        is_expected: true,
        outcome,
        health: Health::Unknown,
    };
    let (source, mut complaints) = file.find(shell.autosave.settings.takes_incomplete);
    let Some(source) = source else { return Err(complaints.join("; ").into()) };
    let mut put = |field, value| driver.put(field, value, None, None).map_err(|error| error.to_string());
    complaints.extend(source.put_back(driver.database(), &mut put));
    complaints.into_iter().for_each(|complaint| shell.remark(complaint));
    Ok(Flow::Next)
}

/// `makeAutosaveFileFromDbInfo("file.req", "autosaveFields")`
pub(super) fn request_of_infos(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let name = call.needed(1, "a request file")?;
    let info = call.needed(2, "the name of an info item")?;
    let name = if name.contains(".req") { name.to_owned() } else { format!("{name}.req") };
    write_request(shell, &name, info)
}

/// `makeAutosaveFiles`
pub(super) fn requests_of_infos(shell: &mut Shell, _: &CommandLine<'_>) -> CommandResult {
    write_request(shell, "info_settings.req", BOTH)?;
    write_request(shell, "info_positions.req", EARLY)
}

fn write_request(shell: &mut Shell, name: &str, info: &str) -> CommandResult {
    let (pvs, strangers) = listed(shell.database()?, info);
    strangers.into_iter().for_each(|stranger| shell.remark(stranger));
    let text: String = pvs.iter().map(|pv| format!("{pv}\n")).collect();
    let path = shell.path(name);
    if shell.is_check() {
        shell.autosave.made.push((path, text));
        return Ok(Flow::Next);
    }
    let written = disk::replace_without_backup(&path, text.as_bytes());
    written.map_err(|error| CommandError::Word(1, format!("\"{name}\" cannot be written: {error}")))?;
    Ok(Flow::Next)
}

/// `save_restoreSet_IncompleteSetsOk 0`
pub(super) fn set_incomplete(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let number = number(call, "0 or 1")?;
    shell.change_settings(|settings| settings.takes_incomplete = number != 0)
}

/// `save_restoreSet_DatedBackupFiles 1`
pub(super) fn set_dates(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let number = number(call, "0 or 1")?;
    shell.change_settings(|settings| settings.dates_copies = number != 0)
}

/// `save_restoreSet_NumSeqFiles 3`
pub(super) fn set_sequence(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let number = number(call, "a number of files")? as usize;
    if number > SEQUENCE_FILES_MAX {
        return Err(CommandError::Word(1, format!("at most {SEQUENCE_FILES_MAX} sequence files are possible")));
    }
    shell.change_settings(|settings| settings.n_sequence = number)
}

/// `save_restoreSet_SeqPeriodInSeconds 600`
pub(super) fn set_sequence_period(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let period = period(call)?;
    shell.change_settings(|settings| settings.sequence_period = period)
}

/// `save_restoreSet_RetrySeconds 60`
pub(super) fn set_retry(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let period = period(call)?;
    shell.change_settings(|settings| settings.retry = period)
}

/// `save_restoreSet_status_prefix("x:")`
pub(super) fn set_status_prefix(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    call.needed(1, "the prefix of the status records")?.clone_into(&mut shell.autosave.status_prefix);
    // iocInit looks for the records.
    if matches!(shell.stage, IocStage::Loading(_)) { Ok(Flow::Next) } else { shell.show_status() }
}

/// `save_restoreSet_UseStatusPVs 0`
pub(super) fn set_status_use(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    shell.autosave.leaves_status_alone = number(call, "0 or 1")? == 0;
    if matches!(shell.stage, IocStage::Loading(_)) { Ok(Flow::Next) } else { shell.show_status() }
}

fn number(call: &CommandLine<'_>, what: &str) -> Result<u32, CommandError> {
    let text = call.needed(1, what)?;
    text.parse().map_err(|_| CommandError::Word(1, format!("\"{text}\" is not {what}")))
}

fn period(call: &CommandLine<'_>) -> Result<Duration, CommandError> {
    let period = seconds(call.needed(1, "the number of seconds")?).map_err(|message| CommandError::Word(1, message))?;
    Ok(period.clamp(SAVE_PERIOD_MIN, SAVE_PERIOD_MAX))
}

impl Shell {
    /// Saves the fields named in autosave info items in a folder, without any command. The module
    /// [`autosave`](crate::autosave) has an example.
    pub fn keep_values_in(&mut self, folder: &Path) {
        let folder = self.path(&folder.to_string_lossy());
        self.autosave.files.extend(info_sets::files(&folder));
        self.autosave.own_folder = Some(folder);
    }

    fn save_path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.autosave.save_folder.as_ref().unwrap_or(&self.folder).join(name)
    }

    fn change_settings(&mut self, change: impl FnOnce(&mut AutosaveSettings)) -> CommandResult {
        change(&mut self.autosave.settings);
        let settings = self.autosave.settings.clone();
        if matches!(self.stage, IocStage::Running(_)) {
            self.saver(|saver| saver.set_settings(settings))?;
        }
        Ok(Flow::Next)
    }

    fn saver<T>(&self, visit: impl FnOnce(&Saver) -> T) -> Result<T, CommandError> {
        let mut place = self.place.lock();
        let running = place.as_mut().ok_or_else(|| CommandError::from("iocInit has not run yet".to_owned()))?;
        let saver = RunningIoc::saver(running);
        saver.map(visit).map_err(|error| format!("cannot create a thread: {error}").into())
    }

    /// Restores the files of the early pass and finds the files of the late pass.
    pub(super) fn restore_early(&mut self, loader: &mut Loader) -> Vec<RestoredFile> {
        let mut files = std::mem::take(&mut self.autosave.files);
        // The early pass runs first, regardless of the order of the commands.
        files.sort_by_key(|file| file.pass == RestorePass::Late);
        for file in &mut files {
            file.path = self.save_path(&file.path);
        }
        let (restored, complaints) = restore_early(&mut files, &self.autosave.settings, loader);
        self.autosave.files = files;
        complaints.into_iter().for_each(|complaint| self.remark_once(complaint));
        restored
    }

    /// Restores the files of the late pass and the values that the early pass could not restore.
    pub(super) fn restore_late(&mut self, ioc: &Ioc, restored: &[RestoredFile]) {
        for file in restored {
            let complaints = file.restore_late(&ioc.database);
            complaints.into_iter().for_each(|complaint| self.remark_once(complaint));
        }
    }

    /// Reports a value once that neither pass can restore.
    fn remark_once(&mut self, complaint: String) {
        let subject = complaint.split_once(" is not restored").map_or(complaint.as_str(), |(subject, _)| subject);
        self.autosave.has_complaints = true;
        if self.reported.insert(subject.to_owned()) {
            // The message contains its own position, so that of iocInit is left out.
            self.deliver(check::FindingLevel::Warning, LoadError { message: complaint, ..LoadError::default() });
        }
    }

    /// Creates the requested sets after the records exist.
    pub(super) fn save_from_now_on(&mut self) {
        if let Some(folder) = self.autosave.own_folder.take() {
            self.keep_infos(&folder);
        }
        for order in std::mem::take(&mut self.autosave.requested) {
            if let Err(failure) = self.begin(&order) {
                self.tell(failure, &[]);
            }
        }
        if let Err(failure) = self.show_status() {
            self.tell(failure, &[]);
        }
    }

    /// Starts or stops updating the records of the status prefix.
    fn show_status(&mut self) -> CommandResult {
        if self.autosave.status_prefix.is_empty() {
            return Ok(Flow::Next);
        }
        let prefix = &self.autosave.status_prefix;
        let mut restored = SaveStatus::worst(self.autosave.files.iter().map(RestoreFile::status));
        if restored == SaveStatus::good() && self.autosave.has_complaints {
            restored = SaveStatus::new(Health::Warning, "some values are not restored");
        }
        let found = StatusRecords::find(self.database()?, prefix, restored);
        if found.is_none() {
            let message = format!("there is no record {prefix}SR_status; load save_restoreStatus.db of autosave");
            self.remark(message);
        }
        let shown = found.filter(|_| !self.autosave.leaves_status_alone);
        if matches!(self.stage, IocStage::Running(_)) {
            self.saver(|saver| saver.set_status(shown))?;
        }
        Ok(Flow::Next)
    }

    /// Creates the sets of `--autosave` from info items.
    fn keep_infos(&mut self, folder: &Path) {
        let Ok(database) = self.database() else { return };
        let (sets, remarks) = info_sets::sets(database, folder);
        remarks.into_iter().for_each(|remark| self.remark(remark));
        for InfoSet { name, path, pvs } in sets {
            if let Err(failure) = self.add(name, path, SaveTrigger::Changed(INFO_SAVE_PERIOD), &pvs) {
                self.tell(failure, &[]);
            }
        }
    }

    /// Reads a request file and creates its set; in a check, only reports errors.
    fn begin(&mut self, order: &SetRequest) -> CommandResult {
        let database = self.database()?;
        let when = match &order.when {
            TriggerSpec::Changed(period) => SaveTrigger::Changed(*period),
            TriggerSpec::Every(period) => SaveTrigger::Every(*period),
            TriggerSpec::Asked => SaveTrigger::Asked,
            TriggerSpec::Triggered(name) => match field_of(database, name) {
                Ok(field) => SaveTrigger::Triggered(field),
                Err(message) => return Err(CommandError::Word(2, message)),
            },
        };
        let read = request::read(&order.request, &order.macros, &mut self.open_request());
        let unreadable = |error| CommandError::Word(1, format!("\"{}\" cannot be read: {error}", order.request));
        let mut request = read.map_err(unreadable)?;
        request.errors.extend(unknown_pvs(database, &request.pvs, &self.missing));
        let name = Path::new(&order.request).file_name().unwrap_or_default().to_string_lossy();
        let path = self.save_path(format!("{}.sav", name.strip_suffix(".req").unwrap_or(&name)));
        let places = self.places();
        for mut error in request.errors {
            error.from.extend_from_slice(&places);
            self.deliver(check::FindingLevel::Warning, error);
        }
        if self.is_check() {
            return Ok(Flow::Next);
        }
        self.add(&order.request, path, when, &request.pvs)
    }

    fn add(&mut self, name: &str, path: PathBuf, when: SaveTrigger, pvs: &[RequestedPv]) -> CommandResult {
        if self.is_check() {
            return Ok(Flow::Next);
        }
        let shown = path.display().to_string();
        let set = SaveSet::new(name, path, when, pvs, self.database()?);
        let settings = self.autosave.settings.clone();
        let added = self.saver(|saver| {
            saver.set_settings(settings);
            saver.add(set)
        })?;
        added.map(|()| Flow::Next).map_err(|other| format!("{shown} is already the file of the set \"{other}\"").into())
    }

    /// Opens request files in the folders of `set_requestfile_path`, or in the shell's folder if there are none.
    fn open_request(&self) -> impl FnMut(&str) -> io::Result<Vec<u8>> + use<> {
        let named = &self.autosave.request_folders;
        let folders = if named.is_empty() { vec![self.folder.clone()] } else { named.clone() };
        let made = self.autosave.made.clone();
        move |name| {
            let mut missing = io::Error::from(io::ErrorKind::NotFound);
            for path in folders.iter().map(|folder| folder.join(name)) {
                if let Some((_, text)) = made.iter().find(|(made, _)| *made == path) {
                    return Ok(text.clone().into_bytes());
                }
                match crate::file::read(path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => missing = error,
                    result => return result,
                }
            }
            Err(missing)
        }
    }
}
