//! The time stamps of records.

use super::*;

#[test]
fn time_stamps_follow_tse_and_tsel() {
    let mut ioc = TestIoc::new(
        "record(ai, early) {} record(ai, device) { field(TSE, -2) }
         record(ai, same) { field(TSEL, \"early.TIME\") }
         record(ai, input) { field(TSE, -2) field(INP, early) }",
    );
    ioc.put("early", 1.0, None).unwrap();
    let early = ioc.now.wall;
    ioc.now = ioc.now + Duration::from_secs(5);
    for record in ["device", "same", "input"] {
        ioc.put(&format!("{record}.PROC"), 1_i32, None).unwrap();
    }

    let time = |record: &str| ioc.database.read(ioc.field(record)).time;
    assert_eq!((time("early"), time("same"), time("input")), (early, early, early));
    assert_eq!(time("device"), fodo_data::TimeStamp::NEVER);
}

#[test]
fn an_output_that_waits_is_stamped_again_when_it_completes() {
    let simulated = "field(SIMM, YES) field(SIOL, sink) field(SDLY, 2) field(UDF, 0)";
    let types = ["mbbo", "mbboDirect", "stringout", "ao"];
    let records: String = types.iter().map(|kind| format!("record({kind}, {kind}) {{ {simulated} }}\n")).collect();
    let mut ioc = TestIoc::new(&format!("{records} record(ao, sink) {{}}"));
    types.iter().for_each(|kind| ioc.put(&format!("{kind}.PROC"), 1_i32, None).unwrap());
    let start = ioc.now.wall;

    while ioc.step() {}

    let time = |record: &str| ioc.database.read(ioc.field(record)).time;
    assert!(ioc.now.wall > start, "the outputs waited");
    assert_eq!(types.map(time), [ioc.now.wall; 4]);
}
