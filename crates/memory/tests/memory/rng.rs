//! Random numbers from a seed (SplitMix64).

#[derive(Clone)]
pub struct Rng {
    state: u64,
    is_odd: bool,
}

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed, is_odd: seed % 2 == 1 }
    }

    /// Returns whether the seed is odd.
    pub fn is_odd(&self) -> bool {
        self.is_odd
    }

    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len() as u64) as usize).copied()
    }
}
