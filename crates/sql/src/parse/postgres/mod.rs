//! Runs PostgreSQL's own parser. The result is a tree, or PostgreSQL's error.
//!
//! Invariants
//! 1. Errors have PostgreSQL's text, SQLSTATE and position. The position counts characters.
//! 2. The parser and the conversion of its tree run on a stack that is large enough for the text. A text that
//!    would need more than the limit is refused (54001).
//!
//! This module does not know what statements mean.

mod alter;
pub mod call;
mod change;
mod definition;
pub mod elsewhere;
mod expression;
mod from;
mod layout;
mod library;
pub(crate) mod node;
mod place;
mod query;
mod sequence;
mod table;
mod tree;
mod types;
pub mod written;

use std::ffi::CString;

use library::Mode;
pub use pg_query::NodeEnum;
use pg_query::protobuf::{Node, RawStmt, SelectStmt};
use place::Reader;
pub use types::modifiers;

use crate::ast::{Definition, Expr, Statement, TypeName};
use crate::error::{Result, SqlError, SqlState};

/// The largest stack for parsing a text, decoding the tree, and converting it.
const STACK_BYTES_MAX: usize = 256 << 20;

/// The stack that every text needs: for the first states of PostgreSQL's automaton, and for building errors.
const STACK_BYTES_LEAST: usize = 512 << 10;

/// The stack for each byte of text. A level of the tree needs at least two bytes of text (`-` and a blank).
/// Decoding a level takes less stack than twice this size. In a build without optimizations, its functions
/// have frames of up to 25 KiB.
const STACK_BYTES_PER_TEXT_BYTE: usize = 16 << 10;

/// Returns the tree of one statement, or `None` if the text has no statement.
pub fn raw(sql: &str) -> Result<Option<NodeEnum>> {
    tree(sql, Mode::Statement)
}

/// Parses a text that is one expression.
pub fn expression(text: &str) -> Result<Expr> {
    with_room(text, || match tree(text, Mode::Expression)? {
        Some(NodeEnum::SelectStmt(query)) => match only_expression(&query) {
            Some(node) => Reader::new(text).expr(Some(node)),
            None => Err(super::no_expression(text)),
        },
        _ => Err(super::no_expression(text)),
    })
}

/// Returns the expression of a query that consists of nothing else. PostgreSQL parses a single expression as
/// a query without SELECT.
fn only_expression(query: &SelectStmt) -> Option<&Node> {
    let [Node { node: Some(NodeEnum::ResTarget(target)) }] = query.target_list.as_slice() else {
        return None;
    };
    let bare = SelectStmt { limit_option: query.limit_option, op: query.op, ..SelectStmt::default() };
    let is_bare = SelectStmt { target_list: Vec::new(), ..query.clone() } == bare;
    target.val.as_deref().filter(|_| is_bare && target.name.is_empty())
}

/// Returns whether `is_so` is true for one of the statements of a text.
pub fn any(sql: &str, is_so: &dyn Fn(&NodeEnum) -> bool) -> Result<bool> {
    with_room(sql, || {
        let statements = trees(sql, Mode::Statement)?;
        Ok(statements.iter().filter_map(|s| s.stmt.as_ref()?.node.as_ref()).any(is_so))
    })
}

fn tree(sql: &str, mode: Mode) -> Result<Option<NodeEnum>> {
    let mut statements = trees(sql, mode)?;
    if statements.len() > 1 {
        let message = "cannot insert multiple commands into a prepared statement";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    Ok(statements.pop().and_then(|statement| statement.stmt?.node))
}

fn trees(sql: &str, mode: Mode) -> Result<Vec<RawStmt>> {
    let Ok(text) = CString::new(sql) else {
        let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
        return Err(SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message));
    };
    let tree = with_room(sql, || library::parse(&text, mode));
    let tree = tree.map_err(|e| refused(e.message, e.position))?;
    tree.map_err(|e| SqlError::internal(format!("the parser's tree does not decode: {e}")))
}

/// Asserts that reading the parser's own tree has the same result as decoding the encoded tree.
#[cfg(feature = "fuzzing")]
pub fn compare_readings(sql: &str) {
    let Ok(text) = CString::new(sql) else { return };
    with_room(sql, || {
        let Some(read) = library::parsed_in_place(&text, Mode::Statement) else { return };
        match (read, library::parsed_by_message(&text, Mode::Statement)) {
            (Ok(read), Ok(Ok(decoded))) => assert!(read == decoded, "{sql}: {read:?} is read of {decoded:?}"),
            (Err(a), Err(b)) => assert_eq!((a.message, a.position), (b.message, b.position), "{sql}"),
            _ => panic!("{sql}: only one of two readings gives a tree"),
        }
    });
}

