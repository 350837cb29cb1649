//! Scans the text of a simple query once. It finds the end of each statement, and replaces literals by
//! parameters. So texts that differ only in their literals share one cached plan.
//!
//! Invariants
//! 1. The new text parses to the statement of the original text, with parameters in place of literals. Some
//!    literals are not values in PostgreSQL's grammar, and stay in the text: ORDER BY 1, char(10), DATE
//!    '...'.
//! 2. If the new text fails to parse or bind, the caller uses the original text. So the client never sees an
//!    error about the new text.
//! 3. Rows of INSERT ... VALUES with the same shape become one template row. Their literals are in
//!    `literals`, row after row.
//! 4. A scan allocates nothing once the buffers of `Lifted` have grown.
//!
//! This module knows no grammar except tokens, and no types except those of literals.

use crate::lexeme::{block_comment_end, continuation, dollar_end, is_word};
use crate::oid::{self, Oid};

/// A literal that was removed from the text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Literal<'a> {
    /// Digits that fit an i64.
    Int(i64),
    /// Any other number, as written.
    Number(&'a str),
    /// The inside of a quoted string without doubled quotes.
    Text(&'a str),
    /// The inside of a quoted string in which quotes are doubled.
    Doubled(&'a str),
}

impl Literal<'_> {
    /// Returns PostgreSQL's type of the literal. Strings are unknown (0).
    fn type_oid(self) -> Oid {
        match self {
            Literal::Int(n) if i32::try_from(n).is_ok() => oid::INT4,
            Literal::Int(_) => oid::INT8,
            Literal::Number(_) => oid::NUMERIC,
            Literal::Text(_) | Literal::Doubled(_) => oid::UNSPECIFIED,
        }
    }
}

/// The result of a scan. It can be reused for the next statement.
#[derive(Debug, Default)]
pub struct Lifted<'a> {
    /// The statement with `$n` for each lifted literal (of the first row, if rows collapsed).
    pub text: String,
    /// Types of `$1`...
    pub types: Vec<Oid>,
    /// The literals, `types.len()` for each row.
    pub literals: Vec<Literal<'a>>,
    /// The number of rows that the template stands for. It is 1 unless rows were collapsed.
    pub row_count: usize,
    /// Whether `text` may be used in place of the original.
    pub usable: bool,
}

/// Extent of one statement in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte that is not blank or comment.
    pub start: usize,
    /// The position after the last byte, without the semicolon.
    pub end: usize,
    /// The position at which the next statement's text begins.
    pub next: usize,
}

/// Finds the statement that starts at or after `from`. If it is one of the four DML verbs, its literals are
/// lifted into `out`. `None` means that only blanks, comments and semicolons are left.
pub fn next_statement<'a>(sql: &'a str, from: usize, out: &mut Lifted<'a>) -> Option<Extent> {
    out.text.clear();
    out.types.clear();
    out.literals.clear();
    out.row_count = 1;
    let mut scanner = Scanner::new(sql, from, out);
    scanner.skip_empty();
    if scanner.at >= sql.len() {
        return None;
    }
    let start = scanner.at;
    scanner.choose_lifting();
    scanner.run();
    let end = scanner.at;
    scanner.finish();
    Some(Extent { start, end, next: (end + 1).min(sql.len()) })
}

/// The kind of the token before the current one.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    /// An operator, comma, parenthesis, or a keyword after which a string is a value.
    Open,
    /// A word after which a string literal belongs to the word (DATE '...').
    Word,
    /// A literal or closing parenthesis.
    Closed,
}

struct Scanner<'a, 'o> {
    sql: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// Text before this has been copied to `out.text`.
    copied: usize,
    out: &'o mut Lifted<'a>,
    before: Before,
    depth: u32,
    /// Depth of parentheses inside which numbers are type modifiers.
    modifier_depth: Option<u32>,
    /// The depth of the present ORDER BY or GROUP BY.
    by_depth: Option<u32>,
    last_word_is_type: bool,
    rows: Option<Rows>,
}

/// State of INSERT's VALUES list while all its rows have the same shape.
struct Rows {
    /// The position in `out.text` at which the current row begins.
    row_text: usize,
    /// The first row's template, in `out.text`.
    template: Option<(usize, usize)>,
    /// The number of literals before the current row.
    row_literals: usize,
    /// The depth at which rows begin.
    depth: u32,
}

