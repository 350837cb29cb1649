//! Helpers for the tests of a flash cache: databases with a cache, filled, used and checked.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of it; a test may")]

use std::sync::Arc;

use varve_device::{Directory, Faulty, MemoryDirectory, MemoryImage};
use varve_pager::{
    FLASH_FILE, FlashConfig, FlashDesign, FlashRestart, FlashSettings, HomeLayout, PageId, Pager,
    PagerConfig, SpaceId,
};

use crate::common::{Random, add, config, get, open, set};

/// Returns all designs with a cache.
pub fn designs() -> impl Iterator<Item = FlashDesign> {
    FlashDesign::ALL.into_iter().filter(|design| *design != FlashDesign::Off)
}

/// All schemes that keep records for the next start.
pub const SCHEMES: [FlashRestart; 3] =
    [FlashRestart::LazyVerification, FlashRestart::LogBased, FlashRestart::MemoryMapped];

/// The number of slots of the cache.
pub const CACHE_PAGES: u64 = 120;

/// Pages of the database.
pub const PAGES: usize = 200;

/// A database with a cache, and the directories of its files.
pub struct Rig {
    pub config: PagerConfig,
    pub home: Arc<MemoryDirectory>,
    pub flash: Arc<MemoryDirectory>,
    pub device: Arc<Faulty>,
}

/// Returns an empty database with a cache.
pub fn rig(design: FlashDesign, layout: HomeLayout, restart: FlashRestart) -> Rig {
    on(&MemoryDirectory::new(), &MemoryDirectory::new(), design, (layout, restart))
}

/// Returns a database on the files in these directories.
pub fn on(
    home: &Arc<MemoryDirectory>,
    flash: &Arc<MemoryDirectory>,
    design: FlashDesign,
    (layout, restart): (HomeLayout, FlashRestart),
) -> Rig {
    let device = Faulty::wrap(flash.clone() as Arc<dyn Directory>);
    let flash_config = FlashConfig::with(
        device.clone(),
        FlashSettings {
            design,
            dirty_percent: 50,
            restart,
            ..FlashSettings::of_size(4096 * (1 + 2 + CACHE_PAGES))
        },
    );
    let config = PagerConfig { layout, flash: Some(flash_config), ..config(home, 40) };
    Rig { config, home: home.clone(), flash: flash.clone(), device }
}

/// Returns the counter of the cache with this name.
pub fn counter(pager: &Pager, name: &str) -> u64 {
    let levels = pager.stats().levels;
    let flash = levels.iter().find(|level| level.name == "flash").expect("there is a cache");
    flash.counters.iter().find(|(found, _)| *found == name).map(|(_, n)| *n).unwrap()
}

/// Pages, and the number that each of them must have.
pub type Known = Vec<(PageId, u64)>;

/// Makes pages with numbers.
pub fn fill(pager: &Pager) -> Known {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    (0..PAGES as u64).map(|number| (add(pager, owner, number).unwrap(), number)).collect()
}

/// Reads pages, and changes some of them. Pages of the first third are read most often. From time to time
/// there is a checkpoint.
pub fn work(pager: &Pager, known: &mut [(PageId, u64)], steps: u64, random: &mut Random) {
    for step in 0..steps {
        let among = if random.below(2) == 0 { known.len() } else { known.len() / 3 };
        let (id, number) = &mut known[random.below(among as u64) as usize];
        assert_eq!(get(pager, *id).unwrap(), *number, "{id} at step {step}");
        if random.below(3) == 0 {
            *number = 1000 + random.below(1 << 40);
            set(pager, *id, *number).unwrap();
        }
        if random.below(200) == 0 {
            pager.checkpoint().unwrap();
        }
    }
}

/// Checks that all pages have the numbers that they must have.
pub fn check(pager: &Pager, known: &Known) {
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
    known.iter().for_each(|(id, number)| assert_eq!(get(pager, *id).unwrap(), *number, "{id}"));
}

/// Ends the pager as a killed process does. The log has all changes durably.
pub fn kill(pager: Pager) {
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
}

/// Returns whether a shutdown that leaves pages on flash seals them.
pub fn has_seal(design: FlashDesign, layout: HomeLayout, restart: FlashRestart) -> bool {
    let may = design.is_lazy() || design == FlashDesign::DualWrite;
    may && layout == HomeLayout::InPlace && restart == FlashRestart::LazyVerification
}

/// Does the same as `check`, for a cache whose slots are not as they were sealed. The database may stop, and
/// then the next start has all pages.
pub fn check_or_stop(config: &PagerConfig, known: &Known) -> Pager {
    let pager = open(config);
    for (id, number) in known {
        match get(&pager, *id) {
            Ok(found) => assert_eq!(found, *number, "{id}"),
            Err(stopped) => {
                assert!(stopped.to_string().contains("flash"), "{stopped}");
                drop(pager);
                let pager = open(config);
                check(&pager, known);
                return pager;
            }
        }
    }
    check(&pager, known);
    pager
}

/// Returns the file of the cache.
pub fn file(directory: &MemoryDirectory) -> MemoryImage {
    directory.images().into_iter().find(|(name, _)| name == FLASH_FILE).unwrap().1
}

/// Returns the bytes of a file.
pub fn bytes_of(image: &MemoryImage) -> Vec<u8> {
    let mut bytes = vec![0; image.len_bytes() as usize];
    image.read(0, &mut bytes);
    bytes
}

/// Puts bytes at the beginning of the file of the cache.
pub fn put(directory: &MemoryDirectory, bytes: &[u8]) {
    let file =
        directory.open(FLASH_FILE, varve_device::OpenHow::existing(varve_device::Space::Flash)).unwrap();
    let bytes = varve_device::AlignedBuf::copy_of(bytes);
    file.write_at(0, &bytes, varve_device::Purpose::FlashPage, varve_device::Durability::Now).unwrap();
}

/// Returns the warnings of the start about the cache.
pub fn warned(pager: &Pager) -> Vec<String> {
    pager.warnings().into_iter().filter(|warning| warning.starts_with("the flash cache")).collect()
}
