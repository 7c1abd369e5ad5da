//! Features of objects and variables of the user, as words of the command line name them.

use std::sync::Arc;

use fodo_clu::interface::{FeatureInterface, InterfaceKind, MethodInterface, ObjectInterface};
use fodo_clu::script::CluItem;
use fodo_clu::value::{parse_value, write_value};
use fodo_net::{Scalar, Text};
use serde_json::{Map, Value as Json};

use super::outcome::CluFailure;
use super::target::CluTarget;
use crate::exit::Exit;
use crate::json;
use crate::show::escape_control;

/// A feature or a variable.
#[derive(Clone, Debug)]
pub struct NamedItem {
    /// The name for people: `THE0001/CurrentTemp`, `THE0001/14` or `setpoint`.
    pub text: String,
    /// What requests contain.
    pub item: CluItem,
    /// What is known of the feature.
    pub feature: Option<FeatureInterface>,
}

/// An object, and what is known of it.
struct NamedObject {
    /// The name in Lua.
    id: String,
    /// As the user typed it.
    word: String,
    interface: Option<Arc<ObjectInterface>>,
    is_known: bool,
}

/// The items of the words of a command line: `OBJECT FEATURE...`, `OBJECT/FEATURE`, `OBJECT` and `VARIABLE`.
pub fn items(clu: &CluTarget, words: &[String]) -> Result<Vec<NamedItem>, CluFailure> {
    let mut items = Vec::new();
    let mut current: Option<(NamedObject, bool)> = None;
    for word in words {
        if let Some((object, feature)) = word.rsplit_once('/') {
            finish(clu, current.take(), &mut items)?;
            items.push(feature_item(clu, &object_named(clu, object), feature)?);
            continue;
        }
        let is_feature = current.as_ref().is_some_and(|(object, _)| feature_of(object, word).is_some());
        match &mut current {
            Some((object, has_features)) if is_feature => {
                items.push(feature_item(clu, object, word)?);
                *has_features = true;
            }
            _ => {
                finish(clu, current.take(), &mut items)?;
                current = Some((object_named(clu, word), false));
            }
        }
    }
    finish(clu, current, &mut items)?;
    Ok(items)
}

/// Adds what a word without features names: all features of an object, or a variable.
fn finish(clu: &CluTarget, object: Option<(NamedObject, bool)>, items: &mut Vec<NamedItem>) -> Result<(), CluFailure> {
    let Some((object, false)) = object else { return Ok(()) };
    match &object.interface {
        Some(interface) => {
            for feature in interface.features.iter().filter(|feature| feature.can_get) {
                items.push(known_item(clu, &object, feature.clone())?);
            }
        }
        None if object.is_known => {
            let reason = format!("the features of {} are unknown: name them by their index", object.word);
            return Err(invalid(clu, &reason));
        }
        None => items.push(NamedItem {
            text: object.word.clone(),
            item: CluItem::variable(&object.word).ok_or_else(|| not_a_name(clu, &object.word))?,
            feature: None,
        }),
    }
    Ok(())
}

fn object_named(clu: &CluTarget, word: &str) -> NamedObject {
    let known = clu.site.as_ref().and_then(|site| site.object(word));
    NamedObject {
        id: known.map_or(word, |object| &object.id).to_owned(),
        word: word.to_owned(),
        interface: known.and_then(|object| object.interface.clone()),
        is_known: known.is_some(),
    }
}

/// What a word means as a feature of an object.
enum FeatureWord<'a> {
    Known(&'a FeatureInterface),
    Index(u32),
}

fn feature_of<'a>(object: &'a NamedObject, word: &str) -> Option<FeatureWord<'a>> {
    let index: Option<u32> = word.parse().ok();
    let features = object.interface.as_ref().map_or(&[][..], |interface| &interface.features);
    let is_it = |feature: &&FeatureInterface| Some(feature.index) == index || feature.name == word;
    features.iter().find(is_it).map(FeatureWord::Known).or(index.map(FeatureWord::Index))
}

fn feature_item(clu: &CluTarget, object: &NamedObject, word: &str) -> Result<NamedItem, CluFailure> {
    match feature_of(object, word) {
        Some(FeatureWord::Known(feature)) => known_item(clu, object, feature.clone()),
        Some(FeatureWord::Index(index)) => Ok(NamedItem {
            text: format!("{}/{index}", object.word),
            item: CluItem::feature(&object.id, index).ok_or_else(|| not_a_name(clu, &object.id))?,
            feature: None,
        }),
        None => Err(unknown_member(clu, object, "feature", word, |interface| {
            interface.features.iter().map(|feature| feature.name.clone()).collect()
        })),
    }
}

fn known_item(clu: &CluTarget, object: &NamedObject, feature: FeatureInterface) -> Result<NamedItem, CluFailure> {
    let item = CluItem::feature(&object.id, feature.index).ok_or_else(|| not_a_name(clu, &object.id))?;
    Ok(NamedItem { text: format!("{}/{}", object.word, feature.name), item, feature: Some(feature) })
}

