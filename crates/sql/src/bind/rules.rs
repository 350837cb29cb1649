//! Binds the CHECK conditions of a table, as text and as expressions.
//!
//! Invariants
//! 1. The stored text of a condition binds to the given condition. Otherwise the statement is refused.
//! 2. The text names columns without their table, so it stays valid when the table is renamed.
//!
//! This module does not know when rows are checked (`exec::rules`).

use crate::ast::Expr as Ast;
use varve_engine::{ColumnDef, TableDef};

use super::Binder;
use super::bound::Bound;
use super::scope::{Relation, Scope};
use crate::ast::KeptExpr;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::parse;
use crate::plan::Rules;
use crate::system::names::quoted;
use crate::ty::Typed;

/// A CHECK condition as the catalog stores it.
pub(super) struct Condition {
    /// The text of the condition.
    pub text: String,
    /// The ordinals of the columns that the condition uses.
    pub columns: Vec<usize>,
}

/// Returns the relation that expressions over a table see.
pub(super) fn relation_of(table: &TableDef) -> Relation {
    relation(&table.name, &table.columns)
}

/// Returns the relation for a table that exists or is being defined.
fn relation(name: &str, columns: &[ColumnDef]) -> Relation {
    let columns = columns.iter().map(|c| (c.name.clone(), Typed::of_column(c.column_type))).collect();
    Relation { alias: name.to_owned(), columns, ..Relation::unnamed() }
}

