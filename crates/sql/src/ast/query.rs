//! Syntax tree of queries.

use varve_engine::LockStrength;

use super::{Expr, FunctionArg, Ident, ObjectName, TextPosition};

/// A query with all its clauses.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// WITH
    pub with: Option<With>,
    /// The body.
    pub body: Box<SetExpr>,
    /// ORDER BY
    pub order_by: Vec<OrderByExpr>,
    /// LIMIT, FETCH FIRST
    pub limit: Option<Expr>,
    /// FETCH FIRST ... WITH TIES
    pub with_ties: bool,
    /// OFFSET
    pub offset: Option<Expr>,
    /// FOR UPDATE and similar clauses, one for each named table.
    pub locks: Vec<LockClause>,
}

impl Query {
    /// Returns a query without clauses around its body.
    pub fn bare(body: SetExpr) -> Query {
        Query {
            with: None,
            body: Box::new(body),
            order_by: Vec::new(),
            limit: None,
            with_ties: false,
            offset: None,
            locks: Vec::new(),
        }
    }

    /// Returns whether there are no clauses around its body.
    pub fn is_bare(&self) -> bool {
        let Query { with, body: _, order_by, limit, with_ties, offset, locks } = self;
        with.is_none()
            && order_by.is_empty()
            && limit.is_none()
            && !with_ties
            && offset.is_none()
            && locks.is_empty()
    }

    /// Returns whether it limits the number of its rows.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some() || self.with_ties || self.offset.is_some()
    }
}

/// WITH.
#[derive(Debug, Clone, PartialEq)]
pub struct With {
    /// RECURSIVE
    pub recursive: bool,
    /// The queries that it names.
    pub cte_tables: Vec<Cte>,
}

/// A query that WITH names.
#[derive(Debug, Clone, PartialEq)]
pub struct Cte {
    /// Its name, and names of its columns.
    pub alias: TableAlias,
    /// The query.
    pub query: Box<Query>,
    /// MATERIALIZED (true), NOT MATERIALIZED (false)
    pub materialized: Option<bool>,
}

/// The body of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum SetExpr {
    /// SELECT
    Select(Box<Select>),
    /// A query in parentheses with its own clauses.
    Query(Box<Query>),
    /// UNION, INTERSECT, EXCEPT
    SetOperation {
        /// The first operand.
        left: Box<SetExpr>,
        /// The operation.
        op: SetOperator,
        /// ALL
        all: bool,
        /// The second operand.
        right: Box<SetExpr>,
    },
    /// VALUES
    Values(Vec<Vec<Expr>>),
}

/// A set operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOperator {
    /// UNION
    Union,
    /// INTERSECT
    Intersect,
    /// EXCEPT
    Except,
}

/// SELECT, without the clauses around a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    /// DISTINCT
    pub distinct: Option<Distinct>,
    /// The select list.
    pub projection: Vec<SelectItem>,
    /// FROM
    pub from: Vec<TableWithJoins>,
    /// WHERE
    pub selection: Option<Expr>,
    /// GROUP BY
    pub group_by: Vec<GroupItem>,
    /// HAVING
    pub having: Option<Expr>,
    /// WINDOW
    pub named_windows: Vec<NamedWindow>,
}

/// DISTINCT.
#[derive(Debug, Clone, PartialEq)]
pub enum Distinct {
    /// DISTINCT
    All,
    /// DISTINCT ON (...)
    On(Vec<Expr>),
}

/// An item of a select list or of RETURNING.
#[derive(Debug, Clone, PartialEq)]
pub enum SelectItem {
    /// An expression.
    UnnamedExpr(Expr),
    /// `expr AS alias`
    ExprWithAlias {
        /// The expression.
        expr: Expr,
        /// Its name.
        alias: Ident,
    },
    /// `*`
    Wildcard(TextPosition),
    /// `table.*`
    QualifiedWildcard(ObjectName),
}

/// An item of GROUP BY.
#[derive(Debug, Clone, PartialEq)]
pub enum GroupItem {
    /// A key, or a list of keys in parentheses.
    Expr(Expr),
    /// `()`: all rows are one group.
    Empty,
    /// ROLLUP of these lists of keys
    Rollup(Vec<Vec<Expr>>),
    /// CUBE of these lists of keys
    Cube(Vec<Vec<Expr>>),
    /// GROUPING SETS
    Sets(Vec<GroupItem>),
}

/// An item of ORDER BY.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderByExpr {
    /// The key.
    pub expr: Expr,
    /// ASC, DESC, USING
    pub direction: Direction,
    /// NULLS FIRST (true), NULLS LAST (false)
    pub nulls_first: Option<bool>,
}

