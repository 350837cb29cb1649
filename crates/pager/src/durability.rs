//! Where what is durable lies, of what it is made, and what it survives.
//!
//! What it does not know: how this is shown.

use varve_device::{Capabilities, Directory, Medium, RegionFacts, RegionTally};

use crate::nvm::{NvmBuffer, NvmRegion};
use crate::pager::Pager;

/// One part of what a database keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurabilityRow {
    /// What it is: the log, pages, ...
    pub part: &'static str,
    /// Where it lies.
    pub place: String,
    /// What that is.
    pub medium: String,
    /// The worst that it survives.
    pub survives: &'static str,
}

/// A region of persistent memory and what went over it since it was mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmStats {
    /// Where it is.
    pub place: String,
    /// What it is made of.
    pub facts: RegionFacts,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Bytes of it for the log; 0 if that lies in files.
    pub log_bytes: u64,
    /// Slots for pages on their way home, if there are any.
    pub slots: Option<SlotCounts>,
    /// Exact counts.
    pub tally: RegionTally,
}

/// What slots hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotCounts {
    /// All of them.
    pub total: u64,
    /// Nothing.
    pub free: u64,
    /// A page that home has not.
    pub dirty: u64,
    /// A page that home has, too.
    pub clean: u64,
    /// A page that was discarded.
    pub doomed: u64,
}

const POWER_LOSS: &str = "the loss of power";
const PROCESS_DEATH: &str = "the death of the process";
const NOTHING: &str = "nothing";

impl Pager {
    /// The region of persistent memory, if the database has one.
    pub fn nvm(&self) -> Option<NvmStats> {
        let stats = self.shared.region.as_ref().map(NvmRegion::stats)?;
        Some(NvmStats { slots: self.shared.buffer.as_deref().map(NvmBuffer::slot_counts), ..stats })
    }

    /// Where each part lies; what a commit has to survive is in the row of the log.
    pub fn durability(&self) -> Vec<DurabilityRow> {
        let config = &self.shared.config;
        let log = match self.nvm().filter(|nvm| nvm.log_bytes > 0) {
            Some(nvm) => of_region("log", &nvm),
            None => of_files("log", &*config.log),
        };
        vec![
            log,
            of_files("pages", &*config.data),
            of_files("old versions", &*config.rollback),
            of_files("control", &*config.control),
        ]
    }
}

fn of_files(part: &'static str, directory: &dyn Directory) -> DurabilityRow {
    let Capabilities { backend, .. } = directory.capabilities();
    let survives = if backend.ends_with("memory") { NOTHING } else { POWER_LOSS };
    DurabilityRow { part, place: directory.location(), medium: backend.clone(), survives }
}

fn of_region(part: &'static str, nvm: &NvmStats) -> DurabilityRow {
    let (medium, survives) = match nvm.facts.medium {
        Medium::Persistent => (Medium::Persistent, POWER_LOSS),
        Medium::EmulatedByFile => (Medium::EmulatedByFile, PROCESS_DEATH),
        Medium::Memory => (Medium::Memory, NOTHING),
    };
    DurabilityRow { part, place: nvm.place.clone(), medium: format!("NVM, {}", medium.name()), survives }
}

#[cfg(test)]
mod tests {
    use varve_device::MemoryDirectory;

    use super::*;

    #[test]
    fn memory_survives_nothing() {
        let row = of_files("pages", &*MemoryDirectory::new());
        assert_eq!((row.part, row.survives), ("pages", NOTHING), "{row:?}");
    }

    #[test]
    fn what_emulates_persistent_memory_dies_with_the_machine() {
        let row = |medium| {
            let facts = RegionFacts { medium, write_back: varve_device::WriteBack::Clwb, emulates: None };
            let (size_bytes, log_bytes, tally) = (1 << 20, 1 << 20, RegionTally::default());
            of_region(
                "log",
                &NvmStats { place: "x".into(), facts, size_bytes, log_bytes, slots: None, tally },
            )
        };
        assert_eq!(row(Medium::EmulatedByFile).survives, PROCESS_DEATH);
        assert_eq!(row(Medium::EmulatedByFile).medium, "NVM, emulated by a file");
        assert_eq!(row(Medium::Persistent).survives, POWER_LOSS);
    }
}
