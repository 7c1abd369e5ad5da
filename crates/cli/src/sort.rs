//! Determines the type of a file on the command line from its name or its first line.

use std::path::Path;

/// The type of a file on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// A database: records.
    Database,
    /// A `.dbd` file: site-specific menus, breakpoint tables and built-in definitions.
    Description,
    /// A substitutions file: templates and their macros.
    Substitutions,
    /// A JSON file with groups of PVs.
    Groups,
    /// A script: commands.
    Script,
}

impl FileType {
    /// The type by the extension of the name; a name that contains `.cmd`, such as `st.cmd.linux`, is a script. Any
    /// other file is a script if its first line that is not a comment is a command.
    pub fn of(file: &Path) -> FileType {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("cmd" | "iocsh") => FileType::Script,
            Some("substitutions" | "subs" | "sub") => FileType::Substitutions,
            Some("db" | "template" | "vdb") => FileType::Database,
            Some("dbd") => FileType::Description,
            Some("json") => FileType::Groups,
            _ if name.contains(".cmd") || begins_with_a_command(file) => FileType::Script,
            _ => FileType::Database,
        }
    }
}

/// Whether the first line that is not a comment is a shell command, or the file begins with `#!`.
fn begins_with_a_command(file: &Path) -> bool {
    let Ok(bytes) = fodo_ioc::file::read(file) else { return false };
    let text = String::from_utf8_lossy(&bytes);
    let is_content = |line: &&str| !line.is_empty() && (!line.starts_with('#') || line.starts_with("#!"));
    let first = text.lines().map(str::trim).find(is_content);
    first.is_some_and(|line| line.starts_with("#!") || fodo_ioc::shell::is_command(line))
}
