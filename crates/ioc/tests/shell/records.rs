//! Commands that show records, their links, scans and events.

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
