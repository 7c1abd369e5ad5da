//! A soft IOC: the record database, served on the network. Glue only.
//!
//! [`Ioc::load`] reads `.db` files, [`Ioc::serve`] puts them on the network and starts the scans.
#![forbid(unsafe_code)]

pub mod autosave;
pub mod file;
mod guard;
mod limit;
mod metrics;
mod names;
mod outside;
mod printable;
mod pv;
mod reccaster;
pub mod shell;
mod site;
mod stats;
#[cfg(test)]
mod testing;
mod turn;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

pub use guard::{Policy, PutNote, TellPut};
pub use metrics::LeftOut;
pub use printable::printable;
pub use reccaster::Told;
pub use stats::Surroundings;

use fodo_db::{Database, LoadError, Loader, States};
use fodo_net::log::Log;
use fodo_net::reccaster::RecCaster;
use fodo_net::{ClientConfig, ClientStatus, Context, Page, PageConfig, Server, ServerConfig, ServerError, Source};

use crate::autosave::saver::Saver;
use crate::guard::{Guard, Rules};
use crate::metrics::Metrics;
use crate::outside::Outside;
use crate::stats::Stats;
use crate::turn::Crank;

/// Why an IOC cannot start.
#[derive(Debug)]
pub enum IocError {
    /// A file says something that cannot be loaded; nothing was.
    Load(Vec<LoadError>),
    /// A file cannot be opened now, because the process or the host has no file descriptor left; later it may be.
    NoDescriptors(Vec<LoadError>),
    /// The network cannot be served.
    Server(ServerError),
    /// The page with the metrics cannot be served.
    Metrics {
        /// Where it was to be.
        address: SocketAddr,
        /// The system's words.
        error: std::io::Error,
    },
    /// Announcements of RecCeivers cannot be heard.
    RecCaster {
        /// The UDP port they come to.
        port: u16,
        /// The system's words.
        error: std::io::Error,
    },
    /// The system gives no thread.
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
                write!(f, "metrics cannot be served on {address}: {error}; is something else using it?")
            }
            IocError::RecCaster { port, error } => {
                write!(f, "announcements of RecCeivers cannot be heard on UDP {port}: {error}")
            }
            IocError::System(error) => write!(f, "the operating system says: {error}"),
        }
    }
}

impl std::error::Error for IocError {}

/// Values that autosave could not save when the IOC ended; the log has the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSaved {
    /// How many sets.
    pub n_sets: usize,
}

impl fmt::Display for NotSaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sets of autosave that could not be saved at the end: {}", self.n_sets)
    }
}

impl std::error::Error for NotSaved {}

/// A loaded database that is not served yet.
#[derive(Debug)]
pub struct Ioc {
    database: Database,
    guard: Guard,
    rules: Rules,
    /// Where links to other IOCs look for them.
    links: Option<ClientConfig>,
    surroundings: Surroundings,
    metrics: Option<(TcpListener, Option<LeftOut>)>,
    /// How many errors of its files left something out.
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

    /// What a loader has collected, joined. Routines of `sub` and `aSub` records are registered with the loader first.
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

    /// Likewise; records see the variables of a shell and not those of the process.
    fn within(mut loader: Loader, environment: Option<site::Environment>) -> Result<Ioc, IocError> {
        loader.stand_at(Arc::new(site::Process::new(environment)));
        let n_omitted = loader.omitted().total();
        let database = loader.finish().map_err(IocError::Load)?;
        let (guard, rules, surroundings) = (Guard::open(), Rules::none(), Surroundings::of_process());
        Ok(Ioc { database, guard, rules, surroundings, links: None, metrics: None, n_omitted })
    }

    /// Has clients do what a policy allows; by itself everybody may do everything.
    ///
    /// Fails when its access file cannot be read or says something that cannot be understood.
    pub fn guarded(self, policy: Policy) -> Result<Ioc, IocError> {
        let (guard, rules) = Guard::new(policy, &self.database)?;
        Ok(Ioc { guard, rules, ..self })
    }

    /// Has links to PVs that no record here has connect to other IOCs, as inputs of access rules do. Without this they
    /// are never connected.
    pub fn linked(self, config: ClientConfig) -> Ioc {
        Ioc { links: Some(config), ..self }
    }

    /// What it tells of the place it stands in; by itself what the process does.
    pub fn standing_in(self, surroundings: Surroundings) -> Ioc {
        Ioc { surroundings, ..self }
    }

    /// Has what it counts read over HTTP, as Prometheus does, under `/metrics` of this address; port 0 takes a free one.
    /// `left_out`: for an IOC with a put log. Fails when the address cannot be had.
    pub fn metered(self, address: SocketAddr, left_out: Option<LeftOut>) -> Result<Ioc, IocError> {
        let listener = TcpListener::bind(address).map_err(|error| IocError::Metrics { address, error })?;
        Ok(Ioc { metrics: Some((listener, left_out)), ..self })
    }

    /// What in the access file has no effect, as lines for whoever wrote it.
    pub fn access_warnings(&self) -> &[String] {
        &self.rules.warnings
    }

    /// The named states of its filters, links and records; filters find those only that somebody has made.
    pub fn states(&self) -> &States {
        self.database.states()
    }

    /// Serves the records and starts the scans; both end when the result is dropped.
    pub fn serve(self, config: ServerConfig) -> Result<RunningIoc, IocError> {
        self.serve_telling(config, Log::silent())
    }

