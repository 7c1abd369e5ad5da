//! The file that names the CLUs of a site, with their addresses, keys and objects: TOML.

mod objects;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fodo_clu::cipher::CipherKey;
use fodo_clu::command::Serial;
use fodo_clu::interface::ObjectInterface;
use fodo_clu::keys::KeyFile;
use fodo_clu::om_lua::{OmLua, UserVariable};
use fodo_clu::omp::{OmProject, ProjectClu};
use serde::Deserialize;
use toml::Spanned;
use zeroize::Zeroizing;

use self::objects::InterfaceTable;
use crate::folder::{has_script, read_script};
use crate::limit::{FILE_BYTES_MAX, INTERFACE_FILES_MAX, SITE_CLUS_MAX, SITE_FILE_BYTES_MAX};

/// The UDP port of a CLU.
const CLU_PORT: u16 = 1234;

/// The CLUs of a site. Files that it names are relative to its folder.
///
/// ```
/// use fodo_vclu::CluSite;
///
/// let folder = std::env::temp_dir().join(format!("fodo-clu-site-{}", std::process::id()));
/// std::fs::create_dir_all(folder.join("clu"))?;
/// std::fs::write(folder.join("clu/OM.LUA"), "CLU1 = OBJECT:new(0, 1, \"CLU1\")\n-- NAME_CLU Desk=CLU1\n")?;
/// std::fs::write(folder.join("site.toml"), "[clu.desk]\nfolder = \"clu\"\nprefix = \"desk:\"\n")?;
///
/// let site = CluSite::read(folder.join("site.toml"))?;
/// let desk = site.clu("desk").expect("it is in the file");
/// assert_eq!((desk.prefix.as_str(), desk.address()), ("desk:", None));
/// assert_eq!(desk.objects[0].label.as_deref(), Some("Desk"));
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CluSite {
    /// In the order of their names.
    pub clus: Vec<SiteClu>,
}

/// A CLU of a site.
#[derive(Clone, Debug)]
pub struct SiteClu {
    /// The name in the file.
    pub name: String,
    /// The start of the names of its PVs.
    pub prefix: String,
    /// Where it runs.
    pub place: CluPlace,
    /// Its objects, in the order of OM.LUA, and then those that only the project contains.
    pub objects: Vec<SiteObject>,
    /// The user variables, in the order of OM.LUA.
    pub variables: Vec<UserVariable>,
    /// What was left out, and why, one line each.
    pub warnings: Vec<String>,
}

/// Where a CLU runs.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a site has few CLUs")]
pub enum CluPlace {
    /// On the network.
    Network {
        /// Its address and UDP port.
        address: SocketAddr,
        /// The key of the project.
        key: CipherKey,
        /// The serial number, if it is known.
        serial: Option<Serial>,
    },
    /// In this process: a virtual CLU.
    Process {
        /// The folder with its scripts.
        folder: PathBuf,
        /// The folder for the files of Storage objects, if it has one.
        storage: Option<PathBuf>,
    },
}

/// An object of a CLU.
#[derive(Clone, Debug)]
pub struct SiteObject {
    /// The name in Lua.
    pub id: String,
    /// The name that a person chose.
    pub label: Option<String>,
    /// What it has; `None` if its class is unknown.
    pub interface: Option<Arc<ObjectInterface>>,
}

/// Why the file, or a file that it names, was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteError {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1; `None` if the error belongs to no line.
    pub line: Option<usize>,
    /// What a person must correct.
    pub reason: String,
}

impl fmt::Display for SiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file.display(), self.reason),
            None => write!(f, "{}: {}", self.file.display(), self.reason),
        }
    }
}

impl std::error::Error for SiteError {}

/// The contents of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteFile {
    #[serde(default)]
    clu: BTreeMap<String, Spanned<CluEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CluEntry {
    address: Option<Spanned<String>>,
    keys: Option<Spanned<PathBuf>>,
    project: Option<Spanned<PathBuf>>,
    om: Option<Spanned<PathBuf>>,
    interfaces: Option<Spanned<PathBuf>>,
    serial: Option<Spanned<String>>,
    folder: Option<Spanned<PathBuf>>,
    storage: Option<PathBuf>,
    prefix: Option<String>,
}

