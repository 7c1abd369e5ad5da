//! The normative types: the reference page, and structures of all types through builder, validator and reader.
//! `FODO_WRITE_REFERENCE=1` regenerates the page.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers as well")]

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use fodo_data::{
    Alarm, Array, FieldStructure, FieldType, Kind, NodeKind, NodeValue, NormativeContent, NormativeError,
    NormativeField, NormativeReader, NormativeType, Severity, Status, Structure, StructureBuilder, StructureType, Text,
    TimeStamp, UnionMember, UnionType, UnionValue, Value,
};

/// The rows of fields, and the structures that they name.
fn rows(fields: &[NormativeField], structures: &mut Vec<&'static FieldStructure>) -> String {
    let mut text = String::from("| field | type | |\n|---|---|---|\n");
    for field in fields {
        let optional = if field.is_optional { "optional" } else { "" };
        let _ = writeln!(text, "| `{}` | {} | {optional} |", field.name, field.kind);
        if let FieldType::Structure(inner) | FieldType::StructureArray(inner) = field.kind
            && !structures.contains(&inner)
        {
            structures.push(inner);
        }
    }
    text
}

#[test]
fn the_reference_page_of_normative_types_matches_the_table_in_the_code() {
    let mut text = String::from(
        "# Normative types\n\n\
         The types of the Normative Types Specification, which structures of pvAccess declare by their id, such as\n\
         `epics:nt/NTTable:1.0`. A name and the major version identify a type; a structure may have further fields. `fodo-data` builds,\n\
         checks and reads all of them (`NormativeType`); [tools of pvAccess](pvaccess-tools.md) describes how `fodo` shows them.\n\n\
         The ids of the structures inside are not checked, because programs omit them. `valueAlarm`, `isConnected` and the `display`\n\
         of NTEnum are not in the specification; pvxs or p4p have them.\n\n\
         Generated from `crates/data/src/normative_types.rs`; a test compares this page with the code.\n",
    );
    let mut structures = Vec::new();
    for kind in NormativeType::ALL {
        let _ = write!(text, "\n## {}\n\n{}\n\n{}", kind.name(), kind.what(), rows(kind.fields(), &mut structures));
    }
    let mut next = 0;
    while let Some(structure) = structures.get(next).copied() {
        // The attributes of an NTNDArray have the id of an NTAttribute.
        let title = structure.id.trim_start_matches("epics:nt/").trim_end_matches(":1.0");
        let title = if title == structure.id { title.to_owned() } else { format!("{title} of an NTNDArray") };
        let _ = write!(text, "\n## {title}\n\n{}", rows(structure.fields, &mut structures));
        next += 1;
    }

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/normative-types.md");
    if std::env::var_os("FODO_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, &text).expect("the page can be written");
    }
    let page = std::fs::read_to_string(&path).expect("the page exists");
    let differs = page.lines().zip(text.lines()).find(|(page, made)| page != made);
    assert!(page == text, "the page differs from the code: {differs:?}; regenerate it with FODO_WRITE_REFERENCE=1");
}

fn texts(texts: &[&str]) -> Vec<Text> {
    texts.iter().map(|&text| text.into()).collect()
}

/// A structure with a descriptor, an alarm and a time stamp where the type has them, and these values.
fn structure(kind: StructureType, values: &[(&str, Value)]) -> Structure {
    let mut structure = Structure::new(Arc::new(kind));
    let common: [(&str, Value); 4] = [
        ("descriptor", "one".into()),
        ("alarm.severity", 2.into()),
        ("alarm.message", "HIHI".into()),
        ("timeStamp.secondsPastEpoch", 1_800_000_000.into()),
    ];
    for (path, value) in common {
        if structure.kind().node(path).is_some() {
            structure.set(path, value).unwrap();
        }
    }
    for (path, value) in values {
        structure.set(path, value.clone()).unwrap();
    }
    structure
}

/// A type with a descriptor, an alarm and a time stamp, whose value is an array unless the table has another type.
fn kind(of: NormativeType, value: Option<StructureType>) -> StructureType {
    let mut builder = of.builder();
    for name in ["descriptor", "alarm", "timeStamp"].into_iter().filter(|name| of.field(name).is_some()) {
        builder = builder.with(name);
    }
    match value {
        Some(value) => builder.field("value", value).finish().unwrap(),
        None => builder.finish().unwrap(),
    }
}

