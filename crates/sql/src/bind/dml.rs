//! Binds INSERT, UPDATE and DELETE.
//!
//! Invariants
//! 1. Every column of a new row gets an expression of the column's type: the given value, the default, or
//!    NULL.
//! 2. `recheck` is the whole WHERE clause. It is evaluated again when a row is locked, because the row may
//!    have changed before that, even in its key columns.
//!
//! NOT NULL and uniqueness are checked when rows are written, not here.

use std::collections::BTreeSet;
use std::sync::Arc;

use varve_engine::{ColumnDef, Identity, TableDef};

use super::Binder;
use super::answers::Answers;
use super::bound::{Bound, Returned};
use super::from::RowChange;
use super::row::fields_of;
use super::scope::{Relation, Scope};
use super::value_rows::queried;
use crate::access;
use crate::ast::{self, Assignment, Expr as Ast, Overriding, SetExpr};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::names::fold;
use crate::plan::{
    Delete, Insert, InsertSource, Join, JoinKind, OnConflict, Output, Plan, RowFinder, Select, Source,
    TableAccess, Update,
};
use crate::sink::Column;
use crate::ty::{Ty, Typed};

/// A bound statement and the columns it returns, if any.
pub struct BoundDml {
    /// The plan.
    pub plan: Plan,
    /// RETURNING
    pub columns: Option<Vec<Column>>,
}

/// The value of a column in SET.
enum Assigned {
    Written(Box<Ast>),
    /// A column of a query.
    Bound(Bound),
}

/// Returns the items of `(1, 2)` and `ROW (1, 2)`.
fn values_of(value: &Ast) -> Result<Vec<Ast>> {
    let fields = fields_of(value).ok_or_else(|| {
        let message = "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression";
        SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
    })?;
    Ok(fields.into_iter().cloned().collect())
}

