//! A soft IOC: connects the record database to the network.
//!
//! [`Ioc::load`] reads `.db` files, [`Ioc::serve`] puts them on the network and starts the scans.
#![forbid(unsafe_code)]

mod access_control;
pub mod autosave;
mod driver;
pub mod file;
mod limit;
mod link_client;
mod metrics;
mod names;
mod printable;
pub mod process;
mod pv;
pub mod reccaster;
pub mod shell;
mod site;
mod stats;
#[cfg(test)]
mod testing;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

pub use access_control::{Policy, PutCallback, PutEvent};
pub use metrics::{CountMissingPuts, Page, PageConfig};
pub use printable::printable;
pub use reccaster::RecSyncConfig;
pub use stats::Surroundings;

use fodo_db::{Database, LoadError, Loader, States};
use fodo_net::log::Log;
use fodo_net::reactor::Reactor;
use fodo_net::{ClientConfig, ClientStatus, Context, Server, ServerConfig, ServerError, Source, SourceChain};

use crate::access_control::{AccessControl, Rules};
use crate::autosave::saver::Saver;
use crate::driver::DatabaseDriver;
use crate::link_client::LinkClient;
use crate::metrics::Metrics;
use crate::reccaster::RecCaster;
use crate::stats::IocStats;

/// Why an IOC cannot start.
#[derive(Debug)]
pub enum IocError {
    /// A file contains errors; nothing was loaded.
    Load(Vec<LoadError>),
    /// A file cannot be opened because the process or the host has no free file descriptor; a retry may succeed.
    NoDescriptors(Vec<LoadError>),
    /// The network cannot be served.
    Server(ServerError),
    /// The metrics page cannot be served.
    Metrics {
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The UDP port for RecCeiver announcements cannot be opened.
    RecCaster {
        /// The UDP port.
        port: u16,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The system cannot create a thread.
    System(std::io::Error),
}

impl fmt::Display for IocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IocError::Load(errors) | IocError::NoDescriptors(errors) => {
                for (index, error) in errors.iter().enumerate() {
                    let end = if index + 1 < errors.len() { "\n" } else { "" };
                    write!(f, "{error}{end}")?;
                }
                Ok(())
            }
            IocError::Server(error) => error.fmt(f),
            IocError::Metrics { address, error } => {
                write!(f, "metrics cannot be served on {address}: {error}; check that no other program uses it")
            }
            IocError::RecCaster { port, error } => {
                write!(f, "cannot listen for RecCeiver announcements on UDP port {port}: {error}")
            }
            IocError::System(error) => write!(f, "operating system error: {error}"),
        }
    }
}

impl std::error::Error for IocError {}

/// Autosave could not save some values when the IOC ended; the log contains the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsavedSets {
    /// The number of sets that were not saved.
    pub n_sets: usize,
}

impl fmt::Display for UnsavedSets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "autosave sets that could not be saved at the end: {}", self.n_sets)
    }
}

impl std::error::Error for UnsavedSets {}

/// A loaded database that is not served yet.
#[derive(Debug)]
pub struct Ioc {
    database: Database,
    guard: AccessControl,
    rules: Rules,
    /// The configuration of the client for links to other IOCs.
    links: Option<ClientConfig>,
    surroundings: Surroundings,
    metrics: Option<(TcpListener, Option<CountMissingPuts>)>,
    /// The number of statements that were left out because of errors in the files.
    n_omitted: usize,
}

impl Ioc {
    /// Loads files in order, each with its macros (`"P=X:,R=1"`).
    pub fn load(files: &[(PathBuf, String)]) -> Result<Ioc, IocError> {
        let mut loader = Loader::default();
        for (path, macros) in files {
            let name = path.to_string_lossy();
            loader.load(&name, macros, &mut |name| file::read(name)).map_err(IocError::Load)?;
        }
        Ioc::of(loader)
    }

