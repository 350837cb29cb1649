//! The progress of a start after a crash. The server sends it to clients that connect meanwhile.
//!
//! This module does not know what the steps do.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How far a start has come. One thread writes it, and others read it.
#[derive(Debug, Default)]
pub struct StartProgress {
    /// Bytes of the log that analysis has read.
    analysed_bytes: AtomicU64,
    /// Bytes of the log that are redone, and all bytes that will be. Both are 0 before redo.
    redone_bytes: AtomicU64,
    redo_bytes: AtomicU64,
}

impl StartProgress {
    pub(crate) fn note_analysed(&self, bytes: u64) {
        self.analysed_bytes.store(bytes, Relaxed);
    }

    pub(crate) fn note_redone(&self, done_bytes: u64, of_bytes: u64) {
        self.redone_bytes.store(done_bytes, Relaxed);
        self.redo_bytes.store(of_bytes, Relaxed);
    }
}

impl fmt::Display for StartProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = |bytes: &AtomicU64| bytes.load(Relaxed);
        let (redone, redo, analysed) =
            (read(&self.redone_bytes), read(&self.redo_bytes), read(&self.analysed_bytes));
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        match (redo, analysed) {
            (0, 0) => write!(f, "The files are being opened."),
            (0, _) => write!(f, "{:.0} MiB of the log are read.", mib(analysed)),
            _ if redone < redo => {
                write!(f, "{:.0} of {:.0} MiB of the log are redone.", mib(redone), mib(redo))
            }
            _ => write!(f, "The log is redone, and the tables are being opened."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_its_sentence() {
        let progress = StartProgress::default();
        assert_eq!(progress.to_string(), "The files are being opened.");
        progress.note_analysed(3 << 20);
        assert_eq!(progress.to_string(), "3 MiB of the log are read.");
        progress.note_redone(1 << 20, 3 << 20);
        assert_eq!(progress.to_string(), "1 of 3 MiB of the log are redone.");
        progress.note_redone(3 << 20, 3 << 20);
        assert_eq!(progress.to_string(), "The log is redone, and the tables are being opened.");
    }
}
