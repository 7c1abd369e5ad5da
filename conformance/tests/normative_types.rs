//! Checks that `fodo get --json` and `fodo monitor --json` print structures of all normative types of p4p's server as p4p
//! reads them, and what they print for people.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is a sufficient failure message in a test")]

use std::process::Command;
use std::time::Duration;

use fodo_conformance::place::{self, free_port, program, python, script};
use fodo_conformance::process::{Process, printed_by, restrict_to_loopback, set_pva_ports};
use fodo_conformance::server::PvaPorts;
use serde_json::{Value as Json, json};

const TIMEOUT: Duration = Duration::from_secs(30);

/// p4p's server with structures.
struct StructureServer {
    _process: Process,
    ports: PvaPorts,
    prefix: String,
    /// The names of its PVs.
    pvs: Vec<String>,
}

impl StructureServer {
    fn start() -> StructureServer {
        let (ports, prefix) = (PvaPorts::free(), place::prefix());
        let mut command = Command::new(python());
        command.arg(script("normative_server.py")).arg(&prefix);
        restrict_to_loopback(&mut command, free_port());
        set_pva_ports(&mut command, ports.search, ports.tcp);
        let mut process = Process::start("normative_server.py", &mut command).unwrap();
        let ready = process.wait_for_line_starting("ready ", TIMEOUT).unwrap();
        let pvs = ready.split(' ').skip(1).map(str::to_owned).collect();
        StructureServer { _process: process, ports, prefix, pvs }
    }

    /// A command that finds this server only.
    fn client(&self, mut command: Command) -> Command {
        restrict_to_loopback(&mut command, free_port());
        set_pva_ports(&mut command, self.ports.search, free_port());
        command.env("EPICS_PVA_ADDR_LIST", format!("127.0.0.1:{}", self.ports.search));
        command
    }

    /// The id and the fields of each PV as p4p reads them.
    fn read_by_p4p(&self) -> Vec<Json> {
        let mut command = Command::new(python());
        command.arg("-u").arg(script("normative_client.py"));
        let mut process = Process::start("normative_client.py", &mut self.client(command)).unwrap();
        process.write_line(&json!({ "do": "get", "pvs": self.pvs, "timeout": 20 }).to_string()).unwrap();
        let answer: Json = serde_json::from_str(&process.wait_for_line_starting("{", TIMEOUT).unwrap()).unwrap();
        answer["structures"].as_array().unwrap_or_else(|| panic!("p4p failed: {answer}")).clone()
    }

    /// What a verb prints for these PVs, one after another.
    fn printed(&self, words: &[&str], pvs: &[String]) -> String {
        let mut command = Command::new(program());
        command.args(words).args(pvs.iter().map(|pv| format!("pva://{pv}")));
        printed_by("fodo", &mut self.client(command), TIMEOUT).unwrap()
    }

    /// The lines that `fodo get` prints for a PV, without its name.
    fn shown(&self, name: &str) -> Vec<String> {
        let printed = self.printed(&["get"], &[format!("{}{name}", self.prefix)]);
        let lines = printed.lines().map(str::to_owned);
        lines.map(|line| line.replace(&format!("pva://{}{name}  ", self.prefix), "")).collect()
    }
}

fn lines_of(printed: &str) -> Vec<Json> {
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn get_and_monitor_print_the_same_json_as_p4p_reads() {
    let server = StructureServer::start();
    let expected = server.read_by_p4p();
    assert!(expected.len() == server.pvs.len() && expected.len() > 40, "{} PVs", expected.len());

    let read = lines_of(&server.printed(&["get", "--json", "--timeout", "20"], &server.pvs));
    assert_eq!(read.len(), expected.len());
    for ((pv, read), expected) in server.pvs.iter().zip(&read).zip(&expected) {
        assert_eq!((&read["kind"], &read["id"]), (&json!("structure"), &expected["id"]), "{pv}");
        assert_eq!(read["structure"], expected["structure"], "{pv}");
    }

    // The values do not change, so that there is one update of each PV.
    let n_events = server.pvs.len().to_string();
    let words = ["monitor", "--json", "--timeout", "20", "--for", "20", "--events", &n_events];
    let events = lines_of(&server.printed(&words, &server.pvs));
    for (pv, expected) in server.pvs.iter().zip(&expected) {
        let is_update = |event: &&Json| event["event"] == "update" && event["pv"] == format!("pva://{pv}");
        let updates: Vec<_> = events.iter().filter(is_update).collect();
        let [update] = updates[..] else { panic!("{pv} has {} updates", updates.len()) };
        assert_eq!((&update["id"], &update["structure"]), (&expected["id"], &expected["structure"]), "{pv}");
    }
}

#[test]
fn tables_and_images_of_p4p_are_shown_as_columns_and_statistics() {
    let server = StructureServer::start();

    let uneven = server.shown("table:uneven");
    assert_eq!(
        uneven[..5],
        ["epics:nt/NTTable:1.0", "    value       2 columns, 3 rows", "        a  b", "        1  one", "        2"]
    );
    let fault = "    --- NTTable: the field value.b has length 1: expected 3, the length of value.a";
    assert_eq!(uneven.last().map(String::as_str), Some(fault));
    assert_eq!(server.shown("table:none")[2], "    value       no columns");
    assert_eq!(server.shown("table:empty")[1..3], ["    value       2 columns, 0 rows", "        first  second"]);
    assert_eq!(server.shown("table:unlabelled")[3..5], ["        a  b", "        1  3"]);
    assert!(server.shown("table:long").len() > 12345, "only a terminal shortens it");

    let colour = server.shown("image:colour").join("\n");
    for part in ["7200 elements of ubyte, min 0, max 255, mean ", "3 x 40 x 60", "2 (RGB1)"] {
        assert!(colour.contains(part), "{part} in {colour}");
    }
    let floats = server.shown("image:float64").join("\n");
    assert!(floats.contains("12 elements of double, min -inf, max inf, mean nan, and 1 nan"), "{floats}");
    let region = server.shown("image:region").join("\n");
    assert!(region.contains("3 (of 640 from 100, binning 2, reversed) x 2"), "{region}");
    let compressed = server.shown("image:compressed").join("\n");
    assert!(compressed.contains("3 elements of ubyte, compressed with jpeg"), "{compressed}");
    assert!(server.shown("image:empty").join("\n").contains("value             none"));
    assert!(server.shown("union:point").join("\n").contains("value       point\n        x      0.5"));
    assert!(server.shown("variant:empty")[1].ends_with("value       none"));
}
