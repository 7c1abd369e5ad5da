//! The database of study 003, the same for every IOC.
//!
//! No record of EPICS Base adds 1 to each element of an array. So each array is a part of a ramp, whose elements are their
//! indexes, and after each processing a calcout moves the start of the part by one.

use std::fmt::Write as _;

use crate::driver::rounds::COUNTER_LAST;

/// Counters of each kind.
pub const N_COUNTERS: usize = 1000;

/// Arrays of each size, which are requested together.
pub const N_ARRAYS: usize = 10;

/// The counters that only a client processes, as a pattern of names.
pub const PASSIVE: &str = "nsls2:passive{:05}";

/// The counters that the event processes, as a pattern of names.
pub const SCANNED: &str = "nsls2:scanned{:05}";

/// A put to this PV posts the event.
pub const EVENT_PV: &str = "nsls2:event.PROC";

/// A double with its time, which is a member of the group.
pub const MEMBER: &str = "nsls2:member00";

/// An atomic group of records, each of which is a member with all of its fields; their values are their numbers.
pub const GROUP: &str = "nsls2:group";

/// Members of the group.
pub const N_MEMBERS: usize = 20;

/// An array of 4-byte integers.
pub const INTEGERS: &str = "nsls2:integers";

/// Elements of that array: 8 MB.
pub const N_INTEGERS: usize = 2_000_000;

/// A pattern of the names of the arrays with so many elements.
pub fn array_pattern(n_elements: u64) -> String {
    format!("nsls2:array{n_elements}:{{}}")
}

/// The ramp of these arrays: its name and the number of its elements.
pub fn ramp(n_elements: u64) -> (String, usize) {
    (format!("nsls2:ramp{n_elements}"), n_elements as usize + usize::from(COUNTER_LAST) + 1)
}

/// The records, with arrays of these sizes.
pub fn records(array_sizes: &[u64]) -> String {
    let mut text = String::from("record(event, \"nsls2:event\") { field(VAL, \"nsls2\") }\n");
    for number in 0..N_COUNTERS {
        counter(&mut text, &format!("nsls2:passive{number:05}"), "");
        counter(&mut text, &format!("nsls2:scanned{number:05}"), " field(SCAN, \"Event\") field(EVNT, \"nsls2\")");
    }
    for number in 0..N_MEMBERS {
        let atomic = if number == 0 { "\"+atomic\":true," } else { "" };
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "record(ai, \"nsls2:member{number:02}\") {{ field(VAL, \"{number}\") field(PINI, \"YES\") \
             info(Q:group, {{\"{GROUP}\":{{{atomic}\"m{number:02}\":{{\"+channel\":\"VAL\"}}}}}}) }}"
        );
    }
    let _ =
        writeln!(text, "record(waveform, \"{INTEGERS}\") {{ field(FTVL, \"LONG\") field(NELM, \"{N_INTEGERS}\") }}");
    for &n_elements in array_sizes {
        arrays(&mut text, n_elements);
    }
    text
}

fn counter(text: &mut String, name: &str, scan: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(
        text,
        "record(calc, \"{name}\") {{ field(CALC, \"VAL<{COUNTER_LAST}?VAL+1:0\") field(LOLO, \"5\") field(LLSV, \"MAJOR\") \
         field(LOW, \"10\") field(LSV, \"MINOR\") field(HIGH, \"990\") field(HSV, \"MINOR\") field(HIHI, \"995\") \
         field(HHSV, \"MAJOR\"){scan} }}"
    );
}

fn arrays(text: &mut String, n_elements: u64) {
    let (ramp, n_ramp) = ramp(n_elements);
    let _ = writeln!(text, "record(waveform, \"{ramp}\") {{ field(FTVL, \"DOUBLE\") field(NELM, \"{n_ramp}\") }}");
    for number in 0..N_ARRAYS {
        let (array, next) = (format!("nsls2:array{n_elements}:{number}"), format!("nsls2:next{n_elements}:{number}"));
        let _ = writeln!(
            text,
            "record(subArray, \"{array}\") {{ field(FTVL, \"DOUBLE\") field(MALM, \"{n_ramp}\") field(NELM, \"{n_elements}\") \
             field(INP, \"{ramp} NPP NMS\") field(FLNK, \"{next}\") }}\n\
             record(calcout, \"{next}\") {{ field(INPA, \"{array}.INDX NPP NMS\") field(CALC, \"A<{COUNTER_LAST}?A+1:0\") \
             field(OUT, \"{array}.INDX NPP NMS\") }}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_has_two_sets_of_counters_ten_arrays_of_each_size_and_a_group() {
        let text = records(&[10, 100]);

        let n = |what: &str| text.matches(what).count();
        assert_eq!((n("record(calc,"), n("field(SCAN, \"Event\")"), n("record(event,")), (2000, 1000, 1));
        assert_eq!((n("record(waveform,"), n("record(subArray,"), n("record(calcout,")), (3, 20, 20));
        assert_eq!((n("record(ai,"), n("info(Q:group"), n("+atomic")), (N_MEMBERS, N_MEMBERS, 1));
        assert!(text.contains(&format!("\"{MEMBER}\")")));
        assert!(text.contains("field(CALC, \"VAL<999?VAL+1:0\") field(LOLO, \"5\")"), "{text}");
        assert!(text.contains("\"nsls2:ramp100\") { field(FTVL, \"DOUBLE\") field(NELM, \"1100\")"), "{text}");
        assert!(text.contains("field(OUT, \"nsls2:array100:9.INDX NPP NMS\")"), "{text}");
    }

    #[test]
    fn names_of_requests_are_those_of_the_database() {
        use crate::driver::{ConnectedChannels, Variant};
        let text = records(&[10]);

        for pattern in [PASSIVE.to_owned(), SCANNED.to_owned(), array_pattern(10)] {
            let names = ConnectedChannels { pattern, n: 10, variant: Variant::Distinct }.names();
            assert!(names.iter().all(|name| text.contains(&format!("\"{name}\")"))), "{names:?}");
        }
        assert!(text.contains(&format!("\"{}\")", ramp(10).0)) && ramp(10).1 == 1010);
    }
}