fn doubles() -> StructureType {
    Arc::unwrap_or_clone(Structure::single(vec![0.0].into()).kind().clone())
}

/// Compares what is read from a structure that the validator accepts.
fn assert_content(structure: &Structure, expected: NormativeContent<'_>) {
    let reader = NormativeReader::new(structure).unwrap();
    assert_eq!(NormativeType::of(structure.kind()), Ok(reader.of()));
    assert_eq!(reader.of().check_values(structure), Ok(()));
    assert_eq!(reader.content(), Ok(expected));
    if reader.of() != NormativeType::Uri {
        assert_eq!(reader.descriptor(), Some("one".into()));
        assert_eq!(reader.alarm(), Some(Alarm { severity: Severity::Major, status: Status::HIHI }));
        assert_eq!(reader.time("timeStamp"), Some((TimeStamp { unix_s: 1_800_000_000, nanos: 0 }, 0)));
    }
}

#[test]
fn values_and_arrays_round_trip_through_their_normative_types() {
    use NormativeType as T;

    let number = StructureType::single(NodeKind::Scalar(Kind::I16));
    let scalar = structure(kind(T::Scalar, Some(number)), &[("value", 5.into())]);
    assert_content(&scalar, NormativeContent::Scalar(&fodo_data::Scalar::I16(5)));
    let samples = &Array::F64(Arc::new(vec![1.5, 2.5]));
    let values = Value::Array(samples.clone());
    let array = structure(kind(T::ScalarArray, Some(doubles())), &[("value", values.clone())]);
    assert_content(&array, NormativeContent::ScalarArray(samples));
    let choices = &texts(&["off", "on"]);
    let state = [("value.index", 1.into()), ("value.choices", choices.clone().into())];
    assert_content(&structure(kind(T::Enum, None), &state), NormativeContent::Enum { index: 1, choices });

    let vector = structure(kind(T::Matrix, None), &[("value", values.clone())]);
    assert_content(&vector, NormativeContent::Matrix { n_rows: 2, n_columns: 1, elements: samples });
    let matrix = T::Matrix.builder().with("dim").with("descriptor").with("alarm").with("timeStamp").finish().unwrap();
    let matrix = structure(matrix, &[("value", values.clone()), ("dim", vec![1, 2].into())]);
    assert_content(&matrix, NormativeContent::Matrix { n_rows: 1, n_columns: 2, elements: samples });

    let names = &texts(&["a", "b"]);
    let pairs = [("name", names.clone().into()), ("value", values.clone())];
    let pairs = structure(kind(T::NameValue, Some(doubles())), &pairs);
    assert_content(&pairs, NormativeContent::NameValue { names, values: samples });
    let spectrum = [("base", values.clone()), ("value", values.clone()), ("units", names.clone().into())];
    let spectrum = structure(kind(T::Continuum, None), &spectrum);
    assert_content(&spectrum, NormativeContent::Continuum { base: samples, values: samples, units: names });
    let counts = &Array::I64(Arc::new(vec![7]));
    let of_counts = Arc::unwrap_or_clone(Structure::single(Value::Array(counts.clone())).kind().clone());
    let histogram = [("ranges", values.clone()), ("value", Value::Array(counts.clone()))];
    let histogram = structure(kind(T::Histogram, Some(of_counts)), &histogram);
    assert_content(&histogram, NormativeContent::Histogram { ranges: samples, counts });
}

#[test]
fn statistics_round_trip_and_what_is_missing_is_nan() {
    let aggregate = ["dispersion", "first", "last", "min", "max", "descriptor", "alarm", "timeStamp"]
        .iter()
        .fold(NormativeType::Aggregate.builder(), |builder, field| builder.with(field));
    let names = ["value", "N", "dispersion", "first", "last", "min", "max"];
    let numbers = names.iter().zip(1..).map(|(name, number)| (*name, Value::from(number)));

    let whole = structure(aggregate.finish().unwrap(), &numbers.collect::<Vec<_>>());
    let bare = structure(NormativeType::Aggregate.builder().finish().unwrap(), &[]);

    let content =
        NormativeContent::Aggregate { value: 1.0, n: 2, dispersion: 3.0, ends: [4.0, 5.0], range: [6.0, 7.0] };
    assert_content(&whole, content);
    let Ok(NormativeContent::Aggregate { value, dispersion, .. }) = NormativeReader::new(&bare).unwrap().content()
    else {
        panic!("it is an NTAggregate");
    };
    assert!(value == 0.0 && dispersion.is_nan());
}

