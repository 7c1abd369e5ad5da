//! MQTT with mosquitto: messages of scripts, Home Assistant, a broker that restarts, and TLS.

mod device;
mod live;
#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::fs;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use fodo_clu::cipher::CipherKey;
use fodo_clu::interface::{FeatureInterface, InterfaceKind, ObjectInterface};
use fodo_clu::omp::ProjectObject;
use fodo_vclu::limit::{MQTT_ATTEMPTS_MAX, MQTT_PACKET_BYTES_MAX, MQTT_PAYLOAD_BYTES_MAX, MQTT_QUEUED_MAX};
use fodo_vclu::{LogEntry, PeerClu};

use live::{LiveClu, Program, has_program, make_certificates, output_of};

/// A broker that is killed when it is dropped.
struct Broker {
    program: Program,
    port: u16,
    config: PathBuf,
}

static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

impl Broker {
    /// `None` if mosquitto is not installed. `options`: further lines of its configuration.
    fn start(folder: &Path, options: &str) -> Option<Broker> {
        if !has_program("mosquitto") || !has_program("mosquitto_sub") {
            return None;
        }
        let config = folder.join("mosquitto.conf");
        // Below the ephemeral ports; another process may have the first ones.
        for _ in 0..50 {
            let offset = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
            let port = 20_000 + ((std::process::id() as u16).wrapping_mul(31) % 10_000) + offset;
            let text =
                format!("listener {port} 127.0.0.1\nallow_anonymous true\nlog_dest stderr\nuser root\n{options}\n");
            fs::write(&config, text).unwrap();
            if let Some(program) = Broker::run(&config) {
                return Some(Broker { program, port, config });
            }
        }
        panic!("mosquitto does not start");
    }

    /// `None` if the port is in use.
    fn run(config: &Path) -> Option<Program> {
        let program = Program::start(Command::new("mosquitto").arg("-c").arg(config));
        let is_started = |line: &str| line.contains(" running");
        program.find_line(is_started).map(|_| program)
    }

    fn restart(&mut self) {
        self.program = Broker::run(&self.config).expect("the port is in use");
    }

    fn url(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port)
    }

    /// A client that is subscribed, and writes `RETAINED TOPIC PAYLOAD` for each message, with 0 or 1 before.
    fn subscribe(&self, filter: &str) -> Program {
        let mut command = Command::new("stdbuf");
        // Without stdbuf, it writes the lines of -d only with the first message.
        command.args([
            "-oL",
            "mosquitto_sub",
            "-d",
            "-q",
            "1",
            "-F",
            "%r %t %p",
            "-h",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
            "-t",
            filter,
        ]);
        let program = Program::start(&mut command);
        assert!(program.find_line(|line| line.starts_with("Subscribed")).is_some(), "the broker has ended");
        program
    }

    fn publish(&self, topic: &str, payload: &str) {
        output_of(Command::new("mosquitto_pub").args([
            "-q",
            "1",
            "-h",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
            "-t",
            topic,
            "-m",
            payload,
        ]));
    }
}

