//! A very small database, which tests the crash tests themselves. The database is a file of checksummed
//! sectors, with one durable write for each commit. It can be built with known faults, which the crash tests
//! must find.
//!
//! Invariants
//! 1. Sector n holds commit n + 1. The log ends at the first sector with a wrong checksum.
//!
//! The toy database shares no code with Varve's storage.

use std::sync::Arc;

use varve_device::{AlignedBuf, BlockFile, Durability, OpenHow, Purpose, Space};

use crate::devices::Devices;
use crate::search::{Recovered, Subject, Workbench};

const SECTOR_BYTES: usize = 512;
const FILE: &str = "toy.log";
const WHY: Purpose = Purpose::Log;

type File = Arc<dyn BlockFile>;

/// The planted fault of the toy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// No fault.
    None,
    /// A commit is acknowledged before its sector is written.
    EarlyAcknowledgement,
    /// A commit's sector is not written durably, and not flushed.
    NoFlush,
    /// The checksum is not checked.
    NoChecksum,
    /// The directory is not synced after the file was made.
    NoDirectorySync,
    /// Recovery drops the last commit, but removes the commit from the file only after the commit was shown.
    ForgetfulRecovery,
}

/// The toy, with its flaw and the number of its commits.
pub struct Toy {
    /// The planted fault.
    pub flaw: Flaw,
    /// Commits of the workload.
    pub commits: u64,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Returns the digest of a state, from the values of its commits.
fn extend(digest: u64, value: u64) -> u64 {
    digest.rotate_left(7).wrapping_mul(31).wrapping_add(value | 1)
}

impl Toy {
    fn commit(&self, file: &dyn BlockFile, number: u64, value: u64) -> Result<(), String> {
        let mut sector = AlignedBuf::new(SECTOR_BYTES);
        sector[8..16].copy_from_slice(&value.to_le_bytes());
        let sum = crc32c::crc32c(&sector[8..]);
        sector[..4].copy_from_slice(&sum.to_le_bytes());
        let durability = if self.flaw == Flaw::NoFlush { Durability::Later } else { Durability::Now };
        file.write_at((number - 1) * SECTOR_BYTES as u64, &sector, WHY, durability).map_err(text)
    }

    fn value(&self, sector: &[u8]) -> Option<u64> {
        let sum = u32::from_le_bytes(sector.get(..4)?.try_into().ok()?);
        let written = sector.iter().any(|byte| *byte != 0);
        let right = sum == crc32c::crc32c(&sector[8..]) || self.flaw == Flaw::NoChecksum;
        let value = u64::from_le_bytes(sector.get(8..16)?.try_into().ok()?);
        (right && written).then_some(value)
    }
}

impl Toy {
    fn run(
        &self,
        bench: &mut Workbench,
        file: &dyn BlockFile,
        before: u64,
        mut digest: u64,
    ) -> Result<(), String> {
        for no in before + 1..=self.commits {
            let value = bench.rng.draw();
            digest = extend(digest, value);
            let number = bench.history.begin(digest);
            if self.flaw == Flaw::EarlyAcknowledgement {
                bench.history.acknowledge(number);
            }
            self.commit(file, no, value)?;
            bench.history.acknowledge(number);
        }
        Ok(())
    }

    fn make(&self, devices: &Devices) -> Result<File, String> {
        let file = devices.of(Space::Log).open(FILE, OpenHow::new_file(Space::Log)).map_err(text)?;
        if self.flaw != Flaw::NoDirectorySync {
            devices.of(Space::Log).sync().map_err(text)?;
        }
        Ok(file)
    }

    /// Returns the file, if there is one, and the values in it.
    fn find(&self, devices: &Devices) -> Result<(Option<File>, Vec<u64>), String> {
        let device = devices.of(Space::Log);
        if !device.exists(FILE).map_err(text)? {
            return Ok((None, Vec::new()));
        }
        let file = device.open(FILE, OpenHow::existing(Space::Log)).map_err(text)?;
        let len_bytes = file.len_bytes().map_err(text)? / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
        let mut buf = AlignedBuf::new(len_bytes as usize);
        file.read_at(0, &mut buf, WHY).map_err(text)?;
        let values = buf.chunks(SECTOR_BYTES).map_while(|sector| self.value(sector)).collect();
        Ok((Some(file), values))
    }
}

impl Subject for Toy {
    fn work(&self, bench: &mut Workbench) -> Result<(), String> {
        let file = self.make(&bench.devices)?;
        self.run(bench, &*file, 0, 0)
    }

    fn go_on(&self, bench: &mut Workbench, _: &Devices) -> Result<(), String> {
        let (file, values) = self.find(&bench.devices)?;
        let digest = values.iter().copied().fold(0, extend);
        bench.history.resume(digest);
        bench.history.opened();
        let file = file.map_or_else(|| self.make(&bench.devices), Ok)?;
        // Sectors after a torn sector would be valid again when that sector is written, so they are cleared.
        let end = values.len() as u64 * SECTOR_BYTES as u64;
        let rest = file.len_bytes().map_err(text)?.saturating_sub(end).next_multiple_of(SECTOR_BYTES as u64);
        if rest > 0 {
            let zeros = AlignedBuf::new(rest as usize);
            file.write_at(end, &zeros, WHY, Durability::Now).map_err(text)?;
        }
        self.run(bench, &*file, values.len() as u64, digest)
    }

    fn recover(&self, devices: &Devices, opened: &mut dyn FnMut()) -> Result<Recovered, String> {
        let (file, values) = self.find(devices)?;
        opened();
        if let Some(file) = file
            && self.flaw == Flaw::ForgetfulRecovery
            && !values.is_empty()
        {
            let end = (values.len() - 1) * SECTOR_BYTES;
            file.write_at(end as u64, &AlignedBuf::new(SECTOR_BYTES), WHY, Durability::Now).map_err(text)?;
        }
        let digest = values.into_iter().fold(0, extend);
        Ok(Recovered { digest, damages: Vec::new() })
    }
}
