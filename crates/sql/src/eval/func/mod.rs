//! Built-in functions: the table by which calls are resolved, and how functions are called.
//!
//! Invariants
//! 1. A strict function is never called with NULL. Its result is then NULL.
//! 2. Arguments have the types of the function's entry in the table, because the binder has cast them.
//! 3. A function that is not volatile returns the same result for the same arguments within a statement.
//!
//! This module does not know how overloads are chosen (`bind::function`).

mod advisory;
mod array;
mod encoding;
mod facts;
mod field;
pub mod format;
pub mod hash;
pub mod json;
mod json_parts;
mod math;
mod moment;
mod more_math;
mod more_text;
mod normal;
mod number_picture;
mod objects;
mod overlaps;
mod partition;
mod picture;
mod privilege;
pub mod range;
mod regular;
mod reset;
mod session;
mod signal;
mod size;
mod span;
pub mod string;
mod uuid;

pub(super) use string::check_size;

use smallvec::SmallVec;
use varve_engine::Datum;

use super::{Cx, Expr, Input};
use crate::error::Result;
use crate::ty::Ty;

pub use crate::time::clock_us;
pub use array::no_subscript;
pub use regular::all_groups;

/// The code of a function.
pub type Run = for<'a> fn(&[Datum<'a>], &Cx<'a>) -> Result<Datum<'a>>;

/// One overload of a function.
pub struct Builtin {
    /// The name, in lower case.
    pub name: &'static str,
    /// The types of the arguments. `Ty::Unknown` accepts any type.
    pub arguments: &'static [Ty],
    /// Whether the last argument may be repeated or left out.
    pub variadic: bool,
    /// The type of the result.
    pub result: Ty,
    /// Whether the result is NULL if an argument is NULL, without a call.
    pub strict: bool,
    /// Whether the function reads the catalog.
    pub world: bool,
    /// Whether two calls may have different results, or a call has effects.
    pub volatile: bool,
    /// The code.
    pub run: Run,
}

impl Builtin {
    /// Returns whether this is a function of sequences.
    pub fn is_of_sequences(&self) -> bool {
        matches!(self.name, "nextval" | "currval" | "lastval" | "setval")
    }
}

impl std::fmt::Debug for Builtin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns a strict function with fixed arguments.
const fn strict(name: &'static str, arguments: &'static [Ty], result: Ty, run: Run) -> Builtin {
    Builtin { name, arguments, variadic: false, result, strict: true, world: false, volatile: false, run }
}

/// Returns a strict function that must be called each time.
const fn volatile(name: &'static str, arguments: &'static [Ty], result: Ty, run: Run) -> Builtin {
    Builtin { name, arguments, variadic: false, result, strict: true, world: false, volatile: true, run }
}

/// Returns a function with any number of arguments that handles NULL itself.
const fn any(name: &'static str, arguments: &'static [Ty], result: Ty, run: Run) -> Builtin {
    Builtin { name, arguments, variadic: true, result, strict: false, world: false, volatile: false, run }
}

/// Returns a function with fixed arguments that handles NULL itself.
const fn loose(name: &'static str, arguments: &'static [Ty], result: Ty, run: Run) -> Builtin {
    Builtin { strict: false, ..strict(name, arguments, result, run) }
}

/// Returns a strict function that reads the catalog. Its result may change when the catalog changes.
const fn catalog(name: &'static str, arguments: &'static [Ty], result: Ty, run: Run) -> Builtin {
    Builtin { world: true, ..strict(name, arguments, result, run) }
}

/// Returns all overloads of a name.
pub fn overloads(name: &str) -> impl Iterator<Item = &'static Builtin> {
    let tables = [
        string::TABLE,
        math::TABLE,
        facts::TABLE,
        field::TABLE,
        moment::TABLE,
        session::TABLE,
        objects::TABLE,
        reset::TABLE,
        signal::TABLE,
        advisory::TABLE,
        size::TABLE,
        array::TABLE,
        format::TABLE,
        span::TABLE,
        more_math::TABLE,
        picture::TABLE,
        privilege::COLUMNS,
        &privilege::TABLES,
        &privilege::ANY_COLUMNS,
        &privilege::SEQUENCES,
        &privilege::SCHEMAS,
        &privilege::DATABASES,
        &privilege::ROLES,
        &privilege::FUNCTIONS,
        &privilege::LANGUAGES,
        &privilege::TYPES,
        &privilege::TABLESPACES,
        regular::TABLE,
        json::TABLE,
        partition::TABLE,
        json_parts::TABLE,
        more_text::TABLE,
        number_picture::TABLE,
        uuid::TABLE,
        overlaps::TABLE,
        normal::TABLE,
    ];
    let name = name.to_owned();
    tables.into_iter().flatten().filter(move |b| b.name == name)
}

/// Evaluates the arguments and calls the function.
pub fn call<'a>(
    function: &'static Builtin,
    arguments: &'a [Expr],
    row: &Input<'a>,
    cx: &Cx<'a>,
) -> Result<Datum<'a>> {
    let mut values: SmallVec<[Datum<'a>; 4]> = SmallVec::new();
    for argument in arguments {
        let value = argument.eval(row, cx)?;
        if function.strict && value.is_null() {
            return Ok(Datum::Null);
        }
        values.push(value);
    }
    (function.run)(&values, cx)
}

/// Returns the text of argument `n`.
fn text<'a>(arguments: &[Datum<'a>], n: usize) -> &'a str {
    match arguments.get(n) {
        Some(Datum::Text(t)) => t,
        _ => "",
    }
}

/// Returns the integer of argument `n`.
fn int(arguments: &[Datum<'_>], n: usize) -> i64 {
    arguments.get(n).and_then(Datum::as_integer).unwrap_or(0)
}

/// Returns the double of argument `n`.
fn float(arguments: &[Datum<'_>], n: usize) -> f64 {
    match arguments.get(n) {
        Some(Datum::Float8(f)) => *f,
        _ => 0.0,
    }
}
