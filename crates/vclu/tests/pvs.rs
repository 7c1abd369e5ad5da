//! The objects of a CLU in this process as PVs of a server, read and written by clients of both protocols.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::fs;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fodo_net::{
    Channel, Context, Detail, ErrorKind, Kind, Limits, MonitorEvent, MonitorOptions, PvRequest, Reading, Request,
    Server, ServerConfig, Severity, Source, Status, Structure, StructureBuilder, Value,
};
use fodo_vclu::{CluEnd, CluPvConfig, CluPvs, CluSite, ReplyTo, VcluConfig, VcluRequest, VirtualClu};

use support::{MAIN, TestFolder, om};

const LIMIT: Duration = Duration::from_secs(20);

/// A thermostat with the units and limits of its interface file, and a sensor: the first reads the point of the second.
const OBJECTS: &str = r#"
-- NAME_PERIPHERY Łazienka=BATH1
BATH1 = OBJECT:new(18, "BATH1")
SENS1 = OBJECT:new(18, "SENS1")
SENS1:set(3, 21.5)
BATH1:set(0, {SENS1, 3})
BATH1:set(6, 1)
seen = 0 -- number
BATH1:add_event(0, function() seen = BATH1:get(3) end)
QUE1 = OBJECT:new(77, "QUE1")
SCH1 = OBJECT:new(16, "SCH1")
SCH1:set(3, 10)
SCH1:set(4, 25)
"#;

const THERMOSTAT: &str = r#"<object class="18" name="Thermostat">
<features>
  <feature index="3" name="PointValue" type="num" get="true" set="true" unit="C" range="5-30"/>
  <feature index="6" name="State" type="num" get="true" set="true"><enum name="Off" value="0"/><enum name="On" value="1"/></feature>
  <feature index="9" name="Data" type="str" get="true" set="true"/>
  <feature index="14" name="CurrentTemp" type="num" get="true" set="false" unit="C" range="5-25"/>
</features>
<methods>
  <method call="execute" index="2" name="IncreaseDegree" return="void"/>
  <method call="execute" index="4" name="HeatUp" return="void"><param name="Value" type="num"/><param name="Time" type="num"/></method>
</methods>
<events><event address="0" name="OnChange"/></events>
</object>"#;

struct ServedClu {
    context: Context,
    _server: Server,
    pvs: Arc<CluPvs>,
    clu: Arc<VirtualClu>,
    folder: TestFolder,
}

impl ServedClu {
    fn start() -> ServedClu {
        ServedClu::configured(|_| {})
    }

    fn configured(configure: impl FnOnce(&mut CluPvConfig)) -> ServedClu {
        ServedClu::with_objects(OBJECTS, configure)
    }

    fn with_objects(objects: &str, configure: impl FnOnce(&mut CluPvConfig)) -> ServedClu {
        let folder = TestFolder::new();
        folder.write("MAIN.LUA", MAIN);
        folder.write("OM.LUA", &om(objects));
        folder.write("USER.LUA", "");
        fs::create_dir(folder.0.join("xml")).unwrap();
        fs::write(folder.0.join("xml/object_thermostat.xml"), THERMOSTAT).unwrap();
        fs::write(folder.0.join("site.toml"), "[clu.t]\nfolder = \"a\"\ninterfaces = \"xml\"\n").unwrap();
        let site = CluSite::read(folder.0.join("site.toml")).unwrap();
        let mut config = CluPvConfig::of_site(site.clu("t").unwrap()).unwrap();
        configure(&mut config);
        let CluEnd::Process(clu) = config.end.clone() else { panic!("it runs in this process") };
        let pvs = CluPvs::start(config).unwrap();
        assert!(pvs.wait_for_values(LIMIT));
        let server = Server::start(ServerConfig::isolated(), pvs.clone()).unwrap();
        let context = Context::new(server.client_config());
        ServedClu { context, _server: server, pvs, clu, folder }
    }

    fn channel(&self, name: &str) -> Channel {
        self.context.channel(name).unwrap()
    }

