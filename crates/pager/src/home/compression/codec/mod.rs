//! The compression codecs. A codec makes fewer bytes from given bytes, and restores the given bytes from
//! them.
//!
//! Invariants
//! 1. [`Codecs::decompress`] returns exactly the bytes that [`Codecs::compress`] was given, at every level.
//! 2. Decompressing never writes outside `out` and never reads outside `from`, even if the bytes are damaged.
//!    It succeeds only if it filled `out` and used all of `from`.
//! 3. The state of a codec is made at its first use, and kept by the thread. A thread that never uses an
//!    algorithm has no state for it.
//!
//! This module does not know pages, or why an algorithm was chosen.

mod entropy;
mod fast;
mod slow;

use entropy::{Zlib, Zstd};
use fast::Fast;

use crate::base::compression::{Algorithm, Compression};

/// The codecs of a thread.
#[derive(Default)]
pub(crate) struct Codecs {
    fast: Fast,
    zlib: Zlib,
    zstd: Zstd,
}

impl Codecs {
    /// Compresses into `out`. Returns the number of bytes, or `None` if they don't fit.
    pub(crate) fn compress(&mut self, how: Compression, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let level = how.effective_level();
        match how.algorithm {
            Algorithm::None => None,
            Algorithm::Lz4 => self.fast.compress_lz4(plain, out),
            Algorithm::Lzo => self.fast.compress_lzo(plain, out),
            Algorithm::Snappy => self.fast.compress_snappy(plain, out),
            Algorithm::Zlib => self.zlib.compress(level, plain, out),
            Algorithm::Bzip2 => slow::compress_bzip2(plain, out),
            Algorithm::Lzma => slow::compress_lzma(level, plain, out),
            Algorithm::Zstd => self.zstd.compress(level, plain, out),
        }
    }

