//! What column names mean in a query.
//!
//! Invariants
//! 1. A query reads one relation at most; its columns are numbered as in the input row.
//! 2. In a grouped query an expression outside aggregates sees group keys and aggregates only.
//!
//! Does not know: plans.

use sqlparser::ast;

use super::Bound;
use super::aggregate::AggCall;
use crate::eval::Expr;
use crate::ty::Typed;

/// The relation in FROM.
#[derive(Debug, Clone)]
pub struct Relation {
    /// The name that qualifies its columns.
    pub alias: String,
    /// The table's own name, if the alias hides it.
    pub hidden: Option<String>,
    /// Names and types.
    pub columns: Vec<(String, Typed)>,
    /// Ordinals of the primary key; empty without one.
    pub key: Vec<usize>,
}

/// Group keys and aggregates of a grouped query, collected while it is bound.
#[derive(Debug, Default)]
pub struct Grouping {
    /// GROUP BY items as written, with what they are bound to.
    pub keys: Vec<(ast::Expr, Bound)>,
    /// Aggregates in the order of their slots, which follow those of the keys.
    pub calls: Vec<AggCall>,
    /// The keys determine the whole row: columns may be used freely.
    pub keyed: bool,
}

/// Names in reach.
#[derive(Debug, Default)]
pub struct Scope {
    /// The relation, if there is FROM.
    pub relation: Option<Relation>,
    /// Set while the items of a grouped query are bound.
    pub grouping: Option<Grouping>,
    /// Where aggregates may not stand: the clause's name for the error.
    pub no_aggregates: Option<&'static str>,
}

impl Scope {
    /// The columns of one relation, no aggregates.
    pub fn of(relation: Relation) -> Scope {
        Scope { relation: Some(relation), ..Scope::default() }
    }

    /// Ordinal and type of a column of the relation.
    pub fn find(&self, name: &str) -> Option<(usize, Typed)> {
        let relation = self.relation.as_ref()?;
        let found = relation.columns.iter().position(|(n, _)| n == name)?;
        Some((found, relation.columns[found].1))
    }
}

impl Grouping {
    /// Slot of a column that is a group key.
    pub fn key_of_column(&mut self, column: usize, t: Typed) -> Option<usize> {
        let is_it = |b: &Bound| matches!(b.expr, Expr::Column(n) if n == column);
        if let Some(slot) = self.keys.iter().position(|(_, b)| is_it(b)) {
            return Some(slot);
        }
        if !self.keyed {
            return None;
        }
        let bound = Bound { expr: Expr::Column(column), t, at: None };
        self.keys.push((ast::Expr::value(ast::Value::Null), bound));
        Some(self.keys.len() - 1)
    }

    /// Slot of an expression that is a group key as written.
    pub fn key_of(&self, written: &ast::Expr) -> Option<usize> {
        self.keys.iter().position(|(e, _)| e == written && !matches!(e, ast::Expr::Value(_)))
    }
}
