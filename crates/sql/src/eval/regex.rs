//! PostgreSQL's regular expressions, on top of the crate `regex`.
//!
//! The crate `regex` finds where a match begins. The module `matcher` computes where the match ends, because
//! PostgreSQL's rule differs from that of the crate. In PostgreSQL the longest match counts, or the shortest
//! if the first quantifier is not greedy. Groups follow the same rule from left to right.
//!
//! Invariants
//! 1. Each thread has a cache of compiled patterns. A pattern is compiled again only after it has left this
//!    cache.
//! 2. A pattern without back references and look-around is searched for in linear time.
//!
//! This module does not know operators or functions.

mod atoms;
mod matcher;
pub mod options;
mod posix;
pub mod similar;
mod syntax;

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use regex::{Regex, RegexBuilder};

use crate::error::{Result, SqlError, SqlState};
use matcher::{Node, Search};
pub use options::Options;
use syntax::Part;

/// The number of compiled patterns in a thread's cache.
const KEPT: usize = 32;
/// The largest size of one compiled pattern, in bytes. The crate's lazy automata of the pattern may take the
/// same size again.
const SIZE_MAX: usize = 1 << 20;

/// The text ranges that groups match, as byte offsets. The first range is the whole match.
pub type Groups = Vec<Option<(usize, usize)>>;
/// A function that a search calls from time to time. Its error ends the search.
pub type Look<'t> = &'t dyn Fn() -> Result<()>;

/// A pattern as written, its flags, and the compiled pattern.
type Compiled = (String, Options, Rc<Pattern>);

thread_local! {
    static COMPILED: RefCell<Vec<Compiled>> = const { RefCell::new(Vec::new()) };
}

/// Compiles a pattern. Fails with 2201B if it is not valid.
pub fn compiled(pattern: &str, options: Options) -> Result<Rc<Pattern>> {
    COMPILED.with_borrow_mut(|kept| {
        if let Some(at) = kept.iter().position(|(p, o, _)| p == pattern && *o == options) {
            return Ok(kept[at].2.clone());
        }
        let made = Rc::new(compile(pattern, options)?);
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push((pattern.to_owned(), options, made.clone()));
        Ok(made)
    })
}

/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern {
    regex: Regex,
    part: Part,
    group_count: usize,
    folds_case: bool,
    /// The matcher's tree. It is made when the end of a match is needed first.
    node: OnceCell<Node>,
}

impl Pattern {
    /// Returns the number of groups.
    pub fn group_count(&self) -> usize {
        self.group_count
    }

    /// Returns whether the pattern matches anywhere in the text.
    pub fn is_match(&self, text: &str, look: Look<'_>) -> Result<bool> {
        match self.part.is_searched_exactly() {
            true => Ok(self.regex.is_match(text)),
            false => Ok(self.next(text, 0, false, look)?.is_some()),
        }
    }

    fn node(&self) -> Result<&Node> {
        match self.node.get() {
            Some(node) => Ok(node),
            None => {
                let made = matcher::node(&self.part, self.folds_case, &mut 0)?;
                Ok(self.node.get_or_init(|| made))
            }
        }
    }

    /// Returns the leftmost match at or after `from`, and its groups if they are wanted.
    pub fn next(
        &self,
        text: &str,
        from: usize,
        wants_groups: bool,
        look: Look<'_>,
    ) -> Result<Option<Groups>> {
        let wants_groups = wants_groups && self.group_count > 0;
        let mut search = None;
        let mut from = from;
        while from <= text.len()
            && let Some(found) = self.regex.find_at(text, from)
        {
            let start = found.start();
            let node = self.node()?;
            let search =
                search.get_or_insert_with(|| Search::new(text, self.folds_case, self.group_count, look));
            search.passed(start - from)?;
            if let Some(end) = search.end(node, start, wants_groups)? {
                return Ok(Some(search.groups(start, end)));
            }
            from = start + text[start..].chars().next().map_or(1, char::len_utf8);
        }
        Ok(None)
    }

