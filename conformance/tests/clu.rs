//! Tests `fodo clu` and its virtual CLU against a second implementation of the protocol, in Python, in both roles.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a panic is a sufficient failure message in a test")]

use fodo_conformance::clu::{CluTestFolder, LinePeer};
use fodo_conformance::place::free_port;
use fodo_conformance::process::Process;
use serde_json::{Value as Json, json};

/// Messages under this key, the initial keys of two PINs, and hashes; known from another implementation.
const KNOWN_KEYS: &str = r#"{"key": "eJe4Zp7oKJDePyX6B2lCXg==", "iv": "m/8H/39zfj7xBxlf29X53A=="}"#;
const KNOWN: [(&str, &str); 11] = [
    ("check_alive", "044082004566077f7eba12064b89bb5a8fdd0eb11b77133074d6a6f80e479da57c53d39e667f13c5fa0cb86f263f313a"),
    ("alive", "3448436b7c96dd39de4dbfdbb1febde6351ade1302fcfbece9d8a74afa7b2506db8ee1cf3ebd72647800a31cb32d4f59"),
    ("start_tftp", "3679fcc9f69d232232751392facd8f02"),
    ("ok", "49e4e63a06698af92a64a980c471033d"),
    ("refused", "241a4b663d5f2a7ce10e18c50ceb5116"),
    ("initial_key_zeros", "899fd3b7c92993e390e7aaeebe219126"),
    ("initial_key_digits", "889dd0b3cc2f94eb98e0acebba229327"),
    ("hash_low", "1d081b082d2a1c186c3284b8b20e1e5033ea6801040f0c41063158635a8f"),
    ("hash_high", "1dd058922dc815ca05e81ef6090001de7079ba34f479ce5a98f924c908e5"),
    ("hash_ones", "000000000000000000000000000000000000000000000000000000000000"),
    (
        "discovery",
        "109cbf0c140611bf05da29da089dd189331e5b7677de00dcdfacf3fdf1ae3c8ccccf61b46ab73a7ed99c6681d82b80f98ce87a2508e58acd\
         cd69442c0c40e4b73ee4517757f4cb048e3178f1f00a471d",
    ),
];

/// The serial number of every CLU under test.
const SERIAL: &str = "0d0a1b2c";

/// The time in which a reply that must be received is received, in seconds.
const REPLY_S: f64 = 15.0;

/// The time in which a reply that must not be received is awaited, in seconds.
const SILENCE_S: f64 = 0.5;

