//! Links: the parsed text of INP, OUT, FLNK and other link fields, and the link's target.

use std::sync::Arc;

use fodo_data::{Scalar, Text};

use crate::Facts;
use crate::filter::Chain;
use crate::jlink::{self, JsonLink, Said};
use crate::json;
use crate::outside::Outside;

/// A link field: 8 bytes when it is empty, else the text and the target on the heap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link(Option<Box<LinkBody>>);

#[derive(Clone, Debug)]
struct LinkBody {
    text: Text,
    target: Target,
    /// The constants of a constant link: one number, or an array.
    constant: Option<Constant>,
    modifiers: Modifiers,
    /// The record and field name in the link; empty for other links.
    name: Text,
    special: Option<Arc<Special>>,
}

/// What is needed to read or write through a link. It is copied out of the record, so that the record can be unlocked.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) target: Target,
    pub(crate) special: Option<Arc<Special>>,
}

/// The properties of links that are not plain links to a field.
#[derive(Debug)]
pub(crate) enum Special {
    /// The link reads through filters; `facts` are the properties of the filtered channel.
    Filtered { chain: Chain, facts: Facts },
    /// A JSON link without a target field.
    Json(JsonLink),
    /// The target is a PV that is not in this database.
    Outside(Outside),
}

/// The value of a constant link.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Constant {
    One(Scalar),
    /// `[1,2,3]` or `["a","b"]`
    Many(Vec<Scalar>),
}

/// The target of a link. Small, so that it can be copied out of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The link is empty or a constant.
    Constant,
    /// A field of a record of this database.
    Field { record: u32, field: u16, modifiers: Modifiers },
    /// A PV that is not in this database, but may be in another IOC.
    Outside { is_time: bool },
    /// The link has no valid target: the record does not have the field, or the text is an address.
    Missing,
}

/// How an alarm is inherited through a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Inherit {
    /// NMS
    #[default]
    Not,
    /// MS: the severity, with status LINK.
    Severity,
    /// MSI: the severity, only if it is INVALID.
    Invalid,
    /// MSS: severity and status.
    Status,
}

/// Whether a link processes its target, or its target's changes process the record with the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// NPP
    #[default]
    None,
    /// PP
    Passive,
    /// CA: through a channel, even if the target is in this database.
    Channel,
    /// CP: the record with the link processes when the target changes.
    Change,
    /// CPP: as `Change`, if the record with the link is passive.
    ChangeIfPassive,
    /// As `Change`, if the record with the link has SCAN I/O Intr and accepts this link as trigger.
    ChangeIfInterrupt,
}

/// When a change of a link's target processes the record that has the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum When {
    Always,
    IfPassive,
    /// If SCAN is I/O Intr and the record accepts this link field (by number) as trigger.
    IfInterrupt(u16),
}

impl Modifiers {
    /// When changes of the link's target process its record; `None`: never. `field`: the link field.
    pub(crate) fn follows(self, field: u16) -> Option<When> {
        match self.trigger {
            Trigger::Change => Some(When::Always),
            Trigger::ChangeIfPassive => Some(When::IfPassive),
            Trigger::ChangeIfInterrupt => Some(When::IfInterrupt(field)),
            Trigger::None | Trigger::Passive | Trigger::Channel => None,
        }
    }

    /// Whether Base would use a channel even for a target in the same database.
    pub(crate) fn is_channel(self) -> bool {
        !matches!(self.trigger, Trigger::None | Trigger::Passive)
    }
}

/// The modifiers after the name in a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modifiers {
    pub(crate) trigger: Trigger,
    pub(crate) inherit: Inherit,
    /// For a TSEL whose target is a TIME field: the time stamp is copied.
    pub(crate) is_time: bool,
}

/// The kind of a link field. It decides which modifiers are effective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    In,
    Out,
    Forward,
    /// Names without modifiers ([`crate::field::PLAIN`]): an input whose target may trigger it, an output to a channel.
    PlainIn,
    PlainOut,
}

/// A parsed link text, before records are looked up.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Parsed {
    Empty,
    Constant(Constant),
    Name {
        name: String,
        modifiers: Modifiers,
    },
    /// `{...}` that is not a constant.
    Json(JsonLink),
    /// JSON that is not a valid link, and why.
    Wrong(String),
    /// `@...`: an address for a device support.
    Address,
    /// `#...`: a hardware address, which no device support here accepts.
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

    /// Whether the link is empty or a constant: reading it does not change values.
    pub(crate) fn is_constant(&self) -> bool {
        self.target() == Target::Constant
    }

    pub(crate) fn constant(&self) -> Option<&Constant> {
        self.0.as_ref().and_then(|body| body.constant.as_ref())
    }

    /// Whether the text is an address: `@...` or `#...`.
    pub(crate) fn is_address(&self) -> bool {
        // A plain link always has a name, even if its text starts with `@` or `#`.
        self.0.as_ref().is_some_and(|body| body.name.is_empty() && matches!(body.text.as_bytes(), [b'@' | b'#', ..]))
    }

    /// The text after the `@` of an address; empty if the link is not an address.
    pub(crate) fn address(&self) -> Text {
        let text = self.text();
        text.as_bytes().strip_prefix(b"@").map_or(Text::EMPTY, Text::from_bytes)
    }

    /// The name of the link's target, if the link has a name.
    pub(crate) fn name(&self) -> Option<&Text> {
        self.0.as_ref().map(|body| &body.name).filter(|name| !name.is_empty())
    }

    pub(crate) fn modifiers(&self) -> Modifiers {
        self.0.as_ref().map_or(Modifiers::default(), |body| body.modifiers)
    }

    /// Makes a link of a parsed text. A name has the target `Missing` until [`Link::lead_to`].
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

    /// The properties of a link that is not a plain link to a field.
    pub(crate) fn special(&self) -> Option<&Arc<Special>> {
        self.0.as_ref().and_then(|body| body.special.as_ref())
    }

    /// Makes the link read through filters.
    pub(crate) fn filter(&mut self, chain: Chain, facts: Facts) {
        if let Some(body) = &mut self.0 {
            body.special = Some(Arc::new(Special::Filtered { chain, facts }));
        }
    }

    /// Sets a PV outside this database as the target.
    pub(crate) fn lead_outside(&mut self, outside: Outside, is_time: bool) {
        if let Some(body) = &mut self.0 {
            body.target = Target::Outside { is_time };
            body.special = Some(Arc::new(Special::Outside(outside)));
        }
    }

    /// Sets the target.
    pub(crate) fn lead_to(&mut self, target: Target) {
        if let Some(body) = &mut self.0 {
            body.target = target;
        }
    }
}

/// The text of a link as clients read it back: the name and all modifiers.
fn canonical(name: &str, modifiers: Modifiers, side: Side) -> String {
    let trigger = match modifiers.trigger {
        Trigger::None => " NPP",
        Trigger::Passive => " PP",
        Trigger::Channel => " CA",
        Trigger::Change => " CP",
        Trigger::ChangeIfPassive => " CPP",
        // Only plain links have this trigger, and their text has no modifiers.
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

/// Parses a link text. Any text that is not a number, constant, JSON or address is a name.
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

/// Base searches for the modifiers anywhere after the name, so `PPMS` is PP and MS.
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
        // CP and CPP have no effect on an output.
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
        return Err("a forward link cannot be JSON; it needs the name of a record".into());
    }
    if text.starts_with('[') {
        let constant = jlink::constant(&json).ok_or("a constant list must contain only numbers or only texts")?;
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
