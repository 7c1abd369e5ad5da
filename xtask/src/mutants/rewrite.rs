//! Rewrites a source so that it contains many mutants, each as a branch that a variable selects when a program starts.
//!
//! `a + b` becomes `(if crate::fodo_mutant::is(7) {(a) - (b)} else {a + b})`. Comments mark the branches, so that an
//! error of the compiler leads to its mutant.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, Block, Expr, Signature};

use super::mutant::Mutant;

/// The variable with the number of the mutant that a program contains; without it, a program is unchanged.
pub const VARIABLE: &str = "FODO_MUTANT";

/// What the root of each rewritten crate contains.
pub const MODULE: &str = r#"
mod fodo_mutant {
    static CHOSEN: std::sync::LazyLock<Option<usize>> =
        std::sync::LazyLock::new(|| std::env::var("FODO_MUTANT").ok()?.parse().ok());

    pub fn is(number: usize) -> bool {
        *CHOSEN == Some(number)
    }
}
"#;

/// The mutant that an error of the compiler is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// The error is in the branch of this mutant.
    Branch(usize),
    /// The error is outside of all branches, and nearest to this mutant.
    Nearest(usize),
}

/// One mutant of a place.
struct Branch<'a> {
    number: usize,
    mutant: &'a Mutant,
    /// The bytes that it replaces.
    range: Range<usize>,
}

/// A part of the source that is rewritten for one or more mutants.
struct Place<'a> {
    form: Form,
    /// The rewritten bytes; empty where text is only inserted.
    range: Range<usize>,
    branches: Vec<Branch<'a>>,
}

/// How a place is rewritten.
enum Form {
    /// `A + B` with another operator between the same operands.
    Operator { left: Range<usize>, right: Range<usize> },
    /// An expression in which the replaced bytes differ.
    Expression,
    /// The start of a function's body, where the mutant returns.
    Body,
    /// The end of the pattern of a match arm, which the mutant never selects.
    Pattern,
}

/// The source with the mutants as branches, and the numbers of those that it contains. The others would have to be
/// where a function cannot be called, or have two types.
pub fn with_branches(source: &str, mutants: &BTreeMap<usize, &Mutant>) -> Result<(String, Vec<usize>), String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let mut finder = PlaceFinder { source, requested: BTreeMap::new(), places: Vec::new() };
    for (&number, &mutant) in mutants {
        let range = mutant.range(source)?;
        let key = (mutant.genre.as_str(), range.start);
        finder.requested.entry(key).or_default().push(Branch { number, mutant, range });
    }
    finder.visit_file(&file);

    let mut places = finder.places;
    // A place comes before the places in it; insertions come before what starts at the same byte.
    places.sort_by_key(|place| (place.range.start, !place.range.is_empty(), Reverse(place.range.end)));
    let numbers = places.iter().flat_map(|place| &place.branches).map(|branch| branch.number).collect();
    Ok((Rewriter { source, places }.text(0..source.len(), 0), numbers))
}

/// The mutant to blame for an error at the bytes `range` of a rewritten source; none if it contains no mutant.
pub fn culprit(text: &str, range: &Range<usize>) -> Option<Culprit> {
    let marks: Vec<(usize, usize, char)> = marks(text).collect();
    let mut open = Vec::new();
    let (before, after) = marks.split_at(marks.partition_point(|(index, ..)| *index < range.start));
    for (_, number, kind) in before {
        match kind {
            '(' => open.push(*number),
            ')' => {
                open.pop();
            }
            _ => {}
        }
    }
    let within = after.first().filter(|(index, ..)| *index < range.end);
    let nearest = within.or(before.last()).or(after.first());
    open.last().map(|number| Culprit::Branch(*number)).or(nearest.map(|(_, number, _)| Culprit::Nearest(*number)))
}

/// A comment with the number of a mutant: `?` before its condition, `(` and `)` around its branch.
fn mark(number: usize, kind: char) -> String {
    format!("/*{number}{kind}*/")
}

/// The index, number and kind of every mark.
fn marks(text: &str) -> impl Iterator<Item = (usize, usize, char)> {
    text.match_indices("/*").filter_map(|(index, _)| {
        let (inside, _) = text[index + 2..].split_once("*/")?;
        let number = inside.strip_suffix(['?', '(', ')'])?.parse().ok()?;
        Some((index, number, inside.chars().next_back()?))
    })
}

/// Finds the places of the requested mutants, by their genre and the first byte that they replace.
struct PlaceFinder<'a> {
    source: &'a str,
    requested: BTreeMap<(&'a str, usize), Vec<Branch<'a>>>,
    places: Vec<Place<'a>>,
}

impl PlaceFinder<'_> {
    fn add(&mut self, genre: &'static str, start: usize, range: Range<usize>, form: Form) {
        if let Some(branches) = self.requested.remove(&(genre, start)) {
            self.places.push(Place { form, range, branches });
        }
    }

    fn add_function(&mut self, signature: &Signature, block: &Block) {
        let is_of_one_type = !self.source[bytes(&signature.output)].contains("impl ");
        if let (Some(first), true) = (block.stmts.first(), is_of_one_type) {
            let start = bytes(first).start;
            self.add("FnValue", start, start..start, Form::Body);
        }
    }
}

