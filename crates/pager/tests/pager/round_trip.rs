//! Pages survive eviction, a clean restart and a crash.

use crate::common::{add, config, get, open, set};
use varve_device::MemoryDirectory;
use varve_pager::SpaceId;

#[test]
fn pages_survive_eviction() {
    let pager = open(&config(&MemoryDirectory::new(), 64));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<_> = (0..500).map(|number| add(&pager, owner, number).unwrap()).collect();
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(get(&pager, *id).unwrap(), number as u64);
    }
    let stats = pager.stats();
    assert!(stats.misses >= 400 && stats.inline_writes >= 400, "{stats:?}");
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

#[test]
fn pages_survive_a_clean_restart_and_a_crash() {
    let directory = MemoryDirectory::new();
    let config = config(&directory, 64);
    let pager = open(&config);
    assert!(pager.is_new());
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<_> = (0..300).map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.shutdown().unwrap();
    drop(pager);
    for round in 1..4 {
        let pager = open(&config);
        assert!(!pager.is_new());
        for (number, id) in ids.iter().enumerate() {
            assert_eq!(get(&pager, *id).unwrap(), number as u64 * round, "page {id}");
            set(&pager, *id, number as u64 * (round + 1)).unwrap();
        }
        pager.flush_log(pager.log().end()).unwrap();
        assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
        assert!(pager.create_segment(SpaceId::DATA).unwrap() > owner);
        pager.flush_log(pager.log().end()).unwrap();
    }
}

#[test]
fn a_small_database_opens_at_once() {
    let directory = MemoryDirectory::new();
    let start = std::time::Instant::now();
    drop(open(&config(&directory, 256)));
    drop(open(&config(&directory, 256)));
    assert!(start.elapsed().as_millis() < 100, "{:?}", start.elapsed());
}
