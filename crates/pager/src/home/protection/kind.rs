//! The kinds of protection against torn pages that the configuration can choose.
//!
//! What it does not know: how each kind writes pages.

use crate::control::InForce;

/// How page writes are protected against tearing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionKind {
    /// No protection; for measurements only.
    None,
    /// Doublewrite file with batch slots and single-page slots (Kang 2016, section 2.1).
    Doublewrite {
        /// The most pages of one batch.
        batch_slots: u32,
        /// The most single-page writes at a time, by threads that need a frame.
        single_slots: u32,
    },
    /// Doublewrite with its copies in persistent memory ([`PagerConfig::nvm`](crate::PagerConfig::nvm)); Kang
    /// 2016, NVM-DWB.
    NvmDoublewrite {
        /// The most pages of one batch.
        batch_slots: u32,
        /// The most single-page writes at a time, by threads that need a frame.
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

    /// Batch slots and single-page slots of a doublewrite.
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

    /// Whether the protection needs a region of persistent memory.
    pub(crate) fn needs_nvm(self) -> bool {
        matches!(self, ProtectionKind::NvmDoublewrite { .. } | ProtectionKind::Nvm)
    }

    /// The name of the protection in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        self.in_force().name()
    }
}
