//! Counts the instructions of the hot paths with callgrind and compares them with recorded counts.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Outcome, downloaded_by, output_of};

/// The recorded counts, one line per path.
const TABLE_PATH: &str = "lab/counts.txt";

/// By how much a count may differ from the recorded one. Differences between runs are far smaller.
const TOLERANCE_PERCENT: u64 = 5;

/// How often each path is executed in the two runs whose difference is the result, so that instructions before the
/// first round are not counted. Large enough for differences in the start-up of the two runs to be negligible.
const N_ROUNDS: [u64; 2] = [4, 104];

/// How often both runs are repeated before a path counts as changed. With sockets, the scheduling of the two ends
/// sometimes adds a few per cent; it never saves instructions, so the minimum is used.
const TRIES: usize = 3;

/// Keeps the C library from selecting functions according to the processor.
const TUNABLES: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX,-ERMS,-FSRM";

/// The instructions per operation of every path, and the compiler that generated them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counts {
    compiler: String,
    paths: Vec<(String, u64)>,
}

/// Differences between counts and table beyond the tolerance, as lines for the user.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differences {
    worse: Vec<String>,
    better: Vec<String>,
}

/// Counts the instructions and compares them with the table.
pub fn check(root: &Path) -> Result<Outcome, String> {
    let recorded = std::fs::read_to_string(root.join(TABLE_PATH)).map_err(|error| format!("{TABLE_PATH}: {error}"))?;
    let recorded = Counts::parse(&recorded)?;
    let compiler = compiler(root)?;
    if compiler != recorded.compiler {
        let why = format!("the counts were recorded with {}, but this is {compiler}", recorded.compiler);
        return skipped(format!("{why}; if nothing else has changed, run `cargo xtask count --record`"));
    }
    let valgrind = match Valgrind::find(root) {
        Ok(valgrind) => valgrind,
        Err(why) => return skipped(why),
    };
    let counted = count(root, &valgrind, compiler, Some(&recorded))?;
    print!("{}", recorded.ratios(&counted));
    let Differences { worse, better } = recorded.compare(&counted);
    if !worse.is_empty() {
        return Err(format!("{}\nto accept this, run `cargo xtask count --record`", worse.join("\n")));
    }
    if !better.is_empty() {
        return Ok(Outcome::Passed(format!("{}\nto record this, run `cargo xtask count --record`", better.join("\n"))));
    }
    Ok(Outcome::Passed(format!("{} paths", counted.paths.len())))
}

/// Counts the instructions and writes the table.
pub fn record(root: &Path) -> Result<(), String> {
    let counted = count(root, &Valgrind::find(root)?, compiler(root)?, None)?;
    let text = counted.text();
    std::fs::write(root.join(TABLE_PATH), &text).map_err(|error| format!("{TABLE_PATH}: {error}"))?;
    print!("{text}");
    Ok(())
}

/// If counting is not possible, it is skipped on a developer's machine, but fails in CI.
fn skipped(why: String) -> Result<Outcome, String> {
    match std::env::var_os("CI") {
        Some(_) => Err(why),
        None => Ok(Outcome::Skipped(why)),
    }
}

/// The compiler and its target; both influence the instructions.
fn compiler(root: &Path) -> Result<String, String> {
    let printed = output_of(root, Command::new("rustc").arg("--version").current_dir(root))?;
    Ok(format!("{} for {}", printed.trim(), std::env::consts::ARCH))
}

fn count(root: &Path, valgrind: &Valgrind, compiler: String, recorded: Option<&Counts>) -> Result<Counts, String> {
    // Built together with the program, because they share compiled crates.
    let build = ["build", "--release", "-p", "fodo-cli", "-p", "fodo-lab", "--example", "count"];
    output_of(root, Command::new("cargo").args(build).current_dir(root))?;
    let program = root.join("target").join("release").join("examples").join("count");
    let names = output_of(root, &mut Command::new(&program))?;
    let mut paths = Vec::new();
    for name in names.lines() {
        let before = recorded.and_then(|recorded| recorded.of(name));
        let n = count_path(before, |n_rounds| valgrind.run(root, &program, name, n_rounds))?;
        paths.push((name.to_string(), n));
    }
    Ok(Counts { compiler, paths })
}

