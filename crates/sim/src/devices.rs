//! The devices of one database. Either all its files are on one device, or each kind of file is on its own
//! device.
//!
//! Invariants
//! 1. The number of devices depends only on the seed of the run, so a failure can be repeated.
//! 2. A crash stops all devices at the same moment. Each device loses its own subset of the pending events.
//! 3. Devices with real files behave like devices in memory. They also test paths, file descriptors and the
//!    kernel. Their directory is removed together with them.

use std::sync::Arc;

use tempfile::TempDir;
use varve_device::{
    AlignedBuf, BlockFile, Directory, Durability, FileDirectory, FileOptions, MemoryDirectory, MemoryImage,
    OpenHow, Purpose, RecordLog, Recorder, Space,
};

/// The number of bytes of a file that are copied together.
const COPY_BYTES: usize = 64 << 10;

/// The medium of the devices of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Medium {
    /// Memory, which is fast.
    #[default]
    Memory,
    /// Real files in a temporary directory.
    Files,
}

/// Devices by space.
#[derive(Clone)]
pub struct Devices {
    /// One device for all spaces, or one for each space in the order of [`Space::ALL`].
    directories: Vec<Arc<dyn Directory>>,
    /// The directories of their files, which are removed with the last copy of this value.
    scratch: Vec<Arc<TempDir>>,
}

/// Returns the number of devices in the run of this seed.
fn count_of(seed: u64) -> usize {
    if seed % 2 == 1 { Space::ALL.len() } else { 1 }
}

impl Devices {
    /// Returns empty recorded devices; the seed decides their number.
    pub fn recorded(medium: Medium, seed: u64, log: &Arc<RecordLog>) -> Devices {
        let empty = (0..count_of(seed)).map(|_| MemoryDirectory::new()).collect();
        Devices::recorded_from(medium, empty, log)
    }

    /// Returns devices with the contents of crash images.
    pub fn of_images(medium: Medium, images: Vec<Arc<MemoryDirectory>>) -> Devices {
        Devices::made_of(medium, images, |device, _| device)
    }

    /// Returns devices with the contents of crash images, whose further changes are recorded.
    pub fn recorded_from(medium: Medium, images: Vec<Arc<MemoryDirectory>>, log: &Arc<RecordLog>) -> Devices {
        Devices::made_of(medium, images, |device, image| {
            Recorder::wrap_from(device, image.images(), Arc::clone(log))
        })
    }

    /// Returns devices of a medium with the contents of the images, each with a wrapper.
    fn made_of(
        medium: Medium,
        images: Vec<Arc<MemoryDirectory>>,
        wrap: impl Fn(Arc<dyn Directory>, &MemoryDirectory) -> Arc<dyn Directory>,
    ) -> Devices {
        let mut devices = Devices { directories: Vec::new(), scratch: Vec::new() };
        for image in images {
            let device: Arc<dyn Directory> = match medium {
                Medium::Memory => Arc::clone(&image) as Arc<dyn Directory>,
                Medium::Files => {
                    let (device, scratch) = on_files(&image);
                    devices.scratch.push(scratch);
                    device
                }
            };
            devices.directories.push(wrap(device, &image));
        }
        devices
    }

    /// Returns devices with these files.
    pub fn holding(files: Vec<Vec<(String, MemoryImage)>>) -> Devices {
        Devices::of_images(Medium::Memory, files.into_iter().map(MemoryDirectory::from_images).collect())
    }

    /// Returns the same devices, each with a wrapper.
    pub fn wrapped(self, wrap: impl FnMut(Arc<dyn Directory>) -> Arc<dyn Directory>) -> Devices {
        Devices { directories: self.directories.into_iter().map(wrap).collect(), ..self }
    }

    /// Returns the device of a space.
    pub fn of(&self, space: Space) -> Arc<dyn Directory> {
        let own = Space::ALL.iter().position(|other| *other == space).unwrap_or(0);
        let at = if self.directories.len() == 1 { 0 } else { own };
        Arc::clone(&self.directories[at])
    }
}

/// Returns real files with the contents of an image.
fn on_files(image: &MemoryDirectory) -> (Arc<dyn Directory>, Arc<TempDir>) {
    let scratch = tempfile::tempdir().expect("the system has room for a temporary directory");
    let files = FileDirectory::open(scratch.path(), FileOptions::default()).expect("a new directory opens");
    for (name, bytes) in image.images() {
        let file = files.open(&name, OpenHow::new_file(Space::Data)).expect("the name is free");
        copy(&bytes, &*file);
    }
    (files, Arc::new(scratch))
}

/// Copies a file. Holes are not written.
fn copy(image: &MemoryImage, file: &dyn BlockFile) {
    file.set_len(image.len_bytes()).expect("the temporary directory has room");
    let mut bytes = AlignedBuf::new(COPY_BYTES);
    for at in (0..image.len_bytes()).step_by(COPY_BYTES) {
        let len = (image.len_bytes() - at).min(COPY_BYTES as u64) as usize;
        image.read(at, &mut bytes[..len]);
        if bytes[..len].iter().any(|byte| *byte != 0) {
            let wrote = file.write_at(at, &bytes[..len], Purpose::DataPage, Durability::Later);
            wrote.expect("the temporary directory has room");
        }
    }
}
