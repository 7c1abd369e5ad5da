//! Commands of the caPutLog module, which select the puts that are written to the log of `--put-log`.

use super::script::{CommandResult, Flow};
use super::{CommandError, CommandLine, IocStage, Purpose, Shell};
use crate::access_control::PutFilter;

/// `caPutLogInit("host:port", option)`
pub(super) fn start(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let logged = option(call, 2)?;
    shell.database()?;
    let server = call.argument(1).filter(|server| !server.is_empty());
    let server = server.map_or(String::new(), |server| format!(", and not sent to \"{server}\""));
    if shell.has_put_log() {
        shell.remark_reason(&format!("puts are logged to the file of --put-log{server}"));
    } else {
        shell.remark_reason(&format!("puts are not logged{server}: fodo ioc --put-log FILE logs them to a file"));
    }
    shell.log_puts(logged);
    Ok(Flow::Next)
}

/// `caPutLogReconf(option)`
pub(super) fn change(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let logged = option(call, 1)?;
    shell.database()?;
    shell.log_puts(logged);
    Ok(Flow::Next)
}

/// `caPutLogShow`
pub(super) fn show(shell: &mut Shell, _: &CommandLine<'_>) -> CommandResult {
    let IocStage::Running(driver) = &shell.stage else { return Err(CommandError::too_early()) };
    let text = match (shell.has_put_log(), driver.guard().logged()) {
        (false, _) => "puts are not logged: fodo ioc was started without --put-log\n",
        (true, PutFilter::Nothing) => "puts are not logged\n",
        (true, PutFilter::Changes) => "puts that change a value are logged\n",
        (true, PutFilter::Everything) => "all puts are logged\n",
    };
    shell.say(text);
    Ok(Flow::Next)
}

/// Parses an option of caPutLog; 1 and 2 mean the same, because bursts are not filtered.
fn option(call: &CommandLine<'_>, index: usize) -> Result<PutFilter, CommandError> {
    match call.argument(index).unwrap_or("0") {
        "-1" => Ok(PutFilter::Nothing),
        "0" | "" => Ok(PutFilter::Changes),
        "1" | "2" => Ok(PutFilter::Everything),
        other => {
            let message = format!("\"{other}\" must be -1 (nothing), 0 (puts that change a value), 1 or 2 (all puts)");
            Err(CommandError::Word(index, message))
        }
    }
}

impl Shell {
    fn has_put_log(&self) -> bool {
        match &self.purpose {
            Purpose::Run(start) => start.has_put_log,
            Purpose::Check => false,
        }
    }

    fn log_puts(&self, logged: PutFilter) {
        if let IocStage::Running(driver) = &self.stage {
            driver.guard().log_puts(logged);
        }
    }
}
