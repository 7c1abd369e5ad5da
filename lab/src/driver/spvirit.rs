//! spvirit, a client of pvAccess in Rust: its driver is a package of its own, which is compiled at first use.

use std::path::PathBuf;
use std::process::Command;

use super::external::{READY, SourceFile, is_same, output_of, which, write_when_different};
use crate::peers::Peers;

/// The package, by links: a package of cargo contains no folder that has a `Cargo.toml`.
const FILES: [SourceFile; 9] = [
    ("Cargo.toml", include_str!("../../embedded/spvirit/manifest.toml")),
    ("Cargo.lock", include_str!("../../embedded/spvirit/Cargo.lock")),
    ("main.rs", include_str!("../../embedded/spvirit/main.rs")),
    ("batch.rs", include_str!("../../embedded/spvirit/batch.rs")),
    ("circuit.rs", include_str!("../../embedded/spvirit/circuit.rs")),
    ("driver.rs", include_str!("../../embedded/spvirit/driver.rs")),
    ("failed.rs", include_str!("../../embedded/spvirit/failed.rs")),
    ("subscribe.rs", include_str!("../../embedded/spvirit/subscribe.rs")),
    ("watch.rs", include_str!("../../embedded/spvirit/watch.rs")),
];

/// Fails, with instructions, unless the driver is compiled or can be.
pub(super) fn missing(peers: &Peers) -> Result<(), String> {
    match is_compiled(peers) || which("cargo").is_some() {
        true => Ok(()),
        false => Err("no `cargo` in PATH, which compiles the driver of spvirit at first use".into()),
    }
}

/// The driver of spvirit, which is compiled at first use.
pub(super) fn program(peers: &Peers) -> Result<PathBuf, String> {
    missing(peers)?;
    let directory = directory(peers);
    let target = directory.join("target");
    let program = target.join("release").join(format!("driver{}", std::env::consts::EXE_SUFFIX));
    if is_compiled(peers) {
        return Ok(program);
    }
    eprintln!("compiling the driver of spvirit in {} (once, about a minute) ...", directory.display());
    let ready = directory.join(READY);
    // An error means that no driver is ready.
    let _ = std::fs::remove_file(&ready);
    for file in FILES {
        write_when_different(&directory, file)?;
    }
    let mut cargo = Command::new(which("cargo").ok_or("no `cargo` in PATH")?);
    cargo.args(["build", "--quiet", "--release", "--locked", "--target-dir"]).arg(&target);
    output_of(cargo.current_dir(&directory))?;
    std::fs::write(&ready, "").map_err(|why| format!("{}: {why}", ready.display()))?;
    Ok(program)
}

fn directory(peers: &Peers) -> PathBuf {
    peers.directory.join("fodo-lab").join("spvirit")
}

/// Whether the program was compiled from these files.
fn is_compiled(peers: &Peers) -> bool {
    let directory = directory(peers);
    FILES.iter().all(|file| is_same(&directory, *file)) && directory.join(READY).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_has_the_version_of_the_client_and_all_its_versions_are_exact() {
        let (_, manifest) = FILES[0];

        let about: toml::Table = toml::from_str(manifest).unwrap();

        let version = |dependency: &toml::Value| match dependency {
            toml::Value::Table(table) => table["version"].as_str().unwrap().to_owned(),
            version => version.as_str().unwrap().to_owned(),
        };
        let dependencies = about["dependencies"].as_table().unwrap();
        assert!(dependencies.values().all(|dependency| version(dependency).starts_with('=')), "{dependencies:?}");
        assert_eq!(
            version(&dependencies["spvirit-client"]),
            format!("={}", about["package"]["version"].as_str().unwrap())
        );
    }

    #[test]
    fn every_module_of_the_driver_is_written() {
        let (_, main) = FILES[2];

        let modules = main.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));

        for module in modules {
            assert!(FILES.iter().any(|(name, _)| *name == format!("{module}.rs")), "{module}");
        }
    }
}
