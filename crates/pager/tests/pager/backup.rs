//! Online backups of databases with every kind of level, and restores of them. A restore gives the state at
//! the end LSN of the backup, in a database with another id.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use crate::common::{NoOps, Random, add, config, get, open, set};
use crate::{flash_support, nvm_support};
use varve_device::{Directory, Fate, MemoryDirectory, RecordLog, Recorder, Timeline};
use varve_pager::{
    Access, Algorithm, BackupBase, BackupOptions, BackupSource, Compression, FlashDesign, FlashRestart,
    HomeLayout, PackedConfig, PageId, Pager, PagerConfig, PagerError, ProtectionKind, RestoreReport, SpaceId,
    restore, verify_backup,
};

const PACKED: PackedConfig =
    PackedConfig { extent_bytes: 64 << 10, held_pages_max: 16, ..PackedConfig::DEFAULT };

/// A backup in memory.
struct Stored(Vec<u8>);

impl BackupSource for Stored {
    fn name(&self) -> String {
        "the backup".into()
    }

    fn open(&self) -> std::io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(&self.0[..]))
    }
}

/// The number that each page must have.
type Known = BTreeMap<PageId, u64>;

/// Changes the database at random: new pages, changed pages, freed pages.
fn work(pager: &Pager, owner: u32, known: &mut Known, random: &mut Random, steps: u64) {
    for _ in 0..steps {
        let number = random.next();
        let chosen = known.keys().nth(random.below(known.len().max(1) as u64) as usize).copied();
        match (random.below(10), chosen) {
            (0..3, _) | (_, None) => drop(known.insert(add(pager, owner, number).unwrap(), number)),
            (3, Some(id)) => {
                let mut mtr = pager.begin().unwrap();
                mtr.free(id).unwrap();
                mtr.commit();
                known.remove(&id);
            }
            (_, Some(id)) => {
                set(pager, id, number).unwrap();
                known.insert(id, number);
            }
        }
    }
}

/// Takes a backup, and calls `meanwhile` between any two pieces of it. It changes the database, and returns
/// the numbers of all pages. Returns the backup with the numbers at its end.
fn taken(pager: &Pager, options: BackupOptions, mut meanwhile: impl FnMut() -> Known) -> (Stored, Known) {
    let mut backup = pager.backup(options).unwrap();
    let (mut bytes, mut at_end) = (Vec::new(), Known::new());
    loop {
        let now = meanwhile();
        if !backup.next(&mut bytes).unwrap() {
            return (Stored(bytes), at_end);
        }
        at_end = now;
    }
}

fn restored(config: &PagerConfig, chain: &[&Stored]) -> Result<RestoreReport, PagerError> {
    let chain: Vec<&dyn BackupSource> = chain.iter().map(|one| *one as &dyn BackupSource).collect();
    restore(config.clone(), Arc::new(NoOps), &chain, &str::to_owned)
}

/// Opens a database twice, and checks that it has exactly these pages.
fn check(config: &PagerConfig, known: &Known, what: &str) {
    for _ in 0..2 {
        let pager = open(config);
        assert!(!pager.is_new(), "{what}");
        assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{what}");
        let owners = pager.owners(SpaceId::DATA).unwrap();
        let ids = owners.keys().flat_map(|owner| pager.pages_of_owner(SpaceId::DATA, *owner).unwrap());
        let found: Known = ids.map(|id| (id, get(&pager, id).unwrap())).collect();
        assert_eq!(&found, known, "{what}");
        pager.shutdown().unwrap();
    }
}

fn in_place() -> PagerConfig {
    config(&MemoryDirectory::new(), 64)
}

fn packed() -> PagerConfig {
    PagerConfig { layout: HomeLayout::Packed(PACKED), ..config(&MemoryDirectory::new(), 64) }
}

fn compressed() -> PagerConfig {
    PagerConfig { compression: Compression::of(Algorithm::Lz4), ..packed() }
}

