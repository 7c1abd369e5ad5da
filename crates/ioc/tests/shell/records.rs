//! Commands that show records, their links, scans and events.

use std::sync::Arc;

use fodo_net::{PvTable, SharedPv};
use fodo_testing::eventually;

use crate::Terminal;
use crate::values::KINDS;

#[test]
fn records_are_listed_by_name_type_and_field_values() {
    Terminal::serving(KINDS).assert_goes(
        r#"
> dbl
x:ai
x:other
x:bo
x:long
x:int64
x:text
x:numbers
x:chars
x:texts
x:byte
x:floats
> dbl bo
x:bo
> dbl mbbi
> dbl boo
! there is no record type "boo"; did you mean "bo"?
> dbl ai "VAL EGU NOPE"
x:ai, "1.5", "mm", ""
x:other, "1.5", "mm", ""
> dbl "" NELM
x:ai, ""
x:other, ""
x:bo, ""
x:long, ""
x:int64, ""
x:text, ""
x:numbers, "12"
x:chars, "20"
x:texts, "3"
x:byte, "1"
x:floats, "3"
> dbgrep x:?o
x:bo
> dbglob *t VAL
x:text, "a\"b"
> dbgrep
! a pattern is missing; usage: dbgrep pattern ["fields"]
"#,
    );
}

#[test]
fn aliases_info_items_counts_and_addresses_are_shown() {
    Terminal::serving(KINDS).assert_goes(
        r#"
> dbla
x:other -> x:ai
> dbla y*
> dbli
x:bo info(owner, "Ann")
x:bo info(room, "7")
> dbli o*
x:bo info(owner, "Ann")
> dbstat
       1 ai
       1 bo
       1 int64out
       1 longout
       1 stringout
       5 waveform
      10 records, 1 aliases
> dba x:ai
Field:         x:ai.VAL
Record type:   ai
Type:          DBF_DOUBLE
Elements:      1
Writable:      yes
Access group:  DEFAULT, level 0
> dba x:bo.RTYP
Field:         x:bo.RTYP
Record type:   bo
Type:          DBF_STRING
Elements:      1
Writable:      no
Access group:  DEFAULT, level 1
> dba x:chars
Field:         x:chars.VAL
Record type:   waveform
Type:          DBF_CHAR
Elements:      20
Writable:      yes
Access group:  DEFAULT, level 0
> dba x:bi
! there is no record "x:bi"; did you mean "x:ai"?
"#,
    );
}

#[test]
fn dbpr_shows_more_fields_per_interest_level_and_the_targets_of_links() {
    let records = r#"
record(stringin, "x:in") { field(INP, "x:source") field(FLNK, "elsewhere") field(SIOL, "7") }
record(stringout, "x:source") { field(VAL, "text") }
"#;
    let mut terminal = Terminal::serving(records);
    terminal.assert_goes(
        r#"
> dbpr x:in
AMSG:               ASG :               DESC:               DISA: 0
DISV: 1             NAME: x:in          NAMSG:              SEVR: INVALID
STAT: UDF           SVAL: 7             TPRO: 0             VAL :
> dbpr x:in many
! "many" is not a level; use 0 (least) to 4 (most)
> dbpr x:on
! there is no record "x:on"; did you mean "x:in"?
"#,
    );

    let levels = ["0", "1", "2", "3", "4"].map(|level| terminal.run(&format!("dbpr x:in {level}")));
    for pair in levels.windows(2) {
        assert!(pair[0].len() <= pair[1].len());
    }
    let first_with = |text: &str| levels.iter().position(|level| level.contains(text));
    assert_eq!(first_with("INP : DB_LINK x:source NPP"), Some(1));
    assert_eq!(first_with("FLNK: CA_LINK elsewhere"), Some(1));
    assert_eq!(first_with("SIOL: 7 "), Some(1));
    assert_eq!(first_with("TIME: <undefined>"), Some(2));
    assert_eq!(first_with("PROC: "), Some(3));

    // Processing sets the time stamp and applies the text.
    let tried = terminal.run("dbtr x:in");
    assert!(tried.contains("VAL : text") && tried.contains("PROC: "), "{tried}");
    let year = tried.split("TIME: ").nth(1).and_then(|time| time.split('-').next()).unwrap();
    assert!(year.parse::<u32>().is_ok_and(|year| year >= 2024), "{tried}");
    terminal.assert_goes("> dbtr\n! a record is missing; usage: dbtr record\n> dbtr y\n! there is no record \"y\"\n");
}

