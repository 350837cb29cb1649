//! Chooses the moments of a recorded run at which a crash is simulated (cuts).
//!
//! The cuts have three kinds. One third is spread evenly over the recording. One third is during writes to
//! the database's files, or just after them. One third is during other kinds of events, or just after them.
//! All files and all kinds of events are equally likely. So rare events, such as a write of the control file,
//! are crashed as often as frequent events.
//!
//! Two kinds of recordings have other shares. If a recording begins with a recovery, two thirds of the cuts
//! come after the recovery. A recovery has many events, but only the few commits after it show whether it
//! left a correct state. If the database is shut down and opened again, half of the cuts are between these
//! two moments, because only the next start uses what a shutdown has left.
//!
//! Invariants
//! 1. Cuts are in order, and the end of the recording is always one of them. If the history sets a first
//!    moment, no cut is earlier.
//! 2. The same recording and generator state give the same cuts.
//!
//! `choice.rs` decides which events a crash keeps.

use std::collections::BTreeMap;

use varve_device::{Change, Event, Recording, Space};

use crate::history::{AT_REST, FROM_HERE, OPENED};
use crate::rng::Rng;

/// The kind of an event.
type Kind = (u8, Option<Space>);

const WRITE: u8 = 0;
/// One of this many cuts is at a moment when the database is shut down.
const AT_REST_EVERY: u64 = 2;

type Spans = Vec<(u64, u64)>;

/// The moments of a recording, by the event that is pending.
pub(crate) struct Moments {
    /// The earliest moment for a cut.
    first: u64,
    end: u64,
    /// For the writes of each space: the ticks from submission to just after completion.
    writes: Vec<Spans>,
    /// The same ticks for each other kind of event.
    others: Vec<Spans>,
    /// The moments when the database was shut down.
    rests: Vec<u64>,
    /// The moments after the recovery at the beginning of the recording.
    later: Option<Box<Moments>>,
}

impl Moments {
    /// Returns the moments of a recording.
    pub(crate) fn of(recording: &Recording) -> Moments {
        let after = |mark: u64| {
            let mut events = recording.events.iter();
            let is_mark = |event: &&Event| matches!(event.change, Change::Mark(found) if found == mark);
            events.find(is_mark).map(|event| event.submitted + 1)
        };
        match after(OPENED) {
            Some(opened) => {
                let later = Some(Box::new(Moments::from(recording, opened)));
                Moments { later, ..Moments::from(recording, 1) }
            }
            None => Moments::from(recording, after(FROM_HERE).unwrap_or(1)),
        }
    }

    /// Returns the moments of a recording from `first` on.
    fn from(recording: &Recording, first: u64) -> Moments {
        let mut kinds: BTreeMap<Kind, Spans> = BTreeMap::new();
        for event in recording.events.iter().filter(|event| event.submitted + 1 >= first) {
            if let Some(kind) = kind_of(event, &recording.file_spaces) {
                let last = event.completed.saturating_add(1).min(recording.end);
                kinds.entry(kind).or_default().push((event.submitted + 1, last));
            }
        }
        let others = kinds.split_off(&(WRITE + 1, None));
        let [writes, others] = [kinds, others].map(|kinds| kinds.into_values().collect());
        let is_rest = |event: &&Event| matches!(event.change, Change::Mark(AT_REST));
        let rests = recording.events.iter().filter(is_rest).map(|event| event.submitted + 1);
        let rests = rests.filter(|rest| *rest >= first).collect();
        Moments { first, end: recording.end, writes, others, rests, later: None }
    }

    /// Chooses `count` cuts.
    pub(crate) fn some(&self, count: usize, rng: &mut Rng) -> Vec<u64> {
        let mut cuts: Vec<u64> = (1..count)
            .map(|_| match &self.later {
                Some(later) if !rng.one_in(3) => later.one(rng),
                _ => self.one(rng),
            })
            .collect();
        cuts.push(self.end);
        cuts.sort_unstable();
        cuts
    }

    fn one(&self, rng: &mut Rng) -> u64 {
        if !self.rests.is_empty() && rng.one_in(AT_REST_EVERY) {
            return self.rests[rng.below(self.rests.len() as u64) as usize];
        }
        match rng.below(3) {
            0 => self.aimed(&self.writes, rng),
            1 => self.aimed(&self.others, rng),
            _ => self.first + rng.below((self.end + 1).saturating_sub(self.first).max(1)),
        }
    }

    fn aimed(&self, kinds: &[Spans], rng: &mut Rng) -> u64 {
        let Some(events) = kinds.get(rng.below(kinds.len().max(1) as u64) as usize) else {
            return self.end;
        };
        let (first, last) = events[rng.below(events.len() as u64) as usize];
        first + rng.below(1 + last.saturating_sub(first))
    }
}

fn kind_of(event: &Event, spaces: &[Option<Space>]) -> Option<Kind> {
    let space = |file: &varve_device::FileNo| spaces.get(file.0).copied().flatten();
    Some(match &event.change {
        Change::Write { file, .. } => (WRITE, space(file)),
        Change::SetLen { file, .. } => (1, space(file)),
        Change::Punch { file, .. } => (2, space(file)),
        Change::Flush { file } => (3, space(file)),
        Change::Store { file, .. } => (4, space(file)),
        Change::WriteBack { .. } | Change::Fence => (5, None),
        Change::Create { .. } => (6, None),
        Change::Rename { .. } => (7, None),
        Change::Remove { .. } => (8, None),
        Change::SyncDirectory => (9, None),
        Change::Mark(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use varve_device::{
        AlignedBuf, Directory, Durability, MemoryDirectory, OpenHow, Purpose, RecordLog, Recorder,
    };

    use super::*;

    #[test]
    fn what_is_rare_is_cut_as_often_as_what_is_common() {
        let log = RecordLog::new();
        let device = Recorder::wrap(MemoryDirectory::new(), log.clone());
        let file = device.open("file", OpenHow::or_create(Space::Data)).expect("memory has room");
        let write = |at| file.write_at(at, &AlignedBuf::new(4096), Purpose::DataPage, Durability::Later);
        (0..1000).for_each(|at| write(at * 4096).expect("memory has room"));
        let before = log.now();
        file.flush().expect("memory flushes");
        let after = log.now();
        (0..1000).for_each(|at| write(at * 4096).expect("memory has room"));
        let cuts = Moments::of(&log.recording()).some(400, &mut Rng::new(5));
        let hits = cuts.iter().filter(|cut| (before..=after + 1).contains(cut)).count();
        assert!(hits > 20, "the one flush of 2,000 writes was cut {hits} times");
        assert!(cuts.is_sorted() && cuts.last() == Some(&log.recording().end));
    }
}
