//! A publication makes several changes as one atomic change. After a crash, either all of them are made or
//! none.
//!
//! Without publications, a crash between two steps causes damage. If a chunk is activated first and linked
//! then, the crash leaks the chunk. If it is linked first, a pointer leads to a free chunk. A publication
//! activates chunks, frees chunks, and stores words, as one change. In the paper (Arulraj and others, section
//! 4.1) the logs of the engines do this. In nvm_malloc (Schwalb and others, 2015) the allocator does it for
//! one chunk and two words.
//!
//! | step | fence | why the fence is needed |
//! |---|---|---|
//! | the changes are stored into a lane | 1 | before the first change, so that recovery can complete them |
//! | the changes are made | 2 | before the lane is cleared, because a crash could lose some changes |
//! | the lane is cleared | 3 | before other changes of these words, which recovery would undo |
//!
//! Invariants
//! 1. A refused publication changes nothing.
//!
//! This module does not know the content of chunks.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use crate::chunks::Claim;
use crate::error::{MemoryError, Result};
use crate::intent::{self, Change, store_back};
use crate::layout::LANES;
use crate::pointer::{Pointer, Word};
use crate::sizes::STEPS_MAX;
use crate::slab::Intent;
use crate::state::Allocator;

/// A step of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Makes a reserved chunk active.
    Activate(Pointer),
    /// Makes a reserved or active chunk free.
    Free(Pointer),
    /// Stores a word, which is the value of a root, or is in an allocated chunk.
    Store {
        /// The word.
        word: Word,
        /// The new value of the word.
        value: u64,
    },
}

/// Steps of a publication, in the order in which they were added.
pub(crate) struct StepList {
    steps: [Step; STEPS_MAX],
    count: usize,
}

impl Default for StepList {
    fn default() -> StepList {
        StepList { steps: [Step::Free(Pointer::NONE); STEPS_MAX], count: 0 }
    }
}

impl StepList {
    pub(crate) fn add(&mut self, step: Step) {
        if let Some(free) = self.steps.get_mut(self.count) {
            *free = step;
        }
        self.count += 1;
    }

    /// Returns whether all added steps fit in the list.
    pub(crate) fn is_whole(&self) -> bool {
        self.count <= STEPS_MAX
    }

    pub(crate) fn as_slice(&self) -> &[Step] {
        self.steps.get(..self.count).unwrap_or(&self.steps)
    }
}

/// The lane that a thread uses in an allocator.
#[derive(Clone, Copy)]
struct ThreadLane {
    /// The number of the allocator ([`Allocator::number`]), or 0 if the thread has no lane.
    allocator: u64,
    lane: usize,
}

thread_local! {
    /// The allocator with which the thread published last.
    static LANE: Cell<ThreadLane> = const { Cell::new(ThreadLane { allocator: 0, lane: 0 }) };
}

/// A step that was checked, and whose chunk is claimed.
enum Prepared {
    Chunk(Claim),
    Store { word: Word, value: u64 },
}

/// The steps of a publication, followed by `None`.
type PreparedSteps = [Option<Prepared>; STEPS_MAX];

impl Allocator {
    /// Does 1 to 15 steps, in their order, with three fences. After a crash, either all steps are done or
    /// none. The contents of the chunks have to be durable before the call. The reason is that the lane can
    /// reach the medium before its fence, and then recovery does all steps.
    ///
    /// Other threads may not store to the same words meanwhile. Nothing may lead to a freed chunk when the
    /// call returns. A step of the same publication may remove the last link. Each chunk may be in one step
    /// only.
    ///
    /// Errors: the errors of [`Allocator::activate`] and [`Allocator::free`], a foreign word, too many steps.
    pub fn publish(&self, steps: &[Step]) -> Result<()> {
        if !(1..=STEPS_MAX).contains(&steps.len()) {
            return Err(MemoryError::StepCount { count: steps.len() });
        }
        let mut prepared: PreparedSteps = Default::default();
        for (place, step) in prepared.iter_mut().zip(steps) {
            match self.prepare(*step) {
                Ok(step) => *place = Some(step),
                Err(error) => {
                    prepared.iter().flatten().for_each(|step| self.give_up(step));
                    return Err(error);
                }
            }
        }
        self.run(&prepared);
        Ok(())
    }

    fn prepare(&self, step: Step) -> Result<Prepared> {
        match step {
            Step::Activate(pointer) => self.claim(pointer, Intent::Activate).map(Prepared::Chunk),
            Step::Free(pointer) => self.claim(pointer, Intent::Free).map(Prepared::Chunk),
            Step::Store { word, value } => {
                self.check_word(word)?;
                Ok(Prepared::Store { word, value })
            }
        }
    }

    fn give_up(&self, step: &Prepared) {
        if let Prepared::Chunk(claim) = step {
            self.unclaim_all(std::slice::from_ref(claim));
        }
    }

    fn run(&self, steps: &PreparedSteps) {
        let steps = || steps.iter().flatten();
        let mut changes = [Change::Store { at: 0, value: 0 }; STEPS_MAX];
        let mut count = 0;
        for (change, place) in steps().filter_map(|step| self.change(step)).zip(&mut changes) {
            *place = change;
            count += 1;
        }
        let changes = changes.get(..count).unwrap_or_default();
        let number = self.lane_of_thread();
        let lane = self.lanes.get(number).map(|lane| lane.lock());
        let lane_at = self.layout.lane_at(number);
        if !changes.is_empty() {
            intent::seal(&*self.region, lane_at, changes);
            steps().for_each(|step| self.store(step));
            self.region.fence();
            intent::clear(&*self.region, lane_at);
        }
        drop(lane);
        for step in steps() {
            if let Prepared::Chunk(claim) = step {
                self.finish_claims(std::slice::from_ref(claim));
            }
        }
    }

    /// Returns the lane of the calling thread. Each thread has a lane of its own, as long as there are no
    /// more threads than lanes. The allocator counts its threads itself. So the lines that one thread stores
    /// do not depend on other threads of the process. A thread that alternates between two allocators takes a
    /// new lane at each change.
    fn lane_of_thread(&self) -> usize {
        let last = LANE.get();
        if last.allocator == self.number {
            return last.lane;
        }
        let lane = self.threads.fetch_add(1, Relaxed) % LANES;
        LANE.set(ThreadLane { allocator: self.number, lane });
        lane
    }

    fn change(&self, step: &Prepared) -> Option<Change> {
        match step {
            Prepared::Chunk(claim) => self.change_of(claim),
            Prepared::Store { word, value } => Some(Change::Store { at: word.offset(), value: *value }),
        }
    }

    fn store(&self, step: &Prepared) {
        match step {
            Prepared::Chunk(claim) => self.store_claims(std::slice::from_ref(claim)),
            Prepared::Store { word, value } => store_back(&*self.region, word.offset(), *value),
        }
    }
}
