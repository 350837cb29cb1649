//! Opens a database with a wrong region of persistent memory: one of another database, an incomplete one, an
//! older one, or one that another database may need. The start and `as_found` (`varve nvm status`) must
//! refuse each case with the same text, and change no file. With the right file, the database has all its
//! data. `nvm_emulated.rs` tests regions that a reboot has removed.

use std::sync::Arc;

use crate::common::{NoOps, SEGMENT_BYTES, get, is_full, open, set};
use crate::nvm_support::{
    COPIES, DOUBLEWRITE, IN_FILES, IN_REGION, LARGER, LOG_BYTES, NVM_ALL, NVM_COPIES, NVM_LOG, NVM_PAGES,
    Parts, REGION, assert_numbers, noted, over, some_pages, with,
};
use varve_device::{ErrorKind, Fault, Faulty, MemoryDirectory, MemoryImage, Operation, Rule, Space, When};
use varve_pager::control::Control;
use varve_pager::{PageId, Pager, PagerConfig, PagerError, ProtectionKind};

const HEADER_BYTES: u64 = 4096;

/// Returns all files, byte by byte.
fn bytes_of(directory: &MemoryDirectory) -> Vec<(String, Vec<u8>)> {
    let whole = |(name, image): (String, MemoryImage)| {
        let mut bytes = vec![0; image.len_bytes() as usize];
        image.read(0, &mut bytes);
        (name, bytes)
    };
    let mut files: Vec<_> = directory.images().into_iter().map(whole).collect();
    files.sort();
    files
}

/// Checks that opening fails with this text, and changes no file.
fn assert_refused(directory: &Arc<MemoryDirectory>, config: &PagerConfig, expected: &str, what: &str) {
    let before = bytes_of(directory);
    let error =
        Pager::open(config.clone(), Arc::new(NoOps)).err().unwrap_or_else(|| panic!("{what}: it opens"));
    assert!(matches!(error, PagerError::Incompatible { .. }), "{what}: {error:?}");
    assert!(error.to_string().contains(expected), "{what}: {error}");
    assert!(bytes_of(directory) == before, "{what}: a file was changed");
}

/// Returns the region's file of a directory.
fn region_of(directory: &MemoryDirectory) -> MemoryImage {
    directory.images().into_iter().find(|(name, _)| name == REGION).unwrap().1
}

/// Returns the same files with another region, or none.
fn with_region(directory: &MemoryDirectory, other: Option<MemoryImage>) -> Arc<MemoryDirectory> {
    let files = directory.images().into_iter().filter(|(name, _)| name != REGION);
    MemoryDirectory::from_images(files.chain(other.map(|image| (REGION.to_owned(), image))))
}

fn changed(image: &MemoryImage, at: u64, bytes: &[u8]) -> Option<MemoryImage> {
    let mut image = image.clone();
    image.write(at, bytes);
    Some(image)
}

fn of_length(image: &MemoryImage, len_bytes: u64) -> Option<MemoryImage> {
    let mut image = image.clone();
    image.set_len(len_bytes);
    Some(image)
}

/// Returns the header with other fields and a right checksum.
fn with_header(image: &MemoryImage, at: usize, field: &[u8]) -> Option<MemoryImage> {
    let mut header = vec![0; HEADER_BYTES as usize];
    image.read(0, &mut header);
    header[at..at + field.len()].copy_from_slice(field);
    let crc = crc32c::crc32c(&header[..4092]);
    header[4092..].copy_from_slice(&crc.to_le_bytes());
    changed(image, 0, &header)
}

fn zeros(len_bytes: u64) -> MemoryImage {
    of_length(&MemoryImage::default(), len_bytes).unwrap()
}

/// Returns a database that crashed, whose newest changes are only in its region or in the log. Also returns
/// the region as it was one checkpoint earlier.
fn crashed(parts: Parts) -> (Arc<MemoryDirectory>, Vec<PageId>, MemoryImage) {
    let (directory, pager, ids) = some_pages(parts);
    let earlier = region_of(&directory);
    pager.checkpoint().unwrap();
    set(&pager, ids[0], 1).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    (MemoryDirectory::from_images(directory.images()), ids, earlier)
}

