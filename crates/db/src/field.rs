//! Field types, and the macro that turns a record type's table of fields into its struct.

use fodo_data::{Array, Kind, Scalar, Text, Value};

use crate::link::{Link, LinkKind};

/// The Rust type of each field type; the tables of fields use these names.
#[expect(dead_code, reason = "no field of the record types so far is CHAR or INT64")]
pub(crate) mod dbf {
    pub(crate) type String = fodo_data::Text;
    pub(crate) type Char = i8;
    pub(crate) type UChar = u8;
    pub(crate) type Short = i16;
    pub(crate) type UShort = u16;
    pub(crate) type Long = i32;
    pub(crate) type ULong = u32;
    pub(crate) type Int64 = i64;
    pub(crate) type UInt64 = u64;
    pub(crate) type Float = f32;
    pub(crate) type Double = f64;
    pub(crate) type Enum = u16;
    pub(crate) type Menu = u16;
    pub(crate) type Device = u16;
    pub(crate) type InLink = crate::link::Link;
    pub(crate) type OutLink = crate::link::Link;
    pub(crate) type FwdLink = crate::link::Link;
    pub(crate) type Array = fodo_data::Array;
}

/// A put to the field processes a passive record.
pub(crate) const PP: u32 = 1;
/// The field is a property: a put to it posts `DBE_PROPERTY`.
pub(crate) const PROP: u32 = 1 << 1;
/// Access security level 0: rules of level 0 apply as well as those of level 1.
pub(crate) const ASL0: u32 = 1 << 2;
/// No put is accepted.
pub(crate) const NOMOD: u32 = 1 << 3;
/// A put to the field calls the record's hook.
pub(crate) const SPECIAL: u32 = 1 << 4;
/// The field determines the record's scan list or its position there.
pub(crate) const SCAN: u32 = 1 << 5;
/// The number is shown in hexadecimal.
pub(crate) const HEX: u32 = 1 << 6;
/// A link whose text is only a name: no constants, no modifiers.
pub(crate) const PLAIN: u32 = 1 << 7;
/// A link that the device support interprets (INP, OUT): DTYP decides which texts it accepts.
pub(crate) const DEVICE: u32 = 1 << 8;
/// An expression of the calc language, which the record compiles.
pub(crate) const EXPRESSION: u32 = 1 << 9;
/// SIMM: a change exchanges SCAN and the field with [`SIMULATION_SCAN`].
pub(crate) const SIMULATION_MODE: u32 = 1 << 10;
/// OLDSIMM: the value of SIMM before a put to it.
pub(crate) const OLD_SIMULATION_MODE: u32 = 1 << 11;
/// SSCN: the choice of SCAN in simulation mode.
pub(crate) const SIMULATION_SCAN: u32 = 1 << 12;
/// Seconds after which a momentary output ends (HIGH of bo).
pub(crate) const DELAY: u32 = 1 << 13;
/// An enum that accepts the number of a state with any text after it.
pub(crate) const NUMBERED: u32 = 1 << 14;
/// `dbpr` shows the field at every level. Without an attribute of this family, it shows the field from level 1 on.
///
/// Source: the attribute `interest` in EPICS Base's descriptions of record types.
pub(crate) const INTEREST0: u32 = 1 << 15;
/// `dbpr` shows the field from level 2 on.
pub(crate) const INTEREST2: u32 = 1 << 16;
/// `dbpr` shows the field from level 3 on.
pub(crate) const INTEREST3: u32 = 1 << 17;
/// `dbpr` shows the field at level 4: it is internal to the record.
pub(crate) const INTEREST4: u32 = 1 << 18;

/// The type of a field, with the names of EPICS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dbf {
    String,
    Char,
    UChar,
    Short,
    UShort,
    Long,
    ULong,
    Int64,
    UInt64,
    Float,
    Double,
    Enum,
    Menu,
    Device,
    InLink,
    OutLink,
    FwdLink,
    Array,
}

impl Dbf {
    pub(crate) const fn is_link(self) -> bool {
        matches!(self, Dbf::InLink | Dbf::OutLink | Dbf::FwdLink)
    }

