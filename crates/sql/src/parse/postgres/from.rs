//! Converts FROM clauses. The source is the tree of PostgreSQL's parser, the result is the syntax tree of
//! `crate::ast`.

use pg_query::NodeEnum;
use pg_query::protobuf::{Alias, JoinExpr, JoinType, Node, RangeFunction, RangeVar};

use super::definition::refuse;
use super::expression::function;
use super::place::{Reader, kind, strings};
use crate::ast::{
    Expr, Function, FunctionArg, Ident, Join, JoinConstraint, JoinOperator, ObjectName, Table, TableAlias,
    TableFactor, TableWithJoins, ValueFunction,
};
use crate::error::{Result, SqlError};

impl Reader<'_> {
    /// Converts the items of FROM.
    pub(super) fn from(&self, list: &[Node]) -> Result<Vec<TableWithJoins>> {
        list.iter().map(|item| self.item(Some(item))).collect()
    }

    fn item(&self, node: Option<&Node>) -> Result<TableWithJoins> {
        // Joins are nested on the left side, and a long text can nest many of them. So this is a loop and not
        // a recursion.
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
        let constraint = if j.is_natural {
            JoinConstraint::Natural
        } else if !j.using_clause.is_empty() {
            let names = strings(&j.using_clause)?;
            JoinConstraint::Using(names.into_iter().map(|name| self.ident(name, -1)).collect())
        } else if let Some(on) = self.maybe(j.quals.as_deref())? {
            JoinConstraint::On(on)
        } else {
            return Ok(Join { relation: self.factor(j.rarg.as_deref())?, operator: JoinOperator::Cross });
        };
        let operator = match j.jointype() {
            JoinType::JoinLeft => JoinOperator::LeftOuter(constraint),
            JoinType::JoinRight => JoinOperator::RightOuter(constraint),
            JoinType::JoinFull => JoinOperator::FullOuter(constraint),
            _ => JoinOperator::Inner(constraint),
        };
        Ok(Join { relation: self.factor(j.rarg.as_deref())?, operator })
    }

    fn factor(&self, node: Option<&Node>) -> Result<TableFactor> {
        match kind(node)? {
            NodeEnum::RangeVar(r) => self.table(r).map(TableFactor::Table),
            NodeEnum::RangeSubselect(r) => Ok(TableFactor::Derived {
                lateral: r.lateral,
                subquery: Box::new(self.subquery(r.subquery.as_deref())?),
                alias: self.alias_of(r.alias.as_ref())?,
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

    /// Converts a relation that is named.
    pub(super) fn table(&self, r: &RangeVar) -> Result<Table> {
        Ok(Table { name: self.relation_name(r), only: !r.inh, alias: self.alias_of(r.alias.as_ref())? })
    }

    /// Returns the name of a relation.
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
        let called = match kind(item.items.first())? {
            NodeEnum::FuncCall(f) => self.plain_call(f)?,
            NodeEnum::SqlvalueFunction(f) => {
                let ValueFunction { name, precision, at } = self.value_function(f);
                let digits = precision.map(|digits| FunctionArg::Expr(Expr::number(digits.to_string())));
                let name = ObjectName::from(Ident { value: name.to_owned(), at });
                Function { args: digits.into_iter().collect(), ..function(name) }
            }
            _ => match self.expr(item.items.first())? {
                Expr::Function(f) => f,
                _ => return Err(SqlError::unsupported("an expression in FROM")),
            },
        };
        let Function { name, distinct, args, order_by, within_group, filter, over } = called;
        refuse(&[
            (filter.is_some() || over.is_some(), "FILTER or OVER of a function in FROM"),
            (!order_by.is_empty() || !within_group.is_empty(), "a clause of a function in FROM"),
            (distinct, "DISTINCT of a function in FROM"),
        ])?;
        let with_ordinality = r.ordinality;
        Ok(TableFactor::Function { name, args, with_ordinality, alias })
    }

    fn alias_of(&self, alias: Option<&Alias>) -> Result<Option<TableAlias>> {
        alias.map(|a| self.alias(&a.aliasname, &a.colnames, -1)).transpose()
    }

    /// Converts an alias with names of columns.
    pub(super) fn alias(&self, name: &str, columns: &[Node], at: i32) -> Result<TableAlias> {
        let columns = strings(columns)?.into_iter().map(|name| self.ident(name, -1)).collect();
        Ok(TableAlias { name: self.ident(name, at), columns })
    }
}
