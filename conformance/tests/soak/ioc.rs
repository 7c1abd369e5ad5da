//! The IOC under test: with few file descriptors, access security, autosave, status records and metrics.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fodo_conformance::place::{database, free_port, program};
use fodo_conformance::process::{Process, restrict_to_loopback, set_pva_ports};
use fodo_net::{ClientConfig, Context};
use rustix::process::Signal;

use fodo_testing::eventually;

use crate::PATIENCE;

/// Maximum number of file descriptors of the IOC.
pub const N_DESCRIPTORS: usize = 1024;

/// Elements of `f:huge` and `f:guarded`: 80 MB each.
pub const N_ELEMENTS: u32 = 10_000_000;

/// Initial access rules: everything is writable, except `f:guarded`.
const RULES: &str = "ASG(DEFAULT) { RULE(1, READ) RULE(1, WRITE) }\nASG(GUARDED) { RULE(1, READ) }\n";

/// The rules without write access.
const STRICTER_RULES: &str = "ASG(DEFAULT) { RULE(1, READ) }\nASG(GUARDED) { RULE(1, READ) }\n";

/// Records in addition to those of `records.db`.
const RECORDS: &str = r#"
record(waveform, "f:huge") { field(FTVL, "DOUBLE") field(NELM, "10000000") }
record(waveform, "f:guarded") { field(FTVL, "DOUBLE") field(NELM, "10000000") field(ASG, "GUARDED") }
record(bo, "f:loop") { field(OMSL, "closed_loop") field(DOL, "1") }
record(ao, "f:kept") { info(autosaveFields, "VAL") }
"#;

/// A running IOC, and the folder with its files.
pub struct Ioc {
    process: Process,
    pub server: SocketAddr,
    /// Where it receives searches of pvAccess.
    pub pva_searches: SocketAddr,
    metrics: SocketAddr,
    folder: PathBuf,
    n_files_at_start: usize,
}

impl Ioc {
    /// Starts an IOC without saved values. `name`: the name of its folder.
    pub fn start(name: &str) -> Ioc {
        let port = free_port();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("soak-{name}-{port}"));
        let saved = folder.join("saved");
        std::fs::create_dir_all(&saved).expect("a folder for files");
        std::fs::write(folder.join("soak.db"), RECORDS).expect("a database");
        std::fs::write(folder.join("soak.acf"), RULES).expect("an access file");
        let mut command = Command::new("sh");
        let limit = format!("ulimit -n {N_DESCRIPTORS}; exec \"$@\"");
        command.args(["-c", &limit, "sh"]).arg(program()).args(["ioc", "-m", "P=f:", "-d"]).arg(database("records.db"));
        command.arg("-d").arg(folder.join("soak.db")).arg("-a").arg(folder.join("soak.acf"));
        command.arg("--autosave").arg(&saved).args([
            "--metrics",
            "0",
            "--status-prefix",
            "s",
            "--interface",
            "127.0.0.1",
        ]);
        command.args(["--port", &port.to_string()]);
        restrict_to_loopback(&mut command, port);
        let pva_searches = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        set_pva_ports(&mut command, pva_searches.port(), free_port());
        // Required for the huge arrays.
        command.env("EPICS_CA_MAX_ARRAY_BYTES", "100000000");
        let mut process = Process::start("fodo ioc", &mut command).expect("it starts");
        let ready = process.wait_for_line_starting("fodo ioc: serving", PATIENCE).expect("it serves");
        let (_, url) = ready.split_once("metrics on http://").expect("it prints the address of its metrics");
        let metrics = url.trim_end_matches("/metrics").parse().expect("an address");
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut ioc = Ioc { process, server, pva_searches, metrics, folder, n_files_at_start: 0 };
        ioc.n_files_at_start = ioc.n_files();
        ioc
    }

    /// A client of this IOC.
    pub fn context(&self) -> Context {
        let most = ClientConfig::with_addresses(vec![self.server]);
        Context::new(ClientConfig { payload_bytes_max: 1 << 30, ..most })
    }

    /// Its resident memory in bytes.
    pub fn memory(&self) -> u64 {
        let pages = std::fs::read_to_string(self.account().join("statm")).expect("it runs");
        let resident: u64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("statm has numbers");
        resident * 4096
    }

    /// The same, after it has closed all files but those open at the start and those of a few well-behaved clients.
    pub fn memory_when_alone(&self) -> u64 {
        eventually("descriptors are closed", || self.n_files() <= self.n_files_at_start + 8);
        self.memory()
    }

    /// Number of open files.
    pub fn n_files(&self) -> usize {
        std::fs::read_dir(self.account().join("fd")).expect("it runs").count()
    }

    fn account(&self) -> PathBuf {
        self.process.proc_folder().expect("it runs")
    }

    /// Makes it load rules without write access.
    pub fn make_rules_stricter(&self) {
        self.replace_rules(|path| std::fs::write(path, STRICTER_RULES).expect("an access file"));
    }

    /// Makes it load a pipe without a writer instead of its rules, and then the rules again.
    pub fn offer_a_pipe_as_rules(&self) {
        self.replace_rules(|path| {
            assert!(Command::new("mkfifo").arg(path).status().is_ok_and(|status| status.success()), "a pipe");
        });
        self.replace_rules(|path| std::fs::write(path, RULES).expect("an access file"));
    }

    fn replace_rules(&self, make: impl FnOnce(&Path)) {
        let next = self.folder.join("next.acf");
        make(&next);
        std::fs::rename(next, self.folder.join("soak.acf")).expect("the access file is replaced");
        self.process.signal(Signal::HUP).expect("it runs");
    }

    /// Whether the save file contains this text.
    pub fn has_saved(&self, text: &str) -> bool {
        std::fs::read_to_string(self.folder.join("saved/info_settings.sav")).is_ok_and(|saved| saved.contains(text))
    }

    /// The metrics page, and the time to get it.
    pub fn metrics(&self) -> (String, Duration) {
        let start = Instant::now();
        let mut stream = TcpStream::connect(self.metrics).expect("the page");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("the metrics server accepts a request");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("the metrics server responds");
        (page, start.elapsed())
    }

    /// A number of the metrics page.
    pub fn metric(&self, name: &str) -> f64 {
        let (page, _) = self.metrics();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
    }

    /// The last lines of its output and its log.
    pub fn log(&self) -> String {
        self.process.failure("")
    }

    /// Stops it as an operator does: one signal stops it at once, with exit code 0.
    pub fn stop(self) {
        let status = self.process.stop(Signal::TERM, PATIENCE).expect("one signal ends it");
        assert!(status.success(), "{status}");
        // A folder that remains does no harm.
        let _ = std::fs::remove_dir_all(self.folder);
    }
}
