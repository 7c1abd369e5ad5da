//! Every database that stands beside the project loads.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use fodo_conformance::place::own_folder;
use fodo_db::Loader;

/// The macros a database says it wants to be loaded with: `# macros: P=X:`.
fn macros(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("# macros: ")).unwrap_or_default()
}

fn databases(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("its entries can be read").path();
        match path.extension() {
            _ if path.is_dir() => databases(&path, found),
            Some(extension) if extension == "db" => found.push(path),
            _ => {}
        }
    }
}

#[test]
fn every_example_database_loads() {
    let mut found = vec![own_folder().join("db").join("records.db")];
    databases(&own_folder().join("..").join("examples"), &mut found);

    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut loader = Loader::default();
        let file = path.to_string_lossy();
        let loaded = loader.load(&file, macros(&text), &mut |name| std::fs::read(name));
        if let Err(errors) = loaded.and_then(|()| loader.finish().map(|_| ())) {
            panic!("{file}: {errors:?}");
        }
    }
}
