//! Rust sources as tokens: without comments, and optionally without test code.

use std::str::FromStr;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A word or punctuation character; a group yields its two brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The text as written; `::` is one token.
    pub text: String,
    /// The line, counted from 1.
    pub line: usize,
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name without its path.
    pub name: String,
    /// The line where it begins.
    pub line: usize,
    /// The number of lines from `fn` to the closing brace.
    pub n_lines: usize,
    /// Whether the body is a single `match` or literal table, which may be long.
    pub is_table: bool,
}

/// A path as the compiler sees it, with `use` trees expanded: `std::fs`, `Instant::now`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// For example `["std", "fs"]`.
    pub segments: Vec<String>,
    /// The line, counted from 1.
    pub line: usize,
}

/// The tokens outside `#[cfg(test)]`; `None` if the text is not valid Rust.
pub fn product_tokens(text: &str) -> Option<Vec<Token>> {
    product_trees(text).map(|trees| tokens(&trees))
}

/// The token trees outside `#[cfg(test)]`; `None` if the text is not valid Rust.
pub fn product_trees(text: &str) -> Option<Vec<TokenTree>> {
    TokenStream::from_str(text).ok().map(without_tests)
}

/// The tokens of some trees.
pub fn tokens(trees: &[TokenTree]) -> Vec<Token> {
    let mut tokens = Vec::new();
    flatten(trees.to_vec(), &mut tokens);
    tokens
}

/// All tokens; `None` if the text is not valid Rust.
pub fn all_tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    flatten(TokenStream::from_str(text).ok()?.into_iter().collect(), &mut tokens);
    Some(tokens)
}

/// Every function with a body, including inner functions; `None` if the text is not valid Rust.
pub fn functions(text: &str) -> Option<Vec<Function>> {
    let mut found = Vec::new();
    find_functions(TokenStream::from_str(text).ok()?, &mut found);
    Some(found)
}

/// The number of lines in `#[cfg(test)]` parts; `None` if the text is not valid Rust.
pub fn n_test_lines(text: &str) -> Option<usize> {
    let stream = TokenStream::from_str(text).ok()?;
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut n_lines = 0;
    let mut index = 0;
    while index < trees.len() {
        match end_of_test_item(&trees, index) {
            Some(end) => {
                n_lines += trees[end - 1].span().end().line - trees[index].span().start().line + 1;
                index = end;
            }
            None => index += 1,
        }
    }
    Some(n_lines)
}

/// Every path in the tokens.
pub fn paths(tokens: &[Token]) -> Vec<Path> {
    let mut found = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        if tokens[index].text == "use" {
            let end = tokens[index..].iter().position(|token| token.text == ";").map_or(tokens.len(), |n| index + n);
            expand_use(&tokens[index + 1..end], &mut Vec::new(), &mut found);
            index = end;
        } else if is_word(&tokens[index].text) {
            let line = tokens[index].line;
            let mut segments = vec![tokens[index].text.clone()];
            while index + 2 < tokens.len() && tokens[index + 1].text == "::" && is_word(&tokens[index + 2].text) {
                index += 2;
                segments.push(tokens[index].text.clone());
            }
            found.push(Path { segments, line });
        }
        index += 1;
    }
    found
}

/// Expands `std::{fs, io::Read}`. `prefix` is the path before the tokens.
fn expand_use(tokens: &[Token], prefix: &mut Vec<String>, found: &mut Vec<Path>) {
    for part in split_at_commas(tokens) {
        let depth = prefix.len();
        let brace = part.iter().position(|token| token.text == "{");
        let plain = &part[..brace.unwrap_or(part.len())];
        for token in plain.iter().take_while(|token| token.text != "as") {
            if is_word(&token.text) && token.text != "self" {
                prefix.push(token.text.clone());
            }
        }
        match brace {
            Some(brace) if part.len() > brace + 1 => expand_use(&part[brace + 1..part.len() - 1], prefix, found),
            _ => {
                let line = part.first().map_or(0, |token| token.line);
                found.push(Path { segments: prefix.clone(), line });
            }
        }
        prefix.truncate(depth);
    }
}

