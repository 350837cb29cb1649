//! The names of the layouts that the configuration can choose: in place, or packed.
//!
//! What it does not know: how each layout stores pages.

use crate::home::packed::config::PackedConfig;

/// How pages of the data and the rollback space lie in their files; settled when a database is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HomeLayout {
    /// Each page at its own place.
    #[default]
    InPlace,
    /// Stored pages out of place, found through a map (`home/packed/mod.rs`).
    Packed(PackedConfig),
}

impl HomeLayout {
    /// Its name in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            HomeLayout::InPlace => "in-place",
            HomeLayout::Packed(_) => "packed",
        }
    }

    /// How packed spaces work, if spaces are.
    pub fn packed(self) -> Option<PackedConfig> {
        match self {
            HomeLayout::InPlace => None,
            HomeLayout::Packed(packed) => Some(packed),
        }
    }
}
