//! Access security: the access rights of clients according to the rules of an `.acf` file. No I/O.
//!
//! [`AccessFile`] is a parsed file. [`Security`] combines it with the present values of its inputs and decides.
//!
//! Source: EPICS Base 7.0.10, access security (asLib).

mod parse;
mod show;

use std::collections::{HashMap, HashSet};

use crate::calc::{CompiledExpression, N_ARGS};
use crate::reference::AccessLevel;

pub use show::AccessSection;

/// The access rights of a client to a field; each one includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// No access.
    #[default]
    None,
    /// Reading and monitoring.
    Read,
    /// Reading and writing.
    Write,
}

/// The client for which the rules decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessClient<'a> {
    /// The user name.
    pub user: &'a str,
    /// The host.
    pub host: &'a str,
    /// How the client has identified itself: `ca`, `anonymous` or `x509`.
    pub method: &'a str,
    /// With `x509`, the common names of the authorities that issued its certificate, the root first, separated by line feeds.
    pub authority: &'a str,
    /// Whether the connection uses TLS.
    pub is_encrypted: bool,
}

/// The decision of the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessDecision {
    /// The access rights.
    pub access: Access,
    /// Whether puts are logged (TRAPWRITE of the rule that decides).
    pub is_logged: bool,
}

/// Identifies an input (INPA to INPU) of a [`Security`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AccessInput(usize);

/// The present state of an input of a [`Security`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AccessInputState {
    /// The value.
    Value(f64),
    /// The severity is INVALID, so the value is not used.
    Invalid,
    /// The PV is not connected, or its value is not a number.
    Unknown,
}

/// A parsed access file.
#[derive(Clone, Debug, Default)]
pub struct AccessFile {
    /// UAG: name and users.
    user_groups: Vec<(String, HashSet<String>)>,
    /// HAG: name and hosts, in lower case.
    host_groups: Vec<(String, HashSet<String>)>,
    /// AUTHORITY: name, and the common names of the certificate's authorities, the root first, separated by line feeds.
    authorities: Vec<(String, String)>,
    /// ASG: name and content; DEFAULT is first.
    groups: Vec<(String, Group)>,
    /// Warnings about items that are skipped, as in Base; one line each.
    warnings: Vec<String>,
}

/// One ASG.
#[derive(Clone, Debug, Default)]
struct Group {
    /// The index of the input (0 for INPA) and the name of its PV.
    inputs: Vec<(usize, String)>,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, Default)]
struct Rule {
    level: u32,
    granted: AccessDecision,
    /// Indices of UAGs. One of them must contain the user; if empty, every user matches.
    user_groups: Vec<usize>,
    /// The same for HAGs and the host.
    host_groups: Vec<usize>,
    /// Methods of identification, in lower case. One of them must be that of the client; if empty, every method matches.
    methods: Vec<String>,
    /// Indices of AUTHORITYs. One of them must have issued the client's certificate; if empty, none is needed.
    authorities: Vec<usize>,
    /// Whether the connection must be encrypted. One of them must hold; if empty, every connection matches.
    protocols: Vec<bool>,
    calc: Option<CompiledExpression>,
}

/// The rules and the present values of their inputs.
#[derive(Clone, Debug)]
pub struct Security {
    file: AccessFile,
    index: HashMap<String, usize>,
    /// The states of the groups, in the same order.
    states: Vec<GroupState>,
    /// Each input: index of the group, index of the argument, name of the PV.
    inputs: Vec<(usize, usize, String)>,
}

/// The changing state of a group.
#[derive(Clone, Debug)]
struct GroupState {
    args: [f64; N_ARGS],
    /// A bit for each argument whose input has no valid value.
    bad: u32,
    /// For each rule whether its CALC was true when it was last evaluated; false before that.
    is_true: Vec<bool>,
    /// For each rule whether its CALC is true and all its inputs are valid; true for rules without CALC.
    is_met: Vec<bool>,
}

/// The group for records without ASG, and for an ASG that is not in the file.
const DEFAULT: &str = "DEFAULT";

