//! Translates patterns of SIMILAR TO and `substring(... similar ...)` to regular expressions.
//!
//! Source: SQL:2016, 8.6 and 6.32. Where the standard leaves a case open, PostgreSQL's `similar_to_escape`
//! decides.
//!
//! This module does not know how regular expressions are matched.

use crate::error::{Result, SqlError, SqlState};

/// Returns the regular expression for a SIMILAR TO pattern. Two escapes with double quotes make a group of
/// the text between them. The text before this group is as short as possible.
pub fn pattern(written: &str, escape: &str) -> Result<String> {
    let mut letters = escape.chars();
    let escape = match (letters.next(), letters.next()) {
        (first, None) => first,
        _ => {
            return Err(SqlError::new(SqlState::INVALID_ESCAPE, "invalid escape string")
                .with_hint("Escape string must be empty or one character."));
        }
    };
    let has_group = escape.is_some_and(|e| written.contains(&format!("{e}\"")));
    let mut made = Made { out: String::from("^(?:"), is_short: has_group, in_brackets: false, quotes: 0 };
    let mut chars = written.chars();
    while let Some(c) = chars.next() {
        if Some(c) != escape {
            made.plain(c);
            continue;
        }
        match chars.next() {
            Some('"') if !made.in_brackets => made.separator()?,
            Some(escaped) => {
                made.out.push('\\');
                made.out.push(escaped);
            }
            // An escape character at the end has no effect.
            None => {}
        }
    }
    made.out.push_str(")$");
    Ok(made.out)
}

struct Made {
    out: String,
    /// Whether repetitions are non-greedy.
    is_short: bool,
    in_brackets: bool,
    quotes: usize,
}

impl Made {
    fn plain(&mut self, c: char) {
        if self.in_brackets {
            if c == '\\' {
                self.out.push('\\');
            }
            self.in_brackets = c != ']';
            return self.out.push(c);
        }
        match c {
            '%' => self.out.push_str(".*"),
            '_' => self.out.push('.'),
            '(' => self.out.push_str("(?:"),
            '\\' | '.' | '^' | '$' => {
                self.out.push('\\');
                self.out.push(c);
            }
            other => self.out.push(other),
        }
        self.in_brackets = c == '[';
        if self.is_short && matches!(c, '%' | '*' | '+' | '?' | '}') {
            self.out.push('?');
        }
    }

    fn separator(&mut self) -> Result<()> {
        self.quotes += 1;
        match self.quotes {
            1 => self.out.push_str(")("),
            2 => self.out.push_str(")(?:"),
            _ => {
                let message =
                    "SQL regular expression may not contain more than two escape-double-quote separators";
                return Err(SqlError::new(SqlState("2200C"), message));
            }
        }
        self.is_short = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::pattern;

    #[test]
    fn patterns_become_regular_expressions() {
        for (written, escape, made) in [
            ("a%b_", "#", "^(?:a.*b.)$"),
            ("%#\"b_#\"%", "#", "^(?:.*?)(b.)(?:.*)$"),
            ("a#%[^%#]]", "#", "^(?:a\\%[^%\\]])$"),
            ("(a|b).", "\\", "^(?:(?:a|b)\\.)$"),
        ] {
            assert_eq!(pattern(written, escape).unwrap(), made, "{written}");
        }
        assert!(pattern("a", "ab").is_err());
    }
}
