//! Reads AS OF at the end of a query, which PostgreSQL's grammar does not have:
//!
//! ```text
//! query AS OF { TIMESTAMP 'time' | LSN 'lsn' } [;]
//! ```
//!
//! PostgreSQL refuses each text that ends so. So no text has two meanings.
//!
//! This module does not know what a time or an LSN looks like (`crate::moment`).

use super::{Parsed, Token, statement_in, tokens};
use crate::ast::{AsOf, Statement};
use crate::error::{Result, SqlError, SqlState};

/// Reads one statement, which may be a query with AS OF.
pub fn statement_as_of(sql: &str, database: Option<&str>) -> Result<(Parsed, Option<AsOf>)> {
    let refused = match statement_in(sql, database) {
        Err(e) if e.sqlstate == SqlState::SYNTAX_ERROR => e,
        read => return read.map(|parsed| (parsed, None)),
    };
    let Some((query, as_of)) = cut(sql) else { return Err(refused) };
    match statement_in(query, database)? {
        Parsed::Sql(statement) if matches!(*statement, Statement::Query(_)) => {
            Ok((Parsed::Sql(statement), Some(as_of)))
        }
        _ => Err(SqlError::unsupported("AS OF in a statement other than SELECT, VALUES, TABLE and WITH")
            .with_hint("SET as_of makes all statements of the session read an earlier moment.")),
    }
}

/// Splits a text into the query and its AS OF clause. `None` if the text does not end with AS OF.
fn cut(sql: &str) -> Option<(&str, AsOf)> {
    let mut tokens = tokens(sql).ok()?;
    if tokens.last().is_some_and(|last| last.is(";")) {
        tokens.pop();
    }
    let [.., as_, of, kind, text] = tokens.as_slice() else { return None };
    let is_kind = |word: &str| kind.is_word(word);
    let is_as_of = as_.is_word("as") && of.is_word("of") && (is_kind("timestamp") || is_kind("lsn"));
    let text = Token::string(text).filter(|_| is_as_of)?;
    Some((sql.get(..as_.start)?, AsOf { is_lsn: is_kind("lsn"), text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> Option<AsOf> {
        statement_as_of(sql, None).unwrap().1
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