impl<'a, 'o> Scanner<'a, 'o> {
    fn new(sql: &'a str, from: usize, out: &'o mut Lifted<'a>) -> Self {
        Scanner {
            sql,
            bytes: sql.as_bytes(),
            at: from,
            copied: from,
            out,
            before: Before::Open,
            depth: 0,
            modifier_depth: None,
            by_depth: None,
            last_word_is_type: false,
            rows: None,
        }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Skips blanks, comments and empty statements.
    fn skip_empty(&mut self) {
        loop {
            match self.peek(0) {
                b' ' | b'\t' | b'\n' | b'\r' | b'\x0c' | b';' => self.at += 1,
                b'-' if self.peek(1) == b'-' => self.line_comment(),
                b'/' if self.peek(1) == b'*' => self.block_comment(),
                _ => break,
            }
        }
        self.copied = self.at;
    }

    fn choose_lifting(&mut self) {
        let word = self.word_at(self.at);
        let lifts = ["select", "insert", "update", "delete"].iter().any(|w| word.eq_ignore_ascii_case(w));
        self.out.usable = lifts;
    }

    fn word_at(&self, start: usize) -> &'a str {
        let len = self.bytes[start..].iter().take_while(|b| is_word(**b)).count();
        &self.sql[start..start + len]
    }

    /// Scans to the end of the statement.
    fn run(&mut self) {
        while self.at < self.bytes.len() {
            match self.bytes[self.at] {
                b';' if self.depth == 0 => break,
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                b'\'' => self.string(),
                b'"' => self.quoted_name(),
                b'$' => self.dollar(),
                b'0'..=b'9' => self.number(),
                b'.' if self.peek(1).is_ascii_digit() => self.number(),
                b'-' if self.peek(1) == b'-' => self.line_comment(),
                b'/' if self.peek(1) == b'*' => self.block_comment(),
                b if is_word(b) => self.word(),
                b => self.punctuation(b),
            }
        }
    }

    fn finish(&mut self) {
        if self.out.usable {
            self.flush_text();
            self.close_rows();
        }
    }

    fn flush_text(&mut self) {
        self.out.text.push_str(&self.sql[self.copied..self.at]);
        self.copied = self.at;
    }

    fn line_comment(&mut self) {
        let rest = &self.bytes[self.at..];
        self.at += memchr::memchr(b'\n', rest).map_or(rest.len(), |n| n + 1);
    }

    fn block_comment(&mut self) {
        self.at = block_comment_end(self.bytes, self.at);
    }

    /// Skips a quoted part whose opening quote is at `self.at`. Returns true if it has a doubled quote.
    fn skip_quoted(&mut self, quote: u8, backslash: bool) -> bool {
        let mut doubled = false;
        self.at += 1;
        while self.at < self.bytes.len() {
            let b = self.bytes[self.at];
            if b == quote && self.peek(1) == quote {
                doubled = true;
                self.at += 1;
            } else if b == quote {
                self.at += 1;
                return doubled;
            } else if backslash && b == b'\\' {
                self.at += 1;
            }
            self.at += 1;
        }
        self.at = self.bytes.len();
        self.out.usable = false;
        doubled
    }

    fn string(&mut self) {
        let start = self.at;
        let doubled = self.skip_quoted(b'\'', false);
        self.out.usable &= continuation(self.bytes, self.at).is_none();
        if self.out.usable && self.before == Before::Open && self.by_depth.is_none() {
            let inside = &self.sql[start + 1..self.at - 1];
            let literal = if doubled { Literal::Doubled(inside) } else { Literal::Text(inside) };
            self.lift(start, literal);
        }
        self.before = Before::Closed;
    }

    fn quoted_name(&mut self) {
        self.skip_quoted(b'"', false);
        self.before = Before::Word;
        self.last_word_is_type = false;
    }

    /// Handles a parameter or a dollar-quoted string. Literals of such statements are not lifted.
    fn dollar(&mut self) {
        self.out.usable = false;
        let (end, is_quote) = dollar_end(self.bytes, self.at);
        self.at = end;
        if is_quote {
            self.before = Before::Closed;
        }
    }

    fn number(&mut self) {
        let start = self.at;
        let mut plain = true;
        while self.at < self.bytes.len() {
            match self.bytes[self.at] {
                b'0'..=b'9' => {}
                b'.' => plain = false,
                b'e' | b'E' if self.exponent_follows() => {
                    plain = false;
                    self.at += 1;
                }
                _ => break,
            }
            self.at += 1;
        }
        if is_word(self.peek(0)) {
            // Forms such as 0x10, 1_000 and 5abc are left to the parser.
            self.out.usable = false;
        }
        if self.out.usable && self.modifier_depth.is_none() && self.by_depth.is_none() {
            let text = &self.sql[start..self.at];
            let int: Option<i64> = if plain { text.parse().ok() } else { None };
            // With a minus, the type of these two numbers is narrower, so they are left to the parser.
            let on_the_edge = int == Some(1 << 31) || text.trim_start_matches('0') == "9223372036854775808";
            self.out.usable &= !on_the_edge;
            self.lift(start, int.map_or(Literal::Number(text), Literal::Int));
        }
        self.before = Before::Closed;
    }