impl Binder<'_> {
    /// Binds INSERT.
    pub fn insert(&mut self, i: &ast::Insert) -> Result<BoundDml> {
        let table = self.changed_table(&i.table, RowChange::Insert)?;
        let relation = self.named_relation(&table, None)?;
        let rules = self.rules(&table)?;
        self.part = None;
        let targets = self.insert_columns(&table, &i.columns)?;
        let explicit = !i.columns.is_empty();
        self.overriding = i.overriding;
        let source = self.insert_source(i.source.as_deref(), &table, &targets, explicit)?;
        let mut relation = relation;
        if let Some(alias) = &i.alias {
            relation.alias = fold(alias);
        }
        let width = table.columns.len();
        let mut answers = Answers::default();
        let on_conflict = self.on_conflict(i.on_conflict.as_ref(), &table, &relation, &mut answers)?;
        let returned = self.returning(i.returning.as_deref(), &mut Scope::of(relation))?;
        let (mut returning, columns) = unzip(returned);
        // With DO UPDATE, the returned row is known only when it is written.
        let is_new = !matches!(on_conflict, OnConflict::Update(_));
        for e in outputs_mut(&mut returning) {
            let own = |n: usize| is_new.then_some(n);
            answers.take(
                e,
                width,
                &own,
                "a subquery in RETURNING that reads the row of ON CONFLICT DO UPDATE",
            )?;
        }
        let source = answers.asked_by(source)?;
        Ok(BoundDml { plan: Plan::Insert(Insert { table, rules, source, returning, on_conflict }), columns })
    }

    /// Returns the ordinals of the columns with given values.
    fn insert_columns(&mut self, table: &TableDef, named: &[ast::ObjectName]) -> Result<Vec<usize>> {
        if named.is_empty() {
            return Ok((0..table.columns.len()).collect());
        }
        let mut targets = Vec::with_capacity(named.len());
        for name in named {
            let at = self.at(name);
            let ordinal = self.column_of(table, name)?;
            if targets.contains(&ordinal) {
                let message = format!("column \"{}\" specified more than once", table.columns[ordinal].name);
                return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message).at(at));
            }
            targets.push(ordinal);
        }
        Ok(targets)
    }

    pub(super) fn column_of(&mut self, table: &TableDef, name: &ast::ObjectName) -> Result<usize> {
        let column = name.0.first().map(fold).unwrap_or_default();
        table.column(&column).filter(|_| name.0.len() == 1).ok_or_else(|| {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
            SqlError::new(SqlState::UNDEFINED_COLUMN, message).at(self.at(name))
        })
    }

    fn insert_source(
        &mut self,
        source: Option<&ast::Query>,
        table: &Arc<TableDef>,
        targets: &[usize],
        explicit: bool,
    ) -> Result<InsertSource> {
        let Some(q) = source else {
            return Ok(InsertSource::Values(vec![self.row_of(table, &[], Vec::new())?]));
        };
        if let SetExpr::Values(values) = q.body.as_ref()
            && q.is_bare()
        {
            let width = values.first().map_or(0, Vec::len);
            if values.iter().any(|row| row.len() != width) {
                let message = "VALUES lists must all be the same length";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            let mut rows = Vec::with_capacity(values.len());
            for row in values {
                rows.push(self.given_row(targets, row, explicit)?);
            }
            let rows = rows.into_iter().map(|row| self.row_of(table, targets, row));
            let rows = rows.collect::<Result<Vec<Box<[Expr]>>>>()?;
            let queries = rows.iter().flatten().any(Expr::has_subquery);
            return Ok(if queries { queried(rows) } else { InsertSource::Values(rows) });
        }
        self.keep_unknown = true;
        let bound = self.query(q);
        self.keep_unknown = false;
        let bound = bound?;
        if bound.select.lock.as_ref().is_some_and(|lock| !lock.beside.is_empty()) {
            return Err(SqlError::unsupported("FOR UPDATE in a general query that gives rows to a change"));
        }
        let mut bound = bound;
        let given = bound.select.visible;
        check_count(given, targets, explicit, None)?;
        let types = targets.iter().map(|ordinal| Typed::of_column(table.columns[*ordinal].column_type));
        self.settle_params(&mut bound.select, types)?;
        let slot = |(i, o): (usize, &Output)| Bound { expr: Expr::Slot(i), t: o.t, at: None };
        let slots: Vec<Bound> = bound.select.outputs[..given].iter().enumerate().map(slot).collect();
        let row = self.row_of(table, targets, slots.into_iter().map(Some).collect())?;
        let select = Select {
            outputs: bound.select.outputs.into_vec().into_iter().map(Output::unpadded).collect(),
            ..bound.select
        };
        Ok(InsertSource::Query(Box::new(select), row))
    }

    /// Returns the values of one row of VALUES, with `None` for DEFAULT.
    fn given_row(&mut self, targets: &[usize], row: &[Ast], explicit: bool) -> Result<Vec<Option<Bound>>> {
        let mut scope = Scope { no_aggregates: Some("VALUES"), ..Scope::default() };
        check_count(row.len(), targets, explicit, row.get(targets.len()).and_then(|e| self.at(e)))?;
        let mut given = Vec::with_capacity(row.len());
        for e in row {
            given.push(if is_default(e) { None } else { Some(self.expression(e, &mut scope)?) });
        }
        Ok(given)
    }

    /// Returns an expression for each column of the table.
    fn row_of(
        &mut self,
        table: &TableDef,
        targets: &[usize],
        given: Vec<Option<Bound>>,
    ) -> Result<Box<[Expr]>> {
        let mut row: Vec<Option<Expr>> = vec![None; table.columns.len()];
        for (ordinal, value) in targets.iter().zip(given) {
            let column = &table.columns[*ordinal];
            if let Some(value) = value.filter(|_| !self.takes_own_value(column)) {
                if column.identity == Some(Identity::Always) && self.overriding.is_none() {
                    return Err(always_generated(&column.name));
                }
                row[*ordinal] = Some(self.assign(value, &column.name, column.column_type)?);
            }
        }
        let fill = |(ordinal, e): (usize, Option<Expr>)| match e {
            Some(e) => Ok(e),
            None => self.default_of(table, ordinal),
        };
        row.into_iter().enumerate().map(fill).collect()
    }

    /// Returns whether the column takes the next value of its sequence, and ignores a given value. OVERRIDING
    /// USER VALUE has this effect on an identity column.
    fn takes_own_value(&self, column: &ColumnDef) -> bool {
        column.identity.is_some() && self.overriding == Some(Overriding::User)
    }

    /// Returns a column's default as an expression of its type.
    fn default_of(&mut self, table: &TableDef, ordinal: usize) -> Result<Expr> {
        self.bound_default(&table.columns[ordinal])
    }

    /// Binds UPDATE.
    pub fn update(&mut self, u: &ast::Update) -> Result<BoundDml> {
        let mut target = self.target(&u.table, &u.from, RowChange::Update)?;
        let table = target.table.clone();
        let mut assignments = self.assignments(&table, &u.assignments, &mut target.scope)?;
        let assigned: Vec<usize> = assignments.iter().map(|(ordinal, _)| *ordinal).collect();
        let rules = self.rules_of_update(&target.table, &assigned)?;
        let conditions = self.filter(u.selection.as_ref(), &mut target.scope)?;
        let (mut returning, columns) = unzip(self.returning(u.returning.as_deref(), &mut target.scope)?);
        for e in outputs_mut(&mut returning) {
            ask_of_changed(e, target.width, &assignments)?;
        }
        let values = assignments.iter_mut().map(|(_, e)| e).chain(outputs_mut(&mut returning));
        let RowAccess { target, filter, recheck, found } = target.rows(conditions, values);
        let assignments = assignments.into();
        let update = Update { target, filter, recheck, rules, assignments, returning, found };
        Ok(BoundDml { plan: Plan::Update(update), columns })
    }

    /// Binds SET of UPDATE and of ON CONFLICT DO UPDATE.
    pub(super) fn assignments(
        &mut self,
        table: &TableDef,
        written: &[Assignment],
        scope: &mut Scope,
    ) -> Result<Vec<(usize, Expr)>> {
        let mut assignments: Vec<(usize, Expr)> = Vec::new();
        for (name, given) in self.single_assignments(written, scope)? {
            let ordinal = self.column_of(table, &name)?;
            let column = &table.columns[ordinal];
            if assignments.iter().any(|(o, _)| *o == ordinal) {
                let message = format!("multiple assignments to same column \"{}\"", column.name);
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).at(self.at(&name)));
            }
            let defaults = matches!(&given, Assigned::Written(e) if is_default(e));
            if column.identity == Some(Identity::Always) && !defaults {
                let message = format!("column \"{}\" can only be updated to DEFAULT", column.name);
                return Err(
                    SqlError::new(SqlState::GENERATED_ALWAYS, message).with_detail(always(&column.name))
                );
            }
            let value = match given {
                Assigned::Written(_) if defaults => self.default_of(table, ordinal)?,
                Assigned::Written(e) => {
                    let bound = self.assigned(scope, |b, scope| b.expression(&e, scope))?;
                    self.assign(bound, &column.name, column.column_type)?
                }
                Assigned::Bound(bound) => self.assign(bound, &column.name, column.column_type)?,
            };
            assignments.push((ordinal, value));
        }
        Ok(assignments)
    }

    /// Splits `(a, b) = (1, 2)` into `a = 1, b = 2`. A subquery gives one assignment for each of its columns.
    fn single_assignments(
        &mut self,
        written: &[Assignment],
        scope: &mut Scope,
    ) -> Result<Vec<(ast::ObjectName, Assigned)>> {
        let mut single = Vec::with_capacity(written.len());
        for assignment in written {
            let (names, value) = match assignment {
                Assignment::Column(name, value) => {
                    single.push((name.clone(), Assigned::Written(Box::new(value.clone()))));
                    continue;
                }
                Assignment::Tuple(names, value) => (names, value),
            };
            let values: Vec<Assigned> = match value {
                Ast::Subquery(query) => {
                    let columns = self.assigned(scope, |b, scope| b.row_subquery(query, scope))?;
                    columns.into_iter().map(Assigned::Bound).collect()
                }
                other => values_of(other)?.into_iter().map(|e| Assigned::Written(Box::new(e))).collect(),
            };
            if values.len() != names.len() {
                let message = "number of columns does not match number of values";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            single.extend(names.iter().cloned().zip(values));
        }
        Ok(single)
    }

    /// Binds a value of SET, in which aggregates are not allowed.
    fn assigned<T>(
        &mut self,
        scope: &mut Scope,
        bind: impl FnOnce(&mut Self, &mut Scope) -> Result<T>,
    ) -> Result<T> {
        scope.no_aggregates = Some("UPDATE");
        let bound = bind(self, scope);
        scope.no_aggregates = None;
        bound
    }

    /// Binds DELETE.
    pub fn delete(&mut self, d: &ast::Delete) -> Result<BoundDml> {
        let mut target = self.target(&d.table, &d.using, RowChange::Delete)?;
        let is_referred = self.catalog.children(target.table.id).next().is_some();
        let conditions = self.filter(d.selection.as_ref(), &mut target.scope)?;
        let (mut returning, columns) = unzip(self.returning(d.returning.as_deref(), &mut target.scope)?);
        let RowAccess { target, filter, recheck, found } =
            target.rows(conditions, outputs_mut(&mut returning));
        let delete = Delete { is_referred, target, filter, recheck, returning, found };
        Ok(BoundDml { plan: Plan::Delete(delete), columns })
    }

    /// Returns the table whose rows are changed. Its columns follow those of the joined relations.
    fn target(
        &mut self,
        written: &ast::Table,
        others: &[ast::TableWithJoins],
        change: RowChange,
    ) -> Result<ChangedTable> {
        let ast::Table { name, only, alias } = written;
        let from = self.from(others)?;
        let table = self.changed_table(name, change)?;
        self.only(&table, *only)?;
        let width = from.width();
        let relation = Relation { first: width, ..self.named_relation(&table, alias.as_ref())? };
        if from.relations.iter().any(|r| r.alias == relation.alias) {
            let message = format!("table name \"{}\" specified more than once", relation.alias);
            return Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message));
        }
        // RETURNING * begins with the columns of the target.
        let mut relations = vec![relation];
        relations.extend(from.relations);
        let scope = Scope { relations, merged: from.merged, ..Scope::default() };
        Ok(ChangedTable { table, others: from.source, width, scope })
    }
}