/// A database that needs its region doesn't open without it, whatever is in its place. The error says why.
/// When the region is back, the database has all its data.
#[test]
fn a_database_opens_with_its_own_whole_region_of_now_alone() {
    for parts in IN_REGION {
        let (directory, ids, earlier) = crashed(parts);
        let right = region_of(&directory);
        let len_bytes = right.len_bytes();
        let (foreign, ..) = crashed(parts);
        let cases = [
            ("missing", None, "is missing, and has the"),
            ("empty", of_length(&right, 0), "is empty, and has the"),
            ("cut to its header", of_length(&right, 4096), "is no NVM region"),
            ("cut by a unit", of_length(&right, len_bytes - 4096), "it was cut or has grown"),
            ("cut within a unit", of_length(&right, len_bytes - 1), "it was cut or has grown"),
            ("grown", of_length(&right, len_bytes + 4096), "it was cut or has grown"),
            ("zeros", Some(zeros(len_bytes)), "is no NVM region"),
            ("without magic", changed(&right, 3, &[0xEE]), "is no NVM region"),
            ("damaged", changed(&right, 30, &[0xEE]), "has a damaged header"),
            ("damaged behind the fields", changed(&right, 4000, &[0xEE]), "has a damaged header"),
            ("of another version", with_header(&right, 8, &[9]), "is an NVM region of version 9"),
            ("divided impossibly", with_header(&right, 52, &[255; 4]), "has a damaged header"),
            ("another one of this database", with_header(&right, 24, &[9; 8]), "belongs to another database"),
            ("of another database", Some(region_of(&foreign)), "belongs to another database"),
            ("of an earlier moment", Some(earlier), "put back from an earlier moment"),
            ("one that was left", changed(&right, 0, b"NVM LEFT"), "that its database has left"),
        ];
        for (case, region, expected) in cases {
            let what = format!("{parts:?}, {case}");
            let wrong = with_region(&directory, region);
            assert_refused(&wrong, &with(&wrong, parts), expected, &what);
            let found = with(&wrong, parts).as_found().unwrap().unwrap();
            let told = found.needed().expect_err(&what).to_string();
            let refused = Pager::open(with(&wrong, parts), Arc::new(NoOps)).err().unwrap().to_string();
            assert_eq!(told, refused, "{what}: what status says");
            let back = with_region(&wrong, Some(right.clone()));
            assert_numbers(&open(&with(&back, parts)), &ids, &what);
        }
    }
}

/// An empty file cannot be mapped, and the error of the device says so.
#[test]
fn an_empty_file_is_refused() {
    let (directory, ids, _) = crashed(NVM_ALL);
    let wrong = with_region(&directory, Some(zeros(0)));
    let before = bytes_of(&wrong);
    let error = Pager::open(with(&wrong, NVM_ALL), Arc::new(NoOps)).err().unwrap().to_string();
    assert!(error.contains(REGION), "{error}");
    assert!(bytes_of(&wrong) == before);
    let back = with_region(&wrong, Some(region_of(&directory)));
    assert_numbers(&open(&with(&back, NVM_ALL)), &ids, "back");
}

/// A configuration is refused if it has another division than the region, no region, or another protection.
/// The error says what to do.
#[test]
fn another_configuration_is_refused() {
    let more = ProtectionKind::NvmDoublewrite { batch_slots: 9, single_slots: 2 };
    let cases: [(Parts, Parts, &str); 9] = [
        (NVM_LOG, IN_FILES, "persistent memory has the log of this database, but"),
        (NVM_PAGES, IN_FILES, "persistent memory has the newest pages of this database, but"),
        (NVM_COPIES, IN_FILES, "persistent memory has the doublewrite copies of this database, but"),
        (NVM_ALL, LARGER, "has other sizes than the configuration"),
        (NVM_ALL, (NVM_ALL.0, COPIES), "has other sizes than the configuration"),
        (
            NVM_LOG,
            (Some((768 << 10, LOG_BYTES + 8 * 4096)), DOUBLEWRITE),
            "has other sizes than the configuration",
        ),
        (NVM_COPIES, (NVM_COPIES.0, more), "has other sizes than the configuration"),
        (NVM_COPIES, NVM_LOG, "has other sizes than the configuration"),
        (NVM_COPIES, (None, COPIES), "nvm-dwb needs an NVM region"),
    ];
    for (parts, other, expected) in cases {
        let (directory, ids, _) = crashed(parts);
        let what = format!("{parts:?} with {other:?}");
        assert_refused(&directory, &with(&directory, other), expected, &what);
        assert_numbers(&open(&with(&directory, parts)), &ids, &what);
    }
}

