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
//! This module does not know rows or transactions. The binder reads the catalog.

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
mod outer_joins;
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

/// The maximum nesting depth of expressions.
const DEPTH_MAX: usize = 256;

/// The stack space for one level. One level needs less, even in an unoptimized program, where a view within a
/// view takes about 40 KiB.
const LEVEL_STACK_BYTES: usize = 256 << 10;

/// The maximum number of FROM items in a statement. The runner of general queries walks them by recursion. A
/// query of WITH counts once for each use.
const SOURCES_MAX: usize = 500;

/// The maximum number of parts of a statement that are bound twice, with the nested parts. Examples:
/// arguments of aggregates within subqueries, unions of WITH RECURSIVE that do not read themselves.
const PROBES_MAX: usize = 10_000;

/// The maximum number of parameters of one statement, as in PostgreSQL's protocol.
const PARAM_MAX: usize = 65_535;

/// Binds one statement.
pub struct Binder<'c> {
    /// The catalog that names refer to.
    pub catalog: &'c Catalog,
    /// The search path for names without a schema. It is `None` for a stored text, whose names are searched
    /// in `public`.
    path: Option<&'c Path>,
    /// The meanings of names, collected for a text to store.
    meanings: Option<Meanings>,
    /// The statement's text.
    source: &'c str,
    /// Whether the text has only one-byte characters.
    ascii: bool,
    /// The parameter types so far.
    params: Vec<Ty>,
    depth: usize,
    /// Literals in the select list of INSERT ... SELECT stay untyped until the column is known.
    keep_unknown: bool,
    /// The number of CASE, COALESCE and WITH forms around the current expression. If a constant in such a
    /// form cannot be computed, this is an error only when the constant is needed.
    choices: usize,
    /// Whether a query was bound again as a grouped query and failed again.
    failed_as_grouped: bool,
    /// The number of parts that were bound twice so far.
    probes: usize,
    /// Whether the statement reads the catalog when it runs, for system tables, catalog functions, or OIDs
    /// with names.
    pub reads_world: bool,
    /// Whether a parameter is an interval with fields. The fields apply to a literal but not to a parameter:
    /// '3' with DAY is three days, but `$1` is three seconds.
    pub has_interval_fields: bool,
    /// Whether operators of a constant NULL keep their other operand. This is set if the bound expression is
    /// only examined.
    keeps_operands: bool,
    /// Whether the text is stored. Its dates and intervals are read with the default styles.
    is_kept: bool,
    /// Whether the current query is in FROM. Such a query keeps its conditions and its order, because the
    /// runner of general queries chooses the access paths.
    in_from: bool,
    /// The part whose name the statement used for a table. It stays until its condition is taken.
    part: Option<Part>,
    /// Whether the statement called a sequence function so far.
    pub calls_sequences: bool,
    /// The OVERRIDING ... VALUE clause of the current INSERT.
    overriding: Option<ast::Overriding>,
    /// Whether the runner of general queries gets each query that it can run. Tests use this to compare it
    /// with this crate's executor.
    forced: bool,
    /// The objects that the statement uses so far.
    uses: Uses,
    /// The enclosing queries.
    around: QueriesAround,
    /// The queries of WITH.
    named: NamedQueries,
    /// The number of FROM items so far.
    sources: usize,
    /// The queries that run before the statement.
    locked: LockedQueries,
}

impl<'c> Binder<'c> {
    /// Creates a binder for `source`. `types` are the declared parameter types. The binder infers a type that
    /// is 0.
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

    /// Creates a binder for a stored text: a default, a condition or a view. Its dates and intervals have the
    /// same meaning in each session.
    pub fn of_kept(catalog: &'c Catalog, source: &'c str) -> Result<Self> {
        Ok(Binder { is_kept: true, ..Binder::new(catalog, source, &[])? })
    }

    /// Sets the search path for names without a schema.
    pub fn along(self, path: &'c Path) -> Self {
        Binder { path: Some(path), ..self }
    }

    /// Returns the schema and the name of an object that may exist.
    fn find_name(&mut self, name: &ast::ObjectName) -> Result<(String, String)> {
        let found = match self.path {
            Some(path) => path.find(self.catalog, name)?,
            None => object_name(name)?,
        };
        self.note_schema(name, &found.0);
        Ok(found)
    }

    /// Makes the runner of general queries run each query that it can run.
    pub fn force_general(&mut self) {
        self.forced = true;
    }

    /// Returns the parameter types after binding. Fails with 42P18 if no use of a parameter set its type.
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

    /// Takes the relations that the statement reads, with the role whose rights are checked. The caller does
    /// this once, after binding.
    pub fn take_needs(&mut self) -> Vec<Need> {
        std::mem::take(&mut self.uses.needs)
    }

    /// Records that the statement reads a table or view.
    fn need_relation(&mut self, object: Object, schema: &str) {
        self.uses.need(Needed::Relation { object, schema: schema.to_owned() });
    }

    /// Returns whether the bound statement is valid only for this version of the catalog.
    pub fn is_of_version(&self) -> bool {
        self.uses.sequence || !self.uses.views.is_empty()
    }

    /// Returns the position in the text where a part of the tree begins.
    fn at(&self, node: &impl Placed) -> Option<u32> {
        node.place().position()
    }

    /// Runs `f` one level deeper. Fails with 54001 beyond the limit.
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

    /// Counts a part that is bound twice. Fails with 54001 beyond the limit.
    fn probed(&mut self) -> Result<()> {
        self.probes += 1;
        if self.probes > PROBES_MAX {
            let message = "a statement with too many aggregates or unions within others";
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message));
        }
        Ok(())
    }

    /// Makes an expression of parameter `number`, from 1.
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
