//! Tests that Fodo and other EPICS programs find each other: name servers, beacons, the repeater, multicast.
#![forbid(unsafe_code)]

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use fodo_conformance::place::{database, free_port, prefix, program, python, script};
use fodo_conformance::process::{Process, printed_alone, printed_by, restrict_to_loopback};
use fodo_conformance::server::{ServerProgram, TestServer};

/// Maximum time of any step.
const PATIENCE: Duration = Duration::from_secs(30);

/// Script for pyepics: prints the value of a PV.
const PYEPICS_GET: &str = "import sys, epics; print('value', epics.caget(sys.argv[1], timeout=8), flush=True)";

/// Restricts the searches of a command to TCP, to this server.
fn by_name_server_only(command: &mut Command, port: u16) {
    restrict_to_loopback(command, free_port());
    command.env("EPICS_CA_NAME_SERVERS", format!("127.0.0.1:{port}"));
}

/// The command that gets a PV with pyepics.
fn pyepics_get(pv: &str) -> Command {
    let mut command = Command::new(python());
    command.args(["-c", PYEPICS_GET, pv]);
    command
}

#[test]
fn libca_finds_a_fodo_server_used_as_a_name_server() {
    let server = TestServer::start(ServerProgram::Fodo).unwrap();
    let mut served = pyepics_get(&server.pv("ao"));
    by_name_server_only(&mut served, server.port);
    let mut absent = pyepics_get(&server.pv("no:such"));
    by_name_server_only(&mut absent, server.port);

    let found = printed_by("pyepics", &mut served, PATIENCE).unwrap();
    let not_found = printed_by("pyepics", &mut absent, PATIENCE).unwrap();

    assert!(found.starts_with("value ") && !found.contains("None"), "{found}");
    assert!(not_found.contains("None"), "{not_found}");
}

#[test]
fn fodo_finds_softioc_and_fodo_servers_used_as_name_servers() {
    for kind in [ServerProgram::SoftIoc, ServerProgram::Fodo] {
        let server = TestServer::start(kind).unwrap();
        let mut get = Command::new(program());
        get.args(["get", "--json", &server.pv("ao")]);
        by_name_server_only(&mut get, server.port);

        let printed = printed_by("fodo get", &mut get, PATIENCE).unwrap();

        assert!(printed.contains("\"value\""), "{kind:?}: {printed}");
    }
}

#[test]
fn a_softioc_beacon_makes_a_waiting_fodo_client_connect() {
    let (port, repeater_port, prefix) = (free_port(), free_port().to_string(), prefix());
    // Receives the searches as well.
    let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
    probe.set_read_timeout(Some(PATIENCE)).unwrap();
    let absent = format!("{prefix}absent");
    let mut buffer = [0; 2048];
    let mut wait_for_search = || loop {
        let n_bytes = probe.recv(&mut buffer).expect("the client searches");
        if buffer[..n_bytes].windows(absent.len()).any(|bytes| bytes == absent.as_bytes()) {
            return;
        }
    };
    let mut monitor = Command::new(program());
    monitor.args(["monitor", &format!("{prefix}ao"), &absent]);
    restrict_to_loopback(&mut monitor, port);
    monitor.env("EPICS_CA_ADDR_LIST", format!("127.0.0.1 {}", probe.local_addr().unwrap()));
    monitor.env("EPICS_CA_REPEATER_PORT", &repeater_port);
    let start = Instant::now();
    let mut monitor = Process::start("fodo monitor", &mut monitor).unwrap();
    // The periods double from 32 ms: the ninth search is after 8.2 to 10.2 s, the next one not before 16.3 s.
    (0..9).for_each(|_| wait_for_search());

    let mut ioc = Command::new(python());
    ioc.arg(script("softioc_server.py")).arg(database("records.db")).arg(format!("P={prefix}"));
    restrict_to_loopback(&mut ioc, port);
    ioc.env("EPICS_CA_REPEATER_PORT", &repeater_port);
    let mut ioc = Process::start("softIoc", &mut ioc).unwrap();
    ioc.wait_for_line_starting("ready", PATIENCE).unwrap();
    monitor.wait_for_line_starting(&format!("{prefix}ao"), PATIENCE).unwrap();

    // After a beacon, the client searches at once and then with periods from 1 s, again for what is still absent.
    // Otherwise this many searches take a minute.
    (9..12).for_each(|_| wait_for_search());
    assert!(start.elapsed() < Duration::from_secs(65), "{:?}: no beacon made it search", start.elapsed());
}