    /// As [`Ioc::serve`], and what happens on the network is told to `log`.
    pub fn serve_telling(self, config: ServerConfig, log: Log) -> Result<RunningIoc, IocError> {
        let (n_records, n_omitted) = (self.database.record_names().count(), self.n_omitted);
        let address = config.interfaces.first().copied().unwrap_or(Ipv4Addr::UNSPECIFIED);
        let surroundings = self.surroundings;
        let crank = Crank::new(self.database, self.guard);
        crank.set_rules(self.rules);
        crank.start();
        let records = pv::Records::new(crank.clone());
        let source: Arc<dyn Source> = match config.status_prefix.clone() {
            Some(prefix) => Arc::new(Stats::new(prefix, records, (n_records, n_omitted), &surroundings)),
            None => Arc::new(records),
        };
        let server = Server::start_telling(config, source, log.clone()).map_err(IocError::Server)?;
        crank.set_signal(server.rights_signal());
        // A put through a link ends when the record at its other end has processed, however long that takes.
        let links = self.links.map(|config| ClientConfig { operation_timeout: Duration::MAX, ..config });
        let outside = links.map(|config| Outside::start(&crank, Context::new(config)));
        let outside = outside.transpose().map_err(IocError::System)?;
        let page = self.metrics.map(|(listener, left_out)| {
            let (crank, observer, started) = (crank.clone(), server.observer(), SystemTime::now());
            let metrics = Metrics { crank, observer, n_records, n_omitted, started, left_out };
            let (path, text) = ("/metrics", Box::new(move || metrics.text()));
            Page::serve(listener, PageConfig { path, content_type: metrics::CONTENT_TYPE, text })
        });
        let metrics = page.transpose().map_err(IocError::System)?;
        let scans = crank.clone();
        let thread = std::thread::Builder::new()
            .name("fodo-scan".into())
            .spawn(move || scans.run_scans())
            .map_err(IocError::System)?;
        let (server, scans, reccaster, saver) = (Some(server), Some(thread), None, None);
        Ok(RunningIoc {
            crank,
            outside,
            server,
            scans,
            metrics,
            reccaster,
            saver,
            log,
            surroundings,
            n_records,
            address,
        })
    }
}

/// An IOC that serves; it stops when dropped.
#[derive(Debug)]
pub struct RunningIoc {
    crank: Arc<Crank>,
    outside: Option<Outside>,
    server: Option<Server>,
    scans: Option<JoinHandle<()>>,
    metrics: Option<Page>,
    reccaster: Option<RecCaster>,
    surroundings: Surroundings,
    /// None as long as nothing is to be saved.
    saver: Option<Saver>,
    log: Log,
    n_records: usize,
    address: Ipv4Addr,
}

impl RunningIoc {
    /// Reads the access file again and has its rules hold, for clients that are connected as well.
    ///
    /// Returns what in it has no effect, as lines. When it cannot be read or understood, what held before goes on to hold.
    /// Without an access file nothing happens.
    pub fn reload_access(&self) -> Result<Vec<String>, IocError> {
        let read = self.crank.guard().read_again(self.crank.database());
        let Some(mut rules) = read? else { return Ok(Vec::new()) };
        let warnings = std::mem::take(&mut rules.warnings);
        self.crank.set_rules(rules);
        Ok(warnings)
    }

    /// Has RecCeivers that announce themselves told of its records. What goes wrong is told to `log`.
    pub fn tell_receivers(&mut self, told: Told, log: Log) -> Result<(), IocError> {
        let (port, config) = (told.port, told.config(self.address));
        let inventory = told.inventory(self.crank.clone(), &self.surroundings, self.tcp_port());
        let reccaster = RecCaster::start(config, inventory, log);
        self.reccaster = Some(reccaster.map_err(|error| IocError::RecCaster { port, error })?);
        Ok(())
    }

    /// Where its metrics are read.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Page::address)
    }

    /// How many records it has.
    pub fn n_records(&self) -> usize {
        self.n_records
    }

    /// The first address it serves on; the unspecified one for all.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Every client there is now; waits half a second at most for each of the server's threads.
    pub fn clients(&self) -> Vec<ClientStatus> {
        self.server.as_ref().map_or(Vec::new(), |server| server.observer().clients())
    }

    /// What saves values; starts it.
    fn saver(&mut self) -> std::io::Result<&Saver> {
        let saver = match self.saver.take() {
            Some(saver) => saver,
            None => Saver::start(self.crank.clone(), self.log.clone())?,
        };
        Ok(self.saver.insert(saver))
    }

    fn crank(&self) -> Arc<Crank> {
        self.crank.clone()
    }

    /// The TCP port of the circuits.
    pub fn tcp_port(&self) -> u16 {
        self.server.as_ref().map_or(0, Server::tcp_port)
    }

    /// The UDP port of the searches.
    pub fn udp_port(&self) -> u16 {
        self.server.as_ref().map_or(0, Server::udp_port)
    }

    /// Stops serving and scanning and saves a last time; returns when all has ended.
    pub fn stop(mut self) -> Result<(), NotSaved> {
        self.end()
    }

    fn end(&mut self) -> Result<(), NotSaved> {
        self.outside.take();
        self.metrics.take();
        self.reccaster.take();
        self.server.take();
        self.crank.stop();
        if let Some(scans) = self.scans.take() {
            // A scan thread that panicked has said so on stderr.
            let _ = scans.join();
        }
        // Nothing changes any more: what has changed is saved a last time.
        match self.saver.take().map_or(0, Saver::finish) {
            0 => Ok(()),
            n_sets => Err(NotSaved { n_sets }),
        }
    }
}

impl Drop for RunningIoc {
    fn drop(&mut self) {
        // Whoever wants to know whether all is saved calls `stop`.
        let _ = self.end();
    }
}
