//! The allowed dependencies between crates: the table in ARCHITECTURE.md must match cargo, and dependencies point down.

use super::Offence;
use super::metadata::{Metadata, WorkspaceMember};
use super::repository::Repository;

/// The page that contains the table.
pub const PAGE: &str = "ARCHITECTURE.md";

/// The line before the table.
const TABLE_HEADING: &str = "| crate | uses | from outside |";

/// The layers from the bottom up. A crate may use only crates of lower layers, except for [`BESIDE`].
const LAYERS: [&[&str]; 6] = [
    &["data", "lock"],
    &["engine", "clu", "db"],
    &["ca", "pva"],
    &["net", "testing"],
    &["ioc", "vclu"],
    &["cli", "web", "python", "java", "lab", "conformance", "xtask"],
];

/// Front ends that may use another front end.
const BESIDE: [(&str, &str); 3] = [("cli", "lab"), ("cli", "web"), ("python", "cli")];

/// Forbidden although the layers permit them: the protocol crates do not know records.
const NEVER: [(&str, &str); 2] = [("ca", "db"), ("pva", "db")];

/// Packages that use sockets, threads or the operating system, forbidden below `net`.
const IO_PACKAGES: [&str; 14] = [
    "async-io",
    "async-std",
    "crossbeam",
    "crossbeam-channel",
    "libc",
    "mio",
    "nix",
    "polling",
    "rayon",
    "rustix",
    "signal-hook",
    "smol",
    "socket2",
    "tokio",
];

