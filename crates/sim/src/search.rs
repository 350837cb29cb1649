//! The search for failures. It runs and records a workload, chooses moments of the recording, and tries
//! several crash images for each moment (`trial.rs`).
//!
//! Invariants
//! 1. Images are numbered in the order in which they are tried. The seed and an image's number repeat its
//!    trial.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use varve_device::{Directory, Fate, Lies, MemoryImage, RecordLog, Recording, Timeline, take_reached};

use crate::caches::cache_of;
use crate::cuts::Moments;
use crate::devices::{Devices, Medium};
use crate::history::{History, Span};
use crate::relief::{Relief, has_panicked};
use crate::rng::Rng;
use crate::trial::Trial;

/// The state that a recovery shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The digest of the whole state.
    pub digest: u64,
    /// The damages that the subject's own check found; empty means sound.
    pub damages: Vec<String>,
}

/// The environment of a workload.
pub struct Workbench {
    /// The devices, or their wrappers.
    pub devices: Devices,
    /// The record of commits.
    pub history: History,
    /// The generator for the workload's decisions.
    pub rng: Rng,
    /// Ends a fault of the devices, if there is one that must end.
    pub relief: Relief,
}

/// A database under test. Errors are texts.
pub trait Subject {
    /// Creates a database, runs a workload on it, and records its commits.
    fn work(&self, bench: &mut Workbench) -> Result<(), String>;
    /// Opens the database after a crash, checks it, and reads all contents. `opened` must be called as soon
    /// as recovery has returned.
    fn recover(&self, devices: &Devices, opened: &mut dyn FnMut()) -> Result<Recovered, String>;
    /// Opens the devices after a crash and continues the workload, without reading all pages before. Reading
    /// all pages would evict the pages that recovery left in the pool. The contents are read on `twin`, an
    /// equal copy, and are passed to the history (`resume`). `history.opened()` is called as soon as recovery
    /// has returned.
    fn go_on(&self, bench: &mut Workbench, twin: &Devices) -> Result<(), String>;
}

/// The extent of a search.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The seed of all random decisions.
    pub seed: u64,
    /// The number of images.
    pub images: usize,
    /// The number of images for each cut.
    pub images_per_cut: usize,
    /// Every n-th image is recovered twice (0: never). Either the recovery of the image is crashed, or the
    /// database continues and is crashed later.
    pub second_crash_every: usize,
    /// Whether some of these databases continue. Otherwise the recovery is crashed in all of them.
    pub goes_on: bool,
    /// The medium of the devices.
    pub medium: Medium,
    /// Planted faults of the device.
    pub lies: Lies,
    /// Whether crashes are only at the end of the recording.
    pub at_end: bool,
    /// The search ends after this number of failures.
    pub failures_max: usize,
}

impl Plan {
    /// Returns a plan with the usual proportions.
    pub fn new(seed: u64, images: usize) -> Plan {
        Plan {
            seed,
            images,
            images_per_cut: 8,
            second_crash_every: 4,
            goes_on: true,
            medium: Medium::Memory,
            lies: Lies::default(),
            at_end: false,
            failures_max: 1,
        }
    }
}

/// An image with a wrong recovery.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Number of the image.
    pub image: usize,
    /// The failure, and how to repeat it.
    pub what: String,
}

/// The result of a search.
#[derive(Debug, Clone, Default)]
pub struct SearchResult {
    /// The number of images that were tried.
    pub images: usize,
    /// The number of these images that are crashes of a recovery, or of a database that continued after a
    /// recovery.
    pub second_crashes: usize,
    /// The number of databases that continued after a recovery.
    pub lives: usize,
    /// The number of commits of the workload.
    pub commits: usize,
    /// Processor time for opening, checking and reading. It does not depend on other load of the machine.
    pub recovering: Duration,
    /// Processor time for building images.
    pub building: Duration,
    /// The points that the tested code reached, and how often.
    pub reached: BTreeMap<&'static str, u64>,
    /// The failures.
    pub failures: Vec<Failure>,
}

impl SearchResult {
    /// Returns a summary in one line.
    pub fn summary(&self) -> String {
        let each_ms = |time: Duration| time.as_secs_f64() * 1e3 / self.images.max(1) as f64;
        format!(
            "{} images ({} of second crashes; {} went on after the first) of {} commits: {:.2} ms of processor time to build, {:.2} to open, recover and check each; {} failures",
            self.images,
            self.second_crashes,
            self.lives,
            self.commits,
            each_ms(self.building),
            each_ms(self.recovering),
            self.failures.len()
        )
    }

    /// Adds the results of another search.
    pub fn add(&mut self, other: SearchResult) {
        self.images += other.images;
        self.second_crashes += other.second_crashes;
        self.lives += other.lives;
        self.commits += other.commits;
        self.recovering += other.recovering;
        self.building += other.building;
        other.reached.into_iter().for_each(|(event, count)| *self.reached.entry(event).or_default() += count);
        self.failures.extend(other.failures);
    }
}

/// A recorded run of a workload.
pub struct Run {
    pub(crate) recording: Recording,
    pub(crate) digests: Vec<u64>,
    /// The states that a crash of this database's own recovery may show; `None` if it began with its
    /// creation.
    pub(crate) before: Option<Vec<u64>>,
    /// The number of crashes before this run.
    pub(crate) life: usize,
    /// Whether the cache was damaged before this run (`caches.rs`).
    pub(crate) is_spoilt: bool,
    /// The error with which the workload ended, if any.
    pub error: Option<String>,
}

impl Run {
    /// Returns the digests of the states, beginning with the empty one.
    pub fn digests(&self) -> &[u64] {
        &self.digests
    }

    /// Returns the cut at the end.
    pub fn end(&self) -> u64 {
        self.recording.end
    }

