//! Tests that clients of both protocols reach `fodo ioc --one-port` through a firewall that lets only this port pass.
#![forbid(unsafe_code)]

use fodo_conformance::place::python;
use fodo_conformance::process::printed_alone;

/// Scripts for libca and for pvxs: they print the value of a PV.
const PYEPICS_GET: &str = "import sys, epics; print('libca', epics.caget(sys.argv[1], timeout=20), flush=True)";
const P4P_GET: &str = "import sys; from p4p.client.thread import Context; \
                       print('pvxs', float(Context('pva').get(sys.argv[1], timeout=20)), flush=True)";
const P4P_PUT: &str = "import sys; from p4p.client.thread import Context; \
                       Context('pva').put(sys.argv[1], float(sys.argv[2]), timeout=20)";

/// Two hosts, and an IOC on the other one. Rules of routing are the firewall: it drops what is not named in them.
const HOSTS: &str = "\
until_line() { until grep -qs \"$2\" \"$1\"; do sleep 0.02; done; }
place=$(mktemp -d); trap 'rm -r \"$place\"' EXIT; cd \"$place\"
echo 'record(ao, \"one\") { field(VAL, \"11\") field(PINI, \"YES\") }' > one.db
unshare --net bash -c '
    until ip address add 192.0.2.1/30 dev fodo0 2> errors1; do sleep 0.02; done
    ip link set lo up; ip link set fodo0 up
    ip rule add pref 100 ipproto tcp sport 5075 lookup main
    ip rule add pref 200 blackhole
    exec fodo ioc --one-port 5075 one.db' > log1 2> log2 &
# Fails until the other host exists.
until ip link add fodo0 type veth peer name fodo0 netns $! 2> errors2; do sleep 0.02; done
ip address add 192.0.2.2/30 dev fodo0; ip link set fodo0 up
ip rule add pref 100 ipproto tcp dport 5075 lookup main
ip rule add pref 200 blackhole
until_line log1 '^fodo ioc: serving'
export EPICS_CA_AUTO_ADDR_LIST=NO EPICS_PVA_AUTO_ADDR_LIST=NO";

#[test]
fn clients_of_both_protocols_reach_an_ioc_through_one_port_of_a_firewall() {
    let python = python().display().to_string();
    let Some(printed) = printed_alone(&format!(
        "{HOSTS}
        # The firewall works: searches over UDP are lost.
        for name in ca://one pva://one; do
            EPICS_CA_ADDR_LIST=192.0.2.1 EPICS_PVA_ADDR_LIST=192.0.2.1 fodo get -w 2 $name > found 2>&1 && cat found
        done
        export EPICS_CA_NAME_SERVERS=192.0.2.1:5075 EPICS_PVA_NAME_SERVERS=192.0.2.1:5075
        fodo get ca://one pva://one
        {python} -c \"{PYEPICS_GET}\" one 2> log3
        {python} -c \"{P4P_GET}\" one
        {python} -c \"{P4P_PUT}\" one 22
        fodo monitor --events 1 pva://one
        fodo put ca://one 33
        {python} -c \"{P4P_GET}\" one"
    ))
    .unwrap() else {
        return;
    };

    let lines: Vec<&str> = printed.lines().collect();
    let value_of = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
    assert_eq!([lines[0], lines[1]].map(value_of), [Some("11".into()), Some("11".into())], "{printed}");
    assert_eq!(lines[2..4], ["libca 11.0", "pvxs 11.0"], "{printed}");
    assert!(lines[4].ends_with(" 22"), "{printed}");
    assert_eq!(lines.last(), Some(&"pvxs 33.0"), "{printed}");
}
