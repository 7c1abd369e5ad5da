//! Clients in Java: a library that Maven fetches, or Fodo's own jar, with a driver and a watcher that are compiled at first
//! use.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::external::{SourceFile, is_same, output_of, which, write_when_different};
use crate::peers::{self, Peers};

/// What every driver and every watcher in Java uses.
const SHARED: [SourceFile; 2] = [
    ("Conversation.java", include_str!("../../drivers/java/Conversation.java")),
    ("Watch.java", include_str!("../../drivers/java/Watch.java")),
];

/// The file that names the jar for which the classes of Fodo's driver were compiled.
const JAR_STAMP: &str = "jar.txt";

/// A library in Java with its driver and its watcher.
#[derive(Debug)]
pub struct JavaClient {
    /// The name of the client.
    name: &'static str,
    /// The directory of its classes, which variants share.
    directory: &'static str,
    library: JavaLibrary,
    /// Its driver and its watcher.
    sources: [SourceFile; 2],
    /// The classes of both.
    driver: &'static str,
    watcher: &'static str,
    /// Options of the virtual machine.
    options: &'static [&'static str],
    /// The last argument of the driver and of the watcher: how updates and arrays are delivered.
    variant: &'static str,
    /// The oldest version of Java that it supports.
    java_min: u32,
}

