//! Two hosts in one: network namespaces joined by a link of limited rate.
//!
//! A process that waits for the end of its standard input holds each namespace, so both vanish with the laboratory,
//! however it ends. The host's own network is not changed.
//!
//! The clients' host has a second address, behind which a [`delay`] makes the path to the servers longer.

pub mod delay;

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::driver::DriverFailure;
use crate::process::{ChildProcess, Launch, Ports};
use crate::protocol::LabProtocol;

/// Address of the servers' host. Source of the network: RFC 5737, addresses for documentation.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Address of the clients' host.
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Second address of the clients' host, through which the servers are farther away.
const DELAYED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 5);
/// One-way delay in either direction of a delayed link.
pub const ONE_WAY: Duration = Duration::from_millis(1);
/// The card of either host.
pub const CARD: &str = "fodo0";
/// Rate of the link in each direction.
const RATE: &str = "1gbit";
/// Burst size, and how long the rest may wait in the queue: the values of a switch of this rate.
const BURST: &str = "256kb";
const LATENCY: &str = "50ms";
/// Maximum time for a holder to enter its namespace, and for a delay to listen.
const START_MAX: Duration = Duration::from_secs(5);

/// Both hosts; they end when it is dropped.
#[derive(Debug)]
pub struct TwoHosts {
    server: NamespaceHolder,
    client: NamespaceHolder,
    /// A description of the link.
    pub link: String,
}

impl TwoHosts {
    /// Creates both hosts; an error where the system does not permit it.
    pub fn make() -> Result<TwoHosts, String> {
        // A user who is not root may create network namespaces as the root of a user namespace, where that is
        // permitted.
        let server = NamespaceHolder::start(None, &["--net"])
            .or_else(|why| NamespaceHolder::start(None, &["--user", "--map-root-user", "--net"]).map_err(|_| why))?;
        // Started from within the first namespace, it belongs to the same root.
        let client = NamespaceHolder::start(Some(server.0.id()), &["--net"])?;
        let words = format!("link add fodo0 netns {} type veth peer name fodo0 netns {}", server.0.id(), client.0.id());
        run_in_namespace(server.0.id(), "ip", &words)?;
        let mut link = format!("veth, {RATE} in each direction by tbf");
        for (holder, address) in [(&server, SERVER), (&client, CLIENT)] {
            let holder = holder.0.id();
            run_in_namespace(holder, "ip", &format!("address add {address}/30 dev fodo0"))?;
            run_in_namespace(holder, "ip", "link set lo up")?;
            run_in_namespace(holder, "ip", "link set fodo0 up")?;
            let limit = format!("qdisc add dev fodo0 root tbf rate {RATE} burst {BURST} latency {LATENCY}");
            if let Err(why) = run_in_namespace(holder, "tc", &limit) {
                link = format!("veth without a rate limit: {why}");
            }
        }
        run_in_namespace(client.0.id(), "ip", &format!("address add {DELAYED}/32 dev lo"))?;
        Ok(TwoHosts { server, client, link })
    }

    /// Starts a delay on the clients' host, through which the server at `ports` is reachable over `protocol`; returns the
    /// delayed address.
    ///
    /// The process is not pinned: on any CPU it competes with another process, but all of them mostly wait.
    pub fn delayed(&self, ports: Ports, protocol: LabProtocol) -> Result<(Ports, ChildProcess), DriverFailure> {
        let unavailable =
            |why: std::io::Error| DriverFailure::Unavailable { who: "the delay".into(), why: why.to_string() };
        let port = ports.port_of(protocol);
        let (at, to) = (format!("{DELAYED}:{port}"), format!("{SERVER}:{port}"));
        let one_way_us = ONE_WAY.as_micros().to_string();
        let words = ["lab", "worker", "delay", "--at", &at, "--to", &to, "--one-way-us", &one_way_us];
        let seen = Ports { host: DELAYED, network_of: Some(self.client_number()), ..ports };
        let mut delay = ChildProcess::start(&Launch {
            who: "the delay".into(),
            program: crate::program::path().map_err(unavailable)?,
            args: words.map(OsString::from).to_vec(),
            cpu: None,
            ports: seen,
            variables: Vec::new(),
        })?;
        delay.wait_for(START_MAX, |line| (line == delay::READY).then_some(()))?;
        Ok((seen, delay))
    }

