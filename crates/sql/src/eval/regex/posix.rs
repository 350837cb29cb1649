//! Translates POSIX extended and basic regular expressions, and plain text, to PostgreSQL's advanced regular
//! expressions.

use std::iter::Peekable;
use std::str::Chars;

use super::invalid_for;
use super::options::Syntax;
use crate::error::Result;

/// Translates a pattern to an advanced regular expression.
pub fn advanced(pattern: &str, syntax: Syntax) -> Result<String> {
    let mut writer = Writer { rest: pattern.chars().peekable(), out: String::new() };
    match syntax {
        Syntax::Advanced => return Ok(pattern.to_owned()),
        Syntax::Literal => writer.rest.by_ref().for_each(|c| literal(c, &mut writer.out)),
        Syntax::Extended => writer.extended()?,
        Syntax::Basic => writer.basic()?,
    }
    Ok(writer.out)
}

struct Writer<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
}

fn literal(c: char, out: &mut String) {
    if c == '_' || !(c.is_alphanumeric() || c.is_control()) {
        out.push('\\');
    }
    out.push(c);
}

impl Writer<'_> {
    fn escaped(&mut self) -> Result<char> {
        self.rest.next().ok_or_else(|| invalid_for("invalid escape \\ sequence"))
    }

    fn extended(&mut self) -> Result<()> {
        let mut depth = 0_u32;
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => {
                    let c = self.escaped()?;
                    literal(c, &mut self.out);
                }
                '[' => self.bracket(),
                // These kinds have no groups with `?`, and no non-greedy quantifiers.
                '(' | '*' | '+' | '?' if self.rest.peek() == Some(&'?') => {
                    return Err(invalid_for("quantifier operand invalid"));
                }
                '(' => {
                    depth += 1;
                    self.out.push(c);
                }
                ')' if depth == 0 => self.out.push_str("\\)"),
                ')' => {
                    depth -= 1;
                    self.out.push(c);
                }
                c => self.out.push(c),
            }
        }
        Ok(())
    }

    fn basic(&mut self) -> Result<()> {
        // Whether this is the beginning of the pattern or of a group.
        let mut begins = true;
        while let Some(c) = self.rest.next() {
            let began = std::mem::take(&mut begins);
            match c {
                '\\' => begins = self.basic_escape()?,
                '[' => self.bracket(),
                '^' if began => {
                    self.out.push('^');
                    begins = true;
                }
                '*' if began => self.out.push_str("\\*"),
                '*' | '.' => self.out.push(c),
                '$' if self.ends_here() => self.out.push('$'),
                c => literal(c, &mut self.out),
            }
        }
        Ok(())
    }

    /// Translates an escape after its backslash. Returns whether a group begins.
    fn basic_escape(&mut self) -> Result<bool> {
        match self.escaped()? {
            c @ ('(' | ')' | '{' | '}') => {
                self.out.push(c);
                return Ok(c == '(');
            }
            '<' => self.out.push_str("[[:<:]]"),
            '>' => self.out.push_str("[[:>:]]"),
            digit @ '1'..='9' => {
                self.out.push_str("(?:\\");
                self.out.push(digit);
                self.out.push(')');
            }
            c => literal(c, &mut self.out),
        }
        Ok(false)
    }

    fn ends_here(&self) -> bool {
        let mut ahead = self.rest.clone();
        match ahead.next() {
            None => true,
            Some('\\') => ahead.next() == Some(')'),
            Some(_) => false,
        }
    }

    /// Translates a bracket expression. A backslash in it means itself.
    fn bracket(&mut self) {
        self.out.push('[');
        self.out.extend(self.rest.next_if_eq(&'^'));
        self.out.extend(self.rest.next_if_eq(&']'));
        while let Some(c) = self.rest.next() {
            if c == '\\' {
                self.out.push('\\');
            }
            self.out.push(c);
            match (c, self.rest.peek().copied()) {
                (']', _) => return,
                ('[', Some(kind @ (':' | '.' | '='))) => {
                    self.out.extend(self.rest.next());
                    while let Some(c) = self.rest.next() {
                        self.out.push(c);
                        if c == kind && self.rest.peek() == Some(&']') {
                            self.out.extend(self.rest.next());
                            break;
                        }
                    }
                }
                _ => {}
            }
        }
    }
}
