//! Groups of fields that several record types have, and the labels of families of fields.
//!
//! A table of fields names a group as `..group(arguments);`. Each macro here receives the arguments, the head of the
//! table and the rows so far; it adds its rows and hands the rest of the table back to [`crate::field`].

/// Units, display range, alarm limits, deadbands. The arguments are the type of the numbers, the attribute of the
/// limits and that of their severities: `PROP` or nothing.
macro_rules! limits {
    (($dbf:ident; $($prop:ident)?; $($severity_prop:ident)?) $head:tt [$($done:tt)*] $($rest:tt)*) => {
        $crate::field::with_groups! { $head [$($done)*
            "EGU" units: String(16) $(, $prop)?;
            "HOPR" display_high: $dbf $(, $prop)?;
            "LOPR" display_low: $dbf $(, $prop)?;
            "HIHI" hihi: $dbf, PP $($prop)?;
            "LOLO" lolo: $dbf, PP $($prop)?;
            "HIGH" high: $dbf, PP $($prop)?;
            "LOW" low: $dbf, PP $($prop)?;
            "HHSV" hihi_severity: Menu($crate::menu::ALARM_SEVR), PP $($severity_prop)?;
            "LLSV" lolo_severity: Menu($crate::menu::ALARM_SEVR), PP $($severity_prop)?;
            "HSV" high_severity: Menu($crate::menu::ALARM_SEVR), PP $($severity_prop)?;
            "LSV" low_severity: Menu($crate::menu::ALARM_SEVR), PP $($severity_prop)?;
            "HYST" hysteresis: $dbf;
            "ADEL" archive_deadband: $dbf;
            "MDEL" monitor_deadband: $dbf;
            "LALM" last_alarmed: $dbf, NOMOD INTEREST3;
            "ALST" last_archived: $dbf, NOMOD INTEREST3;
            "MLST" last_monitored: $dbf, NOMOD INTEREST3;
        ] $($rest)* }
    };
}

/// The filter of alarms.
macro_rules! alarm_filter {
    (() $head:tt [$($done:tt)*] $($rest:tt)*) => {
        $crate::field::with_groups! { $head [$($done)*
            "AFTC" alarm_filter_time: Double;
            "AFVL" alarm_filter_value: Double, NOMOD INTEREST3;
        ] $($rest)* }
    };
}

/// Simulation mode. The arguments are the type of SIOL and the menu of SIMM.
macro_rules! simulation {
    (($link:ident, $menu:ident) $head:tt [$($done:tt)*] $($rest:tt)*) => {
        $crate::field::with_groups! { $head [$($done)*
            "SIOL" simulation_value_link: $link;
            "SIML" simulation_mode_link: InLink;
            "SIMM" simulation_mode: Menu($crate::menu::$menu), SPECIAL SIMULATION_MODE;
            "SIMS" simulation_severity: Menu($crate::menu::ALARM_SEVR), INTEREST2;
            "OLDSIMM" old_simulation_mode: Menu($crate::menu::SIMM), NOMOD OLD_SIMULATION_MODE INTEREST4;
            "SSCN" simulation_scan: Menu($crate::menu::SCAN) = $crate::menu::NO_SCAN, SIMULATION_SCAN;
            "SDLY" simulation_delay: Double = -1.0, INTEREST2;
        ] $($rest)* }
    };
}

/// Conversion between raw counts and engineering units. The argument is the initial value of ASLO.
macro_rules! conversion {
    (($slope:literal) $head:tt [$($done:tt)*] $($rest:tt)*) => {
        $crate::field::with_groups! { $head [$($done)*
            "LINR" conversion: Menu($crate::menu::CONVERT), PP SPECIAL;
            "EGUF" units_full: Double, PP SPECIAL;
            "EGUL" units_low: Double, PP SPECIAL;
            "AOFF" adjust_offset: Double, PP;
            "ASLO" adjust_slope: Double = $slope, PP;
            "ESLO" unit_slope: Double = 1.0, PP INTEREST2;
            "EOFF" unit_offset: Double, PP INTEREST2;
            "ROFF" raw_offset: ULong, PP INTEREST2;
            "INIT" is_initial: Short, NOMOD INTEREST3;
            "LBRK" last_break: Short, NOMOD INTEREST3;
        ] $($rest)* }
    };
}