    /// Returns all matches at or after `from`, from left to right. After an empty match the search continues
    /// one character later.
    pub fn all(&self, text: &str, from: usize, wants_groups: bool, look: Look<'_>) -> Result<Vec<Groups>> {
        let mut out = Vec::new();
        let mut from = from;
        while from <= text.len()
            && let Some(groups) = self.next(text, from, wants_groups, look)?
        {
            look()?;
            let (start, end) = whole(&groups);
            let step = text[end..].chars().next().map_or(1, char::len_utf8);
            from = if start == end { end + step } else { end };
            out.push(groups);
        }
        Ok(out)
    }
}

/// Returns the begin and the end of the whole match.
pub fn whole(groups: &Groups) -> (usize, usize) {
    groups.first().copied().flatten().unwrap_or_default()
}

fn compile(pattern: &str, options: Options) -> Result<Pattern> {
    let (pattern, options) = options::without_prefix(pattern, options)?;
    let pattern = posix::advanced(pattern, options.syntax)?;
    let (part, group_count) = syntax::tree(&pattern, options)?;
    let regex = RegexBuilder::new(&part.text.search)
        .case_insensitive(options.folds_case)
        .size_limit(SIZE_MAX)
        .dfa_size_limit(SIZE_MAX)
        .build()
        .map_err(|e| invalid(&e))?;
    Ok(Pattern { regex, part, group_count, folds_case: options.folds_case, node: OnceCell::new() })
}

fn invalid(error: &regex::Error) -> SqlError {
    if matches!(error, regex::Error::CompiledTooBig(_)) {
        return invalid_for("regular expression is too complex");
    }
    let shown = error.to_string();
    let last = shown.lines().last().unwrap_or_default();
    let reason = last.strip_prefix("error: ").unwrap_or(last);
    invalid_for(match reason {
        r if r.contains("unclosed character class") => "brackets [] not balanced",
        r if r.contains("invalid character class range") => "invalid character range",
        r if r.contains("nest limit") => "regular expression is too complex",
        other => other,
    })
}

