//! Files that are replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fodo_clu::cipher::CipherKey;
use fodo_clu::keys::KeyFile;
use zeroize::Zeroizing;

/// Permissions of a file with keys: only its owner reads it.
const SECRET_MODE: u32 = 0o600;

/// Permissions of other files, which the umask of the process reduces.
pub(super) const OPEN_MODE: u32 = 0o666;

/// Replaces the key of the project in a file, and keeps its other members.
///
/// `keys`: what a new file contains besides the key.
pub(super) fn store_key(path: &Path, keys: &KeyFile, key: &CipherKey) -> io::Result<()> {
    let mut stored = match fs::read_to_string(path).map(Zeroizing::new) {
        Ok(text) => KeyFile::parse(&text).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => keys.clone(),
        Err(error) => return Err(error),
    };
    stored.project = key.clone();
    replace(path, stored.to_text().as_bytes(), SECRET_MODE)
}

/// Replaces a file: after a failure, or a loss of power, it has either its old or its new content.
pub(super) fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    let new = NewFile(folder.join(name));
    // Left by a process with the same number that was killed.
    let _ = fs::remove_file(&new.0);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new.0)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new.0, path)?;
    File::open(folder)?.sync_all()
}

/// Removed when it is dropped, unless it was renamed.
struct NewFile(PathBuf);

impl Drop for NewFile {
    fn drop(&mut self) {
        // After a success, there is none.
        let _ = fs::remove_file(&self.0);
    }
}