#[test]
fn libca_registers_with_the_fodo_repeater_and_starts_no_other() {
    let server = TestServer::start(ServerProgram::Fodo).unwrap();
    let mut repeater = Command::new(program());
    repeater.args(["repeater", "--port", "0"]);
    restrict_to_loopback(&mut repeater, free_port());
    let mut repeater = Process::start("fodo repeater", &mut repeater).unwrap();
    let ready = repeater.wait_for_line_starting("fodo repeater: on UDP ", PATIENCE).unwrap();
    let (_, port) = ready.rsplit_once(' ').unwrap();
    let start = |repeater_port: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" -c \"$1\" \"$2\" 2>&1"]).arg(python()).args([PYEPICS_WAITS, &server.pv("ao")]);
        restrict_to_loopback(&mut command, server.port);
        command.env("EPICS_CA_REPEATER_PORT", repeater_port);
        Process::start("pyepics", &mut command).unwrap()
    };

    let mut with_repeater = start(port);
    with_repeater.wait_for_line_starting("value", PATIENCE).unwrap();
    // libca prints a warning when it finds neither a repeater nor the repeater program.
    let mut without_repeater = start(&free_port().to_string());
    while !without_repeater.line(PATIENCE).expect("the warning appears").contains("caRepeater") {}
    with_repeater.write_line("end").unwrap();
    with_repeater.wait_for_line_starting("end", PATIENCE).unwrap();

    // It had more time than the other.
    let printed = with_repeater.failure("has ended");
    assert!(!printed.contains("caRepeater"), "{printed}");
}

/// Script for pyepics: prints the value of a PV, then waits for a line and prints it.
const PYEPICS_WAITS: &str =
    "import sys, epics; print('value', epics.caget(sys.argv[1], timeout=30), flush=True); print(input(), flush=True)";

const ALONE: &str = "\
until_line() { until grep -qs \"$2\" \"$1\"; do sleep 0.02; done; }
place=$(mktemp -d); trap 'rm -r \"$place\"' EXIT; cd \"$place\"
echo 'record(ao, \"one\") { field(VAL, \"11\") field(PINI, \"YES\") }' > one.db
echo 'record(ao, \"three\") { field(VAL, \"33\") field(PINI, \"YES\") }' > three.db
echo 'record(ao, \"two\") { field(VAL, \"22\") field(PINI, \"YES\") }' > two.db";

#[test]
fn multicast_searches_of_fodo_and_libca_reach_fodo_and_softioc() {
    let (python, softioc) = (python().display().to_string(), script("softioc_server.py").display().to_string());
    let Some(printed) = printed_alone(&format!(
        "{ALONE}
        ip link set lo multicast on; ip route add 224.0.0.0/4 dev lo src 127.0.0.1
        export EPICS_CAS_INTF_ADDR_LIST='127.0.0.1 224.0.2.9' EPICS_CAS_AUTO_BEACON_ADDR_LIST=NO
        fodo ioc one.db > log1 & until_line log1 '^fodo ioc: serving'
        # softIoc receives multicast only if it listens on all interfaces.
        export EPICS_CAS_INTF_ADDR_LIST=224.0.2.9
        fodo ioc three.db > log3 & until_line log3 '^fodo ioc: serving'
        (sleep 60 | {python} {softioc} two.db '' > log2 2>&1) & until_line log2 ready
        export EPICS_CA_ADDR_LIST=224.0.2.9 EPICS_CA_AUTO_ADDR_LIST=NO
        fodo get one two three
        {python} -c \"{PYEPICS_GET}\" one 2> log4
        {python} -c \"{PYEPICS_GET}\" two 2> log4"
    ))
    .unwrap() else {
        return;
    };

    assert!(printed.contains("value 11") && printed.contains("value 22"), "libca: {printed}");
    for value in ["11", "22", "33"] {
        assert!(printed.lines().take(3).any(|line| line.split_whitespace().nth(1) == Some(value)), "fodo: {printed}");
    }
}

