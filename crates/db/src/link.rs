//! Links: what the text in INP, OUT, FLNK means, and where it leads.

use std::sync::Arc;

use fodo_data::{Scalar, Text};

use crate::Facts;
use crate::filter::Chain;
use crate::jlink::{self, JsonLink, Said};
use crate::json;
use crate::outside::Outside;

/// A link field: 8 bytes when it is empty, else what it says and where it leads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link(Option<Box<LinkBody>>);

#[derive(Clone, Debug)]
struct LinkBody {
    text: Text,
    target: Target,
    /// The constants of a constant link: one number, or an array.
    constant: Option<Constant>,
    modifiers: Modifiers,
    /// The name of the record and the field as the link gives them, while it leads nowhere.
    name: Text,
    special: Option<Arc<Special>>,
}

/// All that reading and writing through a link needs to know; taken out of the record before it is followed.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) target: Target,
    pub(crate) special: Option<Arc<Special>>,
}

/// What a link does besides leading to a field, or instead.
#[derive(Debug)]
pub(crate) enum Special {
    /// Reads through filters; what the channel then tells of itself.
    Filtered { chain: Chain, facts: Facts },
    /// Leads to no field.
    Json(JsonLink),
    /// Leads to a PV that another IOC may have.
    Outside(Outside),
}

/// What a constant link says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Constant {
    One(Scalar),
    /// `[1,2,3]` or `["a","b"]`
    Many(Vec<Scalar>),
}

/// Where a link leads; small, and copied out of the record before it is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Nowhere, or to a constant.
    Constant,
    /// To a field of a record of this database.
    Field { record: u32, field: u16, modifiers: Modifiers },
    /// To a PV that another IOC may have.
    Outside { is_time: bool },
    /// Nowhere that can be: a field that the record does not have, an address.
    Missing,
}

/// How alarms travel along a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Inherit {
    /// NMS
    #[default]
    Not,
    /// MS: the severity, as LINK.
    Severity,
    /// MSI: the severity, if it is INVALID.
    Invalid,
    /// MSS: severity and status.
    Status,
}

/// When a link processes what it leads to, or is processed by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// NPP
    #[default]
    None,
    /// PP
    Passive,
    /// CA: through a channel even when the record is here.
    Channel,
    /// CP: the record with the link processes when the target changes.
    Change,
    /// CPP: the same, if it is passive.
    ChangeIfPassive,
    /// The same, if its SCAN is I/O Intr and it says so of this link.
    ChangeIfInterrupt,
}

/// Which change of a link's target processes the record that has the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum When {
    Always,
    IfPassive,
    /// The number of the link's field: the record is asked about it.
    IfInterrupt(u16),
}

impl Modifiers {
    /// Whether a link makes its record follow its target, and when; `field` is the link's own.
    pub(crate) fn follows(self, field: u16) -> Option<When> {
        match self.trigger {
            Trigger::Change => Some(When::Always),
            Trigger::ChangeIfPassive => Some(When::IfPassive),
            Trigger::ChangeIfInterrupt => Some(When::IfInterrupt(field)),
            Trigger::None | Trigger::Passive | Trigger::Channel => None,
        }
    }

    /// Whether Base would go through a channel, even to a record that is here.
    pub(crate) fn is_channel(self) -> bool {
        !matches!(self.trigger, Trigger::None | Trigger::Passive)
    }
}

/// The words after the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modifiers {
    pub(crate) trigger: Trigger,
    pub(crate) inherit: Inherit,
    /// A TSEL that leads to a TIME field takes the time itself.
    pub(crate) is_time: bool,
}

/// Which kind of link field the text stands in; it decides which modifiers mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    In,
    Out,
    Forward,
    /// Names without modifiers ([`crate::field::PLAIN`]): an input that may follow its target, an output to a channel.
    PlainIn,
    PlainOut,
}

/// What a link text says, before records are looked up.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Parsed {
    Empty,
    Constant(Constant),
    Name {
        name: String,
        modifiers: Modifiers,
    },
    /// `{...}` that is no constant.
    Json(JsonLink),
    /// JSON that is no link, and why.
    Wrong(String),
    /// `@...`: what a device support does not read through a link.
    Address,
    /// `#...`: hardware addresses, which no device here takes.
    Unsupported,
}

impl Link {
    pub(crate) const NONE: Link = Link(None);

    pub(crate) fn text(&self) -> Text {
        self.0.as_ref().map_or(Text::EMPTY, |body| body.text.clone())
    }

    pub(crate) fn target(&self) -> Target {
        self.0.as_ref().map_or(Target::Constant, |body| body.target)
    }

    /// Whether it is empty or a constant: reading it leaves values as they are.
    pub(crate) fn is_constant(&self) -> bool {
        self.target() == Target::Constant
    }

    pub(crate) fn constant(&self) -> Option<&Constant> {
        self.0.as_ref().and_then(|body| body.constant.as_ref())
    }

    /// Whether it is `@...` or `#...`.
    pub(crate) fn is_address(&self) -> bool {
        // A name of such a link is plain, whatever it looks like.
        self.0.as_ref().is_some_and(|body| body.name.is_empty() && matches!(body.text.as_bytes(), [b'@' | b'#', ..]))
    }

