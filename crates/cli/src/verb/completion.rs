//! `fodo completion`: the script that makes a shell complete verbs and flags.

use std::io;

use clap::Command;

use crate::epics::Outlet;
use crate::exit::Exit;

/// Print the script that makes a shell complete verbs and flags
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

/// Does it.
pub fn run(arguments: &Arguments, program: &mut Command, outlet: &mut Outlet<'_>) -> io::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, program, "fodo", &mut script);
    outlet.out.write_all(&script)?;
    Ok(Exit::Done)
}
