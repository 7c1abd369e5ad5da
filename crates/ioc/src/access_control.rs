//! Access security: applies the rules of an access file to records and clients, and selects the puts to log.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use fodo_data::{Meta, Severity, TimeStamp, Value};
use fodo_db::{
    Access, AccessClient, AccessDecision, AccessFile, AccessInput, AccessInputState, AccessSection, Database, FieldMap,
    FieldRef, Security,
};
use fodo_lock::RwLock;
use fodo_net::{Peer, Reading, Rights, process};

use crate::IocError;

/// The access policy. The default allows every client everything. [The guide](crate#access-rules) has an example.
#[derive(Default)]
pub struct Policy {
    /// An access file (`.acf`) and its macros (`"P=X:,R=1"`).
    pub access_file: Option<(PathBuf, String)>,
    /// Hosts are identified by the address they connect from, not by the name they send.
    ///
    /// The same as `asCheckClientIP` of EPICS Base: host names in the file are resolved when it is read.
    pub checks_client_address: bool,
    /// No client may write, regardless of the access file.
    pub is_read_only: bool,
    /// Called for each successful put: with an access file for puts under TRAPWRITE, otherwise for all puts.
    ///
    /// It must not block, because it is called while no other record can be processed.
    pub put_listener: Option<PutCallback>,
}

/// A callback that receives puts.
pub type PutCallback = Box<dyn Fn(PutEvent) + Send + Sync>;

/// A successful put, as passed to [`Policy::put_listener`].
#[derive(Clone, Debug, PartialEq)]
pub struct PutEvent {
    /// The time of the put.
    pub time: TimeStamp,
    /// The client.
    pub by: Peer,
    /// The name of the record and field.
    pub pv: String,
    /// The value before the put.
    pub old: Value,
    /// The value after the put.
    pub new: Value,
    /// The metadata of the field, such as its labels.
    pub meta: Arc<Meta>,
}

/// Which of the puts that may be logged are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutFilter {
    Nothing,
    /// Puts that change the value of the field.
    Changes,
    Everything,
}

/// The access policy of a running IOC.
pub struct AccessControl {
    policy: Policy,
    /// A `PutFilter` as a number.
    logged: AtomicU8,
    /// `None` where there is no access file.
    security: Option<RwLock<Security>>,
}

/// The fields that are inputs of access rules.
pub type LocalInputs = FieldMap<Vec<AccessInput>>;

/// The PVs of other IOCs that are inputs of access rules, by name.
pub type OutsideInputs = HashMap<Arc<str>, Vec<AccessInput>>;

/// Rules that have been read but are not in force yet.
#[derive(Debug)]
pub struct Rules {
    pub security: Security,
    pub inputs: LocalInputs,
    pub outside_inputs: OutsideInputs,
    /// Warnings about rules that can still be used.
    pub warnings: Vec<String>,
}

impl AccessControl {
    /// Allows every client everything.
    pub fn open() -> AccessControl {
        AccessControl { policy: Policy::default(), logged: AtomicU8::new(PutFilter::Everything as u8), security: None }
    }

    /// Reads the access file, if the policy has one.
    pub fn new(policy: Policy, database: &Database) -> Result<(AccessControl, Rules), IocError> {
        let rules = match &policy.access_file {
            Some(_) => read(&policy, database)?,
            None => Rules::none(),
        };
        let security = policy.access_file.is_some().then(|| RwLock::new(rules.security.clone()));
        Ok((AccessControl { policy, security, ..AccessControl::open() }, rules))
    }

    /// Reads the access file again, without applying it.
    pub fn reload(&self, database: &Database) -> Result<Option<Rules>, IocError> {
        match &self.policy.access_file {
            Some(_) => read(&self.policy, database).map(Some),
            None => Ok(None),
        }
    }

    /// Replaces the rules.
    pub fn set_rules(&self, security: Security) {
        if let Some(held) = &self.security {
            *held.write() = security;
        }
    }

    /// Sets the current reading of rule inputs; `None` if there is none. Returns whether access rights may have changed.
    pub fn set_input(&self, inputs: &[AccessInput], reading: Option<&Reading>) -> bool {
        let Some(security) = &self.security else { return false };
        let mut security = security.write();
        let state = reading.map_or(AccessInputState::Unknown, input_state);
        inputs.iter().fold(false, |has_changed, input| security.set_input(*input, state) | has_changed)
    }

