//! Tests the PVs of a CLU on the network: `fodo ioc --clu` beside `fodo clu serve`, with libca, p4p and `fodo monitor`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a panic is a sufficient failure message in a test")]

use std::process::Command;
use std::time::{Duration, Instant};

use fodo_conformance::clu::{CluTestFolder, LinePeer, STEP_DURATION_MAX, python};
use fodo_conformance::place::{free_port, prefix};
use fodo_conformance::process::{Process, restrict_to_loopback, set_pva_ports};
use serde_json::{Value as Json, json};

/// Units and limits of the temperatures. Other classes have the tables of the virtual CLU.
const INTERFACE: &str = r#"<object class="18" name="Thermostat"><features>
  <feature index="3" name="PointValue" type="num" get="true" set="true" unit="C" range="5-30"/>
  <feature index="14" name="CurrentTemp" type="num" get="true" unit="C" range="5-30"/>
</features></object>"#;

/// The time in which the PVs of a killed CLU become INVALID: 10 s, and 2 s for a busy computer.
const SILENCE_DURATION_MAX: Duration = Duration::from_secs(12);

/// Severities and a status as numbers.
const MINOR: u64 = 1;
const INVALID: u64 = 3;
const HIGH: u64 = 4;

/// A CLU and an IOC that serves its objects.
struct Site {
    clu: Process,
    clu_port: u16,
    _ioc: Process,
    ca_port: u16,
    pva_search_port: u16,
    prefix: String,
    folder: CluTestFolder,
}

impl Site {
    fn start() -> Site {
        let folder = CluTestFolder::new().unwrap();
        let (clu_port, ca_port, pva_search_port, prefix) = (free_port(), free_port(), free_port(), prefix());
        let (clu, _) = folder.serve(clu_port, &[]).unwrap();
        std::fs::create_dir(folder.path("xml")).unwrap();
        folder.write("xml/object_thermostat.xml", INTERFACE).unwrap();
        let site = format!(
            "[clu.house]\naddress = \"127.0.0.1:{clu_port}\"\nkeys = \"clu.json\"\nom = \"scripts/OM.LUA\"\n\
             interfaces = \"xml\"\nprefix = \"{prefix}\"\n"
        );
        folder.write("site.toml", &site).unwrap();
        folder.write("beside.db", &format!("record(ao, \"{prefix}beside\") {{ field(VAL, 5.5) }}\n")).unwrap();
        let mut command = folder.program();
        restrict_to_loopback(&mut command, ca_port);
        set_pva_ports(&mut command, pva_search_port, free_port());
        let mut ioc = Process::start("fodo ioc", command.args(["ioc", "--clu", "site.toml", "beside.db"])).unwrap();
        ioc.wait_for_line_starting("fodo ioc: serving", STEP_DURATION_MAX).unwrap();
        Site { clu, clu_port, _ioc: ioc, ca_port, pva_search_port, prefix, folder }
    }

    /// Sets the variables with which a client finds the IOC.
    fn found_by(&self, command: &mut Command) {
        restrict_to_loopback(command, self.ca_port);
        set_pva_ports(command, self.pva_search_port, free_port());
    }

    fn pv(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn client(&self, script: &str) -> PvClient {
        let mut command = python(script);
        self.found_by(&mut command);
        PvClient(LinePeer::start(script, &mut command).unwrap())
    }

    /// `fodo monitor` with units and limits.
    fn monitor(&self, name: &str) -> ProgramMonitor {
        let mut command = self.folder.program();
        self.found_by(&mut command);
        command.args(["monitor", "--json", "--meta", name]);
        ProgramMonitor(Process::start("fodo monitor", &mut command).unwrap())
    }

    /// Evaluates an expression in the CLU.
    fn exec(&self, expression: &str) -> String {
        let end = self.folder.clu(&["exec", "--json", "-w", "15", "--clu", "site.toml", "house", expression]).unwrap();
        end.json().unwrap()["text"].as_str().unwrap().to_owned()
    }
}

/// pyepics, which is libca, or p4p.
struct PvClient(LinePeer);

impl PvClient {
    fn request(&mut self, verb: &str, pv: &str, members: Json) -> Json {
        let mut request = json!({ "do": verb, "pv": pv, "timeout": 15 });
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        self.0.request(request).unwrap()
    }