    fn reading(&self, name: &str) -> Reading {
        self.channel(name).get_timeout(LIMIT).unwrap()
    }

    fn put(&self, name: &str, value: impl Into<Value>) -> Result<(), ErrorKind> {
        self.channel(name).put_timeout(value, LIMIT).map_err(|error| error.kind().clone())
    }

    /// Waits for an update that meets a condition.
    fn wait_for(&self, name: &str, condition: impl Fn(&Reading) -> bool) -> Reading {
        let monitor = self.channel(name).monitor(MonitorOptions::default());
        let end = Instant::now() + LIMIT;
        loop {
            match monitor.next_timeout(end.saturating_duration_since(Instant::now())) {
                Some(MonitorEvent::Update(reading)) if condition(&reading) => return reading,
                Some(_) => {}
                None => panic!("{name}: no update, the last value is {:?}", self.reading(name)),
            }
        }
    }

    /// Starts the scripts again.
    fn restart(&self) {
        let (sender, receiver) = mpsc::channel();
        let reply = ReplyTo::new(move |state| sender.send(state).unwrap());
        assert!(self.clu.submit(VcluRequest::Reset { reply }).is_ok());
        assert!(receiver.recv_timeout(LIMIT).unwrap().is_some());
    }
}

#[test]
fn a_temperature_has_unit_limits_and_the_alarm_of_its_range_over_both_protocols() {
    let clu = ServedClu::start();

    for scheme in ["ca", "pva"] {
        let name = format!("{scheme}://t:Lazienka:CurrentTemp");
        let reading = clu.wait_for(&name, |reading| reading.alarm.severity == Severity::None);
        let control = Request { detail: Detail::Control, ..Request::default() };
        let meta = clu.channel(&name).get_with(control).unwrap().meta.unwrap();
        assert_eq!(reading.value, 21.5.into(), "{name}");
        assert_eq!((meta.units.to_str().as_ref(), meta.precision), ("C", 2), "{name}");
        assert_eq!((meta.display.low, meta.display.high), (5.0, 25.0), "{name}");
    }

    clu.put("t:SENS1:PointValue", 28.0).unwrap();
    let warm = clu.wait_for("t:Lazienka:CurrentTemp", |reading| reading.value == 28.0.into());
    assert_eq!((warm.alarm.severity, warm.alarm.status), (Severity::Minor, Status::HIGH));
}

/// Together they are longer than a datagram, and read at once.
#[test]
fn many_long_texts_are_pvs_with_their_values() {
    let declared: String = (0..20).map(|index| format!("long{index} = \"\" -- string\n")).collect();
    let set = "for i = 0, 19 do _G[\"long\" .. i] = string.rep(\"x\", 5000) end\n";

    let clu = ServedClu::with_objects(&format!("{declared}{set}"), |_| {});

    for index in 0..20 {
        let reading = clu.reading(&format!("pva://t:long{index}"));
        assert_eq!(reading.value, Value::from("x".repeat(5000).as_str()), "long{index}");
        assert_eq!(reading.alarm.severity, Severity::None, "long{index}");
    }
}

#[test]
fn a_put_to_a_setpoint_reaches_lua_and_completes_with_the_value_that_was_read_back() {
    let clu = ServedClu::start();

    clu.put("t:Lazienka:PointValue", 22.5).unwrap();

    assert_eq!(clu.reading("t:Lazienka:PointValue").value, 22.5.into());
    assert_eq!(clu.wait_for("t:seen", |reading| reading.value == 22.5.into()).alarm.severity, Severity::None);
    let fired = clu.wait_for("t:Lazienka:OnChange", |reading| reading.value == 1.into());
    assert_eq!(fired.alarm.severity, Severity::None);
}