    /// Builds an IOC from a loader. Register routines of `sub` and `aSub` records with the loader first.
    ///
    /// ```
    /// use fodo_db::Loader;
    /// use fodo_ioc::Ioc;
    ///
    /// let mut loader = Loader::default();
    /// loader.array_routine("mean", |call| {
    ///     let samples = call.input::<f64>('A')?;
    ///     let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    ///     call.set_output('A', &[mean])?;
    ///     Ok(0)
    /// });
    /// let db = "record(aSub, \"$(P)mean\") { field(SNAM, mean) field(INPA, \"$(P)samples CP\") field(NOA, 100) }";
    /// loader.load("mean.db", "P=X:", &mut |_| Ok(db.into())).unwrap();
    /// let ioc = Ioc::of(loader).unwrap();
    /// ```
    pub fn of(loader: Loader) -> Result<Ioc, IocError> {
        Ioc::within(loader, None)
    }

    /// The same as `of`, but records see the variables of a shell instead of those of the process.
    fn within(mut loader: Loader, environment: Option<site::SharedEnvironment>) -> Result<Ioc, IocError> {
        loader.set_site(Arc::new(site::ProcessSite::new(environment)));
        let n_omitted = loader.omitted().total();
        let database = loader.finish().map_err(IocError::Load)?;
        let (guard, rules, surroundings) = (AccessControl::open(), Rules::none(), Surroundings::of_process());
        Ok(Ioc { database, guard, rules, surroundings, links: None, metrics: None, n_omitted })
    }

    /// Applies an access policy. Without one every client may do everything.
    ///
    /// Fails if the access file cannot be read or contains errors.
    pub fn guarded(self, policy: Policy) -> Result<Ioc, IocError> {
        let (guard, rules) = AccessControl::new(policy, &self.database)?;
        Ok(Ioc { guard, rules, ..self })
    }

    /// Enables links to PVs of other IOCs, and access rule inputs from them. Without this call they never connect.
    pub fn linked(self, config: ClientConfig) -> Ioc {
        Ioc { links: Some(config), ..self }
    }

    /// Sets the host facts to publish; by default those of this process.
    pub fn host_facts(self, surroundings: Surroundings) -> Ioc {
        Ioc { surroundings, ..self }
    }

    /// Serves metrics for Prometheus over HTTP under `/metrics` on this address; port 0 selects a free port.
    ///
    /// `left_out`: the counter of an IOC with a put log. Fails if the address cannot be bound.
    pub fn metered(self, address: SocketAddr, left_out: Option<CountMissingPuts>) -> Result<Ioc, IocError> {
        let listener = TcpListener::bind(address).map_err(|error| IocError::Metrics { address, error })?;
        Ok(Ioc { metrics: Some((listener, left_out)), ..self })
    }

    /// Warnings about parts of the access file that have no effect, one line each.
    pub fn access_warnings(&self) -> &[String] {
        &self.rules.warnings
    }

    /// The named states of filters, links and records. Filters only find states that have been created.
    pub fn states(&self) -> &States {
        self.database.states()
    }

    /// Serves the records and starts the scans; dropping the result stops both.
    pub fn serve(self, config: ServerConfig) -> Result<RunningIoc, IocError> {
        self.serve_with_log(config, Log::silent())
    }

