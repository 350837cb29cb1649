//! Compressed pages are read back correctly with every algorithm, and each page says how it is stored.

use std::sync::Arc;

use crate::common::{add, config, get, open, set, stored, with_stored};
use varve_device::MemoryDirectory;
use varve_pager::{Algorithm, Compression, PageId, Pager, PagerConfig, PagerError, SpaceId};

const LZ4: Compression = Compression { algorithm: Algorithm::Lz4, level: 0 };
const FLAGS: usize = 19;

fn compressed(directory: &Arc<MemoryDirectory>, how: Compression) -> PagerConfig {
    PagerConfig { compression: how, ..config(directory, 64) }
}

/// Returns a counter of the data files.
fn count(pager: &Pager, name: &str) -> u64 {
    let in_place = pager.stats().levels.into_iter().find(|level| level.part == Some("in-place")).unwrap();
    in_place.counters.into_iter().find(|(counter, _)| *counter == name).unwrap().1
}

fn pages(pager: &Pager, count: u64) -> (u32, Vec<PageId>) {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    (owner, (0..count).map(|number| add(pager, owner, number).unwrap()).collect())
}

#[test]
fn pages_survive_eviction_restart_and_crash_with_every_algorithm() {
    for algorithm in Algorithm::ALL {
        let directory = MemoryDirectory::new();
        let config = compressed(&directory, Compression::of(algorithm));
        let pager = open(&config);
        let (_, ids) = pages(&pager, 300);
        pager.shutdown().unwrap();
        let expected = if algorithm == Algorithm::None { 0 } else { 300 };
        assert!(count(&pager, "pages_compressed") >= expected, "{algorithm}");
        drop(pager);
        for round in 1..3 {
            let pager = open(&config);
            for (number, id) in ids.iter().enumerate() {
                assert_eq!(get(&pager, *id).unwrap(), number as u64 * round, "{algorithm}: page {id}");
                set(&pager, *id, number as u64 * (round + 1)).unwrap();
            }
            pager.flush_log(pager.log().end()).unwrap();
            assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{algorithm}");
            assert!(count(&pager, "pages_decompressed") >= expected, "{algorithm}");
        }
    }
}

#[test]
fn fewer_bytes_are_written() {
    let directory = MemoryDirectory::new();
    let pager = open(&compressed(&directory, LZ4));
    let (_, ids) = pages(&pager, 100);
    pager.shutdown().unwrap();
    let (plain, stored_bytes) = (count(&pager, "plain_bytes"), count(&pager, "stored_bytes"));
    assert!(plain >= 100 * 4096 && stored_bytes * 6 < plain, "{stored_bytes} of {plain}");
    let bytes = stored(&directory, ids[7]);
    assert_eq!(bytes[FLAGS], 1);
    assert!(bytes[512..].iter().all(|byte| *byte == 0), "one sector holds it");
}

