//! Reads AS OF at the end of a query, which PostgreSQL's grammar does not have:
//!
//! ```text
//! query AS OF { TIMESTAMP time | LSN lsn } [;]
//! ```
//!
//! `time` and `lsn` are strings or other expressions. PostgreSQL refuses each text with such an end. So no
//! text has two meanings.
//!
//! This module does not know what a time or an LSN looks like (`crate::moment`).

use super::{Parsed, Token, expression, statement_in, tokens};
use crate::ast::{AsOf, AsOfClause, Statement};
use crate::error::{Result, SqlError, SqlState};

/// The hint that says where AS OF belongs. Other databases have it at other places.
const PLACE: &str =
    "AS OF comes once, at the end of the whole query: SELECT ... FROM ... WHERE ... AS OF TIMESTAMP '...'.";

/// Reads one statement, which may be a query with AS OF.
pub fn statement_as_of(sql: &str, database: Option<&str>) -> Result<(Parsed, Option<AsOfClause>)> {
    let refused = match statement_in(sql, database) {
        Err(e) if e.sqlstate == SqlState::SYNTAX_ERROR => e,
        read => return read.map(|parsed| (parsed, None)),
    };
    let Some(tokens) = tokens(sql).ok().filter(|tokens| tokens.iter().any(|token| token.is_word("of")))
    else {
        return Err(refused);
    };
    let Some((query, as_of)) = cut(sql, &tokens) else { return Err(placed(refused, &tokens)) };
    match statement_in(query, database).map_err(|e| placed(e, &tokens))? {
        Parsed::Sql(statement) if matches!(*statement, Statement::Query(_)) => {
            Ok((Parsed::Sql(statement), Some(as_of)))
        }
        _ => Err(SqlError::unsupported("AS OF in a statement other than SELECT, VALUES, TABLE and WITH")
            .with_hint("SET as_of makes all statements of the session read an earlier moment.")),
    }
}

/// Splits a text into the query and its AS OF clause. Returns `None` if the text does not end with AS OF.
fn cut<'t>(sql: &'t str, tokens: &[Token<'t>]) -> Option<(&'t str, AsOfClause)> {
    let tokens = match tokens {
        [tokens @ .., last] if last.is(";") => tokens,
        tokens => tokens,
    };
    let at = tokens.windows(3).rposition(|words| is_as_of(words) && !is_system(words))?;
    let [as_, _, kind, moment @ ..] = &tokens[at..] else { return None };
    let is_lsn = kind.is_word("lsn");
    let query = sql.get(..as_.start)?;
    if let [text] = moment
        && let Some(text) = text.string()
    {
        return Some((query, AsOfClause::Text(AsOf { is_lsn, text })));
    }
    let expr = expression(sql.get(moment.first()?.start..moment.last()?.end)?).ok()?;
    Some((query, AsOfClause::Expression { is_lsn, expr }))
}

/// Returns whether three words begin AS OF, here or in another database.
fn is_as_of(words: &[Token<'_>]) -> bool {
    let [as_, of, kind] = words else { return false };
    as_.is_word("as")
        && of.is_word("of")
        && ["timestamp", "lsn", "system"].into_iter().any(|word| kind.is_word(word))
}

/// Returns whether three words begin `AS OF SYSTEM TIME`.
fn is_system(words: &[Token<'_>]) -> bool {
    words.last().is_some_and(|kind| kind.is_word("system"))
}

/// Adds a hint to a syntax error of a text with AS OF at a place where it does not belong.
fn placed(refused: SqlError, tokens: &[Token<'_>]) -> SqlError {
    let is_of_table = |words: &[Token<'_>]| {
        words[0].is_word("system_time") && words[1].is_word("as") && words[2].is_word("of")
    };
    match tokens.windows(3).any(|words| is_as_of(words) || is_of_table(words)) {
        true if refused.sqlstate == SqlState::SYNTAX_ERROR => refused.with_hint(PLACE),
        _ => refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> Option<AsOf> {
        match statement_as_of(sql, None).unwrap().1 {
            Some(AsOfClause::Text(as_of)) => Some(as_of),
            Some(AsOfClause::Expression { .. }) => panic!("an expression: {sql}"),
            None => None,
        }
    }

    #[test]
    fn a_moment_may_be_an_expression() {
        for moment in ["now() - interval '1 minute'", "$1", "('2026-11-29' || $2)", "'a' || 'b'", "$1::date"]
        {
            let sql = format!("SELECT a FROM t WHERE b = 1 AS OF TIMESTAMP {moment};");
            let read = statement_as_of(&sql, None).unwrap().1;
            assert!(matches!(read, Some(AsOfClause::Expression { is_lsn: false, .. })), "{sql}");
        }
    }

    #[test]
    fn a_hint_names_the_place() {
        for sql in [
            "SELECT * FROM t AS OF TIMESTAMP '2026-11-29' WHERE a = 1",
            "SELECT * FROM t AS OF TIMESTAMP '2026-11-29' x JOIN u ON true",
            "SELECT * FROM (SELECT * FROM t AS OF LSN '0/0') x",
            "SELECT * FROM t AS OF TIMESTAMP '1', u AS OF TIMESTAMP '1'",
            "SELECT * FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '2026-11-29'",
            "SELECT * FROM t FOR SYSTEM_TIME AS OF '2026-11-29'",
            "SELECT * FROM t AS OF SYSTEM TIME '-10s'",
        ] {
            let e = statement_as_of(sql, None).unwrap_err();
            assert_eq!((e.sqlstate, e.hint.as_deref()), (SqlState::SYNTAX_ERROR, Some(PLACE)), "{sql}");
        }
        for sql in ["SELEC 1", "SELECT a AS of, FROM t", "SELECT 1 AS OF TIME '1'"] {
            assert_eq!(statement_as_of(sql, None).unwrap_err().hint, None, "{sql}");
        }
    }

    #[test]
    fn as_of_ends_a_query() {
        let time = AsOf { is_lsn: false, text: "2026-11-29 10:00".to_owned() };
        assert_eq!(read("SELECT 1 AS OF TIMESTAMP '2026-11-29 10:00'"), Some(time.clone()));
        assert_eq!(read("select a from t x as of timestamp '2026-11-29 10:00' ; -- then"), Some(time));
        let lsn = AsOf { is_lsn: true, text: "0/1F".to_owned() };
        assert_eq!(read("WITH w AS (SELECT 1) SELECT * FROM w AS\nOF LSN '0/1F'"), Some(lsn.clone()));
        assert_eq!(read("VALUES (1) AS OF LSN '0/1F'"), Some(lsn));
        assert_eq!(read("SELECT 1 AS of"), None);
    }

    #[test]
    fn other_texts_are_refused_as_ever() {
        for sql in ["SELECT 1 AS OF TIMESTAMP", "SELECT 1 AS OF TIME '1'", "AS OF LSN '0/0'x", "SELEC 1"] {
            let e = statement_as_of(sql, None).unwrap_err();
            assert_eq!(e.sqlstate, SqlState::SYNTAX_ERROR, "{sql}");
        }
        let e = statement_as_of("SELEC 1 AS OF LSN '0/0'", None).unwrap_err();
        assert_eq!((e.sqlstate, e.position), (SqlState::SYNTAX_ERROR, Some(1)));
        for sql in ["DELETE FROM t AS OF LSN '0/0'", "EXPLAIN SELECT 1 AS OF LSN '0/0'"] {
            let e = statement_as_of(sql, None).unwrap_err();
            assert_eq!(e.sqlstate, SqlState::FEATURE_NOT_SUPPORTED, "{sql}");
        }
    }
}
