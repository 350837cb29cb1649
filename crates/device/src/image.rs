//! Crash images: the possible states of the storage after a crash at a given moment of a recording.
//!
//! The moment is called the cut. An image has everything that was durable at the cut. It also has some of the
//! pending events, which were submitted but not yet durable. Any subset of them is possible. Each chosen
//! event has a [`Fate`]: it happened as a whole or in part.
//!
//! Invariants
//! 1. A write is durable at a cut in two cases. Either the write completed, then a flush of its file was
//!    issued, and the flush succeeded before the cut. Or it was a durable write that completed before the
//!    cut. For creations, renames and removals, a sync of the directory is the flush. All other events
//!    submitted before the cut are pending.
//! 2. The chosen events of one file are applied in the order of submission.
//! 3. Length changes, punched holes, creations, renames, removals and atomic writes happen whole or not at
//!    all.
//! 4. A store to a region is durable after two steps: a thread writes its cache line back, and then a fence
//!    of the same thread returns. Any thread may have made the store, because a line is written back as a
//!    whole. Of a store that is not durable, each 8-byte word may or may not be in the image.
//! 5. The same recording, cut and fates give the same image.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::block::Durability;
use crate::memory::{MemoryDirectory, MemoryImage};
use crate::purpose::Space;
use crate::recorder::{Change, DeviceNo, Event, FileNo, Recording};
use crate::region::{self, LINE_BYTES, WORD_BYTES};

/// What happens to one pending event in a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The event did not reach the medium.
    Absent,
    /// The event reached the medium as a whole.
    Present,
    /// Some units of a write (words of a store) reached the medium. The seed determines which.
    Torn {
        /// The number of bytes of a unit: 512 or 4096, and 8 for stores.
        unit_bytes: usize,
        /// The seed that determines the units.
        seed: u64,
    },
    /// Some units of a write have garbage. The seed determines which.
    Garbage {
        /// The seed that determines the units and the garbage.
        seed: u64,
    },
}

/// A device that reports success without doing the work: planted faults that the crash harness must find.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lies {
    /// Flushes of files of this space do nothing.
    pub flushes_of: Option<Space>,
    /// Durable writes to files of this space are ordinary writes.
    pub durable_writes_of: Option<Space>,
    /// Directory syncs do nothing.
    pub directory_syncs: bool,
}

/// The events of a recorded file, or of a directory's names, that are not yet part of the certain contents.
#[derive(Default)]
struct Queue {
    /// Events that were completed before this tick are durable.
    flushed_before: u64,
    events: VecDeque<usize>,
}

struct DeviceState {
    files: BTreeMap<FileNo, MemoryImage>,
    names: BTreeMap<String, FileNo>,
}

/// Walks through a recording and builds images at its cuts.
pub struct Timeline {
    recording: Recording,
    lies: Lies,
    cut: u64,
    next_event: usize,
    devices: Vec<DeviceState>,
    file_queues: BTreeMap<FileNo, Queue>,
    name_queues: BTreeMap<DeviceNo, Queue>,
    flushes_in_flight: Vec<usize>,
    /// Write-backs that no fence has followed yet.
    unfenced: Vec<usize>,
    /// For each line of a region, a tick: stores that were completed before it are durable.
    fenced: BTreeMap<(FileNo, u64), u64>,
    marks: Vec<u64>,
}

impl Timeline {
    /// Returns a timeline at the recording's first moment.
    pub fn new(recording: Recording) -> Timeline {
        Timeline::with_lies(recording, Lies::default())
    }

    /// Returns a timeline of a device that lied.
    pub fn with_lies(recording: Recording, lies: Lies) -> Timeline {
        let state = |initial: &crate::recorder::Initial| DeviceState {
            files: initial.files.iter().cloned().collect(),
            names: initial.names.clone(),
        };
        let devices = recording.devices.iter().map(state).collect();
        Timeline {
            recording,
            lies,
            cut: 0,
            next_event: 0,
            devices,
            file_queues: BTreeMap::new(),
            name_queues: BTreeMap::new(),
            flushes_in_flight: Vec::new(),
            unfenced: Vec::new(),
            fenced: BTreeMap::new(),
            marks: Vec::new(),
        }
    }

    /// Returns the cut after all events: one more than the last tick.
    pub fn end(&self) -> u64 {
        self.recording.end
    }

    /// Moves to a later cut: the crash happens just before this tick.
    pub fn advance(&mut self, cut: u64) {
        assert!(cut >= self.cut, "a timeline only moves forward");
        self.cut = cut;
        while let Some(event) = self.recording.events.get(self.next_event) {
            if event.submitted >= cut {
                break;
            }
            self.take_in(self.next_event);
            self.next_event += 1;
        }
        self.finish_flushes();
        self.fold_files();
        self.fold_names();
    }

