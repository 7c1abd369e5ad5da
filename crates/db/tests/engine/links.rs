//! Links with filters, JSON and named states.

use std::sync::Arc;

use fodo_data::{Array, Value};

use super::{Oslo, TestIoc};

#[test]
fn a_cp_link_with_a_filter_processes_only_on_passed_updates() {
    let mut ioc = TestIoc::new(
        "record(ao, a) { field(VAL, 10) field(PINI, YES) }
         record(calc, near) { field(INPA, \"a.{dbnd:{abs:2}} CP\") field(CALC, \"VAL+1\") }
         record(calc, every) { field(INPA, \"a CP\") field(CALC, \"VAL+1\") }
         record(calc, later) { field(CALC, \"VAL+1\") }",
    );
    assert_eq!((ioc.number("near"), ioc.number("every")), (1.0, 1.0));

    for value in [11.0, 12.0, 13.0, 14.0, 16.0] {
        ioc.put("a", value, None).unwrap();
    }
    ioc.put("later.INPA", "a.{dec:{n:2}} CP", None).unwrap();
    for value in [17.0, 18.0, 19.0] {
        ioc.put("a", value, None).unwrap();
    }

    assert_eq!((ioc.number("near"), ioc.number("near.A")), (4.0, 19.0));
    assert_eq!(ioc.number("every"), 9.0);
    assert_eq!((ioc.number("later"), ioc.number("later.A")), (2.0, 18.0));
}

#[test]
fn a_record_shares_the_array_that_it_reads_whole_and_copies_a_part() {
    let mut ioc = TestIoc::new(
        "record(waveform, source) { field(FTVL, DOUBLE) field(NELM, 6) }
         record(waveform, copy) { field(FTVL, DOUBLE) field(NELM, 6) field(INP, source) }
         record(subArray, whole) { field(FTVL, DOUBLE) field(MALM, 6) field(NELM, 6) field(INP, source) }
         record(subArray, part) { field(FTVL, DOUBLE) field(MALM, 5) field(NELM, 3) field(INDX, 1) field(INP, source) }
         record(subArray, long) { field(FTVL, LONG) field(MALM, 6) field(NELM, 2) field(INDX, 3) field(INP, source) }
         record(compress, last) { field(ALG, \"Circular Buffer\") field(NSAM, 4) field(INP, source) }",
    );
    ioc.put("source", vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], None).unwrap();
    for record in ["copy", "whole", "part", "long", "last"] {
        ioc.put(&format!("{record}.PROC"), 1_i32, None).unwrap();
    }
    let elements = |ioc: &TestIoc, name: &str| match ioc.database.read(ioc.field(name)).value {
        Value::Array(Array::F64(elements)) => elements,
        other => panic!("{other:?}"),
    };

    let source = elements(&ioc, "source");
    assert!(["copy", "whole"].iter().all(|name| Arc::ptr_eq(&source, &elements(&ioc, name))));
    assert_eq!(
        (&**elements(&ioc, "part"), &**elements(&ioc, "last")),
        (&[2.0, 3.0, 4.0][..], &[3.0, 4.0, 5.0, 6.0][..])
    );

    assert_eq!(ioc.database.read(ioc.field("long")).value, vec![4, 5].into());

    // Only MALM elements of the source count.
    ioc.put("part.INDX", 4_i32, None).unwrap();
    assert_eq!(**elements(&ioc, "part"), [5.0]);
}

#[test]
fn db_state_links_and_filters_share_named_states() {
    let mut ioc = TestIoc::new(
        "record(bo, switch) { field(DTYP, \"Db State\") field(OUT, \"@red\") }
         record(bi, flag) { field(DTYP, \"Db State\") field(INP, \"@red\") }
         record(bo, out) { field(OUT, {state:\"red\"}) field(FLNK, flag) }
         record(calc, in) { field(INPA, {state:\"red\"}) field(CALC, A) }",
    );
    assert!(ioc.database.channel("in.{sync:{while:'red'}}").is_ok());

    ioc.put("switch", 1_i32, None).unwrap();
    for record in ["flag", "in"] {
        ioc.put(&format!("{record}.PROC"), 1_i32, None).unwrap();
    }
    assert_eq!((ioc.number("flag"), ioc.number("in")), (1.0, 1.0));

    ioc.put("out", 0_i32, None).unwrap();
    assert_eq!(ioc.number("flag"), 0.0);
    assert!(!ioc.database.states().find("red").unwrap().is_on());
}

#[test]
fn every_input_link_accepts_filters_and_json() {
    let mut ioc = TestIoc::at(
        Arc::new(Oslo),
        "record(waveform, w) { field(FTVL, DOUBLE) field(NELM, 4) }
         record(compress, two) { field(INP, \"w.[2:3]\") field(NSAM, 4) field(ALG, \"Circular Buffer\") }
         record(ai, later) { field(DTYP, \"Async Soft Channel\") field(INP, {calc:{expr:\"3\"}}) }
         record(ai, stamped) { field(TSEL, \"w.[1]\") }
         record(calc, off) { field(SDIS, {state:\"red\"}) field(DISV, 0) field(CALC, 5) }
         record(lsi, iso) { field(INP, \"w.{ts:{str:'iso'}}\") }
         record(stringin, word) { field(INP, {const:\"a text\"}) }
         record(stringin, number) { field(INP, {const:5}) }
         record(lsi, three) { field(INP, {calc:{expr:\"3\"}}) }
         record(calcout, states) { field(INPA, {state:\"red\"}) field(INPB, {calc:{expr:\"3\"}}) field(INPC, none) }",
    );

    ioc.put("w", Value::from(vec![1.0, 2.0, 3.0, 4.0]), None).unwrap();
    for record in ["two", "later", "stamped", "off", "iso", "three"] {
        ioc.put(&format!("{record}.PROC"), 1_i32, None).unwrap();
    }

    assert_eq!((ioc.number("two.INPN"), ioc.number("two.NUSE"), ioc.number("two")), (2.0, 2.0, 3.0));
    assert_eq!((ioc.number("later"), ioc.number("stamped.TSE"), ioc.number("off")), (3.0, 2.0, 0.0));
    assert_eq!((ioc.text("iso"), ioc.text("three")), ("2027-01-15T09:00:00.000000+0100".into(), "3.000000".into()));
    assert_eq!((ioc.text("word"), ioc.text("number")), ("a text".into(), "5".into()));
    let said = ["states.INAV", "states.INBV", "states.INCV"].map(|field| ioc.number(field));
    assert_eq!(said, [2.0, 1.0, 0.0]);
}

#[test]
fn a_ca_forward_link_processes_only_through_proc() {
    let mut ioc = TestIoc::new(
        "record(calc, first) { field(FLNK, \"near CA\") }
         record(fanout, fan) { field(LNK1, \"near.VAL CA\") field(LNK2, \"far.PROC CA\") }
         record(calc, near) { field(CALC, \"VAL+1\") }
         record(calc, far) { field(CALC, \"VAL+1\") field(SCAN, Event) }",
    );

    for record in ["first", "fan"] {
        ioc.put(&format!("{record}.PROC"), 1_i32, None).unwrap();
    }

    assert_eq!((ioc.number("near"), ioc.number("far")), (0.0, 1.0));
}
