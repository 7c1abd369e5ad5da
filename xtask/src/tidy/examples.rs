//! Each public item of the libraries has an example, or a link to one.
//!
//! An item counts as shown if a reader of its documentation sees how it is used: its own documentation has an example;
//! or an example on the page of its type, of its module or of the crate uses it by name; or its documentation links to
//! an item, a module or a guide with an example. Lines that rustdoc hides do not count.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenTree};

use super::Offence;
use super::repository::Repository;
use super::source;

/// The packages whose users read their documentation.
const CRATES: [&str; 3] = ["data", "ioc", "net"];

/// A function, type, trait or method outside tests.
#[derive(Clone, Debug, Default)]
struct DocumentedItem {
    path: String,
    line: usize,
    /// The module, such as `client::channel`; empty for the root of the crate.
    module: String,
    name: String,
    /// The type or trait of a method.
    owner: Option<String>,
    is_public: bool,
    is_hidden: bool,
    doc: String,
}

/// What is known of one crate.
#[derive(Debug, Default)]
struct CrateDocs {
    items: Vec<DocumentedItem>,
    /// Each module with its own documentation.
    guides: Vec<(String, String)>,
    /// Public modules: the module with the declaration, and the name.
    public_modules: Vec<(String, String)>,
    /// Public imports: the module with the import, and the path from there.
    exports: Vec<(String, Vec<String>)>,
    /// The modules that users can name.
    reachable: BTreeSet<String>,
}

/// Checks the libraries.
pub fn check(repository: &Repository) -> Vec<Offence> {
    let crates: Vec<CrateDocs> = CRATES.iter().map(|name| CrateDocs::read(repository, name)).collect();
    let linkable = crates.iter().flat_map(CrateDocs::link_targets).collect();
    crates.iter().flat_map(|docs| docs.offences(&linkable)).collect()
}

impl CrateDocs {
    fn read(repository: &Repository, name: &str) -> CrateDocs {
        let folder = format!("crates/{name}/src/");
        let mut docs = CrateDocs::default();
        for file in repository.rust_files() {
            let Some(module) = file.path.strip_prefix(&folder).and_then(|path| path.strip_suffix(".rs")) else {
                continue;
            };
            let module = module.strip_suffix("/mod").unwrap_or(module).replace('/', "::");
            let module = if module == "lib" { String::new() } else { module };
            let Some(trees) = source::product_trees(&file.text) else { continue };
            let mut reader = FileReader { path: &file.path, module: &module, docs: &mut docs, guide: String::new() };
            reader.read(&trees, None, false);
            let guide = reader.guide;
            docs.guides.push((module, guide));
        }
        docs.reachable = docs.reachable_modules();
        docs
    }

    fn reachable_modules(&self) -> BTreeSet<String> {
        let mut reachable = BTreeSet::from([String::new()]);
        loop {
            let declared = self.public_modules.iter().map(|(module, name)| (module, vec![name.clone()]));
            let exported = self.exports.iter().map(|(module, path)| (module, path.clone()));
            let found: Vec<String> = declared
                .chain(exported)
                .filter(|(module, _)| reachable.contains(*module))
                .map(|(module, path)| joined(module, &path))
                .filter(|module| !reachable.contains(module) && self.guides.iter().any(|(known, _)| known == module))
                .collect();
            if found.is_empty() {
                return reachable;
            }
            reachable.extend(found);
        }
    }

    /// The public items that users can name, and the methods of such types.
    fn reachable_items(&self) -> Vec<&DocumentedItem> {
        let is_reachable = |item: &&DocumentedItem| {
            let is_named = || self.reachable.iter().any(|module| *module == item.module || self.exports(module, item));
            item.owner.is_none() && item.is_public && is_named()
        };
        let types: BTreeSet<&str> = self.items.iter().filter(is_reachable).map(|item| item.name.as_str()).collect();
        let is_method =
            |item: &DocumentedItem| item.is_public && item.owner.as_deref().is_some_and(|owner| types.contains(owner));
        self.items.iter().filter(|item| !item.is_hidden && (is_reachable(item) || is_method(item))).collect()
    }