impl AccessFile {
    /// Warnings about unknown items that were skipped, as in Base; one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Replaces each host by its address from `address_of`. A host without an address never matches.
    ///
    /// For servers that identify a client's host by its address instead of the host name that the client sends.
    pub fn resolve_hosts(&mut self, address_of: &mut dyn FnMut(&str) -> Option<String>) {
        for (name, hosts) in &mut self.host_groups {
            let mut addresses = HashSet::new();
            for host in std::mem::take(hosts) {
                match address_of(&host) {
                    Some(address) => {
                        addresses.insert(address);
                    }
                    None => self.warnings.push(format!("HAG \"{name}\": the host \"{host}\" has no known address")),
                }
            }
            *hosts = addresses;
        }
        self.warnings.sort_unstable();
    }
}

impl Security {
    /// Makes the rules; no input has a value yet.
    pub fn new(file: AccessFile) -> Security {
        let index = file.groups.iter().enumerate().map(|(index, (name, _))| (name.clone(), index)).collect();
        let mut inputs = Vec::new();
        let mut states = Vec::new();
        for (index, (_, group)) in file.groups.iter().enumerate() {
            let bad = group.inputs.iter().fold(0, |bad, (arg, _)| bad | 1 << arg);
            inputs.extend(group.inputs.iter().map(|(arg, pv)| (index, *arg, pv.clone())));
            let is_true = vec![false; group.rules.len()];
            let is_met = group.rules.iter().map(|rule| rule.calc.is_none()).collect();
            states.push(GroupState { args: [0.0; N_ARGS], bad, is_true, is_met });
        }
        Security { file, index, states, inputs }
    }

    /// Every input, with the name of its PV.
    pub fn inputs(&self) -> impl Iterator<Item = (AccessInput, &str)> {
        self.inputs.iter().enumerate().map(|(index, (.., pv))| (AccessInput(index), pv.as_str()))
    }

    /// Sets the state of an input. Returns whether decisions may have changed.
    pub fn set_input(&mut self, input: AccessInput, input_state: AccessInputState) -> bool {
        let Some(&(index, arg, _)) = self.inputs.get(input.0) else { return false };
        let (Some((_, group)), Some(state)) = (self.file.groups.get(index), self.states.get_mut(index)) else {
            return false;
        };
        match (input_state, state.args.get_mut(arg)) {
            (AccessInputState::Value(value), Some(place)) => {
                *place = value;
                state.bad &= !(1 << arg);
            }
            _ => state.bad |= 1 << arg,
        }
        if input_state != AccessInputState::Unknown {
            state.evaluate(group, arg);
        }
        state.update(group)
    }

    /// The access rights of a client to fields of a level in a group (the record's ASG).
    ///
    /// Of the rules that match, the one with the most rights decides; of several such rules, the first one.
    pub fn decide(&self, group: &str, level: AccessLevel, client: &AccessClient<'_>) -> AccessDecision {
        let AccessClient { user, host, .. } = *client;
        let group = self.index.get(group).copied().unwrap_or(0);
        let (Some((_, group)), Some(state)) = (self.file.groups.get(group), self.states.get(group)) else {
            return AccessDecision::default();
        };
        let mut best = AccessDecision::default();
        for (rule, is_met) in group.rules.iter().zip(&state.is_met) {
            let counts = *is_met && rule.granted.access > best.access && level as u32 <= rule.level;
            if counts
                && rule.accepts_connection(client, &self.file.authorities)
                && is_in(&self.file.user_groups, &rule.user_groups, |users| users.contains(user))
                && is_in(&self.file.host_groups, &rule.host_groups, |hosts| hosts.contains(&host.to_ascii_lowercase()))
            {
                best = rule.granted;
            }
        }
        best
    }
}

