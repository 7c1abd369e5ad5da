//! The Java library: builds its native part, its jar, and runs its tests on each supported JDK.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::again::{alone_if_permitted, run_again};
use crate::peers;
use crate::step::{FailedTest, Outcome, TestReport, downloaded_by, log_of, output_of};

/// The oldest JDK for which the library is made; the first to run the tests.
const OLDEST_JDK: u32 = 17;

/// The JDK on which the tests run a second time.
const NEWEST_JDK: u32 = 25;

/// The folder in which Linux distributions install JDKs.
const INSTALLED_JDKS: &str = "/usr/lib/jvm";

/// The environment variable with the folders of further JDKs, separated by colons.
const JDK_FOLDERS: &str = "JAVA_HOMES";

/// The number of lines shown of the message of a failed test.
const MESSAGE_LINES: usize = 8;

/// Maven without colours and progress.
const MAVEN_OPTIONS: [&str; 3] = ["--batch-mode", "--no-transfer-progress", "--strict-checksums"];

/// Which build of the native library.
#[derive(Clone, Copy)]
enum Build {
    /// Shares its crates with the other steps, and checks the order of locks.
    Debug,
    /// For users and for measurements.
    Release,
}

impl Build {
    fn folder(self) -> &'static str {
        match self {
            Build::Debug => "debug",
            Build::Release => "release",
        }
    }
}

/// Builds the library and the jar, and runs the tests on the oldest JDK.
pub fn check_oldest(root: &Path) -> Result<Outcome, String> {
    if output_of(root, Command::new("mvn").arg("--version")).is_err() {
        return Ok(Outcome::Skipped("the Java library needs Maven and a JDK".into()));
    }
    refuses_a_jar_without_library(root)?;
    let program = build(root, Build::Debug)?;
    let report = tested(root, folder_of(&jdk_folders(), OLDEST_JDK), None, &program)?;
    jar_with_library(root)?;
    Ok(Outcome::Tested(report))
}

/// Runs the tests that [`check_oldest`] has compiled on the newest JDK.
pub fn check_newest(root: &Path) -> Result<Outcome, String> {
    let jdks = jdk_folders();
    match folder_of(&jdks, NEWEST_JDK) {
        Some(newest) => {
            let program = target_folder(root).join(Build::Debug.folder()).join("fodo");
            tested(root, folder_of(&jdks, OLDEST_JDK), Some(newest), &program).map(Outcome::Tested)
        }
        None => Ok(Outcome::Skipped(format!("there is none in {INSTALLED_JDKS} and {JDK_FOLDERS}"))),
    }
}

/// Builds the jar with the library as users get it, without tests.
pub fn package(root: &Path) -> Result<(), String> {
    build(root, Build::Release)?;
    let mut mvn = maven(root, folder_of(&jdk_folders(), OLDEST_JDK));
    output_of(root, mvn.args(["package", "-DskipTests"]))?;
    let jar = jar_with_library(root)?;
    println!("{}", jar.display());
    Ok(())
}

/// The jar of the last build, which must contain the library and its hash.
fn jar_with_library(root: &Path) -> Result<PathBuf, String> {
    let jar = root.join("java").join("target").join(format!("fodo-{}.jar", env!("CARGO_PKG_VERSION")));
    let listed = output_of(root, Command::new("jar").arg("--list").arg("--file").arg(&jar))?;
    for suffix in ["", ".sha256"] {
        let entry = format!("native/{}/{}{suffix}", platform(), library_name());
        if !listed.lines().any(|line| line == entry) {
            return Err(format!("{} does not contain {entry}", jar.display()));
        }
    }
    Ok(jar)
}

