//! Commands that read results: `compare`, `gate`, `report`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Subcommand};
use serde_json::json;

use super::comparison;
use super::published::PublishedStudy;
use crate::compare::{Comparison, LEAST};
use crate::gate::GateLimits;
use crate::result::ResultFile;

/// Exit status for a wrong command line, the same as clap's, and for a file that cannot be read.
const MISUSE: u8 = 2;

const COMPARE_HELP: &str = "\
Compares two runs and lists the rows that differ.

Rows are paired by question, series, variant, point, client and server. A row differs when its repetitions differ
by two tests (Welch's on logarithms, corrected for the number of rows; the exact rank test), its median changed
by at least a tenth, and the floor of the same series did not change with it. In addition, each client is judged
over all of its rows: a change hidden in the noise of single rows shows in their mean. Two runs of one build on a
quiet machine show no difference; five repetitions detect an increase of a fifth.

Exit status: 0 no difference, 1 a difference (with --regressions: only if something got worse), 2 when the
arguments are invalid, a file cannot be read or the runs have no result in common.";

const GATE_HELP: &str = "\
Checks a run against limits or a run of record, for a build that must fail when they are not met.

--limits names a TOML file. Keys that select rows are optional; a limit that selects no row is not met:

    [[limit]]
    question = \"Q17\"          # also: series, variant, point, client, server
    client = \"fodo\"
    to_floor_max = 3.0        # also: ns_max, p99_ns_max, megabytes_per_s_min, unexplained_max

    [[limit]]
    question = \"Q16\"
    client = \"fodo\"
    against = \"libca\"         # compare with libca on the same row and server
    ratio_max = 1.0

--record names a run of record; no row may be slower according to `fodo lab compare`.

Exit status: 0 when all limits are met, 1 when not, 2 when the arguments are invalid or a file cannot be read.";

const REPORT_HELP: &str = "\
Writes reports of results: for each FILE one HTML page with plots, one Markdown file with the tables of the
studies and of every question, and one CSV file with every row, named like the result. The page is self-contained: no network,
no script.

Exit status: 0 when all is written, 2 when the arguments are invalid or a file cannot be read or written.";

/// A command that reads results.
#[derive(Debug, Subcommand)]
pub enum ReportCommand {
    /// Compares two runs and lists the rows that differ.
    #[command(long_about = COMPARE_HELP)]
    Compare {
        /// The earlier run.
        before: PathBuf,
        /// The later run.
        after: PathBuf,
        /// Print JSON with every pair instead of the table.
        #[arg(long)]
        json: bool,
        /// List every pair, including those without a difference.
        #[arg(long)]
        all: bool,
        /// Minimum relative change of a median that counts as a difference.
        #[arg(long, value_name = "SHARE", default_value_t = LEAST, value_parser = share)]
        least: f64,
        /// Exit status 1 only if something became worse.
        #[arg(long)]
        regressions: bool,
    },
    /// Checks a run against limits or a run of record.
    #[command(long_about = GATE_HELP, group(ArgGroup::new("against").required(true).multiple(true)))]
    Gate {
        /// The run to check.
        run: PathBuf,
        /// TOML file with limits.
        #[arg(long, value_name = "FILE", group = "against")]
        limits: Option<PathBuf>,
        /// JSON file with a run of record.
        #[arg(long, value_name = "FILE", group = "against")]
        record: Option<PathBuf>,
    },
    /// Writes reports: HTML with plots, Markdown, CSV.
    #[command(long_about = REPORT_HELP)]
    Report {
        /// JSON files with results.
        #[arg(required = true)]
        results: Vec<PathBuf>,
        /// Output directory; created if it does not exist.
        #[arg(short, long, value_name = "DIR")]
        output: PathBuf,
    },
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..10.0).contains(&share) => Ok(share),
        _ => Err("expected a share such as 0.1 for a tenth".into()),
    }
}

/// Why a command failed.
type Misuse = String;

impl ReportCommand {
    /// Runs the command; prints, and returns the exit status described in its help.
    pub fn run(self) -> ExitCode {
        match self.outcome() {
            Ok((text, holds)) => {
                super::print(&text);
                if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
            }
            Err(why) => {
                eprintln!("fodo lab: {why}");
                ExitCode::from(MISUSE)
            }
        }
    }

    fn outcome(self) -> Result<(String, bool), Misuse> {
        match self {
            ReportCommand::Compare { before, after, json, all, least, regressions } => {
                let (before, after) = (read(&before)?, read(&after)?);
                let comparison = compared(&before, &after, least)?;
                let differ = comparison.differ();
                let text = if json {
                    format!("{:#}\n", json!({ "differs": differ, "comparison": comparison }))
                } else {
                    comparison::text(&comparison, all)
                };
                Ok((text, if regressions { !comparison.is_worse() } else { !differ }))
            }
            ReportCommand::Gate { run, limits, record } => gate(&read(&run)?, limits.as_deref(), record.as_deref()),
            ReportCommand::Report { results, output } => {
                let mut text = String::new();
                let mut stems: Vec<String> = Vec::new();
                for path in &results {
                    let stem = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
                    if stems.contains(&stem) {
                        return Err(format!("two results are named {stem}: their pages would overwrite each other"));
                    }
                    text += &report(path, &stem, &output)?;
                    stems.push(stem);
                }
                Ok((text, true))
            }
        }
    }
}

fn read(path: &Path) -> Result<ResultFile, Misuse> {
    ResultFile::read(path).map_err(|why| format!("{}: {why}", path.display()))
}

fn compared(before: &ResultFile, after: &ResultFile, least: f64) -> Result<Comparison, Misuse> {
    let mut comparison = Comparison::of(before, after, least);
    if !comparison.compares() {
        let why = comparison::other_method(&comparison);
        return Err(format!("nothing can be compared: no row has enough repetitions in both runs\n{why}")
            .trim_end()
            .into());
    }
    comparison.fill_intervals(before, after);
    Ok(comparison)
}