impl CluSite {
    /// Reads the file and the files that it names. Blocks.
    pub fn read(path: impl AsRef<Path>) -> Result<CluSite, SiteError> {
        let path = path.as_ref();
        let whole = |reason: String| SiteError { file: path.to_path_buf(), line: None, reason };
        let bytes = read_file(path, SITE_FILE_BYTES_MAX).map_err(whole)?;
        let text = String::from_utf8(bytes.to_vec()).map_err(|_| whole("the file is not UTF-8".into()))?;
        let reader = SiteReader { path, text: &text };
        let file: SiteFile = toml::from_str(&text).map_err(|error| {
            let line = error.span().map(|span| reader.line(span.start));
            SiteError { file: path.to_path_buf(), line, reason: error.message().to_string() }
        })?;
        if file.clu.is_empty() {
            return Err(whole("the file names no CLU: begin one with [clu.NAME]".into()));
        }
        if file.clu.len() > SITE_CLUS_MAX {
            return Err(whole(format!("the file names more than {SITE_CLUS_MAX} CLUs")));
        }
        let clus = file.clu.into_iter().map(|(name, entry)| reader.clu(name, entry));
        Ok(CluSite { clus: clus.collect::<Result<_, _>>()? })
    }

    /// The CLU with this name.
    pub fn clu(&self, name: &str) -> Option<&SiteClu> {
        self.clus.iter().find(|clu| clu.name == name)
    }
}

impl SiteClu {
    /// A CLU of a project, with the objects and the key of the project. [`OmProject`] has an example of a project.
    pub fn of_project(project: &OmProject, clu: &ProjectClu, address: SocketAddr) -> SiteClu {
        let name = clu.name.as_ref().unwrap_or(&clu.object).clone();
        let objects = objects::objects(Vec::new(), &objects::of_clu(project, clu), &mut InterfaceTable::default());
        let place = CluPlace::Network { address, key: project.key.clone(), serial: clu.serial };
        let (prefix, variables, warnings) = (format!("{name}:"), Vec::new(), Vec::new());
        SiteClu { name, prefix, place, objects, variables, warnings }
    }

    /// The address of a CLU on the network; `None` for one in this process.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.place {
            CluPlace::Network { address, .. } => Some(*address),
            CluPlace::Process { .. } => None,
        }
    }

    /// The key of a CLU on the network; `None` for one in this process.
    pub fn key(&self) -> Option<&CipherKey> {
        match &self.place {
            CluPlace::Network { key, .. } => Some(key),
            CluPlace::Process { .. } => None,
        }
    }

    /// The object with this name in Lua, or else with this label.
    pub fn object(&self, name: &str) -> Option<&SiteObject> {
        let has_label = |object: &&SiteObject| object.label.as_deref() == Some(name);
        self.objects.iter().find(|object| object.id == name).or_else(|| self.objects.iter().find(has_label))
    }
}

/// The file while its entries are checked.
struct SiteReader<'a> {
    path: &'a Path,
    text: &'a str,
}

