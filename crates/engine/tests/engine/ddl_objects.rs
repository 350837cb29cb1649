//! Constraints, partitions, views, roles and facts about objects are created and dropped with their
//! transaction, and are durable.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::thread;

use crate::database::*;
use varve_engine::{
    Action, BOOTSTRAP_NAME, BOOTSTRAP_ROLE, Bound, Check, ColumnType, Database, Error, ForeignKey, Grant,
    Named, NewTable, NewView, ObjectId, Part, PartitionMethod, Rights, RoleDef, TableDef, Use, ViewColumn,
};

fn check(name: &str) -> Check {
    Check { id: ObjectId(0), name: name.into(), text: "v > 0".into(), columns: vec![1] }
}

fn reference(parent: &TableDef, name: &str) -> ForeignKey {
    ForeignKey {
        id: ObjectId(0),
        name: name.into(),
        columns: vec![1],
        parent: parent.id,
        parent_columns: vec![0],
        on_delete: Action::Cascade,
        on_update: Action::NoAction,
        deferrable: true,
        initially_deferred: true,
        match_full: false,
    }
}

fn view(name: &str, of: &TableDef) -> NewView {
    NewView {
        schema: "public".into(),
        name: name.into(),
        columns: vec![ViewColumn { name: "id".into(), type_id: 23, modifier: -1 }],
        text: "SELECT t.id FROM t".into(),
        uses: vec![Use { object: of.id.into(), columns: vec![0] }],
        security_invoker: None,
    }
}

/// Returns the database after a start from what is on its device.
fn restarted(database: Arc<Database>, directory: Arc<varve_device::MemoryDirectory>) -> Arc<Database> {
    drop(database);
    open(&directory)
}

fn current(database: &Arc<Database>, name: &str) -> Arc<TableDef> {
    database.begin(RC).catalog().table("public", name).unwrap()
}

#[test]
fn constraints_are_kept_and_go_one_by_one() {
    let (directory, database) = fresh();
    let (parent, child) = (create(&database, "p"), create(&database, "c"));
    let mut txn = begin(&database, RC);
    txn.add_check(child.id, check("c_v_check")).unwrap();
    let def = txn.add_foreign_key(child.id, reference(&parent, "c_v_fkey")).unwrap();
    assert_eq!(state(txn.add_check(child.id, check("c_v_fkey"))), "42710");
    txn.commit().unwrap();
    let database = restarted(database, directory);
    let child = current(&database, "c");
    assert_eq!((&child.checks, &child.foreign_keys), (&def.checks, &def.foreign_keys));
    let catalog = database.begin(RC).catalog();
    let children: Vec<_> = catalog.children(parent.id).map(|(t, key)| (t.id, key.id)).collect();
    assert_eq!(children, [(child.id, child.foreign_keys[0].id)]);
    let mut txn = begin(&database, RC);
    assert_eq!(state(txn.drop_table(parent.id)), "2BP01");
    txn.drop_constraint(child.id, child.checks[0].id).unwrap();
    let left = txn.drop_constraint(child.id, child.foreign_keys[0].id).unwrap();
    assert!(left.checks.is_empty() && left.foreign_keys.is_empty());
    txn.drop_table(parent.id).unwrap();
    txn.commit().unwrap();
    is_sound(&database);
}

/// A DELETE from a table must know which tables refer to it. So its plans are made again when a reference is
/// added.
#[test]
fn a_new_reference_makes_plans_for_the_parent_stale() {
    let (_directory, database) = fresh();
    let (parent, child) = (create(&database, "p"), create(&database, "c"));
    let mut txn = begin(&database, RC);
    txn.add_foreign_key(child.id, reference(&parent, "c_v_fkey")).unwrap();
    txn.commit().unwrap();
    let stale = begin(&database, RC).table(&parent);
    assert!(matches!(stale, Err(Error::StaleDefinition { .. })), "{stale:?}");
    let parent = current(&database, "p");
    let mut txn = begin(&database, RC);
    txn.drop_table(child.id).unwrap();
    txn.commit().unwrap();
    let stale = begin(&database, RC).table(&parent);
    assert!(matches!(stale, Err(Error::StaleDefinition { .. })), "{stale:?}");
    is_sound(&database);
}

#[test]
fn parts_are_names_of_their_own() {
    let (directory, database) = fresh();
    let mut txn = begin(&database, RC);
    let columns = vec![column("aid", ColumnType::Int4)];
    let new = NewTable {
        partition_by: Some((PartitionMethod::Hash, vec![0])),
        is_unlogged: true,
        ..NewTable::new("public", "accounts", columns)
    };
    let table = txn.create_table(new).unwrap();
    let part = |remainder: u32| Part {
        id: ObjectId(0),
        schema: "public".into(),
        name: format!("accounts_{}", remainder + 1),
        bound: Bound::Hash { modulus: 2, remainder },
    };
    txn.add_part(table.id, part(0)).unwrap();
    txn.add_part(table.id, part(1)).unwrap();
    assert_eq!(state(txn.add_part(table.id, part(1))), "42P07");
    txn.commit().unwrap();
    let database = restarted(database, directory);
    let catalog = database.begin(RC).catalog();
    let (owner, second) = catalog.part("public", "accounts_2").unwrap();
    assert_eq!((owner.id, &second.bound), (table.id, &Bound::Hash { modulus: 2, remainder: 1 }));
    assert_eq!(catalog.resolve("public", "accounts_2"), Some(Named::Part(table.id, second.id)));
    assert!(owner.is_unlogged && catalog.table("public", "accounts_2").is_none());
    let mut txn = begin(&database, RC);
    txn.drop_part(table.id, second.id).unwrap();
    assert_eq!(state(txn.add_part(create(&database, "t").id, part(1))), "42P16");
    txn.commit().unwrap();
    let mut txn = begin(&database, RC);
    create_in(&mut txn, "accounts_2", true).unwrap();
    txn.drop_table(table.id).unwrap();
    create_in(&mut txn, "accounts_1", true).unwrap();
    txn.commit().unwrap();
    is_sound(&database);
}

