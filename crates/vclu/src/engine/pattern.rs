//! The cost of a search with a pattern of the string library.
//!
//! Lua searches by backtracking, within one instruction: a text of 3000 characters and a pattern with five repetitions can
//! take years. Before such a search, its steps are counted by the same algorithm, up to a limit.

use crate::limit::{PATTERN_DEPTH_MAX, PATTERN_STEPS_MAX};

/// What a function of the string library searches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternSearch {
    /// The first match from this position on: `find` and `match`.
    First { start: usize },
    /// The first place of the pattern as a text, from this position on: `find` without patterns.
    Plain { start: usize },
    /// All matches: `gsub`.
    All,
    /// All matches, where `^` is a character: `gmatch`.
    Iterate,
}

/// Whether a search takes at most [`PATTERN_STEPS_MAX`] steps. An invalid pattern does: Lua reports it.
pub(crate) fn is_affordable(text: &[u8], pattern: &[u8], search: PatternSearch) -> bool {
    let is_plain = matches!(search, PatternSearch::Plain { .. });
    let n_repetitions = if is_plain { 0 } else { repetitions(pattern) };
    // Each place costs the items of the pattern, and each character in a set twice.
    let n_worst = (text.len() as f64 + 1.0).powi(n_repetitions + 1) * (2.0 * pattern.len() as f64 + 1.0);
    if n_worst <= PATTERN_STEPS_MAX as f64 {
        return true;
    }
    if let PatternSearch::Plain { start } = search {
        return is_affordable_text(text.get(start..).unwrap_or_default(), pattern);
    }
    let is_anchored = search != PatternSearch::Iterate && pattern.first() == Some(&b'^');
    let pattern = if is_anchored { &pattern[1..] } else { pattern };
    let mut matcher = PatternMatcher { text, pattern, captures: Vec::new(), n_steps_left: PATTERN_STEPS_MAX };
    let mut at = if let PatternSearch::First { start } = search { start } else { 0 };
    while at <= text.len() && matcher.n_steps_left > 0 {
        matcher.captures.clear();
        let end = matcher.matches(at, 0, 0);
        match (end, search) {
            (Some(_), PatternSearch::First { .. }) => break,
            (Some(end), _) if end > at => at = end,
            _ => at += 1,
        }
        if is_anchored {
            break;
        }
    }
    matcher.n_steps_left > 0
}

/// The items of a pattern that can match texts of several lengths, or take as long as the text: at least as many as there are.
fn repetitions(pattern: &[u8]) -> i32 {
    let n_repeated = pattern.iter().filter(|byte| matches!(byte, b'*' | b'+' | b'-' | b'?')).count();
    let is_long = |pair: &&[u8]| matches!(pair, [b'%', b'b' | b'1'..=b'9']);
    let n_long = pattern.windows(2).filter(is_long).count();
    i32::try_from(n_repeated + n_long).unwrap_or(i32::MAX - 1)
}

/// Lua compares the text with the pattern wherever the first character is the same.
fn is_affordable_text(text: &[u8], pattern: &[u8]) -> bool {
    let mut n_steps_left = PATTERN_STEPS_MAX;
    for place in text.windows(pattern.len().max(1)) {
        let n_same = place.iter().zip(pattern).take_while(|(left, right)| left == right).count();
        n_steps_left = n_steps_left.saturating_sub(n_same as u64);
        if n_same == pattern.len() || n_steps_left == 0 {
            break;
        }
    }
    n_steps_left > 0
}

/// A search in progress. After the last step, each function returns that there is no match.
struct PatternMatcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<PatternCapture>,
    n_steps_left: u64,
}

/// A capture, for `%1`.
#[derive(Clone, Copy)]
struct PatternCapture {
    start: usize,
    /// `None` while it is open.
    length: Option<usize>,
}

