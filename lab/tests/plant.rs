//! Tests that measuring a plant does no harm. The laboratory's workers are the calling program started again, so this
//! test is a separate program: started as `lab ...` it is the laboratory.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, ChildStdin, Command, ExitCode, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_net::{PvTable, Server, ServerConfig, SharedPv};

mod harness;

use fodo_testing::free_port;

type Test = (&'static str, fn());

const PATIENCE: Duration = Duration::from_secs(60);

const TESTS: [Test; 9] = [
    ("a_plant_is_measured", a_plant_is_measured),
    (
        "nothing_is_sent_beyond_loopback_without_the_word_for_it",
        nothing_is_sent_beyond_loopback_without_the_word_for_it,
    ),
    (
        "searches_keep_the_cap_and_a_server_elsewhere_is_not_asked",
        searches_keep_the_cap_and_a_server_elsewhere_is_not_searched,
    ),
    ("no_put_reaches_a_plant_without_the_word_for_it", no_put_reaches_a_plant_without_the_word_for_it),
    ("an_interrupted_run_shows_what_there_is", an_interrupted_run_shows_what_there_is),
    ("a_second_laboratory_is_refused_while_one_is_served", a_second_laboratory_is_refused_while_one_is_served),
    ("more_pvs_than_the_cap_are_refused", more_pvs_than_the_cap_are_refused),
    ("an_agent_refuses_a_wrong_key_and_an_unknown_driver", an_agent_refuses_a_wrong_key_and_an_unknown_driver),
    ("two_agents_give_two_sets_of_rows", two_agents_give_two_sets_of_rows),
];

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == "lab") {
        return fodo_lab::run(words.into_iter().skip(1));
    }
    harness::run(TESTS, true)
}

fn lab(search: &str, words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.arg("lab").args(words).env("EPICS_CA_ADDR_LIST", search).env("EPICS_CA_AUTO_ADDR_LIST", "NO");
    command.env("FODO_LAB_KEY", "right");
    command
}

fn run(search: &str, words: &[&str]) -> Output {
    lab(search, words).output().expect("this program starts")
}

/// A process that ends with its owner.
struct Running(Child, Option<ChildStdin>);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.1.take());
        self.0.kill().expect("the process can be killed");
        self.0.wait().expect("the process has ended");
    }
}

/// A server of two counters, and the address for searches.
fn plant() -> (Running, String) {
    let [port, pva_port] = [(); 2].map(|()| free_port().to_string());
    let words = ["worker", "serve-load", "--pvs", "2", "--port", &port, "--pva-port", &pva_port];
    let mut command = lab("127.0.0.1", &words);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let stdin = child.stdin.take();
    (Running(child, stdin), format!("127.0.0.1:{port}"))
}

