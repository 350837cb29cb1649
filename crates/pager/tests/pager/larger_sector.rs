//! A database that was shut down cleanly moves to a device with larger sectors. The first log block after the
//! move does not start where the log ended.
//!
//! In an earlier version, the next opening after a run without log blocks failed ("it was read up to LSN .. a
//! moment ago"), because the list of log lives had a gap.

use std::sync::Arc;

use crate::common::{add, config, get, open, set};
use varve_device::{AlignedBuf, Directory, Durability, MemoryDirectory, OpenHow, Purpose, Space};
use varve_pager::{Algorithm, Compression, PagerConfig, SpaceId};

/// Copies all files.
fn move_to(from: &Arc<MemoryDirectory>, sector_bytes: u32) -> Arc<MemoryDirectory> {
    let to = MemoryDirectory::with_sector(sector_bytes);
    for (name, image) in from.images() {
        let mut bytes = AlignedBuf::new((image.len_bytes() as usize).next_multiple_of(4096));
        image.read(0, &mut bytes[..image.len_bytes() as usize]);
        let file = to.open(&name, OpenHow::new_file(Space::Data)).unwrap();
        if !bytes.is_empty() {
            file.write_at(0, &bytes, Purpose::DataPage, Durability::Now).unwrap();
        }
    }
    to
}

#[test]
fn a_clean_database_opens_any_number_of_times_on_larger_sectors() {
    for commits in 1..10 {
        let small = MemoryDirectory::with_sector(512);
        let pager = open(&config(&small, 64));
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        let id = add(&pager, owner, 0).unwrap();
        for number in 0..commits {
            set(&pager, id, number).unwrap();
            pager.flush_log(pager.log().end()).unwrap();
        }
        pager.shutdown().unwrap();
        drop(pager);
        let large = move_to(&small, 4096);
        for _ in 0..3 {
            assert_eq!(get(&open(&config(&large, 64)), id).unwrap(), commits - 1);
        }
        let pager = open(&config(&large, 64));
        set(&pager, id, 100).unwrap();
        pager.flush_log(pager.log().end()).unwrap();
        drop(pager);
        assert_eq!(get(&open(&config(&large, 64)), id).unwrap(), 100);
    }
}

/// In an earlier version, there was no warning about compression in place that can save nothing.
#[test]
fn a_page_of_one_sector_says_that_compression_saves_nothing() {
    for (sector_bytes, saves) in [(512, true), (4096, false)] {
        let directory = MemoryDirectory::with_sector(sector_bytes);
        let mut config = config(&directory, 64);
        assert!(open(&config).warnings().is_empty());
        config.compression = Compression::of(Algorithm::Zstd);
        let said = open(&config).warnings();
        assert_eq!(said.iter().all(|said| !said.contains("compression saves nothing")), saves, "{said:?}");
    }
    let directory = MemoryDirectory::with_sector(4096);
    let config = PagerConfig { page_size: 8192, pool_bytes: 64 * 8192, ..config(&directory, 64) };
    let config = PagerConfig { compression: Compression::of(Algorithm::Zstd), ..config };
    assert!(open(&config).warnings().is_empty());
}
