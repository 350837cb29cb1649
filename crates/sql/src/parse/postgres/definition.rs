//! Converts definitions from the tree of PostgreSQL's parser to the syntax tree of `crate::ast`: CREATE,
//! ALTER, DROP, COMMENT and TRUNCATE.
//!
//! Invariants
//! 1. A clause that the syntax tree cannot hold is refused by its name (0A000).
//!
//! Columns and constraints are in `table`, actions of ALTER TABLE in `alter`, options of sequences in
//! `sequence`.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    CommentStmt, CreateSchemaStmt, CreateTableAsStmt, DropBehavior, DropStmt, IndexElem, IndexStmt,
    IntoClause, Node, ObjectType, OnCommitAction, RangeVar, SelectStmt, TruncateStmt, ViewCheckOption,
    ViewStmt,
};

use super::node::storage_options;
use super::place::{Reader, kind, strings};
use super::written;
use crate::ast::{
    Comment, CommentKind, CreateIndex, CreateSchema, CreateTableAs, CreateView, Definition, Drop, DropKind,
    Ident, IndexKey, IndexKeyKind, KeptExpr, ObjectName, StorageOption, Truncate,
};
use crate::error::{Result, SqlError, SqlState};
use crate::utility::tag;

impl Reader<'_> {
    /// Converts a definition. Returns `None` for other statements.
    pub(super) fn definition(&self, statement: &NodeEnum) -> Result<Option<Definition>> {
        Ok(Some(match statement {
            NodeEnum::SelectStmt(s) => match into_of(s) {
                Some(into) => self.select_into(s, into)?,
                None => return Ok(None),
            },
            NodeEnum::CreateStmt(s) => Definition::CreateTable(self.create_table(s)?),
            NodeEnum::CreateTableAsStmt(s) => self.create_table_as(s)?,
            NodeEnum::IndexStmt(s) => Definition::CreateIndex(self.create_index(s)?),
            NodeEnum::ViewStmt(s) => Definition::CreateView(self.create_view(s)?),
            NodeEnum::CreateSeqStmt(s) => Definition::CreateSequence(self.create_sequence(s)?),
            NodeEnum::CreateSchemaStmt(s) => Definition::CreateSchema(create_schema(s)?),
            NodeEnum::AlterTableStmt(s) => self.alter_relation(s, statement)?,
            NodeEnum::AlterSeqStmt(s) => Definition::AlterSequence(self.alter_sequence(s)?),
            NodeEnum::RenameStmt(s) => self.rename(s, statement)?,
            NodeEnum::AlterObjectSchemaStmt(s) => self.set_schema(s, statement)?,
            NodeEnum::CommentStmt(s) => Definition::Comment(self.comment(s, statement)?),
            NodeEnum::TruncateStmt(s) => Definition::Truncate(self.truncate(s)?),
            NodeEnum::DropStmt(s) => Definition::Drop(self.drop_objects(s, statement)?),
            _ => return Ok(None),
        }))
    }

    /// Converts the name of a relation, which the grammar always gives.
    pub(super) fn relation(&self, name: Option<&RangeVar>) -> Result<ObjectName> {
        let name = name.ok_or_else(|| SqlError::internal("a definition without its relation"))?;
        Ok(self.relation_name(name))
    }

    /// Converts a list of names to identifiers.
    pub(super) fn idents(&self, list: &[Node], at: i32) -> Result<Vec<Ident>> {
        Ok(strings(list)?.into_iter().map(|name| self.ident(name, at)).collect())
    }

    /// Converts an expression that the catalog stores, together with its text.
    pub(super) fn kept(&self, node: Option<&Node>) -> Result<KeptExpr> {
        let expr = self.expr(node)?;
        let node = node.ok_or_else(|| SqlError::internal("no expression"))?;
        Ok(KeptExpr { expr, text: written::expression(node)? })
    }

    fn select_into(&self, s: &SelectStmt, into: &IntoClause) -> Result<Definition> {
        let mut query = s.clone();
        let mut first = &mut query;
        while first.into_clause.is_none() {
            match first.larg.as_deref_mut() {
                Some(left) => first = left,
                None => return Err(SqlError::internal("SELECT INTO without INTO")),
            }
        }
        first.into_clause = None;
        self.table_of_query(into, &query, false)
    }

    fn create_table_as(&self, c: &CreateTableAsStmt) -> Result<Definition> {
        if c.objtype() != ObjectType::ObjectTable {
            return Err(SqlError::unsupported("a materialized view"));
        }
        let into = c.into.as_deref().ok_or_else(|| SqlError::internal("CREATE TABLE AS without a table"))?;
        match kind(c.query.as_deref())? {
            NodeEnum::SelectStmt(query) => self.table_of_query(into, query, c.if_not_exists),
            _ => Err(SqlError::unsupported("CREATE TABLE AS EXECUTE")),
        }
    }

    fn table_of_query(
        &self,
        into: &IntoClause,
        query: &SelectStmt,
        if_not_exists: bool,
    ) -> Result<Definition> {
        let table = into.rel.as_ref();
        let unlogged = persistence(table, "a temporary table")?;
        let method = storage(&into.access_method, into.on_commit())?;
        Ok(Definition::CreateTableAs(CreateTableAs {
            name: self.relation(table)?,
            if_not_exists,
            unlogged,
            columns: self.idents(&into.col_names, -1)?,
            options: storage_options(&into.options)?,
            method,
            tablespace: said(&into.table_space_name),
            query: Box::new(self.query(query)?),
            with_data: !into.skip_data,
        }))
    }

    fn create_index(&self, i: &IndexStmt) -> Result<CreateIndex> {
        let is_tuning = |o: &StorageOption| matches!(o.name.as_str(), "fillfactor" | "deduplicate_items");
        refuse(&[
            (!i.index_including_params.is_empty(), "INCLUDE"),
            (i.nulls_not_distinct, "NULLS NOT DISTINCT"),
            (!matches!(i.access_method.as_str(), "" | "btree"), "an index method other than btree"),
            (!storage_options(&i.options)?.iter().all(is_tuning), "this option of an index"),
        ])?;
        let mut keys = Vec::with_capacity(i.index_params.len());
        for key in &i.index_params {
            let NodeEnum::IndexElem(key) = kind(Some(key))? else {
                return Err(SqlError::internal("a part of an index's key is none"));
            };
            keys.push(self.index_key(key)?);
        }
        Ok(CreateIndex {
            name: (!i.idxname.is_empty()).then(|| self.ident(&i.idxname, -1)),
            table: self.relation(i.relation.as_ref())?,
            only: is_only(i.relation.as_ref()),
            unique: i.unique,
            if_not_exists: i.if_not_exists,
            keys,
            predicate: i.where_clause.as_deref().map(|node| self.kept(Some(node))).transpose()?,
            tablespace: said(&i.table_space),
        })
    }

    fn index_key(&self, key: &IndexElem) -> Result<IndexKey> {
        // Varve sorts text by bytes. These collations have the same order.
        const COLLATIONS: [&str; 4] = ["C", "POSIX", "default", "ucs_basic"];
        let is_own = strings(&key.collation)?.last().is_none_or(|name| COLLATIONS.contains(name));
        refuse(&[
            (!is_own, "a collation of an index"),
            (!key.opclassopts.is_empty(), "an option of an operator class"),
        ])?;
        let kind = match key.expr.as_deref() {
            Some(e) => IndexKeyKind::Expression(self.kept(Some(e))?),
            None => IndexKeyKind::Column(self.ident(&key.name, -1)),
        };
        let operator_class = strings(&key.opclass)?.last().map(|name| (*name).to_owned());
        Ok(IndexKey { kind, operator_class })
    }

    fn create_view(&self, v: &ViewStmt) -> Result<CreateView> {
        persistence(v.view.as_ref(), "a temporary view")?;
        let is_checked =
            !matches!(v.with_check_option(), ViewCheckOption::NoCheckOption | ViewCheckOption::Undefined);
        refuse(&[(is_checked, "WITH CHECK OPTION")])?;
        let NodeEnum::SelectStmt(query) = kind(v.query.as_deref())? else {
            return Err(SqlError::internal("a view without a query"));
        };
        if into_of(query).is_some() {
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "views must not contain SELECT INTO"));
        }
        Ok(CreateView {
            name: self.relation(v.view.as_ref())?,
            or_replace: v.replace,
            columns: self.idents(&v.aliases, -1)?,
            options: storage_options(&v.options)?,
            query: Box::new(self.query(query)?),
            text: written::query(query)?,
        })
    }

    fn comment(&self, c: &CommentStmt, statement: &NodeEnum) -> Result<Comment> {
        let kind = match c.objtype() {
            ObjectType::ObjectColumn => CommentKind::Column,
            ObjectType::ObjectTabconstraint => CommentKind::Constraint,
            ObjectType::ObjectIndex => CommentKind::Index,
            ObjectType::ObjectRole => CommentKind::Role,
            ObjectType::ObjectDatabase => CommentKind::Database,
            ObjectType::ObjectSchema => CommentKind::Schema,
            ObjectType::ObjectSequence => CommentKind::Sequence,
            ObjectType::ObjectTable => CommentKind::Table,
            ObjectType::ObjectView => CommentKind::View,
            _ => return Err(tag::unsupported(statement)),
        };
        let text = Some(c.comment.clone()).filter(|text| !text.is_empty());
        Ok(Comment { kind, name: self.object(c.object.as_deref())?, text })
    }

    fn truncate(&self, t: &TruncateStmt) -> Result<Truncate> {
        let (mut tables, mut only) = (Vec::with_capacity(t.relations.len()), Vec::new());
        for table in &t.relations {
            let NodeEnum::RangeVar(name) = kind(Some(table))? else {
                return Err(SqlError::internal("TRUNCATE of no table"));
            };
            tables.push(self.relation_name(name));
            only.push(!name.inh);
        }
        Ok(Truncate { tables, only, restart_identity: t.restart_seqs, cascade: is_cascade(t.behavior()) })
    }

    fn drop_objects(&self, d: &DropStmt, statement: &NodeEnum) -> Result<Drop> {
        let kind = match d.remove_type() {
            ObjectType::ObjectIndex => DropKind::Index,
            ObjectType::ObjectSchema => DropKind::Schema,
            ObjectType::ObjectSequence => DropKind::Sequence,
            ObjectType::ObjectTable => DropKind::Table,
            ObjectType::ObjectView => DropKind::View,
            _ => return Err(tag::unsupported(statement)),
        };
        let names = d.objects.iter().map(|object| self.object(Some(object))).collect::<Result<_>>()?;
        Ok(Drop { kind, names, if_exists: d.missing_ok, cascade: is_cascade(d.behavior()) })
    }

    /// Returns the name of an object: one word, or a list of them.
    fn object(&self, node: Option<&Node>) -> Result<ObjectName> {
        match kind(node)? {
            NodeEnum::List(list) => self.name_of(&list.items, -1),
            NodeEnum::String(name) => Ok(self.object_name([name.sval.as_str()], -1)),
            _ => Err(SqlError::unsupported("this form of a name")),
        }
    }
}

