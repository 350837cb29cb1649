//! The directory has files of different moments, or of two copies that were both used after one backup. The
//! start is refused, and the original files still open.

use std::sync::Arc;

use crate::common::{NoOps, add, config, get, open, set};
use crate::nvm_support::{IN_FILES, NVM_ALL, NVM_PAGES, with};
use varve_device::{
    Directory, ErrorKind, Fault, Faulty, MemoryDirectory, MemoryImage, Operation, Rule, Space, When,
};
use varve_pager::control::Control;
use varve_pager::{HomeLayout, PackedConfig, PageId, Pager, PagerConfig, SpaceId};

const NUMBERS: std::ops::Range<u64> = 0..40;

type Files = Vec<(String, MemoryImage)>;
type How = fn(&Arc<MemoryDirectory>) -> PagerConfig;

fn in_place(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    config(directory, 64)
}

fn packed(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    PagerConfig { layout: HomeLayout::Packed(PackedConfig::DEFAULT), ..config(directory, 64) }
}

fn nvm_pages(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    with(directory, NVM_PAGES)
}

fn packed_below_nvm(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    PagerConfig { layout: HomeLayout::Packed(PackedConfig::DEFAULT), ..with(directory, NVM_ALL) }
}

fn doublewrite(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    with(directory, IN_FILES)
}

/// The configurations: in place, packed, with the newest pages in persistent memory, packed below persistent
/// memory, and with doublewrite.
const HOWS: [How; 5] = [in_place, packed, nvm_pages, packed_below_nvm, doublewrite];

fn new_database(how: How) -> (Arc<MemoryDirectory>, Vec<PageId>) {
    let directory = MemoryDirectory::new();
    let pager = open(&how(&directory));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids = NUMBERS.map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.shutdown().unwrap();
    (directory, ids)
}

/// The end of a life of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Shutdown,
    /// A crash after a checkpoint.
    Checkpoint,
    /// A crash before the first checkpoint.
    Crash,
}

/// Runs a life of the database in which every page changes.
fn live(directory: &Arc<MemoryDirectory>, how: How, ids: &[PageId], more: u64, end: End) {
    let pager = open(&how(directory));
    for (id, number) in ids.iter().zip(NUMBERS) {
        set(&pager, *id, number + more).unwrap();
    }
    match end {
        End::Shutdown => pager.shutdown().unwrap(),
        End::Checkpoint => {
            pager.flush_log(pager.log().end()).unwrap();
            while pager.tick_write(1000).unwrap() > 0 {}
            pager.checkpoint().unwrap();
        }
        End::Crash => pager.flush_log(pager.log().end()).unwrap(),
    }
}

fn expect(directory: &Arc<MemoryDirectory>, how: How, ids: &[PageId], more: u64) {
    let pager = open(&how(directory));
    for (id, number) in ids.iter().zip(NUMBERS) {
        assert_eq!(get(&pager, *id).unwrap(), number + more);
    }
}

/// Checks that each page has its number, or that reading it gives an error.
fn expect_or_damage(directory: &Arc<MemoryDirectory>, how: How, ids: &[PageId], more: u64) {
    let pager = open(&how(directory));
    for (id, number) in ids.iter().zip(NUMBERS) {
        match get(&pager, *id) {
            Ok(found) => assert_eq!(found, number + more),
            Err(error) => assert!(error.to_string().contains("damaged"), "{error}"),
        }
    }
}

fn refusal(directory: &Arc<MemoryDirectory>, how: How) -> Option<String> {
    Pager::open(how(directory), Arc::new(NoOps)).err().map(|error| error.to_string())
}

/// Returns the files of `new`, but those whose names begin with `stem` come from `old`.
fn with_old(stem: &str, new: &Files, old: &Files) -> Arc<MemoryDirectory> {
    let is_of = |(name, _): &&(String, MemoryImage)| name.starts_with(stem);
    let files = new.iter().filter(|file| !is_of(file)).chain(old.iter().filter(is_of));
    MemoryDirectory::from_images(files.cloned())
}

