//! Converts INSERT, UPDATE and DELETE from the tree of PostgreSQL's parser to the syntax tree of
//! `crate::ast`.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    DeleteStmt, InferClause, InsertStmt, Node, OnConflictAction as Action, OnConflictClause, OverridingKind,
    ResTarget, ReturningClause, UpdateStmt, WithClause,
};

use super::place::{Reader, kind, strings};
use crate::ast::{
    Assignment, ConflictTarget, Delete, DoUpdate, Insert, ObjectName, OnConflict, Overriding, SelectItem,
    Update, With,
};
use crate::error::{Result, SqlError};

impl Reader<'_> {
    /// Converts INSERT.
    pub(super) fn insert(&self, i: &InsertStmt) -> Result<Insert> {
        let Some(relation) = &i.relation else { return Err(SqlError::internal("INSERT into nothing")) };
        let source = match i.select_stmt.as_deref() {
            Some(node) => Some(Box::new(self.subquery(Some(node))?)),
            None => None,
        };
        let targets = i.cols.iter().map(|c| self.target(c)).collect::<Result<Vec<_>>>()?;
        Ok(Insert {
            with: self.with_before(i.with_clause.as_ref())?,
            table: self.relation_name(relation),
            alias: relation.alias.as_ref().map(|a| self.ident(&a.aliasname, -1)),
            columns: targets.into_iter().map(|(name, _)| name).collect(),
            overriding: match i.r#override() {
                OverridingKind::OverridingUserValue => Some(Overriding::User),
                OverridingKind::OverridingSystemValue => Some(Overriding::System),
                _ => None,
            },
            source,
            on_conflict: self.on_conflict(i.on_conflict_clause.as_deref())?,
            returning: self.returning(i.returning_clause.as_ref())?,
        })
    }

    /// Converts UPDATE.
    pub(super) fn update(&self, u: &UpdateStmt) -> Result<Update> {
        let Some(relation) = &u.relation else { return Err(SqlError::internal("UPDATE of nothing")) };
        Ok(Update {
            with: self.with_before(u.with_clause.as_ref())?,
            table: self.table(relation)?,
            assignments: self.assignments(&u.target_list)?,
            from: self.from(&u.from_clause)?,
            selection: self.maybe(u.where_clause.as_deref())?,
            returning: self.returning(u.returning_clause.as_ref())?,
        })
    }

    /// Converts DELETE.
    pub(super) fn delete(&self, d: &DeleteStmt) -> Result<Delete> {
        let Some(relation) = &d.relation else { return Err(SqlError::internal("DELETE of nothing")) };
        Ok(Delete {
            with: self.with_before(d.with_clause.as_ref())?,
            table: self.table(relation)?,
            using: self.from(&d.using_clause)?,
            selection: self.maybe(d.where_clause.as_deref())?,
            returning: self.returning(d.returning_clause.as_ref())?,
        })
    }

    fn with_before(&self, with: Option<&WithClause>) -> Result<Option<With>> {
        with.map(|with| self.with(with)).transpose()
    }

    fn returning(&self, clause: Option<&ReturningClause>) -> Result<Option<Vec<SelectItem>>> {
        let Some(clause) = clause else { return Ok(None) };
        if !clause.options.is_empty() {
            return Err(SqlError::unsupported("WITH of RETURNING"));
        }
        self.select_items(&clause.exprs).map(Some)
    }

    /// Returns the target column of an INSERT or SET, and its node.
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
                made.push(Assignment::Column(name, value));
                rest = behind;
                continue;
            };
            let count = usize::try_from(several.ncolumns).unwrap_or(1).clamp(1, rest.len());
            let (own, others) = rest.split_at(count);
            let names =
                own.iter().map(|t| self.target(t).map(|(name, _)| name)).collect::<Result<Vec<_>>>()?;
            let value = self.expr(several.source.as_deref())?;
            made.push(Assignment::Tuple(names, value));
            rest = others;
        }
        Ok(made)
    }

    fn on_conflict(&self, clause: Option<&OnConflictClause>) -> Result<Option<OnConflict>> {
        let Some(clause) = clause else { return Ok(None) };
        let update = match clause.action() {
            Action::OnconflictUpdate => Some(DoUpdate {
                assignments: self.assignments(&clause.target_list)?,
                selection: self.maybe(clause.where_clause.as_deref())?,
            }),
            _ => None,
        };
        let target = clause.infer.as_deref().map(|infer| self.arbiter(infer)).transpose()?;
        Ok(Some(OnConflict { target, update }))
    }

    fn arbiter(&self, infer: &InferClause) -> Result<ConflictTarget> {
        if infer.where_clause.is_some() {
            return Err(SqlError::unsupported("ON CONFLICT with a WHERE before DO"));
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
