//! Tests the pages of a result in a real browser.
//!
//! Chromium is searched as `chromium`, `chromium-browser` or `google-chrome`. Without it, the test fails if the
//! environment has `CI=true`, and otherwise prints that it did not run.

#![expect(clippy::unwrap_used, reason = "a test fails if its setup fails")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

mod synthetic;

/// Arguments that restrict the browser to the given file.
const QUIET: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--enable-logging=stderr",
];

/// A temporary directory of a test, removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("fodo-lab-report-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A directory that remains in the temporary directory does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn chromium() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let answers = |name: &&str| {
        let version = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    let found = names.into_iter().find(answers);
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(found.is_some() || !is_ci, "this test requires Chromium: apt-get install chromium");
    if found.is_none() {
        eprintln!("NOT RUN: Chromium is missing; apt-get install chromium");
    }
    found
}

/// Writes the result and its pages, and returns the path of the HTML page.
fn report(directory: &Path) -> PathBuf {
    let result = directory.join("whole.json");
    synthetic::whole().write(&result).unwrap();
    let words = ["report".into(), result.into_os_string(), "-o".into(), directory.as_os_str().to_owned()];
    fodo_lab::run(words.into_iter());
    directory.join("whole.html")
}

/// Runs Chromium on the page and returns its standard output and standard error.
fn browse(browser: &str, directory: &Path, page: &Path, arguments: &[&str]) -> (String, String) {
    let mut command = Command::new(browser);
    command.args(QUIET).args(arguments);
    command.arg(format!("--user-data-dir={}", directory.join("profile").display()));
    command.arg(format!("file://{}", page.display()));
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn a_browser_renders_every_plot_type_without_errors() {
    let directory = Directory::new("dom");
    let page = report(&directory.0);
    let Some(browser) = chromium() else { return };

    let (dom, complaints) = browse(browser, &directory.0, &page, &["--dump-dom"]);

    for kind in
        ["q16-0-curves-t", "q16-0-ratios-t", "q16-0-dots-t", "q17-0-latency-t", "l1-0-latency-t", "glance-plot-t"]
    {
        assert!(dom.contains(&format!("<title id=\"{kind}\">")), "no plot {kind}");
    }
    let n_plots = dom.matches("<svg class=\"plot\"").count();
    assert!(n_plots > 30 && dom.matches("class=\"curve c-fodo").count() > 20, "{n_plots} plots");
    assert_eq!(dom.matches("<svg class=\"plot\"").count(), dom.matches("role=\"img\" aria-labelledby").count());
    assert!(dom.contains("NaN").eq(&false) && !dom.contains("=\"inf"));
    assert!(!complaints.contains("CONSOLE"), "{complaints}");
}

#[test]
fn page_screenshots_are_not_blank_on_desktop_and_phone() {
    let directory = Directory::new("picture");
    let page = report(&directory.0);
    let Some(browser) = chromium() else { return };

    for size in ["--window-size=1280,1600", "--window-size=390,1600"] {
        let picture = directory.0.join("page.png");
        let screenshot = format!("--screenshot={}", picture.display());
        browse(browser, &directory.0, &page, &[size, &screenshot]);

        // An empty page of that size compresses to a few kilobytes.
        let n_bytes = std::fs::metadata(&picture).unwrap().len();
        assert!(n_bytes > 40_000, "{size}: {n_bytes} bytes");
        std::fs::remove_file(picture).unwrap();
    }
}

#[test]
fn the_report_includes_markdown_tables_and_a_csv_with_every_row() {
    let directory = Directory::new("files");
    let page = report(&directory.0);

    let markdown = std::fs::read_to_string(page.with_extension("md")).unwrap();
    let csv = std::fs::read_to_string(page.with_extension("csv")).unwrap();

    assert!(markdown.contains("## Q16: ") && markdown.contains("study 001"));
    assert_eq!(csv.lines().count(), 1 + synthetic::whole().rows.len());
}

#[test]
fn synthetic_runs_of_one_build_have_the_same_points() {
    let points = |seed| -> Vec<u64> {
        let run = synthetic::comparable(seed, synthetic::Noise::Ties, 0.0, 1.0);
        run.rows.iter().map(|row| row.point).collect()
    };

    assert_eq!(points(1), points(2));
    assert!(synthetic::Noise::ALL.len() > 1);
}
