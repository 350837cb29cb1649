//! Seeded random numbers and the key distributions of the published workloads.
//!
//! The same seed gives the same keys on every machine. Not for cryptography.

/// A splitmix64 generator (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator whose sequence `seed` determines.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Uniform in `0..bound`. The bias of the multiplication is below 2^-32 for bounds below 2^32.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `least..=most`.
    pub fn between(&mut self, least: i64, most: i64) -> i64 {
        least + self.below((most - least + 1) as u64) as i64
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// `length` digits in groups of eleven with dashes between, as sysbench fills its columns.
    pub fn digit_groups(&mut self, length: usize) -> String {
        (0..length)
            .map(|at| if at % 12 == 11 { '-' } else { char::from(b'0' + self.below(10) as u8) })
            .collect()
    }

    /// `length` lower-case letters.
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
    /// All alike.
    Uniform {
        /// Number of keys.
        count: u64,
    },
    /// sysbench's default: three in four from the middle hundredth, the rest the mean of twelve uniform draws.
    Special {
        /// Number of keys.
        count: u64,
    },
    /// YCSB's scrambled Zipfian with theta 0.99.
    Zipfian(Zipfian),
}

impl Keys {
    /// A key in `0..count`.
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
    alpha: f64,
    zeta: f64,
    eta: f64,
    second: f64,
}

const THETA: f64 = 0.99;

impl Zipfian {
    /// Ranks `0..count`; takes time linear in `count` once.
    pub fn new(count: u64) -> Self {
        let zeta_of = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-THETA)).sum::<f64>();
        let zeta = zeta_of(count);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - THETA)) / (1.0 - zeta_of(2) / zeta);
        Self { count, alpha: 1.0 / (1.0 - THETA), zeta, eta, second: 1.0 + 0.5f64.powf(THETA) }
    }

    /// A rank in `0..count`; 0 is the most frequent.
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
