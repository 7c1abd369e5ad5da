//! Values of fields: `dbgf`, `dbpf`, `dbtgf`.

use crate::Terminal;

pub const KINDS: &str = r#"
record(ai, "x:ai") { field(VAL, 1.5) field(EGU, "mm") field(PREC, 2) field(DESC, "a \"gap\"") alias("x:other") }
record(bo, "x:bo") { field(ZNAM, "Shut") field(ONAM, "Open") info(owner, "Ann") info(room, "7") }
record(longout, "x:long") { field(VAL, 31) }
record(int64out, "x:int64") { field(VAL, -2) }
record(stringout, "x:text") { field(VAL, "a\"b") }
record(waveform, "x:numbers") { field(FTVL, "DOUBLE") field(NELM, 12) }
record(waveform, "x:chars") { field(FTVL, "CHAR") field(NELM, 20) }
record(waveform, "x:texts") { field(FTVL, "STRING") field(NELM, 3) }
record(waveform, "x:byte") { field(FTVL, "UCHAR") field(NELM, 1) }
record(waveform, "x:floats") { field(FTVL, "FLOAT") field(NELM, 3) }
"#;

#[test]
fn dbgf_shows_the_type_and_the_value() {
    Terminal::serving(KINDS).assert_goes(
        r#"
> dbgf x:ai
DBF_DOUBLE:         1.5
> dbgf x:ai.SCAN
DBF_STRING:         "Passive"
> dbgf x:ai.PREC
DBF_SHORT:          2 = 0x2
> dbgf x:ai.DESC
DBF_STRING:         "a \"gap\""
> dbgf x:ai.UDF
DBF_UCHAR:          0 = 0x0
> dbgf x:bo.MASK
DBF_ULONG:          0 = 0x0
> dbgf x:ai.SSCN
DBF_STRING:         "65535"
> dbgf x:long
DBF_LONG:           31 = 0x1f
> dbgf x:int64
DBF_INT64:          -2 = 0xfffffffffffffffe
> dbgf x:text
DBF_STRING:         "a\"b"
> dbgf x:numbers
DBF_DOUBLE[0]:      (empty)
> dbgf x:chars
DBF_CHAR[0]:        (empty)
> dbgf
! the name of a field is missing; usage: dbgf record.field
> dbgf x:bi
! there is no record "x:bi"; did you mean "x:ai"?
> dbgf x:ai.PRE
! record "x:ai" has no field "PRE"; did you mean "PREC"?
"#,
    );
}

