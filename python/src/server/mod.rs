//! Servers of PVs that a program of Python owns.
//!
//! The threads of a server never run code of Python: puts, calls and changes of connection wait in the queue of the server,
//! from which one thread of Python takes them.

mod handler_queue;
mod operation;
mod pv;
mod served;

use std::collections::HashMap;
use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::Arc;

use fodo_lock::Mutex;
use fodo_net::{ClientConfig, Observer, RightsSignal, Server, ServerConfig, Structure};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pub use self::handler_queue::{HandlerQueue, PythonTask};
pub use self::operation::PyServerOperation;
pub use self::pv::PySharedPv;
use self::served::ServedPvs;
use crate::error;
use crate::ownership::Owned;
use crate::structure::PyStructure;

/// A server, running or not.
struct PvaServerParts {
    settings: Option<HashMap<String, String>>,
    pvs: Arc<ServedPvs>,
    server: Mutex<Option<Server>>,
    /// Of the last start.
    observer: Mutex<Option<Observer>>,
}

/// A server of PVs over Channel Access and pvAccess.
#[pyclass(frozen, name = "Server", module = "fodo._native")]
pub struct PyServer(Owned<PvaServerParts>);

#[pymethods]
impl PyServer {
    /// `settings`: variables such as `EPICS_PVAS_INTF_ADDR_LIST`, before those of the environment; `None`: on loopback, on
    /// ports that are free. `is_dynamic`: whether `next` returns the names that clients of pvAccess search for and no PV has.
    #[new]
    fn create(py: Python<'_>, settings: Option<HashMap<String, String>>, is_dynamic: bool) -> PyResult<PyServer> {
        crate::context::watch_for_forks(py)?;
        let pvs = Arc::new(ServedPvs::new(Arc::new(HandlerQueue::new()), is_dynamic));
        Ok(PyServer(Owned::new(PvaServerParts { settings, pvs, server: Mutex::default(), observer: Mutex::default() })))
    }

    /// Starts to serve; does nothing if it does already.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let service = self.0.get(py)?;
        if service.server.lock().is_some() {
            return Ok(());
        }
        let config = match &service.settings {
            None => ServerConfig::isolated(),
            Some(settings) => {
                let lookup = |name: &str| settings.get(name).cloned().or_else(|| std::env::var(name).ok());
                ServerConfig::from_variables(&lookup).map_err(|error| error::misuse(py, "", &error.to_string()))?
            }
        };
        service.pvs.queue().open();
        let started = py.detach(|| Server::start(config, service.pvs.clone()));
        let server = started.map_err(|error| match error.source() {
            Some(source) => error::misuse(py, "", &format!("{error}: {source}")),
            None => error::misuse(py, "", &error.to_string()),
        })?;
        let observer = server.observer();
        let mut slot = service.server.lock();
        if slot.is_some() {
            // Another thread was faster.
            drop(slot);
            py.detach(|| drop(server));
            return Ok(());
        }
        *slot = Some(server);
        drop(slot);
        *service.observer.lock() = Some(observer);
        Ok(())
    }

    /// Disconnects all clients and ends `next` as soon as the queue is empty.
    fn stop(&self, py: Python<'_>) {
        if let Some(service) = self.0.here() {
            let server = service.server.lock().take();
            py.detach(|| drop(server));
            service.pvs.queue().close();
        }
    }

    #[getter]
    fn is_running(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.0.get(py)?.server.lock().is_some())
    }

    /// Serves a PV under this name. `owner`: the object that `next` returns with what clients request of the PV. Returns false
    /// if the name exists.
    fn insert(&self, py: Python<'_>, name: String, pv: &Bound<'_, PySharedPv>, owner: Py<PyAny>) -> PyResult<bool> {
        Ok(self.0.get(py)?.pvs.insert(name, pv.get().slot(py)?.clone(), owner))
    }

    /// Serves the name no longer, and disconnects its clients. Returns false if the name does not exist.
    fn remove(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        let is_removed = self.0.get(py)?.pvs.remove(name);
        self.disconnect_closed(py)?;
        Ok(is_removed)
    }

    /// Disconnects the clients of PVs that are closed or have been removed.
    fn disconnect_closed(&self, py: Python<'_>) -> PyResult<()> {
        let signal = self.0.get(py)?.server.lock().as_ref().map(Server::rights_signal);
        signal.iter().for_each(RightsSignal::notify_changed);
        Ok(())
    }

    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.0.get(py)?.pvs.all_names())
    }

    /// The variables of a client on this host that searches only this server; of the last start while it is stopped.
    fn settings(&self, py: Python<'_>) -> PyResult<HashMap<String, String>> {
        let service = self.0.get(py)?;
        let found = service.server.lock().as_ref().map(|server| variables(server, &server.client_config()));
        // Outside the lock, since exceptions are made by Python.
        found.ok_or_else(|| error::misuse(py, "", "the server is not running: it has no ports"))
    }

    /// Waits for the next request of a client: the owner of the PV, its name, and the operation, or whether the PV has clients now;
    /// of a search only the name. `None` if the server was stopped.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<PythonTask<'py>>> {
        let queue = self.0.get(py)?.pvs.queue().clone();
        match py.detach(|| queue.next()) {
            Some(task) => task.into_python(py).map(Some),
            None => Ok(None),
        }
    }

    /// Counters by their names.
    fn counts(&self, py: Python<'_>) -> PyResult<HashMap<&'static str, u64>> {
        let service = self.0.get(py)?;
        let mut counts = HashMap::from(service.pvs.queue().counts());
        let observer = service.observer.lock().clone();
        if let Some(observer) = observer {
            let server = observer.counts();
            counts.extend([
                ("posted", server.posted),
                ("sent", server.updates.sent),
                ("merged", server.updates.merged),
                ("dropped", server.dropped),
                ("searches", server.searches),
                ("refused", server.refused),
            ]);
        }
        Ok(counts)
    }
}

/// A structure of which all nodes are marked.
fn marked_whole(structure: &PyStructure) -> PyResult<Structure> {
    let part = || PyValueError::new_err("a part of a structure cannot be served: expected the whole one");
    let mut whole = Structure::clone(structure.whole().ok_or_else(part)?);
    whole.mark_only([0].into_iter().collect());
    Ok(whole)
}

/// The variables that are equivalent to the configuration of a client of this server.
fn variables(server: &Server, config: &ClientConfig) -> HashMap<String, String> {
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
