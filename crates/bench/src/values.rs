//! Values of rows that compress by a chosen factor, for measurements of compression.

use crate::random::Random;
use crate::{BenchError, Result};

/// Bytes with repetitions: LinkBench's MotifDataGenerator. A value is made of chunks. Each chunk is new with
/// the probability `uniqueness`. Otherwise it is copied from a buffer that all values share. One value alone
/// hardly compresses, but a page full of them does.
#[derive(Debug, Clone)]
pub struct Motif {
    first: u8,
    range: u64,
    uniqueness: f64,
    motifs: Vec<u8>,
}

const MOTIF_BYTES: usize = 512;
const CHUNK_BYTES_MAX: usize = 128;

impl Motif {
    /// Returns a generator of bytes from `first` to `last`, both included. `seed` determines the shared
    /// buffer.
    pub fn new(first: u8, last: u8, uniqueness: f64, seed: u64) -> Self {
        let range = u64::from(last - first) + 1;
        let mut motif = Self { first, range, uniqueness, motifs: Vec::new() };
        let mut random = Random::seeded(seed);
        motif.motifs = (0..MOTIF_BYTES).map(|_| motif.byte(&mut random)).collect();
        motif
    }

    fn byte(&self, random: &mut Random) -> u8 {
        self.first + random.below(self.range) as u8
    }

    /// Returns a random value of `length` bytes.
    pub fn value(&self, random: &mut Random, length: usize) -> Vec<u8> {
        let mut value = Vec::with_capacity(length);
        while value.len() < length {
            let chunk = CHUNK_BYTES_MAX.min(length - value.len());
            if random.unit() < self.uniqueness {
                value.extend((0..chunk).map(|_| self.byte(random)));
            } else {
                let from = random.below((MOTIF_BYTES - chunk) as u64 + 1) as usize;
                value.extend_from_slice(&self.motifs[from..from + chunk]);
            }
        }
        value
    }
}

/// Returns a random size whose logarithm is normally distributed with deviation 1. LinkBench draws the sizes
/// of its payloads in this way.
pub fn log_normal(random: &mut Random, median: f64, most: u64) -> usize {
    let size = (random.normal() + median.ln()).exp().round() as u64;
    size.min(most) as usize
}

/// How text fields are filled.
#[derive(Debug, Clone, Default)]
pub enum Values {
    /// Letters that are drawn independently of each other. A codec that looks for repetitions finds none.
    #[default]
    Letters,
    /// Letters with repetitions.
    Motif(Motif),
}

/// The seed of the buffer from which fields of [`Values::Motif`] copy chunks.
const MOTIF_SEED: u64 = 2013;

impl Values {
    /// Returns the kind of values with this name: `letters`, or `motif`. `uniqueness` is the share of new
    /// chunks in motif values, between 0 and 1.
    pub fn named(name: &str, uniqueness: f64) -> Result<Self> {
        match name {
            "letters" => Ok(Self::Letters),
            "motif" if (0.0..=1.0).contains(&uniqueness) => {
                Ok(Self::Motif(Motif::new(b'a', b'z', uniqueness, MOTIF_SEED)))
            }
            "motif" => {
                Err(BenchError::Arguments(format!("a uniqueness of {uniqueness} is not between 0 and 1")))
            }
            _ => Err(BenchError::Arguments(format!("{name}: values are letters or motif"))),
        }
    }

    /// Returns a random text of `length` letters.
    pub fn text(&self, random: &mut Random, length: usize) -> String {
        match self {
            Self::Letters => random.letters(length),
            Self::Motif(motif) => motif.value(random, length).into_iter().map(char::from).collect(),
        }
    }

    /// Returns a description for the configuration of a report.
    pub fn describe(&self) -> String {
        match self {
            Self::Letters => "letters".to_owned(),
            Self::Motif(motif) => format!("motif, uniqueness {}", motif.uniqueness),
        }
    }
}
