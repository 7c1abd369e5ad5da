//! The interface files of Object Manager: the features, methods and events of a kind of object, in XML.
//!
//! A file describes one object (`<object class="6" name="Timer">`), a CLU (`<CLU>` with an `<interface>`), or a module
//! with several objects. The text comes from the caller.

use std::fmt;

use roxmltree::{Document, Node, ParsingOptions};

use crate::limit;

/// What a kind of object has.
///
/// ```
/// use fodo_clu::interface::ObjectInterface;
///
/// let xml = r#"<object class="20" name="PANELSENSTEMP"><features>
///     <feature index="0" name="Value" type="num" get="true" set="false" unit="C" range="0-45"/>
/// </features></object>"#;
/// let interfaces = ObjectInterface::parse(xml)?;
/// let value = &interfaces[0].features[0];
/// assert_eq!((interfaces[0].class, value.unit.as_str(), value.range), (Some(20), "C", Some((0.0, 45.0))));
/// assert!(value.can_get && !value.can_set);
/// # Ok::<(), fodo_clu::interface::InterfaceError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectInterface {
    /// The first argument of `OBJECT:new`; 0 for a CLU. `None` if the file does not contain it.
    pub class: Option<u32>,
    /// The name of the class.
    pub name: String,
    /// What `get` and `set` accept.
    pub features: Vec<FeatureInterface>,
    /// What `execute` accepts.
    pub methods: Vec<MethodInterface>,
    /// What `add_event` accepts.
    pub events: Vec<EventInterface>,
}

/// A value of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureInterface {
    /// The argument of `get` and `set`.
    pub index: u32,
    /// The name.
    pub name: String,
    /// What kind of value it has.
    pub kind: InterfaceKind,
    /// The unit; empty without unit.
    pub unit: String,
    /// Whether it can be read.
    pub can_get: bool,
    /// Whether it can be set.
    pub can_set: bool,
    /// Minimum and maximum.
    pub range: Option<(f64, f64)>,
    /// The permitted values with their names; empty if every value is permitted.
    pub choices: Vec<(f64, String)>,
}

/// A method of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodInterface {
    /// The first argument of `execute`.
    pub index: u32,
    /// The name.
    pub name: String,
    /// The further arguments.
    pub parameters: Vec<ParameterInterface>,
}

/// An argument of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInterface {
    /// The name.
    pub name: String,
    /// What kind of value it has.
    pub kind: InterfaceKind,
    /// The unit; empty without unit.
    pub unit: String,
}

/// An event of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventInterface {
    /// The first argument of `add_event`.
    pub address: u32,
    /// The name.
    pub name: String,
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceKind {
    /// `num`.
    Number,
    /// `str`, and every kind that is not known.
    Text,
    /// `confirmation`: off or on.
    Switch,
    /// `timestamp`: seconds since 1970 in local time.
    TimeStamp,
    /// `table`: a table of Lua.
    Table,
}

/// Why an interface file was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceError {
    /// The text has more than [`limit::INTERFACE_BYTES_MAX`] or [`limit::INTERFACE_NODES_MAX`].
    TooLarge,
    /// The text is not XML.
    NoXml {
        /// The line with the error, counted from 1.
        line: u32,
    },
    /// An element has no valid index or address.
    NoIndex {
        /// Its line, counted from 1.
        line: u32,
    },
}

impl fmt::Display for InterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceError::TooLarge => f.write_str("the file is too large for an interface of an object"),
            InterfaceError::NoXml { line } => write!(f, "line {line} is not valid XML"),
            InterfaceError::NoIndex { line } => write!(f, "line {line}: the index must be an integer from 0"),
        }
    }
}

impl std::error::Error for InterfaceError {}

