//! The interface files that Object Manager reads, written from the tables of the objects.

use fodo_clu::interface::{
    EventInterface, FeatureInterface, InterfaceKind, MethodInterface, ObjectInterface, ParameterInterface,
};

use super::{CLASSES, Feature, FeatureAccess, ObjectClass, ObjectEvent, ObjectMethod, Parameter, ValueKind};
use crate::limit::OBJECTS_MAX;

/// The numbers by which Object Manager finds the interface file of a CLU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CluVersion {
    /// The type of the hardware.
    pub hardware_type: u32,
    /// The version of the hardware.
    pub hardware_version: u32,
    /// The type of the firmware.
    pub firmware_type: u32,
    /// The version of the firmware.
    pub firmware_version: u32,
}

impl CluVersion {
    /// The numbers of the virtual CLU, as in its `config.txt`.
    pub const VIRTUAL: CluVersion =
        CluVersion { hardware_type: 0x13, hardware_version: 1, firmware_type: 3, firmware_version: 0x00f0_d000 };
}

/// The interface file of a class of objects.
///
/// ```
/// let timer = fodo_vclu::CLASSES.into_iter().find(|class| class.name == "Timer").expect("there is a timer");
///
/// let xml = fodo_vclu::object_interface(timer);
/// assert!(xml.contains(r#"<object class="6" name="Timer" version="1">"#));
/// assert!(xml.contains(r#"<feature index="0" name="Time" type="num" get="true" set="true" unit="ms""#));
/// ```
pub fn object_interface(class: &ObjectClass) -> String {
    let mut xml = XmlText::new();
    let attributes =
        [("class", class.number.to_string()), ("name", class.name.into()), ("version", class.version.to_string())];
    xml.open("object", &attributes);
    write_members(class, &mut xml);
    xml.close("object");
    xml.text
}

/// The interface file of the CLU: its own features, and the objects that it can have.
///
/// ```
/// use fodo_vclu::{CluVersion, clu_interface};
///
/// let version = CluVersion { hardware_type: 0x13, hardware_version: 1, firmware_type: 3, firmware_version: 0x00f0_d000 };
/// assert!(clu_interface("CLU_VIRTUAL_FODO", version).contains(r#"firmwareVersion="00f0d000""#));
/// ```
pub fn clu_interface(type_name: &str, version: CluVersion) -> String {
    let hex = |number: u32| format!("{number:08x}");
    let mut xml = XmlText::new();
    xml.open(
        "CLU",
        &[
            ("firmwareType", hex(version.firmware_type)),
            ("firmwareVersion", hex(version.firmware_version)),
            ("hardwareType", hex(version.hardware_type)),
            ("hardwareVersion", hex(version.hardware_version)),
            ("typeName", type_name.into()),
        ],
    );
    // Object Manager adds a RemoteCLU for each other CLU of the project.
    let (own, others): (Vec<&ObjectClass>, Vec<&ObjectClass>) =
        CLASSES.into_iter().filter(|class| class.name != "RemoteCLU").partition(|class| class.number == 0);
    xml.open("interface", &[]);
    for class in own {
        write_members(class, &mut xml);
    }
    xml.close("interface");
    xml.open("objects", &[]);
    for class in others {
        let version = class.version.to_string();
        xml.empty("object", &[("maxInstances", "-1".into()), ("name", class.name.into()), ("version", version)]);
    }
    xml.close("objects");
    xml.open("options", &[]);
    let options = [
        ("FeatureToGetActualTimeOnClu", "LocalTime".to_string()),
        ("GettingTimeType", "LOCAL".to_string()),
        ("MethodToSetActualTimeOnClu", "SetDateTime".to_string()),
        ("SettingTimeType", "LOCAL".to_string()),
        ("cipher", "true".to_string()),
        ("accept_tftp", "true".to_string()),
        ("accept_udp", "true".to_string()),
        ("accept_tcp", "false".to_string()),
        ("maxObjects", OBJECTS_MAX.to_string()),
    ];
    for (name, value) in options {
        xml.empty("option", &[("name", name.into()), ("value", value)]);
    }
    xml.close("options");
    xml.close("CLU");
    xml.text
}

