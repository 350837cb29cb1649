//! FROM: the relations of a query and how they are joined.
//!
//! Does not know: how its rows are read.

use std::sync::Arc;

use sqlparser::ast::{self, JoinConstraint, JoinOperator, TableFactor};
use varve_engine::{TableDef, Value};

use super::scope::{Relation, Scope};
use super::{Binder, Bound, alias_of, clauses, fold, object_name, undefined_table};
use crate::access;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::plan::{Access, Join, JoinKind, Source, TableAccess};
use crate::system::{self, SystemTable};
use crate::ty::{Ty, Typed};

impl Binder<'_> {
    /// FROM: where rows come from, and what their columns are called.
    pub(super) fn from(&mut self, from: &[ast::TableWithJoins]) -> Result<(Source, Vec<Relation>)> {
        let Some((first, rest)) = from.split_first() else { return Ok((Source::Nothing, Vec::new())) };
        let (mut source, mut relations) = self.joined(first)?;
        for item in rest {
            let (right, more) = self.joined(item)?;
            source = crossed(source, &mut relations, right, more)?;
        }
        Ok((source, relations))
    }

    /// One item of FROM with the joins that are written behind it.
    fn joined(&mut self, item: &ast::TableWithJoins) -> Result<(Source, Vec<Relation>)> {
        let (mut source, relation) = self.factor(&item.relation)?;
        let mut relations = vec![relation];
        for join in &item.joins {
            if join.global {
                return Err(SqlError::unsupported("GLOBAL JOIN"));
            }
            let (kind, constraint) = join_kind(&join.join_operator)?;
            let (right, relation) = self.factor(&join.relation)?;
            source = crossed(source, &mut relations, right, vec![relation])?;
            let on = self.join_condition(constraint, &relations)?;
            if let Source::Join(join) = &mut source {
                (join.kind, join.on) = (kind, on);
            }
        }
        Ok((source, relations))
    }

    fn join_condition(&mut self, constraint: &JoinConstraint, relations: &[Relation]) -> Result<Vec<Expr>> {
        match constraint {
            JoinConstraint::None => Ok(Vec::new()),
            JoinConstraint::Using(_) => Err(SqlError::unsupported("JOIN ... USING")),
            JoinConstraint::Natural => Err(SqlError::unsupported("NATURAL JOIN")),
            JoinConstraint::On(on) => {
                let mut scope = Scope { relations: relations.to_vec(), ..Scope::default() };
                scope.no_aggregates = Some("JOIN conditions");
                let bound = self.expression(on, &mut scope)?;
                Ok(access::conjuncts(self.condition(bound, "JOIN/ON")?))
            }
        }
    }

    fn factor(&mut self, factor: &TableFactor) -> Result<(Source, Relation)> {
        clauses::check_table(factor)?;
        match factor {
            TableFactor::Table { name, alias, args: Some(args), .. } => {
                self.table_function(name, args, alias.as_ref())
            }
            TableFactor::Table { name, alias, args: None, .. } if system_table(name).is_some() => {
                let table = system_table(name).ok_or_else(|| SqlError::internal("no system table"))?;
                self.reads_world = true;
                Ok((Source::System(table), system_relation(table, alias.as_ref())?))
            }
            TableFactor::Table { name, alias, args: None, .. } => {
                let (schema, last) = object_name(name)?;
                if let Some(view) = self.catalog.view(&schema, &last).cloned() {
                    return self.view(&view, alias.as_ref());
                }
                let table = self.table_or_part(name)?;
                let relation = self.named_relation(&table, alias.as_ref())?;
                let access = TableAccess { table, access: Access::Full, reverse: false };
                Ok((Source::Table(access), relation))
            }
            TableFactor::Derived { lateral: true, .. } => Err(SqlError::unsupported("LATERAL")),
            TableFactor::Derived { sample: Some(_), .. } => Err(SqlError::unsupported("TABLESAMPLE")),
            TableFactor::Derived { subquery, alias, .. } => self.derived(subquery, alias.as_ref()),
            _ => Err(SqlError::unsupported("this kind of FROM item")),
        }
    }

    /// A query in FROM.
    fn derived(&mut self, query: &ast::Query, alias: Option<&ast::TableAlias>) -> Result<(Source, Relation)> {
        let Some(alias) = alias else {
            let message = "subquery in FROM must have an alias";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message)
                .with_hint("For example, FROM (SELECT ...) [AS] foo.")
                .at(self.at(query)));
        };
        let keeps = std::mem::replace(&mut self.keep_unknown, false);
        let was_in_from = std::mem::replace(&mut self.in_from, true);
        let bound = self.deeper(|b| b.query(query));
        (self.keep_unknown, self.in_from) = (keeps, was_in_from);
        let super::query::BoundQuery { select, columns } = bound?;
        if select.lock.is_some() {
            return Err(SqlError::unsupported("FOR UPDATE in a subquery"));
        }
        let named = columns.iter().zip(&select.outputs).map(|(c, o)| (c.name.to_string(), o.t));
        let mut columns: Vec<(String, Typed)> = named.collect();
        check_alias(alias, columns.len())?;
        for (column, renamed) in columns.iter_mut().zip(&alias.columns) {
            column.0 = fold(&renamed.name);
        }
        let relation =
            Relation { alias: fold(&alias.name), hidden: None, columns, key: Vec::new(), first: 0 };
        Ok((Source::Query(Box::new(select)), relation))
    }

    /// A table by name, or by the name of one of its parts, whose condition is then due (`part_condition`).
    pub(super) fn table_or_part(&mut self, name: &ast::ObjectName) -> Result<Arc<TableDef>> {
        let (schema, last) = object_name(name)?;
        let Some((table, part)) = self.catalog.part(&schema, &last) else { return self.table(name) };
        self.met_tables.push(table.clone());
        self.part = Some(part);
        Ok(table)
    }

    /// The relation that a table, or its part that was named, is under its alias.
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
        }
        Ok(relation)
    }

    /// A table by name; 42P01 with its position.
    pub(super) fn table(&mut self, name: &ast::ObjectName) -> Result<Arc<TableDef>> {
        let at = self.at(name);
        let (schema, table) = object_name(name).map_err(|e| e.at(at))?;
        if let Some(found) = self.catalog.table(&schema, &table) {
            self.met_tables.push(found.clone());
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
            // PostgreSQL, too, speaks of the relation here.
            return Err(undefined_table(name).at(at));
        }
        if self.catalog.part(&schema, &table).is_some() {
            return Err(SqlError::unsupported("this of a partition by its own name")
                .with_hint("Name the partitioned table.")
                .at(at));
        }
        if self.catalog.sequence(&schema, &table).is_some() || self.catalog.index(&schema, &table).is_some() {
            let message = format!("\"{table}\" is not a table");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).at(at));
        }
        Err(undefined_table(name).at(at))
    }

    fn table_function(
        &mut self,
        name: &ast::ObjectName,
        args: &ast::TableFunctionArgs,
        alias: Option<&ast::TableAlias>,
    ) -> Result<(Source, Relation)> {
        if args.settings.is_some() {
            return Err(SqlError::unsupported("SETTINGS of a function in FROM"));
        }
        let (_, function) = object_name(name)?;
        if function != "generate_series" {
            return Err(SqlError::unsupported(format!("function {function} in FROM")).at(self.at(name)));
        }
        let at = self.at(name);
        let mut scope = Scope { no_aggregates: Some("functions in FROM"), ..Scope::default() };
        let mut bounds = Vec::new();
        for argument in &args.args {
            bounds.push(self.expression(super::function::plain_argument(argument)?, &mut scope)?);
        }
        if !(2..=3).contains(&bounds.len()) {
            return Err(no_series().at(at));
        }
        if bounds.len() == 2 {
            bounds.push(Bound { expr: Expr::Const(Value::Int4(1)), t: Typed::plain(Ty::Int4), at: None });
        }
        let ty = bounds.iter().try_fold(Ty::Unknown, |ty, b| crate::ty::common(ty, b.t.ty));
        let ty = match ty {
            Some(Ty::Unknown | Ty::Int2) => Ty::Int4,
            Some(t @ (Ty::Int4 | Ty::Int8)) => t,
            Some(Ty::Numeric) => return Err(SqlError::unsupported("generate_series of numeric").at(at)),
            _ => return Err(no_series().at(at)),
        };
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
        let column = alias.and_then(|a| a.columns.first()).map_or(alias_name.clone(), |c| fold(&c.name));
        let relation = Relation {
            alias: alias_name,
            hidden: None,
            columns: vec![(column, Typed::plain(ty))],
            key: Vec::new(),
            first: 0,
        };
        Ok((Source::Series(bounds, ty), relation))
    }
}