    fn exponent_follows(&self) -> bool {
        let after = self.peek(1);
        after.is_ascii_digit() || (matches!(after, b'+' | b'-') && self.peek(2).is_ascii_digit())
    }

    /// Replaces the literal that started at `start` and ends here by the next parameter.
    fn lift(&mut self, start: usize, literal: Literal<'a>) {
        self.out.text.push_str(&self.sql[self.copied..start]);
        self.copied = self.at;
        let row_start = self.rows.as_ref().map_or(0, |r| r.row_literals);
        let number = self.out.literals.len() + 1 - row_start;
        self.out.text.push('$');
        self.out.text.push_str(itoa::Buffer::new().format(number));
        self.out.literals.push(literal);
        if self.rows.as_ref().is_none_or(|r| r.template.is_none()) {
            self.out.types.push(literal.type_oid());
        }
    }

    fn word(&mut self) {
        let word = self.word_at(self.at);
        let start = self.at;
        self.at += word.len();
        if self.peek(0) == b'\'' && matches!(word, "e" | "E" | "b" | "B" | "x" | "X" | "n" | "N") {
            let backslash = word.eq_ignore_ascii_case("e");
            self.skip_quoted(b'\'', backslash);
            while let Some(next) = continuation(self.bytes, self.at) {
                self.at = next;
                self.skip_quoted(b'\'', backslash);
            }
            self.before = Before::Closed;
            return;
        }
        if word.eq_ignore_ascii_case("u") && self.peek(0) == b'&' {
            self.out.usable = false;
        }
        self.last_word_is_type = false;
        if !self.out.usable {
            return;
        }
        self.before = Before::Word;
        // A name after a dot is never a keyword.
        if start > 0 && self.bytes[start - 1] == b'.' {
            return;
        }
        self.keyword(word);
    }

    fn keyword(&mut self, word: &str) {
        let is = |options: &[&str]| options.iter().any(|o| word.eq_ignore_ascii_case(o));
        match word.len() {
            2 if is(&["by"]) => self.by_depth = Some(self.depth),
            // Outputs are compared with the keys of grouping sets by their text, and two parameters never
            // have the same text.
            4 | 6 if is(&["cube", "sets", "rollup"]) => self.out.usable = false,
            2..=9 if is(&OPENERS) => self.before = Before::Open,
            5 | 6 if is(&["limit", "offset", "having"]) => self.by_depth = None,
            3 if is(&["for"]) => {
                self.by_depth = None;
                self.before = Before::Open;
            }
            _ => self.last_word_is_type = is(&MODIFIED_TYPES),
        }
        if is(&["values"]) && self.depth == 0 && self.rows.is_none() && self.out.literals.is_empty() {
            self.flush_text();
            let row_text = self.out.text.len();
            self.rows = Some(Rows { row_text, template: None, row_literals: 0, depth: 0 });
        }
    }

    fn punctuation(&mut self, b: u8) {
        self.at += 1;
        self.before = Before::Open;
        match b {
            b'(' => {
                self.depth += 1;
                if self.last_word_is_type && self.modifier_depth.is_none() {
                    self.modifier_depth = Some(self.depth);
                }
            }
            b')' => self.close_parenthesis(),
            b']' => self.before = Before::Closed,
            b',' if self.rows.as_ref().is_some_and(|r| r.depth == self.depth) => self.next_row(),
            _ => {}
        }
        self.last_word_is_type = false;
    }

    fn close_parenthesis(&mut self) {
        if self.modifier_depth == Some(self.depth) {
            self.modifier_depth = None;
        }
        if self.by_depth == Some(self.depth) {
            self.by_depth = None;
        }
        self.depth = self.depth.saturating_sub(1);
        self.before = Before::Closed;
    }

    /// Handles a comma between rows. The row before it becomes the template, or is compared with the template
    /// and removed from the text.
    fn next_row(&mut self) {
        // The comma itself is not part of a row's template.
        self.at -= 1;
        self.flush_text();
        self.at += 1;
        self.fold_row();
        if self.rows.is_some() {
            self.copied = self.at;
        }
    }

