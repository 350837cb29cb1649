//! Binds CREATE INDEX: plain indexes, indexes over expressions, and partial indexes.
//!
//! Invariants
//! 1. The key of an index depends only on its row. Otherwise the statement fails (42P17).
//! 2. The stored text of an expression must bind to the given expression. Otherwise the statement is refused.
//!
//! This module does not know how index entries are made (the engine) or how keys are computed (`derived`).

use varve_engine::{ColumnType, Derived, KeyPart, NewIndex, TableDef};

use super::bound::Bound;
use super::kept::meaning_of;
use super::order::check_orderable;
use super::part::{check_unique_key, partition_by};
use super::rules::{columns_of, has_subquery, relation_of};
use super::scope::Scope;
use super::{Binder, limits, only};
use crate::ast::{CreateIndex, Expr as Ast, Ident, IndexKey, IndexKeyKind, KeptExpr};
use crate::error::{Result, SqlError, SqlState};
use crate::made_name::{made_name, numbered};
use crate::names::fold;
use crate::output_name::key_name;
use crate::system::conditions::KeptExpression;
use crate::ty::{Ty, Typed};

/// The error for an index over functions whose values differ between sessions.
const NOT_IMMUTABLE: SqlState = SqlState("42P17");

/// A bound CREATE INDEX.
pub struct IndexSpec {
    /// The index. The columns of a derived index are the columns that it reads.
    pub new: NewIndex,
    /// Expressions and condition.
    pub derived: Option<Derived>,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
}

