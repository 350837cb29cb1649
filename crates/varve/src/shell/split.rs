//! Finds the ends of statements in text that arrives line by line.
//!
//! Invariants
//! 1. A semicolon ends a statement unless it is in a string, a quoted name, a comment, or parentheses.
//! 2. Each byte is read once, however many lines a statement has.
//!
//! The splitter does not check whether a statement is valid.

use std::ops::Range;

/// Splits a text into statements at their semicolons.
#[derive(Debug, Default)]
pub struct Splitter {
    text: String,
    /// The beginning of the statement that is not complete yet.
    begin: usize,
    scan: Scan,
    /// Whether this statement has more than blanks and line comments.
    has_begun: bool,
}

/// Scans a text, and skips quoted parts and comments. The text may grow by whole lines.
#[derive(Debug, Default)]
pub struct Scan {
    at: usize,
    state: At,
    depth: u32,
}

/// The state of a scan.
#[derive(Debug, Default)]
enum At {
    #[default]
    Plain,
    /// In a text between these quotes. If `escapes` is set, a backslash escapes the next character.
    Quoted { quote: u8, escapes: bool },
    /// In a text between dollar signs with this tag.
    Dollar(Range<usize>),
    /// In comments of this depth.
    Comment(u32),
    /// In a comment to the end of the line.
    Line,
}

/// A byte that is neither quoted nor in a comment, and the number of parentheses that are open at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plain {
    /// The position.
    pub at: usize,
    /// The byte. For a quoted part or a comment it is the quote or `/` at its beginning.
    pub byte: u8,
    /// The number of parentheses around it.
    pub depth: u32,
}

impl Splitter {
    /// Adds a line, without its end.
    pub fn push(&mut self, line: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
    }

    /// Returns the next whole statement, with its semicolon.
    pub fn next(&mut self) -> Option<String> {
        while let Some(plain) = self.scan.next(&self.text) {
            if plain.byte == b';' && plain.depth == 0 {
                let statement = self.text[self.begin..=plain.at].trim_start().to_owned();
                (self.begin, self.has_begun) = (plain.at + 1, false);
                return Some(statement);
            }
            self.has_begun |= !plain.byte.is_ascii_whitespace();
        }
        if !self.has_begun && matches!(self.scan.state, At::Plain) {
            *self = Splitter::default();
        } else if self.begin > 0 {
            self.text.drain(..self.begin);
            self.scan.move_back(std::mem::take(&mut self.begin));
        }
        None
    }

    /// Returns the statement that has no semicolon yet.
    pub fn rest(&mut self) -> String {
        let all = std::mem::take(self);
        all.text[all.begin..].trim_start().to_owned()
    }

    /// Returns whether the text after the last semicolon has only blanks and line comments.
    pub fn is_empty(&self) -> bool {
        !self.has_begun
    }
}

impl Scan {
    /// Returns the next byte that is neither quoted nor in a comment, or `None` at the end of the text read
    /// so far.
    pub fn next(&mut self, text: &str) -> Option<Plain> {
        let bytes = text.as_bytes();
        while let Some(byte) = bytes.get(self.at).copied() {
            let next = bytes.get(self.at + 1).copied().unwrap_or(0);
            match &mut self.state {
                At::Plain => return self.plain(text, byte, next),
                At::Quoted { escapes: true, .. } if byte == b'\\' => self.at += 1,
                At::Quoted { quote, .. } if byte == *quote => self.state = At::Plain,
                At::Dollar(tag) if bytes[self.at..].starts_with(&bytes[tag.clone()]) => {
                    self.at += tag.len() - 1;
                    self.state = At::Plain;
                }
                At::Comment(depth) if (byte, next) == (b'/', b'*') => {
                    *depth += 1;
                    self.at += 1;
                }
                At::Comment(depth) if (byte, next) == (b'*', b'/') => {
                    *depth -= 1;
                    self.at += 1;
                    if *depth == 0 {
                        self.state = At::Plain;
                    }
                }
                At::Line if byte == b'\n' => self.state = At::Plain,
                At::Quoted { .. } | At::Dollar(_) | At::Comment(_) | At::Line => {}
            }
            self.at += 1;
        }
        None
    }

    /// Handles a byte that is neither quoted nor in a comment. It may begin such a part.
    fn plain(&mut self, text: &str, byte: u8, next: u8) -> Option<Plain> {
        let before = &text.as_bytes()[..self.at];
        let mut found = Plain { at: self.at, byte, depth: self.depth };
        self.at += 1;
        match byte {
            b'(' => self.depth += 1,
            b')' => {
                self.depth = self.depth.saturating_sub(1);
                found.depth = self.depth;
            }
            b'\'' => self.state = At::Quoted { quote: b'\'', escapes: has_escapes(before) },
            b'"' => self.state = At::Quoted { quote: b'"', escapes: false },
            b'-' if next == b'-' => {
                self.state = At::Line;
                found.byte = b' ';
            }
            b'/' if next == b'*' => {
                self.state = At::Comment(1);
                self.at += 1;
            }
            b'$' => {
                if let Some(length) = dollar_tag(&text.as_bytes()[found.at..], before) {
                    self.state = At::Dollar(found.at..found.at + length);
                    self.at = found.at + length;
                }
            }
            _ => {}
        }
        Some(found)
    }

