//! Queries.
//!
//! Invariants
//! 1. A clause without a place in the tree is refused by name.
//!
//! Does not know: expressions; statements that change rows.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    CommonTableExpr, CteMaterialize, GroupingSetKind, LimitOption, LockClauseStrength, LockWaitPolicy,
    LockingClause, Node, ResTarget, SelectStmt, SetOperation, SortBy, SortByDir, SortByNulls, WithClause,
};
use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    Cte, CteAsMaterialized, Distinct, Expr, Fetch, GroupByExpr, Ident, LimitClause, LockClause, LockType,
    NamedWindowDefinition, NamedWindowExpr, NonBlock, ObjectName, ObjectNamePart, Offset, OffsetRows,
    OrderBy, OrderByExpr, OrderByKind, OrderByOptions, OrderBySort, Parens, Query, Select, SelectFlavor,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, SetOperator, SetQuantifier, Values,
    WildcardAdditionalOptions, With,
};

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::node::{Source, syntax};
use super::place::{Reader, kind};
use crate::error::{Result, SqlError};
use crate::parse::LOCK_MARK;

impl Reader<'_> {
    /// A query within an expression or in FROM.
    pub(super) fn subquery(&self, node: Option<&Node>) -> Result<Query> {
        match kind(node)? {
            NodeEnum::SelectStmt(s) => self.query(s),
            _ => Err(SqlError::unsupported("a statement that changes rows in a query")),
        }
    }

    /// A query with all that may stand behind it.
    pub(super) fn query(&self, s: &SelectStmt) -> Result<Query> {
        let count = s.limit_count.as_deref().filter(|node| !is_null(node));
        let with_ties = s.limit_option() == LimitOption::WithTies;
        let limit = if with_ties { None } else { self.maybe(count)? };
        let value = self.maybe(s.limit_offset.as_deref().filter(|node| !is_null(node)))?;
        let offset = value.map(|value| Offset { value, rows: OffsetRows::None });
        let limit_clause = (limit.is_some() || offset.is_some()).then_some(LimitClause::LimitOffset {
            limit,
            offset,
            limit_by: Vec::new(),
        });
        let fetch = match with_ties {
            true => Some(Fetch { with_ties, percent: false, quantity: self.maybe(count)? }),
            false => None,
        };
        let mut locks = Vec::new();
        for clause in &s.locking_clause {
            let NodeEnum::LockingClause(clause) = kind(Some(clause))? else { continue };
            self.lock(clause, &mut locks)?;
        }
        Ok(Query {
            with: s.with_clause.as_ref().map(|with| self.with(with)).transpose()?,
            body: Box::new(self.body(s)?),
            order_by: self.order_by(&s.sort_clause)?,
            limit_clause,
            fetch,
            locks,
            for_clause: None,
            settings: None,
            format_clause: None,
            pipe_operators: Vec::new(),
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
            set_quantifier: if s.all { SetQuantifier::All } else { SetQuantifier::None },
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

    fn values(&self, lists: &[Node]) -> Result<Values> {
        let mut rows = Vec::with_capacity(lists.len());
        for list in lists {
            let NodeEnum::List(list) = kind(Some(list))? else {
                return Err(SqlError::internal("a row of VALUES is none"));
            };
            rows.push(Parens {
                opening_token: AttachedToken::empty(),
                content: self.exprs(&list.items)?,
                closing_token: AttachedToken::empty(),
            });
        }
        Ok(Values { explicit_row: false, value_keyword: false, rows })
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
            [Node { node: None }] => Some(Distinct::Distinct),
            on => Some(Distinct::On(self.exprs(on)?)),
        };
        let mut named_window = Vec::with_capacity(s.window_clause.len());
        for window in &s.window_clause {
            let NodeEnum::WindowDef(w) = kind(Some(window))? else { continue };
            let spec = NamedWindowExpr::WindowSpec(self.window(w)?);
            named_window.push(NamedWindowDefinition(self.ident(&w.name, w.location), spec));
        }
        let keys = s.group_clause.iter().map(|item| self.group_item(item)).collect::<Result<Vec<_>>>()?;
        Ok(Select {
            select_token: AttachedToken::empty(),
            optimizer_hints: Vec::new(),
            distinct,
            select_modifiers: None,
            top: None,
            top_before_distinct: false,
            projection: self.select_items(&s.target_list)?,
            exclude: None,
            into: None,
            from: self.from(&s.from_clause)?,
            lateral_views: Vec::new(),
            prewhere: None,
            selection: self.maybe(s.where_clause.as_deref())?,
            connect_by: Vec::new(),
            group_by: GroupByExpr::Expressions(keys, Vec::new()),
            cluster_by: Vec::new(),
            distribute_by: Vec::new(),
            sort_by: Vec::new(),
            having: self.maybe(s.having_clause.as_deref())?,
            named_window,
            qualify: None,
            window_before_qualify: false,
            value_table_mode: None,
            flavor: SelectFlavor::Standard,
        })
    }

    /// The items of a select list or of RETURNING.
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
            let star = TokenWithSpan { token: Token::Mul, span: self.span(c.location) };
            let options =
                WildcardAdditionalOptions { wildcard_token: AttachedToken(star), ..Default::default() };
            return Ok(match before {
                [] => SelectItem::Wildcard(options),
                parts => {
                    let name = SelectItemQualifiedWildcardKind::ObjectName(self.name_of(parts, c.location)?);
                    SelectItem::QualifiedWildcard(name, options)
                }
            });
        }
        let expr = self.expr(value)?;
        Ok(match target.name.is_empty() {
            true => SelectItem::UnnamedExpr(expr),
            false => SelectItem::ExprWithAlias { expr, alias: self.ident(&target.name, target.location) },
        })
    }

    fn group_item(&self, item: &Node) -> Result<Expr> {
        let NodeEnum::GroupingSet(set) = kind(Some(item))? else { return self.expr(Some(item)) };
        Ok(match set.kind() {
            GroupingSetKind::GroupingSetRollup => Expr::Rollup(self.sets(&set.content)?),
            GroupingSetKind::GroupingSetCube => Expr::Cube(self.sets(&set.content)?),
            GroupingSetKind::GroupingSetSets => Expr::GroupingSets(self.sets(&set.content)?),
            _ => Expr::Tuple(Vec::new()),
        })
    }

    fn sets(&self, content: &[Node]) -> Result<Vec<Vec<Expr>>> {
        let set = |node: &Node| {
            Ok(match self.group_item(node)? {
                Expr::Tuple(items) => items,
                one => vec![one],
            })
        };
        content.iter().map(set).collect()
    }

    /// ORDER BY of a query.
    fn order_by(&self, list: &[Node]) -> Result<Option<OrderBy>> {
        let items = self.order_items(list)?;
        Ok((!items.is_empty())
            .then_some(OrderBy { kind: OrderByKind::Expressions(items), interpolate: None }))
    }

    /// The items of an ORDER BY.
    pub(super) fn order_items(&self, list: &[Node]) -> Result<Vec<OrderByExpr>> {
        let item = |node: &Node| match kind(Some(node))? {
            NodeEnum::SortBy(by) => self.order_item(by),
            _ => Err(SqlError::internal("an item of ORDER BY is none")),
        };
        list.iter().map(item).collect()
    }

    fn order_item(&self, by: &SortBy) -> Result<OrderByExpr> {
        let sort = match by.sortby_dir() {
            SortByDir::SortbyAsc => Some(OrderBySort::Asc),
            SortByDir::SortbyDesc => Some(OrderBySort::Desc),
            SortByDir::SortbyUsing => Some(OrderBySort::Using(self.name_of(&by.use_op, by.location)?)),
            _ => None,
        };
        let nulls_first = match by.sortby_nulls() {
            SortByNulls::SortbyNullsFirst => Some(true),
            SortByNulls::SortbyNullsLast => Some(false),
            _ => None,
        };
        let options = OrderByOptions { sort, nulls_first };
        Ok(OrderByExpr { expr: self.expr(by.node.as_deref())?, options, with_fill: None })
    }

    /// A locking clause: one for each of its tables.
    fn lock(&self, clause: &LockingClause, out: &mut Vec<LockClause>) -> Result<()> {
        let (lock_type, mark) = match clause.strength() {
            LockClauseStrength::LcsForkeyshare => (LockType::Share, Some("key")),
            LockClauseStrength::LcsForshare => (LockType::Share, None),
            LockClauseStrength::LcsFornokeyupdate => (LockType::Update, Some("no key")),
            _ => (LockType::Update, None),
        };
        let nonblock = match clause.wait_policy() {
            LockWaitPolicy::LockWaitSkip => Some(NonBlock::SkipLocked),
            LockWaitPolicy::LockWaitError => Some(NonBlock::Nowait),
            _ => None,
        };
        let mark = mark.map(|mark| Ident::with_quote('"', format!("{LOCK_MARK}{mark}")));
        let mut push = |names: Vec<Ident>| {
            let parts: Vec<ObjectNamePart> =
                mark.iter().cloned().chain(names).map(ObjectNamePart::Identifier).collect();
            let of = (!parts.is_empty()).then_some(ObjectName(parts));
            out.push(LockClause { lock_type, of, nonblock });
        };
        if clause.locked_rels.is_empty() {
            push(Vec::new());
        }
        for relation in &clause.locked_rels {
            let NodeEnum::RangeVar(r) = kind(Some(relation))? else { continue };
            let parts = [&r.catalogname, &r.schemaname, &r.relname];
            push(parts.into_iter().filter(|p| !p.is_empty()).map(|p| self.ident(p, r.location)).collect());
        }
        Ok(())
    }

    /// WITH.
    pub(super) fn with(&self, with: &WithClause) -> Result<With> {
        let mut cte_tables = Vec::with_capacity(with.ctes.len());
        for cte in &with.ctes {
            let NodeEnum::CommonTableExpr(cte) = kind(Some(cte))? else { continue };
            cte_tables.push(self.cte(cte)?);
        }
        Ok(With { with_token: AttachedToken::empty(), recursive: with.recursive, cte_tables })
    }

    fn cte(&self, cte: &CommonTableExpr) -> Result<Cte> {
        if cte.search_clause.is_some() || cte.cycle_clause.is_some() {
            return Err(SqlError::unsupported("SEARCH or CYCLE of WITH"));
        }
        let NodeEnum::SelectStmt(query) = kind(cte.ctequery.as_deref())? else {
            return Err(SqlError::unsupported("a statement that changes rows in WITH"));
        };
        let materialized = match cte.ctematerialized() {
            CteMaterialize::Always => Some(CteAsMaterialized::Materialized),
            CteMaterialize::Never => Some(CteAsMaterialized::NotMaterialized),
            _ => None,
        };
        Ok(Cte {
            alias: self.alias(&cte.ctename, &cte.aliascolnames, cte.location)?,
            query: Box::new(self.query(query)?),
            from: None,
            materialized,
            closing_paren_token: AttachedToken::empty(),
        })
    }
}

/// LIMIT ALL, LIMIT NULL and OFFSET NULL say nothing.
fn is_null(node: &Node) -> bool {
    matches!(&node.node, Some(NodeEnum::AConst(c)) if c.isnull)
}
