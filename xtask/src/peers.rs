//! The peers, clients and servers of other projects, pinned to exact versions: a Python environment with jars in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::environment;
use crate::step::{Outcome, downloaded_by, output_of};

/// The environment variable that selects another folder for the environment.
const VARIABLE: &str = "FODO_PEERS";

/// The folders of the libraries in Java, and their poms; PSI's is the laboratory's.
const JAVA_LIBRARIES: [(&str, &str); 2] =
    [("psi-ca", "lab/drivers/psi-ca/pom.xml"), ("core-pva", "conformance/peers/core-pva/pom.xml")];

/// Creates the environment unless it exists with exactly these packages. Returns its Python.
///
/// The folder is `.peers/venv` below the workspace, or the value of `FODO_PEERS`.
pub fn prepare(root: &Path) -> Result<PathBuf, String> {
    environment::prepare(root, &folder(root), "conformance/peers/requirements.txt")
}

/// Downloads the libraries in Java with Maven into folders of the environment, unless they are there from their
/// current poms, and checks that they are the expected ones.
pub fn prepare_java(root: &Path) -> Result<Outcome, String> {
    let mut missing = Vec::new();
    for (name, pom) in JAVA_LIBRARIES {
        let pom_path = root.join(pom);
        let pom = std::fs::read_to_string(&pom_path).map_err(|error| format!("{}: {error}", pom_path.display()))?;
        let library = folder(root).join(name);
        if std::fs::read_to_string(library.join("pom.xml")).is_ok_and(|installed| installed == pom) {
            continue;
        }
        missing.push((pom_path, pom, library));
    }
    if !missing.is_empty() && output_of(root, Command::new("mvn").arg("--version")).is_err() {
        return Ok(Outcome::Skipped(
            "the peers in Java need Maven and a JDK; without them their tests are skipped".into(),
        ));
    }
    for (pom_path, pom, library) in missing {
        download_jars(root, &pom_path, &library.join("jars"))?;
        let stamp = library.join("pom.xml");
        std::fs::write(&stamp, pom).map_err(|error| format!("{}: {error}", stamp.display()))?;
    }
    check_jars(root)
}

fn download_jars(root: &Path, pom_path: &Path, jars: &Path) -> Result<(), String> {
    // Jars of another version in this folder would also be on the class path.
    match std::fs::remove_dir_all(jars) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", jars.display()));
        }
        _ => {}
    }
    let mut mvn = Command::new("mvn");
    mvn.args(["--batch-mode", "--quiet", "--strict-checksums", "--file"]).arg(pom_path);
    mvn.args(["dependency:copy-dependencies", "-DincludeScope=runtime", "-DexcludeClassifiers=javadoc"]);
    downloaded_by(root, mvn.arg(format!("-DoutputDirectory={}", jars.display()))).map(|_| ())
}

/// Compares the jars with the checksums of the versions that the tests were written with.
fn check_jars(root: &Path) -> Result<Outcome, String> {
    let sums = root.join("conformance").join("peers").join("jars.sha256");
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--strict", "--quiet"]).arg(&sums).current_dir(folder(root));
    output_of(root, &mut check).map(|_| Outcome::Passed(String::new()))
}

/// The folder of the environment.
pub fn folder(root: &Path) -> PathBuf {
    match std::env::var_os(VARIABLE) {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => root.join(".peers").join("venv"),
    }
}
