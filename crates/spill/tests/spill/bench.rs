//! Helpers of the tests: random rows, a space in memory, and budgets.

use std::sync::Arc;

use varve_device::{Directory, Faulty, MemoryDirectory};
use varve_spill::{MemoryBudget, Result, Row, RowSource, SpillError, TemporarySpace};

/// A splitmix64 generator.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// A row that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnedRow {
    pub key: Vec<u8>,
    pub payload: Vec<u8>,
    pub never_matches: bool,
}

impl OwnedRow {
    pub fn of(row: Row<'_>) -> OwnedRow {
        OwnedRow { key: row.key.to_vec(), payload: row.payload.to_vec(), never_matches: row.never_matches }
    }

    pub fn row(&self) -> Row<'_> {
        Row { key: &self.key, payload: &self.payload, never_matches: self.never_matches }
    }
}

/// What random rows look like.
#[derive(Debug, Clone, Copy)]
pub struct RowShape {
    pub rows: u64,
    /// Number of different keys.
    pub keys: u64,
    /// One row in this many has the key 0. With 0, no key is more frequent than others.
    pub skew: u64,
    pub payload_bytes_max: u64,
    /// One row in this many never matches. With 0, there is no such row.
    pub nulls: u64,
}

impl RowShape {
    pub fn plain(rows: u64) -> RowShape {
        RowShape { rows, keys: rows / 2 + 1, skew: 0, payload_bytes_max: 120, nulls: 0 }
    }
}

/// Returns random rows. Each payload begins with the row's number.
pub fn rows(shape: RowShape, seed: u64) -> Vec<OwnedRow> {
    let mut random = Random(seed);
    let one_of = |random: &mut Random, share: u64| share > 0 && random.below(share) == 0;
    (0..shape.rows)
        .map(|number| {
            let key = if one_of(&mut random, shape.skew) { 0 } else { random.below(shape.keys) };
            let mut payload = number.to_le_bytes().to_vec();
            payload.resize(8 + random.below(shape.payload_bytes_max) as usize, key as u8);
            let key = format!("{:x}", key.wrapping_mul(2_654_435_761)).into_bytes();
            OwnedRow { key, payload, never_matches: one_of(&mut random, shape.nulls) }
        })
        .collect()
}

/// Rows in memory as an input.
pub struct Source<'a> {
    rows: &'a [OwnedRow],
    next: usize,
    /// The number of times that the source may still be rewound.
    rewinds: u32,
}

impl<'a> Source<'a> {
    pub fn new(rows: &'a [OwnedRow]) -> Source<'a> {
        Source { rows, next: 0, rewinds: u32::MAX }
    }

    /// Returns a source that fails when it is rewound for the second time.
    pub fn once(rows: &'a [OwnedRow]) -> Source<'a> {
        Source { rewinds: 1, ..Source::new(rows) }
    }
}

impl RowSource for Source<'_> {
    fn rewind(&mut self, _memory: &Arc<MemoryBudget>, _read_bytes: usize) -> Result<()> {
        self.next = 0;
        let left = self.rewinds.checked_sub(1);
        self.rewinds = left.ok_or_else(|| SpillError::Caller("the source can be read once".into()))?;
        Ok(())
    }
    fn advance(&mut self) -> Result<bool> {
        self.next += 1;
        Ok(self.next <= self.rows.len())
    }
    fn row(&self) -> Row<'_> {
        self.rows[self.next - 1].row()
    }
    fn can_rewind(&self) -> bool {
        self.rewinds > 1
    }
}

/// A temporary space on a device in memory that can be made to fail.
pub struct Bench {
    pub device: Arc<Faulty>,
    pub space: Arc<TemporarySpace>,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with_limit(u64::MAX)
    }

    pub fn with_limit(limit_bytes: u64) -> Bench {
        let device = Faulty::wrap(MemoryDirectory::new());
        let directory: Arc<dyn Directory> = Arc::clone(&device) as Arc<dyn Directory>;
        let space = TemporarySpace::open(directory, limit_bytes).unwrap();
        Bench { device, space }
    }

    /// Checks that the operators have left no file in the space.
    pub fn check_empty(&self) {
        self.device.disarm();
        assert!(self.device.list().unwrap().is_empty(), "temporary files are left");
        assert_eq!(self.space.used_bytes(), 0);
    }
}

/// Returns the name of an error, for tests that expect several.
pub fn kind(error: &SpillError) -> &'static str {
    match error {
        SpillError::Device(_) => "device",
        SpillError::Full { .. } => "full",
        SpillError::DeviceFull { .. } => "device full",
        SpillError::Memory { .. } => "memory",
        SpillError::Corrupt { .. } => "corrupt",
        SpillError::Setting(_) => "setting",
        SpillError::Defect(_) => "defect",
        SpillError::Caller(_) => "caller",
    }
}
