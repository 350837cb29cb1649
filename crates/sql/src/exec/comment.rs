//! Executes COMMENT ON.

use crate::ast;
use crate::names::{fold, object_name, undefined_table};
use varve_engine::{Catalog, Named, ObjectId, TableId, Transaction};

use super::notice::{Notices, Result};
use crate::ast::{Comment, CommentKind};
use crate::error::{SqlError, SqlState};
use crate::sink::Severity;
use crate::system::{constraints, ids};

/// Sets a comment. NULL or an empty text removes it.
pub(super) fn comment(
    catalog: &Catalog,
    c: &Comment,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<&'static str> {
    if let Some(name) = missing_database(catalog, c) {
        // This is only a warning, so a dump can be restored into a database of another name.
        let message = format!("database \"{name}\" does not exist");
        notices.push((Severity::Warning, SqlError::new(SqlState::UNDEFINED_DATABASE, message)));
        return Ok("COMMENT");
    }
    let (object, column) = commented(catalog, c.kind, &c.name)?;
    // If another session drops a column, ordinals of later columns change. So the table or view is locked
    // against changes of its definition.
    if column.is_some() {
        match catalog.view_by_id(object) {
            Some(view) => txn.hold_view(view)?,
            None => drop(catalog.table_by_id(TableId(object.0)).map(|t| txn.table(&t)).transpose()?),
        }
    }
    txn.set_about(object, |about| about.set_comment(column, c.text.clone()))?;
    Ok("COMMENT")
}

/// Returns the name of the commented database, if no such database exists.
fn missing_database(catalog: &Catalog, c: &Comment) -> Option<String> {
    let name = c.name.0.last().map(fold)?;
    (c.kind == CommentKind::Database && catalog.database_named(&name).is_none()).then_some(name)
}

/// Returns the commented object, and the ordinal of the column for a comment on a column.
fn commented(
    catalog: &Catalog,
    kind: CommentKind,
    name: &ast::ObjectName,
) -> Result<(ObjectId, Option<usize>), SqlError> {
    let last = name.last().to_owned();
    let whole = |id: ObjectId| (id, None);
    match kind {
        CommentKind::Column => column(catalog, name),
        CommentKind::Constraint => constraint(catalog, name),
        CommentKind::Schema => {
            let missing =
                || SqlError::new(SqlState::INVALID_SCHEMA, format!("schema \"{last}\" does not exist"));
            catalog.schemas().find(|s| s.name == last).map(|s| whole(s.id)).ok_or_else(missing)
        }
        CommentKind::Database => {
            let missing =
                || SqlError::new(SqlState::UNDEFINED_DATABASE, format!("database \"{last}\" does not exist"));
            catalog.database_named(&last).map(|database| whole(database.id)).ok_or_else(missing)
        }
        CommentKind::Role => {
            let missing =
                || SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{last}\" does not exist"));
            catalog.role(&last).map(|r| whole(r.id)).ok_or_else(missing)
        }
        CommentKind::Table => relation(catalog, name, "a table", |named| match named {
            Named::Table(id) => Some(id.into()),
            Named::Part(_, id) => Some(id),
            _ => None,
        }),
        CommentKind::View => relation(catalog, name, "a view", |named| match named {
            Named::View(id) => Some(id),
            _ => None,
        }),
        CommentKind::Index => relation(catalog, name, "an index", |named| match named {
            Named::Index(_, id) => Some(id.into()),
            Named::PrimaryKey(table) => Some(ObjectId(ids::key_index(table))),
            _ => None,
        }),
        CommentKind::Sequence => relation(catalog, name, "a sequence", |named| match named {
            Named::Sequence(id) => Some(id.into()),
            _ => None,
        }),
    }
}

fn relation(
    catalog: &Catalog,
    name: &ast::ObjectName,
    wanted: &str,
    pick: impl FnOnce(Named) -> Option<ObjectId>,
) -> Result<(ObjectId, Option<usize>), SqlError> {
    let (schema, last) = object_name(name)?;
    let named = catalog.resolve(&schema, &last).ok_or_else(|| undefined_table(name))?;
    let other = || SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{last}\" is not {wanted}"));
    pick(named).map(|id| (id, None)).ok_or_else(other)
}

/// Finds the column of a name `[schema.]table.column`.
fn column(catalog: &Catalog, name: &ast::ObjectName) -> Result<(ObjectId, Option<usize>), SqlError> {
    let Some((column, of)) = name.0.split_last() else {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "column name must be qualified"));
    };
    if of.is_empty() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "column name must be qualified"));
    }
    let (of, column) = (ast::ObjectName(of.to_vec()), fold(column));
    let (schema, table) = object_name(&of)?;
    let (object, found) = match (catalog.table(&schema, &table), catalog.view(&schema, &table)) {
        (Some(table), _) => (ObjectId::from(table.id), table.column(&column)),
        (None, Some(view)) => (view.id, view.columns.iter().position(|c| c.name == column)),
        (None, None) => return Err(undefined_table(&of)),
    };
    let missing = || {
        let message = format!("column \"{column}\" of relation \"{table}\" does not exist");
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    };
    Ok((object, Some(found.ok_or_else(missing)?)))
}

/// Finds the constraint of a name `[schema.]table.constraint`.
fn constraint(catalog: &Catalog, name: &ast::ObjectName) -> Result<(ObjectId, Option<usize>), SqlError> {
    let Some((constraint, of)) = name.0.split_last() else {
        return Err(SqlError::internal("a constraint without a name"));
    };
    let of = ast::ObjectName(of.to_vec());
    let (constraint, (schema, table)) = (fold(constraint), object_name(&of)?);
    let def = catalog.table(&schema, &table).ok_or_else(|| undefined_table(&of))?;
    let all = constraints::all(catalog);
    let found = all.iter().find(|c| c.table.id == def.id && c.name == constraint);
    found.map(|c| (ObjectId(c.oid), None)).ok_or_else(|| {
        let message = format!("constraint \"{constraint}\" for table \"{table}\" does not exist");
        SqlError::new(SqlState::UNDEFINED_OBJECT, message)
    })
}
