//! Writes save files so that a complete one always exists, and finds the newest complete one.
//!
//! A file is written under a temporary name, flushed to the disk and then renamed. The previous file is kept as
//! `.savB`, and the folder is flushed as well. Whenever the IOC or the power fails, the last complete file exists under
//! one of the two names.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fodo_db::Macros;

use super::format::{self, SaveFile};
use crate::file;
use crate::limit::{SAVE_FILE_BYTES_MAX, SEQUENCE_FILES_MAX};

/// The path with a suffix appended to the file name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Replaces a save file and keeps the previous one: as `.savB` if that was good, else as `.sav.bad`.
///
/// On failure the previous file still exists, under its own name or as `.savB`.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    write_temporary(path, text.as_bytes(), |fresh| {
        match read_whole(path) {
            Ok(before) => {
                let suffix = if format::check(&before).is_ok() { "B" } else { ".bad" };
                std::fs::rename(path, with_suffix(path, suffix))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        std::fs::rename(fresh, path)
    })?;
    flush_folder(path)
}

/// Copies a save file.
pub fn copy(path: &Path, to: &Path) -> io::Result<()> {
    replace_without_backup(to, &read_whole(path)?)
}

/// Replaces a file without keeping the previous one.
pub fn replace_without_backup(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_temporary(path, bytes, |fresh| std::fs::rename(fresh, path))
}

/// Writes a temporary file and calls `exchange` to move it into place; removes it when that fails.
fn write_temporary(path: &Path, bytes: &[u8], exchange: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let fresh = with_suffix(path, ".tmp");
    let written = write_through(&fresh, bytes).and_then(|()| exchange(&fresh));
    if written.is_err() && fresh.is_file() {
        // A leftover temporary file only takes space, so a failure to remove it does not matter.
        let _ = std::fs::remove_file(&fresh);
    }
    written
}

fn write_through(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = file::open_to_write(path, false)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Flushes the folder of a file, so that its names survive a loss of power.
fn flush_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(folder)?.sync_all() {
        // Some network file systems do not support this; they store names immediately.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        result => result,
    }
}

fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    file::read_up_to(path, SAVE_FILE_BYTES_MAX)
}

/// The contents of a good file after its header; `None` if there is no good file.
pub fn body(path: &Path) -> Option<String> {
    let bytes = read_whole(path).ok()?;
    format::check(&bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.split_once('\n').map(|(_, body)| body.to_owned())
}

/// The result of looking for a save file.
#[derive(Debug)]
pub enum SaveFileSearch {
    /// A good file.
    Good {
        /// The path of the file, which may be a copy.
        path: PathBuf,
        /// Its contents.
        saved: SaveFile,
        /// Why newer files are not used.
        passed_over: Vec<String>,
    },
    /// No file exists, as at the first start.
    Nothing,
    /// Files exist, but none can be used; the reasons.
    Bad(Vec<String>),
}

/// Looks for the newest good file: the current one, then the previous one, then the sequence files.
pub fn find(path: &Path, macros: Option<&Macros>) -> SaveFileSearch {
    let mut candidates = vec![path.to_owned(), with_suffix(path, "B")];
    let mut kept: Vec<(SystemTime, PathBuf)> = (0..SEQUENCE_FILES_MAX)
        .map(|number| with_suffix(path, &number.to_string()))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .collect();
    kept.sort();
    candidates.extend(kept.into_iter().rev().map(|(_, path)| path));

    let (mut passed_over, mut is_there) = (Vec::new(), false);
    for path in candidates {
        let why = match read_whole(&path) {
            Ok(bytes) => match format::read(&bytes, macros) {
                Ok(saved) => return SaveFileSearch::Good { path, saved, passed_over },
                Err(why) => {
                    is_there = true;
                    why.to_string()
                }
            },
            Err(error) => {
                is_there |= error.kind() != io::ErrorKind::NotFound;
                error.to_string()
            }
        };
        passed_over.push(format!("{} is not used: {why}", path.display()));
    }
    if is_there { SaveFileSearch::Bad(passed_over) } else { SaveFileSearch::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    fn text(value: &str) -> String {
        format!("# autosave R5.11\tx\nx {value}\n<END>\n")
    }

    fn found(path: &Path) -> (String, usize) {
        match find(path, None) {
            SaveFileSearch::Good { path, passed_over, .. } => (path.display().to_string(), passed_over.len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_last_good_save_file_is_kept_as_backup() {
        let folder = Folder::new();
        let path = folder.path("a.sav");

        replace(&path, &text("1")).unwrap();
        replace(&path, &text("2")).unwrap();

        let held = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!((held(&path), held(&with_suffix(&path, "B"))), (text("2"), text("1")));
        assert!(!with_suffix(&path, ".tmp").exists());
    }

    // Row 64 of docs/reference/faults.md.
    #[test]
    fn a_truncated_save_file_is_skipped_and_never_replaces_the_backup() {
        let folder = Folder::new();
        let path = folder.path("a.sav");
        replace(&path, &text("1")).unwrap();
        replace(&path, &text("2")).unwrap();

        std::fs::write(&path, "# autosave R5.11\tx\nx 2").unwrap();
        assert_eq!(found(&path), (with_suffix(&path, "B").display().to_string(), 1));
        replace(&path, &text("3")).unwrap();

        assert_eq!(found(&path).1, 0);
        assert_eq!(body(&with_suffix(&path, "B")).unwrap(), "x 1\n<END>\n");
        assert!(with_suffix(&path, ".bad").exists());
    }

    #[test]
    fn the_newest_sequence_file_is_used_if_the_save_file_and_its_backup_are_bad() {
        let folder = Folder::new();
        let path = folder.path("a.sav");
        for number in ["0", "2"] {
            replace(&path, &text(number)).unwrap();
            copy(&path, &with_suffix(&path, number)).unwrap();
        }
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        File::options().write(true).open(with_suffix(&path, "2")).unwrap().set_modified(later).unwrap();

        std::fs::write(&path, "").unwrap();
        std::fs::write(with_suffix(&path, "B"), "# cut").unwrap();
        assert_eq!(found(&path), (with_suffix(&path, "2").display().to_string(), 2));
        for number in ["0", "2"] {
            std::fs::remove_file(with_suffix(&path, number)).unwrap();
        }

        assert!(matches!(find(&path, None), SaveFileSearch::Bad(why) if why.len() == 2));
    }

    #[test]
    fn a_missing_save_file_is_not_an_error() {
        assert!(matches!(find(&Folder::new().path("a.sav"), None), SaveFileSearch::Nothing));
    }

    #[test]
    fn a_missing_save_folder_is_an_error_and_leaves_no_files() {
        let folder = Folder::new();
        let path = folder.path("no/a.sav");

        assert!(replace(&path, &text("1")).is_err());

        assert!(matches!(find(&path, None), SaveFileSearch::Nothing));
    }
}
