//! The sets that info items define, without request files: their save files, and the PVs in them.

use std::path::{Path, PathBuf};

use fodo_db::{Database, LoadError};

use super::request::RequestedPv;
use super::restore::{Messages, RestoreFile, RestorePass};
use super::status::Health;
use super::{BOTH, EARLY, LATE, listed};

/// A set of PVs that info items name.
pub struct InfoSet {
    /// The name of the set, which is that of its file.
    pub name: &'static str,
    /// The save file.
    pub path: PathBuf,
    /// The PVs.
    pub pvs: Vec<RequestedPv>,
}

const POSITIONS: &str = "info_positions.sav";
const SETTINGS: &str = "info_settings.sav";
const AFTERWARDS: &str = "info_pass1.sav";

/// The files to restore, those of the early pass first.
pub fn files(folder: &Path) -> [RestoreFile; 4] {
    let files = [
        (POSITIONS, RestorePass::Early),
        (SETTINGS, RestorePass::Early),
        (SETTINGS, RestorePass::Late),
        (AFTERWARDS, RestorePass::Late),
    ];
    files.map(|(name, pass)| {
        let outcome = "not restored yet".to_owned();
        RestoreFile {
            path: folder.join(name),
            macros: None,
            pass,
            is_expected: false,
            outcome,
            health: Health::Unknown,
        }
    })
}

/// The sets of a database; creates the folder. Also returns messages about names that are not fields, and about a folder
/// that cannot be created.
pub fn sets(database: &Database, folder: &Path) -> (Vec<InfoSet>, Messages) {
    let (mut sets, mut messages) = (Vec::new(), Messages::new());
    if let Err(error) = std::fs::create_dir_all(folder) {
        messages.push(format!("cannot create \"{}\", so nothing can be saved there: {error}", folder.display()));
    }
    for (info, name) in [(EARLY, POSITIONS), (BOTH, SETTINGS), (LATE, AFTERWARDS)] {
        let (pvs, strangers) = listed(database, info);
        messages.extend(strangers);
        if !pvs.is_empty() {
            let pvs = pvs.into_iter().map(|pv| RequestedPv { pv, at: LoadError::default() }).collect();
            sets.push(InfoSet { name, path: folder.join(name), pvs });
        }
    }
    if sets.is_empty() {
        messages.push(format!("no record has an info item {BOTH}, {EARLY} or {LATE}, so autosave saves nothing"));
    }
    (sets, messages)
}
