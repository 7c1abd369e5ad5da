//! Parses `.acf` files.

use std::collections::HashSet;

use super::{Access, AccessDecision, AccessFile, DEFAULT, Group, Rule};
use crate::calc::CompiledExpression;
use crate::limit::{ACCESS_DEPTH_MAX, ACCESS_FILE_BYTES_MAX, LOAD_ERRORS_MAX};
use crate::load::error::suggestion;
use crate::load::lexer::{DbToken, Lexer, SourcePlace};
use crate::load::{LoadError, Macros, OpenFile};

/// Words that cannot be names, unless in quotes.
const KEYWORDS: [&str; 5] = ["UAG", "HAG", "ASG", "RULE", "CALC"];

impl AccessFile {
    /// Reads a file. `macros`: `"P=X:,R=1"`. Fails like [`AccessFile::parse`].
    pub fn load(file: &str, macros: &str, open: &mut OpenFile) -> Result<AccessFile, Vec<LoadError>> {
        let unreadable = |error| vec![LoadError::of_file(file, format!("cannot be read: {error}"))];
        let bytes = open(file).map_err(unreadable)?;
        AccessFile::parse(file, &bytes, macros)
    }

    /// Parses the bytes of a file. `file`: its name in errors. `macros`: `"P=X:,R=1"`.
    ///
    /// As in Base, an unknown item is skipped with a warning. A rule with an unknown condition or an unknown right is
    /// skipped too, so it grants nothing. Any other error rejects the whole file; all errors are returned.
    pub fn parse(file: &str, bytes: &[u8], macros: &str) -> Result<AccessFile, Vec<LoadError>> {
        let of_file = |message: String| vec![LoadError::of_file(file, message)];
        if bytes.len() > ACCESS_FILE_BYTES_MAX {
            return Err(of_file(format!("the file is larger than {ACCESS_FILE_BYTES_MAX} bytes")));
        }
        let macros = Macros::parse(macros).map_err(of_file)?;
        let source = String::from_utf8_lossy(bytes);
        let mut parser = AccessParser::new(file, &source, &macros).map_err(|error| vec![error])?;
        parser.items();
        // Errors in macros cause further errors, which are not worth reporting.
        let AccessParser { lexer, errors, found, .. } = parser;
        match [lexer.errors, errors].into_iter().find(|errors| !errors.is_empty()) {
            Some(errors) => Err(errors),
            None => Ok(found),
        }
    }
}

struct AccessParser<'a> {
    file: &'a str,
    lexer: Lexer<'a>,
    /// The current token and its place.
    token: DbToken,
    place: SourcePlace,
    found: AccessFile,
    errors: Vec<LoadError>,
}