impl<'ast> Visit<'ast> for PlaceFinder<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if function.sig.constness.is_none() {
            self.add_function(&function.sig, &function.block);
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if function.sig.constness.is_none() {
            self.add_function(&function.sig, &function.block);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.add_function(&function.sig, block);
            visit::visit_trait_item_fn(self, function);
        }
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if !contains_let(&binary.left) && !contains_let(&binary.right) {
            let form = Form::Operator { left: bytes(&binary.left), right: bytes(&binary.right) };
            self.add("BinaryOperator", bytes(&binary.op).start, bytes(binary), form);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        self.add("UnaryOperator", bytes(&unary.op).start, bytes(unary), Form::Expression);
        visit::visit_expr_unary(self, unary);
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        match &arm.guard {
            Some((_, guard)) if contains_let(guard) => {}
            Some((_, guard)) => self.add("MatchArmGuard", bytes(guard).start, bytes(guard), Form::Expression),
            None => {
                let end = bytes(&arm.pat).end;
                self.add("MatchArm", bytes(arm).start, end..end, Form::Pattern);
            }
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, expression: &'ast syn::ExprStruct) {
        for field in &expression.fields {
            self.add("StructField", bytes(field).start, bytes(expression), Form::Expression);
        }
        visit::visit_expr_struct(self, expression);
    }

    // Constants, types and patterns cannot call the function that selects a mutant.
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
}

fn bytes(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

/// Whether `let` is one of the conditions joined by `&&`, which cannot be in brackets.
fn contains_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => contains_let(&binary.left) || contains_let(&binary.right),
        _ => false,
    }
}

struct Rewriter<'a> {
    source: &'a str,
    places: Vec<Place<'a>>,
}