/// Where a library is from.
#[derive(Debug)]
enum JavaLibrary {
    /// Maven fetches it and its dependencies: the artifact that has its version, and the project.
    Maven { artifact: &'static str, pom: SourceFile },
    /// The jar of this workspace, see [`peers::fodo_jar`].
    Fodo,
}

/// PSI's `ca`. Its repeater would be a second Java process that listens on all interfaces.
pub static PSI_CA: JavaClient = PSI_CA_DEFAULT;

const PSI_CA_DEFAULT: JavaClient = JavaClient {
    name: "psi-ca",
    directory: "psi-ca",
    library: JavaLibrary::Maven { artifact: "ca", pom: ("pom.xml", include_str!("../../drivers/psi-ca/pom.xml")) },
    sources: [
        ("PsiCa.java", include_str!("../../drivers/psi-ca/PsiCa.java")),
        ("PsiCaWatch.java", include_str!("../../drivers/psi-ca/PsiCaWatch.java")),
    ],
    driver: "lab.PsiCa",
    watcher: "lab.PsiCaWatch",
    options: &["-DCA_REPEATER_DISABLE=true"],
    variant: "default",
    java_min: JAVA_MIN,
};

/// PSI's `ca` with one notification thread.
pub static PSI_CA_SINGLE: JavaClient = JavaClient {
    name: "psi-ca-single",
    options: &[
        "-DCA_REPEATER_DISABLE=true",
        "-DCA_MONITOR_NOTIFIER_IMPL=BlockingQueueSingleWorkerMonitorNotificationServiceImpl",
    ],
    ..PSI_CA_DEFAULT
};

/// PSI's `ca` with several notification threads: its default.
pub static PSI_CA_MULTIPLE: JavaClient = JavaClient {
    name: "psi-ca-multiple",
    options: &[
        "-DCA_REPEATER_DISABLE=true",
        "-DCA_MONITOR_NOTIFIER_IMPL=BlockingQueueMultipleWorkerMonitorNotificationServiceImpl,16",
    ],
    ..PSI_CA_DEFAULT
};

/// PSI's `ca` with striped executors.
pub static PSI_CA_STRIPED: JavaClient = JavaClient {
    name: "psi-ca-striped",
    options: &[
        "-DCA_REPEATER_DISABLE=true",
        "-DCA_MONITOR_NOTIFIER_IMPL=StripedExecutorServiceMonitorNotificationServiceImpl",
    ],
    ..PSI_CA_DEFAULT
};

/// Phoebus' core-pva. It builds each message in a buffer of a fixed size, 8 MB by default, which is too small for the
/// largest array.
pub static CORE_PVA: JavaClient = JavaClient {
    name: "core-pva",
    directory: "core-pva",
    library: JavaLibrary::Maven {
        artifact: "core-pva",
        pom: ("pom.xml", include_str!("../../drivers/core-pva/pom.xml")),
    },
    sources: [
        ("CorePva.java", include_str!("../../drivers/core-pva/CorePva.java")),
        ("CorePvaWatch.java", include_str!("../../drivers/core-pva/CorePvaWatch.java")),
    ],
    driver: "lab.CorePva",
    watcher: "lab.CorePvaWatch",
    options: &["-DEPICS_PVA_SEND_BUFFER_SIZE=40001000"],
    variant: "default",
    java_min: JAVA_MIN,
};

/// Fodo in Java, with callbacks on the context's thread.
pub static FODO_JAVA: JavaClient = FODO_JAVA_DEFAULT;

const FODO_JAVA_DEFAULT: JavaClient = JavaClient {
    name: "fodo-java",
    directory: "fodo-java",
    library: JavaLibrary::Fodo,
    sources: [
        ("FodoJava.java", include_str!("../../drivers/fodo-java/FodoJava.java")),
        ("FodoJavaWatch.java", include_str!("../../drivers/fodo-java/FodoJavaWatch.java")),
    ],
    driver: "lab.FodoJava",
    watcher: "lab.FodoJavaWatch",
    // Without it, newer versions of Java print a warning when they load the native library.
    options: &["--enable-native-access=ALL-UNNAMED"],
    variant: "callbacks",
    java_min: JAVA_MIN,
};

/// Fodo in Java, with callbacks on an executor of the program.
pub static FODO_JAVA_EXECUTOR: JavaClient =
    JavaClient { name: "fodo-java-executor", variant: "executor", ..FODO_JAVA_DEFAULT };

/// Fodo in Java, with callbacks on virtual threads.
pub static FODO_JAVA_VIRTUAL: JavaClient =
    JavaClient { name: "fodo-java-virtual", variant: "virtual", java_min: 21, ..FODO_JAVA_DEFAULT };

/// Fodo in Java, with a monitor group.
pub static FODO_JAVA_ROWS: JavaClient = JavaClient { name: "fodo-java-rows", variant: "rows", ..FODO_JAVA_DEFAULT };

/// Fodo in Java, with arrays read into the caller's memory.
pub static FODO_JAVA_INTO: JavaClient = JavaClient { name: "fodo-java-into", variant: "into", ..FODO_JAVA_DEFAULT };

/// Fodo in Java, with a future for each get.
pub static FODO_JAVA_FUTURES: JavaClient =
    JavaClient { name: "fodo-java-futures", variant: "futures", ..FODO_JAVA_DEFAULT };

/// The oldest version of Java that any driver supports.
const JAVA_MIN: u32 = 17;

impl JavaClient {
    /// The name of the client in tables.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Which prerequisite is missing, and how to install it. May start Java.
    pub fn missing(&self, peers: &Peers) -> Result<(), String> {
        if let JavaLibrary::Fodo = self.library {
            peers::fodo_jar()?;
        }
        let needed: &[&str] = match self.library {
            _ if self.is_ready(peers) => &["java"],
            JavaLibrary::Maven { .. } => &["java", "javac", "mvn"],
            JavaLibrary::Fodo => &["java", "javac"],
        };
        if let Some(name) = needed.iter().find(|name| which(name).is_none()) {
            return Err(format!(
                "no `{name}` in PATH; needs a JDK (17 or newer) and, for peers at first use, Maven: on Debian and Ubuntu the \
                 packages openjdk-17-jdk-headless and maven"
            ));
        }
        self.java().map(|_java| ())
    }

    /// The virtual machine: `java` in PATH if it is new enough, otherwise that of an installed JDK.
    fn java(&self) -> Result<PathBuf, String> {
        let in_path = which("java").ok_or("no `java` in PATH")?;
        if self.java_min == JAVA_MIN {
            return Ok(in_path);
        }
        let is_new_enough = |java: &PathBuf| java_version(java).is_ok_and(|version| version >= self.java_min);
        std::iter::once(in_path).chain(installed_javas()).find(is_new_enough).ok_or_else(|| {
            format!("needs Java {} or newer, in PATH, {INSTALLED_JDKS} or a folder in {JDK_FOLDERS}", self.java_min)
        })
    }

    /// Command that starts the driver.
    pub fn driver_words(&self, peers: &Peers) -> Result<(PathBuf, Vec<OsString>), String> {
        self.words(self.driver, &self.version()?, peers)
    }

    /// Command that starts the watcher; `numbers`: how values encode their number.
    pub fn watcher_words(&self, numbers: &str, peers: &Peers) -> Result<(PathBuf, Vec<OsString>), String> {
        self.words(self.watcher, numbers, peers)
    }