#[test]
fn unions_and_variant_unions_are_read_with_their_selected_member() {
    let member = |name: &str, kind| UnionMember {
        name: name.into(),
        kind: Arc::new(StructureType::single(NodeKind::Scalar(kind))),
    };
    let members = vec![member("number", Kind::F64), member("text", Kind::Text)];
    let union = StructureType::single(NodeKind::Union(Arc::new(UnionType { id: Text::EMPTY, members })));
    let variant = StructureType::single(NodeKind::Any);
    let content = Structure::single("hi".into());
    let selected = NodeValue::Union(Some(Box::new(UnionValue { selector: 1, value: content.clone() })));
    let with = |value: StructureType, content: NodeValue| {
        let mut of = structure(kind(NormativeType::Union, Some(value)), &[]);
        of.set_node(1, content).unwrap();
        of
    };

    assert_content(&with(union.clone(), selected), NormativeContent::Union(Some(("text".into(), &content))));
    assert_content(&with(union, NodeValue::Union(None)), NormativeContent::Union(None));
    let any = NodeValue::Any(Some(Box::new(content.clone())));
    assert_content(&with(variant.clone(), any.clone()), NormativeContent::Union(Some((Text::EMPTY, &content))));
    assert_content(&with(variant, NodeValue::Any(None)), NormativeContent::Union(None));
    let mut attribute = structure(kind(NormativeType::Attribute, None), &[("name", "gain".into())]);
    let value = attribute.kind().node("value").unwrap();
    attribute.set_node(value, any).unwrap();
    let expected = NormativeContent::Attribute { name: "gain".into(), value: Some(&content), tags: &[] };
    assert_content(&attribute, expected);
}

#[test]
fn values_of_several_pvs_are_read_with_their_names() {
    let names = texts(&["x", "y"]);
    let given: [(&str, Value); 1] = [("channelName", names.clone().into())];
    let single = |number: f64| Some(Structure::single(number.into()));

    let mut scalars = structure(kind(NormativeType::ScalarMultiChannel, Some(doubles())), &given);
    scalars.set("value", vec![1.5, 2.5]).unwrap();
    let mut any = structure(kind(NormativeType::MultiChannel, None), &given);
    any.set_node(1, NodeValue::Anys(Arc::new(vec![single(1.5), None]))).unwrap();

    let values = |of: &Structure| match NormativeReader::new(of).unwrap().content() {
        Ok(NormativeContent::Channels(channels)) => (channels.names.to_vec(), channels.values),
        other => panic!("{other:?} is not the values of several PVs"),
    };
    assert_eq!(values(&scalars), (names.clone(), vec![single(1.5), single(2.5)]));
    assert_eq!(values(&any), (names, vec![single(1.5), None]));
}

#[test]
fn a_request_is_read_with_its_arguments() {
    let mut query = StructureBuilder::new("");
    let query = query.scalar("a", Kind::F64).finish();
    let request = NormativeType::Uri.builder().field("query", query).finish().unwrap();
    let request = structure(request, &[("scheme", "pva".into()), ("path", "x:add".into()), ("query.a", 1.5.into())]);

    let query = vec![("a".into(), &NodeValue::Value(Value::Scalar(fodo_data::Scalar::F64(1.5))))];
    let (scheme, path) = ("pva".into(), "x:add".into());
    assert_content(&request, NormativeContent::Uri { scheme, authority: Text::EMPTY, path, query });
}

#[test]
fn a_field_that_the_reader_needs_is_named_if_it_is_missing() {
    let mut build = StructureBuilder::new("epics:nt/NTNameValue:1.0");
    let without_names = structure(build.array("value", Kind::F64).finish(), &[]);
    let scan = structure(StructureBuilder::new("scan_t").finish(), &[]);

    let error = NormativeReader::new(&without_names).unwrap().content().unwrap_err();

    assert_eq!(error.to_string(), "NTNameValue: the field name is missing: expected string[]");
    assert_eq!(NormativeReader::new(&scan).unwrap_err(), NormativeError::Id("scan_t".into()));
}