    /// The same as [`Ioc::serve`], with network events reported to `log`.
    pub fn serve_with_log(self, config: ServerConfig, log: Log) -> Result<RunningIoc, IocError> {
        let (n_records, n_omitted) = (self.database.record_names().count(), self.n_omitted);
        let address = config.interfaces.first().copied().unwrap_or(Ipv4Addr::UNSPECIFIED);
        let surroundings = self.surroundings;
        let driver = DatabaseDriver::new(self.database, self.guard);
        driver.set_rules(self.rules);
        driver.start();
        let stats =
            config.status_prefix.clone().map(|prefix| (IocStats::new((n_records, n_omitted), &surroundings), prefix));
        let mut source: Arc<dyn Source> = Arc::new(pv::Records::new(driver.clone()));
        if let Some((stats, prefix)) = &stats {
            source = Arc::new(SourceChain::new(vec![source, Arc::new(stats.table(prefix))]));
        }
        let mut server = Server::start_with_log(config, source, log.clone()).map_err(IocError::Server)?;
        if let Some((mut stats, _)) = stats {
            server.refresh_every_second(move |clients, _| stats.refresh(clients)).map_err(IocError::Server)?;
        }
        driver.set_signal(server.rights_signal());
        // A put through a link ends when the target record has processed, so it has no timeout.
        let links = self.links.map(|config| ClientConfig { operation_timeout: Duration::MAX, ..config });
        let outside = links.map(|config| LinkClient::start(&driver, Context::new(config)));
        let outside = outside.transpose().map_err(IocError::System)?;
        let mut reactor = None;
        let page = self.metrics.map(|(listener, left_out)| {
            let (driver, observer, started) = (driver.clone(), server.observer(), SystemTime::now());
            let metrics = Metrics { driver, observer, n_records, n_omitted, started, left_out };
            let (path, text) = ("/metrics", Box::new(move || metrics.text()));
            let config = PageConfig { path, content_type: metrics::CONTENT_TYPE, text };
            Page::serve(listener, config, started_reactor(&mut reactor)?)
        });
        let metrics = page.transpose().map_err(IocError::System)?;
        let scans = driver.clone();
        let thread = std::thread::Builder::new()
            .name("fodo-scan".into())
            .spawn(move || scans.run_scans())
            .map_err(IocError::System)?;
        let (server, scans, reccaster, saver) = (Some(server), Some(thread), None, None);
        Ok(RunningIoc {
            driver,
            outside,
            server,
            scans,
            metrics,
            reccaster,
            reactor,
            saver,
            log,
            surroundings,
            n_records,
            address,
        })
    }
}

/// The reactor of an IOC; starts it on the first call. It is not that of the clients, because a metrics page may wait for
/// the threads of the server, and links must not be delayed.
fn started_reactor(reactor: &mut Option<Reactor>) -> std::io::Result<&Reactor> {
    let started = match reactor.take() {
        Some(reactor) => reactor,
        None => Reactor::start("fodo-reports")?,
    };
    Ok(reactor.insert(started))
}

/// A running IOC; dropping it stops it.
#[derive(Debug)]
pub struct RunningIoc {
    driver: Arc<DatabaseDriver>,
    outside: Option<LinkClient>,
    server: Option<Server>,
    scans: Option<JoinHandle<()>>,
    metrics: Option<Page>,
    reccaster: Option<RecCaster>,
    /// Serves the metrics page and the RecSync client; `None` until there is one of them.
    reactor: Option<Reactor>,
    surroundings: Surroundings,
    /// `None` until something must be saved.
    saver: Option<Saver>,
    log: Log,
    n_records: usize,
    address: Ipv4Addr,
}

impl RunningIoc {
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

    /// Sends the records to RecCeivers that announce themselves. Errors are reported to `log`.
    pub fn announce(&mut self, recsync: RecSyncConfig, log: Log) -> Result<(), IocError> {
        let (port, config) = (recsync.port, recsync.config(self.address));
        let items = recsync.items(self.driver.clone(), &self.surroundings, self.tcp_port());
        let reactor = started_reactor(&mut self.reactor).map_err(IocError::System)?;
        let reccaster = RecCaster::start(config, items, log, reactor);
        self.reccaster = Some(reccaster.map_err(|error| IocError::RecCaster { port, error })?);
        Ok(())
    }

    /// The address of the metrics page.
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

    /// The autosave thread; starts it on the first call.
    fn saver(&mut self) -> std::io::Result<&Saver> {
        let saver = match self.saver.take() {
            Some(saver) => saver,
            None => Saver::start(self.driver.clone(), self.log.clone())?,
        };
        Ok(self.saver.insert(saver))
    }

    fn driver(&self) -> Arc<DatabaseDriver> {
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
        if let Some(scans) = self.scans.take() {
            // A panic of the scan thread is already on stderr.
            let _ = scans.join();
        }
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
