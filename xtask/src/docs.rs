//! Runs every block marked `sh` in README.md and docs/, so that the documents stay correct.
//!
//! The blocks of one page form one script. It runs in a folder that has only a link to `examples`, and in a network
//! namespace with only loopback, with `fodo` on the path. Blocks that cannot run there are marked `console` or `text`.
//!
//! A page whose blocks use `$FODO_JAVA`, Fodo's jar, runs only if that jar was built; the variable names it. A block marked
//! `java` is an excerpt of a file in `examples/java`, so that all Java in the documents is compiled and run there.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Outcome, output_of};
use crate::tidy::repository::Repository;

/// Stops at the first failed command, and prints each command.
const PREAMBLE: &str = "set -euo pipefail\nset -x\n";

/// The examples in Java, from the workspace's root.
const JAVA_EXAMPLES: &str = "examples/java/";

/// The environment variable that names Fodo's jar for the blocks of a page.
const JAR_VARIABLE: &str = "FODO_JAVA";

/// Runs all shell blocks, and checks the blocks of Java. Requires the release build of `fodo`.
pub fn run_shell_blocks(root: &Path) -> Result<Outcome, String> {
    let repository = Repository::read(root)?;
    let mut n_blocks = 0;
    let mut n_pages = 0;
    let mut without_jar = Vec::new();
    let jar = jar(root);
    let examples: Vec<String> = java_examples(&repository);
    for page in repository.files.iter().filter(|file| file.path.ends_with(".md")) {
        if let Some(block) = blocks(&page.text, "java").iter().find(|block| !is_excerpt(block, &examples)) {
            return Err(format!("{}: no file in {JAVA_EXAMPLES} has these lines:\n{block}", page.path));
        }
        let blocks = blocks(&page.text, "sh");
        if blocks.is_empty() {
            continue;
        }
        if jar.is_none() && blocks.iter().any(|block| block.contains(JAR_VARIABLE)) {
            without_jar.push(page.path.clone());
            continue;
        }
        n_pages += 1;
        n_blocks += blocks.len();
        run_page(root, &blocks, jar.as_deref()).map_err(|error| format!("{}: {error}", page.path))?;
    }
    let summary = format!("{n_blocks} blocks on {n_pages} pages");
    Ok(Outcome::Passed(match without_jar.as_slice() {
        [] => summary,
        pages => format!("{summary}; without java/target/fodo-VERSION.jar not run: {}", pages.join(", ")),
    }))
}

/// Fodo's jar, if it was built.
fn jar(root: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(root.join("java").join("target")).ok()?;
    let mut jars: Vec<PathBuf> =
        files.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_jar(path)).collect();
    jars.sort();
    jars.pop()
}

/// Whether this is `fodo-0.1.0.jar`; jars of sources and documents have longer names.
fn is_jar(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let version = name.strip_prefix("fodo-").and_then(|rest| rest.strip_suffix(".jar"));
    version.is_some_and(|version| version.starts_with(|letter: char| letter.is_ascii_digit()) && !version.contains('-'))
}

/// The texts of the examples in Java.
fn java_examples(repository: &Repository) -> Vec<String> {
    let is_example = |path: &str| path.starts_with(JAVA_EXAMPLES) && path.ends_with(".java");
    repository.files.iter().filter(|file| is_example(&file.path)).map(|file| file.text.clone()).collect()
}

/// Whether an example has the lines of the block, one after another, with any indentation.
fn is_excerpt(block: &str, examples: &[String]) -> bool {
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let block = lines(block);
    examples.iter().any(|example| lines(example).windows(block.len().max(1)).any(|window| window == block))
}

fn run_page(root: &Path, blocks: &[String], jar: Option<&Path>) -> Result<(), String> {
    let folder = EmptyFolder::new()?;
    let script = folder.0.join("page.sh");
    std::os::unix::fs::symlink(root.join("examples"), folder.0.join("examples")).map_err(|error| error.to_string())?;
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
    command.envs(jar.map(|jar| (JAR_VARIABLE, jar)));
    command.env("PATH", path).env("HOME", &folder.0).current_dir(&folder.0);
    output_of(root, &mut command).map(|_| ())
}

/// The text of each block with this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
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
            (Some(word), None) if word == language => open = Some(String::new()),
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

        assert_eq!(blocks(page, "sh"), ["one\n", "three\nfour\n"]);
        assert_eq!(blocks(page, "console"), ["two\n"]);
    }

    #[test]
    fn a_block_of_java_must_be_in_an_example() {
        let examples = ["class A {\n    int n = 1;\n    int m = 2;\n}\n".to_string()];

        assert!(is_excerpt("int n = 1;\nint m = 2;\n", &examples));
        assert!(!is_excerpt("int m = 2;\nint n = 1;\n", &examples));
        assert!(!is_excerpt("int o = 3;\n", &examples));
    }

    #[test]
    fn the_jar_is_the_one_without_a_classifier() {
        let is_of_library = ["fodo-0.1.0.jar", "fodo-0.1.0-sources.jar", "fodo-javadoc.jar", "other-1.0.jar"];

        assert_eq!(is_of_library.map(|name| is_jar(Path::new(name))), [true, false, false, false]);
    }
}