/// Sizes that cannot work are refused before anything is made, both for a new database and for a database
/// that will get a region.
#[test]
fn a_region_that_is_too_small_is_refused() {
    let existing = {
        let (directory, pager, ids) = some_pages(IN_FILES);
        pager.shutdown().unwrap();
        (directory, ids)
    };
    let size_bytes = 768 << 10;
    for (size_bytes, log_bytes, protection, expected) in [
        (size_bytes, 0, DOUBLEWRITE, "nothing in it"),
        (size_bytes, LOG_BYTES - 1, DOUBLEWRITE, "at least 524288"),
        (LOG_BYTES, LOG_BYTES, DOUBLEWRITE, "at least 532480"),
        (size_bytes + 1, LOG_BYTES, DOUBLEWRITE, "multiple of 4096"),
        (u64::MAX, u64::MAX, DOUBLEWRITE, "multiple of 4096"),
        (16 << 10, 0, ProtectionKind::Nvm, "holds 1 pages beside the log"),
        (16 << 10, 0, COPIES, "at least 53248"),
        (size_bytes, LOG_BYTES, ProtectionKind::FullPageLog, "at least 64 pages"),
    ] {
        let parts = (Some((size_bytes, log_bytes)), protection);
        let new = MemoryDirectory::new();
        assert_refused(&new, &with(&new, parts), expected, &format!("new, {parts:?}"));
        assert_refused(&existing.0, &with(&existing.0, parts), expected, &format!("existing, {parts:?}"));
    }
    assert_numbers(&open(&with(&existing.0, IN_FILES)), &existing.1, "afterwards");
}

/// A database without a region gets none at a place whose contents another database may need. Without `[nvm]`
/// it continues.
#[test]
fn a_database_gets_no_region_where_somebody_may_need_what_is_there() {
    let wanted_bytes = NVM_ALL.0.unwrap().0;
    let (directory, pager, ids) = some_pages(IN_FILES);
    pager.shutdown().unwrap();
    // A copy of the directory got a region, and has its newest pages there.
    let copy = MemoryDirectory::from_images(directory.images());
    drop(open(&with(&copy, NVM_ALL)));
    let (copied, (foreign, ..)) = (region_of(&copy), crashed(NVM_ALL));
    let cases = [
        ("of a copy", Some(copied.clone()), "its control file does not know it"),
        ("of a copy, of another length", of_length(&copied, 1 << 20), "its control file does not know it"),
        ("of another database", Some(region_of(&foreign)), "region of another database"),
        ("of another version", with_header(&copied, 8, &[9]), "is an NVM region of version 9"),
        ("damaged", changed(&copied, 30, &[0xEE]), "has a damaged header"),
        ("something else", changed(&zeros(wanted_bytes), 100, b"something"), "is no NVM region"),
        ("short", Some(zeros(4096)), "is no NVM region"),
        ("zeros of another length", Some(zeros(1 << 20)), "is 1048576 bytes long, and a region of"),
    ];
    for (case, region, expected) in cases {
        let there = with_region(&directory, region.clone());
        assert_refused(&there, &with(&there, NVM_ALL), expected, case);
        assert_numbers(&open(&with(&there, IN_FILES)), &ids, case);
        // A new database does not get a region there, either.
        let expected = expected.replace("its control file does not know it", "region of another database");
        let new = with_region(&MemoryDirectory::new(), region);
        assert_refused(&new, &with(&new, NVM_ALL), &expected, &format!("new, {case}"));
    }
    let zeros = with_region(&directory, Some(zeros(wanted_bytes)));
    assert_numbers(&open(&with(&zeros, NVM_ALL)), &ids, "zeros that somebody made");
}

/// A directory is copied, and the copy gets a region and is changed. In an earlier version, the other
/// directory then overwrote this region.
#[test]
fn a_copied_directory_does_not_take_the_region_of_the_other() {
    let (first, pager, ids) = some_pages(IN_FILES);
    pager.shutdown().unwrap();
    for (parts, other) in
        [(NVM_ALL, NVM_ALL), (NVM_PAGES, NVM_PAGES), (NVM_ALL, LARGER), (NVM_COPIES, NVM_LOG)]
    {
        let second = MemoryDirectory::from_images(first.images());
        let pager = open(&with(&second, parts));
        set(&pager, ids[0], 77).unwrap();
        pager.shutdown().unwrap();
        let meeting = with_region(&first, Some(region_of(&second)));
        let what = format!("{parts:?}, {other:?}");
        assert_refused(&meeting, &with(&meeting, other), "its control file does not know it", &what);
        let second = with_region(&second, Some(region_of(&meeting)));
        let pager = open(&with(&second, parts));
        assert_eq!(get(&pager, ids[0]).unwrap(), 77, "{what}");
    }
}

