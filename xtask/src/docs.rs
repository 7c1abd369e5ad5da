//! Runs every block marked `sh` in README.md and docs/, so that the documents stay correct.
//!
//! The blocks of one page form one script. It runs in an empty folder and in a network namespace with only loopback,
//! with `fodo` on the path. Blocks that cannot run there are marked `console` or `text`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::output_of;
use crate::tidy::repository::Repository;

/// Stops at the first failed command, and prints each command.
const PREAMBLE: &str = "set -euo pipefail\nset -x\n";

/// Runs all shell blocks. Requires the release build of `fodo`.
pub fn run_shell_blocks(root: &Path) -> Result<String, String> {
    let repository = Repository::read(root)?;
    let mut n_blocks = 0;
    let mut n_pages = 0;
    for page in repository.files.iter().filter(|file| file.path.ends_with(".md")) {
        let blocks = shell_blocks(&page.text);
        if blocks.is_empty() {
            continue;
        }
        n_pages += 1;
        n_blocks += blocks.len();
        run_page(root, &blocks).map_err(|error| format!("{}: {error}", page.path))?;
    }
    Ok(format!("{n_blocks} blocks on {n_pages} pages"))
}

fn run_page(root: &Path, blocks: &[String]) -> Result<(), String> {
    let folder = EmptyFolder::new()?;
    let script = folder.0.join("page.sh");
    std::fs::write(&script, format!("{PREAMBLE}{}", blocks.concat())).map_err(|error| error.to_string())?;

    let mut command = Command::new(root.join("conformance").join("alone.sh"));
    command.arg("bash").arg(&script);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("EPICS_") {
            command.env_remove(name);
        }
    }
    let mut path = root.join("target").join("release").into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    command.env("PATH", path).env("HOME", &folder.0).current_dir(&folder.0);
    output_of(root, &mut command).map(|_| ())
}

/// The text of each block with the language `sh`.
fn shell_blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    let mut is_other = false;
    for line in page.lines() {
        let fence = line.trim_start().strip_prefix("```");
        match (fence, &mut open) {
            (Some(_), Some(block)) => {
                blocks.push(std::mem::take(block));
                open = None;
            }
            (Some(_), None) if is_other => is_other = false,
            (Some("sh"), None) => open = Some(String::new()),
            (Some(_), None) => is_other = true,
            (None, Some(block)) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// A temporary folder, removed on drop.
struct EmptyFolder(PathBuf);

impl EmptyFolder {
    fn new() -> Result<EmptyFolder, String> {
        let path = std::env::temp_dir().join(format!("fodo-docs-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path); // Exists only if an earlier run was interrupted.
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(EmptyFolder(path))
    }
}

impl Drop for EmptyFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // Leftovers in the temporary folder are harmless.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sh_code_blocks_are_run() {
        let page = "a\n```sh\none\n```\n```console\ntwo\n```\n```text\n```\n  ```sh\nthree\nfour\n  ```\n";

        assert_eq!(shell_blocks(page), ["one\n", "three\nfour\n"]);
    }
}
