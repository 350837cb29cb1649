//! The binder makes typed expressions and plans of a syntax tree: it resolves names, types, casts and
//! parameters.
//!
//! Invariants
//! 1. A coerced expression has no type `Ty::Unknown`. The first use of a parameter sets its type, which never
//!    changes.
//! 2. An error has the position of the token that PostgreSQL would report, where the syntax tree has it.
//! 3. A statement with an unsupported part is refused (0A000). The binder ignores only what PostgreSQL lets
//!    an implementation ignore: UNLOGGED, fillfactor, FREEZE.
//!
//! This module knows nothing about rows and transactions. The binder reads the catalog.

pub mod aggregate;
pub mod alter;
mod answers;
mod around;
mod array;
pub mod bound;
mod call;
pub mod clauses;
mod coerce;
mod conflict;
pub mod ddl;
pub mod dml;
mod expression;
pub mod foreign;
mod from;
mod function;
mod grouping;
mod immutable;
pub mod index;
mod items;
mod json;
pub mod kept;
pub mod limits;
pub mod lock;
pub mod locked;
pub mod locked_queries;
mod meaning;
mod meanings;
mod named;
mod named_queries;
pub mod only;
mod operator;
mod order;
pub mod part;
mod predicate;
pub mod query;
mod record;
mod relations;
pub mod retype;
mod row;
mod rules;
mod scope;
pub mod sequence;
mod set;
mod set_functions;
mod sets;
pub mod storage;
mod subquery;
mod unnest;
mod uses;
mod value_rows;
pub mod view;
pub mod window;
mod with;

use varve_engine::{Catalog, Part};

pub use bound::Bound;
pub use function::is_special_function;
pub use scope::Scope;

use around::QueriesAround;
use locked_queries::LockedQueries;
use meanings::Meanings;
use named_queries::NamedQueries;
use uses::Uses;

use crate::ast::{self, Placed};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::names::object_name;
use crate::oid::Oid;
use crate::path::Path;
use crate::rights::{Need, Needed, Object};
use crate::ty::{Ty, Typed};

/// How deep expressions may nest.
const DEPTH_MAX: usize = 256;

/// More stack than one level needs in an unoptimised program, where a view within a view takes about 40 KiB.
const LEVEL_STACK_BYTES: usize = 256 << 10;

/// Most items of FROM in a statement, because the runner of general queries walks them by recursion. A query
/// of WITH counts as often as it is used.
const SOURCES_MAX: usize = 500;

/// Most parts of a statement that are bound twice, those within them as well: arguments of aggregates within
/// subqueries, unions of WITH RECURSIVE that do not read themselves.
const PROBES_MAX: usize = 10_000;

/// Most parameters of one statement, as in PostgreSQL's protocol.
const PARAM_MAX: usize = 65_535;

/// Binds one statement.
pub struct Binder<'c> {
    /// What names stand for.
    pub catalog: &'c Catalog,
    /// Where names without a schema are looked for; in `public` for a text that is kept.
    path: Option<&'c Path>,
    /// What names mean, noted for a text that is to be kept.
    meanings: Option<Meanings>,
    /// The statement's text.
    source: &'c str,
    /// The text has only one-byte characters.
    ascii: bool,
    /// Parameter types so far.
    params: Vec<Ty>,
    depth: usize,
    /// Literals in the select list of INSERT ... SELECT stay untyped until the column is known.
    keep_unknown: bool,
    /// How many CASE, COALESCE and WITH are around what is bound: a constant there that cannot be computed is
    /// an error only if it is needed.
    choices: usize,
    /// A query that had turned out to be grouped was bound again as such, and failed again.
    failed_as_grouped: bool,
    /// What was bound only to see what it is.
    probes: usize,
    /// The statement asks for the catalog when it runs: system tables, catalog functions, OIDs with names.
    pub reads_world: bool,
    /// A parameter is an interval with fields. A literal in its place would be read by them: '3' for DAY is
    /// three days, for `$1` seconds.
    pub has_interval_fields: bool,
    /// Operators of a constant NULL keep their other side: what is bound is only looked at.
    keeps_operands: bool,
    /// The text is kept; its dates and intervals are read by the default styles.
    is_kept: bool,
    /// A query in FROM is bound. It keeps its conditions and its order, because the runner of general queries
    /// chooses the access paths.
    in_from: bool,
    /// The part by whose name a table was named, until its condition is taken.
    part: Option<Part>,
    /// A sequence function was called so far.
    pub calls_sequences: bool,
    /// OVERRIDING ... VALUE of the INSERT that is bound.
    overriding: Option<ast::Overriding>,
    /// Queries that both a runner and this crate's executor run are for the runner: tests compare the two.
    forced: bool,
    /// What the statement uses so far.
    uses: Uses,
    /// The queries around the one that is bound.
    around: QueriesAround,
    /// The queries that WITH has named.
    named: NamedQueries,
    /// Items of FROM so far.
    sources: usize,
    /// The queries that run before the statement.
    locked: LockedQueries,
}

