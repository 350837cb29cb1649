//! An event that the recorder calls durable is in every crash image. A pending event may or may not be in an
//! image.

use std::sync::Arc;

use varve_device::{
    AlignedBuf, BlockFile, Change, Directory, Durability, Fate, Lies, MemoryDirectory, OpenHow, Purpose,
    RecordLog, Recorder, Space, Timeline, WriteOp,
};

const WHY: Purpose = Purpose::DataPage;

struct Bench {
    log: Arc<RecordLog>,
    directory: Arc<Recorder>,
}

impl Bench {
    fn new() -> Bench {
        let log = RecordLog::new();
        Bench { directory: Recorder::wrap(MemoryDirectory::new(), Arc::clone(&log)), log }
    }

    /// Returns a file that is durably there.
    fn file(&self, name: &str) -> Arc<dyn BlockFile> {
        let file = self.directory.open(name, OpenHow::new_file(Space::Data)).expect("a new file");
        self.directory.sync().expect("memory syncs");
        file
    }

    fn timeline(&self, lies: Lies) -> Timeline {
        let mut timeline = Timeline::with_lies(self.log.recording(), lies);
        timeline.advance(timeline.end());
        timeline
    }

    /// Returns the first bytes of each sector of a file after a crash at the end.
    fn after(&self, name: &str, fates: &[Fate]) -> Vec<u8> {
        sectors(&self.timeline(Lies::default()), name, fates)
    }
}

fn sectors(timeline: &Timeline, name: &str, fates: &[Fate]) -> Vec<u8> {
    let images = timeline.image(fates);
    let file = images[0].open(name, OpenHow::existing(Space::Data)).expect("the file is there");
    let mut buf = AlignedBuf::new(file.len_bytes().expect("a length") as usize);
    file.read_at(0, &mut buf, WHY).expect("the file can be read");
    buf.chunks(512).map(|sector| sector[0]).collect()
}

fn write(file: &dyn BlockFile, sector: u64, count: usize, byte: u8, durability: Durability) {
    let mut buf = AlignedBuf::new(count * 512);
    buf.fill(byte);
    file.write_at(sector * 512, &buf, WHY, durability).expect("memory writes");
}

use Durability::{Later, Now};

#[test]
fn a_write_is_pending_until_a_flush_that_came_after_it() {
    let bench = Bench::new();
    let file = bench.file("a");
    write(&*file, 0, 1, 1, Later);
    file.flush().unwrap();
    write(&*file, 1, 1, 2, Later);
    assert_eq!(bench.after("a", &[Fate::Absent]), [1]);
    assert_eq!(bench.after("a", &[Fate::Present]), [1, 2]);
    file.flush().unwrap();
    assert_eq!(bench.after("a", &[]), [1, 2]);
}

#[test]
fn a_durable_write_needs_no_flush_and_helps_no_other() {
    let bench = Bench::new();
    let file = bench.file("a");
    write(&*file, 0, 1, 1, Later);
    write(&*file, 1, 1, 2, Now);
    assert_eq!(bench.after("a", &[Fate::Absent]), [0, 2]);
    write(&*file, 0, 1, 3, Now);
    assert_eq!(bench.after("a", &[Fate::Present]), [3, 2], "an older write never covers a newer one");
}

#[test]
fn a_flush_of_one_file_helps_no_other() {
    let bench = Bench::new();
    let (a, b) = (bench.file("a"), bench.file("b"));
    write(&*a, 0, 1, 1, Later);
    b.flush().unwrap();
    assert_eq!(bench.timeline(Lies::default()).pending().len(), 1);
}

#[test]
fn an_operation_that_has_not_returned_is_pending() {
    let bench = Bench::new();
    let file = bench.file("a");
    write(&*file, 0, 1, 1, Now);
    let mut timeline = Timeline::new(bench.log.recording());
    timeline.advance(timeline.end() - 1);
    assert_eq!(timeline.pending().len(), 1, "submitted, and the cut is before its completion");
    assert!(matches!(timeline.pending()[0].change, Change::Write { durability: Now, .. }));
    timeline.advance(timeline.end());
    assert!(timeline.pending().is_empty());
}

#[test]
fn the_writes_of_a_batch_are_in_flight_together() {
    let bench = Bench::new();
    let file = bench.file("a");
    let buf = AlignedBuf::new(512);
    let op = |no: u64| WriteOp { offset: no * 512, buf: &buf, why: WHY, durability: Now };
    file.write_batch(&[op(0), op(1), op(2)]).unwrap();
    let mut timeline = Timeline::new(bench.log.recording());
    let pending = |timeline: &mut Timeline, back| {
        timeline.advance(timeline.end() - back);
        timeline.pending().len()
    };
    assert_eq!([pending(&mut timeline, 3), pending(&mut timeline, 1), pending(&mut timeline, 0)], [3, 1, 0]);
}

