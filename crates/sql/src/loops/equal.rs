//! Classes of columns and constants that a query's conditions make equal. Equality is transitive.
//!
//! Invariants
//! 1. The conditions of all steps together hold for the same rows as the equalities from which the classes
//!    were made.
//! 2. All columns of a class encode their values as the same key bytes.
//!
//! This module does not know the order of the tables.

use varve_engine::ColumnType;

use crate::eval::{CmpOp, Expr};

/// Columns of the joined row that are equal in each row of the result, and the constant that they equal, if
/// there is one.
#[derive(Default)]
struct Class {
    columns: Vec<usize>,
    value: Option<Expr>,
}

/// All classes of a join.
#[derive(Default)]
pub(super) struct Classes(Vec<Class>);

impl Classes {
    /// Makes classes of the equalities among the conditions. Also returns the other conditions in their
    /// order.
    pub(super) fn of(
        conditions: Vec<Expr>,
        column_type: &dyn Fn(usize) -> Option<ColumnType>,
    ) -> (Classes, Vec<Expr>) {
        let mut classes = Classes::default();
        let mut rest = Vec::new();
        for condition in conditions {
            match columns(&condition) {
                Some((a, b)) if a != b && alike(column_type(a), column_type(b)) => classes.unite(a, b),
                _ => rest.push(condition),
            }
        }
        rest.retain(|condition| !constant(condition).is_some_and(|(c, value)| classes.fix(c, value)));
        (classes, rest)
    }

    fn unite(&mut self, a: usize, b: usize) {
        let (a, b) = (self.class(a), self.class(b));
        if a != b {
            let gone = self.0.swap_remove(a.max(b));
            self.0[a.min(b)].columns.extend(gone.columns);
        }
    }

    /// Returns the index of a column's class. Makes the class if there is none.
    fn class(&mut self, column: usize) -> usize {
        if let Some(at) = self.0.iter().position(|c| c.columns.contains(&column)) {
            return at;
        }
        self.0.push(Class { columns: vec![column], value: None });
        self.0.len() - 1
    }

    /// Records the constant that a column equals. Returns false if its class already has a constant.
    fn fix(&mut self, column: usize, value: &Expr) -> bool {
        let at = self.class(column);
        let is_first = self.0[at].value.is_none();
        self.0[at].value.get_or_insert_with(|| value.clone());
        is_first
    }

    /// Returns the equalities to check when a table with the columns `own` is read, and the columns `before`
    /// are known.
    pub(super) fn conditions(
        &self,
        own: &dyn Fn(usize) -> bool,
        before: &dyn Fn(usize) -> bool,
    ) -> Vec<Expr> {
        let mut out = Vec::new();
        for class in &self.0 {
            let known = class.columns.iter().copied().find(|c| before(*c)).map(Expr::Column);
            let mut equal_to = class.value.clone().or(known);
            for column in class.columns.iter().copied().filter(|c| own(*c)) {
                match &equal_to {
                    Some(value) => out.push(equality(column, value.clone())),
                    None => equal_to = Some(Expr::Column(column)),
                }
            }
        }
        out
    }
}

fn equality(column: usize, value: Expr) -> Expr {
    Expr::Compare(CmpOp::Eq, Box::new((Expr::Column(column), value)))
}

/// Returns the columns of a condition `a = b`.
fn columns(condition: &Expr) -> Option<(usize, usize)> {
    match condition {
        Expr::Compare(CmpOp::Eq, sides) => match (&sides.0, &sides.1) {
            (Expr::Column(a), Expr::Column(b)) => Some((*a, *b)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the column and the value of a condition `a = 1` or `1 = a`.
fn constant(condition: &Expr) -> Option<(usize, &Expr)> {
    match condition {
        Expr::Compare(CmpOp::Eq, sides) => match (&sides.0, &sides.1) {
            (Expr::Column(c), value) | (value, Expr::Column(c)) if value.is_constant() => Some((*c, value)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether equal values of both types have the same key bytes in both types.
fn alike(a: Option<ColumnType>, b: Option<ColumnType>) -> bool {
    use ColumnType::{Char, Int2, Int4, Int8, Numeric, Rounded, Text, Varchar};
    let (Some(a), Some(b)) = (a, b) else { return false };
    match (a, b) {
        (Rounded(a, _), Rounded(b, _)) => a == b,
        (Rounded(a, _), b) | (b, Rounded(a, _)) => a.unrounded() == b,
        (Int2 | Int4 | Int8, Int2 | Int4 | Int8)
        | (Numeric { .. }, Numeric { .. })
        | (Char(_), Char(_))
        | (Text | Varchar(_), Text | Varchar(_)) => true,
        (a, b) => a == b,
    }
}
