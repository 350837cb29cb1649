//! Physical plans: what the executor runs.
//!
//! Invariants
//! 1. A plan holds the table definition it was made for; the engine refuses to open the table once that is stale, and the
//!    session plans again.
//! 2. Filters that an access path guarantees are not in `filter` any more.
//!
//! Does not know: how it came about (`bind`, `access`) or how it runs (`exec`).

use std::sync::Arc;

use varve_engine::{LockStrength, Part, ScanIndex, TableDef};

use crate::bind::aggregate::AggCall;
use crate::bind::window::WinCall;
use crate::eval::Expr;
use crate::exec::sets::SetFunction;
use crate::sink::Column;
use crate::system::SystemTable;
use crate::ty::{Ty, Typed};

/// A statement that runs on rows.
#[derive(Debug)]
pub enum Plan {
    /// SELECT, VALUES
    Select(Select),
    /// INSERT
    Insert(Insert),
    /// UPDATE
    Update(Update),
    /// DELETE
    Delete(Delete),
}

/// Some values of an index key from its first column on, then perhaps bounds for the next one.
#[derive(Debug, Clone, Default)]
pub struct KeyRange {
    /// Values that the first columns equal.
    pub equal: Vec<Expr>,
    /// The one of them that is an array, of which each element is meant: as many ranges as it has elements.
    pub each: Option<usize>,
    /// Lower bound of the next column, and whether it is included.
    pub lower: Option<(Expr, bool)>,
    /// Upper bound of the next column, and whether it is included.
    pub upper: Option<(Expr, bool)>,
}

/// How rows are found.
#[derive(Debug, Clone)]
pub enum Access {
    /// All rows in primary key order.
    Full,
    /// The row with this primary key: one expression for each key column.
    Point(Box<[Expr]>),
    /// The rows in ranges of an index.
    Ranges {
        /// Which tree.
        index: ScanIndex,
        /// Ordinals of its columns.
        columns: Box<[usize]>,
        /// The ranges, in no order; they may overlap.
        ranges: Box<[KeyRange]>,
    },
}

/// A table and the way into it.
#[derive(Debug)]
pub struct TableAccess {
    /// The table.
    pub table: Arc<TableDef>,
    /// The way.
    pub access: Access,
    /// From the end of the index.
    pub reverse: bool,
}

/// Where rows come from.
#[derive(Debug)]
pub enum Source {
    /// One row of no columns.
    Nothing,
    /// A table.
    Table(TableAccess),
    /// A table whose rows a statement is to change: behind its columns, the row's key as bytes.
    Target(Arc<TableDef>),
    /// generate_series(start, stop, step); one column.
    Series(Box<[Expr; 3]>, Ty),
    /// unnest(a, b, ...)
    Unnest(Box<Unnest>),
    /// Rows of a query, each as often as functions give rows for it.
    Expand(Box<Expand>),
    /// Rows of expressions, and the types of their columns.
    Values(Vec<Vec<Expr>>, Box<[Ty]>),
    /// Rows of two sources beside each other.
    Join(Box<Join>),
    /// Rows of a query in FROM.
    Query(Box<Select>),
    /// A system table.
    System(&'static SystemTable),
    /// Rows of UNION, INTERSECT or EXCEPT; its row is that of either side.
    Set(Box<SetOperation>),
    /// Rows of tables that are read one within the other.
    Loops(Box<[Step]>),
    /// Rows of a query that WITH has named.
    Shared(Arc<Shared>),
    /// In the second part of a recursive query of this number: the rows that the turn before has added, which have these types.
    Work(usize, Box<[Ty]>),
}

/// A query that WITH has named. However often it is read, there is one of it.
#[derive(Debug)]
pub struct Shared {
    /// What gives its rows.
    pub body: SharedBody,
    /// Types of its columns.
    pub types: Box<[Ty]>,
    /// [NOT] MATERIALIZED, if written.
    pub materialized: Option<bool>,
    /// It may give other rows at each run.
    pub varies: bool,
}

/// What gives the rows of a query that WITH has named.
#[derive(Debug)]
pub enum SharedBody {
    /// A query, which reads nothing of the queries around.
    Query(Box<Select>),
    /// One that reads itself.
    Recursive(Box<Recursion>),
}

/// WITH RECURSIVE: the rows of a query, then those that another one makes of them, and of these, until there are no more.
#[derive(Debug)]
pub struct Recursion {
    /// Its number, by which its second part names it.
    pub id: usize,
    /// UNION ALL: a row may come more than once.
    pub all: bool,
    /// The rows to begin with.
    pub first: Select,
    /// The rows that follow from those of the turn before.
    pub then: Select,
}

/// One table of nested loops, read anew for each row that the steps before it give. Columns in its expressions are those of
/// the loops' row, which each step makes longer.
#[derive(Debug)]
pub struct Step {
    /// The table and the way in; keys may read the columns of the steps before.
    pub target: TableAccess,
    /// The table's columns that it adds to the row, by ordinal.
    pub columns: Box<[usize]>,
    /// Rows to keep.
    pub filter: Option<Expr>,
}

/// What a set operation makes of two queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetKind {
    /// UNION
    Union,
    /// INTERSECT
    Intersect,
    /// EXCEPT
    Except,
}

