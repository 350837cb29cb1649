//! The relations of a FROM clause that have been bound so far: their rows, names and columns.
//!
//! This module does not know what kind of item a relation comes from (`from`).

use varve_engine::TableDef;

use super::bound::{Bound, BoundQuery};
use super::named_queries::NamedRows;
use super::scope::{Merged, Relation, Scope};
use crate::ast;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::names::fold;
use crate::plan::{Join, JoinKind, Lateral, Source};
use crate::ty::Typed;

/// The items of FROM that have been bound so far.
#[derive(Debug)]
pub(super) struct BoundFrom {
    /// The source of the rows.
    pub(super) source: Source,
    /// The names of the relations and of their columns.
    pub(super) relations: Vec<Relation>,
    /// The columns that USING and NATURAL merged.
    pub(super) merged: Vec<Merged>,
    /// The values that a LATERAL item reads from each row of the items before it.
    pub(super) given: Vec<Bound>,
}

impl BoundFrom {
    pub(super) fn nothing() -> BoundFrom {
        BoundFrom { source: Source::Nothing, relations: Vec::new(), merged: Vec::new(), given: Vec::new() }
    }

    pub(super) fn one(source: Source, relation: Relation) -> BoundFrom {
        BoundFrom { source, relations: vec![relation], ..BoundFrom::nothing() }
    }

    /// Returns the number of columns of all relations.
    pub(super) fn width(&self) -> usize {
        self.relations.iter().map(|r| r.columns.len()).sum()
    }

    pub(super) fn scope(&self) -> Scope {
        Scope { relations: self.relations.clone(), merged: self.merged.clone(), ..Scope::default() }
    }
}

/// Returns the relation of a table in FROM, under its alias if it has one.
pub(super) fn relation_of(table: &TableDef, alias: Option<&ast::TableAlias>) -> Result<Relation> {
    let columns = table.columns.iter().map(|c| (c.name.clone(), Typed::of_column(c.column_type)));
    Ok(named(&table.name, columns.collect(), table.key_columns(), alias)?.showing(table.id.0))
}

/// Returns the relation of a table with these columns and key, under its alias if it has one.
pub(super) fn named(
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
            column.0 = fold(renamed);
        }
    }
    Ok(Relation { alias: name, hidden, columns, key: key.to_vec(), ..Relation::unnamed() })
}

/// Returns the relation of a query in FROM. Its columns are renamed by WITH (`names`), then by its alias.
pub(super) fn query_relation(
    bound: BoundQuery,
    names: &[String],
    shown: String,
    alias: Option<&ast::TableAlias>,
) -> Result<BoundFrom> {
    let (columns, origins) = (renamed(&bound, names), bound.origins());
    relation_over(NamedRows { source: Source::Query(Box::new(bound.select)), columns, origins }, shown, alias)
}

/// Returns the names and types of a query's columns. The first columns are renamed to `names`.
pub(super) fn renamed(bound: &BoundQuery, names: &[String]) -> Vec<(String, Typed)> {
    let columns = bound.columns.iter().zip(&bound.select.outputs);
    let mut columns: Vec<(String, Typed)> = columns.map(|(c, o)| (c.name.to_string(), o.t)).collect();
    columns.iter_mut().zip(names).for_each(|(column, name)| column.0.clone_from(name));
    columns
}

/// Returns the relation of these rows under the name `shown`. The alias may rename the columns.
pub(super) fn relation_over(
    rows: NamedRows,
    shown: String,
    alias: Option<&ast::TableAlias>,
) -> Result<BoundFrom> {
    let NamedRows { source, mut columns, origins } = rows;
    if let Some(alias) = alias {
        check_alias(alias, columns.len())?;
        for (column, renamed) in columns.iter_mut().zip(&alias.columns) {
            column.0 = fold(renamed);
        }
    }
    Ok(BoundFrom::one(source, Relation { alias: shown, columns, origins, ..Relation::unnamed() }))
}

/// Returns the cross join of both sides, to which a condition may be added later. Fails with 42712 if both
/// sides have a relation of the same name.
pub(super) fn crossed(mut left: BoundFrom, right: BoundFrom) -> Result<BoundFrom> {
    let left_width = left.width();
    for mut relation in right.relations {
        if left.relations.iter().any(|r| r.alias == relation.alias) {
            let message = format!("table name \"{}\" specified more than once", relation.alias);
            return Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message));
        }
        relation.first += left_width;
        left.relations.push(relation);
    }
    left.merged.extend(right.merged.into_iter().map(|m| m.moved(left_width)));
    let lateral = (!right.given.is_empty()).then(|| {
        let (given, types): (Vec<Expr>, Vec<Typed>) = right.given.into_iter().map(|b| (b.expr, b.t)).unzip();
        Lateral { given: given.into(), types: types.into() }
    });
    let (kind, on) = (JoinKind::Inner, Vec::new());
    let join = Join { kind, left: left.source, right: right.source, left_width, on, lateral };
    Ok(BoundFrom { source: Source::Join(Box::new(join)), ..left })
}

/// Returns the column names that both sides of a NATURAL JOIN have, in the order of the left side.
pub(super) fn common_names(left: &BoundFrom, right: &BoundFrom) -> Vec<String> {
    let names = |from: &BoundFrom| -> Vec<String> {
        let scope = from.scope();
        let merged = scope.merged.iter().map(|m| m.name.clone());
        let columns = scope.relations.iter().flat_map(|r| r.columns.iter().zip(r.first..));
        let plain = columns.filter(|(_, n)| !scope.is_merged(*n)).map(|((name, _), _)| name.clone());
        merged.chain(plain).collect()
    };
    let right = names(right);
    let mut common: Vec<String> = Vec::new();
    for name in names(left) {
        if right.contains(&name) && !common.contains(&name) {
            common.push(name);
        }
    }
    common
}

/// Fails if an alias renames more columns than the relation has.
pub(super) fn check_alias(alias: &ast::TableAlias, column_count: usize) -> Result<()> {
    let ast::TableAlias { name, columns } = alias;
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
