//! Commands that load files and start the IOC.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use fodo_db::{Database, LoadError, Loader, OpenFile};
use fodo_net::{ServerConfig, Source};

use super::script::{CommandResult, Flow};
use super::{CommandError, CommandLine, IocStage, Purpose, Shell, check};
use crate::{Ioc, IocError, Surroundings};

/// `dbLoadRecords("file", "P=x:,R=1")`
pub(super) fn load_records(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let file = call.needed(1, "a database")?;
    let macros = call.argument(2).unwrap_or_default();
    load(shell, "", |loader, open| loader.load(file, macros, open))
}

/// `dbLoadTemplate("file.substitutions", "P=x:", "folder:folder")`
pub(super) fn load_template(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let file = call.needed(1, "a .substitutions file")?;
    let macros = call.argument(2).unwrap_or_default();
    let path = call.argument(3).unwrap_or_default();
    load(shell, path, |loader, open| loader.load_template(file, macros, open))
}

pub(super) fn load(
    shell: &mut Shell,
    path: &str,
    load: impl FnOnce(&mut Loader, &mut OpenFile) -> Result<(), Vec<LoadError>>,
) -> CommandResult {
    let mut open = shell.open_along(path);
    let places = shell.places();
    let IocStage::Loading(loader) = &mut shell.stage else {
        return Err("records can only be loaded before iocInit".to_owned().into());
    };
    loader.set_include_trace(places);
    load(loader, &mut open).map_err(CommandError::Files)?;
    Ok(Flow::Next)
}

/// `dbLoadDatabase("file.dbd", "folder:folder", "P=x:")`
pub(super) fn load_description(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let file = call.needed(1, "a .dbd file")?;
    let path = call.argument(2).unwrap_or_default();
    let macros = call.argument(3).unwrap_or_default();
    match shell.open_along(path)(file) {
        // Not an error, because most of the contents of such a file is built in.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = format!("\"{file}\" cannot be read ({error}); scan rates that it defines are missing");
            shell.remark(message);
            Ok(Flow::Next)
        }
        _ => load(shell, path, |loader, open| loader.load_description(file, macros, open)),
    }
}

/// `iocRun`: continues after `iocPause`. Before `iocInit` it is the same as `iocInit`, since `iocBuild` has no effect.
pub(super) fn run(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    match &shell.stage {
        IocStage::Loading(_) => return start(shell, call),
        IocStage::Running(driver) => driver.pause(false),
        IocStage::Checked(_) | IocStage::Failed => {}
    }
    Ok(Flow::Next)
}

/// `iocPause`
pub(super) fn pause(shell: &mut Shell, _: &CommandLine<'_>) -> CommandResult {
    shell.database()?;
    if let IocStage::Running(driver) = &shell.stage {
        driver.pause(true);
    }
    Ok(Flow::Next)
}

/// `afterIocRunning("command")`
pub(super) fn run_afterwards(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let line = call.needed(1, "a command")?;
    if shell.is_running() {
        return Ok(shell.run_line(line));
    }
    shell.afterwards.push(line.to_owned());
    Ok(Flow::Next)
}

/// `iocInit`
pub(super) fn start(shell: &mut Shell, _: &CommandLine<'_>) -> CommandResult {
    if !matches!(shell.stage, IocStage::Loading(_)) {
        return Err("iocInit has already run".to_owned().into());
    }
    if shell.is_check() {
        shell.look_at_records();
        let config = ServerConfig::default();
        shell.define_ports(config.port, config.pva.map(|pva| pva.port));
        return Ok(Flow::Next);
    }
    let IocStage::Loading(mut loader) = std::mem::replace(&mut shell.stage, IocStage::Failed) else {
        return Ok(Flow::Next);
    };
    let restored = shell.restore_early(&mut loader);
    omit(shell, loader.disable_invalid_links())?;
    if loader.omitted().total() > 0 {
        shell.complain(&format!("{}; run fodo check for details", loader.omitted()));
    }
    let Purpose::Run(start) = &mut shell.purpose else { return Ok(Flow::Next) };
    let given = std::mem::take(&mut start.policy);
    let macros = &shell.macros;
    let lookup = |name: &str| macros.value(name).map(str::to_owned);
    let config = (start.configure)(&lookup).map_err(|error| error.to_string())?;
    let links = fodo_net::ClientConfig::from_variables(&lookup).map_err(|error| error.to_string())?;
    let log = start.log.take().unwrap_or_else(fodo_net::log::Log::silent);
    let (metrics, reccaster) = (start.metrics.take(), start.reccaster);
    let policy = shell.policy(given);
    let inert: String = loader.inert_records().iter().map(|inert| format!("{inert}\n")).collect();
    inert.lines().for_each(|line| shell.complain(line));
    let mut ioc = Ioc::within(*loader, Some(shell.environment.clone())).map_err(failure)?;
    omit(shell, ioc.take_group_errors())?;
    let ioc = ioc.with_policy(policy).map_err(failure)?;
    let others = std::mem::take(&mut shell.others);
    let ioc = ioc.with_surroundings(shell.surroundings()).also_serving(others.clone());
    ioc.access_warnings().iter().for_each(|warning| shell.remark(warning.clone()));
    shell.restore_late(&ioc, &restored);
    let ioc = match metrics {
        Some((address, left_out)) => ioc.with_metrics(address, left_out).map_err(failure)?,
        None => ioc,
    };
    let recsync = shell.recsync_config(reccaster);
    let mut running = ioc.with_links(links).serve_with_log(config, log.clone()).map_err(failure)?;
    if let Some(recsync) = recsync {
        running.announce(recsync, log).map_err(failure)?;
    }
    let (ready, complete) = match &shell.purpose {
        Purpose::Run(start) => ((start.ready)(&running), (start.complete)()),
        Purpose::Check => (String::new(), String::new()),
    };
    shell.define_ports(running.tcp_port(), running.pva_tcp_port());
    let driver = running.driver();
    hidden_pvs(&others, driver.database()).for_each(|warning| shell.remark(warning));
    driver.flush_printed();
    shell.completer.set_database(driver.clone());
    shell.stage = IocStage::Running(driver);
    *shell.place.lock() = Some(running);
    shell.inert = Some(inert);
    shell.save_from_now_on();
    if !complete.is_empty() {
        shell.complain(&complete);
    }
    // Printed last, so that a program that waits for this line finds the line above on stderr.
    shell.say(&ready);
    run_waiting_lines(shell)
}

