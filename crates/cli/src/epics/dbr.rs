//! The names and numbers of DBR types in the input and output of the tools.

use fodo_net::{Detail, Kind, Request};

/// The kinds in the order of their DBF numbers, with their names.
const KINDS: [(&str, Kind); 7] = [
    ("STRING", Kind::Text),
    ("SHORT", Kind::I16),
    ("FLOAT", Kind::F32),
    ("ENUM", Kind::Enum),
    ("CHAR", Kind::U8),
    ("LONG", Kind::I32),
    ("DOUBLE", Kind::F64),
];

/// The detail levels in the order of their DBR numbers, with their name prefix.
const LEVELS: [(&str, Detail); 5] = [
    ("DBR_", Detail::Value),
    ("DBR_STS_", Detail::Alarm),
    ("DBR_TIME_", Detail::Time),
    ("DBR_GR_", Detail::Graphic),
    ("DBR_CTRL_", Detail::Control),
];

const N_PLAIN: usize = KINDS.len() * LEVELS.len();

/// The number of a DBR type that can be requested: 0 to 34, 37 or 38.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dbr(usize);

impl Dbr {
    const ACKNOWLEDGE: Dbr = Dbr(37);
    const CLASS_NAME: Dbr = Dbr(38);

    /// `DBR_LONG`
    pub const LONG: Dbr = Dbr(5);

    /// Parses the value of `-d`: a number, or a name with or without `DBR_`; `INT` means `SHORT`.
    pub fn parse(text: &str) -> Option<Dbr> {
        let dbr = match super::options::leading_integer(text) {
            Some(number) => Dbr(usize::try_from(number).ok()?),
            None => {
                let name = text.strip_prefix("DBR_").unwrap_or(text);
                let name = match name.strip_suffix("INT") {
                    Some(level) => format!("DBR_{level}SHORT"),
                    None => format!("DBR_{name}"),
                };
                Self::all().find(|dbr| dbr.name() == name)?
            }
        };
        Self::all().find(|&known| known == dbr)
    }

    /// The type for a kind, converted to its wire kind, and a detail level.
    pub fn of(kind: Kind, detail: Detail) -> Dbr {
        let kind = KINDS.iter().position(|&(_, known)| known == on_the_wire(kind)).unwrap_or_default();
        match (LEVELS.iter().position(|&(_, known)| known == detail), detail) {
            (Some(level), _) => Dbr(level * KINDS.len() + kind),
            (None, Detail::ClassName) => Self::CLASS_NAME,
            (None, _) => Self::ACKNOWLEDGE,
        }
    }

    /// The name, for example `DBR_CTRL_DOUBLE`.
    pub fn name(self) -> String {
        match (LEVELS.get(self.0 / KINDS.len()), KINDS.get(self.0 % KINDS.len())) {
            (Some((level, _)), Some((kind, _))) => format!("{level}{kind}"),
            _ if self == Self::ACKNOWLEDGE => "DBR_STSACK_STRING".to_owned(),
            _ => "DBR_CLASS_NAME".to_owned(),
        }
    }

    /// A request for `count` elements of this type.
    pub fn request(self, count: u32) -> Request {
        Request { kind: Some(self.kind()), detail: self.detail(), count }
    }

    /// The kind of an element; strings for the two special types.
    pub fn kind(self) -> Kind {
        if self.0 >= N_PLAIN {
            return Kind::Text;
        }
        KINDS.get(self.0 % KINDS.len()).map_or(Kind::Text, |&(_, kind)| kind)
    }

    /// The detail level.
    pub fn detail(self) -> Detail {
        match LEVELS.get(self.0 / KINDS.len()) {
            Some(&(_, detail)) => detail,
            None if self == Self::CLASS_NAME => Detail::ClassName,
            None => Detail::AcknowledgeState,
        }
    }

    fn all() -> impl Iterator<Item = Dbr> {
        (0..N_PLAIN).map(Dbr).chain([Self::ACKNOWLEDGE, Self::CLASS_NAME])
    }
}

/// The DBF name of the wire kind, for example `DBF_DOUBLE`.
pub fn native_name(kind: Kind) -> String {
    let wire = on_the_wire(kind);
    let name = KINDS.iter().find(|&&(_, known)| known == wire).map_or("NO_ACCESS", |&(name, _)| name);
    format!("DBF_{name}")
}

/// The kind that represents `kind` in Channel Access.
fn on_the_wire(kind: Kind) -> Kind {
    match kind {
        Kind::Bool | Kind::I8 | Kind::U8 => Kind::U8,
        Kind::I16 => Kind::I16,
        Kind::U16 | Kind::I32 => Kind::I32,
        Kind::U32 | Kind::I64 | Kind::U64 | Kind::F64 => Kind::F64,
        Kind::F32 => Kind::F32,
        Kind::Enum => Kind::Enum,
        Kind::Text => Kind::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dbr_names_and_numbers_identify_the_same_types() {
        assert_eq!(Dbr::parse("CTRL_DOUBLE"), Dbr::parse("34"));
        assert_eq!(Dbr::parse("DBR_TIME_INT"), Dbr::parse("15"));
        assert_eq!(Dbr::parse("STSACK_STRING").map(Dbr::detail), Some(Detail::AcknowledgeState));
        assert_eq!(Dbr::parse("CLASS_NAME").map(Dbr::name).as_deref(), Some("DBR_CLASS_NAME"));
        for wrong in ["35", "36", "39", "-1", "NONSENSE", ""] {
            assert_eq!(Dbr::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_dbr_type_round_trips_through_kind_and_name() {
        for dbr in Dbr::all() {
            assert_eq!(Dbr::of(dbr.kind(), dbr.detail()), dbr);
            assert_eq!(Dbr::parse(&dbr.name()), Some(dbr));
        }
    }
}