/// In an earlier version, the rows of a day were gone, and `varve check` found no damage.
#[test]
fn an_older_file_is_refused_and_the_newer_one_still_opens() {
    for (index, how) in HOWS.into_iter().enumerate() {
        for end in [End::Shutdown, End::Checkpoint, End::Crash] {
            let (directory, ids) = new_database(how);
            let old = directory.images();
            live(&directory, how, &ids, 1000, end);
            let new = directory.images();
            for stem in ["data", "rollback", "log", "control"] {
                if !old.iter().any(|(name, _)| name.starts_with(stem)) {
                    continue;
                }
                let mixed = with_old(stem, &new, &old);
                let said = refusal(&mixed, how);
                let is_unneeded = stem == "log" && end == End::Shutdown;
                if said.is_none() && (is_unneeded || stem != "control" && index == 3) {
                    // A checkpoint may end after all that the log has. Where the log says that the header is,
                    // the older file has something else, which may be unneeded damage.
                    expect_or_damage(&mixed, how, &ids, 1000);
                    continue;
                }
                let Some(said) = said else { panic!("{index} {end:?}: opens with an older {stem}") };
                let is_plain = [0, 2, 4].contains(&index) && stem != "log";
                let named = if stem == "control" { stem.into() } else { format!("{stem}.varve") };
                let expected = format!("{named} is an older copy than");
                assert!(!is_plain || said.contains(&expected), "{index} {end:?} {stem}: {said}");
                // The newer file is put back. Whatever the refused start left does no harm.
                let mended = with_old(stem, &mixed.images(), &new);
                expect(&mended, how, &ids, 1000);
            }
        }
    }
}

/// Two copies continue from one backup, with the same steps.
#[test]
fn a_file_of_another_copy_of_the_database_is_refused() {
    for (index, how) in HOWS.into_iter().enumerate() {
        for end in [End::Shutdown, End::Checkpoint, End::Crash] {
            let (directory, ids) = new_database(how);
            let backup = directory.images();
            let branches = [1000, 2000].map(|more| {
                let copy = MemoryDirectory::from_images(backup.clone());
                live(&copy, how, &ids, more, end);
                copy.images()
            });
            for stem in ["data", "rollback", "control"] {
                let mixed = with_old(stem, &branches[0], &branches[1]);
                assert!(refusal(&mixed, how).is_some(), "{index} {end:?} {stem}");
            }
            expect(&MemoryDirectory::from_images(branches[0].clone()), how, &ids, 1000);
        }
    }
}

/// Redo needs the last records of the log.
#[test]
fn the_log_of_another_copy_of_the_database_is_refused() {
    let (directory, ids) = new_database(in_place);
    let backup = directory.images();
    let branches = [1000, 2000].map(|more| {
        let copy = MemoryDirectory::from_images(backup.clone());
        live(&copy, in_place, &ids, more, End::Crash);
        copy.images()
    });
    let said = refusal(&with_old("log", &branches[0], &branches[1]), in_place).unwrap();
    assert!(said.contains("the log"), "{said}");
}

/// One file of the log is missing, or has the contents of an earlier segment. It may be the last file that
/// has records. (A file from the time when it was prepared and empty is the same as a file to which nothing
/// was written.)
#[test]
fn a_log_with_an_older_or_a_missing_file_loses_no_commit_in_silence() {
    let (directory, ids) = new_database(in_place);
    // Threads prepare segments ahead.
    let how = |directory: &Arc<MemoryDirectory>| PagerConfig { background: true, ..in_place(directory) };
    let fill =
        |pager: &Pager, notes: u64| (0..notes).for_each(|_| crate::common::note(pager, 19_000).unwrap());
    let old = directory.images();
    let pager = open(&how(&directory));
    fill(&pager, 60);
    pager.shutdown().unwrap();
    drop(pager);
    for more in 1..30 {
        let pager = open(&how(&directory));
        fill(&pager, 10 + more);
        set(&pager, ids[0], 5000 + more).unwrap();
        fill(&pager, 1 + more % 3);
        drop(pager);
        let new = directory.images();
        let names = new.iter().map(|(name, _)| name.clone()).filter(|name| name.starts_with("log"));
        for name in names.collect::<Vec<_>>() {
            let without: Files = new.iter().filter(|(other, _)| *other != name).cloned().collect();
            for mixed in [MemoryDirectory::from_images(without), with_old(&name, &new, &old)] {
                if let Ok(pager) = Pager::open(in_place(&mixed), Arc::new(NoOps)) {
                    assert_eq!(get(&pager, ids[0]).unwrap(), 5000 + more, "{name}, {more}");
                }
            }
        }
    }
}

