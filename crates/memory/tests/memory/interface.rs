//! Results and errors of the allocator's calls: fences, alignment, foreign pointers, a full region, threads,
//! a reopened region.

use std::sync::Arc;
use std::time::Instant;

use varve_device::{Directory, MemoryDirectory, Region};
use varve_memory::{Allocator, MemoryError, Owner, Pointer, SEGMENT_BYTES, Step, Word};

use crate::life::{self, DATABASE, REGION};

fn owner(number: u16) -> Owner {
    Owner::new(number).unwrap_or_else(|| panic!("{number} is an owner"))
}

fn allocator(len_bytes: u64) -> (Arc<MemoryDirectory>, Allocator) {
    let directory = life::empty(len_bytes);
    let allocator = life::open(&*directory).unwrap_or_else(|error| panic!("{error}"));
    (directory, allocator)
}

fn active(allocator: &Allocator, len_bytes: u64) -> Pointer {
    let chunk = allocator.allocate(owner(1), len_bytes).unwrap_or_else(|error| panic!("{error}"));
    allocator.activate(chunk).unwrap_or_else(|error| panic!("{error}"));
    chunk
}

#[test]
fn fences_are_as_few_as_said() {
    let (_, allocator) = allocator(1 << 20);
    let fences = |run: &dyn Fn() -> Result<(), MemoryError>| {
        let before = allocator.region().tally();
        run().unwrap_or_else(|error| panic!("{error}"));
        let after = allocator.region().tally();
        let lines = after.written_back_lines - before.written_back_lines;
        (after.fences_count - before.fences_count, lines)
    };
    let word = allocator.create_root("root").unwrap_or_else(|error| panic!("{error}"));
    let insert = || allocator.allocate(owner(1), 1000).and_then(|chunk| allocator.activate(chunk));
    assert_eq!(fences(&insert), (2, 2), "the first one needs a slab");
    assert_eq!(fences(&insert), (1, 1));
    let unfenced = || allocator.allocate(owner(1), 1000).and_then(|chunk| allocator.activate_unfenced(chunk));
    assert_eq!(fences(&unfenced), (0, 1));
    let run = || allocator.allocate(owner(1), 100_000).and_then(|chunk| allocator.activate(chunk));
    assert_eq!(fences(&run), (1, 1));
    let reserved = || allocator.allocate(owner(1), 1000).and_then(|chunk| allocator.free(chunk));
    assert_eq!(fences(&reserved), (0, 0));
    let freed = [active(&allocator, 1000), active(&allocator, 1000)];
    assert_eq!(fences(&|| allocator.free_all(&freed)), (1, 1), "both are in one word of a bitmap");
    let two = || {
        let chunks = [allocator.allocate(owner(1), 1000)?, allocator.allocate(owner(1), 1000)?];
        allocator.activate_all(&chunks)
    };
    assert_eq!(fences(&two), (1, 1));
    let old = active(&allocator, 1000);
    let publish = || {
        let chunk = allocator.allocate(owner(1), 1000)?;
        let store = Step::Store { word, value: chunk.to_u64() };
        allocator.publish(&[Step::Activate(chunk), store, Step::Free(old)])
    };
    assert_eq!(fences(&publish), (3, 5), "the lane twice, two words of a bitmap, the root");
    assert_eq!(fences(&|| allocator.set_root("root", 0)), (1, 1));
}

/// Exact counts of a partition need this. If a thread used another lane, it would store other lines, and
/// these would displace other lines in the modelled cache.
#[test]
fn what_a_thread_stores_does_not_depend_on_other_threads() {
    let stored = || {
        let (_, allocator) = allocator(1 << 20);
        let word = allocator.create_root("root").unwrap_or_else(|error| panic!("{error}"));
        for value in 1..4 {
            let published = allocator.publish(&[Step::Store { word, value }]);
            published.unwrap_or_else(|error| panic!("{error}"));
        }
        let mut bytes = vec![0; 1 << 20];
        allocator.region().read(0, &mut bytes);
        bytes
    };
    let others: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(stored)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    assert_eq!(others.len(), 3);
    assert!(others.into_iter().all(|other| other == stored()));
}

#[test]
fn chunks_are_aligned_and_do_not_overlap() {
    let (_, allocator) = allocator(8 << 20);
    let mut chunks = Vec::new();
    for len_bytes in (0..5000).step_by(7).chain([10_000, 33_000, 70_000, 200_000]) {
        let chunk = allocator.allocate(owner(1), len_bytes).unwrap_or_else(|error| panic!("{error}"));
        let got_bytes = allocator.len_bytes(chunk).unwrap_or_default();
        assert!(got_bytes >= len_bytes);
        assert!(len_bytes < 64 || chunk.to_u64().is_multiple_of(64), "{len_bytes} bytes at {chunk}");
        assert!(len_bytes < 256 || chunk.to_u64().is_multiple_of(256), "{len_bytes} bytes at {chunk}");
        chunks.push((chunk.to_u64(), chunk.to_u64() + got_bytes));
    }
    chunks.sort_unstable();
    assert!(chunks.windows(2).all(|pair| pair[0].1 <= pair[1].0));
}

