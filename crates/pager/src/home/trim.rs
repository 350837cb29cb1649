//! Trim: whether room of files that nobody uses goes back to the device, as holes.
//!
//! Invariants
//! 1. The setting may change at any moment: whoever punches looks at it before each hole.
//! 2. It decides about room, never about what a page is: with any of its values every page is read and written alike.
//!
//! What it does not know: which room is free (`in_place/`, `packed/trim.rs`).

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// What goes back to devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Trim {
    /// What compressed pages leave of their places, and free extents: of packed spaces, and of spaces in place where any page of
    /// the database is compressed.
    #[default]
    Auto,
    /// The same, and free extents of spaces in place whatever their pages are like.
    On,
    /// Nothing.
    Off,
}

impl Trim {
    /// All of them.
    pub const ALL: [Trim; 3] = [Trim::Auto, Trim::On, Trim::Off];

    /// Its name in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Trim::Auto => "auto",
            Trim::On => "on",
            Trim::Off => "off",
        }
    }
}

/// The setting in force, which layouts and the trimmer look at.
#[derive(Debug, Default)]
pub(crate) struct TrimSetting {
    trim: AtomicU8,
    /// Pages of the database may be compressed.
    has_compressed: AtomicBool,
}

impl TrimSetting {
    pub(crate) fn new(trim: Trim) -> TrimSetting {
        TrimSetting { trim: AtomicU8::new(trim as u8), has_compressed: AtomicBool::new(false) }
    }

    /// What is to be done now.
    pub(crate) fn get(&self) -> Trim {
        let now = self.trim.load(Relaxed);
        Trim::ALL.into_iter().find(|trim| *trim as u8 == now).unwrap_or_default()
    }

    /// What is to be done from now on.
    pub(crate) fn set(&self, trim: Trim) {
        self.trim.store(trim as u8, Relaxed);
    }

    /// Pages may be compressed from now on.
    pub(crate) fn note_compressed(&self) {
        self.has_compressed.store(true, Relaxed);
    }

    /// Whether free extents of spaces in place go back.
    pub(crate) fn gives_extents(&self) -> bool {
        match self.get() {
            Trim::Auto => self.has_compressed.load(Relaxed),
            Trim::On => true,
            Trim::Off => false,
        }
    }

    /// Whether anything goes back at all.
    pub(crate) fn is_off(&self) -> bool {
        self.get() == Trim::Off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_in_force() {
        assert_eq!(TrimSetting::default().get(), Trim::default());
        for trim in Trim::ALL {
            assert_eq!(TrimSetting::new(trim).get(), trim);
            let setting = TrimSetting::new(Trim::Auto);
            setting.set(trim);
            assert_eq!((setting.get(), setting.is_off()), (trim, trim.name() == "off"));
            assert_eq!(setting.gives_extents(), trim == Trim::On);
            setting.note_compressed();
            assert_eq!(setting.gives_extents(), trim != Trim::Off);
        }
    }
}