/// Opens contexts and receives updates for `seconds` seconds with a small heap; prints what grows.
pub fn soak(root: &Path, seconds: &str) -> Result<(), String> {
    let _: u64 = seconds.parse().map_err(|_| format!("java soak {seconds}: expected a number of seconds"))?;
    let program = build(root, Build::Release)?;
    let jdks = jdk_folders();
    let jdk = folder_of(&jdks, OLDEST_JDK);
    output_of(root, maven(root, jdk).args(["test-compile"]))?;

    let target = root.join("java").join("target");
    let class_path = [target.join("test-classes"), target.join("classes")];
    let class_path = std::env::join_paths(class_path).map_err(|error| error.to_string())?;
    let mut command = Command::new(alone_if_permitted(root).0);
    let java = jdk.map_or_else(|| PathBuf::from("java"), |jdk| jdk.folder.join("bin").join("java"));
    command.arg(java).args(["-Xmx64m", "-XX:+UseSerialGC", "-cp"]).arg(class_path).arg("io.github.fodopv.Soak");
    command.arg(seconds).env("FODO_BIN", program).current_dir(root);
    let status = command.status().map_err(|error| error.to_string())?;
    status.success().then_some(()).ok_or_else(|| format!("java soak {seconds}: {status}"))
}

/// A jar without library would load nowhere, so Maven refuses to make it, with the command that builds the library.
fn refuses_a_jar_without_library(root: &Path) -> Result<(), String> {
    let absent = root.join("java").join("target").join("absent");
    let mut mvn = maven(root, None);
    // Without the compilation, which the tests need with a library anyway.
    mvn.args(["package", "-Dmaven.main.skip", "-Dmaven.test.skip"]).arg(format!("-Dnatives={}", absent.display()));
    match output_of(root, &mut mvn) {
        Ok(_) => Err("`mvn package` without a native library made a jar".to_string()),
        Err(why) if why.contains("there is no native library in") && why.contains("cargo xtask java") => Ok(()),
        Err(why) => Err(format!("`mvn package` without a native library failed with another text:\n{why}")),
    }
}

/// Builds the native library and the program `fodo`, and stores the library with its hash for Maven. Returns the
/// program.
fn build(root: &Path, build: Build) -> Result<PathBuf, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked", "-p", "fodo-java", "-p", "fodo-cli"]).current_dir(root);
    if matches!(build, Build::Release) {
        cargo.arg("--release");
    }
    output_of(root, &mut cargo)?;

    let built = target_folder(root).join(build.folder());
    let natives = root.join("java").join("target").join("natives");
    let folder = natives.join(platform());
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let name = library_name();
    let (from, to) = (built.join(&name), folder.join(&name));
    std::fs::copy(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
    let printed = output_of(root, Command::new("sha256sum").arg(&name).current_dir(&folder))?;
    let hash = printed.split_whitespace().next().unwrap_or_default();
    store(&folder.join(format!("{name}.sha256")), hash)?;
    store(&natives.join("platforms.txt"), &platform())?;
    // The laboratory marks results of a jar for tests.
    store(&natives.join("build.txt"), build.folder())?;
    Ok(built.join("fodo"))
}

fn store(path: &Path, line: &str) -> Result<(), String> {
    std::fs::write(path, format!("{line}\n")).map_err(|error| format!("{}: {error}", path.display()))
}