#[test]
fn wrong_pointers_are_refused_by_name() {
    let (_, allocator) = allocator(1 << 20);
    let (slot, run) = (active(&allocator, 100), active(&allocator, 100_000));
    let at = |offset: u64| Pointer::from_u64(offset);
    let foreign =
        [Pointer::NONE, at(8), at(u64::MAX), at(1 << 20), at(slot.to_u64() + 64), at(run.to_u64() + 64)];
    for pointer in foreign {
        for error in [allocator.free(pointer), allocator.activate(pointer)] {
            assert!(matches!(error, Err(MemoryError::Foreign { pointer: named, .. }) if named == pointer));
        }
    }
    assert_eq!(allocator.activate(slot), Err(MemoryError::AlreadyActive { pointer: slot }));
    assert_eq!(allocator.free_all(&[run, slot, run]), Err(MemoryError::InChange { pointer: run }));
    for chunk in [slot, run] {
        assert_eq!(allocator.free(chunk), Ok(()));
        assert_eq!(allocator.free(chunk), Err(MemoryError::NotAllocated { pointer: chunk }));
    }
    let Some(word) = Word::at(slot.to_u64()) else { panic!("it is aligned") };
    let store = Step::Store { word, value: 1 };
    assert_eq!(allocator.publish(&[store]), Err(MemoryError::ForeignWord { word }));
    let reserved = allocator.allocate(owner(1), 100).unwrap_or_else(|error| panic!("{error}"));
    assert!(allocator.publish(&[Step::Activate(reserved), Step::Free(run)]).is_err());
    assert_eq!(allocator.activate(reserved), Ok(()), "a refused publication changes nothing");
    let names = ["", "a name of more than forty-eight bytes is too long for it"];
    names.iter().for_each(|name| {
        assert!(matches!(allocator.create_root(name), Err(MemoryError::RootName { .. })));
    });
}

#[test]
fn a_full_region_refuses_and_keeps_everything() {
    let (directory, allocator) = allocator(1 << 20);
    let chunks: Vec<Pointer> = std::iter::from_fn(|| {
        allocator.allocate(owner(1), 3000).ok().inspect(|chunk| {
            allocator.activate(*chunk).unwrap_or_else(|error| panic!("{error}"));
        })
    })
    .collect();
    let per_segment = SEGMENT_BYTES / 3072;
    assert_eq!(chunks.len() as u64, allocator.capacity_bytes() / SEGMENT_BYTES * per_segment);
    let full = MemoryError::Full { needed_bytes: 16, free_bytes: 0 };
    assert_eq!(allocator.allocate(owner(2), 16), Err(full));
    assert_eq!(allocator.used_bytes(owner(1)), Ok(chunks.len() as u64 * 3072));
    let of_one_segment = &chunks[..per_segment as usize];
    allocator.free_all(of_one_segment).unwrap_or_else(|error| panic!("{error}"));
    drop(allocator);
    let allocator = life::open(&*directory).unwrap_or_else(|error| panic!("{error}"));
    let run = allocator.allocate(owner(2), SEGMENT_BYTES).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(run, of_one_segment[0], "the empty slab serves others");
    assert_eq!(allocator.used_bytes(owner(1)), Ok((chunks.len() - of_one_segment.len()) as u64 * 3072));
    assert_eq!(allocator.check(), Ok(()));
}

#[test]
fn threads_get_different_chunks() {
    let (_, allocator) = allocator(8 << 20);
    let rounds = |thread: u64| {
        let mut mine = Vec::new();
        for round in 0..600 {
            let len_bytes = [16, 300, 1000, 70_000][(round % 4) as usize];
            let tag = thread << 32 | round;
            let Ok(chunk) = allocator.allocate(owner(1), len_bytes) else { continue };
            allocator.region().store_word(chunk.to_u64(), tag);
            allocator.activate(chunk).unwrap_or_else(|error| panic!("{error}"));
            mine.push((chunk, tag));
            if mine.len() > 40 {
                let (chunk, tag) = mine.swap_remove((round * 7 % 40) as usize);
                assert_eq!(allocator.region().load_word(chunk.to_u64()), tag, "{chunk} is mine alone");
                allocator.free(chunk).unwrap_or_else(|error| panic!("{error}"));
            }
        }
        mine.len() as u64
    };
    let kept: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || rounds(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panic!("a thread failed"))).sum()
    });
    assert_eq!(allocator.active_chunks().map(|chunks| chunks.len() as u64), Ok(kept));
    assert_eq!(allocator.check(), Ok(()));
}

#[test]
fn a_region_with_many_chunks_opens_by_its_segments() {
    let directory = MemoryDirectory::new();
    let region = directory.map(REGION, 128 << 20).unwrap_or_else(|error| panic!("{error}"));
    let allocator = Allocator::format(region, DATABASE).unwrap_or_else(|error| panic!("{error}"));
    let loaded_lines = |region: &Arc<dyn Region>| region.tally().loaded_lines;
    let mut opened_lines = Vec::new();
    for until in [0, 100_000] {
        for _ in 0..until {
            active(&allocator, 1000);
        }
        let region = directory.map(REGION, 128 << 20).unwrap_or_else(|error| panic!("{error}"));
        let started = Instant::now();
        let opened = Allocator::open(Arc::clone(&region), DATABASE).unwrap_or_else(|error| panic!("{error}"));
        println!("{until} chunks: opened in {:?}, {} lines read", started.elapsed(), loaded_lines(&region));
        opened_lines.push(loaded_lines(&region));
        assert_eq!(opened.used_bytes(owner(1)), Ok(until * 1024));
    }
    assert_eq!(opened_lines[0], opened_lines[1], "a start reads the same, whatever is active");
}
