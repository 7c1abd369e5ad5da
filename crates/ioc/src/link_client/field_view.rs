//! The field of a PV's structure that a link over pvAccess reads and writes.

use std::ops::Range;
use std::sync::Arc;

use fodo_data::{
    BitSet, Kind, Meta, NodeKind, NodeValue, NormativeLayout, Reading, Scalar, Severity, Status, Structure,
    StructureType, Text, TimeStamp, Value,
};
use fodo_net::AcceptedValues;

/// Where the value of a link is in a type, and what belongs to it.
#[derive(Debug)]
pub(super) struct FieldView {
    kind: Arc<StructureType>,
    shape: FieldShape,
    /// The path that a put of the value sets.
    put_path: String,
    /// Units, limits and labels, as of the last update that contained them.
    meta: Option<Arc<Meta>>,
}

#[derive(Debug)]
enum FieldShape {
    /// A structure with the members of the normative types: these nodes of the PV.
    Normative { layout: Box<NormativeLayout>, bits: Range<usize> },
    /// The index of an enum and the names of its states.
    Enum { index: usize, choices: usize },
    /// A single node; `around`: the structure with its alarm and time stamp.
    Node { bit: usize, around: Option<usize> },
}

impl FieldView {
    /// Finds the field at a path; the empty path is the whole structure. `None` if there is no such field, or if it has
    /// no value that a record can have.
    pub(super) fn of(kind: &Arc<StructureType>, path: &str) -> Option<FieldView> {
        let bit = kind.node(path)?;
        let joined = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let view = |shape, put_path| FieldView { kind: kind.clone(), shape, put_path, meta: None };
        if !matches!(kind.nodes()[bit].kind, NodeKind::Structure { .. }) {
            return is_readable(kind, bit).then(|| view(FieldShape::Node { bit, around: None }, path.to_owned()));
        }
        let bits = bit..kind.nodes()[bit].end as usize;
        let part = if bit == 0 { kind.clone() } else { Arc::new(kind.subtree(bit)) };
        if let Some(layout) = NormativeLayout::of(part) {
            return Some(view(FieldShape::Normative { layout: Box::new(layout), bits }, joined("value")));
        }
        let member = |name: &str| kind.member(bit, name.as_bytes());
        if let (Some(index), Some(choices)) = (member("index"), member("choices")) {
            return Some(view(FieldShape::Enum { index, choices }, path.to_owned()));
        }
        let value = member("value").filter(|&value| is_readable(kind, value))?;
        Some(view(FieldShape::Node { bit: value, around: Some(bit) }, joined("value")))
    }

    /// Whether this is the view of a type.
    pub(super) fn is_of(&self, kind: &Arc<StructureType>) -> bool {
        Arc::ptr_eq(&self.kind, kind) || self.kind == *kind
    }

    /// The reading in an update; `None` if the field is empty, such as a union without a selected member.
    pub(super) fn reading(&mut self, update: &Structure) -> Option<Reading> {
        let mut reading = match &self.shape {
            FieldShape::Normative { layout, bits } if bits.start == 0 => {
                if self.meta.is_none() || layout.has_meta(update.changed()) {
                    self.meta = Some(Arc::new(layout.meta(update)));
                }
                layout.reading(update)
            }
            FieldShape::Normative { layout, bits } => {
                let part = part(update, bits, layout.kind());
                if self.meta.is_none() || layout.has_meta(part.changed()) {
                    self.meta = Some(Arc::new(layout.meta(&part)));
                }
                layout.reading(&part)
            }
            FieldShape::Enum { index, choices } => {
                let labels: Vec<Text> = match update.value(*choices) {
                    Some(Value::Array(fodo_data::Array::Text(labels))) => labels.to_vec(),
                    _ => Vec::new(),
                };
                if self.meta.as_ref().is_none_or(|meta| meta.labels != labels) {
                    self.meta = Some(Arc::new(Meta { labels, ..Meta::default() }));
                }
                let index = u16::try_from(integer(update.value(*index))).unwrap_or(u16::MAX);
                Reading::bare(Value::Scalar(Scalar::Enum(index)))
            }
            FieldShape::Node { bit, around } => {
                let value = contents(update.node(*bit)?)?.clone();
                match around {
                    Some(around) => stamped(update, *around, value),
                    None => Reading::bare(value),
                }
            }
        };
        reading.meta = self.meta.clone();
        Some(reading)
    }

    /// The path and the value of a put. The name of a state becomes its index. Fails with the reason if the field cannot be
    /// set to this value. `trial`: a structure of the same type, which receives the value; one serves for all fields of a put.
    pub(super) fn to_put(&self, value: Value, trial: &mut Structure) -> Result<(String, NodeValue), String> {
        let index_of = |text: &Text| self.meta.as_ref()?.labels.iter().position(|label| label == text);
        let value = match &value {
            Value::Scalar(Scalar::Text(text)) => {
                index_of(text).map_or_else(|| value.clone(), |index| (index as i32).into())
            }
            _ => value,
        };
        let value = NodeValue::Value(value);
        AcceptedValues::check_field(trial, &self.put_path, &value)?;
        Ok((self.put_path.clone(), value))
    }
}

