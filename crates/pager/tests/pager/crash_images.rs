//! After a crash at any moment, the pages contain a prefix of the mini-transactions. The prefix has all
//! mini-transactions that were durable, and none is there in part. The same is true if recovery crashes.
//!
//! Each step of the workload is one mini-transaction, which writes its number to the first page and to
//! others. So the first page shows which prefix an image has, and every other page must agree with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{KIND, config, get, open};
use varve_device::{
    Change, Directory, Event, Fate, Lies, MemoryDirectory, RecordLog, Recorder, Recording, Space, Timeline,
};
use varve_pager::{
    Algorithm, Compression, HomeLayout, NvmConfig, PackedConfig, PageId, Pager, PagerConfig, ProtectionKind,
    SpaceId,
};

/// The pages that a step has written, and the pages that it has freed.
#[derive(Default, Clone)]
struct Step {
    written: Vec<PageId>,
    freed: Vec<PageId>,
}

/// Settings over one directory for everything.
type Settings = fn(Arc<dyn Directory>) -> PagerConfig;

/// All steps of a run, in their order.
struct History {
    settings: Settings,
    owner: u32,
    steps: Vec<Step>,
}

impl History {
    /// Returns the pages after the first `count` steps, with the number of the step that wrote each last.
    fn pages_after(&self, count: u64) -> BTreeMap<PageId, u64> {
        let mut pages = BTreeMap::new();
        for (number, step) in (1..=count).zip(&self.steps) {
            pages.retain(|id, _| !step.freed.contains(id));
            pages.extend(step.written.iter().map(|id| (*id, number)));
        }
        pages
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Returns the settings with the log in persistent memory.
fn nvm_settings(directory: Arc<dyn Directory>) -> PagerConfig {
    let nvm = NvmConfig { directory: directory.clone(), size_bytes: 768 << 10, log_bytes: 512 << 10 };
    PagerConfig { nvm: Some(nvm), ..settings(directory) }
}

/// Returns the settings with a device that writes pages atomically.
fn with_atomic_writes(directory: Arc<dyn Directory>) -> PagerConfig {
    PagerConfig { protection: ProtectionKind::AtomicWrite, ..settings(directory) }
}

/// Returns the settings with a device that writes compressed pages atomically, with holes after them.
fn with_atomic_compressed_writes(directory: Arc<dyn Directory>) -> PagerConfig {
    PagerConfig { protection: ProtectionKind::AtomicWrite, ..compressed(directory) }
}

/// Returns the settings with doublewrite copies in persistent memory, and the log in files.
fn nvm_copies(directory: Arc<dyn Directory>) -> PagerConfig {
    let nvm = NvmConfig { directory: directory.clone(), size_bytes: 64 << 10, log_bytes: 0 };
    let protection = ProtectionKind::NvmDoublewrite { batch_slots: 8, single_slots: 2 };
    PagerConfig { nvm: Some(nvm), protection, ..settings(directory) }
}

/// Returns the settings with pages in persistent memory. It has 24 slots, which is half of the pool.
fn nvm_pages(directory: Arc<dyn Directory>) -> PagerConfig {
    let nvm = NvmConfig { directory: directory.clone(), size_bytes: 112 << 10, log_bytes: 0 };
    PagerConfig { nvm: Some(nvm), protection: ProtectionKind::Nvm, ..settings(directory) }
}

/// Returns the settings with log and pages in persistent memory, over packed spaces.
fn nvm_packed(directory: Arc<dyn Directory>) -> PagerConfig {
    let packed = PackedConfig { extent_bytes: 256 << 10, held_pages_max: 64, ..PackedConfig::DEFAULT };
    PagerConfig { layout: HomeLayout::Packed(packed), ..nvm_all(directory) }
}

/// Returns the settings with log and pages in persistent memory.
fn nvm_all(directory: Arc<dyn Directory>) -> PagerConfig {
    let nvm = NvmConfig { directory: directory.clone(), size_bytes: 624 << 10, log_bytes: 512 << 10 };
    PagerConfig { nvm: Some(nvm), protection: ProtectionKind::Nvm, ..settings(directory) }
}

fn settings(directory: Arc<dyn Directory>) -> PagerConfig {
    let mut small = config(&MemoryDirectory::new(), 48);
    small.data = directory.clone();
    small.log = directory.clone();
    small.rollback = directory.clone();
    small.temporary = directory.clone();
    small.control = directory;
    small.log_segment_bytes = 64 << 10;
    small.log_capacity_bytes = 512 << 10;
    small
}

/// Returns the settings with compressed pages, whose places have holes.
fn compressed(directory: Arc<dyn Directory>) -> PagerConfig {
    PagerConfig { compression: Compression::of(Algorithm::Lz4), ..settings(directory) }
}

/// Returns the settings with compressed pages that the log protects.
fn compressed_images(directory: Arc<dyn Directory>) -> PagerConfig {
    PagerConfig { compression: Compression::of(Algorithm::Lz4), ..with_images(directory) }
}

/// Returns the settings with pages that the log protects.
fn with_images(directory: Arc<dyn Directory>) -> PagerConfig {
    let mut config = settings(directory);
    config.protection = ProtectionKind::FullPageLog;
    config.log_segment_bytes = 256 << 10;
    config.log_capacity_bytes = 1 << 20;
    config
}

/// Makes one step. It always writes the first page, among others.
fn step(pager: &Pager, owner: u32, number: u64, pages: &[PageId], random: &mut Random) -> Step {
    let mut done = Step::default();
    let mut mtr = pager.begin().unwrap();
    let created = if pages.is_empty() || random.below(4) == 0 {
        let id = mtr.allocate(SpaceId::DATA, owner, None).unwrap();
        done.written.push(id);
        Some(mtr.create(id, KIND, owner).unwrap())
    } else {
        None
    };
    if pages.len() > 60 && random.below(3) == 0 {
        let victim = pages[1 + random.below(pages.len() as u64 - 1) as usize];
        mtr.free(victim).unwrap();
        done.freed.push(victim);
    }
    let mut changed: Vec<PageId> = pages.first().copied().into_iter().collect();
    for _ in 0..random.below(3) {
        changed.extend((!pages.is_empty()).then(|| pages[random.below(pages.len() as u64) as usize]));
    }
    changed.sort_unstable();
    changed.dedup();
    changed.retain(|id| !done.freed.contains(id));
    let handles: Vec<_> = changed.iter().map(|id| mtr.x(*id).unwrap()).collect();
    for h in handles.into_iter().chain(created) {
        if random.below(8) == 0 {
            let body = vec![number as u8; mtr.page(h).len() - 32];
            mtr.image(h, &body);
        }
        if random.below(4) == 0 {
            // Pages that are compressed get longer and shorter; redo has to read them for that.
            let noise = random.below(4) as usize * 1000;
            let bytes: Vec<u8> =
                (0..3000).map(|at| if at < noise { random.below(256) as u8 } else { 0 }).collect();
            bytes.chunks(1000).enumerate().for_each(|(at, piece)| mtr.write(h, 200 + 1000 * at, piece));
        }
        mtr.write(h, 100, &number.to_le_bytes());
    }
    mtr.commit();
    done.written.extend(changed);
    done
}

/// Runs steps, and marks each step whose log was flushed.
fn run(pager: &Pager, settings: Settings, record: &RecordLog, steps_count: u64, seed: u64) -> History {
    let mut random = Random(seed);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let mut history = History { settings, owner, steps: Vec::new() };
    let mut scratch = None;
    for number in 1..=steps_count {
        let mut pages: Vec<PageId> = history.pages_after(number - 1).into_keys().collect();
        if let Some(first) = history.steps.first() {
            let first = first.written[0];
            pages.retain(|id| *id != first);
            pages.insert(0, first);
        }
        history.steps.push(step(pager, owner, number, &pages, &mut random));
        match random.below(12) {
            0 => drop(pager.tick_write(4).unwrap()),
            3 => drop(pager.tick_nvm(6).unwrap()),
            1 => pager.checkpoint().unwrap(),
            2 => match scratch.take() {
                Some(other) => pager.drop_segment(SpaceId::DATA, other).unwrap(),
                None => scratch = Some(fill_scratch(pager)),
            },
            _ => {}
        }
        if random.below(3) == 0 {
            pager.flush_log(pager.log().end()).unwrap();
            record.mark(number);
        }
    }
    history
}

/// Makes a segment that is dropped later. Its pages are discarded before they were written.
fn fill_scratch(pager: &Pager) -> u32 {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    for number in 0..10 {
        crate::common::add(pager, owner, number).unwrap();
    }
    owner
}

/// Opens an image, and compares it with the history. Returns the length of the prefix that the image has.
fn verify(image: Arc<dyn Directory>, history: &History, acknowledged: u64, what: &str) -> u64 {
    let pager = open(&(history.settings)(image));
    let first = history.steps[0].written[0];
    let owned = pager.pages_of_owner(SpaceId::DATA, history.owner).unwrap();
    let count = if owned.is_empty() { 0 } else { get(&pager, first).unwrap() };
    assert!(count >= acknowledged, "{what}: {count} steps are there, {acknowledged} were acknowledged");
    let expected = history.pages_after(count);
    assert_eq!(owned, expected.keys().copied().collect::<Vec<_>>(), "{what}: pages after {count} steps");
    for (id, number) in expected {
        assert_eq!(get(&pager, id).unwrap(), number, "{what}: page {id} after {count} steps");
    }
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{what}");
    count
}

fn fates(pending: &[&Event], choice: u64, random: &mut Random) -> Vec<Fate> {
    let one = random.below(pending.len().max(1) as u64) as usize;
    let any = |_: &&Event| match random.below(5) {
        0 | 1 => Fate::Absent,
        2 => Fate::Present,
        3 => Fate::Torn {
            unit_bytes: if random.below(2) == 0 { 512 } else { 4096 },
            seed: random.below(1 << 30),
        },
        _ => Fate::Garbage { seed: random.below(1 << 30) },
    };
    match choice {
        0 => vec![Fate::Absent; pending.len()],
        1 => vec![Fate::Present; pending.len()],
        2 => (0..pending.len()).map(|at| if at == one { Fate::Absent } else { Fate::Present }).collect(),
        _ => pending.iter().map(any).collect(),
    }
}

/// Verifies crash images at many cuts. For some of the images, also crashes their recovery.
fn crash_everywhere(mut timeline: Timeline, history: &History, cuts_count: u64, depth: u32, before: u64) {
    let mut random = Random(7 + u64::from(depth));
    let end = timeline.end();
    for at in 1..=cuts_count {
        timeline.advance(end * at / cuts_count);
        let acknowledged = timeline.marks().last().copied().unwrap_or(before);
        let choice = at % 4;
        let fates = fates(&timeline.pending(), choice, &mut random);
        let image = timeline.image(&fates).remove(0);
        let what = format!("depth {depth}, cut {} of {end}, choice {choice}", end * at / cuts_count);
        if depth > 0 && at % 7 == 0 {
            let record = RecordLog::new();
            let recorder: Arc<dyn Directory> = Recorder::wrap(image, record.clone());
            let count = verify(recorder, history, acknowledged, &what);
            crash_everywhere(
                Timeline::new(record.recording()),
                history,
                8,
                depth - 1,
                count.min(acknowledged),
            );
        } else {
            verify(image, history, acknowledged, &what);
        }
    }
}

fn record(settings: Settings, steps_count: u64, seed: u64) -> (Recording, History) {
    let record = RecordLog::new();
    let recorder: Arc<dyn Directory> = Recorder::wrap(MemoryDirectory::new(), record.clone());
    let pager = open(&settings(recorder));
    let history = run(&pager, settings, &record, steps_count, seed);
    drop(pager);
    (record.recording(), history)
}

#[test]
fn any_crash_leaves_a_prefix() {
    for seed in 1..=4 {
        let (recording, history) = record(settings, 250, seed);
        crash_everywhere(Timeline::new(recording), &history, 150, 2, 0);
    }
}

#[test]
fn any_crash_leaves_a_prefix_under_full_page_log() {
    for seed in 5..=6 {
        let (recording, history) = record(with_images, 250, seed);
        crash_everywhere(Timeline::new(recording), &history, 150, 2, 0);
    }
}

#[test]
fn a_crash_early_on_leaves_a_prefix() {
    let (recording, history) = record(settings, 6, 11);
    crash_everywhere(Timeline::new(recording), &history, 250, 2, 0);
}

/// Holes after pages that became durable may be there or not.
#[test]
fn any_crash_leaves_a_prefix_of_pages_with_holes_behind_them() {
    let is_punch = |event: &&Event| matches!(event.change, Change::Punch { .. });
    for (seed, settings) in [(1, compressed as Settings), (2, compressed), (3, compressed_images)] {
        let (recording, history) = record(settings, 250, seed);
        let mut timeline = Timeline::new(recording.clone());
        let end = timeline.end();
        let cuts_with_holes = (1..=150).filter(|at| {
            timeline.advance(end * at / 150);
            timeline.pending().iter().any(is_punch)
        });
        let cuts_with_holes = cuts_with_holes.count();
        assert!(cuts_with_holes > 25, "a hole is pending at {cuts_with_holes} of 150 cuts");
        crash_everywhere(Timeline::new(recording), &history, 150, 2, 0);
    }
}

#[test]
fn any_crash_leaves_a_prefix_on_a_device_with_atomic_writes() {
    let (recording, history) = record(with_atomic_writes, 250, 12);
    crash_everywhere(Timeline::new(recording), &history, 150, 2, 0);
}

#[test]
fn any_crash_leaves_a_prefix_of_compressed_pages_that_are_written_atomically() {
    for seed in [12, 13] {
        let (recording, history) = record(with_atomic_compressed_writes, 250, seed);
        crash_everywhere(Timeline::new(recording), &history, 150, 2, 0);
    }
}

#[test]
fn any_crash_leaves_a_prefix_with_copies_in_persistent_memory() {
    for seed in 9..=10 {
        let (recording, history) = record(nvm_copies, 250, seed);
        crash_everywhere(Timeline::new(recording), &history, 150, 2, 0);
    }
    let (recording, history) = record(nvm_copies, 6, 11);
    crash_everywhere(Timeline::new(recording), &history, 150, 2, 0);
}

#[test]
fn a_log_in_persistent_memory_leaves_a_prefix() {
    for seed in 1..=3 {
        let (recording, history) = record(nvm_settings, 250, seed);
        crash_everywhere(Timeline::new(recording), &history, 150, 2, 0);
    }
    let (recording, history) = record(nvm_settings, 6, 11);
    crash_everywhere(Timeline::new(recording), &history, 250, 2, 0);
}

#[test]
fn pages_in_persistent_memory_leave_a_prefix() {
    for (seed, settings) in [(1, nvm_pages as Settings), (2, nvm_all), (3, nvm_pages), (4, nvm_packed)] {
        let (recording, history) = record(settings, 250, seed);
        crash_everywhere(Timeline::new(recording), &history, 150, 2, 0);
    }
    for settings in [nvm_pages as Settings, nvm_all] {
        let (recording, history) = record(settings, 6, 11);
        crash_everywhere(Timeline::new(recording), &history, 150, 2, 0);
    }
}

/// The test finds a device that loses data which it promised to keep.
#[test]
fn a_lying_device_is_found_out() {
    let lies = [
        Lies { durable_writes_of: Some(Space::Log), ..Lies::default() },
        Lies { durable_writes_of: Some(Space::Control), ..Lies::default() },
        Lies { flushes_of: Some(Space::Data), ..Lies::default() },
    ];
    for lie in lies {
        let (recording, history) = record(settings, 250, 3);
        let crash = || crash_everywhere(Timeline::with_lies(recording, lie), &history, 150, 0, 0);
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(crash));
        assert!(found.is_err(), "{lie:?} went unnoticed");
    }
}
