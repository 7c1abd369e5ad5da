//! Mutation testing, on request only: a random sample of the mutants that cargo-mutants lists, each tested by its own
//! crate's tests. The tests are built once, with all mutants of the sample as branches.

mod branches;
mod mutant;
mod rewrite;
mod trial;

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use branches::{Branches, BuiltAs};
use mutant::Mutant;
use trial::{MutantOutcome, SourceCopy, in_parallel};

/// The crates whose code is mutated. Each gets an equal part of the sample, so that every rate is meaningful.
/// In the order of their dependencies.
const PACKAGES: [&str; 9] =
    ["fodo-data", "fodo-lock", "fodo-engine", "fodo-ca", "fodo-pva", "fodo-db", "fodo-net", "fodo-ioc", "fodo-cli"];

/// Survivors that no test needs to detect: `FILE: WHAT | WHY`, one per line.
const EXPLAINED_PATH: &str = "xtask/mutants-explained.txt";

/// Holds the copy of the sources and the results of each sample.
const OUTPUT_FOLDER: &str = "target/mutants";

/// The results for the mutants of one crate.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    n_killed: usize,
    n_unviable: usize,
    timed_out: Vec<String>,
    explained: Vec<String>,
    survivors: Vec<String>,
}

/// Tests `sample_size` mutants of the last commit and prints per crate how many its own tests killed, and which survived.
///
/// `seed`: selects the sample; without one, the current time does. The same seed with the same commit selects the same
/// sample, and continues an interrupted run.
pub fn run(root: &Path, sample_size: &str, seed: Option<&str>) -> Result<(), String> {
    let sample_size: usize = number(sample_size, "of mutants")?;
    let seed = match seed {
        Some(seed) => number(seed, "as the seed")?,
        None => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
    };
    if !is_installed() {
        return Err("cargo-mutants is not installed; install it with `cargo install cargo-mutants --locked`".into());
    }
    let explained = std::fs::read_to_string(root.join(EXPLAINED_PATH)).map_err(|e| format!("{EXPLAINED_PATH}: {e}"))?;
    let explained = explained_names(&explained)?;

    let folder = root.join(OUTPUT_FOLDER);
    let copy = SourceCopy::update(root, &folder)?;
    println!("{sample_size} mutants of commit {}, seed {seed}", copy.commit);
    let chosen = sample(copy.list(&PACKAGES)?, sample_size, seed);
    let results_path = folder.join(format!("{}-{sample_size}-{seed}.jsonl", copy.commit));
    test_all(&copy, chosen, &results_path)?;

    print!("{}", report(&tallies(&read_results(&results_path)?, &explained)?, seed));
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

fn text(value: &Value, key: &str) -> Result<String, String> {
    value[key].as_str().map(str::to_string).ok_or_else(|| format!("results: no {key:?} in {value}"))
}

/// Selects an equal part of the sample from every package, by the hash of seed and name.
fn sample(mut all: Vec<Mutant>, sample_size: usize, seed: u64) -> Vec<Mutant> {
    all.sort_by_cached_key(|mutant| hash(seed, &mutant.name));
    let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, package) in PACKAGES.into_iter().enumerate() {
        shares.insert(package, sample_size / PACKAGES.len() + usize::from(index < sample_size % PACKAGES.len()));
    }
    all.retain(|mutant| {
        shares.get_mut(&*mutant.package).is_some_and(|share| {
            let is_chosen = *share > 0;
            *share = share.saturating_sub(1);
            is_chosen
        })
    });
    all
}

fn hash(seed: u64, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, name).hash(&mut hasher);
    hasher.finish()
}

/// Tests the mutants without a result yet and appends their results to the file.
fn test_all(copy: &SourceCopy, mut mutants: Vec<Mutant>, results_path: &Path) -> Result<(), String> {
    let file = File::options().append(true).create(true).open(results_path);
    let file = file.map_err(|error| format!("{}: {error}", results_path.display()))?;
    let tested: HashSet<String> =
        read_results(results_path)?.iter().map(|result| text(result, "name")).collect::<Result<_, _>>()?;
    mutants.retain(|mutant| !tested.contains(&mutant.name));

    let mut branches = Branches::write(&copy.folder, &mutants)?;
    let mut programs = Vec::new();
    for package in PACKAGES.into_iter().filter(|package| mutants.iter().any(|mutant| mutant.package == *package)) {
        programs.extend(copy.build_all(package, &mut branches)?);
    }
    let programs = copy.measured(programs)?;

    let unviable = branches.built_as(BuiltAs::Unviable);
    let log = ResultLog {
        started: Instant::now(),
        n_expected: mutants.len() - unviable.len(),
        written: Mutex::new(Written { file, n_results: 0 }),
    };
    in_parallel(&branches.built_as(BuiltAs::Branch), |(number, mutant)| {
        log.write(mutant, copy.test(*number, mutant, &programs))
    })?;
    for (_, mutant) in branches.built_as(BuiltAs::Alone) {
        log.write(mutant, branches.with_single(mutant, || copy.test_single(mutant, &programs))?)?;
    }
    unviable.into_iter().try_for_each(|(_, mutant)| log.write(mutant, (MutantOutcome::Unviable, String::new())))
}

/// Appends results to a file, and prints each with the expected remaining time.
struct ResultLog {
    started: Instant,
    /// The number of results that take time.
    n_expected: usize,
    written: Mutex<Written>,
}