    /// Whether a module has a public import of an item, or of the type of a method.
    fn exports(&self, module: &str, item: &DocumentedItem) -> bool {
        self.exports.iter().filter(|(exporting, _)| exporting == module).any(|(_, path)| {
            let Some((name, folders)) = path.split_last() else { return false };
            name == item.page() && is_within(&item.module, &joined(module, folders))
        })
    }

    /// The examples on the pages where a reader looks for the item: that of its type, and of the public modules around
    /// it.
    fn examples_near(&self, item: &DocumentedItem) -> String {
        let docs = self.items.iter().filter(|other| other.page() == item.page()).map(|other| &other.doc);
        let is_around = |module: &String| {
            self.reachable.contains(module) && (is_within(&item.module, module) || self.exports(module, item))
        };
        let guides = self.guides.iter().filter(|(module, _)| is_around(module)).map(|(_, guide)| guide);
        docs.chain(guides).map(|doc| examples(doc)).collect()
    }

    fn is_shown(&self, item: &DocumentedItem) -> bool {
        !examples(&item.doc).is_empty() || uses(&self.examples_near(item), item)
    }

    /// What a link may lead to: `Name`, `Owner::name`, or a module's path with `mod@`.
    fn link_targets(&self) -> BTreeSet<String> {
        let shown = self.items.iter().filter(|item| self.is_shown(item)).map(DocumentedItem::full_name);
        let guides = self.guides.iter().filter(|(_, guide)| !examples(guide).is_empty());
        shown
            .chain(guides.map(|(module, _)| format!("mod@{}", module.rsplit("::").next().unwrap_or_default())))
            .collect()
    }

    fn offences(&self, linkable: &BTreeSet<String>) -> Vec<Offence> {
        let is_missing = |item: &&DocumentedItem| {
            !self.is_shown(item) && !links(&item.doc).iter().any(|link| leads_to_example(link, item, linkable))
        };
        let offence = |item: &DocumentedItem| {
            let what = format!(
                "{} has no example: add one, use it in an example of its type or module, or link to an item with one",
                item.full_name()
            );
            Offence::new(&item.path, item.line, what)
        };
        self.reachable_items().into_iter().filter(is_missing).map(offence).collect()
    }
}

impl DocumentedItem {
    /// The type that a method belongs to, or the item itself.
    fn page(&self) -> &str {
        self.owner.as_deref().unwrap_or(&self.name)
    }