impl PatternMatcher<'_> {
    fn step(&mut self) -> bool {
        self.spend(1)
    }

    fn spend(&mut self, n_steps: usize) -> bool {
        self.n_steps_left = self.n_steps_left.saturating_sub(n_steps as u64);
        self.n_steps_left > 0
    }

    /// The end of the match of the pattern from `at_pattern` on with the text from `at` on.
    fn matches(&mut self, mut at: usize, mut at_pattern: usize, depth: usize) -> Option<usize> {
        if depth > PATTERN_DEPTH_MAX {
            return None;
        }
        while self.step() {
            let Some(first) = self.pattern.get(at_pattern).copied() else { return Some(at) };
            let second = self.pattern.get(at_pattern + 1).copied();
            match (first, second) {
                (b'(', _) => return self.open_capture(at, at_pattern, depth),
                (b')', _) => return self.close_capture(at, at_pattern, depth),
                (b'$', None) => return (at == self.text.len()).then_some(at),
                (b'%', Some(b'b')) => {
                    at = self.balanced(at, at_pattern)?;
                    at_pattern += 4;
                }
                (b'%', Some(b'f')) => {
                    let end = self.item_end(at_pattern + 2)?;
                    self.spend(3 * (end - at_pattern));
                    let before = at.checked_sub(1).and_then(|before| self.text.get(before)).copied().unwrap_or(0);
                    let here = self.text.get(at).copied().unwrap_or(0);
                    if self.in_set(before, at_pattern + 2, end) || !self.in_set(here, at_pattern + 2, end) {
                        return None;
                    }
                    at_pattern = end;
                }
                (b'%', Some(digit @ b'1'..=b'9')) => {
                    let capture = *self.captures.get(usize::from(digit - b'1'))?;
                    let captured = self.text.get(capture.start..capture.start + capture.length?)?;
                    let (n_captured, is_match) = (captured.len(), self.text.get(at..)?.starts_with(captured));
                    if !self.spend(n_captured) || !is_match {
                        return None;
                    }
                    at += n_captured;
                    at_pattern += 2;
                }
                _ => {
                    let end = self.item_end(at_pattern)?;
                    self.spend(end - at_pattern - 1);
                    let is_match = self.matches_one(at, at_pattern, end);
                    match self.pattern.get(end) {
                        Some(b'*') => return self.expand_most(at, at_pattern, end, depth),
                        Some(b'+') if is_match => return self.expand_most(at + 1, at_pattern, end, depth),
                        Some(b'-') => return self.expand_least(at, at_pattern, end, depth),
                        Some(b'?') => {
                            if is_match && let Some(found) = self.matches(at + 1, end + 1, depth + 1) {
                                return Some(found);
                            }
                            at_pattern = end + 1;
                        }
                        _ if is_match => (at, at_pattern) = (at + 1, end),
                        _ => return None,
                    }
                }
            }
        }
        None
    }

    fn open_capture(&mut self, at: usize, at_pattern: usize, depth: usize) -> Option<usize> {
        let is_position = self.pattern.get(at_pattern + 1) == Some(&b')');
        self.captures.push(PatternCapture { start: at, length: is_position.then_some(0) });
        let found = self.matches(at, at_pattern + 1 + usize::from(is_position), depth + 1);
        if found.is_none() {
            self.captures.pop();
        }
        found
    }

    fn close_capture(&mut self, at: usize, at_pattern: usize, depth: usize) -> Option<usize> {
        let index = self.captures.iter().rposition(|capture| capture.length.is_none())?;
        let start = self.captures.get(index)?.start;
        self.captures.get_mut(index)?.length = Some(at.saturating_sub(start));
        let found = self.matches(at, at_pattern + 1, depth + 1);
        if found.is_none()
            && let Some(capture) = self.captures.get_mut(index)
        {
            capture.length = None;
        }
        found
    }

    /// `%bxy`: the end of a text that starts with `x`, ends with `y` and is balanced between.
    fn balanced(&mut self, at: usize, at_pattern: usize) -> Option<usize> {
        let (open, close) = (*self.pattern.get(at_pattern + 2)?, *self.pattern.get(at_pattern + 3)?);
        if self.text.get(at) != Some(&open) {
            return None;
        }
        let mut n_open = 1;
        for index in at + 1..self.text.len() {
            let byte = self.text.get(index).copied()?;
            if byte == close {
                n_open -= 1;
                if n_open == 0 {
                    return Some(index + 1);
                }
            } else if byte == open {
                n_open += 1;
            }
            if !self.step() {
                return None;
            }
        }
        None
    }

    fn expand_most(&mut self, at: usize, at_pattern: usize, end: usize, depth: usize) -> Option<usize> {
        let mut n_items = 0;
        while self.matches_one(at + n_items, at_pattern, end) && self.step() {
            n_items += 1;
        }
        loop {
            let found = self.matches(at + n_items, end + 1, depth + 1);
            if found.is_some() || n_items == 0 || self.n_steps_left == 0 {
                return found;
            }
            n_items -= 1;
        }
    }

    fn expand_least(&mut self, mut at: usize, at_pattern: usize, end: usize, depth: usize) -> Option<usize> {
        loop {
            let found = self.matches(at, end + 1, depth + 1);
            if found.is_some() || self.n_steps_left == 0 || !self.matches_one(at, at_pattern, end) {
                return found;
            }
            at += 1;
        }
    }

    /// The end of a character, a class or a set; `None` if the pattern is invalid.
    fn item_end(&self, at: usize) -> Option<usize> {
        match *self.pattern.get(at)? {
            b'%' => self.pattern.get(at + 1).map(|_| at + 2),
            b'[' => {
                let mut next = at + 1 + usize::from(self.pattern.get(at + 1) == Some(&b'^'));
                loop {
                    let is_escape = *self.pattern.get(next)? == b'%';
                    next += 1 + usize::from(is_escape);
                    if *self.pattern.get(next)? == b']' {
                        return Some(next + 1);
                    }
                }
            }
            _ => Some(at + 1),
        }
    }

    fn matches_one(&mut self, at: usize, item: usize, end: usize) -> bool {
        let (Some(byte), Some(first)) = (self.text.get(at).copied(), self.pattern.get(item).copied()) else {
            return false;
        };
        match first {
            b'.' => true,
            b'%' => self.pattern.get(item + 1).is_some_and(|class| in_class(byte, *class)),
            b'[' => {
                self.spend(end - item);
                self.in_set(byte, item, end)
            }
            literal => literal == byte,
        }
    }

    /// Whether a character is in the set between `item` and `end`.
    fn in_set(&self, byte: u8, item: usize, end: usize) -> bool {
        let is_negated = self.pattern.get(item + 1) == Some(&b'^');
        let first = item + 1 + usize::from(is_negated);
        let mut members = self.pattern.get(first..end.saturating_sub(1)).unwrap_or_default();
        while let [member, rest @ ..] = members {
            let (is_member, left) = match (member, rest) {
                (b'%', [class, rest @ ..]) => (in_class(byte, *class), rest),
                (low, [b'-', high, rest @ ..]) => ((*low..=*high).contains(&byte), rest),
                (literal, rest) => (*literal == byte, rest),
            };
            if is_member {
                return !is_negated;
            }
            members = left;
        }
        is_negated
    }
}