struct Written {
    file: File,
    n_results: usize,
}

impl ResultLog {
    /// `detected_by`: the test that detected the mutant, if one did.
    fn write(&self, mutant: &Mutant, (outcome, detected_by): (MutantOutcome, String)) -> Result<(), String> {
        let (package, name, outcome) = (&mutant.package, &mutant.name, format!("{outcome:?}"));
        let result =
            serde_json::json!({"package": package, "name": name, "outcome": outcome, "detected_by": detected_by});
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(written.file, "{result}").map_err(|error| format!("the result of {name}: {error}"))?;
        written.n_results += 1;

        let n_left = self.n_expected.saturating_sub(written.n_results);
        let minutes_left = self.started.elapsed().as_secs_f64() / 60.0 / written.n_results as f64 * n_left as f64;
        println!("{outcome:8} {name} {detected_by} ({n_left} left, {minutes_left:.0} min)");
        Ok(())
    }
}

fn read_results(path: &Path) -> Result<Vec<Value>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    text.lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{}: {error}", path.display()))
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

/// Groups the results by package.
fn tallies(results: &[Value], explained: &HashSet<String>) -> Result<BTreeMap<String, Tally>, String> {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for result in results {
        let name = text(result, "name")?;
        let tally = tallies.entry(text(result, "package")?).or_default();
        match text(result, "outcome")?.as_str() {
            "Killed" => tally.n_killed += 1,
            "Unviable" => tally.n_unviable += 1,
            "TimedOut" => tally.timed_out.push(name),
            _ if explained.contains(&without_position(&name)) => tally.explained.push(name),
            _ => tally.survivors.push(name),
        }
    }
    Ok(tallies)
}

/// The table, followed by the survivors.
fn report(tallies: &BTreeMap<String, Tally>, seed: u64) -> String {
    let mut text =
        format!("\nseed {seed}\n{:12} {:>6} {:>8} {:>9} {:>9}\n", "crate", "viable", "killed", "explained", "unviable");
    for (package, tally) in tallies {
        let n_killed = tally.n_killed + tally.timed_out.len();
        let n_viable = n_killed + tally.explained.len() + tally.survivors.len();
        let percent = (n_killed * 100).checked_div(n_viable).map_or("-".into(), |percent| format!("{percent} %"));
        let (n_explained, n_unviable) = (tally.explained.len(), tally.n_unviable);
        text += &format!("{package:12} {n_viable:>6} {percent:>8} {n_explained:>9} {n_unviable:>9}\n");
    }
    for (word, of) in [
        ("survived", (|tally| &tally.survivors) as fn(&Tally) -> &Vec<String>),
        ("explained", |tally| &tally.explained),
        ("killed by a timeout", |tally| &tally.timed_out),
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

    fn mutants(package: &str) -> Vec<Mutant> {
        let listed = |line: usize| {
            serde_json::json!({
                "name": format!("{package}/src/a.rs:{line}:1: replace f"), "package": package, "file": "a.rs",
                "span": {"start": {"line": line, "column": 1}, "end": {"line": line, "column": 2}},
                "replacement": "-", "genre": "BinaryOperator",
            })
        };
        (0..100).map(|line| Mutant::parse(&listed(line)).unwrap()).collect()
    }

    #[test]
    fn mutant_samples_are_balanced_over_packages_and_repeatable_by_seed() {
        let names = |seed: u64| -> Vec<String> {
            let chosen = sample(PACKAGES.into_iter().flat_map(mutants).collect(), 13, seed);
            chosen.into_iter().map(|mutant| mutant.name).collect()
        };

        let chosen = names(7);

        let of = |package: &str| chosen.iter().filter(|name| name.starts_with(package)).count();
        assert_eq!(PACKAGES.map(of), [2, 2, 2, 2, 1, 1, 1, 1, 1]);
        assert_eq!(chosen, names(7));
        assert_ne!(chosen, names(8));
    }

    #[test]
    fn an_explained_surviving_mutant_is_matched_regardless_of_its_line() {
        let result = |name: &str, outcome: &str| serde_json::json!({"package": "p", "name": name, "outcome": outcome});
        let results = [
            result("a.rs:1:2: replace f", "Killed"),
            result("a.rs:3:2: replace g", "Survived"),
            result("a.rs:9:2: replace h", "Survived"),
            result("a.rs:9:5: replace i", "Unviable"),
            result("a.rs:9:7: replace j", "TimedOut"),
        ];
        let explained = explained_names("# why\na.rs: replace g | both are the same number\n").unwrap();

        let tallies = tallies(&results, &explained).unwrap();

        let tally = Tally {
            n_killed: 1,
            n_unviable: 1,
            timed_out: vec!["a.rs:9:7: replace j".into()],
            explained: vec!["a.rs:3:2: replace g".into()],
            survivors: vec!["a.rs:9:2: replace h".into()],
        };
        assert_eq!(tallies["p"], tally);
        let report = report(&tallies, 7);
        assert!(report.contains("50 %") && report.contains("survived: a.rs:9:2: replace h\n"), "{report}");
    }

    #[test]
    fn an_explanation_without_a_reason_is_rejected() {
        assert!(explained_names("a.rs: replace g | \n").is_err());
        assert!(explained_names("a.rs: replace g\n").is_err());
    }
}