#[test]
fn a_refused_put_fails_and_raises_a_write_alarm_until_the_next_put_is_taken() {
    let clu = ServedClu::start();
    let point = "pva://t:Lazienka:PointValue";
    clu.put(point, 20.0).unwrap();

    let refused = clu.put(point, 40.0).unwrap_err();

    assert!(matches!(&refused, ErrorKind::Refused { .. }), "{refused:?}");
    assert!(format!("{refused:?}").contains("between 5 and 30"), "{refused:?}");
    let reading = clu.reading(point);
    assert_eq!((reading.value, reading.alarm.severity), (20.0.into(), Severity::Invalid));
    assert_eq!(clu.reading("t:Lazienka:PointValue").alarm.status, Status::WRITE);
    clu.put(point, 20.0).unwrap();
    assert_eq!(clu.reading(point).alarm.severity, Severity::None);
}

/// The object itself refuses this schedule.
#[test]
fn a_value_that_the_object_refuses_fails_the_put_with_its_reason() {
    let clu = ServedClu::start();

    let refused = clu.put("pva://t:Lazienka:Data", "no schedule").unwrap_err();

    assert!(matches!(&refused, ErrorKind::Refused { .. }), "{refused:?}");
    assert_eq!(clu.reading("t:Lazienka:Data").alarm.status, Status::WRITE);
}

#[test]
fn a_feature_that_cannot_be_set_refuses_puts() {
    let clu = ServedClu::start();

    assert!(clu.put("t:Lazienka:CurrentTemp", 20.0).is_err());
    assert!(!clu.channel("t:Lazienka:CurrentTemp").connect().unwrap().may_write);
    assert_eq!(clu.reading("t:Lazienka:CurrentTemp").alarm.severity, Severity::None);
}

#[test]
fn methods_are_called_by_puts_and_as_procedures() {
    let clu = ServedClu::start();
    clu.put("t:Lazienka:PointValue", 20.0).unwrap();

    clu.put("t:Lazienka:IncreaseDegree", 1).unwrap();
    assert_eq!(clu.reading("t:Lazienka:IncreaseDegree").value, 1.into());
    clu.wait_for("t:Lazienka:PointValue", |reading| reading.value == 21.0.into());

    let mut build = StructureBuilder::new("epics:nt/NTURI:1.0");
    build.scalar("scheme", Kind::Text).scalar("path", Kind::Text);
    build.open("query", "").scalar("Value", Kind::F64).scalar("Time", Kind::F64).close();
    let mut argument = Structure::new(Arc::new(build.finish()));
    argument.set("query.Value", 2.0).unwrap();
    argument.set("query.Time", 30.0).unwrap();
    let heat_up = clu.channel("pva://t:Lazienka:HeatUp");
    heat_up.call_timeout(argument, LIMIT).unwrap();
    let empty = Structure::new(Arc::new(StructureBuilder::new("").finish()));
    let missing = heat_up.call_timeout(empty, LIMIT).unwrap_err();
    assert!(missing.to_string().contains("is missing"), "{missing}");
}

#[test]
fn an_object_is_a_structure_with_all_its_features() {
    let clu = ServedClu::start();
    let object = clu.channel("pva://t:Lazienka");
    let monitor = object.monitor_structure(PvRequest::default(), MonitorOptions::default());

    clu.put("t:Lazienka:PointValue", 23.0).unwrap();

    let end = Instant::now() + LIMIT;
    loop {
        match monitor.next_timeout(end.saturating_duration_since(Instant::now())) {
            Some(MonitorEvent::Update(update)) if update.get("PointValue.value") == Some(&23.0.into()) => break,
            Some(_) => {}
            None => panic!("no update"),
        }
    }
    let whole = object.get_structure(&PvRequest::default()).unwrap();
    assert_eq!(whole.kind().id().to_str(), "clu:Thermostat");
    assert_eq!(whole.get("PointValue.alarm.severity"), Some(&0.into()));
    assert_eq!(whole.get("PointValue.display.units"), Some(&"C".into()));
    assert_eq!(whole.get("State.value.index"), Some(&1.into()));
    assert_eq!(whole.get("State.value.choices").map(Value::len), Some(2));
}

