use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::step::output_of;

/// A package of the workspace with its dependencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceMember {
    /// The name of its folder: `ca` for the package `fodo-ca`.
    pub name: String,
    /// The workspace members that it uses, sorted. Dev-dependencies are excluded.
    pub members: Vec<String>,
    /// The external packages that it uses, sorted.
    pub outside: Vec<String>,
}

/// The relevant part of cargo's metadata.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// The members, sorted by name.
    pub members: Vec<WorkspaceMember>,
    /// The root sources of libraries and programs, relative to the workspace root.
    pub roots: Vec<String>,
    /// `(name version, licence)` of every external package.
    pub licences: Vec<(String, String)>,
}

impl Metadata {
    /// Runs `cargo metadata`.
    pub fn read(root: &Path) -> Result<Metadata, String> {
        let mut command = Command::new("cargo");
        command.args(["metadata", "--format-version", "1", "--quiet"]).current_dir(root);
        let printed = output_of(root, &mut command)?;
        let json = serde_json::from_str(&printed).map_err(|error| format!("cargo metadata: {error}"))?;
        Ok(Metadata::from_json(&json))
    }

    fn from_json(json: &Value) -> Metadata {
        let root = json["workspace_root"].as_str().unwrap_or_default();
        let member_ids = texts(&json["workspace_members"]);
        let mut metadata = Metadata::default();
        for package in json["packages"].as_array().into_iter().flatten() {
            let text = |key: &str| package[key].as_str().unwrap_or_default();
            if !member_ids.contains(&text("id")) {
                let name = format!("{} {}", text("name"), text("version"));
                metadata.licences.push((name, text("license").to_string()));
                continue;
            }
            metadata.members.push(member(package));
            for target in package["targets"].as_array().into_iter().flatten() {
                let kinds = texts(&target["kind"]);
                let source = target["src_path"].as_str().unwrap_or_default();
                if kinds.iter().any(|kind| ["lib", "bin", "cdylib", "proc-macro"].contains(kind)) {
                    metadata.roots.push(source.trim_start_matches(root).trim_start_matches('/').to_string());
                }
            }
        }
        metadata.members.sort_by(|a, b| a.name.cmp(&b.name));
        metadata
    }
}

fn member(package: &Value) -> WorkspaceMember {
    let mut found = WorkspaceMember {
        name: short(package["name"].as_str().unwrap_or_default()).to_string(),
        ..WorkspaceMember::default()
    };
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let name = dependency["name"].as_str().unwrap_or_default();
        if dependency["kind"].as_str() == Some("dev") {
            continue;
        }
        match dependency["path"].is_string() {
            true => found.members.push(short(name).to_string()),
            false => found.outside.push(name.to_string()),
        }
    }
    for list in [&mut found.members, &mut found.outside] {
        list.sort();
        list.dedup();
    }
    found
}

fn short(package: &str) -> &str {
    package.strip_prefix("fodo-").unwrap_or(package)
}

fn texts(json: &Value) -> Vec<&str> {
    json.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dev_dependencies_are_ignored() {
        let json = serde_json::json!({
            "workspace_root": "/r",
            "workspace_members": ["a"],
            "packages": [
                { "id": "a", "name": "fodo-ca", "targets": [{ "kind": ["lib"], "src_path": "/r/crates/ca/src/lib.rs" }],
                  "dependencies": [
                    { "name": "fodo-data", "kind": null, "path": "/r/crates/data" },
                    { "name": "mio", "kind": null },
                    { "name": "proptest", "kind": "dev" } ] },
                { "id": "b", "name": "mio", "version": "1.0.0", "license": "MIT", "targets": [], "dependencies": [] },
            ]
        });

        let metadata = Metadata::from_json(&json);
        let expected = WorkspaceMember { name: "ca".into(), members: vec!["data".into()], outside: vec!["mio".into()] };
        assert_eq!(metadata.members, [expected]);
        assert_eq!(metadata.roots, ["crates/ca/src/lib.rs"]);
        assert_eq!(metadata.licences, [("mio 1.0.0".to_string(), "MIT".to_string())]);
    }
}