fn agent(search: &str) -> (Running, String) {
    let mut child = lab(search, &["agent"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.map_while(Result::ok).find_map(|line| Some(line.split_once("listening on ")?.1.to_owned()));
    (Running(child, None), address.expect("it prints its address"))
}

fn rows(output: &Output) -> Vec<serde_json::Value> {
    let file: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    file["rows"].as_array().expect("the result has rows").clone()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const SHORT: [&str; 4] = ["--seconds", "0.2", "--json", "-"];

fn a_plant_is_measured() {
    let (_plant, search) = plant();

    let output = run(&search, &[&["run", "--against", "load:000000", "load:000001"], &SHORT[..]].concat());

    let rows = rows(&output);
    assert!(output.status.success(), "{rows:?}");
    for question in ["A1 connect", "A3 get", "A5 first update", "A6 updates", "A7 longest gap"] {
        assert_eq!(rows.iter().filter(|row| row["question"] == question).count(), 2, "{question}");
    }
    assert!(rows.iter().all(|row| row["verdict"] == "measured" && row["series"] == "plant"), "{rows:?}");
}

fn nothing_is_sent_beyond_loopback_without_the_word_for_it() {
    // An address for documentation (RFC 5737): it reaches no host even if this test fails.
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    listener.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let search = format!("{} 192.0.2.1", listener.local_addr().unwrap());

    let output = run(&search, &["run", "--against", "load:000000"]);

    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("192.0.2.1") && stderr(&output).contains("--allow-net"), "{}", stderr(&output));
    // Not even the permitted address received a search: the check comes first.
    assert!(listener.recv_from(&mut [0; 100]).is_err());
}

fn searches_keep_the_cap_and_a_server_elsewhere_is_not_searched() {
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    listener.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let search = listener.local_addr().unwrap().to_string();
    let words = ["run", "--against", "load:000000", "load:000001", "--max-ops-per-second", "4", "--json", "-"];
    let mut child = lab(&search, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();

    let started = Instant::now();
    let (mut start, mut n_searches, mut buffer) = (started, 0, [0; 1000]);
    while n_searches == 0 && start.elapsed() < PATIENCE || n_searches > 0 && start.elapsed() < Duration::from_secs(4) {
        let Ok((n, from)) = listener.recv_from(&mut buffer) else { continue };
        n_searches += 1;
        if n_searches == 1 {
            start = Instant::now();
        }
        // The reply names a server at 192.0.2.1, port 5064.
        let mut answer = [0; 24];
        answer[..8].copy_from_slice(&[0, 6, 0, 8, 0x13, 0xc8, 0, 0]);
        answer[8..12].copy_from_slice(&[192, 0, 2, 1]);
        answer[12..16].copy_from_slice(&buffer[28..32]);
        assert!(n >= 32);
        listener.send_to(&answer, from).unwrap();
    }
    let took = started.elapsed();
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();

    assert!((1..=4 + 4 * took.as_secs()).contains(&n_searches), "{n_searches} searches in {took:?}");
    assert!(stderr(&output).contains("ignored a reply from a server at 192.0.2.1"), "{}", stderr(&output));
}

fn no_put_reaches_a_plant_without_the_word_for_it() {
    use std::io::Write;
    let (_plant, search) = plant();
    // The counters reject puts, so a put that reaches them is reported.
    let output_with = |allowed: &[&str]| {
        let mut command = lab(&search, &[&["worker", "drive-plant", "--search", &search], allowed].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, r#"{{"connect":{{"pvs":["load:000000"]}}}}"#).unwrap();
        writeln!(stdin, r#"{{"put_back":{{"pv":"load:000000","n":1}}}}"#).unwrap();
        let lines: Vec<String> =
            BufReader::new(child.stdout.take().unwrap()).lines().take(2).map_while(Result::ok).collect();
        drop(Running(child, Some(stdin)));
        lines.concat()
    };
    let rows_of = |words: &[&str]| {
        let output = run(&search, &[&["run", "--against", "load:000000"], words, &SHORT[..]].concat());
        rows(&output).into_iter().filter(|row| row["question"] == "A8 put back").collect::<Vec<_>>()
    };

    assert!(output_with(&[]).contains("puts are not allowed without --allow-puts"));
    assert!(output_with(&["--allow-puts"]).contains("write access"), "{}", output_with(&["--allow-puts"]));
    assert!(rows_of(&[]).is_empty());
    let refused = rows_of(&["--allow-puts"]);
    assert!(refused.len() == 1 && refused[0]["verdict"] == "failed", "{refused:?}");
}

fn an_interrupted_run_shows_what_there_is() {
    let pvs = PvTable::from([("load:000000", SharedPv::builder(1.5).build())]);
    let server = Server::start(ServerConfig::isolated(), Arc::new(pvs)).unwrap();
    let (search, observer) = (format!("127.0.0.1:{}", server.udp_port()), server.observer());
    let words = ["run", "--against", "load:000000", "--seconds", "600", "--json", "-"];
    let child = lab(&search, &words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let id = child.id().to_string();
    // The run subscribes after it has measured everything else.
    let start = Instant::now();
    while observer.clients().iter().all(|client| client.n_subscriptions == 0) {
        assert!(start.elapsed() < PATIENCE, "the run does not subscribe");
        std::thread::sleep(Duration::from_millis(1));
    }

    let interrupted = Command::new("kill").args(["-INT", &id]).status().unwrap();
    let output = child.wait_with_output().unwrap();

    assert!(interrupted.success());
    assert_eq!(output.status.code(), Some(130));
    assert!(rows(&output).iter().any(|row| row["question"] == "A1 connect" && row["verdict"] == "measured"));
}

fn a_second_laboratory_is_refused_while_one_is_served() {
    use std::io::Write;
    let (_plant, search) = plant();
    let (_agent, address) = agent(&search);
    let caps = r#"{"allow_net":false,"max_ops_per_second":100,"max_channels":10}"#;
    let mut first = std::net::TcpStream::connect(&address).unwrap();
    let mut lines = BufReader::new(first.try_clone().unwrap()).lines();
    lines.next().unwrap().unwrap();
    writeln!(first, r#"{{"open":{{"key":"right","driver":"fodo","caps":{caps}}}}}"#).unwrap();
    let accepted = lines.next().unwrap().unwrap();

    let second = run("127.0.0.1", &["run", "--against", "load:000000", "--agent", &address]);

    assert!(accepted.contains("accepted"), "{accepted}");
    assert_eq!(second.status.code(), Some(2), "{}", stderr(&second));
    assert!(stderr(&second).contains("busy with another laboratory"), "{}", stderr(&second));
}

fn more_pvs_than_the_cap_are_refused() {
    let output = run("127.0.0.1", &["run", "--against", "load:000000", "load:000001", "--max-channels", "1"]);

    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--max-channels 1"), "{}", stderr(&output));
}

fn an_agent_refuses_a_wrong_key_and_an_unknown_driver() {
    use std::io::Write;
    let (_agent, address) = agent("127.0.0.1");

    let mut command = lab("127.0.0.1", &["run", "--against", "load:000000", "--agent", &address]);
    let wrong = command.env("FODO_LAB_KEY", "wrong").output().unwrap();
    assert!(stderr(&wrong).contains("the key is wrong"), "{}", stderr(&wrong));

    let caps = r#"{"allow_net":false,"max_ops_per_second":1,"max_channels":1}"#;
    // The agent may still be busy with the connection that it has just rejected.
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let greeting = lines.next().unwrap().unwrap();
        if greeting.contains("refused") && Instant::now() < deadline {
            continue;
        }
        writeln!(stream, r#"{{"open":{{"key":"right","driver":"/bin/sh","caps":{caps}}}}}"#).unwrap();
        let refused = lines.next().unwrap().unwrap();
        assert!(refused.contains("unknown driver"), "{refused}");
        break;
    }
}

fn two_agents_give_two_sets_of_rows() {
    let (_plant, search) = plant();
    let (_one, first) = agent(&search);
    let (_two, second) = agent(&search);
    let words = ["run", "--against", "load:000000", "--agent", &first, "--agent", &second];

    let output = run("127.0.0.1", &[&words, &SHORT[..]].concat());

    let rows = rows(&output);
    assert!(output.status.success(), "{rows:?} {}", stderr(&output));
    for agent in [first, second] {
        let client = format!("fodo@{agent}");
        assert!(rows.iter().any(|row| row["client"] == client.as_str() && row["question"] == "A6 updates"), "{rows:?}");
    }
}
