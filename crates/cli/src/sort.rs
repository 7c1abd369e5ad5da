//! What a file on the command line is, by its name or its first line.

use std::path::Path;

/// What a file on the command line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Records.
    Database,
    /// A site's menus, and what is built in.
    Description,
    /// Which templates with which macros.
    Substitutions,
    /// Commands.
    Script,
}

impl Sort {
    /// By what the name ends in, or begins with for scripts such as `st.cmd.linux`; a file of another name is a script when
    /// its first line that is no comment is a command.
    pub fn of(file: &Path) -> Sort {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("cmd" | "iocsh") => Sort::Script,
            Some("substitutions" | "subs" | "sub") => Sort::Substitutions,
            Some("db" | "template" | "vdb") => Sort::Database,
            Some("dbd") => Sort::Description,
            _ if name.contains(".cmd") || begins_with_a_command(file) => Sort::Script,
            _ => Sort::Database,
        }
    }
}

/// Whether the first line of a file that is no comment is a command of a shell, or the file names its interpreter.
fn begins_with_a_command(file: &Path) -> bool {
    let Ok(bytes) = fodo_ioc::file::read(file) else { return false };
    let text = String::from_utf8_lossy(&bytes);
    let is_said = |line: &&str| !line.is_empty() && (!line.starts_with('#') || line.starts_with("#!"));
    let first = text.lines().map(str::trim).find(is_said);
    first.is_some_and(|line| line.starts_with("#!") || fodo_ioc::shell::is_command(line))
}
