//! What the device tests share: every kind of directory behind one list.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::sync::Arc;

use varve_device::{AlignedBuf, Directory, FileDirectory, FileOptions, MemoryDirectory};

/// A directory, and what keeps it alive.
pub struct Fixture {
    pub what: &'static str,
    pub directory: Arc<dyn Directory>,
    _scratch: Option<tempfile::TempDir>,
}

/// A real directory with these options.
pub fn on_files(what: &'static str, options: FileOptions) -> Fixture {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let directory = FileDirectory::open(scratch.path(), options).expect("it opens");
    Fixture { what, directory, _scratch: Some(scratch) }
}

/// One directory of each kind.
pub fn all_kinds() -> Vec<Fixture> {
    let plain = FileOptions { direct_io: false, io_uring: false, read_only: false };
    vec![
        Fixture { what: "memory", directory: MemoryDirectory::new(), _scratch: None },
        on_files("direct", FileOptions::default()),
        on_files("buffered, plain calls", plain),
    ]
}

/// An aligned buffer filled with one byte.
pub fn filled(len_bytes: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::new(len_bytes);
    buf.fill(byte);
    buf
}
