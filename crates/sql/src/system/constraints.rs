//! All constraints of a database, from the different places where the catalog stores them.
//!
//! This module does not know the text of a constraint (`definitions`).

use std::sync::Arc;

use varve_engine::{Action, Catalog, Check, ForeignKey, TableDef, TableId};

use super::ids;

/// A constraint.
pub struct Constraint<'c> {
    /// Its OID.
    pub oid: u32,
    /// Its name.
    pub name: &'c str,
    /// Its table.
    pub table: &'c Arc<TableDef>,
    /// Ordinals of its columns.
    pub columns: &'c [usize],
    /// The rule of the constraint.
    pub what: Demand<'c>,
}

impl Constraint<'_> {
    /// Returns whether existing rows need not fulfil the constraint (NOT VALID).
    pub fn is_not_valid(&self) -> bool {
        self.table.not_valid.iter().any(|id| id.0 == self.oid)
    }
}

/// The rule of a constraint.
#[derive(Clone, Copy)]
pub enum Demand<'c> {
    /// PRIMARY KEY, which this index implements.
    Key(u32),
    /// UNIQUE, which this index implements.
    Unique(u32),
    /// CHECK
    Check(&'c Check),
    /// FOREIGN KEY
    Foreign(&'c ForeignKey),
}

/// Returns all constraints, table by table in the order of their OIDs.
pub fn all(catalog: &Catalog) -> Vec<Constraint<'_>> {
    let mut tables: Vec<_> = catalog.tables().collect();
    tables.sort_by_key(|t| t.id);
    tables.into_iter().flat_map(of_table).collect()
}

/// Returns the constraint with this OID.
pub fn constraint(catalog: &Catalog, oid: u32) -> Option<Constraint<'_>> {
    all(catalog).into_iter().find(|c| c.oid == oid)
}

fn of_table(table: &Arc<TableDef>) -> Vec<Constraint<'_>> {
    let mut out = Vec::new();
    if let Some(key) = &table.primary_key {
        let index = ids::key_index(table.id);
        let oid = ids::constraint_of_index(index);
        out.push(Constraint { oid, name: &key.name, table, columns: &key.columns, what: Demand::Key(index) });
    }
    for index in table.indexes.iter().filter(|i| i.constraint) {
        let oid = ids::constraint_of_index(index.id.0);
        let what = Demand::Unique(index.id.0);
        out.push(Constraint { oid, name: &index.name, table, columns: &index.columns, what });
    }
    for check in &table.checks {
        let what = Demand::Check(check);
        out.push(Constraint { oid: check.id.0, name: &check.name, table, columns: &check.columns, what });
    }
    for key in &table.foreign_keys {
        let what = Demand::Foreign(key);
        out.push(Constraint { oid: key.id.0, name: &key.name, table, columns: &key.columns, what });
    }
    out
}

/// Returns the index of the referenced table that a foreign key uses: the index of the primary key, or a
/// unique index on the same columns.
pub fn parent_index(catalog: &Catalog, key: &ForeignKey) -> u32 {
    let Some(parent) = catalog.table_by_id(key.parent) else { return 0 };
    let sorted = |columns: &[usize]| {
        let mut columns = columns.to_vec();
        columns.sort_unstable();
        columns
    };
    let wanted = sorted(&key.parent_columns);
    if sorted(parent.key_columns()) == wanted {
        return ids::key_index(TableId(parent.id.0));
    }
    let index = parent.plain_indexes().find(|i| i.unique && sorted(&i.columns) == wanted);
    index.map_or(0, |i| i.id.0)
}

/// Returns the words for an action in a definition. They are empty for the default action.
pub fn action_words(action: Action) -> &'static str {
    match action {
        Action::NoAction => "",
        Action::Restrict => "RESTRICT",
        Action::Cascade => "CASCADE",
        Action::SetNull => "SET NULL",
        Action::SetDefault => "SET DEFAULT",
    }
}

/// Returns the name of an action in information_schema.
pub fn rule(action: Action) -> &'static str {
    match action_words(action) {
        "" => "NO ACTION",
        words => words,
    }
}

/// Returns the kind of a constraint in information_schema.
pub fn kind_words(what: Demand<'_>) -> &'static str {
    match what {
        Demand::Key(_) => "PRIMARY KEY",
        Demand::Unique(_) => "UNIQUE",
        Demand::Check(_) => "CHECK",
        Demand::Foreign(_) => "FOREIGN KEY",
    }
}

/// Returns the constraint that a foreign key refers to.
pub fn referred<'c>(catalog: &'c Catalog, key: &ForeignKey) -> Option<Constraint<'c>> {
    constraint(catalog, ids::constraint_of_index(parent_index(catalog, key)))
}