/// Returns the INTO clause of a query. In a set operation, the first part has it.
pub(super) fn into_of(s: &SelectStmt) -> Option<&IntoClause> {
    let mut first = s;
    loop {
        match (&first.into_clause, first.larg.as_deref()) {
            (Some(into), _) => return Some(into),
            (None, Some(left)) => first = left,
            (None, None) => return None,
        }
    }
}

fn create_schema(s: &CreateSchemaStmt) -> Result<CreateSchema> {
    refuse(&[
        (s.authrole.is_some(), "AUTHORIZATION of a schema"),
        (!s.schema_elts.is_empty(), "a definition within CREATE SCHEMA"),
    ])?;
    Ok(CreateSchema { name: s.schemaname.clone(), if_not_exists: s.if_not_exists })
}

/// Returns whether a new relation is unlogged. Fails with 0A000 for a temporary one.
pub(super) fn persistence(relation: Option<&RangeVar>, temporary: &str) -> Result<bool> {
    match relation.map_or("p", |relation| relation.relpersistence.as_str()) {
        "t" => Err(SqlError::unsupported(temporary)),
        persistence => Ok(persistence == "u"),
    }
}

/// Returns the table access method that CREATE TABLE names, if it names one.
pub(super) fn storage(method: &str, on_commit: OnCommitAction) -> Result<Option<String>> {
    let is_plain = matches!(on_commit, OnCommitAction::Undefined | OnCommitAction::OncommitNoop);
    refuse(&[(!is_plain, "ON COMMIT")])?;
    Ok(said(method))
}

/// Returns a name that the statement may leave out, or `None` if it does.
pub(super) fn said(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns whether the relation has ONLY before its name.
pub(super) fn is_only(relation: Option<&RangeVar>) -> bool {
    relation.is_some_and(|relation| !relation.inh)
}

pub(super) fn is_cascade(behavior: DropBehavior) -> bool {
    behavior == DropBehavior::DropCascade
}

/// Fails with 0A000 if the statement has one of these clauses. The error names the first one.
pub(super) fn refuse(clauses: &[(bool, &str)]) -> Result<()> {
    match clauses.iter().find(|(is_there, _)| *is_there) {
        Some((_, name)) => Err(SqlError::unsupported(name)),
        None => Ok(()),
    }
}
