//! Damages the data that a start reads of files.

use varve_device::{Directory, MemoryDirectory, Region};

use super::{ROOT, open};
use crate::life::{REGION, empty};

fn flip(region: &dyn Region, at: u64, bit: u8) {
    let mut byte = [0];
    region.read(at, &mut byte);
    region.store(at, &[byte[0] ^ 1 << bit]);
}

/// Opens the files and reads all of them.
fn read_all(directory: &MemoryDirectory) -> Result<(), String> {
    let mut opened = open(directory)?;
    super::model::Model::of(&mut opened.files).map(drop)
}

#[test]
fn damage_of_directory_and_maps_is_an_error() {
    let directory = empty(1 << 20);
    let made = open(&directory).and_then(|mut opened| {
        let file = opened.files.create("file").map_err(|error| error.to_string())?;
        opened.files.append(file, &[5; 20_000]).map_err(|error| error.to_string())?;
        opened.files.fsync(file).map_err(|error| error.to_string())?;
        opened.allocator.root_value(ROOT).map_err(|error| error.to_string())
    });
    let at = made.unwrap_or_else(|error| panic!("{error}"));
    let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let map = region.load_word(at + 64);
    // The magic, and the seal and the name of the entry; of the map the pointers to its two blocks.
    let bytes = (at..at + 8).chain(at + 64..at + 128).chain(map + 8..map + 16).chain(map + 64..map + 80);
    for byte in bytes {
        for bit in [0, 3, 7] {
            flip(&*region, byte, bit);
            assert!(read_all(&directory).is_err(), "bit {bit} of byte {byte} is not noticed");
            flip(&*region, byte, bit);
        }
    }
    // A length beyond the blocks.
    flip(&*region, map + 2, 0);
    assert!(read_all(&directory).is_err());
    flip(&*region, map + 2, 0);
    assert_eq!(read_all(&directory), Ok(()), "all bits are back");
}