/// The table whose rows UPDATE or DELETE changes.
struct ChangedTable {
    table: Arc<TableDef>,
    /// The relations that are joined with it.
    others: Source,
    /// The number of columns of these relations.
    width: usize,
    /// The scope with the columns of the other relations, then those of the table.
    scope: Scope,
}

/// How UPDATE and DELETE find their rows.
struct RowAccess {
    /// The table, and the access path to its rows.
    target: TableAccess,
    /// Condition on rows found by the access path.
    filter: Option<Expr>,
    /// The whole condition, for the version that is changed.
    recheck: Option<Expr>,
    /// The part that finds the rows, if a general query finds them.
    found: Option<Box<RowFinder>>,
}

impl ChangedTable {
    /// Returns the access to the rows that fulfil the conditions. `values` are the other expressions over
    /// such a row.
    fn rows<'v>(self, conditions: Vec<Expr>, values: impl Iterator<Item = &'v mut Expr>) -> RowAccess {
        let mut values: Vec<&mut Expr> = values.collect();
        let queries = conditions.iter().any(Expr::has_subquery) || values.iter().any(|e| e.has_subquery());
        if !queries && matches!(self.others, Source::Nothing) {
            let choice = access::choose(&self.table, &conditions, None, false);
            let kept = conditions.iter().zip(&choice.covered).filter(|(_, covered)| !**covered);
            let filter = access::joined(kept.map(|(c, _)| c.clone()).collect());
            let target = TableAccess { access: choice.access, ..TableAccess::whole(self.table) };
            return RowAccess { target, filter, recheck: access::joined(conditions), found: None };
        }
        let filter = access::joined(conditions.clone());
        let key = Output::new(Expr::Column(self.width + self.table.columns.len()), Typed::plain(Ty::Bytea));
        let outputs = std::iter::once(key).chain(self.other_columns()).collect();
        let mut taken =
            Taken { width: self.width, columns: self.table.columns.len(), outputs, seen: BTreeSet::new() };
        // A condition with a subquery stays true for a found row as long as the columns that it reads are
        // unchanged.
        let (queries, plain): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(Expr::has_subquery);
        queries.iter().for_each(|e| taken.note(e));
        values.iter_mut().for_each(|e| taken.subqueries(e));
        let Taken { mut outputs, seen, .. } = taken;
        let column = |c: &usize| {
            let t = Typed::of_column(self.table.columns[*c].column_type);
            Output::new(Expr::Column(self.width + *c), t)
        };
        outputs.extend(seen.iter().map(column));
        let others = outputs[1..=self.width].iter().map(|o| o.t.ty);
        let own = self.table.columns.iter().map(|c| Typed::of_column(c.column_type).ty);
        let types = others.chain(own).chain([Ty::Bytea]).collect();
        let table = self.table.clone();
        let query = Select {
            source: beside(self.others, self.width, &table),
            filter,
            visible: outputs.len(),
            outputs: outputs.into_iter().map(Output::unpadded).collect(),
            ..Select::nothing()
        };
        let target = TableAccess::whole(table);
        let found = RowFinder { query, others: self.width, seen: seen.into_iter().collect(), types };
        RowAccess { target, filter: None, recheck: access::joined(plain), found: Some(Box::new(found)) }
    }

    /// Returns the columns of the other relations.
    fn other_columns(&self) -> Vec<Output> {
        let others = self.scope.relations.iter().filter(|r| r.first < self.width);
        let mut columns: Vec<(usize, Typed)> =
            others.flat_map(|r| r.columns.iter().enumerate().map(|(n, (_, t))| (r.first + n, *t))).collect();
        columns.sort_by_key(|(n, _)| *n);
        columns.into_iter().map(|(n, t)| Output::new(Expr::Column(n), t)).collect()
    }
}