impl ObjectInterface {
    /// Parses the text of a file: each element with `features`, `methods` or `events` is an object. Other elements are
    /// ignored.
    pub fn parse(text: &str) -> Result<Vec<ObjectInterface>, InterfaceError> {
        if text.len() > limit::INTERFACE_BYTES_MAX {
            return Err(InterfaceError::TooLarge);
        }
        let options = ParsingOptions { nodes_limit: limit::INTERFACE_NODES_MAX, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text, options).map_err(|error| match error {
            roxmltree::Error::NodesLimitReached => InterfaceError::TooLarge,
            error => InterfaceError::NoXml { line: error.pos().row },
        })?;
        let has_members = |node: &Node<'_, '_>| {
            node.is_element() && ["features", "methods", "events"].iter().any(|part| child(*node, part).is_some())
        };
        document.descendants().filter(has_members).map(object).collect()
    }

    /// The feature with this name.
    pub fn feature(&self, name: &str) -> Option<&FeatureInterface> {
        self.features.iter().find(|feature| feature.name == name)
    }
}

fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.has_tag_name(name))
}

/// The elements `item` in the child `list`.
fn items<'a, 'input>(node: Node<'a, 'input>, list: &str, item: &'a str) -> impl Iterator<Item = Node<'a, 'input>> {
    child(node, list).into_iter().flat_map(|list| list.children()).filter(move |child| child.has_tag_name(item))
}

fn object(members: Node<'_, '_>) -> Result<ObjectInterface, InterfaceError> {
    // Those of a CLU or a module are in an element of their own.
    let parent = members.parent().filter(|_| members.has_tag_name("interface"));
    let owner = parent.unwrap_or(members);
    let attribute = |name: &str| owner.attribute(name);
    let class = match owner.has_tag_name("CLU") {
        true => Some(0),
        false => attribute("class").and_then(|class| class.trim().parse().ok()),
    };
    let name = attribute("name").or(attribute("className")).or(attribute("typeName")).unwrap_or_default();
    let is_executed = |method: &Node<'_, '_>| method.attribute("call").is_none_or(|call| call == "execute");
    Ok(ObjectInterface {
        class,
        name: name.to_string(),
        features: items(members, "features", "feature").map(feature).collect::<Result<_, _>>()?,
        methods: items(members, "methods", "method").filter(is_executed).map(method).collect::<Result<_, _>>()?,
        events: items(members, "events", "event").map(event).collect::<Result<_, _>>()?,
    })
}

