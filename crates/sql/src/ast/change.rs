//! Syntax tree of INSERT, UPDATE and DELETE.

use super::{Expr, Ident, ObjectName, Query, SelectItem, Table, TableWithJoins, With};

/// INSERT.
#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    /// WITH
    pub with: Option<With>,
    /// The table.
    pub table: ObjectName,
    /// Its alias.
    pub alias: Option<Ident>,
    /// The columns that are named.
    pub columns: Vec<ObjectName>,
    /// OVERRIDING ... VALUE
    pub overriding: Option<Overriding>,
    /// Where the rows come from; `None` for DEFAULT VALUES.
    pub source: Option<Box<Query>>,
    /// ON CONFLICT
    pub on_conflict: Option<OnConflict>,
    /// RETURNING
    pub returning: Option<Vec<SelectItem>>,
}

/// Whose values an identity column takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overriding {
    /// OVERRIDING SYSTEM VALUE: those of the statement.
    System,
    /// OVERRIDING USER VALUE: those of the sequence.
    User,
}

/// UPDATE.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// WITH
    pub with: Option<With>,
    /// The table.
    pub table: Table,
    /// SET
    pub assignments: Vec<Assignment>,
    /// FROM
    pub from: Vec<TableWithJoins>,
    /// WHERE
    pub selection: Option<Expr>,
    /// RETURNING
    pub returning: Option<Vec<SelectItem>>,
}

/// DELETE.
#[derive(Debug, Clone, PartialEq)]
pub struct Delete {
    /// WITH
    pub with: Option<With>,
    /// The table.
    pub table: Table,
    /// USING
    pub using: Vec<TableWithJoins>,
    /// WHERE
    pub selection: Option<Expr>,
    /// RETURNING
    pub returning: Option<Vec<SelectItem>>,
}

/// An item of SET.
#[derive(Debug, Clone, PartialEq)]
pub enum Assignment {
    /// `column = value`
    Column(ObjectName, Expr),
    /// `(columns) = value`
    Tuple(Vec<ObjectName>, Expr),
}

/// ON CONFLICT.
#[derive(Debug, Clone, PartialEq)]
pub struct OnConflict {
    /// Which conflicts are meant.
    pub target: Option<ConflictTarget>,
    /// DO UPDATE; `None` for DO NOTHING.
    pub update: Option<DoUpdate>,
}

/// Which conflicts ON CONFLICT means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConflictTarget {
    /// Those of the unique index on these columns.
    Columns(Vec<Ident>),
    /// ON CONSTRAINT
    OnConstraint(ObjectName),
}

/// DO UPDATE.
#[derive(Debug, Clone, PartialEq)]
pub struct DoUpdate {
    /// SET
    pub assignments: Vec<Assignment>,
    /// WHERE
    pub selection: Option<Expr>,
}