impl SetKind {
    /// As written.
    pub fn name(self) -> &'static str {
        match self {
            SetKind::Union => "UNION",
            SetKind::Intersect => "INTERSECT",
            SetKind::Except => "EXCEPT",
        }
    }
}

/// UNION, INTERSECT or EXCEPT of queries whose outputs have the same types.
#[derive(Debug)]
pub struct SetOperation {
    /// Which.
    pub kind: SetKind,
    /// ALL: rows are counted, not only there or not.
    pub all: bool,
    /// Two queries, or more of a UNION.
    pub sides: Vec<Select>,
}

/// A query in an expression. What it reads of the query around are its `Expr::Outer` values.
#[derive(Debug)]
pub struct Subquery {
    /// What becomes of its rows.
    pub kind: SubqueryKind,
    /// The query.
    pub select: Select,
    /// Types of what it is given.
    pub given: Box<[Typed]>,
}

/// What a subquery in an expression is to it.
#[derive(Debug)]
pub enum SubqueryKind {
    /// EXISTS: whether there is a row.
    Exists,
    /// The only value of its only row; NULL without a row, 21000 if there are more.
    Scalar,
    /// ARRAY(SELECT ...): the values of all rows, in their order.
    List,
    /// IN, op ANY: whether the test holds for a row. The test is over the subquery's row.
    Any(Expr),
    /// op ALL: whether the test holds for all rows.
    All(Expr),
}

/// Arrays whose elements stand side by side as rows; shorter ones go on with NULL.
#[derive(Debug, Clone)]
pub struct Unnest {
    /// The arrays.
    pub arrays: Box<[Expr]>,
    /// WITH ORDINALITY: behind the elements, the number of the row.
    pub numbered: bool,
    /// Types of all columns.
    pub types: Box<[Ty]>,
}

/// A query's rows, spread by functions that give sets: behind the columns of a row stand the values of these, in lockstep.
#[derive(Debug)]
pub struct Expand {
    /// The rows.
    pub rows: Select,
    /// The functions.
    pub calls: Box<[SetCall]>,
    /// WITH ORDINALITY: behind the values, the number of the row among those that one row becomes.
    pub numbered: bool,
    /// Types of the columns that are added.
    pub types: Box<[Ty]>,
}

/// A call of a function that gives a set.
#[derive(Debug, Clone)]
pub struct SetCall {
    /// The function.
    pub function: SetFunction,
    /// Its arguments over the row, and their types.
    pub arguments: Vec<(Expr, Ty)>,
    /// The type of a value.
    pub output: Typed,
}

/// Which rows without a partner stay in a join, beside NULLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// None.
    Inner,
    /// Those of the left side.
    Left,
    /// Those of the right side.
    Right,
    /// All.
    Full,
}

/// A join; its row is the left row, then the right one.
#[derive(Debug)]
pub struct Join {
    /// Which rows stay alone.
    pub kind: JoinKind,
    /// Left side.
    pub left: Source,
    /// Right side.
    pub right: Source,
    /// Columns of the left side.
    pub left_width: usize,
    /// Conditions over the joined row, all of which must hold.
    pub on: Vec<Expr>,
    /// LATERAL: the right side is run for each row of the left one, which gives it these values of itself.
    pub lateral: Option<Lateral>,
}