fn library_name() -> String {
    format!("{}fodo_java{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX)
}

/// The folder of cargo's output.
fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The name of this platform's folder in the jar: system and processor in the words of Java.
fn platform() -> String {
    let system = if cfg!(target_os = "macos") { "macos" } else { std::env::consts::OS };
    format!("{system}-{}", std::env::consts::ARCH)
}

/// Runs the tests on `newest`, with the classes that the first run compiled, or else everything on the oldest JDK.
fn tested(root: &Path, oldest: Option<&Jdk>, newest: Option<&Jdk>, program: &Path) -> Result<TestReport, String> {
    let (alone, word) = alone_if_permitted(root);
    let logs = root.join("java").join("target").join("jvm");
    clear(&logs)?;
    let mut options = format!(
        "-Xcheck:jni -XX:+UnlockDiagnosticVMOptions -XX:+LogVMOutput -XX:-DisplayVMOutput -XX:LogFile={0}/%p.log \
         -XX:ErrorFile={0}/crash-%p.log",
        logs.display()
    );
    if newest.is_some() {
        // Since JDK 24 a program that loads a native library without it is warned.
        options.push_str(" --enable-native-access=ALL-UNNAMED");
    }
    let run = |names: &[String]| {
        let mut mvn = Command::new(&alone);
        mvn.arg("mvn").args(MAVEN_OPTIONS).arg("--offline").arg("--file").arg(root.join("java").join("pom.xml"));
        // The classes are compiled by the first run.
        mvn.arg(if names.is_empty() && newest.is_none() { "verify" } else { "surefire:test" });
        mvn.arg(format!("-Dtest.options={options}")).current_dir(root);
        mvn.env("FODO_BIN", program).env("FODO_PEERS", peers::folder(root)).env("RUST_BACKTRACE", "0");
        set_home(&mut mvn, oldest);
        if let Some(newest) = newest {
            mvn.arg(format!("-Djvm={}", newest.folder.join("bin").join("java").display()));
        }
        if !names.is_empty() {
            mvn.arg(format!("-Dtest={}", names.join(","))).arg("-Dtest.parallelism=1");
        }
        output_of(root, &mut mvn).map_err(|why| with_crashes(why, &logs))
    };
    // Downloads what the tests need, which have no network. Also compiles. One class runs, because Maven downloads what runs
    // tests only when there is one to run.
    if newest.is_none() {
        downloaded_by(root, maven(root, oldest).args(["verify", "-Dtest=ValueTest"]))?;
    }
    let (failed, summary, durations) = match run(&[]) {
        Ok(printed) => (Vec::new(), totals(&printed), durations(&printed)),
        Err(why) => (failed_tests_of(why)?, String::from("some tests failed at first"), Vec::new()),
    };
    let first = TestReport { summary: format!("{summary}{word}"), failed, durations, ..TestReport::default() };
    let report = run_again(first, |names| match run(names) {
        Ok(_) => Ok(Vec::new()),
        Err(why) => failed_tests_of(why),
    })?;
    no_warning_of_jni(&logs)?;
    Ok(report)
}

fn maven(root: &Path, jdk: Option<&Jdk>) -> Command {
    let mut mvn = Command::new("mvn");
    mvn.args(MAVEN_OPTIONS).arg("--file").arg(root.join("java").join("pom.xml")).current_dir(root);
    set_home(&mut mvn, jdk);
    mvn
}

fn set_home(mvn: &mut Command, jdk: Option<&Jdk>) {
    if let Some(jdk) = jdk {
        mvn.env("JAVA_HOME", &jdk.folder);
    }
}

fn clear(folder: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", folder.display()));
        }
        _ => {}
    }
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// The error with the start of a crash report at its end, where the summary of all steps looks.
fn with_crashes(why: String, logs: &Path) -> String {
    let mut crashes = Vec::new();
    for (path, text) in texts(logs).iter().filter(|(path, _)| path.to_string_lossy().contains("crash-")) {
        crashes.push(path.display().to_string());
        crashes
            .extend(text.lines().filter(|line| line.starts_with("# ") && line.len() > 3).take(4).map(str::to_string));
    }
    // The path of the log is last.
    match why.rsplit_once("full output: ") {
        Some((text, path)) => format!("{text}{}\nfull output: {path}", crashes.join("\n")),
        None => why,
    }
}

/// How long the tests of each class took, from lines such as `[INFO] Tests run: 3, .., Time elapsed: 0.4 s -- in a.GetTest`.
fn durations(printed: &str) -> Vec<(Duration, String)> {
    let duration = |line: &str| {
        let (seconds, class) = line.split_once("Time elapsed: ")?.1.split_once(" s -- in ")?;
        let seconds: f64 = seconds.parse().ok()?;
        Some((Duration::try_from_secs_f64(seconds).ok()?, format!("java {}", class.trim())))
    };
    printed.lines().filter_map(duration).collect()
}

