//! Peers are pinned to exact versions, the same in every list.

use super::Offence;
use super::repository::Repository;

/// The complete list; other lists contain parts of it.
const LIST_PATH: &str = "conformance/peers/requirements.txt";

/// The lists of environments of their own, which may contain other packages: the tools of the Python package, and what tests of
/// other projects need.
const OTHER_PATHS: [&str; 2] = ["python/requirements.txt", "python/suites/requirements.txt"];

/// Checks every list of Python packages.
pub fn check(repository: &Repository) -> Vec<Offence> {
    let whole: Vec<&str> = pins(repository.text(LIST_PATH).unwrap_or_default()).map(|(_, pin)| pin).collect();
    let mut offences = Vec::new();
    for file in repository.files.iter().filter(|file| file.path.ends_with("requirements.txt")) {
        for (line, pin) in pins(&file.text) {
            let name = |pin: &str| pin.split("==").next().unwrap_or_default().to_string();
            let is_other =
                OTHER_PATHS.contains(&file.path.as_str()) && !whole.iter().any(|other| name(other) == name(pin));
            if !pin.contains("==") || pin.contains('*') {
                offences.push(Offence::new(&file.path, line, format!("{pin}: pin one exact version with ==")));
            } else if !whole.contains(&pin) && !is_other {
                offences.push(Offence::new(
                    &file.path,
                    line,
                    format!("{pin}: missing from {LIST_PATH}, or another version there"),
                ));
            }
        }
    }
    offences
}

/// The line number and text of every requirement.
fn pins(list: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = list.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n_offences(whole: &str, part: &str) -> usize {
        check(&Repository::of(&[(LIST_PATH, whole), ("lab/peers/requirements.txt", part)])).len()
    }

    #[test]
    fn an_unpinned_version_is_rejected() {
        assert_eq!(n_offences("numpy>=2\n", ""), 1);
        assert_eq!(n_offences("numpy==2.*\n", ""), 1);
        assert_eq!(n_offences("# why\nnumpy==2.4.6\n", ""), 0);
    }

    #[test]
    fn a_tool_of_the_python_package_need_not_be_a_peer() {
        let n_offences =
            |tools: &str| check(&Repository::of(&[(LIST_PATH, "numpy==2.4.6\n"), (OTHER_PATHS[0], tools)])).len();

        assert_eq!(n_offences("mypy==2.4.1\nnumpy==2.4.6\n"), 0);
        assert_eq!(n_offences("mypy==2.4.1\nnumpy==2.4.5\n"), 1);
        assert_eq!(n_offences("mypy\n"), 1);
    }

    #[test]
    fn lists_with_different_versions_are_rejected() {
        assert_eq!(n_offences("numpy==2.4.6\naioca==2.1\n", "numpy==2.4.6\n"), 0);
        assert_eq!(n_offences("numpy==2.4.6\n", "numpy==2.4.5\n"), 1);
    }
}