/// What the right side of a lateral join is given of each row on the left: its `Expr::Outer` values.
#[derive(Debug)]
pub struct Lateral {
    /// The values, over the left row.
    pub given: Box<[Expr]>,
    /// Their types.
    pub types: Box<[Typed]>,
}

/// One computed column of a result.
#[derive(Debug, Clone)]
pub struct Output {
    /// The expression over the input row, or over the group's slots.
    pub expr: Expr,
    /// Its type.
    pub t: Typed,
    /// Width to pad char(n) to when shown.
    pub pad: Option<usize>,
}

/// One key of ORDER BY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortKey {
    /// Ordinal among the outputs.
    pub output: usize,
    /// DESC
    pub descending: bool,
    /// NULLS FIRST
    pub nulls_first: bool,
}

/// Grouping and aggregation.
#[derive(Debug)]
pub struct Aggregate {
    /// Group keys over the input row: slots 0...
    pub keys: Box<[Expr]>,
    /// Their types.
    pub key_types: Box<[Typed]>,
    /// Aggregates: the slots after the keys.
    pub calls: Box<[AggCall]>,
    /// GROUPING SETS: the keys of each set; those that it lacks are NULL in its groups, and behind the aggregates stands the number
    /// of the group's set. None: all keys are one set.
    pub sets: Box<[Box<[usize]>]>,
    /// HAVING, over the slots.
    pub having: Option<Box<Expr>>,
    /// There was no GROUP BY: one group, also of no rows.
    pub single: bool,
}

/// What happens when another transaction holds a row that is to be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// Wait for it.
    Wait,
    /// NOWAIT: fail with 55P03.
    Fail,
    /// SKIP LOCKED: leave the row out.
    Skip,
}

/// How rows that are read get locked.
#[derive(Debug, Clone)]
pub struct RowLock {
    /// Behaviour towards rows that are held by others.
    pub wait: LockWait,
    /// Whom it keeps out.
    pub strength: LockStrength,
    /// The whole condition, for the version that is locked.
    pub recheck: Option<Expr>,
    /// The tables whose rows are locked beside a general query.
    pub beside: Box<[LockedTable]>,
    /// How many outputs the client sees of that query; behind them are columns of the tables.
    pub shown: usize,
    /// LIMIT and OFFSET, if they count rows that were locked and not rows that were found.
    pub limit: (Option<Expr>, Option<Expr>),
}

/// A table whose rows are locked once a general query has found them.
#[derive(Debug, Clone)]
pub struct LockedTable {
    /// The table.
    pub table: Arc<TableDef>,
    /// The output that its first column is; the others follow.
    pub first: usize,
    /// Whom the lock keeps out.
    pub strength: LockStrength,
}

/// SELECT.
#[derive(Debug)]
pub struct Select {
    /// Rows.
    pub source: Source,
    /// Rows to keep.
    pub filter: Option<Expr>,
    /// Grouping.
    pub aggregate: Option<Aggregate>,
    /// Window calls over the input row, or over the group's slots; what they give stands behind these.
    pub windows: Box<[WinCall]>,
    /// Computed columns; those past `visible` serve ORDER BY only.
    pub outputs: Box<[Output]>,
    /// How many outputs the client sees.
    pub visible: usize,
    /// DISTINCT
    pub distinct: bool,
    /// DISTINCT ON: of rows that are equal in these outputs, the first in the order of ORDER BY stays.
    pub distinct_on: Box<[usize]>,
    /// ORDER BY, empty if the access path delivers the order.
    pub order: Box<[SortKey]>,
    /// LIMIT
    pub limit: Option<Expr>,
    /// OFFSET
    pub offset: Option<Expr>,
    /// FOR UPDATE, FOR SHARE
    pub lock: Option<RowLock>,
    /// Only a runner of general queries runs it; its conditions and its order are as written.
    pub general: bool,
}

/// What INSERT does with a row whose key exists.
#[derive(Debug)]
pub enum OnConflict {
    /// 23505
    Fail,
    /// Leave the row out, whatever constraint it violates (`None`) or only this one.
    Nothing(Option<Arbiter>),
    /// Change the row that is there.
    Update(Box<Upsert>),
}

