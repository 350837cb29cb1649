//! After a panic in the storage engine no statement succeeds, because it could read wrong data.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::support::{Recorder, database, session};

#[test]
fn no_statement_succeeds_behind_a_panic_in_the_storage_engine() {
    let db = database();
    let (mut one, mut other) = (session(&db), session(&db));
    let mut recorder = Recorder::default();
    recorder.simple(&mut one, "create table t (a int primary key); insert into t values (1)");
    recorder.simple(&mut one, "begin");
    let panics = catch_unwind(AssertUnwindSafe(|| {
        let _watch = db.engine().pager().stop_on_panic();
        panic!("in the middle of a step");
    }));
    assert!(panics.is_err());
    for session in [&mut one, &mut other] {
        for sql in ["select a from t", "insert into t values (2)", "select 1"] {
            recorder.lines.clear();
            recorder.simple(session, sql);
            let last = recorder.lines.last().unwrap();
            assert!(
                last.starts_with("! 58030") || last.starts_with("! 25P02"),
                "{sql}: {:?}",
                recorder.lines
            );
        }
    }
    recorder.lines.clear();
    recorder.extended(&mut other, "select a from t", &[]);
    assert!(recorder.lines.last().unwrap().starts_with("! 58030"), "{:?}", recorder.lines);
}
