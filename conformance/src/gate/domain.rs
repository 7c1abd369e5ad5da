//! Domains of random field values.

/// A field's values.
#[derive(Clone, Copy, Debug)]
pub enum Domain {
    /// The field is not set: its value depends on time, it prints, or it is not writable.
    None,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// A number.
    Number,
    /// A link with one of these modifiers after the name.
    Link(&'static [&'static str]),
}

/// Numbers around the limits in random databases.
pub const NUMBERS: [&str; 14] = ["0", "1", "2", "3", "5", "7", "-1", "-3", "10", "15", "100", "0.5", "2.5", "-4.25"];

/// How many of them are integers: a database file may set an integer field only to these.
pub const N_WHOLE: usize = 11;

/// Numbers beyond the range of some kinds.
pub const HUGE: [&str; 16] = [
    "128",
    "255",
    "-129",
    "300",
    "32768",
    "-32769",
    "65536",
    "70000",
    "2147483648",
    "-2147483649",
    "1e10",
    "-3e9",
    "1e300",
    "1e-300",
    "NaN",
    "inf",
];

/// Texts that are valid for some fields only.
pub const WILD: [&str; 48] = [
    "",
    "0",
    "1",
    "2",
    "5",
    "-1",
    "3.7",
    "NaN",
    "inf",
    "0x11",
    "1e3",
    "abc",
    "3 apples",
    "YES",
    "MAJOR",
    "300",
    " ",
    "1.0",
    "1.5",
    "5.",
    "1abc",
    "010",
    "-0",
    "+0x02",
    "1e400",
    "nan",
    "Infinity",
    "-inf",
    "0x",
    "1e",
    "+5",
    " 2",
    "2 ",
    "08",
    ".5",
    "-.5",
    "-300",
    "65536",
    "4294967295",
    "-4294967296",
    "99999999999999999999",
    "1e39",
    "1e-50",
    "zero",
    "one",
    "two",
    "1,5",
    "a text of more than thirty-nine characters",
];

const SEVERITIES: &[&str] = &["NO_ALARM", "MINOR", "MAJOR", "INVALID"];

/// Event numbers and names.
pub const EVENTS: &[&str] = &["1", "2", "2", "3", "+0x02", "2.0", " 2", "2.7", "some text", "", "0", "256"];

/// Record types whose SIMM may be RAW.
const HAS_RAW: [&str; 8] = ["ai", "ao", "bi", "bo", "mbbi", "mbbo", "mbbiDirect", "mbboDirect"];

/// Record types that write through SIOL.
const OUTPUTS: [&str; 9] = ["ao", "bo", "longout", "int64out", "mbbo", "mbboDirect", "stringout", "lso", "aao"];

const IN: &[&str] = &[" NPP", " PP", " NPP", " "];
/// Modifiers of an output link.
pub const OUT: &[&str] = &[" NPP", " PP", " PP", " "];
const FORWARD: &[&str] = &[""];