/// The name of an object in Lua, and one of its methods by index or name.
pub fn method(clu: &CluTarget, object: &str, word: &str) -> Result<(String, u32, Option<MethodInterface>), CluFailure> {
    let object = object_named(clu, object);
    let index: Option<u32> = word.parse().ok();
    let methods = object.interface.as_ref().map_or(&[][..], |interface| &interface.methods);
    let is_it = |method: &&MethodInterface| Some(method.index) == index || method.name == word;
    let known = methods.iter().find(is_it).cloned();
    match known.as_ref().map(|method| method.index).or(index) {
        Some(index) => Ok((object.id, index, known)),
        None => Err(unknown_member(clu, &object, "method", word, |interface| {
            interface.methods.iter().map(|method| method.name.clone()).collect()
        })),
    }
}

fn unknown_member(
    clu: &CluTarget,
    object: &NamedObject,
    kind: &str,
    word: &str,
    names: impl Fn(&ObjectInterface) -> Vec<String>,
) -> CluFailure {
    let reason = match &object.interface {
        Some(interface) => format!("{} has no {kind} \"{word}\"; it has {}", object.word, names(interface).join(", ")),
        None => format!(
            "the {kind}s of {} are unknown: give the index of \"{word}\", or name a file with the objects of the CLU by \
             --clu",
            object.word
        ),
    };
    invalid(clu, &reason)
}

fn not_a_name(clu: &CluTarget, word: &str) -> CluFailure {
    let reason = match clu.site.as_ref().filter(|site| !site.objects.is_empty()) {
        Some(site) => {
            let ids: Vec<&str> = site.objects.iter().map(|object| object.id.as_str()).collect();
            format!("there is no object \"{word}\"; there are {}", ids.join(", "))
        }
        None => format!("\"{word}\" is not a name in Lua, as objects and variables have"),
    };
    invalid(clu, &reason)
}

fn invalid(clu: &CluTarget, reason: &str) -> CluFailure {
    CluFailure { exit: Exit::BadValue, outcome: "not_sent", message: format!("{clu}: {reason}") }
}

impl NamedItem {
    /// Whether the value is a text even if it looks like a number.
    fn is_text(&self) -> bool {
        self.feature.as_ref().is_some_and(|feature| feature.kind == InterfaceKind::Text)
    }

    /// The value in a reply to a get.
    pub fn value(&self, reply: &Text) -> Option<Scalar> {
        match self.is_text() && reply.as_bytes() != fodo_clu::value::NIL {
            true => Some(Scalar::Text(reply.clone())),
            false => parse_value(reply.as_bytes()),
        }
    }

    /// The value that a user typed: a name of the feature's choices, a number, true, false or a text.
    pub fn typed_value(&self, word: &str, is_string: bool) -> Scalar {
        let choices = self.feature.as_ref().map_or(&[][..], |feature| &feature.choices);
        if let Some((number, _)) = choices.iter().find(|(_, name)| name == word) {
            return Scalar::F64(*number);
        }
        match is_string || self.is_text() {
            true => Scalar::Text(word.into()),
            false => typed_value(word),
        }
    }

    /// The name of a number among the feature's choices.
    fn label(&self, value: &Scalar) -> Option<&str> {
        let Scalar::F64(number) = value else { return None };
        let choices = &self.feature.as_ref()?.choices;
        choices.iter().find(|(choice, _)| choice == number).map(|(_, name)| name.as_str())
    }

    /// The value for people: `21.5 C`, `On`, `nil`.
    pub fn shown(&self, value: Option<&Scalar>, is_numeric: bool) -> String {
        let label = value.and_then(|value| self.label(value)).filter(|_| !is_numeric);
        let unit = self.feature.as_ref().map(|feature| feature.unit.as_str()).filter(|unit| !unit.is_empty());
        match (label, value, unit) {
            (Some(label), ..) => escape_control(label),
            (None, Some(Scalar::F64(_)), Some(unit)) => format!("{} {}", bare_text(value), escape_control(unit)),
            _ => escape_control(&bare_text(value)),
        }
    }

    /// Adds the item to an object: object, feature and index, or variable.
    pub fn insert_into(&self, object: &mut Map<String, Json>) {
        match self.item.index() {
            Some(index) => {
                object.insert("object".into(), self.item.name().into());
                object.insert("feature".into(), self.feature.as_ref().map(|feature| feature.name.as_str()).into());
                object.insert("index".into(), index.into());
            }
            None => drop(object.insert("variable".into(), self.item.name().into())),
        }
    }

    /// Adds the value to an object: value, and what is known of units and label.
    pub fn insert_value(&self, value: Option<&Scalar>, object: &mut Map<String, Json>) {
        object.insert("value".into(), value.map_or(Json::Null, json::scalar));
        if let Some(label) = value.and_then(|value| self.label(value)) {
            object.insert("label".into(), label.into());
        }
        let unit = self.feature.as_ref().map(|feature| feature.unit.as_str()).filter(|unit| !unit.is_empty());
        object.insert("units".into(), unit.into());
    }
}

