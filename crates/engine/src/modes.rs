//! The eight modes of a lock with a queue, and which modes conflict, as in PostgreSQL.
//!
//! This module does not know what is locked.

/// The strength of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LockMode {
    /// ACCESS SHARE: to read a table.
    AccessShare = 1,
    /// ROW SHARE: to lock rows.
    RowShare = 2,
    /// ROW EXCLUSIVE: to change rows.
    RowExclusive = 3,
    /// SHARE UPDATE EXCLUSIVE: one transaction at a time, while others read and change rows.
    ShareUpdateExclusive = 4,
    /// SHARE: no other transaction changes rows, and several may have this mode.
    Share = 5,
    /// SHARE ROW EXCLUSIVE: no other transaction changes rows, and only one has this mode.
    ShareRowExclusive = 6,
    /// EXCLUSIVE: others only read.
    Exclusive = 7,
    /// ACCESS EXCLUSIVE: no other transaction uses the table.
    AccessExclusive = 8,
}

/// Returns this mode and all stronger modes.
const fn from(mode: LockMode) -> Modes {
    !(mode.bit() - 1) & (LockMode::AccessExclusive.bit() * 2 - 1)
}

/// Several modes: bit n is the mode with number n.
pub(crate) type Modes = u32;

/// The modes of statements that read and change rows. They do not conflict with each other.
pub(crate) const WEAK: Modes =
    LockMode::AccessShare.bit() | LockMode::RowShare.bit() | LockMode::RowExclusive.bit();

impl LockMode {
    /// All modes, the weakest first.
    pub const ALL: [Self; 8] = [
        Self::AccessShare,
        Self::RowShare,
        Self::RowExclusive,
        Self::ShareUpdateExclusive,
        Self::Share,
        Self::ShareRowExclusive,
        Self::Exclusive,
        Self::AccessExclusive,
    ];

    /// Returns the name in pg_locks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AccessShare => "AccessShareLock",
            Self::RowShare => "RowShareLock",
            Self::RowExclusive => "RowExclusiveLock",
            Self::ShareUpdateExclusive => "ShareUpdateExclusiveLock",
            Self::Share => "ShareLock",
            Self::ShareRowExclusive => "ShareRowExclusiveLock",
            Self::Exclusive => "ExclusiveLock",
            Self::AccessExclusive => "AccessExclusiveLock",
        }
    }

    pub(crate) const fn bit(self) -> Modes {
        1 << self as u8
    }

    /// Returns the modes that conflict with this one.
    pub(crate) const fn excludes(self) -> Modes {
        match self {
            Self::AccessShare => from(Self::AccessExclusive),
            Self::RowShare => from(Self::Exclusive),
            Self::RowExclusive => from(Self::Share),
            Self::ShareUpdateExclusive => from(Self::ShareUpdateExclusive),
            Self::Share => {
                Self::RowExclusive.bit() | Self::ShareUpdateExclusive.bit() | from(Self::ShareRowExclusive)
            }
            Self::ShareRowExclusive => from(Self::RowExclusive),
            Self::Exclusive => from(Self::RowShare),
            Self::AccessExclusive => from(Self::AccessShare),
        }
    }

    /// Returns whether this is a mode of statements that read or change rows.
    pub(crate) const fn is_weak(self) -> bool {
        self.bit() & WEAK != 0
    }

    /// Returns whether it conflicts with a mode of statements that read or change rows.
    pub(crate) const fn is_strong(self) -> bool {
        self.excludes() & WEAK != 0 && !self.is_weak()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in the chapter on explicit locking of PostgreSQL's manual, row by row.
    #[test]
    fn modes_exclude_whom_the_manual_says() {
        let table =
            [".......#", "......##", "....####", "...#####", "..##.###", "..######", ".#######", "########"];
        for (mode, row) in LockMode::ALL.into_iter().zip(table) {
            let excluded = LockMode::ALL.map(|other| mode.excludes() & other.bit() != 0);
            assert_eq!(
                row,
                excluded.map(|x| if x { '#' } else { '.' }).iter().collect::<String>(),
                "{mode:?}"
            );
        }
    }

    #[test]
    fn what_excludes_nobody_who_changes_rows_is_not_strong() {
        let strong = LockMode::ALL.map(LockMode::is_strong);
        assert_eq!(strong, [false, false, false, false, true, true, true, true]);
        assert!(LockMode::ALL.iter().all(|a| {
            LockMode::ALL.iter().all(|b| (a.excludes() & b.bit() == 0) == (b.excludes() & a.bit() == 0))
        }));
    }
}