/// The failed tests of a run; an error if it failed for another reason.
fn failed_tests_of(why: String) -> Result<Vec<FailedTest>, String> {
    let log = log_of(&why);
    match failed_tests(&log) {
        failed if failed.is_empty() => Err(why),
        failed => Ok(failed),
    }
}

/// The tests that failed, named as Maven's option `test` selects them. Empty if the JVM crashed.
fn failed_tests(printed: &str) -> Vec<FailedTest> {
    if printed.contains("The forked VM terminated") || printed.contains("There was an error in the forked process") {
        return Vec::new();
    }
    let lines: Vec<&str> = printed.lines().collect();
    let mut failed: BTreeMap<String, String> = BTreeMap::new();
    for (index, line) in lines.iter().enumerate() {
        let Some((name, end)) = line.strip_prefix("[ERROR] ").and_then(|line| line.split_once(" -- Time elapsed:"))
        else {
            continue;
        };
        // `io.github.fodopv.GetTest.of_each_kind(String)[2]`; a class alone if its preparation failed.
        let whole = name.split(['(', '[', '{']).next().unwrap_or(name);
        let name = match whole.rsplit_once('.') {
            Some((class, method)) if method.starts_with(char::is_lowercase) => format!("{class}#{method}"),
            _ => whole.to_string(),
        };
        if end.contains("<<< ") {
            // The exception follows, and its stack after that.
            let reason = lines[index + 1..].iter().take(MESSAGE_LINES).take_while(|line| !line.starts_with('['));
            failed.entry(name).or_insert_with(|| reason.copied().collect::<Vec<&str>>().join("\n"));
        }
    }
    failed.into_iter().map(|(name, message)| FailedTest { name, message }).collect()
}

/// `164 tests, 2 skipped` from Maven's last line `Tests run: 164, Failures: 0, Errors: 0, Skipped: 2`.
fn totals(printed: &str) -> String {
    let line =
        printed.lines().rfind(|line| line.contains("Tests run: ") && !line.contains(" -- in ")).unwrap_or_default();
    let number = |word: &str| -> usize {
        let rest = line.split_once(word).map_or("", |(_, rest)| rest);
        rest.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
    };
    match (number("Tests run: "), number("Skipped: ")) {
        (n_run, 0) => format!("{n_run} tests"),
        (n_run, n_skipped) => format!("{n_run} tests, {n_skipped} skipped"),
    }
}

/// Fails if `-Xcheck:jni` warned of a call that the library made.
fn no_warning_of_jni(logs: &Path) -> Result<(), String> {
    let found: Vec<String> = texts(logs).iter().flat_map(|(_, text)| warnings(text)).collect();
    if found.is_empty() {
        Ok(())
    } else {
        Err(format!("-Xcheck:jni warns of the native library:\n{}", found.join("\n")))
    }
}

/// The warnings whose first frames name a class of the library.
fn warnings(log: &str) -> Vec<String> {
    let lines: Vec<&str> = log.lines().collect();
    let is_warning = |line: &str| line.contains("WARNING in native method") || line.contains("JNI local refs");
    let starts = (0..lines.len()).filter(|index| is_warning(lines[*index]));
    let texts = starts.map(|start| {
        let frames = lines[start + 1..].iter().take_while(|line| line.trim_start().starts_with("at ")).take(3);
        std::iter::once(&lines[start]).chain(frames).copied().collect::<Vec<&str>>().join("\n")
    });
    texts.filter(|text| text.contains("io.github.fodopv.")).collect()
}

/// The files of a folder.
fn texts(folder: &Path) -> Vec<(PathBuf, String)> {
    let listed = std::fs::read_dir(folder).into_iter().flatten().flatten();
    listed
        .map(|entry| entry.path())
        .filter_map(|path| {
            let text = std::fs::read(&path).ok()?;
            Some((path, String::from_utf8_lossy(&text).into_owned()))
        })
        .collect()
}

/// An installed JDK.
struct Jdk {
    folder: PathBuf,
    /// `17`, `25`.
    version: u32,
}

