//! CHECK: what a new row of a table must fulfil, as text and as a bound condition.
//!
//! Invariants
//! 1. The text that is kept of a condition binds to the condition that was given; else it is refused.
//! 2. It names columns without their table, so that it outlives the table's name.
//!
//! Does not know: when rows are looked at (`exec::rules`).

use sqlparser::ast::Expr as Ast;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use varve_engine::{ColumnDef, TableDef};

use super::scope::{Relation, Scope};
use super::{Binder, Bound, clipped};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::parse;
use crate::plan::Rules;
use crate::ty::Typed;

/// A CHECK condition as it is kept.
pub(super) struct Condition {
    /// The text.
    pub text: String,
    /// Ordinals of the columns that it names.
    pub columns: Vec<usize>,
}

/// The columns of a table.
pub(super) fn relation_of(table: &TableDef) -> Relation {
    relation(&table.name, &table.columns)
}

/// The columns of a table that exists or is being defined.
fn relation(name: &str, columns: &[ColumnDef]) -> Relation {
    let columns = columns.iter().map(|c| (c.name.clone(), Typed::of_column(c.column_type))).collect();
    Relation { alias: name.to_owned(), columns, ..Relation::unnamed() }
}

impl Binder<'_> {
    /// What new rows of a table must fulfil.
    pub fn rules(&mut self, table: &TableDef) -> Result<Rules> {
        let mut checks = Vec::with_capacity(table.checks.len());
        for check in &table.checks {
            let condition = self.stored_condition(&check.text, relation(&table.name, &table.columns))?;
            checks.push((check.name.as_str().into(), condition));
        }
        // PostgreSQL looks at them in this order.
        checks.sort_by(|a: &(Box<str>, Expr), b| a.0.cmp(&b.0));
        let refers = !table.foreign_keys.is_empty();
        Ok(Rules { checks: checks.into(), part: self.part.clone(), refers, is_referred: false })
    }

    /// The same for UPDATE of these columns.
    pub(super) fn rules_of_update(&mut self, table: &TableDef, assigned: &[usize]) -> Result<Rules> {
        let touches = |columns: &[usize]| columns.iter().any(|c| assigned.contains(c));
        Ok(Rules {
            refers: table.foreign_keys.iter().any(|k| touches(&k.columns)),
            is_referred: self.catalog.children(table.id).any(|(_, k)| touches(&k.parent_columns)),
            ..self.rules(table)?
        })
    }

    fn stored_condition(&mut self, text: &str, relation: Relation) -> Result<Expr> {
        let mut inner = Binder::new(self.catalog, text, &[])?;
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

    /// A part of a condition over the columns of a table.
    pub fn over_table(&mut self, e: &Ast, table: &TableDef) -> Result<Bound> {
        self.expression(e, &mut Scope::of(relation(&table.name, &table.columns)))
    }

    /// Which rows COPY FROM takes.
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

    /// A CHECK condition of a table with these columns.
    pub(super) fn check_condition(
        &mut self,
        e: &Ast,
        table: &str,
        columns: &[ColumnDef],
    ) -> Result<Condition> {
        let bound = self.bound_condition(e, relation(table, columns))?;
        let text = without_qualifier(&e.to_string(), table)?;
        self.same_condition(&text, relation(table, columns), &bound)?;
        Ok(Condition { text, columns: columns_of(&bound) })
    }

    /// An expression over a table as it is kept: it names columns without their table, and binds to the same again.
    pub(super) fn kept_text(&mut self, e: &Ast, table: &TableDef, meant: &Bound) -> Result<String> {
        let text = without_qualifier(&e.to_string(), &table.name)?;
        self.same_expression(&text, table, meant)?;
        Ok(text)
    }

    /// The kept text of an expression after a column was renamed.
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

    /// 0A000 if the text does not mean what was meant.
    pub(super) fn same_expression(&mut self, text: &str, table: &TableDef, meant: &Bound) -> Result<()> {
        let read = self.expression_of_index(table, text);
        if read.is_ok_and(|read| format!("{:?}", read.expr) == format!("{:?}", meant.expr)) {
            return Ok(());
        }
        Err(SqlError::unsupported(format!("the expression {text}"))
            .with_hint("Varve cannot keep this expression as text; write it in another way."))
    }

    /// The text of a condition after a column was renamed.
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

    /// 0A000 if the text does not mean what was meant.
    fn same_condition(&mut self, text: &str, relation: Relation, meant: &Expr) -> Result<()> {
        let read = self.stored_condition(text, relation);
        // Bound expressions hold nothing that is not in their Debug form, positions least of all.
        if read.is_ok_and(|read| format!("{read:?}") == format!("{meant:?}")) {
            return Ok(());
        }
        Err(SqlError::unsupported(format!("the condition {text}"))
            .with_hint("Varve cannot keep this expression as text; write it in another way."))
    }
}

