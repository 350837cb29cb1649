//! Runs statements that delete many rows. The rows of one leaf are deleted together. At the end, the index
//! entries are deleted in key order.
//!
//! Invariants
//! 1. For each row in the range, the workload decides once whether to delete it.

use varve_engine::{Change, Outcome, Table};

use super::session::{Session, key};
use super::{Done, SESSIONS, Worker, text};
use crate::model::Effect;
use crate::search::WRONG;

/// The most keys that are checked for deletion.
const SWEPT_MAX: i64 = 24;

impl Worker<'_> {
    /// Deletes the session's rows from `from` on, but leaves every fifth one.
    pub(super) fn sweep(&mut self, session: &mut Session, table: &Table, from: i64) -> Done {
        let name = table.def().name.clone();
        let ids = (0..SWEPT_MAX).map(|n| from + n * SESSIONS as i64);
        let ids: Vec<_> = ids.filter(|id| session.expected(&self.committed, &name, *id).is_some()).collect();
        session.txn.begin_deletes(table);
        let swept = sweep_rows(session, table, &ids);
        session.txn.end_deletes(table).map_err(text)?;
        swept?;
        let gone = ids.iter().filter(|id| is_swept(**id));
        session.effects.extend(gone.map(|id| Effect::Remove(name.clone(), *id)));
        Ok(())
    }
}

const fn is_swept(id: i64) -> bool {
    id % 5 != 0
}

fn sweep_rows(session: &mut Session, table: &Table, ids: &[i64]) -> Done {
    let keys: Vec<_> = ids.iter().map(|id| key(table.def(), *id)).collect();
    let mut n = 0;
    while n < keys.len() {
        let (mut looked_at, mut rest) = (n, keys[n..].iter().map(Vec::as_slice));
        let run = session.txn.delete_run(table, &mut rest, &mut |_| {
            looked_at += 1;
            Some(is_swept(ids[looked_at - 1]))
        });
        let run = run.map_err(text)?;
        let wanted = ids[n..n + run.passed].iter().filter(|id| is_swept(**id)).count();
        if run.deleted != wanted {
            return Err(format!("{WRONG}: {run:?} of rows that were to be deleted, {wanted} of them"));
        }
        n += run.passed;
        if n < keys.len() {
            sweep_row(session, table, ids[n], &keys[n])?;
            n += 1;
        }
    }
    Ok(())
}

fn sweep_row(session: &mut Session, table: &Table, id: i64, key: &[u8]) -> Done {
    let change = || if is_swept(id) { Change::Delete } else { Change::Skip };
    let outcome = session.txn.modify(table, key, &mut |_| Ok(change())).map_err(text)?;
    let expected = if is_swept(id) { Outcome::Changed } else { Outcome::Skipped };
    if outcome == expected {
        return Ok(());
    }
    Err(format!("{WRONG}: row {id} of {} is {outcome:?}", table.def().name))
}
