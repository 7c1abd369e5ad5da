//! Record types whose fields Fodo has, but not their behaviour: one file of `tables` for each.
//!
//! A line `NAMES : TYPE ATTRIBUTES` describes fields. `D{01..70}PV` stands for seventy names, and `=5` is the initial
//! value. A line `menu NAME A|B` defines the choices of `MENU(NAME)`. `ARRAY(FLOAT,MPTS)` is an array whose element
//! count is in the field MPTS; a field name may also replace the kind.

use fodo_data::{Kind, Scalar};

use crate::field::{ASL0, DEVICE, Dbf, FieldInfo, INTEREST0, NOMOD, PP};
use crate::menu;
use crate::record::array::KINDS;
use crate::record::inert::FieldValue;

/// The texts of the tables, by record type.
const TABLES: &[(&str, &str)] = &[
    ("asyn", include_str!("tables/asyn.txt")),
    ("epid", include_str!("tables/epid.txt")),
    ("mca", include_str!("tables/mca.txt")),
    ("motor", include_str!("tables/motor.txt")),
    ("scaler", include_str!("tables/scaler.txt")),
    ("scanparm", include_str!("tables/scanparm.txt")),
    ("sscan", include_str!("tables/sscan.txt")),
    ("table", include_str!("tables/table.txt")),
];

/// The menus of EPICS Base that the tables use.
const MENUS: &[(&str, &[&str])] = &[
    ("menuAlarmSevr", menu::ALARM_SEVR),
    ("menuFtype", menu::FTYPE),
    ("menuOmsl", menu::OMSL),
    ("menuYesNo", menu::YES_NO),
];

/// The fields of a record type, in the order of its rows.
#[derive(Debug, Default)]
pub(super) struct FieldTable {
    pub(super) rows: Vec<FieldInfo>,
    pub(super) values: Vec<FieldValue>,
    /// The indices of the arrays, and what determines their kind and size.
    pub(super) arrays: Vec<(usize, ArrayOf)>,
}

/// The kind and the size of an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrayOf {
    pub(super) kind: KindOf,
    pub(super) capacity: CapacityOf,
}

/// What determines the kind of an array's elements.
#[derive(Clone, Copy, Debug)]
pub(super) enum KindOf {
    Fixed(Kind),
    /// The row of a field that contains a choice of `menuFtype`.
    Row(usize),
}

/// What determines the size of an array.
#[derive(Clone, Copy, Debug)]
pub(super) enum CapacityOf {
    Fixed(u32),
    /// The row of a field that contains a number.
    Row(usize),
}

/// Whether a table has the fields of this record type.
pub(crate) fn has_table(record_type: &str) -> bool {
    TABLES.iter().any(|(name, _)| *name == record_type)
}

/// Reads the fields of a record type. Like all record types, they live until the process ends.
pub(super) fn table(record_type: &str) -> Option<FieldTable> {
    let text = TABLES.iter().find(|(name, _)| *name == record_type).map(|(_, text)| *text)?;
    let mut menus: Vec<(&str, &'static [&'static str])> = MENUS.to_vec();
    let mut table = FieldTable::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some((name, choices)) = line.strip_prefix("menu ").and_then(|menu| menu.split_once(' ')) {
            menus.push((name, choices.split('|').collect::<Vec<_>>().leak()));
        } else if let Some((names, description)) = line.split_once(" : ") {
            names.split(' ').for_each(|names| table.add(names, description, &menus));
        }
    }
    Some(table)
}

