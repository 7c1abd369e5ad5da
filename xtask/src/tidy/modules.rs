//! The layers inside `db`: a module uses only modules of its own layer and of the layers below. ARCHITECTURE.md has the
//! table, and the imports that go up.

use super::Offence;
use super::layers::PAGE;
use super::repository::{Repository, TextFile};
use super::source;

/// The sources to which the table applies.
const FOLDER: &str = "crates/db/src/";

/// The line before the table of layers, the highest layer first.
const LAYERS_HEADING: &str = "| layer of `db` | modules |";

/// The line before the table of imports that go up.
const UPWARD_HEADING: &str = "| module | may also use | because |";

/// The two tables.
struct Table<'a> {
    /// The modules of each layer, the highest layer first.
    layers: Vec<Vec<&'a str>>,
    /// A module, and a module of a higher layer that it may use.
    upward: Vec<(&'a str, &'a str)>,
}

/// Checks the tables, and the imports of every source against them.
pub fn check(repository: &Repository) -> Vec<Offence> {
    let files: Vec<&TextFile> = repository.rust_files().filter(|file| module_of(&file.path).is_some()).collect();
    if files.is_empty() {
        return Vec::new();
    }
    let table = match repository.text(PAGE).and_then(Table::read) {
        Some(table) => table,
        None => return vec![Offence::new(PAGE, 0, format!("missing table that starts with {LAYERS_HEADING}"))],
    };
    let mut offences = Vec::new();
    let mut used_upward = vec![false; table.upward.len()];
    for file in &files {
        check_file(file, &table, &mut used_upward, &mut offences);
    }
    let modules: Vec<String> = files.iter().filter_map(|file| module_of(&file.path)).collect();
    for name in table.layers.iter().flatten() {
        if !modules.iter().any(|module| is_within(module, name)) {
            offences.push(Offence::new(
                PAGE,
                0,
                format!("db has no module {name}; remove it from the table of layers"),
            ));
        }
    }
    for ((module, used), _) in table.upward.iter().zip(&used_upward).filter(|(_, is_used)| !**is_used) {
        offences.push(Offence::new(PAGE, 0, format!("{module} no longer uses {used}; remove the row")));
    }
    offences
}

/// `process::step` from `crates/db/src/process/step.rs`; `None` for other crates and for the root, which lists everything.
fn module_of(path: &str) -> Option<String> {
    let module = path.strip_prefix(FOLDER)?.strip_suffix(".rs")?;
    let module = module.strip_suffix("/mod").unwrap_or(module);
    (module != "lib").then(|| module.replace('/', "::"))
}

