//! Binds FROM: the relations of a query, and their joins.
//!
//! This module does not know how rows are read.

use std::sync::Arc;

use varve_engine::{TableDef, Value};

use super::bound::Bound;
use super::relations::{
    BoundFrom, check_alias, common_names, crossed, named, query_relation, relation_of, relation_over,
};
use super::scope::{ColumnMatch, Merged, Relation, Scope};
use super::set_functions::{RowsOf, rows_of};
use super::{Binder, SOURCES_MAX};
use crate::access;
use crate::ast::{self, JoinConstraint, JoinOperator, TableFactor};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{CmpOp, Expr};
use crate::names::{fold, object_name, undefined_table, unsupported_of_part};
use crate::plan::{JoinKind, Source, TableAccess};
use crate::rights::{Kind, Needed, Object};
use crate::system::{self, SystemTable};
use crate::ty::{Ty, Typed};

impl Binder<'_> {
    /// Binds FROM: the source of the rows and the names of their columns.
    pub(super) fn from(&mut self, from: &[ast::TableWithJoins]) -> Result<BoundFrom> {
        let Some((first, rest)) = from.split_first() else { return Ok(BoundFrom::nothing()) };
        let outside = std::mem::replace(&mut self.around.outside, self.around.levels.len());
        let items = self.items_of_from(first, rest);
        self.around.outside = outside;
        items
    }

    fn items_of_from(
        &mut self,
        first: &ast::TableWithJoins,
        rest: &[ast::TableWithJoins],
    ) -> Result<BoundFrom> {
        let mut all = self.joined(first)?;
        for item in rest {
            let right = self.beside(&all, |b| b.joined(item))?;
            all = crossed(all, right)?;
        }
        Ok(all)
    }

    /// Binds one item of FROM with the joins that follow it. A LATERAL item in it sees the items before it.
    fn joined(&mut self, item: &ast::TableWithJoins) -> Result<BoundFrom> {
        let mut left = self.factor(&item.relation, &BoundFrom::nothing())?;
        for join in &item.joins {
            let (kind, constraint) = join_kind(&join.operator);
            let right = self.factor(&join.relation, &left)?;
            self.note_natural(join, &left, &right);
            left = self.join(kind, constraint, left, right)?;
        }
        Ok(left)
    }

    fn join(
        &mut self,
        kind: JoinKind,
        constraint: Option<&JoinConstraint>,
        left: BoundFrom,
        right: BoundFrom,
    ) -> Result<BoundFrom> {
        let reads_left = right.given.iter().any(|b| b.expr.reads_columns());
        if reads_left && matches!(kind, JoinKind::Right | JoinKind::Full) {
            let message = "the combining JOIN type must be INNER or LEFT for a LATERAL reference";
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
        }
        // A recursive query that is already bound is treated like any other query. Its own second part may
        // read its work table.
        let is_open = |id| self.is_within_recursion(id);
        let is_optional = |side: &BoundFrom, kinds: [JoinKind; 2]| {
            kinds.contains(&kind) && side.source.reads_work(&is_open)
        };
        if is_optional(&right, [JoinKind::Left, JoinKind::Full])
            || is_optional(&left, [JoinKind::Right, JoinKind::Full])
        {
            return Err(self.misplaced("must not appear within an outer join"));
        }
        let names = match constraint {
            Some(JoinConstraint::Using(names)) => using_names(names)?,
            Some(JoinConstraint::Natural) => common_names(&left, &right),
            Some(JoinConstraint::On(_)) | None => Vec::new(),
        };
        let left_scope = left.scope();
        let width = left.width();
        let mut all = crossed(left, right)?;
        let mut right_scope = all.scope();
        right_scope.relations.retain(|r| r.first >= width);
        right_scope.merged.retain(|m| m.first >= width);
        let mut on = match constraint {
            Some(JoinConstraint::On(on)) => self.join_condition(on, &all)?,
            _ => Vec::new(),
        };
        for (n, name) in names.iter().enumerate() {
            let (condition, merged) = self.merge(name, kind, &left_scope, &right_scope)?;
            on.push(condition);
            all.merged.retain(|m| !merged.replaces(m));
            all.merged.insert(n, merged);
        }
        if let Source::Join(join) = &mut all.source {
            (join.kind, join.on) = (kind, on);
        }
        Ok(all)
    }

    fn join_condition(&mut self, on: &ast::Expr, all: &BoundFrom) -> Result<Vec<Expr>> {
        let mut scope = all.scope();
        scope.no_aggregates = Some("JOIN conditions");
        let bound = self.apart(|b| b.expression(on, &mut scope))?;
        let condition = self.condition(bound, "JOIN/ON")?;
        Ok(access::conjuncts(condition))
    }

    /// Binds one column of USING. Returns the condition and the merged column.
    fn merge(&mut self, name: &str, kind: JoinKind, left: &Scope, right: &Scope) -> Result<(Expr, Merged)> {
        let (l, mut hides) = using_column(name, left, "left")?;
        let (r, more) = using_column(name, right, "right")?;
        hides.extend(more);
        let (sides, t) = self.unify(vec![l.clone(), r.clone()], "JOIN/USING")?;
        let condition = self.compare(CmpOp::Eq, l, r, None)?.expr;
        let [l, r] = <[Expr; 2]>::try_from(sides).map_err(|_| SqlError::internal("USING has two sides"))?;
        let expr = match kind {
            JoinKind::Inner | JoinKind::Left => l,
            JoinKind::Right => r,
            JoinKind::Full => Expr::Coalesce([l, r].into()),
        };
        let first = left.relations.iter().map(|r| r.first).min().unwrap_or(0);
        Ok((condition, Merged { name: name.to_owned(), expr, t, hides, first }))
    }

    fn factor(&mut self, factor: &TableFactor, before: &BoundFrom) -> Result<BoundFrom> {
        self.sources += 1;
        if self.sources > SOURCES_MAX {
            let message = format!("a statement may read {SOURCES_MAX} relations");
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message)
                .with_hint("A query of WITH counts as often as it is used."));
        }
        match factor {
            TableFactor::Function { name, args, alias, with_ordinality } => {
                self.beside(before, |b| b.table_function(name, args, *with_ordinality, alias.as_ref()))
            }
            TableFactor::Table(ast::Table { name, only, alias }) => {
                if let Some(found) = self.named_query(name, alias.as_ref())? {
                    return Ok(found);
                }
                if let Some(table) = self.system_table(name) {
                    self.reads_world = true;
                    if let Some(path) = self.path.filter(|path| path.number() != 0)
                        && let Some(schema) = path.schema_of(self.catalog, name.last())
                    {
                        self.note_schema(name, schema);
                    }
                    self.uses.need(Needed::System(table.name));
                    return Ok(BoundFrom::one(
                        Source::System(table),
                        system_relation(table, alias.as_ref())?,
                    ));
                }
                let (schema, last) = self.find_name(name)?;
                if let Some(view) = self.catalog.view(&schema, &last).cloned() {
                    let (source, relation) = self.view(&view, alias.as_ref())?;
                    return Ok(BoundFrom::one(source, relation));
                }
                if let Some(sequence) = self.catalog.sequence(&schema, &last) {
                    let (source, relation) = self.sequence(&sequence, alias.as_ref())?;
                    return Ok(BoundFrom::one(source, relation));
                }
                let table = self.table_or_part(name)?;
                self.only(&table, *only)?;
                self.need_relation(Object::new(table.id, Kind::Table, &last), &table.schema);
                let relation = self.named_relation(&table, alias.as_ref())?;
                let access = TableAccess::whole(table);
                Ok(BoundFrom::one(Source::Table(access), relation))
            }
            TableFactor::Derived { lateral: true, subquery, alias } => {
                self.beside(before, |b| b.derived(subquery, alias.as_ref()))
            }
            TableFactor::Derived { lateral: false, subquery, alias } => {
                self.apart(|b| b.deeper(|b| b.derived(subquery, alias.as_ref())))
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                self.beside(before, |b| b.joined(table_with_joins))
            }
            TableFactor::NestedJoin { alias: Some(_), .. } => {
                Err(SqlError::unsupported("an alias of a join"))
            }
        }
    }

    /// Checks ONLY. It changes nothing for a table without partitions.
    pub(super) fn only(&mut self, table: &TableDef, only: bool) -> Result<()> {
        self.uses.only |= only;
        match table.partitions {
            // A part has no partitions.
            Some(_) if only && self.part.is_none() => {
                Err(SqlError::unsupported("ONLY of a partitioned table"))
            }
            _ => Ok(()),
        }
    }

    /// Binds an item that may read the items before it.
    fn beside(
        &mut self,
        before: &BoundFrom,
        bind: impl FnOnce(&mut Self) -> Result<BoundFrom>,
    ) -> Result<BoundFrom> {
        if before.relations.is_empty() {
            return self.deeper(bind);
        }
        let mut scope = before.scope();
        scope.no_aggregates = Some("FROM clause of their own query level");
        let (found, given) = self.inside(&mut scope, bind)?;
        Ok(BoundFrom { given, ..found })
    }

    /// Binds an item that sees only the enclosing queries, not the other items of FROM.
    fn apart<T>(&mut self, bind: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outside = self.around.outside;
        self.hiding(outside, bind)
    }

    /// Binds a query in FROM.
    fn derived(&mut self, query: &ast::Query, alias: Option<&ast::TableAlias>) -> Result<BoundFrom> {
        let Some(alias) = alias else {
            let message = "subquery in FROM must have an alias";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message)
                .with_hint("For example, FROM (SELECT ...) [AS] foo.")
                .at(self.at(query)));
        };
        let apart = super::record::fields_apart(query);
        let bound = self.inner_query(apart.as_ref().unwrap_or(query))?;
        let mut from = query_relation(bound, &[], fold(&alias.name), Some(alias))?;
        from.relations.iter_mut().for_each(|relation| relation.has_records = apart.is_some());
        Ok(from)
    }

    /// Finds a query of WITH by its name. Returns `None` if no query has this name.
    fn named_query(
        &mut self,
        name: &ast::ObjectName,
        alias: Option<&ast::TableAlias>,
    ) -> Result<Option<BoundFrom>> {
        let [part] = name.0.as_slice() else { return Ok(None) };
        let Some(place) = self.find_named(&part.value) else {
            return Ok(None);
        };
        let shown = alias.map_or_else(|| self.named.queries[place].name.clone(), |a| fold(&a.name));
        if let Some(rows) = self.named_rows(place)? {
            return relation_over(rows, shown, alias).map(Some);
        }
        let bound = self.named_body(place)?;
        query_relation(bound, &self.named.queries[place].columns, shown, alias).map(Some)
    }

    /// Finds a table by its name or by the name of one of its parts. In the second case, the caller must add
    /// the part's condition (`part_condition`).
    pub(super) fn table_or_part(&mut self, name: &ast::ObjectName) -> Result<Arc<TableDef>> {
        let (schema, last) = self.find_name(name)?;
        let Some((table, part)) = self.catalog.part(&schema, &last) else { return self.table(name) };
        self.uses.tables.push(table.clone());
        self.part = Some(part);
        Ok(table)
    }

    /// Finds the table, or the part, whose rows a statement changes. System tables have no rows of their own.
    pub(super) fn changed_table(
        &mut self,
        name: &ast::ObjectName,
        change: RowChange,
    ) -> Result<Arc<TableDef>> {
        self.table_or_part(name).map_err(|e| match self.system_table(name) {
            Some(table) if e.sqlstate == SqlState::UNDEFINED_TABLE && !table.is_function => {
                change.refused(table).at(self.at(name))
            }
            _ => e,
        })
    }

    /// Returns the relation of a table, or of its named part, under its alias.
    pub(super) fn named_relation(
        &self,
        table: &TableDef,
        alias: Option<&ast::TableAlias>,
    ) -> Result<Relation> {
        let mut relation = relation_of(table, alias)?;
        if let Some(part) = &self.part {
            match &mut relation.hidden {
                Some(hidden) => hidden.clone_from(&part.name),
                None => relation.alias.clone_from(&part.name),
            }
            relation = relation.showing(part.id.0);
        }
        Ok(relation)
    }

    /// Finds a table by its name. Fails with 42P01 and the position of the name.
    pub(super) fn table(&mut self, name: &ast::ObjectName) -> Result<Arc<TableDef>> {
        let at = self.at(name);
        let (schema, table) = self.find_name(name).map_err(|e| e.at(at))?;
        if let Some(found) = self.catalog.table(&schema, &table) {
            self.uses.tables.push(found.clone());
            return Ok(found);
        }
        if self.catalog.view(&schema, &table).is_some() {
            return Err(SqlError::unsupported(format!("changing view \"{table}\"")).at(at));
        }
        if schema != "public"
            && schema != "pg_catalog"
            && schema != "information_schema"
            && !self.catalog.has_schema(&schema)
        {
            // PostgreSQL also names the relation here.
            return Err(undefined_table(name).at(at));
        }
        if self.catalog.part(&schema, &table).is_some() {
            return Err(unsupported_of_part(&table).at(at));
        }
        if self.catalog.sequence(&schema, &table).is_some() || self.catalog.index(&schema, &table).is_some() {
            let message = format!("\"{table}\" is not a table");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).at(at));
        }
        Err(undefined_table(name).at(at))
    }

    /// Finds a system table by its name. The tables of pg_catalog come before all others, unless the search
    /// path has another order.
    fn system_table(&self, name: &ast::ObjectName) -> Option<&'static SystemTable> {
        match name.0.as_slice() {
            [table] => match self.path.filter(|path| path.number() != 0) {
                Some(path) => system::table(path.schema_of(self.catalog, &table.value)?, &table.value),
                None => system::table("pg_catalog", &table.value),
            },
            [.., schema, table] => system::table(&schema.value, &table.value),
            [] => None,
        }
    }

    fn table_function(
        &mut self,
        name: &ast::ObjectName,
        args: &[ast::FunctionArg],
        numbered: bool,
        alias: Option<&ast::TableAlias>,
    ) -> Result<BoundFrom> {
        let (_, function) = object_name(name)?;
        let rows = rows_of(&function);
        if args.is_empty()
            && !numbered
            && let Some(table) = system::function_rows(&function)
        {
            self.reads_world = true;
            let mut relation = system_relation(table, alias)?;
            if alias.is_none() {
                relation.alias = function;
            }
            return Ok(BoundFrom::one(Source::System(table), relation));
        }
        if let Some(RowsOf::Elements) = rows {
            return self.unnest(args, numbered, alias);
        }
        let at = self.at(name);
        if let Some(RowsOf::Columns(columns)) = rows {
            return self.set_returning((&function, columns), args, numbered, alias, at);
        }
        let mut scope = Scope { no_aggregates: Some("functions in FROM"), ..Scope::default() };
        let mut bounds = Vec::new();
        for argument in args {
            bounds.push(self.expression(super::call::plain_argument(argument)?, &mut scope)?);
        }
        if !matches!(rows, Some(RowsOf::Series | RowsOf::Subscripts)) || numbered {
            return self.function_rows((name, &function), bounds, numbered, alias);
        }
        if let Some(RowsOf::Subscripts) = rows {
            bounds = self.subscripts(bounds, at)?;
        }
        let types: Vec<Ty> = bounds.iter().map(|b| b.t.ty).collect();
        let ty = match super::sets::series_type(&types).map_err(|e| e.at(at))? {
            (ty @ (Ty::Int4 | Ty::Int8), _) => ty,
            _ => return self.function_rows((name, "generate_series"), bounds, numbered, alias),
        };
        if bounds.len() == 2 {
            bounds.push(Bound { expr: Expr::Const(Value::Int4(1)), t: Typed::plain(Ty::Int4), at: None });
        }
        let mut cast = |b: Bound| Ok(self.cast(b, Typed::plain(ty), false)?.expr);
        let exprs = bounds.into_iter().map(&mut cast).collect::<Result<Vec<_>>>()?;
        let bounds: Box<[Expr; 3]> = exprs
            .try_into()
            .map(Box::new)
            .map_err(|_| SqlError::internal("generate_series takes three bounds"))?;
        let alias_name = alias.map_or(function, |a| fold(&a.name));
        if let Some(alias) = alias {
            check_alias(alias, 1)?;
        }
        let column = alias.and_then(|a| a.columns.first()).map_or(alias_name.clone(), fold);
        let relation =
            Relation { alias: alias_name, columns: vec![(column, Typed::plain(ty))], ..Relation::unnamed() };
        Ok(BoundFrom::one(Source::Series(bounds, ty), relation))
    }
}

