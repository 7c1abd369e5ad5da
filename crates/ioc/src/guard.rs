//! Who may do what with the records: the rules of an access file, joined to the database and to the clients.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use fodo_data::{Meta, Severity, TimeStamp, Value};
use fodo_db::{Access, AccessFile, AccessInput, AccessPart, ByField, Database, FieldRef, Granted, Security};
use fodo_net::{Peer, Reading, Rights, process};

use crate::IocError;

/// Who may do what; by itself everybody everything.
#[derive(Default)]
pub struct Policy {
    /// An access file (`.acf`) and its macros (`"P=X:,R=1"`).
    pub access_file: Option<(PathBuf, String)>,
    /// Hosts are told apart by the addresses that they connect from, not by the names that they give themselves.
    ///
    /// As `asCheckClientIP` of EPICS Base: names of hosts in the file are looked up when it is read.
    pub goes_by_address: bool,
    /// No client may write, whatever a file says.
    pub is_read_only: bool,
    /// What is told of puts that went through: with an access file of those under TRAPWRITE, else of all.
    ///
    /// Called while no other record is processed, so it must not block.
    pub tell_put: Option<TellPut>,
}

/// What takes note of puts.
pub type TellPut = Box<dyn Fn(PutNote) + Send + Sync>;

/// A put that went through.
#[derive(Clone, Debug, PartialEq)]
pub struct PutNote {
    /// When.
    pub time: TimeStamp,
    /// By whom.
    pub by: Peer,
    /// The record and its field.
    pub pv: String,
    /// What the field was.
    pub old: Value,
    /// What it is after the put.
    pub new: Value,
    /// The field's labels, among others.
    pub meta: Arc<Meta>,
}

/// Which puts are logged, of those that may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    Nothing,
    /// Those after which the field has another value.
    Changes,
    Everything,
}

/// What holds of a policy while the IOC runs.
pub struct Guard {
    policy: Policy,
    /// A `Logged`, as its number.
    logged: AtomicU8,
    /// `None` where there is no access file.
    security: Option<RwLock<Security>>,
}

/// The fields that are inputs of rules.
pub type Inputs = ByField<Vec<AccessInput>>;

/// The PVs of other IOCs that are, by their names.
pub type OutsideInputs = HashMap<Arc<str>, Vec<AccessInput>>;

/// Rules that are ready, but do not hold yet.
#[derive(Debug)]
pub struct Rules {
    pub security: Security,
    pub inputs: Inputs,
    pub outside_inputs: OutsideInputs,
    /// What is wrong with them, though they can be used.
    pub warnings: Vec<String>,
}

impl Guard {
    /// Everybody may do everything.
    pub fn open() -> Guard {
        Guard { policy: Policy::default(), logged: AtomicU8::new(Logged::Everything as u8), security: None }
    }

    /// Reads the access file, where there is one.
    pub fn new(policy: Policy, database: &Database) -> Result<(Guard, Rules), IocError> {
        let rules = match &policy.access_file {
            Some(_) => read(&policy, database)?,
            None => Rules::none(),
        };
        let security = policy.access_file.is_some().then(|| RwLock::new(rules.security.clone()));
        Ok((Guard { policy, security, ..Guard::open() }, rules))
    }

    /// Reads the access file again; nothing is changed yet.
    pub fn read_again(&self, database: &Database) -> Result<Option<Rules>, IocError> {
        match &self.policy.access_file {
            Some(_) => read(&self.policy, database).map(Some),
            None => Ok(None),
        }
    }

    /// From now on these rules hold.
    pub fn set_rules(&self, security: Security) {
        if let Some(held) = &self.security {
            *held.write().unwrap_or_else(PoisonError::into_inner) = security;
        }
    }

    /// An input of the rules has this reading now, or none that counts; tells whether a client may have other rights for it.
    pub fn set_input(&self, inputs: &[AccessInput], reading: Option<&Reading>) -> bool {
        let Some(security) = &self.security else { return false };
        let mut security = security.write().unwrap_or_else(PoisonError::into_inner);
        let number = reading.and_then(number);
        inputs.iter().fold(false, |has_changed, input| security.set_input(*input, number) | has_changed)
    }

    /// Whether rights depend on the groups of records.
    pub fn has_rules(&self) -> bool {
        self.security.is_some()
    }