    /// Marks made before the cut.
    pub fn marks(&self) -> &[u64] {
        &self.marks
    }

    /// Events that a crash at the cut may lose, in order of submission.
    pub fn pending(&self) -> Vec<&Event> {
        self.pending_indexes().into_iter().map(|index| &self.recording.events[index]).collect()
    }

    /// Returns the devices after a crash at the cut. `fates` has one fate for each event of
    /// [`Timeline::pending`], in the same order.
    pub fn image(&self, fates: &[Fate]) -> Vec<Arc<MemoryDirectory>> {
        let pending = self.pending_indexes();
        assert_eq!(pending.len(), fates.len(), "one fate for each pending event");
        let fates: BTreeMap<usize, Fate> = pending.into_iter().zip(fates.iter().copied()).collect();
        let device = |(number, state)| self.device_image(DeviceNo(number), state, &fates);
        self.devices.iter().enumerate().map(device).collect()
    }

    fn device_image(
        &self,
        device: DeviceNo,
        state: &DeviceState,
        fates: &BTreeMap<usize, Fate>,
    ) -> Arc<MemoryDirectory> {
        let mut names = state.names.clone();
        let fate_of = |index: &usize| fates.get(index).copied().unwrap_or(Fate::Present);
        for index in self.name_queues.get(&device).iter().flat_map(|queue| &queue.events) {
            if fate_of(index) != Fate::Absent {
                apply_to_names(&mut names, &self.recording.events[*index].change);
            }
        }
        let finished = names.into_iter().map(|(name, file)| {
            let mut image = state.files.get(&file).cloned().unwrap_or_default();
            for index in self.file_queues.get(&file).iter().flat_map(|queue| &queue.events) {
                apply_to_file(&mut image, &self.recording.events[*index].change, fate_of(index));
            }
            (name, image)
        });
        MemoryDirectory::from_images(finished)
    }

    fn take_in(&mut self, index: usize) {
        let event = &self.recording.events[index];
        match &event.change {
            Change::Flush { .. } | Change::SyncDirectory | Change::Fence => {
                self.flushes_in_flight.push(index)
            }
            Change::Mark(note) => self.marks.push(*note),
            Change::WriteBack { .. } => self.unfenced.push(index),
            Change::Create { .. } | Change::Rename { .. } | Change::Remove { .. } => {
                self.name_queues.entry(event.device).or_default().events.push_back(index);
            }
            Change::Write { file, .. }
            | Change::Store { file, .. }
            | Change::SetLen { file, .. }
            | Change::Punch { file, .. } => {
                self.file_queues.entry(*file).or_default().events.push_back(index);
            }
        }
    }

    /// Takes in the flushes that have succeeded before the cut: records which events they made durable.
    fn finish_flushes(&mut self) {
        let in_flight = std::mem::take(&mut self.flushes_in_flight);
        for index in in_flight {
            let event = &self.recording.events[index];
            if event.completed >= self.cut {
                self.flushes_in_flight.push(index);
                continue;
            }
            if matches!(event.change, Change::Fence) {
                self.finish_fence(index);
                continue;
            }
            let event = &self.recording.events[index];
            let (queue, honest) = match event.change {
                Change::Flush { file } => {
                    let honest = self.lies.flushes_of.is_none_or(|space| self.space(file) != Some(space));
                    (self.file_queues.entry(file).or_default(), honest)
                }
                _ => (self.name_queues.entry(event.device).or_default(), !self.lies.directory_syncs),
            };
            if honest {
                queue.flushed_before = queue.flushed_before.max(event.submitted);
            }
        }
    }

    /// Takes in a fence: records that the lines which its thread wrote back before are durable.
    fn finish_fence(&mut self, fence: usize) {
        let Event { device, thread, submitted, .. } = self.recording.events[fence];
        let events = &self.recording.events;
        let fenced = &mut self.fenced;
        self.unfenced.retain(|index| {
            let event = &events[*index];
            let Change::WriteBack { file, offset, len_bytes } = event.change else { return false };
            if event.device != device || event.thread != thread || event.completed >= submitted {
                return true;
            }
            for line in region::lines(offset, len_bytes) {
                let before = fenced.entry((file, line)).or_default();
                *before = event.submitted.max(*before);
            }
            false
        });
    }

    fn space(&self, file: FileNo) -> Option<Space> {
        self.recording.file_spaces.get(file.0).copied().flatten()
    }

