//! The objects of a CLU as PVs: [`CluPvs`].
//!
//! One thread for each CLU runs the puts and calls of clients as tasks, and reads the values of a CLU in this process. A CLU
//! on the network reports its values; they are posted by the thread of the connection.

mod build;
mod core;
mod end;
pub(crate) mod lights;
mod limits;
mod names;
mod shape;
mod status;
mod tasks;
mod value;
mod view;

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use fodo_clu::interface::ObjectInterface;
use fodo_clu::om_lua::UserVariable;
use fodo_lock::{Condvar, Mutex, Rank};
use fodo_net::clu::{CluConnection, CluConnectionConfig, CluMonitor};
use fodo_net::{PvTable, ServedPv, Source};

use self::build::PvBuilder;
use self::core::PvCore;
pub use self::end::CluEnd;
use self::end::ValueItem;
use self::status::LinkPvs;
use self::tasks::TaskQueue;
use self::value::ValuePv;
use crate::actor::VirtualClu;
use crate::engine::request::{ObjectListing, ReplyTo, VcluConfig, VcluRequest};
use crate::limit::{LIST_TIMEOUT, PV_PERIOD};
use crate::site::{CluPlace, SiteClu, SiteObject};

/// Which PVs are made: with `false` a PV does not exist.
pub type PvPathFilter = dyn Fn(&PvPath) -> bool;

/// What a PV stands for. [`CluPvs::name_of`] has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvPath {
    /// The name in Lua and the label of its object; `None` for a user variable and the status of the connection.
    pub object: Option<(String, Option<String>)>,
    /// The name of the feature, method, event or variable; empty for the structure of an object.
    pub member: String,
    /// The index of a feature.
    pub index: Option<u32>,
}

impl PvPath {
    /// Whether a person means this PV by `OBJECT/FEATURE`, `OBJECT` or `VARIABLE`: names, labels, or the index of a feature.
    pub fn matches(&self, text: &str) -> bool {
        let is_member = |text: &str| self.member == text || self.index.is_some_and(|index| index.to_string() == text);
        match (&self.object, text.split_once('/')) {
            (Some((id, label)), Some((object, member))) => {
                (id == object || label.as_deref() == Some(object)) && is_member(member)
            }
            (Some((id, label)), None) => self.member.is_empty() && (id == text || label.as_deref() == Some(text)),
            (None, None) => self.member == text,
            (None, Some(_)) => false,
        }
    }
}

/// What the PVs of a CLU need to start.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_vclu::{CluEnd, CluPvConfig, CluPvs, VcluConfig, VirtualClu};
///
/// # let folder = std::env::temp_dir().join(format!("fodo-clu-pvs-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let folder = folder.as_path();
/// let clu = Arc::new(VirtualClu::start(VcluConfig::new(folder))?);
/// let pvs = CluPvs::start(CluPvConfig::new("desk:", CluEnd::Process(clu)))?;
/// // Served beside other PVs by `fodo_net::SourceChain`, or alone by `fodo_net::Server`.
/// assert!(fodo_net::Source::serves(&*pvs, "desk:LINK:ALIVE"));
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CluPvConfig {
    /// The start of the names of all PVs.
    pub prefix: String,
    /// The CLU.
    pub end: CluEnd,
    /// Its objects; `None`: those that a CLU in this process lists.
    pub objects: Option<Vec<SiteObject>>,
    /// Its user variables.
    pub variables: Vec<UserVariable>,
    /// Whether no client may write or call.
    pub is_read_only: bool,
    /// Which PVs are made; `None`: all.
    pub filter: Option<Box<PvPathFilter>>,
}

impl CluPvConfig {
    /// All PVs, without user variables.
    pub fn new(prefix: impl Into<String>, end: CluEnd) -> CluPvConfig {
        let (objects, variables, filter) = (None, Vec::new(), None);
        CluPvConfig { prefix: prefix.into(), end, objects, variables, is_read_only: false, filter }
    }