/// A statement that changes rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowChange {
    Insert,
    Update,
    Delete,
    Copy,
}

impl RowChange {
    /// Returns the error for a change of a system table. It is PostgreSQL's error for a view, or 42501 for a
    /// table.
    fn refused(self, table: &SystemTable) -> SqlError {
        if !table.is_view {
            let message = format!("permission denied: \"{}\" is a system catalog", table.name);
            let hint = "The rows of system tables are computed. Definitions change by statements such as ALTER TABLE.";
            return SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message).with_hint(hint);
        }
        let (state, change) = match self {
            RowChange::Insert => (SqlState::NOT_IN_PREREQUISITE_STATE, "insert into"),
            RowChange::Update => (SqlState::NOT_IN_PREREQUISITE_STATE, "update"),
            RowChange::Delete => (SqlState::NOT_IN_PREREQUISITE_STATE, "delete from"),
            RowChange::Copy => (SqlState::WRONG_OBJECT_TYPE, "copy to"),
        };
        SqlError::new(state, format!("cannot {change} view \"{}\"", table.name))
            .with_detail("The rows of a system view are computed.")
    }
}

fn system_relation(table: &SystemTable, alias: Option<&ast::TableAlias>) -> Result<Relation> {
    let columns = table.columns.iter().map(|(name, ty, _)| ((*name).to_owned(), Typed::plain(*ty)));
    Ok(named(table.name, columns.collect(), &[], alias)?.showing(table.oid))
}