/// The JDKs of [`JDK_FOLDERS`], of the variables that CI services set, and of [`INSTALLED_JDKS`].
fn jdk_folders() -> Vec<Jdk> {
    let mut folders: Vec<PathBuf> = std::env::var_os(JDK_FOLDERS).iter().flat_map(std::env::split_paths).collect();
    folders.extend(
        std::env::vars_os()
            .filter(|(name, _)| name.to_string_lossy().starts_with("JAVA_HOME"))
            .map(|(_, path)| path.into()),
    );
    let mut installed: Vec<PathBuf> =
        std::fs::read_dir(INSTALLED_JDKS).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    installed.sort();
    folders.extend(installed);
    let jdk = |folder: PathBuf| {
        // A runtime without compiler is no JDK.
        let release = std::fs::read_to_string(folder.join("release")).ok()?;
        folder.join("bin").join("javac").exists().then_some(())?;
        Some(Jdk { version: version_in(&release)?, folder })
    };
    folders.into_iter().filter_map(jdk).collect()
}

fn folder_of(jdks: &[Jdk], version: u32) -> Option<&Jdk> {
    jdks.iter().find(|jdk| jdk.version == version)
}

/// `17` from the line `JAVA_VERSION="17.0.15"` of a JDK's file `release`.
fn version_in(release: &str) -> Option<u32> {
    let line = release.lines().find(|line| line.starts_with("JAVA_VERSION="))?;
    line.split('"').nth(1)?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_named_once_unless_the_jvm_crashed() {
        let printed = "[ERROR] Tests run: 3, Failures: 1, Time elapsed: 0.5 s <<< FAILURE! -- in io.github.fodopv.ATest\n\
                       [ERROR] io.github.fodopv.ATest.fails(String)[2] -- Time elapsed: 0.069 s <<< FAILURE!\n\
                       expected: 1\n\tat x\n\
                       [ERROR] io.github.fodopv.ATest.fails(String)[3] -- Time elapsed: 0.069 s <<< ERROR!\n\
                       [ERROR] io.github.fodopv.BTest -- Time elapsed: 0.069 s <<< ERROR!\n";

        let failed = failed_tests(printed);

        let names: Vec<&str> = failed.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["io.github.fodopv.ATest#fails", "io.github.fodopv.BTest"]);
        assert_eq!(failed[0].message, "expected: 1\n\tat x");
        assert_eq!(failed_tests(&format!("{printed}[ERROR] The forked VM terminated without")), []);
    }

    #[test]
    fn the_number_of_tests_is_that_of_the_whole_run() {
        let printed = "[INFO] Tests run: 2, Failures: 0, Errors: 0, Skipped: 0 -- in io.github.fodopv.ATest\n\
                       [WARNING] Tests run: 164, Failures: 0, Errors: 0, Skipped: 2\n";

        assert_eq!(totals(printed), "164 tests, 2 skipped");
        assert_eq!(totals("[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 0"), "3 tests");
    }

    #[test]
    fn the_duration_of_a_class_is_in_its_line() {
        let printed =
            "[INFO] Running a.GetTest\n[INFO] Tests run: 3, Failures: 0, Time elapsed: 0.419 s -- in a.GetTest\n";

        assert_eq!(durations(printed), [(Duration::from_millis(419), "java a.GetTest".to_string())]);
    }

    #[test]
    fn only_warnings_of_the_library_count() {
        let log = "WARNING in native method: JNI call made without checking exceptions\n\
                   \tat io.github.fodopv.Jni.view(Native Method)\n\
                   WARNING in native method: another\n\tat java.util.zip.Inflater.end(Native Method)\n";

        assert_eq!(warnings(log).len(), 1);
        assert!(warnings(log)[0].contains("checking exceptions"));
    }

    #[test]
    fn the_version_of_a_jdk_is_its_first_number() {
        assert_eq!(version_in("IMPLEMENTOR=\"Debian\"\nJAVA_VERSION=\"17.0.15\"\n"), Some(17));
        assert_eq!(version_in("JAVA_VERSION=\"25\"\n"), Some(25));
        assert_eq!(version_in(""), None);
    }
}
