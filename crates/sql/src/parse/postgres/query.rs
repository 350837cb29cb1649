//! Converts queries from the tree of PostgreSQL's parser to the syntax tree of `crate::ast`.
//!
//! Invariants
//! 1. A clause that the syntax tree cannot hold is refused by its name (0A000).
//!
//! This module does not know expressions or statements that change rows.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    CommonTableExpr, CteMaterialize, GroupingSetKind, LimitOption, LockClauseStrength, LockWaitPolicy,
    LockingClause, Node, ResTarget, SelectStmt, SetOperation, SortBy, SortByDir, SortByNulls, WithClause,
};
use varve_engine::LockStrength;

use super::node::{Source, syntax};
use super::place::{Reader, kind};
use crate::ast::{
    Cte, Direction, Distinct, Expr, GroupItem, LockClause, LockWait, NamedWindow, ObjectName, OrderByExpr,
    Query, Select, SelectItem, SetExpr, SetOperator, With,
};
use crate::error::{Result, SqlError};

impl Reader<'_> {
    /// Converts a query within an expression or in FROM.
    pub(super) fn subquery(&self, node: Option<&Node>) -> Result<Query> {
        match kind(node)? {
            NodeEnum::SelectStmt(s) => self.query(s),
            _ => Err(SqlError::unsupported("a statement that changes rows in a query")),
        }
    }

    /// Converts a query with all its clauses.
    pub(super) fn query(&self, s: &SelectStmt) -> Result<Query> {
        let with_ties = s.limit_option() == LimitOption::WithTies;
        let mut locks = Vec::new();
        for clause in &s.locking_clause {
            let NodeEnum::LockingClause(clause) = kind(Some(clause))? else { continue };
            self.lock(clause, &mut locks)?;
        }
        Ok(Query {
            with: s.with_clause.as_ref().map(|with| self.with(with)).transpose()?,
            body: Box::new(self.body(s)?),
            order_by: self.order_items(&s.sort_clause)?,
            limit: self.maybe(s.limit_count.as_deref().filter(|node| with_ties || !is_null(node)))?,
            with_ties,
            offset: self.maybe(s.limit_offset.as_deref().filter(|node| !is_null(node)))?,
            locks,
        })
    }

    fn body(&self, s: &SelectStmt) -> Result<SetExpr> {
        let op = match s.op() {
            SetOperation::SetopUnion => SetOperator::Union,
            SetOperation::SetopIntersect => SetOperator::Intersect,
            SetOperation::SetopExcept => SetOperator::Except,
            _ if !s.values_lists.is_empty() => return self.values(&s.values_lists).map(SetExpr::Values),
            _ => return self.select(s).map(|select| SetExpr::Select(Box::new(select))),
        };
        Ok(SetExpr::SetOperation {
            left: Box::new(self.operand(s.larg.as_deref())?),
            op,
            all: s.all,
            right: Box::new(self.operand(s.rarg.as_deref())?),
        })
    }

    fn operand(&self, s: Option<&SelectStmt>) -> Result<SetExpr> {
        let s = s.ok_or_else(|| SqlError::internal("a set operation without an operand"))?;
        let is_bare = s.with_clause.is_none()
            && s.sort_clause.is_empty()
            && s.limit_count.is_none()
            && s.limit_offset.is_none()
            && s.locking_clause.is_empty();
        if is_bare { self.body(s) } else { self.query(s).map(|q| SetExpr::Query(Box::new(q))) }
    }

    fn values(&self, lists: &[Node]) -> Result<Vec<Vec<Expr>>> {
        let mut rows = Vec::with_capacity(lists.len());
        for list in lists {
            let NodeEnum::List(list) = kind(Some(list))? else {
                return Err(SqlError::internal("a row of VALUES is none"));
            };
            rows.push(self.exprs(&list.items)?);
        }
        Ok(rows)
    }

    fn select(&self, s: &SelectStmt) -> Result<Select> {
        if let Some(into) = &s.into_clause {
            let at = into.rel.as_ref().map_or(-1, |rel| rel.location);
            let at = Source { sql: self.text() }.position(at);
            return Err(syntax("SELECT ... INTO is not allowed here").at(at));
        }
        if s.group_distinct {
            return Err(SqlError::unsupported("GROUP BY DISTINCT"));
        }
        let distinct = match s.distinct_clause.as_slice() {
            [] => None,
            [Node { node: None }] => Some(Distinct::All),
            on => Some(Distinct::On(self.exprs(on)?)),
        };
        let mut named_windows = Vec::with_capacity(s.window_clause.len());
        for window in &s.window_clause {
            let NodeEnum::WindowDef(w) = kind(Some(window))? else { continue };
            named_windows.push(NamedWindow { name: self.ident(&w.name, w.location), spec: self.window(w)? });
        }
        Ok(Select {
            distinct,
            projection: self.select_items(&s.target_list)?,
            from: self.from(&s.from_clause)?,
            selection: self.maybe(s.where_clause.as_deref())?,
            group_by: self.group_items(&s.group_clause)?,
            having: self.maybe(s.having_clause.as_deref())?,
            named_windows,
        })
    }

    /// Converts the items of a select list or of RETURNING.
    pub(super) fn select_items(&self, list: &[Node]) -> Result<Vec<SelectItem>> {
        let item = |node: &Node| match kind(Some(node))? {
            NodeEnum::ResTarget(target) => self.select_item(target),
            _ => Err(SqlError::internal("an item of a select list is none")),
        };
        list.iter().map(item).collect()
    }

    fn select_item(&self, target: &ResTarget) -> Result<SelectItem> {
        let value = target.val.as_deref();
        if let NodeEnum::ColumnRef(c) = kind(value)?
            && let Some((Node { node: Some(NodeEnum::AStar(_)) }, before)) = c.fields.split_last()
        {
            return Ok(match before {
                [] => SelectItem::Wildcard(self.place(c.location)),
                parts => SelectItem::QualifiedWildcard(self.name_of(parts, c.location)?),
            });
        }
        let expr = self.expr(value)?;
        Ok(match target.name.is_empty() {
            true => SelectItem::UnnamedExpr(expr),
            false => SelectItem::ExprWithAlias { expr, alias: self.ident(&target.name, target.location) },
        })
    }

    fn group_items(&self, list: &[Node]) -> Result<Vec<GroupItem>> {
        list.iter().map(|item| self.group_item(item)).collect()
    }

    fn group_item(&self, item: &Node) -> Result<GroupItem> {
        let NodeEnum::GroupingSet(set) = kind(Some(item))? else {
            return self.expr(Some(item)).map(GroupItem::Expr);
        };
        Ok(match set.kind() {
            GroupingSetKind::GroupingSetRollup => GroupItem::Rollup(self.key_lists(&set.content)?),
            GroupingSetKind::GroupingSetCube => GroupItem::Cube(self.key_lists(&set.content)?),
            GroupingSetKind::GroupingSetSets => GroupItem::Sets(self.group_items(&set.content)?),
            _ => GroupItem::Empty,
        })
    }

    /// Converts the parts of ROLLUP or CUBE: keys, or lists of keys in parentheses.
    fn key_lists(&self, content: &[Node]) -> Result<Vec<Vec<Expr>>> {
        let keys = |node: &Node| {
            Ok(match self.expr(Some(node))? {
                Expr::Tuple(items) => items,
                one => vec![one],
            })
        };
        content.iter().map(keys).collect()
    }

    /// Converts the items of an ORDER BY.
    pub(super) fn order_items(&self, list: &[Node]) -> Result<Vec<OrderByExpr>> {
        let item = |node: &Node| match kind(Some(node))? {
            NodeEnum::SortBy(by) => self.order_item(by),
            _ => Err(SqlError::internal("an item of ORDER BY is none")),
        };
        list.iter().map(item).collect()
    }

    fn order_item(&self, by: &SortBy) -> Result<OrderByExpr> {
        let direction = match by.sortby_dir() {
            SortByDir::SortbyDesc => Direction::Descending,
            SortByDir::SortbyUsing => Direction::Using,
            _ => Direction::Ascending,
        };
        let nulls_first = match by.sortby_nulls() {
            SortByNulls::SortbyNullsFirst => Some(true),
            SortByNulls::SortbyNullsLast => Some(false),
            _ => None,
        };
        Ok(OrderByExpr { expr: self.expr(by.node.as_deref())?, direction, nulls_first })
    }

    /// Converts a locking clause to one clause for each of its tables.
    fn lock(&self, clause: &LockingClause, out: &mut Vec<LockClause>) -> Result<()> {
        let strength = match clause.strength() {
            LockClauseStrength::LcsForkeyshare => LockStrength::KeyShare,
            LockClauseStrength::LcsForshare => LockStrength::Share,
            LockClauseStrength::LcsFornokeyupdate => LockStrength::NoKeyUpdate,
            _ => LockStrength::Update,
        };
        let wait = match clause.wait_policy() {
            LockWaitPolicy::LockWaitSkip => LockWait::SkipLocked,
            LockWaitPolicy::LockWaitError => LockWait::NoWait,
            _ => LockWait::Wait,
        };
        let mut push = |of: Option<ObjectName>| out.push(LockClause { strength, of, wait });
        if clause.locked_rels.is_empty() {
            push(None);
        }
        for relation in &clause.locked_rels {
            let NodeEnum::RangeVar(r) = kind(Some(relation))? else { continue };
            push(Some(self.relation_name(r)));
        }
        Ok(())
    }

    /// Converts WITH.
    pub(super) fn with(&self, with: &WithClause) -> Result<With> {
        let mut cte_tables = Vec::with_capacity(with.ctes.len());
        for cte in &with.ctes {
            let NodeEnum::CommonTableExpr(cte) = kind(Some(cte))? else { continue };
            cte_tables.push(self.cte(cte)?);
        }
        Ok(With { recursive: with.recursive, cte_tables })
    }

    fn cte(&self, cte: &CommonTableExpr) -> Result<Cte> {
        if cte.search_clause.is_some() || cte.cycle_clause.is_some() {
            return Err(SqlError::unsupported("SEARCH or CYCLE of WITH"));
        }
        let NodeEnum::SelectStmt(query) = kind(cte.ctequery.as_deref())? else {
            return Err(SqlError::unsupported("a statement that changes rows in WITH"));
        };
        let materialized = match cte.ctematerialized() {
            CteMaterialize::Always => Some(true),
            CteMaterialize::Never => Some(false),
            _ => None,
        };
        Ok(Cte {
            alias: self.alias(&cte.ctename, &cte.aliascolnames, cte.location)?,
            query: Box::new(self.query(query)?),
            materialized,
        })
    }
}

/// Returns whether a limit is LIMIT ALL, LIMIT NULL or OFFSET NULL, which have no effect.
fn is_null(node: &Node) -> bool {
    matches!(&node.node, Some(NodeEnum::AConst(c)) if c.isnull)
}