fn using_names(names: &[ast::Ident]) -> Result<Vec<String>> {
    let names: Vec<String> = names.iter().map(fold).collect();
    for (n, twice) in names.iter().enumerate() {
        if names[..n].contains(twice) {
            let message = format!("column name \"{twice}\" appears more than once in USING clause");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
    }
    Ok(names)
}

/// Finds a column of USING on one side. Returns it with the ordinals of the columns that it represents.
fn using_column(name: &str, scope: &Scope, side: &str) -> Result<(Bound, Vec<usize>)> {
    let bound = |expr, t| Bound { expr, t, at: None };
    match scope.find(None, name) {
        ColumnMatch::Column(ordinal, t) => Ok((bound(Expr::Column(ordinal), t), vec![ordinal])),
        ColumnMatch::Merged(n) => {
            let merged = &scope.merged[n];
            Ok((bound(merged.expr.clone(), merged.t), merged.hides.clone()))
        }
        ColumnMatch::Nothing => {
            let message =
                format!("column \"{name}\" specified in USING clause does not exist in {side} table");
            Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message))
        }
        ColumnMatch::Several => {
            let message = format!("common column name \"{name}\" appears more than once in {side} table");
            Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message))
        }
    }
}

fn join_kind(operator: &JoinOperator) -> (JoinKind, Option<&JoinConstraint>) {
    match operator {
        JoinOperator::Inner(on) => (JoinKind::Inner, Some(on)),
        JoinOperator::LeftOuter(on) => (JoinKind::Left, Some(on)),
        JoinOperator::RightOuter(on) => (JoinKind::Right, Some(on)),
        JoinOperator::FullOuter(on) => (JoinKind::Full, Some(on)),
        JoinOperator::Cross => (JoinKind::Inner, None),
    }
}