#[test]
fn torn_and_garbage_spoil_only_their_own_sectors_and_replay() {
    let bench = Bench::new();
    let file = bench.file("a");
    write(&*file, 0, 24, 1, Later);
    file.flush().unwrap();
    write(&*file, 8, 8, 2, Later);
    for seed in 0..50 {
        let torn = bench.after("a", &[Fate::Torn { unit_bytes: 512, seed }]);
        assert!(torn[..8].iter().chain(&torn[16..]).all(|byte| *byte == 1));
        assert!(torn[8..16].iter().all(|byte| [1, 2].contains(byte)));
        let coarse = bench.after("a", &[Fate::Torn { unit_bytes: 4096, seed }]);
        assert!(coarse[8..16] == [1; 8] || coarse[8..16] == [2; 8]);
        let garbage = bench.after("a", &[Fate::Garbage { seed }]);
        assert_eq!(garbage, bench.after("a", &[Fate::Garbage { seed }]));
        assert!(garbage[..8].iter().chain(&garbage[16..]).all(|byte| *byte == 1));
    }
    let shapes: std::collections::BTreeSet<_> =
        (0..50).map(|seed| bench.after("a", &[Fate::Torn { unit_bytes: 512, seed }])).collect();
    assert!(shapes.len() > 20, "seeds tear differently");
}

#[test]
fn names_are_pending_until_the_directory_is_synced() {
    let bench = Bench::new();
    let file = bench.file("a");
    write(&*file, 0, 1, 1, Now);
    bench.directory.rename("a", "b").unwrap();
    bench.directory.open("c", OpenHow::new_file(Space::Data)).unwrap();
    let timeline = bench.timeline(Lies::default());
    let names = |fates: &[Fate]| timeline.image(fates)[0].list().unwrap();
    assert_eq!(names(&[Fate::Absent, Fate::Absent]), ["a"]);
    assert_eq!(names(&[Fate::Present, Fate::Absent]), ["b"]);
    assert_eq!(names(&[Fate::Absent, Fate::Present]), ["a", "c"]);
    bench.directory.sync().unwrap();
    assert!(bench.timeline(Lies::default()).pending().is_empty());
}

#[test]
fn lengths_and_holes_are_pending_like_writes() {
    let bench = Bench::new();
    let file = bench.file("a");
    write(&*file, 0, 4, 1, Now);
    file.punch(512, 512).unwrap();
    file.set_len(1536).unwrap();
    assert_eq!(bench.after("a", &[Fate::Absent, Fate::Absent]), [1, 1, 1, 1]);
    assert_eq!(bench.after("a", &[Fate::Present, Fate::Absent]), [1, 0, 1, 1]);
    assert_eq!(bench.after("a", &[Fate::Absent, Fate::Present]), [1, 1, 1]);
    file.flush().unwrap();
    assert_eq!(bench.after("a", &[]), [1, 0, 1]);
}

#[test]
fn a_recording_goes_on_from_an_image() {
    let bench = Bench::new();
    let file = bench.file("a");
    write(&*file, 0, 1, 1, Now);
    let image = bench.timeline(Lies::default()).image(&[]).remove(0);
    let log = RecordLog::new();
    let second = Bench { directory: Recorder::wrap(image, Arc::clone(&log)), log };
    let again = second.directory.open("a", OpenHow::existing(Space::Data)).unwrap();
    write(&*again, 1, 1, 2, Later);
    assert_eq!(second.after("a", &[Fate::Absent]), [1]);
    assert_eq!(second.after("a", &[Fate::Present]), [1, 2]);
    assert_eq!(bench.after("a", &[]), [1], "the first recording is not touched by the second");
}

#[test]
fn a_lying_device_makes_durable_things_pending() {
    let bench = Bench::new();
    let file = bench.file("a");
    write(&*file, 0, 1, 1, Later);
    file.flush().unwrap();
    write(&*file, 1, 1, 2, Now);
    let count = |lies| bench.timeline(lies).pending().len();
    assert_eq!(count(Lies::default()), 0);
    assert_eq!(count(Lies { flushes_of: Some(Space::Data), ..Lies::default() }), 1);
    assert_eq!(count(Lies { durable_writes_of: Some(Space::Data), ..Lies::default() }), 1);
    assert_eq!(count(Lies { flushes_of: Some(Space::Log), ..Lies::default() }), 0);
    assert_eq!(count(Lies { directory_syncs: true, ..Lies::default() }), 1);
}

#[test]
fn marks_are_seen_from_the_cut_after_them_on() {
    let bench = Bench::new();
    bench.log.mark(7);
    bench.file("a");
    let mut timeline = Timeline::new(bench.log.recording());
    timeline.advance(0);
    assert!(timeline.marks().is_empty());
    timeline.advance(timeline.end());
    assert_eq!(timeline.marks(), [7]);
}

#[test]
fn an_atomic_write_is_never_torn() {
    let bench = Bench::new();
    let file = bench.file("a");
    write(&*file, 0, 8, 1, Now);
    let mut buf = AlignedBuf::new(8 * 512);
    buf.fill(2);
    file.write_atomic(0, &buf, WHY, Later).unwrap();
    for seed in 0..20 {
        assert_eq!(bench.after("a", &[Fate::Torn { unit_bytes: 512, seed }]), [2; 8]);
    }
    assert_eq!(bench.after("a", &[Fate::Absent]), [1; 8]);
}

