//! A temporary space on an emulated drive, with files in memory.

use std::sync::Arc;

use varve_bench::{BenchError, Result};
use varve_device::{Accounting, Directory, Emulated, MemoryDirectory, Profile};
use varve_spill::{MemoryBudget, Row, SpillError, Spool, SpoolSettings, SpoolWriter, TemporarySpace};

use super::super::row::Emulation;

/// Bytes of the buffer of a heap file that is loaded.
const LOAD_BYTES: usize = 1 << 20;
const LOAD_PAGES: usize = 16;

/// A drive of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveKind {
    /// The disk.
    Disk,
    /// The flash drive.
    Flash,
}

impl DriveKind {
    /// Both drives.
    pub const BOTH: [DriveKind; 2] = [DriveKind::Disk, DriveKind::Flash];

    /// Returns the name in results.
    pub fn name(self) -> &'static str {
        match self {
            DriveKind::Disk => "disk",
            DriveKind::Flash => "flash",
        }
    }
}

/// The profiles of a publication's disk and flash drive.
#[derive(Debug, Clone, Copy)]
pub struct ProfilePair {
    disk: &'static str,
    flash: &'static str,
}

/// The drives of Do 2012, table 2.2.
pub const DO_DRIVES: ProfilePair = ProfilePair { disk: "hdd-5400", flash: "ssd-ocz" };
/// The drives of Lee 2008, table 1.
pub const LEE_DRIVES: ProfilePair = ProfilePair { disk: "hdd-7200", flash: "ssd-2008" };

impl ProfilePair {
    /// Returns the shipped profile of a drive.
    pub fn profile(self, kind: DriveKind) -> Result<Profile> {
        let name = match kind {
            DriveKind::Disk => self.disk,
            DriveKind::Flash => self.flash,
        };
        Profile::shipped(name).map_err(|error| BenchError::Arguments(error.to_string()))
    }
}

/// Returns a profile whose access times and blocks are divided by a number. The transfer rates stay the same.
pub fn with_access_divided(mut profile: Profile, divisor: f64) -> Profile {
    let rates = &mut profile.operations_per_s;
    for (random, sequential) in
        [(&mut rates.random_read, rates.sequential_read), (&mut rates.random_write, rates.sequential_write)]
    {
        let access = 1.0 / *random - 1.0 / sequential;
        *random = 1.0 / (access / divisor + 1.0 / sequential);
    }
    if let Some(merges) = &mut profile.merges {
        merges.block_bytes = ((merges.block_bytes as f64 / divisor) as u64).max(2 * merges.page_bytes);
        merges.erase_us /= divisor;
    }
    profile
}

/// Converts an error of an operator to an error of a measurement.
pub fn refused(error: SpillError) -> BenchError {
    std::io::Error::other(error).into()
}

/// Sizes of a heap file.
#[derive(Debug, Clone, Copy)]
pub struct HeapShape {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// How full pages are, in percent.
    pub fill_percent: usize,
    /// The number of rows.
    pub rows: u64,
    /// Bytes of a row without its key.
    pub payload_bytes: usize,
}

/// A temporary space on an emulated drive.
pub struct SpillBed {
    drive: Arc<Emulated>,
    space: Arc<TemporarySpace>,
    dilation: f64,
}

impl SpillBed {
    /// Returns an empty space. Requests take no time until [`SpillBed::begin`].
    pub fn new(profile: Profile, dilation: f64) -> Result<Self> {
        let drive = Emulated::wrap(MemoryDirectory::new(), profile, dilation);
        drive.take_times(false);
        let directory: Arc<dyn Directory> = Arc::<Emulated>::clone(&drive);
        let space = TemporarySpace::open(directory, u64::MAX).map_err(refused)?;
        Ok(Self { drive, space, dilation })
    }

    /// Returns the space.
    pub fn space(&self) -> &Arc<TemporarySpace> {
        &self.space
    }

    /// Returns the counters and the trace of the drive.
    pub fn account(&self) -> &Arc<Accounting> {
        self.drive.accounting()
    }

    /// Begins a measurement.
    pub fn begin(&self) {
        self.drive.take_times(true);
        self.drive.begin_report();
    }

    /// Returns the seconds of the drive since the measurement began.
    pub fn io_s(&self) -> f64 {
        self.drive.report().modelled_ns as f64 / self.dilation / 1e9
    }

    /// Returns the seconds of merges of super-blocks since the bed was made. They are a part of the seconds
    /// of the drive.
    pub fn merge_s(&self) -> f64 {
        self.drive.merges().took_ns as f64 / 1e9
    }

    /// Ends the measurement, and gives the report of the emulation.
    pub fn end(&self) -> Option<Emulation> {
        let report = self.drive.report();
        self.drive.take_times(false);
        Emulation::worst(&[report], 0.0)
    }

    /// Writes a heap file, without the drive's times. Row n has the key `key(n)`.
    pub fn heap_file(&self, shape: HeapShape, key: impl Fn(u64) -> u32) -> Result<Spool> {
        let HeapShape { page_bytes, fill_percent, rows, payload_bytes } = shape;
        let settings = SpoolSettings { page_bytes, write_pages: LOAD_PAGES, fill_percent };
        let memory = MemoryBudget::new(LOAD_BYTES);
        let mut writer = SpoolWriter::new(&self.space, &memory, settings).map_err(refused)?;
        let payload = vec![7; payload_bytes];
        for number in 0..rows {
            writer.push(Row::new(&key(number).to_be_bytes(), &payload)).map_err(refused)?;
        }
        writer.finish().map_err(refused)
    }
}

/// Returns a random number for each seed (splitmix64).
pub fn mixed(seed: u64) -> u64 {
    let mixed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Returns different keys for different numbers. The order of the keys differs from the order of the numbers.
pub fn scattered(number: u64) -> u32 {
    (number as u32).wrapping_mul(2_654_435_761)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read of a page at any address takes the divided access time and the transfer time.
    #[test]
    fn only_access_is_divided() {
        let whole = DO_DRIVES.profile(DriveKind::Disk).expect("a shipped profile");
        let divided = with_access_divided(whole.clone(), 64.0);
        let (of, rates) = (whole.operations_per_s, divided.operations_per_s);
        assert_eq!(rates.sequential_read, of.sequential_read);
        let access = |random: f64| 1.0 / random - 1.0 / of.sequential_read;
        let share = access(rates.random_read) / access(of.random_read);
        assert!((share - 1.0 / 64.0).abs() < 1e-9, "{share}");
    }
}