/// The stored form can be changed at any time. Pages that were written earlier keep their form until they are
/// written again.
#[test]
fn pages_of_several_forms_lie_side_by_side() {
    let directory = MemoryDirectory::new();
    let pager = open(&config(&directory, 64));
    let (owner, ids) = pages(&pager, 3);
    let others = pages(&pager, 1).1;
    let flush = || while pager.tick_write(100).unwrap() > 0 {};
    let form = |id: PageId| (stored(&directory, id)[FLAGS], stored(&directory, id)[24]);
    flush();
    assert_eq!(form(ids[0]), (0, 0));
    pager.set_default_compression(LZ4).unwrap();
    set(&pager, ids[1], 10).unwrap();
    flush();
    let zstd = Compression { algorithm: Algorithm::Zstd, level: 19 };
    pager.set_compression(SpaceId::DATA, &[(owner, Some(zstd))]);
    set(&pager, ids[2], 20).unwrap();
    set(&pager, others[0], 30).unwrap();
    flush();
    assert_eq!(
        ids.iter().chain(&others).map(|id| form(*id)).collect::<Vec<_>>(),
        [(0, 0), (1, 1), (1, 7), (1, 1)]
    );
    pager.set_compression(SpaceId::DATA, &[(owner, Some(Compression::NONE))]);
    set(&pager, ids[2], 21).unwrap();
    flush();
    assert_eq!(form(ids[2]), (0, 0), "a longer form over a shorter one");
    pager.set_compression(SpaceId::DATA, &[(owner, None)]);
    set(&pager, ids[0], 1).unwrap();
    pager.shutdown().unwrap();
    assert_eq!(form(ids[0]), (1, 1));
    let pager = open(&config(&directory, 64));
    let found: Vec<u64> = ids.iter().chain(&others).map(|id| get(&pager, *id).unwrap()).collect();
    assert_eq!(found, [1, 10, 21, 30]);
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

/// When redo changes pages, the pager does not know yet which owners have compressed pages. So the pages stay
/// in the form that they had.
#[test]
fn redo_writes_pages_in_the_form_they_had() {
    let directory = MemoryDirectory::new();
    let zstd = Compression::of(Algorithm::Zstd);
    let pager = open(&config(&directory, 64));
    let (owner, ids) = pages(&pager, 3);
    let others = pages(&pager, 1).1;
    pager.prepare_compression(zstd).unwrap();
    pager.set_compression(SpaceId::DATA, &[(owner, Some(zstd))]);
    while pager.tick_write(100).unwrap() > 0 {}
    pager.checkpoint().unwrap();
    for id in ids.iter().chain(&others) {
        set(&pager, *id, 7).unwrap();
    }
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let pager = open(&config(&directory, 64));
    while pager.tick_write(100).unwrap() > 0 {}
    let form = |id: PageId| (stored(&directory, id)[FLAGS], stored(&directory, id)[24]);
    assert_eq!([ids[0], ids[2], others[0]].map(form), [(1, 7), (1, 7), (0, 0)]);
    pager.tell_compression(SpaceId::DATA, &[]).unwrap();
    set(&pager, ids[0], 8).unwrap();
    pager.shutdown().unwrap();
    assert_eq!(form(ids[0]), (0, 0), "what was learned goes when the owners are told");
}

/// No log record names owners that have the default form. After a start with another default, redo learns
/// their form from their pages.
#[test]
fn redo_learns_the_form_of_pages_under_another_default() {
    let directory = MemoryDirectory::new();
    let pager = open(&compressed(&directory, LZ4));
    let ids = pages(&pager, 3).1;
    while pager.tick_write(100).unwrap() > 0 {}
    pager.checkpoint().unwrap();
    ids.iter().for_each(|id| set(&pager, *id, 7).unwrap());
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let pager = open(&config(&directory, 64));
    while pager.tick_write(100).unwrap() > 0 {}
    let form = |id: PageId| (stored(&directory, id)[FLAGS], stored(&directory, id)[24]);
    assert_eq!([ids[0], ids[2]].map(form), [(1, 1); 2]);
    pager.tell_compression(SpaceId::DATA, &[]).unwrap();
    set(&pager, ids[0], 8).unwrap();
    pager.shutdown().unwrap();
    assert_eq!(form(ids[0]), (0, 0), "what was learned goes when the owners are told");
}

/// Redo makes pages of owners of which it reads no page. An earlier version wrote these pages in the default
/// form, and also pages of owners without compression.
#[test]
fn redo_knows_the_form_of_pages_that_it_makes() {
    let zstd = Compression { algorithm: Algorithm::Zstd, level: 5 };
    for is_long in [false, true] {
        let directory = MemoryDirectory::new();
        let config = compressed(&directory, LZ4);
        let pager = open(&config);
        pager.prepare_compression(zstd).unwrap();
        let owners = [0; 5].map(|_| pager.create_segment(SpaceId::DATA).unwrap());
        let told = [Some(zstd), Some(Compression::NONE), None, Some(zstd), Some(zstd)];
        for (owner, how) in owners.iter().zip(told) {
            pager.set_compression(SpaceId::DATA, &[(*owner, how)]);
        }
        pager.set_compression(SpaceId::DATA, &[(owners[3], None)]);
        // This is done at the end of an owner. The next owner may get its number.
        pager.forget_compression(SpaceId::DATA, owners[4]);
        // The first notes are cut off the log, and only a few notes at a time are written again.
        for _ in 0..if is_long { 300 } else { 0 } {
            crate::common::note(&pager, 10_000).unwrap();
            pager.checkpoint().unwrap();
        }
        let used = pager.log().stats().used_bytes;
        assert!(!is_long || used < crate::common::SEGMENT_BYTES, "{used} bytes of log are kept");
        let ids = owners.map(|owner| add(&pager, owner, 7).unwrap());
        pager.flush_log(pager.log().end()).unwrap();
        drop(pager);
        let pager = open(&config);
        while pager.tick_write(100).unwrap() > 0 {}
        let form = |id: PageId| (stored(&directory, id)[FLAGS], stored(&directory, id)[24]);
        assert_eq!(ids.map(form), [(1, 7), (0, 0), (1, 1), (1, 1), (1, 1)], "{is_long}");
        // The pager was not told the owners' compressions after the start. After another crash they are still
        // as before.
        ids.iter().for_each(|id| set(&pager, *id, 8).unwrap());
        let more = owners.map(|owner| add(&pager, owner, 9).unwrap());
        pager.checkpoint().unwrap();
        pager.flush_log(pager.log().end()).unwrap();
        drop(pager);
        let pager = open(&config);
        while pager.tick_write(100).unwrap() > 0 {}
        assert_eq!(more.map(form), [(1, 7), (0, 0), (1, 1), (1, 1), (1, 1)], "{is_long}");
        assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
    }
}

/// At a start the engine tells the pager the forms of all owners. From then on the log has them, and also the
/// forms that were set earlier.
#[test]
fn what_is_told_at_a_start_is_noted() {
    let directory = MemoryDirectory::new();
    let config = config(&directory, 64);
    let pager = open(&config);
    pager.prepare_compression(LZ4).unwrap();
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    pager.shutdown().unwrap();
    drop(pager);
    let pager = open(&config);
    pager.tell_compression(SpaceId::DATA, &[(owner, LZ4)]).unwrap();
    let id = add(&pager, owner, 7).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let pager = open(&config);
    while pager.tick_write(100).unwrap() > 0 {}
    assert_eq!((stored(&directory, id)[FLAGS], stored(&directory, id)[24]), (1, 1));
}

#[test]
fn damage_is_named() {
    let directory = MemoryDirectory::new();
    let pager = open(&compressed(&directory, LZ4));
    let (_, ids) = pages(&pager, 3);
    pager.shutdown().unwrap();
    let bytes = stored(&directory, ids[0]);
    let length = 40 + usize::from(bytes[28]);
    assert!((60..512).contains(&length));
    for at in (0..length).chain([600]) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let directory = with_stored(&directory, ids[0], &damaged);
        let pager = open(&compressed(&directory, LZ4));
        match get(&pager, ids[0]) {
            Ok(number) => assert_eq!((number, at), (0, 600), "what lies behind is not looked at"),
            Err(error) => {
                assert!(matches!(error, PagerError::DamagedPage { id, .. } if id == ids[0]), "{at}: {error}");
                assert!(
                    pager.check().unwrap().damages.iter().any(|damage| damage.contains(&ids[0].to_string()))
                );
            }
        }
        assert_eq!(get(&pager, ids[1]).unwrap(), 1);
    }
}

/// A torn page is repaired from its compressed copy.
#[test]
fn a_torn_page_is_mended() {
    let directory = MemoryDirectory::new();
    let pager = open(&compressed(&directory, LZ4));
    let (_, ids) = pages(&pager, 1);
    while pager.tick_write(100).unwrap() > 0 {}
    pager.checkpoint().unwrap();
    set(&pager, ids[0], 2).unwrap();
    assert_eq!(pager.tick_write(1).unwrap(), 1);
    let mut torn = stored(&directory, ids[0]);
    torn[45..].fill(0xAA);
    let crashed = with_stored(&directory, ids[0], &torn);
    let pager = open(&compressed(&crashed, LZ4));
    assert_eq!(get(&pager, ids[0]).unwrap(), 2);
}

#[test]
fn levels_that_are_none_are_refused() {
    let directory = MemoryDirectory::new();
    let config = compressed(&directory, Compression { algorithm: Algorithm::Zlib, level: 10 });
    let Err(error) = Pager::open(config, Arc::new(crate::common::NoOps)) else {
        panic!("opened with level 10")
    };
    assert_eq!(error.to_string(), "compression level 10: zlib has levels 1 to 9");
}
