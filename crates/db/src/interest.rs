//! The interest level from which `dbpr` shows a field: 0 for every user, 4 for internals of a record.
//!
//! Source: the attribute `interest` in EPICS Base's descriptions of record types. A field name nearly always has the
//! same level in all record types, so the tables are by name. A field in no table has level 1.

/// The exceptions: the level of a field in particular record types.
const IN_TYPES: &[(&str, &[&str], u8)] = &[
    ("DLYA", &["calcout", "scalcout"], 0),
    ("INPN", &["compress"], 4),
    ("N", &["compress"], 1),
    ("NELM", &["subArray"], 0),
    ("OLEN", &["lso"], 3),
    ("ONAM", &["aSub"], 3),
    ("OVAL", &["aSub", "lsi", "lso", "permissive", "state", "stringin", "stringout"], 3),
    ("PVAL", &["ao"], 3),
    ("SELM", &["sel"], 0),
    ("SELN", &["sel"], 0),
];

const LEVEL_0: &[&str] = &[
    "AMSG", "ASG", "BUSY", "CALC", "DESC", "DISA", "DISV", "FMT", "INDX", "IVLS", "LEN", "NAME", "NAMSG", "NORD",
    "NUSE", "OCAL", "OEVT", "OFF", "OLEN", "OMOD", "OUSE", "OVAL", "POVL", "PVAL", "RBV", "RVAL", "SEVR", "SGNL",
    "STAT", "SVAL", "TPRO", "VAL", "WFLG",
];

const LEVEL_2: &[&str] =
    &["ACKS", "ACKT", "EOFF", "ESLO", "IVOA", "IVOV", "LCNT", "NSEV", "NSTA", "ROFF", "SDLY", "SIMS"];

const LEVEL_3: &[&str] = &[
    "AFVL", "ALST", "CVB", "HASH", "INIT", "INX", "LALM", "LBRK", "MCNT", "MLST", "NLST", "OBIT", "OFLG", "ORAW",
    "ORBV", "PROC", "RES", "SDEF", "UTAG", "WDTH",
];

const LEVEL_4: &[&str] = &["OLDN", "OLDSIMM"];

/// The level of a field, from 0 to 4.
pub(crate) fn level(record_type: &str, field: &str) -> u8 {
    let is_there = |row: &&(&str, &[&str], u8)| row.0 == field && row.1.contains(&record_type);
    if let Some((_, _, level)) = IN_TYPES.iter().find(is_there) {
        return *level;
    }
    match field.as_bytes() {
        // The arrays of aSub, their lengths, and their previous lengths.
        [b'A'..=b'U'] | [b'V', b'A', b'L', _] if record_type == "aSub" => 2,
        [b'N', b'E', _] | [b'N', b'E', b'V', _] if record_type == "aSub" => 3,
        [b'O', b'N', b'V', _] if record_type == "aSub" => 4,
        // A to U, and their previous values.
        [b'A'..=b'U'] => 0,
        [b'L', b'A'..=b'U'] => 3,
        _ if LEVEL_0.contains(&field) => 0,
        _ if LEVEL_2.contains(&field) => 2,
        _ if LEVEL_3.contains(&field) => 3,
        _ if LEVEL_4.contains(&field) => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::level;

    #[test]
    fn record_types_override_the_default_interest_level_of_a_field_name() {
        assert_eq!(["VAL", "EGU", "ACKS", "PROC", "OLDSIMM"].map(|field| level("ao", field)), [0, 1, 2, 3, 4]);
        assert_eq!([level("calc", "A"), level("calc", "LA"), level("calc", "LOW")], [0, 3, 1]);
        assert_eq!(["A", "VALA", "NEA", "NEVA", "ONVA", "FTA"].map(|field| level("aSub", field)), [2, 2, 3, 3, 4, 1]);
        assert_eq!([level("lsi", "OLEN"), level("lso", "OLEN")], [0, 3]);
        assert_eq!(["aSub", "bi", "bo"].map(|record_type| level(record_type, "ONAM")), [3, 1, 1]);
    }
}
