//! Which CLU a command uses: its address, its key and its objects.

use std::fmt;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fodo_clu::cipher::CipherKey;
use fodo_clu::client::{CluRequest, RequestOutcome, SubmitError};
use fodo_clu::command::Serial;
use fodo_clu::omp::{OmProject, ProjectClu};
use fodo_net::clu::{CLU_PORT, CluConnection, CluConnectionConfig};
use fodo_vclu::{CluPlace, CluSite, SiteClu};
use serde_json::{Map, Value as Json};

use super::keys::{read_file, read_project};
use super::outcome::CluFailure;
use crate::client::seconds;
use crate::clu_pvs::{CLU_FILE, file_of_environment};

/// The file with keys that is used if none is named.
pub const DEFAULT_KEYS: &str = "keys.json";

/// Flags that name the key, and common flags.
#[derive(Clone, Debug, clap::Args)]
pub struct CluFlags {
    /// File with the key of the project; default: keys.json
    #[arg(long, value_name = "FILE", conflicts_with = "project")]
    keys: Option<PathBuf>,
    /// Project of Object Manager (.omp) with the key
    #[arg(long, value_name = "FILE")]
    project: Option<PathBuf>,
    /// File with the names, addresses, keys and objects of CLUs; default: FODO_CLU_FILE
    #[arg(long = "clu", value_name = "FILE")]
    clu_file: Option<PathBuf>,
    /// Timeout of each request in seconds
    #[arg(short = 'w', long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub timeout: Duration,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// A CLU on the network.
#[derive(Clone, Debug)]
pub struct CluTarget {
    /// As the user typed it.
    pub name: String,
    /// Its address and UDP port.
    pub address: SocketAddr,
    key: CipherKey,
    serial: Option<Serial>,
    /// Its entry in the file with CLUs, which has its objects.
    pub site: Option<SiteClu>,
}

/// `house (10.0.0.2:1234)`, or only the address.
impl fmt::Display for CluTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address.to_string();
        if self.name == address || self.name == self.address.ip().to_string() {
            return f.write_str(&address);
        }
        write!(f, "{} ({address})", self.name)
    }
}

impl CluFlags {
    /// The CLU with this name or address. The warnings of its entry in the file with CLUs are printed on stderr.
    pub fn target(&self, name: &str) -> Result<CluTarget, CluFailure> {
        let target = self.find(name).map_err(CluFailure::of_host)?;
        for warning in target.site.iter().flat_map(|site| &site.warnings) {
            // There is no other place to report that stderr failed.
            let _ = writeln!(io::stderr(), "fodo clu: {warning}");
        }
        Ok(target)
    }

    fn find(&self, name: &str) -> Result<CluTarget, String> {
        if let Some(address) = literal_address(name) {
            return self.at(name, address);
        }
        let has_own_key = self.keys.is_some() || self.project.is_some();
        if let Some(path) = self.clu_file().filter(|_| !has_own_key || self.clu_file.is_some()) {
            return site_clu(name, &path);
        }
        if let Some(path) = &self.project {
            let project = read_project(path)?;
            if let Some(target) = project_clu(name, &project, path)? {
                return Ok(target);
            }
        }
        match resolved_address(name) {
            Some(address) => self.at(name, address),
            None => Err(format!(
                "\"{name}\" is neither an address nor the name of a host; names of CLUs require --clu FILE or {CLU_FILE}"
            )),
        }
    }

    /// The names of all CLUs of the file with CLUs.
    pub fn all_names(&self) -> Result<Vec<String>, CluFailure> {
        let path = self.clu_file().ok_or_else(|| {
            CluFailure::of_host(format!("name a CLU, or a file with CLUs by --clu FILE or {CLU_FILE}"))
        })?;
        let site = CluSite::read(path).map_err(|error| CluFailure::of_host(error.to_string()))?;
        let on_network = site.clus.into_iter().filter(|clu| matches!(clu.place, CluPlace::Network { .. }));
        Ok(on_network.map(|clu| clu.name).collect())
    }

    fn clu_file(&self) -> Option<PathBuf> {
        self.clu_file.clone().or_else(file_of_environment)
    }

    /// A CLU that is given by its address. It has the objects of the project if one of its CLUs has this address.
    fn at(&self, name: &str, address: SocketAddr) -> Result<CluTarget, String> {
        if let Some(path) = &self.project {
            let project = read_project(path)?;
            let clu = project.clus.iter().find(|clu| clu.address.map(Into::into) == Some(address.ip()));
            let site = clu.map(|clu| SiteClu::of_project(&project, clu, address));
            return Ok(CluTarget { name: name.into(), address, key: project.key, serial: None, site });
        }
        Ok(CluTarget { name: name.into(), address, key: self.key()?, serial: None, site: None })
    }

    /// The key for a CLU that is given by its address, without a project.
    fn key(&self) -> Result<CipherKey, String> {
        match &self.keys {
            Some(path) => read_file(path).map(|keys| keys.project),
            None if !Path::new(DEFAULT_KEYS).exists() => Err(format!(
                "a CLU answers only requests with its key: name a file with --keys or --project, because {DEFAULT_KEYS} \
                 does not exist in this folder"
            )),
            None => read_file(Path::new(DEFAULT_KEYS)).map(|keys| keys.project),
        }
    }
}

