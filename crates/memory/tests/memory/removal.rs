//! Takes the write-backs and fences of one line of the code out of a recording, and searches for a crash
//! image that is wrong without them.
//!
//! Invariants
//! 1. Only those cuts are checked at which a store is pending that is durable in the whole recording. All
//!    other images are the same as in the whole recording, which another test checks.
//!
//! This module does not know what an image should hold. A subject judges that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use varve_device::{Change, Event, Fate, MemoryDirectory, Recording, Timeline, WORD_BYTES};

use crate::rng::Rng;
use crate::traced::Site;

/// Judges an image by the last mark before the crash.
pub type Judge<'j> = dyn Fn(&Arc<MemoryDirectory>, u64) -> Result<(), String> + 'j;

/// A recording whose events have sites.
pub struct Subject<'j> {
    pub recording: Recording,
    /// The site of each event, by the tick at which the event was submitted.
    pub sites: BTreeMap<u64, Site>,
    pub judge: Box<Judge<'j>>,
}

/// The result of the search for one site.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The number of cuts that were checked: without the site, more stores are pending there.
    pub cuts: u64,
    pub images: u64,
    /// The error in an image, if an image shows that the site is needed.
    pub shown: Option<String>,
}

/// The largest number of events of a site that are removed, for each recording.
const EVENTS_MAX: usize = 12;
/// The number of cuts that are drawn after each of these events.
const CUTS_NEAR: usize = 10;
/// The number of further cuts of the recording.
const CUTS_FAR: usize = 10;
/// Random images at each cut.
const SAMPLES: usize = 4;

impl Subject<'_> {
    /// Searches images without the events of a site, up to the first that is wrong.
    pub fn without(&self, site: &Site, seed: u64) -> Outcome {
        let mut rng = Rng::new(seed);
        let mut lame = self.recording.clone();
        lame.events.retain(|event| !self.is_of(event, site));
        let (mut whole, mut lame) = (Timeline::new(self.recording.clone()), Timeline::new(lame));
        let mut outcome = Outcome::default();
        for cut in self.cuts(site, &mut rng) {
            whole.advance(cut);
            lame.advance(cut);
            let durable = pending(&whole);
            let stores = lame.pending();
            let is_new: Vec<bool> = stores.iter().map(|store| !durable.contains(&store.submitted)).collect();
            if !is_new.contains(&true) {
                continue;
            }
            outcome.cuts += 1;
            let mark = lame.marks().last().copied().unwrap_or_default();
            for fates in choices(&is_new, &mut rng) {
                let [image] = &lame.image(&fates)[..] else { continue };
                outcome.images += 1;
                if let Err(error) = (self.judge)(image, mark) {
                    outcome.shown = Some(error);
                    return outcome;
                }
            }
        }
        outcome
    }

    fn is_of(&self, event: &Event, site: &Site) -> bool {
        let may_be = matches!(event.change, Change::WriteBack { .. } | Change::Fence);
        may_be && self.sites.get(&event.submitted) == Some(site)
    }

    /// Returns moments of a crash: some of them after events of the site, and some elsewhere.
    fn cuts(&self, site: &Site, rng: &mut Rng) -> BTreeSet<u64> {
        let events = &self.recording.events;
        let mut removed: Vec<usize> =
            (0..).zip(events).filter(|(_, event)| self.is_of(event, site)).map(|(no, _)| no).collect();
        while removed.len() > EVENTS_MAX {
            removed.swap_remove(rng.below(removed.len() as u64) as usize);
        }
        let mut cuts = BTreeSet::from([self.recording.end]);
        for no in &removed {
            for ends in [is_fence, is_mark] {
                let window = self.window(no + 1, ends);
                cuts.extend(window.iter().filter(|event| ends(event)).map(|event| event.submitted));
                let picked = (0..CUTS_NEAR).filter_map(|_| rng.pick(&window));
                cuts.extend(picked.map(|event| event.submitted));
            }
        }
        let first = removed.iter().min().copied().unwrap_or_default();
        let later = events.get(first..).unwrap_or_default();
        let far = (0..CUTS_FAR).filter_map(|_| later.get(rng.below(later.len() as u64) as usize));
        cuts.extend(far.map(|event| event.submitted));
        cuts
    }

    /// Returns the changes after an event, up to the second change that `ends` accepts.
    fn window(&self, from: usize, ends: fn(&Event) -> bool) -> Vec<&Event> {
        let mut ends_count = 0;
        let events = self.recording.events.get(from..).unwrap_or_default().iter();
        let inside = events.take_while(|event| {
            let is_inside = ends_count < 2;
            ends_count += usize::from(ends(event));
            is_inside
        });
        inside.filter(|event| !matches!(event.change, Change::WriteBack { .. })).collect()
    }
}

/// Changes a recording so that two threads work in turn: the thread changes after each mark. A fence waits
/// only for write-backs of its own thread.
pub fn in_two_threads(mut recording: Recording) -> Recording {
    let mut is_other = false;
    for event in &mut recording.events {
        if is_other {
            event.thread = u32::MAX;
        }
        is_other ^= is_mark(event);
    }
    recording
}

fn is_fence(event: &Event) -> bool {
    matches!(event.change, Change::Fence)
}

fn is_mark(event: &Event) -> bool {
    matches!(event.change, Change::Mark(_))
}

/// Returns the ticks of pending stores.
fn pending(timeline: &Timeline) -> BTreeSet<u64> {
    timeline.pending().iter().map(|event| event.submitted).collect()
}

/// Returns choices of fates for the pending stores, some of which are new.
fn choices(is_new: &[bool], rng: &mut Rng) -> Vec<Vec<Fate>> {
    let all = |new: Fate, old: Fate| is_new.iter().map(|is_new| if *is_new { new } else { old }).collect();
    let mut choices: Vec<Vec<Fate>> = vec![all(Fate::Absent, Fate::Present), all(Fate::Absent, Fate::Absent)];
    if is_new.iter().filter(|is_new| **is_new).count() > 1 {
        // The newest one only, and the oldest one only.
        for is_first in [true, false] {
            let mut fates: Vec<Fate> = all(Fate::Present, Fate::Present);
            let place = |is_new: &bool| *is_new;
            let at = if is_first { is_new.iter().position(place) } else { is_new.iter().rposition(place) };
            if let Some(fate) = at.and_then(|at| fates.get_mut(at)) {
                *fate = Fate::Absent;
            }
            choices.push(fates);
        }
    }
    for _ in 0..SAMPLES {
        let odds = 1 + rng.below(4);
        let fate = |_: &bool| match rng.below(5) {
            drawn if drawn < odds => Fate::Present,
            4 => Fate::Torn { unit_bytes: WORD_BYTES, seed: rng.draw() },
            _ => Fate::Absent,
        };
        choices.push(is_new.iter().map(fate).collect());
    }
    choices
}
