//! A small log in persistent memory, which tests the crash tests themselves. The log has a count and entries
//! of three words. It can be built with known faults, which the crash tests must find.
//!
//! Layout of the region: it begins with the count of entries (u64). The entries begin at byte 64. Each entry
//! has 24 bytes: a value (u64), the mixed value (u64), and the value again (u64).
//!
//! Invariants
//! 1. An entry is durable before a count that includes it is stored. A commit is acknowledged when the count
//!    is durable.

use varve_device::{Region, Space};

use crate::devices::Devices;
use crate::rng::Rng;
use crate::search::{Recovered, Subject, Workbench};

const NAME: &str = "toy.nvm";
const ENTRIES_AT: u64 = 64;
const ENTRY_BYTES: u64 = 24;

/// The planted fault of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvmFlaw {
    /// No fault.
    None,
    /// No fence between the entry and the count.
    NoFenceBeforeCount,
    /// The entry is never written back.
    NoWriteBack,
    /// The commit is acknowledged before the count is fenced.
    NoFenceAtCommit,
    /// The count is stored before the entry.
    CountFirst,
    /// There is no count. An entry with a first word is treated as whole.
    WholeEntryAssumed,
}

impl NvmFlaw {
    /// All planted faults.
    pub const WRONG: [NvmFlaw; 5] = [
        NvmFlaw::NoFenceBeforeCount,
        NvmFlaw::NoWriteBack,
        NvmFlaw::NoFenceAtCommit,
        NvmFlaw::CountFirst,
        NvmFlaw::WholeEntryAssumed,
    ];
}

/// The log, with its flaw and the number of its commits.
pub struct Nvm {
    /// The planted fault.
    pub flaw: NvmFlaw,
    /// Commits of the workload.
    pub commits: u64,
}

fn entry_of(value: u64) -> [u8; ENTRY_BYTES as usize] {
    let mut entry = [0; ENTRY_BYTES as usize];
    for (word, number) in entry.chunks_exact_mut(8).zip([value, Rng::new(value).draw(), value]) {
        word.copy_from_slice(&number.to_le_bytes());
    }
    entry
}

fn extend(digest: u64, entry: &[u8]) -> u64 {
    crate::model::hash_bytes(digest, entry)
}

impl Nvm {
    fn commit(&self, region: &dyn Region, number: u64, entry: &[u8], acknowledge: &dyn Fn()) {
        let at = ENTRIES_AT + (number - 1) * ENTRY_BYTES;
        let put_entry = || {
            region.store(at, entry);
            if self.flaw != NvmFlaw::NoWriteBack {
                region.write_back(at, ENTRY_BYTES);
            }
            if self.flaw != NvmFlaw::NoFenceBeforeCount {
                region.fence();
            }
        };
        if self.flaw == NvmFlaw::CountFirst {
            region.store(0, &number.to_le_bytes());
            region.persist(0, 8);
            put_entry();
            return acknowledge();
        }
        put_entry();
        region.store(0, &number.to_le_bytes());
        region.write_back(0, 8);
        if self.flaw == NvmFlaw::NoFenceAtCommit {
            acknowledge();
        }
        region.fence();
        acknowledge();
    }

    fn run(&self, bench: &mut Workbench, region: &dyn Region, before: u64, mut digest: u64) {
        for no in before + 1..=self.commits {
            let entry = entry_of(bench.rng.draw() | 1);
            digest = extend(digest, &entry);
            let number = bench.history.begin(digest);
            self.commit(region, no, &entry, &|| bench.history.acknowledge(number));
        }
    }

    /// Returns the entries that a recovery finds.
    fn entries(&self, region: &dyn Region) -> Vec<[u8; ENTRY_BYTES as usize]> {
        let mut word = [0; 8];
        region.read(0, &mut word);
        let count = match self.flaw {
            NvmFlaw::WholeEntryAssumed => self.commits,
            _ => u64::from_le_bytes(word).min(self.commits),
        };
        let read = |number: u64| {
            let mut entry = [0; ENTRY_BYTES as usize];
            region.read(ENTRIES_AT + number * ENTRY_BYTES, &mut entry);
            entry
        };
        let is_there = |entry: &[u8; ENTRY_BYTES as usize]| {
            self.flaw != NvmFlaw::WholeEntryAssumed || entry[..8].iter().any(|byte| *byte != 0)
        };
        (0..count).map(read).take_while(is_there).collect()
    }

    fn map(&self, devices: &Devices) -> Result<std::sync::Arc<dyn Region>, String> {
        let len_bytes = ENTRIES_AT + self.commits * ENTRY_BYTES;
        devices.of(Space::Log).map(NAME, len_bytes).map_err(|error| error.to_string())
    }
}

impl Subject for Nvm {
    fn work(&self, bench: &mut Workbench) -> Result<(), String> {
        let region = self.map(&bench.devices)?;
        self.run(bench, &*region, 0, 0);
        Ok(())
    }

    fn go_on(&self, bench: &mut Workbench, _: &Devices) -> Result<(), String> {
        let region = self.map(&bench.devices)?;
        let entries = self.entries(&*region);
        let digest = entries.iter().fold(0, |digest, entry| extend(digest, entry));
        bench.history.resume(digest);
        bench.history.opened();
        self.run(bench, &*region, entries.len() as u64, digest);
        Ok(())
    }

    fn recover(&self, devices: &Devices, opened: &mut dyn FnMut()) -> Result<Recovered, String> {
        let region = self.map(devices)?;
        opened();
        let digest = self.entries(&*region).iter().fold(0, |digest, entry| extend(digest, entry));
        Ok(Recovered { digest, damages: Vec::new() })
    }
}