    /// Whether rights depend on the records' access security groups.
    pub fn has_rules(&self) -> bool {
        self.security.is_some()
    }

    /// Part of the rules as text, for groups whose name `is_selected` accepts; `None` without an access file.
    pub fn to_text(&self, part: AccessSection, is_selected: &dyn Fn(&str) -> bool) -> Option<String> {
        let security = self.security.as_ref()?;
        Some(security.read().shown(part, is_selected))
    }

    /// The rights of a client for a field.
    pub fn allowed(&self, database: &Database, field: FieldRef, by: &Peer) -> Rights {
        let access = self.decide(database, field, by).access;
        Rights { read: access >= Access::Read, write: access >= Access::Write && !self.policy.is_read_only }
    }

    /// Whether puts of this client to the field are reported.
    pub fn reports_puts(&self, database: &Database, field: FieldRef, by: &Peer) -> bool {
        let may_log = self.policy.put_listener.is_some() && self.logged() != PutFilter::Nothing;
        may_log && self.decide(database, field, by).is_logged
    }

    /// Reports a successful put.
    pub fn report_put(&self, note: PutEvent) {
        let is_logged = self.logged() == PutFilter::Everything || note.old != note.new;
        if let Some(listener) = self.policy.put_listener.as_ref().filter(|_| is_logged) {
            listener(note);
        }
    }

    /// Selects which puts are logged.
    pub fn log_puts(&self, logged: PutFilter) {
        self.logged.store(logged as u8, Ordering::Relaxed);
    }

    /// Which puts are logged.
    pub fn logged(&self) -> PutFilter {
        let number = self.logged.load(Ordering::Relaxed);
        [PutFilter::Nothing, PutFilter::Changes]
            .into_iter()
            .find(|logged| *logged as u8 == number)
            .unwrap_or(PutFilter::Everything)
    }

    fn decide(&self, database: &Database, field: FieldRef, by: &Peer) -> AccessDecision {
        let Some(security) = &self.security else { return AccessDecision { access: Access::Write, is_logged: true } };
        let (group, level) = database.access_group(field);
        let address = self.policy.checks_client_address.then(|| by.address.ip().to_canonical().to_string());
        let host = address.as_deref().unwrap_or(&by.host);
        let security = security.read();
        let client = AccessClient {
            user: &by.user,
            host,
            method: by.method,
            authority: &by.authority,
            is_encrypted: by.is_encrypted,
        };
        security.decide(&group.to_str(), level, &client)
    }
}

impl Rules {
    pub fn none() -> Rules {
        Rules {
            security: Security::new(AccessFile::default()),
            inputs: LocalInputs::default(),
            outside_inputs: OutsideInputs::new(),
            warnings: Vec::new(),
        }
    }
}

fn input_state(reading: &Reading) -> AccessInputState {
    if reading.alarm.severity == Severity::Invalid {
        return AccessInputState::Invalid;
    }
    let number = reading.value.first().and_then(|scalar| scalar.to_f64().ok());
    number.map_or(AccessInputState::Unknown, AccessInputState::Value)
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
    if policy.checks_client_address {
        file.resolve_hosts(&mut address_of);
    }
    let warnings = file.warnings().to_vec();
    let security = Security::new(file);
    let (mut inputs, mut outside_inputs) = (LocalInputs::default(), OutsideInputs::new());
    for (input, pv) in security.inputs() {
        match database.field(pv) {
            Some(field) => inputs.entry(field).or_default().push(input),
            None => outside_inputs.entry(pv.into()).or_default().push(input),
        }
    }
    Ok(Rules { security, inputs, outside_inputs, warnings })
}

/// The IPv4 address of a host, in the form of the peer address of its connections.
fn address_of(host: &str) -> Option<String> {
    let mut found = (host, 0).to_socket_addrs().ok()?;
    found.find(|address| matches!(address.ip(), IpAddr::V4(_))).map(|address| address.ip().to_string())
}

impl std::fmt::Debug for AccessControl {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_access_control_contains_its_policy() {
        let policy = Policy { is_read_only: true, ..Policy::default() };

        let shown = format!("{:?}", AccessControl { policy, ..AccessControl::open() });

        assert!(shown.contains("policy: Policy { access_file: None, is_read_only: true"), "{shown}");
    }
}