/// Features, methods and events. Object Manager needs a method `SetName` for each feature that can be set.
fn write_members(class: &ObjectClass, xml: &mut XmlText) {
    xml.open("features", &[]);
    for feature in class.features {
        write_feature(feature, xml);
    }
    xml.close("features");
    xml.open("methods", &[]);
    for method in class.methods {
        let attributes = method_attributes("execute", method.index, method.name.into());
        xml.open("method", &attributes);
        for parameter in method.parameters {
            xml.empty("param", &parameter_attributes(parameter.name, parameter.kind, parameter.unit));
        }
        xml.close("method");
    }
    for feature in class.features.iter().filter(|feature| feature.access != FeatureAccess::Get) {
        xml.open("method", &method_attributes("set", feature.index, format!("Set{}", feature.name)));
        xml.empty("param", &parameter_attributes(feature.name, feature.kind, feature.unit));
        xml.close("method");
    }
    xml.close("methods");
    xml.open("events", &[]);
    for event in class.events {
        xml.empty("event", &[("address", event.address.to_string()), ("name", event.name.into())]);
    }
    xml.close("events");
}

fn write_feature(feature: &Feature, xml: &mut XmlText) {
    let is = |condition: bool| condition.to_string();
    let mut attributes = vec![
        ("index", feature.index.to_string()),
        ("name", feature.name.into()),
        ("type", feature.kind.name().into()),
        ("get", is(feature.access != FeatureAccess::Set)),
        ("set", is(feature.access != FeatureAccess::Get)),
    ];
    if !feature.unit.is_empty() {
        attributes.push(("unit", feature.unit.into()));
    }
    // The form has no place for a negative minimum.
    if let Some((min, max)) = feature.range.filter(|(min, _)| *min >= 0.0) {
        attributes.push(("range", format!("{min}-{max}")));
    }
    if feature.choices.is_empty() {
        xml.empty("feature", &attributes);
        return;
    }
    let values: Vec<String> = feature.choices.iter().map(|(value, _)| value.to_string()).collect();
    attributes.push(("enum", values.join(",")));
    xml.open("feature", &attributes);
    for (value, name) in feature.choices {
        xml.empty("enum", &[("name", (*name).into()), ("value", value.to_string())]);
    }
    xml.close("feature");
}

