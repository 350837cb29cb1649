//! What an I/O operation is for: the space (kind of file) and the purpose. The I/O counters have one counter
//! for each pair.

/// The space (kind of file) to which a file belongs. I/O is counted for each space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Superblocks, lock file.
    Control,
    /// Tables and indexes.
    Data,
    /// The write-ahead log.
    Log,
    /// Undo versions.
    Rollback,
    /// Temporary files: sorted runs, partitions of joins, groups, rows of cursors.
    Temporary,
    /// Persistent memory.
    Nvm,
    /// The flash cache.
    Flash,
}

impl Space {
    /// All spaces, in the order of reports.
    pub const ALL: [Space; 7] = [
        Space::Control,
        Space::Data,
        Space::Log,
        Space::Rollback,
        Space::Temporary,
        Space::Nvm,
        Space::Flash,
    ];

    /// Returns the lower-case name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Space::Control => "control",
            Space::Data => "data",
            Space::Log => "log",
            Space::Rollback => "rollback",
            Space::Temporary => "temporary",
            Space::Nvm => "nvm",
            Space::Flash => "flash",
        }
    }
}

/// The purpose of an operation. I/O is counted for each purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// Superblock.
    Control,
    /// Page of a table or index in the data files.
    DataPage,
    /// Doublewrite area.
    Doublewrite,
    /// Log records and log segment formatting.
    Log,
    /// Page of a rollback segment.
    UndoPage,
    /// Temporary row or page that no other purpose names, such as the rows of a cursor.
    Temporary,
    /// Sorted run of a sort or an index build.
    TemporarySort,
    /// Partition of a join, or its other temporary rows.
    TemporaryJoin,
    /// Groups of an aggregation.
    TemporaryGroups,
    /// Page in the flash cache.
    FlashPage,
    /// Metadata of the flash cache.
    FlashMeta,
    /// Page mapping tables.
    Mapping,
    /// Page in persistent memory.
    NvmPage,
    /// Metadata of persistent memory: region header, slot headers.
    NvmMeta,
}

impl Purpose {
    /// All purposes, in the order of reports.
    pub const ALL: [Purpose; 14] = [
        Purpose::Control,
        Purpose::DataPage,
        Purpose::Doublewrite,
        Purpose::Log,
        Purpose::UndoPage,
        Purpose::Temporary,
        Purpose::TemporarySort,
        Purpose::TemporaryJoin,
        Purpose::TemporaryGroups,
        Purpose::FlashPage,
        Purpose::FlashMeta,
        Purpose::Mapping,
        Purpose::NvmPage,
        Purpose::NvmMeta,
    ];

    /// Returns the lower-case name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Control => "control",
            Purpose::DataPage => "data page",
            Purpose::Doublewrite => "doublewrite",
            Purpose::Log => "log",
            Purpose::UndoPage => "undo page",
            Purpose::Temporary => "temporary",
            Purpose::TemporarySort => "temporary sort",
            Purpose::TemporaryJoin => "temporary join",
            Purpose::TemporaryGroups => "temporary groups",
            Purpose::FlashPage => "flash page",
            Purpose::FlashMeta => "flash metadata",
            Purpose::Mapping => "mapping",
            Purpose::NvmPage => "nvm page",
            Purpose::NvmMeta => "nvm metadata",
        }
    }
}

/// One operation that is counted.
#[derive(Clone, Copy)]
pub(crate) struct Io {
    pub space: Space,
    pub why: Purpose,
    /// The number of the file within its directory, for the trace.
    pub file: u32,
    pub offset: u64,
    pub bytes: u64,
}
