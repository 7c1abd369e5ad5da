//! Intended differences between `fodo ioc` and softIoc: the table of `docs/reference/differences.md`.
//!
//! The first cell of each row lists where the difference shows, as `SCENARIO: TYPE.FIELD`, `SCENARIO: TYPE.FIELD
//! events` or `SCENARIO: answer`; `*` stands for any scenario or any type. An entry that no scenario shows is stale.

use crate::{TestFailure, place};

/// The rows of the table.
#[derive(Clone, Debug, Default)]
pub struct IntendedDifferences {
    n_rows: usize,
    places: Vec<DifferencePlace>,
}

/// A place where a difference shows.
#[derive(Clone, Debug)]
struct DifferencePlace {
    scenario: String,
    what: String,
    is_seen: bool,
}

impl IntendedDifferences {
    /// Reads the table from the documentation.
    pub fn read() -> Result<IntendedDifferences, TestFailure> {
        let path = place::own_folder().join("../docs/reference/differences.md");
        let page = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        IntendedDifferences::parse(&page)
    }

    /// Parses the table in a page.
    pub fn parse(page: &str) -> Result<IntendedDifferences, TestFailure> {
        let mut differences = IntendedDifferences::default();
        for line in page.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [places, description, reason, effect] = cells.as_slice() else {
                return Err(format!("expected four cells (where, what, why, effect), found\n{line}"));
            };
            if description.is_empty() || reason.is_empty() || effect.is_empty() {
                return Err(format!("empty cell in\n{line}"));
            }
            for shown in places.split('`').skip(1).step_by(2) {
                let (scenario, what) = shown.split_once(": ").ok_or_else(|| format!("missing scenario in\n{line}"))?;
                differences.places.push(DifferencePlace {
                    scenario: scenario.into(),
                    what: what.into(),
                    is_seen: false,
                });
            }
            differences.n_rows += 1;
        }
        Ok(differences)
    }

    /// Whether a difference is intended; marks the entries that allow it as not stale.
    pub fn allow(&mut self, scenario: &str, what: &str) -> bool {
        let mut is_intended = false;
        for place in &mut self.places {
            if (place.scenario == "*" || place.scenario == scenario) && is_like(what, &place.what) {
                place.is_seen = true;
                is_intended = true;
            }
        }
        is_intended
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.n_rows
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.n_rows == 0
    }

    /// The entries that no scenario has shown.
    pub fn stale(&self) -> Vec<String> {
        let stale = self.places.iter().filter(|place| !place.is_seen);
        stale.map(|place| format!("{}: {}", place.scenario, place.what)).collect()
    }
}

/// Whether `pattern`, `TYPE.FIELD` or `*.FIELD`, matches.
fn is_like(what: &str, pattern: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(field) => what.split_once('.').is_some_and(|(_, other)| other == field),
        None => what == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intended_difference_that_never_occurs_is_stale() {
        let page = "| where | what | why | effect |\n|---|---|---|---|\n| `a: *.VAL` `b: answer` | x | y | z |\n";
        let mut differences = IntendedDifferences::parse(page).unwrap();

        assert!(differences.allow("a", "ai.VAL"));
        assert!(!differences.allow("a", "ai.VAL events"));

        assert_eq!((differences.len(), differences.stale()), (1, vec!["b: answer".to_string()]));
    }

    #[test]
    fn an_intended_difference_without_a_reason_is_rejected() {
        assert!(IntendedDifferences::parse("| `a: ai.VAL` | x |  | z |\n").is_err());
        assert!(IntendedDifferences::parse("| `a: ai.VAL` | x |\n").is_err());
    }
}