#[test]
fn states_have_their_labels_and_the_state_of_the_clu_its_alarm() {
    let clu = ServedClu::start();

    clu.put("t:Lazienka:State", "Off").unwrap();

    assert_eq!(clu.reading("t:Lazienka:State").value.to_kind(Kind::I32, None), Ok(0.into()));
    let control = Request { detail: Detail::Control, ..Request::default() };
    let meta = clu.channel("t:Cellar:State").get_with(control).unwrap().meta.unwrap();
    assert_eq!(meta.labels[1].to_str(), "System ok");
    assert_eq!(clu.reading("t:Cellar:State").alarm.severity, Severity::None);
    assert_eq!(clu.reading("t:LINK:ALIVE").value.to_kind(Kind::I32, None), Ok(1.into()));
    clu.wait_for("t:LINK:ROUND_TRIP", |reading| reading.value.to_f64().is_ok_and(|ms| ms > 0.0));
}

/// The class of the scheduler has no range for its value.
#[test]
fn the_range_of_a_value_is_that_of_min_and_max_of_its_object() {
    let clu = ServedClu::start();
    let control = || Request { detail: Detail::Control, ..Request::default() };
    let range = |name: &str| clu.channel(name).get_with(control()).unwrap().meta.unwrap().display;
    assert_eq!(range("t:SCH1:Value"), Limits { low: 10.0, high: 25.0 });

    clu.put("t:SCH1:Max", 28.0).unwrap();

    assert_eq!(range("t:SCH1:Value"), Limits { low: 10.0, high: 28.0 });
    assert_eq!(range("pva://t:SCH1:Value"), Limits { low: 10.0, high: 28.0 });
}

#[test]
fn in_emergency_mode_the_values_are_undefined() {
    let clu = ServedClu::start();
    let folder = clu.folder.scripts();
    fs::write(folder.join("MAIN.LUA"), "error(\"broken\")").unwrap();

    clu.put("t:Lazienka:IncreaseDegree", 1).unwrap();
    clu.restart();

    let lost = clu.wait_for("t:Lazienka:PointValue", |reading| reading.alarm.severity == Severity::Invalid);
    assert_eq!(lost.alarm.status, Status::UDF);
    let alive = clu.wait_for("t:LINK:ALIVE", |reading| reading.alarm.severity == Severity::Major);
    assert_eq!(alive.alarm.status, Status::STATE);
    assert!(clu.put("t:SENS1:PointValue", 20.0).is_err());

    fs::write(folder.join("MAIN.LUA"), MAIN).unwrap();
    clu.restart();
    clu.wait_for("t:Lazienka:PointValue", |reading| reading.alarm.severity == Severity::None);
    clu.wait_for("t:LINK:ALIVE", |reading| reading.alarm.severity == Severity::None);
}

/// Object Manager may upload other scripts and reset the CLU. The index of a feature means something else in another class.
#[test]
fn pvs_of_objects_that_a_reset_has_removed_or_replaced_are_undefined_and_refuse_puts() {
    let clu = ServedClu::start();
    clu.folder.write("OM.LUA", &om("BATH1 = OBJECT:new(6, \"BATH1\")\nBATH1:set(0, 3000)"));

    clu.restart();

    for name in ["t:Lazienka:PointValue", "t:SENS1:PointValue", "t:Lazienka:OnChange"] {
        let lost = clu.wait_for(name, |reading| reading.alarm.severity == Severity::Invalid);
        assert_eq!(lost.alarm.status, Status::UDF, "{name}");
    }
    for name in ["t:Lazienka:PointValue", "t:Lazienka:IncreaseDegree", "t:SENS1:PointValue"] {
        assert!(clu.put(name, 20.0).is_err(), "{name}");
    }
    clu.wait_for("t:Lazienka:PointValue", |reading| reading.alarm.status == Status::UDF);

    clu.folder.write("OM.LUA", &om(OBJECTS));
    clu.restart();
    clu.wait_for("t:Lazienka:PointValue", |reading| reading.alarm.severity == Severity::None);
    clu.put("t:Lazienka:PointValue", 22.0).unwrap();
}