impl Rule {
    /// Whether the conditions on the method, the authority and the protocol hold.
    fn accepts_connection(&self, client: &AccessClient<'_>, authorities: &[(String, String)]) -> bool {
        let is_issuer = |index: &usize| authorities.get(*index).is_some_and(|(_, chain)| chain == client.authority);
        (self.methods.is_empty() || self.methods.iter().any(|method| method == client.method))
            && (self.authorities.is_empty() || self.authorities.iter().any(is_issuer))
            && (self.protocols.is_empty() || self.protocols.contains(&client.is_encrypted))
    }
}

impl GroupState {
    /// Evaluates the rules that use an argument, as in Base: a CALC without inputs of its group is never evaluated, and VAL is
    /// the previous result.
    fn evaluate(&mut self, group: &Group, arg: usize) {
        for (rule, is_true) in group.rules.iter().zip(&mut self.is_true) {
            if let Some(program) = rule.calc.as_ref().filter(|program| program.args_used() & 1 << arg != 0) {
                let result = program.run(&mut self.args.clone(), f64::from(*is_true)).unwrap_or(0.0);
                // The same range as in Base.
                *is_true = result > 0.99 && result < 1.01;
            }
        }
    }

    /// Updates `is_met`. Returns whether it has changed.
    fn update(&mut self, group: &Group) -> bool {
        let bad = self.bad;
        let are_valid = |program: &CompiledExpression| bad & program.args_used() == 0;
        let rules = group.rules.iter().zip(&self.is_true);
        let is_met = rules.map(|(rule, is_true)| rule.calc.as_ref().is_none_or(|calc| *is_true && are_valid(calc)));
        let is_met = is_met.collect();
        std::mem::replace(&mut self.is_met, is_met) != self.is_met
    }
}

fn is_in(groups: &[(String, HashSet<String>)], required: &[usize], has: impl Fn(&HashSet<String>) -> bool) -> bool {
    required.is_empty() || required.iter().filter_map(|&index| groups.get(index)).any(|(_, members)| has(members))
}

#[cfg(test)]
mod tests {
    use super::*;
    use AccessInputState::{Invalid, Unknown, Value};
    use AccessLevel::{Asl0, Asl1};

    fn security(source: &str) -> Security {
        Security::new(AccessFile::parse("test.acf", source.as_bytes(), "").unwrap())
    }

    fn client<'a>(user: &'a str, host: &'a str) -> AccessClient<'a> {
        AccessClient { user, host, method: "ca", ..AccessClient::default() }
    }