/// The system table that a name stands for: those of pg_catalog come before all others.
fn system_table(name: &ast::ObjectName) -> Option<&'static SystemTable> {
    let parts: Option<Vec<String>> = name.0.iter().map(|p| p.as_ident().map(fold)).collect();
    match parts.as_deref()? {
        [table] => system::table("pg_catalog", table),
        [.., schema, table] => system::table(schema, table),
        [] => None,
    }
}

fn system_relation(table: &SystemTable, alias: Option<&ast::TableAlias>) -> Result<Relation> {
    let columns = table.columns.iter().map(|(name, ty, _)| ((*name).to_owned(), Typed::plain(*ty)));
    named(table.name, columns.collect(), &[], alias)
}

/// The relation that a table is under its alias.
pub(super) fn relation_of(table: &TableDef, alias: Option<&ast::TableAlias>) -> Result<Relation> {
    let columns = table.columns.iter().map(|c| (c.name.clone(), Typed::of_column(c.column_type)));
    named(&table.name, columns.collect(), table.key_columns(), alias)
}

fn named(
    table: &str,
    mut columns: Vec<(String, Typed)>,
    key: &[usize],
    alias: Option<&ast::TableAlias>,
) -> Result<Relation> {
    let mut name = table.to_owned();
    let mut hidden = None;
    if let Some(alias) = alias {
        check_alias(alias, columns.len())?;
        hidden = Some(std::mem::replace(&mut name, fold(&alias.name)));
        for (column, renamed) in columns.iter_mut().zip(&alias.columns) {
            column.0 = fold(&renamed.name);
        }
    }
    Ok(Relation { alias: name, hidden, columns, key: key.to_vec(), first: 0 })
}