/// Runs the lines that wait for iocInit.
fn run_waiting_lines(shell: &mut Shell) -> CommandResult {
    for line in std::mem::take(&mut shell.afterwards) {
        let flow = shell.run_line(&line);
        if flow != Flow::Next {
            return Ok(flow);
        }
    }
    Ok(Flow::Next)
}

/// The PVs that are not served because a record or a PV of an earlier source has their name.
fn hidden_pvs<'a>(others: &'a [Arc<dyn Source>], database: &'a Database) -> impl Iterator<Item = String> + 'a {
    let mut names = HashSet::new();
    others.iter().flat_map(|source| source.names()).filter_map(move |name| {
        let owner = if database.has_channel(&name) { Some("a record") } else { None };
        let owner = owner.or_else(|| names.contains(&name).then_some("another PV"));
        let warning = owner.map(|owner| format!("the PV \"{name}\" is not served: {owner} has this name"));
        names.insert(name);
        warning
    })
}

/// Reports the errors of what is left out; they stop a strict start.
fn omit(shell: &mut Shell, errors: Vec<LoadError>) -> Result<(), CommandError> {
    if shell.is_strict && !errors.is_empty() {
        return Err(CommandError::Files(errors));
    }
    errors.into_iter().for_each(|error| shell.deliver(check::FindingLevel::Error, error));
    Ok(())
}

pub(super) fn failure(error: IocError) -> CommandError {
    match error {
        IocError::Load(errors) | IocError::NoDescriptors(errors) => CommandError::Files(errors),
        error => match std::error::Error::source(&error) {
            Some(cause) => format!("{error}: {cause}").into(),
            None => error.to_string().into(),
        },
    }
}

impl Shell {
    /// Sets the variables with the ports of the server, as EPICS Base and QSRV2 do.
    fn define_ports(&mut self, ca: u16, pva: Option<u16>) {
        self.define("RSRV_SERVER_PORT", &ca.to_string());
        if let Some(port) = pva {
            self.define("PVAS_SERVER_PORT", &port.to_string());
        }
    }

    /// The host facts of an IOC started by this shell.
    fn surroundings(&self) -> Surroundings {
        let names = self.macros.names().into_iter();
        let variables = names.map(|name| (name.to_owned(), self.variable(name).unwrap_or_default().to_owned()));
        Surroundings { folder: self.folder.clone(), variables: variables.collect() }
    }

    /// In a check: reports errors and warnings of the loaded records, and makes the records available to commands.
    pub(super) fn look_at_records(&mut self) {
        if !matches!(self.stage, IocStage::Loading(_)) {
            return;
        }
        let IocStage::Loading(mut loader) = std::mem::replace(&mut self.stage, IocStage::Failed) else { return };
        for error in loader.disable_invalid_links() {
            self.deliver(check::FindingLevel::Error, error);
        }
        for error in loader.warnings() {
            self.deliver(check::FindingLevel::Warning, error);
        }
        for inert in loader.inert_records() {
            self.deliver(check::FindingLevel::Note, LoadError { message: inert.to_string(), ..LoadError::default() });
        }
        self.missing.clone_from(loader.omitted_records());
        let definitions = loader.take_groups();
        match loader.finish() {
            Ok(database) => {
                for error in check::check_groups(&database, definitions, &self.missing) {
                    self.deliver(check::FindingLevel::Error, error);
                }
                self.stage = IocStage::Checked(Box::new(database));
                self.look_at_rules();
                self.save_from_now_on();
            }
            Err(errors) => errors.into_iter().for_each(|error| self.deliver(check::FindingLevel::Error, error)),
        }
    }
}