/// Two states and their raw values. The arguments are the initial names and their attribute: `PROP` or nothing.
macro_rules! two_states {
    (($zero:literal, $one:literal $(, $prop:ident)?) $head:tt [$($done:tt)*] $($rest:tt)*) => {
        $crate::field::with_groups! { $head [$($done)*
            "VAL" value: Enum, ASL0 PP INTEREST0;
            "ZNAM" zero_name: String(26) = $zero.into(), PP $($prop)?;
            "ONAM" one_name: String(26) = $one.into(), PP $($prop)?;
            "RVAL" raw_value: ULong, PP INTEREST0;
            "ORAW" old_raw: ULong, NOMOD INTEREST3;
            "MASK" mask: ULong, NOMOD;
            "ZSV" zero_severity: Menu($crate::menu::ALARM_SEVR), PP;
            "OSV" one_severity: Menu($crate::menu::ALARM_SEVR), PP;
            "COSV" change_severity: Menu($crate::menu::ALARM_SEVR), PP;
            "MLST" last_monitored: UShort, NOMOD INTEREST3;
            "LALM" last_alarmed: UShort, NOMOD INTEREST3;
        ] $($rest)* }
    };
}

/// Sixteen states and their raw values.
macro_rules! sixteen_states {
    (() $head:tt [$($done:tt)*] $($rest:tt)*) => {
        $crate::field::with_groups! { $head [$($done)*
            "NOBT" bits: UShort, NOMOD;
            "UNSV" unknown_severity: Menu($crate::menu::ALARM_SEVR), PP;
            "COSV" change_severity: Menu($crate::menu::ALARM_SEVR), PP;
            "RVAL" raw_value: ULong, PP INTEREST0;
            "ORAW" old_raw: ULong, NOMOD INTEREST3;
            "MASK" mask: ULong, NOMOD;
            "MLST" last_monitored: UShort, NOMOD INTEREST3;
            "LALM" last_alarmed: UShort, NOMOD INTEREST3;
            "SDEF" states_defined: Short, NOMOD INTEREST3;
            "SHFT" shift: UShort;
        ] $($rest)* }
    };
}

/// The value that a device read back after an output.
macro_rules! readback {
    (($dbf:ident) $head:tt [$($done:tt)*] $($rest:tt)*) => {
        $crate::field::with_groups! { $head [$($done)*
            "RBV" readback: $dbf, NOMOD INTEREST0;
            "ORBV" old_readback: $dbf, NOMOD INTEREST3;
        ] $($rest)* }
    };
}

/// The array of a record, with what decides when it is posted. The argument is an attribute of NELM: `PROP` or nothing.
macro_rules! array {
    (($($prop:ident)?) $head:tt [$($done:tt)*] $($rest:tt)*) => {
        $crate::field::with_groups! { $head [$($done)*
            "VAL" value: Array = fodo_data::Array::empty(fodo_data::Kind::F64), ASL0 PP SPECIAL INTEREST0;
            "PREC" precision: Short, PROP;
            "EGU" units: String(16), PROP;
            "HOPR" display_high: Double, PROP;
            "LOPR" display_low: Double, PROP;
            "NELM" capacity: ULong = 1, NOMOD $($prop)?;
            "FTVL" element_type: Menu($crate::menu::FTYPE), NOMOD;
            "NORD" length: ULong, NOMOD INTEREST0;
            "MPST" post_value: Menu($crate::menu::ARRAY_POST);
            "APST" post_archive: Menu($crate::menu::ARRAY_POST);
            "HASH" hash: ULong, INTEREST3;
        ] $($rest)* }
    };
}

/// A long string, with what decides when it is posted. The argument is the interest level of OLEN.
macro_rules! long_text {
    (($interest:ident) $head:tt [$($done:tt)*] $($rest:tt)*) => {
        $crate::field::with_groups! { $head [$($done)*
            "VAL" value: String(0), ASL0 PP SPECIAL INTEREST0;
            "OVAL" old_value: String(0), NOMOD INTEREST3;
            "SIZV" size: UShort = 41, NOMOD;
            "LEN" length: ULong, NOMOD INTEREST0;
            "OLEN" old_length: ULong, NOMOD $interest;
            "MPST" post_value: Menu($crate::menu::POST);
            "APST" post_archive: Menu($crate::menu::POST);
        ] $($rest)* }
    };
}

/// A selection of links.
macro_rules! selection {
    (() $head:tt [$($done:tt)*] $($rest:tt)*) => {
        $crate::field::with_groups! { $head [$($done)*
            "SELM" select_mode: Menu($crate::menu::SELM);
            "SELN" selection: UShort = 1;
            "SELL" selection_link: InLink;
        ] $($rest)* }
    };
}

