//! Processes of the two ends of a load.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::double::Misbehavior;
use super::produce::{database, scan_of};
use super::tally::NumberEncoding;
use super::traffic::TrafficCounters;
use super::worker::READY;
use super::{ANSWER_MAX, FanOut, Producer, start, start_own_server, start_server, unavailable};
use crate::driver::external::{self, WatchTask};
use crate::driver::{ClientUnderTest, DriverFailure};
use crate::hosts::{self, TwoHosts};
use crate::peers::{self, Peers};
use crate::placement::{CpuChoice, HostLink, Placement};
use crate::process::{ChildProcess, Launch, Ports};
use crate::protocol::LabProtocol;
use crate::server::{ServerExtras, ServerKind, ServerUnderTest};

const CLIENT: &str = "the load's client";

/// Options of a virtual machine whose heap has its size, and is resident, from the start.
const RESIDENT_HEAP: &str = "-Xms1g -Xmx1g -XX:+AlwaysPreTouch -XX:+UseSerialGC";

/// Both ends, ready. All processes end when it is dropped.
pub struct LoadProcesses {
    /// Handles `produce` and `count`: our server itself, or the generator that changes another server's values.
    pub server: ChildProcess,
    /// Handles `watch` and the requests that follow.
    pub client: ChildProcess,
    /// Counters of what both send.
    pub traffic: TrafficCounters,
    /// A server that cannot handle our requests.
    _black_box: Option<(ServerUnderTest, TemporaryDatabase)>,
    /// The networks of both; dropped after the processes.
    _hosts: Option<TwoHosts>,
}

/// The ports of each end, in the network where it runs.
#[derive(Clone, Copy)]
struct EndPorts {
    server: Ports,
    client: Ports,
}

impl EndPorts {
    fn choose(hosts: Option<&TwoHosts>) -> std::io::Result<EndPorts> {
        let ports = Ports::free()?;
        Ok(match hosts {
            None => EndPorts { server: ports, client: ports },
            Some(hosts) => EndPorts {
                server: Ports { host: hosts::SERVER, network_of: Some(hosts.server_number()), ..ports },
                client: Ports { host: hosts::SERVER, network_of: Some(hosts.client_number()), ..ports },
            },
        })
    }
}

fn make_hosts(placement: Placement) -> Result<Option<TwoHosts>, DriverFailure> {
    if placement.link() == HostLink::Loopback {
        return Ok(None);
    }
    let hosts = TwoHosts::make().and_then(|hosts| hosts.send_single_segments().map(|()| hosts));
    hosts.map(Some).map_err(|why| DriverFailure::Unavailable { who: "two hosts".into(), why })
}

fn counters(hosts: Option<&TwoHosts>, port: u16) -> TrafficCounters {
    match hosts {
        None => TrafficCounters::Circuits(port),
        Some(hosts) => TrafficCounters::Cards { server: hosts.server_number(), client: hosts.client_number() },
    }
}

impl LoadProcesses {
    /// Starts the processes that `load` names.
    pub fn start(load: &FanOut, placement: Placement, cpus: &CpuChoice) -> Result<LoadProcesses, DriverFailure> {
        let numbers = load.numbers();
        let hosts = make_hosts(placement)?;
        if load.producer() != Producer::Calc && load.producer() != Producer::Puts {
            let ports = EndPorts::choose(hosts.as_ref()).map_err(|why| unavailable("ports", &why))?;
            let server = match (load.producer(), load.n_elements) {
                (Producer::Python, _) => when_ready(&external::launch_counters(
                    load.server,
                    load.n_pvs,
                    ports.server,
                    cpus.server_cpu,
                    &peers::present(),
                )?)?,
                (_, Some(n)) => start_own_server(["serve-stream", "--elements", &n.to_string()], cpus, ports.server)?,
                (_, None) => start_server(load.n_pvs, cpus, ports.server)?,
            };
            let client = watcher(load, numbers, placement, cpus, ports.client)?;
            let traffic = counters(hosts.as_ref(), ports.server.port_of(load.protocol));
            return Ok(LoadProcesses { server, client, traffic, _black_box: None, _hosts: hosts });
        }
        let file = TemporaryDatabase::write(&database(load.n_pvs, numbers))
            .map_err(|why| unavailable("the database", &why))?;
        let link = hosts.as_ref().map(|hosts| (hosts, HostLink::Cards));
        let (cpu, extras) = (cpus.server_cpu, ServerExtras { has_metrics: true, ..ServerExtras::default() });
        let black_box = ServerUnderTest::start_with(load.server, file.path(), cpu, link, &peers::present(), extras)?;
        let ports = black_box.ports();
        let mut words: Vec<OsString> = vec!["produce-load".into(), "--pvs".into(), load.n_pvs.to_string().into()];
        words.extend(["--numbers".into(), numbers.text().into()]);
        words.extend(["--server".into(), black_box.process_number().into()]);
        if let Some(metrics) = black_box.metrics() {
            words.extend(["--metrics".into(), metrics.to_string().into()]);
        }
        // A client other than ours cannot be made to misbehave, so the generator does.
        words.extend(double_words(load.double.filter(|_| !load.client.is_rust_of_fodo())));
        // On any CPU, and on the server's host: it belongs to neither end, and what it sends is not counted there.
        let beside = Ports { network_of: hosts.as_ref().map(TwoHosts::server_number), ..ports };
        let server = start("the load's generator", words, None, beside, LabProtocol::Ca)?;
        let client = watcher(load, numbers, placement, cpus, ports)?;
        let traffic = counters(hosts.as_ref(), ports.port_of(load.protocol));
        Ok(LoadProcesses { server, client, traffic, _black_box: Some((black_box, file)), _hosts: hosts })
    }
}

