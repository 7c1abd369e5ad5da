//! Links: the parsed text of INP, OUT, FLNK and other link fields, and the link's target.

pub(crate) mod external;
pub(crate) mod inherit;
pub(crate) mod json_link;
pub(crate) mod pva_link;

use std::sync::Arc;

use fodo_data::{Kind, Scalar, Text, format_f64, number_at_start};

use crate::external_pv::PvaLink;
use crate::filter::FilterChain;
use crate::json;
use crate::link::external::ExternalPv;
use crate::link::json_link::{JsonLink, JsonLinkOrConstant};
use crate::link::pva_link::ParsedPvaLink;
use crate::reference::FieldFacts;

/// A link that could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkError;

/// A link field: 8 bytes when it is empty, else the text and the target on the heap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link(Option<Box<LinkBody>>);

#[derive(Clone, Debug)]
struct LinkBody {
    text: Text,
    target: Target,
    /// The value of a constant link.
    constant: Option<Constant>,
    modifiers: Modifiers,
    /// The record and field name in the link; empty for other links.
    name: Text,
    extra: Option<Arc<LinkExtra>>,
}

/// What is needed to read or write through a link. It is copied out of the record, so that the record can be unlocked.
#[derive(Clone, Debug)]
pub(crate) struct LinkAccess {
    pub(crate) target: Target,
    pub(crate) extra: Option<Arc<LinkExtra>>,
}

/// The properties of links that are not plain links to a field.
#[derive(Debug)]
pub(crate) enum LinkExtra {
    /// The link reads through filters; `facts` are the properties of the filtered channel.
    Filtered { chain: FilterChain, facts: FieldFacts },
    /// A JSON link without a target field.
    Json(JsonLink),
    /// A link over pvAccess, before it is joined.
    Pva(Arc<PvaLink>),
    /// The target is a PV that is not in this database, or any PV over pvAccess.
    External(ExternalPv),
}

/// The value of a constant link.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Constant {
    /// A number, as the file writes it: a field parses it as if it were put to the field.
    Number(Text),
    /// `{const:1}` or `{const:"a"}`
    One(Scalar),
    /// `{const:[1,2,3]}` or `{const:["a","b"]}`
    Many(Vec<Scalar>),
    /// `[1,2,3]` or `["a","b"]`: as in Base, its texts are not parsed as numbers.
    List(Vec<Scalar>),
}

impl Constant {
    /// The value for a field with a single element of a kind.
    pub(crate) fn first(&self, kind: Kind) -> Option<Scalar> {
        let number;
        let scalar = match self {
            Constant::Number(text) => {
                number = Scalar::Text(text.clone());
                &number
            }
            Constant::One(scalar) => scalar,
            Constant::Many(scalars) => scalars.first()?,
            Constant::List(scalars) => {
                scalars.first().filter(|scalar| kind == Kind::Text || scalar.kind() != Kind::Text)?
            }
        };
        match kind {
            Kind::Text => Some(Scalar::Text(text_of_constant(scalar))),
            kind => scalar.to_kind(kind, None).ok(),
        }
    }

    /// The elements for an array of a kind; `None`: the constant has no elements of this kind. As in Base, a number is
    /// read as JSON here, which has no octal numbers.
    pub(crate) fn elements(&self, kind: Kind) -> Option<Vec<Scalar>> {
        match self {
            Constant::Number(text) => {
                let json = json::read(&text.to_str()).ok()?;
                json_link::scalar(&json).map(|scalar| vec![scalar])
            }
            Constant::One(scalar) => Some(vec![scalar.clone()]),
            Constant::Many(scalars) => Some(scalars.clone()).filter(|scalars| !scalars.is_empty()),
            Constant::List(scalars) => {
                let has_texts = scalars.iter().any(|scalar| scalar.kind() == Kind::Text);
                (kind == Kind::Text || !has_texts).then(|| scalars.clone())
            }
        }
    }
}

/// A number or a text of a constant as a text: real numbers have six decimals, as in Base.
pub(crate) fn text_of_constant(scalar: &Scalar) -> Text {
    const DECIMALS: i16 = 6;
    match scalar {
        Scalar::F64(number) => format_f64(*number, DECIMALS).into(),
        scalar => scalar.to_text(None),
    }
}