/// The CLU of the file with CLUs.
fn site_clu(name: &str, path: &Path) -> Result<CluTarget, String> {
    let site = CluSite::read(path).map_err(|error| error.to_string())?;
    let Some(clu) = site.clu(name).cloned() else {
        let names: Vec<&str> = site.clus.iter().map(|clu| clu.name.as_str()).collect();
        return Err(format!("{} has no CLU \"{name}\"; it has {}", path.display(), names.join(", ")));
    };
    match &clu.place {
        CluPlace::Network { address, key, serial } => {
            Ok(CluTarget { name: name.into(), address: *address, key: key.clone(), serial: *serial, site: Some(clu) })
        }
        CluPlace::Process { .. } => Err(format!(
            "CLU \"{name}\" of {} runs in the program that serves its PVs, without an address: use its PVs",
            path.display()
        )),
    }
}

/// The CLU of a project with this name; `None` if the project has no such CLU.
fn project_clu(name: &str, project: &OmProject, path: &Path) -> Result<Option<CluTarget>, String> {
    let is_named = |clu: &&ProjectClu| clu.object == name || clu.name.as_deref() == Some(name);
    let Some(clu) = project.clus.iter().find(is_named) else { return Ok(None) };
    let address = clu.address.ok_or_else(|| format!("{}: CLU \"{name}\" has no address", path.display()))?;
    let address = SocketAddr::from((address, CLU_PORT));
    let site = Some(SiteClu::of_project(project, clu, address));
    Ok(Some(CluTarget { name: name.into(), address, key: project.key.clone(), serial: clu.serial, site }))
}

fn literal_address(word: &str) -> Option<SocketAddr> {
    let with_port = || word.parse().ok().filter(SocketAddr::is_ipv4);
    word.parse::<Ipv4Addr>().ok().map(|ip| SocketAddr::from((ip, CLU_PORT))).or_else(with_port)
}

/// The address of a host by its name.
fn resolved_address(word: &str) -> Option<SocketAddr> {
    let (host, port) = match word.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (word, CLU_PORT),
    };
    (host, port).to_socket_addrs().ok()?.find(SocketAddr::is_ipv4)
}

impl CluTarget {
    /// A CLU with these objects.
    #[cfg(test)]
    pub fn for_test(objects: Vec<fodo_vclu::SiteObject>) -> CluTarget {
        let (address, key) = (SocketAddr::from(([10, 0, 0, 2], CLU_PORT)), CipherKey::new([1; 16], [2; 16]));
        let place = CluPlace::Network { address, key: key.clone(), serial: None };
        let (prefix, variables, warnings) = (String::new(), Vec::new(), Vec::new());
        let site = SiteClu { name: "house".into(), prefix, place, objects, variables, warnings };
        CluTarget { name: "house".into(), address, key, serial: None, site: Some(site) }
    }

    /// Opens a connection. `checks_availability`: whether it checks periodically that the CLU answers.
    pub fn connect(&self, timeout: Duration, checks_availability: bool) -> Result<CluConnection, CluFailure> {
        let mut config = CluConnectionConfig::new(self.address, self.key.clone());
        config.serial = self.serial;
        config.timeout = timeout;
        config.checks_availability = checks_availability;
        CluConnection::open(config).map_err(|error: io::Error| CluFailure::of_host(format!("{self}: {error}")))
    }

    /// The start of a JSON object.
    pub fn json(&self) -> Map<String, Json> {
        let mut object = Map::new();
        object.insert("clu".into(), self.name.as_str().into());
        object
    }
}

/// A connection to one CLU, with its name and timeout for messages.
pub struct ConnectedClu {
    pub target: CluTarget,
    pub connection: CluConnection,
    pub timeout: Duration,
}

impl ConnectedClu {
    /// Connects to the CLU with this name or address.
    pub fn open(flags: &CluFlags, name: &str) -> Result<ConnectedClu, CluFailure> {
        let target = flags.target(name)?;
        let connection = target.connect(flags.timeout, false)?;
        Ok(ConnectedClu { target, connection, timeout: flags.timeout })
    }

    /// Sends a request and waits for its end. `what`: the request, for messages.
    pub fn request(
        &self,
        what: &str,
        request: CluRequest<'_>,
        may_have_effects: bool,
    ) -> Result<RequestOutcome, CluFailure> {
        let outcome = self.connection.request(request);
        let outcome = outcome.map_err(|error: SubmitError| CluFailure::not_sent(&self.target, what, error))?;
        self.checked(what, outcome, may_have_effects)
    }

    /// The outcome of a request, if it was answered.
    pub fn checked(
        &self,
        what: &str,
        outcome: RequestOutcome,
        may_have_effects: bool,
    ) -> Result<RequestOutcome, CluFailure> {
        match CluFailure::of(&self.target, what, &outcome, self.timeout, may_have_effects) {
            Some(failure) => Err(failure),
            None => Ok(outcome),
        }
    }
}
