//! Random numbers from a seed, and the key distributions of the published workloads.
//!
//! The same seed gives the same keys on every machine. The numbers are not fit for cryptography.

/// A splitmix64 generator (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Returns a generator whose sequence `seed` determines.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Returns a random number, uniform in `0..bound`. The bias of the multiplication is below 2^-32 for
    /// bounds below 2^32.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a random number, uniform in `least..=most`.
    pub fn between(&mut self, least: i64, most: i64) -> i64 {
        least + self.below((most - least + 1) as u64) as i64
    }

    /// Returns a random number, uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns `length` digits in groups of eleven, with a dash between two groups. sysbench fills its
    /// columns in this way.
    pub fn digit_groups(&mut self, length: usize) -> String {
        (0..length)
            .map(|at| if at % 12 == 11 { '-' } else { char::from(b'0' + self.below(10) as u8) })
            .collect()
    }

    /// Returns a random number, normally distributed with mean 0 and deviation 1 (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.unit(), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// Returns an index into `weights`. Each index is drawn with a probability in proportion to its weight.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut draw = self.below(weights.iter().sum());
        let found = weights.iter().position(|weight| {
            let here = draw < *weight;
            draw = draw.saturating_sub(*weight);
            here
        });
        found.unwrap_or(0)
    }

    /// Returns a text of `length` random lower-case letters.
    pub fn letters(&mut self, length: usize) -> String {
        (0..length).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }
}

fn mix(bits: u64) -> u64 {
    let z = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// How keys `0..count` are chosen.
#[derive(Debug, Clone)]
pub enum Keys {
    /// All keys are equally frequent.
    Uniform {
        /// The number of keys.
        count: u64,
    },
    /// sysbench's default distribution. Three in four keys are from the hundredth of the keys in the middle.
    /// The others are the mean of twelve uniform draws.
    Special {
        /// The number of keys.
        count: u64,
    },
    /// YCSB's scrambled Zipfian distribution.
    Zipfian(Zipfian),
}

impl Keys {
    /// Draws a key in `0..count`.
    pub fn next(&self, random: &mut Random) -> u64 {
        match self {
            Self::Uniform { count } => random.below(*count),
            Self::Special { count } => special(*count, random),
            Self::Zipfian(zipfian) => mix(zipfian.rank(random)) % zipfian.count,
        }
    }
}

fn special(count: u64, random: &mut Random) -> u64 {
    if random.below(100) < 75 {
        let hot = (count / 100).max(1);
        return (count - hot) / 2 + random.below(hot);
    }
    (0..12).map(|_| random.below(count)).sum::<u64>() / 12
}

/// Zipfian ranks by the method of Gray et al. (SIGMOD 1994), as YCSB draws them.
#[derive(Debug, Clone)]
pub struct Zipfian {
    count: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
    second: f64,
}

/// YCSB's skew.
pub const YCSB_THETA: f64 = 0.99;

impl Zipfian {
    /// Returns a distribution over the ranks `0..count` with YCSB's skew.
    pub fn new(count: u64) -> Self {
        Self::with_theta(count, YCSB_THETA)
    }

    /// Returns a distribution over the ranks `0..count`. The probability of rank r is in proportion to 1 / (r
    /// + 1)^theta. Theta must be above 0 and below 1. This function takes time linear in `count`.
    pub fn with_theta(count: u64, theta: f64) -> Self {
        assert!(theta > 0.0 && theta < 1.0, "the method of Gray et al. needs a theta between 0 and 1");
        let zeta_of = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let zeta = zeta_of(count);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta_of(2) / zeta);
        Self { count, theta, alpha: 1.0 / (1.0 - theta), zeta, eta, second: 1.0 + 0.5f64.powf(theta) }
    }

    /// Returns the skew.
    pub fn theta(&self) -> f64 {
        self.theta
    }

    /// Draws a rank in `0..count`. Rank 0 is the most frequent.
    pub fn rank(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.second {
            return 1;
        }
        let rank = self.count as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }
}

/// A permutation of `0..count` that can be computed in both directions: a Feistel network of [`ROUNDS`]
/// rounds over the next even number of bits, repeated until it gives a number below `count` (Black and
/// Rogaway 2002).
#[derive(Debug, Clone)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    seed: u64,
}

const ROUNDS: u64 = 4;

impl Permutation {
    /// Returns the permutation of `0..count` that `seed` determines.
    pub fn of(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self { count, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// Returns the position of `rank`. Both are below `count`.
    pub fn place(&self, rank: u64) -> u64 {
        self.walk(rank, |at| (0..ROUNDS).fold(at, |at, round| self.forward(at, round)))
    }

    /// Returns the rank at `place`: the inverse of [`Permutation::place`].
    pub fn rank(&self, place: u64) -> u64 {
        self.walk(place, |at| (0..ROUNDS).rev().fold(at, |at, round| self.back(at, round)))
    }

    fn walk(&self, from: u64, step: impl Fn(u64) -> u64) -> u64 {
        assert!(from < self.count, "{from} is not below {}", self.count);
        let mut at = step(from);
        while at >= self.count {
            at = step(at);
        }
        at
    }

    fn halves(&self, at: u64) -> (u64, u64) {
        (at >> self.half_bits, at & self.mask())
    }

    fn mask(&self) -> u64 {
        (1 << self.half_bits) - 1
    }

    fn keyed(&self, half: u64, round: u64) -> u64 {
        mix(mix(self.seed ^ round) ^ half) & self.mask()
    }

    fn forward(&self, at: u64, round: u64) -> u64 {
        let (left, right) = self.halves(at);
        right << self.half_bits | (left ^ self.keyed(right, round))
    }

    fn back(&self, at: u64, round: u64) -> u64 {
        let (left, right) = self.halves(at);
        (right ^ self.keyed(left, round)) << self.half_bits | left
    }
}