/// The target of a link. Small, so that it can be copied out of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The link is empty or a constant.
    Constant,
    /// A field of a record of this database.
    Field { record: u32, field: u16, modifiers: Modifiers },
    /// A PV that is not in this database, but may be in another IOC.
    External { is_time: bool },
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
pub(crate) enum TriggerCondition {
    Always,
    IfPassive,
    /// If SCAN is I/O Intr and the record accepts this link field (by number) as trigger.
    IfInterrupt(u16),
}

impl Modifiers {
    /// When changes of the link's target process its record; `None`: never. `field`: the link field.
    pub(crate) fn follows(self, field: u16) -> Option<TriggerCondition> {
        match self.trigger {
            Trigger::Change => Some(TriggerCondition::Always),
            Trigger::ChangeIfPassive => Some(TriggerCondition::IfPassive),
            Trigger::ChangeIfInterrupt => Some(TriggerCondition::IfInterrupt(field)),
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
pub(crate) enum LinkKind {
    In,
    Out,
    Forward,
    /// Names without modifiers ([`crate::field::PLAIN`]): an input whose target may trigger it, an output to a channel.
    PlainIn,
    PlainOut,
}

/// A parsed link text, before records are looked up.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ParsedLink {
    Empty,
    Constant(Constant),
    Name {
        name: String,
        modifiers: Modifiers,
    },
    /// `{...}` that is neither a constant nor a link over pvAccess.
    Json(JsonLink),
    /// `{pva:...}`
    Pva(ParsedPvaLink),
    /// JSON that is not a valid link, and why.
    Invalid(LinkFault),
    /// `@...`: an address for a device support.
    Address,
    /// `#...`: a hardware address, which no device support here accepts.
    HardwareAddress,
}

/// Why a JSON link is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkFault {
    pub(crate) message: String,
    /// In bytes from the start of the text.
    pub(crate) at: usize,
}

impl From<String> for LinkFault {
    fn from(message: String) -> LinkFault {
        LinkFault { message, at: 0 }
    }
}

impl From<&str> for LinkFault {
    fn from(message: &str) -> LinkFault {
        message.to_owned().into()
    }
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

    /// Makes a link of a parsed text. A name has the target `Missing` until [`Link::set_target`].
    pub(crate) fn from_parsed(text: &str, parsed: &ParsedLink, link_kind: LinkKind) -> Link {
        let plain = LinkBody {
            text: text.trim().into(),
            target: Target::Missing,
            constant: None,
            modifiers: Modifiers::default(),
            name: Text::EMPTY,
            extra: None,
        };
        let body = match parsed {
            ParsedLink::Empty => return Link::NONE,
            ParsedLink::Constant(constant) => {
                LinkBody { target: Target::Constant, constant: Some(constant.clone()), ..plain }
            }
            ParsedLink::Name { name, modifiers } => LinkBody {
                text: canonical(name, *modifiers, link_kind).into(),
                modifiers: *modifiers,
                name: name.as_str().into(),
                ..plain
            },
            ParsedLink::Pva(ParsedPvaLink { link, modifiers, .. }) => LinkBody {
                name: link.pv.clone(),
                modifiers: *modifiers,
                extra: Some(Arc::new(LinkExtra::Pva(link.clone()))),
                ..plain
            },
            ParsedLink::Json(link) => LinkBody { extra: Some(Arc::new(LinkExtra::Json(link.clone()))), ..plain },
            ParsedLink::Invalid(_) | ParsedLink::Address | ParsedLink::HardwareAddress => plain,
        };
        Link(Some(Box::new(body)))
    }

    pub(crate) fn access(&self) -> LinkAccess {
        LinkAccess { target: self.target(), extra: self.extra().cloned() }
    }

    /// The properties of a link that is not a plain link to a field.
    pub(crate) fn extra(&self) -> Option<&Arc<LinkExtra>> {
        self.0.as_ref().and_then(|body| body.extra.as_ref())
    }

    /// Makes the link read through filters.
    pub(crate) fn filter(&mut self, chain: FilterChain, facts: FieldFacts) {
        if let Some(body) = &mut self.0 {
            body.extra = Some(Arc::new(LinkExtra::Filtered { chain, facts }));
        }
    }

