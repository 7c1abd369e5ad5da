//! Two hosts in one: network namespaces joined by a link of limited rate.
//!
//! Each namespace is held by a process that waits for its standard input to end, so both vanish with the laboratory,
//! however it ends. Nothing of the host's own network is touched.
//!
//! The clients' host has a second address, behind which a [`delay`] makes the way to the servers longer.

pub mod delay;

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::driver::Failure;
use crate::process::{Launch, Ports, Process};

/// Of the servers' host. Source of the network: RFC 5737, addresses for documentation.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Of the clients' host.
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Of the clients' host, behind which the servers are further away.
const DELAYED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 5);
/// How long everything is under way in either direction of a delayed link.
pub const ONE_WAY: Duration = Duration::from_millis(1);
/// What the link carries in each direction.
const RATE: &str = "1gbit";
/// What may go out at once, and how long the rest may wait: as a switch of that rate has it.
const BURST: &str = "256kb";
const LATENCY: &str = "50ms";
/// For a holder to be in a namespace of its own, and for a delay to listen.
const START_MAX: Duration = Duration::from_secs(5);

/// Both hosts, until dropped.
#[derive(Debug)]
pub struct Hosts {
    server: Holder,
    client: Holder,
    /// How the link was made.
    pub link: String,
}

impl Hosts {
    /// Makes them; why not, where that is not permitted.
    pub fn make() -> Result<Hosts, String> {
        // Who is not root may have namespaces as the root of a user namespace, where that is permitted.
        let server = Holder::start(None, &["--net"])
            .or_else(|why| Holder::start(None, &["--user", "--map-root-user", "--net"]).map_err(|_| why))?;
        // Started from within the first, it belongs to the same root.
        let client = Holder::start(Some(server.0.id()), &["--net"])?;
        let words = format!("link add fodo0 netns {} type veth peer name fodo0 netns {}", server.0.id(), client.0.id());
        inside(server.0.id(), "ip", &words)?;
        let mut link = format!("veth, {RATE} in each direction by tbf");
        for (holder, address) in [(&server, SERVER), (&client, CLIENT)] {
            let holder = holder.0.id();
            inside(holder, "ip", &format!("address add {address}/30 dev fodo0"))?;
            inside(holder, "ip", "link set lo up")?;
            inside(holder, "ip", "link set fodo0 up")?;
            let limit = format!("qdisc add dev fodo0 root tbf rate {RATE} burst {BURST} latency {LATENCY}");
            if let Err(why) = inside(holder, "tc", &limit) {
                link = format!("veth without a limit, since {why}");
            }
        }
        inside(client.0.id(), "ip", &format!("address add {DELAYED}/32 dev lo"))?;
        Ok(Hosts { server, client, link })
    }

    /// Starts a delay on the clients' host, by way of which a server at `ports` is reached; gives where that is.
    ///
    /// It is not pinned: wherever the system puts it, it is in somebody's way, but all mostly wait.
    pub fn delayed(&self, ports: Ports) -> Result<(Ports, Process), Failure> {
        let unavailable = |why: std::io::Error| Failure::Unavailable { who: "the delay".into(), why: why.to_string() };
        let (at, to) = (format!("{DELAYED}:{}", ports.server), format!("{SERVER}:{}", ports.server));
        let one_way_us = ONE_WAY.as_micros().to_string();
        let words = ["lab", "worker", "delay", "--at", &at, "--to", &to, "--one-way-us", &one_way_us];
        let seen = Ports { host: DELAYED, network_of: Some(self.client_number()), ..ports };
        let mut delay = Process::start(&Launch {
            who: "the delay".into(),
            program: std::env::current_exe().map_err(unavailable)?,
            args: words.map(OsString::from).to_vec(),
            cpu: None,
            ports: seen,
            variables: Vec::new(),
        })?;
        delay.wait_for(START_MAX, |line| (line == delay::READY).then_some(()))?;
        Ok((seen, delay))
    }

    /// The number of a process that is on the servers' host.
    pub fn server_number(&self) -> u32 {
        self.server.0.id()
    }

    /// The number of a process that is on the clients' host.
    pub fn client_number(&self) -> u32 {
        self.client.0.id()
    }
}

/// A process in a network namespace of its own.
#[derive(Debug)]
struct Holder(Child);

impl Holder {
    /// In what `flags` of unshare make, from within the namespaces of another holder.
    fn start(within: Option<u32>, flags: &[&str]) -> Result<Holder, String> {
        let mut command = command_within(within, "unshare");
        command.args(flags).arg("cat").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut holder = Holder(command.spawn().map_err(|why| format!("unshare: {why}"))?);
        let outer = namespace_of(&within.map_or("self".into(), |holder| holder.to_string()), "net")?;
        let own = namespace_of("self", "net")?;
        let deadline = Instant::now() + START_MAX;
        // Until `unshare` is done, and before that `nsenter`, it is in one of these.
        while namespace_of(&holder.0.id().to_string(), "net").is_ok_and(|its| its == outer || its == own) {
            let has_ended = holder.0.try_wait().map_err(|why| why.to_string())?.is_some();
            if has_ended || Instant::now() > deadline {
                return Err("network namespaces are not permitted here (they need root or user namespaces)".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(holder)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It ends with its standard input in any case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn namespace_of(process: &str, kind: &str) -> Result<std::path::PathBuf, String> {
    std::fs::read_link(format!("/proc/{process}/ns/{kind}")).map_err(|why| format!("network namespaces: {why}"))
}

/// The command `program` in the network of the process `holder`, by way of its user namespace where that is another.
pub fn command_within(holder: Option<u32>, program: &str) -> Command {
    let Some(holder) = holder else { return Command::new(program) };
    // The PATH of who starts it may be empty.
    let nsenter = crate::driver::external::which("nsenter").unwrap_or_else(|| "nsenter".into());
    let mut command = Command::new(nsenter);
    if namespace_of("self", "user").ok() != namespace_of(&holder.to_string(), "user").ok() {
        command.args([&format!("--user=/proc/{holder}/ns/user"), "--preserve-credentials"]);
    }
    command.args([&format!("--net=/proc/{holder}/ns/net"), "--", program]);
    command
}

fn inside(holder: u32, program: &str, words: &str) -> Result<(), String> {
    // What belongs to root is not on everybody's path.
    let places = ["/usr/sbin", "/sbin"].map(|place| std::path::Path::new(place).join(program));
    let place =
        places.into_iter().find(|place| place.exists()).map_or(program.to_owned(), |at| at.display().to_string());
    let output = command_within(Some(holder), &place).args(words.split(' ')).stdin(Stdio::null()).output();
    let output = output.map_err(|why| format!("{program}: {why}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{program} {words}: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hosts_reach_each_other_and_vanish_with_their_handle() {
        let hosts = match Hosts::make() {
            Ok(hosts) => hosts,
            Err(why) => {
                let must = std::env::var_os("CI").is_some() && std::path::Path::new("/sbin/ip").exists();
                assert!(!must, "{why}");
                println!("not tested: {why}");
                return;
            }
        };
        let namespaces = [&hosts.server, &hosts.client].map(|holder| format!("/proc/{}/ns/net", holder.0.id()));
        // The kernel of the other host answers a connection to a port where nobody listens.
        let script = format!("exec 3<>/dev/tcp/{SERVER}/9");
        let said = command_within(Some(hosts.client_number()), "bash").args(["-c", &script]).output().unwrap();
        drop(hosts);

        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.contains("refused"), "{said}");
        assert!(namespaces.iter().all(|namespace| !std::path::Path::new(namespace).exists()));
    }
}