#[test]
fn records_are_shown_by_their_links_scans_and_events() {
    let records = r#"
record(ai, "a") { field(INP, "b PP MS") field(SCAN, ".5 second") }
record(ai, "b") { field(FLNK, "c") }
record(ai, "c") { field(SCAN, "10 second") }
record(ai, "d") { field(INP, "far CP") field(SCAN, "Event") field(EVNT, "go") }
record(ai, "e") { field(SCAN, "Event") field(EVNT, "stop") field(INP, "a.NOPE CA") field(FLNK, "d") }
record(ai, "f") {}
record(calc, "g") { field(SCAN, "Event") field(EVNT, "go") field(CALC, "VAL+1") }
"#;
    Terminal::serving(records).assert_goes(
        r#"
> dblsr
3 records:
  a
  b
  c
2 records:
  d
  e
> dblsr c
3 records:
  a
  b
  c
> dblsr f
> dblsr *
3 records:
  a
  b
  c
2 records:
  d
  e
> scanppl
every 10 s: 1 records, 0 periods skipped
  c
every 0.5 s: 1 records, 0 periods skipped
  a
> scanppl 0.5
every 0.5 s: 1 records, 0 periods skipped
  a
> scanpel
Event go: 2 records
  d
  g
Event stop: 1 records
  e
> scanpel s*
Event stop: 1 records
  e
> scanpiol
"#,
    );
}

#[test]
fn posting_an_event_processes_only_its_records() {
    let mut terminal =
        Terminal::serving("record(calc, g) { field(SCAN, Event) field(EVNT, go) field(CALC, \"VAL+1\") }");
    terminal.assert_goes(
        r#"
> postEvent go
> dbgf g
DBF_DOUBLE:         1
> postEvent stop
> dbgf g
DBF_DOUBLE:         1
> postEvent
! an event is missing; usage: postEvent("event")
"#,
    );
}

#[test]
fn links_to_other_iocs_are_counted_and_shown() {
    let records = r#"
record(ai, "d") { field(INP, "far CP") }
record(ai, "e") { field(INP, "d.NOPE CA") }
"#;
    Terminal::serving(records).assert_goes(
        r#"
> dbcar
2 links lead to other IOCs, 0 are connected; lost 0 times, 0 updates and 0 puts merged
> dbcar * 1
d.INP "far CP NMS": not connected, lost 0 times, 0 updates and 0 puts merged: no server has claimed the name
e.INP "d.NOPE CA NMS": target is not a field
2 links lead to other IOCs, 0 are connected; lost 0 times, 0 updates and 0 puts merged
> dbcar d 1
d.INP "far CP NMS": not connected, lost 0 times, 0 updates and 0 puts merged: no server has claimed the name
1 links lead to other IOCs, 0 are connected; lost 0 times, 0 updates and 0 puts merged
> dbcar d x
! "x" is not a level; use 0 (least) to 4 (most)
"#,
    );
}