/// A backup has all files of one moment. So it is no mistake if all files are older.
#[test]
fn a_backup_of_all_files_is_taken() {
    for how in HOWS {
        let (directory, ids) = new_database(how);
        live(&directory, how, &ids, 1000, End::Shutdown);
        let old = directory.images();
        live(&directory, how, &ids, 2000, End::Checkpoint);
        live(&directory, how, &ids, 3000, End::Shutdown);
        expect(&MemoryDirectory::from_images(old), how, &ids, 1000);
    }
}

/// An older program does not know this number, and writes zeros in its place.
#[test]
fn nothing_is_known_of_a_database_that_an_older_program_had_open() {
    let (directory, ids) = new_database(in_place);
    let old = directory.images();
    live(&directory, in_place, &ids, 1000, End::Shutdown);
    let control = Control::open(&*directory).unwrap().unwrap();
    control.update(|block| (block.mark, block.next_mark) = (0, 0)).unwrap();
    drop(control);
    let mixed = with_old("data", &directory.images(), &old);
    open(&in_place(&mixed)).shutdown().unwrap();
    // Since that start, the marks are known again.
    let said = refusal(&with_old("data", &mixed.images(), &old), in_place).unwrap();
    assert!(said.contains("data.varve is an older copy"), "{said}");
}

/// Starts without any changes have marks, too. A database that is only opened doesn't become larger by its
/// marks.
#[test]
fn each_start_has_a_mark_of_its_own() {
    for how in HOWS {
        let (directory, _) = new_database(how);
        let told = || Control::open(&*directory).unwrap().unwrap().get().mark;
        let mut last = told();
        assert_ne!(last, 0);
        let len_bytes = |directory: &MemoryDirectory| -> u64 {
            directory.images().iter().map(|(_, image)| image.len_bytes()).sum()
        };
        open(&how(&directory)).shutdown().unwrap();
        let before = len_bytes(&directory);
        for _ in 0..20 {
            open(&how(&directory)).shutdown().unwrap();
            assert!(told() != last && told() != 0);
            last = told();
        }
        assert_eq!(len_bytes(&directory), before);
    }
}

/// That start begins a new log, and removes the remains of the old one.
#[test]
fn a_control_file_from_when_a_region_was_left_costs_nothing() {
    let hows: [(How, How); 2] =
        [(packed_below_nvm, packed), (|directory| with(directory, NVM_ALL), in_place)];
    for (inside, outside) in hows {
        let (directory, ids) = new_database(inside);
        let pager = open(&inside(&directory));
        pager.leave_region_at_shutdown();
        pager.shutdown().unwrap();
        drop(pager);
        let old = directory.images();
        live(&directory, outside, &ids, 1000, End::Crash);
        let new = directory.images();
        let mixed = with_old("control", &new, &old);
        let said = refusal(&mixed, outside).expect("the control file is older");
        assert!(said.contains("is an older copy than"), "{said}");
        expect(&with_old("control", &mixed.images(), &new), outside, &ids, 1000);
    }
}

/// The mark stays announced, so the headers may have this mark or the previous one.
#[test]
fn a_full_device_takes_no_mark_and_bars_no_start() {
    for (how, space) in HOWS.into_iter().flat_map(|how| [(how, Space::Data), (how, Space::Rollback)]) {
        let (directory, ids) = new_database(how);
        let device = Faulty::wrap(directory.clone() as Arc<dyn Directory>);
        let on = |full: bool| {
            let config = how(&directory);
            match (full, space) {
                (false, _) => config,
                (true, Space::Data) => PagerConfig { data: device.clone(), ..config },
                (true, _) => PagerConfig { rollback: device.clone(), ..config },
            }
        };
        let told = || Control::open(&*directory).unwrap().unwrap().get();
        let before = told().mark;
        let fault = Fault::Fails(ErrorKind::NoSpace);
        device.arm(Rule {
            operation: Some(Operation::Write),
            space: Some(space),
            when: When::From(1),
            fault,
        });
        for _ in 0..2 {
            // This is done after a clean shutdown and without one. Pages that a full device refuses stay in
            // the log or in persistent memory.
            drop(Pager::open(on(true), Arc::new(NoOps)).map(|pager| pager.shutdown()));
            assert!(device.fired_count() > 0 && told().mark == before && told().next_mark != 0);
        }
        device.disarm();
        let pager = open(&on(false));
        ids.iter().zip(NUMBERS).for_each(|(id, number)| assert_eq!(get(&pager, *id).unwrap(), number));
        assert!(told().mark != before && told().next_mark == 0);
    }
}