/// Returns the error 2201B: the regular expression is not valid.
fn invalid_for(reason: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected results are those of PostgreSQL 15.
    #[test]
    fn patterns_match_as_in_postgresql() {
        for (text, pattern, fold_case, expected) in [
            ("pgbench", "^(pgbench)$", false, true),
            ("Pg_x", "^pg_", true, true),
            ("Pg_x", "^pg_", false, false),
            ("a\nb", "a.b", false, true),
            ("a\nb", "^b", false, false),
            ("two words", "\\mwords\\M", false, true),
            ("word", "[[:<:]]word[[:>:]]", false, true),
            ("sword", "\\mword", false, false),
            ("a1", "[[:digit:]]$", false, true),
            ("{", "{", false, true),
            ("ABC", "(?i)b", false, true),
            ("é", "^\\w+$", false, true),
            ("é", "[\\w]", false, true),
            ("é", "^[[:alpha:]]$", false, true),
            ("É", "é", true, true),
            ("٣", "\\d", false, false),
            ("x", "\\b", false, false),
            ("\u{8}", "\\b", false, true),
            ("aab", "^a[a&&b]b$", false, true),
            ("x[y", "^[x[y]+$", false, true),
            ("a~b", "^[a~~b]+$", false, true),
            ("&", "[a&&b]", false, true),
            ("<", "\\<", false, true),
            ("]", "[]]", false, true),
            ("a", "[^]]", false, true),
            ("-", "[a-]", false, true),
            ("\\", "[\\\\]", false, true),
            ("^", "[a^]", false, true),
            (" ", "[\\s\\d]", false, true),
            ("\u{a0}", "\\s", false, false),
            ("a", "[\\W]", false, false),
            ("\u{1b}", "\\e", false, true),
            ("A", "\\x41", false, true),
            ("A", "\\u0041", false, true),
        ] {
            assert_eq!(
                compiled(pattern, Options::folding(fold_case)).unwrap().is_match(text, &|| Ok(())).unwrap(),
                expected,
                "{text} {pattern}"
            );
        }
        for (pattern, state) in [
            ("[", "2201B"),
            ("(", "2201B"),
            ("*", "2201B"),
            ("\\h", "2201B"),
            ("\\z", "2201B"),
            ("\\p{L}", "2201B"),
            ("[[:foo:]]", "2201B"),
            ("[b-a]", "2201B"),
            ("a**", "2201B"),
            ("(?=a)*", "2201B"),
            ("\\1(a)", "2201B"),
            ("a{256}", "2201B"),
            ("a{2,1}", "2201B"),
            ("(?z)a", "2201B"),
            ("***a", "2201B"),
        ] {
            assert_eq!(compiled(pattern, Options::default()).unwrap_err().sqlstate.0, state, "{pattern}");
        }
    }

    /// The expected results are those of PostgreSQL 15.
    #[test]
    fn matches_end_where_postgresql_ends_them() {
        for (text, pattern, expected) in [
            ("foobar", "foo|foobar", Some("foobar")),
            ("xyz", "x|xyz", Some("xyz")),
            ("ab", "a?(ab)?", Some("ab")),
            ("abcd", "(a|ab)(c|bcd)(d*)", Some("abcd")),
            ("aXbXc", "a.*?X", Some("aX")),
            ("aaa", "a*?$", Some("aaa")),
            ("XY1234Z", "Y*?([0-9]{1,3})", Some("Y1")),
            ("XY1234Z", "Y*([0-9]{1,3})", Some("Y123")),
            ("abc01234xyz", "(?:(.*?)(\\d+)(.*)){1,1}", Some("abc01234xyz")),
            ("foobar", "foo(?!bar)", None),
            ("foobaz", "foo(?!bar)", Some("foo")),
            ("price $42", "(?<=\\$)\\d+", Some("42")),
            ("abcabd", "(ab)c\\1d", Some("abcabd")),
            ("aXbb", "(.)\\1", Some("bb")),
        ] {
            let found =
                compiled(pattern, Options::default()).unwrap().next(text, 0, false, &|| Ok(())).unwrap();
            let found = found.map(|groups| &text[whole(&groups).0..whole(&groups).1]);
            assert_eq!(found, expected, "{text} {pattern}");
        }
        let first = |text: &str, pattern: &str| {
            let found =
                compiled(pattern, Options::default()).unwrap().next(text, 0, true, &|| Ok(())).unwrap();
            found.and_then(|groups| groups[1]).map(|(start, end)| text[start..end].to_owned())
        };
        for (text, pattern, expected) in [
            ("key: v", "(k|key): (.*)", "key"),
            ("https://x", "(http|https)://", "https"),
            ("a=1", "(\\w+)=(\\d+)", "a"),
            ("abcd", "(a|a.)(c|bcd)(d*)", "ab"),
            ("abc01234xyz", "(.*)(\\d+)(.*)", "abc0123"),
            ("abc01234xyz", "(.*?)(\\d+)(.*)", "abc"),
        ] {
            assert_eq!(first(text, pattern).as_deref(), Some(expected), "{text} {pattern}");
        }
    }

    /// A search that would take very long can be cancelled.
    #[test]
    fn a_search_that_takes_long_is_cancelled() {
        let pattern = compiled("^(a*)(a*)(a*)(a*)(a*)\\1x$", Options::default()).unwrap();
        let cancelled = || Err(SqlError::new(SqlState::QUERY_CANCELED, ""));
        let found = pattern.next(&"a".repeat(300), 0, true, &cancelled);
        // The text has no x at its end, so the automaton finds at once that there is no match.
        assert_eq!(found.unwrap(), None);
        // A short search ends before its first check for a cancel request.
        let found = pattern.next(&format!("{}x", "a".repeat(12)), 0, true, &cancelled);
        assert!(found.is_ok_and(|found| found.is_some()));
        let pattern = compiled("^(a*)(a*)(a*)(a*)(a*)b\\1c$", Options::default()).unwrap();
        let text = format!("{0}b{0}ac", "a".repeat(300));
        let found = pattern.next(&text, 0, true, &cancelled);
        assert_eq!(found.unwrap_err().sqlstate, SqlState::QUERY_CANCELED);
    }
}