impl FieldTable {
    fn add(&mut self, names: &'static str, description: &'static str, menus: &[(&str, &'static [&'static str])]) {
        let mut words = description.split(' ');
        let (dbf_name, argument) = split(words.next().unwrap_or_default());
        let dbf = dbf_of(dbf_name);
        let (mut flags, mut initial) = (0, None);
        for word in words {
            match word {
                "NOMOD" => flags |= NOMOD,
                "PP" => flags |= PP,
                "ASL0" => flags |= ASL0,
                "DEVICE" => flags |= DEVICE,
                "INTEREST0" => flags |= INTEREST0,
                word => initial = word.strip_prefix('=').and_then(|number| number.parse::<f64>().ok()),
            }
        }
        let size = if dbf == Dbf::String { argument.parse().unwrap_or_default() } else { 0 };
        let menu = menus.iter().rfind(|(name, _)| dbf == Dbf::Menu && *name == argument);
        let menu = menu.map_or(&[] as &[&str], |(_, choices)| *choices);
        for name in expanded(names) {
            if dbf == Dbf::Array
                && let Some(array) = self.array_of(argument)
            {
                self.arrays.push((self.rows.len(), array));
            }
            let mut value = FieldValue::new(dbf);
            if let Some(Ok(initial)) = initial.map(|number| Scalar::F64(number).to_kind(dbf.kind(), None)) {
                value.slot().set(initial);
            }
            self.rows.push(FieldInfo { name, dbf, size, menu, flags });
            self.values.push(value);
        }
    }

    /// Parses `FLOAT,MPTS`. The fields named in it must precede the array.
    fn array_of(&self, argument: &'static str) -> Option<ArrayOf> {
        let (kind, capacity) = argument.split_once(',')?;
        let row = |name: &str| self.rows.iter().position(|row| row.name == name);
        let fixed = menu::FTYPE.iter().position(|choice| *choice == kind).and_then(|index| KINDS.get(index));
        let kind = fixed.map(|kind| KindOf::Fixed(*kind)).or_else(|| row(kind).map(KindOf::Row))?;
        let capacity = capacity.parse().map(CapacityOf::Fixed).ok().or_else(|| row(capacity).map(CapacityOf::Row))?;
        Some(ArrayOf { kind, capacity })
    }
}

/// Splits `STRING(40)` into `STRING` and `40`.
fn split(description: &str) -> (&str, &str) {
    let parts = description.strip_suffix(')').and_then(|inside| inside.split_once('('));
    parts.unwrap_or((description, ""))
}

fn dbf_of(name: &str) -> Dbf {
    match name {
        "CHAR" => Dbf::Char,
        "UCHAR" => Dbf::UChar,
        "SHORT" => Dbf::Short,
        "USHORT" => Dbf::UShort,
        "LONG" => Dbf::Long,
        "ULONG" => Dbf::ULong,
        "FLOAT" => Dbf::Float,
        "DOUBLE" => Dbf::Double,
        "MENU" => Dbf::Menu,
        "INLINK" => Dbf::InLink,
        "OUTLINK" => Dbf::OutLink,
        "ARRAY" => Dbf::Array,
        _ => Dbf::String,
    }
}

/// Expands `D{01..03}PV` to `D01PV`, `D02PV` and `D03PV`.
fn expanded(names: &'static str) -> Vec<&'static str> {
    let parts = names.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    let Some((before, (range, after))) = parts else { return vec![names] };
    let (first, last) = range.split_once("..").unwrap_or((range, range));
    let number = |text: &str| text.parse::<u32>().unwrap_or_default();
    let width = if first.starts_with('0') { first.len() } else { 1 };
    let name = |index: u32| &*format!("{before}{index:0width$}{after}").leak();
    (number(first)..=number(last)).map(name).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_line_of_every_field_table_is_parsed() {
        for (record_type, text) in TABLES {
            let Some(table) = table(record_type) else { panic!("{record_type} has no table") };

            for (row, value) in table.rows.iter().zip(&table.values) {
                assert!(row.dbf != Dbf::String || row.size > 0, "{record_type}.{}", row.name);
                assert!(row.dbf != Dbf::Menu || !row.menu.is_empty(), "{record_type}.{}", row.name);
                assert!(format!("{value:?}").starts_with(&format!("{:?}", row.dbf)), "{record_type}.{}", row.name);
            }
            let names: HashSet<&str> = table.rows.iter().map(|row| row.name).collect();
            assert_eq!(names.len(), table.rows.len(), "{record_type} has a field twice");
            assert!(table.rows.iter().any(|row| row.name == "VAL" && row.interest_level() == 0));
            assert_eq!(table.rows.iter().filter(|row| row.dbf == Dbf::Array).count(), table.arrays.len());
            assert!(
                text.lines().all(|line| line.starts_with('#') || line.starts_with("menu ") || line.contains(" : "))
            );
        }
    }

    #[test]
    fn a_name_range_expands_to_one_field_per_number() {
        assert_eq!(expanded("D{08..10}PV"), ["D08PV", "D09PV", "D10PV"]);
        assert_eq!(expanded("R{9..11}"), ["R9", "R10", "R11"]);
        assert_eq!(expanded("VAL"), ["VAL"]);
    }
}