#[test]
fn links_over_pvaccess_are_shown_apart_from_the_others_and_work_within_one_ioc() {
    let records = r#"
record(ao, "x") { field(VAL, "2.5") field(PINI, "YES") field(EGU, "mm") }
record(ai, "same") { field(INP, {pva:{pv:"x",local:true,proc:"CP"}}) }
record(stringin, "units") { field(INP, {pva:{pv:"x",field:"display.units",proc:"CP"}}) }
record(ai, "none") { field(INP, {pva:{pv:"x",field:"nothing"}}) }
record(ai, "far") { field(INP, {pva:{pv:"elsewhere",local:true}}) }
record(ao, "back") { field(OUT, {pva:{pv:"x",proc:"PP"}}) }
record(ai, "d") { field(INP, "far:away CP") }
"#;
    let mut terminal = Terminal::serving(records);
    let none_merged = "0 updates and 0 puts merged";

    let connected = format!("5 links use pvAccess, 3 are connected; lost 0 times, {none_merged}\n");
    eventually("the links are connected", || terminal.run("dbpvxr") == connected);
    assert!(terminal.run("dbcar").starts_with("1 links lead to other IOCs, 0 are connected"));
    assert!(terminal.run("dbgf same").contains("2.5") && terminal.run("dbgf units").contains("mm"));
    let troubled = terminal.run("dbpvar * 1");
    let line = |link: &str, state: &str, reason: &str| {
        troubled.lines().any(|line| line.starts_with(link) && line.contains(state) && line.ends_with(reason))
    };
    assert!(
        line("none.INP", ": not connected, last to ", "the PV has no value at the field \"nothing\""),
        "{troubled}"
    );
    assert!(
        line(
            "far.INP",
            ": not connected, lost ",
            "the option local demands a PV of this IOC, which has none of this name"
        ),
        "{troubled}"
    );
    assert_eq!(troubled.lines().count(), 3, "{troubled}");

    terminal.run("dbpf back 7");
    eventually("the put has arrived", || terminal.run("dbgf same").contains('7'));
    assert!(terminal.run("dbpvxr back 2").contains("back.OUT \"{pva:{pv:\"x\",proc:\"PP\"}}\": connected to "));
}

#[test]
fn a_value_that_its_field_cannot_hold_is_counted_and_the_others_of_the_same_put_are_sent() {
    let mut terminal = Terminal::serving(
        r#"
record(longin, "a") { info(Q:group, {"g":{"a":{+channel:"VAL", +type:"plain", +putorder:0}}}) }
record(ao, "b") { info(Q:group, {"g":{"b":{+channel:"VAL", +type:"plain", +putorder:1}}}) }
record(stringout, "out_a") { field(OUT, {pva:{pv:"g",field:"a",defer:true}}) }
record(ao, "out_b") { field(OUT, {pva:{pv:"g",field:"b"}}) }
"#,
    );
    eventually("the links are connected", || {
        terminal.run("dbpvxr").starts_with("2 links use pvAccess, 2 are connected")
    });

    terminal.run("dbpf out_a many");
    terminal.run("dbpf out_b 5");
    eventually("the other value has arrived", || terminal.run("dbgf b").contains('5'));
    eventually("the alarm is raised", || terminal.run("dbgf out_a.SEVR").contains("INVALID"));

    assert!(terminal.run("dbgf out_a.STAT").contains("LINK") && terminal.run("dbgf out_a.AMSG").contains("field OUT"));
    assert!(terminal.run("dbgf out_b.SEVR").contains("NO_ALARM"));
    assert_eq!(terminal.run("dbgf a"), "DBF_LONG:           0 = 0x0\n");
    let troubled = terminal.run("dbpvxr * 1");
    let lost = "0 updates and 0 puts merged, 1 puts refused";
    assert!(
        troubled.starts_with("out_a.OUT ") && troubled.contains(&format!("{lost}: the value cannot be sent: the "))
    );
    assert!(troubled.ends_with(&format!("lost 0 times, {lost}; 1 connected but failing\n")), "{troubled}");

    terminal.run("dbpf out_a 7");
    terminal.run("dbpf out_b 6");
    eventually("both values have arrived", || {
        terminal.run("dbgf a").contains('7') && terminal.run("dbgf b").contains('6')
    });
    eventually("the link works again", || !terminal.run("dbpvxr").contains("failing"));
    assert!(terminal.run("dbgf out_a.SEVR").contains("NO_ALARM"));
}

