//! LIKE and ILIKE.
//!
//! Invariants
//! 1. `%` matches any sequence of characters, `_` any one character. The character after the escape character
//!    means itself.
//!
//! This module does not know indexes. The constant prefix of a pattern is not used for a search in an index.

use memchr::memmem;
use varve_engine::Datum;

use super::func::string::lower;
use super::{Cx, Input, Like};
use crate::error::{Result, SqlError, SqlState};

/// Evaluates the operator.
pub fn eval<'a>(like: &'a Like, row: &Input<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (Datum::Text(subject), Datum::Text(pattern)) =
        (like.subject.eval(row, cx)?, like.pattern.eval(row, cx)?)
    else {
        return Ok(Datum::Null);
    };
    let matched = if like.fold_case {
        matches(&lower(subject), &lower(pattern), like.escape)?
    } else {
        matches(subject, pattern, like.escape)?
    };
    Ok(Datum::Bool(matched != like.negated))
}

/// Returns whether the whole subject matches the pattern. Backtracking to the last `%` is enough, because an
/// earlier `%` that took more characters could not help.
pub fn matches(subject: &str, pattern: &str, escape: Option<char>) -> Result<bool> {
    if !pattern.contains('_') && escape.is_none_or(|c| !pattern.contains(c)) {
        return Ok(has_parts(subject.as_bytes(), pattern.as_bytes()));
    }
    let mut s = subject.chars();
    let mut p = pattern.chars();
    let mut retry: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let step = advance(&mut s, &mut p, escape)?;
        match step {
            Step::Matched => continue,
            Step::End => return Ok(true),
            Step::Run => {
                retry = Some((s.clone(), p.clone()));
                continue;
            }
            Step::Failed => {}
        }
        // The last `%` takes one more character.
        let Some((from, after)) = &mut retry else { return Ok(false) };
        if from.next().is_none() {
            return Ok(false);
        }
        (s, p) = (from.clone(), after.clone());
    }
}

/// Returns whether the texts between the `%` of the pattern occur in the subject in this order.
fn has_parts(subject: &[u8], pattern: &[u8]) -> bool {
    let mut parts = pattern.split(|b| *b == b'%');
    let Some(mut rest) = subject.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(mut part) = parts.next() else { return rest.is_empty() };
    for next in parts {
        let Some(at) = memmem::find(rest, part) else { return false };
        rest = &rest[at + part.len()..];
        part = next;
    }
    rest.ends_with(part)
}

enum Step {
    Matched,
    Run,
    End,
    Failed,
}

fn advance(s: &mut std::str::Chars<'_>, p: &mut std::str::Chars<'_>, escape: Option<char>) -> Result<Step> {
    let Some(wanted) = p.next() else {
        return Ok(if s.as_str().is_empty() { Step::End } else { Step::Failed });
    };
    if Some(wanted) == escape {
        // At the end of the subject, PostgreSQL does not look at the rest of the pattern.
        if s.as_str().is_empty() {
            return Ok(Step::Failed);
        }
        let literal = p.next().ok_or_else(|| {
            SqlError::new(SqlState::INVALID_ESCAPE, "LIKE pattern must not end with escape character")
        })?;
        return Ok(if s.next() == Some(literal) { Step::Matched } else { Step::Failed });
    }
    Ok(match wanted {
        '%' => Step::Run,
        '_' if s.next().is_some() => Step::Matched,
        '_' => Step::Failed,
        c if s.next() == Some(c) => Step::Matched,
        _ => Step::Failed,
    })
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_postgresql() {
        for (subject, pattern, expected) in [
            ("hello", "h%o", true),
            ("hello", "h_llo", true),
            ("hello", "%l", false),
            ("100%", "100\\%", true),
            ("", "%", true),
            ("abcabc", "%abc", true),
            ("äb", "_b", true),
            ("abc", "", false),
            ("mississippi", "m%iss%ip%", true),
            ("mississippi", "%ss%ss%ss%", false),
            ("aba", "aba%aba", false),
            ("abaaba", "aba%aba", true),
            ("", "", true),
            ("a", "%%", true),
            ("abc", "%b", false),
            ("äö", "%ö", true),
            ("a", "a\\", false),
            ("", "\\", false),
        ] {
            assert_eq!(matches(subject, pattern, Some('\\')).unwrap(), expected, "{subject} LIKE {pattern}");
        }
        assert!(matches("a", "\\", Some('\\')).is_err());
    }
}
