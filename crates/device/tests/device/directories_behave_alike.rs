//! All kinds of directories give the same results and the same errors for operations on names.
//!
//! The test runs the same random operations on all kinds. It compares the results after each operation, and
//! the files at the end.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::common::{Fixture, all_kinds, filled};
use varve_device::{
    AlignedBuf, BlockFile, Create, Directory, Durability, ErrorKind, HEAD_BYTES, MemoryDirectory, OpenHow,
    Purpose, RegionExtents, RegionFiles, Space,
};

const WHY: Purpose = Purpose::DataPage;
const UNIT: u64 = 4096;
/// Names that are no plain file names.
const BAD: [&str; 7] = ["", ".", "..", "a/b", "/a", "a/", "a\0b"];

fn opening(create: Create) -> OpenHow {
    OpenHow { create, space: Space::Data, read_only: false }
}

fn open(directory: &dyn Directory, name: &str, create: Create) -> Result<Arc<dyn BlockFile>, ErrorKind> {
    directory.open(name, opening(create)).map_err(|error| error.kind)
}

fn first_byte(file: &dyn BlockFile) -> u8 {
    let mut buf = AlignedBuf::new(UNIT as usize);
    file.read_at(0, &mut buf, WHY).unwrap();
    buf[0]
}

fn write(file: &dyn BlockFile, byte: u8) {
    file.write_at(0, &filled(UNIT as usize, byte), WHY, Durability::Later).unwrap();
}

/// Calls each operation that takes a name, and returns their errors.
fn refusals(directory: &dyn Directory, name: &str) -> [Option<ErrorKind>; 6] {
    [
        directory.open(name, OpenHow::or_create(Space::Data)).err().map(|error| error.kind),
        directory.exists(name).err().map(|error| error.kind),
        directory.remove(name).err().map(|error| error.kind),
        directory.rename(name, "b").err().map(|error| error.kind),
        directory.rename("a", name).err().map(|error| error.kind),
        directory.map(name, UNIT).err().map(|error| error.kind),
    ]
}

#[test]
fn a_name_that_is_no_plain_file_name_is_refused_and_changes_nothing() {
    for Fixture { what, directory, .. } in &all_kinds() {
        write(&*open(&**directory, "a", Create::MustBeNew).unwrap(), 1);
        for name in BAD {
            let expected = [const { Some(ErrorKind::NoPlainName) }; 6];
            assert_eq!(refusals(&**directory, name), expected, "{what}: {name:?}");
        }
        assert_eq!(directory.list().unwrap(), ["a"], "{what}");
    }
}

/// A file has a name and a location. The location is a whole path for people, and the file is removed by its
/// name.
#[test]
fn a_file_says_its_name_and_where_it_is() {
    for Fixture { what, directory, .. } in &all_kinds() {
        let file = open(&**directory, "a", Create::MustBeNew).unwrap();
        assert_eq!(file.name(), "a", "{what}");
        let location = file.location().to_string();
        assert!(location.ends_with("/a") && location.len() > 2, "{what}: {location}");
        let told = file.read_at(0, &mut AlignedBuf::new(4096), WHY).unwrap_err().to_string();
        assert!(told.contains(&location), "{what}: {told}");
        directory.remove(file.name()).unwrap();
        assert!(!directory.exists("a").unwrap(), "{what}");
    }
}

#[test]
fn an_error_of_a_missing_file_names_it() {
    for Fixture { what, directory, .. } in &all_kinds() {
        let errors = [
            directory.open("lost", opening(Create::Never)).map(drop).unwrap_err(),
            directory.remove("lost").unwrap_err(),
            directory.rename("lost", "found").unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind, ErrorKind::NotFound, "{what}");
            assert!(error.file.ends_with("/lost"), "{what}: {error}");
        }
        assert!(directory.list().unwrap().is_empty(), "{what}");
    }
}

#[test]
fn names_are_listed_in_the_order_of_their_bytes() {
    let mut names = ["b", "a.10", "a.9", "B", "a", "\u{e4}", "_"];
    for Fixture { what, directory, .. } in &all_kinds() {
        names.iter().for_each(|name| drop(open(&**directory, name, Create::MustBeNew).unwrap()));
        directory.map("region", UNIT).unwrap();
        let mut sorted: Vec<&str> = names.iter().copied().chain(["region"]).collect();
        sorted.sort_unstable();
        assert_eq!(directory.list().unwrap(), sorted, "{what}");
        directory.sync().unwrap();
        names.reverse();
    }
}