fn split_at_commas(tokens: &[Token]) -> Vec<&[Token]> {
    let mut parts = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (index, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 0 => {
                parts.push(&tokens[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&tokens[start..]);
    parts.retain(|part| !part.is_empty());
    parts
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Removes every item with the attribute `#[cfg(test)]`.
fn without_tests(stream: TokenStream) -> Vec<TokenTree> {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut kept = Vec::new();
    let mut index = 0;
    while index < trees.len() {
        if let Some(end) = end_of_test_item(&trees, index) {
            index = end;
            continue;
        }
        kept.push(match &trees[index] {
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), without_tests(group.stream()).into_iter().collect());
                inner.set_span(group.span());
                TokenTree::Group(inner)
            }
            tree => tree.clone(),
        });
        index += 1;
    }
    kept
}

/// If there is a `#[cfg(test)]` at `index`: the index after its item.
fn end_of_test_item(trees: &[TokenTree], index: usize) -> Option<usize> {
    let TokenTree::Punct(sign) = &trees[index] else { return None };
    let Some(TokenTree::Group(attribute)) = trees.get(index + 1) else { return None };
    let text = attribute.stream().to_string().replace(' ', "");
    if sign.as_char() != '#' || !(text == "cfg(test)" || text.starts_with("cfg(all(test,")) {
        return None;
    }
    let ends = trees[index + 2..].iter().position(|tree| match tree {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(sign) => sign.as_char() == ';',
        _ => false,
    });
    Some(ends.map_or(trees.len(), |n| index + 2 + n + 1))
}

fn flatten(trees: Vec<TokenTree>, tokens: &mut Vec<Token>) {
    for tree in trees {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::None => ("", ""),
                };
                tokens.push(Token { text: open.to_string(), line });
                flatten(group.stream().into_iter().collect(), tokens);
                tokens.push(Token { text: close.to_string(), line: group.span().end().line });
            }
            TokenTree::Punct(sign) => match tokens.last_mut() {
                Some(last) if sign.as_char() == ':' && last.text == ":" => last.text.push(':'),
                _ => tokens.push(Token { text: sign.as_char().to_string(), line }),
            },
            TokenTree::Ident(word) => tokens.push(Token { text: word.to_string(), line }),
            TokenTree::Literal(literal) => tokens.push(Token { text: literal.to_string(), line }),
        }
    }
}

fn find_functions(stream: TokenStream, found: &mut Vec<Function>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    for (index, tree) in trees.iter().enumerate() {
        if let TokenTree::Group(group) = tree {
            find_functions(group.stream(), found);
        }
        let (TokenTree::Ident(word), Some(TokenTree::Ident(name))) = (tree, trees.get(index + 1)) else { continue };
        if word != "fn" {
            continue;
        }
        let body = trees[index..].iter().find_map(|tree| match tree {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(Some(group)),
            TokenTree::Punct(sign) if sign.as_char() == ';' => Some(None),
            _ => None,
        });
        if let Some(Some(body)) = body {
            let line = word.span().start().line;
            found.push(Function {
                name: name.to_string(),
                line,
                n_lines: body.span().end().line - line + 1,
                is_table: is_table(body),
            });
        }
    }
}

/// Whether a body consists of a single `match`, list or macro call with a list.
fn is_table(body: &Group) -> bool {
    let trees: Vec<TokenTree> = body.stream().into_iter().collect();
    let starts_with_match = matches!(trees.first(), Some(TokenTree::Ident(word)) if word == "match");
    let n_braces = trees.iter().filter(|tree| is_brace(tree)).count();
    let only_match = starts_with_match && n_braces == 1 && trees.last().is_some_and(is_brace);
    let has_bang = trees.iter().any(|tree| matches!(tree, TokenTree::Punct(sign) if sign.as_char() == '!'));
    let ends_with_list = match trees.last() {
        Some(TokenTree::Group(group)) => has_bang || group.delimiter() == Delimiter::Bracket,
        _ => false,
    };
    only_match || (trees.len() <= 3 && ends_with_list)
}

fn is_brace(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_texts(source: &str) -> Vec<String> {
        let tokens = product_tokens(source).unwrap();
        paths(&tokens).iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn use_trees_are_expanded_to_paths() {
        assert_eq!(
            path_texts("use std::{fs, io::{self, Read as R}, net::SocketAddr};"),
            ["std::fs", "std::io", "std::io::Read", "std::net::SocketAddr"]
        );
    }

    #[test]
    fn paths_in_comments_strings_and_tests_are_ignored() {
        let source = "// std::fs\nconst A: &str = \"std::env\";\n#[cfg(test)]\nmod tests { use std::fs; }\n";

        assert!(path_texts(source).iter().all(|path| !path.starts_with("std")));
    }

    #[test]
    fn a_function_is_measured_from_fn_to_its_closing_brace() {
        let source = "#[inline]\n/// Doc.\nfn a(x: fn(u8) -> u8)\n-> u8 {\n  x(1)\n}\ntrait T { fn b(); }\n";

        let found = functions(source).unwrap();
        assert_eq!(found, [Function { name: "a".into(), line: 3, n_lines: 4, is_table: false }]);
    }

    #[test]
    fn a_function_with_one_match_or_one_list_is_a_table() {
        let is_table = |source: &str| functions(source).unwrap()[0].is_table;

        assert!(is_table("fn a(x: u8) -> u8 { match x { 1 => { 2 } _ => 3 } }"));
        assert!(is_table("fn a() -> &'static [u8] { &[1, 2] }"));
        assert!(!is_table("fn a() { loop { step() } }"));
        assert!(!is_table("fn a(x: u8) -> u8 { let y = x; match y { 1 => 2, _ => 3 } }"));
        assert!(!is_table("fn a(x: u8) -> u8 { match x { 1 => 2, _ => 3 }; if x { 4 } else { 5 } }"));
    }

    #[test]
    fn test_lines_are_counted_separately() {
        assert_eq!(n_test_lines("fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n"), Some(3));
    }
}