/// Connects its clients to a broker, until the connections are cut.
struct Proxy {
    port: u16,
    is_open: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn start(broker_port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = Proxy { port, is_open: Arc::new(AtomicBool::new(true)), streams: Arc::default() };
        let (is_open, streams) = (Arc::clone(&proxy.is_open), Arc::clone(&proxy.streams));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let mut streams = streams.lock().unwrap();
                if !is_open.load(Ordering::Relaxed) {
                    continue;
                }
                let Ok(broker) = TcpStream::connect(("127.0.0.1", broker_port)) else { continue };
                for (from, to) in [(&client, &broker), (&broker, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        // The end of one direction ends the other one.
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                streams.extend([client, broker]);
            }
        });
        proxy
    }

    /// Ends the connections as a network that fails, and accepts no new ones.
    fn cut(&self) {
        let mut streams = self.streams.lock().unwrap();
        self.is_open.store(false, Ordering::Relaxed);
        for stream in streams.drain(..) {
            // The other end may have closed it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }
}

/// A CLU that uses a broker; the rest of OM.LUA follows.
fn clu(url: &str, objects: &str) -> LiveClu {
    LiveClu::start(&connected(url, objects), |config, folder| config.certificates = Some(folder.join("certificates")))
}

fn connected(url: &str, objects: &str) -> String {
    format!(
        "CLU0001:add_event(0, function()\n CLU0001:set(20, \"{url}\")\n CLU0001:set(21, 1)\nend)\n\
         received = {{}}\n{objects}"
    )
}

const TOPIC: &str = r#"
T = OBJECT:new(999, "T")
T:add_event(0, function() T:set(0, "house/in/#") T:execute(0) end)
T:add_event(1, function() table.insert(received, T:get(2) .. "=" .. tostring(T:get(1))) end)
"#;

#[test]
fn a_script_receives_and_publishes_messages() {
    let folder = support::TestFolder::new();
    let Some(broker) = Broker::start(&folder.0, "") else { return };
    let clu = clu(&broker.url(), TOPIC);
    let other = broker.subscribe("house/out/#");
    clu.wait_for("CLU0001:get(22) == 1");
    clu.eval("T:execute(10, \"house/in/ready\", \"1\")");
    clu.wait_for("#received == 1");

    broker.publish("house/in/a", "text");
    broker.publish("house/in/b", "21.5");
    broker.publish("house/in/c", r#"{"list":[3,4],"on":true}"#);
    clu.wait_for("#received == 4");

    assert_eq!(clu.eval("received[2] .. \" \" .. received[3]"), "house/in/a=text house/in/b=21.5");
    assert_eq!(clu.eval("T:get(1)"), "{list={3,4},on=true}");
    clu.eval("T:execute(10, \"house/out/table\", {list = {3, {x = \"y\"}}})");
    other.wait_for_line(r#"0 house/out/table {"list":[3,{"x":"y"}]}"#);
    clu.eval("T:execute(10, \"house/out/text\", \"on\")");
    other.wait_for_line("0 house/out/text on");
}

#[test]
fn every_message_is_handled_once_and_in_order_when_many_arrive() {
    let folder = support::TestFolder::new();
    let Some(broker) = Broker::start(&folder.0, "max_queued_messages 0") else { return };
    let clu = clu(&broker.url(), TOPIC);
    clu.wait_for("CLU0001:get(22) == 1");
    clu.eval("T:execute(10, \"house/in/ready\", \"1\")");
    clu.wait_for("#received == 1");

    let lines: String = (1..=1000).map(|number| format!("{number}\n")).collect();
    fs::write(folder.0.join("lines"), lines).unwrap();
    let mut publisher = Command::new("mosquitto_pub");
    publisher.args(["-q", "1", "-l", "-t", "house/in/n", "-h", "127.0.0.1", "-p", &broker.port.to_string()]);
    publisher.stdin(fs::File::open(folder.0.join("lines")).unwrap());
    output_of(&mut publisher);
    clu.wait_for("#received == 1001");

    let in_order = "(function() for i = 1, 1000 do \
                    if received[i + 1] ~= \"house/in/n=\" .. i then return i end end return \"all\" end)()";
    assert_eq!(clu.eval(in_order), "all");
    let counts = clu.clu.counts();
    assert_eq!((counts.mqtt_received, counts.mqtt_dropped, counts.events_dropped), (1001, 0, 0));
}

const HOUSE: &str = r#"
-- NAME_PERIPHERY Hall=THE1
THE1 = OBJECT:new(18, "THE1")
PRE1 = OBJECT:new(40, "PRE1")
TIM1 = OBJECT:new(6, "TIM1")
CLU0001:add_event(0, function() CLU0001:set(23, 1) THE1:set(3, 20.5) end)
CLU0001:add_event(20, function() table.insert(received, CLU0001:get(25).id .. "=" .. CLU0001:get(25).value) end)
"#;

#[test]
fn home_assistant_finds_all_objects_and_follows_and_sets_their_features() {
    let folder = support::TestFolder::new();
    let Some(broker) = Broker::start(&folder.0, "") else { return };
    let clu = clu(&broker.url(), HOUSE);
    let states = broker.subscribe("fodo/#");
    states.wait_for_line("0 fodo/CLU0001/availability online");
    states.wait_for_line("0 fodo/CLU0001/state/TIM1/State Stopped");

    // Retained: a client that connects later finds everything.
    let configs = broker.subscribe("homeassistant/#");
    let retained = |topic: &str| {
        let client = broker.subscribe(topic);
        client.find_line(|line| line.starts_with(&format!("1 {topic} "))).expect("the broker has ended")
    };
    let climate = retained("homeassistant/climate/CLU0001/THE1/config");
    assert!(climate.contains(r#""name":"Hall""#), "{climate}");
    let presence = retained("homeassistant/binary_sensor/CLU0001/PRE1_PresenceDetected/config");
    assert!(presence.contains(r#""device_class":"occupancy""#), "{presence}");
    assert_eq!(retained("fodo/CLU0001/state/THE1/PointValue"), "1 fodo/CLU0001/state/THE1/PointValue 20.5");

    broker.publish("fodo/CLU0001/set/THE1/PointValue", "23");
    states.wait_for_line("0 fodo/CLU0001/state/THE1/PointValue 23");
    broker.publish("fodo/CLU0001/set/THE1/Mode", "HolidayMode");
    states.wait_for_line("0 fodo/CLU0001/state/THE1/Mode HolidayMode");
    broker.publish("fodo/CLU0001/set/TIM1/Time", "3600000");
    states.wait_for_line("0 fodo/CLU0001/state/TIM1/Time 3600000");
    broker.publish("fodo/CLU0001/call/TIM1/Start", "PRESS");
    states.wait_for_line("0 fodo/CLU0001/state/TIM1/State Counting");
    assert_eq!(clu.eval("THE1:get(3) .. \" \" .. THE1:get(8) .. \" \" .. TIM1:get(2)"), "23 1 1");

    clu.eval("PRE1:execute(0)");
    clu.eval("PRE1:execute(2)");
    states.wait_for_line("0 fodo/CLU0001/state/PRE1/PresenceDetected 1");

    // A refused value: the state is published again.
    broker.publish("fodo/CLU0001/set/TIM1/Time", "-5");
    states.wait_for_line("0 fodo/CLU0001/state/TIM1/Time 3600000");
    assert!(clu.log_text().contains("Time must be between 0 and"), "{}", clu.log_text());

    clu.eval("CLU0001:execute(20, \"Outside\", \"out_1\", \"temperature\", \"°C\", \"{{ value }}\")");
    let outside = configs.find_line(|line| line.starts_with("0 homeassistant/sensor/CLU0001/out_1/config ")).unwrap();
    assert!(outside.contains(r#""device_class":"temperature""#), "{outside}");
    clu.eval("CLU0001:execute(21, \"out_1\", 7.5)");
    states.wait_for_line("0 fodo/CLU0001/state/out_1 7.5");
    broker.publish("fodo/CLU0001/set/out_1", "8");
    clu.wait_for("received[1] == \"out_1=8\"");

    drop(clu);
    states.wait_for_line("0 fodo/CLU0001/availability offline");
}

/// An object of the CLU CLU7 in a project.
fn in_project(id: &str, type_name: &str, features: &[(u32, &str)]) -> ProjectObject {
    let feature = |(index, name): &(u32, &str)| FeatureInterface {
        index: *index,
        name: (*name).into(),
        kind: InterfaceKind::Number,
        unit: String::new(),
        can_get: true,
        can_set: true,
        range: None,
        choices: Vec::new(),
    };
    let features = features.iter().map(feature).collect();
    let interface = ObjectInterface { name: type_name.into(), features, ..ObjectInterface::default() };
    ProjectObject { clu: Some("CLU7".into()), id: id.into(), name: None, interface }
}

/// The other CLU needs no change for this: it knows nothing of MQTT.
#[test]
fn home_assistant_follows_and_sets_the_lights_of_another_clu_of_the_project() {
    let folder = support::TestFolder::new();
    let Some(broker) = Broker::start(&folder.0, "") else { return };
    let key = CipherKey::new([1; 16], [2; 16]);
    let device = device::Device::start(key.clone());
    let colours = [(3, "RedValue"), (4, "GreenValue"), (5, "BlueValue"), (15, "WhiteValue")];
    let objects = vec![
        in_project("DIM1", "DIMM", &[(0, "Value")]),
        in_project("LED1", "LEDRGB", &colours),
        in_project("BUT1", "BUTTON", &[]),
    ];
    let script = connected(
        &broker.url(),
        "CLU7 = OBJECT:new(1, 0x7f000001, \"CLU7\")\nCLU0001:add_event(0, function() CLU0001:set(23, 1) end)\n",
    );
    let clu = LiveClu::start(&script, |config, _| {
        config.peers.set_project_key(key);
        config.peers.insert("CLU7", PeerClu { address: device.address, key: None });
        config.peers.set_objects(objects);
    });
    let states = broker.subscribe("fodo/#");

    states.wait_for_line("0 fodo/CLU0001/state/CLU7/DIM1 40");
    states.wait_for_line("0 fodo/CLU0001/state/CLU7/LED1 10,20,30,40");
    let topic = "homeassistant/light/CLU0001/CLU7_LED1/config";
    let config = broker.subscribe(topic).find_line(|line| line.starts_with("1 ")).expect("the broker has ended");
    assert!(config.contains(r#""rgbw_command_topic":"fodo/CLU0001/set/CLU7/LED1""#), "{config}");

    broker.publish("fodo/CLU0001/set/CLU7/DIM1", "75");
    states.wait_for_line("0 fodo/CLU0001/state/CLU7/DIM1 75");
    broker.publish("fodo/CLU0001/set/CLU7/LED1", "255,128,0,7");
    states.wait_for_line("0 fodo/CLU0001/state/CLU7/LED1 255,128,0,7");
    assert_eq!(clu.eval("CLU7:execute(0, \"DIM1:get(0)\")"), "0.75");
    clu.eval("CLU0001:execute(30, \"CLU7->BUT1\")");
    states.wait_for_line(r#"0 fodo/CLU0001/state/CLU7/BUT1 {"event_type":"press"}"#);

    broker.publish("fodo/CLU0001/set/CLU7/DIM1", "200");
    clu.wait_until(|_| clu.log_text().contains("must be a number between 0 and 100"));
}

#[test]
fn entities_of_removed_objects_are_removed_from_home_assistant_by_a_reset() {
    let folder = support::TestFolder::new();
    let Some(broker) = Broker::start(&folder.0, "") else { return };
    let clu = clu(&broker.url(), HOUSE);
    let configs = broker.subscribe("homeassistant/+/CLU0001/+/config");
    assert!(configs.find_line(|line| line.contains("TIM1_Time/config {")).is_some());

    let objects = connected(&broker.url(), &HOUSE.replace("TIM1 = OBJECT:new(6, \"TIM1\")", ""));
    clu.folder.write("OM.LUA", &support::om(&objects));
    clu.reset();

    configs.wait_for_line("0 homeassistant/number/CLU0001/TIM1_Time/config ");
    assert_eq!(clu.clu.counts().mqtt_connections, 1, "the reset has interrupted the connection");
}

#[test]
fn a_broker_that_restarts_gets_subscriptions_publications_and_states_again() {
    let folder = support::TestFolder::new();
    let Some(mut broker) = Broker::start(&folder.0, "") else { return };
    let clu = clu(&broker.url(), &format!("{TOPIC}{HOUSE}"));
    clu.wait_for("CLU0001:get(22) == 1");

    broker.program.kill();
    clu.wait_for("CLU0001:get(22) == 0");
    // To itself: what is published while the broker is away arrives after it.
    for number in 1..=20 {
        clu.eval(&format!("T:execute(10, \"house/in/n\", {number})"));
    }
    clu.eval("THE1:set(3, 24)");
    broker.restart();

    clu.wait_for("#received == 20");
    assert_eq!(clu.eval("received[1] .. received[20]"), "house/in/n=1house/in/n=20");
    let later = broker.subscribe("#");
    later.wait_for_line("1 fodo/CLU0001/availability online");
    later.wait_for_line("1 fodo/CLU0001/state/THE1/PointValue 24");
    broker.publish("house/in/again", "1");
    clu.wait_for("received[21] == \"house/in/again=1\"");
    let counts = clu.clu.counts();
    assert_eq!((counts.mqtt_connections, counts.mqtt_refused, counts.mqtt_dropped), (2, 0, 0), "{counts:?}");
    assert_eq!(counts.mqtt_received, 21, "{counts:?}");
    assert!(clu.log_text().contains("no connection to the MQTT broker"), "{}", clu.log_text());
}

#[test]
fn a_connection_that_fails_ends_with_the_last_will_and_loses_no_message() {
    let folder = support::TestFolder::new();
    let Some(broker) = Broker::start(&folder.0, "") else { return };
    let proxy = Proxy::start(broker.port);
    let clu = clu(&format!("tcp://127.0.0.1:{}", proxy.port), TOPIC);
    let other = broker.subscribe("fodo/CLU0001/availability");
    other.find_line(|line| line.ends_with("availability online")).unwrap();
    clu.eval("T:execute(10, \"house/in/ready\", \"1\")");
    clu.wait_for("#received == 1");

    proxy.cut();
    other.wait_for_line("0 fodo/CLU0001/availability offline");
    broker.publish("house/in/meanwhile", "2");
    proxy.open();

    other.wait_for_line("0 fodo/CLU0001/availability online");
    // The first message may arrive again, if its acknowledgement was lost.
    clu.wait_for("table.concat(received, \" \"):find(\"house/in/meanwhile=2\", 1, true)");
}

#[test]
fn a_message_that_is_too_long_is_dropped_and_the_next_ones_arrive() {
    let folder = support::TestFolder::new();
    let Some(broker) = Broker::start(&folder.0, "") else { return };
    let clu = clu(&broker.url(), TOPIC);
    clu.eval("T:execute(10, \"house/in/ready\", \"1\")");
    clu.wait_for("#received == 1");

    for (n_bytes, n_connections) in [(MQTT_PAYLOAD_BYTES_MAX + 1, 1), (MQTT_PACKET_BYTES_MAX as usize + 1, 2)] {
        let file = folder.0.join("long");
        fs::write(&file, "x".repeat(n_bytes)).unwrap();
        let mut publisher = Command::new("mosquitto_pub");
        publisher.args(["-q", "1", "-h", "127.0.0.1", "-p", &broker.port.to_string(), "-t", "house/in/long", "-f"]);
        output_of(publisher.arg(&file));
        clu.wait_until(|clu| {
            clu.counts().mqtt_dropped == n_connections && clu.counts().mqtt_connections == n_connections
        });
        clu.eval(&format!("T:execute(10, \"house/in/after\", {n_bytes})"));
        clu.wait_for(&format!("received[#received] == \"house/in/after={n_bytes}\""));
    }

    let counts = clu.clu.counts();
    assert_eq!((counts.mqtt_dropped, counts.mqtt_connections), (2, 2), "{}", clu.log_text());
}

#[test]
fn a_message_for_which_the_broker_ends_the_connection_is_given_up_and_the_others_arrive() {
    let folder = support::TestFolder::new();
    let Some(broker) = Broker::start(&folder.0, "max_packet_size 2000") else { return };
    let clu = clu(&broker.url(), TOPIC);
    let other = broker.subscribe("house/out/#");
    clu.wait_for("CLU0001:get(22) == 1");

    clu.eval(
        "(function() for i = 1, 20 do \
         T:execute(10, \"house/out/n\", i == 10 and (\"x\"):rep(3000) or i) end end)()",
    );
    clu.wait_until(|clu| clu.counts().mqtt_given_up == 1);
    clu.eval("T:execute(10, \"house/out/n\", \"after\")");

    for number in (1..=20).filter(|number| *number != 10) {
        other.wait_for_line(&format!("0 house/out/n {number}"));
    }
    other.wait_for_line("0 house/out/n after");
    let (counts, log) = (clu.clu.counts(), clu.log_text());
    assert_eq!((counts.mqtt_given_up, counts.mqtt_connections), (1, u64::from(MQTT_ATTEMPTS_MAX) + 1), "{log}");
    assert_eq!(log.matches("the message of house/out/n with 3000 bytes is given up").count(), 1, "{log}");
    assert_eq!(log.matches("no connection to the MQTT broker").count(), 1, "{log}");
    assert_eq!(log.matches("connected to the MQTT broker").count(), 1, "{log}");
}

/// A broker ends the connection of a client that sends such a topic.
#[test]
fn a_prefix_that_is_no_topic_is_refused() {
    let clu = LiveClu::start(TOPIC, |_, _| {});

    for prefix in ["", "a/#", "a\\0b"] {
        clu.eval(&format!("CLU0001:set(24, \"{prefix}\")"));
        assert_eq!(clu.eval("CLU0001:get(24)"), "homeassistant", "{prefix}");
    }
}

#[test]
fn publications_that_wait_for_the_broker_are_limited_and_what_is_refused_is_counted() {
    let clu = LiveClu::start(TOPIC, |_, _| {});

    let script = format!("(function() for i = 1, {} do T:execute(10, \"a\", i) end end)()", MQTT_QUEUED_MAX + 3);
    clu.eval(&script);

    assert_eq!(clu.clu.counts().mqtt_refused, 3);
    let text = format!("{MQTT_QUEUED_MAX} publications already wait for the broker");
    assert!(clu.log_text().contains(&text), "{}", clu.log_text());
}

#[test]
fn tls_connects_only_to_a_broker_with_a_trusted_certificate() {
    let folder = support::TestFolder::new();
    if !has_program("openssl") {
        return;
    }
    let server = folder.0.join("server");
    make_certificates(&server);
    let path = |name: &str| server.join(name).display().to_string();
    let options = format!("certfile {}\nkeyfile {}\n", path("server.crt"), path("server.key"));
    let Some(broker) = Broker::start(&folder.0, &options) else { return };
    let url = format!("ssl://127.0.0.1:{}", broker.port);
    let start = |ca: PathBuf| {
        LiveClu::start(&connected(&url, TOPIC), move |config, folder| {
            let own = folder.join("certificates");
            fs::create_dir_all(&own).unwrap();
            fs::copy(ca, own.join("ca.crt")).unwrap();
            config.certificates = Some(own);
        })
    };

    let trusting = start(server.join("ca.crt"));
    trusting.wait_for("CLU0001:get(22) == 1");
    trusting.eval("T:execute(10, \"house/in/tls\", \"1\")");
    trusting.wait_for("received[1] == \"house/in/tls=1\"");
    drop(trusting);

    let other = folder.0.join("other");
    make_certificates(&other);
    let distrusting = start(other.join("ca.crt"));
    let is_refused = |entry: &LogEntry| entry.text.contains("TLS: invalid peer certificate");
    distrusting.wait_until(|clu| clu.log().iter().any(is_refused));
    assert_eq!(distrusting.clu.counts().mqtt_connections, 0);
}

#[test]
fn a_password_is_neither_read_back_nor_logged() {
    let folder = support::TestFolder::new();
    let Some(broker) = Broker::start(&folder.0, "") else { return };
    let clu = clu(&format!("tcp://me:se-cret@127.0.0.1:{}", broker.port), HOUSE);

    clu.wait_for("CLU0001:get(22) == 1");

    assert_eq!(clu.eval("CLU0001:get(20)"), format!("tcp://me:*@127.0.0.1:{}", broker.port));
    clu.eval("CLU0001:set(20, \"tpc://me:se-cret@x\")");
    assert!(clu.log_text().contains("MQTTUrl must have the form"), "{}", clu.log_text());
    assert!(!clu.log_text().contains("se-cret"), "{}", clu.log_text());
}