/// The unique key that decides what a conflict is.
#[derive(Debug, Clone)]
pub struct Arbiter {
    /// Name of the constraint or index.
    pub constraint: String,
    /// Its columns.
    pub key: Box<[usize]>,
}

/// ON CONFLICT ... DO UPDATE. Expressions are over the row that is there, then the row that was to be inserted.
#[derive(Debug)]
pub struct Upsert {
    /// What is met so.
    pub arbiter: Arbiter,
    /// What the changed row must fulfil.
    pub rules: Rules,
    /// New values by column ordinal.
    pub assignments: Box<[(usize, Expr)]>,
    /// Whether to change the row at all.
    pub filter: Option<Expr>,
}

/// What new rows of a table must fulfil beside NOT NULL, which its definition says.
#[derive(Debug, Default)]
pub struct Rules {
    /// CHECK constraints in the order of their names, over the table's row.
    pub checks: Box<[(Box<str>, Expr)]>,
    /// The part by whose name the table was named.
    pub part: Option<Part>,
    /// The statement gives values to columns of foreign keys.
    pub refers: bool,
    /// The statement changes columns that foreign keys refer to.
    pub is_referred: bool,
}

/// INSERT.
#[derive(Debug)]
pub struct Insert {
    /// The table.
    pub table: Arc<TableDef>,
    /// What each new row must fulfil.
    pub rules: Rules,
    /// The new rows.
    pub source: InsertSource,
    /// What the client gets back of each row.
    pub returning: Option<Box<[Output]>>,
    /// ON CONFLICT
    pub on_conflict: OnConflict,
}

/// Rows to insert.
#[derive(Debug)]
pub enum InsertSource {
    /// One expression for each table column.
    Values(Vec<Box<[Expr]>>),
    /// Rows of a query, and for each table column an expression over them.
    Query(Box<Select>, Box<[Expr]>),
    /// Rows of VALUES with subqueries: a query gives the values of these. Its first output is the ordinal of the row that they
    /// are for; the row has for each table column an expression over the query's outputs.
    Queried(Box<Select>, Vec<Box<[Expr]>>),
}

impl InsertSource {
    /// The query that gives the rows, or values of them.
    pub fn query(&self) -> Option<&Select> {
        match self {
            InsertSource::Values(_) => None,
            InsertSource::Query(query, _) | InsertSource::Queried(query, _) => Some(query),
        }
    }
}

/// UPDATE.
#[derive(Debug)]
pub struct Update {
    /// The table and the way to its rows.
    pub target: TableAccess,
    /// Condition on rows found by the access path.
    pub filter: Option<Expr>,
    /// The whole condition, for the version that is changed.
    pub recheck: Option<Expr>,
    /// What each new row must fulfil.
    pub rules: Rules,
    /// New values by column ordinal, over the old row.
    pub assignments: Box<[(usize, Expr)]>,
    /// What the client gets back of each new row.
    pub returning: Option<Box<[Output]>>,
    /// What finds the rows, if a general query does.
    pub found: Option<Box<Found>>,
}

/// A general query that finds rows to change. Expressions about such a row are over: the columns of the other relations, those of
/// the target, and the values of subqueries.
#[derive(Debug)]
pub struct Found {
    /// Its outputs: the row's key as bytes, the columns of the other relations, the values of subqueries, and the columns of the
    /// target in `seen`.
    pub query: Select,
    /// How many columns the other relations have.
    pub others: usize,
    /// Columns of the target that subqueries, or conditions with subqueries, read. If the version that is changed has other values
    /// there, what was found does not hold for it.
    pub seen: Box<[usize]>,
    /// Types of the row that the query looks at: other relations, target, key.
    pub types: Box<[Ty]>,
}

/// DELETE.
#[derive(Debug)]
pub struct Delete {
    /// Foreign keys refer to the table.
    pub is_referred: bool,
    /// The table and the way to its rows.
    pub target: TableAccess,
    /// Condition on rows found by the access path.
    pub filter: Option<Expr>,
    /// The whole condition, for the version that is changed.
    pub recheck: Option<Expr>,
    /// What the client gets back of each old row.
    pub returning: Option<Box<[Output]>>,
    /// What finds the rows, if a general query does.
    pub found: Option<Box<Found>>,
}

