//! The drive of the flash cache is removed under load. No commit is lost and no page is wrong, whether the
//! database continues or stops.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::common::{NoOps, Random, add, get};
use varve_device::{
    Directory, ErrorKind, Fault, Faulty, FileDirectory, FileOptions, MemoryDirectory, Rule, When,
};
use varve_pager::{
    FLASH_FILE, FlashConfig, FlashDesign, FlashSettings, PageId, Pager, PagerConfig, Result, SpaceId,
};

const DESIGNS: [FlashDesign; 5] = [
    FlashDesign::LazyCleaning,
    FlashDesign::DualWrite,
    FlashDesign::Rotating,
    FlashDesign::Exclusive,
    FlashDesign::Inclusive,
];
const PULLS: usize = 20;
const SESSIONS: usize = 3;
const PAGES: usize = 400;
const POOL_PAGES: usize = 60;
const CACHE_PAGES: u64 = 250;
/// The error number "no such device".
const ENODEV: i32 = 19;

/// The way in which the drive is removed.
#[derive(Debug, Clone, Copy)]
enum Pull {
    /// All requests to the drive fail.
    Fails,
    /// The file of the cache is deleted. The open file stays usable, and the next start finds no file.
    Deleted,
}

struct Rig {
    config: PagerConfig,
    device: Arc<Faulty>,
}

fn rig(path: &Path, design: FlashDesign) -> Rig {
    let at = |name: &str| -> Arc<dyn Directory> {
        FileDirectory::open_or_create(&path.join(name), FileOptions::default()).unwrap()
    };
    let (home, device) = (at("home"), Faulty::wrap(at("flash")));
    let mut config = crate::common::config(&MemoryDirectory::new(), POOL_PAGES);
    config.data = home.clone();
    config.log = home.clone();
    config.rollback = home.clone();
    config.temporary = home.clone();
    config.control = home;
    config.background = true;
    config.checkpoint.interval_ms = 20;
    config.flash = Some(FlashConfig::with(
        device.clone(),
        FlashSettings { design, dirty_percent: 80, ..FlashSettings::of_size(CACHE_PAGES * 4096) },
    ));
    Rig { config, device }
}

/// A page, with the number that was committed in it last, and a number that may have been committed.
#[derive(Clone, Copy)]
struct Row {
    id: PageId,
    acknowledged: u64,
    tried: u64,
}

impl Row {
    fn check(&mut self, found: u64, when: &str) {
        let Row { id, acknowledged, tried } = *self;
        assert!(
            found == acknowledged || found == tried,
            "{when}: {id} has {found}, not {acknowledged} or {tried}"
        );
        (self.acknowledged, self.tried) = (found, found);
    }
}

fn commit(pager: &Pager, row: &mut Row) -> Result<()> {
    row.tried = row.acknowledged + 1;
    let mut mtr = pager.begin()?;
    let page = mtr.x(row.id)?;
    mtr.write(page, 100, &row.tried.to_le_bytes());
    let end = mtr.commit();
    pager.flush_log(end)?;
    row.acknowledged = row.tried;
    Ok(())
}

/// Works until `ends` is set, or until the database stops.
fn session(pager: &Pager, mut rows: Vec<Row>, ends: &AtomicBool, seed: u64) -> Vec<Row> {
    let mut random = Random(seed);
    let count = rows.len() as u64;
    while !ends.load(Relaxed) {
        let row = &mut rows[random.below(count) as usize];
        match get(pager, row.id) {
            Ok(found) => row.check(found, "under load"),
            // Only redo can make this page again.
            Err(_) => continue,
        }
        if random.below(2) == 0 && commit(pager, row).is_err() {
            return rows;
        }
    }
    rows
}

fn work(pager: &Arc<Pager>, rows: Vec<Row>, seed: u64, during: impl FnOnce()) -> Vec<Row> {
    let ends = Arc::new(AtomicBool::new(false));
    let sessions: Vec<_> = rows
        .chunks(PAGES / SESSIONS + 1)
        .zip(seed..)
        .map(|(rows, seed)| {
            let (pager, rows, ends) = (pager.clone(), rows.to_vec(), ends.clone());
            std::thread::spawn(move || session(&pager, rows, &ends, seed))
        })
        .collect();
    during();
    ends.store(true, Relaxed);
    sessions.into_iter().flat_map(|session| session.join().unwrap()).collect()
}

fn pulled(pull: Pull, design: FlashDesign, seed: u64) {
    let path = tempfile::tempdir().unwrap();
    let rig = rig(path.path(), design);
    let open = || Arc::new(Pager::open(rig.config.clone(), Arc::new(NoOps)).unwrap());
    let pager = open();
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let new = |_| Row { id: add(&pager, owner, 0).unwrap(), acknowledged: 0, tried: 0 };
    let rows: Vec<Row> = (0..PAGES).map(new).collect();
    pager.flush_log(pager.log().end()).unwrap();
    let pause = || std::thread::sleep(Duration::from_millis(60 + Random(seed * 77 + 5).below(120)));
    let rows = work(&pager, rows, 100 * seed + 1, || {
        pause();
        match pull {
            Pull::Fails => {
                let fault = Fault::Fails(ErrorKind::Io(ENODEV));
                rig.device.arm(Rule { operation: None, space: None, when: When::From(1), fault });
            }
            Pull::Deleted => std::fs::remove_file(path.path().join("flash").join(FLASH_FILE)).unwrap(),
        }
        pause();
    });
    // The process dies, the drive is missing at the next start, and comes back after it.
    drop(pager);
    let mut rows = rows;
    let away = PagerConfig { flash: None, ..rig.config.clone() };
    let pager = Arc::new(Pager::open(away, Arc::new(NoOps)).unwrap());
    for row in &mut rows {
        let found = get(&pager, row.id).unwrap();
        row.check(found, "without the drive");
    }
    let rows = work(&pager, rows, 100 * seed + 51, pause);
    drop(pager);
    rig.device.disarm();
    let pager = open();
    let mut rows = work(&pager, rows, 100 * seed + 71, pause);
    for row in &mut rows {
        row.check(get(&pager, row.id).unwrap(), "with the drive again");
    }
    pager.shutdown().unwrap();
    drop(pager);
    let pager = open();
    for row in &mut rows {
        row.check(get(&pager, row.id).unwrap(), "after a shutdown");
    }
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

#[test]
fn a_drive_that_is_pulled_out_costs_no_commit() {
    for at in 0..PULLS {
        let pull = if at % 2 == 0 { Pull::Fails } else { Pull::Deleted };
        let design = DESIGNS[at / 2 % DESIGNS.len()];
        println!("{at}: {design:?}, {pull:?}");
        pulled(pull, design, at as u64 + 1);
    }
}
