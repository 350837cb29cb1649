//! A transaction deletes a row and inserts it again. A rollback of both restores the complete row.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::database::*;

#[test]
fn deleted_put_again_and_rolled_back() {
    let (_, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 10)]);
    let mut txn = begin(&database, RC);
    delete(&mut txn, &def, 1).unwrap();
    let savepoint = txn.savepoint();
    put(&mut txn, &def, 1, 20).unwrap();
    txn.rollback_to(savepoint).unwrap();
    assert_eq!(see(&mut txn, &def, 1), None);
    txn.rollback().unwrap();
    assert_eq!(all(&database, &def), [(1, 10)]);
    is_sound(&database);
}
