//! The peers, clients and servers of other projects, pinned to exact versions: a Python environment with jars in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Outcome, output_of};

/// The environment variable that selects another folder for the environment.
const VARIABLE: &str = "FODO_PEERS";

/// Creates the environment unless it exists with exactly these requirements. Returns its Python.
///
/// The folder is `.peers/venv` below the workspace, or the value of `FODO_PEERS`. A copy of the requirements inside it
/// is the stamp: if it differs from the file, the environment is created again.
pub fn prepare(root: &Path) -> Result<PathBuf, String> {
    let requirements_path = root.join("conformance").join("peers").join("requirements.txt");
    let requirements = std::fs::read_to_string(&requirements_path)
        .map_err(|error| format!("{}: {error}", requirements_path.display()))?;
    let folder = folder(root);
    let python = folder.join("bin").join("python");
    let stamp = folder.join("fodo-requirements.txt");
    if python.exists() && std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == requirements) {
        return Ok(python);
    }

    // Printed to standard error, so that standard output has only one line: the path.
    eprintln!("creating the peers' Python environment in {}", folder.display());
    let creation = output_of(root, Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
    creation.map_err(|error| {
        format!(
            "{error}\n\nthe peers need python3 (3.11 or newer) with the modules venv and ensurepip; Debian and Ubuntu \
             have them in the package python3-venv"
        )
    })?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--only-binary", ":all:"]);
    // The list is complete: pip must not install packages that are not in it.
    pip.args(["--no-deps", "-r"]).arg(&requirements_path);
    output_of(root, &mut pip).map_err(|error| {
        format!(
            "{error}\n\npip could not install the peers named in conformance/peers/requirements.txt: it needs a \
             package index it can reach, and wheels for this Python and platform"
        )
    })?;
    output_of(root, Command::new(&python).args(["-m", "pip", "check"]))?;
    std::fs::write(&stamp, requirements).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(python)
}

/// Downloads PSI's Java library with Maven into `psi-ca` of the environment, unless it is there from the current pom,
/// which is the laboratory's.
pub fn prepare_java(root: &Path) -> Result<Outcome, String> {
    let pom_path = root.join("lab").join("drivers").join("psi-ca").join("pom.xml");
    let pom = std::fs::read_to_string(&pom_path).map_err(|error| format!("{}: {error}", pom_path.display()))?;
    let psi_ca = folder(root).join("psi-ca");
    let stamp = psi_ca.join("pom.xml");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == pom) {
        return Ok(Outcome::Passed(String::new()));
    }
    if output_of(root, Command::new("mvn").arg("--version")).is_err() {
        return Ok(Outcome::Skipped("PSI's ca needs Maven and a JDK; without them its tests are skipped".into()));
    }

    let jars = psi_ca.join("jars");
    // Jars of another version in this folder would also be on the class path.
    match std::fs::remove_dir_all(&jars) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", jars.display()));
        }
        _ => {}
    }
    let mut mvn = Command::new("mvn");
    mvn.args(["--batch-mode", "--quiet", "--file"]).arg(&pom_path).arg("dependency:copy-dependencies");
    mvn.args(["-DincludeScope=runtime", "-DexcludeClassifiers=javadoc"]);
    output_of(root, mvn.arg(format!("-DoutputDirectory={}", jars.display())))?;
    std::fs::write(&stamp, pom).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(Outcome::Passed(String::new()))
}

fn folder(root: &Path) -> PathBuf {
    match std::env::var_os(VARIABLE) {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => root.join(".peers").join("venv"),
    }
}
