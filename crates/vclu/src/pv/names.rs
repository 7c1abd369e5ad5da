//! Names of PVs.

use std::collections::HashMap;

/// Letters of Polish, in which people name the objects of their houses, and the letters that replace them.
const LETTERS: [(char, char); 18] = [
    ('ą', 'a'),
    ('ć', 'c'),
    ('ę', 'e'),
    ('ł', 'l'),
    ('ń', 'n'),
    ('ó', 'o'),
    ('ś', 's'),
    ('ź', 'z'),
    ('ż', 'z'),
    ('Ą', 'A'),
    ('Ć', 'C'),
    ('Ę', 'E'),
    ('Ł', 'L'),
    ('Ń', 'N'),
    ('Ó', 'O'),
    ('Ś', 'S'),
    ('Ź', 'Z'),
    ('Ż', 'Z'),
];

/// The part of a name with only letters, digits, `_` and `-`.
pub(super) fn legal(text: &str) -> String {
    let replaced = |character: char| match LETTERS.iter().find(|(letter, _)| *letter == character) {
        Some((_, plain)) => *plain,
        None if character.is_ascii_alphanumeric() || matches!(character, '_' | '-') => character,
        None => '_',
    };
    text.chars().map(replaced).collect()
}

/// The name of a member of a structure.
pub(super) fn member(text: &str) -> String {
    legal(text).replace('-', "_")
}

/// The names that are in use, and what could not be named or was left out.
#[derive(Debug, Default)]
pub(super) struct Names {
    owners: HashMap<String, String>,
    pub problems: Vec<String>,
}

impl Names {
    /// Reserves a name; if it is in use, reports that `owner` has no PV. `owner`: what the PV is.
    pub fn take(&mut self, name: &str, owner: &str) -> bool {
        if let Some(first) = self.owners.get(name) {
            self.problems.push(format!("{owner} has no PV: {first} already has the name \"{name}\""));
            return false;
        }
        self.owners.insert(name.to_string(), owner.to_string());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_only_legal_characters() {
        assert_eq!(legal("Światło w łazience"), "Swiatlo_w_lazience");
        assert_eq!(legal("a:b.c{d}"), "a_b_c_d_");
        assert_eq!(member("use-Point"), "use_Point");
    }

    #[test]
    fn a_second_owner_of_a_name_is_reported() {
        let mut names = Names::default();

        assert!(names.take("house:a", "object A"));
        assert!(!names.take("house:a", "object B"));
        assert_eq!(names.problems, ["object B has no PV: object A already has the name \"house:a\""]);
    }
}
