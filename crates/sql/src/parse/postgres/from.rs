//! Items of FROM.
//!
//! Does not know: queries within them.

use pg_query::NodeEnum;
use pg_query::protobuf::{Alias, JoinExpr, JoinType, Node, RangeFunction, RangeVar};
use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Join, JoinConstraint, JoinOperator,
    ObjectName, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins,
};

use super::place::{Reader, kind, strings};
use crate::error::{Result, SqlError};

impl Reader<'_> {
    /// The items of FROM.
    pub(super) fn from(&self, list: &[Node]) -> Result<Vec<TableWithJoins>> {
        list.iter().map(|item| self.item(Some(item))).collect()
    }

    fn item(&self, node: Option<&Node>) -> Result<TableWithJoins> {
        // Joins lean to the left, as far as the text is long.
        let (mut joins, mut node) = (Vec::new(), node);
        while let NodeEnum::JoinExpr(join) = kind(node)?
            && join.alias.is_none()
        {
            joins.push(self.join(join)?);
            node = join.larg.as_deref();
        }
        joins.reverse();
        Ok(TableWithJoins { relation: self.factor(node)?, joins })
    }

    fn join(&self, j: &JoinExpr) -> Result<Join> {
        if j.join_using_alias.is_some() {
            return Err(SqlError::unsupported("an alias of USING"));
        }
        let mut is_cross = false;
        let constraint = if j.is_natural {
            JoinConstraint::Natural
        } else if !j.using_clause.is_empty() {
            let names = strings(&j.using_clause)?;
            JoinConstraint::Using(names.into_iter().map(|name| self.object_name([name], -1)).collect())
        } else if let Some(on) = self.maybe(j.quals.as_deref())? {
            JoinConstraint::On(on)
        } else {
            is_cross = true;
            JoinConstraint::None
        };
        let join_operator = match j.jointype() {
            _ if is_cross => JoinOperator::CrossJoin(constraint),
            JoinType::JoinLeft => JoinOperator::LeftOuter(constraint),
            JoinType::JoinRight => JoinOperator::RightOuter(constraint),
            JoinType::JoinFull => JoinOperator::FullOuter(constraint),
            _ => JoinOperator::Inner(constraint),
        };
        Ok(Join { relation: self.factor(j.rarg.as_deref())?, global: false, join_operator })
    }

    fn factor(&self, node: Option<&Node>) -> Result<TableFactor> {
        match kind(node)? {
            NodeEnum::RangeVar(r) => self.table(r),
            NodeEnum::RangeSubselect(r) => Ok(TableFactor::Derived {
                lateral: r.lateral,
                subquery: Box::new(self.subquery(r.subquery.as_deref())?),
                alias: self.alias_of(r.alias.as_ref())?,
                sample: None,
            }),
            NodeEnum::RangeFunction(r) => self.table_function(r),
            NodeEnum::JoinExpr(j) => {
                let bare = Node {
                    node: Some(NodeEnum::JoinExpr(Box::new(JoinExpr { alias: None, ..(**j).clone() }))),
                };
                Ok(TableFactor::NestedJoin {
                    table_with_joins: Box::new(self.item(Some(&bare))?),
                    alias: self.alias_of(j.alias.as_ref())?,
                })
            }
            NodeEnum::RangeTableSample(_) => Err(SqlError::unsupported("TABLESAMPLE")),
            NodeEnum::RangeTableFunc(_) => Err(SqlError::unsupported("XMLTABLE")),
            NodeEnum::JsonTable(_) => Err(SqlError::unsupported("JSON_TABLE")),
            _ => Err(SqlError::unsupported("this kind of FROM item")),
        }
    }

    /// A relation by its name.
    pub(super) fn table(&self, r: &RangeVar) -> Result<TableFactor> {
        // The tree has no place for ONLY: the list of the partitions that are meant says it.
        let partitions = if r.inh { Vec::new() } else { vec![self.ident("ONLY", r.location)] };
        Ok(TableFactor::Table {
            name: self.relation_name(r),
            alias: self.alias_of(r.alias.as_ref())?,
            args: None,
            with_hints: Vec::new(),
            version: None,
            with_ordinality: false,
            partitions,
            json_path: None,
            sample: None,
            index_hints: Vec::new(),
        })
    }

    /// The name of a relation.
    pub(super) fn relation_name(&self, r: &RangeVar) -> ObjectName {
        let parts = [&r.catalogname, &r.schemaname, &r.relname].map(String::as_str);
        self.object_name(parts.into_iter().filter(|p| !p.is_empty()), r.location)
    }

    fn table_function(&self, r: &RangeFunction) -> Result<TableFactor> {
        let [item] = r.functions.as_slice() else { return Err(SqlError::unsupported("ROWS FROM")) };
        let NodeEnum::List(item) = kind(Some(item))? else {
            return Err(SqlError::internal("a function in FROM is none"));
        };
        let has_types = match item.items.get(1).map(|n| &n.node) {
            Some(Some(NodeEnum::List(types))) => !types.items.is_empty(),
            _ => false,
        };
        if has_types || !r.coldeflist.is_empty() {
            return Err(SqlError::unsupported("a column definition list"));
        }
        let alias = self.alias_of(r.alias.as_ref())?;
        let function = match kind(item.items.first())? {
            NodeEnum::FuncCall(f) => self.plain_call(f)?,
            _ => match self.expr(item.items.first())? {
                Expr::Function(f) => f,
                _ => return Err(SqlError::unsupported("an expression in FROM")),
            },
        };
        let Function { name, args, filter: None, over: None, within_group, .. } = function else {
            return Err(SqlError::unsupported("FILTER or OVER of a function in FROM"));
        };
        let list = match args {
            FunctionArguments::List(list) if list.clauses.is_empty() && within_group.is_empty() => list.args,
            FunctionArguments::None => Vec::new(),
            _ => return Err(SqlError::unsupported("a clause of a function in FROM")),
        };
        let is_unnest =
            matches!(name.0.as_slice(), [part] if part.as_ident().is_some_and(|i| i.value == "unnest"));
        if is_unnest {
            let mut array_exprs = Vec::with_capacity(list.len());
            for arg in list {
                let FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) = arg else {
                    return Err(SqlError::unsupported("this argument of unnest"));
                };
                array_exprs.push(e);
            }
            return Ok(TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_offset_alias: None,
                with_ordinality: r.ordinality,
            });
        }
        Ok(TableFactor::Function {
            lateral: r.lateral,
            name,
            args: list,
            with_ordinality: r.ordinality,
            alias,
        })
    }

    fn alias_of(&self, alias: Option<&Alias>) -> Result<Option<TableAlias>> {
        alias.map(|a| self.alias(&a.aliasname, &a.colnames, -1)).transpose()
    }

    /// An alias with the names of columns.
    pub(super) fn alias(&self, name: &str, columns: &[Node], at: i32) -> Result<TableAlias> {
        let column = |name: &str| TableAliasColumnDef { name: self.ident(name, -1), data_type: None };
        let columns = strings(columns)?.into_iter().map(column).collect();
        Ok(TableAlias { explicit: true, name: self.ident(name, at), columns, at: None })
    }
}