    /// Sets a PV outside this database as the target.
    pub(crate) fn set_external(&mut self, external: ExternalPv, is_time: bool) {
        if let Some(body) = &mut self.0 {
            body.target = Target::External { is_time };
            body.extra = Some(Arc::new(LinkExtra::External(external)));
        }
    }

    /// Removes PP, CA, CP and CPP. Source: EPICS Base 7.0, the device supports Async Soft Channel of input records.
    pub(crate) fn remove_trigger(&mut self) {
        if let Some(body) = &mut self.0 {
            body.modifiers.trigger = Trigger::None;
            body.text = format!("{} {}", body.name, inherit_text(body.modifiers.inherit)).into();
        }
    }

    /// Sets the target.
    pub(crate) fn set_target(&mut self, target: Target) {
        if let Some(body) = &mut self.0 {
            body.target = target;
        }
    }
}

/// The text of a link as clients read it back: the name and all modifiers.
fn canonical(name: &str, modifiers: Modifiers, link_kind: LinkKind) -> String {
    let trigger = match modifiers.trigger {
        Trigger::None => " NPP",
        Trigger::Passive => " PP",
        Trigger::Channel => " CA",
        Trigger::Change => " CP",
        Trigger::ChangeIfPassive => " CPP",
        // Only plain links have this trigger, and their text has no modifiers.
        Trigger::ChangeIfInterrupt => "",
    };
    let inherit = inherit_text(modifiers.inherit);
    match link_kind {
        LinkKind::Forward if modifiers.trigger == Trigger::Channel => format!("{name} CA"),
        LinkKind::Forward => name.to_owned(),
        LinkKind::In | LinkKind::Out => format!("{name}{trigger} {inherit}"),
        LinkKind::PlainIn | LinkKind::PlainOut => name.to_owned(),
    }
}

fn inherit_text(inherit: Inherit) -> &'static str {
    match inherit {
        Inherit::Not => "NMS",
        Inherit::Severity => "MS",
        Inherit::Invalid => "MSI",
        Inherit::Status => "MSS",
    }
}

/// Parses a link text. Any text that is not a number, constant, JSON or address is a name.
pub(crate) fn parse(text: &str, link_kind: LinkKind) -> ParsedLink {
    let text = text.trim();
    if text.is_empty() {
        return ParsedLink::Empty;
    }
    if matches!(link_kind, LinkKind::PlainIn | LinkKind::PlainOut) {
        return ParsedLink::Name { name: text.to_owned(), modifiers: modifiers("", link_kind) };
    }
    if text.starts_with('@') {
        return ParsedLink::Address;
    }
    if text.starts_with('#') {
        return ParsedLink::HardwareAddress;
    }
    if text.starts_with(['{', '[']) {
        return parse_json(text, link_kind).unwrap_or_else(ParsedLink::Invalid);
    }
    if is_number(text) {
        return ParsedLink::Constant(Constant::Number(text.into()));
    }
    let (name, words) = text.split_once(' ').unwrap_or((text, ""));
    ParsedLink::Name { name: name.to_owned(), modifiers: modifiers(words, link_kind) }
}

/// Base searches for the modifiers anywhere after the name, so `PPMS` is PP and MS.
fn modifiers(words: &str, link_kind: LinkKind) -> Modifiers {
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
    match link_kind {
        LinkKind::In => Modifiers { trigger, inherit, is_time: false },
        LinkKind::PlainIn => Modifiers { trigger: Trigger::ChangeIfInterrupt, ..Modifiers::default() },
        LinkKind::PlainOut => Modifiers { trigger: Trigger::Channel, ..Modifiers::default() },
        // CP and CPP have no effect on an output.
        LinkKind::Out if matches!(trigger, Trigger::Change | Trigger::ChangeIfPassive) => {
            Modifiers { trigger: Trigger::None, inherit, is_time: false }
        }
        LinkKind::Out => Modifiers { trigger, inherit, is_time: false },
        LinkKind::Forward => Modifiers {
            trigger: if trigger == Trigger::Channel { trigger } else { Trigger::None },
            inherit: Inherit::Not,
            is_time: false,
        },
    }
}

fn is_number(text: &str) -> bool {
    number_at_start(text).is_ok_and(|(_, n_bytes)| n_bytes == text.len())
}