#[test]
fn views_are_replaced_renamed_and_dropped() {
    let (directory, database) = fresh();
    let table = create(&database, "t");
    let mut txn = begin(&database, RC);
    let made = txn.create_view(view("v", &table)).unwrap();
    assert_eq!(state(txn.create_view(view("t", &table))), "42P07");
    let mut other = view("w", &table);
    other.text = "SELECT t.v AS id FROM t".into();
    txn.replace_view(made.id, other).unwrap();
    txn.create_view(view("v", &table)).unwrap();
    txn.commit().unwrap();
    let database = restarted(database, directory);
    let catalog = database.begin(RC).catalog();
    assert_eq!(catalog.view("public", "w").unwrap().text, "SELECT t.v AS id FROM t");
    assert_eq!(catalog.view("public", "v").unwrap().columns, made.columns);
    let mut txn = begin(&database, RC);
    txn.drop_view(made.id).unwrap();
    assert!(txn.catalog().view("public", "w").is_none());
    txn.rollback().unwrap();
    assert!(database.begin(RC).catalog().view("public", "w").is_some());
    is_sound(&database);
}

#[test]
fn roles_have_names_of_their_own() {
    let (directory, database) = fresh();
    let mut txn = begin(&database, RC);
    assert_eq!(txn.catalog().role(BOOTSTRAP_NAME).unwrap().id, BOOTSTRAP_ROLE);
    let id = txn.create_role(RoleDef { may_log_in: true, ..RoleDef::new("public") }).unwrap();
    assert_eq!(state(txn.create_role(RoleDef::new("public"))), "42710");
    txn.alter_role(id, |role| role.name = "other".into()).unwrap();
    txn.commit().unwrap();
    let database = restarted(database, directory);
    let catalog = database.begin(RC).catalog();
    assert_eq!(catalog.role("other").unwrap().id, id);
    assert!(catalog.role("public").is_none() && catalog.role_by_id(id).unwrap().may_log_in);
    let mut txn = begin(&database, RC);
    txn.drop_role(id).unwrap();
    txn.commit().unwrap();
    assert!(database.begin(RC).catalog().role("other").is_none());
    is_sound(&database);
}

#[test]
fn owners_grants_and_comments_go_with_their_object() {
    let (directory, database) = fresh();
    let table = create(&database, "t");
    let grant = Grant {
        grantee: None,
        grantor: BOOTSTRAP_ROLE,
        rights: Rights::SELECT,
        grantable: Rights::default(),
    };
    let mut txn = begin(&database, RC);
    assert_eq!(txn.catalog().owner(table.id), BOOTSTRAP_ROLE);
    txn.set_about(table.id, |about| about.owner = ObjectId(77)).unwrap();
    txn.set_about(table.id, |about| {
        about.grants = Some(vec![grant]);
        about.set_comment(Some(1), Some("a column".into()));
    })
    .unwrap();
    txn.commit().unwrap();
    let database = restarted(database, directory);
    let catalog = database.begin(RC).catalog();
    let about = catalog.about(table.id).unwrap();
    assert_eq!((about.owner, about.comment(Some(1))), (ObjectId(77), Some("a column")));
    assert_eq!(about.grants.as_deref(), Some(&[grant][..]));
    let mut txn = begin(&database, RC);
    txn.drop_table(table.id).unwrap();
    txn.commit().unwrap();
    assert!(database.begin(RC).catalog().about(table.id).is_none());
    is_sound(&database);
}

/// Two transactions change the grants of a table at the same time. The second one waits for the first. Then
/// it fails with `StaleDefinition`, so that it reads the grants again and does not overwrite the first
/// change.
#[test]
fn a_change_under_way_is_not_overwritten() {
    for seen_before in [false, true] {
        let (_directory, database) = fresh();
        let table = create(&database, "t");
        if seen_before {
            let mut txn = begin(&database, RC);
            txn.set_about(table.id, |about| about.owner = ObjectId(1)).unwrap();
            txn.commit().unwrap();
        }
        let mut first = begin(&database, RC);
        first.set_about(table.id, |about| about.owner = ObjectId(2)).unwrap();
        let waits = database.stats().lock_waits;
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                let mut txn = begin(&database, RC);
                txn.set_about(table.id, |about| about.set_comment(None, Some("late".into())))
            });
            until_one_waits(&database, waits);
            first.commit().unwrap();
            assert!(matches!(second.join().unwrap(), Err(Error::StaleDefinition { .. })));
        });
        assert_eq!(database.begin(RC).catalog().owner(table.id), ObjectId(2));
        is_sound(&database);
    }
}
