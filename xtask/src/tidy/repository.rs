use std::path::Path;
use std::process::Command;

use crate::step::output_of;

/// A text file of the repository.
pub struct TextFile {
    /// From the workspace's root, with `/`.
    pub path: String,
    /// All of it.
    pub text: String,
}

/// The text files of the repository as they are in the working tree.
pub struct Repository {
    /// In the order of their paths.
    pub files: Vec<TextFile>,
    /// Paths of all files, text or not.
    pub paths: Vec<String>,
}

impl Repository {
    /// Reads every file that git knows or would take; binary files give only their path.
    pub fn read(root: &Path) -> Result<Repository, String> {
        let mut command = Command::new("git");
        command.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root);
        let listed = output_of(root, &mut command)?;

        let mut repository = Repository { files: Vec::new(), paths: Vec::new() };
        let mut paths: Vec<&str> = listed.lines().collect();
        paths.sort_unstable();
        paths.dedup();
        for path in paths {
            // What is deleted but not yet committed is listed without being there.
            let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
            repository.paths.push(path.to_string());
            if let Ok(text) = String::from_utf8(bytes) {
                repository.files.push(TextFile { path: path.to_string(), text });
            }
        }
        Ok(repository)
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    /// The Rust sources.
    pub fn rust_files(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// A repository of these files, for tests of checks.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Repository {
        let paths = files.iter().map(|(path, _)| path.to_string()).collect();
        let files = files.iter().map(|(path, text)| TextFile { path: path.to_string(), text: text.to_string() });
        Repository { files: files.collect(), paths }
    }
}
