//! pvAccess by TLS with Phoebus' core-pva in both directions, with keychains that `keytool` makes.
#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::time::Duration;

use fodo_conformance::process::{Process, restrict_to_loopback, set_pva_ports};
use fodo_conformance::server::PvaPorts;
use fodo_conformance::{place, process};
use fodo_ioc::{Ioc, Policy, RunningIoc};
use fodo_net::{
    Channel, ClientCertificates, ClientConfig, Context, ErrorKind, Host, Keychain, MonitorEvent, MonitorOptions,
    PvaClientConfig, PvaServerConfig, ServerConfig, TlsPolicy, Value,
};
use serde_json::{Value as Json, json};

const PATIENCE: Duration = Duration::from_secs(30);
const PASSWORD: &str = "test-password";

/// Keychains in a folder that is removed with it.
struct Keychains(PathBuf);

impl Drop for Keychains {
    fn drop(&mut self) {
        // What is left is in the folder of temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Keychains {
    /// An authority, and the keychains of these programs: their certificate, and the authority as trusted.
    fn made(test: &str, names: &[&str]) -> Keychains {
        let folder = std::env::temp_dir().join(format!("fodo-tls-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let keychains = Keychains(folder);
        keychains.key("root", "Lab Root", &["-ext", "bc:c=ca:true", "-ext", "ku=keyCertSign"]);
        keychains.keytool("root", &["-exportcert", "-alias", "root", "-rfc", "-file", "root.pem"]);
        for name in names {
            keychains.key(name, name, &[]);
            keychains.keytool(name, &["-certreq", "-alias", name, "-file", "request.pem"]);
            let signed = ["-gencert", "-alias", "root", "-rfc", "-infile", "request.pem", "-outfile", "signed.pem"];
            keychains.keytool("root", &signed);
            keychains.keytool(name, &["-importcert", "-noprompt", "-alias", "root", "-file", "root.pem"]);
            keychains.keytool(name, &["-importcert", "-noprompt", "-alias", name, "-file", "signed.pem"]);
        }
        keychains.keytool("trust", &["-importcert", "-noprompt", "-alias", "root", "-file", "root.pem"]);
        keychains
    }

    /// A key with a self-signed certificate.
    fn key(&self, file: &str, name: &str, extensions: &[&str]) {
        let of = format!("CN={name}");
        let common = ["-genkeypair", "-alias", file, "-dname", &of, "-keyalg", "EC", "-validity", "2"];
        self.keytool(file, &[&common, extensions].concat());
    }

    fn keytool(&self, file: &str, arguments: &[&str]) {
        let mut command = Command::new("keytool");
        command.current_dir(&self.0).args(arguments).args(["-storetype", "PKCS12", "-storepass", PASSWORD]);
        command.arg("-keystore").arg(format!("{file}.p12"));
        process::printed_by("keytool", &mut command, PATIENCE).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.0.join(format!("{name}.p12")).to_str().unwrap().to_owned()
    }

    /// The text of a variable for core-pva.
    fn variable(&self, name: &str) -> String {
        format!("{};{PASSWORD}", self.path(name))
    }

    fn keychain(&self, name: &str) -> Keychain {
        Keychain::load(&self.path(name), PASSWORD).unwrap()
    }
}

/// Files with records and their access rules: `X:open` for everyone, `X:guarded` that only the certificate of ann may write.
fn database(folder: &Path) -> (PathBuf, PathBuf) {
    let (records, rules) = (folder.join("tls.db"), folder.join("tls.acf"));
    std::fs::write(
        &records,
        r#"record(ao, "X:open") { field(VAL, "1.5") } record(ao, "X:guarded") { field(ASG, "x509") }"#,
    )
    .unwrap();
    let text = r#"UAG(operators) { ann }
        AUTHORITY(LAB, "Lab Root")
        ASG(DEFAULT) { RULE(1, WRITE) }
        ASG(x509) { RULE(1, READ) RULE(1, WRITE) { UAG(operators) METHOD("x509") AUTHORITY(LAB) PROTOCOL("TLS") } }"#;
    std::fs::write(&rules, text).unwrap();
    (records, rules)
}

/// Our IOC with TLS only.
fn ioc(folder: &Path, keychain: Keychain, clients: ClientCertificates) -> RunningIoc {
    let (records, rules) = database(folder);
    let policy = Policy { access_file: Some((rules, String::new())), ..Policy::default() };
    let ioc = Ioc::load(&[(records, String::new())]).unwrap().with_policy(policy).unwrap();
    let pva =
        PvaServerConfig { tls: TlsPolicy::Only(keychain), client_certificates: clients, ..PvaServerConfig::isolated() };
    ioc.serve(ServerConfig { pva: Some(pva), ..ServerConfig::isolated() }).unwrap()
}

/// A client of another project, driven by lines of JSON.
struct LineClient(Process);

impl LineClient {
    /// core-pva with TLS, which searches over UDP.
    fn core_pva(search_port: u16, keychain: &str) -> LineClient {
        let mut command = place::java("CorePvaClient");
        restrict_to_loopback(&mut command, place::free_port());
        set_pva_ports(&mut command, search_port, place::free_port());
        command.env("EPICS_PVA_ADDR_LIST", format!("127.0.0.1:{search_port}"));
        LineClient::of(command, keychain)
    }

    /// The same, which searches at this port only, by TLS.
    fn core_pva_at(name_server: u16, keychain: &str) -> LineClient {
        let mut command = place::java("CorePvaClient");
        restrict_to_loopback(&mut command, place::free_port());
        command.env("EPICS_PVA_NAME_SERVERS", format!("pvas://127.0.0.1:{name_server}"));
        LineClient::of(command, keychain)
    }

    fn of(mut command: Command, keychain: &str) -> LineClient {
        command.env("EPICS_PVA_TLS_KEYCHAIN", keychain);
        LineClient(Process::start("core-pva", &mut command).unwrap())
    }

    /// A script of the peers in Python, which searches at this port over TCP.
    fn python(script: &str, port: u16) -> LineClient {
        let mut command = Command::new(place::python());
        restrict_to_loopback(command.arg(place::script(script)), place::free_port());
        for variable in ["EPICS_CA_NAME_SERVERS", "EPICS_PVA_NAME_SERVERS"] {
            command.env(variable, format!("127.0.0.1:{port}"));
        }
        LineClient(Process::start(script, &mut command).unwrap())
    }

    fn request(&mut self, verb: &str, pv: &str, members: Json) -> Json {
        let mut request = json!({ "do": verb, "pv": pv, "timeout": 10 });
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        self.0.write_line(&request.to_string()).unwrap();
        serde_json::from_str(&self.0.line(PATIENCE).unwrap()).unwrap()
    }

    fn get(&mut self, pv: &str) -> Json {
        self.request("get", pv, json!({ "shape": "value" }))
    }

    fn put(&mut self, pv: &str, value: f64) -> Json {
        self.request("put", pv, json!({ "value": value, "wait": true }))
    }
}

fn has_java() -> bool {
    place::java_class_path().is_some()
}

#[test]
fn a_client_of_core_pva_reads_writes_and_monitors_our_records_by_tls_with_rules_by_identity() {
    if !has_java() {
        return;
    }
    let keychains = Keychains::made("client", &["ioc", "ann", "bob"]);
    let running = ioc(&keychains.0, keychains.keychain("ioc"), ClientCertificates::Optional);
    let search = running.client_config().pva.search_addresses[0].port();
    let mut ann = LineClient::core_pva(search, &keychains.variable("ann"));

    assert_eq!(ann.get("X:open")["value"], json!(1.5));
    assert_eq!(ann.put("X:open", 2.5), json!({}));
    let monitor = ann.request("monitor", "X:open", json!({}))["monitor"].clone();
    let taken = ann.request("take", "", json!({ "monitor": monitor, "count": 1 }));
    assert_eq!(taken["updates"][0]["value"], json!(2.5), "{taken}");
    assert_eq!(ann.put("X:guarded", 7.0), json!({}));
    assert_eq!(ann.get("X:guarded")["value"], json!(7.0));

    for keychain in ["bob", "trust"] {
        let mut other = LineClient::core_pva(search, &keychains.variable(keychain));
        assert_eq!(other.get("X:guarded")["value"], json!(7.0));
        let refused = other.put("X:guarded", 8.0);
        assert!(refused["error"].is_string(), "{keychain}: {refused}");
        assert_eq!(other.get("X:guarded")["value"], json!(7.0));
    }
}

#[test]
fn a_client_of_core_pva_without_a_certificate_is_refused_where_one_is_required() {
    if !has_java() {
        return;
    }
    let keychains = Keychains::made("required", &["ioc", "ann"]);
    let running = ioc(&keychains.0, keychains.keychain("ioc"), ClientCertificates::Required);
    let search = running.client_config().pva.search_addresses[0].port();
    let mut named = LineClient::core_pva(search, &keychains.variable("ann"));
    let mut nameless = LineClient::core_pva(search, &keychains.variable("trust"));

    assert_eq!(named.get("X:open")["value"], json!(1.5));
    let refused = nameless.request("get", "X:open", json!({ "shape": "value", "timeout": 3 }));
    assert!(refused["error"].is_string(), "{refused}");
}

/// A server in Java, and the configuration of a client that searches it.
fn java_server(keychains: &Keychains, options: &str) -> (Process, ClientConfig) {
    let (server, search_port, _tls_port) = started_java_server(keychains, options);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, search_port));
    let pva = PvaClientConfig::with_addresses(vec![address]);
    (server, ClientConfig { pva, ..ClientConfig::with_addresses(Vec::new()) })
}

/// A server in Java, its port for searches, and that of TLS.
fn started_java_server(keychains: &Keychains, options: &str) -> (Process, u16, u16) {
    let mut command = place::java("CorePvaServer");
    let (ports, tls_port) = (PvaPorts::free(), place::free_port());
    restrict_to_loopback(&mut command, place::free_port());
    set_pva_ports(&mut command, ports.search, ports.tcp);
    command.env("EPICS_PVAS_INTF_ADDR_LIST", "127.0.0.1");
    command.env("EPICS_PVAS_TLS_KEYCHAIN", keychains.variable("ioc"));
    command.env("EPICS_PVAS_TLS_PORT", tls_port.to_string()).env("EPICS_PVAS_TLS_OPTIONS", options);
    let mut server = Process::start("core-pva", command.arg("J:")).unwrap();
    server.wait_for_line_starting("ready", PATIENCE).unwrap();
    (server, ports.search, tls_port)
}

fn channel(config: &ClientConfig, keychain: Keychain, name: &str) -> Channel {
    let pva = PvaClientConfig { tls: TlsPolicy::Only(keychain), ..config.pva.clone() };
    Context::new(ClientConfig { pva, ..config.clone() }).channel(&format!("pva://{name}")).unwrap()
}

#[test]
fn our_client_reads_writes_and_monitors_a_server_of_core_pva_by_tls() {
    if !has_java() {
        return;
    }
    let keychains = Keychains::made("server", &["ioc", "ann"]);
    let (_server, config) = java_server(&keychains, "");
    let ao = channel(&config, keychains.keychain("ann"), "J:ao");

    assert_eq!(ao.get_timeout(PATIENCE).unwrap().value, Value::from(-1.25));
    ao.put_timeout(4.5, PATIENCE).unwrap();
    let monitor = ao.monitor(MonitorOptions::default());
    let update = loop {
        if let MonitorEvent::Update(reading) = monitor.next_timeout(PATIENCE).expect("an update") {
            break reading.value;
        }
    };

    assert_eq!(update, Value::from(4.5));
    let peer = ao.facts().unwrap().tls.unwrap();
    assert_eq!((peer.name.as_str(), peer.authority.as_str()), ("ioc", "Lab Root"));
    let nameless = channel(&config, keychains.keychain("trust"), "J:ao");
    assert_eq!(nameless.get_timeout(PATIENCE).unwrap().value, Value::from(4.5));
}

#[test]
fn a_server_of_core_pva_that_requires_certificates_refuses_our_client_without_one() {
    if !has_java() {
        return;
    }
    let keychains = Keychains::made("refusal", &["ioc", "ann"]);
    let (_server, config) = java_server(&keychains, "client_cert=require");
    let named = channel(&config, keychains.keychain("ann"), "J:ao");
    let nameless = channel(&config, keychains.keychain("trust"), "J:ao");

    assert_eq!(named.get_timeout(PATIENCE).unwrap().value, Value::from(-1.25));
    let error = nameless.get_timeout(Duration::from_secs(3)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Handshake { .. }), "{error}");
}