    /// The version of the library, in its pom or in the name of the jar.
    fn version(&self) -> Result<String, String> {
        match &self.library {
            JavaLibrary::Maven { artifact, pom } => {
                let artifact = format!("<artifactId>{artifact}</artifactId>");
                let after = pom.1.split_once(&artifact).map_or("", |(_, after)| after);
                let version = after.split_once("<version>").and_then(|(_, rest)| rest.split_once("</version>"));
                Ok(version.map_or(String::new(), |(version, _)| version.to_owned()))
            }
            JavaLibrary::Fodo => {
                let jar = peers::fodo_jar()?;
                let stem = jar.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                Ok(stem.strip_prefix("fodo-").unwrap_or(&stem).to_owned())
            }
        }
    }

    fn directory(&self, peers: &Peers) -> PathBuf {
        peers.directory.join("fodo-lab").join(self.directory)
    }

    fn files(&self) -> impl Iterator<Item = SourceFile> {
        let pom = match self.library {
            JavaLibrary::Maven { pom, .. } => Some(pom),
            JavaLibrary::Fodo => None,
        };
        SHARED.into_iter().chain(self.sources).chain(pom)
    }

    /// Whether the classes are compiled from these sources, for this library: a directory appears whole.
    fn is_ready(&self, peers: &Peers) -> bool {
        let directory = self.directory(peers);
        let is_for_library = match self.library {
            JavaLibrary::Maven { .. } => true,
            JavaLibrary::Fodo => {
                std::fs::read_to_string(directory.join(JAR_STAMP)).is_ok_and(|known| Ok(known) == jar_stamp())
            }
        };
        is_for_library && self.files().all(|file| is_same(&directory, file))
    }

    fn class_path(&self, directory: &Path) -> Result<OsString, String> {
        let library = match self.library {
            JavaLibrary::Maven { .. } => directory.join("jars").join("*"),
            JavaLibrary::Fodo => peers::fodo_jar()?,
        };
        std::env::join_paths([directory.join("classes"), library]).map_err(|why| why.to_string())
    }

    /// Java with this class, which is prepared at first use.
    fn words(&self, class: &str, argument: &str, peers: &Peers) -> Result<(PathBuf, Vec<OsString>), String> {
        self.missing(peers)?;
        let directory = self.directory(peers);
        if !self.is_ready(peers) {
            eprintln!("preparing {} in {} (once, some seconds) ...", self.directory, directory.display());
            self.prepare(peers)?;
        }
        let java = self.java()?;
        let mut words: Vec<OsString> = self.options.iter().map(OsString::from).collect();
        words.extend(["-cp".into(), self.class_path(&directory)?]);
        words.extend([class, argument, self.name, self.variant].map(OsString::from));
        Ok((java, words))
    }

    /// Prepares the directory beside it, because another process may do the same at this moment.
    fn prepare(&self, peers: &Peers) -> Result<(), String> {
        let directory = self.directory(peers);
        let unfinished = directory.with_extension(std::process::id().to_string());
        // Jars of another version would be on the class path too.
        remove(&unfinished)?;
        let files: Vec<PathBuf> =
            self.files().map(|file| write_when_different(&unfinished, file)).collect::<Result<_, _>>()?;
        match &self.library {
            JavaLibrary::Maven { artifact, pom } => fetch(artifact, &unfinished.join(pom.0), &unfinished.join("jars"))?,
            JavaLibrary::Fodo => {
                let stamp = unfinished.join(JAR_STAMP);
                std::fs::write(&stamp, jar_stamp()?).map_err(|why| format!("{}: {why}", stamp.display()))?;
            }
        }
        let mut javac = Command::new(which("javac").ok_or("no `javac` in PATH")?);
        javac.args(["--release", &JAVA_MIN.to_string(), "-cp"]).arg(self.class_path(&unfinished)?);
        let sources = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "java"));
        output_of(javac.arg("-d").arg(unfinished.join("classes")).args(sources))?;
        if self.is_ready(peers) {
            return remove(&unfinished);
        }
        remove(&directory)?;
        std::fs::rename(&unfinished, &directory).map_err(|why| format!("{}: {why}", directory.display()))
    }
}

