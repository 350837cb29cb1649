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

/// What a recovery shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Digest of the whole state.
    pub digest: u64,
    /// What the subject's own check found; empty = sound.
    pub damages: Vec<String>,
}

/// Where a workload runs.
pub struct Workbench {
    /// The devices (or their wrappers).
    pub devices: Devices,
    /// Where commits are noted.
    pub history: History,
    /// For the workload's decisions.
    pub rng: Rng,
    /// Lifts a fault of the devices, if there is one that is to be lifted.
    pub relief: Relief,
}

/// A database under test. Errors are texts for people.
pub trait Subject {
    /// Creates a database and runs a workload on it, noting its commits.
    fn work(&self, bench: &mut Workbench) -> Result<(), String>;
    /// Opens what a crash left, checks it and reads all of it. `opened` is to be called as soon as
    /// recovery has returned.
    fn recover(&self, devices: &Devices, opened: &mut dyn FnMut()) -> Result<Recovered, String>;
    /// Opens the devices after a crash and continues the workload, without reading all pages before. Reading
    /// all of them would bring every page into the pool, and evict what recovery left there. The contents are
    /// read on `twin`, an equal copy, and are passed to the history (`resume`). `history.opened()` is called
    /// as soon as recovery has returned.
    fn go_on(&self, bench: &mut Workbench, twin: &Devices) -> Result<(), String>;
}

/// How much to search.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// Images to try.
    pub images: usize,
    /// Images for each cut.
    pub images_per_cut: usize,
    /// Every n-th image is recovered twice (0: never). Either its recovery is crashed, or the database
    /// continues and is crashed later.
    pub second_crash_every: usize,
    /// Whether some of these databases continue. Otherwise the recovery is crashed in all of them.
    pub goes_on: bool,
    /// What the devices are made of.
    pub medium: Medium,
    /// Faults planted in the device.
    pub lies: Lies,
    /// Crash at the end of the recording only.
    pub at_end: bool,
    /// Stop after this many failures.
    pub failures_max: usize,
}

impl Plan {
    /// A plan with the usual proportions.
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

/// An image that was not recovered as promised.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Number of the image.
    pub image: usize,
    /// The failure, and how to repeat it.
    pub what: String,
}

/// What a search found.
#[derive(Debug, Clone, Default)]
pub struct SearchResult {
    /// Images tried.
    pub images: usize,
    /// Of these, crashes of a recovery, or of a database that had gone on after one.
    pub second_crashes: usize,
    /// Databases that went on after a recovery.
    pub lives: usize,
    /// Commits of the workload.
    pub commits: usize,
    /// Processor time spent opening, checking and reading: it does not depend on what else the machine does.
    pub recovering: Duration,
    /// Processor time spent building images.
    pub building: Duration,
    /// What the code under test came by, and how often.
    pub reached: BTreeMap<&'static str, u64>,
    /// What went wrong.
    pub failures: Vec<Failure>,
}

impl SearchResult {
    /// One line for people.
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

    /// Adds the figures of another search.
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

/// A workload's record.
pub struct Run {
    pub(crate) recording: Recording,
    pub(crate) digests: Vec<u64>,
    /// The states that a crash of this database's own recovery may show; `None` if it began with its
    /// creation.
    pub(crate) before: Option<Vec<u64>>,
    /// Crashes before it.
    pub(crate) life: usize,
    /// Something was done to the cache that it began with (`caches.rs`).
    pub(crate) is_spoilt: bool,
    /// How the workload ended, if not well.
    pub error: Option<String>,
}

impl Run {
    /// Digests of the states, from the empty one on.
    pub fn digests(&self) -> &[u64] {
        &self.digests
    }

    /// The cut after everything.
    pub fn end(&self) -> u64 {
        self.recording.end
    }

    /// The commits acknowledged and begun before a cut.
    pub fn span_at(&self, cut: u64) -> Span {
        let mut timeline = Timeline::new(self.recording.clone());
        timeline.advance(cut);
        History::span(timeline.marks())
    }

    /// The files of each device after a crash at a cut that lost nothing.
    pub fn image_at(&self, cut: u64) -> Vec<Vec<(String, MemoryImage)>> {
        let mut timeline = Timeline::new(self.recording.clone());
        timeline.advance(cut);
        let fates = vec![Fate::Present; timeline.pending().len()];
        timeline.image(&fates).iter().map(|device| device.images()).collect()
    }
}

/// Lets a subject recover; a panic is an error like any other.
pub(crate) fn recover_guarded(subject: &dyn Subject, devices: &Devices) -> Result<Recovered, String> {
    guarded(|| subject.recover(devices, &mut || ()))
}

/// Runs a workload once in memory and records it. `wrap` may put something between workload and recorder.
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

/// A panic is an error like any other, with a text that says so.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("{PANIC}: {}", said.unwrap_or("(no text)")))
    })
}

/// How the text of an error begins that is about what a workload read, not about a failure to read.
pub const WRONG: &str = "a wrong answer";

/// Part of the error text of a stopped database, which takes no more changes until it is restarted.
pub const STOPPED: &str = "takes no more changes";

/// How a workload that went on after errors ended: a wrong answer counts most, and then a panic; that it
/// stopped is said too.
pub(crate) fn outcome(errors: Vec<String>) -> Result<(), String> {
    let first_of = |kind| errors.iter().find(|what: &&String| what.starts_with(kind));
    let worst = first_of(WRONG).or_else(|| first_of(PANIC)).or(errors.first());
    let Some(worst) = worst else { return Ok(()) };
    match errors.iter().find(|what| what.contains(STOPPED) && *what != worst) {
        Some(stopped) => Err(format!("{worst}; later: {stopped}")),
        None => Err(worst.clone()),
    }
}

/// An error if a panic of the device, which only the pager calls, has left the database going on.
pub(crate) fn went_on(errors: &[String], is_sound: bool) -> Option<String> {
    (has_panicked(errors) && is_sound).then(|| format!("{WRONG}: it goes on behind a panic within the pager"))
}

/// How the text of an error begins that was a panic.
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
            // Of some moments ago, mostly.
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

/// Adds the processor time that a piece of work takes in this thread.
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