#[test]
fn fodo_and_softioc_on_one_port_are_both_found_by_the_host_address() {
    let (python, softioc) = (python().display().to_string(), script("softioc_server.py").display().to_string());
    let fodo = "fodo ioc one.db > log1 & until_line log1 '^fodo ioc: serving'";
    let softioc = format!("(sleep 60 | {python} {softioc} two.db '' > log2 2>&1) & until_line log2 ready");
    // Only the server that bound the port last receives a datagram to one address.
    for (first, last) in [(fodo, softioc.as_str()), (softioc.as_str(), fodo)] {
        let Some(printed) = printed_alone(&format!(
            "{ALONE}
            {first}
            {last}
            export EPICS_CA_ADDR_LIST=127.0.0.1 EPICS_CA_AUTO_ADDR_LIST=NO
            fodo get one two"
        ))
        .unwrap() else {
            return;
        };

        assert!(printed.starts_with("one  11") && printed.contains("\ntwo  22"), "{last}: {printed}");
    }
}

// Row 59 of docs/reference/faults.md.
#[test]
fn an_interface_added_after_the_client_starts_is_searched() {
    let Some(printed) = printed_alone(&format!(
        "{ALONE}
        export EPICS_CAS_AUTO_BEACON_ADDR_LIST=NO EPICS_CAS_BEACON_ADDR_LIST=127.0.0.1
        fodo monitor --events 1 --for 40 -w 40 one > seen &
        sleep 1
        ip link add up0 type veth peer name up1
        ip address add 10.9.0.1/24 broadcast 10.9.0.255 dev up0; ip link set up0 up; ip link set up1 up
        fodo ioc --interface 10.9.0.1 one.db > log & until_line log '^fodo ioc: serving'
        until_line seen one; cat seen"
    ))
    .unwrap() else {
        return;
    };

    assert!(printed.contains("one") && printed.contains("11"), "{printed}");
}

/// Sets up a host 10.9.0.1 with servers, and another host on which `commands` search only at that address.
fn output_on_another_host(servers: &str, commands: &str) -> Option<String> {
    printed_alone(&format!(
        "{ALONE}
        ip link add here0 type veth peer name there0
        ip address add 10.9.0.1/24 broadcast 10.9.0.255 dev here0; ip link set here0 up
        export EPICS_CAS_AUTO_BEACON_ADDR_LIST=NO
        {servers}
        cat > there.sh <<'end'
        echo there > is
        until ip link set there0 up 2> /dev/null; do sleep 0.02; done
        ip link set lo up; ip address add 10.9.0.2/24 broadcast 10.9.0.255 dev there0
        export EPICS_CA_ADDR_LIST=10.9.0.1 EPICS_CA_AUTO_ADDR_LIST=NO
        {commands}
end
        unshare --net bash -eu there.sh & there=$!
        until_line is there
        ip link set there0 netns $there
        wait $there"
    ))
    .unwrap()
}

#[test]
fn a_unicast_search_from_another_host_finds_all_servers_of_a_host() {
    let (python, softioc) = (python().display().to_string(), script("softioc_server.py").display().to_string());
    let fodo = |name| format!("fodo ioc {name}.db > log{name} & until_line log{name} '^fodo ioc: serving'");
    let softioc = format!("(sleep 60 | {python} {softioc} two.db '' > log2 2>&1) & until_line log2 ready");
    for servers in [[fodo("one"), fodo("three"), softioc.clone()], [softioc.clone(), fodo("one"), fodo("three")]] {
        let commands =
            format!("fodo get one two three; {python} -c \"{PYEPICS_GET}\" one; {python} -c \"{PYEPICS_GET}\" two");
        let Some(printed) = output_on_another_host(&servers.join("\n"), &commands) else { return };

        for value in ["11", "22", "33"] {
            assert!(printed.lines().take(3).any(|line| line.split_whitespace().nth(1) == Some(value)), "{printed}");
        }
        assert!(printed.contains("value 11") && printed.contains("value 22"), "libca: {printed}");
    }
}