    fn full_name(&self) -> String {
        match &self.owner {
            Some(owner) => format!("{owner}::{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// The module that a path leads to from another module.
fn joined(module: &str, path: &[String]) -> String {
    let mut parts: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    for part in path {
        match part.as_str() {
            "crate" => parts.clear(),
            "super" => drop(parts.pop()),
            "self" => {}
            part => parts.push(part),
        }
    }
    parts.join("::")
}

/// Whether a module is `outer` or a module inside it.
fn is_within(module: &str, outer: &str) -> bool {
    outer.is_empty() || module.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The Rust examples in documentation, without hidden lines.
fn examples(doc: &str) -> String {
    let mut found = String::new();
    // `None` outside a code block; otherwise whether the block is Rust.
    let mut block = None;
    for line in doc.lines().map(str::trim) {
        match (line.strip_prefix("```"), block) {
            (Some(_), Some(_)) => block = None,
            (Some(tags), None) => block = Some(tags.split(',').all(is_rust)),
            (None, Some(true)) if line != "#" && !line.starts_with("# ") => {
                found.push_str(line);
                found.push('\n');
            }
            (None, _) => {}
        }
    }
    found
}

fn is_rust(tag: &str) -> bool {
    matches!(tag.trim(), "" | "rust" | "no_run" | "should_panic" | "compile_fail")
}

/// Whether an example uses the item by its name: a method as `.name` or `Owner::name`, and a method of a trait also as
/// `fn name`.
fn uses(examples: &str, item: &DocumentedItem) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    examples.match_indices(item.name.as_str()).any(|(index, _)| {
        let (before, after) = (&examples[..index], &examples[index + item.name.len()..]);
        let is_whole = !before.ends_with(is_word) && !after.starts_with(is_word);
        let is_of_owner = |owner: &String| {
            before.ends_with('.') || before.ends_with("fn ") || before.ends_with(&format!("{owner}::"))
        };
        is_whole && item.owner.as_ref().is_none_or(is_of_owner)
    })
}

/// The targets of links to items, as written: `Channel::get`, `crate#monitor`.
fn links(doc: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (index, _) in doc.match_indices('[') {
        let Some((text, rest)) = doc[index + 1..].split_once(']') else { continue };
        let target = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(text, |(target, _)| target);
        let target = target.trim_matches('`').trim_end_matches("()");
        found.push(target.split_once('@').map_or(target, |(_, target)| target));
    }
    found
}

/// Whether a link leads to an item, a module or a crate with an example.
fn leads_to_example(link: &str, item: &DocumentedItem, linkable: &BTreeSet<String>) -> bool {
    let path = link.split_once('#').map_or(link, |(path, _)| path);
    let owner = item.page();
    let path = path.strip_prefix("Self").map_or_else(|| path.to_string(), |rest| format!("{owner}{rest}"));
    if matches!(path.as_str(), "crate" | "self" | "super") {
        let module = joined(&item.module, &[path]);
        return linkable.contains(&format!("mod@{}", module.rsplit("::").next().unwrap_or_default()));
    }
    let mut parts = path.rsplit("::");
    let (last, outer) = (parts.next().unwrap_or_default(), parts.next());
    let is_linkable = |target: &str| linkable.contains(target);
    match outer {
        Some(outer) if outer.starts_with(char::is_uppercase) => {
            is_linkable(&path_of(outer, last)) || is_linkable(outer)
        }
        _ => is_linkable(last) || is_linkable(&format!("mod@{last}")),
    }
}

fn path_of(owner: &str, name: &str) -> String {
    format!("{owner}::{name}")
}

/// Reads the items of one file.
struct FileReader<'a> {
    path: &'a str,
    module: &'a str,
    docs: &'a mut CrateDocs,
    guide: String,
}

impl FileReader<'_> {
    /// Reads items, or with an `owner` its methods; those of a trait are public without `pub`.
    fn read(&mut self, trees: &[TokenTree], owner: Option<&str>, is_trait: bool) {
        let mut index = 0;
        let mut item = self.next_item(owner, is_trait);
        while index < trees.len() {
            let rest = &trees[index..];
            let word = ident(rest.first());
            let mut n_trees = 1;
            match word.as_str() {
                "#" => n_trees = self.attribute(rest, &mut item),
                "pub" => item.is_public = !is_group(rest.get(1), Delimiter::Parenthesis),
                "fn" | "struct" | "enum" | "union" | "trait" => {
                    n_trees = end_of_item(rest);
                    item.name = ident(rest.get(1));
                    item.line = rest[0].span().start().line;
                    if let (true, Some(TokenTree::Group(body))) = (word == "trait", rest.get(n_trees - 1)) {
                        let methods: Vec<TokenTree> = body.stream().into_iter().collect();
                        self.read(&methods, Some(&item.name), true);
                    }
                    self.docs.items.push(std::mem::replace(&mut item, self.next_item(owner, is_trait)));
                }
                "impl" | "macro_rules" => {
                    n_trees = end_of_item(rest);
                    self.inside(&rest[..n_trees]);
                    item = self.next_item(owner, is_trait);
                }
                "mod" | "use" => {
                    n_trees = end_of_item(rest);
                    if item.is_public {
                        self.export(&rest[..n_trees]);
                    }
                    item = self.next_item(owner, is_trait);
                }
                "const" | "static" | "type" if ident(rest.get(1)) != "fn" => {
                    n_trees = rest.iter().position(|tree| ident(Some(tree)) == ";").map_or(rest.len(), |n| n + 1);
                    item = self.next_item(owner, is_trait);
                }
                _ => {}
            }
            index += n_trees;
        }
    }

    fn next_item(&self, owner: Option<&str>, is_public: bool) -> DocumentedItem {
        DocumentedItem {
            path: self.path.to_string(),
            module: self.module.to_string(),
            owner: owner.map(str::to_string),
            is_public,
            ..DocumentedItem::default()
        }
    }

    /// Reads `#[doc = "..."]`, to which comments are converted. Returns the number of trees.
    fn attribute(&mut self, rest: &[TokenTree], item: &mut DocumentedItem) -> usize {
        let is_inner = ident(rest.get(1)) == "!";
        let n_trees = if is_inner { 3 } else { 2 };
        let Some(TokenTree::Group(group)) = rest.get(n_trees - 1) else { return 1 };
        let trees: Vec<TokenTree> = group.stream().into_iter().collect();
        if ident(trees.first()) == "doc" {
            match trees.get(2) {
                Some(TokenTree::Literal(text)) => {
                    let text = text.to_string().replace("\\\"", "\"");
                    let doc = if is_inner { &mut self.guide } else { &mut item.doc };
                    doc.push_str(text.trim_matches('"'));
                    doc.push('\n');
                }
                _ => item.is_hidden |= group.stream().to_string().contains("hidden"),
            }
        }
        n_trees
    }

    /// Reads the methods of a type, but not of a trait that it implements; and what a macro defines.
    fn inside(&mut self, item: &[TokenTree]) {
        let Some((TokenTree::Group(body), header)) = item.split_last() else { return };
        let body: Vec<TokenTree> = body.stream().into_iter().collect();
        if ident(header.first()) == "macro_rules" {
            for tree in body.iter().filter(|tree| is_group(Some(tree), Delimiter::Brace)) {
                let TokenTree::Group(expansion) = tree else { continue };
                self.read(&expansion.stream().into_iter().collect::<Vec<_>>(), None, false);
            }
            return;
        }
        let words: Vec<String> = header.iter().map(|tree| ident(Some(tree))).collect();
        let name = words.iter().find(|word| word.starts_with(char::is_uppercase) && word.len() > 1);
        if let (false, Some(name)) = (words.iter().any(|word| word == "for"), name) {
            self.read(&body, Some(name), false);
        }
    }

    /// Reads a public `mod` or `use`.
    fn export(&mut self, item: &[TokenTree]) {
        if ident(item.first()) == "mod" {
            self.docs.public_modules.push((self.module.to_string(), ident(item.get(1))));
            return;
        }
        let paths = source::paths(&source::tokens(item));
        self.docs.exports.extend(paths.into_iter().map(|path| (self.module.to_string(), path.segments)));
    }
}

/// The text of a word or sign; empty for anything else.
fn ident(tree: Option<&TokenTree>) -> String {
    match tree {
        Some(TokenTree::Ident(word)) => word.to_string(),
        Some(TokenTree::Punct(sign)) => sign.to_string(),
        _ => String::new(),
    }
}

fn is_group(tree: Option<&TokenTree>, delimiter: Delimiter) -> bool {
    matches!(tree, Some(TokenTree::Group(group)) if group.delimiter() == delimiter)
}

/// The number of trees of an item that ends with a block or a semicolon.
fn end_of_item(trees: &[TokenTree]) -> usize {
    let is_use = ident(trees.first()) == "use";
    let is_end = |tree: &TokenTree| ident(Some(tree)) == ";" || (!is_use && is_group(Some(tree), Delimiter::Brace));
    trees.iter().position(is_end).map_or(trees.len(), |n| n + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names without an example in a crate with these files.
    fn missing(files: &[(&str, &str)]) -> Vec<String> {
        let texts: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("crates/net/src/{path}"), *text)).collect();
        let files: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let name = |offence: Offence| offence.what.split(' ').next().unwrap_or_default().to_string();
        check(&Repository::of(&files)).into_iter().map(name).collect()
    }

    #[test]
    fn a_public_item_without_an_example_is_rejected_with_its_line() {
        let text = "/// A.\npub struct Gap;\nimpl Gap {\n    /// Opens.\n    pub const fn open(&self) {}\n}\n";

        let offences = check(&Repository::of(&[("crates/net/src/lib.rs", text)]));
        assert_eq!(offences.iter().map(|offence| offence.line).collect::<Vec<_>>(), [2, 5]);
        assert!(offences[1].what.starts_with("Gap::open has no example"));
        assert_eq!(missing(&[("lib.rs", "macro_rules! gaps { () => { pub enum Gap {} } }")]), ["Gap"]);
        assert_eq!(missing(&[("lib.rs", "pub trait Gap { fn open(&self); }")]), ["Gap::open", "Gap"]);
    }

    #[test]
    fn only_items_that_users_can_name_are_checked() {
        assert_eq!(missing(&[("lib.rs", "mod gap;"), ("gap.rs", "pub fn open() {}")]), [""; 0]);
        assert_eq!(missing(&[("lib.rs", "pub mod gap;"), ("gap.rs", "pub fn open() {}")]), ["open"]);
        assert_eq!(missing(&[("lib.rs", "mod gap; pub use gap::{open};"), ("gap.rs", "pub fn open() {}")]), ["open"]);
        assert_eq!(missing(&[("lib.rs", "mod a; pub use a::b;"), ("a/b.rs", "pub fn c() {}")]), ["c"]);
        let guide = "//! ```\n//! open();\n//! ```\n";
        let private = [("lib.rs", "mod gap; pub use gap::open;"), ("gap.rs", &format!("{guide}pub fn open() {{}}"))];
        assert_eq!(missing(&private), ["open"]);
        let exporting = [("lib.rs", &*format!("{guide}mod gap; pub use gap::open;")), ("gap.rs", "pub fn open() {}")];
        assert_eq!(missing(&exporting), [""; 0]);
        let rest = "fn a() {} pub(crate) fn b() {} pub const C: D = D {}; #[doc(hidden)] pub fn e() {}\n\
                    impl Clone for F { fn clone(&self) {} }\n#[cfg(test)]\nmod tests { pub fn f() {} }";
        assert_eq!(missing(&[("lib.rs", rest)]), [""; 0]);
    }

    #[test]
    fn an_example_of_the_type_the_module_or_the_crate_shows_what_it_uses() {
        let code = "pub struct Gap;\nimpl Gap {\n    pub fn open(&self) {}\n    pub fn new() -> Gap {}\n}\n";
        let with_doc = |example: &str| format!("/// ```\n/// {example}\n/// ```\n{code}");
        let with_guide = |example: &str| format!("//! ```\n//! {example}\n//! ```\n{code}");

        assert_eq!(missing(&[("lib.rs", &with_doc("Gap::new().open();"))]), [""; 0]);
        assert_eq!(missing(&[("lib.rs", &with_doc("Gap::new();"))]), ["Gap::open"]);
        assert_eq!(missing(&[("lib.rs", &with_doc("# Gap::new().open();"))]), ["Gap", "Gap::open", "Gap::new"]);
        assert_eq!(missing(&[("lib.rs", &with_guide("Gap::new().open();"))]), [""; 0]);
        assert_eq!(missing(&[("lib.rs", &with_guide("Gap::new().reopen();"))]), ["Gap::open"]);
        let text = code.replace("pub fn new", "/// ```text\n/// Gap::new\n/// ```\n    pub fn new");
        assert_eq!(missing(&[("lib.rs", &text)]), ["Gap", "Gap::open", "Gap::new"]);
    }

    #[test]
    fn a_link_counts_if_its_target_has_an_example() {
        let text = |link: &str| {
            format!(
                "/// {link}\npub fn a() {{}}\n/// ```\n/// b();\n/// ```\npub fn b() {{}}\n/// [`a`]\npub fn c() {{}}\n"
            )
        };

        assert_eq!(missing(&[("lib.rs", &text("See [`b`]."))]), ["c"]);
        assert_eq!(missing(&[("lib.rs", &text("See [there](crate::b)."))]), ["c"]);
        assert_eq!(missing(&[("lib.rs", &text("See [`c`] and [the guide](crate)."))]), ["a", "c"]);
        let guided = format!("//! ```\n//! ```\n//! ```\n//! d();\n//! ```\n{}", text("See [the guide](crate#start)."));
        assert_eq!(missing(&[("lib.rs", &guided)]), ["c"]);
        let (shown, plain) = ("//! ```\n//! d();\n//! ```\npub mod b;", "/// See [there](super#start).\npub fn c() {}");
        assert_eq!(missing(&[("lib.rs", shown), ("b.rs", plain)]), [""; 0]);
        assert_eq!(missing(&[("lib.rs", shown), ("b.rs", &plain.replace("super", "self"))]), ["c"]);
    }
}