/// Runs code that creates, walks or drops the tree of a text, on a stack that is large enough.
pub fn with_room<T>(sql: &str, f: impl FnOnce() -> T) -> T {
    let room = STACK_BYTES_LEAST.saturating_add(sql.len().saturating_mul(STACK_BYTES_PER_TEXT_BYTE));
    let room = room.min(STACK_BYTES_MAX);
    // Nested calls need no new stack.
    stacker::maybe_grow(room, room + STACK_BYTES_LEAST, f)
}

/// Converts a definition. Returns `None` for other statements.
pub fn definition(sql: &str, node: &NodeEnum) -> Result<Option<Definition>> {
    // Other statements are not converted.
    let defines = match node {
        NodeEnum::SelectStmt(s) => definition::into_of(s).is_some(),
        NodeEnum::InsertStmt(_) | NodeEnum::UpdateStmt(_) | NodeEnum::DeleteStmt(_) => false,
        _ => true,
    };
    if defines { Reader::new(sql).definition(node) } else { Ok(None) }
}

/// Converts a query, INSERT, UPDATE or DELETE. Returns `None` for other statements.
pub fn mapped(sql: &str, node: &NodeEnum) -> Result<Option<Statement>> {
    let reader = Reader::new(sql);
    Ok(Some(match node {
        NodeEnum::SelectStmt(s) => Statement::Query(reader.query(s)?),
        NodeEnum::InsertStmt(i) => Statement::Insert(reader.insert(i)?),
        NodeEnum::UpdateStmt(u) => Statement::Update(reader.update(u)?),
        NodeEnum::DeleteStmt(d) => Statement::Delete(reader.delete(d)?),
        _ => return Ok(None),
    }))
}

/// Converts the expressions of a command.
pub fn expressions(sql: &str, list: &[Node]) -> Result<Vec<Expr>> {
    Reader::new(sql).exprs(list)
}

/// Converts the names of types of a command.
pub fn types(sql: &str, list: &[Node]) -> Result<Vec<TypeName>> {
    let reader = Reader::new(sql);
    let one = |node: &Node| match &node.node {
        Some(NodeEnum::TypeName(name)) => reader.type_name(name),
        other => Err(SqlError::internal(format!("a type in the place of {other:?}"))),
    };
    list.iter().map(one).collect()
}

/// Parts of error messages, and their SQLSTATEs. The first part that a message contains decides.
const STATES: [(&str, SqlState); 16] = [
    ("LIMIT #,#", SqlState::SYNTAX_ERROR),
    ("syntax error", SqlState::SYNTAX_ERROR),
    ("unterminated", SqlState::SYNTAX_ERROR),
    ("invalid byte sequence", SqlState::CHARACTER_NOT_IN_REPERTOIRE),
    ("implemented", SqlState::FEATURE_NOT_SUPPORTED),
    ("supported", SqlState::FEATURE_NOT_SUPPORTED),
    ("cannot be marked", SqlState::FEATURE_NOT_SUPPORTED),
    ("cannot be changed", SqlState::FEATURE_NOT_SUPPORTED),
    ("cannot be altered", SqlState::FEATURE_NOT_SUPPORTED),
    ("cannot include schema elements", SqlState::FEATURE_NOT_SUPPORTED),
    ("frame start", SqlState::WINDOWING_ERROR),
    ("frame end", SqlState::WINDOWING_ERROR),
    ("precision for type float", SqlState::INVALID_PARAMETER_VALUE),
    ("column number must be", SqlState::INVALID_PARAMETER_VALUE),
    ("unrecognized JSON encoding", SqlState::INVALID_PARAMETER_VALUE),
    ("role name", SqlState::RESERVED_NAME),
];