/// Checks the table and the dependencies.
pub fn check(repository: &Repository, metadata: &Metadata) -> Vec<Offence> {
    let mut offences = Vec::new();
    for member in &metadata.members {
        check_edges(member, &mut offences);
    }
    match repository.text(PAGE) {
        Some(page) => check_table(page, metadata, &mut offences),
        None => offences.push(Offence::new(PAGE, 0, "missing")),
    }
    offences
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

fn check_edges(member: &WorkspaceMember, offences: &mut Vec<Offence>) {
    let name = member.name.as_str();
    let path = format!("crates/{name}/Cargo.toml");
    let Some(own) = layer(name) else {
        offences.push(Offence::new(PAGE, 0, format!("{name}: the crate has no layer")));
        return;
    };
    for used in &member.members {
        let edge = (name, used.as_str());
        let is_down = layer(used).is_some_and(|other| other < own);
        if NEVER.contains(&edge) || !(is_down || BESIDE.contains(&edge)) {
            offences.push(Offence::new(&path, 0, format!("{name} may not use {used}: only lower layers are allowed")));
        }
    }
    if layer("net").is_some_and(|net| own < net) {
        for package in member.outside.iter().filter(|package| IO_PACKAGES.contains(&package.as_str())) {
            offences.push(Offence::new(&path, 0, format!("{name} may not use {package}: no IO below net")));
        }
    }
}

fn check_table(page: &str, metadata: &Metadata, offences: &mut Vec<Offence>) {
    let expected: Vec<String> = metadata.members.iter().map(row).collect();
    let lines: Vec<&str> = page.lines().collect();
    let Some(heading) = lines.iter().position(|line| *line == TABLE_HEADING) else {
        offences.push(Offence::new(PAGE, 0, format!("missing table that starts with {TABLE_HEADING}")));
        return;
    };
    let rows: Vec<&str> = lines.iter().skip(heading + 2).copied().take_while(|line| line.starts_with('|')).collect();
    for (index, row) in rows.iter().enumerate() {
        if !expected.iter().any(|line| line == row) {
            offences.push(Offence::new(PAGE, heading + 3 + index, "this row does not match cargo metadata"));
        }
    }
    for line in expected.iter().filter(|line| !rows.contains(&line.as_str())) {
        offences.push(Offence::new(PAGE, heading + 1, format!("missing row in the table:\n{line}")));
    }
}

/// The page with its table regenerated from cargo metadata.
pub fn with_table(page: &str, metadata: &Metadata) -> String {
    let Some((before, after)) = page.split_once(TABLE_HEADING) else { return page.to_string() };
    let rest: Vec<&str> = after.lines().skip(2).skip_while(|line| line.starts_with('|')).collect();
    let rows: Vec<String> = metadata.members.iter().map(row).collect();
    format!("{before}{TABLE_HEADING}\n| --- | --- | --- |\n{}\n{}\n", rows.join("\n"), rest.join("\n"))
}

/// The row of the table for a crate.
fn row(member: &WorkspaceMember) -> String {
    let list = |names: &[String]| -> String {
        let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        if quoted.is_empty() { "nothing".to_string() } else { quoted.join(" ") }
    };
    format!("| `{}` | {} | {} |", member.name, list(&member.members), list(&member.outside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences_of(page: &str, edges: &[(&str, &[&str], &[&str])]) -> Vec<String> {
        let texts = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let members = edges.iter().map(|(name, members, outside)| WorkspaceMember {
            name: name.to_string(),
            members: texts(members),
            outside: texts(outside),
        });
        let metadata = Metadata { members: members.collect(), ..Metadata::default() };
        check(&Repository::of(&[(PAGE, page)]), &metadata).iter().map(ToString::to_string).collect()
    }

    fn page(rows: &str) -> String {
        format!("# A\n\n{TABLE_HEADING}\n| --- | --- | --- |\n{rows}\nText.\n")
    }

    #[test]
    fn a_layer_table_that_matches_cargo_is_accepted() {
        let page = page("| `ca` | `data` | nothing |\n| `data` | nothing | nothing |\n");

        assert_eq!(offences_of(&page, &[("ca", &["data"], &[]), ("data", &[], &[])]), [""; 0]);
    }

    #[test]
    fn an_extra_missing_or_wrong_layer_table_row_is_rejected() {
        let edges: &[(&str, &[&str], &[&str])] = &[("data", &[], &[])];

        assert_eq!(offences_of(&page(""), edges).len(), 1);
        assert_eq!(offences_of(&page("| `data` | nothing | nothing |\n| `x` | nothing | nothing |\n"), edges).len(), 1);
        assert_eq!(offences_of(&page("| `data` | nothing | `mio` |\n"), edges).len(), 2);
        assert_eq!(offences_of("# A\n", edges).len(), 1);
    }

    #[test]
    fn a_regenerated_layer_table_matches_cargo() {
        let members = vec![WorkspaceMember { name: "data".into(), ..WorkspaceMember::default() }];
        let metadata = Metadata { members, ..Metadata::default() };

        let updated = with_table(&page("| `x` | nothing | `mio` |\n"), &metadata);
        assert_eq!(updated, page("| `data` | nothing | nothing |\n"));
    }

    #[test]
    fn a_crate_dependency_upwards_or_sideways_is_rejected() {
        for (name, used) in [("data", "ca"), ("ca", "db"), ("db", "net"), ("ca", "pva"), ("lab", "cli"), ("net", "ioc")]
        {
            let row = format!("| `{name}` | `{used}` | nothing |\n");
            let offences = offences_of(&page(&row), &[(name, &[used], &[])]);
            assert_eq!(offences.len(), 1, "{name} -> {used}");
        }
        assert_eq!(offences_of(&page("| `cli` | `lab` | nothing |\n"), &[("cli", &["lab"], &[])]), [""; 0]);
    }

    #[test]
    fn a_package_with_io_below_net_is_rejected() {
        let offences = offences_of(&page("| `db` | `data` | `mio` |\n"), &[("db", &["data"], &["mio"])]);

        assert_eq!(offences.len(), 1);
    }

    #[test]
    fn a_crate_without_a_layer_is_rejected() {
        assert_eq!(offences_of(&page("| `utils` | nothing | nothing |\n"), &[("utils", &[], &[])]).len(), 1);
    }
}