impl FanOut {
    /// The requested producer, or the default for server and rate.
    pub fn producer(&self) -> Producer {
        match self.producer {
            _ if self.n_elements.is_some() => Producer::Stream,
            _ if self.server.is_set_by_python() => Producer::Python,
            Some(producer) => producer,
            None if self.server == ServerKind::Fodo => Producer::Schedule,
            None if scan_of(self.rate_hz).is_some() => Producer::Calc,
            None => Producer::Puts,
        }
    }

    /// How its values encode their number.
    pub(super) fn numbers(&self) -> NumberEncoding {
        match self.producer() {
            Producer::Calc | Producer::Python => NumberEncoding::Plain,
            Producer::Schedule | Producer::Puts | Producer::Stream => NumberEncoding::Checked,
        }
    }

    /// Why this load is impossible, if it is.
    pub(super) fn misfit(&self, placement: Placement) -> Option<String> {
        if !self.client.is_measured_over(self.protocol) || !self.server.is_measured_over(self.protocol) {
            let (client, server) = (self.client.text(), self.server.text());
            return Some(format!("{client} with {server} is not measured over {}", self.protocol.text()));
        }
        match self.producer() {
            Producer::Schedule if self.server != ServerKind::Fodo => Some(format!(
                "{} cannot change values on our schedule; use `puts` or `calc` as producer",
                self.server.text()
            )),
            Producer::Stream if self.server != ServerKind::Fodo => {
                Some(format!("{} receives arrays by puts, whose rate would be measured instead", self.server.text()))
            }
            Producer::Stream if !self.client.watches_arrays() => {
                Some(format!("the watcher of {} does not support arrays", self.client.text()))
            }
            Producer::Calc if scan_of(self.rate_hz).is_none() => {
                Some(format!("SCAN does not support {} Hz; use `puts` as producer", self.rate_hz))
            }
            Producer::Python if !self.server.is_set_by_python() => {
                Some(format!("{} is not set by a program in Python", self.server.text()))
            }
            _ if placement == Placement::TwoHostsDelayed => Some("loads do not run on delayed hosts".into()),
            Producer::Schedule | Producer::Calc | Producer::Python | Producer::Stream
                if self.double.is_some() && !self.client.is_rust_of_fodo() =>
            {
                Some("with another client than fodo the generator misbehaves; use `puts` as producer".into())
            }
            _ => None,
        }
    }
}

fn watcher(
    load: &FanOut,
    numbers: NumberEncoding,
    placement: Placement,
    cpus: &CpuChoice,
    ports: Ports,
) -> Result<ChildProcess, DriverFailure> {
    let task = WatchTask { protocol: load.protocol, numbers, recording: load.recording };
    if load.client.is_rust_of_fodo() {
        return fodo(load.client, load.double, task, cpus.client_cpu(placement), ports);
    }
    watcher_of(load.client, task, placement, cpus, ports)
}

