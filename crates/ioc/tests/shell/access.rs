//! Access security, the log of puts, and clients.

use fodo_ioc::Policy;
use fodo_net::{Context, Monitor, MonitorEvent, MonitorOptions};

use crate::{PATIENCE, Terminal};

const RULES: &str = r#"
UAG(ops) { ann, bob }
HAG(room) { console }
ASG(DEFAULT) { RULE(1, READ) RULE(1, WRITE) { UAG(ops) HAG(room) } }
ASG(free) { INPA($(P)gate) RULE(1, WRITE, TRAPWRITE) { CALC("A=1") } }
"#;

#[test]
fn access_rules_are_shown_and_reloaded() {
    let mut terminal = Terminal::new();
    terminal.file("a.acf", RULES);
    terminal.file("a.db", "record(ai, \"x:gate\") {}\nrecord(ai, \"x:b\") { field(ASG, free) }");
    terminal.assert_goes(
        r#"
> asSetFilename a.acf
> asSetSubstitutions "P=x:"
> dbLoadRecords a.db
> iocInit
serving 2 records
> aspmem
DEFAULT: 1 records
  x:gate
free: 1 records
  x:b
> aspmem f*
free: 1 records
  x:b
> dba x:b
Field:         x:b.VAL
Record type:   ai
Type:          DBF_DOUBLE
Elements:      1
Writable:      yes
Access group:  free, level 0
"#,
    );
    let shown = ["aspuag", "aspuag x*", "asphag", "asprules f*"].map(|command| terminal.run(command));
    assert!(shown[0].contains("ann") && shown[1].is_empty() && shown[2].contains("console"), "{shown:?}");
    assert!(shown[3].contains("x:gate") && !shown[3].contains("DEFAULT"), "{shown:?}");

    terminal.file("a.acf", "ASG(DEFAULT) { RULE(1, READ) }");
    assert_eq!(terminal.run("asInit"), "");
    assert!(!terminal.run("asprules").contains("free"));
    terminal.file("a.acf", "ASG(");
    assert!(terminal.run("asInit").contains("a.acf:1:"));
    assert!(terminal.run("asprules").contains("DEFAULT"));
}

#[test]
fn an_input_that_new_rules_do_not_need_still_has_updates_for_its_clients() {
    let mut terminal = Terminal::new();
    terminal.file("a.acf", "ASG(DEFAULT) { INPA(gate) RULE(1, WRITE) { CALC(\"A>=0\") } }");
    terminal.file("a.db", "record(ao, gate) { field(UDF, 0) }");
    for line in ["asSetFilename a.acf", "dbLoadRecords a.db", "iocInit"] {
        terminal.run(line);
    }
    let context = Context::new(terminal.shell.place().lock().as_ref().unwrap().client_config());
    let gate = context.channel("ca://gate").unwrap();
    let monitor = gate.monitor(MonitorOptions::default());
    let next = |monitor: &Monitor| loop {
        if let MonitorEvent::Update(reading) = monitor.next_timeout(PATIENCE).expect("an update") {
            return reading.value;
        }
    };
    assert_eq!(next(&monitor), 0.0.into());

    terminal.file("a.acf", "ASG(DEFAULT) { RULE(1, WRITE) }");
    assert_eq!(terminal.run("asInit"), "");
    gate.put(5.0).unwrap();

    assert_eq!(next(&monitor), 5.0.into());
}

#[test]
fn without_an_access_file_every_client_has_full_access() {
    let mut terminal = Terminal::serving("record(ai, a) {}");
    for command in ["asprules", "aspuag", "asphag"] {
        assert_eq!(terminal.run(command), "there is no access security file: every client may do everything\n");
    }
    terminal.assert_goes("> aspmem\nDEFAULT: 1 records\n  a\n> aspmem x*\n");
}

#[test]
fn the_put_log_mode_is_set_and_shown() {
    let policy = Policy { put_listener: Some(Box::new(|_| ())), ..Policy::default() };
    let mut terminal = Terminal::with_policy(policy, true);
    terminal.assert_goes(
        r#"
> iocInit
serving 0 records
> caPutLogShow
all puts are logged
> caPutLogInit "host:7011"
! puts are logged to the file of --put-log, and not sent to "host:7011"
> caPutLogShow
puts that change a value are logged
> caPutJsonLogReconf -1
> caPutLogShow
puts are not logged
> caPutLogReconf 2
> caPutJsonLogShow
all puts are logged
> caPutJsonLogInit "" 1
! puts are logged to the file of --put-log
> caPutLogReconf 7
! "7" must be -1 (nothing), 0 (puts that change a value), 1 or 2 (all puts)
> caPutLogShow
all puts are logged
"#,
    );
    Terminal::serving("").assert_goes(
        r#"
> caPutLogShow
puts are not logged: fodo ioc was started without --put-log
> caPutLogInit
! puts are not logged: fodo ioc --put-log FILE logs them to a file
"#,
    );
}

#[test]
fn casr_and_dbel_show_clients_and_their_subscriptions() {
    let mut terminal = Terminal::serving("record(ai, a) {}\nrecord(ai, b) {}");
    let none = terminal.run("casr");
    assert!(none.starts_with("Channel Access on TCP ") && none.ends_with(": 0 clients\n"), "{none}");
    assert_eq!(terminal.run("dbel"), "clients subscribe to 0 fields\n");

    let config = terminal.shell.place().lock().as_ref().unwrap().client_config();
    let context = Context::new(config);
    let channels = ["a", "b.DESC"].map(|name| context.channel(name).unwrap());
    let monitors = channels.each_ref().map(|channel| channel.monitor(MonitorOptions::default()));
    let has_update =
        |monitor: &Monitor| while !matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Update(_))) {};
    monitors.iter().for_each(has_update);
    terminal.run("dbpf a 1");
    has_update(&monitors[0]);

    let short = terminal.run("casr");
    let long = terminal.run("casr 1");
    let (ca, pva) = short.split_once("pvAccess on TCP ").unwrap();
    assert!(ca.contains(": 1 clients\n") && ca.ends_with(": 2 channels, 2 subscriptions\n"), "{short}");
    assert!(pva.ends_with(": 0 clients\n"), "{short}");
    assert!(long.contains("    0 bytes queued; 1 updates sent, 0 merged\n"), "{long}");
    assert_eq!(terminal.run("casr 0"), short);
    terminal.assert_goes(
        "> dbel\na.VAL\nb.DESC\nclients subscribe to 2 fields\n> dbel b\nb.DESC\nclients subscribe to 1 fields\n",
    );
}
