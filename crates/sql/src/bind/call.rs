//! A function call as it is written: the function's name, the arguments, and the text for messages.
//!
//! This module does not know which overload is called (`function`) or what the arguments mean.

use crate::ast::{self, Expr as Ast, FunctionArg};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::func;
use crate::names::fold;
use crate::ty::Ty;

/// Functions that PostgreSQL has and Varve does not have yet, in order. Their error is 0A000 and not 42883. A
/// function that Varve has is ignored in the list, so the list need not be updated.
const FOREIGN: &str = include_str!("foreign-functions.txt");

/// Returns the name in lower case, without `pg_catalog.`
pub(super) fn function_name(f: &ast::Function) -> Result<String> {
    let parts: Vec<String> = f.name.0.iter().map(fold).collect();
    match parts.as_slice() {
        [name] => Ok(name.clone()),
        [schema, name] if schema == "pg_catalog" => Ok(name.clone()),
        [schema, name] if schema == "information_schema" && name.starts_with("_pg_") => Ok(name.clone()),
        [schema, _] => {
            Err(SqlError::new(SqlState::INVALID_SCHEMA, format!("schema \"{schema}\" does not exist")))
        }
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "improper function name")),
    }
}

/// Returns the expression of an argument without a name.
pub(super) fn plain_argument(argument: &FunctionArg) -> Result<&Ast> {
    match argument {
        FunctionArg::Expr(e) => Ok(e),
        FunctionArg::TableStar(_) => Err(whole_row()),
        FunctionArg::Star => Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"*\"")),
        FunctionArg::Named(..) => Err(SqlError::unsupported("a named argument")),
    }
}

/// Returns the expression of an argument with or without a name.
pub(super) fn written_argument(argument: &FunctionArg) -> Result<&Ast> {
    match argument {
        FunctionArg::Named(_, e) => Ok(e),
        other => plain_argument(other),
    }
}

/// Returns the error 0A000 for `t.*`, or the name of a relation, in place of a value.
pub(super) fn whole_row() -> SqlError {
    SqlError::unsupported("a whole row as a value")
        .with_hint("List the columns of the relation, or write t.* in the list of SELECT.")
}

/// Returns the text of a call with the types of its arguments.
pub(super) fn shown(name: &str, types: &[Ty]) -> String {
    let names: Vec<&str> = types.iter().map(|t| t.name()).collect();
    format!("{name}({})", names.join(", "))
}

/// Returns the text of a call with the types and the names of its arguments.
pub(super) fn shown_call(name: &str, names: &[Option<String>], types: &[Ty]) -> String {
    let shown = |(written, ty): (&Option<String>, &Ty)| match written {
        Some(written) => format!("{written} => {}", ty.name()),
        None => ty.name().to_owned(),
    };
    let arguments: Vec<String> = names.iter().zip(types).map(shown).collect();
    format!("{name}({})", arguments.join(", "))
}

/// Returns the error 42883, or 0A000 if PostgreSQL has such a function, for arguments of these types.
pub(super) fn undefined(name: &str, types: &[Ty]) -> SqlError {
    undefined_call(name, &shown(name, types))
}

/// Returns the error 42883, or 0A000 if PostgreSQL has such a function.
pub(super) fn undefined_call(name: &str, shown: &str) -> SqlError {
    if FOREIGN.lines().any(|foreign| foreign == name) && func::overloads(name).next().is_none() {
        return SqlError::unsupported(format!("function {name}"));
    }
    let message = format!("function {shown} does not exist");
    SqlError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    )
}

/// Returns the error 42804 for an argument of any array type that is an untyped literal or parameter.
pub(super) fn no_polymorphic_type(at: Option<u32>) -> SqlError {
    let message = "could not determine polymorphic type because input has type unknown";
    SqlError::new(SqlState::DATATYPE_MISMATCH, message).at(at)
}
