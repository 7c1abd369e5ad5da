//! A running IOC: its threads, its values, and its end.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;

use fodo_net::log::Log;
use fodo_net::reactor::Reactor;
use fodo_net::{ClientConfig, ClientStatus, Observer, Server};

use crate::autosave::saver::Saver;
use crate::autosave::set::SaveSet;
use crate::driver::DatabaseDriver;
use crate::group::GroupPv;
use crate::link_client::LinkClient;
use crate::metrics::Page;
use crate::program::output::{OutputHandlers, OutputThread};
use crate::reccaster::{RecCaster, RecSyncConfig};
use crate::stats::Surroundings;
use crate::{IocError, ProgramValue, RecordError, RecordHandle, SetManyError, UnsavedSets};

/// The reactor of an IOC; starts it on the first call. It is not that of the clients, because a metrics page may wait for
/// the threads of the server, and links must not be delayed.
pub(crate) fn started_reactor(reactor: &mut Option<Reactor>) -> std::io::Result<&Reactor> {
    let started = match reactor.take() {
        Some(reactor) => reactor,
        None => Reactor::start("fodo-reports")?,
    };
    Ok(reactor.insert(started))
}

/// A running IOC; dropping it stops it.
///
/// ```
/// use fodo_ioc::Ioc;
/// use fodo_net::{Context, ServerConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut loader = fodo_ioc::Loader::default();
/// loader.load("gap.db", "", &mut |_| Ok(b"record(ao, gap) {}".to_vec())).map_err(fodo_ioc::IocError::Load)?;
/// let running = Ioc::of(loader)?.serve(ServerConfig::isolated())?;
/// println!("{} records on {}", running.n_records(), running.address());
/// println!("TCP port {}, UDP port {}", running.tcp_port(), running.udp_port());
///
/// let context = Context::new(running.client_config());
/// context.channel("gap")?.get()?;
/// for client in running.clients() {
///     println!("{client:?}");
/// }
/// assert!(running.metrics_address().is_none());
/// running.stop()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RunningIoc {
    pub(crate) driver: Arc<DatabaseDriver>,
    pub(crate) groups: Vec<Arc<GroupPv>>,
    pub(crate) outside: Option<LinkClient>,
    pub(crate) server: Option<Server>,
    pub(crate) scans: Option<JoinHandle<()>>,
    /// `None` without handlers of outputs.
    pub(crate) outputs: Option<OutputThread>,
    pub(crate) metrics: Option<Page>,
    pub(crate) reccaster: Option<RecCaster>,
    /// Serves the metrics page and the RecSync client; `None` until there is one of them.
    pub(crate) reactor: Option<Reactor>,
    pub(crate) surroundings: Surroundings,
    /// `None` until something must be saved.
    pub(crate) saver: Option<Saver>,
    pub(crate) log: Log,
    pub(crate) n_records: usize,
    pub(crate) address: Ipv4Addr,
}

impl RunningIoc {
    /// Starts the scans, the calls of the program and autosave.
    pub(crate) fn start_threads(&mut self, handlers: OutputHandlers, sets: Vec<SaveSet>) -> std::io::Result<()> {
        let driver = self.driver.clone();
        self.scans = Some(std::thread::Builder::new().name("fodo-scan".into()).spawn(move || driver.run_scans())?);
        if !handlers.0.is_empty() {
            self.outputs = Some(OutputThread::start(&self.driver, handlers, self.log.clone())?);
        }
        for set in sets {
            // The files of info items differ from each other.
            let _ = self.saver()?.add(set);
        }
        Ok(())
    }

    /// A handle for a record, or for one of its fields (`rec.FIELD`). [`RecordHandle`] has an example.
    pub fn record(&self, name: &str) -> Result<RecordHandle, RecordError> {
        RecordHandle::new(&self.driver, name)
    }

    /// Sets many values of records with DTYP Program, as [`RecordHandle::set_with`] does, but with one lock and one present
    /// time for all of them. `values`: with handles of this IOC; if one is not, nothing is set. Otherwise an invalid value
    /// does not affect the others. [`RecordHandle`] and [`SetManyError`] have examples.
    pub fn set_many<'a>(
        &self,
        values: impl IntoIterator<Item = (&'a RecordHandle, ProgramValue)>,
    ) -> Result<(), SetManyError> {
        RecordHandle::set_many(&self.driver, values)
    }

