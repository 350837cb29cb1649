//! Text replacements that the build script makes in the copied sources, in addition to replaced paths of
//! libraries. A row has the module, the text in the source, and the text in the model. `MODELS::` stands for
//! this crate.

/// Replacements in copied sources: (module/file, text that occurs there once, its replacement).
pub const ADAPTATIONS: &[(&str, &str, &str)] = &[
    // The model replaces parking_lot's lock by one with the same contract, but without a constant for a free
    // lock.
    (
        "pager/base/latch.rs",
        "use parking_lot::lock_api::{\n    RawRwLock as _, RawRwLockDowngrade as _, RawRwLockUpgrade as _, RawRwLockUpgradeDowngrade as _,\n};\n",
        "",
    ),
    (
        "pager/base/latch.rs",
        "pub(crate) const fn new() -> Latch {\n        Latch(RawRwLock::INIT)",
        "pub(crate) fn new() -> Latch {\n        Latch(RawRwLock::new())",
    ),
    // The errors of the engine that locks can return.
    ("engine/waits.rs", "use crate::error::{Error, Result};", "use MODELS::locks::{Error, Result};"),
    (
        "engine/table_lock.rs",
        "use crate::error::Result;\nuse crate::ids",
        "use MODELS::locks::Result;\nuse crate::ids",
    ),
    // Atomics of a model are larger.
    ("pager/pool/frame.rs", "const _: () = assert!(size_of::<Frame>() == 64);", ""),
    ("loomed/pool/frame.rs", "const _: () = assert!(size_of::<Frame>() == 64);", ""),
    ("loomed/pool/frame.rs", "use crate::base::latch::Latch;", "use MODELS::loom_sync::Latch;"),
    // The counters for EXPLAIN are not part of any model.
    ("pager/pool/frame.rs", "meter::hit();", ""),
    ("pager/pool/read.rs", "meter::read(got.from);", ""),
    ("loomed/pool/frame.rs", "meter::hit();", ""),
    ("loomed/pool/frame.rs", "use crate::level::meter;", ""),
    // Thread-local variables of a model have no constants and no short forms of access.
    ("pager/log/flush.rs", "const { RefCell::new(Vec::new()) }", "RefCell::new(Vec::new())"),
    (
        "pager/api/mtr.rs",
        "const { RefCell::new((Vec::new(), Vec::new())) }",
        "RefCell::new((Vec::new(), Vec::new()))",
    ),
    ("pager/pool/guard.rs", "const { std::cell::Cell::new(0) }", "std::cell::Cell::new(0)"),
    ("engine/registry.rs", "const { Cell::new(0) }", "Cell::new(0)"),
    ("pager/pool/guard.rs", "COUNT.set(COUNT.get() + 1);", "COUNT.with(|count| count.set(count.get() + 1));"),
    ("pager/pool/guard.rs", "COUNT.set(COUNT.get() - 1);", "COUNT.with(|count| count.set(count.get() - 1));"),
    (
        "pager/pool/guard.rs",
        "assert!(COUNT.get() == 0, \"a mini-transaction begins while its thread holds {} latches\", COUNT.get());",
        "assert!(COUNT.with(|count| count.get()) == 0, \"a mini-transaction begins while its thread holds latches\");",
    ),
    ("pager/log/flush.rs", "BLOCKS.set(blocks);", "BLOCKS.with(|kept| kept.replace(blocks));"),
    (
        "pager/api/mtr.rs",
        "BUFFERS.set((std::mem::take(&mut self.records), std::mem::take(&mut self.scratch)));",
        "BUFFERS.with(|kept| kept.replace((std::mem::take(&mut self.records), std::mem::take(&mut self.scratch))));",
    ),
    // With this change, page writers also work for pools with few frames.
    (
        "pager/pool/evict.rs",
        "(self.frames.len() / 32).min(4 * BATCH)",
        "(self.frames.len() / 8).min(4 * BATCH)",
    ),
    // A hint may be wrong at any moment, so its user checks the result. Without the hint, the model checker
    // tries this check more often.
    (
        "pager/pool/frame.rs",
        "let is_used = self.is_writing() || self.pins.load(Relaxed) > 0;",
        "let is_used = false;",
    ),
    // The ring is small, so that its entries are used again.
    ("engine/status.rs", "const RING_LEN: usize = 1 << 16;", "const RING_LEN: usize = 2;"),
    ("engine/registry.rs", "const CHUNK_LEN: usize = 64;", "const CHUNK_LEN: usize = 4;"),
    ("engine/registry.rs", "HINT.get()", "HINT.with(|hint| hint.get())"),
    ("engine/registry.rs", "HINT.set(slot)", "HINT.with(|hint| hint.set(slot))"),
    // No model changes the size of the cache, and checks of partitions without frames would take steps.
    ("pager/flash/table/shape.rs", "const PARTITIONS_MAX: u32 = 16;", "const PARTITIONS_MAX: u32 = 1;"),
    (
        "pager/flash/table/shape.rs",
        "use std::sync::atomic::{AtomicU32, Ordering::Relaxed};",
        "use core::sync::atomic::{AtomicU32, Ordering::Relaxed};",
    ),
    // The cache gives up its drive after one error.
    ("pager/flash/cache/trouble.rs", "const ERRORS_MAX: u32 = 8;", "const ERRORS_MAX: u32 = 1;"),
    // A thread in the model checker's scope has no name, and its start never fails.
    (
        "pager/recovery/windows.rs",
        "thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work).map_err(failed)",
        "Some(scope.spawn(work)).ok_or_else(|| failed(io::ErrorKind::Other.into()))",
    ),
];