impl SiteReader<'_> {
    /// The line of a byte, counted from 1.
    fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }

    fn error(&self, at: usize, reason: impl Into<String>) -> SiteError {
        SiteError { file: self.path.to_path_buf(), line: Some(self.line(at)), reason: reason.into() }
    }

    /// A path in the file is relative to its folder.
    fn resolve(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    /// The bytes of a file that an entry names.
    fn contents(&self, path: &Spanned<PathBuf>, bytes_max: u64) -> Result<Zeroizing<Vec<u8>>, SiteError> {
        let file = self.resolve(path.get_ref());
        read_file(&file, bytes_max)
            .map_err(|reason| self.error(path.span().start, format!("{}: {reason}", file.display())))
    }

    /// The text of a file that an entry names.
    fn text_of(&self, path: &Spanned<PathBuf>, bytes_max: u64) -> Result<Zeroizing<String>, SiteError> {
        let bytes = self.contents(path, bytes_max)?;
        let text = std::str::from_utf8(&bytes).map(|text| Zeroizing::new(text.to_string()));
        text.map_err(|_| self.wrong(path, "the file is not UTF-8"))
    }

    /// An error in a file that an entry names.
    fn wrong(&self, path: &Spanned<PathBuf>, reason: impl fmt::Display) -> SiteError {
        self.error(path.span().start, format!("{}: {reason}", self.resolve(path.get_ref()).display()))
    }

    fn clu(&self, name: String, entry: Spanned<CluEntry>) -> Result<SiteClu, SiteError> {
        let at = entry.span().start;
        let entry = entry.into_inner();
        let mut warnings = Vec::new();
        let project = entry.project.as_ref().map(|path| self.project(path)).transpose()?;
        let place = match &entry.folder {
            Some(folder) => {
                if let Some(address) = &entry.address {
                    let reason = format!("CLU \"{name}\" has a folder and an address; remove one of them");
                    return Err(self.error(address.span().start, reason));
                }
                let storage = entry.storage.as_ref().map(|storage| self.resolve(storage));
                CluPlace::Process { folder: self.resolve(folder.get_ref()), storage }
            }
            None => self.network(&name, at, &entry, project.as_ref(), &mut warnings)?,
        };
        let om = match (&entry.om, &place) {
            (Some(om), _) => Some(OmLua::parse(&self.text_of(om, FILE_BYTES_MAX)?)),
            (None, CluPlace::Process { folder, .. }) if has_script(folder, "OM.LUA") => {
                let text = read_script(folder, "OM.LUA");
                Some(OmLua::parse(&text.map_err(|error| self.error(at, format!("OM.LUA of CLU \"{name}\": {error}")))?))
            }
            (None, _) => None,
        };
        let mut interfaces = InterfaceTable::default();
        if let Some(folder) = &entry.interfaces {
            self.interfaces(folder, &mut interfaces)?;
        }
        let om = om.unwrap_or_default();
        for (n_left_out, file) in
            [(om.n_left_out, "OM.LUA"), (project.as_ref().map_or(0, |project| project.n_left_out), "the project")]
        {
            if n_left_out > 0 {
                warnings.push(format!("CLU \"{name}\": {n_left_out} objects of {file} are left out: too many"));
            }
        }
        let address = match &place {
            CluPlace::Network { address, .. } => Some(*address),
            CluPlace::Process { .. } => None,
        };
        let of_clu = |project| Some(objects::of_clu(project, clu_of_project(project, &name, address)?));
        let in_project = project.as_ref().and_then(of_clu).unwrap_or_default();
        let objects = objects::objects(om.objects, &in_project, &mut interfaces);
        let unknown = objects.iter().filter(|object| object.interface.is_none()).map(|object| object.id.as_str());
        let unknown: Vec<&str> = unknown.collect();
        if !unknown.is_empty() {
            let list = unknown.join(", ");
            warnings.push(format!(
                "CLU \"{name}\": no interface describes the class of {list}; interfaces = \"FOLDER\" names the folder of \
                 interface files, and project = \"FILE\" a project of Object Manager"
            ));
        }
        let prefix = entry.prefix.unwrap_or_else(|| format!("{name}:"));
        Ok(SiteClu { name, prefix, place, objects, variables: om.variables, warnings })
    }

    fn network(
        &self,
        name: &str,
        at: usize,
        entry: &CluEntry,
        project: Option<&OmProject>,
        warnings: &mut Vec<String>,
    ) -> Result<CluPlace, SiteError> {
        let address = entry.address.as_ref().map(|address| {
            parse_address(address.get_ref()).ok_or_else(|| {
                let reason = format!("\"{}\" is not an IPv4 address, or one with a port", address.get_ref());
                self.error(address.span().start, reason)
            })
        });
        let address = address.transpose()?;
        let of_project = project.and_then(|project| clu_of_project(project, name, address));
        let in_project = of_project.and_then(|clu| clu.address).map(|address| SocketAddr::from((address, CLU_PORT)));
        let address = address.or(in_project).ok_or_else(|| {
            self.error(at, format!("CLU \"{name}\" needs an address, a project that contains it, or a folder"))
        })?;
        let key = match (&entry.keys, project) {
            (Some(path), _) => self.key(path, warnings)?,
            (None, Some(project)) => project.key.clone(),
            (None, None) => return Err(self.error(at, format!("CLU \"{name}\" needs keys or a project"))),
        };
        let serial = entry.serial.as_ref().map(|serial| {
            let wrong = || self.error(serial.span().start, "the serial number must have 1 to 16 hexadecimal digits");
            Serial::parse(serial.get_ref()).ok_or_else(wrong)
        });
        let serial = serial.transpose()?.or(of_project.and_then(|clu| clu.serial));
        Ok(CluPlace::Network { address, key, serial })
    }

    fn key(&self, path: &Spanned<PathBuf>, warnings: &mut Vec<String>) -> Result<CipherKey, SiteError> {
        let text = self.text_of(path, fodo_clu::limit::KEY_FILE_BYTES_MAX as u64)?;
        let keys = KeyFile::parse(&text).map_err(|error| self.wrong(path, error))?;
        let file = self.resolve(path.get_ref());
        if is_open_to_others(&file) {
            warnings.push(format!("{}: others can read the keys; chmod 600 restricts them to you", file.display()));
        }
        Ok(keys.project)
    }

    fn project(&self, path: &Spanned<PathBuf>) -> Result<OmProject, SiteError> {
        let bytes = self.contents(path, fodo_clu::limit::PROJECT_BYTES_MAX as u64)?;
        OmProject::parse(&bytes).map_err(|error| self.wrong(path, error))
    }

    /// Reads the interface files of a folder and of those in it.
    fn interfaces(&self, folder: &Spanned<PathBuf>, interfaces: &mut InterfaceTable) -> Result<(), SiteError> {
        let mut folders = vec![self.resolve(folder.get_ref())];
        let mut files = Vec::new();
        while let Some(folder_path) = folders.pop() {
            let wrong = |error| self.error(folder.span().start, format!("{}: {error}", folder_path.display()));
            for entry in fs::read_dir(&folder_path).map_err(wrong)? {
                let entry = entry.map_err(wrong)?;
                let path = entry.path();
                // Links are not followed, so that a folder is not visited twice.
                match entry.file_type().map_err(wrong)? {
                    kind if kind.is_dir() => folders.push(path),
                    _ if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("xml")) => {
                        files.push(path)
                    }
                    _ => {}
                }
                if files.len() + folders.len() > INTERFACE_FILES_MAX {
                    let reason = format!("the folder has more than {INTERFACE_FILES_MAX} files and folders");
                    return Err(self.wrong(folder, reason));
                }
            }
        }
        files.sort();
        for file in files {
            let wrong = |reason: String| SiteError { file: file.clone(), line: None, reason };
            let bytes = read_file(&file, fodo_clu::limit::INTERFACE_BYTES_MAX as u64).map_err(wrong)?;
            let text = std::str::from_utf8(&bytes).map_err(|_| wrong("the file is not UTF-8".into()))?;
            interfaces.add(ObjectInterface::parse(text).map_err(|error| wrong(error.to_string()))?);
        }
        Ok(())
    }
}

