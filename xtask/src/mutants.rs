//! Mutation testing with cargo-mutants, on request only: a random sample, each mutant tested by its own crate's tests.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::step::output_of;

/// The crates whose code is mutated. Each gets an equal part of the sample, so that every rate is meaningful.
const PACKAGES: [&str; 6] = ["fodo-data", "fodo-ca", "fodo-db", "fodo-net", "fodo-ioc", "fodo-cli"];

/// Survivors that no test needs to detect: `FILE: WHAT | WHY`, one per line.
const EXPLAINED_PATH: &str = "xtask/mutants-explained.txt";

/// Where cargo-mutants writes `mutants.out`, with the log of every mutant.
const OUTPUT_FOLDER: &str = "target/mutants";

/// Exit codes of cargo-mutants if every mutant was tested: all caught, some missed, some timed out.
const COMPLETED_CODES: [i32; 3] = [0, 2, 3];

/// Special characters of regular expressions. `<` and `>` must not be escaped: escaped, they are word boundaries.
const REGEX_CHARACTERS: &str = r"\.+*?()|[]{}^$";

/// The results for the mutants of one crate.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    n_killed: usize,
    n_unviable: usize,
    explained: Vec<String>,
    survivors: Vec<String>,
}

/// Tests `sample_size` mutants and prints per crate how many its own tests killed, and which survived.
///
/// `seed`: selects the sample; without one, the current time does. The same seed with the same sources selects the same
/// sample.
pub fn run(root: &Path, sample_size: &str, seed: Option<&str>) -> Result<(), String> {
    let sample_size: usize = number(sample_size, "of mutants")?;
    let seed = match seed {
        Some(seed) => number(seed, "as the seed")?,
        None => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
    };
    if !is_installed() {
        return Err("cargo-mutants is not installed; install it with `cargo install cargo-mutants --locked`".into());
    }
    println!("{sample_size} mutants, seed {seed}");

    let all = list(root)?;
    let chosen = sample(&all, sample_size, seed);
    try_all(root, &chosen)?;

    let outcomes_path = root.join(OUTPUT_FOLDER).join("mutants.out").join("outcomes.json");
    let explained = std::fs::read_to_string(root.join(EXPLAINED_PATH)).map_err(|e| format!("{EXPLAINED_PATH}: {e}"))?;
    let tallies = tallies(&read_json(&outcomes_path)?, &explained_names(&explained)?)?;
    print!("{}", report(&tallies, seed));
    Ok(())
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("mutants: expected a number {what}, got {text:?}"))
}

fn is_installed() -> bool {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// All mutants of all packages: package and name of each.
fn list(root: &Path) -> Result<Vec<(String, String)>, String> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--list", "--json"]).args(package_arguments()).current_dir(root);
    let printed = output_of(root, &mut command)?;
    let listed: Value = serde_json::from_str(&printed).map_err(|error| format!("cargo mutants --list: {error}"))?;
    let mutants = listed.as_array().ok_or("cargo mutants --list: expected an array")?;
    mutants.iter().map(|mutant| Ok((text(mutant, "package")?, text(mutant, "name")?))).collect()
}

fn package_arguments() -> impl Iterator<Item = &'static str> {
    PACKAGES.iter().flat_map(|package| ["--package", package])
}

fn text(value: &Value, key: &str) -> Result<String, String> {
    value[key].as_str().map(str::to_string).ok_or_else(|| format!("cargo mutants: a mutant has no {key:?}"))
}

/// Selects an equal part of the sample from every package, by the hash of seed and name.
fn sample(all: &[(String, String)], sample_size: usize, seed: u64) -> Vec<String> {
    let mut chosen = Vec::new();
    for (index, package) in PACKAGES.iter().enumerate() {
        let mut names: Vec<&String> = all.iter().filter(|(of, _)| of == package).map(|(_, name)| name).collect();
        names.sort_by_key(|name| hash(seed, name));
        let share = sample_size / PACKAGES.len() + usize::from(index < sample_size % PACKAGES.len());
        chosen.extend(names.into_iter().take(share).cloned());
    }
    chosen
}

fn hash(seed: u64, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, name).hash(&mut hasher);
    hasher.finish()
}

/// Runs cargo-mutants on the selected mutants; it displays its own progress.
fn try_all(root: &Path, chosen: &[String]) -> Result<(), String> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--profile", "mutants", "--jobs", "2", "--colors", "never", "--output", OUTPUT_FOLDER]);
    command.args(package_arguments());
    command.args(chosen.iter().flat_map(|name| ["--re".to_string(), exactly(name)]));
    std::fs::create_dir_all(root.join(OUTPUT_FOLDER)).map_err(|error| format!("{OUTPUT_FOLDER}: {error}"))?;
    let status = command.current_dir(root).status().map_err(|error| error.to_string())?;
    match status.code() {
        Some(code) if COMPLETED_CODES.contains(&code) => Ok(()),
        _ => Err(format!("cargo mutants: {status}; its logs are in {OUTPUT_FOLDER}/mutants.out")),
    }
}

/// A regular expression that matches this name and no other.
fn exactly(name: &str) -> String {
    let escaped: String =
        name.chars().flat_map(|c| REGEX_CHARACTERS.contains(c).then_some('\\').into_iter().chain([c])).collect();
    format!("^{escaped}$")
}

