//! Crashes at many moments while transactions change tables of the memory-oriented engines. A crash hits the
//! files of the database and the region of persistent memory at the same moment. After each crash, every
//! transaction must be there completely or not at all.

use varve_device::{Fate, RecordLog, Recorder, Timeline};

use super::*;

/// The number of moments at which the power fails. They are spread over all changes.
const CUTS: u64 = 60;

/// Opens what a crash leaves at many moments of `log`, and calls `judge` with the last mark before the
/// moment.
fn at_every_cut(log: &RecordLog, judge: impl Fn(&Arc<Database>, u64, &str)) {
    let mut timeline = Timeline::new(log.recording());
    let end = timeline.end();
    for cut in (1..=CUTS).map(|part| end * part / CUTS) {
        timeline.advance(cut);
        let mark = timeline.marks().last().copied().unwrap_or(0);
        let pending = timeline.pending().len() as u64;
        for style in 0..3 {
            let fate = |n: u64| match style {
                0 => Fate::Absent,
                1 => Fate::Present,
                _ if n.is_multiple_of(2) => Fate::Torn { unit_bytes: 8, seed: cut + n },
                _ => Fate::Absent,
            };
            let fates: Vec<Fate> = (0..pending).map(fate).collect();
            let image: Arc<dyn Directory> = timeline.image(&fates).remove(0);
            let what = format!("cut {cut} of {end}, style {style}, behind mark {mark}");
            let database = open_in(&image, 1).unwrap_or_else(|error| panic!("{what}: {error}"));
            judge(&database, mark, &what);
            is_sound(&database);
        }
    }
}

/// Returns the rows of the table `t`, or `None` if there is no table.
fn rows(database: &Arc<Database>) -> Option<Vec<(i32, i32)>> {
    let def = database.begin(RC).catalog().table("public", "t")?;
    Some(all(database, &def))
}

fn crash(engine: &str) {
    let inner = MemoryDirectory::new();
    let plain: Arc<dyn Directory> = inner.clone();
    drop(open_in(&plain, 1).unwrap());
    let log = RecordLog::new();
    let recorded: Arc<dyn Directory> = Recorder::wrap(inner, log.clone());
    let database = open_in(&recorded, 1).unwrap();
    let mut states: Vec<Option<Vec<(i32, i32)>>> = vec![None];
    let mut mark = |database: &Arc<Database>| {
        states.push(rows(database));
        log.mark(states.len() as u64 - 1);
    };
    // CREATE TABLE AS
    let mut txn = begin(&database, RC);
    let def = make_in(&mut txn, "t", engine, true).unwrap();
    (0..20).for_each(|id| put(&mut txn, &def, id, id).unwrap());
    txn.commit().unwrap();
    mark(&database);
    for round in 1..4 {
        let mut txn = begin(&database, RC);
        let def = find(&database, "t");
        put(&mut txn, &def, 100 + round, round).unwrap();
        update(&mut txn, &def, 1, |v| v + 100).unwrap();
        rekey(&mut txn, &def, round + 1, 200 + round).unwrap();
        delete(&mut txn, &def, 10 + round).unwrap();
        txn.commit().unwrap();
        mark(&database);
        let mut txn = begin(&database, RC);
        put(&mut txn, &def, 999, 0).unwrap();
        txn.rollback().unwrap();
    }
    index_on_v(&database, &find(&database, "t"), "t_v", false);
    mark(&database);
    let mut txn = begin(&database, RC);
    txn.truncate(def.id).unwrap();
    txn.commit().unwrap();
    mark(&database);
    let mut txn = begin(&database, RC);
    txn.drop_table(def.id).unwrap();
    txn.commit().unwrap();
    mark(&database);
    drop((def, database));
    at_every_cut(&log, |database, mark, what| {
        let found = rows(database);
        let allowed = [Some(&states[mark as usize]), states.get(mark as usize + 1)];
        assert!(allowed.contains(&Some(&found)), "{engine}: {what}: {found:?} is none of {allowed:?}");
    });
}

#[test]
fn every_crash_leaves_whole_transactions() {
    ENGINES.into_iter().for_each(crash);
}
