//! PVs of CLUs: those that `fodo ioc` serves, and those that the names `clu://NAME/OBJECT/FEATURE` mean.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_net::clu::random_source;
use fodo_net::{Channel, Context, Error, ServedPv, Server, ServerConfig, Source};
use fodo_vclu::{CluEnd, CluLogReader, CluPvConfig, CluPvs, CluSite};

use crate::clu_log::CluLogThread;
use crate::exit::Exit;
use crate::log::LogFlags;

/// The scheme of names of CLUs.
const SCHEME: &str = "clu://";

/// The variable with the name of the file with CLUs.
pub(crate) const CLU_FILE: &str = "FODO_CLU_FILE";

/// The PVs of all CLUs in a file.
#[derive(Default)]
pub struct CluSources {
    pub sources: Vec<Arc<dyn Source>>,
    /// The logs of those that run in this process, with their names.
    pub logs: Vec<(String, CluLogReader)>,
}

/// Opens the CLUs of a file. What has no PV is reported on `err`; a CLU that does not answer is no error.
pub fn sources(file: &Path, is_read_only: bool, err: &mut dyn Write) -> Result<CluSources, Box<dyn std::error::Error>> {
    let site = CluSite::read(file)?;
    let mut opened = CluSources::default();
    for clu in &site.clus {
        clu.warnings.iter().try_for_each(|warning| writeln!(err, "fodo ioc: {warning}"))?;
        let started = CluPvConfig::of_site(clu).and_then(|config| {
            opened.logs.extend(log_of(&clu.name, &config.end));
            CluPvs::start(CluPvConfig { is_read_only, ..config })
        });
        let pvs = started.map_err(|error| format!("CLU \"{}\": {error}", clu.name))?;
        pvs.problems().iter().try_for_each(|problem| writeln!(err, "fodo ioc: CLU \"{}\": {problem}", clu.name))?;
        opened.sources.push(pvs);
    }
    Ok(opened)
}

/// The log of a CLU in this process, with its name.
fn log_of(name: &str, end: &CluEnd) -> Option<(String, CluLogReader)> {
    match end {
        CluEnd::Process(clu) => Some((name.to_owned(), clu.log_reader())),
        CluEnd::Network(_) => None,
    }
}

/// The PVs of CLUs that the names of one command mean, on a server of this process. Its names begin with a random text, so
/// that other users of this computer cannot use them.
pub struct CluNames {
    context: Context,
    /// By the name that the user typed.
    names: HashMap<String, CluName>,
    // It stops after the context, and the log after the CLUs.
    _server: Server,
    _logs: CluLogThread,
}

struct CluName {
    pv: String,
    address: Option<SocketAddr>,
}

/// Sources that no client can list.
struct Unlisted(Vec<Arc<CluPvs>>);

impl Source for Unlisted {
    fn serves(&self, name: &str) -> bool {
        self.0.iter().any(|pvs| pvs.serves(name))
    }

    fn serves_flat(&self, name: &str) -> bool {
        self.0.iter().any(|pvs| pvs.serves_flat(name))
    }

    fn open(&self, name: &str) -> Option<ServedPv> {
        self.0.iter().find_map(|pvs| pvs.open(name))
    }
}

impl CluNames {
    /// Whether a name is that of a value of a CLU.
    pub fn is_name(pv: &str) -> bool {
        pv.starts_with(SCHEME)
    }

    /// Connects to the CLUs of the names and waits for their values; `None` if no name is one of a CLU. A CLU that does not
    /// answer in time is reported on `err`, and its values are INVALID.
    ///
    /// `file`: with the CLUs; `None` for that of the environment. The error has the exit code and its reason.
    pub fn open(
        pvs: &[String],
        file: Option<&Path>,
        timeout: Duration,
        err: &mut dyn Write,
    ) -> Result<Option<CluNames>, (Exit, String)> {
        let mut of_clu: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for pv in pvs {
            let Some(path) = pv.strip_prefix(SCHEME) else { continue };
            let malformed =
                || (Exit::BadValue, format!("\"{pv}\": names of CLUs have the form clu://NAME/OBJECT/FEATURE"));
            let (clu, rest) = path.split_once('/').filter(|(_, rest)| !rest.is_empty()).ok_or_else(malformed)?;
            of_clu.entry(clu).or_default().push((pv, rest));
        }
        if of_clu.is_empty() {
            return Ok(None);
        }
        let file = file.map(Path::to_path_buf).or_else(file_of_environment).ok_or_else(|| {
            let reason = format!("names with {SCHEME} need a file with CLUs: name it with --clu FILE or in {CLU_FILE}");
            (Exit::Other, reason)
        })?;
        let site = CluSite::read(&file).map_err(|error| (Exit::Other, error.to_string()))?;
        let secret = secret();
        let (mut sources, mut names, end) = (Vec::new(), HashMap::new(), Instant::now() + timeout);
        let mut logs = Vec::new();
        for (clu_name, wanted) in of_clu {
            let clu = site.clu(clu_name).ok_or_else(|| {
                let known: Vec<&str> = site.clus.iter().map(|clu| clu.name.as_str()).collect();
                let reason = format!("{} has no CLU \"{clu_name}\"; it has {}", file.display(), known.join(", "));
                (Exit::NotFound, reason)
            })?;
            let failed = |error: io::Error| (Exit::Other, format!("CLU \"{clu_name}\": {error}"));
            let rests: Vec<String> = wanted.iter().map(|(_, rest)| (*rest).to_string()).collect();
            let mut config = CluPvConfig::of_site(clu).map_err(failed)?;
            config.prefix = format!("{secret}{clu_name}:");
            config.filter = Some(Box::new(move |path| rests.iter().any(|rest| path.matches(rest))));
            logs.extend(log_of(clu_name, &config.end));
            let served = CluPvs::start(config).map_err(failed)?;
            for (pv, rest) in wanted {
                let name = served.name_of(rest).ok_or_else(|| {
                    (Exit::NotFound, format!("\"{pv}\": CLU \"{clu_name}\" has no {rest} in {}", file.display()))
                })?;
                names.insert(pv.to_string(), CluName { pv: name, address: clu.address() });
            }
            sources.push(served);
        }
        let logs = CluLogThread::start(logs, LogFlags::default()).map_err(|error| (Exit::Other, error.to_string()))?;
        for (pvs, clu) in sources.iter().zip(names_of(&names)) {
            if !pvs.wait_for_values(end.saturating_duration_since(Instant::now())) {
                // The values are printed in any case, as INVALID.
                let _ = writeln!(err, "fodo: {clu} did not answer within {} s", timeout.as_secs_f64());
            }
        }
        let server = Server::start(ServerConfig::isolated(), Arc::new(Unlisted(sources)));
        let server = server.map_err(|error| (Exit::Other, error.to_string()))?;
        Ok(Some(CluNames { context: Context::new(server.client_config()), names, _server: server, _logs: logs }))
    }

