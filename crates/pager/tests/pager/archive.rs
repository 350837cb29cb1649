//! The log archive: any moment after a backup can be restored, gaps and other histories are refused, and a
//! failing archive does not stop the database.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use varve_device::{Directory, MemoryDirectory, plant, planted_hits};
use varve_pager::{
    ArchiveOptions, Archiver, BadLocation, HomeLayout, LocationFlaw, Locations, Lsn, NewTablespace,
    PackedConfig, PageId, Pager, PagerConfig, PagerError, ProtectionKind, RestoreReport, SpaceId, Until,
};

use crate::archive_support::{Archived, Known, Mark, Stored, check, now_us, options};
use crate::common::{KIND, Random, config, get, open};
use crate::nvm_support;

fn in_place() -> PagerConfig {
    config(&MemoryDirectory::new(), 64)
}

fn packed() -> PagerConfig {
    let packed = PackedConfig { extent_bytes: 64 << 10, held_pages_max: 16, ..PackedConfig::DEFAULT };
    PagerConfig { layout: HomeLayout::Packed(packed), ..in_place() }
}

fn with_nvm() -> PagerConfig {
    nvm_support::with(&MemoryDirectory::new(), nvm_support::NVM_ALL)
}

/// Works, with pauses in which the log is archived, checkpoints, and restarts. Returns moments.
fn busy(mut now: Archived, moments: usize) -> (Archived, Vec<Mark>) {
    let mut random = Random(5);
    let mut marks = Vec::new();
    while marks.len() < moments {
        now.work(1 + random.below(40));
        marks.push(now.mark());
        match random.below(10) {
            0 => now.pager.checkpoint_all().unwrap(),
            1 => now = now.restarted(true),
            2 => now = now.restarted(false),
            3..8 => now.archiver.archive().unwrap(),
            _ => {}
        }
    }
    now.work(1);
    now.archiver.archive().unwrap();
    (now, marks)
}

fn refused(restored: Result<RestoreReport, PagerError>, words: &[&str]) {
    let error = restored.unwrap_err();
    assert!(matches!(error, PagerError::Backup { .. }), "{error:?}");
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}: lacks one of {words:?}");
}

#[test]
fn each_moment_after_a_backup_is_restored_exactly() {
    for (from, config) in [("in place", in_place()), ("packed", packed()), ("nvm", with_nvm())] {
        let mut first = Archived::new(config, 3);
        first.work(300);
        let backup = first.backup();
        let (now, marks) = busy(first, 30);
        assert_eq!(now.store.names().len(), 1, "{from}: one timeline\n{}", now.notices());
        for (at, mark) in marks.iter().enumerate() {
            let known = now.at(mark.lsn);
            let (target, until) = match at % 2 {
                0 => (in_place(), Until::TimeUs(mark.time_us)),
                _ => (packed(), Until::Lsn(mark.lsn)),
            };
            let report = now.restore(&target, &backup, until).unwrap();
            assert!(report.end <= mark.lsn, "{from} {at}: {report:?} {mark:?}");
            check(&target, &known, &format!("{from}, moment {at}: {mark:?}"));
        }
        let target = in_place();
        now.restore(&target, &backup, Until::Latest).unwrap();
        check(&target, &now.at(Lsn::MAX), "latest");
    }
}

#[test]
fn moments_outside_the_archive_are_refused() {
    let mut now = Archived::new(in_place(), 4);
    now.work(100);
    let early = now.mark();
    let backup = now.backup();
    now.work(100);
    now.archiver.archive().unwrap();
    let late = now.mark();
    now.work(10);
    let later = now.mark();
    let target = in_place();
    let restore = |until| now.restore(&target, &backup, until);
    refused(restore(Until::Lsn(early.lsn)), &["before the end of the backup", "use an earlier backup"]);
    refused(restore(Until::TimeUs(early.time_us)), &["before the end of the backup", " UTC"]);
    refused(restore(Until::Lsn(later.lsn)), &["the archive ends at LSN", "latest"]);
    refused(restore(Until::TimeUs(later.time_us)), &["the archive ends at LSN", " UTC"]);
    refused(now.restore_on(&target, &backup, Until::Latest, Some(7)), &["no timeline that goes on"]);
    assert!(!target.control.exists("control").unwrap(), "nothing was made");
    let found = restore(Until::Lsn(late.lsn)).unwrap();
    assert!(found.end <= late.lsn);
    check(&target, &now.at(late.lsn), "the end of the archive");
}

