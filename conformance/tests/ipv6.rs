//! Tests that Fodo and pvxs find each other and work over IPv6, between two hosts.
#![forbid(unsafe_code)]

use fodo_conformance::place::python;
use fodo_conformance::process::printed_alone;

const P4P_GET: &str = "import sys; from p4p.client.thread import Context; \
                       print('pvxs', float(Context('pva').get(sys.argv[1], timeout=20)), flush=True)";
const P4P_SERVER: &str = "from p4p.server import Server; from p4p.server.thread import SharedPV; \
                          from p4p.nt import NTScalar; import time; \
                          server = Server(providers=[{'two': SharedPV(nt=NTScalar('d'), initial=22.0)}]); \
                          print('serving', flush=True); time.sleep(80)";

/// Two hosts with addresses of IPv6 only. The other one runs server.sh.
const HOSTS: &str = "\
until_line() { until grep -qs \"$2\" \"$1\"; do sleep 0.02; done; }
echo 'record(ao, \"one\") { field(VAL, \"11\") field(PINI, \"YES\") }' > one.db
export EPICS_PVA_AUTO_ADDR_LIST=NO EPICS_CA_AUTO_ADDR_LIST=NO
unshare --net bash -c '
    until ip address add fd00::1/64 dev fodo0 nodad 2> errors1; do sleep 0.02; done
    ip address add fe80::1/64 dev fodo0 nodad
    ip link set lo up; ip link set fodo0 up
    exec bash server.sh' > log1 2> log2 &
# Fails until the other host exists.
until ip link add fodo0 type veth peer name fodo0 netns $! 2> errors2; do sleep 0.02; done
ip address add fd00::2/64 dev fodo0 nodad; ip address add fe80::2/64 dev fodo0 nodad; ip link set fodo0 up
until_line log1 serving";

/// Runs the client script on one host while the other runs the server script; `None` where that is not permitted.
fn printed_between_hosts(server: &str, client: &str) -> Option<String> {
    printed_alone(&format!(
        "place=$(mktemp -d); trap 'rm -r \"$place\"' EXIT; cd \"$place\"\ncat > server.sh <<'END'\n{server}\nEND\n{HOSTS}\n{client}"
    ))
    .unwrap()
}

/// The second word of each line.
fn values(printed: &str) -> Vec<&str> {
    printed.lines().filter_map(|line| line.split_whitespace().nth(1)).collect()
}

#[test]
fn an_ioc_with_default_settings_is_reached_by_addresses_groups_and_name_servers_of_ipv6() {
    let python = python().display().to_string();
    let Some(printed) = printed_between_hosts(
        "EPICS_PVAS_INTF_ADDR_LIST=[ff02::42:1]@fodo0 exec fodo ioc one.db",
        &format!(
            "EPICS_PVA_ADDR_LIST=[fd00::1] fodo get pva://one
            EPICS_PVA_ADDR_LIST=[fe80::1%fodo0] fodo get pva://one
            EPICS_PVA_ADDR_LIST=[ff02::42:1]@fodo0 fodo get pva://one
            EPICS_PVA_NAME_SERVERS=[fd00::1]:5075 fodo get pva://one
            EPICS_PVA_ADDR_LIST=[fd00::1] {python} -c \"{P4P_GET}\" one
            EPICS_PVA_ADDR_LIST=[ff02::42:1],1@fodo0 {python} -c \"{P4P_GET}\" one
            EPICS_PVA_NAME_SERVERS=[fd00::1]:5075 {python} -c \"{P4P_GET}\" one"
        ),
    ) else {
        return;
    };

    assert_eq!(values(&printed), ["11", "11", "11", "11", "11.0", "11.0", "11.0"], "{printed}");
}

#[test]
fn a_client_reaches_a_server_of_pvxs_by_addresses_groups_and_name_servers_of_ipv6() {
    let python = python().display().to_string();
    let Some(printed) = printed_between_hosts(
        &format!("EPICS_PVAS_INTF_ADDR_LIST='[ff02::42:1],1@fodo0' exec {python} -c \"{P4P_SERVER}\""),
        "EPICS_PVA_ADDR_LIST=[fd00::1] fodo get pva://two
        EPICS_PVA_ADDR_LIST=[ff02::42:1]@fodo0 fodo get pva://two
        EPICS_PVA_NAME_SERVERS=[fd00::1]:5075 fodo get pva://two",
    ) else {
        return;
    };

    assert_eq!(values(&printed), ["22", "22", "22"], "{printed}");
}
