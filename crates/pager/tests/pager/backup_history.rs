//! An incremental backup is made only if the database has all changes of the earlier backup. Copies of the files
//! of one database have the same id, so the history of starts decides.

use std::io::Read;
use std::sync::Arc;

use crate::common::{NoOps, add, config, get, open, set};
use varve_device::{Directory, Fate, MemoryDirectory, RecordLog, Recorder, Timeline};
use varve_pager::{
    BackupBase, BackupOptions, BackupSource, PageId, Pager, PagerConfig, PagerError, SpaceId, restore,
    verify_backup,
};

const PAGES: u64 = 200;

fn copy_of(directory: &MemoryDirectory) -> Arc<MemoryDirectory> {
    MemoryDirectory::from_images(directory.images())
}

fn open_in(directory: &Arc<MemoryDirectory>) -> Pager {
    open(&config(directory, 64))
}

/// Makes a database with pages, and leaves it open.
fn made(directory: &Arc<MemoryDirectory>) -> (Pager, Vec<PageId>) {
    let pager = open_in(directory);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids = (0..PAGES).map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.flush_log(pager.log().end()).unwrap();
    (pager, ids)
}

/// Writes `number` to the pages, again and again, until the log ends after `beyond`.
fn work(pager: &Pager, ids: &[PageId], number: u64, beyond: u64) {
    loop {
        ids.iter().for_each(|id| set(pager, *id, number).unwrap());
        pager.flush_log(pager.log().end()).unwrap();
        if pager.log().end().get() > beyond {
            return;
        }
    }
}

fn backup(pager: &Pager, base: Option<BackupBase>) -> Result<(Vec<u8>, BackupBase), PagerError> {
    let mut backup = pager.backup(BackupOptions { base, ..BackupOptions::default() })?;
    let mut bytes = Vec::new();
    while backup.next(&mut bytes)? {}
    let base = verify_backup(&mut &bytes[..])?.as_base();
    Ok((bytes, base))
}

#[track_caller]
fn refused(pager: &Pager, base: BackupBase, why: &str) {
    let error = backup(pager, Some(base)).map(drop).unwrap_err();
    assert!(matches!(error, PagerError::Backup { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains(why) && said.contains("Take a full backup"), "{said}");
}

#[test]
fn a_copy_of_a_stopped_database_does_not_use_later_backups_of_the_original() {
    let directory = MemoryDirectory::new();
    let (pager, ids) = made(&directory);
    pager.shutdown().unwrap();
    let copy = copy_of(&directory);
    let original = open_in(&directory);
    work(&original, &ids, 1, 0);
    let (_, base) = backup(&original, None).unwrap();
    let restarted = open_in(&copy);
    assert_eq!(restarted.database_id(), original.database_id());
    work(&restarted, &ids, 2, base.state.end.get());
    refused(&restarted, base, "does not have the start in which it was made");
    // A full backup works, and a later one can use it.
    let (_, full) = backup(&restarted, None).unwrap();
    backup(&restarted, Some(full)).unwrap();
    refused(&original, full, "does not have the start in which it was made");
}

#[test]
fn a_snapshot_of_a_running_database_does_not_use_later_backups_of_the_original() {
    let directory = MemoryDirectory::new();
    let (original, ids) = made(&directory);
    let early = copy_of(&directory);
    let (_, before) = backup(&original, None).unwrap();
    work(&original, &ids, 1, 0);
    let snapshot = copy_of(&directory);
    work(&original, &ids, 2, 0);
    let (_, base) = backup(&original, None).unwrap();
    for (files, why) in
        [(early, "continued from an older state"), (snapshot, "continued from an older state")]
    {
        let restarted = open_in(&files);
        work(&restarted, &ids, 3, base.state.end.get());
        refused(&restarted, base, why);
        drop(restarted);
        refused(&open_in(&files), base, why);
    }
    // The original has both backups in its past, also after a crash and a shutdown.
    drop(original);
    let original = open_in(&directory);
    backup(&original, Some(before)).unwrap();
    original.shutdown().unwrap();
    backup(&open_in(&directory), Some(base)).unwrap();
}

struct Stored(Vec<u8>);

impl BackupSource for Stored {
    fn name(&self) -> String {
        "the backup".into()
    }

    fn open(&self) -> std::io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(&self.0[..]))
    }
}