#[test]
fn small_pieces_are_merged_and_a_merge_may_be_interrupted() {
    let mut now = Archived::new(in_place(), 6);
    now.work(50);
    let backup = now.backup();
    let mut most = 0;
    let mut before = None;
    for round in 0..150 {
        now.work(2);
        if round == 60 {
            before = Some(now.store.pieces.lock().clone());
        }
        now.archiver.archive().unwrap();
        most = most.max(now.store.count(now.store.names()[0]));
    }
    assert!(most <= 33, "{most} pieces");
    let known = now.at(Lsn::MAX);
    let target = in_place();
    now.restore(&target, &backup, Until::Latest).unwrap();
    check(&target, &known, "merged");
    // The pieces that a merge would have removed are still there.
    for (key, piece) in before.unwrap() {
        now.store.pieces.lock().entry(key).or_insert(piece);
    }
    let target = in_place();
    now.restore(&target, &backup, Until::Latest).unwrap();
    check(&target, &known, "after an interrupted merge");
}

#[test]
fn a_missing_or_damaged_piece_is_named() {
    let mut now = Archived::new(in_place(), 7);
    now.work(50);
    let backup = now.backup();
    for _ in 0..6 {
        now.work(20);
        now.archiver.archive().unwrap();
    }
    let all = now.store.pieces.lock().clone();
    let keys: Vec<(u64, u64, u64)> = all.keys().copied().collect();
    let target = in_place();
    now.store.pieces.lock().remove(&keys[3]);
    refused(
        now.restore(&target, &backup, Until::Latest),
        &["a piece is missing", &Lsn::new(keys[3].2).to_string(), &Lsn::new(keys[4].2).to_string()],
    );
    let mut random = Random(8);
    for _ in 0..50 {
        let mut damaged = all.clone();
        let piece = damaged.get_mut(&keys[3]).unwrap();
        let at = random.below(piece.len() as u64) as usize;
        piece[at] ^= 1 << random.below(8);
        *now.store.pieces.lock() = damaged;
        refused(
            now.restore(&target, &backup, Until::Latest),
            &["is damaged", &Lsn::new(keys[3].2).to_string()],
        );
    }
    assert!(!target.control.exists("control").unwrap(), "nothing was made");
}

#[test]
fn a_failing_archive_keeps_the_log_and_goes_on_later_even_after_a_restart() {
    for is_clean in [false, true] {
        let mut now = Archived::new(in_place(), 9);
        now.work(100);
        let backup = now.backup();
        now.archiver.archive().unwrap();
        now.store.fails.store(true, Ordering::Relaxed);
        let mut marks = Vec::new();
        for _ in 0..3 {
            now.work(60);
            now.pager.checkpoint_all().unwrap();
            now.archiver.archive().unwrap_err();
            marks.push(now.mark());
        }
        assert_eq!(now.notices().matches("it is gone").count(), 1, "one message for a change of state");
        let status = now.archiver.status();
        assert!(status.error.is_some() && status.lag_bytes > 0 && status.failures_count == 3, "{status:?}");
        now = now.restarted(is_clean);
        now.work(10);
        now.pager.checkpoint_all().unwrap();
        now.archiver.archive().unwrap_err();
        now.store.fails.store(false, Ordering::Relaxed);
        now.archiver.archive().unwrap();
        let notices = now.notices();
        assert!(notices.contains("works again") && notices.contains("goes on with timeline"), "{notices}");
        let status = now.archiver.status();
        assert!(status.error.is_none() && status.lag_bytes == 0 && status.gaps_count == 0, "{status:?}");
        assert_eq!(now.store.names().len(), 1);
        for mark in marks {
            let target = in_place();
            now.restore(&target, &backup, Until::TimeUs(mark.time_us)).unwrap();
            check(&target, &now.at(mark.lsn), "a moment while the archive failed");
        }
    }
}

