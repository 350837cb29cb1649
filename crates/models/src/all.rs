//! The list of all models.

use crate::checker::Model;

/// All models.
pub const MODELS: &[Model] = &[
    crate::latch::MODES,
    crate::pages::CHANGES,
    crate::pages::FAILED_WRITE,
    crate::pages::DISCARD,
    crate::pages::PINNED,
    crate::pages::IN_ORDER,
    crate::pages::TAKEN,
    crate::log::COMMITS,
    crate::log::FAILS,
    crate::visibility::SNAPSHOTS,
    crate::visibility::HORIZON,
    crate::locks::TABLES,
    crate::locks::WATCHED,
    crate::locks::CIRCLES,
    crate::locks::UPGRADES,
    crate::workers::WORKERS,
    crate::flash::CLEANERS,
    crate::flash::QUEUE,
    crate::flash::LEAVES,
    crate::orders::AWAITED,
    crate::orders::FAILED,
];