fn bare_text(value: Option<&Scalar>) -> String {
    let mut text = Vec::new();
    write_value(value, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// A value as a user types it: a number, true, false, or otherwise a text.
pub fn typed_value(word: &str) -> Scalar {
    match (word, word.parse::<f64>()) {
        ("true", _) => Scalar::Bool(true),
        ("false", _) => Scalar::Bool(false),
        (_, Ok(number)) if number.is_finite() => Scalar::F64(number),
        _ => Scalar::Text(word.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(index: u32, name: &str, kind: InterfaceKind) -> FeatureInterface {
        FeatureInterface {
            index,
            name: name.into(),
            kind,
            unit: "s".into(),
            can_get: true,
            can_set: true,
            range: None,
            choices: Vec::new(),
        }
    }

    fn clu() -> CluTarget {
        let mut mode = feature(1, "Mode", InterfaceKind::Number);
        mode.choices = vec![(0.0, "CountDown".into()), (1.0, "Interval".into())];
        let mut hidden = feature(9, "Hidden", InterfaceKind::Table);
        hidden.can_get = false;
        let interface = ObjectInterface {
            class: Some(6),
            name: "Timer".into(),
            features: vec![
                feature(0, "Time", InterfaceKind::Number),
                mode,
                feature(2, "Note", InterfaceKind::Text),
                hidden,
            ],
            ..ObjectInterface::default()
        };
        let object = fodo_vclu::SiteObject {
            id: "TIM1".into(),
            label: Some("Hall light".into()),
            interface: Some(Arc::new(interface)),
        };
        CluTarget::for_test(vec![object])
    }

    fn texts(words: &[&str]) -> Result<Vec<(String, Option<u32>)>, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let items = items(&clu(), &words).map_err(|failure| failure.message)?;
        Ok(items.into_iter().map(|item| (item.text.clone(), item.item.index())).collect())
    }

    fn item(words: &[&str]) -> NamedItem {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        items(&clu(), &words).unwrap().remove(0)
    }

    #[test]
    fn words_name_features_by_index_or_name_and_all_of_an_object() {
        let named = |text: &str, index| (text.to_owned(), index);

        assert_eq!(
            texts(&["TIM1", "Time", "1", "Hall light/Note", "setpoint"]),
            Ok(vec![
                named("TIM1/Time", Some(0)),
                named("TIM1/Mode", Some(1)),
                named("Hall light/Note", Some(2)),
                named("setpoint", None),
            ])
        );
        assert_eq!(
            texts(&["Hall light", "NEW7", "4", "TIM1/77"]),
            Ok(vec![
                named("Hall light/Time", Some(0)),
                named("Hall light/Mode", Some(1)),
                named("Hall light/Note", Some(2)),
                named("NEW7/4", Some(4)),
                named("TIM1/77", Some(77)),
            ])
        );
    }

    #[test]
    fn a_wrong_name_is_reported_with_the_valid_ones() {
        let error = texts(&["TIM1/Tme"]).unwrap_err();
        assert!(error.ends_with("TIM1 has no feature \"Tme\"; it has Time, Mode, Note, Hidden"), "{error}");
        let error = texts(&["os.exit()"]).unwrap_err();
        assert!(error.ends_with("there is no object \"os.exit()\"; there are TIM1"), "{error}");
    }

    #[test]
    fn a_value_has_the_type_of_its_feature_and_is_shown_with_unit_or_label() {
        let (time, mode, note) = (item(&["TIM1", "Time"]), item(&["TIM1", "Mode"]), item(&["TIM1", "Note"]));

        assert_eq!(mode.typed_value("Interval", false), Scalar::F64(1.0));
        assert_eq!(note.typed_value("42", false), Scalar::Text("42".into()));
        assert_eq!(time.typed_value("-2.5", false), Scalar::F64(-2.5));
        assert_eq!(time.typed_value("true", false), Scalar::Bool(true));
        assert_eq!(time.typed_value("1", true), Scalar::Text("1".into()));
        assert_eq!(note.value(&"42".into()), Some(Scalar::Text("42".into())));
        assert_eq!((time.value(&"42".into()), note.value(&"nil".into())), (Some(Scalar::F64(42.0)), None));
        assert_eq!(time.shown(Some(&Scalar::F64(2.5)), false), "2.5 s");
        assert_eq!(mode.shown(Some(&Scalar::F64(1.0)), false), "Interval");
        assert_eq!(mode.shown(Some(&Scalar::F64(1.0)), true), "1 s");
        assert_eq!(note.shown(Some(&Scalar::Text("a\u{1b}[2J".into())), false), "a\\u{1b}[2J");
        assert_eq!(time.shown(None, false), "nil");
    }
}
