//! One transaction changes tables of one partition, or tables in pages, but not both.

use varve_engine::{Error, Isolation};

use super::*;

fn refusal(outcome: Result<()>) -> (String, String) {
    match outcome {
        Err(Error::MixedStores { written, refused }) => (written, refused),
        other => panic!("{other:?}"),
    }
}

fn names(written: &str, refused: &str) -> (String, String) {
    (written.into(), refused.into())
}

#[test]
fn changes_of_pages_and_of_a_partition_are_refused_in_one_transaction() {
    for engine in ENGINES {
        let (_, database) = empty(1);
        let stored = make(&database, "stored", engine);
        let paged = create(&database, "paged");
        load(&database, &paged, [(1, 1)]);
        let mut txn = begin(&database, RC);
        put(&mut txn, &stored, 1, 10).unwrap();
        assert_eq!(refusal(put(&mut txn, &paged, 2, 2)), names("stored", "paged"));
        assert_eq!(see(&mut txn, &paged, 1), Some(1), "reading is not restricted");
        assert_eq!(refusal(update(&mut txn, &paged, 1, |v| v).map(|_| ())), names("stored", "paged"));
        assert_eq!(refusal(make_in(&mut txn, "more", engine, true).map(|_| ())), names("stored", ""));
        txn.commit().unwrap();
        let mut txn = begin(&database, RC);
        put(&mut txn, &paged, 2, 2).unwrap();
        let error = put(&mut txn, &stored, 2, 20).unwrap_err();
        assert_eq!(error.sqlstate(), "0A000");
        assert_eq!(
            error.to_string(),
            "cannot change table \"stored\" in a transaction that has changed table \"paged\""
        );
        assert_eq!(see(&mut txn, &stored, 1), Some(10));
        txn.commit().unwrap();
        assert_eq!(all(&database, &stored), [(1, 10)]);
        assert_eq!(all(&database, &paged), [(1, 1), (2, 2)]);
        is_sound(&database);
    }
}

#[test]
fn a_statement_that_was_taken_back_has_changed_nothing() {
    let (_, database) = empty(2);
    let stored = make(&database, "stored", "nvm_inplace");
    let paged = create(&database, "paged");
    let mut txn = begin(&database, RC);
    put(&mut txn, &paged, 1, 1).unwrap();
    txn.rollback_statement().unwrap();
    txn.start_statement();
    put(&mut txn, &stored, 1, 10).unwrap();
    assert_eq!(refusal(put(&mut txn, &paged, 2, 2)), names("stored", "paged"));
    txn.rollback_statement().unwrap();
    txn.start_statement();
    put(&mut txn, &paged, 3, 3).unwrap();
    txn.commit().unwrap();
    assert_eq!((all(&database, &stored), all(&database, &paged)), (vec![], vec![(3, 3)]));
    is_sound(&database);
}

/// SERIALIZABLE: a transaction that reads pages and uses a table in a partition is checked at its commit.
#[test]
fn what_was_read_in_pages_is_checked_before_a_store_commits() {
    let serializable = |database: &Arc<Database>| begin(database, Isolation::Serializable);
    for engine in ENGINES {
        let (_, database) = empty(1);
        let stored = make(&database, "stored", engine);
        let paged = create(&database, "paged");
        load(&database, &paged, [(1, 1), (2, 2)]);
        let change_page = |id: i32| {
            let mut other = serializable(&database);
            update(&mut other, &paged, id, |v| v + 10).unwrap();
            other.commit().unwrap();
        };
        let mut writer = serializable(&database);
        assert_eq!(see(&mut writer, &paged, 1), Some(1));
        change_page(2);
        put(&mut writer, &stored, 1, 10).unwrap();
        writer.commit().expect("only another row was changed");
        let mut writer = serializable(&database);
        assert_eq!(see(&mut writer, &paged, 1), Some(1));
        change_page(1);
        put(&mut writer, &stored, 2, 20).unwrap();
        assert!(matches!(writer.commit(), Err(Error::ReadWriteConflict)), "{engine}");
        assert_eq!(all(&database, &stored), [(1, 10)], "{engine}");
        // A reader sees a row of the store that was written after the page that it has read had changed.
        let mut reader = serializable(&database);
        assert_eq!(see(&mut reader, &paged, 1), Some(11));
        change_page(1);
        let mut writer = serializable(&database);
        assert_eq!(see(&mut writer, &paged, 1), Some(21));
        put(&mut writer, &stored, 3, 21).unwrap();
        writer.commit().unwrap();
        assert_eq!(see(&mut reader, &stored, 3), Some(21));
        assert!(matches!(reader.commit(), Err(Error::ReadWriteConflict)), "{engine}");
        // Other levels are not checked.
        let mut writer = begin(&database, Isolation::RepeatableRead);
        assert_eq!(see(&mut writer, &paged, 1), Some(21));
        change_page(1);
        put(&mut writer, &stored, 4, 21).unwrap();
        writer.commit().unwrap();
    }
}

#[test]
fn two_partitions_are_refused_in_one_transaction() {
    let (_, database) = empty(2);
    let (a, b) = (make(&database, "a", "nvm_inplace"), make(&database, "b", "nvm_inplace"));
    let c = make(&database, "c", "inplace");
    let mut txn = begin(&database, RC);
    put(&mut txn, &a, 1, 1).unwrap();
    assert_eq!(refusal(put(&mut txn, &b, 1, 1)), names("a", "b"));
    assert_eq!(refusal(put(&mut txn, &c, 1, 1)), names("a", "c"));
    assert_eq!(see(&mut txn, &b, 1), None);
    txn.commit().unwrap();
}

#[test]
fn a_transaction_writes_to_tables_that_it_has_made() {
    for engine in ENGINES {
        let (directory, database) = empty(2);
        let paged = create(&database, "paged");
        let mut txn = begin(&database, Isolation::Serializable);
        let made = make_in(&mut txn, "made", engine, true).unwrap();
        put(&mut txn, &made, 1, 10).unwrap();
        put(&mut txn, &paged, 1, 1).unwrap();
        put(&mut txn, &made, 2, 20).unwrap();
        txn.commit().unwrap();
        drop((made, paged, database));
        let database = open_in(&directory, 2).unwrap();
        assert_eq!(all(&database, &find(&database, "made")), [(1, 10), (2, 20)], "{engine}");
        assert_eq!(all(&database, &find(&database, "paged")), [(1, 1)], "{engine}");
        is_sound(&database);
    }
}