    /// Ends the current row. If rows differ, the list is given up, and the original text is used.
    fn fold_row(&mut self) {
        let Some(rows) = &mut self.rows else { return };
        let row = (rows.row_text, self.out.text.len());
        match rows.template {
            None => rows.template = Some(row),
            Some(template) => {
                let text = self.out.text.as_str();
                let alike = text[template.0..template.1].trim() == text[row.0..row.1].trim();
                let literals = self.out.literals.len() - rows.row_literals;
                if !alike || literals != self.out.types.len() {
                    self.out.usable = false;
                    return;
                }
                self.out.text.truncate(row.0);
                widen(&mut self.out.types, &self.out.literals[rows.row_literals..], &mut self.out.usable);
                self.out.row_count += 1;
            }
        }
        rows.row_text = self.out.text.len();
        rows.row_literals = self.out.literals.len();
    }

    /// Ends the last row, which is still open at the end of the statement. Text after the last row
    /// (RETURNING, ON CONFLICT) makes the row differ from the template, so only plain lists are collapsed.
    fn close_rows(&mut self) {
        if self.rows.as_ref().is_some_and(|r| r.template.is_some()) {
            self.fold_row();
        }
    }
}

/// Widens each type for the literals of one more row, as PostgreSQL resolves a VALUES list.
fn widen(types: &mut [Oid], literals: &[Literal<'_>], usable: &mut bool) {
    for (t, literal) in types.iter_mut().zip(literals) {
        let other = literal.type_oid();
        if *t == other {
            continue;
        }
        let rank = |o: Oid| [oid::INT4, oid::INT8, oid::NUMERIC].iter().position(|x| *x == o);
        match (rank(*t), rank(other)) {
            (Some(a), Some(b)) => *t = if a >= b { *t } else { other },
            _ => *usable = false,
        }
    }
}

/// Words after which a quoted string is a separate value.
const OPENERS: [&str; 19] = [
    "like",
    "ilike",
    "between",
    "and",
    "or",
    "not",
    "in",
    "where",
    "select",
    "then",
    "else",
    "when",
    "returning",
    "distinct",
    "values",
    "escape",
    "case",
    "set",
    "from",
];

/// Type names with modifiers in parentheses.
const MODIFIED_TYPES: [&str; 15] = [
    "char",
    "character",
    "varchar",
    "varying",
    "bpchar",
    "nchar",
    "numeric",
    "decimal",
    "dec",
    "bit",
    "float",
    "time",
    "timestamp",
    "timestamptz",
    "interval",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn lifted(sql: &str) -> (String, Vec<Literal<'_>>, usize, bool) {
        let mut out = Lifted::default();
        next_statement(sql, 0, &mut out);
        (out.text, out.literals, out.row_count, out.usable)
    }

    #[test]
    fn literals_leave_the_text() {
        let (text, literals, rows, usable) =
            lifted("SELECT c FROM sbtest1 WHERE id=898 AND d = 'it''s' -- x");
        assert_eq!(text.trim_end(), "SELECT c FROM sbtest1 WHERE id=$1 AND d = $2 -- x");
        assert_eq!(literals, [Literal::Int(898), Literal::Doubled("it''s")]);
        assert!(usable && rows == 1);
    }

    #[test]
    fn literals_that_are_not_values_stay() {
        for sql in [
            "select a from t order by 1, 2",
            "select a::numeric(10,2) from t group by 1",
            "select date '2020-01-01'",
            "select E'a\\'b'",
        ] {
            assert_eq!(lifted(sql).0, sql);
        }
        let (text, ..) = lifted("select a from t order by 1 limit 5");
        assert_eq!(text, "select a from t order by 1 limit $1");
    }

    #[test]
    fn alike_rows_collapse() {
        let (text, literals, rows, usable) = lifted("INSERT INTO t VALUES(1,'a'), (3000000000,'b'),(3,'c')");
        assert_eq!(text, "INSERT INTO t VALUES($1,$2)");
        assert!(usable && rows == 3 && literals.len() == 6);
        assert!(!lifted("insert into t values (1), (default)").3);
        let (text, _, rows, usable) = lifted("insert into t values (1, -2) returning a");
        assert_eq!((text.as_str(), rows, usable), ("insert into t values ($1, -$2) returning a", 1, true));
        assert!(!lifted("insert into t values (1), (2) returning a").3);
    }

    #[test]
    fn statements_split_outside_quotes() {
        let sql = "; select ';' ; /* ; */ select $$;$$; -- end";
        let mut out = Lifted::default();
        let first = next_statement(sql, 0, &mut out).unwrap();
        assert_eq!(&sql[first.start..first.end], "select ';' ");
        let second = next_statement(sql, first.next, &mut out).unwrap();
        assert_eq!(&sql[second.start..second.end], "select $$;$$");
        assert!(next_statement(sql, second.next, &mut out).is_none());
    }
}
