//! The smallest database there is, to try the harness on: a file of checksummed sectors, one durable
//! write a commit. It can be built wrong in known ways.
//!
//! Invariants
//! 1. Sector n holds commit n + 1; the first sector whose checksum is wrong ends the log.
//!
//! What it does not know: anything that the real one does.

use varve_device::{AlignedBuf, BlockFile, Durability, OpenHow, Purpose, Space};

use crate::devices::Devices;
use crate::search::{Recovered, Subject, Workbench};

const SECTOR_BYTES: usize = 512;
const FILE: &str = "toy.log";
const WHY: Purpose = Purpose::Log;

/// How the toy is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// It is right.
    None,
    /// A commit is acknowledged before its sector is written.
    EarlyAcknowledgement,
    /// A commit's sector is not written durably, and not flushed.
    NoFlush,
    /// The checksum is not looked at.
    NoChecksum,
    /// The directory is not synced after the file was made.
    NoDirectorySync,
    /// Recovery drops the last commit, and remembers that in the file only after it was shown.
    ForgetfulRecovery,
}

/// The toy, with its flaw and the number of its commits.
pub struct Toy {
    /// What is wrong with it.
    pub flaw: Flaw,
    /// Commits of the workload.
    pub commits: u64,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A state's digest: that of the numbers that led to it.
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

impl Subject for Toy {
    fn work(&self, bench: &mut Workbench) -> Result<(), String> {
        let file = bench.devices.of(Space::Log).open(FILE, OpenHow::new_file(Space::Log)).map_err(text)?;
        if self.flaw != Flaw::NoDirectorySync {
            bench.devices.of(Space::Log).sync().map_err(text)?;
        }
        let mut digest = 0;
        for _ in 0..self.commits {
            let value = bench.rng.draw();
            digest = extend(digest, value);
            let number = bench.history.begin(digest);
            if self.flaw == Flaw::EarlyAcknowledgement {
                bench.history.acknowledge(number);
            }
            self.commit(&*file, number as u64, value)?;
            bench.history.acknowledge(number);
        }
        Ok(())
    }

    fn recover(&self, devices: &Devices, opened: &mut dyn FnMut()) -> Result<Recovered, String> {
        let device = devices.of(Space::Log);
        let sound = |digest| Ok(Recovered { digest, damages: Vec::new() });
        if !device.exists(FILE).map_err(text)? {
            opened();
            return sound(0);
        }
        let file = device.open(FILE, OpenHow::existing(Space::Log)).map_err(text)?;
        let len_bytes = file.len_bytes().map_err(text)? / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
        let mut buf = AlignedBuf::new(len_bytes as usize);
        file.read_at(0, &mut buf, WHY).map_err(text)?;
        let values: Vec<u64> = buf.chunks(SECTOR_BYTES).map_while(|sector| self.value(sector)).collect();
        opened();
        if self.flaw == Flaw::ForgetfulRecovery && !values.is_empty() {
            let end = (values.len() - 1) * SECTOR_BYTES;
            file.write_at(end as u64, &AlignedBuf::new(SECTOR_BYTES), WHY, Durability::Now).map_err(text)?;
        }
        sound(values.into_iter().fold(0, extend))
    }
}