    #[test]
    fn a_rule_requires_its_method_authority_and_protocol() {
        let rules = security(
            "AUTHORITY(ROOT, \"Lab Root\") { AUTHORITY(OPS, \"Ops CA\") } UAG(ops) { ann }
             ASG(DEFAULT) { RULE(1, READ) { PROTOCOL(\"TLS\") } }
             ASG(x509) { RULE(1, WRITE) { UAG(ops) METHOD(\"x509\") AUTHORITY(OPS) } }
             ASG(any) { RULE(1, READ) { METHOD(\"X509\", \"ca\") PROTOCOL(\"TCP\", \"TLS\") } }",
        );
        let ann =
            AccessClient { user: "ann", host: "h", method: "x509", authority: "Lab Root\nOps CA", is_encrypted: true };
        let decide = |group: &str, client: AccessClient<'_>| rules.decide(group, Asl1, &client).access;

        assert_eq!((decide("", ann), decide("", client("ann", "h"))), (Access::Read, Access::None));
        assert_eq!(decide("x509", ann), Access::Write);
        for other in [
            AccessClient { user: "bob", ..ann },
            AccessClient { method: "ca", ..ann },
            AccessClient { method: "", ..ann },
            AccessClient { authority: "Ops CA", ..ann },
            AccessClient { authority: "Lab Root", ..ann },
            AccessClient { authority: "", ..ann },
            client("ann", "h"),
        ] {
            assert_eq!(decide("x509", other), Access::None, "{other:?}");
        }
        assert_eq!((decide("any", ann), decide("any", client("bob", "h"))), (Access::Read, Access::Read));
        assert_eq!(decide("any", AccessClient { method: "anonymous", ..ann }), Access::None);
    }

    fn access(security: &Security, group: &str, level: AccessLevel, user: &str, host: &str) -> Access {
        security.decide(group, level, &client(user, host)).access
    }

    #[test]
    fn an_unknown_access_group_falls_back_to_default_which_grants_nothing_without_rules() {
        let open = security("ASG(DEFAULT) { RULE(1, WRITE) } ASG(SHUT)");
        let shut = security("ASG(OPEN) { RULE(1, WRITE) }");

        assert_eq!(access(&open, "", Asl1, "u", "h"), Access::Write);
        assert_eq!(access(&open, "NOBODY", Asl1, "u", "h"), Access::Write);
        assert_eq!(access(&open, "SHUT", Asl0, "u", "h"), Access::None);
        assert_eq!(access(&shut, "", Asl0, "u", "h"), Access::None);
        assert_eq!(access(&shut, "OPEN", Asl1, "u", "h"), Access::Write);
    }

    #[test]
    fn a_rule_applies_to_its_access_level_and_below() {
        let rules = security("ASG(DEFAULT) { RULE(1, READ) RULE(0, WRITE) }");

        assert_eq!(access(&rules, "", Asl0, "u", "h"), Access::Write);
        assert_eq!(access(&rules, "", Asl1, "u", "h"), Access::Read);
    }

    #[test]
    fn a_rule_requires_its_user_and_host_groups_and_one_matching_rule_grants_access() {
        let rules = security(
            "UAG(ops) { ann, bob } UAG(guests) { eve } HAG(room) { Console1, console2 }
             ASG(DEFAULT) { RULE(1, READ) { UAG(ops, guests) } RULE(1, WRITE) { UAG(ops) HAG(room) } }",
        );

        assert_eq!(access(&rules, "", Asl1, "ann", "CONSOLE1"), Access::Write);
        assert_eq!(access(&rules, "", Asl1, "ann", "elsewhere"), Access::Read);
        assert_eq!(access(&rules, "", Asl1, "eve", "console2"), Access::Read);
        assert_eq!(access(&rules, "", Asl1, "Ann", "console2"), Access::None);
    }

    #[test]
    fn puts_are_logged_when_the_matching_rule_has_trapwrite() {
        let rules = security(
            "UAG(ops) { ann } ASG(DEFAULT) { RULE(0, WRITE, NOTRAPWRITE) RULE(1, WRITE, TRAPWRITE) { UAG(ops) } }",
        );

        assert!(!rules.decide("", Asl0, &client("ann", "h")).is_logged);
        assert!(rules.decide("", Asl1, &client("ann", "h")).is_logged);
    }

    #[test]
    fn a_calc_rule_applies_when_it_is_one_and_its_inputs_are_valid() {
        let mut rules = security("ASG(DEFAULT) { INPA(a) INPU(u) RULE(1, READ) RULE(1, WRITE) { CALC(\"A=1\") } }");
        let inputs: Vec<(AccessInput, String)> = rules.inputs().map(|(input, pv)| (input, pv.to_owned())).collect();
        let (a, u) = (inputs[0].0, inputs[1].0);

        assert_eq!((inputs[0].1.as_str(), inputs[1].1.as_str()), ("a", "u"));
        assert_eq!(access(&rules, "", Asl1, "u", "h"), Access::Read);
        assert!(rules.set_input(a, Value(1.0)));
        assert_eq!(access(&rules, "", Asl1, "u", "h"), Access::Write);
        assert!(!rules.set_input(u, Unknown));
        assert!(!rules.set_input(a, Value(1.0)));
        assert!(rules.set_input(a, Unknown));
        assert_eq!(access(&rules, "", Asl1, "u", "h"), Access::Read);
        assert!(!rules.set_input(a, Value(2.0)));
    }

    #[test]
    fn a_calc_rule_is_true_from_0_99_to_1_01_and_unset_arguments_are_zero() {
        let mut rules = security("ASG(DEFAULT) { INPA(a) RULE(1, WRITE) { CALC(\"A+B\") } }");
        let (a, _) = rules.inputs().next().unwrap();
        let mut with = |value| {
            rules.set_input(a, Value(value));
            access(&rules, "", Asl1, "u", "h")
        };

        assert_eq!(with(0.995), Access::Write);
        assert_eq!(with(1.02), Access::None);
        assert_eq!(with(f64::NAN), Access::None);
    }

    #[test]
    fn unresolved_hosts_of_a_host_group_are_reported_and_never_match() {
        let source = "HAG(room) { a, b } ASG(DEFAULT) { RULE(1, WRITE) { HAG(room) } }";
        let mut file = AccessFile::parse("test.acf", source.as_bytes(), "").unwrap();

        file.resolve_hosts(&mut |host| (host == "a").then(|| "10.0.0.1".to_owned()));

        assert_eq!(file.warnings(), ["HAG \"room\": the host \"b\" has no known address"]);
        let rules = Security::new(file);
        assert_eq!(access(&rules, "", Asl1, "u", "10.0.0.1"), Access::Write);
        assert_eq!(access(&rules, "", Asl1, "u", "b"), Access::None);
    }

    #[test]
    fn a_rule_does_not_apply_while_one_of_its_inputs_is_invalid() {
        let mut security = security("ASG(DEFAULT) { INPA(a) INPC(c) RULE(1, WRITE) { CALC(\"A=0 && C=0\") } }");
        let inputs: Vec<(AccessInput, String)> = security.inputs().map(|(input, pv)| (input, pv.to_owned())).collect();
        assert_eq!(inputs.iter().map(|(_, pv)| pv.as_str()).collect::<Vec<_>>(), ["a", "c"]);
        let mut accesses = Vec::new();
        let (zero, one) = (Value(0.0), Value(1.0));
        for (index, state) in [(0, zero), (1, zero), (1, Invalid), (0, Unknown), (1, zero), (0, zero), (0, one)] {
            security.set_input(inputs[index].0, state);
            accesses.push(access(&security, "DEFAULT", Asl1, "u", "h"));
        }

        let (no, yes) = (Access::None, Access::Write);
        assert_eq!(accesses, [no, yes, no, no, no, yes, no]);
    }

    /// The rights in a group after each of the states of its first input.
    fn accesses(source: &str, states: &[AccessInputState]) -> Vec<Access> {
        let mut rules = security(source);
        let (input, _) = rules.inputs().next().unwrap();
        let mut after = |state: &AccessInputState| {
            rules.set_input(input, *state);
            access(&rules, "", Asl1, "u", "h")
        };
        states.iter().map(&mut after).collect()
    }

    #[test]
    fn a_calc_without_inputs_of_its_group_is_never_evaluated() {
        for calc in ["1", "VAL=0", "B=0", "!B"] {
            let source = format!("ASG(DEFAULT) {{ INPA(a) RULE(1, WRITE) {{ CALC(\"{calc}\") }} }}");

            assert_eq!(accesses(&source, &[Unknown, Value(1.0), Invalid]), [Access::None; 3], "{calc}");

            let warning = "rule 1 grants nothing, since its CALC uses no input of the group";
            assert!(security(&source).file.warnings()[0].ends_with(warning), "{calc}");
        }
    }

    #[test]
    fn val_in_a_calc_is_the_result_of_its_last_evaluation() {
        let latch = "ASG(DEFAULT) { INPA(a) RULE(1, WRITE) { CALC(\"A=1 || VAL && A#2\") } }";
        let toggle = "ASG(DEFAULT) { INPA(a) RULE(1, WRITE) { CALC(\"A>=0 && !VAL\") } }";
        let (no, yes) = (Access::None, Access::Write);

        assert_eq!(
            accesses(latch, &[Value(0.0), Value(1.0), Value(0.0), Unknown, Value(0.0), Value(2.0), Value(0.0)]),
            [no, yes, yes, no, yes, no, no]
        );
        // An event with an INVALID value evaluates the CALC, the end of the connection does not.
        assert_eq!(accesses(toggle, &[Value(0.0), Invalid, Value(0.0), Unknown, Value(0.0)]), [yes, no, yes, no, no]);
    }
}
