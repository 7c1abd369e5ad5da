//! The objects of a CLU on the network as PVs. Between the CLU and its client is a relay, so that the CLU can stop and start
//! again at another port.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fodo_clu::cipher::CipherKey;
use fodo_clu::command::Serial;
use fodo_clu::keys::KeyFile;
use fodo_clu::server::CluServerConfig;
use fodo_net::{Channel, Context, MonitorEvent, MonitorOptions, Reading, Server, ServerConfig, Severity, Status};
use fodo_vclu::{CluPvConfig, CluPvs, CluSite, VcluConfig, VcluServer, VcluServerConfig};
use support::{MAIN, TestFolder, om};

const LIMIT: Duration = Duration::from_secs(40);

/// The time in which the PVs of a silent CLU become INVALID.
const SILENCE: Duration = Duration::from_secs(10);

const OBJECTS: &str = r#"
-- NAME_PERIPHERY Bath=BATH1
BATH1 = OBJECT:new(18, "BATH1")
setpoint = 21 -- number
"#;

const THERMOSTAT: &str = r#"<object class="18" name="Thermostat"><features>
  <feature index="3" name="PointValue" type="num" get="true" set="true" unit="C" range="5-30"/>
  <feature index="5" name="Hysteresis" type="num" get="true" set="true"/>
  <feature index="12" name="TargetTemp" type="num" get="true" unit="C" range="5-25"/>
  <feature index="14" name="CurrentTemp" type="num" get="true" unit="C"/>
</features></object>"#;

fn key() -> CipherKey {
    CipherKey::new([1; 16], [2; 16])
}