    /// The PVs of a CLU of a site: opens the connection to it, or starts it if it runs in this process. The zone of a CLU in
    /// this process is UTC until a script sets it. [`CluPvs`] has an example.
    pub fn of_site(clu: &SiteClu) -> io::Result<CluPvConfig> {
        let end = match &clu.place {
            CluPlace::Network { address, key, serial } => {
                let config = CluConnectionConfig { serial: *serial, ..CluConnectionConfig::new(*address, key.clone()) };
                CluEnd::Network(CluConnection::open(config)?)
            }
            CluPlace::Process { folder, storage } => {
                let config = VcluConfig { storage: storage.clone(), ..VcluConfig::new(folder) };
                CluEnd::Process(Arc::new(VirtualClu::start(config)?))
            }
        };
        let (objects, variables) = (Some(clu.objects.clone()), clu.variables.clone());
        Ok(CluPvConfig { objects, variables, ..CluPvConfig::new(clu.prefix.clone(), end) })
    }
}

/// The PVs of a CLU, as a source for a server. Dropping it ends the connection.
///
/// A feature, a user variable, an event and a method without or with one argument are PVs of both protocols. An object is
/// also a structure of pvAccess with all of its features, and a method with several arguments is a procedure. A text is also
/// an array of characters under its name with `$`.
///
/// ```
/// use std::time::Duration;
///
/// use fodo_vclu::{CluPvConfig, CluPvs, CluSite};
///
/// # let folder = std::env::temp_dir().join(format!("fodo-clu-source-{}", std::process::id()));
/// # std::fs::create_dir_all(folder.join("clu"))?;
/// # std::fs::write(folder.join("clu/OM.LUA"), "TIM1 = OBJECT:new(6, \"TIM1\")\n")?;
/// # std::fs::write(folder.join("clu/MAIN.LUA"), "require \"om\"\nfunction checkAlive() return \"1\" end\nrepeat SYSTEM.Loop() until false\n")?;
/// # std::fs::write(folder.join("site.toml"), "[clu.desk]\nfolder = \"clu\"\n")?;
/// let site = CluSite::read(folder.join("site.toml"))?;
/// let config = CluPvConfig::of_site(site.clu("desk").ok_or("the site has a CLU desk")?)?;
/// let pvs = CluPvs::start(config)?;
/// assert!(pvs.wait_for_values(Duration::from_secs(10)));
/// assert_eq!(pvs.name_of("TIM1/Time").as_deref(), Some("desk:TIM1:Time"));
/// assert_eq!(pvs.problems(), [""; 0]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CluPvs {
    core: Arc<PvCore>,
    table: PvTable,
    /// The texts as characters, with `$` at the end of the name. They are not listed.
    long_texts: PvTable,
    paths: Vec<(PvPath, String)>,
    problems: Vec<String>,
    /// Of a CLU on the network. `None` once it ends.
    monitor: Option<CluMonitor>,
    thread: Option<JoinHandle<()>>,
}

impl CluPvs {
    /// Makes the PVs and starts to read their values. Does not wait for a CLU on the network.
    ///
    /// Fails if the system provides no thread, if the CLU has too many objects to subscribe to, or if a CLU in this process
    /// does not list its objects.
    pub fn start(config: CluPvConfig) -> io::Result<Arc<CluPvs>> {
        let site_objects = match (&config.objects, &config.end) {
            (Some(objects), _) => objects.clone(),
            (None, CluEnd::Process(clu)) => list(clu)?,
            (None, CluEnd::Network(_)) => Vec::new(),
        };
        let has_events = matches!(config.end, CluEnd::Process(_));
        let (mut table, mut long_texts, mut paths, mut problems) = Default::default();
        let core = Arc::new_cyclic(|core| {
            let filter = config.filter.as_deref();
            let mut build = PvBuilder::new(&config.prefix, config.is_read_only, has_events, filter, core.clone());
            let status = LinkPvs::new();
            build.add_named(status.named());
            site_objects.iter().for_each(|object| build.add_object(object));
            config.variables.iter().for_each(|variable| build.add_variable(variable));
            let PvBuilder { names, values, methods, objects, .. } = build;
            (table, long_texts, paths, problems) = (build.table, build.long_texts, build.paths, names.problems);
            let is_own = |item: &ValueItem| has_events && !matches!(item, ValueItem::Colour { .. });
            let is_read =
                |value: &ValuePv| value.is_readable && (is_own(&value.item) || end::listed(&value.item).is_some());
            let read: Vec<usize> = (0..values.len()).filter(|index| is_read(&values[*index])).collect();
            let class_of = |object: &SiteObject| Some((object.id.clone(), object.interface.as_ref()?.class?));
            PvCore {
                end: config.end.clone(),
                tasks: Arc::default(),
                classes: site_objects.iter().filter_map(class_of).collect(),
                replaced: Mutex::default(),
                new_objects: Mutex::default(),
                n_unknown: Mutex::new(read.len()),
                read,
                values,
                methods,
                objects,
                status,
                is_all_known: Condvar::new(),
                polling: Mutex::default(),
                posting: Mutex::ranked(Rank::CluValues, ()),
            }
        });
        let mut pvs = CluPvs { core, table, long_texts, paths, problems, monitor: None, thread: None };
        pvs.connect()?;
        let (tasks, core): (Arc<TaskQueue>, _) = (pvs.core.tasks.clone(), Arc::downgrade(&pvs.core));
        let tick = move || {
            if let Some(core) = core.upgrade() {
                core.tick();
            }
        };
        let thread = Builder::new().name("fodo-clu-pvs".into()).spawn(move || tasks.run(PV_PERIOD, tick))?;
        pvs.thread = Some(thread);
        Ok(Arc::new(pvs))
    }