#[test]
fn dbpf_writes_a_value_and_shows_the_result() {
    Terminal::serving(KINDS).assert_goes(
        r#"
> dbpf x:bo Open
DBF_STRING:         "Open"
> dbpf x:bo.SCAN Pasive
! "x:bo.SCAN": "Pasive" is not a valid state; did you mean "Passive"?
> dbpf x:bo 7
! "x:bo": "7" is not a valid state; valid choices are "Shut", "Open"
> dbpf x:bo
! a value is missing; usage: dbpf("record.field", "value")
> dbpf x:bo.RTYP a
! "x:bo.RTYP" cannot be written
> dbpf x:ai.DISP 1
DBF_UCHAR:          1 = 0x1
> dbpf x:ai 2
! "x:ai": the record's DISP forbids puts
> dbpf x:ai.DISP 0
DBF_UCHAR:          0 = 0x0
> dbpf x:ai -12.25
DBF_DOUBLE:         -12.25
> dbpf x:ai 1e14
DBF_DOUBLE:         100000000000000
> dbpf x:ai 1e15
DBF_DOUBLE:         1e15
> dbpf x:ai -1e-5
DBF_DOUBLE:         -0.00001
> dbpf x:ai 1e-7
DBF_DOUBLE:         1e-7
> dbpf x:ai 0
DBF_DOUBLE:         0
> dbpf x:ai Infinity
DBF_DOUBLE:         inf
> dbpf x:int64 9223372036854775807
DBF_INT64:          9223372036854775807 = 0x7fffffffffffffff
> dbpf x:numbers "[1, 2.5,1e20]"
DBF_DOUBLE[3]:      [1, 2.5, 1e20]
> dbpf x:numbers "[1,2,3,4,5,6,7,8,9,10]"
DBF_DOUBLE[10]:     [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
> dbpf x:numbers "[1,2,3,4,5,6,7,8,9,10,11]"
DBF_DOUBLE[11]:     [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...]
> dbpf x:numbers "[1,a]"
! "a" is not a number
> dbpf x:numbers [1, 2]
! the closing ']' is missing; put a value with commas in quotes, "[1,2,3]"
> dbpf x:numbers 7
DBF_DOUBLE[1]:      [7]
> dbpf x:numbers []
DBF_DOUBLE[0]:      (empty)
> dbpf x:chars "a b"
DBF_CHAR[4]:        "a b"
> dbpf x:chars "[65,66]"
DBF_CHAR[2]:        "AB"
> dbpf x:texts '[a,"b c"]'
DBF_STRING[2]:      [a, b c]
> dbpf x:ai.DESC "[1,2]"
DBF_STRING:         "[1,2]"
> dbpf x:byte 7
DBF_UCHAR[1]:       "\u{7}"
> dbpf x:floats "[1.5,1e20,1e-9]"
DBF_FLOAT[3]:       [1.5, 1e20, 1e-9]
"#,
    );
}

#[test]
fn dbtgf_shows_a_value_as_every_type_and_dbtpf_writes_it_first() {
    Terminal::serving(KINDS).assert_goes(
        r#"
> dbtpf x:ai 300.25
DBF_DOUBLE:         300.25
DBF_STRING:   "300.25"
DBF_CHAR:     44
DBF_UCHAR:    44
DBF_SHORT:    300
DBF_USHORT:   300
DBF_LONG:     300
DBF_ULONG:    300
DBF_INT64:    300
DBF_UINT64:   300
DBF_FLOAT:    300.25
DBF_DOUBLE:   300.25
DBF_ENUM:     300
> gft x:bo
DBF_STRING:   "Shut"
DBF_CHAR:     0
DBF_UCHAR:    0
DBF_SHORT:    0
DBF_USHORT:   0
DBF_LONG:     0
DBF_ULONG:    0
DBF_INT64:    0
DBF_UINT64:   0
DBF_FLOAT:    0
DBF_DOUBLE:   0
DBF_ENUM:     0
> pft x:text up
DBF_STRING:         "up"
DBF_STRING:   "up"
DBF_CHAR:     "up" is not a number
DBF_UCHAR:    "up" is not a number
DBF_SHORT:    "up" is not a number
DBF_USHORT:   "up" is not a number
DBF_LONG:     "up" is not a number
DBF_ULONG:    "up" is not a number
DBF_INT64:    "up" is not a number
DBF_UINT64:   "up" is not a number
DBF_FLOAT:    "up" is not a number
DBF_DOUBLE:   "up" is not a number
DBF_ENUM:     "up" is not a valid state
> dbtpf x:text
! a value is missing; usage: dbtpf("record.field", "value")
> dbtgf x:numbers
DBF_STRING:   (empty)
DBF_CHAR:     (empty)
DBF_UCHAR:    (empty)
DBF_SHORT:    (empty)
DBF_USHORT:   (empty)
DBF_LONG:     (empty)
DBF_ULONG:    (empty)
DBF_INT64:    (empty)
DBF_UINT64:   (empty)
DBF_FLOAT:    (empty)
DBF_DOUBLE:   (empty)
DBF_ENUM:     (empty)
"#,
    );
}

#[test]
fn control_characters_quotes_and_backslashes_of_a_text_are_escaped() {
    Terminal::serving("record(stringin, s) { field(VAL, \"a\\x07\\tb\\\"c\\\\\") }\n").assert_goes(
        r#"
> dbgf s
DBF_STRING:         "a\u{7}\tb\"c\\"
"#,
    );
}
