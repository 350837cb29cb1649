//! Writes definitions of indexes, constraints and views as text, like PostgreSQL's `pg_get_...` functions.
//!
//! This module does not know system tables.

use varve_engine::{Bound, Catalog, Check, Edge, Part, PartitionMethod, TableDef, Value, ViewDef};

use super::conditions::{self, KeptExpression, MeaningOf};
use super::constraints::{Constraint, Demand, action_words};
use super::deparse;
use super::names::{literal, quoted};
use super::relations::{IndexKey, IndexOf, Relation};
use crate::path::Path;

/// The context for printing definitions.
#[derive(Clone, Copy)]
pub struct Printing<'c> {
    /// The catalog.
    pub catalog: &'c Catalog,
    /// The search path. A table that it finds is named without its schema.
    pub path: &'c Path,
    /// Finds the meaning of expressions that the catalog stores as text.
    pub meaning_of: MeaningOf,
    /// Whether to print only the parentheses that PostgreSQL finds necessary.
    pub pretty: bool,
}

impl<'c> Printing<'c> {
    /// Returns the text `CREATE [UNIQUE] INDEX ...`. With `pretty`, the table has a schema only if the search
    /// path does not find it.
    pub fn index(self, r: &Relation<'_>, index: &IndexOf<'_>) -> String {
        let unique = if index.unique { "UNIQUE " } else { "" };
        let only = if index.table.partitions.is_some() { "ONLY " } else { "" };
        let table = match self.pretty {
            true => self.path.shown(self.catalog, &index.table.schema, &index.table.name),
            false => format!("{}.{}", quoted(&index.table.schema), quoted(&index.table.name)),
        };
        let keys: Vec<String> = index.keys().map(|key| self.index_key(index.table, key)).collect();
        let keys = keys.join(", ");
        let predicate = index.derived.and_then(|derived| derived.predicate.as_deref());
        let condition = predicate.map(|text| format!(" WHERE {}", self.index_text(index.table, text)));
        let condition = condition.unwrap_or_default();
        format!("CREATE {unique}INDEX {} ON {only}{table} USING btree ({keys}){condition}", quoted(r.name))
    }

    /// Returns the text of a part of an index's key.
    pub fn index_key(self, table: &TableDef, key: IndexKey<'_>) -> String {
        match key {
            IndexKey::Column(ordinal) => columns(table, &[ordinal]),
            IndexKey::Expression(text, _) if conditions::is_call(text) => self.index_text(table, text),
            IndexKey::Expression(text, _) => format!("({})", self.index_text(table, text)),
        }
    }

    /// Returns the text of an expression or condition of an index.
    pub fn index_text(self, table: &TableDef, text: &str) -> String {
        self.kept(table, text).printed(self.pretty).unwrap_or_else(|| text.to_owned())
    }

    /// Returns the text after `CONSTRAINT name`.
    pub fn constraint(self, c: &Constraint<'_>) -> String {
        self.demand(c) + if c.is_not_valid() { " NOT VALID" } else { "" }
    }

    /// Returns the text of a CHECK condition.
    pub fn check(self, table: &TableDef, check: &Check) -> String {
        let as_kept = || if self.pretty { check.text.clone() } else { format!("({})", check.text) };
        self.kept(table, &check.text).printed_condition(self.pretty).unwrap_or_else(as_kept)
    }

    fn kept<'e>(self, table: &'e TableDef, text: &'e str) -> KeptExpression<'e>
    where
        'c: 'e,
    {
        KeptExpression { catalog: self.catalog, table, text, meaning_of: self.meaning_of }
    }

    /// Returns the text of a view's query.
    pub fn view(self, view: &ViewDef) -> String {
        let laid_out = deparse::view_query(self.catalog, view, self.path);
        let query = laid_out.unwrap_or_else(|| format!(" {}", view.text.trim().trim_end_matches(';')));
        format!("{query};")
    }

    fn demand(self, c: &Constraint<'_>) -> String {
        let own = columns(c.table, c.columns);
        match c.what {
            Demand::Key(_) => format!("PRIMARY KEY ({own})"),
            Demand::Unique(_) => format!("UNIQUE ({own})"),
            Demand::Check(check) => format!("CHECK ({})", self.check(c.table, check)),
            Demand::Foreign(key) => {
                let (parent, parent_columns) = match self.catalog.table_by_id(key.parent) {
                    Some(parent) => (
                        self.path.shown(self.catalog, &parent.schema, &parent.name),
                        columns(&parent, &key.parent_columns),
                    ),
                    None => (key.parent.0.to_string(), String::new()),
                };
                let mut out = format!("FOREIGN KEY ({own}) REFERENCES {parent}({parent_columns})");
                out.push_str(if key.match_full { " MATCH FULL" } else { "" });
                for (event, action) in [("UPDATE", key.on_update), ("DELETE", key.on_delete)] {
                    if !action_words(action).is_empty() {
                        out.push_str(&format!(" ON {event} {}", action_words(action)));
                    }
                }
                out.push_str(if key.deferrable { " DEFERRABLE" } else { "" });
                out.push_str(if key.initially_deferred { " INITIALLY DEFERRED" } else { "" });
                out
            }
        }
    }
}

/// Returns the names of columns with commas between them.
fn columns(table: &TableDef, ordinals: &[usize]) -> String {
    let names = ordinals.iter().filter_map(|c| table.columns.get(*c)).map(|c| quoted(&c.name));
    names.collect::<Vec<_>>().join(", ")
}

/// Returns the text of a partition's bounds, such as `FOR VALUES WITH (modulus m, remainder r)`.
pub fn partition_bound(part: &Part) -> String {
    match &part.bound {
        Bound::Hash { modulus, remainder } => {
            format!("FOR VALUES WITH (modulus {modulus}, remainder {remainder})")
        }
        Bound::Range { from, to } => format!("FOR VALUES FROM {} TO {}", edges(from), edges(to)),
        Bound::Default => "DEFAULT".to_owned(),
    }
}

/// Returns the text of one bound of a range partition.
pub fn edges(edges: &[Edge]) -> String {
    let shown: Vec<String> = edges.iter().map(edge).collect();
    format!("({})", shown.join(", "))
}

fn edge(edge: &Edge) -> String {
    let value = match edge {
        Edge::Least => return "MINVALUE".to_owned(),
        Edge::Greatest => return "MAXVALUE".to_owned(),
        Edge::At(value) => value,
    };
    let mut text = Vec::new();
    crate::text::write_text(value.as_datum(), &mut text);
    let text = String::from_utf8_lossy(&text);
    match value {
        Value::Bool(b) => b.to_string(),
        Value::Int4(n) if *n >= 0 => text.into_owned(),
        Value::Numeric(_) if text.contains('.') && !text.starts_with('-') => text.into_owned(),
        _ => literal(&text),
    }
}

/// Returns the result of `pg_get_partkeydef`.
pub fn partition_key(table: &TableDef) -> Option<String> {
    let partitions = table.partitions.as_ref()?;
    let method = match partitions.method {
        PartitionMethod::Hash => "HASH",
        PartitionMethod::Range => "RANGE",
    };
    Some(format!("{method} ({})", columns(table, &partitions.columns)))
}
