//! PostgreSQL's spelling of a regular expression as the `regex` crate's.
//!
//! Invariants
//! 1. What stands for itself in PostgreSQL is escaped wherever the crate would read more into it.
//!
//! Does not know: matching.

use super::invalid_for;
use crate::error::{Result, SqlError};

/// A pattern in the crate's spelling, and what decides about its matches.
#[derive(Default)]
pub struct Translated {
    /// The pattern.
    pub text: String,
    /// How many quantifiers take as much as they can.
    pub greedy: usize,
    /// How many take as little as they can.
    pub non_greedy: usize,
    /// Whether there are alternatives.
    pub alternatives: bool,
    /// All alternatives are plain text, the longer ones first, and no group that is repeated has a choice within.
    pub certain_groups: bool,
}

/// White space; what breaks no line is none.
const SPACE: &str = r"[\s--[\x{a0}\x{2007}\x{202f}]]";

struct Translator<'p> {
    rest: std::iter::Peekable<std::str::Chars<'p>>,
    out: Translated,
    /// Of each open group: where it begins in the text, and where its alternatives do.
    open: Vec<Vec<usize>>,
    /// Of each open group and the whole: how many choices there were before it.
    choices: Vec<usize>,
    made_choices: usize,
    /// The last thing was a group with a choice within.
    after_choice: bool,
}

/// Translates; 2201B for what is no pattern, 0A000 for what the crate has not.
pub fn translated(pattern: &str) -> Result<Translated> {
    if ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|around| pattern.contains(around)) {
        return Err(SqlError::unsupported("looking around in a regular expression"));
    }
    let mut t = Translator {
        rest: pattern.chars().peekable(),
        out: Translated { certain_groups: true, ..Translated::default() },
        open: vec![vec![0]],
        choices: Vec::new(),
        made_choices: 0,
        after_choice: false,
    };
    while let Some(c) = t.rest.next() {
        t.next(c)?;
    }
    t.end_alternatives();
    Ok(t.out)
}

