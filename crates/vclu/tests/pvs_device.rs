//! The objects of a CLU that has lights and a supply voltage as PVs. The CLU is a test of its own, as the virtual CLU has none of
//! these objects.

mod device;
#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::Device;
use fodo_clu::cipher::CipherKey;
use fodo_clu::keys::KeyFile;
use fodo_net::{
    Channel, Context, Detail, Kind, Limits, Meta, MonitorEvent, MonitorOptions, PvRequest, Reading, Request, Server,
    ServerConfig, Severity, Source, Status, Value,
};
use fodo_vclu::{CluPvConfig, CluPvs, CluSite};
use support::TestFolder;

const LIMIT: Duration = Duration::from_secs(40);

const OM: &str = "CLU7 = OBJECT:new(0, 1, \"CLU7\")\nDIM1 = OBJECT:new(5, \"DIM1\")\nLED1 = OBJECT:new(9, \"LED1\")\n";

const INTERFACES: &str = r#"<objects>
<CLU typeName="SUPPLY"><interface><features>
  <feature index="27" name="BusVoltage" type="num" get="true" range="0-30" unit="V"/>
  <feature index="29" name="MaxBusVoltage" type="num" get="true" set="true" range="0-30" unit="V"/>
  <feature index="30" name="MinBusVoltage" type="num" get="true" set="true" range="0-30" unit="V"/>
</features></interface></CLU>
<object class="5" name="DIMM"><features>
  <feature index="0" name="Value" type="num" get="true" set="true"/>
  <feature index="1" name="Note" type="str" get="true" set="true"/>
</features></object>
<object class="9" name="LEDRGB"><features>
  <feature index="3" name="RedValue" type="num" get="true"/><feature index="4" name="GreenValue" type="num" get="true"/>
  <feature index="5" name="BlueValue" type="num" get="true"/><feature index="15" name="WhiteValue" type="num" get="true"/>
</features></object>
</objects>"#;

struct ServedDevice {
    context: Context,
    _server: Server,
    pvs: Arc<CluPvs>,
    _device: Device,
    _folder: TestFolder,
}

impl ServedDevice {
    fn start() -> ServedDevice {
        let key = CipherKey::new([1; 16], [2; 16]);
        let (device, folder) = (Device::start(key.clone()), TestFolder::new());
        let write = |name: &str, text: &str| fs::write(folder.0.join(name), text).unwrap();
        write("keys.json", KeyFile { project: key, initial_iv: None, pin: None }.to_text().as_str());
        fs::create_dir(folder.0.join("xml")).unwrap();
        write("xml/objects.xml", INTERFACES);
        write("OM.LUA", OM);
        let address = device.address;
        write(
            "site.toml",
            &format!("[clu.t]\naddress = \"{address}\"\nkeys = \"keys.json\"\nom = \"OM.LUA\"\ninterfaces = \"xml\"\n"),
        );
        let site = CluSite::read(folder.0.join("site.toml")).unwrap();
        let pvs = CluPvs::start(CluPvConfig::of_site(&site.clus[0]).unwrap()).unwrap();
        assert!(pvs.wait_for_values(LIMIT));
        let server = Server::start(ServerConfig::isolated(), pvs.clone()).unwrap();
        let context = Context::new(server.client_config());
        ServedDevice { context, _server: server, pvs, _device: device, _folder: folder }
    }

    fn channel(&self, name: &str) -> Channel {
        self.context.channel(name).unwrap()
    }

    fn reading(&self, name: &str) -> Reading {
        self.channel(name).get_timeout(LIMIT).unwrap()
    }

    fn meta(&self, name: &str) -> Arc<Meta> {
        let control = Request { detail: Detail::Control, ..Request::default() };
        self.channel(name).get_with(control).unwrap().meta.unwrap()
    }

    fn put(&self, name: &str, value: impl Into<Value>) -> Result<(), fodo_net::Error> {
        self.channel(name).put_timeout(value, LIMIT)
    }
}

/// Waits for an update that meets a condition.
fn wait_for(channel: &Channel, condition: impl Fn(&Reading) -> bool) -> Reading {
    let monitor = channel.monitor(MonitorOptions::default());
    let end = Instant::now() + LIMIT;
    loop {
        match monitor.next_timeout(end.saturating_duration_since(Instant::now())) {
            Some(MonitorEvent::Update(reading)) if condition(&reading) => return reading,
            Some(_) => {}
            None => panic!("no update"),
        }
    }
}

fn limits(low: f64, high: f64) -> Limits {
    Limits { low, high }
}

