//! Commands for access security: set the file and its macros, and reload it.

use std::sync::Arc;

use super::script::{CommandResult, Flow};
use super::{CommandError, CommandLine, IocStage, Shell};
use crate::access_control::{AccessControl, Policy};

/// The variable that makes hosts be identified by address.
pub(super) const CHECKS_ADDRESS: &str = "asCheckClientIP";

/// `asSetFilename("plant.acf")`
pub(super) fn set_file(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    is_early(shell)?;
    // Requested access security must not be missing silently: iocInit fails to read an empty name.
    shell.access_file = Some(shell.path(call.argument(1).unwrap_or_default()));
    call.needed(1, "an access security file")?;
    Ok(Flow::Next)
}

/// `asSetSubstitutions("P=x:")`
pub(super) fn set_macros(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    is_early(shell)?;
    call.argument(1).unwrap_or_default().clone_into(&mut shell.access_macros);
    Ok(Flow::Next)
}

fn is_early(shell: &Shell) -> Result<(), CommandError> {
    match shell.stage {
        IocStage::Loading(_) => Ok(()),
        _ => Err("access security must be set before iocInit; asInit can only reload the same file".to_owned().into()),
    }
}

/// `asInit`
pub(super) fn load_again(shell: &mut Shell, _: &CommandLine<'_>) -> CommandResult {
    if matches!(shell.stage, IocStage::Loading(_)) {
        shell.remark("asInit has no effect before iocInit, which loads the access security file".to_owned());
        return Ok(Flow::Next);
    }
    if shell.access_file.is_none() {
        return Err("there is no access security file; set one with asSetFilename before iocInit".to_owned().into());
    }
    let place = shell.place();
    let reloaded = place.lock().as_ref().map_or(Ok(Vec::new()), crate::RunningIoc::reload_access);
    let warnings = reloaded.map_err(super::files::failure)?;
    warnings.into_iter().for_each(|warning| shell.remark(warning));
    Ok(Flow::Next)
}

impl Shell {
    /// The policy with the access file and variables of the shell.
    pub(super) fn policy(&self, given: Policy) -> Policy {
        let access_file = self.access_file.clone().map(|file| (file, self.access_macros.clone()));
        let checks_address = self.variables.get(CHECKS_ADDRESS).is_some_and(|value| *value != 0);
        Policy { access_file, checks_client_address: given.checks_client_address || checks_address, ..given }
    }

    /// In a check: reports errors of the access file for these records. No host name is resolved.
    pub(super) fn look_at_rules(&mut self) {
        let IocStage::Checked(database) = &self.stage else { return };
        let policy = Policy { checks_client_address: false, ..self.policy(Policy::default()) };
        match AccessControl::new(policy, database) {
            Ok((_, rules)) => {
                let mut names: Vec<Arc<str>> = rules.outside_inputs.into_keys().collect();
                names.sort_unstable();
                let outside = names.iter().map(|name| {
                    format!("the input \"{name}\" is not a record here; a CALC with it needs another IOC to serve it")
                });
                rules.warnings.into_iter().chain(outside).for_each(|warning| self.remark(warning));
            }
            Err(error) => self.tell(super::files::failure(error), &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::Purpose;

    #[test]
    fn the_policy_goes_by_address_if_the_program_or_the_variable_requests_it() {
        let (out, err) = (Box::new(std::io::sink()), Box::new(std::io::sink()));
        let mut shell = Shell::new(Purpose::Check, ".".as_ref(), std::iter::empty(), out, err);
        let mut checks_client_address = |given, variable| {
            shell.variables.insert(CHECKS_ADDRESS, variable);
            shell.policy(Policy { checks_client_address: given, ..Policy::default() }).checks_client_address
        };

        assert!(!checks_client_address(false, 0) && checks_client_address(true, 0) && checks_client_address(false, 1));
        assert_eq!(shell.policy(Policy::default()).access_file, None);
        (shell.access_file, shell.access_macros) = (Some("a.acf".into()), "P=x:".to_owned());
        let given = Policy { is_read_only: true, ..Policy::default() };
        let policy = shell.policy(given);
        assert_eq!((policy.access_file, policy.is_read_only), (Some(("a.acf".into(), "P=x:".to_owned())), true));
    }
}
