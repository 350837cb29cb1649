//! Syntax tree of INSERT, UPDATE and DELETE.

use super::{Expr, Ident, ObjectName, Query, SelectItem, Table, TableWithJoins, With};

/// INSERT.
#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    /// WITH
    pub with: Option<With>,
    /// The table.
    pub table: ObjectName,
    /// The alias of the table.
    pub alias: Option<Ident>,
    /// The named columns.
    pub columns: Vec<ObjectName>,
    /// OVERRIDING ... VALUE
    pub overriding: Option<Overriding>,
    /// The source of the rows; `None` for DEFAULT VALUES.
    pub source: Option<Box<Query>>,
    /// ON CONFLICT
    pub on_conflict: Option<OnConflict>,
    /// RETURNING
    pub returning: Option<Vec<SelectItem>>,
}

/// The source of an identity column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overriding {
    /// OVERRIDING SYSTEM VALUE: the values of the statement.
    System,
    /// OVERRIDING USER VALUE: the values of the sequence.
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
    /// The conflicts that are handled.
    pub target: Option<ConflictTarget>,
    /// DO UPDATE; `None` for DO NOTHING.
    pub update: Option<DoUpdate>,
}

/// The conflicts that ON CONFLICT handles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConflictTarget {
    /// The conflicts in the unique index on these columns.
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
