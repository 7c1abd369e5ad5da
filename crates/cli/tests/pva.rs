//! The commands and tools of pvAccess against a server on loopback: structures, procedures, lists of servers.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]
#![expect(dead_code, reason = "these tests need a part of what supports all")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use fodo_net::{Kind, PvTable, Server, ServerConfig, SharedPv, SharedStructure, Structure, StructureBuilder, Value};
use support::{Ioc, Lines, fodo, run, signal, text, wait};

/// A server of `x:set` (a number), `x:point` (a structure), `x:double` and `x:nothing` (procedures).
struct TestServer {
    server: Server,
    set: SharedPv,
    point: SharedStructure,
}

fn point() -> Structure {
    let mut build = StructureBuilder::new("point_t");
    build.scalar("x", Kind::F64).scalar("label", Kind::Text);
    let mut point = Structure::new(Arc::new(build.finish()));
    point.set("x", 1.5).unwrap();
    point.set("label", "start").unwrap();
    point
}

fn double(argument: &Structure) -> Result<Structure, String> {
    let number = argument.get("query.a").ok_or("a is missing")?.to_f64().map_err(|error| error.to_string())?;
    let mut result = point();
    result.set("x", 2.0 * number).map_err(|error| error.to_string())?;
    Ok(result)
}

impl TestServer {
    fn start() -> TestServer {
        let set = SharedPv::builder(1.5).on_put(|value, _| Ok(value)).build();
        let point = SharedStructure::builder(point()).on_put(|change, _| Ok(change)).build();
        let nothing = Structure::new(Arc::new(StructureBuilder::new("").finish()));
        let pvs =
            PvTable::from([("x:point", point.clone()), ("x:double", SharedStructure::procedure(|it, _| double(it)))]);
        pvs.insert("x:nothing", SharedStructure::procedure(move |_, _| Ok(nothing.clone())));
        pvs.insert("x:set", set.clone());
        TestServer { server: Server::start(ServerConfig::isolated(), Arc::new(pvs)).unwrap(), set, point }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.server.pva_tcp_port().unwrap())
    }

    fn command(&self, words: &[&str]) -> std::process::Command {
        let mut command = fodo(self.server.pva_udp_port().unwrap());
        command.args(words);
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        run(&mut self.command(words))
    }

    /// What a command prints on stdout; it must succeed without a message.
    fn out(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{words:?}");
        text(&output.stdout)
    }

    /// The exit code and stderr of a command that fails.
    fn failure(&self, words: &[&str]) -> (i32, String) {
        let output = self.output(words);
        (output.status.code().unwrap(), text(&output.stderr))
    }
}

/// Passes the searches and the circuit of one client on to a server, and returns the commands that the client has sent on its
/// circuit.
struct Relay {
    search_port: u16,
    commands: Arc<Mutex<Vec<u8>>>,
}

/// The commands of messages, and of control messages.
const CONTROL: u8 = 1;
const CREATE_CHANNEL: u8 = 7;
const GET: u8 = 10;
const GET_FIELD: u8 = 17;

impl Relay {
    fn to(server: &TestServer) -> Relay {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (udp, tcp) = (server.server.pva_udp_port().unwrap(), server.server.pva_tcp_port().unwrap());
        let [to_client, to_server] = [(); 2].map(|()| UdpSocket::bind(local(0)).unwrap());
        let listener = TcpListener::bind(local(0)).unwrap();
        let (own_udp, own_tcp) = (to_server.local_addr().unwrap().port(), listener.local_addr().unwrap().port());
        let relay = Relay { search_port: to_client.local_addr().unwrap().port(), commands: Arc::default() };
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((n, client)) = to_client.recv_from(&mut buffer) {
                // The port for the reply, and then the port of the circuit.
                set_port(&mut buffer, 32, own_udp);
                to_server.send_to(&buffer[..n], local(udp)).unwrap();
                let (n, _) = to_server.recv_from(&mut buffer).unwrap();
                set_port(&mut buffer, 40, own_tcp);
                to_client.send_to(&buffer[..n], client).unwrap();
            }
        });
        let commands = relay.commands.clone();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut server = TcpStream::connect(local(tcp)).unwrap();
            let (mut replies, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut replies, &mut to_client));
            let mut header = [0; 8];
            while client.read_exact(&mut header).is_ok() {
                let size = <[u8; 4]>::try_from(&header[4..]).unwrap();
                let size = if header[2] & 0x80 == 0 { u32::from_le_bytes(size) } else { u32::from_be_bytes(size) };
                let is_control = header[2] & CONTROL != 0;
                let mut payload = vec![0; if is_control { 0 } else { size as usize }];
                client.read_exact(&mut payload).unwrap();
                if !is_control {
                    commands.lock().unwrap().push(header[3]);
                }
                server.write_all(&[&header[..], &payload].concat()).unwrap();
            }
        });
        relay
    }
}

