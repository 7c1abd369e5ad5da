//! Every database that stands beside the project loads, and every IOC there does what its page says.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fodo_conformance::place::{free_port, own_folder, program};
use fodo_conformance::process::{Process, confine, printed_by};
use fodo_db::Loader;

/// How long a program on a busy host may take for what it does at once elsewhere.
const PATIENCE: Duration = Duration::from_secs(30);

/// The macros a database says it wants to be loaded with: `# macros: P=X:`.
fn macros(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("# macros: ")).unwrap_or_default()
}

fn databases(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("its entries can be read").path();
        match path.extension() {
            _ if path.is_dir() => databases(&path, found),
            Some(extension) if extension == "db" => found.push(path),
            _ => {}
        }
    }
}

#[test]
fn every_example_database_loads() {
    let mut found = vec![own_folder().join("db").join("records.db")];
    databases(&own_folder().join("..").join("examples"), &mut found);

    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut loader = Loader::default();
        let file = path.to_string_lossy();
        let loaded = loader.load(&file, macros(&text), &mut |name| std::fs::read(name));
        if let Err(errors) = loaded.and_then(|()| loader.finish().map(|_| ())) {
            panic!("{file}: {errors:?}");
        }
    }
}

fn example(name: &str) -> PathBuf {
    own_folder().join("../examples/db").join(name)
}

/// `fodo ioc st.cmd` in its folder, serving.
fn started(name: &str) -> Process {
    let mut command = Command::new(program());
    confine(&mut command, free_port());
    command.current_dir(example(name)).args(["ioc", "st.cmd"]);
    let mut process = Process::start(name, &mut command).expect("the program can be started");
    process.line_that_begins("fodo ioc: serving", PATIENCE).expect("the example serves");
    process
}

/// What the shell answers to a command with one line.
fn answer(process: &mut Process, command: &str) -> String {
    process.write_line("echo answer:").expect("it reads commands");
    process.write_line(command).expect("it reads commands");
    process.line_that_begins("answer:", PATIENCE).expect("it answers");
    process.line(PATIENCE).expect("it answers with a line")
}

/// Asks again until the answer is the wanted one.
fn wait_for(process: &mut Process, command: &str, wanted: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answered = answer(process, command);
        if answered.ends_with(wanted) {
            return;
        }
        assert!(Instant::now() < deadline, "{command}: {answered}, and not {wanted}");
    }
}

#[test]
fn a_check_finds_nothing_to_say_of_any_example() {
    for name in ["motors", "temperatures"] {
        let mut command = Command::new(program());
        command.current_dir(example(name)).args(["check", "--strict", "st.cmd"]);

        let printed = printed_by(name, &mut command, PATIENCE);

        assert_eq!(printed, Ok("0 errors, 0 warnings\n".to_string()));
    }
}

#[test]
fn an_axis_of_the_motors_goes_where_it_is_sent_and_stops_where_it_is_told() {
    let mut motors = started("motors");

    assert!(answer(&mut motors, "dbpf demo:theta 20").ends_with(" 20"));
    wait_for(&mut motors, "dbgf demo:theta:moving", "\"Moves\"");
    wait_for(&mut motors, "dbgf demo:theta:position", " 20");
    wait_for(&mut motors, "dbgf demo:theta:moving", "\"Stands\"");
    answer(&mut motors, "dbpf demo:theta 340");
    wait_for(&mut motors, "dbgf demo:theta:moving", "\"Moves\"");
    answer(&mut motors, "dbpf demo:theta:stop 1");
    wait_for(&mut motors, "dbgf demo:theta:moving", "\"Stands\"");

    assert!(!answer(&mut motors, "dbgf demo:theta").ends_with(" 340"), "it stopped on its way");
    assert!(answer(&mut motors, "dbpf demo:y 99").ends_with(" 10"), "the limit holds");
}

#[test]
fn hundreds_of_sensors_come_from_one_table() {
    let mut sensors = started("temperatures");

    assert_eq!(answer(&mut sensors, "dbgrep demo:R24:T12"), "demo:R24:T12");
    assert_eq!(answer(&mut sensors, "dbla demo:rack7:temperature1"), "demo:rack7:temperature1 -> demo:R7:T1");
    assert_eq!(answer(&mut sensors, "dbstat"), "      24 ao");
    answer(&mut sensors, "dbpf demo:R3:ambient 50");
    wait_for(&mut sensors, "dbgf demo:R3:T1.SEVR", "\"MINOR\"");
}
