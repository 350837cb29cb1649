//! Translates LinkBench's statements from PostgreSQL's dialect to MySQL's. It only handles the words and
//! literals of these statements.

/// Words of PostgreSQL's dialect, and how MySQL's dialect writes them.
const WORDS: [(&str, &str); 3] = [
    ("bigserial PRIMARY KEY", "bigint AUTO_INCREMENT PRIMARY KEY"),
    ("bytea", "mediumblob"),
    ("ON CONFLICT (id, link_type) DO UPDATE SET", "ON DUPLICATE KEY UPDATE"),
];

/// A statement with `?` for its parameters, and for each `?` the index of its parameter, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rewritten {
    pub(super) text: String,
    pub(super) params: Vec<usize>,
}

impl Rewritten {
    /// Rewrites a statement. Each of `$1`, `$2` ... becomes a `?`.
    pub(super) fn of(sql: &str) -> Self {
        let words = words(sql);
        let (mut text, mut params) = (String::with_capacity(words.len()), Vec::new());
        let mut rest = words.as_str();
        while let Some((before, behind)) = rest.split_once('$') {
            let digits = behind.len() - behind.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, after) = behind.split_at(digits);
            text.push_str(before);
            match number.parse::<usize>() {
                Ok(number) => {
                    text.push('?');
                    params.push(number.saturating_sub(1));
                }
                Err(_) => text.push('$'),
            }
            rest = after;
        }
        text.push_str(rest);
        Self { text, params }
    }
}

/// Rewrites a text without parameters.
pub(super) fn text(sql: &str) -> String {
    words(sql)
}

fn words(sql: &str) -> String {
    let bytes = sql.replace("'\\x", "x'");
    WORDS.iter().fold(bytes, |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_the_text() {
        let rewritten = Rewritten::of("UPDATE t SET data = $4, time = $3 WHERE id = $1 OR id = $12 OR $3");
        assert_eq!(rewritten.text, "UPDATE t SET data = ?, time = ? WHERE id = ? OR id = ? OR ?");
        assert_eq!(rewritten.params, [3, 2, 0, 11, 2]);
    }

    #[test]
    fn literals_and_types() {
        assert_eq!(text("INSERT INTO t VALUES (1, '\\x00ff')"), "INSERT INTO t VALUES (1, x'00ff')");
        assert_eq!(text("data bytea NOT NULL"), "data mediumblob NOT NULL");
        let counted = Rewritten::of("INSERT ... ON CONFLICT (id, link_type) DO UPDATE SET count = 1");
        assert_eq!(counted.text, "INSERT ... ON DUPLICATE KEY UPDATE count = 1");
    }
}