/// The direction of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// ASC, or nothing
    Ascending,
    /// DESC
    Descending,
    /// USING an operator
    Using,
}

/// A window that has a name.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedWindow {
    /// The name.
    pub name: Ident,
    /// The window.
    pub spec: WindowSpec,
}

/// The definition of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowSpec {
    /// The window that it extends.
    pub window_name: Option<Ident>,
    /// PARTITION BY
    pub partition_by: Vec<Expr>,
    /// ORDER BY
    pub order_by: Vec<OrderByExpr>,
    /// ROWS, RANGE, GROUPS
    pub frame: Option<WindowFrame>,
}

/// The frame of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowFrame {
    /// ROWS, RANGE, GROUPS
    pub units: FrameUnits,
    /// The start.
    pub start: FrameBound,
    /// The end. The default is the current row.
    pub end: FrameBound,
    /// EXCLUDE
    pub exclude: FrameExclusion,
}

/// The unit of a frame's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameUnits {
    /// ROWS
    Rows,
    /// RANGE
    Range,
    /// GROUPS
    Groups,
}

/// A bound of a frame. Without an expression it is UNBOUNDED.
#[derive(Debug, Clone, PartialEq)]
pub enum FrameBound {
    /// CURRENT ROW
    CurrentRow,
    /// PRECEDING
    Preceding(Option<Box<Expr>>),
    /// FOLLOWING
    Following(Option<Box<Expr>>),
}

/// The rows that are excluded from a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameExclusion {
    /// EXCLUDE NO OTHERS, or nothing
    NoOthers,
    /// EXCLUDE CURRENT ROW
    CurrentRow,
    /// EXCLUDE GROUP
    Group,
    /// EXCLUDE TIES
    Ties,
}

/// FOR UPDATE and similar clauses.
#[derive(Debug, Clone, PartialEq)]
pub struct LockClause {
    /// The strength of the locks.
    pub strength: LockStrength,
    /// OF. The default is all tables.
    pub of: Option<ObjectName>,
    /// How rows that other transactions have locked are handled.
    pub wait: LockWait,
}

/// How a row that another transaction has locked is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockWait {
    /// The statement waits for it.
    Wait,
    /// SKIP LOCKED
    SkipLocked,
    /// NOWAIT
    NoWait,
}

/// An item of FROM with the joins after it.
#[derive(Debug, Clone, PartialEq)]
pub struct TableWithJoins {
    /// The relation before the first join.
    pub relation: TableFactor,
    /// The joins.
    pub joins: Vec<Join>,
}

/// A join with the relations before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Join {
    /// The joined relation.
    pub relation: TableFactor,
    /// The kind of the join.
    pub operator: JoinOperator,
}

/// The kind of a join.
#[derive(Debug, Clone, PartialEq)]
pub enum JoinOperator {
    /// INNER JOIN
    Inner(JoinConstraint),
    /// LEFT JOIN
    LeftOuter(JoinConstraint),
    /// RIGHT JOIN
    RightOuter(JoinConstraint),
    /// FULL JOIN
    FullOuter(JoinConstraint),
    /// CROSS JOIN
    Cross,
}

/// The condition of a join.
#[derive(Debug, Clone, PartialEq)]
pub enum JoinConstraint {
    /// ON
    On(Expr),
    /// USING
    Using(Vec<Ident>),
    /// NATURAL
    Natural,
}

/// A relation in FROM.
#[derive(Debug, Clone, PartialEq)]
pub enum TableFactor {
    /// A table or view by its name.
    Table(Table),
    /// A query in parentheses.
    Derived {
        /// LATERAL
        lateral: bool,
        /// The query.
        subquery: Box<Query>,
        /// Its alias.
        alias: Option<TableAlias>,
    },
    /// A call of a function. It may always read the items before it.
    Function {
        /// The function.
        name: ObjectName,
        /// Its arguments.
        args: Vec<FunctionArg>,
        /// WITH ORDINALITY
        with_ordinality: bool,
        /// Its alias.
        alias: Option<TableAlias>,
    },
    /// A join in parentheses.
    NestedJoin {
        /// The join.
        table_with_joins: Box<TableWithJoins>,
        /// Its alias.
        alias: Option<TableAlias>,
    },
}

/// A table or view by its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The name.
    pub name: ObjectName,
    /// Whether ONLY is given: the rows of the table's partitions are left out.
    pub only: bool,
    /// Its alias.
    pub alias: Option<TableAlias>,
}

/// The name of a relation in a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableAlias {
    /// The name.
    pub name: Ident,
    /// Names of its first columns.
    pub columns: Vec<Ident>,
}
