use std::path::Path;
use std::process::Command;

use crate::step::output_of;

/// A text file of the repository.
pub struct TextFile {
    /// Relative to the workspace root, with `/`.
    pub path: String,
    /// The whole contents.
    pub text: String,
}

/// The files of the working tree.
pub struct Repository {
    /// The text files, sorted by path.
    pub files: Vec<TextFile>,
    /// The paths of all files, including binary files.
    pub paths: Vec<String>,
}

impl Repository {
    /// Reads every file that git tracks or would add; of binary files only the path.
    pub fn read(root: &Path) -> Result<Repository, String> {
        let mut command = Command::new("git");
        command.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root);
        let listed = output_of(root, &mut command)?;

        let mut repository = Repository { files: Vec::new(), paths: Vec::new() };
        let mut paths: Vec<&str> = listed.lines().collect();
        paths.sort_unstable();
        paths.dedup();
        for path in paths {
            // Deleted but uncommitted files are listed but do not exist.
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

    /// The sources in Python.
    pub fn python_files(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| file.path.ends_with(".py"))
    }

    /// A repository with these files, for tests of checks.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Repository {
        let paths = files.iter().map(|(path, _)| path.to_string()).collect();
        let files = files.iter().map(|(path, text)| TextFile { path: path.to_string(), text: text.to_string() });
        Repository { files: files.collect(), paths }
    }
}