/// Replaces a port in a message, in the byte order of the message.
fn set_port(message: &mut [u8], offset: usize, port: u16) {
    let port = if message[2] & 0x80 == 0 { port.to_le_bytes() } else { port.to_be_bytes() };
    message[offset..offset + 2].copy_from_slice(&port);
}

#[test]
fn a_get_needs_one_read_request_for_value_metadata_and_type() {
    let server = TestServer::start();
    for (pv, shown) in [("pva://x:set", "1.5"), ("pva://x:point", "point_t")] {
        let relay = Relay::to(&server);

        let output = run(fodo(relay.search_port).args(["get", pv]));

        assert!(text(&output.stdout).contains(shown), "{pv}: {}", text(&output.stderr));
        let mut commands = relay.commands.lock().unwrap().clone();
        commands.retain(|command| matches!(*command, CREATE_CHANNEL | GET | GET_FIELD));
        // The client describes each channel once; a get is opened and executed.
        assert_eq!(commands, [CREATE_CHANNEL, GET_FIELD, GET, GET], "{pv}");
    }
}

#[test]
fn why_diagnoses_names_of_pvaccess() {
    let server = TestServer::start();
    let why = |words: &[&str]| {
        let output = server.output(&[&["why", "-w", "1"], words].concat());
        (output.status.code(), text(&output.stdout))
    };
    let searched = server.server.pva_udp_port().unwrap();

    let (code, number) = why(&["pva://x:set"]);
    let lines: Vec<&str> = number.lines().collect();
    assert_eq!((code, lines.len()), (Some(0), 5), "{number}");
    assert_eq!(lines[..2], ["pva://x:set".to_owned(), format!("    searched  127.0.0.1:{searched}")]);
    assert!(lines[2].starts_with(&format!("    claimed   {}", server.address())), "{number}");
    assert!(lines[3].starts_with("              channel after ") && lines[3].ends_with(" ms: double; value 1.5"));
    assert_eq!(lines[4], "    verdict   nothing is wrong");

    let (code, structure) = why(&["--protocol", "pva", "--json", "x:point"]);
    let json: serde_json::Value = serde_json::from_str(&structure).unwrap();
    assert_eq!((code, &json["pv"], &json["protocol"]), (Some(0), &"x:point".into(), &"pva".into()));
    assert_eq!((&json["claims"][0]["kind"], &json["claims"][0]["id"]), (&"structure".into(), &"point_t".into()));

    let (code, field) = why(&["pva://x:set.NOSUCH"]);
    assert!(code == Some(3) && field.contains("the record exists, but the field does not"), "{field}");
    let (code, absent) = why(&["pva://x:absent"]);
    assert!(code == Some(3) && absent.contains("no server claimed the name within"), "{absent}");
    let (code, procedure) = why(&["pva://x:double"]);
    assert!(code == Some(0) && procedure.contains(" ms: structure\n"), "{procedure}");
}

