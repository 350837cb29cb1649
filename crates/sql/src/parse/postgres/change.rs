//! INSERT, UPDATE and DELETE.
//!
//! Does not know: queries.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    DeleteStmt, InferClause, InsertStmt, Node, OnConflictAction as Action, OnConflictClause, ResTarget,
    ReturningClause, UpdateStmt,
};
use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget, Delete, DoUpdate, FromTable, Insert, ObjectName,
    OnConflict, OnConflictAction, OnInsert, SelectItem, TableAliasWithoutColumns, TableObject,
    TableWithJoins, Update, UpdateTableFromKind,
};

use super::place::{Reader, kind, strings};
use crate::error::{Result, SqlError};

impl Reader<'_> {
    /// INSERT without its WITH.
    pub(super) fn insert(&self, i: &InsertStmt) -> Result<Insert> {
        let Some(relation) = &i.relation else { return Err(SqlError::internal("INSERT into nothing")) };
        let source = match i.select_stmt.as_deref() {
            Some(node) => Some(Box::new(self.subquery(Some(node))?)),
            None => None,
        };
        let alias = relation.alias.as_ref();
        let targets = i.cols.iter().map(|c| self.target(c)).collect::<Result<Vec<_>>>()?;
        Ok(Insert {
            insert_token: AttachedToken::empty(),
            optimizer_hints: Vec::new(),
            or: None,
            ignore: false,
            into: true,
            table: TableObject::TableName(self.relation_name(relation)),
            table_alias: alias
                .map(|a| TableAliasWithoutColumns { explicit: true, alias: self.ident(&a.aliasname, -1) }),
            columns: targets.into_iter().map(|(name, _)| name).collect(),
            overwrite: false,
            source,
            assignments: Vec::new(),
            partitioned: None,
            after_columns: Vec::new(),
            has_table_keyword: false,
            on: self.on_conflict(i.on_conflict_clause.as_deref())?,
            returning: self.returning(i.returning_clause.as_ref())?,
            output: None,
            replace_into: false,
            priority: None,
            insert_alias: None,
            settings: None,
            format_clause: None,
            multi_table_insert_type: None,
            multi_table_into_clauses: Vec::new(),
            multi_table_when_clauses: Vec::new(),
            multi_table_else_clause: None,
        })
    }

    /// UPDATE without its WITH.
    pub(super) fn update(&self, u: &UpdateStmt) -> Result<Update> {
        let Some(relation) = &u.relation else { return Err(SqlError::internal("UPDATE of nothing")) };
        let from = self.from(&u.from_clause)?;
        Ok(Update {
            update_token: AttachedToken::empty(),
            optimizer_hints: Vec::new(),
            table: TableWithJoins { relation: self.table(relation)?, joins: Vec::new() },
            assignments: self.assignments(&u.target_list)?,
            from: (!from.is_empty()).then_some(UpdateTableFromKind::AfterSet(from)),
            selection: self.maybe(u.where_clause.as_deref())?,
            returning: self.returning(u.returning_clause.as_ref())?,
            output: None,
            or: None,
            order_by: Vec::new(),
            limit: None,
        })
    }

    /// DELETE without its WITH.
    pub(super) fn delete(&self, d: &DeleteStmt) -> Result<Delete> {
        let Some(relation) = &d.relation else { return Err(SqlError::internal("DELETE of nothing")) };
        let using = self.from(&d.using_clause)?;
        Ok(Delete {
            delete_token: AttachedToken::empty(),
            optimizer_hints: Vec::new(),
            tables: Vec::new(),
            from: FromTable::WithFromKeyword(vec![TableWithJoins {
                relation: self.table(relation)?,
                joins: Vec::new(),
            }]),
            using: (!using.is_empty()).then_some(using),
            selection: self.maybe(d.where_clause.as_deref())?,
            returning: self.returning(d.returning_clause.as_ref())?,
            output: None,
            order_by: Vec::new(),
            limit: None,
        })
    }

    fn returning(&self, clause: Option<&ReturningClause>) -> Result<Option<Vec<SelectItem>>> {
        let Some(clause) = clause else { return Ok(None) };
        if !clause.options.is_empty() {
            return Err(SqlError::unsupported("WITH of RETURNING"));
        }
        self.select_items(&clause.exprs).map(Some)
    }

    /// The column of an INSERT or SET, and its node.
    fn target<'n>(&self, node: &'n Node) -> Result<(ObjectName, &'n ResTarget)> {
        let NodeEnum::ResTarget(target) = kind(Some(node))? else {
            return Err(SqlError::internal("a target of a change is none"));
        };
        let is_name = |node: &Node| matches!(node.node, Some(NodeEnum::String(_)));
        if !target.indirection.iter().all(is_name) {
            return Err(SqlError::unsupported("a part of a column as the target of a change"));
        }
        let fields = strings(&target.indirection)?;
        let names = std::iter::once(target.name.as_str()).chain(fields);
        Ok((self.object_name(names, target.location), target))
    }

    fn assignments(&self, list: &[Node]) -> Result<Vec<Assignment>> {
        let (mut made, mut rest) = (Vec::new(), list);
        while let Some((first, behind)) = rest.split_first() {
            let (name, target) = self.target(first)?;
            let NodeEnum::MultiAssignRef(several) = kind(target.val.as_deref())? else {
                let value = self.expr(target.val.as_deref())?;
                made.push(Assignment { target: AssignmentTarget::ColumnName(name), value });
                rest = behind;
                continue;
            };
            let count = usize::try_from(several.ncolumns).unwrap_or(1).clamp(1, rest.len());
            let (own, others) = rest.split_at(count);
            let names =
                own.iter().map(|t| self.target(t).map(|(name, _)| name)).collect::<Result<Vec<_>>>()?;
            let value = self.expr(several.source.as_deref())?;
            made.push(Assignment { target: AssignmentTarget::Tuple(names), value });
            rest = others;
        }
        Ok(made)
    }

    fn on_conflict(&self, clause: Option<&OnConflictClause>) -> Result<Option<OnInsert>> {
        let Some(clause) = clause else { return Ok(None) };
        let action = match clause.action() {
            Action::OnconflictUpdate => OnConflictAction::DoUpdate(DoUpdate {
                assignments: self.assignments(&clause.target_list)?,
                selection: self.maybe(clause.where_clause.as_deref())?,
            }),
            _ => OnConflictAction::DoNothing,
        };
        let conflict_target = clause.infer.as_deref().map(|infer| self.arbiter(infer)).transpose()?;
        Ok(Some(OnInsert::OnConflict(OnConflict { conflict_target, action })))
    }

    fn arbiter(&self, infer: &InferClause) -> Result<ConflictTarget> {
        if infer.where_clause.is_some() {
            return Err(SqlError::unsupported("WHERE of a conflict's target"));
        }
        if !infer.conname.is_empty() {
            return Ok(ConflictTarget::OnConstraint(
                self.object_name([infer.conname.as_str()], infer.location),
            ));
        }
        let mut columns = Vec::with_capacity(infer.index_elems.len());
        for element in &infer.index_elems {
            let NodeEnum::IndexElem(e) = kind(Some(element))? else { continue };
            if e.expr.is_some() || !e.collation.is_empty() || !e.opclass.is_empty() {
                return Err(SqlError::unsupported(
                    "an expression, collation or operator class as a conflict's target",
                ));
            }
            columns.push(self.ident(&e.name, infer.location));
        }
        Ok(ConflictTarget::Columns(columns))
    }
}