    /// Decompresses `from`. Returns true exactly if `out` was filled and all of `from` was used.
    pub(crate) fn decompress(&mut self, algorithm: Algorithm, from: &[u8], out: &mut [u8]) -> bool {
        match algorithm {
            Algorithm::None => false,
            Algorithm::Lz4 => fast::decompress_lz4(from, out),
            Algorithm::Lzo => fast::decompress_lzo(from, out),
            Algorithm::Snappy => fast::decompress_snappy(from, out),
            Algorithm::Zlib => self.zlib.decompress(from, out),
            Algorithm::Bzip2 => slow::decompress_bzip2(from, out),
            Algorithm::Lzma => slow::decompress_lzma(from, out),
            Algorithm::Zstd => self.zstd.decompress(from, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn every_way() -> impl Iterator<Item = Compression> {
        let algorithms = Algorithm::ALL.into_iter().filter(|algorithm| *algorithm != Algorithm::None);
        algorithms.flat_map(|algorithm| {
            let levels = algorithm.levels();
            [0, *levels.start(), *levels.end()].map(|level| Compression { algorithm, level })
        })
    }

    /// Compresses bytes, and checks that decompressing gives the same bytes. Returns the compressed length.
    fn round_trip(codecs: &mut Codecs, how: Compression, plain: &[u8]) -> usize {
        let mut stored = vec![0; 2 * plain.len() + 1024];
        let count = codecs.compress(how, plain, &mut stored).expect("there is room for anything");
        let mut back = vec![0xA5; plain.len()];
        assert!(codecs.decompress(how.algorithm, &stored[..count], &mut back), "{how:?}");
        assert!(back == plain, "{how:?} of {} bytes", plain.len());
        count
    }

    fn noise(count: usize) -> Vec<u8> {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..count).map(|_| next()).collect()
    }

    fn text(count: usize) -> Vec<u8> {
        let line = b"the quick brown fox 0123456789 jumps over the lazy dog, and again ";
        line.iter()
            .copied()
            .cycle()
            .take(count)
            .enumerate()
            .map(|(no, byte)| byte ^ (no / 97 % 3) as u8)
            .collect()
    }

    #[test]
    fn every_algorithm_gives_back_what_it_got() {
        let codecs = &mut Codecs::default();
        for how in every_way() {
            for page_size in [4096, 8192, 16384, 32768, 65536] {
                let plain = page_size - 32;
                let mut one_set = vec![0; plain];
                one_set[plain / 3] = 7;
                assert!(round_trip(codecs, how, &vec![0; plain]) < plain / 16, "{how:?}: zeros");
                assert!(round_trip(codecs, how, &one_set) < plain / 16, "{how:?}: one byte");
                assert!(round_trip(codecs, how, &text(plain)) < plain / 2, "{how:?}: text");
                round_trip(codecs, how, &noise(plain));
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_not_compressed() {
        let codecs = &mut Codecs::default();
        let plain = text(8160);
        for how in every_way() {
            let needed = round_trip(codecs, how, &plain);
            // zlib reports success only if there is space left in the output.
            let mut out = vec![0; needed + 8];
            assert_eq!(codecs.compress(how, &plain, &mut out), Some(needed), "{how:?}: just enough");
            assert_eq!(codecs.compress(how, &plain, &mut out[..needed - 1]), None, "{how:?}: a byte short");
            assert_eq!(codecs.compress(how, &plain, &mut []), None, "{how:?}");
            assert_eq!(codecs.compress(how, &noise(8160), &mut vec![0; 7680]), None, "{how:?}: noise");
            round_trip(codecs, how, &plain);
        }
    }

    /// zlib-rs 0.6.8 does not reset a stream that ran out of output space. The next use of the stream
    /// panicked, or its result could not be read.
    #[test]
    fn pages_that_do_not_fit_leave_nothing_behind() {
        let codecs = &mut Codecs::default();
        let (plain, noise) = (text(65504), noise(65504));
        for how in every_way() {
            for round in 0..3 {
                assert_eq!(
                    codecs.compress(how, &noise, &mut vec![0; 59_000 + 1000 * round]),
                    None,
                    "{how:?}"
                );
                round_trip(codecs, how, &plain);
            }
        }
    }

    /// Output of another length than `out` is an error. With fewer bytes, old bytes would remain at the end
    /// of `out`. More bytes would be a decompression bomb.
    #[test]
    fn other_lengths_are_refused() {
        let codecs = &mut Codecs::default();
        let plain = text(8160);
        for how in every_way() {
            let mut stored = vec![0; 16384];
            let count = codecs.compress(how, &plain, &mut stored).unwrap();
            for length in [0, 1, plain.len() / 2, plain.len() - 1, plain.len() + 1, 2 * plain.len()] {
                let is_good = codecs.decompress(how.algorithm, &stored[..count], &mut vec![0; length]);
                assert!(!is_good, "{how:?}: {length} bytes");
            }
            for cut in [0, 1, count / 2, count - 1] {
                let is_good = codecs.decompress(how.algorithm, &stored[..cut], &mut vec![0; plain.len()]);
                assert!(!is_good, "{how:?}: {cut} of {count} bytes");
            }
            let is_good = codecs.decompress(how.algorithm, &stored[..count + 1], &mut vec![0; plain.len()]);
            assert!(!is_good, "{how:?}: a byte too many");
            assert!(codecs.decompress(how.algorithm, &stored[..count], &mut vec![0; plain.len()]));
        }
    }

    /// Input of a few bytes that would decompress to gigabytes fills `out`, and writes no more.
    #[test]
    fn bombs_go_off_in_a_box() {
        let codecs = &mut Codecs::default();
        for how in every_way() {
            let mut stored = vec![0; 1 << 20];
            let count = codecs.compress(how, &vec![0; 1 << 19], &mut stored).unwrap();
            assert!(!codecs.decompress(how.algorithm, &stored[..count], &mut [0; 4064]), "{how:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn any_bytes_come_back(plain in proptest::collection::vec(0_u8..6, 1..9000)) {
            let codecs = &mut Codecs::default();
            every_way().for_each(|how| { round_trip(codecs, how, &plain); });
        }

        #[test]
        fn any_bytes_can_be_tried(from in proptest::collection::vec(any::<u8>(), 0..600)) {
            let codecs = &mut Codecs::default();
            for algorithm in Algorithm::ALL {
                codecs.decompress(algorithm, &from, &mut [0; 4064]);
            }
        }

        #[test]
        fn changed_bytes_can_be_tried(at in 0_usize..300, with in 1_u8..=255) {
            let codecs = &mut Codecs::default();
            for how in every_way() {
                let mut stored = vec![0; 16384];
                let count = codecs.compress(how, &text(4064), &mut stored).unwrap();
                stored[at % count] ^= with;
                codecs.decompress(how.algorithm, &stored[..count], &mut [0; 4064]);
            }
        }
    }
}