#[test]
fn the_tools_of_pvaccesscpp_read_write_describe_and_call() {
    let server = TestServer::start();
    let address = server.address();

    assert_eq!(server.out(&["pvget", "-r", "x", "x:point"]), "x:point point_t \n    double x 1.5\n");
    assert!(server.out(&["pvput", "-r", "value", "x:set", "2.5"]).contains("2.5"));
    assert_eq!(server.set.reading().value, 2.5.into());
    assert_eq!(server.failure(&["pvput", "x:absent", "-w", "0.2", "1"]).0, 1);
    server.out(&["pvput", "x:point", "x=3", "label=end"]);
    let now = server.point.value();
    assert_eq!((now.get("x"), now.get("label")), (Some(&3.0.into()), Some(&"end".into())));
    let described = server.out(&["pvinfo", "x:point"]);
    assert!(described.contains(&format!("x:point\nServer: {address}\nType:\n    point_t\n")), "{described}");
    assert!(server.out(&["pvcall", "x:double", "a=21"]).contains("double x 42"));
    assert_eq!(server.out(&["pvcall", "x:nothing"]), "");
    assert_eq!(server.failure(&["pvcall", "x:double"]), (1, "Error: a is missing\n".to_owned()));
}

#[test]
fn the_tools_of_pvxs_read_write_describe_and_call() {
    let server = TestServer::start();

    assert!(server.out(&["pvxget", "x:point"]).starts_with("x:point\n"));
    server.out(&["pvxput", "x:point", "x=4"]);
    assert_eq!(server.point.value().get("x"), Some(&4.0.into()));
    let described = server.out(&["pvxinfo", "x:point"]);
    assert!(described.starts_with(&format!("x:point from {}\n", server.address())), "{described}");
    assert!(server.out(&["pvxcall", "x:double", "a=21"]).contains("double x = 42"));
    assert_eq!(server.failure(&["pvxcall", "x:double"]).0, 1);
}

#[test]
fn servers_and_their_pvs_are_listed_by_every_tool() {
    let server = TestServer::start();
    let address = server.address();

    let found = server.out(&["pvlist"]);
    let (guid, rest) = found.strip_prefix("GUID ").unwrap().split_once(' ').unwrap();
    assert_eq!((guid.len(), rest), (26, format!("version 2: tcp@[ {address} ]\n").as_str()));
    let names = "x:double\nx:nothing\nx:point\nx:set\n";
    assert_eq!(server.out(&["pvlist", &address]), names);
    assert_eq!(server.out(&["pvlist", guid]), names);
    assert!(server.out(&["pvlist", "-i", &address]).contains("string version \"fodo "));
    let unknown = format!("0x{}", "00".repeat(12));
    let refused = format!("Failed to resolve GUID '{unknown}'!\n");
    assert_eq!(server.failure(&["pvlist", &unknown]), (1, refused));
    assert_eq!(server.failure(&["pvlist", "127.0.0.1:1"]), (1, "Error: connection timeout\n".to_owned()));

    assert_eq!(server.out(&["pvxlist", "-w", "2"]), format!("{address}\n"));
    assert_eq!(server.out(&["pvxlist", &address]), names);
    assert_eq!(server.out(&["pvxlist", "-v", &address]).lines().last(), Some("x:set"));
    assert!(server.out(&["pvxlist", "-i", &address]).starts_with(&format!("{address} version=\"fodo ")));

    let digits = guid.strip_prefix("0x").unwrap();
    assert_eq!(server.out(&["list", "-w", "2"]), format!("{digits}  version 2  tcp  {address}\n"));
    for target in [address.as_str(), guid, digits, "--all"] {
        assert_eq!(server.out(&["list", "-w", "2", target]), names, "{target}");
    }
    let first = format!("{{\"pv\":\"x:double\",\"server\":\"{address}\"}}");
    assert_eq!(server.out(&["list", "--json", &address]).lines().next(), Some(first.as_str()));
    let info = server.out(&["list", "--info", &address]);
    assert!(info.starts_with(&format!("{address}\n    ")) && info.contains("    version   fodo "), "{info}");
    assert!(server.out(&["list", "-w", "2", "--info"]).starts_with(&format!("{address}\n")));
    let info = server.out(&["list", "--info", "--json", &address]);
    assert!(info.starts_with(&format!("{{\"server\":\"{address}\",\"info\":{{")), "{info}");
}

