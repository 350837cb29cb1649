//! A device fails. The caller gets a clean error, nothing is acknowledged that is not safe, and no
//! acknowledged change is lost.

use std::sync::Arc;

use crate::common::{NoOps, add, config, get, open, set};
use varve_device::{Directory, ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, Space, When};
use varve_pager::{PageId, Pager, PagerConfig, PagerError, SpaceId};

/// Returns a configuration whose data device can be made to fail.
fn faulty(directory: &Arc<MemoryDirectory>) -> (PagerConfig, Arc<Faulty>) {
    let faulty = Faulty::wrap(directory.clone() as Arc<dyn Directory>);
    let mut config = config(directory, 64);
    config.data = faulty.clone();
    (config, faulty)
}

fn rule(operation: Operation, when: When, kind: ErrorKind) -> Rule {
    Rule { operation: Some(operation), space: Some(Space::Data), when, fault: Fault::Fails(kind) }
}

/// Lets each n-th operation of one kind fail once. After a restart, everything that was flushed is there. A
/// full device stays full until an error was seen, because a single refused write is tried again at once.
fn fail_every(operation: Operation, kind: &ErrorKind) {
    let mut seen_failures = 0;
    for n in 1..60 {
        let directory = MemoryDirectory::new();
        let (config, device) = faulty(&directory);
        let pager = open(&config);
        let is_full = kind == &ErrorKind::NoSpace;
        device.arm(rule(operation, if is_full { When::From(n) } else { When::Nth(n) }, kind.clone()));
        let mut flushed: Vec<(PageId, u64)> = Vec::new();
        let failure = run(&pager, &mut flushed).err();
        let failed = failure.is_some();
        if is_full {
            device.disarm();
        }
        seen_failures += usize::from(failed);
        if failed && operation != Operation::SetLen && operation != Operation::Read {
            let again = flushed.first().map_or(Ok(()), |(id, _)| set(&pager, *id, 5000));
            let again = again.and_then(|()| pager.flush_log(pager.log().end()));
            let is_stopped = matches!(again, Err(PagerError::Stopped { .. }));
            assert_eq!(is_stopped, !is_full, "{operation:?} {n}: {again:?} after {failure:?}");
            if !is_stopped {
                pager.shutdown().unwrap();
            }
        }
        drop(pager);
        device.disarm();
        let pager = open(&self::config_of(&directory));
        for (id, number) in &flushed {
            assert!(get(&pager, *id).unwrap() >= *number, "{operation:?} {n}: page {id}");
        }
        assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{operation:?} {n}");
    }
    assert!(seen_failures > 5, "{operation:?}: only {seen_failures} failures reached the caller");
}

fn config_of(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    config(directory, 64)
}

fn run(pager: &Pager, flushed: &mut Vec<(PageId, u64)>) -> Result<(), PagerError> {
    let owner = pager.create_segment(SpaceId::DATA)?;
    for number in 0..150 {
        let id = add(pager, owner, number)?;
        if number > 70 {
            set(pager, flushed[number as usize % 50].0, 1000 + number)?;
        }
        pager.flush_log(pager.log().end())?;
        flushed.push((id, number));
        if number % 40 == 39 {
            pager.tick_write(30)?;
            pager.checkpoint()?;
        }
    }
    Ok(())
}

#[test]
fn a_failed_write_stops_and_loses_nothing() {
    fail_every(Operation::Write, &ErrorKind::Io(5));
}

#[test]
fn a_full_device_under_a_hole_goes_on_and_loses_nothing() {
    fail_every(Operation::Write, &ErrorKind::NoSpace);
}

#[test]
fn a_failed_flush_stops_and_loses_nothing() {
    fail_every(Operation::Flush, &ErrorKind::Io(5));
}

#[test]
fn a_failed_read_is_an_error_of_that_read_only() {
    fail_every(Operation::Read, &ErrorKind::Io(5));
}

#[test]
fn a_full_device_refuses_growth_and_goes_on() {
    let directory = MemoryDirectory::new();
    let (config, device) = faulty(&directory);
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    device.arm(rule(Operation::SetLen, When::From(1), ErrorKind::NoSpace));
    let mut ids = Vec::new();
    let error = loop {
        match add(&pager, owner, ids.len() as u64) {
            Ok(id) => ids.push(id),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, PagerError::Device(device) if device.is_no_space()), "{error}");
    assert!(matches!(pager.reserve(SpaceId::DATA, 1000), Err(PagerError::Device(_))));
    set(&pager, ids[0], 77).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    device.disarm();
    ids.push(add(&pager, owner, 78).unwrap());
    assert_eq!(get(&pager, ids[0]).unwrap(), 77);
    assert_eq!(get(&pager, *ids.last().unwrap()).unwrap(), 78);
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

#[test]
fn unusable_directories_are_refused_with_the_reason() {
    let open_error = |config: &PagerConfig| {
        Pager::open(config.clone(), Arc::new(NoOps)).err().expect("must be refused").to_string()
    };
    let directory = MemoryDirectory::new();
    let good = config(&directory, 64);
    open(&good).shutdown().unwrap();
    let mut other = good.clone();
    other.control = MemoryDirectory::new();
    assert!(open_error(&other).contains("control file"), "{}", open_error(&other));
    let mut missing = good.clone();
    missing.rollback = MemoryDirectory::new();
    assert!(open_error(&missing).contains("rollback.varve"), "{}", open_error(&missing));
    let mut foreign = good.clone();
    let stranger = MemoryDirectory::new();
    open(&config(&stranger, 64)).shutdown().unwrap();
    foreign.rollback = stranger;
    assert!(open_error(&foreign).contains("another database"), "{}", open_error(&foreign));
    let mut tiny = good;
    tiny.pool_bytes = 4096;
    assert!(open_error(&tiny).contains("frames"));
}

/// A read that finds only dirty pages in a stopped pager is refused at once. In an earlier version, it waited
/// ten seconds for each page.
#[test]
fn reads_of_a_stopped_pager_do_not_wait_for_dirty_pages() {
    let directory = MemoryDirectory::new();
    let (config, device) = faulty(&directory);
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<PageId> = (0..200).map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.checkpoint().unwrap();
    device.arm(rule(Operation::Write, When::From(1), ErrorKind::Io(5)));
    let error = ids.iter().cycle().take(1000).find_map(|id| set(&pager, *id, 1).err());
    assert!(error.is_some());
    let began = std::time::Instant::now();
    let refused = ids.iter().filter_map(|id| get(&pager, *id).err());
    let stopped = refused.filter(|error| matches!(error, PagerError::Stopped { .. })).count();
    assert!(stopped > 100, "only {stopped} reads were refused");
    assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
}