#[test]
fn a_copy_that_has_the_earlier_backup_in_its_past_uses_it() {
    let directory = MemoryDirectory::new();
    let (original, ids) = made(&directory);
    let (full, base) = backup(&original, None).unwrap();
    work(&original, &ids[..20], 1, 0);
    let copy = copy_of(&directory);
    work(&original, &ids, 2, 0);
    let restarted = open_in(&copy);
    work(&restarted, &ids[10..30], 3, 0);
    let (newer, _) = backup(&restarted, Some(base)).unwrap();
    assert!(newer.len() < full.len() / 2, "only what has changed");
    let target = config(&MemoryDirectory::new(), 64);
    let chain = [Stored(newer), Stored(full)];
    let chain: Vec<&dyn BackupSource> = chain.iter().map(|one| one as &dyn BackupSource).collect();
    restore(target.clone(), Arc::new(NoOps), &chain, &str::to_owned).unwrap();
    let restored = open(&target);
    for (number, id) in (0..).zip(&ids) {
        let expected = if number < 10 {
            1
        } else if number < 30 {
            3
        } else {
            number
        };
        assert_eq!(get(&restored, *id).unwrap(), expected, "page {number}");
    }
}

#[test]
fn a_lost_history_begins_anew_with_a_warning_and_without_earlier_backups() {
    let directory = MemoryDirectory::new();
    let (pager, ids) = made(&directory);
    let (_, base) = backup(&pager, None).unwrap();
    pager.shutdown().unwrap();
    let files = directory.images().into_iter().filter(|(name, _)| name != "starts.varve");
    let lost = MemoryDirectory::from_images(files);
    let pager = open_in(&lost);
    assert!(
        pager.warnings().iter().any(|what| what.contains("take a full backup")),
        "{:?}",
        pager.warnings()
    );
    work(&pager, &ids, 1, 0);
    refused(&pager, base, "does not have the start in which it was made");
    let (_, base) = backup(&pager, None).unwrap();
    drop(pager);
    let pager = open_in(&lost);
    assert!(pager.warnings().is_empty(), "{:?}", pager.warnings());
    backup(&pager, Some(base)).unwrap();
}

fn config_in(directory: Arc<dyn Directory>) -> PagerConfig {
    let mut config = config(&MemoryDirectory::new(), 64);
    config.data = directory.clone();
    config.log = directory.clone();
    config.rollback = directory.clone();
    config.temporary = directory.clone();
    config.control = directory;
    config
}

/// A crash at any moment of a start, also between the writes of the history and the control file, loses
/// nothing of the history.
#[test]
fn a_start_that_crashes_keeps_the_history() {
    let directory = MemoryDirectory::new();
    let (pager, ids) = made(&directory);
    let (_, base) = backup(&pager, None).unwrap();
    drop(pager);
    // Two starts, so that each slot is written once.
    let log = RecordLog::new();
    let recorded = config_in(Recorder::wrap(directory, log.clone()));
    for _ in 0..2 {
        drop(open(&recorded));
    }
    let mut timeline = Timeline::new(log.recording());
    for cut in 0..=timeline.end() {
        timeline.advance(cut);
        let pending = timeline.pending().len();
        for style in 0..3 {
            let fate = |at: usize| match style {
                0 => Fate::Absent,
                1 => Fate::Present,
                _ => Fate::Torn { unit_bytes: 512, seed: cut * 31 + at as u64 + 1 },
            };
            let fates: Vec<Fate> = (0..pending).map(fate).collect();
            let image = timeline.image(&fates).remove(0);
            let pager = open_in(&image);
            assert!(pager.warnings().is_empty(), "cut {cut}, style {style}: {:?}", pager.warnings());
            backup(&pager, Some(base)).unwrap();
            assert_eq!(get(&pager, ids[3]).unwrap(), 3);
        }
    }
}
