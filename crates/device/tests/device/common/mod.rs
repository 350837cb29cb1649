//! Helpers of the device tests: a list of all kinds of directories.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::sync::Arc;

use varve_device::{
    AlignedBuf, Directory, Emulated, EmulatedMemory, Faulty, FileDirectory, FileOptions, MemoryDirectory,
    NvmProfile, Profile, RecordLog, Recorder, VolatileMachine,
};

/// A directory, with the temporary directory that it is in, if there is one.
pub struct Fixture {
    pub what: &'static str,
    pub directory: Arc<dyn Directory>,
    _scratch: Option<tempfile::TempDir>,
}

/// Returns a real directory with these options.
pub fn on_files(what: &'static str, options: FileOptions) -> Fixture {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let directory = FileDirectory::open(scratch.path(), options).expect("it opens");
    Fixture { what, directory, _scratch: Some(scratch) }
}

/// Returns a real directory inside a wrapper.
fn behind(what: &'static str, wrap: impl FnOnce(Arc<dyn Directory>) -> Arc<dyn Directory>) -> Fixture {
    let files = on_files(what, FileOptions::default());
    Fixture { directory: wrap(files.directory), ..files }
}

/// Returns one directory of each kind.
pub fn all_kinds() -> Vec<Fixture> {
    let plain = FileOptions { direct_io: false, io_uring: false, read_only: false };
    let in_memory = |what, directory| Fixture { what, directory, _scratch: None };
    let drive = Profile::shipped("fusion-io-160").expect("it is shipped").without_time();
    let memory = NvmProfile::shipped("pcm").expect("it is shipped");
    vec![
        in_memory("memory", MemoryDirectory::new()),
        on_files("direct", FileOptions::default()),
        on_files("buffered, plain calls", plain),
        in_memory("recorded", Recorder::wrap(MemoryDirectory::new(), RecordLog::new())),
        in_memory("volatile", VolatileMachine::new()),
        behind("recorded files", |files| Recorder::wrap_from(files, Vec::new(), RecordLog::new())),
        behind("faulty", |files| Faulty::wrap(files)),
        behind("an emulated drive", |files| Emulated::wrap(files, drive, 1.0)),
        behind("emulated memory", |files| EmulatedMemory::wrap(files, memory, 1.0)),
    ]
}

/// Returns an aligned buffer filled with one byte.
pub fn filled(len_bytes: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::new(len_bytes);
    buf.fill(byte);
    buf
}