/// A client of that kind that does not misbehave.
pub(super) fn watcher_of(
    client: ClientUnderTest,
    task: WatchTask,
    placement: Placement,
    cpus: &CpuChoice,
    ports: Ports,
) -> Result<ChildProcess, DriverFailure> {
    let cpu = cpus.client_cpu(placement);
    if let Some(external) = client.external() {
        let launch = external.launch_watch(task, ports, cpu, &peers::present())?;
        return when_ready(&launch);
    }
    match client {
        ClientUnderTest::Fodo | ClientUnderTest::FodoGroup => fodo(client, None, task, cpu, ports),
        ClientUnderTest::Libca => libca(task.numbers, cpu, ports, &peers::present()),
        other => {
            let why = "this client does not support subscriptions".into();
            Err(DriverFailure::Unavailable { who: other.text().into(), why })
        }
    }
}

/// Our client in Rust, with callbacks or a group, or one that misbehaves as `double` says.
pub(super) fn fodo(
    client: ClientUnderTest,
    double: Option<Misbehavior>,
    task: WatchTask,
    cpu: Option<usize>,
    ports: Ports,
) -> Result<ChildProcess, DriverFailure> {
    let mut words: Vec<OsString> = vec!["watch-load".into(), "--numbers".into(), task.numbers.text().into()];
    words.extend((client == ClientUnderTest::FodoGroup).then(|| "--group".into()));
    words.extend(double_words(double));
    start(CLIENT, words, cpu, ports, task.protocol)
}

/// A client whose resident memory grows only by its channels and subscriptions.
pub(super) fn idle_client(
    client: ClientUnderTest,
    protocol: LabProtocol,
    placement: Placement,
    cpus: &CpuChoice,
    ports: Ports,
) -> Result<ChildProcess, DriverFailure> {
    let (task, cpu) = (WatchTask::every(protocol), cpus.client_cpu(placement));
    let external = match client.external() {
        None if client == ClientUnderTest::Fodo => return fodo(client, None, task, cpu, ports),
        Some(external) if client == ClientUnderTest::FodoJava => external,
        _ => {
            let why = "the memory of its idle channels is not measured".into();
            return Err(DriverFailure::Unavailable { who: client.text().into(), why });
        }
    };
    let mut launch = external.launch_watch(task, ports, cpu, &peers::present())?;
    launch.variables.push(("JAVA_TOOL_OPTIONS", RESIDENT_HEAP.into()));
    when_ready(&launch)
}

fn double_words(double: Option<Misbehavior>) -> Vec<OsString> {
    let words = double.map(|double| ["--double".into(), format!("{double:?}").to_lowercase().into()]);
    words.into_iter().flatten().collect()
}

fn libca(
    numbers: NumberEncoding,
    cpu: Option<usize>,
    ports: Ports,
    peers: &Peers,
) -> Result<ChildProcess, DriverFailure> {
    let missing = |why: &String| DriverFailure::Unavailable { who: "libca".into(), why: why.clone() };
    let epics = peers.epics.as_ref().map_err(missing)?;
    let program = crate::program::path().map_err(|why| unavailable(CLIENT, &why))?;
    let mut args: Vec<OsString> = ["lab", "worker", "watch-libca"].map(OsString::from).to_vec();
    args.extend([epics.libca.clone().into(), epics.libcom.clone().into()]);
    args.extend(["--numbers".into(), numbers.text().into()]);
    // libca would start a caRepeater found in PATH, which would outlive libca.
    let variables = vec![("PATH", OsString::new())];
    when_ready(&Launch { who: CLIENT.into(), program, args, cpu, ports, variables })
}

fn when_ready(launch: &Launch) -> Result<ChildProcess, DriverFailure> {
    let mut process = ChildProcess::start(launch)?;
    process.wait_for(ANSWER_MAX, |line| (line == READY).then_some(()))?;
    Ok(process)
}

/// The database file of a load; removed when dropped.
#[derive(Debug)]
pub struct TemporaryDatabase(PathBuf);

impl TemporaryDatabase {
    pub fn write(records: &str) -> std::io::Result<TemporaryDatabase> {
        // Two loads of one process have different names, because a port free now is unused by other processes.
        let name = format!("fodo-lab-load-{}-{}.db", std::process::id(), Ports::free()?.server);
        let file = TemporaryDatabase(std::env::temp_dir().join(name));
        std::fs::write(file.path(), records)?;
        Ok(file)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryDatabase {
    fn drop(&mut self) {
        // A file that cannot be removed is a few kilobytes in the temporary directory.
        let _ = std::fs::remove_file(&self.0);
    }
}
