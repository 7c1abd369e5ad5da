//! Serves structured PVs over pvAccess: a table, a union, an image and procedures.
//!
//! `cargo run -p fodo-net --example structures` serves them until the end of its standard input. Read them with any client
//! of pvAccess: `pvget demo:table`, `pvmonitor demo:image`, `pvcall demo:add a=1 b=2`, `pvlist`.

use std::sync::Arc;
use std::time::Duration;

use fodo_data::{ArraySize, NodeKind, UnionMember, UnionType, UnionValue};
use fodo_net::{
    Kind, NodeValue, PvTable, Server, ServerConfig, SharedPv, SharedStructure, Structure, StructureBuilder,
    StructureError, StructureType, Text, Value,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (table, image) = (SharedStructure::builder(table()?).on_put(|change, _| Ok(change)).build(), image());
    let pvs = PvTable::from([
        ("demo:table", table),
        ("demo:image", image.clone()),
        ("demo:choice", choice()),
        ("demo:add", SharedStructure::procedure(|argument, _| add(argument))),
    ]);
    pvs.insert("demo:scalar", SharedPv::builder(1.5).on_put(|value, _| Ok(value)).build());
    let server = Server::start(ServerConfig::from_env()?, Arc::new(pvs))?;
    println!("{:?}", server.pva_tcp_port());

    std::thread::spawn(move || {
        for number in 1.. {
            if post_image(&image, number).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// A table with two columns.
fn table() -> Result<Structure, StructureError> {
    let mut build = StructureBuilder::new("epics:nt/NTTable:1.0");
    build.array("labels", Kind::Text);
    build.open("value", "").array("x", Kind::F64).array("y", Kind::F64).close();
    build.open("timeStamp", "time_t").scalar("secondsPastEpoch", Kind::I64);
    build.scalar("nanoseconds", Kind::I32).scalar("userTag", Kind::I32).close();
    let mut table = Structure::new(Arc::new(build.finish()));
    table.set("labels", ["x", "y"].map(Text::from).to_vec())?;
    table.set("value.x", vec![0.5, 1.0, 1.5])?;
    table.set("value.y", vec![1.0, 2.0, 4.0])?;
    Ok(table)
}

fn member(name: &str, kind: NodeKind) -> UnionMember {
    UnionMember { name: name.into(), kind: Arc::new(StructureType::single(kind)) }
}

fn array(kind: Kind) -> NodeKind {
    NodeKind::Array { kind, size: ArraySize::Variable }
}

/// A number or a text, which clients can put.
fn choice() -> SharedStructure {
    let members = vec![member("number", NodeKind::Scalar(Kind::F64)), member("text", NodeKind::Scalar(Kind::Text))];
    let mut build = StructureBuilder::new("choice_t");
    build.leaf("value", NodeKind::Union(Arc::new(UnionType { id: "".into(), members }))).leaf("any", NodeKind::Any);
    let choice = Structure::new(Arc::new(build.finish()));
    SharedStructure::builder(choice).on_put(|change, _| Ok(change)).build()
}

/// The main fields of an NTNDArray.
fn image() -> SharedStructure {
    let members = vec![member("ubyteValue", array(Kind::U8)), member("ushortValue", array(Kind::U16))];
    let mut dimension = StructureBuilder::new("dimension_t");
    dimension.scalar("size", Kind::I32).scalar("offset", Kind::I32).scalar("fullSize", Kind::I32);
    dimension.scalar("binning", Kind::I32).scalar("reverse", Kind::Bool);
    let mut build = StructureBuilder::new("epics:nt/NTNDArray:1.0");
    build.leaf("value", NodeKind::Union(Arc::new(UnionType { id: "".into(), members })));
    build.leaf("dimension", NodeKind::StructureArray(Arc::new(dimension.finish())));
    build.scalar("uniqueId", Kind::I32);
    build.open("timeStamp", "time_t").scalar("secondsPastEpoch", Kind::I64);
    build.scalar("nanoseconds", Kind::I32).scalar("userTag", Kind::I32).close();
    SharedPv::structured(Structure::new(Arc::new(build.finish())))
}

fn post_image(image: &SharedStructure, number: i32) -> Result<(), StructureError> {
    const SIZE: i32 = 64;
    let mut change = image.new_value();
    let pixels = vec![number as u8; (SIZE * SIZE) as usize];
    let value = NodeValue::Union(Some(Box::new(UnionValue { selector: 0, value: Structure::single(pixels.into()) })));
    let kind = image.value().kind().clone();
    let node = |name| kind.node(name).ok_or_else(|| StructureError::NoSuchNode(Text::from(name)));
    change.set_node(node("value")?, value)?;
    if let NodeKind::StructureArray(dimension) = &kind.nodes()[node("dimension")?].kind {
        let mut size = Structure::new(dimension.clone());
        size.set("size", SIZE)?;
        size.set("fullSize", SIZE)?;
        let both = NodeValue::Structures(Arc::new(vec![Some(size.clone()), Some(size)]));
        change.set_node(node("dimension")?, both)?;
    }
    change.set("uniqueId", number)?;
    image.post(&change)
}

/// The sum of the arguments `a` and `b`.
fn add(argument: &Structure) -> Result<Structure, String> {
    let number = |name: &str| {
        let value = argument.get(&format!("query.{name}")).or_else(|| argument.get(name));
        let value = value.ok_or_else(|| format!("the argument {name} is missing"))?;
        value.to_f64().map_err(|error| format!("{name}: {error}"))
    };
    let mut build = StructureBuilder::new("epics:nt/NTScalar:1.0");
    let mut sum = Structure::new(Arc::new(build.scalar("value", Kind::F64).finish()));
    sum.set("value", Value::from(number("a")? + number("b")?)).map_err(|error| error.to_string())?;
    Ok(sum)
}
