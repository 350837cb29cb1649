//! Regular expressions of PostgreSQL by the `regex` crate, which never takes exponential time.
//!
//! Invariants
//! 1. A pattern is compiled once for each thread that meets it, as long as it is among the last ones met.
//! 2. What the crate lacks (back references, look-around) is refused by name, never matched in another way.
//! 3. Where a match ends is PostgreSQL's choice: the longest that begins leftmost, or the shortest if no quantifier is greedy.
//!    The crate alone takes the first alternative that fits. Patterns that mix both kinds of quantifiers are refused where
//!    the end of a match matters; so are groups whose part in a longest match the crate cannot tell.
//!
//! Does not know: operators and functions.

pub mod similar;
mod translate;

use std::cell::RefCell;
use std::rc::Rc;

use regex::{Captures, Regex, RegexBuilder};
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};

use crate::error::{Result, SqlError, SqlState};
use translate::Translated;

/// Compiled patterns that a thread keeps.
const KEPT: usize = 32;
/// Most memory that one compiled pattern takes, and again what the crate's automata take beside it, in bytes.
const SIZE_MAX: usize = 1 << 20;

/// A pattern as written, whether case is folded, and what it compiled to.
type Compiled = (String, bool, Rc<Pattern>);

thread_local! {
    static COMPILED: RefCell<Vec<Compiled>> = const { RefCell::new(Vec::new()) };
}

/// The compiled pattern; 2201B if it is none.
pub fn compiled(pattern: &str, fold_case: bool) -> Result<Rc<Pattern>> {
    COMPILED.with_borrow_mut(|kept| {
        if let Some(at) = kept.iter().position(|(p, f, _)| p == pattern && *f == fold_case) {
            return Ok(kept[at].2.clone());
        }
        let made = Rc::new(compile(pattern, fold_case)?);
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push((pattern.to_owned(), fold_case, made.clone()));
        Ok(made)
    })
}

/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern {
    regex: Regex,
    ends: Ends,
    /// The groups of a match are certain once its end is.
    certain_groups: bool,
}

/// Who says where a match ends.
#[derive(Debug)]
enum Ends {
    /// The crate: there is one way only.
    Alone,
    /// The longest match, or (true) the shortest.
    Tried(Box<PikeVM>, bool),
    /// Nobody: greedy and non-greedy quantifiers in one pattern.
    Mixed,
}

impl Pattern {
    /// Whether it fits anywhere.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The leftmost match at or behind `from`: where it begins and ends.
    pub fn find(&self, text: &str, from: usize) -> Result<Option<(usize, usize)>> {
        let Some(found) = self.regex.find_at(text, from) else { return Ok(None) };
        let (start, end) = (found.start(), found.end());
        let (engine, shortest) = match &self.ends {
            Ends::Alone => return Ok(Some((start, end))),
            Ends::Tried(engine, shortest) => (engine, *shortest),
            Ends::Mixed => {
                return Err(SqlError::unsupported(
                    "a regular expression with greedy and non-greedy quantifiers",
                ));
            }
        };
        let input = Input::new(text).range(start..).anchored(Anchored::Yes).earliest(shortest);
        let mut cache = engine.create_cache();
        // Where the match begins is known; the second slot says where it ends.
        let mut slots = [None; 2];
        engine.search_slots(&mut cache, &input, &mut slots);
        Ok(Some((start, slots[1].map_or(end, |at| at.get()))))
    }

    /// The leftmost match at or behind `from` with its groups.
    pub fn captures<'t>(&self, text: &'t str, from: usize) -> Result<Option<Captures<'t>>> {
        let Some((_, end)) = self.find(text, from)? else { return Ok(None) };
        let found = self.regex.captures_at(text, from);
        let is_certain = |c: &Captures<'_>| {
            c.len() == 1 || self.certain_groups && c.get(0).is_some_and(|whole| whole.end() == end)
        };
        if found.as_ref().is_some_and(is_certain) {
            return Ok(found);
        }
        Err(SqlError::unsupported("groups of a regular expression with alternatives that begin alike"))
    }

    /// The groups of a match that is the whole text, as the pattern's `^` and `$` say: where it ends is certain then, and which way
    /// is taken the quantifiers say, one after the other.
    pub fn captures_whole<'t>(&self, text: &'t str) -> Option<Captures<'t>> {
        self.regex.captures(text)
    }

    /// All matches, from left to right; an empty one does not come right behind another one.
    pub fn matches(&self, text: &str) -> Result<Vec<(usize, usize)>> {
        let mut out: Vec<(usize, usize)> = Vec::new();
        let mut from = 0;
        while from <= text.len()
            && let Some((start, end)) = self.find(text, from)?
        {
            if start < end || out.last().is_none_or(|last| last.1 != start) {
                out.push((start, end));
            }
            let step = text[end..].chars().next().map_or(1, char::len_utf8);
            from = if start == end { end + step } else { end };
        }
        Ok(out)
    }
}

