//! Our server with PVs of any type, which `fodo ioc` does not have, in the process of the test.

use std::sync::Arc;

use fodo_data::{
    Kind, NodeKind, NodeValue, Structure, StructureBuilder, StructureError, StructureType, Text, UnionMember,
    UnionType, UnionValue, Value,
};
use fodo_net::{PvTable, Server, ServerConfig, SharedStructure};

use crate::TestFailure;

/// Starts it on loopback. It has the same PVs as the servers of the peers.
pub fn start(prefix: &str) -> Result<Server, TestFailure> {
    let pvs = served().map_err(|error| error.to_string())?;
    let table: PvTable = pvs.into_iter().map(|(name, pv)| (format!("{prefix}{name}"), pv)).collect();
    Server::start(ServerConfig::isolated(), Arc::new(table)).map_err(|error| error.to_string())
}

fn served() -> Result<[(&'static str, SharedStructure); 4], StructureError> {
    let sum = Arc::new(StructureBuilder::new("epics:nt/NTScalar:1.0").scalar("value", Kind::F64).finish());
    let add = move |argument: &Structure, _: &_| -> Result<Structure, String> {
        let number = |name: &str| {
            let number = argument.get(&format!("query.{name}")).and_then(|value| value.to_f64().ok());
            number.ok_or_else(|| format!("the argument {name} is missing"))
        };
        let mut result = Structure::new(sum.clone());
        result.set("value", number("lhs")? + number("rhs")?).map_err(|error| error.to_string())?;
        Ok(result)
    };
    Ok([
        ("table", writable(table()?)),
        ("union", writable(union()?)),
        ("variant", writable(variant()?)),
        ("add", SharedStructure::procedure(add)),
    ])
}

/// Every put is stored.
fn writable(initial: Structure) -> SharedStructure {
    SharedStructure::builder(initial).on_put(|put, _| Ok(put)).build()
}

fn table() -> Result<Structure, StructureError> {
    let mut kind = StructureBuilder::new("epics:nt/NTTable:1.0");
    kind.array("labels", Kind::Text).open("value", "").array("name", Kind::Text).array("position", Kind::F64).close();
    let mut table = Structure::new(stamped(kind));
    let texts = |texts: [&str; 2]| Value::from(texts.map(Text::from).to_vec());
    table.set("labels", texts(["name", "position"]))?;
    table.set("value.name", texts(["left", "right"]))?;
    table.set("value.position", vec![-1.5, 2.5])?;
    Ok(table)
}

fn union() -> Result<Structure, StructureError> {
    let members = [("flag", Kind::Bool), ("number", Kind::F64), ("text", Kind::Text)].map(|(name, kind)| UnionMember {
        name: name.into(),
        kind: Arc::new(StructureType::single(NodeKind::Scalar(kind))),
    });
    let number = UnionValue { selector: 1, value: Structure::single(1.5.into()) };
    let kind = NodeKind::Union(Arc::new(UnionType { id: "".into(), members: members.to_vec() }));
    normative_union(kind, NodeValue::Union(Some(Box::new(number))))
}

fn variant() -> Result<Structure, StructureError> {
    normative_union(NodeKind::Any, NodeValue::Any(Some(Box::new(Structure::single(1.5.into())))))
}

fn normative_union(kind: NodeKind, value: NodeValue) -> Result<Structure, StructureError> {
    let mut members = StructureBuilder::new("epics:nt/NTUnion:1.0");
    members.leaf("value", kind);
    let mut union = Structure::new(stamped(members));
    // Node 0 is the structure itself.
    union.set_node(1, value)?;
    Ok(union)
}

/// The type with an alarm and a time stamp.
fn stamped(mut kind: StructureBuilder) -> Arc<StructureType> {
    kind.open("alarm", "alarm_t").scalar("severity", Kind::I32).scalar("status", Kind::I32);
    kind.scalar("message", Kind::Text).close();
    kind.open("timeStamp", "time_t").scalar("secondsPastEpoch", Kind::I64).scalar("nanoseconds", Kind::I32);
    kind.scalar("userTag", Kind::I32).close();
    Arc::new(kind.finish())
}