#[test]
fn objects_that_are_new_after_a_reset_are_counted_with_an_alarm_and_reported_once() {
    let clu = ServedClu::start();
    let n_new = |count: f64| move |reading: &Reading| reading.value.to_f64() == Ok(count);
    let none = clu.wait_for("t:LINK:NEW_OBJECTS", n_new(0.0));
    assert_eq!(none.alarm.severity, Severity::None);

    clu.folder.write("OM.LUA", &om(&format!("{OBJECTS}\nNEW1 = OBJECT:new(6, \"NEW1\")\n")));
    clu.restart();
    let one = clu.wait_for("t:LINK:NEW_OBJECTS", n_new(1.0));
    assert_eq!(one.alarm.severity, Severity::Minor);
    clu.folder.write("OM.LUA", &om(OBJECTS));
    clu.restart();
    clu.wait_for("t:LINK:NEW_OBJECTS", n_new(0.0));

    let log: Vec<String> = clu.clu.log().into_iter().map(|entry| entry.text).collect();
    let reported = log.iter().filter(|text| text.contains("object NEW1 has no PVs, because it is new"));
    assert_eq!(reported.count(), 1, "{log:?}");
    assert!(!log.iter().any(|text| text.contains("object BATH1 has no PVs")), "{log:?}");
}

#[test]
fn parts_of_http_messages_that_may_contain_passwords_have_no_pvs() {
    let folder = TestFolder::new();
    folder.write("MAIN.LUA", MAIN);
    folder.write("USER.LUA", "");
    folder.write("OM.LUA", &om("REQ1 = OBJECT:new(121, \"REQ1\")\nREQ1:set(7, {Authorization = \"the secret\"})"));
    let clu = Arc::new(VirtualClu::start(VcluConfig::new(folder.scripts())).unwrap());
    let pvs = CluPvs::start(CluPvConfig::new("t:", CluEnd::Process(clu))).unwrap();
    assert!(pvs.wait_for_values(LIMIT));

    let names = pvs.names();

    let has = |member: &str| names.contains(&format!("t:REQ1:{member}"));
    for member in ["Query", "RequestHeaders", "RequestBody", "ResponseHeaders", "ResponseBody"] {
        assert!(!has(member), "{names:?}");
    }
    for member in ["Host", "Path", "StatusCode", "SendRequest"] {
        assert!(has(member), "{names:?}");
    }
    let server = Server::start(ServerConfig::isolated(), pvs.clone()).unwrap();
    let context = Context::new(server.client_config());
    let object = context.channel("pva://t:REQ1").unwrap().get_structure(&PvRequest::default()).unwrap();
    assert_eq!(object.get("Host.value"), Some(&"".into()));
    assert!(!format!("{object:?}").contains("secret"), "{object:?}");
}

#[test]
fn what_has_no_pv_is_reported() {
    let clu = ServedClu::start();

    let problems = clu.pvs.problems();

    assert!(problems.iter().any(|problem| problem.contains("QUE1")), "{problems:?}");
    assert_eq!(clu.pvs.name_of("BATH1/PointValue"), Some("t:Lazienka:PointValue".into()));
    assert_eq!(clu.pvs.name_of("Łazienka/3"), Some("t:Lazienka:PointValue".into()));
    assert_eq!(clu.pvs.name_of("Łazienka"), Some("t:Lazienka".into()));
    assert_eq!(clu.pvs.name_of("seen"), Some("t:seen".into()));
    assert_eq!(clu.pvs.name_of("BATH1/Color"), None);
}

#[test]
fn read_only_pvs_refuse_puts_and_calls() {
    let clu = ServedClu::configured(|config| config.is_read_only = true);

    assert!(clu.put("t:Lazienka:PointValue", 20.0).is_err());
    assert!(clu.put("t:Lazienka:IncreaseDegree", 1).is_err());
    let empty = Structure::new(Arc::new(StructureBuilder::new("").finish()));
    let refused = clu.channel("pva://t:Lazienka:HeatUp").call_timeout(empty, LIMIT).unwrap_err();
    assert!(refused.to_string().contains("read-only"), "{refused}");
}
