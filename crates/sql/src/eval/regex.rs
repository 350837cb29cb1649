//! Regular expressions of PostgreSQL by the `regex` crate, which never takes exponential time.
//!
//! Invariants
//! 1. A pattern is compiled once for each thread that meets it, as long as it is among the last ones met.
//! 2. What the crate lacks (back references, look-around) is refused by name, never matched in another way.
//!
//! Does not know: operators and functions.

use std::cell::RefCell;
use std::rc::Rc;

use regex::{Regex, RegexBuilder};

use crate::error::{Result, SqlError, SqlState};

/// Compiled patterns that a thread keeps.
const KEPT: usize = 32;

/// A pattern as written, whether case is folded, and what it compiled to.
type Compiled = (String, bool, Rc<Regex>);

thread_local! {
    static COMPILED: RefCell<Vec<Compiled>> = const { RefCell::new(Vec::new()) };
}

/// The compiled pattern; 2201B if it is none.
pub fn compiled(pattern: &str, fold_case: bool) -> Result<Rc<Regex>> {
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

fn compile(pattern: &str, fold_case: bool) -> Result<Regex> {
    let (pattern, fold_case) = options(pattern, fold_case);
    if let Some(what) = lacking(pattern) {
        return Err(SqlError::unsupported(format!("{what} in a regular expression")));
    }
    let translated = translated(pattern);
    RegexBuilder::new(&translated)
        .case_insensitive(fold_case)
        .dot_matches_new_line(true)
        .build()
        .map_err(|e| invalid(&e))
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

/// What PostgreSQL has and the crate has not.
fn lacking(pattern: &str) -> Option<&'static str> {
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c == '\\' && matches!(chars.next(), Some('1'..='9')) {
            return Some("a back reference");
        }
    }
    let around = ["(?=", "(?!", "(?<=", "(?<!"];
    around.iter().any(|a| pattern.contains(a)).then_some("looking around")
}

/// Escapes that the crate spells otherwise; braces that stand for themselves.
fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('y') => out.push_str("\\b"),
                Some('Y') => out.push_str("\\B"),
                Some('m') => out.push_str("\\b{start}"),
                Some('M') => out.push_str("\\b{end}"),
                Some('Z') => out.push_str("\\z"),
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            '{' if !chars.peek().is_some_and(char::is_ascii_digit) => out.push_str("\\{"),
            c => out.push(c),
        }
    }
    out
}

fn invalid(error: &regex::Error) -> SqlError {
    let shown = error.to_string();
    let last = shown.lines().last().unwrap_or_default();
    let reason = last.strip_prefix("error: ").unwrap_or(last);
    let known = match reason {
        r if r.contains("unclosed character class") => "brackets [] not balanced",
        r if r.contains("unclosed group") || r.contains("unopened group") => "parentheses () not balanced",
        r if r.contains("repetition operator missing") => "quantifier operand invalid",
        r if r.contains("invalid character class range") => "invalid character range",
        other => other,
    };
    SqlError::new(SqlState::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {known}"))
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
            ("sword", "\\mword", false, false),
            ("a1", "[[:digit:]]$", false, true),
            ("{", "{", false, true),
            ("ABC", "(?i)b", false, true),
        ] {
            assert_eq!(compiled(pattern, fold_case).unwrap().is_match(text), expected, "{text} {pattern}");
        }
        for (pattern, state) in
            [("[", "2201B"), ("(", "2201B"), ("*", "2201B"), ("(a)\\1", "0A000"), ("a(?=b)", "0A000")]
        {
            assert_eq!(compiled(pattern, false).unwrap_err().sqlstate.0, state, "{pattern}");
        }
    }
}
