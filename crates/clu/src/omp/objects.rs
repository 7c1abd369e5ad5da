//! The objects in `system.xml` of a project.
//!
//! The file is a stream of objects in XML. An element with the attribute `id` may stand in several places; all but the first
//! are empty and have the attribute `reference` with this number. An object of a CLU is an element with the child
//! `nameOnCLU`; a CLU also has the child `ipAddress`. An object belongs to the CLU in its child `clu`, or otherwise to that of
//! a folder around it: an element `TreeObject` with a name such as `CLU221011038_clu`.

use std::collections::HashMap;
use std::rc::Rc;

use roxmltree::{Document, Node};

use super::{child, child_text, lua_name};
use crate::interface::{self, EventInterface, FeatureInterface, InterfaceKind, ObjectInterface};
use crate::limit;

/// An object of a CLU in a project. [`OmProject`](super::OmProject) has an example.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectObject {
    /// The name of its CLU in Lua; `None` if the project does not contain it.
    pub clu: Option<String>,
    /// The name of the object in Lua, for example `DOU8306`.
    pub id: String,
    /// The name that a person chose.
    pub name: Option<String>,
    /// What the project says about it: the type, such as `DOUT`, and features and events. It has no methods; the class is that of
    /// a type that is known, or `None`.
    pub interface: ObjectInterface,
}

/// The types in projects with their classes in Lua.
const CLASSES: [(&str, u32); 14] = [
    ("CLU", 0),
    ("DIN", 3),
    ("DOUT", 4),
    ("DIMM", 5),
    ("BUTTON", 7),
    ("LEDRGB", 9),
    ("ROLLER_SHUTTER", 11),
    ("AnalogIN", 12),
    ("PowerSupplyVoltage", 12),
    ("AnalogOUT", 13),
    ("PANELSENSTEMP", 20),
    ("PANELSENSLIGHT", 21),
    ("PANEL", 29),
    ("PANEL_BUTTON", 30),
];

/// The most children of a feature that are read; it has about twelve, with texts between them.
const FEATURE_CHILDREN_MAX: usize = 64;

/// The objects of the file, and how many were left out.
pub(super) fn objects(system: &Document<'_>) -> (Vec<ProjectObject>, usize) {
    let elements = system.descendants().filter(Node::is_element);
    let by_id = elements.filter_map(|node| Some((node.attribute("id")?, node))).collect();
    let mut reader = ObjectReader {
        by_id,
        names_of_clus: HashMap::new(),
        objects: Vec::new(),
        index_by_name: HashMap::new(),
        n_features: 0,
        n_left_out: 0,
    };
    reader.read(system.root_element());
    (reader.objects, reader.n_left_out)
}

struct ObjectReader<'a, 'input> {
    by_id: HashMap<&'a str, Node<'a, 'input>>,
    /// The names in Lua of the CLUs, by the attribute `id`.
    names_of_clus: HashMap<&'a str, String>,
    objects: Vec<ProjectObject>,
    /// The objects by their CLU and name.
    index_by_name: HashMap<(Option<String>, String), usize>,
    n_features: usize,
    n_left_out: usize,
}

impl<'a, 'input> ObjectReader<'a, 'input> {
    fn read(&mut self, root: Node<'a, 'input>) {
        // A document may be deeper than the stack of the thread allows.
        let mut waiting: Vec<(Node<'a, 'input>, Option<Rc<str>>)> = vec![(root, None)];
        while let Some((node, mut clu)) = waiting.pop() {
            let name = child_text(node, "nameOnCLU").map(lua_name);
            let is_clu = child(node, "ipAddress").is_some();
            if let Some(name) = name.as_ref().filter(|_| is_clu) {
                clu = Some(name.as_str().into());
                if let Some(id) = node.attribute("id") {
                    self.names_of_clus.insert(id, name.clone());
                }
            } else if let Some(name) = folder_of_clu(node) {
                clu = Some(name.into());
            }
            if let Some(id) = name {
                self.add(node, id, clu.as_deref(), is_clu);
            }
            waiting.extend(node.children().filter(Node::is_element).rev().map(|child| (child, clu.clone())));
        }
    }