#[test]
fn a_file_that_is_replaced_lives_on_behind_its_handles() {
    for Fixture { what, directory, .. } in &all_kinds() {
        let [new, old] = ["new", "old"].map(|name| open(&**directory, name, Create::MustBeNew).unwrap());
        write(&*new, 1);
        write(&*old, 2);
        directory.rename("new", "old").unwrap();
        assert_eq!(directory.list().unwrap(), ["old"], "{what}");
        assert_eq!((first_byte(&*new), first_byte(&*old)), (1, 2), "{what}");
        let found = open(&**directory, "old", Create::Never).unwrap();
        write(&*new, 3);
        assert_eq!(first_byte(&*found), 3, "{what}: the name is the new file's");
        directory.remove("old").unwrap();
        let other = open(&**directory, "old", Create::MustBeNew).unwrap();
        assert_eq!((first_byte(&*found), other.len_bytes().unwrap()), (3, 0), "{what}");
    }
}

#[test]
fn a_file_that_is_renamed_to_its_own_name_stays() {
    for Fixture { what, directory, .. } in &all_kinds() {
        let file = open(&**directory, "a", Create::MustBeNew).unwrap();
        write(&*file, 1);
        directory.rename("a", "a").unwrap();
        let again = open(&**directory, "a", Create::Never).unwrap();
        write(&*again, 2);
        assert_eq!((first_byte(&*file), directory.list().unwrap().len()), (2, 1), "{what}");
    }
}

#[test]
fn what_is_no_whole_sector_at_the_end_is_a_short_read() {
    for Fixture { what, directory, .. } in &all_kinds() {
        let file = open(&**directory, "a", Create::MustBeNew).unwrap();
        file.set_len(UNIT + 100).unwrap();
        for (offset, got_bytes) in [(0, UNIT + 100), (UNIT, 100), (2 * UNIT, 0)] {
            let error = file.read_at(offset, &mut AlignedBuf::new(2 * UNIT as usize), WHY).unwrap_err();
            assert_eq!(
                error.kind,
                ErrorKind::ShortRead { wanted_bytes: 2 * UNIT, got_bytes },
                "{what}: {offset}"
            );
        }
    }
}

#[test]
fn no_bytes_are_no_change() {
    for Fixture { what, directory, .. } in &all_kinds() {
        let file = open(&**directory, "a", Create::MustBeNew).unwrap();
        let none = AlignedBuf::new(0);
        file.write_at(4 * UNIT, &none, WHY, Durability::Later).unwrap();
        file.punch(UNIT, 0).unwrap();
        file.reserve(UNIT, 0).unwrap();
        assert_eq!(file.len_bytes().unwrap(), 0, "{what}");
    }
}

/// The files in a region are pieces of a fixed length. So a region refuses some operations, but all others do
/// the same as in other directories.
#[test]
fn files_in_a_region_differ_in_what_they_refuse_alone() {
    let region = MemoryDirectory::new().map("region", 4 * HEAD_BYTES).unwrap();
    let location = "here".to_string();
    let how = RegionExtents { prefix: "log".into(), extent_bytes: 2 * HEAD_BYTES, count: 2, location };
    let directory = RegionFiles::new(region, how, Arc::default());
    for name in BAD {
        let refused = refusals(&*directory, name);
        // A region has no regions.
        assert_eq!(refused[..5], [const { Some(ErrorKind::NoPlainName) }; 5], "{name:?}");
    }
    let file = open(&*directory, "log.0001", Create::MustBeNew).unwrap();
    assert_eq!(file.name(), "log.0001");
    assert_eq!(file.location().to_string(), "log.0001 in here");
    directory.remove(file.name()).unwrap();
    let lost = directory.remove("log.0001").unwrap_err();
    assert_eq!((lost.kind, &*lost.file), (ErrorKind::NotFound, "log.0001 in here"));
}

/// One kind of directory on which the random operations run.
struct Subject {
    fixture: Fixture,
    files: Vec<Arc<dyn BlockFile>>,
}

/// A generator of numbers that depend only on a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn name(&mut self) -> &'static str {
        ["a", "b", "c", "d", "a", "b", "c", "x/y"][self.below(8) as usize]
    }
}