/// Whether an expression asks for rows of its own.
pub(super) fn has_subquery(e: &Expr) -> bool {
    let mut found = false;
    e.walk(&mut |node| found |= matches!(node, Expr::Subquery(..)));
    found
}

/// Ordinals of the columns of an expression over a table's row.
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

/// Takes `table.` away from names of columns.
fn without_qualifier(text: &str, table: &str) -> Result<String> {
    let mut drop_period = false;
    let bare = with_words(text, |before, word, after| {
        let qualifies = word == table && after == Some(&Token::Period) && before != Some(&Token::Period);
        drop_period |= qualifies;
        qualifies.then(Vec::new)
    })?;
    match drop_period {
        false => Ok(bare),
        true => without_leading_periods(&bare),
    }
}

/// A column's name replaced by another one.
fn with_new_name(text: &str, from: &str, to: &str) -> Result<String> {
    with_words(text, |before, word, after| {
        let names = word == from
            && before != Some(&Token::DoubleColon)
            && before != Some(&Token::Period)
            && after != Some(&Token::LParen);
        names.then(|| vec![Token::make_word(to, Some('"'))])
    })
}

/// A period that no word stands before is what is left of a qualifier.
fn without_leading_periods(text: &str) -> Result<String> {
    let tokens = parse::tokens(text)?;
    let mut out = String::new();
    let mut before: Option<&Token> = None;
    for t in &tokens {
        if t.token != Token::Period || matches!(before, Some(Token::Word(_))) {
            out.push_str(&written(&t.token));
        }
        before = Some(&t.token);
    }
    Ok(out)
}

/// Rewrites the words of a text; `edit` gets the token before, the word as names are compared, and the token behind.
fn with_words(
    text: &str,
    mut edit: impl FnMut(Option<&Token>, &str, Option<&Token>) -> Option<Vec<Token>>,
) -> Result<String> {
    let tokens = parse::tokens(text)?;
    let solid = |t: &&TokenWithSpan| !parse::is_blank(&t.token);
    let mut out = String::new();
    for (at, t) in tokens.iter().enumerate() {
        let before = tokens[..at].iter().rev().find(solid).map(|t| &t.token);
        let after = tokens[at + 1..].iter().find(solid).map(|t| &t.token);
        let edited = match &t.token {
            Token::Word(w) if w.quote_style.is_some() => edit(before, &clipped(w.value.clone()), after),
            Token::Word(w) => edit(before, &clipped(w.value.to_ascii_lowercase()), after),
            _ => None,
        };
        match edited {
            Some(tokens) => tokens.iter().for_each(|t| out.push_str(&t.to_string())),
            None => out.push_str(&written(&t.token)),
        }
    }
    Ok(out)
}

/// A token as it is read again; of a string the parser's own form has no escapes.
fn written(token: &Token) -> String {
    match token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => {
            format!("'{}'", text.replace('\'', "''"))
        }
        other => other.to_string(),
    }
}

/// 42710
pub(super) fn constraint_exists(name: &str, table: &str, exists: bool) -> SqlError {
    let message = match exists {
        true => format!("constraint \"{name}\" for relation \"{table}\" already exists"),
        false => format!("check constraint \"{name}\" already exists"),
    };
    SqlError::new(SqlState::DUPLICATE_OBJECT, message)
}