/// Returns the other relations joined with the table to change.
fn beside(others: Source, width: usize, table: &Arc<TableDef>) -> Source {
    let target = Source::Target(table.clone());
    if matches!(others, Source::Nothing) {
        return target;
    }
    let (kind, on) = (JoinKind::Inner, Vec::new());
    let join = Join { kind, left: others, right: target, left_width: width, on, lateral: None };
    Source::Join(Box::new(join))
}

/// The outputs of the query that finds rows.
struct Taken {
    /// The number of columns of the other relations, and of the target.
    width: usize,
    columns: usize,
    outputs: Vec<Output>,
    /// Columns of the target that expressions with subqueries have read.
    seen: BTreeSet<usize>,
}

impl Taken {
    fn note(&mut self, e: &Expr) {
        let own = self.width..self.width + self.columns;
        e.walk(&mut |e| {
            if let Expr::Column(n) = e
                && own.contains(n)
            {
                self.seen.insert(*n - own.start);
            }
        });
    }

    /// Makes each subquery an output, and replaces it by a column after those of the row.
    fn subqueries(&mut self, e: &mut Expr) {
        if let Expr::Subquery(_, subquery) = e {
            let t = subquery.result();
            let place = self.columns + self.outputs.len() - 1;
            let taken = std::mem::replace(e, Expr::Column(place));
            self.note(&taken);
            self.outputs.push(Output::new(taken, t));
            return;
        }
        e.children_mut(&mut |child| self.subqueries(child));
    }
}

