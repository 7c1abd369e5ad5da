//! The other CLUs of a project: their addresses and keys.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use fodo_clu::cipher::CipherKey;
use fodo_clu::omp::ProjectObject;
use fodo_lock::Mutex;

/// Another CLU, by the name that `OBJECT:new(1, address, name)` gives it.
#[derive(Clone, Debug)]
pub struct PeerClu {
    /// Where it receives requests.
    pub address: SocketAddr,
    /// Its key; `None`: that of the project.
    pub key: Option<CipherKey>,
}

/// The other CLUs that RemoteCLU objects call. Clones share them.
///
/// A CLU that is not named here has the address of its constructor, the port of the protocol and the key of the project.
///
/// ```
/// use fodo_clu::cipher::CipherKey;
/// use fodo_vclu::{PeerClu, PeerClus, VcluConfig};
///
/// let mut config = VcluConfig::new("house");
/// config.peers.set_project_key(CipherKey::new([1; 16], [2; 16]));
/// config.peers.insert("CLU0002", PeerClu { address: "10.0.0.2:1234".parse()?, key: None });
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct PeerClus {
    shared: Arc<Mutex<PeerTable>>,
}

#[derive(Debug, Default)]
struct PeerTable {
    project_key: Option<CipherKey>,
    by_name: HashMap<String, PeerClu>,
    /// The CLUs of the RemoteCLU objects that exist.
    constructed: BTreeMap<String, PeerClu>,
    /// The objects of a project.
    objects: Vec<ProjectObject>,
}

impl PeerClus {
    /// Sets the key of the project, which the next calls use. A [`VcluServer`](crate::VcluServer) sets its own.
    pub fn set_project_key(&self, key: CipherKey) {
        self.shared.lock().project_key = Some(key);
    }

    /// Adds a CLU or replaces the one with this name; RemoteCLU objects that exist keep theirs until a reset.
    pub fn insert(&self, name: impl Into<String>, peer: PeerClu) {
        self.shared.lock().by_name.insert(name.into(), peer);
    }

    /// Sets the objects of the project. Home Assistant discovery also announces those of the CLUs that RemoteCLU objects call.
    ///
    /// ```
    /// use fodo_clu::omp::{OmProject, ProjectError};
    /// use fodo_vclu::PeerClus;
    ///
    /// # fn set(peers: &PeerClus, bytes: &[u8]) -> Result<(), ProjectError> {
    /// peers.set_objects(OmProject::parse(bytes)?.objects);
    /// # Ok(())
    /// # }
    /// # assert!(set(&PeerClus::default(), b"no archive").is_err());
    /// ```
    pub fn set_objects(&self, objects: Vec<ProjectObject>) {
        self.shared.lock().objects = objects;
    }

    /// Notes the CLU of a RemoteCLU object.
    pub(crate) fn note(&self, name: String, peer: PeerClu) {
        self.shared.lock().constructed.insert(name, peer);
    }

    /// The CLUs of the RemoteCLU objects, by their names.
    pub(crate) fn constructed(&self) -> BTreeMap<String, PeerClu> {
        self.shared.lock().constructed.clone()
    }

    /// The objects of a CLU in the project.
    pub(crate) fn objects_of(&self, clu: &str) -> Vec<ProjectObject> {
        let shared = self.shared.lock();
        shared.objects.iter().filter(|object| object.clu.as_deref() == Some(clu)).cloned().collect()
    }

    pub(crate) fn project_key(&self) -> Option<CipherKey> {
        self.shared.lock().project_key.clone()
    }

    pub(crate) fn find(&self, name: &str) -> Option<PeerClu> {
        self.shared.lock().by_name.get(name).cloned()
    }
}