#[test]
fn a_server_of_core_pva_with_a_certificate_of_another_authority_is_rejected() {
    if !has_java() {
        return;
    }
    let (theirs, ours) = (Keychains::made("theirs", &["ioc"]), Keychains::made("ours", &["ann"]));
    let (_server, config) = java_server(&theirs, "");

    let error = channel(&config, ours.keychain("ann"), "J:ao").get_timeout(Duration::from_secs(3)).unwrap_err();

    match error.kind() {
        ErrorKind::Handshake { reason, .. } => assert!(reason.contains("signed by another key"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

/// The program `fodo ioc` with one TCP port, and TLS on it.
struct OnePortIoc {
    _process: Process,
    port: u16,
    search_port: u16,
}

impl OnePortIoc {
    fn start(keychains: &Keychains) -> OnePortIoc {
        let (port, search_port) = (place::free_port(), place::free_port());
        let (records, rules) = database(&keychains.0);
        let mut command = Command::new(place::program());
        command.args(["ioc", "--one-port", &port.to_string(), "-d"]).arg(records).arg("-a").arg(rules);
        restrict_to_loopback(&mut command, place::free_port());
        set_pva_ports(&mut command, search_port, place::free_port());
        command.env("EPICS_PVAS_TLS_KEYCHAIN", keychains.variable("ioc"));
        let mut process = Process::start("fodo ioc", &mut command).unwrap();
        process.wait_for_line_starting("fodo ioc: serving", PATIENCE).unwrap();
        OnePortIoc { _process: process, port, search_port }
    }

    /// Clients by Channel Access (libca), plain pvAccess (pvxs) and pvAccess by TLS (core-pva), which are not connected yet.
    fn clients(&self, keychains: &Keychains) -> [LineClient; 3] {
        [
            LineClient::python("pyepics_client.py", self.port),
            LineClient::python("p4p_client.py", self.port),
            LineClient::core_pva(self.search_port, &keychains.variable("ann")),
        ]
    }
}

#[test]
fn libca_pvxs_and_core_pva_by_tls_read_a_pv_at_one_port_of_fodo_ioc_in_turn_and_at_the_same_time() {
    if !has_java() {
        return;
    }
    let keychains = Keychains::made("one-port", &["ioc", "ann"]);
    let ioc = OnePortIoc::start(&keychains);
    let (mut in_turn, mut together) = (ioc.clients(&keychains), ioc.clients(&keychains));

    for client in &mut in_turn {
        assert_eq!(client.get("X:open")["value"], json!(1.5));
    }
    let begin = &Barrier::new(in_turn.len() + together.len());
    std::thread::scope(|scope| {
        // Half of them connect now.
        for client in in_turn.iter_mut().chain(&mut together) {
            scope.spawn(move || {
                begin.wait();
                (0..50).for_each(|_| assert_eq!(client.get("X:open")["value"], json!(1.5)));
            });
        }
    });

    // Only a client by TLS has the identity of a certificate.
    let [libca, pvxs, core_pva] = &mut in_turn;
    assert_eq!(core_pva.put("X:guarded", 7.0), json!({}));
    for client in [libca, pvxs] {
        let refused = client.put("X:guarded", 8.0);
        assert!(refused["error"].is_string(), "{refused}");
        assert_eq!(client.get("X:guarded")["value"], json!(7.0));
    }
}

#[test]
fn core_pva_and_our_client_find_pvs_through_each_others_servers_by_tls_alone() {
    if !has_java() {
        return;
    }
    let keychains = Keychains::made("names", &["ioc", "ann"]);
    let ours = OnePortIoc::start(&keychains);
    let (_server, _, tls_port) = started_java_server(&keychains, "client_cert=require");
    let tls_name_servers = vec![Host { name: "127.0.0.1".into(), port: tls_port }];
    let pva = PvaClientConfig { tls_name_servers, ..PvaClientConfig::with_addresses(Vec::new()) };
    let config = ClientConfig { pva, ..ClientConfig::with_addresses(Vec::new()) };

    let theirs = channel(&config, keychains.keychain("ann"), "J:ao").get_timeout(PATIENCE).unwrap();
    let found = LineClient::core_pva_at(ours.port, &keychains.variable("ann")).get("X:open");

    assert_eq!((theirs.value, &found["value"]), (Value::from(-1.25), &json!(1.5)));
}