    /// What follows the `@` of an address; empty when it is none.
    pub(crate) fn address(&self) -> Text {
        let text = self.text();
        text.as_bytes().strip_prefix(b"@").map_or(Text::EMPTY, Text::from_bytes)
    }

    /// The name it leads to, when it leads to a name.
    pub(crate) fn name(&self) -> Option<&Text> {
        self.0.as_ref().map(|body| &body.name).filter(|name| !name.is_empty())
    }

    pub(crate) fn modifiers(&self) -> Modifiers {
        self.0.as_ref().map_or(Modifiers::default(), |body| body.modifiers)
    }

    /// A link whose text was parsed; a name leads nowhere until [`Link::lead_to`].
    pub(crate) fn from_parsed(text: &str, parsed: &Parsed, side: Side) -> Link {
        let plain = LinkBody {
            text: text.trim().into(),
            target: Target::Missing,
            constant: None,
            modifiers: Modifiers::default(),
            name: Text::EMPTY,
            special: None,
        };
        let body = match parsed {
            Parsed::Empty => return Link::NONE,
            Parsed::Constant(constant) => {
                LinkBody { target: Target::Constant, constant: Some(constant.clone()), ..plain }
            }
            Parsed::Name { name, modifiers } => LinkBody {
                text: canonical(name, *modifiers, side).into(),
                modifiers: *modifiers,
                name: name.as_str().into(),
                ..plain
            },
            Parsed::Json(link) => LinkBody { special: Some(Arc::new(Special::Json(link.clone()))), ..plain },
            Parsed::Wrong(_) | Parsed::Address | Parsed::Unsupported => plain,
        };
        Link(Some(Box::new(body)))
    }

    pub(crate) fn path(&self) -> Path {
        Path { target: self.target(), special: self.special().cloned() }
    }

    /// What it does besides leading to a field, or instead.
    pub(crate) fn special(&self) -> Option<&Arc<Special>> {
        self.0.as_ref().and_then(|body| body.special.as_ref())
    }

    /// What it reads goes through filters.
    pub(crate) fn filter(&mut self, chain: Chain, facts: Facts) {
        if let Some(body) = &mut self.0 {
            body.special = Some(Arc::new(Special::Filtered { chain, facts }));
        }
    }

    /// Leads to a PV that another IOC may have.
    pub(crate) fn lead_outside(&mut self, outside: Outside, is_time: bool) {
        if let Some(body) = &mut self.0 {
            body.target = Target::Outside { is_time };
            body.special = Some(Arc::new(Special::Outside(outside)));
        }
    }

    /// Says where the name leads.
    pub(crate) fn lead_to(&mut self, target: Target) {
        if let Some(body) = &mut self.0 {
            body.target = target;
        }
    }
}

/// A link's text as clients read it back: the name and all of its modifiers.
fn canonical(name: &str, modifiers: Modifiers, side: Side) -> String {
    let trigger = match modifiers.trigger {
        Trigger::None => " NPP",
        Trigger::Passive => " PP",
        Trigger::Channel => " CA",
        Trigger::Change => " CP",
        Trigger::ChangeIfPassive => " CPP",
        // Only plain links have it, and they show no words.
        Trigger::ChangeIfInterrupt => "",
    };
    let inherit = match modifiers.inherit {
        Inherit::Not => " NMS",
        Inherit::Severity => " MS",
        Inherit::Invalid => " MSI",
        Inherit::Status => " MSS",
    };
    match side {
        Side::Forward if modifiers.trigger == Trigger::Channel => format!("{name} CA"),
        Side::Forward => name.to_owned(),
        Side::In | Side::Out => format!("{name}{trigger}{inherit}"),
        Side::PlainIn | Side::PlainOut => name.to_owned(),
    }
}

/// Reads a link text. Never fails: what is no number, constant or address is a name.
pub(crate) fn parse(text: &str, side: Side) -> Parsed {
    let text = text.trim();
    if text.is_empty() {
        return Parsed::Empty;
    }
    if matches!(side, Side::PlainIn | Side::PlainOut) {
        return Parsed::Name { name: text.to_owned(), modifiers: modifiers("", side) };
    }
    if text.starts_with('@') {
        return Parsed::Address;
    }
    if text.starts_with('#') {
        return Parsed::Unsupported;
    }
    if text.starts_with(['{', '[']) {
        return parse_json(text, side).unwrap_or_else(Parsed::Wrong);
    }
    if let Some(number) = number(text) {
        return Parsed::Constant(Constant::One(number));
    }
    let (name, words) = text.split_once(' ').unwrap_or((text, ""));
    Parsed::Name { name: name.to_owned(), modifiers: modifiers(words, side) }
}