/// Whether `module` is `name` or a module below it.
fn is_within(module: &str, name: &str) -> bool {
    module.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

impl<'a> Table<'a> {
    fn read(page: &'a str) -> Option<Table<'a>> {
        let rows = |heading: &str| {
            let mut lines = page.lines().skip_while(move |line| *line != heading);
            lines.next().map(|_| lines.skip(1).take_while(|line| line.starts_with('|')).collect::<Vec<&str>>())
        };
        // The names between backquotes in one column.
        let names = |row: &'a str, column: usize| -> Vec<&'a str> {
            let cell = row.split('|').nth(column).unwrap_or_default();
            cell.split('`').skip(1).step_by(2).collect()
        };
        let layers = rows(LAYERS_HEADING)?.into_iter().map(|row| names(row, 2)).collect();
        let upward = rows(UPWARD_HEADING).unwrap_or_default().into_iter().flat_map(|row| {
            let (modules, used) = (names(row, 1), names(row, 2));
            modules.into_iter().flat_map(move |module| used.clone().into_iter().map(move |used| (module, used)))
        });
        Some(Table { layers, upward: upward.collect() })
    }

    /// The listed name that is, or contains, a module, and its layer counted from the highest.
    fn layer_of(&self, module: &str) -> Option<(&'a str, usize)> {
        let layers = self.layers.iter().enumerate();
        let listed = layers.flat_map(|(layer, names)| names.iter().map(move |name| (*name, layer)));
        listed.filter(|(name, _)| is_within(module, name)).max_by_key(|(name, _)| name.len())
    }
}

fn check_file(file: &TextFile, table: &Table, used_upward: &mut [bool], offences: &mut Vec<Offence>) {
    let module = module_of(&file.path).unwrap_or_default();
    let Some((_, own)) = table.layer_of(&module) else {
        offences.push(Offence::new(&file.path, 0, format!("module {module} has no layer in the table of {PAGE}")));
        return;
    };
    let Some(tokens) = source::product_tokens(&file.text) else { return };
    for path in source::paths(&tokens) {
        let Some(used) = absolute(&path.segments, &module) else { continue };
        let Some((name, layer)) = table.layer_of(&used) else {
            let what = format!("crate::{used}: name the module, not the root of the crate, which is above every layer");
            offences.push(Offence::new(&file.path, path.line, what));
            continue;
        };
        if layer >= own {
            continue;
        }
        let allowed = table.upward.iter().position(|(from, to)| is_within(&module, from) && is_within(&used, to));
        match allowed.and_then(|index| used_upward.get_mut(index)) {
            Some(is_used) => *is_used = true,
            None => {
                let what = format!("{module} may not use {name}, which is in a higher layer");
                offences.push(Offence::new(&file.path, path.line, what));
            }
        }
    }
}

/// The path from the root of the crate; `None` for a path outside the crate or relative to the module itself.
fn absolute(segments: &[String], module: &str) -> Option<String> {
    let (first, rest) = segments.split_first()?;
    let mut parts: Vec<&str> = Vec::new();
    match first.as_str() {
        "crate" => {}
        "super" => {
            parts.extend(module.split("::"));
            parts.pop();
        }
        _ => return None,
    }
    for part in rest {
        match part.as_str() {
            "super" => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    // `pub(crate)` and `pub(super)` are no paths.
    (!rest.is_empty()).then(|| parts.join("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(layers: &str, upward: &str) -> String {
        format!(
            "# A\n\n{LAYERS_HEADING}\n| --- | --- |\n{layers}\nText.\n\n{UPWARD_HEADING}\n| --- | --- | --- |\n{upward}\nEnd.\n"
        )
    }

    const LAYERS: &str = "| top | `database` |\n| types | `record` |\n| processing | `process` |\n\
                          | contract | `record::contract` |\n| words | `menu` |\n";
    const UPWARD: &str = "| `record::contract` | `process` | a record processes its links |\n";

    fn offences_of(layers: &str, upward: &str, files: &[(&str, &str)]) -> Vec<String> {
        let page = page(layers, upward);
        let sound = [
            ("database.rs", "use crate::record::ai::TYPE;"),
            ("menu.rs", ""),
            ("process/step.rs", "use crate::record::contract::Record;"),
            ("record/contract.rs", "use crate::process::step::Step;"),
            ("record/ai.rs", "use super::contract::Record; use crate::process::step::Step; pub(crate) fn a() {}"),
        ];
        let replaced = |path: &str| files.iter().any(|(other, _)| *other == path);
        let all = sound.iter().filter(|(path, _)| !replaced(path)).chain(files);
        let mut texts: Vec<(String, &str)> = all.map(|(path, text)| (format!("{FOLDER}{path}"), *text)).collect();
        texts.push((format!("{FOLDER}lib.rs"), "pub use crate::database::Database;"));
        texts.push((PAGE.to_string(), &page));
        let files: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        check(&Repository::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn downward_and_listed_imports_are_accepted() {
        assert_eq!(offences_of(LAYERS, UPWARD, &[]), [""; 0]);
    }

    #[test]
    fn an_upward_import_is_rejected() {
        for (path, planted) in [
            ("menu.rs", "use crate::process::step::Step;"),
            ("menu.rs", "fn a() { crate::record::contract::with() }"),
            ("menu.rs", "macro_rules! m { () => { $crate::process::step::run() } }"),
            ("process/step.rs", "use crate::{menu, record::ai::TYPE};"),
            ("process/step.rs", "use super::super::database::Database;"),
            ("record/contract.rs", "use super::ai::TYPE; use crate::process::step::Step;"),
        ] {
            assert_eq!(offences_of(LAYERS, UPWARD, &[(path, planted)]).len(), 1, "{path}: {planted}");
        }
    }

    #[test]
    fn imports_in_tests_and_comments_are_ignored() {
        let source = "// crate::database\n#[cfg(test)]\nmod tests { use crate::database::Database; }";

        assert_eq!(offences_of(LAYERS, UPWARD, &[("menu.rs", source)]), [""; 0]);
    }

    #[test]
    fn an_import_from_the_crate_root_is_rejected() {
        assert_eq!(offences_of(LAYERS, UPWARD, &[("process/step.rs", "use crate::Database;")]).len(), 1);
    }

    #[test]
    fn a_module_without_a_layer_and_an_extra_row_are_rejected() {
        let unused = format!("{UPWARD}| `menu` | `process` | no reason |\n");

        assert_eq!(offences_of(LAYERS, UPWARD, &[("utils.rs", "")]).len(), 1);
        assert_eq!(offences_of(&format!("{LAYERS}| lowest | `gone` |\n"), UPWARD, &[]).len(), 1);
        assert_eq!(offences_of(LAYERS, &unused, &[]).len(), 1);
        let path = format!("{FOLDER}menu.rs");
        assert_eq!(check(&Repository::of(&[(path.as_str(), ""), (PAGE, "# A\n")])).len(), 1);
    }
}