impl Rewriter<'_> {
    /// A part of the source, rewritten at those of its places that have an index of at least `first_place`.
    fn text(&self, range: Range<usize>, first_place: usize) -> String {
        let (mut text, mut end) = (String::new(), range.start);
        for (index, place) in self.places.iter().enumerate().skip(first_place) {
            if place.range.start >= end && place.range.end <= range.end {
                text += &self.source[end..place.range.start];
                text += &self.text_of_place(place, index + 1);
                end = place.range.end;
            }
        }
        text + &self.source[end..range.end]
    }

    fn text_of_place(&self, place: &Place, next_place: usize) -> String {
        let inner = |range: Range<usize>| self.text(range, next_place);
        let whole = &place.range;
        let mutated = |branch: &Branch| match &place.form {
            Form::Operator { left, right } => {
                format!("({}) {} ({})", inner(left.clone()), branch.mutant.replacement, inner(right.clone()))
            }
            Form::Expression => {
                let (before, after) = (whole.start..branch.range.start, branch.range.end..whole.end);
                inner(before) + &branch.mutant.replacement + &inner(after)
            }
            Form::Body => format!("return {};", branch.mutant.replacement),
            Form::Pattern => String::new(),
        };
        let branches: Vec<String> = place
            .branches
            .iter()
            .map(|branch| {
                let number = branch.number;
                let (condition, start, end) = (mark(number, '?'), mark(number, '('), mark(number, ')'));
                match place.form {
                    Form::Pattern => format!(" {condition}if !crate::fodo_mutant::is({number})"),
                    _ => format!("{condition}if crate::fodo_mutant::is({number}) {{{start}{}{end}}} ", mutated(branch)),
                }
            })
            .collect();
        match place.form {
            Form::Pattern | Form::Body => branches.concat(),
            _ => format!(
                " {}({}else {{{}}})",
                mark(place.branches[0].number, '?'),
                branches.join("else "),
                inner(whole.clone())
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mutant::mutant_for_test;
    use super::*;

    /// The source with the mutants `GENRE, REPLACED, REPLACEMENT` as branches, numbered from 1, without marks.
    fn rewritten(source: &str, changes: &[(&str, &str, &str)]) -> String {
        let mutants: Vec<Mutant> =
            changes.iter().map(|(genre, replaced, new)| mutant_for_test(source, genre, replaced, new)).collect();
        let (mut text, _) = with_branches(source, &(1..).zip(&mutants).collect()).unwrap();
        for number in 1..=mutants.len() {
            text = ['?', '(', ')'].iter().fold(text, |text, kind| text.replace(&mark(number, *kind), ""));
        }
        text.replace("crate::fodo_mutant::", "")
    }

    #[test]
    fn a_mutated_function_returns_at_its_start() {
        let source = "fn f(a: u8) -> u8 { g(); a }";
        let changes = [("FnValue", "g(); a", "0"), ("FnValue", "g(); a", "1")];

        let text = rewritten(source, &changes);

        assert_eq!(text, "fn f(a: u8) -> u8 { if is(1) {return 0;} if is(2) {return 1;} g(); a }");
    }

    #[test]
    fn a_mutated_operator_is_between_the_same_operands() {
        let source = "fn f() { let c = a as u8 > b; }";
        let changes = [("BinaryOperator", ">", "<"), ("BinaryOperator", ">", "==")];

        let text = rewritten(source, &changes);

        assert_eq!(
            text,
            "fn f() { let c =  (if is(1) {(a as u8) < (b)} else if is(2) {(a as u8) == (b)} else {a as u8 > b}); }"
        );
        assert_eq!(
            rewritten("fn f() { a += 1; }", &[("BinaryOperator", "+=", "-=")]),
            "fn f() {  (if is(1) {(a) -= (1)} else {a += 1}); }"
        );
    }

    #[test]
    fn a_mutant_without_a_unary_operator_keeps_the_operand() {
        let text = rewritten("fn f() { if !a.b() {} }", &[("UnaryOperator", "!", "")]);

        assert_eq!(text, "fn f() { if  (if is(1) {a.b()} else {!a.b()}) {} }");
    }

    #[test]
    fn a_deleted_match_arm_has_a_false_guard() {
        let text = rewritten("fn f() { match a { 1 | 2 => b, _ => c } }", &[("MatchArm", "1 | 2 => b,", "")]);

        assert_eq!(text, "fn f() { match a { 1 | 2 if !is(1) => b, _ => c } }");
    }

    #[test]
    fn a_mutated_guard_is_a_constant() {
        let source = "fn f() { match a { 1 if b == c => d, _ => e } }";
        let changes = [("MatchArmGuard", "b == c", "true"), ("BinaryOperator", "==", "!=")];

        let text = rewritten(source, &changes);

        assert_eq!(
            text,
            "fn f() { match a { 1 if  (if is(1) {true} else { (if is(2) {(b) != (c)} else {b == c})}) => d, _ => e } }"
        );
    }

    #[test]
    fn a_deleted_field_takes_its_value_from_the_base() {
        let source = "fn f() { g(S { a: 1, b: 2, ..c }) }";
        let changes = [("StructField", "a: 1,", ""), ("StructField", "b: 2,", "")];

        let text = rewritten(source, &changes);

        let inner = "(if is(2) {S { a: 1,  ..c }} else {S { a: 1, b: 2, ..c }})";
        assert_eq!(text, format!("fn f() {{ g( (if is(1) {{S {{  b: 2, ..c }}}} else {{ {inner}}})) }}"));
    }

    #[test]
    fn mutants_inside_each_other_are_branches_in_branches() {
        let source = "fn f() { a + b * c }";
        let changes = [("FnValue", "a + b * c", "()"), ("BinaryOperator", "+", "-"), ("BinaryOperator", "*", "/")];

        let text = rewritten(source, &changes);

        let inner = " (if is(3) {(b) / (c)} else {b * c})";
        assert_eq!(
            text,
            format!("fn f() {{ if is(1) {{return ();}}  (if is(2) {{(a) - ({inner})}} else {{a + {inner}}}) }}")
        );
    }

    #[test]
    fn what_a_branch_cannot_express_is_left_out() {
        for (source, genre, replaced) in [
            ("const fn f() -> u8 { 1 + 2 }", "BinaryOperator", "+"),
            ("const A: u8 = 1 + 2;", "BinaryOperator", "+"),
            ("fn f() { g([0; 1 + 2]) }", "BinaryOperator", "+"),
            ("fn f() { match a { -1 => b, _ => c } }", "UnaryOperator", "-"),
            ("fn f() { if a && let Some(b) = c {} }", "BinaryOperator", "&&"),
            ("fn f() -> impl Iterator<Item = u8> { g() }", "FnValue", "g()"),
        ] {
            let mutant = mutant_for_test(source, genre, replaced, "?");

            let (text, numbers) = with_branches(source, &BTreeMap::from([(1, &mutant)])).unwrap();

            assert_eq!((text.as_str(), numbers), (source, vec![]));
        }
    }

    #[test]
    fn the_module_that_selects_a_mutant_reads_its_variable() {
        assert!(MODULE.contains(VARIABLE));
    }

    #[test]
    fn an_error_is_blamed_on_the_branch_that_contains_it_or_on_the_nearest_mutant() {
        let source = "fn e() {} fn f() -> u8 { a + b } fn g() {}";
        let mutants = [("FnValue", "a + b", "Z"), ("BinaryOperator", "+", "-")]
            .map(|(genre, replaced, new)| mutant_for_test(source, genre, replaced, new));
        let (text, _) = with_branches(source, &(1..).zip(&mutants).collect()).unwrap();
        let blamed = |part: &str| {
            let start = text.find(part).unwrap();
            culprit(&text, &(start..start + part.len()))
        };

        assert_eq!(blamed("Z"), Some(Culprit::Branch(1)));
        assert_eq!(blamed("- (b)"), Some(Culprit::Branch(2)));
        assert_eq!(blamed("is(2)"), Some(Culprit::Nearest(2)));
        assert_eq!(blamed("a + b"), Some(Culprit::Nearest(2)));
        assert_eq!(blamed("fn e()"), Some(Culprit::Nearest(1)));
        assert_eq!(blamed("fn f() -> u8 { /*1?*/if"), Some(Culprit::Nearest(1)));
        assert_eq!(culprit(source, &(0..1)), None);
    }
}
