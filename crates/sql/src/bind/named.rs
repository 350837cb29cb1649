//! Binds named arguments: `make_interval(days => 10)`.
//!
//! Invariants
//! 1. Named arguments are evaluated in the order of the text, and passed in the order of the parameters.
//!
//! This module does not know types of arguments or which overload is called (`function`).

use varve_engine::Value;

use super::bound::Bound;
use super::call::{shown_call, undefined_call};
use crate::ast::FunctionArg;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::names::fold;
use crate::ty::{Ty, Typed};

/// A function with names for its arguments.
struct Signature {
    function: &'static str,
    names: &'static [&'static str],
    /// Whether a call may omit arguments. An omitted argument is 0.
    has_defaults: bool,
}

const MOMENT: &[&str] = &["year", "month", "mday", "hour", "min", "sec"];

/// The content of `pg_proc.proargnames` in PostgreSQL 15, for the functions that Varve has.
const SIGNATURES: &[Signature] = &[
    of("make_interval", &["years", "months", "weeks", "days", "hours", "mins", "secs"], true),
    of("make_date", &["year", "month", "day"], false),
    of("make_time", &["hour", "min", "sec"], false),
    of("make_timestamp", MOMENT, false),
    of("make_timestamptz", MOMENT, false),
    of("make_timestamptz", &["year", "month", "mday", "hour", "min", "sec", "timezone"], false),
    of("parse_ident", &["str"], false),
    of("pg_terminate_backend", &["pid"], false),
    of("pg_terminate_backend", &["pid", "timeout"], false),
];

const fn of(function: &'static str, names: &'static [&'static str], has_defaults: bool) -> Signature {
    Signature { function, names, has_defaults }
}

/// Returns the names of the arguments in a call.
pub(super) fn names(arguments: &[FunctionArg]) -> Result<Vec<Option<String>>> {
    let mut names: Vec<Option<String>> = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let name = match argument {
            FunctionArg::Named(name, _) => Some(fold(name)),
            _ => None,
        };
        if name.is_none() && names.iter().any(Option::is_some) {
            let message = "positional argument cannot follow named argument";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        if let Some(twice) = name.as_ref().filter(|_| names.contains(&name)) {
            let message = format!("argument name \"{twice}\" used more than once");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        names.push(name);
    }
    Ok(names)
}

/// Puts the arguments in the order of the function. Fails with 42883 if no function has these names.
pub(super) fn placed(function: &str, names: &[Option<String>], bound: Vec<Bound>) -> Result<Vec<Bound>> {
    let mut signatures = SIGNATURES.iter().filter(|s| s.function == function);
    let Some(places) = signatures.find_map(|s| s.places(names)) else {
        let types: Vec<Ty> = bound.iter().map(|b| b.t.ty).collect();
        return Err(undefined_call(function, &shown_call(function, names, &types)));
    };
    let count = places.iter().max().map_or(0, |last| last + 1);
    let mut ordered: Vec<Option<Bound>> = (0..count).map(|_| None).collect();
    for (place, bound) in places.into_iter().zip(bound) {
        if let Some(slot) = ordered.get_mut(place) {
            *slot = Some(bound);
        }
    }
    let default = || Bound { expr: Expr::Const(Value::Int4(0)), t: Typed::plain(Ty::Int4), at: None };
    Ok(ordered.into_iter().map(|bound| bound.unwrap_or_else(default)).collect())
}

impl Signature {
    /// Returns the position of each argument, or `None` if a name is unknown or an argument is missing.
    fn places(&self, names: &[Option<String>]) -> Option<Vec<usize>> {
        if names.len() > self.names.len() || (!self.has_defaults && names.len() < self.names.len()) {
            return None;
        }
        let positional = names.iter().take_while(|name| name.is_none()).count();
        let place = |(n, name): (usize, &Option<String>)| match name {
            None => Some(n),
            Some(name) => self.names.iter().position(|own| own == name).filter(|at| *at >= positional),
        };
        names.iter().enumerate().map(place).collect()
    }
}
