//! `fodo clu` with a virtual CLU, as real processes on loopback.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]

#[expect(dead_code, reason = "the other tests use the rest")]
mod support;

use std::fs;
use std::io::Read as _;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use fodo_clu::keys::KeyFile;
use serde_json::Value as Json;

use support::{Lines, fodo, ioc, run, signal, text, wait};

/// The scripts of the house.
fn house() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/lua/house")
}

/// A folder that is removed when it is dropped.
struct TestFolder(PathBuf);

impl TestFolder {
    fn new(name: &str) -> TestFolder {
        let path = std::env::temp_dir().join(format!("fodo-cli-clu-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        TestFolder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// A copy of the scripts of the house.
    fn house(&self) -> String {
        fs::create_dir(self.0.join("house")).unwrap();
        for name in ["MAIN.LUA", "OM.LUA", "USER.LUA"] {
            fs::copy(house().join(name), self.0.join("house").join(name)).unwrap();
        }
        self.path("house")
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running `fodo clu serve --json`, killed when dropped.
struct ServedClu {
    child: Child,
    lines: Lines,
    ready: Json,
    folder: TestFolder,
}

impl ServedClu {
    fn start(folder: TestFolder, scripts: &str, arguments: &[&str]) -> ServedClu {
        let mut command = fodo(1);
        command.args(["clu", "serve", "--json", "--port", "0", "--keys", &folder.path("keys.json")]);
        command.args(arguments).arg(scripts).current_dir(&folder.0);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        let ready = serde_json::from_str(&lines.next()).unwrap();
        ServedClu { child, lines, ready, folder }
    }

    /// The house, with its site file.
    fn house(name: &str, arguments: &[&str]) -> ServedClu {
        let folder = TestFolder::new(name);
        let scripts = folder.house();
        let clu = ServedClu::start(folder, &scripts, arguments);
        let site = format!(
            "[clu.house]\naddress = \"{}\"\nkeys = \"keys.json\"\nom = \"house/OM.LUA\"\nprefix = \"house:\"\n",
            clu.address()
        );
        fs::write(clu.folder.0.join("site.toml"), site).unwrap();
        clu
    }

    fn address(&self) -> String {
        self.ready["address"].as_str().unwrap().to_owned()
    }

    fn port(&self) -> String {
        self.address().rsplit(':').next().unwrap().to_owned()
    }

    /// Runs `fodo clu` in the folder of the CLU.
    fn clu(&self, arguments: &[&str]) -> Output {
        run(&mut self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = fodo(1);
        command.arg("clu").args(arguments).env("FODO_CLU_FILE", self.folder.path("site.toml"));
        command.current_dir(&self.folder.0);
        command
    }

    /// Stops it; the counts of its last line, and its log.
    fn stop(mut self) -> (Json, String) {
        signal(&self.child, "INT");
        assert_eq!(wait(&mut self.child).code(), Some(0));
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (serde_json::from_str(&self.lines.next()).unwrap(), log)
    }
}

impl Drop for ServedClu {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The output and the exit code.
fn ended(output: &Output) -> (String, Option<i32>) {
    (text(&output.stdout), output.status.code())
}

fn json(output: &Output) -> Vec<Json> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_new_clu_is_discovered_given_a_key_and_runs_uploaded_scripts() {
    let folder = TestFolder::new("commission");
    fs::create_dir(folder.0.join("empty")).unwrap();
    let scripts = folder.path("empty");
    let arguments =
        ["--interface", "127.0.0.1", "--commission", "--tftp=0", "--serial", "0d0a1b2c", "--storage", "values"];
    let clu = ServedClu::start(folder, &scripts, &arguments);
    let keys = KeyFile::parse(&fs::read_to_string(clu.folder.0.join("keys.json")).unwrap()).unwrap();
    let pin = String::from_utf8(keys.pin.unwrap().as_bytes().to_vec()).unwrap();
    let (port, tftp) = (clu.port(), clu.ready["tftp"].to_string());
    assert_eq!(clu.ready["state"], "emergency");
    assert!(clu.clu(&["keys", "create", "--no-pin", "project.json"]).status.success());
    let discover = |arguments: &[&str]| {
        let mut all = vec!["discover", "--json", "-w", "1", "-i", "127.0.0.1", "--port", &port];
        all.extend(arguments);
        let output = clu.clu(&all);
        (json(&output).remove(0), output)
    };
    let of_project = ["--keys", "project.json", "--pin", &pin];
    let address = clu.address();
    let with_new_key = |arguments: &[&str]| clu.clu(&[arguments, &["--keys", "project.json", &address]].concat());

    assert_eq!(discover(&[]).0["key"], "unknown");
    assert_eq!(discover(&["--keys", "keys.json"]).0["key"], "project");
    assert_eq!(discover(&["--keys", "project.json", "--pin", "0d0a1b2c=00000000"]).0["key"], "wrong_pin");
    assert_eq!(discover(&of_project).0["key"], "other");
    let (unproved, output) = discover(&["--keys", "project.json", "--pin", "00000000", "--set-key", "0d0a1b2c"]);
    assert_eq!((&unproved["outcome"], &unproved["error"]["class"]), (&"error".into(), &"refused".into()));
    assert!(text(&output.stderr).contains("no key was sent"), "{}", text(&output.stderr));
    assert_eq!(with_new_key(&["alive", "-w", "0.5"]).status.code(), Some(4));

    let (found, output) = discover(&[&of_project[..], &["--set-key", "CLU218766124"]].concat());
    assert_eq!((&found["serial"], &found["outcome"]), (&"0d0a1b2c".into(), &"key_set".into()));
    assert!(!text(&output.stdout).contains(&pin) && !text(&output.stderr).contains(&pin));
    assert_eq!(discover(&of_project).0["key"], "project");
    assert_eq!(clu.clu(&["alive", "-w", "0.5", "--keys", "project.json", &address]).status.code(), Some(5));

    let upload = |path: &str| clu.clu(&["upload", "--tftp-port", &tftp, "--keys", "project.json", &address, path]);
    let (out, code) = ended(&upload(&house().display().to_string()));
    assert_eq!(code, Some(0), "{out}");
    assert!(out.ends_with(": reset, alive: 0d0a1b2c\n"), "{out}");
    assert_eq!(ended(&with_new_key(&["reset"])).1, Some(0));

    let download = ["download", "--tftp-port", &tftp, "--keys", "project.json", "--to", "copy", &address];
    assert_eq!(clu.clu(&download).status.code(), Some(0));
    let user = |folder: &Path| fs::read(folder.join("USER.LUA")).unwrap();
    assert_eq!(user(&clu.folder.0.join("copy")), user(&house()));
    assert_eq!(clu.clu(&download).status.code(), Some(1), "an existing file is not replaced");

    fs::write(clu.folder.0.join("copy/MAIN.LUA"), "error(\"broken\")").unwrap();
    let output = upload("copy");
    assert_eq!(output.status.code(), Some(5));
    assert!(text(&output.stderr).contains("emergency mode"), "{}", text(&output.stderr));

    // The new key is stored, so that it is valid after a restart.
    let stored = KeyFile::parse(&fs::read_to_string(clu.folder.0.join("keys.json")).unwrap()).unwrap();
    let project = KeyFile::parse(&fs::read_to_string(clu.folder.0.join("project.json")).unwrap()).unwrap();
    assert_eq!(stored.project, project.project);
    let (counts, log) = clu.stop();
    assert_eq!((&counts["keys_set"], &counts["files_written"]), (&1.into(), &6.into()));
    assert!(log.contains("broken") && !log.contains(&pin), "{log}");
}

/// The scripts of a folder, as the CLU `desk` of a site file whose name the environment has.
fn desk(folder: &TestFolder, main: &str) {
    fs::create_dir_all(folder.0.join("desk")).unwrap();
    fs::write(folder.0.join("desk/MAIN.LUA"), main).unwrap();
    fs::write(folder.0.join("desk/OM.LUA"), "TIM1 = OBJECT:new(6, \"TIM1\")\n").unwrap();
    fs::write(folder.0.join("site.toml"), "[clu.desk]\nfolder = \"desk\"\nstorage = \"values\"\n").unwrap();
}

#[test]
fn an_ioc_and_a_get_print_why_the_scripts_of_their_clu_failed() {
    let folder = TestFolder::new("log");
    desk(&folder, "error(\"no lamp\")");
    let site = folder.path("site.toml");

    let get = run(fodo(1).args(["get", "--clu", &site, "-w", "15", "clu://desk/TIM1/Time"]));
    let mut ioc = ioc(&folder.0, &["--no-shell", "--clu", &site]).spawn().unwrap();
    let lines = Lines::of(ioc.stdout.take().unwrap());
    while !lines.next().starts_with("fodo ioc: serving") {}
    signal(&ioc, "INT");
    assert_eq!(wait(&mut ioc).code(), Some(0));
    let mut of_ioc = String::new();
    ioc.stderr.take().unwrap().read_to_string(&mut of_ioc).unwrap();

    for log in [text(&get.stderr), of_ioc] {
        assert!(log.contains("error: CLU \"desk\": ") && log.contains("no lamp"), "{log}");
    }
}

#[test]
fn a_get_does_not_run_a_clu_whose_stored_values_another_program_uses() {
    let folder = TestFolder::new("lock");
    desk(&folder, "SYSTEM.Init() repeat SYSTEM.Loop() until false");
    let scripts = folder.path("desk");
    let clu = ServedClu::start(folder, &scripts, &["--storage", "values"]);
    let site = clu.folder.path("site.toml");

    let get = run(fodo(1).args(["get", "--clu", &site, "-w", "15", "clu://desk/TIM1/Time"]));

    assert_eq!(get.status.code(), Some(1));
    let reason = text(&get.stderr);
    assert!(reason.contains(&format!("stored values in {}", clu.folder.path("values"))), "{reason}");
}

#[test]
fn the_ends_of_an_expression_differ_in_text_json_and_exit_code() {
    let clu = ServedClu::house("exec", &[]);
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nowhere = silent.local_addr().unwrap().to_string();
    let exec = |arguments: &[&str]| clu.clu(&[&["exec", "--keys", "keys.json"][..], arguments].concat());
    let house = clu.address();

    assert_eq!(ended(&exec(&[&house, "{1, \"two\", checkAlive()}"])), ("{1,\"two\",\"0d0a1b2c\"}\n".into(), Some(0)));
    let nil = exec(&[&house, "nothing"]);
    assert_eq!(ended(&nil), ("nil\n".into(), Some(3)));
    assert!(text(&nil.stderr).contains(&format!("{house}: the expression is nil")), "{}", text(&nil.stderr));
    let failed = exec(&["--explain", &house, "nothing.field"]);
    assert_eq!(ended(&failed), (String::new(), Some(5)));
    assert!(text(&failed.stderr).contains("attempt to index global 'nothing'"), "{}", text(&failed.stderr));
    assert_eq!(ended(&exec(&["--explain", &house, "nothing"])), ("nil\n".into(), Some(0)));
    assert_eq!(ended(&exec(&["--explain", &house, "counter = 5"])), ("nil\n".into(), Some(0)));
    assert_eq!(ended(&exec(&[&house, "counter"])), ("5\n".into(), Some(0)));
    let timeout = exec(&["-w", "0.5", &nowhere, "1"]);
    assert_eq!(ended(&timeout), (String::new(), Some(4)));
    assert!(text(&timeout.stderr).contains("no reply within 0.5 s"), "{}", text(&timeout.stderr));
    let long = exec(&[&house, &format!("\"{}\"", "x".repeat(3000))]);
    assert_eq!(ended(&long), (String::new(), Some(6)));

    let outcome = |arguments: &[&str]| {
        let object = json(&exec(&[&["--json"][..], arguments].concat())).remove(0);
        (object["outcome"].as_str().unwrap().to_owned(), object["value"].clone(), object["error"]["code"].clone())
    };
    assert_eq!(outcome(&[&house, "1 / 4"]), ("value".into(), 0.25.into(), Json::Null));
    assert_eq!(outcome(&[&house, "nothing"]), ("nil".into(), Json::Null, 3.into()));
    assert_eq!(outcome(&["--explain", &house, "error()"]), ("error".into(), Json::Null, 5.into()));
    assert_eq!(outcome(&["-w", "0.5", &nowhere, "1"]), ("timeout".into(), Json::Null, 4.into()));

    let refused = clu.clu(&["upload", "house", "house"]);
    assert_eq!(refused.status.code(), Some(5), "the CLU permits no TFTP");
    assert!(text(&refused.stderr).contains("refused"), "{}", text(&refused.stderr));
}

#[test]
fn a_virtual_clu_prints_numbers_as_devices_do_if_that_is_requested() {
    let clu = ServedClu::house("decimals", &["--two-decimals"]);

    let exec = clu.clu(&["exec", "--keys", "keys.json", &clu.address(), "{1 / 2, 1 / 3, 7}"]);

    assert_eq!(ended(&exec), ("{0.50,0.33,7}\n".into(), Some(0)));
}

#[test]
fn features_are_read_set_and_called_by_index_and_by_name() {
    let clu = ServedClu::house("items", &[]);

    let named = clu.clu(&["get", "house", "Living_room", "PointValue", "Mode", "hall_light"]);
    let expected =
        "Living_room/PointValue  21 °C\nLiving_room/Mode        use PointValue\nhall_light              false\n";
    assert_eq!(ended(&named), (expected.into(), Some(0)));
    let by_index = clu.clu(&["get", "--json", "--keys", "keys.json", &clu.address(), "THE1001", "3"]);
    assert_eq!(json(&by_index)[0]["value"], 21.0);

    assert_eq!(ended(&clu.clu(&["set", "house", "THE1001", "PointValue", "-2.5"])).0, "THE1001/PointValue  -2.5 °C\n");
    assert_eq!(ended(&clu.clu(&["set", "house", "THE1001/Mode", "HolidayMode"])).0, "THE1001/Mode  HolidayMode\n");
    assert_eq!(ended(&clu.clu(&["set", "house", "reminder", "Buy milk"])).0, "reminder  Buy milk\n");
    let limited = clu.clu(&["set", "--json", "house", "PRE1001", "Timeout", "1"]);
    let object = json(&limited).remove(0);
    assert_eq!(
        (limited.status.code(), &object["outcome"], &object["value"]),
        (Some(5), &"differs".into(), &30.0.into())
    );

    assert_eq!(ended(&clu.clu(&["call", "house", "PRE1001", "DetectPresence"])), ("nil\n".into(), Some(0)));
    assert_eq!(ended(&clu.clu(&["get", "house", "hall_light"])), ("hall_light  true\n".into(), Some(0)));

    let forgotten = clu.clu(&["set", "--keys", "keys.json", &clu.address(), "THE1001", "3"]);
    assert_eq!(forgotten.status.code(), Some(6), "an object is not replaced by a number");
    assert!(text(&forgotten.stderr).contains("THE1001 is not a variable but a table"), "{}", text(&forgotten.stderr));

    let without_names = clu.clu(&["get", "--keys", "keys.json", &clu.address(), "THE1001", "PointValue"]);
    assert_eq!(without_names.status.code(), Some(3));
    assert!(text(&without_names.stderr).contains("names of features require a file"));

    let missing = clu.clu(&["get", "house", "nothing", "THE1001/PointValue"]);
    assert_eq!(ended(&missing), ("nothing             nil\nTHE1001/PointValue  -2.5 °C\n".into(), Some(3)));
    let unknown = clu.clu(&["get", "house", "THE1001/Point"]);
    assert_eq!(unknown.status.code(), Some(6));
    assert!(text(&unknown.stderr).contains("it has Source, Control, OutputType, PointValue"));
    let (alive, code) = ended(&clu.clu(&["alive"]));
    assert!(code == Some(0) && alive.starts_with("house (127.0.0.1:") && alive.ends_with("0d0a1b2c\n"), "{alive}");
    assert_eq!(clu.clu(&["alive", "garage"]).status.code(), Some(1));
}

#[test]
fn warnings_of_the_file_with_clus_are_printed_beside_the_result() {
    let clu = ServedClu::house("warnings", &[]);
    let get = || clu.clu(&["get", "house", "hall_light"]);
    assert_eq!(text(&get().stderr), "");

    fs::set_permissions(clu.folder.0.join("keys.json"), fs::Permissions::from_mode(0o644)).unwrap();
    let warned = get();

    assert_eq!(ended(&warned), ("hall_light  false\n".into(), Some(0)));
    let warning = text(&warned.stderr);
    assert!(warning.starts_with("fodo clu: ") && warning.contains("others can read the keys"), "{warning}");
}

#[test]
fn watch_prints_changes_and_unregisters_at_the_end() {
    let clu = ServedClu::house("watch", &[]);
    let mut watch = clu.command(&["watch", "--json", "house", "reminder", "THE1001/PointValue"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let lines = Lines::of(watch.stdout.take().unwrap());
    let next = || -> Json { serde_json::from_str(&lines.next()).unwrap() };
    let (reminder, point) = (next(), next());
    assert_eq!((&reminder["variable"], &reminder["value"]), (&"reminder".into(), &"".into()));
    assert_eq!((&point["feature"], &point["index"], &point["value"]), (&"PointValue".into(), &3.into(), &21.0.into()));

    assert!(clu.clu(&["set", "house", "THE1001/PointValue", "19.5"]).status.success());
    let change = next();
    assert_eq!(
        (&change["event"], &change["feature"], &change["value"]),
        (&"update".into(), &"PointValue".into(), &19.5.into())
    );
    signal(&watch, "INT");
    assert_eq!(wait(&mut watch).code(), Some(0));

    let limited = clu.clu(&["watch", "--events", "1", "house", "THE1001/PointValue"]);
    assert!(limited.status.success() && text(&limited.stdout).ends_with("  19.5 °C\n"), "{limited:?}");
    let (counts, _) = clu.stop();
    assert_eq!((&counts["subscriptions"], &counts["subscriptions_expired"]), (&0.into(), &0.into()));
}

#[test]
fn watch_reports_a_clu_that_never_answers() {
    let folder = TestFolder::new("silent");
    assert!(run(fodo(1).args(["clu", "keys", "create", &folder.path("keys.json")])).status.success());
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();

    let mut command = fodo(1);
    command.args(["clu", "watch", "-w", "0.2", "--for", "1", "--keys", &folder.path("keys.json"), &address, "X1/0"]);
    let output = run(&mut command);

    assert_eq!(ended(&output), (String::new(), Some(4)));
    assert!(text(&output.stderr).contains(&format!("{address}: no report within 0.2 s")), "{}", text(&output.stderr));
}

/// A ZIP archive of stored files.
fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let crc32 = |bytes: &[u8]| {
        !bytes.iter().fold(!0_u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
        })
    };
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let (n_bytes, crc) = ((content.len() as u32).to_le_bytes(), crc32(content.as_bytes()).to_le_bytes());
        let shared =
            [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &crc, &n_bytes, &n_bytes, &(name.len() as u16).to_le_bytes()]
                .concat();
        let place = (bytes.len() as u32).to_le_bytes();
        directory.extend([&b"PK\x01\x02\x14\0"[..], &shared, &[0; 12], &place, name.as_bytes()].concat());
        bytes.extend([&b"PK\x03\x04"[..], &shared, &[0; 2], name.as_bytes(), content.as_bytes()].concat());
    }
    let (place, n_files) = ((bytes.len() as u32).to_le_bytes(), (files.len() as u16).to_le_bytes());
    bytes.extend(&directory);
    let size = (directory.len() as u32).to_le_bytes();
    bytes.extend([&b"PK\x05\x06\0\0\0\0"[..], &n_files, &n_files, &size, &place, &[0; 2]].concat());
    bytes
}

#[test]
fn keys_are_created_imported_and_shown_without_being_printed() {
    const KEY: &str = "eJe4Zp7oKJDePyX6B2lCXg==";
    const PIN: &str = "MTIzNDU2Nzg=";
    let folder = TestFolder::new("keys");
    let keys = |arguments: &[&str]| run(fodo(1).args(["clu", "keys"]).args(arguments).current_dir(&folder.0));
    let properties = format!(
        "<a><projectCipherKey><keyBytes>{KEY}</keyBytes><ivBytes>m/8H/39zfj7xBxlf29X53A==</ivBytes></projectCipherKey></a>"
    );
    let system = format!(
        "<a><clu><nameOnCLU>CLU17</nameOnCLU><name>House</name><ipAddress>10.0.0.2</ipAddress>\
         <privateKey>{PIN}</privateKey></clu></a>"
    );
    fs::write(folder.0.join("house.omp"), archive(&[("properties.xml", &properties), ("system.xml", &system)]))
        .unwrap();

    let created = [keys(&["create"]), keys(&["import", "house.omp", "client.json"])];
    let again = keys(&["create"]);
    let shown = keys(&["show", "--json", "keys.json", "house.omp", "client.json", "missing.json"]);
    let as_text = keys(&["show", "keys.json", "house.omp"]);

    for output in &created {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    assert!(text(&created[1].stdout).contains("without a PIN"), "{}", text(&created[1].stdout));
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("keys.json exists: it is not replaced"), "{}", text(&again.stderr));
    for name in ["keys.json", "client.json"] {
        assert_eq!(fs::metadata(folder.0.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let files = json(&shown);
    assert_eq!(shown.status.code(), Some(1));
    assert_eq!(files[0]["holds"], serde_json::json!(["key", "initial_iv", "pin"]));
    assert_eq!((&files[1]["holds"], &files[1]["clus"]), (&serde_json::json!(["key", "pins"]), &1.into()));
    assert_eq!((&files[2]["same_key_as"], &files[2]["is_private"]), (&"house.omp".into(), &true.into()));
    assert_eq!(files[3]["error"]["code"], 1);
    let stored = fs::read_to_string(folder.0.join("keys.json")).unwrap();
    let stored: Json = serde_json::from_str(&stored).unwrap();
    let secrets = [KEY, PIN, "12345678", stored["key"].as_str().unwrap(), stored["pin"].as_str().unwrap()];
    for output in created.iter().chain([&again, &shown, &as_text]) {
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(secrets.iter().all(|secret| !all.contains(secret)), "{all}");
    }
}

#[test]
fn the_interface_files_of_the_virtual_clu_are_written_and_none_is_replaced() {
    let folder = TestFolder::new("interfaces");
    let interfaces = |arguments: &[&str]| run(fodo(1).args(["clu", "interfaces"]).args(arguments));

    let written = interfaces(&["--json", &folder.path("xml")]);
    fs::remove_file(folder.0.join("xml/object_pidcontroller.xml")).unwrap();
    let again = interfaces(&[&folder.path("xml")]);

    let names: Vec<String> = fs::read_dir(folder.0.join("xml"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!((written.status.code(), json(&written).len()), (Some(0), names.len()));
    assert!(names.contains(&"clu_virtual_fodo.xml".to_owned()) && names.contains(&"object_thermostat.xml".to_owned()));
    for name in names.iter().filter(|name| name.starts_with("object_")) {
        let xml = fs::read_to_string(folder.0.join("xml").join(name)).unwrap();
        let interfaces = fodo_clu::interface::ObjectInterface::parse(&xml).unwrap();
        let of_classes: Vec<String> =
            interfaces.iter().map(|interface| format!("object_{}.xml", interface.name.to_lowercase())).collect();
        assert_eq!(of_classes, [name.as_str()]);
    }
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(text(&again.stderr).matches("exists: it is not replaced").count(), names.len() - 1);
    assert_eq!(text(&again.stdout).lines().count(), 1, "the missing file is written: {}", text(&again.stdout));
}

#[test]
fn a_file_with_keys_that_other_users_may_read_is_reported_by_each_command_that_reads_it() {
    let folder = TestFolder::new("open-keys");
    let scripts = folder.house();
    assert!(run(fodo(1).args(["clu", "keys", "create", &folder.path("keys.json")])).status.success());
    fs::set_permissions(folder.0.join("keys.json"), fs::Permissions::from_mode(0o644)).unwrap();
    let clu = ServedClu::start(folder, &scripts, &[]);

    let exec = clu.clu(&["exec", "--keys", "keys.json", &clu.address(), "1"]);
    let (_, of_serve) = clu.stop();

    for log in [text(&exec.stderr), of_serve] {
        assert_eq!(log.matches("keys.json: other users can access this file with keys").count(), 1, "{log}");
    }
}

#[test]
fn a_virtual_clu_does_not_start_with_a_project_that_cannot_be_read() {
    let folder = TestFolder::new("wrong-project");
    let scripts = folder.house();
    fs::write(folder.0.join("house.omp"), archive(&[("system.xml", "<a/>")])).unwrap();

    let output =
        run(fodo(1).args(["clu", "serve", "--port", "0", "--project", "house.omp", &scripts]).current_dir(&folder.0));

    assert_eq!(output.status.code(), Some(1));
    let reason = "house.omp: the project does not contain properties.xml";
    assert!(text(&output.stderr).contains(reason), "{}", text(&output.stderr));
}

/// The project has no OM.LUA beside it.
#[test]
fn a_project_names_the_objects_of_its_clus() {
    let clu = ServedClu::house("project", &[]);
    let keys: Json = serde_json::from_str(&fs::read_to_string(clu.folder.0.join("keys.json")).unwrap()).unwrap();
    let bytes = |name: &str| keys[name].as_str().unwrap().to_owned();
    let properties = format!(
        "<a><projectCipherKey><keyBytes>{}</keyBytes><ivBytes>{}</ivBytes></projectCipherKey></a>",
        bytes("key"),
        bytes("iv")
    );
    let system = "<a><clu><nameOnCLU>CLU218766124</nameOnCLU><name>House</name><ipAddress>127.0.0.1</ipAddress></clu>\
                  <x><name>Lounge</name><nameOnCLU>THE1001</nameOnCLU><type>Thermostat</type><features><f><name>PointValue</name>\
                  <index>3</index><type><paramType>NUMBER</paramType></type><unit>C</unit>\
                  <constrainAsString>[5-30]</constrainAsString></f></features></x></a>";
    fs::write(clu.folder.0.join("house.omp"), archive(&[("properties.xml", &properties), ("system.xml", system)]))
        .unwrap();
    let site = format!("[clu.house]\naddress = \"{}\"\nproject = \"house.omp\"\n", clu.address());
    fs::write(clu.folder.0.join("project.toml"), site).unwrap();

    let get = clu.clu(&["get", "--project", "house.omp", &clu.address(), "Lounge"]);
    let call = clu.clu(&["call", "--project", "house.omp", &clu.address(), "Lounge", "IncreaseDegree"]);
    let of_site = clu.clu(&["get", "--clu", "project.toml", "house", "THE1001/PointValue"]);
    let pv = "clu://house/Lounge/PointValue";
    let too_high = run(fodo(1).args(["put", pv, "31"]).env("FODO_CLU_FILE", clu.folder.path("project.toml")));

    assert_eq!(ended(&get), ("Lounge/PointValue  21 C\n".into(), Some(0)), "{}", text(&get.stderr));
    assert_eq!(call.status.code(), Some(0), "{}", text(&call.stderr));
    assert_eq!(ended(&of_site), ("THE1001/PointValue  22 C\n".into(), Some(0)), "{}", text(&of_site.stderr));
    assert!(text(&too_high.stderr).contains("between 5 and 30"), "{too_high:?}");
}

#[test]
fn stored_variables_survive_a_restart_and_the_objects_are_pvs() {
    let folder = TestFolder::new("restart");
    let scripts = folder.house();
    let arguments = ["--storage", "values", "--pvs", "house:"];
    let start = |folder: TestFolder| {
        let mut command = fodo(1);
        command.args(["clu", "serve", "--json", "--port", "0", "--keys", &folder.path("keys.json")]);
        command.args(arguments).arg(&scripts).current_dir(&folder.0);
        command.env("EPICS_CAS_SERVER_PORT", "0").env("EPICS_CAS_INTF_ADDR_LIST", "127.0.0.1");
        command.env("EPICS_PVAS_SERVER_PORT", "0").env("EPICS_PVAS_BROADCAST_PORT", "0");
        command.env("EPICS_PVAS_INTF_ADDR_LIST", "127.0.0.1");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        let ready = serde_json::from_str(&lines.next()).unwrap();
        ServedClu { child, lines, ready, folder }
    };
    let starts = |clu: &ServedClu| ended(&clu.clu(&["exec", "--keys", "keys.json", &clu.address(), "n_starts"]));

    let mut clu = start(folder);
    assert_eq!(clu.ready["pvs"]["prefix"], "house:");
    let server = format!("127.0.0.1:{}", clu.ready["pvs"]["ca"]);
    let read = |name: &str| run(fodo(1).env("EPICS_CA_NAME_SERVERS", &server).args(["get", "--json", name]));
    assert_eq!(json(&read("house:Living_room:PointValue"))[0]["value"], 21.0);
    assert_eq!(starts(&clu), ("1\n".into(), Some(0)));
    let folder = std::mem::replace(&mut clu.folder, TestFolder::new("restart-none"));
    let (_, log) = clu.stop();
    assert!(log.contains("start number 1"), "{log}");
    let clu = start(folder);

    assert_eq!(starts(&clu), ("2\n".into(), Some(0)));
}