    /// Reads the access file again and applies its rules, also to connected clients.
    ///
    /// Returns warnings about parts that have no effect, one line each. If the file cannot be read or contains errors,
    /// the previous rules stay in force. Without an access file this does nothing.
    pub fn reload_access(&self) -> Result<Vec<String>, IocError> {
        let read = self.driver.guard().reload(self.driver.database());
        let Some(mut rules) = read? else { return Ok(Vec::new()) };
        let warnings = std::mem::take(&mut rules.warnings);
        self.driver.set_rules(rules);
        Ok(warnings)
    }

    /// Sends the records to RecCeivers that announce themselves. Errors are reported to `log`. [`RecSyncConfig`] has an
    /// example.
    pub fn announce(&mut self, recsync: RecSyncConfig, log: Log) -> Result<(), IocError> {
        let (port, config) = (recsync.port, recsync.config(self.address));
        let items = recsync.items(self.driver.clone(), &self.surroundings, self.tcp_port());
        let reactor = started_reactor(&mut self.reactor).map_err(IocError::System)?;
        let reccaster = RecCaster::start(config, items, log, reactor);
        self.reccaster = Some(reccaster.map_err(|error| IocError::RecCaster { port, error })?);
        Ok(())
    }

    /// The address of the metrics page; `None` without [`Ioc::with_metrics`].
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Page::address)
    }

    /// The number of records.
    pub fn n_records(&self) -> usize {
        self.n_records
    }

    /// The first address it serves on; the unspecified address means all interfaces.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// All connected clients. Waits at most half a second for each server thread.
    pub fn clients(&self) -> Vec<ClientStatus> {
        self.server.as_ref().map_or(Vec::new(), |server| server.observer().clients())
    }

    /// A handle to observe its server. [`Observer`] has an example.
    pub fn observer(&self) -> Option<Observer> {
        self.server.as_ref().map(Server::observer)
    }

    /// The autosave thread; starts it on the first call.
    pub(crate) fn saver(&mut self) -> std::io::Result<&Saver> {
        let saver = match self.saver.take() {
            Some(saver) => saver,
            None => Saver::start(self.driver.clone(), self.log.clone())?,
        };
        Ok(self.saver.insert(saver))
    }

    /// The groups that are served, by name.
    pub(crate) fn groups(&self) -> &[Arc<GroupPv>] {
        &self.groups
    }

    pub(crate) fn driver(&self) -> Arc<DatabaseDriver> {
        self.driver.clone()
    }

    /// The TCP port for circuits.
    pub fn tcp_port(&self) -> u16 {
        self.server.as_ref().map_or(0, Server::tcp_port)
    }

    /// The UDP port for searches.
    pub fn udp_port(&self) -> u16 {
        self.server.as_ref().map_or(0, Server::udp_port)
    }

    /// The TCP port for circuits of pvAccess, if the IOC serves it; as [`Server::pva_tcp_port`].
    pub fn pva_tcp_port(&self) -> Option<u16> {
        self.server.as_ref()?.pva_tcp_port()
    }

    /// The configuration of a client on this host that searches only this IOC.
    pub fn client_config(&self) -> ClientConfig {
        self.server.as_ref().map_or_else(ClientConfig::default, Server::client_config)
    }

    /// Stops serving and scanning and saves values one last time; returns when all threads have ended.
    pub fn stop(mut self) -> Result<(), UnsavedSets> {
        self.end()
    }

    fn end(&mut self) -> Result<(), UnsavedSets> {
        self.outside.take();
        self.metrics.take();
        self.reccaster.take();
        self.reactor.take();
        self.server.take();
        self.driver.stop();
        if let Some(mut outputs) = self.outputs.take() {
            outputs.join();
        }
        // A panic of the scan thread is already on stderr.
        drop(self.scans.take().map(JoinHandle::join));
        self.driver.flush_printed();
        // No value changes after this point, so the last save is complete.
        match self.saver.take().map_or(0, Saver::finish) {
            0 => Ok(()),
            n_sets => Err(UnsavedSets { n_sets }),
        }
    }
}

impl Drop for RunningIoc {
    fn drop(&mut self) {
        // A caller who needs the result calls `stop`.
        let _ = self.end();
    }
}
