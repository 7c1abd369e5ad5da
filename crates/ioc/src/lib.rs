//! A soft IOC: connects the record database to the network.
//!
//! | task | start with |
//! | --- | --- |
//! | serve the records of `.db` files | [`Ioc::load`], [`Ioc::serve`] |
//! | run an IOC in a program that sets and takes values | [`IocBuilder`], [`RecordHandle`], [`OutputRequest`] |
//! | write a routine of `sub` or `aSub` records in Rust | [`Ioc::of`] with a [`Loader`] |
//! | restrict and log puts | [`Policy`], [`Ioc::with_policy`] |
//! | serve other PVs beside records | [`Ioc::also_serving`] |
//! | publish metrics for Prometheus | [`Ioc::with_metrics`] |
//! | run or check an `st.cmd` file | [`shell`] |
//! | save values and restore them at the next start | [`autosave`] |
//!
//! # Serve records
//!
//! [`Ioc::load`] reads `.db` files with their macros, [`Ioc::serve`] puts the records on the network and starts the
//! scans. A [`RunningIoc`] stops when it is dropped; [`RunningIoc::stop`] also reports what could not be saved.
//!
//! ```
//! use fodo_ioc::Ioc;
//! use fodo_net::{Context, ServerConfig, Value};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("fodo-guide-serve-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! let file = folder.join("gap.db");
//! std::fs::write(&file, r#"record(ao, "$(P)gap") { field(VAL, "12.5") field(EGU, "mm") }"#)?;
//!
//! let ioc = Ioc::load(&[(file, "P=X:".into())])?;
//! // For a test: on loopback, on free ports. `ServerConfig::from_env` serves on the network.
//! let running = ioc.serve(ServerConfig::isolated())?;
//!
//! let context = Context::new(running.client_config());
//! let gap = context.channel("X:gap")?;
//! gap.put(20.0)?;
//! assert_eq!(gap.get()?.value, Value::from(20.0));
//! running.stop()?;
//! # std::fs::remove_dir_all(folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Routines
//!
//! A routine is a Rust closure that `sub` or `aSub` records call. Register it with a [`Loader`] before the files that
//! use it are loaded, and pass the loader to [`Ioc::of`].
//!
//! ```
//! use fodo_ioc::Ioc;
//! use fodo_net::{Context, ServerConfig, Value};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut loader = fodo_ioc::Loader::default();
//! loader.array_routine("mean", |call| {
//!     let samples = call.input::<f64>('A')?;
//!     call.set_output('A', &[samples.iter().sum::<f64>() / samples.len() as f64])?;
//!     Ok(0)
//! });
//! let records = r#"
//!     record(waveform, "X:samples") { field(FTVL, "DOUBLE") field(NELM, "100") field(FLNK, "X:mean") }
//!     record(aSub, "X:mean") { field(SNAM, "mean") field(INPA, "X:samples") field(NOA, "100") }
//! "#;
//! loader.load("mean.db", "", &mut |_| Ok(records.into())).map_err(fodo_ioc::IocError::Load)?;
//! let running = Ioc::of(loader)?.serve(ServerConfig::isolated())?;
//!
//! let context = Context::new(running.client_config());
//! context.channel("X:samples")?.put(vec![1.0, 2.0, 6.0])?;
//! assert_eq!(context.channel("X:mean.VALA")?.get()?.value, Value::from(3.0));
//! # Ok(())
//! # }
//! ```
//!
//! # Access rules
//!
//! A [`Policy`] determines who may write, and passes each successful put to a callback, for instance to log it.
//! [`RunningIoc::reload_access`] applies a changed access file without a restart.
//!
//! ```
//! use fodo_ioc::{Ioc, Policy, PutEvent};
//! use fodo_net::{Context, ServerConfig, Value};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("fodo-guide-access-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let (records, rules) = (folder.join("gap.db"), folder.join("gap.acf"));
//! std::fs::write(&records, r#"record(ao, "gap") { field(ASG, "OPERATION") } record(ao, "offset") {}"#)?;
//! std::fs::write(&rules, "ASG(DEFAULT) { RULE(1, READ) } ASG(OPERATION) { RULE(1, WRITE, TRAPWRITE) }")?;
//!
//! let (sender, puts) = std::sync::mpsc::channel();
//! let policy = Policy {
//!     access_file: Some((rules, String::new())),
//!     put_listener: Some(Box::new(move |put: PutEvent| drop(sender.send(put)))),
//!     ..Policy::default()
//! };
//! let ioc = Ioc::load(&[(records, String::new())])?.with_policy(policy)?;
//! ioc.access_warnings().iter().for_each(|warning| eprintln!("{warning}"));
//! let running = ioc.serve(ServerConfig::isolated())?;
//!
//! let context = Context::new(running.client_config());
//! assert!(context.channel("offset")?.put(1.0).is_err());
//! context.channel("gap")?.put(20.0)?;
//! let put = puts.recv()?;
//! println!("{}: {} changed from {:?} to {:?}", put.by.user, put.pv, put.old, put.new);
//! assert_eq!(put.new, Value::from(20.0));
//!
//! running.reload_access()?;
//! # std::fs::remove_dir_all(folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Metrics
//!
//! [`Ioc::with_metrics`] serves counters of the IOC over HTTP. [`RunningIoc::clients`] has the same facts of each client.
//!
//! ```
//! use fodo_ioc::Ioc;
//! use fodo_net::ServerConfig;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let loader = fodo_ioc::Loader::default();
//! let running = Ioc::of(loader)?.with_metrics(([127, 0, 0, 1], 0).into(), None)?.serve(ServerConfig::isolated())?;
//! if let Some(address) = running.metrics_address() {
//!     println!("metrics of {} records: http://{address}/metrics", running.n_records());
//! }
//! for client in running.clients() {
//!     println!("{client:?}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Autosave
//!
//! A [`Shell`](shell::Shell) saves values while the IOC runs and restores them at the next start. The module [`autosave`]
//! has an example.
//!
//! # Threads
//!
//! - The threads of the server (`fodo-server-0` and so on) decode puts and process the records that these start. A
//!   routine, and the callbacks of a [`Policy`], run on the thread that processes; meanwhile no other record processes.
//! - `fodo-scan` processes periodic scans and delays.
//! - `fodo-program` calls the functions of [`IocBuilder::on_output`], if there are any.
//! - [`Ioc::with_links`] adds `fodo-links`, which executes the requests of links, and the threads of a client.
//! - [`Ioc::with_metrics`] and [`RunningIoc::announce`] share `fodo-reports`. Autosave has `fodo-autosave`.
#![forbid(unsafe_code)]

