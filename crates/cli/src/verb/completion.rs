//! `fodo completion`: prints a completion script for a shell.

use std::io;

use clap::Command;

use crate::epics::OutputStreams;
use crate::exit::Exit;

/// Print a script for completing commands and flags in a shell
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The shell
    shell: clap_complete::Shell,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo completion bash > ~/.local/share/bash-completion/completions/fodo
  fodo completion zsh > \"${fpath[1]}/_fodo\"
  fodo completion fish > ~/.config/fish/completions/fodo.fish";

/// Runs the command.
pub fn run(arguments: &Arguments, program: &mut Command, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, program, "fodo", &mut script);
    outlet.out.write_all(&script)?;
    Ok(Exit::Done)
}
