//! The trim setting. It says whether unused blocks of the files are returned to the device by punching holes.
//!
//! Invariants
//! 1. The setting may change at any moment, so code that punches holes reads the setting before each hole.
//! 2. The setting affects disk space only. Pages are read and written in the same way with each value.
//!
//! This module does not know which blocks are unused (`in_place/`, `packed/trim.rs`).

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// Which unused blocks of the files are returned to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Trim {
    /// Returns the blocks after compressed pages, and free extents of packed spaces. If any page of the
    /// database may be compressed, also free extents of spaces with the in-place layout.
    #[default]
    Auto,
    /// Returns the same blocks, and free extents of all spaces, even if no page is compressed.
    On,
    /// No blocks.
    Off,
}

impl Trim {
    /// All values.
    pub const ALL: [Trim; 3] = [Trim::Auto, Trim::On, Trim::Off];

    /// Returns the name of the value in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Trim::Auto => "auto",
            Trim::On => "on",
            Trim::Off => "off",
        }
    }
}

/// The setting in force. Layouts and the trimmer read it.
#[derive(Debug, Default)]
pub(crate) struct TrimSetting {
    trim: AtomicU8,
    /// Whether pages of the database may be compressed.
    has_compressed: AtomicBool,
}

impl TrimSetting {
    pub(crate) fn new(trim: Trim) -> TrimSetting {
        TrimSetting { trim: AtomicU8::new(trim as u8), has_compressed: AtomicBool::new(false) }
    }

    /// Returns the present value of the setting.
    pub(crate) fn get(&self) -> Trim {
        let now = self.trim.load(Relaxed);
        Trim::ALL.into_iter().find(|trim| *trim as u8 == now).unwrap_or_default()
    }

    /// Changes the setting.
    pub(crate) fn set(&self, trim: Trim) {
        self.trim.store(trim as u8, Relaxed);
    }

    /// Records that pages may be compressed from now on.
    pub(crate) fn note_compressed(&self) {
        self.has_compressed.store(true, Relaxed);
    }

    /// Returns whether free extents of spaces with the in-place layout are returned to the device.
    pub(crate) fn gives_extents(&self) -> bool {
        match self.get() {
            Trim::Auto => self.has_compressed.load(Relaxed),
            Trim::On => true,
            Trim::Off => false,
        }
    }

    /// Returns whether no blocks are returned to the device.
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