/// The CLU of a project with this name, or else with this address, or else the only one.
fn clu_of_project<'a>(project: &'a OmProject, name: &str, address: Option<SocketAddr>) -> Option<&'a ProjectClu> {
    let named = |clu: &&ProjectClu| clu.object == name || clu.name.as_deref() == Some(name);
    let at = |clu: &&ProjectClu| clu.address.map(Into::into) == address.map(|address| address.ip());
    let only = || project.clus.first().filter(|_| project.clus.len() == 1 && address.is_none());
    let of_address = || address.and_then(|_| project.clus.iter().find(at));
    project.clus.iter().find(named).or_else(of_address).or_else(only)
}

/// An address with or without a port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let with_port = text.parse::<SocketAddr>().ok().filter(SocketAddr::is_ipv4);
    with_port.or_else(|| text.parse::<Ipv4Addr>().ok().map(|address| SocketAddr::from((address, CLU_PORT))))
}

/// The contents of a file, or why it cannot be read. They may be keys.
fn read_file(path: &Path, bytes_max: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file".into());
    }
    // Memory for all of it from the start, so that no part remains where it was before.
    let n_bytes = metadata.len().min(bytes_max) as usize + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(n_bytes));
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > bytes_max {
        return Err(format!("the file has more than {bytes_max} bytes"));
    }
    Ok(bytes)
}

