//! Shows rules as text in the syntax of an access file, with the present values.

use std::collections::HashSet;

use super::{Access, GroupState, Rule, Security};

/// A part of an access file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessSection {
    /// UAG: groups of users.
    Users,
    /// HAG: groups of hosts.
    Hosts,
    /// ASG: groups of records, with their inputs and rules.
    Groups,
}

impl Security {
    /// One part as lines of text, for the groups whose names `is_selected` accepts. Shows the value of each input, and
    /// whether the CALC of each rule is true.
    pub fn shown(&self, part: AccessSection, is_selected: &dyn Fn(&str) -> bool) -> String {
        let file = &self.file;
        let list = |word: &str, groups: &[(String, HashSet<String>)]| -> String {
            let selected = groups.iter().filter(|(name, _)| is_selected(name));
            selected.map(|(name, members)| format!("{word}({name}) {{ {} }}\n", sorted(members))).collect()
        };
        match part {
            AccessSection::Users => list("UAG", &file.user_groups),
            AccessSection::Hosts => list("HAG", &file.host_groups),
            AccessSection::Groups => {
                let groups = file.groups.iter().zip(&self.states).filter(|((name, _), _)| is_selected(name));
                groups.map(|((name, _), state)| self.shown_group(name, state)).collect()
            }
        }
    }

    fn shown_group(&self, name: &str, state: &GroupState) -> String {
        let Some((_, group)) = self.file.groups.iter().find(|(other, _)| other == name) else { return String::new() };
        let mut text = format!("ASG({name}) {{\n");
        for (arg, pv) in &group.inputs {
            let letter = char::from(b'A' + *arg as u8);
            let value = match state.bad & 1 << arg {
                0 => state.args.get(*arg).copied().unwrap_or_default().to_string(),
                _ => "INVALID".to_owned(),
            };
            text += &format!("  INP{letter}(\"{pv}\") is {value}\n");
        }
        for (rule, is_met) in group.rules.iter().zip(&state.is_met) {
            text += &format!("  {}\n", self.shown_rule(rule, *is_met));
        }
        text + "}\n"
    }

    fn shown_rule(&self, rule: &Rule, is_met: bool) -> String {
        let access = match rule.granted.access {
            Access::None => "NONE",
            Access::Read => "READ",
            Access::Write => "WRITE",
        };
        let trap = if rule.granted.is_logged { ", TRAPWRITE" } else { "" };
        let names = |groups: &[(String, HashSet<String>)], indices: &[usize]| -> Vec<String> {
            indices.iter().filter_map(|index| groups.get(*index)).map(|(name, _)| name.clone()).collect()
        };
        let mut asks = Vec::new();
        for (word, names) in [
            ("UAG", names(&self.file.user_groups, &rule.user_groups)),
            ("HAG", names(&self.file.host_groups, &rule.host_groups)),
        ] {
            if !names.is_empty() {
                asks.push(format!("{word}({})", names.join(", ")));
            }
        }
        let quoted = |names: &[&str]| names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        if !rule.methods.is_empty() {
            asks.push(format!("METHOD({})", quoted(&rule.methods.iter().map(String::as_str).collect::<Vec<_>>())));
        }
        if !rule.authorities.is_empty() {
            let named = rule.authorities.iter().filter_map(|index| self.file.authorities.get(*index));
            asks.push(format!("AUTHORITY({})", named.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")));
        }
        if !rule.protocols.is_empty() {
            let names = rule.protocols.iter().map(|is_encrypted| if *is_encrypted { "TLS" } else { "TCP" });
            asks.push(format!("PROTOCOL({})", quoted(&names.collect::<Vec<_>>())));
        }
        if rule.calc.is_some() {
            asks.push(format!("CALC is {}", if is_met { "met" } else { "not met" }));
        }
        let asks = if asks.is_empty() { String::new() } else { format!(" {{ {} }}", asks.join(" ")) };
        format!("RULE({}, {access}{trap}){asks}", rule.level)
    }
}

fn sorted(members: &HashSet<String>) -> String {
    let mut members: Vec<&str> = members.iter().map(String::as_str).collect();
    members.sort_unstable();
    members.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::{AccessFile, AccessInputState};

    const FILE: &[u8] = b"UAG(ops) { bob, ann } UAG(guests) { eve } HAG(room) { desk }\n\
        ASG(DEFAULT) { RULE(1, READ) RULE(0, WRITE, TRAPWRITE) { UAG(ops, guests) HAG(room) } }\n\
        ASG(gated) { INPA(x:a) INPC(x:c) RULE(1, NONE) RULE(1, WRITE) { CALC(\"A=1\") } }\n";

    fn shown(security: &Security, part: AccessSection, name: &str) -> String {
        security.shown(part, &|other| name == "*" || other == name)
    }

    #[test]
    fn rules_are_shown_in_the_syntax_of_an_access_file() {
        let security = Security::new(AccessFile::parse("test.acf", FILE, "").unwrap());

        assert_eq!(shown(&security, AccessSection::Users, "*"), "UAG(ops) { ann, bob }\nUAG(guests) { eve }\n");
        assert_eq!(shown(&security, AccessSection::Users, "guests"), "UAG(guests) { eve }\n");
        assert_eq!(shown(&security, AccessSection::Hosts, "*"), "HAG(room) { desk }\n");
        assert_eq!(
            shown(&security, AccessSection::Groups, "DEFAULT"),
            "ASG(DEFAULT) {\n  RULE(1, READ)\n  RULE(0, WRITE, TRAPWRITE) { UAG(ops, guests) HAG(room) }\n}\n"
        );
    }

    #[test]
    fn inputs_and_conditions_are_shown_with_their_present_values() {
        let mut security = Security::new(AccessFile::parse("test.acf", FILE, "").unwrap());
        let inputs: Vec<_> = security.inputs().map(|(input, _)| input).collect();
        security.set_input(inputs[0], AccessInputState::Value(1.0));
        security.set_input(inputs[1], AccessInputState::Invalid);

        let met = shown(&security, AccessSection::Groups, "gated");
        security.set_input(inputs[0], AccessInputState::Value(2.5));
        let not_met = shown(&security, AccessSection::Groups, "gated");

        assert_eq!(
            met,
            "ASG(gated) {\n  INPA(\"x:a\") is 1\n  INPC(\"x:c\") is INVALID\n  RULE(1, NONE)\n  \
             RULE(1, WRITE) { CALC is met }\n}\n"
        );
        assert!(not_met.contains("INPA(\"x:a\") is 2.5\n") && not_met.contains("{ CALC is not met }"), "{not_met}");
    }
}
