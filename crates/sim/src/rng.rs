//! Random numbers that can be repeated: SplitMix64 (Steele, Lea, Flood 2014).
//!
//! Invariants
//! 1. The same seed gives the same numbers on every machine.

/// A seeded generator.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Returns a generator for this seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `end` (which is at least 1).
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "an empty range has no number");
        self.draw() % end
    }

    /// Returns true once in `n` times, on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns a separate generator for one purpose.
    pub fn fork(&mut self) -> Rng {
        Rng(self.draw())
    }
}