#[test]
fn connected_links_are_counted_with_their_server_rights_and_losses() {
    let mut far = Terminal::new();
    far.file("a.acf", "ASG(DEFAULT) { RULE(1, WRITE) } ASG(FIXED) { RULE(1, READ) } ASG(CLOSED) { RULE(1, NONE) }");
    far.file(
        "a.db",
        "record(ao, f:x) {} record(ao, f:fixed) { field(ASG, FIXED) } record(ao, f:y) { field(ASG, CLOSED) }",
    );
    ["dbLoadRecords a.db", "asSetFilename a.acf", "iocInit"].iter().for_each(|line| drop(far.run(line)));
    let ports = far.run("casr");
    let ports: Vec<&str> = ports.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty()).collect();
    let (tcp, udp) = (format!("127.0.0.1:{}", ports[0]), format!("127.0.0.1:{}", ports[1]));
    let mut near = Terminal::new();
    near.file(
        "a.db",
        r#"
record(ai, "n:x") { field(INP, "f:x CP") }
record(ao, "n:fixed") { field(OUT, "f:fixed CA") }
record(ai, "n:y") { field(INP, "f:y CP") }
record(ai, "n:absent") { field(INP, "f:absent CP") }
"#,
    );
    near.run(&format!("epicsEnvSet EPICS_CA_ADDR_LIST {udp}"));
    near.run("dbLoadRecords a.db");
    near.run("iocInit");

    let none_merged = "0 updates and 0 puts merged";
    let connected =
        format!("4 links lead to other IOCs, 3 are connected; lost 0 times, {none_merged}; 2 connected but failing\n");
    eventually("the links are connected", || near.run("dbcar") == connected);
    let working = format!("n:x.INP \"f:x CP NMS\": connected to {tcp}, lost 0 times, {none_merged}\n");
    let failing = [
        format!("connected to {tcp}, no write access, lost 0 times, {none_merged}: the server refuses writing: "),
        format!(
            "connected to {tcp}, no read or write access, lost 0 times, {none_merged}: the server refuses reading: "
        ),
        format!("not connected, lost 0 times, {none_merged}: "),
    ];
    let (of_failing, of_all) = (near.run("dbcar * 1"), near.run("dbcar * 2"));
    assert!(!of_failing.contains(&working) && of_all.contains(&working), "{of_all}");
    for text in [&of_failing, &of_all] {
        assert!(failing.iter().all(|part| text.contains(part)) && text.ends_with(&connected), "{text}");
    }

    drop(far);
    let lost = format!("4 links lead to other IOCs, 0 are connected; lost 3 times, {none_merged}\n");
    eventually("the links are lost", || near.run("dbcar") == lost);
    let of_all = near.run("dbcar * 2");
    let last = format!("not connected, last to {tcp}, lost 1 times, {none_merged}: the connection was lost\n");
    assert_eq!(of_all.matches(&last).count(), 3, "{of_all}");
}

#[test]
fn named_states_are_created_set_and_shown() {
    Terminal::serving("record(ai, a) {}").assert_goes(
        r#"
> dbStateCreate red
> dbStateCreate green
> dbStateSet green
> dbStateSet blue
! there is no state "blue"; create it with dbStateCreate
> dbStateShowAll
red is off
green is on
> dbStateShow g*
green is on
> dbStateClear green
> dbStateShow green
green is off
> dbStateCreate
! the name of a state is missing; usage: dbStateCreate name
"#,
    );
}

#[test]
fn a_pv_whose_name_a_record_or_another_pv_has_is_reported() {
    let mut terminal = Terminal::new();
    terminal.file("a.db", "record(ai, \"x:a\") {}\n");
    let table = |names: [&str; 2]| Arc::new(PvTable::from(names.map(|name| (name, SharedPv::new(1.0)))));
    terminal.shell.serve_also(table(["x:a", "x:b"]));
    terminal.shell.serve_also(table(["x:b", "x:c"]));
    terminal.run("dbLoadRecords a.db");

    let printed = terminal.run("iocInit");

    assert!(printed.contains("the PV \"x:a\" is not served: a record has this name"), "{printed}");
    assert_eq!(printed.matches("the PV \"x:b\" is not served: another PV has this name").count(), 1, "{printed}");
    assert!(!printed.contains("x:c"), "{printed}");
}