    /// Returns the commits that were acknowledged and begun before a cut.
    pub fn span_at(&self, cut: u64) -> Span {
        let mut timeline = Timeline::new(self.recording.clone());
        timeline.advance(cut);
        History::span(timeline.marks())
    }

    /// Returns the files of each device after a crash at a cut that lost no write.
    pub fn image_at(&self, cut: u64) -> Vec<Vec<(String, MemoryImage)>> {
        let mut timeline = Timeline::new(self.recording.clone());
        timeline.advance(cut);
        let fates = vec![Fate::Present; timeline.pending().len()];
        timeline.image(&fates).iter().map(|device| device.images()).collect()
    }
}

/// Recovers a subject. A panic becomes an error.
pub(crate) fn recover_guarded(subject: &dyn Subject, devices: &Devices) -> Result<Recovered, String> {
    guarded(|| subject.recover(devices, &mut || ()))
}

/// Runs a workload once in memory and records it. `wrap` may add wrappers between workload and recorder.
pub fn run(
    subject: &dyn Subject,
    seed: u64,
    wrap: impl FnMut(Arc<dyn Directory>) -> Arc<dyn Directory>,
) -> Run {
    let log = RecordLog::new();
    let devices = Devices::recorded(Medium::Memory, seed, &log).wrapped(wrap);
    run_on(subject, seed, &log, devices, Relief::default())
}

/// Runs a workload once on devices that `log` records.
pub(crate) fn run_on(
    subject: &dyn Subject,
    seed: u64,
    log: &Arc<RecordLog>,
    devices: Devices,
    relief: Relief,
) -> Run {
    let history = History::new(Arc::clone(log));
    let mut bench = Workbench { devices, history, rng: Rng::new(seed), relief };
    let worked = guarded(|| subject.work(&mut bench));
    let (recording, digests) = (log.recording(), bench.history.digests());
    Run { recording, digests, before: None, life: 0, is_spoilt: false, error: worked.err() }
}

/// Runs a workload and tries crash images of it.
pub fn search(subject: &dyn Subject, plan: Plan) -> SearchResult {
    take_reached();
    let log = RecordLog::new();
    let devices = Devices::recorded(plan.medium, plan.seed, &log);
    let run = run_on(subject, plan.seed, &log, devices, Relief::default());
    if let Some(what) = &run.error {
        let what = format!("seed {}: the workload itself failed: {what}", plan.seed);
        return SearchResult { failures: vec![Failure { image: 0, what }], ..SearchResult::default() };
    }
    let mut found = search_run(subject, &run, plan);
    found.reached = take_reached();
    found
}

/// Converts a panic to an error with a special text.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("{PANIC}: {}", said.unwrap_or("(no text)")))
    })
}

/// The beginning of the text of an error that reports a wrong result of a read, and not a failed read.
pub const WRONG: &str = "a wrong answer";

/// Part of the error text of a stopped database, which takes no more changes until it is restarted.
pub const STOPPED: &str = "takes no more changes";

/// Makes the result of a workload that continued after errors. A wrong answer is reported first, then a
/// panic. If the database stopped, the result says so, too.
pub(crate) fn outcome(errors: Vec<String>) -> Result<(), String> {
    let first_of = |kind| errors.iter().find(|what: &&String| what.starts_with(kind));
    let worst = first_of(WRONG).or_else(|| first_of(PANIC)).or(errors.first());
    let Some(worst) = worst else { return Ok(()) };
    match errors.iter().find(|what| what.contains(STOPPED) && *what != worst) {
        Some(stopped) => Err(format!("{worst}; later: {stopped}")),
        None => Err(worst.clone()),
    }
}

/// Returns an error if the database continues after a panic of the device, which only the pager calls.
pub(crate) fn went_on(errors: &[String], is_sound: bool) -> Option<String> {
    (has_panicked(errors) && is_sound).then(|| format!("{WRONG}: it goes on behind a panic within the pager"))
}

/// The beginning of the text of an error that was a panic.
pub const PANIC: &str = "it panics";

/// Tries crash images of a recorded workload.
pub fn search_run(subject: &dyn Subject, run: &Run, plan: Plan) -> SearchResult {
    let mut found = SearchResult { commits: run.digests.len() - 1, ..SearchResult::default() };
    let mut rng = Rng::new(plan.seed ^ 0xC0FF_EE00);
    let moments = Moments::of(&run.recording);
    let mut earlier: Option<MemoryImage> = None;
    while found.images < plan.images && found.failures.len() < plan.failures_max {
        let cuts = if plan.at_end { 1 } else { plan.images.div_ceil(plan.images_per_cut.max(1)).max(1) };
        let mut timeline = Timeline::with_lies(run.recording.clone(), plan.lies);
        let before = found.images;
        for cut in moments.some(cuts, &mut rng) {
            timeline.advance(cut);
            let trial = Trial { subject, run, plan, cut, timeline: &timeline, earlier: earlier.as_ref() };
            trial.all_choices(&mut rng, &mut found);
            // The earlier state is usually from some cuts ago.
            if earlier.is_none() || cut.is_multiple_of(3) {
                let fates = vec![Fate::Present; timeline.pending().len()];
                earlier = cache_of(&timeline.image(&fates)).or(earlier);
            }
            if found.images >= plan.images || found.failures.len() >= plan.failures_max {
                break;
            }
        }
        if plan.at_end && found.images - before < plan.images_per_cut {
            break;
        }
    }
    found
}

/// Does work, and adds the processor time that it took in this thread.
pub(crate) fn timed<T>(sum: &mut Duration, work: impl FnOnce() -> T) -> T {
    let started = processor_time();
    let done = work();
    *sum += processor_time().saturating_sub(started);
    done
}

fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}