/// Whether a node is a scalar, an array of scalars, or a union, whose member may be one of them.
fn is_readable(kind: &StructureType, bit: usize) -> bool {
    matches!(
        kind.nodes()[bit].kind,
        NodeKind::Scalar(_) | NodeKind::BoundedText(_) | NodeKind::Array { .. } | NodeKind::Union(_) | NodeKind::Any
    )
}

/// The scalar or array in a node, also in the selected member of a union.
fn contents(node: &NodeValue) -> Option<&Value> {
    match node {
        NodeValue::Value(value) => Some(value),
        NodeValue::Union(union) => union.as_ref()?.value.value(0),
        NodeValue::Any(any) => any.as_ref()?.value(0),
        NodeValue::Structure | NodeValue::Structures(_) | NodeValue::Unions(_) | NodeValue::Anys(_) => None,
    }
}

/// A value with the alarm and the time stamp of the structure around it, as far as it has them.
fn stamped(update: &Structure, around: usize, value: Value) -> Reading {
    let kind = update.kind();
    let member = |path: [&str; 2]| {
        let outer = kind.member(around, path[0].as_bytes())?;
        update.value(kind.member(outer, path[1].as_bytes())?)
    };
    let mut reading = Reading::bare(value);
    let severity = u16::try_from(integer(member(["alarm", "severity"]))).unwrap_or(u16::MAX);
    reading.alarm.severity = Severity::from_code(severity);
    reading.alarm.status = if severity == 0 { Status::NO_ALARM } else { Status::UDF };
    if let Some(Value::Scalar(Scalar::Text(message))) = member(["alarm", "message"]).filter(|_| severity != 0) {
        reading.message = Some(Arc::new(message.clone()));
    }
    if let Some(seconds) = member(["timeStamp", "secondsPastEpoch"]) {
        let nanos = u32::try_from(integer(member(["timeStamp", "nanoseconds"]))).unwrap_or(0);
        reading.time = TimeStamp { unix_s: integer(Some(seconds)), nanos };
        reading.user_tag = integer(member(["timeStamp", "userTag"])) as i32;
    }
    reading
}

/// These nodes of a structure as a structure of their own, with the nodes that have changed.
fn part(update: &Structure, bits: &Range<usize>, kind: &Arc<StructureType>) -> Structure {
    let mut part = Structure::new(kind.clone());
    for bit in bits.clone() {
        if let Some(node) = update.node(bit).filter(|node| !matches!(node, NodeValue::Structure)) {
            // The node has the same type.
            let is_set = part.set_node(bit - bits.start, node.clone());
            debug_assert_eq!(is_set, Ok(()));
        }
    }
    let changed = update.kind().covered(update.changed()).flatten().filter(|bit| bits.contains(bit));
    let changed: BitSet = changed.map(|bit| bit - bits.start).collect();
    part.mark_only(changed);
    part
}

