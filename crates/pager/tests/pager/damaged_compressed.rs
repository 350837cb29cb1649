//! A compressed page has a wrong length, checksum or algorithm, in the data file or in its doublewrite copy.
//! Pages at fixed offsets and packed pages are tested. A page is repaired if there is a newer copy. Otherwise
//! an error names the page and the damage. No other data is lost, and `varve check` reports the damage.

use std::sync::Arc;

use crate::common::{NoOps, add, get, open, set};
use varve_device::{MemoryDirectory, MemoryImage};
use varve_pager::{Algorithm, Compression, HomeLayout, PackedConfig, PageId, Pager, PagerConfig, SpaceId};

const PAGE_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;
const HOME: &str = "data.varve";
const COPIES: &str = "doublewrite.varve";
const PACKED: HomeLayout =
    HomeLayout::Packed(PackedConfig { extent_bytes: 64 << 10, ..PackedConfig::DEFAULT });

/// Offsets of fields in the stored form (`home/compression/stored_page.rs`).
const PAGE_NO: usize = 4;
const FLAGS: usize = 19;
const ALGORITHM: usize = 24;
const LENGTH: usize = 28;
const HEADER_BYTES: usize = 40;

/// A damage of a stored page.
struct Wrong {
    name: &'static str,
    /// Damages the bytes of the page.
    spoil: fn(&mut [u8]),
    /// Whether the checksum is right in spite of the damage.
    sealed: bool,
    /// A part of the text of the error.
    says: &'static str,
}

fn used(stored: &[u8]) -> usize {
    HEADER_BYTES + u32::from_le_bytes(stored[LENGTH..LENGTH + 4].try_into().unwrap()) as usize
}

fn set_length(stored: &mut [u8], bytes: u32) {
    stored[LENGTH..LENGTH + 4].copy_from_slice(&bytes.to_le_bytes());
}

const TABLE: [Wrong; 9] = [
    Wrong { name: "checksum", spoil: |page| page[0] ^= 1, sealed: false, says: "its checksum is" },
    Wrong {
        name: "body",
        spoil: |page| page[HEADER_BYTES + 3] ^= 0x80,
        sealed: false,
        says: "its checksum is",
    },
    Wrong {
        name: "longer than its place",
        spoil: |page| set_length(page, 1 << 20),
        sealed: false,
        says: "its compressed form says that it has 1048576 bytes",
    },
    Wrong {
        name: "length of all ones",
        spoil: |page| set_length(page, u32::MAX),
        sealed: false,
        says: "says that it has",
    },
    Wrong {
        name: "cut short",
        spoil: |page| set_length(page, (used(page) - HEADER_BYTES - 5) as u32),
        sealed: true,
        says: "its compressed form",
    },
    Wrong {
        name: "unknown algorithm",
        spoil: |page| page[ALGORITHM] = 99,
        sealed: true,
        says: "made by algorithm 99, which this program does not know",
    },
    Wrong {
        name: "another algorithm",
        spoil: |page| page[ALGORITHM] = Algorithm::Zlib.code(),
        sealed: true,
        says: "is refused by zlib",
    },
    Wrong {
        name: "another page size",
        spoil: |page| page[ALGORITHM + 1] = 13,
        sealed: true,
        says: "is that of a page of 2^13 bytes",
    },
    Wrong {
        name: "other contents",
        spoil: |page| page[32] ^= 1,
        sealed: true,
        says: "gives other bytes than were compressed",
    },
];

fn config(directory: &Arc<MemoryDirectory>, layout: HomeLayout) -> PagerConfig {
    PagerConfig {
        compression: Compression::of(Algorithm::Lz4),
        layout,
        ..crate::common::config(directory, 64)
    }
}

/// Returns the byte offsets at which a file has a compressed form of the page, in any version.
fn places(file: &MemoryImage, id: PageId) -> Vec<u64> {
    let mut sector = vec![0; SECTOR_BYTES];
    let is_it = |sector: &[u8]| {
        sector[PAGE_NO..PAGE_NO + 4] == id.no().0.to_le_bytes()
            && sector[FLAGS] == 1
            && sector[ALGORITHM] == Algorithm::Lz4.code()
    };
    (0..file.len_bytes())
        .step_by(SECTOR_BYTES)
        .filter(|at| {
            file.read(*at, &mut sector);
            is_it(&sector)
        })
        .collect()
}

/// Returns the directory with each stored form of the page in a file damaged, and the number of these forms.
fn spoilt(
    directory: &MemoryDirectory,
    name: &str,
    id: PageId,
    wrong: &Wrong,
) -> (Arc<MemoryDirectory>, usize) {
    let mut images = directory.images();
    let (_, file) = images.iter_mut().find(|(found, _)| found == name).unwrap();
    let places = places(file, id);
    for at in &places {
        let mut page = vec![0; PAGE_BYTES.min((file.len_bytes() - at) as usize)];
        file.read(*at, &mut page);
        let sectors = used(&page).next_multiple_of(SECTOR_BYTES);
        page.truncate(sectors);
        (wrong.spoil)(&mut page);
        if wrong.sealed {
            let checksum = crc32c::crc32c(&page[PAGE_NO..used(&page)]);
            page[..PAGE_NO].copy_from_slice(&checksum.to_le_bytes());
        }
        file.write(*at, &page);
    }
    (MemoryDirectory::from_images(images), places.len())
}

