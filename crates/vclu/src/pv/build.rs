//! Makes the PVs of a CLU from its objects.

use std::sync::{Arc, Weak};

use fodo_clu::interface::{FeatureInterface, InterfaceKind, MethodInterface, ObjectInterface};
use fodo_clu::om_lua::UserVariable;
use fodo_data::{EventMask, NormativeLayout, Reading, Structure, StructureBuilder, normative_type};
use fodo_net::{Pv, PvTable, ServedPv, SharedPv, SharedStructure};

use super::core::{PvCore, RpcMethod};
use super::end::ValueItem;
use super::lights::{self, Light};
use super::limits::{self, LiveLimits};
use super::names::{self, Names};
use super::shape::ValueShape;
use super::value::{MemberPlace, NewValue, ValuePv};
use super::view::{ViewForm, ViewPv};
use super::{PvPath, PvPathFilter};
use crate::limit::PVS_MAX;
use crate::site::SiteObject;

/// The classes with features that are parts of HTTP messages, in the virtual CLU and in real ones.
const HTTP_CLASSES: [&str; 2] = ["HttpListener", "HttpRequest"];

/// How the names of these features end.
const HTTP_PARTS: [&str; 4] = ["Query", "QueryStringParams", "Headers", "Body"];

/// The PV of a dimmer with its brightness in percent.
const PERCENT: &str = "Percent";

/// The PV of an LED with the parts of its colour.
const COLOUR: &str = "Colour";

/// The PVs while they are made.
pub(super) struct PvBuilder<'a> {
    prefix: &'a str,
    is_read_only: bool,
    /// Whether the CLU reports how often events were fired.
    has_events: bool,
    filter: Option<&'a PvPathFilter>,
    core: Weak<PvCore>,
    pub names: Names,
    pub table: PvTable,
    /// The texts as characters, by their names with `$` at the end.
    pub long_texts: PvTable,
    /// What each name stands for.
    pub paths: Vec<(PvPath, String)>,
    pub values: Vec<ValuePv>,
    pub methods: Vec<RpcMethod>,
    pub objects: Vec<SharedStructure>,
    n_pvs: usize,
}

/// Which object a PV belongs to.
struct ObjectOwner<'a> {
    object: &'a SiteObject,
    /// The start of the names of its PVs.
    name: String,
}

