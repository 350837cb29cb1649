//! Tries the crash images of one cut, which is a moment of the recording. Each image is recovered, and the
//! recovered state is judged. Some recoveries are crashed themselves. Some recovered databases continue with
//! the workload and are crashed later.
//!
//! ```text
//!   work ---- crash --+-- recover, judge
//!                     +-- recover, and crash that: recover, judge
//!                     +-- recover, go on ---- crash --+-- recover, judge
//!                                                     +-- ...
//! ```
//!
//! Invariants
//! 1. The history says which commits were acknowledged and which had begun before the cut. The recovered
//!    state must be one of the states from the last acknowledged commit to the last begun commit.
//! 2. When a recovery has returned, the state that it recovered is final. A recovery after a later crash must
//!    show this state, or a state that was committed since.
//! 3. A database that continues is not read first, so the pool still has all pages that recovery left there.
//! 4. Images of later crashes count towards the search's number of images, so they do not make the search
//!    longer.

use std::sync::Arc;

use varve_device::{Fate, MemoryImage, RecordLog, Timeline};

use crate::caches::{is_stop, spoil};
use crate::choice::choices;
use crate::devices::Devices;
use crate::history::{History, OPENED, Span};
use crate::relief::Relief;
use crate::rng::Rng;
use crate::search::{
    Failure, Plan, Recovered, Run, SearchResult, Subject, Workbench, guarded, search_run, timed,
};

/// The number of crashes of a recovery.
const CRASHES_OF_RECOVERY: usize = 2;
/// The number of images of a database that has continued, and of each of its cuts.
const IMAGES_OF_A_LIFE: usize = 6;
const IMAGES_OF_A_CUT: usize = 2;
/// The images that are recovered twice are divided into groups of this size. In each group, one database
/// continues with the workload.
const LIVES_EVERY: u64 = 3;
/// The largest number of crashes before the last one.
const LIVES_MAX: usize = 3;

/// A cut.
pub(crate) struct Trial<'a> {
    pub(crate) subject: &'a dyn Subject,
    pub(crate) run: &'a Run,
    pub(crate) plan: Plan,
    pub(crate) cut: u64,
    pub(crate) timeline: &'a Timeline,
    /// An earlier state of the flash cache, if there is one.
    pub(crate) earlier: Option<&'a MemoryImage>,
}

/// A crash image: its number, and the fate of each write.
#[derive(Clone, Copy)]
struct CrashImage<'a> {
    number: usize,
    fates: &'a [Fate],
}

