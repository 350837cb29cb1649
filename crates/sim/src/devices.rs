//! The devices of one database: all spaces on one, or each on its own.
//!
//! Invariants
//! 1. The number of devices follows from the seed of the run, so that a failure replays.
//! 2. Each device loses its own subset of what is pending; a crash takes all of them at the same moment.
//!
//! What it does not know: what the spaces hold.

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory, MemoryImage, RecordLog, Recorder, Space};

/// Devices by space.
#[derive(Clone)]
pub struct Devices {
    /// One for all spaces, or one each in the order of [`Space::ALL`].
    directories: Vec<Arc<dyn Directory>>,
}

/// How many devices the run of this seed has.
fn count_of(seed: u64) -> usize {
    if seed % 2 == 1 { Space::ALL.len() } else { 1 }
}

impl Devices {
    /// Empty recorded devices, as the seed has them.
    pub fn recorded(seed: u64, log: &Arc<RecordLog>) -> Devices {
        let record = |_| Recorder::wrap(MemoryDirectory::new(), Arc::clone(log)) as Arc<dyn Directory>;
        Devices { directories: (0..count_of(seed)).map(record).collect() }
    }

    /// Images of a crash as devices.
    pub fn of_images(images: Vec<Arc<MemoryDirectory>>) -> Devices {
        Devices { directories: images.into_iter().map(|image| image as Arc<dyn Directory>).collect() }
    }

    /// Images of a crash, whose changes are recorded.
    pub fn recorded_from(images: Vec<Arc<MemoryDirectory>>, log: &Arc<RecordLog>) -> Devices {
        let record = |image| Recorder::wrap(image, Arc::clone(log)) as Arc<dyn Directory>;
        Devices { directories: images.into_iter().map(record).collect() }
    }

    /// Devices that hold these files.
    pub fn holding(files: Vec<Vec<(String, MemoryImage)>>) -> Devices {
        Devices::of_images(files.into_iter().map(MemoryDirectory::from_images).collect())
    }

    /// The same devices, each behind something.
    pub fn wrapped(self, wrap: impl FnMut(Arc<dyn Directory>) -> Arc<dyn Directory>) -> Devices {
        Devices { directories: self.directories.into_iter().map(wrap).collect() }
    }

    /// The device of a space.
    pub fn of(&self, space: Space) -> Arc<dyn Directory> {
        let own = Space::ALL.iter().position(|other| *other == space).unwrap_or(0);
        let at = if self.directories.len() == 1 { 0 } else { own };
        Arc::clone(&self.directories[at])
    }
}