impl Aggregate {
    fn needs_runner(&self) -> bool {
        !self.sets.is_empty() || self.calls.iter().any(|c| c.kind.needs_runner())
    }
}

impl Expand {
    /// The arguments of its functions.
    pub fn arguments(&self) -> impl Iterator<Item = &Expr> {
        self.calls.iter().flat_map(|call| call.arguments.iter().map(|(e, _)| e))
    }
}

impl Output {
    /// An output of this type.
    pub fn new(expr: Expr, t: Typed) -> Output {
        let pad = if t.ty == Ty::Char { t.length() } else { None };
        Output { expr, t, pad }
    }

    /// The column that a client sees.
    pub fn column(&self, name: &str) -> Column {
        Column { name: name.into(), type_oid: self.t.ty.oid(), typmod: self.t.typmod }
    }
}

impl Plan {
    /// Whether it is an INSERT that may be run several times, with a row's parameters each time.
    pub fn repeats(&self) -> bool {
        matches!(self, Plan::Insert(Insert { source: InsertSource::Values(_), .. }))
    }

    /// The table that the plan changes, if any.
    pub fn changed_table(&self) -> Option<&Arc<TableDef>> {
        match self {
            Plan::Select(_) => None,
            Plan::Insert(i) => Some(&i.table),
            Plan::Update(u) => Some(&u.target.table),
            Plan::Delete(d) => Some(&d.target.table),
        }
    }

    /// The query whose rows the plan gives or inserts.
    pub fn query(&self) -> Option<&Select> {
        match self {
            Plan::Select(select) => Some(select),
            Plan::Insert(i) => i.source.query(),
            _ => None,
        }
    }

    /// The general query that it runs or that finds its rows, if there is one.
    pub fn general(&self) -> Option<&Select> {
        match self {
            Plan::Select(select) => Some(select).filter(|s| s.general),
            Plan::Insert(i) => i.source.query().filter(|q| q.general),
            Plan::Update(u) => u.found.as_ref().map(|f| &f.query),
            Plan::Delete(d) => d.found.as_ref().map(|f| &f.query),
        }
    }

    /// What finds the rows to change, if a general query does.
    pub fn found(&self) -> Option<&Found> {
        match self {
            Plan::Update(u) => u.found.as_deref(),
            Plan::Delete(d) => d.found.as_deref(),
            Plan::Select(_) | Plan::Insert(_) => None,
        }
    }

    /// Whether a READ ONLY transaction refuses it.
    pub fn writes(&self) -> bool {
        !matches!(self, Plan::Select(Select { lock: None, .. }))
    }
}

impl Select {
    /// One row of no columns, for a runner of general queries.
    pub fn nothing() -> Select {
        Select {
            source: Source::Nothing,
            filter: None,
            aggregate: None,
            windows: Box::default(),
            outputs: Box::default(),
            visible: 0,
            distinct: false,
            distinct_on: Box::default(),
            order: Box::default(),
            limit: None,
            offset: None,
            lock: None,
            general: true,
        }
    }

    /// The table read from, if the executor of this crate reads one.
    pub fn table(&self) -> Option<&Arc<TableDef>> {
        match &self.source {
            Source::Table(t) => Some(&t.table),
            _ => None,
        }
    }

    /// Whether only a runner of general queries runs it.
    pub fn is_general(&self) -> bool {
        self.general
    }

    /// Whether it has a part that the executor of this crate does not run, whatever access paths there are.
    pub fn needs_runner(&self) -> bool {
        let general_source = matches!(
            self.source,
            Source::Query(_)
                | Source::Expand(_)
                | Source::Set(_)
                | Source::Target(_)
                | Source::Shared(_)
                | Source::Work(..)
        );
        let mut queries = false;
        self.walk(&mut |e| queries |= matches!(e, Expr::Subquery(..)));
        general_source
            || !self.distinct_on.is_empty()
            || !self.windows.is_empty()
            || queries
            || self.aggregate.as_ref().is_some_and(Aggregate::needs_runner)
    }

