//! The system table `pg_constraint`.
//!
//! This module does not know where a constraint is stored (`constraints`) or how it is printed
//! (`definitions`).

use varve_engine::{Action, ColumnType, Datum, Value};

use super::constraints::{Demand, all, parent_index};
use super::{Fill, Rows, SystemContext, attnum, char1, list, oid, relations, text};

/// Returns the code for the tables of this file.
pub fn fill(name: &str) -> Option<Fill> {
    match name {
        "pg_constraint" => Some(pg_constraint),
        _ => None,
    }
}

fn action(action: Action) -> char {
    match action {
        Action::NoAction => 'a',
        Action::Restrict => 'r',
        Action::Cascade => 'c',
        Action::SetNull => 'n',
        Action::SetDefault => 'd',
    }
}

fn numbers(columns: &[usize]) -> Value {
    list(ColumnType::Int2, columns.iter().map(|c| Datum::Int2(attnum(*c))))
}

fn pg_constraint(world: &SystemContext, rows: &mut Rows<'_>) {
    let catalog = &*world.catalog;
    for c in all(catalog) {
        let mut row = vec![
            ("oid", oid(c.oid)),
            ("conname", text(c.name)),
            ("connamespace", oid(relations::namespace(catalog, &c.table.schema))),
            ("convalidated", Value::Bool(!c.is_not_valid())),
            ("conrelid", oid(c.table.id.0)),
            ("conislocal", Value::Bool(true)),
            ("connoinherit", Value::Bool(!matches!(c.what, Demand::Check(_)))),
            ("confupdtype", text(" ")),
            ("confdeltype", text(" ")),
            ("confmatchtype", text(" ")),
            ("conkey", numbers(c.columns)),
        ];
        match c.what {
            Demand::Key(index) => row.extend([("contype", char1('p')), ("conindid", oid(index))]),
            Demand::Unique(index) => row.extend([("contype", char1('u')), ("conindid", oid(index))]),
            Demand::Check(check) => row.extend([
                ("contype", char1('c')),
                ("conbin", text(world.printing(false).check(c.table, check))),
            ]),
            Demand::Foreign(key) => row.extend([
                ("contype", char1('f')),
                ("condeferrable", Value::Bool(key.deferrable)),
                ("condeferred", Value::Bool(key.initially_deferred)),
                ("conindid", oid(parent_index(catalog, key))),
                ("confrelid", oid(key.parent.0)),
                ("confupdtype", char1(action(key.on_update))),
                ("confdeltype", char1(action(key.on_delete))),
                ("confmatchtype", char1(if key.match_full { 'f' } else { 's' })),
                ("confkey", numbers(&key.parent_columns)),
            ]),
        }
        rows.add(row);
    }
}