/// One random operation, which is the same for every kind of directory.
#[derive(Debug, Clone, Copy)]
enum Step {
    Open(&'static str, Create, bool),
    Exists(&'static str),
    Rename(&'static str, &'static str),
    Remove(&'static str),
    List,
    Sync,
    Write { file: usize, at: u64, len: u64, byte: u8, durability: Durability },
    Read { file: usize, at: u64, len: u64 },
    SetLen { file: usize, len: u64 },
    Punch { file: usize, at: u64, len: u64 },
    Length { file: usize },
    Flush { file: usize },
}

fn draw(draw: &mut Draw) -> Step {
    let create = [Create::Never, Create::IfMissing, Create::MustBeNew][draw.below(3) as usize];
    let durability = [Durability::Later, Durability::Now][draw.below(2) as usize];
    let (file, at, len) = (draw.below(64) as usize, draw.below(9) * UNIT, draw.below(5) * UNIT);
    match draw.below(13) {
        0 | 1 => Step::Open(draw.name(), create, draw.below(4) == 0),
        2 => Step::Exists(draw.name()),
        3 => Step::Rename(draw.name(), draw.name()),
        4 => Step::Remove(draw.name()),
        5 => Step::List,
        6 => Step::Sync,
        7 | 8 => Step::Write { file, at, len, byte: draw.below(250) as u8, durability },
        9 => Step::Read { file, at, len },
        10 => Step::SetLen { file, len: at + [0, 0, 0, 100][draw.below(4) as usize] },
        11 => Step::Punch { file, at, len },
        _ if draw.below(2) == 0 => Step::Length { file },
        _ => Step::Flush { file },
    }
}

impl Subject {
    fn file(&self, nth: usize) -> Option<&dyn BlockFile> {
        self.files.get(nth % self.files.len().max(1)).map(|file| &**file)
    }

    /// Runs the step. Returns its result in a form that can be compared.
    fn run(&mut self, step: Step) -> Result<String, ErrorKind> {
        let directory = &*self.fixture.directory;
        let done = match step {
            Step::Open(name, create, read_only) => {
                let file = directory.open(name, OpenHow { read_only, ..opening(create) });
                file.map(|file| self.files.push(file)).map(|()| "opened".to_string())
            }
            Step::Exists(name) => directory.exists(name).map(|is_there| is_there.to_string()),
            Step::Rename(from, to) => directory.rename(from, to).map(|()| String::new()),
            Step::Remove(name) => directory.remove(name).map(|()| String::new()),
            Step::List => directory.list().map(|names| names.join(" ")),
            Step::Sync => directory.sync().map(|()| String::new()),
            Step::Write { file, .. }
            | Step::Read { file, .. }
            | Step::SetLen { file, .. }
            | Step::Punch { file, .. }
            | Step::Length { file }
            | Step::Flush { file } => match self.file(file) {
                Some(file) => on_file(file, step),
                None => Ok("no file is open".to_string()),
            },
        };
        done.map_err(|error| error.kind)
    }

    /// Lengths and contents of all open files.
    fn contents(&self) -> Vec<(u64, Vec<u8>)> {
        let content = |file: &Arc<dyn BlockFile>| {
            let len = file.len_bytes().unwrap();
            let mut whole = AlignedBuf::new((len / UNIT * UNIT) as usize);
            file.read_at(0, &mut whole, WHY).unwrap();
            (len, whole.to_vec())
        };
        self.files.iter().map(content).collect()
    }
}

fn on_file(file: &dyn BlockFile, step: Step) -> varve_device::Result<String> {
    let said = |done: varve_device::Result<()>| done.map(|()| String::new());
    match step {
        Step::Write { at, len, byte, durability, .. } => {
            said(file.write_at(at, &filled(len as usize, byte), WHY, durability))
        }
        Step::Read { at, len, .. } => {
            let mut buf = AlignedBuf::new(len as usize);
            file.read_at(at, &mut buf, WHY).map(|()| format!("{:?}", &buf[..]))
        }
        Step::SetLen { len, .. } => said(file.set_len(len)),
        Step::Punch { at, len, .. } => said(file.punch(at, len)),
        Step::Length { .. } => file.len_bytes().map(|len| len.to_string()),
        Step::Flush { .. } => said(file.flush()),
        _ => Ok(String::new()),
    }
}

#[test]
fn drawn_operations_come_out_alike() {
    for seed in 0..30 {
        let mut draw_from = Draw(seed);
        let punch_hole = |kind: &Fixture| kind.directory.capabilities().punch_hole;
        let kinds = all_kinds().into_iter().filter(punch_hole);
        let mut subjects: Vec<_> = kinds.map(|fixture| Subject { fixture, files: Vec::new() }).collect();
        for number in 0..200 {
            let step = draw(&mut draw_from);
            let mut outcomes = subjects.iter_mut().map(|subject| (subject.run(step), subject.fixture.what));
            let (expected, _) = outcomes.next().unwrap();
            for (outcome, what) in outcomes {
                assert_eq!(outcome, expected, "seed {seed}, step {number}, {step:?}: {what}");
            }
        }
        let expected = (subjects[0].fixture.directory.list().unwrap(), subjects[0].contents());
        for subject in &subjects[1..] {
            let found = (subject.fixture.directory.list().unwrap(), subject.contents());
            assert!(found == expected, "seed {seed}: {}", subject.fixture.what);
        }
    }
}