/// Prepares subqueries of RETURNING, which run before rows are changed. For a changed column they read the
/// assigned value.
fn ask_of_changed(e: &mut Expr, width: usize, assignments: &[(usize, Expr)]) -> Result<()> {
    let mut is_certain = true;
    let mut change = |e: &mut Expr| {
        let Expr::Column(n) = e else { return };
        let assigned = n.checked_sub(width).and_then(|n| assignments.iter().find(|(column, _)| *column == n));
        if let Some((_, value)) = assigned {
            is_certain &= !value.is_volatile();
            *e = value.clone();
        }
    };
    replaced_in_subqueries(e, &mut change);
    match is_certain {
        true => Ok(()),
        false => Err(SqlError::unsupported("a subquery in RETURNING that reads a volatile column")),
    }
}

fn replaced_in_subqueries(e: &mut Expr, change: &mut dyn FnMut(&mut Expr)) {
    match e {
        Expr::Subquery(given, _) => given.iter_mut().for_each(|e| replaced_columns(e, change)),
        other => other.children_mut(&mut |child| replaced_in_subqueries(child, change)),
    }
}

/// Replaces columns. The new expressions are not searched again, because they may read the old column.
fn replaced_columns(e: &mut Expr, change: &mut dyn FnMut(&mut Expr)) {
    match e {
        Expr::Column(_) => change(e),
        other => other.children_mut(&mut |child| replaced_columns(child, change)),
    }
}