mod access_control;
pub mod autosave;
mod driver;
mod error;
pub mod file;
mod group;
mod limit;
mod link_client;
mod metrics;
mod names;
mod printable;
pub mod process;
mod program;
mod pv;
pub mod reccaster;
mod running;
mod service;
pub mod shell;
mod site;
mod stats;
#[cfg(test)]
mod testing;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use access_control::{Policy, PutCallback, PutEvent};
pub use error::{IocError, UnsavedSets};
pub use metrics::{CountMissingPuts, Page, PageConfig};
pub use printable::printable;
pub use program::{IocBuilder, OutputRequest, RecordError, RecordHandle, SetManyError};
pub use reccaster::RecSyncConfig;
pub use running::RunningIoc;
pub use stats::Surroundings;

pub use fodo_db::{LoadError, Loader, ProgramError, ProgramValue, PutError, RecordDefinition, RoutineFailed, States};

use fodo_db::Database;
use fodo_net::log::Log;
use fodo_net::{ClientConfig, Context, PvTable, ServedPv, Server, ServerConfig, Source, SourceChain};

use crate::access_control::{AccessControl, Rules};
use crate::autosave::set::SaveSet;
use crate::driver::DatabaseDriver;
use crate::group::{GroupPv, ResolvedGroups};
use crate::link_client::{LinkClient, OwnServer};
use crate::metrics::Metrics;
use crate::program::output::OutputHandlers;
use crate::stats::IocStats;

