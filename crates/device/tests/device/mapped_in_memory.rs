//! A region in a file system in memory is mapped without its pages. So the time of a start does not grow with
//! the length of the region.

use std::path::Path;

use varve_device::{Directory, FileDirectory, FileOptions, Medium};

const REGION_BYTES: u64 = 32 << 20;
const MEMORY: &str = "/dev/shm";

/// Returns the number of bytes of a file that this process has mapped and touched, as the kernel reports
/// them.
fn resident_bytes(path: &Path) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let name = path.to_str().unwrap();
    let mapping = maps.lines().skip_while(|line| !line.ends_with(name));
    let resident = mapping.skip(1).find_map(|line| line.strip_prefix("Rss:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_region_in_memory_is_mapped_without_its_pages() {
    if !Path::new(MEMORY).is_dir() {
        return;
    }
    let folder = tempfile::tempdir_in(MEMORY).unwrap();
    let files = FileDirectory::open_or_create(folder.path(), FileOptions::default()).unwrap();
    let first = files.map("region", REGION_BYTES).unwrap();
    if first.facts().medium != Medium::EmulatedByFile {
        return;
    }
    first.store_word(REGION_BYTES - 8, 7);
    drop(first);
    let again = files.map("region", REGION_BYTES).unwrap();
    let resident = resident_bytes(&folder.path().join("region"));
    assert!(resident < REGION_BYTES / 8, "{resident} bytes of {REGION_BYTES} are mapped before any access");
    assert_eq!(again.load_word(REGION_BYTES - 8), 7);
}

/// A hole would end the process when the memory is full, so a file with a hole gets all its pages.
#[test]
fn a_hole_of_a_region_in_memory_is_filled() {
    use std::os::unix::fs::MetadataExt;
    if !Path::new(MEMORY).is_dir() {
        return;
    }
    let folder = tempfile::tempdir_in(MEMORY).unwrap();
    let path = folder.path().join("region");
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().blocks(), 0);
    let files = FileDirectory::open_or_create(folder.path(), FileOptions::default()).unwrap();
    let region = files.map("region", 1 << 20).unwrap();
    assert_eq!(region.len_bytes(), 1 << 20);
    assert!(std::fs::metadata(&path).unwrap().blocks() * 512 >= 1 << 20);
}
