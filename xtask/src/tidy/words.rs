//! Words that must not appear in the repository.

use super::Offence;
use super::repository::{Repository, TextFile};

/// Banned words with the reason, each in two halves so that this file passes its own check.
const BANNED: [(&str, &str); 7] = [
    (concat!("FIX", "ME"), "fix it or open an issue"),
    (concat!("todo", "!("), "implement it or remove it"),
    (concat!("/", "work/"), "a path of one machine"),
    (concat!("/", "root/"), "a path of one machine"),
    (concat!("/tmp", "/w"), "a path of one machine"),
    (concat!("shared", "/"), "not a folder of this project"),
    (concat!("pypi", ".org"), "the package index is the user's choice"),
];

/// Also banned, except in file formats that require the name.
const REGISTRY: &str = concat!("crates", ".io");

/// A term reserved for the Grenton CLU.
const OF_THE_CLU_ALONE: &str = concat!("sess", "ion");

/// Checks every text file.
pub fn check(repository: &Repository) -> Vec<Offence> {
    repository.files.iter().filter(|file| !file.path.starts_with("fuzz/corpus/")).flat_map(check_file).collect()
}

fn check_file(file: &TextFile) -> Vec<Offence> {
    let mut offences = Vec::new();
    let is_about_clu = file.path.contains("/clu") || file.path.starts_with("crates/vclu/");
    for (index, line) in file.text.lines().enumerate() {
        let mut offend = |what: String| offences.push(Offence::new(&file.path, index + 1, what));
        for (word, why) in BANNED {
            if line.contains(word) {
                offend(format!("\"{word}\": {why}"));
            }
        }
        if line.contains(REGISTRY) && !file.path.ends_with("Cargo.lock") {
            offend(format!("\"{REGISTRY}\": the package index is the user's choice"));
        }
        let speaks_of_clu = is_about_clu || line.contains("CLU") || line.contains("Grenton");
        if !speaks_of_clu && line.to_lowercase().contains(OF_THE_CLU_ALONE) {
            offend(format!("\"{OF_THE_CLU_ALONE}\": use this term only for the Grenton CLU"));
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n_offences(path: &str, text: &str) -> usize {
        check(&Repository::of(&[(path, text)])).len()
    }

    #[test]
    fn each_banned_word_is_rejected_in_every_file() {
        for (word, _) in BANNED {
            assert_eq!(n_offences("docs/a.md", &format!("first\nsome {word} thing\n")), 1, "{word}");
        }
        assert_eq!(n_offences("README.md", REGISTRY), 1);
        assert_eq!(n_offences("Cargo.lock", REGISTRY), 0);
    }

    #[test]
    fn the_word_reserved_for_the_clu_is_accepted_only_in_clu_text() {
        let planted = format!("A {OF_THE_CLU_ALONE} begins.");

        assert_eq!(n_offences("crates/net/src/lib.rs", &planted), 1);
        for path in
            ["crates/clu/src/lib.rs", "crates/vclu/src/lib.rs", "lab/src/clu/mod.rs", "crates/net/tests/clu_client.rs"]
        {
            assert_eq!(n_offences(path, &planted), 0, "{path}");
        }
        assert_eq!(n_offences("ARCHITECTURE.md", &format!("CLU: {planted}")), 0);
    }
}