impl Binder<'_> {
    /// Returns the rules that new rows of a table must fulfil.
    pub fn rules(&mut self, table: &TableDef) -> Result<Rules> {
        let mut checks = Vec::with_capacity(table.checks.len());
        for check in &table.checks {
            let condition = self.stored_condition(&check.text, relation(&table.name, &table.columns))?;
            checks.push((check.name.as_str().into(), condition));
        }
        // PostgreSQL checks the conditions in the order of their names.
        checks.sort_by(|a: &(Box<str>, Expr), b| a.0.cmp(&b.0));
        let refers = !table.foreign_keys.is_empty();
        Ok(Rules { checks: checks.into(), part: self.part.clone(), refers, is_referred: false })
    }

    /// Returns the rules for an UPDATE that assigns these columns.
    pub(super) fn rules_of_update(&mut self, table: &TableDef, assigned: &[usize]) -> Result<Rules> {
        let touches = |columns: &[usize]| columns.iter().any(|c| assigned.contains(c));
        Ok(Rules {
            refers: table.foreign_keys.iter().any(|k| touches(&k.columns)),
            is_referred: self.catalog.children(table.id).any(|(_, k)| touches(&k.parent_columns)),
            ..self.rules(table)?
        })
    }

    fn stored_condition(&mut self, text: &str, relation: Relation) -> Result<Expr> {
        let mut inner = Binder::of_kept(self.catalog, text)?;
        let bound = inner.bound_condition(&parse::expression(text)?, relation)?;
        self.reads_world |= inner.reads_world;
        Ok(bound)
    }

    fn bound_condition(&mut self, e: &Ast, relation: Relation) -> Result<Expr> {
        let mut scope = Scope { no_aggregates: Some("check constraints"), ..Scope::of(relation) };
        let bound = self.expression(e, &mut scope)?;
        if has_subquery(&bound.expr) {
            let message = "cannot use subquery in check constraint";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        self.condition(bound, "CHECK")
    }

    /// Binds a part of a condition over the columns of a table.
    pub fn over_table(&mut self, e: &Ast, table: &TableDef) -> Result<Bound> {
        self.expression(e, &mut Scope::of(relation(&table.name, &table.columns)))
    }

    /// Binds the WHERE condition of COPY FROM, which selects the rows to insert.
    pub fn copy_filter(&mut self, e: &Ast, table: &TableDef) -> Result<Expr> {
        const CLAUSE: &str = "COPY FROM WHERE conditions";
        let relation = relation(&table.name, &table.columns);
        let mut scope = Scope { no_aggregates: Some(CLAUSE), ..Scope::of(relation) };
        let bound = self.expression(e, &mut scope)?;
        if has_subquery(&bound.expr) {
            let message = "cannot use subquery in COPY FROM WHERE condition";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        self.condition(bound, "WHERE")
    }

    /// Binds a new CHECK condition of a table with these columns.
    pub(super) fn check_condition(
        &mut self,
        condition: &KeptExpr,
        table: &str,
        columns: &[ColumnDef],
    ) -> Result<Condition> {
        let bound = self.bound_condition(&condition.expr, relation(table, columns))?;
        let text = without_qualifier(&condition.text, table)?;
        self.same_condition(&text, relation(table, columns), &bound)?;
        Ok(Condition { text, columns: columns_of(&bound) })
    }

    /// Returns the text of an expression over a table as the catalog stores it. The text names columns
    /// without their table. Fails if it does not bind to `meant` again.
    pub(super) fn kept_text(&mut self, text: &str, table: &TableDef, meant: &Bound) -> Result<String> {
        let text = without_qualifier(text, &table.name)?;
        self.same_expression(&text, table, meant)?;
        Ok(text)
    }

    /// Returns the stored text of an expression after the column `from` is renamed to `to`.
    pub(super) fn renamed_text(
        &mut self,
        text: &str,
        table: &TableDef,
        from: &str,
        to: &str,
    ) -> Result<String> {
        let meant = self.expression_of_index(table, text)?;
        let mut renamed = TableDef::clone(table);
        renamed.columns.iter_mut().filter(|c| c.name == from).for_each(|c| c.name = to.to_owned());
        let text = with_new_name(text, from, to)?;
        self.same_expression(&text, &renamed, &meant)?;
        Ok(text)
    }

    /// Fails with 0A000 if the text does not bind to the expression `meant`.
    pub(super) fn same_expression(&mut self, text: &str, table: &TableDef, meant: &Bound) -> Result<()> {
        let read = self.expression_of_index(table, text);
        if read.is_ok_and(|read| format!("{:?}", read.expr) == format!("{:?}", meant.expr)) {
            return Ok(());
        }
        Err(SqlError::unsupported(format!("the expression {text}"))
            .with_hint("Varve cannot keep this expression as text; write it in another way."))
    }

    /// Returns the stored text of a condition after the column `from` is renamed to `to`.
    pub(super) fn renamed_condition(
        &mut self,
        text: &str,
        table: &TableDef,
        from: &str,
        to: &str,
    ) -> Result<String> {
        let bound = self.stored_condition(text, relation(&table.name, &table.columns))?;
        let mut columns = table.columns.clone();
        columns.iter_mut().filter(|c| c.name == from).for_each(|c| c.name = to.to_owned());
        let text = with_new_name(text, from, to)?;
        self.same_condition(&text, relation(&table.name, &columns), &bound)?;
        Ok(text)
    }

    /// Fails with 0A000 if the text does not bind to the condition `meant`.
    fn same_condition(&mut self, text: &str, relation: Relation, meant: &Expr) -> Result<()> {
        let read = self.stored_condition(text, relation);
        // The Debug form of a bound expression shows everything in it, and a bound expression has no
        // positions in the text. So equal Debug forms mean equal expressions.
        if read.is_ok_and(|read| format!("{read:?}") == format!("{meant:?}")) {
            return Ok(());
        }
        Err(SqlError::unsupported(format!("the condition {text}"))
            .with_hint("Varve cannot keep this expression as text; write it in another way."))
    }
}

/// Returns whether an expression contains a subquery.
pub(super) fn has_subquery(e: &Expr) -> bool {
    let mut found = false;
    e.walk(&mut |node| found |= matches!(node, Expr::Subquery(..)));
    found
}

/// Returns the ordinals of the columns that an expression over a table's row uses.
pub(super) fn columns_of(e: &Expr) -> Vec<usize> {
    let mut columns = Vec::new();
    e.walk(&mut |node| {
        if let Expr::Column(n) = node
            && !columns.contains(n)
        {
            columns.push(*n);
        }
    });
    columns.sort_unstable();
    columns
}

/// Removes `table.` before the names of columns.
fn without_qualifier(text: &str, table: &str) -> Result<String> {
    let tokens = parse::tokens(text)?;
    let is_period = |n: Option<usize>| n.and_then(|n| tokens.get(n)).is_some_and(|t| t.is("."));
    let (mut out, mut copied) = (String::with_capacity(text.len()), 0);
    for (n, token) in tokens.iter().enumerate() {
        let qualifies = token.name().as_deref() == Some(table) && !is_period(n.checked_sub(1));
        if qualifies && is_period(Some(n + 1)) {
            out.push_str(&text[copied..token.start]);
            copied = tokens[n + 1].end;
        }
    }
    out.push_str(&text[copied..]);
    Ok(out)
}

/// Replaces the column name `from` by `to` in a text.
fn with_new_name(text: &str, from: &str, to: &str) -> Result<String> {
    let tokens = parse::tokens(text)?;
    let is = |n: Option<usize>, symbol| n.and_then(|n| tokens.get(n)).is_some_and(|t| t.is(symbol));
    let (mut out, mut copied) = (String::with_capacity(text.len()), 0);
    for (n, token) in tokens.iter().enumerate() {
        let before = n.checked_sub(1);
        if token.name().as_deref() == Some(from)
            && !is(before, "::")
            && !is(before, ".")
            && !is(Some(n + 1), "(")
        {
            out.push_str(&text[copied..token.start]);
            out.push_str(&quoted(to));
            copied = token.end;
        }
    }
    out.push_str(&text[copied..]);
    Ok(out)
}

/// Returns the error 42710: a constraint of this name exists already.
pub(super) fn constraint_exists(name: &str, table: &str, exists: bool) -> SqlError {
    let message = match exists {
        true => format!("constraint \"{name}\" for relation \"{table}\" already exists"),
        false => format!("check constraint \"{name}\" already exists"),
    };
    SqlError::new(SqlState::DUPLICATE_OBJECT, message)
}