/// The same is tested with a copy that was taken between two steps of getting a region.
#[test]
fn a_copy_of_a_start_that_was_cut_off_does_not_take_what_the_other_got() {
    let (directory, pager, ids) = some_pages(IN_FILES);
    pager.shutdown().unwrap();
    // The start was cut off after the region's header. The control file says that the region is not needed.
    let first = MemoryDirectory::from_images(directory.images());
    drop(open(&with(&first, NVM_PAGES)));
    let region = noted(&*first).attached.unwrap().region;
    let cut_off = with_region(&directory, Some(region_of(&first)));
    let control = Control::open(&*cut_off).unwrap().unwrap();
    control.update(|block| block.unneeded_region = Some(region)).unwrap();
    let second = MemoryDirectory::from_images(cut_off.images());
    let pager = open(&with(&cut_off, NVM_PAGES));
    set(&pager, ids[0], 77).unwrap();
    pager.shutdown().unwrap();
    let meeting = with_region(&second, Some(region_of(&cut_off)));
    assert_refused(&meeting, &with(&meeting, NVM_PAGES), "its control file does not know it", "a copy");
    assert_eq!(get(&open(&with(&cut_off, NVM_PAGES)), ids[0]).unwrap(), 77);
}

/// A control file is put back that is older than the region. The region stays, and the right control file
/// finds it.
#[test]
fn a_control_file_put_back_does_not_cost_the_region() {
    let (directory, pager, ids) = some_pages(IN_FILES);
    pager.shutdown().unwrap();
    let control = |directory: &MemoryDirectory| {
        directory.images().into_iter().find(|(name, _)| name == "control").unwrap()
    };
    let earlier = control(&directory);
    drop(open(&with(&directory, NVM_PAGES)));
    let with_control = |one| {
        let files = directory.images().into_iter().filter(|(name, _)| name != "control");
        MemoryDirectory::from_images(files.chain([one]))
    };
    let put_back = with_control(earlier);
    assert_refused(&put_back, &with(&put_back, NVM_PAGES), "control is an older copy than", "earlier");
    let right = with_control(control(&directory));
    assert_numbers(&open(&with(&right, NVM_PAGES)), &ids, "the right one");
}

/// A start is refused for another reason. In an earlier version, it had already named a region in the control
/// file, and there was no way back.
#[test]
fn a_start_that_finds_damage_gets_no_region() {
    for parts in [NVM_PAGES, NVM_COPIES] {
        let (directory, pager, _) = some_pages(IN_FILES);
        drop(pager);
        let redo = noted(&*directory).redo.get();
        assert!(redo < SEGMENT_BYTES && noted(&*directory).durable.get() > redo, "it is needed");
        let mut images = directory.images();
        let (_, log) = images.iter_mut().find(|(name, _)| name == "log.0000").unwrap();
        log.write(redo, &[0xEE; 64]);
        let damaged = MemoryDirectory::from_images(images);
        let before = bytes_of(&damaged);
        let error = Pager::open(with(&damaged, parts), Arc::new(NoOps)).err().expect("it is damaged");
        assert!(!matches!(error, PagerError::Incompatible { .. }), "{error}");
        assert!(bytes_of(&damaged) == before, "{parts:?}: a file was changed, or a region made");
    }
}

/// At the place of the region are segment headers of an earlier database. An earlier version took them for a
/// log.
#[test]
fn a_region_is_made_over_the_heads_of_an_earlier_log() {
    let (foreign, ..) = crashed(NVM_LOG);
    let (directory, pager, ids) = some_pages(IN_FILES);
    pager.shutdown().unwrap();
    for region in
        [changed(&region_of(&foreign), 0, &[0; 4096]), changed(&region_of(&foreign), 0, b"NVM LEFT")]
    {
        let there = with_region(&directory, region);
        assert_numbers(&open(&with(&there, NVM_LOG)), &ids, "once");
        assert_numbers(&open(&with(&there, NVM_LOG)), &ids, "again");
    }
}

/// If a device has no room for the region, the start is refused, and nothing is lost. When there is room, the
/// start succeeds.
#[test]
fn a_full_device_leaves_the_database_as_it_was() {
    for parts in IN_REGION {
        let (directory, pager, ids) = some_pages(IN_FILES);
        pager.shutdown().unwrap();
        let faulty = Faulty::wrap(directory.clone());
        faulty.arm(Rule {
            operation: Some(Operation::Open),
            space: Some(Space::Nvm),
            when: When::From(1),
            fault: Fault::Fails(ErrorKind::NoSpace),
        });
        let error = Pager::open(over(faulty.clone(), parts), Arc::new(NoOps)).err().expect("it is full");
        assert!(is_full(&error), "{error}");
        let pager = open(&with(&directory, IN_FILES));
        assert_numbers(&pager, &ids, "in files, as before");
        pager.shutdown().unwrap();
        drop(pager);
        faulty.disarm();
        assert_numbers(&open(&over(faulty, parts)), &ids, "with room");
    }
}
