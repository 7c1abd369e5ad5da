//! The channel with the name `server`, which every server of pvAccess has: a procedure that lists the PVs and describes the
//! server. Searches for it are not answered; clients connect to an address that they know.
//!
//! Source: pvxs 1.5.3, `serversource.cpp`, and pvAccessCPP 7.1, `pvlist.cpp`.

use std::sync::Arc;

use fodo_data::{Kind, Structure, StructureBuilder, StructureError, Text, Value};
use fodo_engine::Rights;
use fodo_pva::server::ChannelType;

use super::PvAccess;
use super::pv::PvaPv;
use crate::server::Source;
use crate::server::circuit::OpenedPv;

/// The name of the channel.
pub(super) const NAME: &str = "server";

/// Every client may call it, and it has no value.
pub(super) const RIGHTS: Rights = Rights { read: false, write: false };

const HELP: &str = "op=channels lists the names of the PVs, op=info describes the server, op=help returns this text";

/// The channel.
pub(super) fn opened() -> OpenedPv<PvAccess> {
    let kind = Arc::new(StructureBuilder::new("").finish());
    OpenedPv { pv: PvaPv::Server, facts: ChannelType::Structured(kind), allowed: RIGHTS }
}

/// The result of a call. The argument is an NTURI with the query `op`, or a structure with the member `op`.
pub(super) fn answer(source: &dyn Source, argument: &Structure) -> Result<Structure, String> {
    let operation = argument.get("query.op").or_else(|| argument.get("op")).and_then(Value::first);
    let operation = operation.map(|operation| operation.to_text(None).to_str().into_owned());
    let has_help = ["query.help", "help"].iter().any(|path| argument.kind().node(path).is_some());
    let result = match operation.as_deref() {
        Some("channels") => channels(source),
        Some("info") => info(),
        Some("help") => help(),
        None if has_help => help(),
        Some(other) => return Err(format!("unknown op {other:?}; {HELP}")),
        None => return Err(format!("the argument op is missing; {HELP}")),
    };
    result.map_err(|error| error.to_string())
}

fn channels(source: &dyn Source) -> Result<Structure, StructureError> {
    let mut names: Vec<Text> = source.names().into_iter().map(Text::from).collect();
    names.sort_unstable_by(|left, right| left.as_bytes().cmp(right.as_bytes()));
    names.dedup();
    let mut build = StructureBuilder::new("epics:nt/NTScalarArray:1.0");
    with_value(build.array("value", Kind::Text), names.into())
}

fn help() -> Result<Structure, StructureError> {
    let mut build = StructureBuilder::new("epics:nt/NTScalar:1.0");
    with_value(build.scalar("value", Kind::Text), HELP.into())
}

fn with_value(build: &mut StructureBuilder, value: Value) -> Result<Structure, StructureError> {
    let mut result = Structure::new(Arc::new(build.finish()));
    result.set("value", value)?;
    Ok(result)
}

fn info() -> Result<Structure, StructureError> {
    let mut build = StructureBuilder::new("");
    build.scalar("implLang", Kind::Text).scalar("version", Kind::Text);
    let mut result = Structure::new(Arc::new(build.finish()));
    result.set("implLang", "rust")?;
    result.set("version", concat!("fodo ", env!("CARGO_PKG_VERSION")))?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{PvTable, SharedPv};

    /// The result for an NTURI with this operation, and for a plain structure.
    fn results(operation: &str) -> [Result<Structure, String>; 2] {
        let source = PvTable::from([("b", SharedPv::new(1)), ("a", SharedPv::new(1))]);
        let mut uri = StructureBuilder::new("epics:nt/NTURI:1.0");
        uri.scalar("path", Kind::Text).open("query", "").scalar("op", Kind::Text).close();
        let mut plain = StructureBuilder::new("");
        plain.scalar("op", Kind::Text);
        [(uri, "query.op"), (plain, "op")].map(|(mut build, path)| {
            let mut argument = Structure::new(Arc::new(build.finish()));
            argument.set(path, operation).unwrap();
            answer(&source, &argument)
        })
    }

    #[test]
    fn the_server_lists_its_pvs_and_describes_itself() {
        for result in results("channels") {
            let expected: Value = vec![Text::from("a"), Text::from("b")].into();
            assert_eq!(result.unwrap().get("value"), Some(&expected));
        }
        for result in results("info") {
            assert_eq!(result.unwrap().get("implLang"), Some(&"rust".into()));
        }
        for result in results("help") {
            assert_eq!(result.unwrap().get("value"), Some(&HELP.into()));
        }
        for result in results("nonsense") {
            assert!(result.unwrap_err().starts_with("unknown op \"nonsense\"; op=channels"));
        }
        let empty = Structure::new(Arc::new(StructureBuilder::new("").finish()));
        assert!(answer(&PvTable::new(), &empty).unwrap_err().starts_with("the argument op is missing"));
    }
}