fn read_json(path: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The names in the list of explained survivors; each line needs its reason.
fn explained_names(list: &str) -> Result<HashSet<String>, String> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.split_once(" | ") {
            Some((name, reason)) if !reason.trim().is_empty() => Ok(name.to_string()),
            _ => Err(format!("{EXPLAINED_PATH}: expected `FILE: WHAT | WHY`, got {line:?}")),
        })
        .collect()
}

/// `crates/data/src/time.rs: WHAT` from `crates/data/src/time.rs:12:5: WHAT`: explanations stay valid when lines move.
fn without_position(name: &str) -> String {
    let (place, what) = name.split_once(": ").unwrap_or((name, ""));
    let file = place.split(':').next().unwrap_or(place);
    format!("{file}: {what}")
}

/// Groups the outcomes of cargo-mutants by package.
fn tallies(outcomes: &Value, explained: &HashSet<String>) -> Result<BTreeMap<String, Tally>, String> {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for outcome in outcomes["outcomes"].as_array().ok_or("outcomes.json: no outcomes")? {
        let mutant = &outcome["scenario"]["Mutant"];
        if mutant.is_null() {
            continue; // The baseline: the tests without a mutant.
        }
        let name = text(mutant, "name")?;
        let tally = tallies.entry(text(mutant, "package")?).or_default();
        match outcome["summary"].as_str() {
            Some("CaughtMutant" | "Timeout") => tally.n_killed += 1,
            Some("Unviable") => tally.n_unviable += 1,
            Some("MissedMutant") if explained.contains(&without_position(&name)) => tally.explained.push(name),
            Some("MissedMutant") => tally.survivors.push(name),
            other => return Err(format!("outcomes.json: {name}: unknown summary {other:?}")),
        }
    }
    Ok(tallies)
}

/// The table, followed by the survivors.
fn report(tallies: &BTreeMap<String, Tally>, seed: u64) -> String {
    let mut text =
        format!("\nseed {seed}\n{:12} {:>6} {:>8} {:>9} {:>9}\n", "crate", "viable", "killed", "explained", "unviable");
    for (package, tally) in tallies {
        let n_viable = tally.n_killed + tally.explained.len() + tally.survivors.len();
        let percent = (tally.n_killed * 100).checked_div(n_viable).map_or("-".into(), |percent| format!("{percent} %"));
        let (n_explained, n_unviable) = (tally.explained.len(), tally.n_unviable);
        text += &format!("{package:12} {n_viable:>6} {percent:>8} {n_explained:>9} {n_unviable:>9}\n");
    }
    for (word, of) in [
        ("survived", (|tally| &tally.survivors) as fn(&Tally) -> &Vec<String>),
        ("explained", |tally| &tally.explained),
    ] {
        for name in tallies.values().flat_map(of) {
            text += &format!("{word}: {name}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants(package: &str, n: usize) -> Vec<(String, String)> {
        (0..n).map(|index| (package.to_string(), format!("{package}/src/a.rs:{index}:1: replace f"))).collect()
    }

    #[test]
    fn mutant_samples_are_balanced_over_packages_and_repeatable_by_seed() {
        let all: Vec<(String, String)> = PACKAGES.iter().flat_map(|package| mutants(package, 100)).collect();

        let chosen = sample(&all, 13, 7);

        let of = |package: &str| chosen.iter().filter(|name| name.starts_with(package)).count();
        assert_eq!(PACKAGES.map(of), [3, 2, 2, 2, 2, 2]);
        assert_eq!(chosen, sample(&all, 13, 7));
        assert_ne!(chosen, sample(&all, 13, 8));
    }

    #[test]
    fn a_mutant_name_pattern_matches_only_that_name() {
        assert_eq!(
            exactly("a.rs:1:2: replace f(x) -> Vec<u8> with vec![]"),
            r"^a\.rs:1:2: replace f\(x\) -> Vec<u8> with vec!\[\]$"
        );
    }

    #[test]
    fn an_explained_surviving_mutant_is_matched_regardless_of_its_line() {
        let outcomes = serde_json::json!({"outcomes": [
            {"scenario": "Baseline", "summary": "Success"},
            {"scenario": {"Mutant": {"package": "p", "name": "a.rs:1:2: replace f"}}, "summary": "CaughtMutant"},
            {"scenario": {"Mutant": {"package": "p", "name": "a.rs:3:2: replace g"}}, "summary": "MissedMutant"},
            {"scenario": {"Mutant": {"package": "p", "name": "a.rs:9:2: replace h"}}, "summary": "MissedMutant"},
            {"scenario": {"Mutant": {"package": "p", "name": "a.rs:9:5: replace i"}}, "summary": "Unviable"},
        ]});
        let explained = explained_names("# why\na.rs: replace g | both are the same number\n").unwrap();

        let tallies = tallies(&outcomes, &explained).unwrap();

        let tally = Tally {
            n_killed: 1,
            n_unviable: 1,
            explained: vec!["a.rs:3:2: replace g".into()],
            survivors: vec!["a.rs:9:2: replace h".into()],
        };
        assert_eq!(tallies["p"], tally);
        let report = report(&tallies, 7);
        assert!(report.contains("33 %") && report.contains("survived: a.rs:9:2: replace h\n"), "{report}");
    }

    #[test]
    fn an_explanation_without_a_reason_is_rejected() {
        assert!(explained_names("a.rs: replace g | \n").is_err());
        assert!(explained_names("a.rs: replace g\n").is_err());
    }
}