fn feature(node: Node<'_, '_>) -> Result<FeatureInterface, InterfaceError> {
    let is_true = |name: &str| node.attribute(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let choice = |node: Node<'_, '_>| {
        let value = node.attribute("value")?.trim().parse().ok()?;
        Some((value, node.attribute("name").unwrap_or_default().to_string()))
    };
    Ok(FeatureInterface {
        index: index(node, "index")?,
        name: text(node, "name"),
        kind: InterfaceKind::from_name(node.attribute("type").unwrap_or_default()),
        unit: text(node, "unit"),
        can_get: is_true("get"),
        can_set: is_true("set"),
        range: node.attribute("range").and_then(range),
        choices: node.children().filter(|child| child.has_tag_name("enum")).filter_map(choice).collect(),
    })
}

fn method(node: Node<'_, '_>) -> Result<MethodInterface, InterfaceError> {
    let parameter = |node: Node<'_, '_>| ParameterInterface {
        name: text(node, "name"),
        kind: InterfaceKind::from_name(node.attribute("type").unwrap_or_default()),
        unit: text(node, "unit"),
    };
    let parameters = node.descendants().filter(|child| child.has_tag_name("param")).map(parameter);
    Ok(MethodInterface { index: index(node, "index")?, name: text(node, "name"), parameters: parameters.collect() })
}

fn event(node: Node<'_, '_>) -> Result<EventInterface, InterfaceError> {
    Ok(EventInterface { address: index(node, "address")?, name: text(node, "name") })
}

fn text(node: Node<'_, '_>, attribute: &str) -> String {
    node.attribute(attribute).unwrap_or_default().trim().to_string()
}

fn index(node: Node<'_, '_>, attribute: &str) -> Result<u32, InterfaceError> {
    let value = node.attribute(attribute).and_then(|value| value.trim().parse().ok());
    value.ok_or_else(|| InterfaceError::NoIndex { line: node.document().text_pos_at(node.range().start).row })
}

/// `0-45`, also with a minus before either number.
pub(crate) fn range(text: &str) -> Option<(f64, f64)> {
    let text = text.trim();
    let hyphen = text.bytes().skip(1).position(|byte| byte == b'-')? + 1;
    let (low, high) = (text.get(..hyphen)?.trim().parse().ok()?, text.get(hyphen + 1..)?.trim().parse().ok()?);
    (low <= high).then_some((low, high))
}

impl InterfaceKind {
    fn from_name(name: &str) -> InterfaceKind {
        match name.trim() {
            "num" => InterfaceKind::Number,
            "confirmation" => InterfaceKind::Switch,
            "timestamp" => InterfaceKind::TimeStamp,
            "table" => InterfaceKind::Table,
            _ => InterfaceKind::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLIND: &str = r#"<?xml version="1.0"?>
<module typeName="ROLLER"><interface><features><feature index="0" name="Serial" type="str" get="true"/></features></interface>
<objects><object class="11" name="ROLLER_SHUTTER">
  <features>
    <feature index="2" name="State" type="num" get="true" set="false" enum="0,1">
      <enum name="Stopped" value="0"/><enum name="Moving" value="1"/></feature>
    <feature index="7" name="Position" type="num" get="true" set="true" unit="%" range="-5--1"/>
  </features>
  <methods>
    <method call="execute" index="3" name="Stop" return="void"/>
    <method call="execute" index="10" name="SetPosition" return="void"><param name="Position" type="num" unit="%"/></method>
    <method call="set" index="7" name="SetPosition" return="void"><param name="Position" type="num"/></method>
  </methods>
  <events><event address="0" name="OnChange"/></events>
</object></objects></module>"#;

    #[test]
    fn the_objects_of_a_module_have_their_members() {
        let [module, blind] = &ObjectInterface::parse(BLIND).expect("valid")[..] else { panic!("two objects") };

        assert_eq!((module.class, module.name.as_str(), module.features.len()), (None, "ROLLER", 1));
        assert_eq!((blind.class, blind.name.as_str()), (Some(11), "ROLLER_SHUTTER"));
        let state = blind.feature("State").expect("a state");
        assert_eq!(state.choices, [(0.0, "Stopped".to_string()), (1.0, "Moving".to_string())]);
        let position = blind.feature("Position").expect("a position");
        assert_eq!((position.range, position.can_get, position.can_set), (Some((-5.0, -1.0)), true, true));
        let methods: Vec<_> = blind.methods.iter().map(|method| (method.index, method.parameters.len())).collect();
        assert_eq!(methods, [(3, 0), (10, 1)]);
        assert_eq!(blind.events, [EventInterface { address: 0, name: "OnChange".into() }]);
    }

    #[test]
    fn an_invalid_file_is_rejected_with_its_line() {
        let missing = "<object class=\"1\">\n<features>\n<feature name=\"a\"/></features></object>";

        assert_eq!(ObjectInterface::parse(missing), Err(InterfaceError::NoIndex { line: 3 }));
        assert_eq!(ObjectInterface::parse("<a>\n</b>"), Err(InterfaceError::NoXml { line: 2 }));
        let long = " ".repeat(limit::INTERFACE_BYTES_MAX + 1);
        assert_eq!(ObjectInterface::parse(&long), Err(InterfaceError::TooLarge));
    }

    #[test]
    fn a_range_has_two_numbers() {
        for (text, expected) in
            [("0-45", Some((0.0, 45.0))), ("-20.5 - 60", Some((-20.5, 60.0))), ("5-1", None), ("-", None)]
        {
            assert_eq!(range(text), expected, "{text}");
        }
    }
}