fn gate(run: &ResultFile, limits: Option<&Path>, record: Option<&Path>) -> Result<(String, bool), Misuse> {
    let mut text = String::new();
    let mut all_hold = true;
    if let Some(path) = limits {
        let limits = GateLimits::read(path).map_err(|why| format!("{}: {why}", path.display()))?;
        for finding in limits.findings(run) {
            let verdict = if finding.holds { "met   " } else { "BROKEN" };
            let _ = writeln!(text, "{verdict}  {}", finding.words);
            all_hold &= finding.holds;
        }
    }
    if let Some(path) = record {
        let record = read(path)?;
        let comparison = compared(&record, run, LEAST)?;
        text += &comparison::text(&comparison, false);
        all_hold &= !comparison.is_worse();
    }
    let _ = writeln!(text, "{}", if all_hold { "The run passes the gate." } else { "The run FAILS the gate." });
    Ok((text, all_hold))
}

fn report(path: &Path, stem: &str, directory: &Path) -> Result<String, Misuse> {
    pages(&read(path)?, stem, directory)
}

/// Writes the pages of a run; returns their paths, one per line.
pub fn pages(run: &ResultFile, stem: &str, directory: &Path) -> Result<String, String> {
    let published = PublishedStudy::all();
    std::fs::create_dir_all(directory).map_err(|why| format!("{}: {why}", directory.display()))?;
    let pages = [
        ("html", super::html::page(run, &published)),
        ("md", super::markdown::text(run, &published)),
        ("csv", super::csv::text(run)),
    ];
    let mut written = String::new();
    for (extension, page) in pages {
        let target = directory.join(format!("{stem}.{extension}"));
        std::fs::write(&target, page).map_err(|why| format!("{}: {why}", target.display()))?;
        let _ = writeln!(written, "{}", target.display());
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{Noise, comparable};

    /// Temporary files of a test, removed when dropped.
    struct ReportFiles(PathBuf);

    impl ReportFiles {
        fn new(name: &str) -> ReportFiles {
            let path = std::env::temp_dir().join(format!("fodo-lab-verb-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            ReportFiles(path)
        }

        fn run(&self, name: &str, seed: u64, factor: f64) -> PathBuf {
            let path = self.0.join(name);
            comparable(seed, Noise::Normal, 1.0, factor).write(&path).unwrap();
            path
        }
    }

    impl Drop for ReportFiles {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn compare(before: &Path, after: &Path, json: bool, regressions: bool) -> Result<(String, bool), Misuse> {
        let (before, after) = (before.to_owned(), after.to_owned());
        ReportCommand::Compare { before, after, json, all: false, least: LEAST, regressions }.outcome()
    }

    #[test]
    fn compare_fails_on_any_difference_or_optionally_only_on_regressions() {
        let files = ReportFiles::new("compare");
        let (fast, slow) = (files.run("fast.json", 1, 1.0), files.run("slow.json", 2, 1.3));

        assert!(compare(&fast, &fast, false, false).unwrap().1);
        assert!(!compare(&fast, &slow, false, false).unwrap().1);
        assert!(!compare(&slow, &fast, false, false).unwrap().1);
        assert!(compare(&slow, &fast, false, true).unwrap().1);
    }

    #[test]
    fn a_json_comparison_contains_every_pair_and_the_verdict() {
        let files = ReportFiles::new("json");
        let (fast, slow) = (files.run("fast.json", 1, 1.0), files.run("slow.json", 2, 1.3));

        let (text, _) = compare(&fast, &slow, true, false).unwrap();

        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["differs"], true);
        assert_eq!(value["comparison"]["pairs"].as_array().unwrap().len(), 100);
        assert_eq!(value["comparison"]["pairs"][0]["change"], "slower");
        assert_eq!(value["comparison"]["pairs"][0]["question"], "Q0");
    }

    #[test]
    fn the_gate_fails_on_an_exceeded_limit_or_a_regression_from_the_reference_run() {
        let files = ReportFiles::new("gate");
        let (fast, slow) = (files.run("fast.json", 1, 1.0), files.run("slow.json", 2, 1.3));
        let limits = files.0.join("limits.toml");
        std::fs::write(&limits, "[[limit]]\nclient = 'fodo'\nns_max = 29e3").unwrap();
        let gate = |run: &Path, limits: Option<&Path>, record: Option<&Path>| {
            gate(&read(run).unwrap(), limits, record).unwrap()
        };

        assert!(gate(&fast, Some(&limits), Some(&slow)).1);
        assert!(!gate(&slow, Some(&limits), None).1);
        assert!(!gate(&slow, None, Some(&fast)).1);
        assert!(gate(&slow, Some(&limits), None).0.ends_with("The run FAILS the gate.\n"));
    }

    #[test]
    fn an_unreadable_file_is_a_usage_error_that_names_it() {
        let files = ReportFiles::new("misuse");
        let run = files.run("run.json", 1, 1.0);

        let missing = compare(&run, Path::new("/nowhere"), false, false).unwrap_err();
        let twice = ReportCommand::Report { results: vec![run.clone(), run], output: files.0.join("pages") }.outcome();

        let empty = files.0.join("empty.json");
        ResultFile::new("quick", "2024-02-29T12:00:00Z").write(&empty).unwrap();
        let nothing = compare(&empty, &empty, false, false).unwrap_err();

        assert!(missing.starts_with("/nowhere: "), "{missing}");
        assert!(nothing.contains("nothing can be compared"), "{nothing}");
        assert!(twice.unwrap_err().contains("two results are named run"));
    }
}