impl Trial<'_> {
    /// Tries images of all kinds.
    pub(crate) fn all_choices(&self, rng: &mut Rng, found: &mut SearchResult) {
        let pending = self.timeline.pending();
        let budget = self.plan.images_per_cut.min(self.plan.images - found.images);
        for fates in choices(&pending, rng, budget) {
            if found.images >= self.plan.images {
                return;
            }
            let again = self.plan.second_crash_every;
            let again = again > 0 && found.images.is_multiple_of(again);
            self.one(&fates, again, rng, found);
            if found.failures.len() >= self.plan.failures_max {
                return;
            }
        }
    }

    fn one(&self, fates: &[Fate], again: bool, rng: &mut Rng, found: &mut SearchResult) {
        let may_go_on = again && self.plan.goes_on && self.run.life < LIVES_MAX;
        let goes_on = may_go_on && rng.one_in(LIVES_EVERY);
        let images = timed(&mut found.building, || self.timeline.image(fates));
        found.images += 1;
        let number = found.images;
        // The damage of a cache from the beginning of this life may still be there.
        let is_spoilt = spoil(&images, self.earlier, self.seed_of(number)) || self.run.is_spoilt;
        let log = RecordLog::new();
        let devices = match again && !goes_on {
            true => Devices::recorded_from(self.plan.medium, images, &log),
            false => Devices::of_images(self.plan.medium, images),
        };
        let mut opened = || log.mark(OPENED);
        let recovered = timed(&mut found.recovering, || self.recover(&devices, is_spoilt, &mut opened));
        match self.judge(recovered) {
            Err(what) => found.failures.push(self.failure(number, fates, &what)),
            Ok(digest) if goes_on => self.go_on(digest, CrashImage { number, fates }, rng, found),
            Ok(digest) if again => self.crash_again(&log, is_spoilt, digest, fates, rng, found),
            Ok(_) => {}
        }
    }

    /// Crashes a recovery, and recovers again.
    fn crash_again(
        &self,
        log: &RecordLog,
        was_spoilt: bool,
        digest: u64,
        fates: &[Fate],
        rng: &mut Rng,
        found: &mut SearchResult,
    ) {
        let mut timeline = Timeline::with_lies(log.recording(), self.plan.lies);
        timeline.advance(1 + rng.below(timeline.end()));
        let budget = CRASHES_OF_RECOVERY.min(self.plan.images.saturating_sub(found.images));
        let pending = timeline.pending();
        for second in choices(&pending, rng, budget) {
            let images = timed(&mut found.building, || timeline.image(&second));
            found.images += 1;
            found.second_crashes += 1;
            let number = found.images;
            let is_spoilt = spoil(&images, self.earlier, self.seed_of(number)) || was_spoilt;
            let devices = Devices::of_images(self.plan.medium, images);
            let recovered = timed(&mut found.recovering, || self.recover(&devices, is_spoilt, &mut || ()));
            let mut judged = self.judge(recovered);
            if timeline.marks().contains(&OPENED) && judged.as_ref().is_ok_and(|again| *again != digest) {
                judged = Err("a state that a finished recovery had shown is gone".into());
            }
            if let Err(what) = judged {
                let what = format!("crash of a recovery, keeping {}: {what}", show(&second));
                found.failures.push(self.failure(number, fates, &what));
                return;
            }
        }
    }

    /// Lets the database continue after its recovery, and crashes it later.
    fn go_on(&self, digest: u64, image: CrashImage<'_>, rng: &mut Rng, found: &mut SearchResult) {
        let images = IMAGES_OF_A_LIFE.min(self.plan.images.saturating_sub(found.images).div_ceil(2));
        if images == 0 {
            return;
        }
        let Some(run) = self.next_life(image, rng, found) else { return };
        found.lives += 1;
        let commits = run.digests.len() - 1;
        let wrong = match &run.error {
            Some(error) => Some(format!("it does not go on: {error}")),
            None => {
                (run.digests.first() != Some(&digest)).then(|| "recovered again, it has another state".into())
            }
        };
        let (seed, failures_max) = (rng.draw(), 1);
        let plan = Plan { seed, images, images_per_cut: IMAGES_OF_A_CUT, failures_max, ..self.plan };
        let more = match wrong {
            None => search_run(self.subject, &run, plan),
            Some(what) => {
                SearchResult { failures: vec![Failure { image: 0, what }], ..SearchResult::default() }
            }
        };
        let number = found.images;
        for Failure { what, .. } in &more.failures {
            let what = format!("gone on for {commits} commits: {what}");
            found.failures.push(self.failure(number, image.fates, &what));
        }
        let second_crashes = more.images;
        found.add(SearchResult { commits: 0, second_crashes, failures: Vec::new(), ..more });
    }

    /// Returns the run of a database after its recovery. `None` means that it stopped because its cache was
    /// damaged.
    fn next_life(&self, image: CrashImage<'_>, rng: &mut Rng, found: &mut SearchResult) -> Option<Run> {
        let CrashImage { number, fates } = image;
        let [images, twin] =
            timed(&mut found.building, || [self.timeline.image(fates), self.timeline.image(fates)]);
        let spoilt = [&images, &twin].map(|images| spoil(images, self.earlier, self.seed_of(number)));
        let log = RecordLog::new();
        let devices = Devices::recorded_from(self.plan.medium, images, &log);
        let history = History::new(Arc::clone(&log));
        let mut bench = Workbench { devices, history, rng: rng.fork(), relief: Relief::default() };
        let twin = Devices::of_images(self.plan.medium, twin);
        let worked = guarded(|| self.subject.go_on(&mut bench, &twin));
        if (spoilt[0] || self.run.is_spoilt) && worked.as_ref().is_err_and(|error| is_stop(error)) {
            return None;
        }
        let before = Some(self.promised().1.to_vec());
        let (recording, digests) = (log.recording(), bench.history.digests());
        let (life, is_spoilt) = (self.run.life + 1, spoilt[0] || self.run.is_spoilt);
        Some(Run { recording, digests, before, life, is_spoilt, error: worked.err() })
    }

    /// Returns the seed of the damage to the flash cache in the image with this number. The same image always
    /// has the same damage. The next image has another damage, also at the same cut.
    fn seed_of(&self, image: usize) -> u64 {
        (self.plan.seed << 32) ^ (self.cut << 12) ^ image as u64
    }

    /// Recovers a database. If its cache was damaged, it may stop, and is started again.
    fn recover(
        &self,
        devices: &Devices,
        is_spoilt: bool,
        opened: &mut dyn FnMut(),
    ) -> Result<Recovered, String> {
        match guarded(|| self.subject.recover(devices, opened)) {
            Err(error) if is_spoilt && is_stop(&error) => guarded(|| self.subject.recover(devices, opened)),
            recovered => recovered,
        }
    }

    /// Returns the commits that were acknowledged and begun before the cut, and the states that are allowed
    /// after it.
    fn promised(&self) -> (Span, &[u64]) {
        let marks = self.timeline.marks();
        let span = History::span(marks);
        let states = match &self.run.before {
            Some(before) if !marks.contains(&OPENED) => before,
            _ => self.run.digests.get(span.acknowledged..=span.begun).unwrap_or_default(),
        };
        (span, states)
    }

    /// Checks that the recovered state is one of the allowed states. Returns its digest.
    fn judge(&self, recovered: Result<Recovered, String>) -> Result<u64, String> {
        let recovered = recovered.map_err(|error| format!("it cannot be used: {error}"))?;
        if let Some(damage) = recovered.damages.first() {
            return Err(format!("the check finds {} damages, first: {damage}", recovered.damages.len()));
        }
        let (Span { acknowledged, begun }, promised) = self.promised();
        if promised.contains(&recovered.digest) {
            return Ok(recovered.digest);
        }
        Err(match self.run.digests.iter().rposition(|digest| *digest == recovered.digest) {
            Some(number) => {
                format!("it has {number} commits, where {acknowledged} were acknowledged and {begun} begun")
            }
            None => format!(
                "its state is none of the workload's (acknowledged {acknowledged}, begun {begun} commits)"
            ),
        })
    }

    fn failure(&self, image: usize, fates: &[Fate], what: &str) -> Failure {
        let which = match self.run.life {
            0 => format!("seed {}, image {image}", self.plan.seed),
            life => format!("crash {}", life + 1),
        };
        let what = format!("{which} (cut {}, keeping {}): {what}", self.cut, show(fates));
        Failure { image, what }
    }
}

/// Shows fates as a row of letters, for absent, present, torn and garbage.
fn show(fates: &[Fate]) -> String {
    let letter = |fate: &Fate| match fate {
        Fate::Absent => '-',
        Fate::Present => 'P',
        Fate::Torn { unit_bytes: ..=512, .. } => 't',
        Fate::Torn { .. } => 'T',
        Fate::Garbage { .. } => 'G',
    };
    if fates.is_empty() { "nothing pending".into() } else { fates.iter().map(letter).collect() }
}