fn port_of(ready: &Json) -> u16 {
    ready["address"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap()
}

/// The virtual CLU of the program, and the client in Python with its key.
fn served(folder: &CluTestFolder, arguments: &[&str]) -> (Process, Json, LinePeer) {
    let (process, ready) = folder.serve(0, arguments).unwrap();
    let mut client = folder.python_client(port_of(&ready)).unwrap();
    client.request(json!({ "do": "use_keys", "keys": "clu.json" })).unwrap();
    (process, ready, client)
}

fn execute(client: &mut LinePeer, expression: &str, timeout: f64) -> Json {
    client.request(json!({ "do": "execute", "expression": expression, "timeout": timeout })).unwrap()["reply"].clone()
}

fn manage(client: &mut LinePeer, text: &str) -> Json {
    client.request(json!({ "do": "manage", "text": text, "timeout": REPLY_S })).unwrap()["reply"].clone()
}

#[test]
fn the_codec_in_python_makes_the_known_messages() {
    let folder = CluTestFolder::new().unwrap();
    folder.write("known.json", KNOWN_KEYS).unwrap();

    let made = folder.python_client(1).unwrap().request(json!({ "do": "vectors", "keys": "known.json" })).unwrap();

    for (name, expected) in KNOWN {
        assert_eq!(made[name], expected, "{name}");
    }
}

#[test]
fn both_clients_receive_the_same_replies_from_both_clus() {
    let folder = CluTestFolder::new().unwrap();
    let (_ours, ready) = folder.serve(0, &[]).unwrap();
    let other_port = free_port();
    let _theirs = folder.serve_python(other_port).unwrap();
    let expected = [
        ("checkAlive()", SERIAL, 0),
        ("1 + 1", "2", 0),
        ("\"a:b\"", "a:b", 0),
        ("true", "true", 0),
        ("nothing", "nil", 3),
        ("THE1:get(3)", "21", 0),
        ("THE1:get(99)", "nil", 3),
        ("getVar(\"greeting\")", "hello", 0),
    ];

    for port in [port_of(&ready), other_port] {
        let mut python = folder.python_client(port).unwrap();
        python.request(json!({ "do": "use_keys", "keys": "clu.json" })).unwrap();
        let address = format!("127.0.0.1:{port}");
        for (expression, text, code) in expected {
            assert_eq!(execute(&mut python, expression, REPLY_S), text, "{expression} at {port}");
            let end = folder.clu(&["exec", "--json", "--keys", "clu.json", &address, expression]).unwrap();
            assert_eq!((end.code, &end.json().unwrap()["text"]), (Some(code), &json!(text)), "{end:?}");
        }
    }
}

#[test]
fn the_client_in_python_finds_our_clu_gives_it_a_key_and_uploads_scripts() {
    let folder = CluTestFolder::new().unwrap();
    let arguments = ["--interface", "127.0.0.1", "--commission", "--tftp=0", "--serial", SERIAL];
    let (_clu, ready, mut client) = served(&folder, &arguments);
    // The CLU stores the new key in clu.json.
    std::fs::copy(folder.path("clu.json"), folder.path("previous.json")).unwrap();
    let mut discover = |keys: &str| {
        let request = json!({ "do": "discover", "target": "127.255.255.255", "keys": keys, "pin": "clu.json", "timeout": REPLY_S });
        client.request(request).unwrap()
    };

    assert_eq!(discover("clu.json")["is_project"], true);
    let found = discover("project.json");
    assert_eq!((&found["serial"], &found["is_project"]), (&json!(SERIAL), &json!(false)));

    client.request(json!({ "do": "use_temporary_key" })).unwrap();
    assert_eq!(execute(&mut client, "checkAlive()", REPLY_S), SERIAL);
    assert_eq!(execute(&mut client, "1 + 1", REPLY_S), "resp:ERROR");
    assert_eq!(manage(&mut client, "req_start_ftp"), "resp:ERROR");
    let set = client.request(json!({ "do": "set_key", "keys": "project.json", "timeout": REPLY_S })).unwrap();
    assert_eq!(set["reply"].as_str().map(str::trim), Some("resp:OK"));
    assert_eq!(execute(&mut client, "1 + 1", REPLY_S), "2");
    client.request(json!({ "do": "use_keys", "keys": "previous.json" })).unwrap();
    assert_eq!(execute(&mut client, "1 + 1", SILENCE_S), Json::Null, "the previous key is invalid");
    client.request(json!({ "do": "use_keys", "keys": "project.json" })).unwrap();

    // The last block of the second script is empty.
    let script = "answer = 42 --".to_string();
    for n_bytes in [700, 1024] {
        let content = format!("{script}{}", "x".repeat(n_bytes - script.len()));
        assert_eq!(manage(&mut client, "req_start_ftp").as_str().map(str::trim), Some("resp:OK"));
        let transfer =
            |verb: &str| json!({ "do": verb, "port": ready["tftp"], "path": "a:\\user.lua", "timeout": REPLY_S });
        let mut upload = transfer("upload");
        upload["content"] = json!(content);
        assert_eq!(client.request(upload).unwrap()["n_blocks"], n_bytes / 512 + 1);
        assert_eq!(manage(&mut client, "req_start_ftp").as_str().map(str::trim), Some("resp:OK"));
        assert_eq!(client.request(transfer("download")).unwrap()["content"], json!(content));
    }
    assert_eq!(execute(&mut client, "answer", REPLY_S), "nil");
    assert_eq!(manage(&mut client, "req_reset:127.0.0.1").as_str().map(str::trim), Some("resp_reset:127.0.0.1"));
    assert_eq!(execute(&mut client, "answer", REPLY_S), "42");
}

#[test]
fn both_forms_of_a_subscription_of_the_client_in_python_receive_changes_from_our_clu() {
    let folder = CluTestFolder::new().unwrap();
    let (_clu, _ready, mut client) = served(&folder, &[]);
    for (form, id, before, after) in [("address", 7, "21", "22.5"), ("sender", 8, "22.5", "23.25")] {
        let items = r#"{{THE1,3},"greeting",{THE1,99}}"#;

        let request = json!({ "do": "register", "form": form, "client": id, "items": items, "timeout": REPLY_S });
        let registered = client.request(request).unwrap()["reply"].clone();
        assert_eq!(registered, format!("clientReport:{id}:{{{before},\"hello\",nil}}"), "{form}");
        assert_eq!(execute(&mut client, &format!("THE1:set(3, {after})"), REPLY_S), "nil");
        let text = format!("clientReport:{id}:{{{after},\"hello\",nil}}");
        let report = client.request(json!({ "do": "report", "text": text, "timeout": REPLY_S })).unwrap();
        assert_eq!(report["reply"], text, "{report}");
        let ended = client.request(json!({ "do": "destroy", "form": form, "client": id, "timeout": REPLY_S })).unwrap();
        assert_eq!(ended["reply"], id.to_string());
    }
}

#[test]
fn our_clu_accepts_the_forms_of_requests_that_other_clients_send() {
    let folder = CluTestFolder::new().unwrap();
    let (_clu, _ready, mut client) = served(&folder, &[]);
    let mut reply = |message: &str| {
        client.request(json!({ "do": "request", "message": message, "timeout": REPLY_S })).unwrap()["reply"].clone()
    };

    assert_eq!(reply("req::0000abcd:1 + 1"), json!(["0000abcd", "2"]), "no address");
    assert_eq!(reply("req:house:A:1 + 1\r\n"), json!(["0000000a", "2"]), "no address in digits, a short session");
    assert_eq!(reply("req:127.0.0.1:ABCDEF01:1 + 1\n"), json!(["abcdef01", "2"]), "upper case");
    assert_eq!(reply("req::1:CHECKALIVE"), json!(["00000001", "nil"]));
    assert_eq!(reply("req::2:load(\"x = 'a:b'\\nreturn x\")()"), json!(["00000002", "a:b"]), "more than one line");
    let fetched = reply("req::3:SYSTEM:fetchValues({{THE1,3},\"greeting\",{THE1,99}})");
    assert_eq!(fetched, json!(["00000003", "values:{21,\"hello\",nil}"]));
}

#[test]
fn our_clu_ignores_what_is_not_encrypted_with_its_key_and_refuses_what_it_does_not_know() {
    let folder = CluTestFolder::new().unwrap();
    let (_clu, _ready, mut client) = served(&folder, &[]);

    let datagrams =
        ["".to_owned(), "00".repeat(15), "00".repeat(16), "ff".repeat(17), "5a".repeat(48), "00".repeat(65000)];
    client.request(json!({ "do": "send", "datagrams": datagrams })).unwrap();
    // Its reply is the first and only one.
    assert_eq!(execute(&mut client, "1 + 1", REPLY_S), "2");
    assert_eq!(client.request(json!({ "do": "n_unexpected" })).unwrap()["n"], 0);
    assert_eq!(manage(&mut client, "req_no_such_command").as_str().map(str::trim), Some("resp:ERROR"));
    assert_eq!(manage(&mut client, "req_start_ftp").as_str().map(str::trim), Some("resp:ERROR"), "without --tftp");

    let set = json!({ "do": "set_key", "keys": "project.json", "timeout": SILENCE_S });
    assert_eq!(client.request(set).unwrap()["reply"], Json::Null, "without --commission");
    assert_eq!(execute(&mut client, "1 + 1", SILENCE_S), Json::Null, "another key");
    let discovery =
        json!({ "do": "discover", "target": "127.0.0.1", "keys": "clu.json", "pin": "clu.json", "timeout": SILENCE_S });
    assert_eq!(client.request(discovery).unwrap()["serial"], Json::Null, "without --commission");
    client.request(json!({ "do": "use_keys", "keys": "clu.json" })).unwrap();
    assert_eq!(execute(&mut client, "1 + 1", REPLY_S), "2");
}

#[test]
fn our_client_distinguishes_the_replies_of_the_clu_in_python() {
    let folder = CluTestFolder::new().unwrap();
    let port = free_port();
    let _clu = folder.serve_python(port).unwrap();
    let address = format!("127.0.0.1:{port}");
    let outcome = |expression: &str, timeout: &str, keys: &str| {
        let end = folder.clu(&["exec", "--json", "-w", timeout, "--keys", keys, &address, expression]).unwrap();
        (end.code, end.json().unwrap()["outcome"].clone())
    };
    let alive = |keys: &str, timeout: &str| folder.clu(&["alive", "--json", "-w", timeout, "--keys", keys, &address]);

    assert_eq!(outcome("1 + 1", "15", "clu.json"), (Some(0), json!("value")));
    assert_eq!(outcome("late()", "15", "clu.json"), (Some(0), json!("value")), "replies of other requests are ignored");
    assert_eq!(outcome("nothing", "15", "clu.json"), (Some(3), json!("nil")));
    assert_eq!(outcome("refuse()", "15", "clu.json"), (Some(5), json!("refused")));
    assert_eq!(outcome("silence()", "0.5", "clu.json"), (Some(4), json!("timeout")));
    assert_eq!(outcome("1 + 1", "0.5", "project.json"), (Some(4), json!("timeout")));
    assert_eq!(alive("clu.json", "15").unwrap().json().unwrap()["answer"], SERIAL);
    assert_eq!(alive("project.json", "0.5").unwrap().code, Some(4));

    let get = folder.clu(&["get", "--keys", "clu.json", &address, "THE1", "3", "14"]).unwrap();
    assert_eq!((get.code, get.printed.as_str()), (Some(0), "THE1/3   21\nTHE1/14  19.25\n"));
    let set = folder.clu(&["set", "--keys", "clu.json", &address, "greeting", "good day"]).unwrap();
    assert_eq!((set.code, set.printed.as_str()), (Some(0), "greeting  good day\n"));
}

#[test]
fn our_client_watches_the_clu_in_python() {
    let folder = CluTestFolder::new().unwrap();
    let port = free_port();
    let _clu = folder.serve_python(port).unwrap();
    let address = format!("127.0.0.1:{port}");
    let mut watch = folder.program();
    watch.args(["clu", "watch", "--json", "--events", "4", "--keys", "clu.json", &address]);
    let mut watch = Process::start("fodo clu watch", watch.args(["THE1/3", "greeting", "THE1/99"])).unwrap();
    let mut next = || -> Json {
        let line = watch.wait_for_line_starting("{", fodo_conformance::clu::STEP_DURATION_MAX).unwrap();
        serde_json::from_str(&line).unwrap()
    };

    let first = [next(), next(), next()].map(|update| update["value"].clone());
    let set = folder.clu(&["set", "--keys", "clu.json", &address, "THE1", "3", "22.5"]).unwrap();
    let changed = next();

    assert_eq!(first, [json!(21.0), json!("hello"), Json::Null]);
    assert_eq!((set.code, set.printed.as_str()), (Some(0), "THE1/3  22.5\n"));
    assert_eq!(
        (&changed["event"], &changed["object"], &changed["value"]),
        (&json!("update"), &json!("THE1"), &json!(22.5))
    );
}

/// A last block that is full is followed by an empty one.
#[test]
fn our_client_transfers_files_with_the_clu_in_python() {
    let folder = CluTestFolder::new().unwrap();
    let (port, tftp_port) = (free_port(), free_port());
    let _clu = folder.serve_python_with_files(port, Some(tftp_port)).unwrap();
    let (address, tftp_port) = (format!("127.0.0.1:{port}"), tftp_port.to_string());
    let files = [("scripts/USER.LUA", "-- ".to_owned() + &"x".repeat(5000)), ("scripts/OM.LUA", "y".repeat(1024))];
    for (name, content) in &files {
        folder.write(name, content).unwrap();
    }
    let transfer = |arguments: &[&str]| {
        let flags = [&arguments[..1], &["--keys", "clu.json", "--tftp-port", &tftp_port, &address], &arguments[1..]];
        folder.clu(&flags.concat()).unwrap()
    };

    let upload = transfer(&["upload", "scripts"]);
    let download = transfer(&["download", "--to", "copy"]);
    let missing = transfer(&["download", "--to", "copy", "NONE.LUA"]);

    assert_eq!((upload.code, download.code), (Some(0), Some(0)), "{upload:?} {download:?}");
    for name in ["MAIN.LUA", "OM.LUA", "USER.LUA"] {
        let content = |of: &str| std::fs::read(folder.path(&format!("{of}/{name}"))).unwrap();
        assert!(content("scripts") == content("copy"), "{name}");
    }
    assert_eq!(missing.code, Some(3), "{missing:?}");
}

#[test]
fn our_client_finds_the_clu_in_python_and_gives_it_a_key() {
    let folder = CluTestFolder::new().unwrap();
    let port = free_port();
    let _clu = folder.serve_python(port).unwrap();
    let (address, port) = (format!("127.0.0.1:{port}"), port.to_string());
    // With only this interface, so that the broadcasts remain on loopback.
    let discover = |arguments: &[&str]| {
        let end =
            folder.clu(&[&["discover", "--json", "-w", "2", "-i", "127.0.0.1", "--port", &port], arguments].concat());
        end.and_then(|end| end.json()).unwrap()
    };
    // The PIN of clu.json, which this file gives to the client together with the key of the project.
    let keys = |name: &str| -> Json { serde_json::from_slice(&std::fs::read(folder.path(name)).unwrap()).unwrap() };
    let (clu, project) = (keys("clu.json"), keys("project.json"));
    let merged =
        json!({ "key": project["key"], "iv": project["iv"], "defaultIV": clu["defaultIV"], "pin": clu["pin"] });
    folder.write("merged.json", &merged.to_string()).unwrap();

    let found = discover(&[]);
    assert_eq!((&found["key"], &found["serial"]), (&json!("unknown"), &json!(SERIAL)));
    assert_eq!(discover(&["--keys", "clu.json"])["key"], "project");
    assert_eq!(discover(&["--keys", "merged.json"])["key"], "other");
    let given = discover(&["--keys", "merged.json", "--set-key", SERIAL]);
    assert_eq!(given["outcome"], "key_set", "{given}");
    assert_eq!(discover(&["--keys", "merged.json"])["key"], "project");

    let alive =
        |keys: &str, timeout: &str| folder.clu(&["alive", "-w", timeout, "--keys", keys, &address]).unwrap().code;
    assert_eq!((alive("project.json", "15"), alive("clu.json", "0.5")), (Some(0), Some(4)));
    let reset = folder.clu(&["reset", "-w", "15", "--keys", "project.json", &address]).unwrap();
    assert_eq!((reset.code, reset.printed), (Some(0), format!("{address}: reset, alive: {SERIAL}\n")));
}