fn in_class(byte: u8, class: u8) -> bool {
    let is_member = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        _ => return class == byte,
    };
    is_member != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first match, as `string.find` returns it.
    fn find(text: &str, pattern: &str) -> Option<(usize, usize)> {
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let mut matcher = PatternMatcher { text, pattern, captures: Vec::new(), n_steps_left: PATTERN_STEPS_MAX };
        (0..=text.len()).find_map(|start| {
            matcher.captures.clear();
            Some((start + 1, matcher.matches(start, 0, 0)?))
        })
    }

    #[test]
    fn the_steps_are_those_of_lua() {
        let lua = mlua::Lua::new();
        let in_lua: mlua::Function = lua.load("return function(t, p) return string.find(t, p) end").eval().unwrap();
        let texts = ["", "hello world", "key = value; x=1", "THE (quick) fox", "a-b-c 12.5e3", "[[x]] abab"];
        let patterns = [
            "l+",
            "o.-r",
            "(%w+)%s*=%s*(%w+)",
            "%f[%w]%w+",
            "%b()",
            "(a)(b)%1%2",
            "[%d.]+e%d",
            "[^%s]-%s",
            "()x()",
            "x?y?$",
            "[a-c-]*c",
            "%u%U",
            ".*",
            "[]]",
            "%[%[.-%]%]",
            "[%a_][%w_]*",
        ];

        for text in texts {
            for pattern in patterns {
                let (start, end): (Option<usize>, Option<usize>) = in_lua.call((text, pattern)).unwrap();
                assert_eq!(find(text, pattern), start.zip(end), "{pattern} in {text}");
            }
        }
    }

    #[test]
    fn a_search_that_would_not_end_is_refused_and_a_usual_one_is_not() {
        let long = "a".repeat(3000);
        let assignments = "name = value; ".repeat(200);
        let first = PatternSearch::First { start: 0 };

        for search in [first, PatternSearch::All, PatternSearch::Iterate] {
            assert!(!is_affordable(long.as_bytes(), b"a*a*a*a*a*b", search), "{search:?}");
            assert!(!is_affordable(long.as_bytes(), b".-.-.-.-b", search), "{search:?}");
            assert!(is_affordable(assignments.as_bytes(), b"(%w+)%s*=%s*(%w+)", search), "{search:?}");
            assert!(is_affordable(assignments.as_bytes(), b"(.-)%s*=%s*(.-);", search), "{search:?}");
            assert!(is_affordable(long.as_bytes(), b"[a*-+*", search), "{search:?}");
        }
        assert!(is_affordable(long.as_bytes(), b"^(.-)b", first));
    }

    #[test]
    fn each_kind_of_item_costs_steps() {
        let (short, long) = ("a".repeat(40), "(".repeat(100_000));
        let first = PatternSearch::First { start: 0 };
        let optional = format!("{}{short}b", "a?".repeat(40));
        let half = format!("{}b", &long[..50_000]);
        let set = format!("[{}]", "x".repeat(50_000));
        let frontier = format!("%f{set}");

        assert!(!is_affordable(short.as_bytes(), optional.as_bytes(), first));
        for pattern in ["%b()", "(.*)%1x", &half, &set, &frontier] {
            assert!(!is_affordable(long.as_bytes(), pattern.as_bytes(), first), "{}", pattern.len());
        }
        assert!(!is_affordable(long.as_bytes(), half.as_bytes(), PatternSearch::Plain { start: 0 }));
        assert!(is_affordable(long.as_bytes(), half.as_bytes(), PatternSearch::Plain { start: 60_000 }));
        assert!(is_affordable(long.as_bytes(), &long.as_bytes()[..50_000], PatternSearch::Plain { start: 0 }));
        assert!(is_affordable(long.as_bytes(), b"?%b(%1", PatternSearch::Plain { start: 0 }));
    }
}
