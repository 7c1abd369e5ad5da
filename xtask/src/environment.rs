//! Python environments with exactly the packages of a list.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{downloaded_by, output_of};

/// Creates the environment in `folder` unless it exists with exactly the packages of this list. Returns its Python.
///
/// A copy of the list inside the folder is the stamp: if it differs from the list, the environment is created again.
pub fn prepare(root: &Path, folder: &Path, list: &str) -> Result<PathBuf, String> {
    let list_path = root.join(list);
    let packages = std::fs::read_to_string(&list_path).map_err(|error| format!("{}: {error}", list_path.display()))?;
    let python = folder.join("bin").join("python");
    let stamp = folder.join("fodo-requirements.txt");
    if python.exists() && std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == packages) {
        return Ok(python);
    }

    // Printed to standard error, so that standard output of `cargo xtask peers` has only one line: the path.
    eprintln!("creating a Python environment in {}", folder.display());
    let creation = output_of(root, Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder));
    creation.map_err(|error| {
        format!(
            "{error}\n\nthe tests need python3 (3.11 or newer) with the modules venv and ensurepip; Debian and Ubuntu \
             have them in the package python3-venv"
        )
    })?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--only-binary", ":all:"]);
    // The list is complete: pip must not install packages that are not in it.
    pip.args(["--no-deps", "-r"]).arg(&list_path);
    downloaded_by(root, &mut pip).map_err(|error| {
        format!(
            "{error}\n\npip could not install the packages of {list}: it needs a package index it can reach, and \
             wheels for this Python and platform"
        )
    })?;
    output_of(root, Command::new(&python).args(["-m", "pip", "check"]))?;
    std::fs::write(&stamp, packages).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(python)
}