impl<'a> PvBuilder<'a> {
    pub fn new(
        prefix: &'a str,
        is_read_only: bool,
        has_events: bool,
        filter: Option<&'a PvPathFilter>,
        core: Weak<PvCore>,
    ) -> PvBuilder<'a> {
        let (names, table, long_texts, paths) = (Names::default(), PvTable::new(), PvTable::new(), Vec::new());
        let (values, methods, objects) = (Vec::new(), Vec::new(), Vec::new());
        PvBuilder {
            prefix,
            is_read_only,
            has_events,
            filter,
            core,
            names,
            table,
            long_texts,
            paths,
            values,
            methods,
            objects,
            n_pvs: 0,
        }
    }

    /// Adds PVs with names after the prefix.
    pub fn add_named(&mut self, pvs: impl Iterator<Item = (&'static str, SharedPv)>) {
        for (name, pv) in pvs {
            let path = PvPath { object: None, member: name.to_string(), index: None };
            let name = format!("{}{name}", self.prefix);
            self.insert(path, &name, "the status of the connection", pv);
        }
    }

    /// Adds the PVs of an object, and its structure.
    pub fn add_object(&mut self, object: &SiteObject) {
        let Some(interface) = object.interface.clone() else {
            self.names.problems.push(format!("object {} has no PVs: its class is unknown", object.id));
            return;
        };
        let owner = self.owner(object);
        let first = self.values.len();
        let light = Light::of(&interface);
        for feature in &interface.features {
            self.add_feature(&owner, &interface, feature, light);
        }
        self.connect_limits(&interface, first);
        self.add_structure(&owner, &interface, first);
        match light {
            Some(Light::Dimmer) => self.add_percent(&owner, &interface, first),
            Some(Light::Led) => self.add_colour(&owner, &interface, first),
            None => {}
        }
        for method in &interface.methods {
            self.add_method(&owner, method);
        }
        let events = if self.has_events { interface.events.as_slice() } else { &[] };
        for event in events {
            let new = NewValue {
                item: ValueItem::Event { object: object.id.clone(), address: event.address },
                shape: ValueShape::count(),
                description: format!("how often {} of {} was fired", event.name, object.id),
                can_get: true,
                can_set: false,
            };
            self.add_value(Some(&owner), &event.name, None, new);
        }
    }

    /// The name of an object is its label, or its name in Lua if it has none or another object has the same.
    fn owner<'o>(&mut self, object: &'o SiteObject) -> ObjectOwner<'o> {
        let named = |text: &str| format!("{}{}", self.prefix, names::legal(text));
        let (label, id) = (object.label.as_deref().map(named), named(&object.id));
        let what = format!("object {}", object.id);
        if let Some(name) = label
            && self.names.take(&name, &what)
        {
            return ObjectOwner { object, name };
        }
        self.names.take(&id, &what);
        ObjectOwner { object, name: id }
    }

    fn add_feature(
        &mut self,
        owner: &ObjectOwner<'_>,
        interface: &ObjectInterface,
        feature: &FeatureInterface,
        light: Option<Light>,
    ) {
        // A table is a connection to another object, which only scripts set.
        let is_connection = feature.kind == InterfaceKind::Table && !feature.can_get;
        if is_connection || may_have_credentials(interface, feature) {
            return;
        }
        let is_state = interface.class == Some(0) && feature.name == "State";
        let object = &owner.object.id;
        let range = feature.range.or_else(|| light?.range_of(feature));
        let new = NewValue {
            item: ValueItem::Feature { object: object.clone(), index: feature.index },
            shape: ValueShape::of_feature(&FeatureInterface { range, ..feature.clone() }, is_state),
            description: format!("{} of {object}", feature.name),
            can_get: feature.can_get,
            can_set: feature.can_set && feature.kind != InterfaceKind::Table,
        };
        self.add_value(Some(owner), &feature.name, Some(feature.index), new);
    }

    fn add_method(&mut self, owner: &ObjectOwner<'_>, method: &MethodInterface) {
        let object = owner.object.id.clone();
        let (shape, has_argument) = match method.parameters.as_slice() {
            [] => (ValueShape::count(), false),
            [parameter] => (ValueShape::of_parameter(parameter), true),
            _ => return self.add_procedure(owner, method),
        };
        let description = format!("calls {} of {object}", method.name);
        let item = ValueItem::Method { object, index: method.index, has_argument };
        let new = NewValue { item, shape, description, can_get: false, can_set: true };
        self.add_value(Some(owner), &method.name, None, new);
    }

    /// A method with several arguments.
    fn add_procedure(&mut self, owner: &ObjectOwner<'_>, method: &MethodInterface) {
        let (path, name) =
            (path_of(owner, &method.name, None), format!("{}:{}", owner.name, names::legal(&method.name)));
        let (core, index, is_read_only) = (self.core.clone(), self.methods.len(), self.is_read_only);
        let procedure = SharedStructure::procedure_deferred(move |call| match core.upgrade() {
            Some(_) if is_read_only => call.refuse("the PVs of this CLU are read-only"),
            Some(core) => core.start_call(index, call),
            None => call.refuse("the connection to the CLU was closed"),
        });
        let what = format!("method {} of object {}", method.name, owner.object.id);
        if self.insert(path, &name, &what, procedure) {
            self.methods.push(RpcMethod { object: owner.object.id.clone(), interface: method.clone() });
        }
    }

    pub fn add_variable(&mut self, variable: &UserVariable) {
        let new = NewValue {
            item: ValueItem::Variable(variable.name.clone()),
            shape: ValueShape::of_variable(variable.kind),
            description: format!("user variable {}", variable.name),
            can_get: true,
            can_set: true,
        };
        self.add_value(None, &variable.name, None, new);
    }

    fn add_value(&mut self, owner: Option<&ObjectOwner<'_>>, member: &str, number: Option<u32>, new: NewValue) {
        let (path, name, what) = match owner {
            Some(owner) => {
                let name = format!("{}:{}", owner.name, names::legal(member));
                (path_of(owner, member, number), name, format!("{member} of object {}", owner.object.id))
            }
            None => {
                let path = PvPath { object: None, member: member.to_string(), index: None };
                (path, format!("{}{}", self.prefix, names::legal(member)), format!("user variable {member}"))
            }
        };
        let is_settable = new.can_set && !self.is_read_only;
        let meta = new.shape.meta(&new.description, is_settable, &LiveLimits::NONE);
        let mut pv = SharedPv::builder(new.shape.initial()).meta(meta);
        if is_settable {
            let (core, index) = (self.core.clone(), self.values.len());
            pv = pv.on_put_deferred(move |put| {
                // Without the core the put is dropped, and thereby refused.
                if let Some(core) = core.upgrade() {
                    core.start_put(index, put);
                }
            });
        }
        let pv = pv.build();
        if self.insert(path, &name, &what, pv.clone()) {
            let mut value = ValuePv::new(new, pv, is_settable);
            if value.shape.is_text() {
                let view = Arc::new(ViewPv::new(&value.pv, ViewForm::LongText));
                self.long_texts.insert(format!("{name}$"), view.clone() as Arc<dyn Pv>);
                value.views.push(view);
            }
            self.values.push(value);
        }
    }

    /// The value of a feature among those from `first` on.
    fn value_of(&self, first: usize, index: u32) -> Option<usize> {
        let is_it = |value: &ValuePv| matches!(value.item, ValueItem::Feature { index: known, .. } if known == index);
        (first..self.values.len()).find(|at| is_it(&self.values[*at]))
    }

    /// Finds the features of an object that contain limits of others.
    fn connect_limits(&mut self, interface: &ObjectInterface, first: usize) {
        for limit in limits::limits_of(interface) {
            if let (Some(by), Some(of)) = (self.value_of(first, limit.by), self.value_of(first, limit.of)) {
                self.values[by].limits_of.push((of, limit.kind));
            }
        }
    }

    /// The brightness of a dimmer in percent.
    fn add_percent(&mut self, owner: &ObjectOwner<'_>, interface: &ObjectInterface, first: usize) {
        let feature = interface.feature("Value").filter(|feature| feature.kind == InterfaceKind::Number);
        let Some(value) = feature.and_then(|feature| self.value_of(first, feature.index)) else { return };
        let value = &mut self.values[value];
        let view = Arc::new(ViewPv::new(&value.pv, ViewForm::Percent));
        value.views.push(view.clone());
        let what = format!("{PERCENT} of object {}", owner.object.id);
        self.insert(path_of(owner, PERCENT, None), &format!("{}:{PERCENT}", owner.name), &what, view as Arc<dyn Pv>);
    }

    /// The colour of an LED as an array.
    fn add_colour(&mut self, owner: &ObjectOwner<'_>, interface: &ObjectInterface, first: usize) {
        let parts = lights::colour_parts(interface).unwrap_or_default();
        let parts: Vec<usize> = parts.iter().filter_map(|part| self.value_of(first, *part)).collect();
        if parts.len() < 3 {
            return;
        }
        let object = owner.object.id.clone();
        let new = NewValue {
            shape: ValueShape::colour(parts.len()),
            description: format!("red, green, blue and white of {object}"),
            item: ValueItem::Colour { object, parts: parts.clone() },
            can_get: true,
            can_set: true,
        };
        let colour = self.values.len();
        self.add_value(Some(owner), COLOUR, None, new);
        if self.values.len() > colour {
            parts.iter().for_each(|part| self.values[*part].colour = Some(colour));
        }
    }

    /// Serves a PV under a name that is not in use. `what`: for the report of a problem.
    fn insert(&mut self, path: PvPath, name: &str, what: &str, pv: impl Into<ServedPv>) -> bool {
        if self.filter.is_some_and(|filter| !filter(&path)) {
            return false;
        }
        if self.n_pvs == PVS_MAX {
            self.names.problems.push(format!("{what} has no PV: a CLU has at most {PVS_MAX} PVs"));
            return false;
        }
        if !self.names.take(name, what) {
            return false;
        }
        self.n_pvs += 1;
        self.table.insert(name, pv);
        self.paths.push((path, name.to_string()));
        true
    }

    /// The structure of an object, with the values from `first` on.
    fn add_structure(&mut self, owner: &ObjectOwner<'_>, interface: &ObjectInterface, first: usize) {
        let path = PvPath { object: Some(object_names(owner.object)), member: String::new(), index: None };
        if self.filter.is_some_and(|filter| !filter(&path)) {
            return;
        }
        let mut build = StructureBuilder::new(format!("clu:{}", interface.name));
        let mut members: Vec<(usize, String, NormativeLayout)> = Vec::new();
        for (index, value) in self.values.iter().enumerate().skip(first).filter(|(_, value)| value.is_readable) {
            let ValueItem::Feature { index: number, .. } = &value.item else { continue };
            let feature = interface.features.iter().find(|feature| feature.index == *number);
            let name = feature.map(|feature| names::member(&feature.name)).unwrap_or_default();
            let is_repeated = members.iter().any(|(_, other, _)| *other == name);
            let Some(layout) = NormativeLayout::of(Arc::new(normative_type(value.shape.kind(), false))) else {
                continue;
            };
            if is_repeated || name.is_empty() {
                let problem =
                    format!("the structure of object {} has no member {name}: it is not unique", owner.object.id);
                self.names.problems.push(problem);
                continue;
            }
            build.member(name.as_str(), layout.kind());
            members.push((index, name, layout));
        }
        let mut whole = Structure::new(Arc::new(build.finish()));
        let object = self.objects.len();
        for (index, name, layout) in members {
            let (Some(offset), Some(value)) = (whole.kind().node(&name), self.values.get_mut(index)) else { continue };
            let meta = Arc::new(value.meta());
            let reading = Reading { meta: Some(meta), ..value.pv.reading() };
            let mut part = Structure::new(layout.kind().clone());
            let mask = EventMask::VALUE | EventMask::ALARM | EventMask::PROPERTY;
            let written = layout.write(&reading, mask, &mut part);
            debug_assert!(written.is_ok(), "the layout is that of the kind");
            for bit in part.changed().iter() {
                let set = part.value(bit).map(|value| whole.set_value(offset + bit, value.clone()));
                debug_assert!(set.is_none_or(|set| set.is_ok()), "the member has the type of the part");
            }
            value.member = Some(MemberPlace { object, offset, layout: Arc::new(layout) });
        }
        let structure = SharedStructure::new(whole);
        self.table.insert(owner.name.as_str(), structure.clone());
        self.paths.push((path, owner.name.clone()));
        self.objects.push(structure);
    }
}

/// Whether a feature is a part of an HTTP message that may contain passwords and tokens. It has no PV, because any client can
/// read one. Other classes have no such features, and the URL of an MQTT broker is shown without its password.
fn may_have_credentials(interface: &ObjectInterface, feature: &FeatureInterface) -> bool {
    let is_of_http = HTTP_CLASSES.iter().any(|class| interface.name.eq_ignore_ascii_case(class));
    is_of_http && HTTP_PARTS.iter().any(|part| feature.name.ends_with(part))
}

fn object_names(object: &SiteObject) -> (String, Option<String>) {
    (object.id.clone(), object.label.clone())
}

fn path_of(owner: &ObjectOwner<'_>, member: &str, index: Option<u32>) -> PvPath {
    PvPath { object: Some(object_names(owner.object)), member: member.to_string(), index }
}