/// The domain of a field of a record type.
pub fn domain(record_type: &str, field: &str) -> Domain {
    match field {
        // With a broken SIOL softIoc shows uninitialized memory: see the page on differences.
        "SIOL" if ["waveform", "aai"].contains(&record_type) => Domain::None,
        "SIOL" if OUTPUTS.contains(&record_type) => Domain::Link(OUT),
        "INP" | "DOL" | "SIML" | "SDIS" | "TSEL" | "SIOL" | "SELL" | "NVL" => Domain::Link(IN),
        "OUT" => Domain::Link(OUT),
        "FLNK" => Domain::Link(FORWARD),
        "LNK0" | "LNK1" | "LNK2" | "LNK3" => Domain::Link(if record_type == "seq" { OUT } else { FORWARD }),
        "OUTA" | "OUTB" | "OUTC" => Domain::Link(OUT),
        "DOL0" | "DOL1" | "DOL2" | "INP0" | "INP1" | "INP2" => Domain::Link(IN),
        // A pulse of bo and the alarm filter depend on time.
        "HIGH" if record_type == "bo" => Domain::None,
        "HIHI" | "HIGH" | "LOW" | "LOLO" | "HYST" | "MDEL" | "ADEL" | "DRVH" | "DRVL" | "HOPR" | "LOPR" | "EGUF"
        | "EGUL" | "AOFF" | "ASLO" | "ROFF" | "EOFF" | "ESLO" | "OROC" | "RVAL" | "SVAL" | "IVOV" | "DISV" | "DISA"
        | "PHAS" | "A" | "B" | "C" | "D" | "DO0" | "DO1" | "DO2" | "ILIL" | "IHIL" => Domain::Number,
        // For an mbbi it has no effect on softIoc: see the page on differences.
        "AFTC" if record_type == "mbbi" => Domain::None,
        // Between these values the alarm filter depends on elapsed time, which differs between both servers.
        "AFTC" => Domain::OneOf(&["0", "-1", "1e-300", "1e300"]),
        "SELM" if record_type == "sel" => Domain::OneOf(&["Specified", "High Signal", "Low Signal", "Median Signal"]),
        "SELM" => Domain::OneOf(&["All", "Specified", "Mask"]),
        "SELN" | "OFFS" | "INDX" => Domain::OneOf(&["0", "1", "2", "3", "7"]),
        "B0" | "B1" | "B2" | "B3" | "B7" => Domain::OneOf(&["0", "1"]),
        "RES" => Domain::OneOf(&["0", "1"]),
        "N" if record_type == "compress" => Domain::OneOf(&["1", "2", "3"]),
        "ALG" => Domain::OneOf(&[
            "N to 1 Low Value",
            "N to 1 High Value",
            "N to 1 Average",
            "Average",
            "Circular Buffer",
            "N to 1 Median",
        ]),
        "BALG" => Domain::OneOf(&["FIFO Buffer", "LIFO Buffer"]),
        "PBUF" => Domain::OneOf(&["NO", "YES"]),
        "DOPT" => Domain::OneOf(&["Use CALC", "Use OCAL"]),
        "OEVT" => Domain::OneOf(&["", "some text", "5"]),
        "FMT" => Domain::OneOf(&["%d", "%5.2f|%s", "%s %x", "%-6d%%", "%c"]),
        "IVLS" => Domain::OneOf(&["LNK", "bad"]),
        "SMOO" => Domain::OneOf(&["0", "0.5", "0.25"]),
        "PREC" => Domain::OneOf(&["0", "1", "3"]),
        "TSE" => Domain::OneOf(&["0", "-2", "1"]),
        "UDF" => Domain::OneOf(&["0", "1"]),
        "SDLY" => Domain::OneOf(&["-1"]),
        "DESC" | "EGU" | "EVNT" => Domain::OneOf(&["", "some text", "5"]),
        "SCAN" => Domain::OneOf(&["Passive", "Event"]),
        "SSCN" => Domain::OneOf(&["Passive", "Event"]),
        "PINI" => Domain::OneOf(&["NO", "YES"]),
        "PRIO" => Domain::OneOf(&["LOW", "MEDIUM", "HIGH"]),
        // softIoc abandons the processing of an aao whose DOL cannot be read: see the page on differences.
        "OMSL" if record_type == "aao" => Domain::OneOf(&["supervisory"]),
        "OMSL" => Domain::OneOf(&["supervisory", "closed_loop"]),
        "OIF" => Domain::OneOf(&["Full", "Incremental"]),
        "LINR" => Domain::OneOf(&["NO CONVERSION", "SLOPE", "LINEAR"]),
        "IVOA" => Domain::OneOf(&["Continue normally", "Don't drive outputs", "Set output to IVOV"]),
        "SIMM" if HAS_RAW.contains(&record_type) => Domain::OneOf(&["NO", "YES", "RAW"]),
        "SIMM" => Domain::OneOf(&["NO", "YES"]),
        "OOPT" => Domain::OneOf(&[
            "Every Time",
            "On Change",
            "When Zero",
            "When Non-zero",
            "Transition To Zero",
            "Transition To Non-zero",
        ]),
        "MPST" | "APST" => Domain::OneOf(&["Always", "On Change"]),
        "CALC" | "OCAL" => Domain::OneOf(&["A+B", "A>B?C:D", "A&B|4", "VAL+1", "A/B", "A:=A+1;A", "MIN(A,B,C)"]),
        "HHSV" | "HSV" | "LSV" | "LLSV" | "ZSV" | "OSV" | "COSV" | "SIMS" | "DISS" | "UDFS" | "UNSV" | "ZRSV"
        | "ONSV" | "TWSV" | "THSV" => Domain::OneOf(SEVERITIES),
        "ZNAM" | "ZRST" => Domain::OneOf(&["zero", "off"]),
        "ONAM" | "ONST" => Domain::OneOf(&["one", "abc"]),
        "TWST" | "THST" => Domain::OneOf(&["two", "MAJOR"]),
        "ZRVL" | "ONVL" | "TWVL" | "THVL" => Domain::OneOf(&["0", "1", "2", "5", "7"]),
        "UTAG" | "MASK" | "SHFT" => Domain::OneOf(&["0", "1", "2", "7"]),
        "NOBT" => Domain::OneOf(&["0", "2", "4"]),
        _ if is_input(field) => Domain::Link(IN),
        _ => Domain::None,
    }
}

/// INPA to INPF; the further inputs behave the same.
fn is_input(field: &str) -> bool {
    field.strip_prefix("INP").is_some_and(|letter| ["A", "B", "C", "D", "E", "F"].contains(&letter))
}