    fn is_durable(&self, index: usize, flushed_before: u64) -> bool {
        let event = &self.recording.events[index];
        let by_itself = match event.change {
            Change::Write { file, durability: Durability::Now, .. } => {
                self.lies.durable_writes_of.is_none_or(|space| self.space(file) != Some(space))
            }
            Change::Store { file, offset, .. } => {
                let fenced = self.fenced.get(&(file, offset / LINE_BYTES)).copied().unwrap_or(0);
                return event.completed < fenced;
            }
            _ => false,
        };
        event.completed < flushed_before || (by_itself && event.completed < self.cut)
    }

    /// Removes the durable events at the head of a queue, and returns them.
    fn durable_head(&self, queue: &mut Queue) -> Vec<usize> {
        let durable = |index: &usize| self.is_durable(*index, queue.flushed_before);
        let count = queue.events.iter().take_while(|index| durable(index)).count();
        queue.events.drain(..count).collect()
    }

    fn fold_files(&mut self) {
        let mut queues = std::mem::take(&mut self.file_queues);
        for (file, queue) in &mut queues {
            for index in self.durable_head(queue) {
                let event = &self.recording.events[index];
                if let Some(device) = self.devices.get_mut(event.device.0) {
                    apply_to_file(device.files.entry(*file).or_default(), &event.change, Fate::Present);
                }
            }
        }
        self.file_queues = queues;
    }

    fn fold_names(&mut self) {
        let mut queues = std::mem::take(&mut self.name_queues);
        for (device, queue) in &mut queues {
            for index in self.durable_head(queue) {
                if let Some(state) = self.devices.get_mut(device.0) {
                    apply_to_names(&mut state.names, &self.recording.events[index].change);
                }
            }
        }
        self.name_queues = queues;
    }

    fn pending_indexes(&self) -> Vec<usize> {
        let queues = self.file_queues.values().chain(self.name_queues.values());
        let uncertain = queues.flat_map(|queue| {
            queue.events.iter().copied().filter(|index| !self.is_durable(*index, queue.flushed_before))
        });
        let mut indexes: Vec<usize> = uncertain.collect();
        indexes.sort_unstable();
        indexes
    }
}

fn apply_to_names(names: &mut BTreeMap<String, FileNo>, change: &Change) {
    match change {
        Change::Create { name, file } => drop(names.insert(name.clone(), *file)),
        Change::Remove { name } => drop(names.remove(name)),
        Change::Rename { from, to } => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        _ => {}
    }
}

fn apply_to_file(image: &mut MemoryImage, change: &Change, fate: Fate) {
    match change {
        _ if fate == Fate::Absent => {}
        Change::Write { offset, bytes, atomic: true, .. } => image.write(*offset, bytes),
        Change::Write { offset, bytes, .. } => apply_write(image, *offset, bytes, fate),
        Change::Store { offset, bytes, .. } => match fate {
            Fate::Garbage { seed } | Fate::Torn { seed, .. } => {
                apply_write(image, *offset, bytes, Fate::Torn { unit_bytes: WORD_BYTES, seed });
            }
            _ => image.write(*offset, bytes),
        },
        Change::SetLen { len_bytes, .. } => image.set_len(*len_bytes),
        Change::Punch { offset, len_bytes, .. } => {
            let inside = image.len_bytes().saturating_sub(*offset);
            image.zero(*offset, inside.min(*len_bytes));
        }
        _ => {}
    }
}

fn apply_write(image: &mut MemoryImage, offset: u64, bytes: &[u8], fate: Fate) {
    match fate {
        Fate::Absent => {}
        Fate::Present => image.write(offset, bytes),
        Fate::Torn { unit_bytes, seed } => {
            for (no, unit) in bytes.chunks(unit_bytes).enumerate() {
                if mix(seed ^ no as u64) & 1 == 1 {
                    image.write(offset + (no * unit_bytes) as u64, unit);
                }
            }
        }
        Fate::Garbage { seed } => apply_garbage(image, offset, bytes, seed),
    }
}

/// Applies a write with garbage: each sector is written, left out, or filled with garbage. At least one
/// sector gets garbage.
fn apply_garbage(image: &mut MemoryImage, offset: u64, bytes: &[u8], seed: u64) {
    const UNIT_BYTES: usize = 512;
    let certain = mix(seed) as usize % bytes.len().div_ceil(UNIT_BYTES).max(1);
    for (no, unit) in bytes.chunks(UNIT_BYTES).enumerate() {
        let at = offset + (no * UNIT_BYTES) as u64;
        let dice = mix(seed ^ (no as u64) << 8);
        if no == certain || dice.is_multiple_of(3) {
            let noise: Vec<u8> = (0..unit.len() as u64).map(|byte| mix(dice ^ byte) as u8).collect();
            image.write(at, &noise);
        } else if dice % 3 == 1 {
            image.write(at, unit);
        }
    }
}

/// Returns a well-mixed number for any number (SplitMix64).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
