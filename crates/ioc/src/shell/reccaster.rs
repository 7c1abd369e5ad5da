//! Commands of recsync, which add environment variables to the data sent to RecCeivers and exclude records from it.

use std::time::Duration;

use super::script::{CommandResult, Flow};
use super::{CommandError, CommandLine, IocStage, Shell};
use crate::RecSyncConfig;

/// Variables of recsync in seconds, with their defaults.
pub(super) const HOLD_OFF_MAX_S: (&str, i64) = ("reccastMaxHoldoff", 10);
pub(super) const ANSWER_S: (&str, i64) = ("reccastTimeout", 20);

/// The RecCeiver configuration set by scripts.
#[derive(Debug, Default)]
pub(super) struct RecSyncOptions {
    variables: Vec<String>,
    kept_back: Vec<String>,
}

/// `addReccasterEnvVars("BUILDING", "SECTOR")`
pub(super) fn add_variables(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    is_early(shell)?;
    call.needed(1, "the name of a variable")?;
    let names = call.words.iter().skip(1).map(|word| word.text.clone());
    shell.recsync.variables.extend(names);
    Ok(Flow::Next)
}

/// `addReccasterExcludePattern("*:internal:*", "*_")`
pub(super) fn keep_back(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    is_early(shell)?;
    call.needed(1, "a pattern of names")?;
    let patterns = call.words.iter().skip(1).map(|word| word.text.clone());
    shell.recsync.kept_back.extend(patterns);
    Ok(Flow::Next)
}

fn is_early(shell: &Shell) -> Result<(), CommandError> {
    match shell.stage {
        IocStage::Loading(_) => Ok(()),
        _ => Err("the data for RecCeivers must be set before iocInit".to_owned().into()),
    }
}

impl Shell {
    /// The configuration for RecCeivers that announce themselves on a port. Without a port it warns if a script has set
    /// something.
    pub(super) fn recsync_config(&mut self, port: Option<u16>) -> Option<RecSyncConfig> {
        let RecSyncOptions { variables, kept_back } = std::mem::take(&mut self.recsync);
        if port.is_none() && !(variables.is_empty() && kept_back.is_empty()) {
            self.remark("nothing is sent to RecCeivers; start fodo ioc with --reccaster".to_owned());
        }
        let seconds = |(name, usual)| {
            let s = self.variables.get(name).copied().unwrap_or(usual);
            Duration::from_secs(u64::try_from(s).unwrap_or(0))
        };
        let (hold_off_max, answer) = (seconds(HOLD_OFF_MAX_S), seconds(ANSWER_S).max(Duration::from_secs(1)));
        port.map(|port| RecSyncConfig { port, variables, kept_back, hold_off_max, answer })
    }
}