    /// The channel of a name; `None` if it is not one of a CLU.
    pub fn channel(&self, pv: &str) -> Option<Result<Channel, Error>> {
        let name = self.names.get(pv)?;
        Some(self.context.channel(&format!("pva://{}", name.pv)))
    }

    /// The address of the CLU of a name; `None` for a CLU in this process.
    pub fn address(&self, pv: &str) -> Option<SocketAddr> {
        self.names.get(pv)?.address
    }
}

/// The CLU of each source, in their order, for messages.
fn names_of(names: &HashMap<String, CluName>) -> Vec<String> {
    let clus: std::collections::BTreeSet<&str> =
        names.keys().filter_map(|pv| pv.strip_prefix(SCHEME)?.split('/').next()).collect();
    clus.into_iter().map(|clu| format!("CLU \"{clu}\"")).collect()
}

/// The file with CLUs that the environment names.
pub(crate) fn file_of_environment() -> Option<PathBuf> {
    std::env::var_os(CLU_FILE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// A text that cannot be predicted.
fn secret() -> String {
    let mut bytes = [0; 16];
    random_source()(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(pvs: &[&str], file: Option<&Path>) -> (Exit, String) {
        let pvs: Vec<String> = pvs.iter().map(|pv| (*pv).to_string()).collect();
        CluNames::open(&pvs, file, Duration::from_secs(20), &mut io::sink()).err().unwrap()
    }

    #[test]
    fn names_of_other_protocols_need_no_file() {
        let names = ["ca://x:y".to_owned(), "x:y".to_owned()];

        assert!(CluNames::open(&names, None, Duration::ZERO, &mut io::sink()).is_ok_and(|opened| opened.is_none()));
        assert!(!CluNames::is_name("pva://x") && CluNames::is_name("clu://a/b/c"));
    }

    #[test]
    fn a_name_without_a_file_or_a_feature_is_refused_with_its_reason() {
        let missing = error(&["clu://house/Bath/Value"], Some(Path::new("/nonexistent/site.toml")));
        let malformed = error(&["clu://house"], None);

        assert_eq!((missing.0, malformed.0), (Exit::Other, Exit::BadValue));
        assert!(missing.1.contains("/nonexistent/site.toml"), "{}", missing.1);
        assert!(malformed.1.contains("clu://NAME/OBJECT/FEATURE"), "{}", malformed.1);
    }

    #[test]
    fn a_name_of_a_clu_in_this_process_is_a_channel() {
        let folder = std::env::temp_dir().join(format!("fodo-clu-names-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("a")).unwrap();
        std::fs::write(folder.join("a/OM.LUA"), "TIM1 = OBJECT:new(6, \"TIM1\")\n").unwrap();
        let main =
            "require \"om\"\nfunction checkAlive() return \"1\" end\nSYSTEM.Init()\nrepeat SYSTEM.Loop() until false\n";
        std::fs::write(folder.join("a/MAIN.LUA"), main).unwrap();
        let site = folder.join("site.toml");
        std::fs::write(&site, "[clu.desk]\nfolder = \"a\"\n").unwrap();
        let pv = "clu://desk/TIM1/Time";

        let names = CluNames::open(&[pv.to_owned()], Some(&site), Duration::from_secs(20), &mut io::sink());
        let unknown = error(&["clu://desk/TIM1/Color"], Some(&site));
        let other = error(&["clu://attic/TIM1/Time"], Some(&site));

        let names = names.ok().flatten().unwrap();
        let channel = names.channel(pv).unwrap().unwrap();
        channel.put(1500.0).unwrap();
        assert_eq!(channel.get().unwrap().value, 1500.0.into());
        assert!(names.channel("x").is_none() && names.address(pv).is_none());
        assert_eq!((unknown.0, other.0), (Exit::NotFound, Exit::NotFound));
        assert!(other.1.contains("it has desk"), "{}", other.1);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