impl<'a> AccessParser<'a> {
    fn new(file: &'a str, source: &'a str, macros: &'a Macros) -> Result<AccessParser<'a>, LoadError> {
        let mut lexer = Lexer::new(file, source, macros);
        let (token, place) = lexer.next(false)?;
        // As in Base, the group DEFAULT exists from the start, without a rule.
        let found = AccessFile { groups: vec![(DEFAULT.to_owned(), Group::default())], ..AccessFile::default() };
        Ok(AccessParser { file, lexer, token, place, found, errors: Vec::new() })
    }

    fn advance(&mut self) -> Result<DbToken, LoadError> {
        let (token, place) = self.lexer.next(false)?;
        self.place = place;
        Ok(std::mem::replace(&mut self.token, token))
    }

    fn expected(&self, what: &str) -> LoadError {
        self.lexer.error(self.place, format!("expected {what}, found {}", self.token.shown()))
    }

    fn warn(&mut self, place: SourcePlace, message: String) {
        // Without the source line: a warning is one line.
        let place = self.lexer.error(place, "");
        self.found.warnings.push(format!("{}:{}:{}: {message}", self.file, place.line, place.column));
    }

    fn is_mark(&self, mark: char) -> bool {
        self.token == DbToken::Mark(mark)
    }

    fn mark(&mut self, mark: char) -> Result<(), LoadError> {
        if !self.is_mark(mark) {
            return Err(self.expected(&format!("'{mark}'")));
        }
        self.advance().map(drop)
    }

    /// Parses a name, with or without quotes.
    fn name(&mut self, what: &str) -> Result<String, LoadError> {
        let is_name = match &self.token {
            DbToken::Quoted(_) => true,
            DbToken::Bare(word) => !is_keyword(word) && !is_number(word),
            DbToken::Json(_) | DbToken::Mark(_) | DbToken::End => false,
        };
        match self.token {
            DbToken::Bare(_) | DbToken::Quoted(_) if is_name => match self.advance()? {
                DbToken::Bare(name) | DbToken::Quoted(name) => Ok(name),
                _ => Ok(String::new()),
            },
            _ => Err(self.expected(what)),
        }
    }

    /// Parses `(name)`. Also returns the place of the name.
    fn named(&mut self, what: &str) -> Result<(String, SourcePlace), LoadError> {
        self.mark('(')?;
        let place = self.place;
        let name = self.name(what)?;
        self.mark(')')?;
        Ok((name, place))
    }

    /// Parses names in brackets, separated by commas.
    fn names(&mut self, open: char, close: char, what: &str) -> Result<Vec<(String, SourcePlace)>, LoadError> {
        self.mark(open)?;
        let mut names = Vec::new();
        loop {
            let place = self.place;
            names.push((self.name(what)?, place));
            if !self.is_mark(',') {
                if !self.is_mark(close) {
                    return Err(self.expected(&format!("',' or '{close}'")));
                }
                return self.advance().map(|_| names);
            }
            self.advance()?;
        }
    }

    fn items(&mut self) {
        loop {
            if let Err(error) = self.item() {
                self.errors.push(error);
                self.recover();
            }
            if self.token == DbToken::End || self.errors.len() >= LOAD_ERRORS_MAX {
                return;
            }
        }
    }

    /// After an error, skips to the next group at the start of a line.
    fn recover(&mut self) {
        loop {
            match self.lexer.next(false) {
                Ok((token, place)) => (self.token, self.place) = (token, place),
                // A further error in the skipped part is not reported.
                Err(_) => continue,
            }
            match &self.token {
                DbToken::End => return,
                DbToken::Bare(word)
                    if ["UAG", "HAG", "AUTHORITY", "ASG"].contains(&word.as_str()) && self.is_at_column_one() =>
                {
                    return;
                }
                _ => {}
            }
        }
    }

    fn is_at_column_one(&self) -> bool {
        self.lexer.error(self.place, "").column == 1
    }

    /// Parses `UAG`, `HAG`, `AUTHORITY` or `ASG`, or skips an unknown item.
    fn item(&mut self) -> Result<(), LoadError> {
        let place = self.place;
        let keyword = match &self.token {
            DbToken::Bare(word) if !is_number(word) => word.clone(),
            _ => return Err(self.expected("UAG, HAG, AUTHORITY or ASG")),
        };
        match keyword.as_str() {
            "UAG" => {
                self.advance()?;
                self.members(place, true)?;
            }
            "HAG" => {
                self.advance()?;
                self.members(place, false)?;
            }
            "AUTHORITY" => {
                self.advance()?;
                self.authority(place, "", 1)?;
            }
            "ASG" => {
                self.advance()?;
                self.group()?;
            }
            "RULE" | "CALC" => return Err(self.expected("UAG, HAG, AUTHORITY or ASG")),
            word if input(word).is_some() => return Err(self.expected("UAG, HAG, AUTHORITY or ASG")),
            word => {
                self.advance()?;
                self.skip('(', ')')?;
                if self.is_mark('{') {
                    self.skip('{', '}')?;
                }
                self.warn(place, format!("unknown item \"{word}\" is skipped; known are UAG, HAG, AUTHORITY and ASG"));
            }
        }
        Ok(())
    }

    /// Parses an authority of certificates: its name in rules, its common name, and in braces the authorities below it. `above`:
    /// the common names of those above it, each followed by a line feed.
    ///
    /// Source: EPICS Base, pull request 942 (which replaces 563, 618 and 641).
    fn authority(&mut self, place: SourcePlace, above: &str, depth: usize) -> Result<(), LoadError> {
        if depth > ACCESS_DEPTH_MAX {
            return Err(self.lexer.error(place, "authorities are nested too deeply"));
        }
        let names = self.names('(', ')', "the name of an authority")?;
        let (name, common_name) = match names.as_slice() {
            [(name, _), (common_name, _)] => (Some(name), common_name),
            [(common_name, _)] => (None, common_name),
            _ => return Err(self.lexer.error(place, "expected AUTHORITY(NAME, \"common name\")")),
        };
        let chain = format!("{above}{common_name}");
        if let Some(name) = name {
            if self.found.authorities.iter().any(|(known, _)| known == name) {
                return Err(self.lexer.error(place, format!("AUTHORITY \"{name}\" already exists")));
            }
            self.found.authorities.push((name.clone(), chain.clone()));
        }
        if self.is_mark('{') {
            self.advance()?;
            while !self.is_mark('}') {
                let place = self.place;
                match &self.token {
                    DbToken::Bare(word) if word == "AUTHORITY" => self.advance()?,
                    _ => return Err(self.expected("AUTHORITY or '}'")),
                };
                self.authority(place, &format!("{chain}\n"), depth + 1)?;
            }
            self.advance()?;
        }
        Ok(())
    }

    /// Parses the name and the members of a UAG or HAG.
    fn members(&mut self, place: SourcePlace, is_users: bool) -> Result<(), LoadError> {
        let (name, _) = self.named("the name of the group")?;
        if self.groups(is_users).iter().any(|(known, _)| *known == name) {
            let keyword = if is_users { "UAG" } else { "HAG" };
            return Err(self.lexer.error(place, format!("{keyword} \"{name}\" already exists")));
        }
        // The group exists even if its members are invalid, so that rules with it cause no further errors.
        self.groups(is_users).push((name, HashSet::new()));
        if !self.is_mark('{') {
            return Ok(());
        }
        let what = if is_users { "the name of a user" } else { "the name of a host" };
        let named = self.names('{', '}', what)?.into_iter().map(|(member, _)| member);
        let members = named.map(|member| if is_users { member } else { member.to_ascii_lowercase() }).collect();
        if let Some((_, group)) = self.groups(is_users).last_mut() {
            *group = members;
        }
        Ok(())
    }

    fn groups(&mut self, is_users: bool) -> &mut Vec<(String, HashSet<String>)> {
        if is_users { &mut self.found.user_groups } else { &mut self.found.host_groups }
    }

    fn group(&mut self) -> Result<(), LoadError> {
        let (name, place) = self.named("the name of the group")?;
        let mut group = Group::default();
        let known = self.found.groups.iter().position(|(known, _)| *known == name);
        let is_taken = known.and_then(|index| self.found.groups.get(index)).is_some_and(|(name, group)| {
            // DEFAULT exists from the start, empty.
            name != DEFAULT || !group.rules.is_empty() || !group.inputs.is_empty()
        });
        if is_taken {
            return Err(self.lexer.error(place, format!("ASG \"{name}\" already exists")));
        }
        if self.is_mark('{') {
            self.advance()?;
            loop {
                self.group_item(&mut group)?;
                if self.is_mark('}') {
                    self.advance()?;
                    break;
                }
            }
        }
        self.warn_of_constant_rules(place, &group);
        match known.and_then(|index| self.found.groups.get_mut(index)) {
            Some(place) => place.1 = group,
            None => self.found.groups.push((name, group)),
        }
        Ok(())
    }

    /// Warns about rules that are never evaluated, because only an input evaluates them.
    fn warn_of_constant_rules(&mut self, place: SourcePlace, group: &Group) {
        let inputs = group.inputs.iter().fold(0, |inputs, (arg, _)| inputs | 1 << arg);
        for (index, rule) in group.rules.iter().enumerate() {
            if rule.calc.as_ref().is_some_and(|calc| calc.args_used() & inputs == 0) {
                let number = index + 1;
                self.warn(place, format!("rule {number} grants nothing, since its CALC uses no input of the group"));
            }
        }
    }

    fn group_item(&mut self, group: &mut Group) -> Result<(), LoadError> {
        let place = self.place;
        let keyword = match &self.token {
            DbToken::Bare(word) => word.clone(),
            _ => return Err(self.expected("INPA to INPU, or RULE")),
        };
        if let Some(arg) = input(&keyword) {
            self.advance()?;
            let (pv, _) = self.named("the name of a PV")?;
            group.inputs.push((arg, pv));
            return Ok(());
        }
        if keyword != "RULE" {
            return Err(self.expected("INPA to INPU, or RULE"));
        }
        self.advance()?;
        group.rules.extend(self.rule(place)?);
        Ok(())
    }

    /// Parses a rule after the word RULE. `None`: an unknown word makes the rule grant nothing.
    fn rule(&mut self, place: SourcePlace) -> Result<Option<Rule>, LoadError> {
        self.mark('(')?;
        let level = self.level()?;
        self.mark(',')?;
        let right = self.name("NONE, READ or WRITE")?;
        let access = match right.as_str() {
            "NONE" => Some(Access::None),
            "READ" => Some(Access::Read),
            "WRITE" => Some(Access::Write),
            _ => None,
        };
        let mut is_logged = false;
        if self.is_mark(',') {
            self.advance()?;
            is_logged = match &self.token {
                DbToken::Bare(word) if word == "TRAPWRITE" => true,
                DbToken::Bare(word) if word == "NOTRAPWRITE" => false,
                _ => return Err(self.expected("TRAPWRITE or NOTRAPWRITE")),
            };
            self.advance()?;
        }
        self.mark(')')?;
        let granted = AccessDecision { access: access.unwrap_or_default(), is_logged };
        let mut rule = Rule { level, granted, ..Rule::default() };
        let mut unknown = access.is_none().then_some(right);
        if self.is_mark('{') {
            self.advance()?;
            loop {
                unknown = unknown.or(self.condition(&mut rule)?);
                if self.is_mark('}') {
                    self.advance()?;
                    break;
                }
            }
        }
        if let Some(word) = unknown {
            self.warn(place, format!("this rule grants nothing, since \"{word}\" is unknown"));
            return Ok(None);
        }
        Ok(Some(rule))
    }

    fn level(&mut self) -> Result<u32, LoadError> {
        let level = match &self.token {
            DbToken::Bare(word) => word.parse().ok(),
            _ => None,
        };
        match level {
            Some(level) => self.advance().map(|_| level),
            None => Err(self.expected("a security level, 0 or 1")),
        }
    }

    /// Parses a condition such as `UAG(...)`. Returns the word if it is unknown.
    fn condition(&mut self, rule: &mut Rule) -> Result<Option<String>, LoadError> {
        const WANTED: &str = "UAG, HAG, METHOD, AUTHORITY, PROTOCOL or CALC";
        let keyword = match &self.token {
            DbToken::Bare(word) if !is_number(word) => word.clone(),
            _ => return Err(self.expected(WANTED)),
        };
        match keyword.as_str() {
            "UAG" | "HAG" => {
                self.advance()?;
                for (name, place) in self.names('(', ')', "the name of a group")? {
                    let is_users = keyword == "UAG";
                    let groups = if is_users { &self.found.user_groups } else { &self.found.host_groups };
                    let Some(index) = groups.iter().position(|(known, _)| *known == name) else {
                        let guess = suggestion(&name, groups.iter().map(|(known, _)| known.as_str()));
                        let message = format!("no {keyword} \"{name}\" is defined above this rule{guess}");
                        self.errors.push(self.lexer.error(place, message));
                        continue;
                    };
                    if is_users { &mut rule.user_groups } else { &mut rule.host_groups }.push(index);
                }
            }
            "METHOD" => {
                self.advance()?;
                let names = self.names('(', ')', "the name of a method, such as \"x509\"")?;
                rule.methods.extend(names.into_iter().map(|(name, _)| name.to_ascii_lowercase()));
            }
            "PROTOCOL" => {
                self.advance()?;
                for (name, place) in self.names('(', ')', "\"TCP\" or \"TLS\"")? {
                    match name.to_ascii_uppercase().as_str() {
                        "TCP" => rule.protocols.push(false),
                        "TLS" => rule.protocols.push(true),
                        _ => self.errors.push(self.lexer.error(place, "a PROTOCOL is \"TCP\" or \"TLS\"")),
                    }
                }
            }
            "AUTHORITY" => {
                self.advance()?;
                for (name, place) in self.names('(', ')', "the name of an authority")? {
                    let authorities = &self.found.authorities;
                    let Some(index) = authorities.iter().position(|(known, _)| *known == name) else {
                        let guess = suggestion(&name, authorities.iter().map(|(known, _)| known.as_str()));
                        let message = format!("no AUTHORITY \"{name}\" is defined above this rule{guess}");
                        self.errors.push(self.lexer.error(place, message));
                        continue;
                    };
                    rule.authorities.push(index);
                }
            }
            "CALC" => {
                self.advance()?;
                let (text, place) = self.named("an expression in quotes")?;
                // The last CALC is used, as in Base.
                match self.calc(&text, place) {
                    Ok(program) => rule.calc = Some(program),
                    Err(error) => self.errors.push(error),
                }
            }
            "ASG" | "RULE" => return Err(self.expected(WANTED)),
            _ => {
                self.advance()?;
                self.skip('(', ')')?;
                return Ok(Some(keyword));
            }
        }
        Ok(None)
    }

    fn calc(&self, text: &str, place: SourcePlace) -> Result<CompiledExpression, LoadError> {
        let program = CompiledExpression::compile(text)
            .map_err(|error| self.lexer.error(place, format!("\"{text}\" is not a valid expression: {error}")))?;
        if program.has_stores() {
            return Err(self.lexer.error(place, "the CALC of a rule cannot contain ':='"));
        }
        Ok(program)
    }

    /// Skips brackets and their content.
    fn skip(&mut self, open: char, close: char) -> Result<(), LoadError> {
        let place = self.place;
        self.mark(open)?;
        let mut closers = vec![close];
        while let Some(&last) = closers.last() {
            match self.token {
                DbToken::Mark('(') => closers.push(')'),
                DbToken::Mark('{') => closers.push('}'),
                DbToken::Mark(mark) if mark == last => {
                    closers.pop();
                }
                DbToken::Mark(')' | '}') => return Err(self.expected(&format!("'{last}'"))),
                DbToken::End => return Err(self.lexer.error(place, format!("'{open}' is not closed"))),
                DbToken::Mark(_) | DbToken::Bare(_) | DbToken::Quoted(_) | DbToken::Json(_) => {}
            }
            if closers.len() > ACCESS_DEPTH_MAX {
                return Err(self.lexer.error(self.place, "brackets are nested too deeply"));
            }
            self.advance()?;
        }
        Ok(())
    }
}

/// The argument index of INPA to INPU.
fn input(word: &str) -> Option<usize> {
    match word.as_bytes() {
        [b'I', b'N', b'P', letter @ b'A'..=b'U'] => Some(usize::from(letter - b'A')),
        _ => None,
    }
}

fn is_keyword(word: &str) -> bool {
    KEYWORDS.contains(&word) || input(word).is_some()
}

fn is_number(word: &str) -> bool {
    word.parse::<f64>().is_ok() && word.contains(|character: char| character.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(source: &str) -> Result<AccessFile, Vec<LoadError>> {
        AccessFile::parse("test.acf", source.as_bytes(), "")
    }

    /// The errors of a file, without source lines.
    fn complaints(source: &str) -> Vec<String> {
        let errors = parsed(source).unwrap_err();
        errors.iter().map(|error| format!("{}: {}", error.place(), error.message)).collect()
    }

    /// The only error of a file.
    fn complaint(source: &str) -> String {
        let complaints = complaints(source);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        complaints[0].clone()
    }

    #[test]
    fn every_access_file_error_is_reported() {
        let source = "UAG(ops) { alice bob }\nASG(A) {\n  RULE(1, READ) { UAG(op) HAG(h) }\n\
                      RULE(0, WRITE) { CALC(\"A+\") }\n  RULE(2) }\nASG(B) { RULE(1, WRITE) { UAG(ops) } RULE(1 }\nASG(A) {";

        assert_eq!(
            complaints(source),
            [
                "test.acf:1:18: expected ',' or '}', found \"bob\"",
                "test.acf:3:23: no UAG \"op\" is defined above this rule; did you mean \"ops\"?",
                "test.acf:3:31: no HAG \"h\" is defined above this rule",
                "test.acf:4:23: \"A+\" is not a valid expression: a value is missing at character 3",
                "test.acf:5:9: expected ',', found ')'",
                "test.acf:6:45: expected ',', found '}'",
                "test.acf:7:9: expected INPA to INPU, or RULE, found the end of the file",
            ]
        );
    }

    #[test]
    fn access_files_allow_quoted_names_empty_groups_and_comments() {
        let file = parsed(
            "# who\nUAG(\"a b\") {\"x y\", z} # these\nHAG(h) {FOO.bar}\nUAG(nobody)\nASG(G)\n\
             ASG(DEFAULT) {INPA(\"P:x.SEVR\") RULE(1, READ) {UAG(\"a b\", nobody) HAG(h) CALC(A)}}",
        )
        .unwrap();

        assert!(file.user_groups[0].1.contains("x y"));
        assert!(file.host_groups[0].1.contains("foo.bar"));
        let (name, group) = &file.groups[0];
        assert_eq!((name.as_str(), &group.inputs), ("DEFAULT", &vec![(0, "P:x.SEVR".to_owned())]));
        assert_eq!((&group.rules[0].user_groups, &group.rules[0].host_groups), (&vec![0, 1], &vec![0]));
        assert!(file.warnings().is_empty());
    }

    #[test]
    fn an_access_file_error_names_its_position_and_the_expected_token() {
        for (source, expected) in [
            ("", "1:1: expected UAG, HAG, AUTHORITY or ASG, found the end of the file"),
            ("ASG(DEFAULT) {\n  FOO(1)\n}", "2:3: expected INPA to INPU, or RULE, found \"FOO\""),
            ("ASG(DEFAULT) {}", "1:15: expected INPA to INPU, or RULE, found '}'"),
            ("UAG(a) {}", "1:9: expected the name of a user, found '}'"),
            ("UAG(a) {12}", "1:9: expected the name of a user, found \"12\""),
            ("UAG(a) {x y}", "1:11: expected ',' or '}', found \"y\""),
            ("ASG(G) {RULE(-1, READ)}", "1:14: expected a security level, 0 or 1, found \"-1\""),
            ("ASG(G) {RULE(1, READ, LOUD)}", "1:23: expected TRAPWRITE or NOTRAPWRITE, found \"LOUD\""),
            ("ASG(G) {RULE(1, READ) {}}", "1:24: expected UAG, HAG, METHOD, AUTHORITY, PROTOCOL or CALC, found '}'"),
            ("ASG(G) {RULE(1, READ) {UAG(a)}}", "1:28: no UAG \"a\" is defined above this rule"),
            ("UAG(a) UAG(a)", "1:8: UAG \"a\" already exists"),
            ("ASG(G) ASG(G)", "1:12: ASG \"G\" already exists"),
            ("ASG(G) {RULE(1, READ) {CALC(\"A:=1;1\")}}", "1:29: the CALC of a rule cannot contain ':='"),
            ("FOO(a) {b", "1:8: '{' is not closed"),
            ("FOO", "1:4: expected '(', found the end of the file"),
            ("ASG(G) } \"", "1:8: expected UAG, HAG, AUTHORITY or ASG, found '}'"),
            ("ASG($(G))", "1:5: macro \"G\" is not defined; give it a value, G=..., or a default, $(G=...)"),
        ] {
            assert_eq!(complaint(source), format!("test.acf:{expected}"), "{source}");
        }
        assert!(
            complaint("ASG(G) {RULE(1, READ) {CALC(\"A+\")}}").starts_with("test.acf:1:29: \"A+\" is not a valid expr")
        );
    }

    #[test]
    fn unknown_access_file_items_cause_a_warning_and_grant_nothing() {
        let file = parsed(
            "FOO(a, \"b\") {BAR(x) {y(z)}}\nASG(DEFAULT) {\n  RULE(1, RPC)\n\
             RULE(1, WRITE) {SHIFT(\"night\")}\nRULE(1, READ)}",
        )
        .unwrap();

        assert_eq!(
            file.warnings(),
            [
                "test.acf:1:1: unknown item \"FOO\" is skipped; known are UAG, HAG, AUTHORITY and ASG",
                "test.acf:3:3: this rule grants nothing, since \"RPC\" is unknown",
                "test.acf:4:1: this rule grants nothing, since \"SHIFT\" is unknown",
            ]
        );
        assert_eq!(file.groups[0].1.rules.len(), 1);
    }

    #[test]
    fn an_error_of_an_authority_names_its_position() {
        for (source, expected) in [
            ("ASG(G) {RULE(1, READ) {AUTHORITY(A)}}", "1:34: no AUTHORITY \"A\" is defined above this rule"),
            ("AUTHORITY(A, b) AUTHORITY(A, c)", "1:17: AUTHORITY \"A\" already exists"),
            ("AUTHORITY(A, b, c)", "1:1: expected AUTHORITY(NAME, \"common name\")"),
            ("AUTHORITY(A, b) {UAG(c)}", "1:18: expected AUTHORITY or '}', found \"UAG\""),
            ("ASG(G) {RULE(1, READ) {PROTOCOL(UDP)}}", "1:33: a PROTOCOL is \"TCP\" or \"TLS\""),
        ] {
            assert_eq!(complaint(source), format!("test.acf:{expected}"), "{source}");
        }
        let deep = "AUTHORITY(b) {".repeat(ACCESS_DEPTH_MAX + 1);
        assert!(complaint(&deep).ends_with("authorities are nested too deeply"), "{}", complaint(&deep));
    }

    #[test]
    fn macros_in_access_files_are_expanded() {
        let file = AccessFile::parse("test.acf", b"ASG($(G)) {INPA($(P)x) RULE(1, READ)}", "P=X:,G=ops").unwrap();

        assert_eq!(file.groups[1].0, "ops");
        assert_eq!(file.groups[1].1.inputs, [(0, "X:x".to_owned())]);
    }

    #[test]
    fn an_access_file_that_is_too_large_or_nested_too_deep_is_rejected() {
        let large = vec![b' '; ACCESS_FILE_BYTES_MAX + 1];
        let deep = format!("FOO{}", "(".repeat(ACCESS_DEPTH_MAX + 1));

        assert!(AccessFile::parse("test.acf", &large, "").is_err());
        assert!(complaint(&deep).ends_with("brackets are nested too deeply"), "{}", complaint(&deep));
    }
}
