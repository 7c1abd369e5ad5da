//! The virtual CLU of OpenGr8ton as a server, from jars that were built elsewhere.
//!
//! It needs a card with a private address (RFC 1918) and the port 1234, and listens for broadcasts, so it runs in a network
//! namespace of its own. Its clients run there too, so that no link is between them. It replies from another port than 1234.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::driver::external::which;
use crate::hosts::TwoHosts;

/// Where it serves.
pub const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 1234);

/// The oldest Java for which its jars are built.
const JAVA_VERSION_MIN: u32 = 25;

/// Its class, whose argument is the address of the card. It reads the folder `runtime` of the current directory.
const CLASS: &str = "pl.psobiech.opengr8on.vclu.Main";

/// Java and the jars.
#[derive(Debug)]
pub struct OpenGr8tonProgram {
    java: PathBuf,
    jars: PathBuf,
}

/// Finds Java, in `JAVA_HOME` or `PATH`, and checks the folder with the jars; an error says what is missing.
pub fn java(jars: Option<&Path>) -> Result<OpenGr8tonProgram, String> {
    let jars = jars.ok_or("no folder with its jars is given (--opengr8ton DIR)")?;
    let entries = std::fs::read_dir(jars).map_err(|why| format!("{}: {why}", jars.display()))?;
    if !entries.flatten().any(|entry| entry.path().extension().is_some_and(|extension| extension == "jar")) {
        return Err(format!("{} contains no jar", jars.display()));
    }
    let of_home = std::env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin/java"));
    let java = of_home.filter(|java| java.is_file()).or_else(|| which("java"));
    let java = java.ok_or("no `java` in JAVA_HOME or PATH; it needs Java 25 or newer")?;
    let output = Command::new(&java).arg("-version").stdin(Stdio::null()).output();
    let output = output.map_err(|why| format!("{}: {why}", java.display()))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    match version_of(&text) {
        Some(version) if version >= JAVA_VERSION_MIN => Ok(OpenGr8tonProgram { java, jars: jars.to_owned() }),
        Some(version) => Err(format!("{} is Java {version}; it needs Java 25 or newer", java.display())),
        None => Err(format!("{} -version prints no version", java.display())),
    }
}

/// The number before the first point of the version, in what `java -version` prints.
fn version_of(text: &str) -> Option<u32> {
    let quoted = text.split('"').nth(1)?;
    quoted.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// A network with a private address.
pub fn host() -> Result<TwoHosts, String> {
    let hosts = TwoHosts::make()?;
    hosts.add_server_address(*ADDRESS.ip())?;
    Ok(hosts)
}

impl OpenGr8tonProgram {
    /// The arguments of a shell that starts it in a folder.
    pub fn words_in(&self, folder: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["-c".into(), "cd \"$0\" && exec \"$@\"".into(), folder.into()];
        words.extend([self.java.clone().into(), "-XX:+UseZGC".into(), "-cp".into(), self.jars.join("*").into()]);
        words.extend([CLASS.into(), ADDRESS.ip().to_string().into()]);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_java_prints_contains_its_version() {
        assert_eq!(version_of("openjdk version \"25.0.1\" 2025-10-21\nOpenJDK Runtime"), Some(25));
        assert_eq!(version_of("openjdk version \"26-ea\" 2026-03-17"), Some(26));
        assert_eq!(version_of("java version \"1.8.0_402\""), Some(1));
        assert_eq!(version_of("command not found"), None);
    }

    #[test]
    fn without_a_folder_or_a_jar_the_reason_names_it() {
        let folder = std::env::temp_dir().join(format!("fodo-lab-opengr8ton-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();

        let (none, empty) = (java(None).unwrap_err(), java(Some(&folder)).unwrap_err());
        let missing = java(Some(&folder.join("other"))).unwrap_err();

        std::fs::remove_dir_all(&folder).unwrap();
        assert!(none.contains("--opengr8ton DIR"), "{none}");
        assert!(empty.ends_with("contains no jar"), "{empty}");
        assert!(missing.contains("other: "), "{missing}");
    }

    #[test]
    fn its_network_has_a_card_with_a_private_address() {
        let hosts = match host() {
            Ok(hosts) => hosts,
            Err(why) => {
                let must = std::env::var_os("CI").is_some() && Path::new("/sbin/ip").exists();
                assert!(!must, "{why}");
                println!("not tested: {why}");
                return;
            }
        };

        // The kernel refuses a connection to a port without a listener; an address of another host would be unreachable.
        let script = format!("exec 3<>/dev/tcp/{}/9", ADDRESS.ip());
        let within = crate::hosts::command_within(Some(hosts.server_number()), "bash").args(["-c", &script]).output();

        let text = String::from_utf8_lossy(&within.unwrap().stderr).into_owned();
        assert!(ADDRESS.ip().is_private() && text.contains("refused"), "{text}");
    }

    #[test]
    fn it_is_started_in_the_folder_with_its_scripts() {
        let program = OpenGr8tonProgram { java: "/opt/java".into(), jars: "/opt/jars".into() };

        let words = program.words_in(Path::new("a folder"));

        let text = words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
        assert_eq!(text[2..6], ["a folder", "/opt/java", "-XX:+UseZGC", "-cp"]);
        assert_eq!(text[6..], ["/opt/jars/*", "pl.psobiech.opengr8on.vclu.Main", "10.0.0.1"]);
    }
}