    /// The expressions of its clauses, those of its source excepted, but rows of VALUES included.
    pub fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let rows = match &self.source {
            Source::Values(rows, _) => rows.as_slice(),
            _ => &[],
        };
        let calls = self.aggregate.iter().flat_map(|a| a.calls.iter());
        let keys = self.aggregate.iter().flat_map(|a| a.keys.iter().chain(a.having.as_deref()));
        let outputs = self.outputs.iter().map(|o| &o.expr);
        let called = calls.flat_map(AggCall::exprs);
        let windows = self.windows.iter().flat_map(WinCall::exprs);
        rows.iter().flatten().chain(&self.filter).chain(keys).chain(called).chain(windows).chain(outputs)
    }

    /// Calls `visit` for each expression of the query and its source, but not for those inside subqueries, whose `Outer` values
    /// are their own.
    pub fn walk(&self, visit: &mut dyn FnMut(&Expr)) {
        self.source.walk(visit);
        self.expressions().for_each(|e| e.walk(visit));
    }

    /// Calls `visit` for each expression of the query, its source and the subqueries in it.
    pub fn walk_all(&self, visit: &mut dyn FnMut(&Expr)) {
        let mut inner = |e: &Expr| {
            visit(e);
            if let Expr::Subquery(_, subquery) = e {
                if let SubqueryKind::Any(test) | SubqueryKind::All(test) = &subquery.kind {
                    test.walk(visit);
                }
                subquery.select.walk_all(visit);
            }
        };
        self.walk(&mut inner);
        self.each_source(&mut |source| {
            // What a lateral join runs for each row is not among what `walk` comes by.
            if let Source::Join(join) = source
                && join.lateral.is_some()
            {
                join.right.walk(&mut inner);
            }
        });
    }

    /// Whether it may give other rows at each run.
    pub fn is_volatile(&self) -> bool {
        let mut found = false;
        self.walk_all(&mut |e| found |= matches!(e, Expr::Call(f, _) if f.volatile));
        self.each_source(&mut |source| found |= matches!(source, Source::Shared(shared) if shared.varies));
        found
    }

    /// Whether it takes values from the query around.
    pub fn reads_outer(&self) -> bool {
        let mut found = false;
        self.walk(&mut |e| found |= matches!(e, Expr::Outer(_)));
        found
    }

    /// All tables read from or changed, those of subqueries included, each once.
    pub fn tables(&self) -> Vec<Arc<TableDef>> {
        let mut out: Vec<Arc<TableDef>> = Vec::new();
        let mut add = |table: &Arc<TableDef>| {
            if !out.iter().any(|seen| Arc::ptr_eq(seen, table)) {
                out.push(table.clone());
            }
        };
        self.each_source(&mut |source| match source {
            Source::Table(t) => add(&t.table),
            Source::Target(table) => add(table),
            Source::Loops(steps) => steps.iter().for_each(|s| add(&s.target.table)),
            _ => {}
        });
        out
    }

    /// Calls `visit` for each source, those of subqueries included; for what is within a query of WITH only once.
    pub fn each_source(&self, visit: &mut dyn FnMut(&Source)) {
        self.each_within(visit, &mut Vec::new());
    }

    fn each_within(&self, visit: &mut dyn FnMut(&Source), seen: &mut Seen) {
        self.source.each(visit, seen);
        self.expressions().for_each(|e| each_source_in(e, visit, seen));
    }
}

/// The queries of WITH that a walk has come by.
type Seen = Vec<*const Shared>;

fn each_source_in(e: &Expr, visit: &mut dyn FnMut(&Source), seen: &mut Seen) {
    e.walk(&mut |e| {
        if let Expr::Subquery(_, subquery) = e {
            subquery.select.each_within(visit, seen);
        }
    });
}

impl Subquery {
    /// The type of its result.
    pub fn result(&self) -> Typed {
        match self.kind {
            SubqueryKind::Scalar => self.select.outputs[0].t,
            SubqueryKind::List => {
                let element = self.select.outputs[0].t.ty;
                Typed::plain(element.array().unwrap_or(element))
            }
            SubqueryKind::Exists | SubqueryKind::Any(_) | SubqueryKind::All(_) => Typed::plain(Ty::Bool),
        }
    }
}