#[test]
fn a_gap_is_told_and_never_crossed() {
    let mut now = Archived::new(in_place(), 10);
    now.work(100);
    let backup = now.backup();
    now.archiver.archive().unwrap();
    let before = now.mark();
    now.store.fails.store(true, Ordering::Relaxed);
    for _ in 0..20 {
        now.work(1000);
        now.pager.checkpoint_all().unwrap();
    }
    now.store.fails.store(false, Ordering::Relaxed);
    now.archiver.archive().unwrap();
    assert!(now.notices().contains("no restore can cross this gap"));
    assert_eq!(now.archiver.status().gaps_count, 1);
    let second = now.backup();
    now.work(50);
    now.archiver.archive().unwrap();
    assert_eq!(now.store.names().len(), 2);
    let target = in_place();
    refused(
        now.restore(&target, &backup, Until::Lsn(now.pager.log().durable())),
        &["the archive ends at LSN", "before LSN"],
    );
    now.restore(&target, &backup, Until::TimeUs(before.time_us)).unwrap_err();
    let report = now.restore(&target, &backup, Until::Latest).unwrap();
    assert_eq!(report.newer_timelines.len(), 1, "the log after the gap is mentioned");
    check(&target, &now.at(before.lsn), "up to the gap");
    let target = in_place();
    assert_eq!(now.restore(&target, &second, Until::Latest).unwrap().newer_timelines, []);
    check(&target, &now.at(Lsn::MAX), "after the gap");
}

#[test]
fn log_that_is_archived_already_never_makes_a_gap_after_a_start() {
    let mut now = Archived::new(in_place(), 23);
    now.work(100);
    let backup = now.backup();
    for _ in 0..20 {
        now.work(1000);
        now.archiver.archive().unwrap();
        now.pager.checkpoint_all().unwrap();
    }
    // The start keeps as many old segments as a pin may keep. New log comes before the archiver's first look.
    let mut now = now.restarted(true);
    for _ in 0..4 {
        now.work(1000);
        now.pager.checkpoint_all().unwrap();
    }
    now.archiver.archive().unwrap();
    assert_eq!((now.archiver.status().gaps_count, now.store.names().len()), (0, 1), "{}", now.notices());
    let target = in_place();
    now.restore(&target, &backup, Until::Latest).unwrap();
    check(&target, &now.at(Lsn::MAX), "across the start");
}

#[test]
fn a_passing_error_of_the_store_does_not_end_a_timeline() {
    let mut now = Archived::new(in_place(), 19);
    now.work(50);
    let backup = now.backup();
    now.archiver.archive().unwrap();
    now = now.restarted(false);
    now.work(10);
    now.store.fails_reads.store(true, Ordering::Relaxed);
    now.archiver.archive().unwrap_err();
    now.store.fails_reads.store(false, Ordering::Relaxed);
    now.archiver.archive().unwrap();
    assert_eq!(now.store.names().len(), 1, "{}", now.notices());
    let target = in_place();
    now.restore(&target, &backup, Until::Latest).unwrap();
    check(&target, &now.at(Lsn::MAX), "one timeline");
}

#[test]
fn a_damaged_timeline_does_not_hide_the_one_that_goes_on() {
    let mut now = Archived::new(in_place(), 20);
    now.work(50);
    let backup = now.backup();
    now.work(10);
    now.archiver.archive().unwrap();
    let name = now.store.names()[0];
    let pieces = now.store.pieces.lock().clone();
    for timeline in [name.timeline - 1, name.timeline + 1] {
        for (database, _, start) in pieces.keys() {
            now.store.pieces.lock().insert((*database, timeline, *start), vec![7; 100]);
        }
    }
    let target = in_place();
    now.restore(&target, &backup, Until::Latest).unwrap();
    check(&target, &now.at(Lsn::MAX), "next to damaged timelines");
    now.store.pieces.lock().retain(|(_, timeline, _), _| *timeline != name.timeline);
    refused(now.restore(&in_place(), &backup, Until::Latest), &["is damaged", "--timeline"]);
}

