//! A log archive whose store hangs does not keep the database open.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::database::*;
use varve_device::MemoryDirectory;
use varve_engine::{Compression, Database, Lsn, Options};
use varve_pager::{ArchiveOptions, ArchiveStore, PagerConfig, StoredPiece, TimelineName};

/// A store whose calls wait for ever after the first one.
struct Hanging(Barrier);

impl ArchiveStore for Hanging {
    fn location(&self) -> String {
        "nowhere".into()
    }

    fn timelines(&self) -> io::Result<Vec<TimelineName>> {
        self.0.wait();
        loop {
            std::thread::park();
        }
    }

    fn pieces(&self, _: TimelineName) -> io::Result<Vec<StoredPiece>> {
        Ok(Vec::new())
    }

    fn create(&self, _: TimelineName, _: Lsn, _: &[u8]) -> io::Result<bool> {
        Ok(true)
    }

    fn replace(&self, _: TimelineName, _: Lsn, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: TimelineName, _: &[Lsn]) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, _: TimelineName, _: Lsn) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

#[test]
fn a_hanging_store_delays_a_shutdown_by_a_bounded_time() {
    let directory = MemoryDirectory::new();
    let pager = PagerConfig { archives: true, ..PagerConfig::new(directory.clone()) };
    let store = Arc::new(Hanging(Barrier::new(2)));
    let interval = Duration::from_secs(1);
    let archive = ArchiveOptions { store: store.clone(), interval, compression: Compression::NONE };
    let database = Database::open(Options { archive: Some(archive), ..Options::new(pager) }).unwrap();
    let def = create(&database, "t");
    load(&database, &def, (0..10).map(|i| (i, i)));
    // The thread of the archiver is in the store.
    store.0.wait();
    let began = Instant::now();
    database.shutdown().unwrap();
    assert!(began.elapsed() < Duration::from_secs(60), "the shutdown has waited for the store");
    let told = database.archiver().unwrap().take_notices();
    assert!(told.iter().any(|notice| notice.what.contains("does not answer")), "{told:?}");
    drop(database);
    assert!(began.elapsed() < Duration::from_secs(60), "so has the end");
    let again = Database::open(Options::new(PagerConfig::new(directory))).unwrap();
    again.shutdown().unwrap();
}