/// An expression and its output. The arguments are the size of the expressions, their initial text, and the menu of
/// OOPT.
macro_rules! expression_output {
    (($size:literal, $initial:literal, $options:ident) $head:tt [$($done:tt)*] $($rest:tt)*) => {
        $crate::field::with_groups! { $head [$($done)*
            "VAL" value: Double, ASL0 INTEREST0;
            "PVAL" previous_value: Double, INTEREST0;
            "CALC" expression: String($size) = $initial.into(), PP SPECIAL EXPRESSION INTEREST0;
            "CLCV" expression_state: Long;
            "OUT" output: OutLink, SPECIAL DEVICE;
            "OUTV" output_link_state: Menu($crate::menu::CALCOUT_INAV), NOMOD;
            "OOPT" output_option: Menu($crate::menu::$options);
            "ODLY" output_delay: Double, ASL0;
            "DLYA" is_delayed: UShort, ASL0 NOMOD INTEREST0;
            "DOPT" output_source: Menu($crate::menu::CALCOUT_DOPT);
            "OCAL" output_expression: String($size) = $initial.into(), PP SPECIAL EXPRESSION INTEREST0;
            "OCLV" output_expression_state: Long;
            "IVOA" invalid_action: Menu($crate::menu::IVOA), INTEREST2;
            "IVOV" invalid_value: Double, INTEREST2;
            "OVAL" output_value: Double, ASL0 INTEREST0;
            "POVL" old_output_value: Double, ASL0 INTEREST0;
        ] $($rest)* }
    };
}

pub(crate) use {
    alarm_filter, array, conversion, expression_output, limits, long_text, readback, selection, simulation,
    sixteen_states, two_states,
};

/// Hands the labels of a family back to [`crate::field`], each with its index.
macro_rules! labels {
    (A_TO_L $($then:tt)*) => {
        $crate::field::with_labels! { @list
            ["A" 0 "B" 1 "C" 2 "D" 3 "E" 4 "F" 5 "G" 6 "H" 7 "I" 8 "J" 9 "K" 10 "L" 11] $($then)* }
    };
    (A_TO_P $($then:tt)*) => {
        $crate::field::with_labels! { @list
            ["A" 0 "B" 1 "C" 2 "D" 3 "E" 4 "F" 5 "G" 6 "H" 7 "I" 8 "J" 9 "K" 10 "L" 11 "M" 12 "N" 13 "O" 14 "P" 15]
            $($then)* }
    };
    (A_TO_U $($then:tt)*) => {
        $crate::field::with_labels! { @list
            ["A" 0 "B" 1 "C" 2 "D" 3 "E" 4 "F" 5 "G" 6 "H" 7 "I" 8 "J" 9 "K" 10 "L" 11 "M" 12 "N" 13 "O" 14 "P" 15
             "Q" 16 "R" 17 "S" 18 "T" 19 "U" 20] $($then)* }
    };
    (AA_TO_LL $($then:tt)*) => {
        $crate::field::with_labels! { @list
            ["AA" 0 "BB" 1 "CC" 2 "DD" 3 "EE" 4 "FF" 5 "GG" 6 "HH" 7 "II" 8 "JJ" 9 "KK" 10 "LL" 11] $($then)* }
    };
    (ZERO_TO_9 $($then:tt)*) => {
        $crate::field::with_labels! { @list
            ["0" 0 "1" 1 "2" 2 "3" 3 "4" 4 "5" 5 "6" 6 "7" 7 "8" 8 "9" 9] $($then)* }
    };
    (ZERO_TO_F $($then:tt)*) => {
        $crate::field::with_labels! { @list
            ["0" 0 "1" 1 "2" 2 "3" 3 "4" 4 "5" 5 "6" 6 "7" 7 "8" 8 "9" 9 "A" 10 "B" 11 "C" 12 "D" 13 "E" 14 "F" 15]
            $($then)* }
    };
    (ONE_TO_A $($then:tt)*) => {
        $crate::field::with_labels! { @list
            ["1" 0 "2" 1 "3" 2 "4" 3 "5" 4 "6" 5 "7" 6 "8" 7 "9" 8 "A" 9] $($then)* }
    };
    (BITS $($then:tt)*) => {
        $crate::field::with_labels! { @list
            ["0" 0 "1" 1 "2" 2 "3" 3 "4" 4 "5" 5 "6" 6 "7" 7 "8" 8 "9" 9 "A" 10 "B" 11 "C" 12 "D" 13 "E" 14 "F" 15
             "10" 16 "11" 17 "12" 18 "13" 19 "14" 20 "15" 21 "16" 22 "17" 23 "18" 24 "19" 25 "1A" 26 "1B" 27 "1C" 28
             "1D" 29 "1E" 30 "1F" 31] $($then)* }
    };
    (STATES $($then:tt)*) => {
        $crate::field::with_labels! { @list
            ["ZR" 0 "ON" 1 "TW" 2 "TH" 3 "FR" 4 "FV" 5 "SX" 6 "SV" 7 "EI" 8 "NI" 9 "TE" 10 "EL" 11 "TV" 12 "TT" 13
             "FT" 14 "FF" 15] $($then)* }
    };
}

pub(crate) use labels;
