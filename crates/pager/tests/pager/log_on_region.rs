//! A log in persistent memory. Whatever cache lines survive a power failure, acknowledged records are read
//! back, and nothing else is. Other properties of a log are tested on files and regions alike, in
//! log_round_trip.rs, log_recycle.rs and log_damage.rs.

use std::sync::Arc;

use crate::log_support::*;
use varve_device::{Directory, Fate, MemoryDirectory, RecordLog, Recorder, Recording, Timeline, WORD_BYTES};
use varve_pager::log::{FIRST_LSN, StoredLog, Tail};
use varve_pager::{Log, Lsn};

/// The marks of the recording. This one says that the log exists. The two functions make marks that say that
/// a commit was acknowledged, or that the control file names a later redo position.
const READY: u64 = 0;
const fn acknowledged(count: usize) -> u64 {
    1 << 56 | count as u64
}
const fn redo_from(lsn: Lsn) -> u64 {
    2 << 56 | lsn.get()
}

/// The facts that the marks of a recording say at a moment.
struct Known {
    is_ready: bool,
    acknowledged: usize,
    from: Lsn,
}

fn known(marks: &[u64]) -> Known {
    let mut known = Known { is_ready: false, acknowledged: 0, from: FIRST_LSN };
    for mark in marks {
        match (mark >> 56, mark & ((1 << 56) - 1)) {
            (0, _) => known.is_ready = true,
            (1, count) => known.acknowledged = count as usize,
            (_, lsn) => known.from = Lsn::new(lsn),
        }
    }
    known
}

fn log_on(device: Arc<dyn Directory>) -> Log {
    let stored = StoredLog::open(config_on(region_files(&*device)), DATABASE).unwrap();
    stored.resume(1, Tail::empty(), FIRST_LSN).unwrap()
}

/// Records commits of these sizes, with a checkpoint after each `truncate`-th. Returns the recording, and the
/// committed notes.
fn record(sizes: &[usize], truncate: usize) -> (Recording, Vec<Note>) {
    let events = RecordLog::new();
    let log = log_on(Recorder::wrap(MemoryDirectory::new(), Arc::clone(&events)));
    events.mark(READY);
    let mut written = Vec::new();
    for (i, bytes) in sizes.iter().enumerate() {
        log.admit().unwrap();
        let bytes = payload(i, *bytes);
        let lsn = append(&log, &bytes);
        written.push((lsn, bytes));
        log.flush(lsn).unwrap();
        events.mark(acknowledged(written.len()));
        if (i + 1) % truncate == 0 {
            let from = log.redo_point(|| None).unwrap();
            events.mark(redo_from(from));
            log.truncate(from).unwrap();
        }
    }
    (events.recording(), written)
}

/// Returns the fates that are tried: all stores lost, all stores there, and some choices of words.
fn fates(count: usize, cut: u64) -> Vec<Vec<Fate>> {
    let torn = |seed: u64| {
        let fate = |no: usize| match (seed ^ no as u64 ^ cut).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 62 {
            0 => Fate::Absent,
            1 => Fate::Present,
            _ => Fate::Torn { unit_bytes: WORD_BYTES, seed: seed.wrapping_mul(31) ^ no as u64 },
        };
        (0..count).map(fate).collect()
    };
    match count {
        0 => vec![Vec::new()],
        _ => {
            vec![vec![Fate::Absent; count], vec![Fate::Present; count], torn(cut * 3 + 1), torn(cut * 7 + 2)]
        }
    }
}

/// Reads the log that a restart finds in an image. It must have at least the acknowledged records, at most
/// the written ones, and all in order.
fn judge(image: Arc<MemoryDirectory>, known: &Known, written: &[Note], cut: u64) {
    let (notes, tail) = read(&OnRegion(image), &first_life(), known.from, NOTHING_KNOWN)
        .unwrap_or_else(|error| panic!("cut {cut}: {error}"));
    let skipped = written.iter().take_while(|(lsn, _)| *lsn <= known.from).count();
    let expected = &written[skipped..];
    assert!(notes.len() + skipped >= known.acknowledged, "cut {cut}: an acknowledged commit is lost");
    assert!(notes == expected[..notes.len()], "cut {cut}: the log holds what was not written");
    assert!(tail.next >= known.from);
}

fn every_cut(sizes: &[usize], truncate: usize) -> usize {
    let (recording, written) = record(sizes, truncate);
    let mut timeline = Timeline::new(recording);
    let mut images = 0;
    for cut in 1..=timeline.end() {
        timeline.advance(cut);
        let known = known(timeline.marks());
        if !known.is_ready {
            continue;
        }
        let pending = timeline.pending().len();
        for fates in fates(pending, cut) {
            judge(timeline.image(&fates).remove(0), &known, &written, cut);
            images += 1;
        }
    }
    images
}

/// The commits are small, with one to five lines each. They are torn at words in all ways that the seeds
/// make.
#[test]
fn every_moment_of_thirty_commits() {
    let sizes: Vec<usize> = (0..30).map(|i| i * 37 % 250 + 1).collect();
    let images = every_cut(&sizes, usize::MAX);
    assert!(images > 1_000, "only {images} images");
}

/// Segments become full, are released, and are recycled. So their old blocks are after the new ones.
#[test]
fn moments_around_recycled_segments() {
    let sizes: Vec<usize> = (0..16).map(|i| 21_000 + i * 977).collect();
    let (recording, written) = record(&sizes, 3);
    let mut timeline = Timeline::new(recording);
    let mut cut = 1;
    let mut recycled = false;
    while cut <= timeline.end() {
        timeline.advance(cut);
        let known = known(timeline.marks());
        if known.is_ready {
            recycled |= known.from.get() > SEGMENT_BYTES;
            for fates in fates(timeline.pending().len(), cut) {
                judge(timeline.image(&fates).remove(0), &known, &written, cut);
            }
        }
        cut += 61;
    }
    assert!(recycled && written.last().unwrap().0.get() > 5 * SEGMENT_BYTES);
}

/// A start that reads the log after a killed process makes the log durable before it uses it.
#[test]
fn what_a_killed_process_left_in_caches_is_made_durable() {
    let events = RecordLog::new();
    let device: Arc<dyn Directory> = Recorder::wrap(MemoryDirectory::new(), Arc::clone(&events));
    let log = log_on(Arc::clone(&device));
    log.flush(append(&log, b"one")).unwrap();
    drop(log);
    // The killed process had stored a commit and not written it back. The caches survive, because the machine
    // does.
    let region = device.map("nvm", 0).unwrap();
    region.store(FIRST_LSN.get() + 64 * 8, &[1; 64]);
    assert!(!pending_at_end(&events).is_empty());
    StoredLog::open(config_on(region_files(&*device)), DATABASE).unwrap().make_durable().unwrap();
    assert!(pending_at_end(&events).is_empty());
}

fn pending_at_end(events: &RecordLog) -> Vec<varve_device::Event> {
    let mut timeline = Timeline::new(events.recording());
    timeline.advance(timeline.end());
    timeline.pending().into_iter().cloned().collect()
}

/// A commit of a few hundred bytes takes as many lines as it needs.
#[test]
fn a_small_commit_takes_few_lines() {
    let medium = OnRegion(MemoryDirectory::new());
    let log = create(&medium);
    let before = log.stats().flushed_bytes;
    log.flush(append(&log, &payload(1, 200))).unwrap();
    assert_eq!(log.stats().flushed_bytes - before, 256);
}
