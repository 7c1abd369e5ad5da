//! The keys, the CLUs and their objects in a project of Object Manager, a file with the extension `.omp`.
//!
//! A project is a ZIP archive. Its `properties.xml` contains the key of the project, its `system.xml` the CLUs and the
//! objects. The bytes of the file come from the caller; no file is written.

mod objects;

use std::fmt;
use std::net::Ipv4Addr;

use base64ct::{Base64, Encoding};
use roxmltree::{Document, Node, ParsingOptions};
use zeroize::Zeroizing;

pub use self::objects::ProjectObject;
use crate::archive;
pub use crate::archive::ArchiveFlaw;
use crate::cipher::{CipherKey, PIN_BYTES, Pin};
use crate::command::Serial;
use crate::keys::{self, KeyError};
use crate::limit;

/// What a client needs of a project.
///
/// ```
/// use fodo_clu::omp::{OmProject, ProjectError};
///
/// # fn names(bytes: &[u8]) -> Result<Vec<String>, ProjectError> {
/// let project = OmProject::parse(bytes)?;
/// let clu = project.clus.first().map(|clu| clu.object.as_str());
/// let of_clu = project.objects.iter().filter(|object| object.clu.as_deref() == clu);
/// # Ok(
/// of_clu.map(|object| format!("{}: {} features", object.id, object.interface.features.len())).collect()
/// # )
/// # }
/// # assert!(names(b"no archive").is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct OmProject {
    /// The key of all CLUs of the project.
    pub key: CipherKey,
    /// The CLUs in the order of the file.
    pub clus: Vec<ProjectClu>,
    /// The objects of all CLUs and the CLUs themselves, in the order of the file.
    pub objects: Vec<ProjectObject>,
    /// How many CLUs and objects were left out because the project has more than [`limit::PROJECT_CLUS_MAX`] or
    /// [`limit::PROJECT_OBJECTS_MAX`].
    pub n_left_out: usize,
}

/// A CLU of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectClu {
    /// The name of its object in Lua, for example `CLU221011038`.
    pub object: String,
    /// The name that a person chose.
    pub name: Option<String>,
    /// Its address, if it has one.
    pub address: Option<Ipv4Addr>,
    /// The serial number.
    pub serial: Option<Serial>,
    /// The PIN on its label.
    pub pin: Option<Pin>,
}

/// Why a project was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectError {
    /// The file has more than [`limit::PROJECT_BYTES_MAX`].
    TooLarge,
    /// This file cannot be read from the archive.
    Archive {
        /// The name of the file in the archive.
        file: &'static str,
        /// What is wrong.
        flaw: ArchiveFlaw,
    },
    /// The archive does not contain this file.
    MissingFile(&'static str),
    /// This file has more elements than [`limit::PROJECT_XML_NODES_MAX`].
    TooManyElements(&'static str),
    /// This file is not XML.
    NoXml {
        /// The name of the file.
        file: &'static str,
        /// The line with the error, counted from 1; 0 if it is unknown.
        line: u32,
    },
    /// `properties.xml` contains no valid key.
    Key(KeyError),
}

impl fmt::Display for ProjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProjectError::TooLarge => f.write_str("the file is too large for a project of Object Manager"),
            ProjectError::Archive { file, flaw } => write!(f, "cannot read {file} of the project: {flaw}"),
            ProjectError::MissingFile(file) => write!(f, "the project does not contain {file}"),
            ProjectError::TooManyElements(file) => write!(f, "{file} in the project has too many elements"),
            ProjectError::NoXml { file, line } => write!(f, "{file} in the project: line {line} is not valid XML"),
            ProjectError::Key(error) => {
                write!(f, "properties.xml in the project: {error}; open the project once in Object Manager")
            }
        }
    }
}

impl std::error::Error for ProjectError {}

const PROPERTIES: &str = "properties.xml";
const SYSTEM: &str = "system.xml";

impl OmProject {
    /// Reads the bytes of a file.
    pub fn parse(bytes: &[u8]) -> Result<OmProject, ProjectError> {
        if bytes.len() > limit::PROJECT_BYTES_MAX {
            return Err(ProjectError::TooLarge);
        }
        let key = project_key(&document(PROPERTIES, &xml(bytes, PROPERTIES)?)?)?;
        let text = xml(bytes, SYSTEM)?;
        let system = document(SYSTEM, &text)?;
        let (objects, n_left_out) = objects::objects(&system);
        let mut project = OmProject { key, clus: Vec::new(), objects, n_left_out };
        project.add_clus(&system);
        Ok(project)
    }