fn method_attributes(call: &str, index: u16, name: String) -> [(&'static str, String); 4] {
    [("call", call.into()), ("index", index.to_string()), ("name", name), ("return", "void".into())]
}

fn parameter_attributes(name: &str, kind: ValueKind, unit: &str) -> Vec<(&'static str, String)> {
    let mut attributes = vec![("name", name.into()), ("type", kind.name().into())];
    if !unit.is_empty() {
        attributes.push(("unit", unit.into()));
    }
    attributes
}

impl From<&ObjectClass> for ObjectInterface {
    fn from(class: &ObjectClass) -> ObjectInterface {
        let feature = |feature: &Feature| FeatureInterface {
            index: feature.index.into(),
            name: feature.name.into(),
            kind: feature.kind.into(),
            unit: feature.unit.into(),
            can_get: feature.access != FeatureAccess::Set,
            can_set: feature.access != FeatureAccess::Get,
            range: feature.range,
            choices: feature.choices.iter().map(|(value, name)| (*value, (*name).into())).collect(),
        };
        let parameter = |parameter: &Parameter| ParameterInterface {
            name: parameter.name.into(),
            kind: parameter.kind.into(),
            unit: parameter.unit.into(),
        };
        let method = |method: &ObjectMethod| MethodInterface {
            index: method.index.into(),
            name: method.name.into(),
            parameters: method.parameters.iter().map(parameter).collect(),
        };
        let event = |event: &ObjectEvent| EventInterface { address: event.address.into(), name: event.name.into() };
        ObjectInterface {
            class: Some(class.number),
            name: class.name.into(),
            features: class.features.iter().map(feature).collect(),
            methods: class.methods.iter().map(method).collect(),
            events: class.events.iter().map(event).collect(),
        }
    }
}

impl From<ValueKind> for InterfaceKind {
    fn from(kind: ValueKind) -> InterfaceKind {
        match kind {
            ValueKind::Number => InterfaceKind::Number,
            ValueKind::Text | ValueKind::Any => InterfaceKind::Text,
            ValueKind::TimeStamp => InterfaceKind::TimeStamp,
            ValueKind::Table => InterfaceKind::Table,
        }
    }
}

/// Indented elements.
struct XmlText {
    text: String,
    depth: usize,
}

impl XmlText {
    fn new() -> XmlText {
        XmlText { text: "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>\n".into(), depth: 0 }
    }

    fn open(&mut self, name: &str, attributes: &[(&str, String)]) {
        self.tag(name, attributes, ">");
        self.depth += 1;
    }

    fn empty(&mut self, name: &str, attributes: &[(&str, String)]) {
        self.tag(name, attributes, "/>");
    }

    fn close(&mut self, name: &str) {
        self.depth -= 1;
        self.text.push_str(&format!("{}</{name}>\n", "  ".repeat(self.depth)));
    }

    fn tag(&mut self, name: &str, attributes: &[(&str, String)], end: &str) {
        self.text.push_str(&format!("{}<{name}", "  ".repeat(self.depth)));
        for (key, value) in attributes {
            let value = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
            self.text.push_str(&format!(" {key}=\"{value}\""));
        }
        self.text.push_str(end);
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_of_every_interface_is_closed() {
        let version = CluVersion { hardware_type: 1, hardware_version: 2, firmware_type: 3, firmware_version: 4 };
        let mut files: Vec<String> = CLASSES.into_iter().map(object_interface).collect();
        files.push(clu_interface("a \"<b>\" & c", version));

        for xml in files {
            let mut open = Vec::new();
            for tag in xml.split('<').skip(1).map(|part| part.split('>').next().unwrap()) {
                match tag.strip_prefix('/') {
                    Some(name) => assert_eq!(open.pop(), Some(name), "{xml}"),
                    None if tag.ends_with('/') || tag.starts_with('?') => {}
                    None => open.push(tag.split(' ').next().unwrap()),
                }
            }
            assert_eq!(open, [""; 0], "{xml}");
        }
    }

    /// The form has no place for a negative minimum, and no version.
    #[test]
    fn an_interface_file_is_read_as_it_was_written() {
        for class in CLASSES.into_iter().filter(|class| class.number > 0) {
            let mut expected = ObjectInterface::from(class);
            for feature in &mut expected.features {
                feature.range = feature.range.filter(|(min, _)| *min >= 0.0);
            }

            assert_eq!(ObjectInterface::parse(&object_interface(class)), Ok(vec![expected]));
        }
    }

    #[test]
    fn object_manager_can_add_a_pv_but_no_remote_clu() {
        let version = CluVersion { hardware_type: 1, hardware_version: 2, firmware_type: 3, firmware_version: 4 };
        let class = |name: &str| CLASSES.into_iter().find(|class| class.name == name).unwrap();

        let clu = clu_interface("CLU_VIRTUAL_FODO", version);
        assert!(clu.contains(r#"<object maxInstances="-1" name="Pv" version="1"/>"#), "{clu}");
        assert!(!clu.contains("RemoteCLU"), "{clu}");
        let pv = object_interface(class("Pv"));
        assert!(pv.contains(r#"<feature index="1" name="Value" type="str" get="true" set="true"/>"#), "{pv}");
        let remote = object_interface(class("RemoteCLU"));
        assert!(remote.contains(r#"<method call="execute" index="0" name="execute" return="void">"#), "{remote}");
    }

    #[test]
    fn a_feature_that_can_be_set_has_a_method_of_the_same_index() {
        let thermostat = CLASSES.into_iter().find(|class| class.name == "Thermostat").unwrap();

        let xml = object_interface(thermostat);

        assert!(xml.contains(r#"<feature index="0" name="Source" type="table" get="false" set="true"/>"#), "{xml}");
        assert!(xml.contains(r#"<method call="set" index="3" name="SetPointValue" return="void">"#), "{xml}");
        assert!(xml.contains(r#"<method call="execute" index="4" name="HeatUp" return="void">"#), "{xml}");
        assert!(xml.contains(r#"<param name="Time" type="num" unit="min"/>"#), "{xml}");
        assert!(xml.contains(r#"<event address="6" name="OnHolidayModeOff"/>"#), "{xml}");
    }
}