/// Returns the words of a region after a crash at the end.
fn words(bench: &Bench, count: usize, fates: &[Fate]) -> Vec<u8> {
    let image = bench.timeline(Lies::default()).image(fates).remove(0);
    let mut bytes = vec![0; count * 8];
    image.map("r", 256).expect("memory maps").read(0, &mut bytes);
    bytes.chunks(8).map(|word| word[0]).collect()
}

#[test]
fn a_store_is_pending_until_its_line_is_written_back_and_fenced() {
    let bench = Bench::new();
    let region = bench.directory.map("r", 256).unwrap();
    let pending = || bench.timeline(Lies::default()).pending().len();
    assert_eq!(pending(), 0, "the region itself is there");
    region.store(0, &[1; 8]);
    region.fence();
    assert_eq!(pending(), 1, "a fence alone writes nothing back");
    region.write_back(0, 8);
    assert_eq!(pending(), 1, "a write-back is not waited for without a fence");
    region.store(8, &[2; 8]);
    region.fence();
    assert_eq!(pending(), 1, "what was stored after the write-back may be missing");
    assert_eq!(words(&bench, 2, &[Fate::Absent]), [1, 0]);
    region.store(64, &[3; 8]);
    region.persist(0, 64);
    assert_eq!(words(&bench, 9, &[Fate::Absent]), [1, 2, 0, 0, 0, 0, 0, 0, 0], "the next line is another");
}

#[test]
fn a_store_is_torn_at_words_and_cut_at_lines() {
    let bench = Bench::new();
    let region = bench.directory.map("r", 256).unwrap();
    region.store(32, &[7; 64]);
    assert_eq!(bench.timeline(Lies::default()).pending().len(), 2);
    let torn = |seed| words(&bench, 12, &[Fate::Torn { unit_bytes: 8, seed }, Fate::Absent]);
    let shapes: std::collections::BTreeSet<_> = (0..50).map(torn).collect();
    assert!(shapes.len() > 8, "any subset of the four words, was {}", shapes.len());
    assert!(shapes.iter().all(|words| words[8..] == [0; 4]));
}

#[test]
fn a_fence_covers_what_its_own_thread_wrote_back() {
    let bench = Bench::new();
    let region = bench.directory.map("r", 256).unwrap();
    let elsewhere = |run: &(dyn Fn() + Sync)| std::thread::scope(|scope| scope.spawn(run).join().unwrap());
    let pending = || bench.timeline(Lies::default()).pending().len();
    region.store(0, &[1; 8]);
    region.write_back(0, 8);
    elsewhere(&|| region.fence());
    assert_eq!(pending(), 1, "another thread's fence waits for nothing of this one");
    region.fence();
    assert_eq!(pending(), 0);
    region.store(64, &[2; 8]);
    elsewhere(&|| region.persist(64, 8));
    assert_eq!(pending(), 0, "whoever writes a line back takes all that is in it");
}

/// Lets `see` look at every image of every crash of a recording.
fn all_images(bench: &Bench, mut see: impl FnMut(&Arc<MemoryDirectory>)) {
    let mut timeline = Timeline::new(bench.log.recording());
    for cut in 1..=timeline.end() {
        timeline.advance(cut);
        let count = timeline.pending().len();
        for choice in 0..1 << count {
            let fate = |no| if choice >> no & 1 == 1 { Fate::Present } else { Fate::Absent };
            see(&timeline.image(&(0..count).map(fate).collect::<Vec<_>>())[0]);
        }
    }
}

/// Returns whether the region exists. If it exists, it must be whole.
fn has_whole_region(image: &MemoryDirectory) -> bool {
    let is_there = image.exists("r").expect("memory is asked");
    if is_there {
        let file = image.open("r", OpenHow::existing(Space::Nvm)).expect("the file is there");
        assert_eq!(file.len_bytes().expect("a length"), 256);
    }
    is_there
}

/// In an earlier version, a region got its name before its length. So a crash could leave an empty region,
/// and the harness lengthened it without a record.
#[test]
fn a_new_region_is_there_whole_or_not_at_all() {
    let map = |bench: &Bench| bench.directory.map("r", 256).unwrap().store(0, &[1; 8]);
    let first = Bench::new();
    map(&first);
    let mut left = Vec::new();
    let mut whole = 0;
    all_images(&first, |image| match has_whole_region(image) {
        true => whole += 1,
        false => left.push(Arc::clone(image)),
    });
    assert!(whole > 0 && left.iter().any(|image| image.exists("r.new").unwrap()));
    for image in left {
        let log = RecordLog::new();
        let second = Bench { directory: Recorder::wrap(image, Arc::clone(&log)), log };
        map(&second);
        all_images(&second, |image| {
            has_whole_region(image);
        });
    }
}