    /// Adjusts positions after the first bytes of the text were removed.
    fn move_back(&mut self, bytes: usize) {
        self.at -= bytes;
        if let At::Dollar(tag) = &mut self.state {
            *tag = tag.start - bytes..tag.end - bytes;
        }
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Returns whether a string that begins here has backslash escapes: E'...'.
fn has_escapes(before: &[u8]) -> bool {
    let [rest @ .., b'e' | b'E'] = before else { return false };
    rest.last().is_none_or(|byte| !is_name_byte(*byte))
}

/// Returns the length of `$tag$` at the beginning of a text in bytes, if it is not part of a name or a
/// parameter.
fn dollar_tag(text: &[u8], before: &[u8]) -> Option<usize> {
    if before.last().is_some_and(|byte| is_name_byte(*byte)) {
        return None;
    }
    let length = text[1..].iter().take_while(|byte| is_name_byte(**byte)).count();
    let is_tag = text.get(length + 1) == Some(&b'$') && !text[1].is_ascii_digit();
    is_tag.then_some(length + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str], rest: &str) {
        let mut at_once = Splitter::default();
        text.lines().for_each(|line| at_once.push(line));
        let cut: Vec<String> = std::iter::from_fn(|| at_once.next()).collect();
        assert_eq!(
            (cut.iter().map(String::as_str).collect::<Vec<_>>(), at_once.rest().as_str()),
            (expect.to_vec(), rest)
        );
        let mut by_line = Splitter::default();
        let mut cut = Vec::new();
        for line in text.lines() {
            by_line.push(line);
            cut.extend(std::iter::from_fn(|| by_line.next()));
        }
        assert_eq!(cut, expect, "line by line");
        assert_eq!(by_line.rest(), rest, "line by line");
    }

    #[test]
    fn statements_end_at_their_semicolons() {
        check("select 1; select 2;", &["select 1;", "select 2;"], "");
        check("select\n1\n; sel", &["select\n1\n;"], "sel");
        check("select 'a;''b;' ; x", &["select 'a;''b;' ;"], "x");
        check(r"select 'a\'; select E'a\'; b'; y", &[r"select 'a\';", r"select E'a\'; b';"], "y");
        check("select \"a;b\"; -- c;\nselect 2;", &["select \"a;b\";", "-- c;\nselect 2;"], "");
        check("select /* ; /* ; */ ; */ 1;", &["select /* ; /* ; */ ; */ 1;"], "");
        check("select $$ ; $$, $t$ ; $$ ; $t$, $1;", &["select $$ ; $$, $t$ ; $$ ; $t$, $1;"], "");
        check("create rule r as (a; b); select 'ä;ö';", &["create rule r as (a; b);", "select 'ä;ö';"], "");
        check("select 'open;", &[], "select 'open;");
        check("select 1; $t$\n;\n$t$ x; y", &["select 1;", "$t$\n;\n$t$ x;"], "y");
        check("select E'\\\n;'; /* a\n; */ b;", &["select E'\\\n;';", "/* a\n; */ b;"], "");
        check("select $a; select $1$2;", &["select $a;", "select $1$2;"], "");
    }

    #[test]
    fn comments_to_the_end_of_a_line_begin_nothing() {
        let mut splitter = Splitter::default();
        for line in ["-- a 'comment;", "  ", "", "--"] {
            splitter.push(line);
            assert_eq!((splitter.next(), splitter.is_empty()), (None, true), "{line}");
        }
        splitter.push("select 1; -- more");
        assert_eq!(splitter.next().as_deref(), Some("--\nselect 1;"));
        assert_eq!((splitter.next(), splitter.is_empty()), (None, true));
        splitter.push("/* begun");
        assert_eq!((splitter.next(), splitter.is_empty()), (None, false));
    }

    /// Found earlier: each line scanned the whole statement again, so 20,000 lines took a minute.
    #[test]
    fn many_lines_take_no_longer_than_one() {
        let mut splitter = Splitter::default();
        let line = "(1, 'some text', $$more of it$$),".repeat(10);
        let began = std::time::Instant::now();
        for _ in 0..20_000 {
            splitter.push(&line);
            assert_eq!(splitter.next(), None);
            assert!(!splitter.is_empty());
        }
        splitter.push("(2);".repeat(100_000).as_str());
        assert_eq!(std::iter::from_fn(|| splitter.next()).count(), 100_000);
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