    /// Adds each element that has both a name in Lua and an address, which only CLUs have.
    fn add_clus(&mut self, system: &Document<'_>) {
        for node in system.descendants().filter(Node::is_element) {
            let name = child_text(node, "nameOnCLU").filter(|_| child(node, "ipAddress").is_some());
            let Some(object) = name.map(lua_name) else { continue };
            if self.clus.iter().any(|clu| clu.object == object) {
                continue;
            }
            if self.clus.len() >= limit::PROJECT_CLUS_MAX {
                self.n_left_out += 1;
                continue;
            }
            let serial = child_text(node, "serialNumber").map_or_else(|| serial_in_name(&object), Serial::parse);
            self.clus.push(ProjectClu {
                object,
                name: child_text(node, "name").map(str::to_string),
                address: child_text(node, "ipAddress").and_then(|address| address.parse().ok()),
                serial,
                pin: child_text(node, "privateKey").and_then(pin),
            });
        }
    }
}

fn xml(archive: &[u8], file: &'static str) -> Result<Zeroizing<Vec<u8>>, ProjectError> {
    let contents = archive::file(archive, file, limit::PROJECT_XML_BYTES_MAX);
    contents.map_err(|flaw| ProjectError::Archive { file, flaw })?.ok_or(ProjectError::MissingFile(file))
}

fn document<'a>(file: &'static str, text: &'a [u8]) -> Result<Document<'a>, ProjectError> {
    let text = std::str::from_utf8(text).map_err(|error| {
        let lines_before = text[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        ProjectError::NoXml { file, line: lines_before as u32 + 1 }
    })?;
    let options = ParsingOptions { nodes_limit: limit::PROJECT_XML_NODES_MAX, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).map_err(|error| match error {
        roxmltree::Error::NodesLimitReached => ProjectError::TooManyElements(file),
        error => ProjectError::NoXml { file, line: error.pos().row },
    })
}

fn project_key(properties: &Document<'_>) -> Result<CipherKey, ProjectError> {
    let missing = |name| ProjectError::Key(KeyError::Missing(name));
    let mut elements = properties.descendants();
    let both = elements.find(|node| node.has_tag_name("projectCipherKey")).ok_or(missing("projectCipherKey"))?;
    let key = child_text(both, "keyBytes").ok_or(missing("keyBytes"))?;
    let iv = child_text(both, "ivBytes").ok_or(missing("ivBytes"))?;
    keys::project_key(("keyBytes", key), ("ivBytes", iv)).map_err(ProjectError::Key)
}

fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.has_tag_name(name))
}

/// The text of a child without blanks around it; `None` if it is empty.
fn child_text<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    child(node, name)?.text().map(str::trim).filter(|text| !text.is_empty())
}

/// The name of an object in Lua; some projects leave out the start of the name of a CLU.
fn lua_name(name: &str) -> String {
    if name.bytes().all(|byte| byte.is_ascii_digit()) { format!("CLU{name}") } else { name.to_string() }
}

/// The serial number in the name of a CLU: nine decimal digits. Other numbers in names are not serial numbers.
fn serial_in_name(object: &str) -> Option<Serial> {
    let digits = object.strip_prefix("CLU").filter(|digits| digits.len() == 9)?;
    digits.parse().ok().map(Serial)
}