fn full_page_log() -> PagerConfig {
    let mut images = in_place();
    images.protection = ProtectionKind::FullPageLog;
    images
}

fn with_flash() -> PagerConfig {
    flash_support::rig(FlashDesign::LazyCleaning, HomeLayout::InPlace, FlashRestart::LazyVerification).config
}

fn with_nvm() -> PagerConfig {
    nvm_support::with(&MemoryDirectory::new(), nvm_support::NVM_ALL)
}

fn all_kinds() -> Vec<(&'static str, PagerConfig)> {
    vec![
        ("in place", in_place()),
        ("packed", packed()),
        ("compressed", compressed()),
        ("full-page-log", full_page_log()),
        ("flash", with_flash()),
        ("nvm", with_nvm()),
    ]
}

/// A database with many pages, which is changed by `work`.
struct Busy {
    pager: Pager,
    owner: u32,
    known: Known,
    random: Random,
}

impl Busy {
    fn new(config: &PagerConfig, seed: u64) -> Busy {
        let pager = open(config);
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        let mut busy = Busy { pager, owner, known: Known::new(), random: Random(seed) };
        busy.work(900);
        busy
    }

    fn work(&mut self, steps: u64) -> Known {
        work(&self.pager, self.owner, &mut self.known, &mut self.random, steps);
        self.known.clone()
    }

    /// Takes a backup under changes. Returns it with the numbers at its end.
    fn backup(&mut self, base: Option<BackupBase>) -> (Stored, Known) {
        let options = BackupOptions { compression: Compression::of(Algorithm::Lz4), base };
        let Busy { pager, owner, known, random } = self;
        taken(pager, options, || {
            work(pager, *owner, known, random, 30);
            if random.below(8) == 0 {
                pager.checkpoint_all().unwrap();
            }
            known.clone()
        })
    }
}

fn base_of(stored: &Stored) -> BackupBase {
    verify_backup(&mut &stored.0[..]).unwrap().as_base()
}

#[test]
fn a_backup_under_changes_gives_the_state_at_its_end() {
    for (at, (from, config)) in all_kinds().into_iter().enumerate() {
        let mut busy = Busy::new(&config, 7 + at as u64);
        let (backup, known) = busy.backup(None);
        let summary = verify_backup(&mut &backup.0[..]).unwrap();
        assert!(summary.end.end > summary.start.start && summary.end.pages > 100, "{from}");
        for (to, target) in all_kinds() {
            let report = restored(&target, &[&backup]).unwrap();
            assert_eq!(report.end, summary.end.end);
            assert_ne!(report.database, busy.pager.database_id());
            check(&target, &known, &format!("{from} to {to}"));
        }
        assert_eq!(busy.pager.check().unwrap().damages, Vec::<String>::new());
    }
}

#[test]
fn a_restored_database_goes_on() {
    let mut busy = Busy::new(&in_place(), 3);
    let (backup, known) = busy.backup(None);
    for (to, target) in all_kinds() {
        restored(&target, &[&backup]).unwrap();
        let pager = open(&target);
        let owner = *pager.owners(SpaceId::DATA).unwrap().keys().next().unwrap();
        let mut now = known.clone();
        work(&pager, owner, &mut now, &mut Random(4), 400);
        pager.flush_log(pager.log().end()).unwrap();
        drop(pager);
        check(&target, &now, &format!("{to} after a crash"));
    }
}