#[test]
fn the_shown_moment_can_be_restored_and_the_first_attempt_is_at_once() {
    let mut now = Archived::new(in_place(), 21);
    now.work(50);
    let slow = ArchiveOptions { interval: Duration::from_secs(3600), ..options(&now.store) };
    now.store.fails.store(true, Ordering::Relaxed);
    now.archiver = Archiver::begin(&now.pager, slow).unwrap();
    let backup = now.backup();
    now.work(5);
    assert_eq!(now.archiver.status().archived_us, None, "nothing is archived");
    now.archiver.archive_if_due();
    assert_eq!(now.archiver.status().failures_count, 1, "the first call tries");
    assert_eq!(now.archiver.status().archived_us, None, "still nothing is archived");
    now.store.fails.store(false, Ordering::Relaxed);
    now.archiver.archive().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    // Nothing has happened since.
    now.archiver.archive().unwrap();
    let shown_us = now.archiver.status().archived_us.unwrap();
    let target = in_place();
    now.restore(&target, &backup, Until::TimeUs(shown_us)).unwrap();
    check(&target, &now.at(Lsn::MAX), "the shown moment");
}

#[test]
fn an_archiver_that_was_given_up_writes_nothing_more() {
    let mut now = Archived::new(in_place(), 22);
    now.work(50);
    now.archiver.give_up("it hangs");
    now.archiver.archive().unwrap();
    assert!(now.store.names().is_empty() && now.notices().contains("it hangs"));
}

/// Returns a database on a copy of the files.
fn copy_of(now: &Archived, files: &MemoryDirectory) -> PagerConfig {
    let copy = MemoryDirectory::from_images(files.images());
    PagerConfig { archives: true, accepts_copy: true, ..config(&copy, now.config.pool_bytes / 4096) }
}

#[test]
fn two_histories_of_one_database_are_never_mixed() {
    let files = MemoryDirectory::new();
    let mut now = Archived::new(config(&files, 64), 11);
    now.work(100);
    let before = now.backup();
    now.work(20);
    now.archiver.archive().unwrap();
    let fork = now.mark();
    let older = copy_of(&now, &files);
    now.work(50);
    let of_first = now.backup();
    now.archiver.archive().unwrap();
    let first = now.at(Lsn::MAX);
    // The older files come back, and the database goes on from there.
    now.done.retain(|(end, ..)| *end <= fork.lsn);
    now = now.opened(older);
    now.work(70);
    let of_second = now.backup();
    now.archiver.archive().unwrap();
    assert!(now.notices().contains("of another history"), "a fork is told");
    let second = now.at(Lsn::MAX);
    assert_ne!(first, second);
    let names = now.store.names();
    assert_eq!(names.len(), 2);
    for (backup, known) in [(&of_first, &first), (&of_second, &second)] {
        let target = in_place();
        now.restore(&target, backup, Until::Latest).unwrap();
        check(&target, known, "the backup chooses its history");
    }
    // Both timelines may go on from a backup before the fork.
    let numbers = names.iter().map(|name| name.timeline);
    let restored: Vec<(u64, Result<RestoreReport, PagerError>, PagerConfig)> = numbers
        .map(|number| {
            let target = in_place();
            (number, now.restore_on(&target, &before, Until::Latest, Some(number)), target)
        })
        .collect();
    let mut found: Vec<Known> = Vec::new();
    for (_, report, target) in &restored {
        if report.is_ok() {
            let known = if same(target, &first) { &first } else { &second };
            check(target, known, "the chosen timeline");
            found.push(known.clone());
        }
    }
    assert!(found.contains(&first), "the first timeline has the log since the backup");
    assert!(found.len() == 2 && found[0] != found[1], "the second timeline, too");
    let words = format!("{:016x}", names[0].timeline);
    refused(now.restore(&in_place(), &before, Until::Latest), &["choose one of", &words]);
}

fn same(target: &PagerConfig, known: &Known) -> bool {
    let pager = open(target);
    let pages: usize = pager
        .owners(varve_pager::SpaceId::DATA)
        .unwrap()
        .keys()
        .map(|owner| pager.pages_of_owner(varve_pager::SpaceId::DATA, *owner).unwrap().len())
        .sum();
    let is_same = pages == known.len()
        && known
            .iter()
            .all(|(id, number)| crate::common::get(&pager, *id).is_ok_and(|found| found == *number));
    pager.shutdown().unwrap();
    is_same
}