    /// A part of the rules as text, of the groups whose names `wanted` takes; `None` where there is no access file.
    pub fn shown(&self, part: AccessPart, wanted: &dyn Fn(&str) -> bool) -> Option<String> {
        let security = self.security.as_ref()?;
        Some(security.read().unwrap_or_else(PoisonError::into_inner).shown(part, wanted))
    }

    /// What a client may do with a field.
    pub fn allowed(&self, database: &Database, field: FieldRef, by: &Peer) -> Rights {
        let access = self.granted(database, field, by).access;
        Rights { read: access >= Access::Read, write: access >= Access::Write && !self.policy.is_read_only }
    }

    /// Whether this client's puts to the field are told.
    pub fn tells_puts(&self, database: &Database, field: FieldRef, by: &Peer) -> bool {
        let may_log = self.policy.tell_put.is_some() && self.logged() != Logged::Nothing;
        may_log && self.granted(database, field, by).is_trapped
    }

    /// Tells a put that went through.
    pub fn tell_put(&self, note: PutNote) {
        let is_logged = self.logged() == Logged::Everything || note.old != note.new;
        if let Some(tell) = self.policy.tell_put.as_ref().filter(|_| is_logged) {
            tell(note);
        }
    }

    /// From now on these puts are logged.
    pub fn log_puts(&self, logged: Logged) {
        self.logged.store(logged as u8, Ordering::Relaxed);
    }

    /// Which puts are logged.
    pub fn logged(&self) -> Logged {
        let number = self.logged.load(Ordering::Relaxed);
        [Logged::Nothing, Logged::Changes]
            .into_iter()
            .find(|logged| *logged as u8 == number)
            .unwrap_or(Logged::Everything)
    }

    fn granted(&self, database: &Database, field: FieldRef, by: &Peer) -> Granted {
        let Some(security) = &self.security else { return Granted { access: Access::Write, is_trapped: true } };
        let (group, level) = database.access_group(field);
        let address = self.policy.goes_by_address.then(|| by.address.ip().to_canonical().to_string());
        let host = address.as_deref().unwrap_or(&by.host);
        let security = security.read().unwrap_or_else(PoisonError::into_inner);
        security.granted(&group.to_str(), level, &by.user, host)
    }
}

impl Rules {
    pub fn none() -> Rules {
        Rules {
            security: Security::new(AccessFile::default()),
            inputs: Inputs::default(),
            outside_inputs: OutsideInputs::new(),
            warnings: Vec::new(),
        }
    }
}

/// What a rule calculates with; `None` when there is no telling, as while the record is INVALID.
fn number(reading: &Reading) -> Option<f64> {
    let is_valid = reading.alarm.severity != Severity::Invalid;
    reading.value.first().filter(|_| is_valid).and_then(|scalar| scalar.to_f64().ok())
}

fn read(policy: &Policy, database: &Database) -> Result<Rules, IocError> {
    let Some((path, macros)) = &policy.access_file else { return Ok(Rules::none()) };
    let name = path.to_string_lossy();
    let mut lacks_descriptors = false;
    let mut read_file = |file: &str| {
        crate::file::read(file).inspect_err(|error| lacks_descriptors |= process::lacks_descriptors(error))
    };
    let loaded = AccessFile::load(&name, macros, &mut read_file);
    let mut file = loaded.map_err(|errors| match lacks_descriptors {
        true => IocError::NoDescriptors(errors),
        false => IocError::Load(errors),
    })?;
    if policy.goes_by_address {
        file.resolve_hosts(&mut address_of);
    }
    let warnings = file.warnings().to_vec();
    let security = Security::new(file);
    let (mut inputs, mut outside_inputs) = (Inputs::default(), OutsideInputs::new());
    for (input, pv) in security.inputs() {
        match database.field(pv) {
            Some(field) => inputs.entry(field).or_default().push(input),
            None => outside_inputs.entry(pv.into()).or_default().push(input),
        }
    }
    Ok(Rules { security, inputs, outside_inputs, warnings })
}

/// The address of a host, as its connections have it.
fn address_of(host: &str) -> Option<String> {
    let mut found = (host, 0).to_socket_addrs().ok()?;
    found.find(|address| matches!(address.ip(), IpAddr::V4(_))).map(|address| address.ip().to_string())
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("policy", &self.policy).field("security", &self.security).finish()
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Policy");
        shown.field("access_file", &self.access_file).field("is_read_only", &self.is_read_only);
        shown.finish_non_exhaustive()
    }
}
