//! The algorithms and levels of page compression, and their names (Lindstrom 2017).
//!
//! Invariants
//! 1. The names and codes of the algorithms are only here. Codes are stored on devices, so a code never gets
//!    another meaning.
//!
//! This module does not know how to compress (`home/compression/codec/`), or the format of a stored page.

use std::ops::RangeInclusive;

/// The form in which pages of an owner are stored from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Compression {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The compression level, within [`Algorithm::levels`]; 0 means the default of the algorithm.
    pub level: u8,
}

impl Compression {
    /// No compression: pages are stored as they are.
    pub const NONE: Compression = Compression { algorithm: Algorithm::None, level: 0 };

    /// Returns the algorithm with its default level.
    pub fn of(algorithm: Algorithm) -> Compression {
        Compression { algorithm, level: 0 }
    }

    /// Returns whether pages are compressed at all.
    pub fn is_none(self) -> bool {
        self.algorithm == Algorithm::None
    }

    /// Returns whether the algorithm has this level.
    pub fn is_valid(self) -> bool {
        self.level == 0 || self.algorithm.levels().contains(&self.level)
    }

    /// Returns the level that is passed to the codec: the level of this value, or the algorithm's default if
    /// that is 0.
    pub(crate) fn effective_level(self) -> u8 {
        match (self.level, self.algorithm) {
            (0, Algorithm::Zlib | Algorithm::Lzma) => 6,
            (0, Algorithm::Zstd) => 3,
            (0, _) => 1,
            (level, _) => level,
        }
    }
}

/// A way to compress a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Algorithm {
    /// No compression.
    #[default]
    None,
    /// LZ4's block format.
    Lz4,
    /// LZO1X.
    Lzo,
    /// Snappy's raw format.
    Snappy,
    /// Deflate without a header.
    Zlib,
    /// bzip2.
    Bzip2,
    /// LZMA2 without a container.
    Lzma,
    /// Zstandard.
    Zstd,
}

impl Algorithm {
    /// All algorithms, in the order of their codes.
    pub const ALL: [Algorithm; 8] = [
        Algorithm::None,
        Algorithm::Lz4,
        Algorithm::Lzo,
        Algorithm::Snappy,
        Algorithm::Zlib,
        Algorithm::Bzip2,
        Algorithm::Lzma,
        Algorithm::Zstd,
    ];

    /// Returns the name of the algorithm in SQL and in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::None => "none",
            Algorithm::Lz4 => "lz4",
            Algorithm::Lzo => "lzo",
            Algorithm::Snappy => "snappy",
            Algorithm::Zlib => "zlib",
            Algorithm::Bzip2 => "bzip2",
            Algorithm::Lzma => "lzma",
            Algorithm::Zstd => "zstd",
        }
    }

    /// Returns the algorithm with this name, which is in lower case.
    pub fn named(text: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == text)
    }

    /// Returns the levels that can be configured. A higher level is slower and makes smaller pages. Some
    /// algorithms have only one level. For example, bzip2's level is the size of its blocks, and a page is
    /// smaller than the smallest block.
    pub fn levels(self) -> RangeInclusive<u8> {
        match self {
            Algorithm::Zlib | Algorithm::Lzma => 1..=9,
            Algorithm::Zstd => 1..=19,
            _ => 1..=1,
        }
    }

    /// Returns the code of the algorithm in stored pages and in the catalog.
    pub fn code(self) -> u8 {
        match self {
            Algorithm::None => 0,
            Algorithm::Lz4 => 1,
            Algorithm::Lzo => 2,
            Algorithm::Snappy => 3,
            Algorithm::Zlib => 4,
            Algorithm::Bzip2 => 5,
            Algorithm::Lzma => 6,
            Algorithm::Zstd => 7,
        }
    }

    /// Returns the algorithm with this code.
    pub fn of_code(code: u8) -> Option<Algorithm> {
        Algorithm::ALL.get(usize::from(code)).copied()
    }
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_lead_back() {
        for (code, algorithm) in Algorithm::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(algorithm.code()), code);
            assert_eq!(Algorithm::of_code(algorithm.code()), Some(algorithm));
            assert_eq!(Algorithm::named(algorithm.name()), Some(algorithm));
        }
        assert_eq!(Algorithm::of_code(8), None);
        assert_eq!(Algorithm::named("LZ4"), None);
    }

    #[test]
    fn levels_are_checked() {
        let of = |algorithm, level| Compression { algorithm, level }.is_valid();
        assert!(of(Algorithm::Zstd, 0) && of(Algorithm::Zstd, 19) && !of(Algorithm::Zstd, 20));
        assert!(of(Algorithm::Lz4, 1) && !of(Algorithm::Lz4, 2));
        for algorithm in Algorithm::ALL {
            assert!(
                algorithm.levels().contains(&Compression::of(algorithm).effective_level()),
                "{algorithm}"
            );
        }
    }
}