/// The instructions per operation: the first result within the tolerance of the recorded count, else the minimum of all
/// tries.
fn count_path(before: Option<u64>, run: impl Fn(u64) -> Result<CountedRun, String>) -> Result<u64, String> {
    let mut least = [u64::MAX; 2];
    let mut n = 0;
    for _ in 0..TRIES {
        let [few, many] = N_ROUNDS.map(&run);
        let (few, many) = (few?, many?);
        least = [least[0].min(few.n_instructions), least[1].min(many.n_instructions)];
        n = least[1].saturating_sub(least[0]) / (many.n_operations - few.n_operations);
        if before.is_some_and(|before| against(before, n).is_eq()) {
            break;
        }
    }
    Ok(n)
}

/// Compares a count with the previous one; equal within the tolerance.
fn against(before: u64, now: u64) -> Ordering {
    match now * 100 {
        now if now > before * (100 + TOLERANCE_PERCENT) => Ordering::Greater,
        now if now < before * (100 - TOLERANCE_PERCENT) => Ordering::Less,
        _ => Ordering::Equal,
    }
}

/// One run of one path.
struct CountedRun {
    n_instructions: u64,
    n_operations: u64,
}

/// The path of valgrind and of its library.
struct Valgrind {
    program: PathBuf,
    library: Option<PathBuf>,
}

impl Valgrind {
    /// The installed valgrind, or Debian's package, downloaded to a folder next to the peers without installing it.
    fn find(root: &Path) -> Result<Valgrind, String> {
        let is_there = |program: &Path| output_of(root, Command::new(program).arg("--version")).is_ok();
        let own = PathBuf::from("valgrind");
        if is_there(&own) {
            return Ok(Valgrind { program: own, library: None });
        }
        let folder = root.join(".peers").join("valgrind");
        let fetched = || Valgrind {
            program: folder.join("usr").join("bin").join("valgrind"),
            library: Some(folder.join("usr").join("libexec").join("valgrind")),
        };
        if fetched().program.exists() {
            return Ok(fetched());
        }
        fetch(root, &folder).map_err(|why| format!("valgrind is not installed and cannot be downloaded: {why}"))?;
        Ok(fetched())
    }

    fn run(&self, root: &Path, program: &Path, path: &str, n_rounds: u64) -> Result<CountedRun, String> {
        let mut command = Command::new(&self.program);
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
        command.args([path, &n_rounds.to_string()]).env("GLIBC_TUNABLES", TUNABLES);
        if let Some(library) = &self.library {
            command.env("VALGRIND_LIB", library);
        }
        let printed = output_of(root, &mut command)?;
        CountedRun::parse(&printed).ok_or_else(|| format!("{path}: no result from callgrind:\n{printed}"))
    }
}

impl CountedRun {
    /// Parses the output of callgrind and of the program that it runs.
    fn parse(printed: &str) -> Option<CountedRun> {
        let collected = printed.lines().find_map(|line| line.split_once("Collected : "))?;
        let operations = printed.lines().find(|line| line.starts_with(|first: char| first.is_ascii_digit()))?;
        Some(CountedRun {
            n_instructions: collected.1.trim().parse().ok()?,
            n_operations: operations.trim().parse().ok()?,
        })
    }
}

/// Downloads Debian's package and unpacks it into a folder.
fn fetch(root: &Path, folder: &Path) -> Result<(), String> {
    eprintln!("fetching valgrind into {}", folder.display());
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    downloaded_by(root, Command::new("apt-get").args(["download", "valgrind"]).current_dir(folder))?;
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    let packages = entries.flatten().map(|entry| entry.path());
    let package = packages.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let package = package.ok_or("apt-get downloaded no package")?;
    output_of(root, Command::new("dpkg").arg("-x").arg(package).arg(folder)).map(|_| ())
}

impl Counts {
    fn parse(text: &str) -> Result<Counts, String> {
        let (comments, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('#'));
        let compiler = comments.iter().find_map(|line| line.strip_prefix("# Taken with "));
        let path = |line: &str| {
            let (name, n) = line.split_once(' ')?;
            Some((name.to_string(), n.trim().parse().ok()?))
        };
        let paths = lines.into_iter().map(|line| path(line).ok_or_else(|| format!("{TABLE_PATH}: \"{line}\"")));
        Ok(Counts {
            compiler: compiler.ok_or_else(|| format!("{TABLE_PATH} has no compiler version"))?.to_string(),
            paths: paths.collect::<Result<_, _>>()?,
        })
    }

    fn text(&self) -> String {
        let mut text = "# Instructions per operation; see docs/explanations/performance.md.\n".to_string();
        text += &format!("# Taken with {}\n", self.compiler);
        for (name, n) in &self.paths {
            text += &format!("{name:<16} {n:>6}\n");
        }
        text
    }

