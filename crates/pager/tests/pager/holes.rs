//! Compressed pages at fixed offsets: their unused space is returned to the device. If a page becomes longer,
//! it gets space again, or the write is refused and the page keeps its old stored bytes.

use std::sync::Arc;

use crate::common::{Random, add, config, get, is_full, open, set, stored};
use varve_device::{
    Directory, Emulated, Fault, Faulty, MemoryDirectory, OpenHow, Operation, Profile, Rule, Space, When,
};
use varve_pager::{
    Algorithm, Compression, NvmConfig, PageId, Pager, PagerConfig, ProtectionKind, SpaceId, Trim,
};

const PAGES: u64 = 40;

fn compressed(config: PagerConfig) -> PagerConfig {
    PagerConfig { compression: Compression::of(Algorithm::Lz4), ..config }
}

/// Gives a page `noise` bytes that don't compress, and a number.
fn spoil(pager: &Pager, id: PageId, number: u64, noise: usize) {
    let mut random = Random(number + 1);
    let bytes: Vec<u8> = (0..noise).map(|_| random.next() as u8).collect();
    let mut mtr = pager.begin().unwrap();
    let page = mtr.x(id).unwrap();
    mtr.write(page, 100, &number.to_le_bytes());
    for (at, piece) in bytes.chunks(1000).enumerate() {
        mtr.write(page, 200 + 1000 * at, piece);
    }
    mtr.commit();
}

/// Makes a page as short as possible again.
fn clear(pager: &Pager, id: PageId, number: u64, noise: usize) {
    let mut mtr = pager.begin().unwrap();
    let page = mtr.x(id).unwrap();
    mtr.write(page, 100, &number.to_le_bytes());
    for at in (0..noise).step_by(1000) {
        mtr.write(page, 200 + at, &[0; 1000][..1000.min(noise - at)]);
    }
    mtr.commit();
}

fn pages(pager: &Pager) -> Vec<PageId> {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    (0..PAGES).map(|number| add(pager, owner, number).unwrap()).collect()
}

fn write_all(pager: &Pager) {
    while pager.tick_write(100).unwrap() > 0 {}
    while pager.tick_nvm(100).unwrap() > 0 {}
}

fn count(pager: &Pager, name: &str) -> u64 {
    let in_place = pager.stats().levels.into_iter().find(|level| level.part == Some("in-place")).unwrap();
    in_place.counters.into_iter().find(|(counter, _)| *counter == name).unwrap().1
}

