//! The kinds of protection against torn pages that the configuration can choose.
//!
//! This module does not know how each kind writes pages.

use crate::control::InForce;

/// The protection of page writes against torn pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionKind {
    /// No protection. This is for measurements only.
    None,
    /// Doublewrite file with batch slots and single-page slots (Kang 2016, section 2.1).
    Doublewrite {
        /// The most pages of one batch.
        batch_slots: u32,
        /// The largest number of single-page writes at a time, by threads that need a frame.
        single_slots: u32,
    },
    /// Doublewrite with its copies in persistent memory ([`PagerConfig::nvm`](crate::PagerConfig::nvm)). It
    /// is NVM-DWB of Kang 2016.
    NvmDoublewrite {
        /// The most pages of one batch.
        batch_slots: u32,
        /// The largest number of single-page writes at a time, by threads that need a frame.
        single_slots: u32,
    },
    /// Atomic writes: the devices of the data and the rollback space write a page as a whole or not at all.
    AtomicWrite,
    /// Full-page log: before a clean page changes, its image is logged. Pages are written once, in place.
    FullPageLog,
    /// Pages are copied to persistent memory first, and stay there until the data files have them (Kang 2016,
    /// chapter 3). This needs a region. The part of the region without the log is used for page slots.
    Nvm,
}

impl ProtectionKind {
    /// InnoDB's split of the doublewrite area, as used by Kang 2016.
    pub const DOUBLEWRITE: ProtectionKind = ProtectionKind::Doublewrite { batch_slots: 120, single_slots: 8 };

    /// The protections that a tablespace can have. The first one is the default.
    pub const OF_TABLESPACES: [ProtectionKind; 3] =
        [ProtectionKind::DOUBLEWRITE, ProtectionKind::AtomicWrite, ProtectionKind::None];

    /// The protection that a tablespace with this one in force has. `None` if no tablespace can have it.
    pub(crate) fn of_tablespace(in_force: InForce) -> Option<ProtectionKind> {
        ProtectionKind::OF_TABLESPACES.into_iter().find(|kind| kind.in_force() == in_force)
    }

    /// The value for the control file.
    pub(crate) fn in_force(self) -> InForce {
        match self {
            ProtectionKind::None => InForce::Nothing,
            ProtectionKind::Doublewrite { .. } => InForce::Doublewrite,
            ProtectionKind::NvmDoublewrite { .. } => InForce::NvmDoublewrite,
            ProtectionKind::AtomicWrite => InForce::AtomicWrite,
            ProtectionKind::FullPageLog => InForce::FullPageLog,
            ProtectionKind::Nvm => InForce::Nvm,
        }
    }

    /// Returns the batch slots and single-page slots of a doublewrite.
    pub(crate) fn slots(self) -> Option<(u32, u32)> {
        match self {
            ProtectionKind::Doublewrite { batch_slots, single_slots }
            | ProtectionKind::NvmDoublewrite { batch_slots, single_slots } => {
                Some((batch_slots, single_slots))
            }
            ProtectionKind::None
            | ProtectionKind::AtomicWrite
            | ProtectionKind::FullPageLog
            | ProtectionKind::Nvm => None,
        }
    }

    /// Returns whether the protection needs a region of persistent memory.
    pub(crate) fn needs_nvm(self) -> bool {
        matches!(self, ProtectionKind::NvmDoublewrite { .. } | ProtectionKind::Nvm)
    }

    /// Returns the name of the protection in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        self.in_force().name()
    }
}