/// The PIN from its Base64.
fn pin(text: &str) -> Option<Pin> {
    let mut characters = Zeroizing::new([0; PIN_BYTES]);
    let decoded = Base64::decode(text, &mut characters[..]).ok()?;
    Pin::new(std::str::from_utf8(decoded).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::tests::{Method, archive};
    use crate::cipher::tests::{PROJECT_IV, PROJECT_KEY};

    const KEYS: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<object-stream><ProjectProperties id=\"1\"><projectCipherKey>\n\
                        <keyBytes>eJe4Zp7oKJDePyX6B2lCXg==</keyBytes>\n<ivBytes> m/8H/39zfj7xBxlf29X53A== </ivBytes>\n\
                        </projectCipherKey></ProjectProperties></object-stream>";

    const HOUSE: &str = "<object-stream><TreeObject id=\"1\"><specificObject class=\"clu\" id=\"2\"><name>House</name>\
                         <nameOnCLU>CLU221011038</nameOnCLU><ipAddress>192.168.0.10</ipAddress>\
                         <privateKey>MTIzNDU2Nzg=</privateKey></specificObject><children><TreeObject>\
                         <specificObject><name>Light</name><nameOnCLU>DOU1234</nameOnCLU><clu><nameOnCLU>CLU221011038\
                         </nameOnCLU><ipAddress/></clu></specificObject></TreeObject></children></TreeObject>\
                         <x><nameOnCLU>GATE</nameOnCLU><ipAddress/><serialNumber>0d2c3ebd</serialNumber></x>\
                         <x><nameOnCLU>856739</nameOnCLU><ipAddress/></x></object-stream>";

    #[test]
    fn a_project_has_its_key_and_its_clus() {
        let bytes =
            archive(&[("scripts/a.lua", "x"), ("properties.xml", KEYS), ("system.xml", HOUSE)], Method::Deflated);

        let project = OmProject::parse(&bytes).expect("a project");

        assert_eq!(project.key, CipherKey::new(PROJECT_KEY, PROJECT_IV));
        let house = ProjectClu {
            object: "CLU221011038".into(),
            name: Some("House".into()),
            address: Some([192, 168, 0, 10].into()),
            serial: Some(Serial(221_011_038)),
            pin: Pin::new("12345678"),
        };
        let without_name =
            |object: &str, serial| ProjectClu { object: object.into(), name: None, address: None, serial, pin: None };
        let gate = without_name("GATE", Some(Serial(221_003_453)));
        assert_eq!(project.clus, [house, gate, without_name("CLU856739", None)]);
        let objects: Vec<_> = project.objects.iter().map(|object| object.id.as_str()).collect();
        assert_eq!(objects, ["CLU221011038", "DOU1234", "GATE", "CLU856739"]);
        assert_eq!(project.n_left_out, 0);
    }

    #[test]
    fn an_invalid_project_is_rejected_with_its_file() {
        let error =
            |files: &[(&str, &str)]| OmProject::parse(&archive(files, Method::Stored)).expect_err("an invalid project");

        let no_archive = ProjectError::Archive { file: PROPERTIES, flaw: ArchiveFlaw::NoArchive };
        assert_eq!(OmProject::parse(b"no archive"), Err(no_archive));
        assert_eq!(error(&[("system.xml", HOUSE)]), ProjectError::MissingFile(PROPERTIES));
        assert_eq!(error(&[("properties.xml", KEYS)]), ProjectError::MissingFile(SYSTEM));
        let no_key = ProjectError::Key(KeyError::Missing("projectCipherKey"));
        assert_eq!(error(&[("properties.xml", "<a/>"), ("system.xml", HOUSE)]), no_key);
        let short = KEYS.replace("eJe4Zp7oKJDePyX6B2lCXg==", "eJe4");
        let invalid = ProjectError::Key(KeyError::Invalid { name: "keyBytes", expected_bytes: 16 });
        assert_eq!(error(&[("properties.xml", &short), ("system.xml", HOUSE)]), invalid);
        let no_xml = ProjectError::NoXml { file: SYSTEM, line: 2 };
        assert_eq!(error(&[("properties.xml", KEYS), ("system.xml", "<a>\n</b>")]), no_xml);
        let with_entities = "<!DOCTYPE a [<!ENTITY b \"bbbb\">]><a>&b;</a>";
        let error = error(&[("properties.xml", KEYS), ("system.xml", with_entities)]);
        assert!(matches!(error, ProjectError::NoXml { file: SYSTEM, .. }), "{error}");
    }

    /// 32 MB of blanks are some kilobytes in the archive.
    #[test]
    fn an_archive_that_expands_without_end_is_rejected() {
        let blanks = " ".repeat(limit::PROJECT_XML_BYTES_MAX + 1);
        let bytes = archive(&[("properties.xml", &blanks), ("system.xml", HOUSE)], Method::Deflated);

        assert!(bytes.len() < limit::PROJECT_XML_BYTES_MAX / 100);
        let expected = ProjectError::Archive { file: PROPERTIES, flaw: ArchiveFlaw::TooLarge };
        assert_eq!(OmProject::parse(&bytes), Err(expected));
    }

    #[test]
    fn damaged_archives_cause_no_panic() {
        let bytes = archive(&[("properties.xml", KEYS), ("system.xml", HOUSE)], Method::Deflated);
        let mut random = fastrand::Rng::with_seed(5);
        let mut n_rejected = 0;
        for _ in 0..3000 {
            let mut damaged = bytes.clone();
            for _ in 0..random.usize(1..4) {
                let index = random.usize(..damaged.len());
                damaged[index] = random.u8(..);
            }
            damaged.truncate(random.usize(damaged.len() / 2..=damaged.len()));
            n_rejected += usize::from(OmProject::parse(&damaged).is_err());
        }
        assert!(n_rejected > 2000, "{n_rejected}");
    }
}