    /// The kind of an element that clients see. For an array, each field defines its kind.
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Dbf::String | Dbf::InLink | Dbf::OutLink | Dbf::FwdLink => Kind::Text,
            Dbf::Char => Kind::I8,
            Dbf::UChar => Kind::U8,
            Dbf::Short => Kind::I16,
            Dbf::UShort => Kind::U16,
            Dbf::Long => Kind::I32,
            Dbf::ULong => Kind::U32,
            Dbf::Int64 => Kind::I64,
            Dbf::UInt64 => Kind::U64,
            Dbf::Float => Kind::F32,
            Dbf::Double | Dbf::Array => Kind::F64,
            Dbf::Enum | Dbf::Menu | Dbf::Device => Kind::Enum,
        }
    }
}

/// One row of a table of fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldInfo {
    /// The name in capitals.
    pub(crate) name: &'static str,
    pub(crate) dbf: Dbf,
    /// Size of a string in bytes, with its NUL; 0 for other types.
    pub(crate) size: u16,
    /// The choices of a menu.
    pub(crate) menu: &'static [&'static str],
    /// `PP | PROP | ...`
    pub(crate) flags: u32,
}

impl FieldInfo {
    pub(crate) const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The level from which `dbpr` shows the field, from 0 to 4.
    pub(crate) fn interest_level(&self) -> u8 {
        let attributes = [(INTEREST0, 0), (INTEREST2, 2), (INTEREST3, 3), (INTEREST4, 4)];
        attributes.into_iter().find(|(flag, _)| self.has(*flag)).map_or(1, |(_, level)| level)
    }

    /// The kind of a link field.
    pub(crate) const fn link_kind(&self) -> LinkKind {
        match self.dbf {
            Dbf::OutLink if self.has(PLAIN) => LinkKind::PlainOut,
            Dbf::InLink if self.has(PLAIN) => LinkKind::PlainIn,
            Dbf::OutLink => LinkKind::Out,
            Dbf::FwdLink => LinkKind::Forward,
            _ => LinkKind::In,
        }
    }
}