    /// The value with units, limits and alarm.
    fn get(&mut self, pv: &str) -> Json {
        self.request("get", pv, json!({ "shape": "control" }))
    }

    /// Writes and waits for completion.
    fn put(&mut self, pv: &str, value: f64) {
        self.request("put", pv, json!({ "value": value, "wait": true }));
    }

    /// Subscribes; it is the only subscription of this client.
    fn monitor(&mut self, pv: &str) {
        // Values and alarms.
        assert_eq!(self.request("monitor", pv, json!({ "mask": 5 }))["monitor"], 0);
    }

    /// Waits for an update of the subscription.
    fn wait_for(&mut self, what: &str, timeout: Duration, is_expected: impl Fn(&Json) -> bool) {
        let deadline = Instant::now() + timeout;
        let mut last = Json::Null;
        while Instant::now() < deadline {
            let remaining = deadline.saturating_duration_since(Instant::now()).as_secs_f64();
            let taken =
                self.0.request(json!({ "do": "take", "monitor": 0, "count": 1, "timeout": remaining })).unwrap();
            let Some(update) = taken["updates"].get(0) else { continue };
            if is_expected(update) {
                return;
            }
            last = update.clone();
        }
        panic!("{what}: not within {timeout:?}; the last update was {last}");
    }
}

/// A running `fodo monitor`.
struct ProgramMonitor(Process);

impl ProgramMonitor {
    fn wait_for(&mut self, timeout: Duration, is_expected: impl Fn(&Json) -> bool) -> Json {
        let deadline = Instant::now() + timeout;
        loop {
            let line = self.0.wait_for_line_starting("{", deadline.saturating_duration_since(Instant::now())).unwrap();
            let update: Json = serde_json::from_str(&line).unwrap();
            if update["event"] == "update" && is_expected(&update) {
                return update;
            }
        }
    }
}

#[test]
fn a_temperature_of_a_clu_has_its_unit_limits_and_alarm_in_libca_p4p_and_fodo_monitor() {
    let site = Site::start();
    let name = site.pv("Bath:CurrentTemp");
    let mut monitors = ["ca", "pva"].map(|protocol| site.monitor(&format!("{protocol}://{name}")));
    for monitor in &mut monitors {
        let update = monitor.wait_for(STEP_DURATION_MAX, |update| update["value"] == 19.25);
        assert_eq!((&update["units"], &update["severity"]), (&json!("C"), &json!("NO_ALARM")), "{update}");
        assert_eq!(update["meta"]["display"], json!([5.0, 30.0]), "{update}");
    }
    let mut clients = ["pyepics_client.py", "p4p_client.py"].map(|script| site.client(script));
    for client in &mut clients {
        let reading = client.get(&name);
        assert_eq!((&reading["value"], &reading["units"]), (&json!(19.25), &json!("C")), "{reading}");
        assert_eq!((&reading["severity"], &reading["limits"][0]), (&json!(0), &json!([5.0, 30.0])), "{reading}");
    }

    // The sensor measures more than the limit.
    site.exec("PID1:set(2, 31)");

    for monitor in &mut monitors {
        let update = monitor.wait_for(STEP_DURATION_MAX, |update| update["value"] == 31.0);
        assert_eq!((&update["severity"], &update["status"]), (&json!("MINOR"), &json!("HIGH")), "{update}");
    }
    let [libca, p4p] = clients.each_mut().map(|client| client.get(&name));
    assert_eq!((&libca["value"], &libca["severity"], &libca["status"]), (&json!(31.0), &json!(MINOR), &json!(HIGH)));
    assert_eq!((&p4p["value"], &p4p["severity"]), (&json!(31.0), &json!(MINOR)));
}

#[test]
fn an_ioc_serves_records_beside_the_pvs_of_a_clu() {
    let site = Site::start();
    let names = [site.pv("Bath:CurrentTemp"), site.pv("beside")];
    site.monitor(&names[0]).wait_for(STEP_DURATION_MAX, |update| update["value"] == 19.25);

    for script in ["pyepics_client.py", "p4p_client.py"] {
        let mut client = site.client(script);
        client.put(&names[1], 6.5);
        let values = names.each_ref().map(|name| client.get(name)["value"].clone());
        assert_eq!(values, [json!(19.25), json!(6.5)], "{script}");
    }
}

#[test]
fn a_put_of_libca_or_p4p_to_a_set_point_reaches_lua_before_it_completes() {
    let site = Site::start();
    let name = site.pv("Bath:PointValue");
    site.monitor(&name).wait_for(STEP_DURATION_MAX, |update| update["value"] == 21.0);

    for (script, value) in [("pyepics_client.py", 22.5), ("p4p_client.py", 24.25)] {
        let mut client = site.client(script);
        client.put(&name, value);
        assert_eq!(site.exec("THE1:get(3)"), value.to_string(), "{script}");
        let reading = client.get(&name);
        assert_eq!((&reading["value"], &reading["severity"]), (&json!(value), &json!(0)), "{script}: {reading}");
    }
}

/// Channel Access cuts a string after 39 bytes.
#[test]
fn a_long_text_of_a_clu_is_an_array_of_characters_for_libca() {
    let site = Site::start();
    let name = site.pv("greeting");
    site.monitor(&name).wait_for(STEP_DURATION_MAX, |update| update["value"] == "hello");
    let (long, characters) = ("a greeting that is longer than a string of Channel Access", format!("{name}$"));
    let mut client = site.client("pyepics_client.py");

    client.request("put", &characters, json!({ "value": long, "wait": true }));

    assert_eq!(site.exec("greeting"), long);
    assert_eq!(client.request("get", &characters, json!({ "shape": "long" }))["value"], long);
}

#[test]
fn the_pvs_of_a_killed_clu_become_invalid_and_recover_when_it_runs_again() {
    let mut site = Site::start();
    let name = site.pv("Bath:CurrentTemp");
    let mut monitor = site.monitor(&name);
    monitor.wait_for(STEP_DURATION_MAX, |update| update["value"] == 19.25 && update["severity"] == "NO_ALARM");
    let mut clients = ["pyepics_client.py", "p4p_client.py"].map(|script| site.client(script));
    for client in &mut clients {
        client.monitor(&name);
        client.wait_for("the first value", STEP_DURATION_MAX, |update| update["severity"] == 0);
    }

    site.clu.kill();

    let lost = monitor.wait_for(SILENCE_DURATION_MAX, |update| update["severity"] == "INVALID");
    assert_eq!((&lost["status"], &lost["value"]), (&json!("COMM"), &json!(19.25)), "{lost}");
    for client in &mut clients {
        client.wait_for("INVALID", STEP_DURATION_MAX, |update| update["severity"] == INVALID);
    }

    // No other process of this test run uses the port: those of tests are distinct, and the system gives higher ones.
    site.folder.write("scripts/USER.LUA", "PID1:set(2, 17.5)").unwrap();
    (site.clu, _) = site.folder.serve(site.clu_port, &[]).unwrap();

    let recovered = monitor.wait_for(STEP_DURATION_MAX, |update| update["value"] == 17.5);
    assert_eq!((&recovered["severity"], &recovered["status"]), (&json!("NO_ALARM"), &json!("NO_ALARM")), "{recovered}");
    for client in &mut clients {
        let is_recovered = |update: &Json| update["severity"] == 0 && update["value"] == 17.5;
        client.wait_for("recovery", STEP_DURATION_MAX, is_recovered);
    }
    let [libca, p4p] = clients.each_mut().map(|client| client.get(&name)["severity"].clone());
    assert_eq!((libca, p4p), (json!(0), json!(0)));
}