#[test]
fn two_servers_on_copies_do_not_write_one_timeline() {
    let files = MemoryDirectory::new();
    let mut now = Archived::new(config(&files, 64), 12);
    now.work(100);
    now.archiver.archive().unwrap();
    let twin = copy_of(&now, &files);
    let pager = open(&twin);
    let other = Archiver::begin(&pager, options(&now.store)).unwrap();
    let backup = now.backup();
    for _ in 0..40 {
        now.work(5);
        now.archiver.archive().unwrap();
        other.archive().unwrap();
        crate::common::note(&pager, 100).unwrap();
        other.archive().unwrap();
    }
    assert_eq!(now.store.names().len(), 2);
    let target = in_place();
    now.restore(&target, &backup, Until::Latest).unwrap();
    check(&target, &now.at(Lsn::MAX), "the first server keeps its timeline");
    assert_eq!(now.archiver.status().gaps_count, 0);
}

#[test]
fn a_piece_whose_answer_was_lost_is_not_stored_twice() {
    let mut now = Archived::new(in_place(), 13);
    now.work(100);
    let backup = now.backup();
    for _ in 0..5 {
        now.work(20);
        now.store.loses_answers.store(true, Ordering::Relaxed);
        now.archiver.archive().unwrap_err();
        now.work(20);
        now.store.loses_answers.store(false, Ordering::Relaxed);
        now.archiver.archive().unwrap();
    }
    assert_eq!(now.store.names().len(), 1);
    let target = in_place();
    now.restore(&target, &backup, Until::Latest).unwrap();
    check(&target, &now.at(Lsn::MAX), "answers were lost");
}

#[test]
fn a_time_without_an_archive_is_refused_and_an_lsn_is_not() {
    let mut now = Archived::new(in_place(), 14);
    now.work(100);
    let backup = now.backup();
    now.archiver.archive().unwrap();
    let config = now.config.clone();
    // A run without an archive.
    let Archived { store, pager, archiver, owner, done, random, .. } = now;
    drop((pager, archiver));
    let untimed = PagerConfig { archives: false, ..config.clone() };
    let pager = open(&untimed);
    let id = done.iter().rev().find_map(|(_, id, number)| number.map(|_| *id)).unwrap();
    let mut mtr = pager.begin().unwrap();
    let page = mtr.x(id).unwrap();
    mtr.write(page, 100, &77_u64.to_le_bytes());
    mtr.note_commit();
    let end = mtr.commit();
    pager.flush_log(end).unwrap();
    drop(pager);
    let between_us = now_us();
    let mut done = done;
    done.push((end, id, Some(77)));
    let pager = open(&config);
    let archiver = Archiver::begin(&pager, options(&store)).unwrap();
    let mut now = Archived { config, store, pager, archiver, owner, done, random };
    now.work(10);
    now.archiver.archive().unwrap();
    assert_eq!(now.store.names().len(), 1, "{}", now.notices());
    let target = in_place();
    refused(now.restore(&target, &backup, Until::TimeUs(between_us)), &["ran without an archive", "an LSN"]);
    let found = now.restore(&target, &backup, Until::Lsn(end)).unwrap();
    assert_eq!(found.end, end);
    check(&target, &now.at(end), "an LSN without an archive");
}