fn assert_numbers(pager: &Pager, ids: &[PageId], first: u64) {
    for (id, number) in ids.iter().zip(first..) {
        assert_eq!(get(pager, *id).unwrap(), number, "{id}");
    }
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

/// Under any protection, pages that were long and become short keep no blocks after them.
#[test]
fn what_is_behind_a_page_goes_under_every_protection() {
    let copies = ProtectionKind::NvmDoublewrite { batch_slots: 8, single_slots: 2 };
    let twice = ProtectionKind::Doublewrite { batch_slots: 8, single_slots: 2 };
    for kind in [twice, copies, ProtectionKind::FullPageLog, ProtectionKind::Nvm, ProtectionKind::None] {
        let directory = MemoryDirectory::new();
        let mut config = compressed(config(&directory, 64));
        config.protection = kind;
        if matches!(kind, ProtectionKind::NvmDoublewrite { .. } | ProtectionKind::Nvm) {
            let (size_bytes, log_bytes) = (1 << 20, 0);
            config.nvm = Some(NvmConfig { directory: directory.clone(), size_bytes, log_bytes });
        }
        let pager = open(&config);
        let ids = pages(&pager);
        for round in 1..4 {
            (0..PAGES).for_each(|no| spoil(&pager, ids[no as usize], no, 3000));
            write_all(&pager);
            assert!(stored(&directory, ids[3])[3000..].iter().any(|byte| *byte != 0), "{}", kind.name());
            (0..PAGES).for_each(|no| clear(&pager, ids[no as usize], no + round, 3000));
            write_all(&pager);
            assert_numbers(&pager, &ids, round);
        }
        let trims = count(&pager, "trims");
        assert!(trims >= 3 * PAGES, "{}: {trims}", kind.name());
        assert!(count(&pager, "trimmed_bytes") >= trims * 512);
        pager.shutdown().unwrap();
        drop(pager);
        for id in &ids {
            let bytes = stored(&directory, *id);
            assert!(bytes[19] == 1 && bytes[512..].iter().all(|byte| *byte == 0), "{}: {id}", kind.name());
        }
        assert_numbers(&open(&config), &ids, 3);
    }
}

#[test]
fn trim_is_switched_on_line() {
    let directory = MemoryDirectory::new();
    let config = PagerConfig { trim: Trim::Off, ..compressed(config(&directory, 64)) };
    let pager = open(&config);
    let ids = pages(&pager);
    write_all(&pager);
    assert_eq!((count(&pager, "trims"), directory.accounting().punched(Space::Data).operations), (0, 0));
    pager.set_trim(Trim::Auto);
    set(&pager, ids[0], 7).unwrap();
    write_all(&pager);
    let punched = directory.accounting().punched(Space::Data);
    assert_eq!((count(&pager, "trims"), count(&pager, "trimmed_bytes")), (punched.operations, punched.bytes));
    assert!(punched.operations > 0);
    pager.set_trim(Trim::Off);
    set(&pager, ids[1], 7).unwrap();
    write_all(&pager);
    assert_eq!(directory.accounting().punched(Space::Data), punched);
}

/// Returns a configuration with a device of limited size below a data space with pages of four blocks.
fn of_limited_size(kind: ProtectionKind) -> (PagerConfig, Arc<Emulated>) {
    let directory = MemoryDirectory::new();
    let capacity_bytes = 24 << 20;
    let device =
        Emulated::sized(MemoryDirectory::new(), Profile::shipped("nvme").unwrap(), 1e-6, capacity_bytes);
    let mut config = compressed(config(&directory, 64));
    (config.page_size, config.pool_bytes) = (16384, 64 * 16384);
    (config.log_segment_bytes, config.log_capacity_bytes) = (2 << 20, 16 << 20);
    (config.data, config.protection) = (device.clone(), kind);
    (config, device)
}

/// Takes all the room that the device has left.
fn fill(device: &Emulated) {
    let file = device.open("filler", OpenHow::or_create(Space::Data)).unwrap();
    let mut bytes = file.len_bytes().unwrap();
    for step in (12..24).rev().map(|bits| 1 << bits) {
        while file.set_len(bytes + step).is_ok() {
            bytes += step;
        }
    }
}

/// Another file has taken the room that pages gave back. The write of a page that becomes longer is refused,
/// and the stored page stays as it was. When there is room again, the page is written to its place. A crash
/// in between loses nothing.
#[test]
fn a_hole_that_finds_no_room_again_costs_no_page() {
    let twice = ProtectionKind::Doublewrite { batch_slots: 8, single_slots: 2 };
    for kind in [twice, ProtectionKind::FullPageLog] {
        let (config, device) = of_limited_size(kind);
        let pager = open(&config);
        let ids = pages(&pager);
        let noise = 12_000;
        write_all(&pager);
        assert!(count(&pager, "trimmed_bytes") >= PAGES * 3 * 4096, "{}", kind.name());
        pager.checkpoint().unwrap();
        fill(&device);
        (0..PAGES).for_each(|no| spoil(&pager, ids[no as usize], no + 100, noise));
        assert!(is_full(&pager.tick_write(100).unwrap_err()), "{}", kind.name());
        assert_numbers(&pager, &ids, 100);
        pager.flush_log(pager.log().end()).unwrap();
        drop(pager);
        let pager = open(&config);
        assert_numbers(&pager, &ids, 100);
        assert!(is_full(&pager.shutdown().unwrap_err()));
        drop(pager);
        let pager = open(&config);
        device.remove("filler").unwrap();
        write_all(&pager);
        assert_numbers(&pager, &ids, 100);
        pager.shutdown().unwrap();
        drop(pager);
        assert_numbers(&open(&config), &ids, 100);
    }
}

/// A full device takes the first half of a page that fills a hole again. Then the process dies.
#[test]
fn a_hole_that_is_half_filled_is_mended() {
    let mut fired = 0;
    for n in 1..10 {
        let directory = MemoryDirectory::new();
        let faulty = Faulty::wrap(directory.clone());
        let config = PagerConfig { data: faulty.clone(), ..compressed(config(&directory, 64)) };
        let pager = open(&config);
        let ids = pages(&pager);
        write_all(&pager);
        pager.checkpoint().unwrap();
        (0..PAGES).for_each(|no| spoil(&pager, ids[no as usize], no + 100, 3000));
        let (operation, space) = (Some(Operation::Write), Some(Space::Data));
        faulty.arm(Rule { operation, space, when: When::Every(n), fault: Fault::HalfFull });
        let _refused_or_not: Vec<_> = (0..30).map(|_| pager.tick_write(10)).collect();
        fired += faulty.fired_count();
        pager.flush_log(pager.log().end()).unwrap();
        drop(pager);
        faulty.restart();
        let pager = open(&config);
        assert_numbers(&pager, &ids, 100);
        pager.shutdown().unwrap();
        drop(pager);
        assert_numbers(&open(&config), &ids, 100);
    }
    assert!(fired > 20, "{fired} writes were refused");
}