/// Returns a database of pages with the numbers 0, 1, 2, ..., which are all in the data files.
fn pages(config: &PagerConfig) -> (Pager, Vec<PageId>) {
    let pager = open(config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids = (0..5).map(|number| add(&pager, owner, number).unwrap()).collect();
    while pager.tick_write(100).unwrap() > 0 {}
    pager.checkpoint().unwrap();
    (pager, ids)
}

/// Checks that reads of the page fail with an error that names the page and the damage, that the check finds
/// the damage, and that all other pages can be read and changed.
fn assert_named(
    directory: &Arc<MemoryDirectory>,
    layout: HomeLayout,
    ids: &[PageId],
    wrong: &Wrong,
    what: &str,
) {
    let pager = open(&config(directory, layout));
    for round in 0..2 {
        let error = get(&pager, ids[0]).unwrap_err().to_string();
        assert!(error.contains(&format!("page {}", ids[0])) && error.contains(wrong.says), "{what}: {error}");
        for (id, number) in ids.iter().zip(0..).skip(1) {
            assert_eq!(get(&pager, *id).unwrap(), number + round * 10, "{what}");
            set(&pager, *id, number + 10).unwrap();
        }
    }
    let damages = pager.check().unwrap().damages;
    let named: Vec<_> = damages.iter().filter(|damage| damage.contains(&ids[0].to_string())).collect();
    assert!(!named.is_empty() && named.len() == damages.len(), "{what}: {damages:?}");
    pager.shutdown().unwrap();
    drop(pager);
    let pager = open(&config(directory, layout));
    assert_eq!(get(&pager, ids[1]).unwrap(), 11, "{what}: after a restart");
    assert!(get(&pager, ids[0]).is_err(), "{what}: after a restart");
}

/// No newer version of the page exists anywhere.
#[test]
fn at_rest_it_is_named() {
    for layout in [HomeLayout::InPlace, PACKED] {
        let directory = MemoryDirectory::new();
        let (pager, ids) = pages(&config(&directory, layout));
        pager.shutdown().unwrap();
        drop(pager);
        for wrong in &TABLE {
            let what = format!("{}, {layout:?}", wrong.name);
            let (damaged, count) = spoilt(&directory, HOME, ids[0], wrong);
            assert!(count > 0, "{what}: nothing was spoilt");
            assert_named(&damaged, layout, &ids, wrong, &what);
        }
    }
}

/// Returns a database that crashed while it wrote a page with changes after the redo position. Either the
/// page in the data file or the copy is torn.
fn written() -> (Arc<MemoryDirectory>, Vec<PageId>) {
    let directory = MemoryDirectory::new();
    let (pager, ids) = pages(&config(&directory, HomeLayout::InPlace));
    set(&pager, ids[0], 2).unwrap();
    assert_eq!(pager.tick_write(1).unwrap(), 1);
    drop(pager);
    (MemoryDirectory::from_images(directory.images()), ids)
}

#[test]
fn a_copy_mends_what_is_damaged_at_home() {
    let (crashed, ids) = written();
    for wrong in &TABLE {
        let (damaged, count) = spoilt(&crashed, HOME, ids[0], wrong);
        assert_eq!(count, 1, "{}", wrong.name);
        let pager = open(&config(&damaged, HomeLayout::InPlace));
        assert_eq!(get(&pager, ids[0]).unwrap(), 2, "{}", wrong.name);
        assert_eq!(get(&pager, ids[1]).unwrap(), 1, "{}", wrong.name);
        assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{}", wrong.name);
    }
}

#[test]
fn a_damaged_copy_is_of_no_use_and_no_harm() {
    let (crashed, ids) = written();
    for wrong in &TABLE {
        let (damaged, count) = spoilt(&crashed, COPIES, ids[0], wrong);
        assert!(count > 0, "{}", wrong.name);
        let pager = open(&config(&damaged, HomeLayout::InPlace));
        assert_eq!(get(&pager, ids[0]).unwrap(), 2, "{}: home is whole", wrong.name);
        drop(pager);
        // If home is damaged, too, no contents are made up. When the right bytes are put back, everything is
        // there.
        let torn = &TABLE[1];
        let (both, _) = spoilt(&damaged, HOME, ids[0], torn);
        match Pager::open(config(&both, HomeLayout::InPlace), Arc::new(NoOps)) {
            Ok(pager) => {
                let error = get(&pager, ids[0]).unwrap_err().to_string();
                assert!(error.contains(&ids[0].to_string()), "{}: {error}", wrong.name);
            }
            Err(error) => assert!(error.to_string().contains(&ids[0].to_string()), "{}: {error}", wrong.name),
        }
        // The same damage done a second time puts the old bytes back.
        let (mended, count) = spoilt(&both, HOME, ids[0], torn);
        assert_eq!(count, 1, "{}", wrong.name);
        assert_eq!(get(&open(&config(&mended, HomeLayout::InPlace)), ids[0]).unwrap(), 2, "{}", wrong.name);
    }
}