fn compile(pattern: &str, fold_case: bool) -> Result<Pattern> {
    let (pattern, fold_case) = options(pattern, fold_case);
    let translated = translate::translated(pattern)?;
    let regex = RegexBuilder::new(&translated.text)
        .case_insensitive(fold_case)
        .dot_matches_new_line(true)
        .size_limit(SIZE_MAX)
        .dfa_size_limit(SIZE_MAX)
        .build()
        .map_err(|e| invalid(&e))?;
    let ends = ends_of(&translated, fold_case)?;
    Ok(Pattern { regex, ends, certain_groups: translated.certain_groups })
}

fn ends_of(translated: &Translated, fold_case: bool) -> Result<Ends> {
    let Translated { text, greedy, non_greedy, alternatives, .. } = translated;
    let shortest = match (*greedy > 0, *non_greedy > 0) {
        (true, true) => return Ok(Ends::Mixed),
        (false, true) if *alternatives => return Ok(Ends::Mixed),
        (_, shortest) => shortest,
    };
    if !alternatives && greedy + non_greedy < 2 {
        return Ok(Ends::Alone);
    }
    let engine = PikeVM::builder()
        .syntax(syntax::Config::new().case_insensitive(fold_case).dot_matches_new_line(true))
        .thompson(regex_automata::nfa::thompson::Config::new().nfa_size_limit(Some(SIZE_MAX)))
        .configure(PikeVM::config().match_kind(MatchKind::All))
        .build(text);
    let engine = engine.map_err(|_| invalid_for("regular expression is too complex"))?;
    Ok(Ends::Tried(Box::new(engine), shortest))
}

/// The pattern behind `***=`, `(?i)` and the like.
fn options(pattern: &str, fold_case: bool) -> (&str, bool) {
    if let Some(rest) = pattern.strip_prefix("(?i)") {
        return (rest, true);
    }
    match pattern.strip_prefix("(?c)") {
        Some(rest) => (rest, false),
        None => (pattern.strip_prefix("***:").unwrap_or(pattern), fold_case),
    }
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
        r if r.contains("unclosed group") || r.contains("unopened group") => "parentheses () not balanced",
        r if r.contains("repetition operator missing") => "quantifier operand invalid",
        r if r.contains("invalid character class range") => "invalid character range",
        other => other,
    })
}

/// 2201B
fn invalid_for(reason: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of PostgreSQL 15.
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
            assert_eq!(compiled(pattern, fold_case).unwrap().is_match(text), expected, "{text} {pattern}");
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
            ("(a)\\1", "0A000"),
            ("a(?=b)", "0A000"),
        ] {
            assert_eq!(compiled(pattern, false).unwrap_err().sqlstate.0, state, "{pattern}");
        }
    }

    /// Answers of PostgreSQL 15; found by the sixth review.
    #[test]
    fn matches_end_where_postgresql_ends_them() {
        for (text, pattern, expected) in [
            ("foobar", "foo|foobar", Some("foobar")),
            ("xyz", "x|xyz", Some("xyz")),
            ("ab", "a?(ab)?", Some("ab")),
            ("abcd", "(a|ab)(c|bcd)(d*)", Some("abcd")),
            ("aXbXc", "a.*?X", Some("aX")),
            ("aaa", "a*?$", Some("aaa")),
            ("XY1234Z", "Y*?([0-9]{1,3})", None),
        ] {
            let found = compiled(pattern, false).unwrap().find(text, 0);
            let found = found.ok().flatten().map(|(start, end)| &text[start..end]);
            assert_eq!(found, expected, "{text} {pattern}");
        }
        let first = |text: &str, pattern: &str| {
            let found = compiled(pattern, false).unwrap();
            found.captures(text, 0).ok().flatten().and_then(|c| c.get(1).map(|g| g.as_str().to_owned()))
        };
        assert_eq!(first("key: v", "(k|key): (.*)").as_deref(), Some("key"));
        assert_eq!(first("https://x", "(http|https)://").as_deref(), Some("https"));
        assert_eq!(first("a=1", "(\\w+)=(\\d+)").as_deref(), Some("a"));
        assert_eq!(first("abcd", "(a|a.)(c|bcd)(d*)"), None);
    }
}
