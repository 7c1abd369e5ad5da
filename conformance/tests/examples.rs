//! Checks that every example database loads, and that every example IOC behaves as its page describes.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fodo_conformance::place::{free_port, own_folder, program, python, script};
use fodo_conformance::process::{Process, printed_by, restrict_to_loopback};
use fodo_db::Loader;

/// Maximum time, on a busy host, for operations that normally take an instant.
const PATIENCE: Duration = Duration::from_secs(30);

const EXAMPLES: [&str; 7] = ["motors", "temperatures", "vacuum", "bpm", "alarms", "sequence", "beam"];

/// The macros in the comment of a database: `# macros: P=X:`.
fn macros(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("# macros: ")).unwrap_or_default()
}

fn databases(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder exists") {
        let path = entry.expect("its entries are readable").path();
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

fn started(name: &str) -> Process {
    started_on(free_port(), name)
}

/// Starts `fodo ioc st.cmd` in the example's folder, and waits until it serves.
fn started_on(port: u16, name: &str) -> Process {
    let mut command = Command::new(program());
    restrict_to_loopback(&mut command, port);
    command.current_dir(example(name)).env("USER", "ann").args(["ioc", "st.cmd"]);
    let mut process = Process::start(name, &mut command).expect("the program can be started");
    process.wait_for_line_starting("fodo ioc: serving", PATIENCE).expect("the example serves");
    process
}

/// The shell's answer to a command with one line of output.
fn answer(process: &mut Process, command: &str) -> String {
    process.write_line("echo answer:").expect("it reads commands");
    process.write_line(command).expect("it reads commands");
    process.wait_for_line_starting("answer:", PATIENCE).expect("it answers");
    process.line(PATIENCE).expect("it answers with a line")
}

/// Repeats the command until the answer is the expected one.
fn wait_for(process: &mut Process, command: &str, expected: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = answer(process, command);
        if output.ends_with(expected) {
            return;
        }
        assert!(Instant::now() < deadline, "{command}: {output}, expected {expected}");
    }
}

#[test]
fn every_example_passes_the_strict_check() {
    for name in EXAMPLES {
        let mut command = Command::new(program());
        command.current_dir(example(name)).args(["check", "--strict", "st.cmd"]);

        let printed = printed_by(name, &mut command, PATIENCE);

        assert_eq!(printed, Ok("0 errors, 0 warnings\n".to_string()));
    }
}

#[test]
fn an_example_motor_moves_to_its_setpoint_and_stops_on_request() {
    let mut motors = started("motors");

    // So slow that it moves until the next command, however late that is.
    answer(&mut motors, "dbpf demo:theta:velocity 0.1");
    assert!(answer(&mut motors, "dbpf demo:theta 20").ends_with(" 20"));
    wait_for(&mut motors, "dbgf demo:theta:moving", "\"Moves\"");
    answer(&mut motors, "dbpf demo:theta:velocity 100");
    wait_for(&mut motors, "dbgf demo:theta:position", " 20");
    wait_for(&mut motors, "dbgf demo:theta:moving", "\"Stands\"");
    answer(&mut motors, "dbpf demo:theta:velocity 0.1");
    answer(&mut motors, "dbpf demo:theta 340");
    wait_for(&mut motors, "dbgf demo:theta:moving", "\"Moves\"");
    answer(&mut motors, "dbpf demo:theta:stop 1");
    wait_for(&mut motors, "dbgf demo:theta:moving", "\"Stands\"");

    assert!(!answer(&mut motors, "dbgf demo:theta").ends_with(" 340"), "the axis stopped on its way");
    assert!(answer(&mut motors, "dbpf demo:y 99").ends_with(" 10"), "the limit holds");
}

#[test]
fn the_temperature_example_creates_hundreds_of_sensors_from_one_table() {
    let mut sensors = started("temperatures");

    assert_eq!(answer(&mut sensors, "dbgrep demo:R24:T12"), "demo:R24:T12");
    assert_eq!(answer(&mut sensors, "dbla demo:rack7:temperature1"), "demo:rack7:temperature1 -> demo:R7:T1");
    assert_eq!(answer(&mut sensors, "dbstat"), "      24 ao");
    answer(&mut sensors, "dbpf demo:R3:ambient 50");
    wait_for(&mut sensors, "dbgf demo:R3:T1.SEVR", "\"MINOR\"");
}

