//! Damages data that an allocator reads at a start, and opens regions that do not belong to the allocator.

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory, Region};
use varve_memory::{Allocator, MemoryError, Owner};

use crate::life::{self, DATABASE, REGION};

const REGION_BYTES: u64 = 1 << 20;

fn region_of(directory: &MemoryDirectory) -> Arc<dyn Region> {
    directory.map(REGION, REGION_BYTES).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a region with a slab, a run and a root.
fn used() -> Arc<MemoryDirectory> {
    let directory = life::empty(REGION_BYTES);
    let allocator = life::open(&*directory).unwrap_or_else(|error| panic!("{error}"));
    let Some(owner) = Owner::new(3) else { panic!("3 is an owner") };
    for len_bytes in [4096, 200_000] {
        let chunk = allocator.allocate(owner, len_bytes).unwrap_or_else(|error| panic!("{error}"));
        allocator.activate(chunk).unwrap_or_else(|error| panic!("{error}"));
    }
    allocator.create_root("root").unwrap_or_else(|error| panic!("{error}"));
    directory
}

fn flip(region: &dyn Region, at: u64, bit: u8) {
    let mut byte = [0];
    region.read(at, &mut byte);
    region.store(at, &[byte[0] ^ 1 << bit]);
}

#[test]
fn every_flipped_bit_of_header_descriptors_and_roots_is_found() {
    let directory = used();
    let region = region_of(&directory);
    let header = (0..4096).step_by(3).chain(0..80).chain(4090..4096);
    // The descriptors of the slab and the run, and the seal and name of the root.
    let descriptors = 24_576..24_576 + 16;
    let root = 8_192 + 8..8_192 + 64;
    for at in header.chain(descriptors).chain(root) {
        for bit in [0, 3, 7] {
            flip(&*region, at, bit);
            let found = life::open(&*directory).map(|_| ());
            let is_refused =
                matches!(found, Err(MemoryError::Damaged { .. } | MemoryError::NoAllocator { .. }));
            assert!(is_refused, "bit {bit} of byte {at}: {found:?}");
            flip(&*region, at, bit);
        }
    }
    assert!(life::open(&*directory).is_ok(), "all bits are back");
}

#[test]
fn a_bitmap_with_a_bit_of_no_chunk_is_damage_of_its_owner() {
    let directory = used();
    let region = region_of(&directory);
    // 16 chunks of 4096 bytes: the 17th bit of the first bitmap belongs to none.
    flip(&*region, 28_672 + 2, 0);
    let Ok(allocator) = life::open(&*directory) else { panic!("opening reads no bitmap") };
    let Some(owner) = Owner::new(3) else { panic!("3 is an owner") };
    assert!(matches!(allocator.used_bytes(owner), Err(MemoryError::Damaged { at: 28_672, .. })));
    assert!(matches!(allocator.allocate(owner, 4096), Err(MemoryError::Damaged { at: 28_672, .. })));
}

#[test]
fn regions_of_others_are_refused() {
    let directory = used();
    let open = |database| Allocator::open(region_of(&directory), database).map(|_| ());
    let other = MemoryError::OtherDatabase { found: DATABASE, expected: DATABASE + 1 };
    assert_eq!(open(DATABASE + 1), Err(other));
    let [(name, mut image)] = <[_; 1]>::try_from(directory.images()).unwrap_or_else(|_| panic!("one file"));
    image.set_len(REGION_BYTES + 4096);
    let longer = MemoryDirectory::from_images([(name, image)]);
    let found_bytes = REGION_BYTES + 4096;
    let error = MemoryError::OtherLength { found_bytes, expected_bytes: REGION_BYTES };
    assert_eq!(life::open(&*longer).map(|_| ()), Err(error));
    let empty = MemoryDirectory::new();
    assert_eq!(
        Allocator::open(region_of(&empty), DATABASE).map(|_| ()),
        Err(MemoryError::NoAllocator { found: 0 })
    );
}