/// Makes PostgreSQL's error. The library returns no SQLSTATE, so the SQLSTATE is derived from the message.
fn refused(message: String, position: Option<u32>) -> SqlError {
    const DEPTHS: [&str; 3] = ["stack depth limit", "parse tree is nested too deeply", "memory exhausted"];
    if DEPTHS.iter().any(|start| message.starts_with(start)) {
        return too_deep();
    }
    if message.starts_with("invalid Unicode escape") && !message.contains("at or near") {
        return SqlError::new(SqlState::INVALID_ESCAPE, message)
            .with_hint("Unicode escapes must be \\uXXXX or \\UXXXXXXXX.")
            .at(position);
    }
    let told = STATES.iter().find(|(part, _)| message.contains(part));
    let state = told.map_or(SqlState::SYNTAX_ERROR, |(_, state)| *state);
    SqlError::new(state, message).at(position)
}

/// Returns the error 54001: the statement is nested too deeply.
fn too_deep() -> SqlError {
    let hint = format!(
        "Increase the configuration parameter \"max_stack_depth\" (currently {}kB), after ensuring the platform's stack depth limit \
         is adequate.",
        library::STACK_KIB
    );
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded").with_hint(hint)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn state(sql: &str) -> (&'static str, String, Option<u32>) {
        let e = raw(sql).unwrap_err();
        (e.sqlstate.0, e.message.into_string(), e.position)
    }

    #[test]
    fn errors_say_where() {
        let near = |token: &str| format!("syntax error at or near \"{token}\"");
        assert_eq!(state("select 'ä', from t"), ("42601", near("from"), Some(13)));
        assert_eq!(state("select (1"), ("42601", "syntax error at end of input".into(), Some(10)));
        assert_eq!(state("select 'a").1, "unterminated quoted string at or near \"'a\"");
        assert_eq!(state("select \0").0, "22021");
        assert_eq!(state("select 1; select 2").0, "42601");
        assert_eq!(state("create assertion a check (true)").0, "0A000");
    }

    #[test]
    fn nothing_is_nothing() {
        for sql in ["", " ;; ", "-- nothing", "/* /* */ */;"] {
            assert!(raw(sql).unwrap().is_none(), "{sql}");
        }
    }

    /// Every kind of deep nesting is either parsed, or refused as too deep.
    #[test]
    fn depth_ends_no_process() {
        const NESTS: [(&str, &str, &str); 29] = [
            ("select ", "(", ")"),
            ("select ", "- ", ""),
            ("select ", "~ ", ""),
            ("select ", "not ", ""),
            ("select ", "", "+1"),
            ("select ", "", " and 1"),
            ("select ", "", " or 1"),
            ("select ", "", "::int4"),
            ("select ", "", " is null"),
            ("select ", "", " collate \"C\""),
            ("select ", "", "[1]"),
            ("select ", "", " in (1)"),
            ("select ", "", " between 1 and 2"),
            ("select ", "f(", ")"),
            ("select ", "coalesce(", ")"),
            ("select ", "cast(", " as int)"),
            ("select ", "array[", "]"),
            ("select ", "row(", ")"),
            ("select ", "(1, ", ")"),
            ("select ", "case when true then ", " end"),
            ("select ", "(select ", ")"),
            ("select ", "exists (select ", ")"),
            ("select * from ", "(select * from ", ") x"),
            ("select * from t", " join (a", " on true)"),
            ("select 1", " union select ", " + 1"),
            ("select 1", " union (select 1", ")"),
            ("", "with a as (select ", ") select 1"),
            ("create table t (a int default ", "(1 + ", "))"),
            ("explain ", "", ", 1"),
        ];
        for n in [60, 1_000, 4_000, 9_000, 20_000] {
            for (start, open, close) in NESTS {
                let sql = format!("{start}{}1{}", open.repeat(n), close.repeat(n));
                let read = crate::parse::on_deep_stack(&sql, || crate::parse::statement(&sql).map(|_| ()));
                let state = read.as_ref().map_err(|e| e.sqlstate.0).err();
                let is_known = matches!(state, None | Some("54001" | "42601" | "0A000"));
                assert!(is_known && (n > 60 || state != Some("54001")), "{start}{open}1{close}: {read:?}");
            }
        }
    }

    #[test]
    fn parentheses_have_postgresqls_limit() {
        let sql = format!("select {}1{}", "(".repeat(20_000), ")".repeat(20_000));
        assert_eq!(state(&sql), ("54001", "stack depth limit exceeded".into(), None));
    }

    #[test]
    fn a_long_text_is_read() {
        let sql = format!("select '{}', {}", "x".repeat(1 << 20), vec!["1"; 200_000].join(","));
        assert!(matches!(raw(&sql).unwrap(), Some(NodeEnum::SelectStmt(_))));
    }
}
