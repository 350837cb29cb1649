//! Options of a regular expression: the flags argument of functions, and options at the beginning of the
//! pattern.
//!
//! This module does not know the syntax of the rest of the pattern.

use super::invalid_for;
use crate::error::Result;

/// The kinds of regular expressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Syntax {
    /// PostgreSQL's advanced regular expressions.
    #[default]
    Advanced,
    /// POSIX extended regular expressions.
    Extended,
    /// POSIX basic regular expressions.
    Basic,
    /// Plain text.
    Literal,
}

/// Flags of a regular expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    pub syntax: Syntax,
    pub folds_case: bool,
    /// Whether white space and comments in the pattern are ignored.
    pub expanded: bool,
    /// Whether `.` and `[^...]` do not match a line feed.
    pub stops_at_lines: bool,
    /// Whether `^` and `$` also match at line feeds.
    pub anchors_at_lines: bool,
}

impl Options {
    /// Returns the default options, with or without case folding.
    pub fn folding(folds_case: bool) -> Options {
        Options { folds_case, ..Options::default() }
    }

    /// Sets the flag of this letter. Returns false if there is no such flag.
    pub fn set(&mut self, letter: char) -> bool {
        match letter {
            'b' => self.syntax = Syntax::Basic,
            'c' => self.folds_case = false,
            'e' => self.syntax = Syntax::Extended,
            'i' => self.folds_case = true,
            'm' | 'n' => (self.stops_at_lines, self.anchors_at_lines) = (true, true),
            'p' => (self.stops_at_lines, self.anchors_at_lines) = (true, false),
            'q' => self.syntax = Syntax::Literal,
            's' => (self.stops_at_lines, self.anchors_at_lines) = (false, false),
            't' => self.expanded = false,
            'w' => (self.stops_at_lines, self.anchors_at_lines) = (false, true),
            'x' => self.expanded = true,
            _ => return false,
        }
        true
    }
}

/// Removes `***=`, `***:` and `(?flags)` from the beginning of the pattern. Returns the rest and the options
/// that they set.
pub fn without_prefix(pattern: &str, mut options: Options) -> Result<(&str, Options)> {
    if options.syntax == Syntax::Literal {
        if options.expanded || options.stops_at_lines || options.anchors_at_lines {
            return Err(invalid_for("invalid argument to regex function"));
        }
        return Ok((pattern, options));
    }
    let mut rest = pattern;
    if let Some(special) = pattern.strip_prefix("***") {
        match special.chars().next() {
            Some('=') => return Ok((&special[1..], literally(options))),
            Some(':') => {
                options.syntax = Syntax::Advanced;
                rest = &special[1..];
            }
            Some('?') => return Err(invalid_for("invalid regexp (reg version 0.8)")),
            _ => return Err(invalid_for("quantifier operand invalid")),
        }
    }
    let embedded = rest.strip_prefix("(?").filter(|flags| flags.starts_with(char::is_alphabetic));
    if let Some(flags) = embedded.filter(|_| options.syntax == Syntax::Advanced) {
        let end = flags.find(|c: char| !c.is_alphabetic()).unwrap_or(flags.len());
        let known = flags[..end].chars().all(|letter| options.set(letter));
        let behind = flags[end..].strip_prefix(')').filter(|_| known);
        rest = behind.ok_or_else(|| invalid_for("invalid embedded option"))?;
        if options.syntax == Syntax::Literal {
            options = literally(options);
        }
    }
    Ok((rest, options))
}

fn literally(options: Options) -> Options {
    Options { syntax: Syntax::Literal, ..Options::folding(options.folds_case) }
}