/// Fetches an artifact and its dependencies by its project into `jars`.
fn fetch(artifact: &str, pom: &Path, jars: &Path) -> Result<(), String> {
    let mut mvn = Command::new(which("mvn").ok_or("no `mvn` in PATH")?);
    mvn.args(["--batch-mode", "--quiet", "--file"]).arg(pom).arg("dependency:copy-dependencies");
    mvn.args(["-DincludeScope=runtime", "-DexcludeClassifiers=javadoc"]);
    mvn.arg(format!("-DoutputDirectory={}", jars.display()));
    output_of(&mut mvn).map(|_| ()).map_err(|why| format!("Maven could not fetch {artifact}: {why}"))
}

/// Identifies the content of Fodo's jar: its path, size and time.
fn jar_stamp() -> Result<String, String> {
    let jar = peers::fodo_jar()?;
    let about = std::fs::metadata(&jar).map_err(|why| format!("{}: {why}", jar.display()))?;
    Ok(format!("{} {} {:?}", jar.display(), about.len(), about.modified().ok()))
}

/// The folder in which Linux distributions install JDKs.
const INSTALLED_JDKS: &str = "/usr/lib/jvm";

/// The environment variable with the folders of further JDKs, separated as those of PATH.
const JDK_FOLDERS: &str = "JAVA_HOMES";

/// The virtual machines of [`JDK_FOLDERS`] and [`INSTALLED_JDKS`].
fn installed_javas() -> Vec<PathBuf> {
    let named = std::env::var_os(JDK_FOLDERS);
    let mut installed: Vec<PathBuf> =
        std::fs::read_dir(INSTALLED_JDKS).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    installed.sort();
    named.iter().flat_map(std::env::split_paths).chain(installed).map(|jdk| jdk.join("bin").join("java")).collect()
}

/// The version of this `java`, such as 21.
fn java_version(java: &Path) -> Result<u32, String> {
    let printed = output_of(Command::new(java).arg("--version"))?;
    version_in(&printed).ok_or_else(|| format!("`java --version` printed no version: {}", printed.trim()))
}

/// 17 of `openjdk 17.0.11 2024-04-16`.
fn version_in(printed: &str) -> Option<u32> {
    printed.split_whitespace().nth(1)?.split(['.', '-', '+']).next()?.parse().ok()
}

/// Removes a directory, if it exists.
fn remove(directory: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(directory) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {why}", directory.display())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_java_library_is_the_one_in_its_pom() {
        assert_eq!((PSI_CA.version(), CORE_PVA.version()), (Ok("1.3.2".into()), Ok("5.0.5".into())));
    }

    #[test]
    fn the_version_of_java_is_the_first_number_after_its_name() {
        let printed = ["openjdk 17.0.11 2024-04-16\nOpenJDK Runtime", "openjdk 25 2025-09-16 LTS", "java 21-ea 2023"];

        assert_eq!(printed.map(version_in), [Some(17), Some(25), Some(21)]);
        assert_eq!(version_in("java"), None);
    }

    #[test]
    fn only_virtual_threads_need_a_newer_java_than_that_in_path() {
        let Some(in_path) = which("java") else { return };

        assert_eq!(FODO_JAVA.java(), Ok(in_path));
        match FODO_JAVA_VIRTUAL.java() {
            Ok(java) => assert!(java_version(&java).unwrap() >= 21),
            Err(why) => assert!(why.contains("needs Java 21 or newer") && why.contains(JDK_FOLDERS), "{why}"),
        }
    }

    #[test]
    fn variants_of_a_client_share_its_classes_and_have_names_of_their_own() {
        let variants =
            [&FODO_JAVA, &FODO_JAVA_EXECUTOR, &FODO_JAVA_VIRTUAL, &FODO_JAVA_ROWS, &FODO_JAVA_INTO, &FODO_JAVA_FUTURES];
        let engines = [&PSI_CA, &PSI_CA_SINGLE, &PSI_CA_MULTIPLE, &PSI_CA_STRIPED];

        assert!(variants.iter().all(|client| client.directory == "fodo-java" && client.name.starts_with("fodo-java")));
        assert!(engines.iter().all(|client| client.directory == "psi-ca" && client.name.starts_with("psi-ca")));
        let mut names: Vec<&str> = variants.iter().chain(&engines).map(|client| client.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), variants.len() + engines.len());
    }
}
