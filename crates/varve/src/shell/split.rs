//! Where one statement ends and the next begins in text that comes line by line.
//!
//! Invariants
//! 1. A semicolon ends a statement only outside of strings, quoted names, comments and parentheses.
//!
//! What this file doesn't know: whether a statement is one that runs.

/// Cuts statements at their semicolons.
#[derive(Debug, Default)]
pub struct Splitter {
    text: String,
}

/// Where a scan is.
enum At<'t> {
    /// In a text between these; a backslash hides the character behind it if so marked.
    Quoted {
        quote: u8,
        escapes: bool,
    },
    /// In a text between dollar signs with this tag.
    Dollar(&'t str),
    /// In comments of this depth.
    Comment(u32),
    Plain,
}

impl Splitter {
    /// Takes one more line, without its end.
    pub fn push(&mut self, line: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
    }

    /// The next whole statement, with its semicolon.
    pub fn next(&mut self) -> Option<String> {
        let end = end_of_statement(&self.text)?;
        let rest = self.text.split_off(end);
        let statement = std::mem::replace(&mut self.text, rest.trim_start().to_owned());
        Some(statement)
    }

    /// What has no semicolon yet.
    pub fn rest(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Whether nothing, or nothing but blanks and comments to the end of a line, waits for its semicolon.
    pub fn is_empty(&self) -> bool {
        self.text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with("--"))
    }
}

/// Bytes up to the first semicolon that ends a statement, and it.
fn end_of_statement(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut state, mut depth, mut at) = (At::Plain, 0_u32, 0);
    while let Some(byte) = bytes.get(at) {
        let next = bytes.get(at + 1).copied().unwrap_or(0);
        let mut step = 1;
        match &mut state {
            At::Plain => match byte {
                b';' if depth == 0 => return Some(at + 1),
                b'(' => depth += 1,
                b')' => depth = depth.saturating_sub(1),
                b'\'' => state = At::Quoted { quote: b'\'', escapes: has_escapes(&bytes[..at]) },
                b'"' => state = At::Quoted { quote: b'"', escapes: false },
                b'-' if next == b'-' => step = text[at..].find('\n').unwrap_or(text.len() - at),
                b'/' if next == b'*' => (state, step) = (At::Comment(1), 2),
                b'$' => {
                    if let Some(tag) = dollar_tag(&text[at..], &bytes[..at]) {
                        (state, step) = (At::Dollar(tag), tag.len());
                    }
                }
                _ => {}
            },
            At::Quoted { escapes: true, .. } if *byte == b'\\' => step = 2,
            At::Quoted { quote, .. } if byte == quote => state = At::Plain,
            At::Dollar(tag) if text[at..].starts_with(*tag) => (step, state) = (tag.len(), At::Plain),
            At::Comment(depth) if *byte == b'/' && next == b'*' => (*depth, step) = (*depth + 1, 2),
            At::Comment(depth) if *byte == b'*' && next == b'/' => {
                (*depth, step) = (*depth - 1, 2);
                if *depth == 0 {
                    state = At::Plain;
                }
            }
            At::Quoted { .. } | At::Dollar(_) | At::Comment(_) => {}
        }
        at += step;
        while at < bytes.len() && !text.is_char_boundary(at) {
            at += 1;
        }
    }
    None
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Whether a string that begins here is one with backslashes: E'...'.
fn has_escapes(before: &[u8]) -> bool {
    let [rest @ .., b'e' | b'E'] = before else { return false };
    rest.last().is_none_or(|byte| !is_name_byte(*byte))
}

/// `$tag$` at the beginning of a text, if it is not part of a name or a parameter.
fn dollar_tag<'t>(text: &'t str, before: &[u8]) -> Option<&'t str> {
    if before.last().is_some_and(|byte| is_name_byte(*byte)) {
        return None;
    }
    let end = text.get(1..)?.find('$')? + 2;
    let tag = &text[1..end - 1];
    let is_tag = tag.bytes().all(is_name_byte) && !tag.starts_with(|c: char| c.is_ascii_digit());
    is_tag.then(|| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str], rest: &str) {
        let mut splitter = Splitter::default();
        text.lines().for_each(|line| splitter.push(line));
        let cut: Vec<String> = std::iter::from_fn(|| splitter.next()).collect();
        assert_eq!(
            (cut.iter().map(String::as_str).collect::<Vec<_>>(), splitter.rest().as_str()),
            (expect.to_vec(), rest)
        );
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
    }
}