fn integer(value: Option<&Value>) -> i64 {
    match value.and_then(Value::first).and_then(|first| first.to_kind(Kind::I64, None).ok()) {
        Some(Scalar::I64(number)) => number,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use fodo_data::{StructureBuilder, UnionMember, UnionType, UnionValue, normative_type};

    use super::*;

    fn numbers() -> Structure {
        Structure::new(Arc::new(normative_type(Kind::F64, false)))
    }

    /// A group with a complete member, a plain member and an enum.
    fn group() -> Structure {
        let mut build = StructureBuilder::new("epics:p2p/Structure:1.0");
        build.open("a", "epics:nt/NTScalar:1.0").scalar("value", Kind::F64);
        build.open("alarm", "alarm_t").scalar("severity", Kind::I32).scalar("status", Kind::I32);
        build.scalar("message", Kind::Text).close();
        build
            .open("timeStamp", "time_t")
            .scalar("secondsPastEpoch", Kind::I64)
            .scalar("nanoseconds", Kind::I32)
            .close();
        build.open("display", "").scalar("units", Kind::Text).close().close();
        build.scalar("plain", Kind::I32);
        build.open("mode", "enum_t").scalar("index", Kind::I32).array("choices", Kind::Text).close();
        Structure::new(Arc::new(build.finish()))
    }

    #[test]
    fn the_whole_of_a_normative_type_is_its_value_with_alarm_time_and_units() {
        let mut update = numbers();
        update.set("value", 2.5).unwrap();
        update.set("alarm.severity", 2).unwrap();
        update.set("alarm.message", "dry").unwrap();
        update.set("timeStamp.secondsPastEpoch", 1_700_000_000_i64).unwrap();
        update.set("display.units", "mm").unwrap();

        let mut view = FieldView::of(update.kind(), "").unwrap();
        let reading = view.reading(&update).unwrap();

        assert_eq!(
            (reading.value, reading.alarm.severity, reading.time.unix_s),
            (2.5.into(), Severity::Major, 1_700_000_000)
        );
        assert_eq!(reading.message.as_deref(), Some(&"dry".into()));
        assert_eq!(reading.meta.unwrap().units, "mm".into());
        assert_eq!(view.to_put(1.into(), &mut update), Ok(("value".into(), NodeValue::Value(1.into()))));
    }

    #[test]
    fn units_stay_known_when_an_update_does_not_contain_them() {
        let mut update = numbers();
        update.set("display.units", "mm").unwrap();
        let mut view = FieldView::of(update.kind(), "").unwrap();
        view.reading(&update);

        let mut later = update.clone();
        later.unmark_all();
        later.set("value", 1.0).unwrap();

        assert_eq!(view.reading(&later).unwrap().meta.unwrap().units, "mm".into());
        assert!(view.is_of(later.kind()));
    }

    #[test]
    fn a_member_with_a_value_has_its_own_alarm_time_and_units() {
        let mut update = group();
        update.set("a.value", 1.5).unwrap();
        update.set("a.alarm.severity", 1).unwrap();
        update.set("a.timeStamp.secondsPastEpoch", 7_i64).unwrap();
        update.set("a.display.units", "K").unwrap();

        let mut view = FieldView::of(update.kind(), "a").unwrap();
        let reading = view.reading(&update).unwrap();

        assert_eq!((reading.value, reading.alarm.severity, reading.time.unix_s), (1.5.into(), Severity::Minor, 7));
        assert_eq!(reading.meta.unwrap().units, "K".into());
        assert_eq!(view.to_put(2.5.into(), &mut update).unwrap().0, "a.value");
    }

    #[test]
    fn a_single_field_has_neither_alarm_nor_time() {
        let mut update = group();
        update.set("plain", 5).unwrap();
        update.set("a.display.units", "K").unwrap();

        let plain = FieldView::of(update.kind(), "plain").unwrap().reading(&update).unwrap();
        let mut units = FieldView::of(update.kind(), "a.display.units").unwrap();

        assert_eq!(plain, Reading::bare(5.into()));
        assert_eq!(units.reading(&update).unwrap().value, "K".into());
        assert_eq!(units.to_put("mm".into(), &mut update).unwrap().0, "a.display.units");
    }

    #[test]
    fn an_enum_is_read_with_its_labels_and_written_by_name_or_index() {
        let mut update = group();
        update.set("mode.index", 1).unwrap();
        update.set("mode.choices", vec![Text::from("off"), "on".into()]).unwrap();

        let mut view = FieldView::of(update.kind(), "mode").unwrap();
        let reading = view.reading(&update).unwrap();

        assert_eq!(reading.value, Value::Scalar(Scalar::Enum(1)));
        assert_eq!(reading.meta.unwrap().labels.len(), 2);
        let mut put = |value: Value| view.to_put(value, &mut update);
        assert_eq!(put("on".into()), Ok(("mode".into(), NodeValue::Value(1.into()))));
        assert_eq!(put("0".into()), Ok(("mode".into(), NodeValue::Value("0".into()))));
        assert!(put("open".into()).is_err_and(|reason| reason.contains("\"mode\"")));
        assert!(put("off".into()).is_ok(), "a refused value does not affect later ones");
    }

    #[test]
    fn the_selected_member_of_a_union_is_read_with_the_alarm_beside_it() {
        let member = |name: &str, kind| UnionMember { name: name.into(), kind: Arc::new(StructureType::single(kind)) };
        let number = NodeKind::Scalar(Kind::F64);
        let union = UnionType { id: "".into(), members: vec![member("number", number)] };
        let mut build = StructureBuilder::new("epics:nt/NTUnion:1.0");
        build.leaf("value", NodeKind::Union(Arc::new(union)));
        build.open("alarm", "alarm_t").scalar("severity", Kind::I32).scalar("message", Kind::Text).close();
        build
            .open("timeStamp", "time_t")
            .scalar("secondsPastEpoch", Kind::I64)
            .scalar("nanoseconds", Kind::I32)
            .close();
        let mut update = Structure::new(Arc::new(build.finish()));
        let mut view = FieldView::of(update.kind(), "").unwrap();
        assert_eq!(view.reading(&update), None);

        let value = UnionValue { selector: 0, value: Structure::single(2.5.into()) };
        update.set_node(1, NodeValue::Union(Some(Box::new(value)))).unwrap();
        update.set("alarm.severity", 3).unwrap();
        update.set("alarm.message", "broken").unwrap();
        update.set("timeStamp.secondsPastEpoch", 9_i64).unwrap();
        let reading = view.reading(&update).unwrap();

        assert_eq!((reading.value, reading.alarm.severity, reading.time.unix_s), (2.5.into(), Severity::Invalid, 9));
        assert_eq!(reading.message.as_deref(), Some(&"broken".into()));
    }

    #[test]
    fn a_path_without_a_value_is_no_field() {
        let kind = group().kind().clone();

        for path in ["", "b", "a.alarm", "plain.x", "a.value.x"] {
            assert!(FieldView::of(&kind, path).is_none(), "{path}");
        }
    }
}
