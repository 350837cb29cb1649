//! The log record which says at which time a position of the log was written. Only a log that is archived has
//! such records (decision 0263).
//!
//! Payload: what happened (1 byte), microseconds since 1970, UTC (8, little endian).
//!
//! | what | meaning |
//! |---:|---|
//! | 1 | the group commits a transaction |
//! | 2 | nothing happened: the archiver asks for the time |
//! | 3 | from here on, each commit of this life of the log has its time |
//!
//! Invariants
//! 1. The time is read in the append section, so the times of one life of the log do not decrease. Everything
//!    before the record was logged at its time or earlier.
//! 2. Programs that do not know the record ignore it.
//!
//! This module does not know clocks.

/// Kind of the note record.
pub(crate) const NOTE_TIME: u8 = 7;

/// The bytes of a time.
pub(crate) const TIME_BYTES: usize = 8;

/// What happened at the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    /// A transaction was committed.
    Commit,
    /// Nothing.
    Tick,
    /// Commits have times from here on.
    Begin,
}

impl Timed {
    const ALL: [Timed; 3] = [Timed::Commit, Timed::Tick, Timed::Begin];

    fn code(self) -> u8 {
        match self {
            Timed::Commit => 1,
            Timed::Tick => 2,
            Timed::Begin => 3,
        }
    }

    /// Returns the payload. Its last `TIME_BYTES` bytes are the time.
    pub(crate) fn payload(self, time_us: u64) -> [u8; 1 + TIME_BYTES] {
        let mut payload = [self.code(); 1 + TIME_BYTES];
        payload[1..].copy_from_slice(&time_us.to_le_bytes());
        payload
    }

    /// Decodes a payload. `None` means that it is not valid.
    pub(crate) fn decode(payload: &[u8]) -> Option<(Timed, u64)> {
        let (code, time) = payload.split_first()?;
        let what = Timed::ALL.into_iter().find(|what| what.code() == *code)?;
        Some((what, u64::from_le_bytes(time.try_into().ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_and_rubbish_does_not() {
        for what in Timed::ALL {
            assert_eq!(Timed::decode(&what.payload(77)), Some((what, 77)));
        }
        assert_eq!(Timed::Commit.payload(0x0102), [1, 2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Timed::decode(&[4; 9]), None);
        assert_eq!(Timed::decode(&[1; 8]), None);
        assert_eq!(Timed::decode(&[]), None);
    }
}