    /// Adds an object; of one that stands in several places, the first description with features is used.
    fn add(&mut self, node: Node<'a, 'input>, id: String, folder: Option<&str>, is_clu: bool) {
        let clu = if is_clu { Some(id.clone()) } else { self.owner(node).or(folder.map(str::to_string)) };
        let is_removed = child_text(node, "isRemoved") == Some("true");
        if is_removed || !crate::script::is_identifier(&id) {
            return;
        }
        let key = (clu.clone(), id.clone());
        if let Some(known) = self.index_by_name.get(&key).copied() {
            if self.objects[known].interface.features.is_empty() {
                let interface = self.interface(node, is_clu);
                self.objects[known].interface = interface;
            }
            return;
        }
        if self.objects.len() == limit::PROJECT_OBJECTS_MAX {
            self.n_left_out += 1;
            return;
        }
        self.index_by_name.insert(key, self.objects.len());
        let name = child_text(node, "name").map(str::to_string);
        let interface = self.interface(node, is_clu);
        self.objects.push(ProjectObject { clu, id, name, interface });
    }

    /// The CLU in the child `clu`.
    fn owner(&self, node: Node<'a, 'input>) -> Option<String> {
        let clu = child(node, "clu")?;
        match clu.attribute("reference") {
            Some(reference) => self.names_of_clus.get(reference).cloned().or_else(|| {
                // A CLU that stands behind its objects.
                let clu = self.by_id.get(reference).filter(|clu| clu.has_tag_name("clu"))?;
                children(*clu, "nameOnCLU")?.text().map(|name| lua_name(name.trim()))
            }),
            None => child_text(clu, "nameOnCLU").map(lua_name),
        }
    }

    fn interface(&mut self, node: Node<'a, 'input>, is_clu: bool) -> ObjectInterface {
        let type_name = if is_clu { Some("CLU") } else { child_text(node, "type") };
        let name = type_name.unwrap_or_default().to_string();
        let class = CLASSES.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name)).map(|(_, class)| *class);
        let mut interface = ObjectInterface { class, name, ..ObjectInterface::default() };
        for list in ["features", "embeddedFeaturesList"] {
            for item in self.items(node, list) {
                let Some(feature) = self.feature(item) else { continue };
                let is_known = interface.features.iter().any(|known| known.index == feature.index);
                if !is_known && interface.features.len() < limit::OBJECT_FEATURES_MAX {
                    interface.features.push(feature);
                }
            }
        }
        for list in ["events", "eventsList"] {
            let events = self.items(node, list).into_iter().filter_map(|item| {
                let address = children(item, "index")?.text()?.trim().parse().ok()?;
                Some(EventInterface { address, name: children(item, "name")?.text()?.trim().to_string() })
            });
            interface.events.extend(events);
        }
        interface
    }

    /// The elements of a list, as far as the limits allow.
    fn items(&mut self, node: Node<'a, 'input>, list: &str) -> Vec<Node<'a, 'input>> {
        let Some(list) = child(node, list).map(|list| self.resolved(list)) else { return Vec::new() };
        let left = limit::PROJECT_FEATURES_MAX - self.n_features;
        // Other nodes between them are limited too.
        let children = list.children().take(8 * limit::OBJECT_FEATURES_MAX).filter(Node::is_element);
        let items = children.take(left.min(limit::OBJECT_FEATURES_MAX));
        let items: Vec<_> = items.map(|item| self.resolved(item)).collect();
        self.n_features += items.len();
        items
    }

    /// The element that a reference means, or the element itself.
    fn resolved(&self, node: Node<'a, 'input>) -> Node<'a, 'input> {
        node.attribute("reference").and_then(|id| self.by_id.get(id)).copied().unwrap_or(node)
    }

    /// A feature; `None` without name and index.
    fn feature(&self, node: Node<'a, 'input>) -> Option<FeatureInterface> {
        let field = |name| children(node, name)?.text().map(str::trim).filter(|text| !text.is_empty());
        let unit = field("unit").unwrap_or_default();
        let value_type = children(node, "type").map(|value_type| self.resolved(value_type));
        let param_type = value_type.and_then(|value_type| children(value_type, "paramType")?.text()).map(str::trim);
        let constraint = field("constrainAsString").unwrap_or_default();
        let choices = choices(constraint);
        let kind = match param_type {
            _ if unit == "bool" => InterfaceKind::Switch,
            Some("NUMBER") => InterfaceKind::Number,
            _ => InterfaceKind::Text,
        };
        let access = field("accessType").unwrap_or("ALL");
        Some(FeatureInterface {
            index: field("index")?.parse().ok()?,
            name: field("name")?.to_string(),
            kind,
            // A switch has labels instead.
            unit: if kind == InterfaceKind::Switch { String::new() } else { unit.to_string() },
            can_get: !access.starts_with("WRITE"),
            can_set: !access.starts_with("READ") || access.contains("WRITE"),
            range: constraint.strip_prefix('[').and_then(|range| interface::range(range.strip_suffix(']')?)),
            choices: if kind == InterfaceKind::Number { choices } else { Vec::new() },
        })
    }
}