#[test]
fn the_example_valve_opens_only_at_low_pressure_and_closes_by_itself() {
    let mut vacuum = started("vacuum");

    wait_for(&mut vacuum, "dbgf demo:V1:state", "\"Interlocked\"");
    answer(&mut vacuum, "dbpf demo:V1 Open");
    wait_for(&mut vacuum, "dbgf demo:V1", "\"Close\"");
    answer(&mut vacuum, "dbpf demo:PU1 On");
    answer(&mut vacuum, "dbpf demo:PU2 On");
    wait_for(&mut vacuum, "dbgf demo:V1:state", "\"Closed\"");
    answer(&mut vacuum, "dbpf demo:V1 Open");
    wait_for(&mut vacuum, "dbgf demo:V1:state", "\"Open\"");
    answer(&mut vacuum, "dbpf demo:PU1 Off");

    wait_for(&mut vacuum, "dbgf demo:V1:state", "\"Interlocked\"");
    assert!(answer(&mut vacuum, "dbgf demo:V1").ends_with("\"Close\""));
}

#[test]
fn only_an_operator_in_access_mode_may_control_the_example_valve() {
    let port = free_port();
    let _vacuum = started_on(port, "vacuum");
    let put = |user: &str, name: &str, value: &str| {
        let mut command = Command::new(program());
        restrict_to_loopback(&mut command, port);
        command.env("USER", user).args(["put", name, value]).output().expect("the program runs").status.success()
    };

    assert!(!put("ann", "demo:V1", "Close"), "the mode is Beam");
    assert!(put("bob", "demo:mode", "Access"));

    assert!(put("ann", "demo:V1", "Close"));
    assert!(!put("bob", "demo:V1", "Close"), "bob is not an operator");
    assert!(put("bob", "demo:V1:shut.PROC", "1"));
}

#[test]
fn the_orbit_example_orders_the_bpms_and_averages_each_sector() {
    let mut bpm = started("bpm");

    answer(&mut bpm, "dbpf demo:noise 0");
    answer(&mut bpm, "dbpf demo:kick 0");
    let golden = format!("1,2,3,4,5,6,7,8,9,10{}", ",0".repeat(22));
    answer(&mut bpm, &format!("dbpf demo:golden \"[{golden}]\""));
    wait_for(&mut bpm, "dbgf demo:orbit:sectors", "[4.5, 2.375, 0, 0]");
    answer(&mut bpm, "dbtr demo:bpm7:reading");
    answer(&mut bpm, "dbpf demo:orbit:sector.INDX 8");

    wait_for(&mut bpm, "dbgf demo:orbit:sector", "[9, 10, 0, 0, 0, 0, 0, 0]");
    wait_for(&mut bpm, "dbgf demo:bpm9", " 0");
    assert!(answer(&mut bpm, "dbgf demo:orbit:highest").ends_with("[10]"));
}

