//! Two hosts in one: network namespaces joined by a link of limited rate.
//!
//! Each namespace is held by a process that waits for its standard input to end, so both vanish with the laboratory,
//! however it ends. Nothing of the host's own network is touched.

use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Of the servers' host. Source of the network: RFC 5737, addresses for documentation.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Of the clients' host.
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// What the link carries in each direction.
const RATE: &str = "1gbit";
/// What may go out at once, and how long the rest may wait: as a switch of that rate has it.
const BURST: &str = "256kb";
const LATENCY: &str = "50ms";
/// For a holder to be in a namespace of its own.
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
        let (server, client) = (Holder::start()?, Holder::start()?);
        let (one, other) = (server.number(), client.number());
        let words = format!("link add fodo0 netns {one} type veth peer name fodo0 netns {other}");
        run("ip", &words)?;
        let mut link = format!("veth, {RATE} in each direction by tbf");
        for (number, address) in [(&one, SERVER), (&other, CLIENT)] {
            inside(number, "ip", &format!("address add {address}/30 dev fodo0"))?;
            inside(number, "ip", "link set lo up")?;
            inside(number, "ip", "link set fodo0 up")?;
            let limit = format!("qdisc add dev fodo0 root tbf rate {RATE} burst {BURST} latency {LATENCY}");
            if let Err(why) = inside(number, "tc", &limit) {
                link = format!("veth without a limit, since {why}");
            }
        }
        Ok(Hosts { server, client, link })
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
    fn start() -> Result<Holder, String> {
        let mut command = Command::new("unshare");
        command.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut holder = Holder(command.spawn().map_err(|why| format!("unshare: {why}"))?);
        let ours = namespace_of("self")?;
        let deadline = Instant::now() + START_MAX;
        while namespace_of(&holder.number()).is_ok_and(|its| its == ours) {
            let has_ended = holder.0.try_wait().map_err(|why| why.to_string())?.is_some();
            if has_ended || Instant::now() > deadline {
                return Err("network namespaces are not permitted here (they need root)".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(holder)
    }

    fn number(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It ends with its standard input in any case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn namespace_of(process: &str) -> Result<std::path::PathBuf, String> {
    std::fs::read_link(format!("/proc/{process}/ns/net")).map_err(|why| format!("network namespaces: {why}"))
}

/// Where the namespace of a process is, for nsenter.
pub fn path_of(process: u32) -> String {
    format!("/proc/{process}/ns/net")
}

fn inside(number: &str, program: &str, words: &str) -> Result<(), String> {
    run("nsenter", &format!("--net=/proc/{number}/ns/net {program} {words}"))
}

fn run(program: &str, words: &str) -> Result<(), String> {
    let output = Command::new(program).args(words.split(' ')).stdin(Stdio::null()).output();
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
        let (server, client) = (path_of(hosts.server_number()), path_of(hosts.client_number()));
        // The kernel of the other host answers a connection to a port where nobody listens.
        let script = format!("exec 3<>/dev/tcp/{SERVER}/9");
        let words = ["--net".to_owned() + "=" + &client, "bash".into(), "-c".into(), script];
        let said = Command::new("nsenter").args(words).output().unwrap();
        drop(hosts);

        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.contains("refused"), "{said}");
        assert!(!std::path::Path::new(&server).exists() && !std::path::Path::new(&client).exists());
    }
}
