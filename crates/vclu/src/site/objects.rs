//! The objects of a CLU: those of OM.LUA and of a project, with what is known of their classes.

use std::collections::HashMap;
use std::sync::Arc;

use fodo_clu::interface::{FeatureInterface, InterfaceKind, ObjectInterface};
use fodo_clu::om_lua::OmObject;
use fodo_clu::omp::{OmProject, ProjectClu, ProjectObject};

use super::SiteObject;
use crate::object::CLASSES;

/// The interfaces by class: those of files, or else those of our own objects.
#[derive(Default)]
pub(super) struct InterfaceTable(HashMap<u32, Arc<ObjectInterface>>);

impl InterfaceTable {
    /// Of several versions of a class, the one in the last file is used.
    pub fn add(&mut self, interfaces: Vec<ObjectInterface>) {
        for interface in interfaces {
            if let Some(class) = interface.class {
                self.0.insert(class, Arc::new(interface));
            }
        }
    }

    fn of_class(&mut self, number: u32) -> Option<Arc<ObjectInterface>> {
        if let Some(interface) = self.0.get(&number) {
            return Some(interface.clone());
        }
        let class = CLASSES.into_iter().find(|class| class.number == number)?;
        let interface = Arc::new(ObjectInterface::from(class));
        self.0.insert(number, interface.clone());
        Some(interface)
    }

    /// The class of a type in a project.
    fn class_of_type(&self, name: &str) -> Option<u32> {
        let of_file = || self.0.values().find(|known| known.name.eq_ignore_ascii_case(name))?.class;
        let own = CLASSES.into_iter().find(|class| class.name.eq_ignore_ascii_case(name));
        of_file().or(own.map(|class| class.number))
    }

    /// What an object has: what the project says about it, completed by its class, or its class alone.
    fn interface(&mut self, class: Option<u32>, project: Option<&ProjectObject>) -> Option<Arc<ObjectInterface>> {
        let project = project.map(|object| &object.interface);
        let class = class.or_else(|| self.class_of_type(&project?.name)).or(project.and_then(|project| project.class));
        let known = class.and_then(|class| self.of_class(class));
        match project.filter(|project| !project.features.is_empty()) {
            Some(project) => Some(Arc::new(completed(project, class, known.as_deref()))),
            None => known,
        }
    }
}

/// The objects of a CLU in a project, and the CLU itself. Objects without a CLU are those of the only one.
pub(super) fn of_clu<'a>(project: &'a OmProject, clu: &ProjectClu) -> Vec<&'a ProjectObject> {
    let is_of_clu = |object: &&ProjectObject| match &object.clu {
        Some(name) => *name == clu.object,
        None => project.clus.len() == 1,
    };
    project.objects.iter().filter(is_of_clu).collect()
}

/// The objects of OM.LUA in its order, and then those that only the project contains.
pub(super) fn objects(
    om: Vec<OmObject>,
    project: &[&ProjectObject],
    interfaces: &mut InterfaceTable,
) -> Vec<SiteObject> {
    let mut in_project: HashMap<&str, &ProjectObject> =
        project.iter().map(|object| (object.id.as_str(), *object)).collect();
    let mut objects = Vec::new();
    for object in om {
        let described = in_project.remove(object.id.as_str());
        let interface = interfaces.interface(object.class, described);
        let label = object.name.or_else(|| described.and_then(|object| object.name.clone()));
        objects.push(SiteObject { id: object.id, label, interface });
    }
    for object in project {
        if in_project.remove(object.id.as_str()).is_some() {
            let interface = interfaces.interface(None, Some(object));
            objects.push(SiteObject { id: object.id.clone(), label: object.name.clone(), interface });
        }
    }
    objects
}

/// The features of an object in a project, with the names of their values and the methods of its class. A class whose features
/// have other names at the same indices is that of another device: the classes of the virtual CLU and of a real one differ.
fn completed(project: &ObjectInterface, class: Option<u32>, known: Option<&ObjectInterface>) -> ObjectInterface {
    let at = |known: &ObjectInterface, index| known.features.iter().find(|other| other.index == index).cloned();
    let has_same_name = |known: &ObjectInterface, feature: &FeatureInterface| {
        at(known, feature.index).is_none_or(|other| other.name == feature.name)
    };
    let known = known.filter(|known| project.features.iter().all(|feature| has_same_name(known, feature)));
    let features = project.features.iter().cloned().map(|feature| {
        let Some(of_class) = known.and_then(|known| at(known, feature.index)) else { return feature };
        FeatureInterface {
            kind: if feature.kind == InterfaceKind::Text { of_class.kind } else { feature.kind },
            unit: if feature.unit.is_empty() { of_class.unit } else { feature.unit },
            range: feature.range.or(of_class.range),
            choices: if of_class.choices.is_empty() { feature.choices } else { of_class.choices },
            ..feature
        }
    });
    ObjectInterface {
        class,
        name: project.name.clone(),
        features: features.collect(),
        methods: known.map(|known| known.methods.clone()).unwrap_or_default(),
        events: known.map_or(&project.events, |known| &known.events).clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(index: u32, name: &str) -> FeatureInterface {
        FeatureInterface {
            index,
            name: name.into(),
            kind: InterfaceKind::Number,
            unit: String::new(),
            can_get: true,
            can_set: true,
            range: None,
            choices: Vec::new(),
        }
    }

    fn timer(features: Vec<FeatureInterface>) -> ProjectObject {
        let interface = ObjectInterface { name: "TIMER".into(), features, ..ObjectInterface::default() };
        ProjectObject { clu: None, id: "TIM1".into(), name: Some("Stairs".into()), interface }
    }

    #[test]
    fn an_object_of_a_project_is_completed_by_its_class() {
        let object =
            timer(vec![FeatureInterface { range: Some((0.0, 9.0)), ..feature(0, "Time") }, feature(1, "Mode")]);

        let objects = objects(Vec::new(), &[&object], &mut InterfaceTable::default());

        let [timer] = &objects[..] else { panic!("{objects:?}") };
        let interface = timer.interface.as_ref().unwrap();
        assert_eq!((timer.label.as_deref(), interface.class, interface.features.len()), (Some("Stairs"), Some(6), 2));
        let (time, mode) = (&interface.features[0], &interface.features[1]);
        assert_eq!((time.unit.as_str(), time.range), ("ms", Some((0.0, 9.0))));
        assert_eq!(mode.choices[1].1, "Interval");
        assert!(interface.methods.iter().any(|method| method.name == "Start"));
    }

    #[test]
    fn a_class_with_other_features_at_the_same_indices_is_not_used() {
        let object = timer(vec![feature(0, "VoltageFrequency")]);

        let objects = objects(Vec::new(), &[&object], &mut InterfaceTable::default());

        let interface = objects[0].interface.as_ref().unwrap();
        assert_eq!((interface.features[0].unit.as_str(), interface.methods.len()), ("", 0));
    }

    #[test]
    fn an_object_in_om_lua_has_the_features_of_the_project() {
        let om = |id: &str, class| OmObject { id: id.into(), name: None, class: Some(class) };
        let object = timer(vec![feature(0, "Time")]);

        let objects = objects(vec![om("STO1", 44), om("TIM1", 6)], &[&object], &mut InterfaceTable::default());

        let names: Vec<_> = objects.iter().map(|object| (object.id.as_str(), object.label.as_deref())).collect();
        assert_eq!(names, [("STO1", None), ("TIM1", Some("Stairs"))]);
        assert_eq!(objects[1].interface.as_ref().unwrap().features.len(), 1);
        assert_eq!(objects[0].interface.as_ref().unwrap().class, Some(44));
    }
}