/// The CLU of a folder with a name such as `CLU221011038_clu`.
fn folder_of_clu(node: Node<'_, '_>) -> Option<String> {
    let name = child_text(node, "name").filter(|_| node.has_tag_name("TreeObject"))?;
    let (clu, _) = name.split_once('_')?;
    let digits = clu.strip_prefix("CLU")?;
    let is_clu = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_clu.then(|| clu.to_string())
}

/// A child among the first ones. References make the same element a part of many others, so that all of its children would be
/// read too often.
fn children<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().take(FEATURE_CHILDREN_MAX).find(|child| child.has_tag_name(name))
}

/// The values of a constraint such as `{0,1}`, named by their numbers; none if it is something else.
fn choices(constraint: &str) -> Vec<(f64, String)> {
    let list = constraint.strip_prefix('{').and_then(|list| list.strip_suffix('}')).unwrap_or_default();
    let choices = list.split(',').map(|choice| Some((choice.trim().parse().ok()?, choice.trim().to_string())));
    choices.collect::<Option<Vec<_>>>().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the form of the projects that Object Manager writes, with all kinds of references.
    const HOUSE: &str = r#"<object-stream>
<TreeObject id="1"><name>CLU221011038_clu</name>
 <specificObject class="CLU" id="2"><nameOnCLU>CLU221011038</nameOnCLU><name>House</name><ipAddress>10.0.0.2</ipAddress>
  <embeddedFeaturesList id="3"><EmbeddedFeature id="4"><name>BusVoltage</name><index>27</index><unit>V</unit>
   <type id="5"><paramType>NUMBER</paramType></type><accessType>READONLY</accessType>
   <constrainAsString>[0-30]</constrainAsString></EmbeddedFeature></embeddedFeaturesList></specificObject>
 <children><TreeObject id="6">
  <specificObject class="Output" id="7"><name>Lamp</name><nameOnCLU>DOU1234</nameOnCLU><type>DOUT</type>
   <features id="8"><EmbeddedFeature id="9"><name>Value</name><type><paramType>NUMBER</paramType></type>
    <accessType>ALL</accessType><unit>bool</unit><index>0</index><constrainAsString>{0,1}</constrainAsString>
    <initValue>0</initValue></EmbeddedFeature></features>
   <events><Event><name>OnSwitchOn</name><index>1</index></Event><Event><name>OnSwitchOff</name></Event></events>
  </specificObject></TreeObject>
  <TreeObject><specificObject reference="7"/></TreeObject>
  <TreeObject><specificObject><name>Second</name><nameOnCLU>DOU1235</nameOnCLU><type>DOUT</type>
   <features reference="8"/></specificObject></TreeObject>
  <TreeObject><specificObject><name>Gone</name><nameOnCLU>DOU1</nameOnCLU><isRemoved>true</isRemoved></specificObject></TreeObject>
 </children></TreeObject>
<x><nameOnCLU>ANA7</nameOnCLU><type>AnalogIN</type><clu reference="12"/><features><f reference="4"/>
 <f><name>Mode</name><index>1</index><type reference="5"/><constrainAsString>{1,5}</constrainAsString></f>
 <f><name>Note</name><index>2</index><type><paramType>STRING</paramType></type><accessType>WRITE</accessType></f>
 <f><name>NoIndex</name></f></features></x>
<clu id="12"><nameOnCLU>221011039</nameOnCLU><ipAddress>10.0.0.3</ipAddress></clu>
<x><nameOnCLU>ROL7</nameOnCLU><type>SHUTTER9</type></x>
</object-stream>"#;

    fn read(text: &str) -> (Vec<ProjectObject>, usize) {
        objects(&Document::parse(text).unwrap())
    }

    #[test]
    fn objects_have_their_clu_name_type_and_features() {
        let (objects, n_left_out) = read(HOUSE);

        let names = objects.iter().map(|object| (object.clu.as_deref(), object.id.as_str(), object.interface.class));
        let expected = [
            (Some("CLU221011038"), "CLU221011038", Some(0)),
            (Some("CLU221011038"), "DOU1234", Some(4)),
            (Some("CLU221011038"), "DOU1235", Some(4)),
            (Some("CLU221011039"), "ANA7", Some(12)),
            (Some("CLU221011039"), "CLU221011039", Some(0)),
            (None, "ROL7", None),
        ];
        assert_eq!((names.collect::<Vec<_>>(), n_left_out), (expected.to_vec(), 0));
        let lamp = &objects[1];
        assert_eq!((lamp.name.as_deref(), lamp.interface.name.as_str()), (Some("Lamp"), "DOUT"));
        let value = lamp.interface.feature("Value").unwrap();
        assert_eq!((value.index, value.kind, value.can_get, value.can_set), (0, InterfaceKind::Switch, true, true));
        assert_eq!(lamp.interface.events, [EventInterface { address: 1, name: "OnSwitchOn".into() }]);
        assert_eq!(objects[2].interface.features, lamp.interface.features);
    }

    #[test]
    fn features_have_kind_unit_range_choices_and_access() {
        let (objects, _) = read(HOUSE);

        let features = &objects[3].interface.features;
        let voltage = FeatureInterface {
            index: 27,
            name: "BusVoltage".into(),
            kind: InterfaceKind::Number,
            unit: "V".into(),
            can_get: true,
            can_set: false,
            range: Some((0.0, 30.0)),
            choices: Vec::new(),
        };
        assert_eq!((features.len(), &features[0]), (3, &voltage));
        assert_eq!(objects[0].interface.features, [voltage]);
        assert_eq!(features[1].choices, [(1.0, "1".to_string()), (5.0, "5".to_string())]);
        assert_eq!((features[2].kind, features[2].can_get, features[2].can_set), (InterfaceKind::Text, false, true));
    }

    /// An object may be described by a reference to a long list, again and again.
    #[test]
    fn objects_and_features_beyond_the_limits_are_left_out() {
        let n_objects = limit::PROJECT_OBJECTS_MAX + 3;
        let feature = |n| format!("<f><name>F{n}</name><index>{n}</index></f>");
        let features: String = (0..limit::OBJECT_FEATURES_MAX + 5).map(feature).collect();
        let object = |n| format!("<o><nameOnCLU>D{n}</nameOnCLU><features reference=\"1\"/></o>");
        let text = format!(
            "<a><features id=\"1\">{features}</features>{}</a>",
            (0..n_objects).map(object).collect::<String>()
        );

        let (objects, n_left_out) = read(&text);

        assert_eq!((objects.len(), n_left_out), (limit::PROJECT_OBJECTS_MAX, 3));
        assert_eq!(objects[0].interface.features.len(), limit::OBJECT_FEATURES_MAX);
        let n_features: usize = objects.iter().map(|object| object.interface.features.len()).sum();
        assert_eq!(n_features, limit::PROJECT_FEATURES_MAX);
    }

    /// Parts of the document are removed, repeated or moved, so that references and fields stand where they do not belong.
    #[test]
    fn documents_with_parts_in_other_places_cause_no_panic() {
        let mut random = fastrand::Rng::with_seed(7);
        let parts: Vec<&str> = HOUSE.split_inclusive('>').collect();
        let (mut n_read, mut n_objects) = (0, 0);
        for _ in 0..20_000 {
            let mut changed = parts.clone();
            for _ in 0..random.usize(1..4) {
                let (from, to) = (random.usize(..changed.len()), random.usize(..changed.len()));
                match random.u8(..3) {
                    0 => drop(changed.remove(from)),
                    1 => changed.insert(to, parts[random.usize(..parts.len())]),
                    _ => changed.swap(from, to),
                }
            }
            if let Ok(document) = Document::parse(&changed.concat()) {
                n_read += 1;
                n_objects += objects(&document).0.len();
            }
        }
        assert!(n_read > 100 && n_objects > n_read, "{n_read} {n_objects}");
    }

    #[test]
    fn a_deep_document_with_references_in_a_circle_ends() {
        let depth = 1000;
        let text = format!(
            "{}<b id=\"1\" reference=\"2\"><nameOnCLU>X1</nameOnCLU><features id=\"2\" reference=\"1\"/></b>{}",
            "<a>".repeat(depth),
            "</a>".repeat(depth)
        );

        let (objects, _) = read(&text);

        assert_eq!((objects.len(), objects[0].id.as_str()), (1, "X1"));
    }
}
