//! The folder `a:` of a CLU: the scripts that Object Manager uploads.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::limit::FILE_BYTES_MAX;

/// Why a script file cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FolderError {
    /// The folder has no such file.
    Missing,
    /// The name leads outside the folder.
    Outside,
    /// The file is too long, not UTF-8, or cannot be read; the reason.
    Unreadable(String),
}

impl std::fmt::Display for FolderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FolderError::Missing => write!(f, "the file does not exist"),
            FolderError::Outside => write!(f, "only files of the folder a: can be read"),
            FolderError::Unreadable(reason) => write!(f, "the file cannot be read: {reason}"),
        }
    }
}

/// Reads a script by its name on a CLU: `a:\USER.LUA`, `a:/user.lua` or `USER.LUA`, in upper or lower case.
pub(crate) fn read_script(folder: &Path, name: &str) -> Result<String, FolderError> {
    let path = resolve(folder, name)?;
    let unreadable = |error: std::io::Error| FolderError::Unreadable(error.to_string());
    let file = fs::File::open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(FolderError::Missing);
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(FolderError::Unreadable(format!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| FolderError::Unreadable("it is not UTF-8".into()))
}

/// Whether the folder has a script.
pub(crate) fn has_script(folder: &Path, name: &str) -> bool {
    resolve(folder, name).is_ok_and(|path| path.is_file())
}

/// The path of a file. Symbolic links that lead outside the folder are refused.
fn resolve(folder: &Path, name: &str) -> Result<PathBuf, FolderError> {
    let name = name.replace('\\', "/");
    let inside = match name.split_once(':') {
        Some((drive, rest)) if drive.eq_ignore_ascii_case("a") => rest,
        Some(_) => return Err(FolderError::Outside),
        None => &name,
    };
    let root = folder.canonicalize().map_err(|_| FolderError::Missing)?;
    let mut path = root.clone();
    let mut n_parts = 0;
    for part in inside.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            return Err(FolderError::Outside);
        }
        path = entry_of(&path, part).ok_or(FolderError::Missing)?;
        n_parts += 1;
    }
    if n_parts == 0 {
        return Err(FolderError::Missing);
    }
    let path = path.canonicalize().map_err(|_| FolderError::Missing)?;
    if path.starts_with(&root) { Ok(path) } else { Err(FolderError::Outside) }
}

/// The entry of a folder with this name; an exact match is preferred to one in another case.
pub(crate) fn entry_of(folder: &Path, name: &str) -> Option<PathBuf> {
    let exact = folder.join(name);
    if exact.exists() {
        return Some(exact);
    }
    let mut matches: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().eq_ignore_ascii_case(name))
        .map(|entry| entry.path())
        .collect();
    matches.sort();
    matches.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("fodo-vclu-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("a/sub")).unwrap();
        path
    }

    #[test]
    fn a_script_is_found_by_every_form_of_its_name() {
        let outer = folder("forms");
        fs::write(outer.join("a/USER.LUA"), "return 1").unwrap();
        fs::write(outer.join("a/sub/part.lua"), "return 2").unwrap();

        for name in ["USER.LUA", "user.lua", "a:\\user.lua", "A:/USER.LUA", "/USER.LUA"] {
            assert_eq!(read_script(&outer.join("a"), name).as_deref(), Ok("return 1"), "{name}");
        }
        assert_eq!(read_script(&outer.join("a"), "a:\\SUB\\PART.LUA").as_deref(), Ok("return 2"));
        fs::remove_dir_all(outer).unwrap();
    }

    #[test]
    fn a_name_that_leads_outside_the_folder_is_refused() {
        let outer = folder("outside");
        fs::write(outer.join("secret.lua"), "return 1").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(outer.join("secret.lua"), outer.join("a/link.lua")).unwrap();

        for name in ["../secret.lua", "a:/sub/../../secret.lua", "p:\\meas.bin", "link.lua"] {
            assert_eq!(read_script(&outer.join("a"), name), Err(FolderError::Outside), "{name}");
        }
        for name in ["", "a:", "sub", "none.lua"] {
            assert_eq!(read_script(&outer.join("a"), name), Err(FolderError::Missing), "{name}");
        }
        fs::remove_dir_all(outer).unwrap();
    }

    #[test]
    fn a_script_that_is_too_long_or_not_utf_8_is_refused() {
        let outer = folder("long");
        fs::write(outer.join("a/long.lua"), vec![b' '; FILE_BYTES_MAX as usize + 1]).unwrap();
        fs::write(outer.join("a/binary.lua"), [0x1b, b'L', b'u', b'a', 0xff]).unwrap();

        for name in ["long.lua", "binary.lua"] {
            let error = read_script(&outer.join("a"), name).unwrap_err();
            assert!(matches!(error, FolderError::Unreadable(_)), "{name}: {error}");
        }
        fs::remove_dir_all(outer).unwrap();
    }
}
