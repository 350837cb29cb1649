//! The pace of trimming. It decides how fast unused blocks are returned to the device, and how many bytes at
//! a time. The pace is limited because punching a hole delays other I/O of the same file.
//!
//! Invariants
//! 1. With [`Pace::Tenth`], the thread rests after each piece of work for nine times as long as the piece
//!    took. A shutdown of the pager ends the rest.
//! 2. With [`Pace::Tenth`], the length of a piece is halved, down to the minimum, after a piece that took
//!    longer than 20 ms. The length is doubled, up to the maximum, after a piece that took less than a
//!    quarter of that. With [`Pace::AtOnce`] the length is constant, so that timing decides nothing.
//!
//! This module does not know what the work is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The rest after a piece, as a multiple of the time that the piece took.
const RESTS: u32 = 9;
/// During a rest, the thread checks after this time whether the pager ends.
const NAP: Duration = Duration::from_millis(20);

/// The longest time that other I/O should wait for a piece.
const PAUSE: Duration = Duration::from_millis(20);
/// If a piece takes less than one part in this number of `PAUSE`, the next one is longer.
const SHORT_PART: u32 = 4;

/// The length of the pieces of some work, in bytes. It adapts to the speed of the device.
pub(crate) struct PieceBytes {
    now: AtomicU64,
    least: u64,
    most: u64,
}

impl PieceBytes {
    /// A megabyte with a hole in each page takes about 10 ms in the in-place layout, and far less without
    /// holes (docs/experiments.md, "Measured so far").
    pub(crate) const BEGIN: u64 = 1 << 20;

    /// Returns a length between `least` and `most` that begins with [`PieceBytes::BEGIN`].
    pub(crate) fn between(least: u64, most: u64) -> PieceBytes {
        PieceBytes { now: AtomicU64::new(Self::BEGIN.clamp(least, most)), least, most }
    }

    /// Returns the length of the next piece.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Adapts the length after a piece of this length, or a shorter one, took the time `took`.
    fn learn(&self, took: Duration) {
        let now = self.now();
        let next = match () {
            () if took > PAUSE => now / 2,
            () if took < PAUSE / SHORT_PART => now * 2,
            () => now,
        };
        self.now.store(next.clamp(self.least, self.most), Relaxed);
    }
}

/// The speed with which the pieces of a long work follow each other.
pub(crate) enum Pace<'s> {
    /// Each piece begins as soon as the previous one has ended.
    AtOnce,
    /// At most a tenth of the time is work. The flag says that the pager ends.
    Tenth(&'s AtomicBool),
}

impl Pace<'_> {
    /// Runs a piece of work, and rests.
    pub(crate) fn piece<T>(&self, work: impl FnOnce() -> T) -> T {
        let (done, took) = timed(work);
        self.rest(took);
        done
    }

    /// Runs a piece of work, and rests. `work` gets the length of the piece, which adapts so that other I/O
    /// does not wait too long.
    pub(crate) fn short_piece<T>(&self, bytes: &PieceBytes, work: impl FnOnce(u64) -> T) -> T {
        let (done, took) = timed(|| work(bytes.now()));
        if matches!(self, Pace::Tenth(_)) {
            bytes.learn(took);
        }
        self.rest(took);
        done
    }

    fn rest(&self, worked: Duration) {
        let Pace::Tenth(is_stopping) = self else { return };
        let began = Instant::now();
        while !is_stopping.load(Acquire) {
            let Some(rest) = (worked * RESTS).checked_sub(began.elapsed()) else { break };
            std::thread::sleep(rest.min(NAP));
        }
    }

    /// Returns whether the pager is about to end. The rest of the work is left to the next start.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Pace::Tenth(is_stopping) if is_stopping.load(Acquire))
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test tries several times that a MiB takes, in milliseconds. The pieces become so short that other
    /// requests wait at most twice the allowed time.
    #[test]
    fn pieces_get_as_short_as_others_need_them() {
        for (ms_of_mib, settles) in
            [(0, 8 << 20), (1, 8 << 20), (10, 1 << 20), (100, 128 << 10), (10_000, 64 << 10)]
        {
            let pieces = PieceBytes::between(64 << 10, 8 << 20);
            for _ in 0..20 {
                let took = Duration::from_millis(ms_of_mib) * (pieces.now() >> 10) as u32 / 1024;
                pieces.learn(took);
            }
            assert_eq!(pieces.now(), settles, "{ms_of_mib} ms");
            pieces.learn(Duration::ZERO);
            assert_eq!(pieces.now(), (settles * 2).min(8 << 20), "they get longer again");
        }
    }
}
