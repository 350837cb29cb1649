//! Converts PREPARE and EXECUTE from the tree of PostgreSQL's parser: the statement to prepare, and the
//! values of its parameters.

use pg_query::protobuf::{ExecuteStmt, PrepareStmt, Token};

use super::Utility;
use super::node::{Source, behind_parenthesis};
use crate::error::Result;
use crate::parse::postgres;

/// Converts PREPARE.
pub(super) fn prepare(source: Source<'_>, p: &PrepareStmt) -> Result<Utility> {
    let tokens = source.tokens()?;
    // PREPARE name (types) AS: the parenthesis is the third token.
    let has_list = tokens.get(2).is_some_and(|t| t.token() == Token::Ascii40);
    let link = if has_list { behind_parenthesis(&tokens, 2) } else { 2 };
    let (text, before) = source.rest(&tokens, link + 1)?;
    let types = postgres::types(source.sql, &p.argtypes)?;
    Ok(Utility::Prepare { name: p.name.clone(), types, text: text.to_owned(), before })
}

/// Converts EXECUTE.
pub(super) fn execute(source: Source<'_>, e: &ExecuteStmt) -> Result<Utility> {
    Ok(Utility::Execute(e.name.clone(), postgres::expressions(source.sql, &e.params)?))
}