/// The directories of tablespaces.
struct Places([(&'static str, Arc<dyn Directory>); 2]);

impl Locations for Places {
    fn open(&self, location: &str) -> Result<Arc<dyn Directory>, BadLocation> {
        let found = self.0.iter().find(|(name, _)| *name == location);
        let missing = || BadLocation::new(LocationFlaw::Missing, "it is not mounted");
        found.map(|(_, directory)| directory.clone()).ok_or_else(missing)
    }
}

fn with_places() -> PagerConfig {
    let places = ["a", "b"].map(|name| (name, MemoryDirectory::new() as Arc<dyn Directory>));
    PagerConfig { locations: Arc::new(Places(places)), ..in_place() }
}

fn tablespace(name: &str) -> NewTablespace {
    NewTablespace {
        name: name.into(),
        location: name.into(),
        protection: ProtectionKind::DOUBLEWRITE,
        compression: None,
        note: Vec::new(),
    }
}

/// Commits a new page in a space.
fn add_in(pager: &Pager, space: SpaceId, number: u64) -> PageId {
    let owner = pager.create_segment(space).unwrap();
    pager.reserve(space, 1).unwrap();
    let mut mtr = pager.begin().unwrap();
    let id = mtr.allocate(space, owner, None).unwrap();
    let page = mtr.create(id, KIND, owner).unwrap();
    mtr.write(page, 100, &number.to_le_bytes());
    mtr.note_commit();
    let end = mtr.commit();
    pager.flush_log(end).unwrap();
    id
}

#[test]
fn tablespaces_are_those_of_the_moment() {
    let mut now = Archived::new(with_places(), 18);
    now.work(50);
    let backup = now.backup();
    let mut marks = vec![(now.mark(), vec![])];
    let a = now.pager.create_tablespace(&tablespace("a")).unwrap();
    let page = add_in(&now.pager, a, 1);
    marks.push((now.mark(), vec!["a"]));
    let b = now.pager.create_tablespace(&tablespace("b")).unwrap();
    marks.push((now.mark(), vec!["a", "b"]));
    now = now.restarted(true);
    now.work(5);
    assert!(now.pager.drop_tablespace(b).unwrap());
    marks.push((now.mark(), vec!["a"]));
    now.pager.change_tablespace(a, "renamed", &[]).unwrap();
    marks.push((now.mark(), vec!["renamed"]));
    now.work(5);
    now.archiver.archive().unwrap();
    for (mark, names) in marks {
        for until in [Until::Lsn(mark.lsn), Until::TimeUs(mark.time_us)] {
            let target = with_places();
            now.restore(&target, &backup, until).unwrap();
            let pager = open(&target);
            let found: Vec<String> = pager.tablespaces().into_iter().map(|one| one.name).collect();
            assert_eq!(found, names, "{until:?}");
            assert_eq!(get(&pager, page).is_ok(), !names.is_empty(), "{until:?}");
            assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{until:?}");
            pager.shutdown().unwrap();
        }
    }
}

/// Returns whether a database was restored, and has exactly these pages.
fn is_right(now: &Archived, backup: &Stored, until: Until, known: &Known) -> bool {
    let target = in_place();
    now.restore(&target, backup, until).is_ok() && same(&target, known)
}

/// The archive fails once. Everything can be restored all the same.
fn after_a_failure() -> bool {
    let mut now = Archived::new(in_place(), 15);
    now.work(50);
    let backup = now.backup();
    now.archiver.archive().unwrap();
    now.work(50);
    now.store.is_full.store(true, Ordering::Relaxed);
    let _failed = now.archiver.archive();
    now.store.is_full.store(false, Ordering::Relaxed);
    now.work(50);
    now.archiver.archive().unwrap();
    is_right(&now, &backup, Until::Latest, &now.at(Lsn::MAX))
}

/// The database goes on from an older copy of its files. A backup of each history is restored.
fn after_a_fork() -> bool {
    let files = MemoryDirectory::new();
    let mut now = Archived::new(config(&files, 64), 16);
    now.work(50);
    now.archiver.archive().unwrap();
    let older = copy_of(&now, &files);
    let fork = now.mark();
    now.work(30);
    let of_first = now.backup();
    now.work(30);
    now.archiver.archive().unwrap();
    let first = now.at(Lsn::MAX);
    now.done.retain(|(end, ..)| *end <= fork.lsn);
    now = now.opened(older);
    now.work(30);
    let of_second = now.backup();
    now.work(30);
    let _failed = now.archiver.archive();
    let second = now.at(Lsn::MAX);
    is_right(&now, &of_first, Until::Latest, &first) && is_right(&now, &of_second, Until::Latest, &second)
}

/// A time between two commits.
fn between_two_commits() -> bool {
    let mut now = Archived::new(in_place(), 17);
    now.work(50);
    let backup = now.backup();
    now.work(5);
    let mark = now.mark();
    now.work(5);
    now.archiver.archive().unwrap();
    is_right(&now, &backup, Until::TimeUs(mark.time_us), &now.at(mark.lsn))
}

#[test]
fn planted_faults_are_found() {
    type Case = (&'static str, fn() -> bool);
    let cases: [Case; 4] = [
        ("archive: a piece that could not be stored counts as archived", after_a_failure),
        ("archive: another history is continued", after_a_fork),
        ("archive: a timeline of another history is taken", after_a_fork),
        ("restore: the commit after the moment is taken", between_two_commits),
    ];
    for (fault, is_right) in cases {
        assert!(is_right(), "without a fault: {fault}");
        plant(Some(fault));
        let was_right = is_right();
        let hits = planted_hits();
        plant(None);
        assert!(!was_right && hits > 0, "{fault} is not found ({hits} hits)");
    }
}