#[test]
fn minimum_and_maximum_of_an_object_are_alarm_limits_that_follow_their_features() {
    let clu = ServedDevice::start();
    for scheme in ["ca", "pva"] {
        let name = format!("{scheme}://t:CLU7:BusVoltage");
        let meta = clu.meta(&name);
        assert_eq!((meta.alarm, meta.display), (limits(23.0, 25.0), limits(0.0, 30.0)), "{name}");
        assert_eq!(clu.reading(&name).alarm.severity, Severity::None, "{name}");
    }

    clu.put("t:CLU7:MaxBusVoltage", 23.5).unwrap();

    let high = wait_for(&clu.channel("t:CLU7:BusVoltage"), |reading| reading.alarm.severity == Severity::Major);
    assert_eq!((high.value, high.alarm.status), (24.0.into(), Status::HIHI));
    for scheme in ["ca", "pva"] {
        assert_eq!(clu.meta(&format!("{scheme}://t:CLU7:BusVoltage")).alarm, limits(23.0, 23.5), "{scheme}");
    }
    let object = clu.channel("pva://t:CLU7").get_structure(&PvRequest::default()).unwrap();
    assert_eq!(object.get("BusVoltage.valueAlarm.highAlarmLimit"), Some(&23.5.into()));
    assert_eq!(object.get("BusVoltage.alarm.severity"), Some(&2.into()));
}

#[test]
fn the_brightness_of_a_dimmer_is_also_in_percent() {
    let clu = ServedDevice::start();
    let percent = clu.channel("t:DIM1:Percent");
    assert_eq!(clu.meta("t:DIM1:Value").control, limits(0.0, 1.0));
    for scheme in ["ca", "pva"] {
        let meta = clu.meta(&format!("{scheme}://t:DIM1:Percent"));
        assert_eq!((meta.units.to_str().as_ref(), meta.control), ("%", limits(0.0, 100.0)), "{scheme}");
    }
    assert_eq!(clu.reading("t:DIM1:Percent").value, 40.0.into());

    percent.put_timeout(75.0, LIMIT).unwrap();
    assert_eq!(clu.reading("t:DIM1:Value").value, 0.75.into());
    clu.put("t:DIM1:Value", 0.5).unwrap();
    wait_for(&percent, |reading| reading.value == 50.0.into());
    let refused = clu.put("pva://t:DIM1:Percent", 120.0).unwrap_err();
    assert!(refused.to_string().contains("between 0 and 1"), "{refused}");
    assert_eq!(clu.reading("t:DIM1:Percent").alarm.status, Status::WRITE);
}

#[test]
fn the_colour_of_an_led_is_an_array_and_is_set_by_the_methods_of_the_led() {
    let clu = ServedDevice::start();
    for scheme in ["ca", "pva"] {
        let name = format!("{scheme}://t:LED1:Colour");
        assert_eq!(clu.reading(&name).value, vec![10, 20, 30, 40].into(), "{name}");
        assert_eq!(clu.reading(&name).alarm.severity, Severity::None, "{name}");
    }
    assert_eq!(clu.meta("t:LED1:RedValue").display, limits(0.0, 255.0));

    clu.put("ca://t:LED1:Colour", vec![255, 128, 0, 64]).unwrap();
    assert_eq!(clu.reading("t:LED1:Colour").value, vec![255, 128, 0, 64].into());
    assert_eq!(clu.reading("t:LED1:GreenValue").value, 128.0.into());
    clu.put("pva://t:LED1:Colour", vec![1, 2, 3]).unwrap();
    assert_eq!(clu.reading("t:LED1:Colour").value, vec![1, 2, 3, 64].into());
    let refused = clu.put("pva://t:LED1:Colour", vec![1, 2, 300]).unwrap_err();
    assert!(refused.to_string().contains("between 0 and 255"), "{refused}");
    assert_eq!(clu.reading("t:LED1:Colour").alarm.status, Status::WRITE);
    clu.put("pva://t:LED1:Colour", vec![1, 2, 3]).unwrap();
    assert_eq!(clu.reading("t:LED1:Colour").alarm.severity, Severity::None);
}

/// Channel Access cuts texts after 39 bytes.
#[test]
fn a_long_text_is_read_and_set_as_characters() {
    let clu = ServedDevice::start();
    let long = format!("{}end", "long text ".repeat(9));
    let characters = clu.channel("ca://t:DIM1:Note$");
    assert_eq!(characters.connect().unwrap().kind, Kind::U8);
    assert_eq!(characters.get_timeout(LIMIT).unwrap().value.long_text(), Some("Hall".into()));

    characters.put_timeout(Value::characters(&long), LIMIT).unwrap();

    assert_eq!(clu.reading("pva://t:DIM1:Note").value, long.as_str().into());
    let cut = clu.reading("ca://t:DIM1:Note").value;
    assert_eq!(cut.first().map(|text| text.to_text(None).as_bytes().len()), Some(39));
    let update =
        wait_for(&characters, |reading| reading.value.long_text().is_some_and(|text| text.as_bytes().len() > 39));
    assert_eq!(update.value.long_text(), Some(long.as_str().into()));
    clu.put("t:DIM1:Note", "short").unwrap();
    wait_for(&characters, |reading| reading.value.long_text() == Some("short".into()));
    assert!(!clu.pvs.names().iter().any(|name| name.ends_with('$')));
    assert!(!clu.pvs.serves("t:DIM1:Value$"));
}
