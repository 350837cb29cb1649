//! A database with all files in memory, except the files of one space, which are on a drive.
//!
//! 1. A database is loaded without delays of drives. It can be opened again with another drive, which then
//!    has the same files.

use std::sync::Arc;
use std::time::Instant;

use varve_bench::database::MeasuredDatabase;
use varve_bench::embedded::{Embedded, open_with};
use varve_bench::workload::Workload;
use varve_bench::{BenchError, Result};
use varve_device::{
    Accounting, Directory, Emulated, EmulationReport, FileDirectory, FileOptions, Profile, Space, Tally,
};
use varve_engine::Database;
use varve_pager::PagerConfig;

use super::super::copies::Copied;
use super::super::lab::Lab;
use super::super::row::Emulation;
use super::super::stand::Sizes;

/// The space whose files are on a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StudiedSpace {
    /// The log.
    Log,
    /// Rollback segments.
    Rollback,
}

impl StudiedSpace {
    fn of_device(self) -> Space {
        match self {
            StudiedSpace::Log => Space::Log,
            StudiedSpace::Rollback => Space::Rollback,
        }
    }
}

/// The files of a database.
pub struct MemoryStand {
    copy: Copied,
    sizes: Sizes,
    space: StudiedSpace,
    is_emulated: bool,
}

/// A database that is open.
pub struct OpenMemoryStand {
    /// The database.
    pub database: Arc<Database>,
    /// The emulated drive of the space. It is `None` if the space is in memory, too.
    pub drive: Option<Arc<Emulated>>,
    /// The counters of the space's drive.
    pub account: Arc<Accounting>,
    space: StudiedSpace,
}

/// Requests to the studied space during an interval.
#[derive(Debug, Clone, Copy)]
pub struct SpaceUse {
    /// Read requests.
    pub read: Tally,
    /// Write requests.
    pub written: Tally,
    /// The length of the interval in seconds.
    pub seconds: f64,
}

/// The counters and the time at the beginning of a measurement.
pub struct UseBegin {
    tallies: [Tally; 2],
    at: Instant,
}

impl MemoryStand {
    /// Makes the directories for a database of these sizes.
    pub fn empty(lab: &Lab<'_>, name: &str, space: StudiedSpace, sizes: Sizes) -> Result<Self> {
        let is_emulated = lab.device().is_emulated();
        Ok(Self { copy: lab.empty(name)?, sizes, space, is_emulated })
    }

    /// Loads the workload's tables, without delays of the drive.
    pub fn load(&self, workload: &dyn Workload) -> Result<()> {
        let opened = self.open_on(None)?;
        workload.load(opened.target("").connect(&[])?.as_mut())?;
        opened.close()
    }

    /// Opens the database. The studied space is on an emulated drive of this profile.
    pub fn open(&self, profile: &str) -> Result<OpenMemoryStand> {
        let profile = Profile::shipped(profile).map_err(|error| BenchError::Arguments(error.to_string()))?;
        self.open_on(Some(profile).filter(|_| self.is_emulated))
    }

    fn open_on(&self, profile: Option<Profile>) -> Result<OpenMemoryStand> {
        let mut config = PagerConfig::new(self.directory("memory")?);
        config.page_size = self.sizes.page_bytes;
        config.pool_bytes = self.sizes.pool_bytes;
        config.log_capacity_bytes = self.sizes.log_bytes;
        config.log_segment_bytes = self.sizes.segment_bytes;
        let below: Arc<dyn Directory> = self.directory("studied")?;
        let account = Arc::clone(below.accounting());
        let drive = profile.map(|profile| Emulated::wrap(Arc::clone(&below), profile, 1.0));
        let studied: Arc<dyn Directory> = match &drive {
            Some(drive) => Arc::<Emulated>::clone(drive),
            None => below,
        };
        match self.space {
            StudiedSpace::Log => config.log = studied,
            StudiedSpace::Rollback => config.rollback = studied,
        }
        Ok(OpenMemoryStand { database: open_with(config)?, drive, account, space: self.space })
    }

    fn directory(&self, name: &str) -> Result<Arc<FileDirectory>> {
        let path = self.copy.place().region.join(name);
        Ok(FileDirectory::open_or_create(&path, FileOptions::default()).map_err(std::io::Error::other)?)
    }
}

impl OpenMemoryStand {
    /// Returns the database as a target of workloads.
    pub fn target(&self, settings: &str) -> Embedded {
        Embedded::new(Arc::clone(&self.database), settings)
    }

    /// Switches the delays of the drive on or off.
    pub fn take_times(&self, is_on: bool) {
        self.drive.iter().for_each(|drive| drive.take_times(is_on));
    }

    /// Begins a measurement of the drive.
    pub fn begin(&self) -> UseBegin {
        self.drive.iter().for_each(|drive| drive.begin_report());
        UseBegin { tallies: self.tallies(), at: Instant::now() }
    }

    /// Returns the requests to the studied space since `begin`.
    pub fn since(&self, begin: &UseBegin) -> SpaceUse {
        let [read, written] = self.tallies();
        let [read_before, written_before] = begin.tallies;
        let seconds = begin.at.elapsed().as_secs_f64();
        SpaceUse { read: read - read_before, written: written - written_before, seconds }
    }

    /// Returns the report of the drive since the measurement began.
    pub fn report(&self) -> Option<EmulationReport> {
        self.drive.as_ref().map(|drive| drive.report())
    }

    /// Returns the report as it is written into a row.
    pub fn emulation(&self) -> Option<Emulation> {
        Emulation::worst(&[self.report()?], 0.0)
    }

    /// Shuts the database down, without delays of the drive.
    pub fn close(self) -> Result<()> {
        self.take_times(false);
        Ok(self.database.shutdown()?)
    }

    fn tallies(&self) -> [Tally; 2] {
        let rows = self.account.rows();
        let own = || rows.iter().filter(|row| row.space == self.space.of_device());
        let sum = |one: Tally, other: Tally| one + other;
        [
            own().map(|row| row.read).fold(Tally::default(), sum),
            own().map(|row| row.written).fold(Tally::default(), sum),
        ]
    }
}