#[test]
fn a_server_that_cannot_be_listed_is_reported_with_the_reason() {
    let server = TestServer::start();
    let unknown = "0".repeat(24);

    let (code, err) = server.failure(&["list", "127.0.0.1:1"]);
    assert!(code != 0 && err.contains("127.0.0.1:1: no program accepts connections"), "{code} {err}");
    let (_, err) = server.failure(&["list", "-w", "0.2", &unknown]);
    assert_eq!(err, format!("fodo: no server with the GUID {unknown} replied\n"));
    let output = server.output(&["list", "--json", "127.0.0.1:1"]);
    assert!(text(&output.stdout).starts_with("{\"server\":\"127.0.0.1:1\",\"error\":"), "{output:?}");
    assert!(!text(&output.stdout).contains("\"pv\""), "{output:?}");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let (_, err) = server.failure(&["list", "-w", "0.1", &address]);
    assert_eq!(err, format!("fodo: {address}: no reply within 0.1 s\n"));
    let nobody = run(fodo(support::free_port()).args(["list", "-w", "0.2"]));
    assert_eq!(text(&nobody.stderr), "fodo: no server replied within 0.2 s: check EPICS_PVA_ADDR_LIST\n");
}

#[test]
fn structures_are_printed_as_trees_and_as_json_by_every_verb() {
    let server = TestServer::start();
    let fields = "{\"x\":1.5,\"label\":\"start\"}";
    let json = |words: &[&str]| serde_json::from_str::<serde_json::Value>(&server.out(words)).unwrap();

    assert!(server.out(&["get", "pva://x:point"]).ends_with("point_t\n    x      1.5\n    label  start\n"));
    let got = json(&["get", "--json", "pva://x:point"]);
    assert_eq!((got["id"].as_str(), got["structure"].to_string().as_str()), (Some("point_t"), fields));
    assert!(server.out(&["info", "pva://x:point"]).contains("    type\n        point_t\n            double x\n"));
    let info = json(&["info", "--json", "pva://x:point"]);
    assert_eq!((info["id"].as_str(), info["kind"].as_str()), (Some("point_t"), Some("structure")));
    let shown = server.out(&["monitor", "--events", "1", "pva://x:point"]);
    assert_eq!(shown, "pva://x:point  point_t\n    x      1.5\n    label  start\n");
    let shown = server.out(&["monitor", "--events", "1", "--json", "pva://x:point"]);
    let [connected, update]: [serde_json::Value; 2] =
        shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(connected["event"].as_str(), Some("connected"));
    assert_eq!((update["event"].as_str(), update["structure"].to_string().as_str()), (Some("update"), fields));
    assert_eq!(server.out(&["call", "x:double", "a=2"]), "point_t\n    x      4\n    label  start\n");
    let called = json(&["call", "--json", "x:double", "a=2"]);
    assert_eq!(called["structure"].to_string(), "{\"x\":4.0,\"label\":\"start\"}");
    assert_eq!(server.out(&["call", "x:nothing"]), "");
    assert_eq!(json(&["call", "--json", "x:nothing"])["structure"], serde_json::Value::Null);
    let (code, err) = server.failure(&["call", "x:double", "a"]);
    assert!(code != 0 && err == "fodo: \"a\" is not a valid argument: write NAME=VALUE\n", "{code} {err}");
}