impl Source {
    /// Calls `f` with each table read from, in the order of the query.
    pub fn each_table<'s>(&'s self, f: &mut dyn FnMut(&'s Arc<TableDef>)) {
        match self {
            Source::Table(t) => f(&t.table),
            Source::Loops(steps) => steps.iter().for_each(|s| f(&s.target.table)),
            Source::Join(join) => {
                join.left.each_table(f);
                join.right.each_table(f);
            }
            Source::Query(select) => select.source.each_table(f),
            Source::Expand(expand) => expand.rows.source.each_table(f),
            Source::Set(set) => set.sides.iter().for_each(|side| side.source.each_table(f)),
            Source::Target(t) => f(t),
            Source::Shared(shared) => match &shared.body {
                SharedBody::Query(select) => select.source.each_table(f),
                SharedBody::Recursive(recursion) => {
                    recursion.first.source.each_table(f);
                    recursion.then.source.each_table(f);
                }
            },
            Source::Nothing
            | Source::Series(..)
            | Source::Unnest(_)
            | Source::Values(..)
            | Source::Work(..)
            | Source::System(_) => {}
        }
    }

    /// Calls `visit` for each expression in it; see [`Select::walk`].
    pub fn walk(&self, visit: &mut dyn FnMut(&Expr)) {
        match self {
            Source::Nothing | Source::Table(_) | Source::Target(_) | Source::System(_) | Source::Work(..) => {
            }
            Source::Shared(shared) => {
                if let SharedBody::Recursive(recursion) = &shared.body {
                    recursion.first.walk(visit);
                    recursion.then.walk(visit);
                }
            }
            Source::Loops(steps) => {
                for step in steps {
                    step.filter.iter().for_each(|e| e.walk(visit));
                }
            }
            Source::Series(bounds, _) => bounds.iter().for_each(|e| e.walk(visit)),
            Source::Unnest(unnest) => unnest.arrays.iter().for_each(|e| e.walk(visit)),
            Source::Values(rows, _) => rows.iter().flatten().for_each(|e| e.walk(visit)),
            Source::Query(select) => select.walk(visit),
            Source::Expand(expand) => {
                expand.rows.walk(visit);
                expand.arguments().for_each(|e| e.walk(visit));
            }
            Source::Set(set) => set.sides.iter().for_each(|side| side.walk(visit)),
            Source::Join(join) => {
                join.left.walk(visit);
                join.on.iter().for_each(|e| e.walk(visit));
                match &join.lateral {
                    // What the right side reads of this join's left side is not what it reads of the query around.
                    Some(lateral) => lateral.given.iter().for_each(|e| e.walk(visit)),
                    None => join.right.walk(visit),
                }
            }
        }
    }

    fn each(&self, visit: &mut dyn FnMut(&Source), seen: &mut Seen) {
        visit(self);
        match self {
            Source::Join(join) => {
                join.left.each(visit, seen);
                join.right.each(visit, seen);
                join.on.iter().for_each(|e| each_source_in(e, visit, seen));
            }
            Source::Query(select) => select.each_within(visit, seen),
            Source::Expand(expand) => {
                expand.rows.each_within(visit, seen);
                expand.arguments().for_each(|e| each_source_in(e, visit, seen));
            }
            Source::Set(set) => set.sides.iter().for_each(|side| side.each_within(visit, seen)),
            Source::Shared(shared) if !seen.contains(&Arc::as_ptr(shared)) => {
                seen.push(Arc::as_ptr(shared));
                match &shared.body {
                    SharedBody::Query(select) => select.each_within(visit, seen),
                    SharedBody::Recursive(recursion) => {
                        recursion.first.each_within(visit, seen);
                        recursion.then.each_within(visit, seen);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether the rows of a recursive query's turn are among what it joins.
    pub fn joins_work(&self) -> bool {
        match self {
            Source::Work(..) => true,
            Source::Join(join) => join.left.joins_work() || join.right.joins_work(),
            _ => false,
        }
    }

    /// Whether the rows of a recursive query's turn are read anywhere in it.
    pub fn reads_work(&self) -> bool {
        let mut found = false;
        self.each(&mut |source| found |= matches!(source, Source::Work(..)), &mut Vec::new());
        found
    }
}