#[test]
fn the_alarm_example_propagates_alarms_and_keeps_them_until_acknowledged() {
    let port = free_port();
    let mut alarms = started_on(port, "alarms");

    wait_for(&mut alarms, "dbgf demo:state", "\"All is well\"");
    assert!(answer(&mut alarms, "dbgf demo:horn").ends_with("\"Silent\""));
    answer(&mut alarms, "dbpf demo:cooling:flow:sim 8");
    wait_for(&mut alarms, "dbgf demo:state", "\"Alarm\"");
    wait_for(&mut alarms, "dbgf demo:horn", "\"Sounds\"");
    wait_for(&mut alarms, "dbgf demo:cooling.SEVR", "\"MAJOR\"");
    answer(&mut alarms, "dbpf demo:cooling:maintenance 1");
    wait_for(&mut alarms, "dbgf demo:state", "\"All is well\"");
    assert!(answer(&mut alarms, "dbgf demo:cooling:flow.ACKS").ends_with("\"MAJOR\""));
    let page = std::fs::read_to_string(own_folder().join("../docs/tutorials/alarms.md")).expect("the page exists");
    let acknowledge = page
        .split("```python\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("the page has a Python block");
    let mut command = Command::new(python());
    restrict_to_loopback(&mut command, port);
    printed_by("caproto", command.args(["-c", acknowledge]), PATIENCE).expect("it acknowledges");

    assert!(answer(&mut alarms, "dbgf demo:cooling:flow.ACKS").ends_with("\"NO_ALARM\""));
}

#[test]
fn the_sequence_example_completes_after_its_last_step_and_ramp() {
    let mut sequence = started("sequence");

    // The current stays where it is until the rate is set.
    answer(&mut sequence, "dbpf demo:supply:ramp.C 0");
    answer(&mut sequence, "dbpf demo:wanted 10");
    answer(&mut sequence, "dbpf demo:on.PROC 1");
    wait_for(&mut sequence, "dbgf demo:supply:ramping", "\"Yes\"");
    assert!(answer(&mut sequence, "dbgf demo:beam").ends_with("\"Off\""));
    answer(&mut sequence, "dbpf demo:supply:ramp.C 5");
    wait_for(&mut sequence, "dbgf demo:on.BUSY", " 0 = 0x0");
    assert!(answer(&mut sequence, "dbgf demo:beam").ends_with("\"On\""));
    assert!(answer(&mut sequence, "dbgf demo:supply:current").ends_with(" 10"));
    answer(&mut sequence, "dbpf demo:water:flows No");

    wait_for(&mut sequence, "dbgf demo:supply:current", " 0");
}

/// The record names that a shell lists after a script of its own has loaded an example.
fn listed(name: &str, command: &mut Command) -> Vec<String> {
    restrict_to_loopback(command, free_port());
    let printed = printed_by(name, command.env("USER", "ann"), PATIENCE).expect("the shell runs");
    let mut names: Vec<String> = printed.lines().filter(|line| line.starts_with("demo:")).map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn softioc_loads_the_examples_that_use_only_base_record_types() {
    for name in EXAMPLES.into_iter().filter(|name| *name != "sequence") {
        let lists = std::env::temp_dir().join(format!("fodo-example-{name}-{}.cmd", std::process::id()));
        let folder = example(name);
        std::fs::write(&lists, format!("cd \"{}\"\n< st.cmd\ndbl\n", folder.display())).expect("the script is written");

        let theirs = listed("softIoc", Command::new(python()).arg(script("softioc_shell.py")).arg(&lists));
        let ends = own_folder().join("db/shell/ends.cmd");
        let ours = listed("fodo ioc", Command::new(program()).arg("ioc").arg(&lists).arg(ends));

        std::fs::remove_file(&lists).expect("the script is removed");
        assert!(!ours.is_empty(), "{name}");
        assert_eq!(ours, theirs, "{name}");
    }
}

/// The commands in a tutorial's console blocks, each with its output.
fn conversation(page: &str) -> Vec<(String, Vec<String>)> {
    let path = own_folder().join("../docs/tutorials").join(page);
    let text = std::fs::read_to_string(&path).expect("the page exists");
    let mut conversation: Vec<(String, Vec<String>)> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        let mut is_after_prompt = false;
        for line in block.split("```").next().unwrap_or_default().lines() {
            if let Some(command) = line.strip_prefix("epics> ") {
                conversation.push((command.to_owned(), Vec::new()));
                is_after_prompt = true;
            } else if line.starts_with("$ ") {
                is_after_prompt = false;
            } else if let Some((_, lines)) = conversation.last_mut().filter(|_| is_after_prompt) {
                lines.push(line.trim_end().to_owned());
            }
        }
    }
    conversation
}

/// The complete output of a command.
fn output_of(process: &mut Process, command: &str) -> Vec<String> {
    process.write_line(command).expect("it reads commands");
    process.write_line("echo that is all").expect("it reads commands");
    let mut lines = Vec::new();
    loop {
        let line = process.line(PATIENCE).expect("it answers");
        if line == "that is all" {
            return lines;
        }
        lines.push(line.trim_end().to_owned());
    }
}

#[test]
fn the_tutorials_match_the_output_of_the_shell() {
    let pages = [
        ("motors.md", "motors"),
        ("hundreds-from-a-table.md", "temperatures"),
        ("vacuum.md", "vacuum"),
        ("bpm.md", "bpm"),
        ("alarms.md", "alarms"),
    ];
    for (page, example) in pages {
        let mut process = started(example);
        let conversation = conversation(page);
        assert!(!conversation.is_empty(), "{page}");
        // Skip the remaining output of the script.
        output_of(&mut process, "");

        // Commands that write a file would write it into the example's folder.
        for (command, expected) in conversation.iter().filter(|(command, _)| !command.contains('>')) {
            let deadline = Instant::now() + PATIENCE;
            let mut output = output_of(&mut process, command);
            // A reader takes a moment between two commands, in which records are scanned.
            while command.starts_with("dbgf") && output != *expected && Instant::now() < deadline {
                output = output_of(&mut process, command);
            }
            assert_eq!(output, *expected, "{page}: {command}");
        }
    }
}