    fn of(&self, name: &str) -> Option<u64> {
        self.paths.iter().find(|(known, _)| known == name).map(|(_, n)| *n)
    }

    /// A line for each path of `counted`, with its ratio to this table.
    fn ratios(&self, counted: &Counts) -> String {
        let line = |(name, now): &(String, u64)| {
            let ratio = self.of(name).map_or_else(String::new, |before| format!("{:.3}", *now as f64 / before as f64));
            format!("{name:<16} {now:>6} {ratio:>6}\n")
        };
        counted.paths.iter().map(line).collect()
    }

    /// The differences of `counted` from this table beyond the tolerance.
    fn compare(&self, counted: &Counts) -> Differences {
        let mut differences = Differences::default();
        for (name, now) in &counted.paths {
            let Some(before) = self.of(name) else {
                differences.worse.push(format!("{name}: {now} instructions per operation, not in {TABLE_PATH}"));
                continue;
            };
            let line = format!("{name}: {now} instructions per operation, were {before}");
            match against(before, *now) {
                Ordering::Greater => differences.worse.push(line),
                Ordering::Less => differences.better.push(line),
                Ordering::Equal => {}
            }
        }
        let gone = self.paths.iter().filter(|(name, _)| counted.of(name).is_none());
        differences.worse.extend(gone.map(|(name, _)| format!("{name}: in {TABLE_PATH}, but no longer counted")));
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(paths: &[(&str, u64)]) -> Counts {
        let paths = paths.iter().map(|(name, n)| (name.to_string(), *n)).collect();
        Counts { compiler: "rustc 1.95.0 for x86_64".to_string(), paths }
    }

    #[test]
    fn a_path_may_use_at_most_five_percent_more_instructions() {
        let recorded = counts(&[("post", 100), ("drain", 200)]);

        let at_the_limit = recorded.compare(&counts(&[("post", 105), ("drain", 190)]));
        let slower = recorded.compare(&counts(&[("post", 106), ("drain", 200)]));

        assert_eq!(at_the_limit, Differences::default());
        assert_eq!(slower.worse, ["post: 106 instructions per operation, were 100"]);
        assert!(slower.better.is_empty());
    }

    #[test]
    fn a_path_with_fewer_instructions_is_reported() {
        let faster = counts(&[("post", 100)]).compare(&counts(&[("post", 94)]));

        assert_eq!(faster.better, ["post: 94 instructions per operation, were 100"]);
        assert!(faster.worse.is_empty());
    }

    #[test]
    fn every_path_is_printed_with_its_ratio_to_the_record() {
        let ratios = counts(&[("post", 200)]).ratios(&counts(&[("post", 202), ("drain", 45)]));

        assert_eq!(ratios, "post                202  1.010\ndrain                45       \n");
    }

    #[test]
    fn a_disturbance_of_one_run_does_not_change_the_path_count() {
        let disturbed = std::cell::Cell::new(1_000);
        let run = |n_rounds| {
            let n_instructions = 5_000 + n_rounds * 100 + if n_rounds == N_ROUNDS[1] { disturbed.take() } else { 0 };
            Ok(CountedRun { n_instructions, n_operations: n_rounds })
        };

        assert_eq!(count_path(Some(100), run), Ok(100));
    }

    #[test]
    fn a_path_in_only_one_table_is_a_difference() {
        let differences = counts(&[("post", 1)]).compare(&counts(&[("drain", 1)]));

        assert_eq!(differences.worse.len(), 2);
    }

    #[test]
    fn the_instruction_count_table_round_trips() {
        let written = counts(&[("post", 100), ("dispatch-update", 12_345_678)]);

        assert_eq!(Counts::parse(&written.text()), Ok(written));
        assert!(Counts::parse("post 100\n").is_err());
        assert!(Counts::parse("# Taken with rustc\npost\n").is_err());
    }

    #[test]
    fn callgrind_output_and_program_output_are_distinguished() {
        let printed = "==7== Callgrind, a call-graph generating cache profiler\n24000\n==7== Events    : Ir\n\
                       ==7== Collected : 1234567\n";

        let run = CountedRun::parse(printed).unwrap();

        assert_eq!((run.n_instructions, run.n_operations), (1_234_567, 24_000));
        assert!(CountedRun::parse("==7== Events    : Ir\n24000\n").is_none());
    }
}