fn outputs_mut(returning: &mut Option<Box<[Output]>>) -> impl Iterator<Item = &mut Expr> {
    returning.iter_mut().flatten().map(|o| &mut o.expr)
}

/// Table, ordinals of the columns named, and defaults of the others.
pub type CopyTargets = (Arc<TableDef>, Vec<usize>, Vec<(usize, Expr)>);

/// Returns the table and columns to which COPY writes.
pub fn insert_targets(
    b: &mut Binder<'_>,
    name: &ast::ObjectName,
    columns: &[ast::Ident],
) -> Result<CopyTargets> {
    let table = b.changed_table(name, RowChange::Copy)?;
    let named: Vec<ast::ObjectName> = columns.iter().map(|c| c.clone().into()).collect();
    let targets = b.insert_columns(&table, &named)?;
    let mut defaults = Vec::new();
    for ordinal in (0..table.columns.len()).filter(|o| !targets.contains(o)) {
        if table.columns[ordinal].default.is_some() {
            defaults.push((ordinal, b.default_of(&table, ordinal)?));
        }
    }
    Ok((table, targets, defaults))
}

fn unzip(returned: Option<Returned>) -> (Option<Box<[Output]>>, Option<Vec<Column>>) {
    match returned {
        Some((outputs, columns)) => (Some(outputs), Some(columns)),
        None => (None, None),
    }
}

/// Returns the error 428C9.
fn always_generated(column: &str) -> SqlError {
    let message = format!("cannot insert a non-DEFAULT value into column \"{column}\"");
    SqlError::new(SqlState::GENERATED_ALWAYS, message)
        .with_detail(always(column))
        .with_hint("Use OVERRIDING SYSTEM VALUE to override.")
}

fn always(column: &str) -> String {
    format!("Column \"{column}\" is an identity column defined as GENERATED ALWAYS.")
}

fn is_default(e: &Ast) -> bool {
    matches!(e, Ast::Default(_))
}

fn check_count(given: usize, targets: &[usize], explicit: bool, at: Option<u32>) -> Result<()> {
    if given > targets.len() {
        return Err(
            SqlError::new(SqlState::SYNTAX_ERROR, "INSERT has more expressions than target columns").at(at)
        );
    }
    if explicit && given < targets.len() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "INSERT has more target columns than expressions"));
    }
    Ok(())
}