/// A list of constants, or a JSON link.
fn parse_json(text: &str, link_kind: LinkKind) -> Result<ParsedLink, LinkFault> {
    let json = json::read(text).map_err(|error| LinkFault {
        message: format!("{} at character {}", error.what, error.at + 1),
        at: error.at,
    })?;
    if let Some(pva) = pva_link::member(&json) {
        return pva_link::parse(pva, link_kind).map(ParsedLink::Pva);
    }
    if link_kind == LinkKind::Forward {
        return Err("a forward link needs the name of a record, or {pva:\"name\"}".into());
    }
    if text.starts_with('[') {
        let list = json_link::scalars(&json).ok_or("a constant list must contain numbers or texts")?;
        return Ok(ParsedLink::Constant(Constant::List(list)));
    }
    Ok(match json_link::parse(&json, link_kind == LinkKind::Out)? {
        JsonLinkOrConstant::Constant(constant) => ParsedLink::Constant(constant),
        JsonLinkOrConstant::Link(link) => ParsedLink::Json(link),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str, link_kind: LinkKind) -> (String, Modifiers) {
        match parse(text, link_kind) {
            ParsedLink::Name { name, modifiers } => (name, modifiers),
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn an_empty_link_uses_eight_bytes() {
        assert_eq!(size_of::<Link>(), 8);
    }

    #[test]
    fn link_modifiers_are_accepted_in_any_order_after_the_name() {
        let (name, modifiers) = named("P:a.VAL  PP MSS", LinkKind::In);

        assert_eq!(name, "P:a.VAL");
        assert_eq!(modifiers, Modifiers { trigger: Trigger::Passive, inherit: Inherit::Status, is_time: false });
        assert_eq!(named("a CPP", LinkKind::In).1.trigger, Trigger::ChangeIfPassive);
        assert_eq!(named("a CP", LinkKind::Out).1.trigger, Trigger::None);
        assert_eq!(named("a PP MS", LinkKind::Forward).1, Modifiers::default());
    }

    #[test]
    fn numbers_strings_and_lists_are_parsed_as_constants() {
        for number in ["1.5", "0x10", "010", "5.", ".5", "-1e3", "nan", "inf"] {
            let parsed = parse(&format!(" {number} "), LinkKind::In);
            assert_eq!(parsed, ParsedLink::Constant(Constant::Number(number.into())));
        }
        for name in ["5x", "1e", "0x", "1_000"] {
            assert!(matches!(parse(name, LinkKind::In), ParsedLink::Name { .. }), "{name}");
        }
        assert_eq!(
            parse("[1, 2]", LinkKind::In),
            ParsedLink::Constant(Constant::List(vec![Scalar::I64(1), Scalar::I64(2)]))
        );
        assert_eq!(parse("{const:[1, 2.5]}", LinkKind::In), parse("{const:[1.0,2.5]}", LinkKind::In));
        assert!(matches!(parse("[true]", LinkKind::In), ParsedLink::Invalid(_)));
        assert!(matches!(parse("{const:[\"a\", 1]}", LinkKind::In), ParsedLink::Invalid(_)));
        assert_eq!(parse("  ", LinkKind::In), ParsedLink::Empty);
    }

    #[test]
    fn a_plain_link_is_always_parsed_as_a_name() {
        assert_eq!(named("12", LinkKind::PlainIn).0, "12");
        assert_eq!(named("a.B", LinkKind::PlainOut).1.trigger, Trigger::Channel);
        assert_eq!(named("a", LinkKind::PlainIn).1.follows(7), Some(TriggerCondition::IfInterrupt(7)));
        let link = Link::from_parsed("a.B", &parse("a.B", LinkKind::PlainOut), LinkKind::PlainOut);
        assert_eq!(link.text(), "a.B".into());
    }

    #[test]
    fn a_link_is_formatted_with_all_its_modifiers() {
        let link = |text, link_kind| Link::from_parsed(text, &parse(text, link_kind), link_kind).text();

        assert_eq!(link("rec", LinkKind::In), "rec NPP NMS".into());
        assert_eq!(link("rec.A PP MS", LinkKind::Out), "rec.A PP MS".into());
        assert_eq!(link("rec PP", LinkKind::Forward), "rec".into());
        assert_eq!(link("3", LinkKind::In), "3".into());
    }
}