impl Translator<'_> {
    fn next(&mut self, c: char) -> Result<()> {
        let after_choice = std::mem::take(&mut self.after_choice);
        match c {
            '\\' => self.escape(false)?,
            '[' => self.bracket()?,
            '*' | '+' | '?' => {
                self.out.text.push(c);
                // Once or not at all leaves no choice between turns.
                self.quantified(after_choice && c != '?');
            }
            '{' if self.rest.peek().is_some_and(char::is_ascii_digit) => self.braces(after_choice),
            '{' => self.out.text.push_str("\\{"),
            '|' => {
                self.out.alternatives = true;
                self.made_choices += 1;
                self.out.text.push('|');
                let at = self.out.text.len();
                if let Some(group) = self.open.last_mut() {
                    group.push(at);
                }
            }
            '(' => {
                self.out.text.push('(');
                if self.rest.next_if_eq(&'?').is_some() {
                    self.out.text.push('?');
                    self.out.text.extend(self.rest.next());
                }
                self.open.push(vec![self.out.text.len()]);
                self.choices.push(self.made_choices);
            }
            ')' => {
                if self.open.len() > 1 {
                    self.end_alternatives();
                    self.after_choice = self.choices.pop().is_some_and(|before| self.made_choices > before);
                }
                self.out.text.push(')');
            }
            c => self.out.text.push(c),
        }
        Ok(())
    }

    /// Alternatives of plain text are put in the order of their length: the first that fits is then the longest.
    fn end_alternatives(&mut self) {
        let Some(starts) = self.open.pop().filter(|starts| starts.len() > 1) else { return };
        let text = self.out.text.split_off(starts[0]);
        let mut pieces: Vec<&str> = text.split('|').collect();
        let plain =
            |piece: &&str| piece.chars().all(|c| c.is_alphanumeric() || " _-,;:/@#%&=<>!~'\"".contains(c));
        if pieces.len() == starts.len() && pieces.iter().all(plain) {
            pieces.sort_by_key(|piece| std::cmp::Reverse(piece.len()));
            self.out.text.push_str(&pieces.join("|"));
        } else {
            self.out.certain_groups = false;
            self.out.text.push_str(&text);
        }
    }

    /// Behind a quantifier: whether it is greedy.
    fn quantified(&mut self, after_choice: bool) {
        self.made_choices += 1;
        self.out.certain_groups &= !after_choice;
        match self.rest.next_if_eq(&'?') {
            Some(_) => {
                self.out.text.push('?');
                self.out.non_greedy += 1;
            }
            None => self.out.greedy += 1,
        }
    }

    fn braces(&mut self, after_choice: bool) {
        self.out.text.push('{');
        let mut is_range = false;
        while let Some(c) = self.rest.next_if(|c| c.is_ascii_digit() || *c == ',') {
            is_range |= c == ',';
            self.out.text.push(c);
        }
        self.out.text.extend(self.rest.next_if_eq(&'}'));
        if is_range {
            self.quantified(after_choice);
        } else {
            // A fixed number has no preference, whatever is written behind it.
            self.out.certain_groups &= !after_choice;
            let _ = self.rest.next_if_eq(&'?');
        }
    }

    /// A character that stands for itself.
    fn literal(&mut self, c: char) {
        if c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
            self.out.text.push('\\');
        }
        self.out.text.push(c);
    }

    fn escape(&mut self, in_bracket: bool) -> Result<()> {
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
            '0' => "\\x00",
            'y' if !in_bracket => "\\b",
            'Y' if !in_bracket => "\\B",
            'm' if !in_bracket => "\\b{start}",
            'M' if !in_bracket => "\\b{end}",
            'A' if !in_bracket => "\\A",
            'Z' if !in_bracket => "\\z",
            'x' => return self.coded(usize::MAX),
            'u' => return self.coded(4),
            'U' => return self.coded(8),
            '1'..='9' => return Err(SqlError::unsupported("a back reference in a regular expression")),
            c if c.is_alphanumeric() => return Err(invalid()),
            c => {
                self.literal(c);
                return Ok(());
            }
        };
        self.out.text.push_str(plain);
        Ok(())
    }

    /// A character by its number.
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
        self.out.text.push_str(&format!("\\x{{{:x}}}", c as u32));
        Ok(())
    }

    fn bracket(&mut self) -> Result<()> {
        let open = || invalid_for("brackets [] not balanced");
        let start = self.out.text.len();
        self.out.text.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.text.push('^');
        }
        let mut is_first = true;
        loop {
            let c = self.rest.next().ok_or_else(open)?;
            match c {
                ']' if !is_first => break,
                '[' if self.rest.peek().is_some_and(|c| matches!(c, ':' | '.' | '=')) => self.named(start)?,
                '\\' => self.escape(true)?,
                // Between two ends it makes a range; at either end it is itself.
                '-' if !is_first && self.rest.peek().is_some_and(|c| *c != ']') => self.out.text.push('-'),
                c => self.literal(c),
            }
            is_first = false;
            if self.out.text.ends_with("\\b{start}") || self.out.text.ends_with("\\b{end}") {
                return Ok(());
            }
        }
        self.out.text.push(']');
        Ok(())
    }

    /// `[:class:]`, `[.c.]` and `[=c=]` within brackets.
    fn named(&mut self, start: usize) -> Result<()> {
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
        // The borders of a word stand alone in their brackets.
        if matches!(name.as_str(), "<" | ">") && self.out.text.len() == start + 1 {
            if self.rest.next() != Some(']') {
                return Err(invalid_for("brackets [] not balanced"));
            }
            self.out.text.truncate(start);
            self.out.text.push_str(if name == "<" { "\\b{start}" } else { "\\b{end}" });
            return Ok(());
        }
        self.out.text.push_str(match name.as_str() {
            "alpha" => "\\p{Alphabetic}",
            "alnum" => "\\p{Alphabetic}\\p{N}",
            "upper" => "\\p{Uppercase}",
            "lower" => "\\p{Lowercase}",
            "space" => SPACE,
            "word" => "\\w",
            "digit" => "[:digit:]",
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