    /// Makes both cards send each segment of a connection in a frame of its own, so that their counters count what a
    /// network would carry.
    pub fn send_single_segments(&self) -> Result<(), String> {
        for holder in [self.server_number(), self.client_number()] {
            run_in_namespace(holder, "ip", "link set dev fodo0 gso_max_segs 1")?;
        }
        Ok(())
    }

    /// Gives the card of the servers' host another address.
    pub fn add_server_address(&self, address: Ipv4Addr) -> Result<(), String> {
        run_in_namespace(self.server_number(), "ip", &format!("address add {address}/24 dev {CARD}"))
    }

    /// Number of a process on the servers' host.
    pub fn server_number(&self) -> u32 {
        self.server.0.id()
    }

    /// Number of a process on the clients' host.
    pub fn client_number(&self) -> u32 {
        self.client.0.id()
    }
}

/// A process that holds a network namespace.
#[derive(Debug)]
struct NamespaceHolder(Child);

impl NamespaceHolder {
    /// Starts a holder in the namespaces that `flags` of unshare create, from within those of another holder.
    fn start(within: Option<u32>, flags: &[&str]) -> Result<NamespaceHolder, String> {
        let mut command = command_within(within, "unshare");
        command.args(flags).arg("cat").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut holder = NamespaceHolder(command.spawn().map_err(|why| format!("unshare: {why}"))?);
        let outer = namespace_of(&within.map_or("self".into(), |holder| holder.to_string()), "net")?;
        let own = namespace_of("self", "net")?;
        let deadline = Instant::now() + START_MAX;
        // Until `unshare`, and before it `nsenter`, is done, the process is in one of these two.
        while namespace_of(&holder.0.id().to_string(), "net").is_ok_and(|its| its == outer || its == own) {
            let has_ended = holder.0.try_wait().map_err(|why| why.to_string())?.is_some();
            if has_ended || Instant::now() > deadline {
                return Err("network namespaces are not permitted (they require root or user namespaces)".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(holder)
    }
}

impl Drop for NamespaceHolder {
    fn drop(&mut self) {
        // It exits at the end of its standard input in any case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn namespace_of(process: &str, kind: &str) -> Result<std::path::PathBuf, String> {
    std::fs::read_link(format!("/proc/{process}/ns/{kind}")).map_err(|why| format!("network namespaces: {why}"))
}

/// The command `program` in the network of the process `holder`, through its user namespace if it differs.
pub fn command_within(holder: Option<u32>, program: &str) -> Command {
    let Some(holder) = holder else { return Command::new(program) };
    // The PATH of this process may be empty.
    let nsenter = crate::driver::external::which("nsenter").unwrap_or_else(|| "nsenter".into());
    let mut command = Command::new(nsenter);
    if namespace_of("self", "user").ok() != namespace_of(&holder.to_string(), "user").ok() {
        command.args([&format!("--user=/proc/{holder}/ns/user"), "--preserve-credentials"]);
    }
    command.args([&format!("--net=/proc/{holder}/ns/net"), "--", program]);
    command
}

fn run_in_namespace(holder: u32, program: &str, words: &str) -> Result<(), String> {
    // Programs for root are not on every user's PATH.
    let places = ["/usr/sbin", "/sbin"].map(|place| std::path::Path::new(place).join(program));
    let place =
        places.into_iter().find(|place| place.exists()).map_or(program.to_owned(), |at| at.display().to_string());
    let output = command_within(Some(holder), &place).args(words.split(' ')).stdin(Stdio::null()).output();
    let output = output.map_err(|why| format!("{program}: {why}"))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{program} {words}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_simulated_hosts_reach_each_other_and_are_removed_on_drop() {
        let hosts = match TwoHosts::make() {
            Ok(hosts) => hosts,
            Err(why) => {
                let must = std::env::var_os("CI").is_some() && std::path::Path::new("/sbin/ip").exists();
                assert!(!must, "{why}");
                println!("not tested: {why}");
                return;
            }
        };
        let namespaces = [&hosts.server, &hosts.client].map(|holder| format!("/proc/{}/ns/net", holder.0.id()));
        // The other host's kernel refuses a connection to a port without a listener.
        let script = format!("exec 3<>/dev/tcp/{SERVER}/9");
        let output = command_within(Some(hosts.client_number()), "bash").args(["-c", &script]).output().unwrap();
        drop(hosts);

        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.contains("refused"), "{output}");
        assert!(namespaces.iter().all(|namespace| !std::path::Path::new(namespace).exists()));
    }
}
