//! Opens files named by a command line, a script or another file, without blocking and with a limit on their size.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use crate::limit::FILE_BYTES_MAX;

/// The bytes of a regular file.
///
/// Refuses a pipe or a device, because reading it could block or never end, and a file that is too large.
///
/// ```
/// let error = fodo_ioc::file::read("/dev/zero").unwrap_err();
/// assert_eq!(error.to_string(), "it is a device, not a regular file");
/// ```
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    read_up_to(path.as_ref(), FILE_BYTES_MAX)
}

/// The same with another size limit.
pub(crate) fn read_up_to(path: &Path, n_bytes_max: u64) -> io::Result<Vec<u8>> {
    let too_large =
        || io::Error::new(io::ErrorKind::FileTooLarge, format!("the file has more than {n_bytes_max} bytes"));
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(irregular(metadata.file_type()));
    }
    if metadata.len() > n_bytes_max {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // A file may grow while it is read, and files in /proc have no length.
    File::open(path)?.take(n_bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > n_bytes_max { Err(too_large()) } else { Ok(bytes) }
}

/// Creates or opens a file for writing: truncates it, or with `appends` appends to it.
///
/// Refuses a pipe, because opening it could block. A device such as `/dev/null` is allowed.
pub(crate) fn open_to_write(path: &Path, appends: bool) -> io::Result<File> {
    if let Ok(metadata) = std::fs::metadata(path)
        && metadata.file_type().is_fifo()
    {
        return Err(irregular(metadata.file_type()));
    }
    OpenOptions::new().create(true).write(true).append(appends).truncate(!appends).open(path)
}

fn irregular(kind: FileType) -> io::Error {
    let (error, what) = if kind.is_dir() {
        (io::ErrorKind::IsADirectory, "a folder")
    } else if kind.is_fifo() {
        (io::ErrorKind::InvalidInput, "a pipe")
    } else if kind.is_socket() {
        (io::ErrorKind::InvalidInput, "a socket")
    } else {
        (io::ErrorKind::InvalidInput, "a device")
    };
    io::Error::new(error, format!("it is {what}, not a regular file"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    #[test]
    fn pipes_devices_and_directories_are_rejected_without_blocking() {
        let folder = Folder::new();
        let pipe = folder.path("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());

        let refusal = |path: &Path| read(path).unwrap_err().to_string();
        assert_eq!(refusal(&pipe), "it is a pipe, not a regular file");
        assert_eq!(refusal(Path::new("/dev/zero")), "it is a device, not a regular file");
        assert_eq!(refusal(&folder.path("")), "it is a folder, not a regular file");
        assert_eq!(open_to_write(&pipe, true).unwrap_err().to_string(), "it is a pipe, not a regular file");
        assert!(open_to_write(Path::new("/dev/null"), false).is_ok());
    }

    #[test]
    fn a_file_above_the_size_limit_is_rejected() {
        let folder = Folder::new();
        let path = folder.path("file");
        std::fs::write(&path, "1234").unwrap();

        assert_eq!(read_up_to(&path, 4).unwrap(), b"1234");
        assert_eq!(read_up_to(&path, 3).unwrap_err().to_string(), "the file has more than 3 bytes");
        // The system does not report the length of this file.
        assert_eq!(read_up_to(Path::new("/proc/self/status"), 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn an_oversized_sparse_file_is_rejected() {
        let folder = Folder::new();
        let path = folder.path("sparse");
        File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();

        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