/// A reference to a field of a locked record.
#[derive(Debug)]
pub(crate) enum Slot<'a> {
    String(&'a mut Text),
    Char(&'a mut i8),
    UChar(&'a mut u8),
    Short(&'a mut i16),
    UShort(&'a mut u16),
    Long(&'a mut i32),
    ULong(&'a mut u32),
    Int64(&'a mut i64),
    UInt64(&'a mut u64),
    Float(&'a mut f32),
    Double(&'a mut f64),
    Enum(&'a mut u16),
    Menu(&'a mut u16),
    Device(&'a mut u16),
    InLink(&'a mut Link),
    OutLink(&'a mut Link),
    FwdLink(&'a mut Link),
    Array(&'a mut Array),
}

impl Slot<'_> {
    /// The present value of the field; an array is shared, not copied.
    pub(crate) fn value(&self) -> Value {
        match self {
            Slot::String(field) => Value::from((**field).clone()),
            Slot::Char(field) => Value::from(**field),
            Slot::UChar(field) => Value::from(**field),
            Slot::Short(field) => Value::from(**field),
            Slot::UShort(field) => Value::from(**field),
            Slot::Long(field) => Value::from(**field),
            Slot::ULong(field) => Value::from(**field),
            Slot::Int64(field) => Value::from(**field),
            Slot::UInt64(field) => Value::from(**field),
            Slot::Float(field) => Value::from(**field),
            Slot::Double(field) => Value::from(**field),
            Slot::Enum(field) | Slot::Menu(field) | Slot::Device(field) => Value::Scalar(Scalar::Enum(**field)),
            Slot::InLink(field) | Slot::OutLink(field) | Slot::FwdLink(field) => Value::from(field.text()),
            Slot::Array(field) => Value::Array((**field).clone()),
        }
    }

    /// Sets the field to an element of exactly its kind; false if the kind differs.
    pub(crate) fn set(&mut self, scalar: Scalar) -> bool {
        match (self, scalar) {
            (Slot::String(field), Scalar::Text(text)) => **field = text,
            (Slot::Char(field), Scalar::I8(number)) => **field = number,
            (Slot::UChar(field), Scalar::U8(number)) => **field = number,
            (Slot::Short(field), Scalar::I16(number)) => **field = number,
            (Slot::UShort(field), Scalar::U16(number)) => **field = number,
            (Slot::Long(field), Scalar::I32(number)) => **field = number,
            (Slot::ULong(field), Scalar::U32(number)) => **field = number,
            (Slot::Int64(field), Scalar::I64(number)) => **field = number,
            (Slot::UInt64(field), Scalar::U64(number)) => **field = number,
            (Slot::Float(field), Scalar::F32(number)) => **field = number,
            (Slot::Double(field), Scalar::F64(number)) => **field = number,
            (Slot::Enum(field) | Slot::Menu(field) | Slot::Device(field), Scalar::Enum(index)) => **field = index,
            _ => return false,
        }
        true
    }
}

/// The text, truncated so that it fits into `size` bytes with its NUL.
pub(crate) fn fitting_text(text: &Text, size: usize) -> Text {
    match text.as_bytes().get(..size.saturating_sub(1)) {
        Some(start) if start.len() < text.len() => Text::from_bytes(start),
        _ => text.clone(),
    }
}

/// The index of the row `name` in a table. A missing name is a compile error in constants.
pub(crate) const fn position(rows: &[FieldInfo], name: &str) -> u16 {
    let mut index = 0;
    while index < rows.len() {
        if same(rows[index].name.as_bytes(), name.as_bytes()) {
            return index as u16;
        }
        index += 1;
    }
    assert!(index < rows.len(), "no field of this name");
    0
}

const fn same(left: &[u8], right: &[u8]) -> bool {
    let mut index = 0;
    while index < left.len() && index < right.len() && left[index] == right[index] {
        index += 1;
    }
    index == left.len() && index == right.len()
}

/// The names of `N` successive rows, from the row `first` on; for the messages of links.
pub(crate) const fn names<const N: usize>(rows: &[FieldInfo], first: &str) -> [&'static str; N] {
    let first = position(rows, first) as usize;
    let mut names = [""; N];
    let mut index = 0;
    while index < N {
        names[index] = rows[first + index].name;
        index += 1;
    }
    names
}

/// Returns a reference to a field of a locked record.
pub(crate) type SlotOf<R> = for<'a> fn(&'a mut R) -> Slot<'a>;

/// Turns a table of fields into a struct, its initial values, the rows, and access by number.
///
/// `fields`: rows `"NAME" rust_name: Type(size or menu) = initial, ATTRIBUTES;`, and groups `..group(arguments);` of
/// `record/groups.rs`, which stand for their rows. `arrays`: `rust_name: [Type(size or menu); n] [ATTRIBUTES] "PREFIX"
/// LABELS "SUFFIX" = initial;` for families like INPA to INPU, with the labels of `record/groups.rs`; suffix and initial
/// value are optional. `private`: members that clients cannot access.
macro_rules! record_fields {
    ($(#[$doc:meta])* $record:ident fields { $($rows:tt)* } arrays { $($families:tt)* } private $private:tt) => {
        $crate::field::with_groups! { [$(#[$doc])* $record $private { $($families)* }] [] $($rows)* }
    };
}

/// Replaces the groups in a table by their rows, one after another, then continues with the families.
macro_rules! with_groups {
    ($head:tt [$($done:tt)*]
        $($name:literal $field:ident: $dbf:ident $(($arg:expr))? $(= $initial:expr)? $(, $($flag:ident)+)?;)*
        ..$group:ident $group_args:tt; $($rest:tt)*) => {
        $crate::record::groups::$group! { $group_args $head
            [$($done)* $($name $field: $dbf $(($arg))? $(= $initial)? $(, $($flag)+)?;)*] $($rest)* }
    };
    ([$(#[$doc:meta])* $record:ident $private:tt { $($families:tt)* }] [$($done:tt)*] $($rows:tt)*) => {
        $crate::field::with_labels! { [$(#[$doc])* $record $private { $($done)* $($rows)* }] [] $($families)* }
    };
}

/// Replaces the labels of the families by their lists, one after another, then defines the struct.
macro_rules! with_labels {
    (@list $list:tt $head:tt [$($done:tt)*] [$($family:tt)*] $suffix:literal $(= $initial:expr)?; $($rest:tt)*) => {
        $crate::field::with_labels! { $head [$($done)* { $($family)* $suffix $list [$($initial)?] }] $($rest)* }
    };
    (@list $list:tt $head:tt [$($done:tt)*] [$($family:tt)*] $(= $initial:expr)?; $($rest:tt)*) => {
        $crate::field::with_labels! { $head [$($done)* { $($family)* "" $list [$($initial)?] }] $($rest)* }
    };
    ([$($head:tt)*] [$($done:tt)*]) => {
        $crate::field::record_struct! { $($head)* $($done)* }
    };
    ($head:tt $done:tt $family:ident: $elements:tt $flags:tt $prefix:literal $labels:ident $($rest:tt)*) => {
        $crate::record::groups::labels! { $labels $head $done [$family: $elements $flags $prefix] $($rest)* }
    };
}

/// Defines the struct of a table without groups, with the labels of each family.
macro_rules! record_struct {
    (
        $(#[$doc:meta])* $record:ident
        { $($(#[$private_doc:meta])* $private:ident: $ptype:ty;)* }
        { $($name:literal $field:ident: $dbf:ident $(($arg:expr))? $(= $initial:expr)? $(, $($flag:ident)+)?;)* }
        $({ $family:ident: [$fdbf:ident $farg:tt; $n:literal] $fflags:tt $prefix:literal $suffix:literal
            [$($label:literal $index:literal)*] [$($finitial:expr)?] })*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $record {
            $(pub(crate) $field: $crate::field::dbf::$dbf,)*
            $(pub(crate) $family: [$crate::field::dbf::$fdbf; $n],)*
            $($(#[$private_doc])* pub(crate) $private: $ptype,)*
        }

        impl Default for $record {
            fn default() -> Self {
                Self {
                    $($field: $crate::field::initial!($($initial)?),)*
                    $($family: std::array::from_fn(|_| $crate::field::initial!($($finitial)?)),)*
                    $($private: Default::default(),)*
                }
            }
        }

        impl $record {
            /// The rows of the table.
            pub(crate) const ROWS: &'static [$crate::field::FieldInfo] = &[
                $($crate::field::FieldInfo {
                    name: $name,
                    dbf: $crate::field::Dbf::$dbf,
                    size: $crate::field::size!($dbf ($($arg)?)),
                    menu: $crate::field::choices!($dbf ($($arg)?)),
                    flags: $crate::field::flags!([$($($flag)+)?]),
                },)*
                $($($crate::field::FieldInfo {
                    name: concat!($prefix, $label, $suffix),
                    dbf: $crate::field::Dbf::$fdbf,
                    size: $crate::field::size!($fdbf $farg),
                    menu: $crate::field::choices!($fdbf $farg),
                    flags: $crate::field::flags!($fflags),
                },)*)*
            ];

            /// Access to the fields, in the order of the rows.
            pub(crate) const SLOTS: &'static [$crate::field::SlotOf<Self>] = &[
                $(|record| $crate::field::Slot::$dbf(&mut record.$field),)*
                $($(|record| $crate::field::Slot::$fdbf(&mut record.$family[$index]),)*)*
            ];
        }
    };
}

macro_rules! initial {
    () => {
        Default::default()
    };
    ($initial:expr) => {
        $initial
    };
}

macro_rules! size {
    (String ($size:expr)) => {
        $size
    };
    ($dbf:ident $arg:tt) => {
        0
    };
}

macro_rules! choices {
    (Menu ($menu:expr)) => {
        $menu
    };
    ($dbf:ident $arg:tt) => {
        &[]
    };
}

macro_rules! flags {
    ([$($flag:ident)*]) => { 0 $(| $crate::field::$flag)* };
}

pub(crate) use {choices, flags, initial, record_fields, record_struct, size, with_groups, with_labels};
