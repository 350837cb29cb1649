//! Translates the characters, escapes and bracket expressions of a pattern to the syntax of the crate
//! `regex`.
//!
//! Invariants
//! 1. If a character has a special meaning only in the crate, it is escaped.
//!
//! This module does not know groups or quantifiers.

use std::iter::Peekable;
use std::str::Chars;

use super::invalid_for;
use crate::error::{Result, SqlError};

/// White space, without the no-break spaces.
const SPACE: &str = r"[\s--[\x{a0}\x{2007}\x{202f}]]";

/// A constraint about the edges of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// `\m`: the beginning of a word.
    Start,
    /// `\M`: the end of a word.
    End,
    /// `\y`: the beginning or the end of a word.
    Either,
    /// `\Y`: neither the beginning nor the end of a word.
    Neither,
}

/// The meaning of an escape.
pub enum Escaped {
    /// Characters. They are already in the output.
    Characters,
    /// An edge of a word, or a position that is not an edge.
    Edge(Edge),
    /// The beginning or the end of the whole text. It is already in the output.
    End,
    /// The text that the group with this number has matched.
    Group(usize),
}

/// Reads a pattern character by character.
pub struct Reader<'p> {
    /// The rest of the pattern.
    pub rest: Peekable<Chars<'p>>,
    /// The output for the current atom.
    pub out: String,
    /// Whether `[^...]` does not match a line feed.
    pub stops_at_lines: bool,
}