impl Binder<'_> {
    /// Binds CREATE INDEX.
    pub fn create_index(&mut self, i: &CreateIndex) -> Result<IndexSpec> {
        let table = self.table(&i.table)?;
        if i.only {
            only::indexes(&table)?;
        }
        limits::keys(i.keys.len())?;
        let mut keys = Vec::with_capacity(i.keys.len());
        for key in &i.keys {
            check_operator_class(key)?;
            keys.push(self.key_part(&table, &key.kind)?);
        }
        let predicate = match &i.predicate {
            Some(e) => Some(self.index_predicate(&table, e)?),
            None => None,
        };
        let name = match &i.name {
            Some(name) => fold(name),
            None => self.index_name(&table, &i.keys),
        };
        let plain = |key: &KeyPart| match key {
            KeyPart::Column(ordinal) => Some(*ordinal),
            KeyPart::Expression { .. } => None,
        };
        let plain: Option<Vec<usize>> = keys.iter().map(plain).collect();
        let (columns, derived) = match (plain, predicate) {
            (Some(columns), None) => (columns, None),
            (_, predicate) => {
                let derived = Derived { keys, predicate };
                (self.columns_read(&table, &derived)?, Some(derived))
            }
        };
        if i.unique && derived.is_some() && table.partitions.is_some() {
            return Err(SqlError::unsupported("a unique index on expressions of a partitioned table"));
        }
        if i.unique {
            check_unique_key("UNIQUE", &table.name, partition_by(&table), &table.columns, &columns)?;
        }
        let new = NewIndex {
            table: table.id,
            name,
            columns,
            unique: i.unique,
            constraint: false,
            tablespace: None,
        };
        Ok(IndexSpec { new, derived, if_not_exists: i.if_not_exists })
    }

    fn key_part(&mut self, table: &TableDef, key: &IndexKeyKind) -> Result<KeyPart> {
        let (column, expression) = match key {
            IndexKeyKind::Column(column) => (Some(column), None),
            IndexKeyKind::Expression(e) => (column_of(&e.expr), Some(e)),
        };
        if let Some(ident) = column {
            let ordinal = table.column(&fold(ident)).ok_or_else(|| {
                let message = format!("column \"{}\" does not exist", fold(ident));
                SqlError::new(SqlState::UNDEFINED_COLUMN, message)
            })?;
            check_orderable(table.columns[ordinal].column_type)?;
            return Ok(KeyPart::Column(ordinal));
        }
        let e = expression.ok_or_else(|| SqlError::internal("a key of an index without its expression"))?;
        let (text, bound) = self.kept_expression(e, table, "index expressions", "index expression")?;
        let column_type = key_type(bound.t)?;
        check_orderable(column_type)?;
        Ok(KeyPart::Expression { text, column_type })
    }

    fn index_predicate(&mut self, table: &TableDef, e: &KeptExpr) -> Result<String> {
        let (text, bound) = self.kept_expression(e, table, "index predicates", "index predicate")?;
        self.condition(bound, "WHERE")?;
        Ok(text)
    }

    /// Returns an expression over a table as text for the catalog, and the bound expression.
    fn kept_expression(
        &mut self,
        kept: &KeptExpr,
        table: &TableDef,
        place: &'static str,
        what: &str,
    ) -> Result<(String, Bound)> {
        let e = &kept.expr;
        let mut scope = Scope { no_aggregates: Some(place), ..Scope::of(relation_of(table)) };
        let bound = self.expression(e, &mut scope)?;
        let bound = self.known(bound)?;
        if has_subquery(&bound.expr) {
            let message = format!("cannot use subquery in {what}");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(self.at(e)));
        }
        let column_type = |ordinal: usize| Typed::of_column(table.columns[ordinal].column_type).ty;
        if !bound.expr.is_immutable(&column_type) {
            let message = format!("functions in {what} must be marked IMMUTABLE");
            return Err(SqlError::new(NOT_IMMUTABLE, message).at(self.at(e)));
        }
        // The text is as PostgreSQL prints it, because system tables show keys and definitions. Where the
        // printed form is not known, the text is as the client wrote it.
        let printed = KeptExpression { catalog: self.catalog, table, text: &kept.text, meaning_of };
        let shown = printed.printed(false);
        let text = match shown {
            Some(shown) if self.same_expression(&shown, table, &bound).is_ok() => shown,
            _ => self.kept_text(&kept.text, table, &bound)?,
        };
        Ok((text, bound))
    }

    /// Returns the columns that a derived index reads, in the order of their ordinals.
    fn columns_read(&mut self, table: &TableDef, derived: &Derived) -> Result<Vec<usize>> {
        let mut columns = Vec::new();
        let texts = derived.expressions().map(|(text, _)| text);
        for text in texts.chain(derived.predicate.as_deref()) {
            columns.extend(columns_of(&self.expression_of_index(table, text)?.expr));
        }
        columns.extend(derived.keys.iter().filter_map(|key| match key {
            KeyPart::Column(ordinal) => Some(*ordinal),
            KeyPart::Expression { .. } => None,
        }));
        columns.sort_unstable();
        columns.dedup();
        Ok(columns)
    }

    /// Binds the stored text of an index.
    pub fn expression_of_index(&mut self, table: &TableDef, text: &str) -> Result<Bound> {
        let mut inner = Binder::of_kept(self.catalog, text)?;
        let bound = inner.expression(&crate::parse::expression(text)?, &mut Scope::of(relation_of(table)))?;
        inner.known(bound)
    }

    /// Binds a derived index again after columns of its table changed their types.
    pub fn retyped_index(&mut self, table: &TableDef, derived: &Derived) -> Result<Derived> {
        let mut retyped = derived.clone();
        for key in &mut retyped.keys {
            if let KeyPart::Expression { text, column_type } = key {
                *column_type = key_type(self.expression_of_index(table, text)?.t)?;
                check_orderable(*column_type)?;
            }
        }
        if let Some(text) = &retyped.predicate {
            let bound = self.expression_of_index(table, text)?;
            self.condition(bound, "WHERE")?;
        }
        Ok(retyped)
    }

    /// Returns PostgreSQL's default name for an index.
    fn index_name(&self, table: &TableDef, keys: &[IndexKey]) -> String {
        let name = |key: &IndexKey| match &key.kind {
            IndexKeyKind::Column(column) => fold(column),
            IndexKeyKind::Expression(e) => key_name(&e.expr),
        };
        let names = numbered(keys.iter().map(|key| name(key).into()));
        let base = made_name(&table.name, &names.join("_"), "idx");
        let is_taken = |name: &str| table.indexes.iter().any(|index| index.name == name);
        let with_number = |n: u32| if n == 0 { base.clone() } else { format!("{base}{n}") };
        let is_free = |name: &String| !is_taken(name) && self.catalog.resolve(&table.schema, name).is_none();
        (0..).map(with_number).find(is_free).unwrap_or_else(|| base.clone())
    }
}

/// Returns the column if the expression is only a column.
fn column_of(e: &Ast) -> Option<&Ident> {
    match e {
        Ast::Nested(inner) => column_of(inner),
        Ast::Identifier(column) => Some(column),
        _ => None,
    }
}

/// Returns the type of an expression in a key.
fn key_type(t: Typed) -> Result<ColumnType> {
    match t.ty {
        Ty::Char => Ok(ColumnType::Char(1)),
        Ty::Name | Ty::Char1 => Ok(ColumnType::Text),
        _ => Typed::plain(t.ty).storage(),
    }
}

fn check_operator_class(key: &IndexKey) -> Result<()> {
    let Some(class) = &key.operator_class else { return Ok(()) };
    // Text is ordered by its bytes, as the pattern operator classes require.
    match class.as_str() {
        "text_pattern_ops"
        | "varchar_pattern_ops"
        | "bpchar_pattern_ops"
        | "text_ops"
        | "varchar_ops"
        | "int4_ops"
        | "int8_ops" => Ok(()),
        other => Err(SqlError::unsupported(format!("operator class {other}"))),
    }
}