    /// Subscribes to the values of a CLU on the network.
    fn connect(&mut self) -> io::Result<()> {
        let CluEnd::Network(connection) = &self.core.end else { return Ok(()) };
        let core = Arc::downgrade(&self.core);
        connection.on_availability(move |availability| {
            if let Some(core) = core.upgrade() {
                core.availability_changed(availability);
            }
        });
        let items = self.core.read.iter().filter_map(|index| end::listed(&self.core.values[*index].item)).collect();
        let core = Arc::downgrade(&self.core);
        let monitor = connection.subscribe(items, move |update| {
            if let Some(core) = core.upgrade() {
                core.reported(update);
            }
        });
        self.monitor = Some(monitor.map_err(io::Error::other)?);
        Ok(())
    }

    /// What has no PV, and why, one line each.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Waits until each value has been read or cannot be. Returns whether that happened in time.
    pub fn wait_for_values(&self, timeout: Duration) -> bool {
        self.core.wait_for_values(timeout)
    }

    /// The name of the PV that a person means by `OBJECT/FEATURE`, `OBJECT` or `VARIABLE`; see [`PvPath::matches`].
    pub fn name_of(&self, text: &str) -> Option<String> {
        self.paths.iter().find(|(path, _)| path.matches(text)).map(|(_, name)| name.clone())
    }
}

impl Drop for CluPvs {
    fn drop(&mut self) {
        self.monitor.take();
        self.core.tasks.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by the thread.
            let _ = thread.join();
        }
    }
}

impl Source for CluPvs {
    fn serves(&self, name: &str) -> bool {
        self.table.serves(name) || self.long_texts.serves(name)
    }

    fn serves_flat(&self, name: &str) -> bool {
        self.table.serves_flat(name) || self.long_texts.serves_flat(name)
    }

    fn open(&self, name: &str) -> Option<ServedPv> {
        self.table.open(name).or_else(|| self.long_texts.open(name))
    }

    fn names(&self) -> Vec<String> {
        self.table.names()
    }
}

/// The objects of a CLU in this process.
fn list(clu: &VirtualClu) -> io::Result<Vec<SiteObject>> {
    let (sender, receiver) = mpsc::channel();
    // It fails if the wait has ended.
    let reply = ReplyTo::new(move |objects| drop(sender.send(objects)));
    let refused = || io::Error::other("the virtual CLU does not list its objects");
    clu.submit(VcluRequest::List { reply }).map_err(|_| refused())?;
    let objects: Vec<ObjectListing> = receiver.recv_timeout(LIST_TIMEOUT).ok().flatten().ok_or_else(refused)?;
    let object = |listing: ObjectListing| SiteObject {
        id: listing.name,
        label: listing.label,
        interface: listing.class.map(|class| Arc::new(ObjectInterface::from(class))),
    };
    Ok(objects.into_iter().map(object).collect())
}