impl<'c> Binder<'c> {
    /// A binder for `source`; `types` are the declared parameter types (0: to be inferred).
    pub fn new(catalog: &'c Catalog, source: &'c str, types: &[Oid]) -> Result<Self> {
        let known = |(i, oid): (usize, &Oid)| {
            Ty::of_oid(*oid).ok_or_else(|| {
                SqlError::unsupported(format!("parameter ${} of the type with OID {oid}", i + 1))
            })
        };
        let params = types.iter().enumerate().map(known).collect::<Result<Vec<_>>>()?;
        Ok(Binder {
            catalog,
            path: None,
            meanings: None,
            source,
            ascii: source.is_ascii(),
            params,
            depth: 0,
            keep_unknown: false,
            choices: 0,
            failed_as_grouped: false,
            probes: 0,
            reads_world: false,
            has_interval_fields: false,
            is_kept: false,
            keeps_operands: false,
            in_from: false,
            part: None,
            calls_sequences: false,
            overriding: None,
            forced: false,
            uses: Uses::default(),
            around: QueriesAround::default(),
            named: NamedQueries::default(),
            sources: 0,
            locked: LockedQueries::default(),
        })
    }

    /// For a text that is kept (a default, a condition, a view): its dates and intervals mean the same in
    /// each session.
    pub fn of_kept(catalog: &'c Catalog, source: &'c str) -> Result<Self> {
        Ok(Binder { is_kept: true, ..Binder::new(catalog, source, &[])? })
    }

    /// Names without a schema are those that this path leads to.
    pub fn along(self, path: &'c Path) -> Self {
        Binder { path: Some(path), ..self }
    }

    /// Schema and name of an object that there may be.
    fn find_name(&mut self, name: &ast::ObjectName) -> Result<(String, String)> {
        let found = match self.path {
            Some(path) => path.find(self.catalog, name)?,
            None => object_name(name)?,
        };
        self.note_schema(name, &found.0);
        Ok(found)
    }

    /// Gives to a runner of general queries all that it can run.
    pub fn force_general(&mut self) {
        self.forced = true;
    }

    /// The parameter types at the end; 42P18 if one was never settled by its use.
    pub fn param_types(&self) -> Result<Vec<Ty>> {
        let settle = |(i, t): (usize, &Ty)| match t {
            Ty::Unknown => Err(SqlError::new(
                SqlState::INDETERMINATE_DATATYPE,
                format!("could not determine data type of parameter ${}", i + 1),
            )),
            t => Ok(*t),
        };
        self.params.iter().enumerate().map(settle).collect()
    }

    /// The relations that the statement reads, and the role whose rights count. Taken once, after binding.
    pub fn take_needs(&mut self) -> Vec<Need> {
        std::mem::take(&mut self.uses.needs)
    }

    /// Notes that it reads a table or view.
    fn need_relation(&mut self, object: Object, schema: &str) {
        self.uses.need(Needed::Relation { object, schema: schema.to_owned() });
    }

    /// Whether what is bound holds for this version of the catalog only.
    pub fn is_of_version(&self) -> bool {
        self.uses.sequence || !self.uses.views.is_empty()
    }

    /// Where a part of the tree begins in the text.
    fn at(&self, node: &impl Placed) -> Option<u32> {
        node.place().position()
    }

    /// Runs `f` one level deeper; 54001 beyond the limit.
    fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= DEPTH_MAX {
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
                .with_hint(format!("Expressions may nest {DEPTH_MAX} deep.")));
        }
        self.depth += 1;
        let result = stacker::maybe_grow(LEVEL_STACK_BYTES, 8 * LEVEL_STACK_BYTES, || f(self));
        self.depth -= 1;
        result
    }

    /// Notes that something is bound twice; 54001 beyond the limit.
    fn probed(&mut self) -> Result<()> {
        self.probes += 1;
        if self.probes > PROBES_MAX {
            let message = "a statement with too many aggregates or unions within others";
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message));
        }
        Ok(())
    }

    /// Parameter `number` (from 1) as an expression.
    fn param(&mut self, number: usize, at: Option<u32>) -> Result<Bound> {
        if number == 0 || number > PARAM_MAX {
            let message = format!("there is no parameter ${number}");
            return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, message).at(at));
        }
        if self.params.len() < number {
            self.params.resize(number, Ty::Unknown);
        }
        Ok(Bound { expr: Expr::Param(number - 1), t: Typed::plain(self.params[number - 1]), at })
    }
}