/// A loaded database that is not served yet. [The guide](crate#serve-records) has examples.
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
    /// The program's functions for outputs.
    handlers: OutputHandlers,
    /// The sets to save while it runs.
    sets: Vec<SaveSet>,
    autosave_warnings: Vec<String>,
    groups: ResolvedGroups,
    /// What is served beside the records.
    others: SourceChain,
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
    /// use fodo_ioc::{Ioc, Loader};
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
        let mut ioc = Ioc::within(loader, None)?;
        let errors = ioc.take_group_errors();
        if errors.is_empty() { Ok(ioc) } else { Err(IocError::Load(errors)) }
    }

    /// The same as `of`, but records see the variables of a shell instead of those of the process, and groups with
    /// mistakes are left out.
    fn within(mut loader: Loader, environment: Option<site::SharedEnvironment>) -> Result<Ioc, IocError> {
        loader.set_site(Arc::new(site::ProcessSite::new(environment)));
        let (definitions, missing) = (loader.take_groups(), loader.omitted_records().clone());
        let n_omitted = loader.omitted().total() - definitions.errors.len();
        let database = loader.finish().map_err(IocError::Load)?;
        let groups = group::resolve(&database, definitions, &missing);
        let n_omitted = n_omitted + groups.errors.len();
        let (guard, rules, surroundings) = (AccessControl::open(), Rules::none(), Surroundings::of_process());
        let (handlers, sets, autosave_warnings) = (OutputHandlers::default(), Vec::new(), Vec::new());
        let (links, metrics, others) = (None, None, SourceChain::new(Vec::new()));
        Ok(Ioc {
            database,
            guard,
            rules,
            links,
            surroundings,
            metrics,
            n_omitted,
            handlers,
            sets,
            autosave_warnings,
            groups,
            others,
        })
    }

    /// Removes and returns the mistakes in groups that are left out.
    fn take_group_errors(&mut self) -> Vec<LoadError> {
        std::mem::take(&mut self.groups.errors)
    }

    /// Applies an access policy. Without one every client may do everything. [The guide](crate#access-rules) has an
    /// example.
    ///
    /// Fails if the access file cannot be read or contains errors.
    pub fn with_policy(self, policy: Policy) -> Result<Ioc, IocError> {
        let (guard, rules) = AccessControl::new(policy, &self.database)?;
        Ok(Ioc { guard, rules, ..self })
    }

    /// Enables links to PVs of other IOCs, and access rule inputs from them. Without this call they never connect.
    ///
    /// `config`: of the client for these links. Its `operation_timeout` is not used: a put through a link ends when the
    /// target record has processed.
    ///
    /// ```
    /// use fodo_ioc::Ioc;
    /// use fodo_net::{ClientConfig, ServerConfig};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ClientConfig::default();
    /// let mut loader = fodo_ioc::Loader::default();
    /// let copy = r#"record(ai, "copy") { field(INP, "other:gap CP") }"#;
    /// loader.load("copy.db", "", &mut |_| Ok(copy.into())).map_err(fodo_ioc::IocError::Load)?;
    ///
    /// // `config`: from `ClientConfig::from_env`, for instance.
    /// let running = Ioc::of(loader)?.with_links(config).serve(ServerConfig::isolated())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_links(self, config: ClientConfig) -> Ioc {
        Ioc { links: Some(config), ..self }
    }

    /// Serves other PVs beside the records. A record or group takes precedence over another PV with the same name. The
    /// access policy, links and autosave are for records only.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use fodo_ioc::Ioc;
    /// use fodo_net::{Context, PvTable, ServerConfig, SharedPv, Value};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let table = PvTable::from([("lab:temperature", SharedPv::new(21.5))]);
    /// let ioc = Ioc::of(fodo_ioc::Loader::default())?.also_serving(vec![Arc::new(table)]);
    /// let running = ioc.serve(ServerConfig::isolated())?;
    ///
    /// let context = Context::new(running.client_config());
    /// assert_eq!(context.channel("lab:temperature")?.get()?.value, Value::from(21.5));
    /// # Ok(())
    /// # }
    /// ```
    pub fn also_serving(self, sources: Vec<Arc<dyn Source>>) -> Ioc {
        Ioc { others: SourceChain::new(sources), ..self }
    }

    /// Sets the host facts to publish; by default those of this process. [`Surroundings`] has an example.
    pub fn with_surroundings(self, surroundings: Surroundings) -> Ioc {
        Ioc { surroundings, ..self }
    }

    /// Serves metrics for Prometheus over HTTP under `/metrics` on this address; port 0 selects a free port.
    ///
    /// `left_out`: the counter of an IOC with a put log. Fails if the address cannot be bound. [The
    /// guide](crate#metrics) has an example.
    pub fn with_metrics(self, address: SocketAddr, left_out: Option<CountMissingPuts>) -> Result<Ioc, IocError> {
        let listener = TcpListener::bind(address).map_err(|error| IocError::Metrics { address, error })?;
        Ok(Ioc { metrics: Some((listener, left_out)), ..self })
    }

    /// Warnings about parts of the access file that have no effect, one line each.
    pub fn access_warnings(&self) -> &[String] {
        &self.rules.warnings
    }

    /// Warnings of [`IocBuilder::keep_values_in`], one line each: values that are not restored, files that cannot be used.
    pub fn autosave_warnings(&self) -> &[String] {
        &self.autosave_warnings
    }

    /// The named states of filters, links and records. Filters only find states that have been created.
    ///
    /// ```
    /// use fodo_ioc::Ioc;
    ///
    /// let ioc = Ioc::of(fodo_ioc::Loader::default()).unwrap();
    /// ioc.states().create("beam").set(true);
    /// assert!(ioc.states().find("beam").is_some_and(|beam| beam.is_on()));
    /// ```
    pub fn states(&self) -> &States {
        self.database.states()
    }

    /// Serves the records and starts the scans; dropping the result stops both.
    pub fn serve(self, config: ServerConfig) -> Result<RunningIoc, IocError> {
        self.serve_with_log(config, Log::silent())
    }

    /// The same as [`Ioc::serve`], with network events reported to `log`.
    ///
    /// ```
    /// use fodo_ioc::Ioc;
    /// use fodo_net::ServerConfig;
    /// use fodo_net::log::{Level, Log};
    ///
    /// # fn main() -> Result<(), fodo_ioc::IocError> {
    /// # let ioc = Ioc::of(fodo_ioc::Loader::default())?;
    /// let log = Log::new(Level::Warning, |line| eprintln!("{line}"));
    /// let running = ioc.serve_with_log(ServerConfig::isolated(), log)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn serve_with_log(self, config: ServerConfig, log: Log) -> Result<RunningIoc, IocError> {
        let (n_records, n_omitted) = (self.database.record_names().count(), self.n_omitted);
        let address = config.interfaces.first().copied().unwrap_or(Ipv4Addr::UNSPECIFIED);
        let surroundings = self.surroundings;
        let driver = DatabaseDriver::new(self.database, self.guard);
        driver.set_rules(self.rules);
        for output in self.handlers.0.keys() {
            // `IocBuilder::build` accepts only handlers of outputs.
            let _ = driver.database().take_outputs(*output);
        }
        driver.start();
        let stats =
            config.status_prefix.clone().map(|prefix| (IocStats::new((n_records, n_omitted), &surroundings), prefix));
        let groups = self.groups.groups.into_iter().map(|layout| GroupPv::new(driver.clone(), layout));
        let groups: Vec<Arc<GroupPv>> = groups.collect();
        let mut source: Arc<dyn Source> = Arc::new(pv::Records::new(driver.clone()));
        let mut others: Vec<Arc<dyn Source>> = Vec::new();
        if !groups.is_empty() {
            let served = groups.iter().map(|group| (group.layout().name.clone(), ServedPv::Structured(group.clone())));
            others.push(Arc::new(served.collect::<PvTable>()));
        }
        others.extend(stats.as_ref().map(|(stats, prefix)| Arc::new(stats.table(prefix)) as Arc<dyn Source>));
        if !self.others.is_empty() {
            others.push(Arc::new(self.others));
        }
        if !others.is_empty() {
            others.insert(0, source);
            source = Arc::new(SourceChain::new(others));
        }
        let mut server = Server::start_with_log(config, source.clone(), log.clone()).map_err(IocError::Server)?;
        if let Some((mut stats, _)) = stats {
            server.refresh_every_second(move |clients, _| stats.refresh(clients)).map_err(IocError::Server)?;
        }
        driver.set_signal(server.rights_signal());
        // A put through a link ends when the target record has processed, so it has no timeout.
        let context = |config| Context::new(ClientConfig { operation_timeout: Duration::MAX, ..config });
        let outside = self.links.map(|config| {
            let own = || OwnServer { source, context: context(server.client_config()) };
            LinkClient::start(&driver, context(config), server.pva_tcp_port().map(|_| own()), log.clone())
        });
        let outside = outside.transpose().map_err(IocError::System)?;
        let mut reactor = None;
        let page = self.metrics.map(|(listener, left_out)| {
            let (driver, observer, started) = (driver.clone(), server.observer(), SystemTime::now());
            let metrics = Metrics { driver, observer, n_records, n_omitted, started, left_out };
            let (path, text) = ("/metrics", Box::new(move || metrics.text()));
            let config = PageConfig { path, content_type: metrics::CONTENT_TYPE, text };
            Page::serve(listener, config, running::started_reactor(&mut reactor)?)
        });
        let metrics = page.transpose().map_err(IocError::System)?;
        let (server, scans, outputs, reccaster, saver) = (Some(server), None, None, None, None);
        let mut running = RunningIoc {
            driver,
            groups,
            outside,
            server,
            scans,
            outputs,
            metrics,
            reccaster,
            reactor,
            saver,
            log,
            surroundings,
            n_records,
            address,
        };
        running.start_threads(self.handlers, self.sets).map_err(IocError::System)?;
        Ok(running)
    }
}