#[test]
fn every_monitor_prints_each_update_of_a_structure_until_a_signal() {
    let server = TestServer::start();
    let monitors: [(&[&str], i32); 3] =
        [(&["monitor", "pva://x:point"], 0), (&["pvmonitor", "x:point"], 0), (&["pvxmonitor", "x:point"], 2)];
    let mut current = 1.5;
    for (words, code) in monitors {
        let mut child = server.command(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        let until = |number: f64| while !lines.next().split(' ').any(|word| word == number.to_string()) {};
        until(current);
        for number in [7.25, 8.25] {
            let mut change = server.point.new_value();
            change.set("x", Value::from(number)).unwrap();
            server.point.post(&change).unwrap();
            until(number);
            current = number;
        }
        signal(&child, "INT");
        assert_eq!(wait(&mut child).code(), Some(code), "{words:?}");
    }
}

#[test]
fn a_pv_request_selects_the_fields_that_are_printed() {
    let server = TestServer::start();
    let part = "point_t\n    x  1.5\n";

    assert_eq!(server.out(&["get", "-r", "field(x)", "pva://x:point"]), format!("pva://x:point  {part}"));
    let json = server.out(&["get", "--json", "--request", "x", "pva://x:point"]);
    assert!(json.ends_with("\"structure\":{\"x\":1.5}}\n"), "{json}");
    let value = server.out(&["get", "-r", "field(value)", "pva://x:set"]);
    assert!(value.starts_with("pva://x:set  epics:nt/NTScalar") && value.ends_with("\n    value  1.5\n"), "{value}");
    let update = server.out(&["monitor", "--events", "1", "-r", "field(x)", "pva://x:point"]);
    assert_eq!(update, format!("pva://x:point  {part}"));
    let update = server.out(&["monitor", "--events", "1", "-r", "record[queueSize=10]", "pva://x:set"]);
    assert!(update.starts_with("pva://x:set  ") && update.ends_with("  1.5\n"), "{update}");
    server.out(&["put", "-r", "field(label)", "pva://x:point", "label=end"]);
    assert_eq!(server.point.value().get("label"), Some(&"end".into()));
    let (code, err) = server.failure(&["get", "-r", "field(", "pva://x:set"]);
    assert!(code == 2 && err.contains("invalid pvRequest"), "{code} {err}");
    for verb in ["get", "monitor"] {
        let (code, err) = server.failure(&[verb, "-r", "field(x)", "ca://x:set"]);
        assert!(code == 6 && err.contains("pva://"), "{verb}: {code} {err}");
    }
}

#[test]
fn a_get_or_put_processes_its_record_if_the_pv_request_says_so() {
    let database = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("request-{}.db", std::process::id()));
    let records = "record(calc, \"req:count\") { field(CALC, \"VAL+1\") }
                   record(ao, \"req:set\") { field(FLNK, \"req:count\") }";
    std::fs::write(&database, records).unwrap();
    let ioc = Ioc::with(|command| command.arg("-d").arg(&database));
    let (_, pva) = ioc.ready.split_once(" and ").unwrap();
    let (server, _) = pva.split_once(" (pvAccess)").unwrap();
    let out = |words: &[&str]| {
        let output = run(fodo(ioc.port).env("EPICS_PVA_NAME_SERVERS", server).args(words));
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{words:?}");
        text(&output.stdout)
    };
    let count = |words: &[&str]| {
        let json = out(&[&["get", "--json"][..], words, &["pva://req:count"]].concat());
        serde_json::from_str::<serde_json::Value>(&json).unwrap()["value"].as_f64()
    };
    let put = |request: &str, value: &str| out(&["put", "-q", "-r", request, "pva://req:set", value]);

    assert_eq!(count(&["-r", "record[process=true]"]), Some(1.0));
    assert_eq!(count(&["-r", "record[process=true]"]), Some(2.0));
    put("record[process=false]", "3");
    assert_eq!(count(&[]), Some(2.0));
    put("record[process=true,block=true]", "4");
    assert_eq!(count(&["-r", "record[process=false]"]), Some(3.0));
    assert!(out(&["get", "pva://req:set"]).contains("  4  "));
}

#[test]
fn a_monitor_of_a_pv_that_refuses_ends_with_an_error() {
    let server = TestServer::start();

    let (code, err) = server.failure(&["pvmonitor", "-r", "field(nothing)", "x:point"]);

    assert!(code == 1 && err.starts_with("x:point Error "), "{code} {err}");
}