/// Both sides' rows in all pairs; a condition may be added. 42712 if a name is used twice.
fn crossed(
    left: Source,
    relations: &mut Vec<Relation>,
    right: Source,
    more: Vec<Relation>,
) -> Result<Source> {
    let left_width = relations.iter().map(|r| r.columns.len()).sum();
    for mut relation in more {
        if relations.iter().any(|r| r.alias == relation.alias) {
            let message = format!("table name \"{}\" specified more than once", relation.alias);
            return Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message));
        }
        relation.first += left_width;
        relations.push(relation);
    }
    let join = Join { kind: JoinKind::Inner, left, right, left_width, on: Vec::new() };
    Ok(Source::Join(Box::new(join)))
}

fn join_kind(operator: &JoinOperator) -> Result<(JoinKind, &JoinConstraint)> {
    Ok(match operator {
        JoinOperator::Join(on) | JoinOperator::Inner(on) | JoinOperator::CrossJoin(on) => {
            (JoinKind::Inner, on)
        }
        JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (JoinKind::Left, on),
        JoinOperator::Right(on) | JoinOperator::RightOuter(on) => (JoinKind::Right, on),
        JoinOperator::FullOuter(on) => (JoinKind::Full, on),
        _ => return Err(SqlError::unsupported("this kind of join")),
    })
}

fn no_series() -> SqlError {
    SqlError::new(
        SqlState::UNDEFINED_FUNCTION,
        "function generate_series with these arguments does not exist",
    )
    .with_hint("Varve runs generate_series of integer and bigint.")
}

/// An alias may rename columns from the first on, and nothing more.
pub(super) fn check_alias(alias: &ast::TableAlias, column_count: usize) -> Result<()> {
    let ast::TableAlias { explicit: _, name, columns, at } = alias;
    alias_of(name)?;
    if at.is_some() {
        return Err(SqlError::unsupported("AT of a table alias"));
    }
    if columns.iter().any(|c| c.data_type.is_some()) {
        return Err(SqlError::unsupported("a type in a table alias"));
    }
    if columns.len() > column_count {
        let message = format!(
            "table \"{}\" has {column_count} columns available but {} columns specified",
            fold(name),
            columns.len()
        );
        return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
    }
    Ok(())
}