#[cfg(unix)]
fn is_open_to_others(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_open_to_others(_file: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = r#"{"key":"eJe4Zp7oKJDePyX6B2lCXg==","iv":"m/8H/39zfj7xBxlf29X53A=="}"#;

    /// A folder that is removed at the end.
    struct TestFolder(PathBuf);

    impl TestFolder {
        fn new(name: &str, files: &[(&str, &str)]) -> TestFolder {
            let folder = std::env::temp_dir().join(format!("fodo-site-{name}-{}", std::process::id()));
            for (file, text) in files {
                let path = folder.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            TestFolder(folder)
        }

        fn read(&self) -> Result<CluSite, SiteError> {
            CluSite::read(self.0.join("site.toml"))
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_clu_on_the_network_has_address_key_and_objects() {
        let om = "CLU1 = OBJECT:new(0, 1, \"CLU1\")\nT1 = OBJECT:new(18, \"T1\")\n-- NAME_PERIPHERY Bath=T1\n\
                  P1 = OBJECT:new(20, MOD1, 0, \"P1\")\nQ1 = OBJECT:new(77, \"Q1\")\nsetpoint = 21 -- number\n";
        let sensor = "<object class=\"20\" name=\"TEMP\"><features><feature index=\"0\" name=\"Value\" type=\"num\" \
                      get=\"true\"/></features></object>";
        let folder = TestFolder::new(
            "network",
            &[
                ("keys.json", KEYS),
                ("OM.LUA", om),
                ("xml/object_temp.xml", sensor),
                (
                    "site.toml",
                    "[clu.house]\naddress = \"10.0.0.2\"\nkeys = \"keys.json\"\nom = \"OM.LUA\"\ninterfaces = \"xml\"\n\
                     serial = \"0d0a1b2c\"\n",
                ),
            ],
        );

        let site = folder.read().unwrap();

        let house = site.clu("house").unwrap();
        assert_eq!((house.address(), house.prefix.as_str()), (Some(([10, 0, 0, 2], 1234).into()), "house:"));
        assert!(house.key().is_some());
        assert!(matches!(house.place, CluPlace::Network { serial: Some(Serial(0x0d0a_1b2c)), .. }));
        let bath = house.object("Bath").unwrap();
        assert_eq!(bath.id, "T1");
        assert!(bath.interface.as_ref().is_some_and(|interface| interface.feature("PointValue").is_some()));
        let sensor = house.object("P1").and_then(|object| object.interface.clone()).unwrap();
        assert_eq!(sensor.features.len(), 1);
        assert!(house.object("Q1").is_some_and(|object| object.interface.is_none()));
        assert!(house.warnings.iter().any(|warning| warning.contains("class of Q1")), "{:?}", house.warnings);
        assert_eq!(house.variables.len(), 1);
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        for (text, line, part) in [
            ("[clu.a]\naddress = 5\n", Some(2), "string"),
            ("[clu.a]\n\nadress = \"10.0.0.2\"\n", Some(3), "adress"),
            ("[clu.a]\naddress = \"house\"\n", Some(2), "is not an IPv4 address"),
            ("\n[clu.a]\nprefix = \"a:\"\n", Some(2), "needs an address"),
            ("[clu.a]\naddress = \"10.0.0.2\"\n", Some(1), "needs keys or a project"),
            ("[clu.a]\naddress = \"10.0.0.2\"\nkeys = \"none.json\"\n", Some(3), "none.json"),
            ("[clu.a]\naddress = \"10.0.0.2\"\nkeys = \"site.toml\"\n", Some(3), "line 1 is not valid JSON"),
            ("[clu.a]\naddress = \"10.0.0.2\"\nfolder = \"x\"\n", Some(2), "remove one"),
            ("", None, "names no CLU"),
        ] {
            let folder = TestFolder::new("errors", &[("site.toml", text)]);
            let error = folder.read().unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.reason.contains(part), "{text}: {error}");
            assert!(error.to_string().contains("site.toml"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn keys_that_others_can_read_are_reported() {
        use std::os::unix::fs::PermissionsExt;

        let text = "[clu.a]\naddress = \"10.0.0.2:2000\"\nkeys = \"keys.json\"\n";
        let folder = TestFolder::new("mode", &[("site.toml", text), ("keys.json", KEYS)]);
        let warnings = |mode| {
            fs::set_permissions(folder.0.join("keys.json"), fs::Permissions::from_mode(mode)).unwrap();
            folder.read().unwrap().clus[0].warnings.len()
        };

        assert_eq!((warnings(0o600), warnings(0o644)), (0, 1));
    }
}