#[test]
fn incremental_backups_have_only_what_changed() {
    for (from, config) in [("in place", in_place()), ("packed", packed())] {
        let mut busy = Busy::new(&config, 11);
        let (full, _) = busy.backup(None);
        busy.work(20);
        let (first, _) = busy.backup(Some(base_of(&full)));
        busy.work(20);
        busy.pager.checkpoint_all().unwrap();
        let quiet = |busy: &Busy, base: &Stored| {
            let options = BackupOptions { base: Some(base_of(base)), ..BackupOptions::default() };
            taken(&busy.pager, options, Known::new).0
        };
        let second = quiet(&busy, &first);
        busy.work(10);
        let third = quiet(&busy, &second);
        let summary = verify_backup(&mut &third.0[..]).unwrap();
        assert!(summary.end.same > summary.end.pages && summary.end.pages > 0, "{from}: {summary:?}");
        let target = in_place();
        restored(&target, &[&third, &second, &first, &full]).unwrap();
        check(&target, &busy.known, from);
        for chain in [&[&second, &full][..], &[&second], &[&second, &first], &[&full, &first]] {
            let target = in_place();
            let refused = restored(&target, chain).unwrap_err();
            assert!(matches!(refused, PagerError::Backup { .. }), "{from}: {refused}");
            assert!(!target.control.exists("control").unwrap());
        }
    }
}

#[test]
fn backups_of_two_databases_are_not_mixed() {
    let mut busy = Busy::new(&in_place(), 5);
    let (backup, _) = busy.backup(None);
    let target = in_place();
    restored(&target, &[&backup]).unwrap();
    let pager = open(&target);
    let options = BackupOptions { base: Some(base_of(&backup)), ..BackupOptions::default() };
    let refused = pager.backup(options).map(drop).unwrap_err();
    assert!(refused.to_string().contains("is of another database"), "{refused}");
}

#[test]
fn a_damaged_or_cut_backup_makes_nothing() {
    let mut busy = Busy::new(&in_place(), 17);
    let (backup, _) = busy.backup(None);
    let mut random = Random(18);
    for round in 0..60 {
        let mut damaged = Stored(backup.0.clone());
        let at = random.below(damaged.0.len() as u64) as usize;
        if round % 2 == 0 {
            damaged.0[at] ^= 1 << random.below(8);
        } else {
            damaged.0.truncate(at);
        }
        let target = in_place();
        assert!(restored(&target, &[&damaged]).is_err(), "byte {at}");
        assert!(!target.control.exists("control").unwrap() && target.data.list().unwrap().is_empty());
    }
}

/// A backup whose file cannot be read a third time.
struct Failing<'b>(&'b Stored, std::cell::Cell<u32>);

impl BackupSource for Failing<'_> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn open(&self) -> std::io::Result<Box<dyn Read + '_>> {
        self.1.set(self.1.get() + 1);
        if self.1.get() == 3 { Err(std::io::Error::other("pulled")) } else { self.0.open() }
    }
}

#[test]
fn an_interrupted_restore_is_never_opened_and_nothing_is_restored_over_a_database() {
    let mut busy = Busy::new(&in_place(), 19);
    let (backup, known) = busy.backup(None);
    let target = in_place();
    let failing = Failing(&backup, std::cell::Cell::new(0));
    let ops = Arc::new(NoOps);
    restore(target.clone(), ops.clone(), &[&failing], &str::to_owned).unwrap_err();
    let refused = Pager::open(target.clone(), ops.clone()).map(drop).unwrap_err();
    assert!(refused.to_string().contains("restore of this database was interrupted"), "{refused}");
    let refused = restored(&target, &[&backup]).unwrap_err();
    assert!(refused.to_string().contains("holds a database already"), "{refused}");
    let names = target.control.list().unwrap();
    names.iter().for_each(|name| target.control.remove(name).unwrap());
    restored(&target, &[&backup]).unwrap();
    check(&target, &known, "the second try");
}

#[test]
fn a_damaged_or_lost_page_is_named_and_ends_the_backup() {
    let damages: [fn(&mut [u8]); 2] = [|page| page[200] ^= 1, |page| page.fill(0)];
    damages.into_iter().for_each(a_spoiled_page_ends_the_backup);
}