/// Base looks for the words anywhere in the rest, so `PPMS` is both.
fn modifiers(words: &str, side: Side) -> Modifiers {
    let trigger = if words.contains("NPP") {
        Trigger::None
    } else if words.contains("CPP") {
        Trigger::ChangeIfPassive
    } else if words.contains("PP") {
        Trigger::Passive
    } else if words.contains("CA") {
        Trigger::Channel
    } else if words.contains("CP") {
        Trigger::Change
    } else {
        Trigger::None
    };
    let inherit = if words.contains("NMS") {
        Inherit::Not
    } else if words.contains("MSI") {
        Inherit::Invalid
    } else if words.contains("MSS") {
        Inherit::Status
    } else if words.contains("MS") {
        Inherit::Severity
    } else {
        Inherit::Not
    };
    match side {
        Side::In => Modifiers { trigger, inherit, is_time: false },
        Side::PlainIn => Modifiers { trigger: Trigger::ChangeIfInterrupt, ..Modifiers::default() },
        Side::PlainOut => Modifiers { trigger: Trigger::Channel, ..Modifiers::default() },
        // An output cannot follow its target.
        Side::Out if matches!(trigger, Trigger::Change | Trigger::ChangeIfPassive) => {
            Modifiers { trigger: Trigger::None, inherit, is_time: false }
        }
        Side::Out => Modifiers { trigger, inherit, is_time: false },
        Side::Forward => Modifiers {
            trigger: if trigger == Trigger::Channel { trigger } else { Trigger::None },
            inherit: Inherit::Not,
            is_time: false,
        },
    }
}

fn number(text: &str) -> Option<Scalar> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Some(digits) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let size = i64::from_str_radix(digits, 16).ok()?;
        return Some(Scalar::I64(if text.starts_with('-') { -size } else { size }));
    }
    if let Ok(whole) = text.parse::<i64>() {
        return Some(Scalar::I64(whole));
    }
    text.parse::<f64>().ok().map(Scalar::F64)
}

/// A list of constants, or a JSON link.
fn parse_json(text: &str, side: Side) -> Result<Parsed, String> {
    let json = json::read(text).map_err(|error| format!("{} at character {}", error.what, error.at + 1))?;
    if side == Side::Forward {
        return Err("a forward link leads to a record".into());
    }
    if text.starts_with('[') {
        let constant = jlink::constant(&json).ok_or("a list has numbers, or texts")?;
        return Ok(Parsed::Constant(constant));
    }
    Ok(match jlink::said(&json, side == Side::Out)? {
        Said::Constant(constant) => Parsed::Constant(constant),
        Said::Link(link) => Parsed::Json(link),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str, side: Side) -> (String, Modifiers) {
        match parse(text, side) {
            Parsed::Name { name, modifiers } => (name, modifiers),
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn an_empty_link_costs_eight_bytes() {
        assert_eq!(size_of::<Link>(), 8);
    }

    #[test]
    fn modifiers_are_found_anywhere_after_the_name() {
        let (name, modifiers) = named("P:a.VAL  PP MSS", Side::In);

        assert_eq!(name, "P:a.VAL");
        assert_eq!(modifiers, Modifiers { trigger: Trigger::Passive, inherit: Inherit::Status, is_time: false });
        assert_eq!(named("a CPP", Side::In).1.trigger, Trigger::ChangeIfPassive);
        assert_eq!(named("a CP", Side::Out).1.trigger, Trigger::None);
        assert_eq!(named("a PP MS", Side::Forward).1, Modifiers::default());
    }

    #[test]
    fn numbers_texts_and_lists_are_constants() {
        assert_eq!(parse("1.5", Side::In), Parsed::Constant(Constant::One(Scalar::F64(1.5))));
        assert_eq!(parse(" 0x10 ", Side::In), Parsed::Constant(Constant::One(Scalar::I64(16))));
        assert_eq!(parse("[1, 2]", Side::In), Parsed::Constant(Constant::Many(vec![Scalar::I64(1), Scalar::I64(2)])));
        assert_eq!(parse("[1, 2.5]", Side::In), parse("{const:[1.0,2.5]}", Side::In));
        assert!(matches!(parse("[\"a\", 1]", Side::In), Parsed::Wrong(_)));
        assert_eq!(parse("  ", Side::In), Parsed::Empty);
    }

    #[test]
    fn a_plain_link_is_a_name_whatever_it_looks_like() {
        assert_eq!(named("12", Side::PlainIn).0, "12");
        assert_eq!(named("a.B", Side::PlainOut).1.trigger, Trigger::Channel);
        assert_eq!(named("a", Side::PlainIn).1.follows(7), Some(When::IfInterrupt(7)));
        let link = Link::from_parsed("a.B", &parse("a.B", Side::PlainOut), Side::PlainOut);
        assert_eq!(link.text(), "a.B".into());
    }

    #[test]
    fn a_link_reads_back_with_all_its_modifiers() {
        let link = |text, side| Link::from_parsed(text, &parse(text, side), side).text();

        assert_eq!(link("rec", Side::In), "rec NPP NMS".into());
        assert_eq!(link("rec.A PP MS", Side::Out), "rec.A PP MS".into());
        assert_eq!(link("rec PP", Side::Forward), "rec".into());
        assert_eq!(link("3", Side::In), "3".into());
    }
}
