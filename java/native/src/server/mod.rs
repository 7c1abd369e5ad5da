//! Servers of PVs and IOCs of a program of Java.
//!
//! No native thread runs code of Java: puts and calls wait in the queue of their server, from which one thread of Java takes them.

mod calls;
mod entries;
mod ioc;
mod limit;
mod parse;
mod pv;
mod queue;
mod request;
mod served;

use std::collections::HashMap;
use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::Arc;

use fodo_lock::Mutex;
use fodo_net::{ClientConfig, Observer, RightsSignal, Server, ServerConfig};

use self::ioc::{JavaIoc, JavaRecord, WaitingPut};
use self::pv::OwnedPv;
use self::queue::ServerTasks;
use self::request::JavaRequest;
use self::served::ServedPvs;
use crate::error::JavaFailure;
use crate::handle::{self, HandleObject};

/// An object of this module that Java refers to.
#[derive(Clone)]
pub enum ServerObject {
    Pv(Arc<OwnedPv>),
    Server(Arc<JavaServer>),
    Ioc(Arc<JavaIoc>),
    Queue(Arc<ServerTasks>),
    Request(Arc<JavaRequest>),
    Record(Arc<JavaRecord>),
    WaitingPut(Arc<WaitingPut>),
}

macro_rules! getters {
    ($($name:ident $variant:ident $kind:ty, $what:literal;)*) => {
        impl ServerObject {
            $(pub fn $name(handle: i64) -> Result<Arc<$kind>, JavaFailure> {
                match handle::server_object(handle)? {
                    ServerObject::$variant(found) => Ok(found),
                    _ => Err(JavaFailure::closed("", concat!($what, " is closed"))),
                }
            })*
        }
    };
}

getters! {
    pv Pv OwnedPv, "the PV";
    server Server JavaServer, "the server";
    ioc Ioc JavaIoc, "the IOC";
    queue Queue ServerTasks, "the queue of the server";
    request Request JavaRequest, "the request";
    record Record JavaRecord, "the record";
    waiting_put WaitingPut WaitingPut, "the put";
}

impl ServerObject {
    /// A new handle of this object.
    pub fn handle(self) -> i64 {
        handle::create(HandleObject::Server(self))
    }
}

/// A running server of PVs.
pub struct JavaServer {
    pvs: Arc<ServedPvs>,
    /// `None` after it was closed.
    server: Mutex<Option<Server>>,
    observer: Observer,
}

/// A PV under a name, with the number by which its requests name it.
pub struct NamedPv {
    pub name: String,
    pub token: i64,
    pub pv: Arc<OwnedPv>,
}

impl JavaServer {
    /// `settings`: variables, before those of the environment. `is_isolated`: on loopback and free ports.
    pub fn start(
        is_isolated: bool,
        settings: &HashMap<String, String>,
        named: Vec<NamedPv>,
    ) -> Result<JavaServer, JavaFailure> {
        let lookup = |name: &str| settings.get(name).cloned().or_else(|| std::env::var(name).ok());
        let config =
            ServerConfig::from_variables(&lookup).map_err(|error| JavaFailure::misuse("", error.to_string()))?;
        let config = match is_isolated {
            true => ServerConfig { payload_bytes_max: config.payload_bytes_max, ..ServerConfig::isolated() },
            false => config,
        };
        let pvs = Arc::new(ServedPvs::new(Arc::new(ServerTasks::default())));
        for NamedPv { name, token, pv } in named {
            pvs.insert(name, token, pv);
        }
        let server = Server::start(config, pvs.clone()).map_err(|error| match error.source() {
            Some(source) => JavaFailure::misuse("", format!("{error}: {source}")),
            None => JavaFailure::misuse("", error.to_string()),
        })?;
        let observer = server.observer();
        Ok(JavaServer { pvs, server: Mutex::new(Some(server)), observer })
    }

    pub fn queue(&self) -> &Arc<ServerTasks> {
        self.pvs.queue()
    }

    fn with<T>(&self, work: impl FnOnce(&Server) -> T) -> Result<T, JavaFailure> {
        let server = self.server.lock();
        server.as_ref().map(work).ok_or_else(|| JavaFailure::closed("", "the server was closed"))
    }

    pub fn add(&self, named: NamedPv) -> Result<(), JavaFailure> {
        self.with(|_| ())?;
        let NamedPv { name, token, pv } = named;
        if self.pvs.insert(name.clone(), token, pv) {
            return Ok(());
        }
        Err(JavaFailure::misuse(&name, "the server has a PV with this name: remove it first"))
    }

    /// Serves the name no longer, and disconnects its clients.
    pub fn remove(&self, name: &str) -> Result<(), JavaFailure> {
        let signal = self.with(Server::rights_signal)?;
        if !self.pvs.remove(name) {
            return Err(JavaFailure::misuse(name, "the server has no PV with this name"));
        }
        RightsSignal::notify_changed(&signal);
        Ok(())
    }

    /// The variables of a client on this host that searches only this server.
    pub fn settings(&self) -> Result<Vec<(String, String)>, JavaFailure> {
        self.with(|server| variables(server, &server.client_config()))
    }

    pub fn counts(&self) -> [u64; 11] {
        let (queue, server) = (self.queue().counts(), self.observer.counts());
        [
            queue.puts,
            queue.calls,
            queue.waiting,
            queue.refused,
            queue.cancelled,
            server.posted,
            server.updates.sent,
            server.updates.merged,
            server.dropped,
            server.searches,
            server.refused,
        ]
    }

    /// Disconnects all clients, and refuses what waits.
    pub fn close(&self) {
        let server = self.server.lock().take();
        // First, so that clients which still are connected receive the refusals.
        self.queue().close();
        drop(server);
    }
}

impl Drop for JavaServer {
    fn drop(&mut self) {
        self.close();
    }
}

/// The variables that are equivalent to the configuration of a client of this server.
fn variables(server: &Server, config: &ClientConfig) -> Vec<(String, String)> {
    let list = |addresses: &[SocketAddr]| addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" ");
    let mut variables = vec![
        ("EPICS_CA_ADDR_LIST", list(&config.search_addresses)),
        ("EPICS_CA_AUTO_ADDR_LIST", "NO".into()),
        ("EPICS_CA_SERVER_PORT", server.udp_port().to_string()),
        ("EPICS_PVA_ADDR_LIST", list(&config.pva.search_addresses)),
        ("EPICS_PVA_AUTO_ADDR_LIST", "NO".into()),
    ];
    if let (Some(tcp), Some(udp)) = (server.pva_tcp_port(), server.pva_udp_port()) {
        variables.push(("EPICS_PVA_SERVER_PORT", tcp.to_string()));
        variables.push(("EPICS_PVA_BROADCAST_PORT", udp.to_string()));
    }
    variables.into_iter().map(|(name, text)| (name.to_owned(), text)).collect()
}
