//! Processes of the two ends of a load.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::double::Misbehavior;
use super::produce::{database, scan_of};
use super::tally::NumberEncoding;
use super::worker::READY;
use super::{ANSWER_MAX, FanOut, Producer, start, start_server, unavailable};
use crate::driver::{ClientUnderTest, DriverFailure};
use crate::peers::{self, Peers};
use crate::placement::{CpuChoice, Placement};
use crate::process::{ChildProcess, Launch, Ports};
use crate::server::{ServerKind, ServerUnderTest};

const CLIENT: &str = "the load's client";

/// Both ends, ready. All processes end when it is dropped.
pub struct LoadProcesses {
    /// Handles `produce` and `count`: our server itself, or the generator that changes another server's values.
    pub server: ChildProcess,
    /// Handles `watch` and the requests that follow.
    pub client: ChildProcess,
    /// Port at which the client reaches the server it watches.
    pub port: u16,
    /// A server that cannot handle our requests.
    _black_box: Option<(ServerUnderTest, TemporaryDatabase)>,
}

impl LoadProcesses {
    /// Starts the processes that `load` names.
    pub fn start(load: &FanOut, placement: Placement, cpus: &CpuChoice) -> Result<LoadProcesses, DriverFailure> {
        let numbers = load.numbers();
        if load.producer() == Producer::Schedule {
            let ports = Ports::free().map_err(|why| unavailable("ports", &why))?;
            let server = start_server(load.n_pvs, cpus, ports)?;
            let client = watcher(load, numbers, placement, cpus, ports)?;
            return Ok(LoadProcesses { server, client, port: ports.server, _black_box: None });
        }
        let file = TemporaryDatabase::write(&database(load.n_pvs, numbers))
            .map_err(|why| unavailable("the database", &why))?;
        let black_box = ServerUnderTest::start(load.server, file.path(), cpus.server_cpu, None, &peers::present())?;
        let ports = black_box.ports();
        let mut words: Vec<OsString> = vec!["produce-load".into(), "--pvs".into(), load.n_pvs.to_string().into()];
        words.extend(["--numbers".into(), numbers.text().into()]);
        words.extend(["--server".into(), black_box.process_number().into()]);
        // A client other than ours cannot be made to misbehave, so the generator does.
        words.extend(double_words(load.double.filter(|_| load.client != ClientUnderTest::Fodo)));
        // On any CPU: it belongs to neither end.
        let server = start("the load's generator", words, None, ports)?;
        let client = watcher(load, numbers, placement, cpus, ports)?;
        Ok(LoadProcesses { server, client, port: ports.server, _black_box: Some((black_box, file)) })
    }
}

impl FanOut {
    /// The requested producer, or the default for server and rate.
    pub fn producer(&self) -> Producer {
        match self.producer {
            Some(producer) => producer,
            None if self.server == ServerKind::Fodo => Producer::Schedule,
            None if scan_of(self.rate_hz).is_some() => Producer::Calc,
            None => Producer::Puts,
        }
    }

    /// How its values encode their number.
    pub(super) fn numbers(&self) -> NumberEncoding {
        match self.producer() {
            Producer::Calc => NumberEncoding::Plain,
            Producer::Schedule | Producer::Puts => NumberEncoding::Checked,
        }
    }

    /// Why this load is impossible, if it is.
    pub(super) fn misfit(&self) -> Option<String> {
        match self.producer() {
            Producer::Schedule if self.server != ServerKind::Fodo => Some(format!(
                "{} cannot change values on our schedule; use `puts` or `calc` as producer",
                self.server.text()
            )),
            Producer::Calc if scan_of(self.rate_hz).is_none() => {
                Some(format!("SCAN does not support {} Hz; use `puts` as producer", self.rate_hz))
            }
            Producer::Schedule | Producer::Calc if self.double.is_some() && self.client != ClientUnderTest::Fodo => {
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
    match load.client {
        ClientUnderTest::Fodo => fodo(load.double, numbers, cpus.client_cpu(placement), ports),
        client => watcher_of(client, numbers, placement, cpus, ports),
    }
}

/// A client of that kind that does not misbehave.
pub(super) fn watcher_of(
    client: ClientUnderTest,
    numbers: NumberEncoding,
    placement: Placement,
    cpus: &CpuChoice,
    ports: Ports,
) -> Result<ChildProcess, DriverFailure> {
    let cpu = cpus.client_cpu(placement);
    if let Some(external) = client.external() {
        let launch = external.launch_watch(numbers, ports, cpu, &peers::present())?;
        return when_ready(&launch);
    }
    match client {
        ClientUnderTest::Fodo => fodo(None, numbers, cpu, ports),
        ClientUnderTest::Libca => libca(numbers, cpu, ports, &peers::present()),
        other => {
            let why = "this client does not support subscriptions".into();
            Err(DriverFailure::Unavailable { who: other.text().into(), why })
        }
    }
}

/// Our client, or one that misbehaves as `double` says.
pub(super) fn fodo(
    double: Option<Misbehavior>,
    numbers: NumberEncoding,
    cpu: Option<usize>,
    ports: Ports,
) -> Result<ChildProcess, DriverFailure> {
    let mut words: Vec<OsString> = vec!["watch-load".into(), "--numbers".into(), numbers.text().into()];
    words.extend(double_words(double));
    start(CLIENT, words, cpu, ports)
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
    let program = std::env::current_exe().map_err(|why| unavailable(CLIENT, &why))?;
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
pub(super) struct TemporaryDatabase(PathBuf);

impl TemporaryDatabase {
    pub(super) fn write(records: &str) -> std::io::Result<TemporaryDatabase> {
        // Two loads of one process have different names, because a port free now is unused by other processes.
        let name = format!("fodo-lab-load-{}-{}.db", std::process::id(), Ports::free()?.server);
        let file = TemporaryDatabase(std::env::temp_dir().join(name));
        std::fs::write(file.path(), records)?;
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryDatabase {
    fn drop(&mut self) {
        // A file that cannot be removed is a few kilobytes in the temporary directory.
        let _ = std::fs::remove_file(&self.0);
    }
}
