//! What `fodo ioc` does otherwise than softIoc on purpose: the table of `docs/reference/differences.md`.
//!
//! The first cell of each row says where the difference shows, as `SCENARIO: TYPE.FIELD`, `SCENARIO: TYPE.FIELD events`
//! or `SCENARIO: answer`; a `*` stands for any scenario or any type. What no scenario shows any more is stale.

use crate::{Failure, place};

/// The rows of the table.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    n_rows: usize,
    places: Vec<Place>,
}

/// Where a difference shows.
#[derive(Clone, Debug)]
struct Place {
    scenario: String,
    what: String,
    is_seen: bool,
}

impl Differences {
    /// Reads the page.
    pub fn read() -> Result<Differences, Failure> {
        let path = place::own_folder().join("../docs/reference/differences.md");
        let page = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Differences::parse(&page)
    }

    /// The rows of a page.
    pub fn parse(page: &str) -> Result<Differences, Failure> {
        let mut differences = Differences::default();
        for line in page.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [places, told, reason, effect] = cells.as_slice() else {
                return Err(format!("four cells are wanted: where, what, why, effect; found\n{line}"));
            };
            if told.is_empty() || reason.is_empty() || effect.is_empty() {
                return Err(format!("a cell is empty in\n{line}"));
            }
            for shown in places.split('`').skip(1).step_by(2) {
                let (scenario, what) = shown.split_once(": ").ok_or_else(|| format!("no scenario in\n{line}"))?;
                differences.places.push(Place { scenario: scenario.into(), what: what.into(), is_seen: false });
            }
            differences.n_rows += 1;
        }
        Ok(differences)
    }

    /// Whether this is meant; what says so is not stale.
    pub fn allow(&mut self, scenario: &str, what: &str) -> bool {
        let mut is_meant = false;
        for place in &mut self.places {
            if (place.scenario == "*" || place.scenario == scenario) && is_like(what, &place.what) {
                place.is_seen = true;
                is_meant = true;
            }
        }
        is_meant
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.n_rows
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.n_rows == 0
    }

    /// The places where nothing has shown.
    pub fn stale(&self) -> Vec<String> {
        let stale = self.places.iter().filter(|place| !place.is_seen);
        stale.map(|place| format!("{}: {}", place.scenario, place.what)).collect()
    }
}

/// Whether `TYPE.FIELD` is meant by it or by `*.FIELD`.
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
    fn a_row_that_nothing_shows_is_stale() {
        let page = "| where | what | why | effect |\n|---|---|---|---|\n| `a: *.VAL` `b: answer` | x | y | z |\n";
        let mut differences = Differences::parse(page).unwrap();

        assert!(differences.allow("a", "ai.VAL"));
        assert!(!differences.allow("a", "ai.VAL events"));

        assert_eq!((differences.len(), differences.stale()), (1, vec!["b: answer".to_string()]));
    }

    #[test]
    fn a_row_without_a_reason_is_refused() {
        assert!(Differences::parse("| `a: ai.VAL` | x |  | z |\n").is_err());
        assert!(Differences::parse("| `a: ai.VAL` | x |\n").is_err());
    }
}