impl Reader<'_> {
    /// Writes a character that means itself.
    pub fn literal(&mut self, c: char) {
        if c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
            self.out.push('\\');
        }
        self.out.push(c);
    }

    /// Reads an escape after its backslash. `groups` is the number of groups that have begun.
    pub fn escape(&mut self, groups: usize) -> Result<Escaped> {
        let edge = match self.rest.peek() {
            Some('y') => Edge::Either,
            Some('Y') => Edge::Neither,
            Some('m') => Edge::Start,
            Some('M') => Edge::End,
            Some('A' | 'Z') => {
                self.out.push_str(if self.rest.next() == Some('A') { "\\A" } else { "\\z" });
                return Ok(Escaped::End);
            }
            Some('0'..='9') => return Ok(self.number(groups)),
            _ => {
                self.class()?;
                return Ok(Escaped::Characters);
            }
        };
        self.rest.next();
        Ok(Escaped::Edge(edge))
    }

    /// Reads a back reference, or a character by its octal number. One digit is always a reference. Several
    /// digits are a reference if there is a group with this number.
    fn number(&mut self, groups: usize) -> Escaped {
        let mut ahead = self.rest.clone();
        let mut decimal = 0_usize;
        let mut digits = 0;
        while let Some(digit) = ahead.peek().and_then(|c| c.to_digit(10)) {
            decimal = decimal.saturating_mul(10).saturating_add(digit as usize);
            digits += 1;
            ahead.next();
        }
        if self.rest.peek() != Some(&'0') && (digits == 1 || decimal <= groups) {
            self.rest = ahead;
            return Escaped::Group(decimal);
        }
        let mut octal = 0;
        for _ in 0..3 {
            let Some(digit) = self.rest.peek().and_then(|c| c.to_digit(8)) else { break };
            if octal * 8 + digit > 0xff {
                break;
            }
            octal = octal * 8 + digit;
            self.rest.next();
        }
        self.out.push_str(&format!("\\x{{{octal:x}}}"));
        Escaped::Characters
    }

    /// Reads a class of characters after its backslash.
    fn class(&mut self) -> Result<()> {
        let invalid = || invalid_for("invalid escape \\ sequence");
        let c = self.rest.next().ok_or_else(invalid)?;
        let plain = match c {
            'd' => "[0-9]",
            'D' => "[^0-9]",
            's' => SPACE,
            'S' => r"[^\s--[\x{a0}\x{2007}\x{202f}]]",
            'w' => "\\w",
            'W' => "\\W",
            'a' => "\\x07",
            'b' => "\\x08",
            'B' => "\\\\",
            'e' => "\\x1b",
            'f' => "\\f",
            'n' => "\\n",
            'r' => "\\r",
            't' => "\\t",
            'v' => "\\x0b",
            'x' => return self.coded(usize::MAX),
            'u' => return self.coded(4),
            'U' => return self.coded(8),
            'c' => {
                let letter = self.rest.next().ok_or_else(invalid)?;
                self.out.push_str(&format!("\\x{{{:x}}}", letter as u32 & 0o37));
                return Ok(());
            }
            c if c.is_alphanumeric() => return Err(invalid()),
            c => {
                self.literal(c);
                return Ok(());
            }
        };
        self.out.push_str(plain);
        Ok(())
    }

    /// Reads a character by its number.
    fn coded(&mut self, width: usize) -> Result<()> {
        let mut digits = String::new();
        while digits.len() < width
            && let Some(c) = self.rest.next_if(char::is_ascii_hexdigit)
        {
            digits.push(c);
        }
        let complete = !digits.is_empty() && (width == usize::MAX || digits.len() == width);
        let c = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32).filter(|_| complete);
        let c = c.ok_or_else(|| invalid_for("invalid escape \\ sequence"))?;
        self.out.push_str(&format!("\\x{{{:x}}}", c as u32));
        Ok(())
    }

    /// Reads a bracket expression after its `[`. Edges of words can also be written in this form.
    pub fn bracket(&mut self) -> Result<Option<Edge>> {
        let open = || invalid_for("brackets [] not balanced");
        for (word, edge) in [("[:<:]]", Edge::Start), ("[:>:]]", Edge::End)] {
            let mut ahead = self.rest.clone();
            if word.chars().all(|c| ahead.next() == Some(c)) {
                self.rest = ahead;
                return Ok(Some(edge));
            }
        }
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
            if self.stops_at_lines {
                self.out.push_str("\\n");
            }
        }
        let mut is_first = true;
        loop {
            let c = self.rest.next().ok_or_else(open)?;
            match c {
                ']' if !is_first => break,
                '[' if self.rest.peek().is_some_and(|c| matches!(c, ':' | '.' | '=')) => self.named()?,
                '\\' if self.rest.peek().is_some_and(char::is_ascii_digit) => {
                    if let Escaped::Group(_) = self.number(0) {
                        return Err(invalid_for("invalid escape \\ sequence"));
                    }
                }
                '\\' => self.class()?,
                // Between two characters, `-` makes a range. At the beginning or the end it means itself.
                '-' if !is_first && self.rest.peek().is_some_and(|c| *c != ']') => self.out.push('-'),
                c => self.literal(c),
            }
            is_first = false;
        }
        self.out.push(']');
        Ok(None)
    }

    /// Reads `[:class:]`, `[.c.]` or `[=c=]` within brackets.
    fn named(&mut self) -> Result<()> {
        let kind = self.rest.next().unwrap_or(':');
        let mut name = String::new();
        loop {
            match self.rest.next() {
                Some(c) if c == kind && self.rest.next_if_eq(&']').is_some() => break,
                Some(c) => name.push(c),
                None => return Err(invalid_for("brackets [] not balanced")),
            }
        }
        let mut only = name.chars();
        if kind != ':' {
            return match (only.next(), only.next()) {
                (Some(c), None) => {
                    self.literal(c);
                    Ok(())
                }
                _ => Err(SqlError::unsupported("a collating element in a regular expression")),
            };
        }
        self.out.push_str(match name.as_str() {
            "alpha" => "\\p{Alphabetic}",
            "alnum" => "\\p{Alphabetic}\\p{N}",
            "upper" => "\\p{Uppercase}",
            "lower" => "\\p{Lowercase}",
            "space" => SPACE,
            "word" => "\\w",
            "digit" => "[:digit:]",
            "ascii" => "[:ascii:]",
            "blank" => "[:blank:]",
            "punct" => "[:punct:]",
            "graph" => "[:graph:]",
            "print" => "[:print:]",
            "cntrl" => "[:cntrl:]",
            "xdigit" => "[:xdigit:]",
            _ => return Err(invalid_for("invalid character class")),
        });
        Ok(())
    }
}