fn a_spoiled_page_ends_the_backup(spoil: fn(&mut [u8])) {
    let directory = MemoryDirectory::new();
    let config = config(&directory, 64);
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<PageId> = (0..300).map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.shutdown().unwrap();
    drop(pager);
    let mut bytes = crate::common::stored(&directory, ids[5]);
    spoil(&mut bytes);
    let damaged = crate::common::with_stored(&directory, ids[5], &bytes);
    let pager = open(&crate::common::config(&damaged, 64));
    let mut backup = pager.backup(BackupOptions::default()).unwrap();
    let mut out = Vec::new();
    let error = loop {
        match backup.next(&mut out) {
            Ok(true) => {}
            Ok(false) => panic!("the damage was not seen"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, PagerError::DamagedPage { id, .. } if id == ids[5]), "{error}");
    assert!(verify_backup(&mut &out[..]).is_err());
    set(&pager, ids[9], 1).unwrap();
}

#[test]
fn a_backup_that_is_too_slow_fails_and_the_database_goes_on() {
    let mut busy = Busy::new(&in_place(), 23);
    let options = BackupOptions::default();
    let mut out = Vec::new();
    let Busy { pager, owner, known, random } = &mut busy;
    let mut backup = pager.backup(options).unwrap();
    assert!(backup.next(&mut out).unwrap());
    work(pager, *owner, known, random, 40_000);
    let error = loop {
        match backup.next(&mut out) {
            Ok(true) => {}
            Ok(false) => panic!("the log is gone"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("faster than the backup"), "{error}");
    drop(backup);
    work(pager, *owner, known, random, 1000);
    assert!(verify_backup(&mut &out[..]).is_err());
}

#[test]
fn a_file_is_not_cut_while_a_backup_may_need_its_end() {
    let directory = MemoryDirectory::new();
    let pager = open(&config(&directory, 64));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    for number in 0..2000 {
        add(&pager, owner, number).unwrap();
    }
    let length = || directory.images().iter().find(|(name, _)| name == "data.varve").unwrap().1.len_bytes();
    let (before, mut out) = (length(), Vec::new());
    let mut backup = pager.backup(BackupOptions::default()).unwrap();
    assert!(backup.next(&mut out).unwrap());
    pager.drop_segment(SpaceId::DATA, owner).unwrap();
    (0..3).for_each(|_| pager.checkpoint_all().unwrap());
    assert_eq!(length(), before);
    drop(backup);
    (0..3).for_each(|_| pager.checkpoint_all().unwrap());
    assert!(length() < before, "{} of {before}", length());
}

#[test]
fn dropped_owners_are_not_restored() {
    let config = in_place();
    let pager = open(&config);
    let owners: Vec<u32> = (0..4).map(|_| pager.create_segment(SpaceId::DATA).unwrap()).collect();
    let mut known = Known::new();
    for (owner, number) in owners.iter().flat_map(|owner| (0..150).map(move |number| (*owner, number))) {
        known.insert(add(&pager, owner, number).unwrap(), number);
    }
    let mut left = owners.clone();
    let (backup, known) = taken(&pager, BackupOptions::default(), || {
        if let Some(owner) = left.pop() {
            let gone = pager.pages_of_owner(SpaceId::DATA, owner).unwrap();
            gone.iter().for_each(|id| set(&pager, *id, 77).unwrap());
            pager.drop_segment(SpaceId::DATA, owner).unwrap();
            for id in &gone {
                let _ = known.remove(id);
            }
            let new = pager.create_segment(SpaceId::DATA).unwrap();
            for number in 0..40 {
                let _ = known.insert(add(&pager, new, number).unwrap(), number);
            }
        }
        known.clone()
    });
    let target = packed();
    restored(&target, &[&backup]).unwrap();
    check(&target, &known, "owners were dropped meanwhile");
}

#[test]
fn threads_change_pages_while_a_backup_is_taken() {
    let config = PagerConfig { background: true, ..in_place() };
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<PageId> = (0..400).map(|_| add(&pager, owner, 0).unwrap()).collect();
    let stops = std::sync::atomic::AtomicBool::new(false);
    let backup = std::thread::scope(|scope| {
        for thread in 0..2_usize {
            let (pager, ids, stops) = (&pager, &ids, &stops);
            scope.spawn(move || {
                let mut random = Random(thread as u64 + 1);
                // Each step moves one from a page to the next one: the sum stays zero.
                while !stops.load(std::sync::atomic::Ordering::Relaxed) {
                    let at = random.below(ids.len() as u64 - 1) as usize;
                    let mut mtr = pager.begin().unwrap();
                    let (one, two) = (mtr.x(ids[at]).unwrap(), mtr.x(ids[at + 1]).unwrap());
                    let number = |bytes: &[u8]| u64::from_le_bytes(bytes[100..108].try_into().unwrap());
                    let (less, more) =
                        (number(mtr.page(one)).wrapping_sub(1), number(mtr.page(two)).wrapping_add(1));
                    mtr.write(one, 100, &less.to_le_bytes());
                    mtr.write(two, 100, &more.to_le_bytes());
                    mtr.commit();
                }
            });
        }
        let mut backup = pager.backup(BackupOptions::default()).unwrap();
        let mut bytes = Vec::new();
        while backup.next(&mut bytes).unwrap() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        stops.store(true, std::sync::atomic::Ordering::Relaxed);
        Stored(bytes)
    });
    let target = in_place();
    let report = restored(&target, &[&backup]).unwrap();
    assert!(report.changes > 100, "{report:?}");
    let pager = open(&target);
    let sum = ids.iter().fold(0_u64, |sum, id| sum.wrapping_add(get(&pager, *id).unwrap()));
    assert_eq!(sum, 0);
    drop(pager.fix_s(ids[0], Access::Random).unwrap());
}

fn config_in(directory: Arc<dyn Directory>) -> PagerConfig {
    let mut config = in_place();
    config.data = directory.clone();
    config.log = directory.clone();
    config.rollback = directory.clone();
    config.temporary = directory.clone();
    config.control = directory;
    config
}

/// Checks what a start finds after a crash within a restore. Returns whether the restore had ended.
fn judge(image: &Arc<MemoryDirectory>, known: &Known, what: &str) -> bool {
    let has_control = image.exists("control").unwrap();
    let config = config_in(image.clone());
    match Pager::open(config.clone(), Arc::new(NoOps)) {
        Err(error) => assert!(error.to_string().contains("was interrupted"), "{what}: {error}"),
        Ok(pager) if pager.is_new() => assert!(!has_control, "{what}"),
        Ok(pager) => {
            drop(pager);
            check(&config, known, what);
            return true;
        }
    }
    false
}

#[test]
fn a_restore_that_crashes_is_whole_or_refused() {
    let mut busy = Busy::new(&in_place(), 29);
    let (backup, known) = busy.backup(None);
    let log = RecordLog::new();
    let target = config_in(Recorder::wrap(MemoryDirectory::new(), log.clone()));
    restored(&target, &[&backup]).unwrap();
    let mut timeline = Timeline::new(log.recording());
    let (end, mut random, mut whole) = (timeline.end(), Random(30), 0);
    for cut in (1..=60).map(|part| end * part / 60) {
        timeline.advance(cut);
        let pending = timeline.pending().len();
        for style in 0..3 {
            let fate = |random: &mut Random| match (style, random.below(3)) {
                (0, _) | (2, 0) => Fate::Absent,
                (1, _) | (2, 1) => Fate::Present,
                _ => Fate::Torn { unit_bytes: 512, seed: random.next() },
            };
            let fates: Vec<Fate> = (0..pending).map(|_| fate(&mut random)).collect();
            let image = timeline.image(&fates).remove(0);
            whole += u32::from(judge(&image, &known, &format!("cut {cut} of {end}, style {style}")));
        }
    }
    assert!(whole > 0, "the last image has all of the restore");
}
