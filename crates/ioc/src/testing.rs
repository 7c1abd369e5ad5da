//! Utilities shared by unit tests.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A temporary folder for one test, removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static N_FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let number = N_FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("fodo-ioc-{}-{number}", std::process::id()));
        // A killed test run may have left the folder.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A failure to remove the folder must not hide the result of the test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_test_folder_is_removed_when_dropped() {
    let folder = Folder::new();
    let path = folder.path("file");
    std::fs::write(&path, "x").unwrap();

    drop(folder);

    assert!(!path.parent().unwrap().exists());
}
