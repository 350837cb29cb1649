//! Makes PostgreSQL's error for relation names that name another database.

use pg_query::protobuf::{DropStmt, List, Node, ObjectType};
use pg_query::{NodeEnum, NodeRef};

use super::node;
use crate::error::{Result, SqlError, SqlState};

/// Fails with 0A000 if the statement names a relation of another database.
pub fn check(sql: &str, statement: &NodeEnum, database: &str) -> Result<()> {
    // Few statements have a name with a database. So the tree is only walked if the text may have one.
    if !has_three_names(sql) {
        return Ok(());
    }
    if let NodeEnum::DropStmt(drop) = statement {
        return check_dropped(drop, database);
    }
    for (node, ..) in statement.nodes() {
        let NodeRef::RangeVar(r) = node else { continue };
        if !r.catalogname.is_empty() && r.catalogname != database {
            let position = node::Source { sql }.position(r.location);
            let is_query = matches!(
                statement,
                NodeEnum::SelectStmt(_)
                    | NodeEnum::InsertStmt(_)
                    | NodeEnum::UpdateStmt(_)
                    | NodeEnum::DeleteStmt(_)
            );
            let error = elsewhere(&[&r.catalogname, &r.schemaname, &r.relname]);
            return Err(error.at(position.filter(|_| is_query)));
        }
    }
    Ok(())
}

fn check_dropped(drop: &DropStmt, database: &str) -> Result<()> {
    let are_relations = matches!(
        drop.remove_type(),
        ObjectType::ObjectTable
            | ObjectType::ObjectView
            | ObjectType::ObjectSequence
            | ObjectType::ObjectIndex
    );
    for object in drop.objects.iter().filter(|_| are_relations) {
        let Node { node: Some(NodeEnum::List(List { items })) } = object else { continue };
        let parts = node::strings(items)?;
        if let [catalog, _, _] = parts.as_slice()
            && catalog != database
        {
            let parts: Vec<&String> = parts.iter().collect();
            return Err(elsewhere(&parts));
        }
    }
    Ok(())
}

fn elsewhere(parts: &[&String]) -> SqlError {
    let name: Vec<&str> = parts.iter().map(|part| part.as_str()).collect();
    let message = format!("cross-database references are not implemented: \"{}\"", name.join("."));
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

/// Returns whether the text has a name with a dot before and after it.
fn has_three_names(sql: &str) -> bool {
    let is_name = |text: &str| {
        let text = text.trim();
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
        !text.is_empty() && (text.chars().all(plain) || (text.starts_with('"') && text.ends_with('"')))
    };
    let mut pieces = sql.split('.');
    pieces.next();
    // The last piece has no dot after it.
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_some() && is_name(piece) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::has_three_names;

    #[test]
    fn names_of_three_parts_are_seen() {
        for (sql, expected) in [
            ("select * from a.b.c", true),
            ("select * from a . \"b\" . c", true),
            ("select a.b, b.c from a", false),
            ("select 1.5 + 2.5", false),
            ("select 1", false),
            ("", false),
        ] {
            assert_eq!(has_three_names(sql), expected, "{sql}");
        }
    }
}