/// Forwards datagrams between one client and the CLU at the current port; 0 drops them.
struct Relay {
    address: SocketAddr,
    port: Arc<AtomicU16>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    fn start() -> Relay {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        // Looks for the end of the test so often.
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let address = socket.local_addr().unwrap();
        let (port, is_stopped) = (Arc::new(AtomicU16::new(0)), Arc::new(AtomicBool::new(false)));
        let (of_port, of_end) = (port.clone(), is_stopped.clone());
        let thread = std::thread::spawn(move || {
            let (mut buffer, mut client) = (vec![0; 65536], None);
            while !of_end.load(Ordering::Relaxed) {
                // It also fails at the timeout, and after a CLU that has stopped refused a datagram.
                let Ok((n_bytes, from)) = socket.recv_from(&mut buffer) else { continue };
                let clu = of_port.load(Ordering::Relaxed);
                let to = if from.port() == clu {
                    client
                } else {
                    client = Some(from);
                    (clu != 0).then(|| SocketAddr::from((Ipv4Addr::LOCALHOST, clu)))
                };
                if let Some(to) = to {
                    // A CLU that has just stopped refuses it.
                    let _ = socket.send_to(&buffer[..n_bytes], to);
                }
            }
        });
        Relay { address, port, is_stopped, thread: Some(thread) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

struct NetworkClu {
    context: Context,
    _server: Server,
    pvs: Arc<CluPvs>,
    clu: Option<VcluServer>,
    relay: Relay,
    folder: TestFolder,
}

impl NetworkClu {
    fn start(objects: &str) -> NetworkClu {
        let folder = TestFolder::new();
        folder.write("MAIN.LUA", MAIN);
        folder.write("OM.LUA", &om(objects));
        folder.write("USER.LUA", "");
        let relay = Relay::start();
        fs::create_dir(folder.0.join("xml")).unwrap();
        fs::write(folder.0.join("xml/object_thermostat.xml"), THERMOSTAT).unwrap();
        let keys = KeyFile { project: key(), initial_iv: None, pin: None };
        fs::write(folder.0.join("keys.json"), keys.to_text().as_str()).unwrap();
        let site = format!(
            "[clu.t]\naddress = \"{}\"\nkeys = \"keys.json\"\nom = \"a/OM.LUA\"\ninterfaces = \"xml\"\n",
            relay.address
        );
        fs::write(folder.0.join("site.toml"), site).unwrap();
        let site = CluSite::read(folder.0.join("site.toml")).unwrap();
        let pvs = CluPvs::start(CluPvConfig::of_site(&site.clus[0]).unwrap()).unwrap();
        let server = Server::start(ServerConfig::isolated(), pvs.clone()).unwrap();
        let context = Context::new(server.client_config());
        let mut clu = NetworkClu { context, _server: server, pvs, clu: None, relay, folder };
        clu.start_clu();
        clu
    }

    fn start_clu(&mut self) {
        let mut server = CluServerConfig::new(Serial(1), Ipv4Addr::LOCALHOST, key());
        server.report_interval = Duration::from_millis(100);
        let mut config = VcluServerConfig::new(VcluConfig::new(self.folder.scripts()), server);
        config.listen = (Ipv4Addr::LOCALHOST, 0).into();
        let clu = VcluServer::start(config).unwrap();
        self.relay.port.store(clu.address().port(), Ordering::Relaxed);
        self.clu = Some(clu);
    }

    fn stop_clu(&mut self) {
        self.relay.port.store(0, Ordering::Relaxed);
        self.clu.take().unwrap().stop();
    }

    fn channel(&self, name: &str) -> Channel {
        self.context.channel(name).unwrap()
    }

    fn reading(&self, name: &str) -> Reading {
        self.channel(name).get_timeout(LIMIT).unwrap()
    }

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
}

fn is_valid(reading: &Reading) -> bool {
    reading.alarm.severity < Severity::Invalid
}

#[test]
fn values_are_reported_and_a_put_completes_with_the_value_that_was_read_back() {
    let clu = NetworkClu::start(OBJECTS);
    assert!(clu.pvs.wait_for_values(LIMIT));

    assert_eq!(clu.wait_for("t:Bath:TargetTemp", is_valid).value, 20.0.into());
    clu.channel("t:Bath:PointValue").put_timeout(27.5, LIMIT).unwrap();
    assert_eq!(clu.reading("t:Bath:PointValue").value, 27.5.into());
    let warm = clu.wait_for("t:Bath:TargetTemp", |reading| reading.value == 27.5.into());
    assert_eq!((warm.alarm.severity, warm.alarm.status), (Severity::Minor, Status::HIGH));

    clu.channel("t:setpoint").put_timeout(23.0, LIMIT).unwrap();
    assert_eq!(clu.reading("t:setpoint").value, 23.0.into());
    assert_eq!(clu.reading("t:Bath:CurrentTemp").alarm.status, Status::UDF);
}

/// The interface has no range for the hysteresis, so the CLU refuses the value: it answers `nil` and keeps its own.
#[test]
fn a_put_that_the_clu_does_not_take_fails() {
    let clu = NetworkClu::start(OBJECTS);
    assert!(clu.pvs.wait_for_values(LIMIT));

    let refused = clu.channel("pva://t:Bath:Hysteresis").put_timeout(200.0, LIMIT).unwrap_err();

    assert!(refused.to_string().contains("did not take the value"), "{refused}");
    let reading = clu.reading("t:Bath:Hysteresis");
    assert_eq!((reading.value, reading.alarm.status), (2.0.into(), Status::WRITE));
}

#[test]
fn the_pvs_of_a_clu_that_stops_become_invalid_and_recover_by_themselves() {
    let mut clu = NetworkClu::start(OBJECTS);
    assert!(clu.pvs.wait_for_values(LIMIT));
    clu.wait_for("t:Bath:PointValue", is_valid);

    let stopped = Instant::now();
    clu.stop_clu();
    let lost = clu.wait_for("t:Bath:PointValue", |reading| !is_valid(reading));
    // A busy computer may need a little more.
    assert!(stopped.elapsed() < SILENCE + Duration::from_secs(5), "{:?}", stopped.elapsed());
    assert_eq!((lost.value, lost.alarm.status), (20.0.into(), Status::COMM));
    assert_eq!(clu.wait_for("t:LINK:ALIVE", |reading| !is_valid(reading)).alarm.status, Status::COMM);
    assert!(clu.channel("t:Bath:PointValue").put_timeout(25.0, LIMIT).is_err());

    clu.start_clu();
    assert_eq!(clu.wait_for("t:Bath:PointValue", is_valid).value, 20.0.into());
    clu.wait_for("t:LINK:ALIVE", is_valid);
    clu.channel("t:Bath:PointValue").put_timeout(25.0, LIMIT).unwrap();
    assert_eq!(clu.reading("t:Bath:PointValue").value, 25.0.into());
}

#[test]
fn a_clu_that_refuses_subscriptions_is_read_instead() {
    let clu = NetworkClu::start(&format!("{OBJECTS}\nSYSTEM.clientRegister = nil"));

    let point = clu.wait_for("t:Bath:PointValue", is_valid);

    assert_eq!(point.value, 20.0.into());
    clu.wait_for("t:LINK:MISSING", |reading| reading.value.to_f64().is_ok_and(|n_missing| n_missing > 0.0));
}
