//! The names of the layouts that the configuration can choose: in place, or packed.
//!
//! This module does not know how each layout stores pages.

use crate::home::packed::config::PackedConfig;

/// The layout of the data and the rollback space. It is chosen when a database is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HomeLayout {
    /// Each page has a fixed address.
    #[default]
    InPlace,
    /// Each write of a page goes to a new address, and a map says where the page is.
    Packed(PackedConfig),
}

impl HomeLayout {
    /// Returns the name of the layout in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            HomeLayout::InPlace => "in-place",
            HomeLayout::Packed(_) => "packed",
        }
    }

    /// Returns the settings of packed spaces, if the layout is packed.
    pub fn packed(self) -> Option<PackedConfig> {
        match self {
            HomeLayout::InPlace => None,
            HomeLayout::Packed(packed) => Some(packed),
        }
    }
}
