//! Tests of the pager on real files: direct I/O, io_uring batches, page writers, a restart without shutdown.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crate::common::{NoOps, add, get, set};
use varve_device::{Directory, ErrorKind, FileDirectory, FileOptions, MemoryDirectory};
use varve_pager::{
    Algorithm, BadLocation, Compression, Locations, NewTablespace, NvmConfig, PageId, Pager, PagerConfig,
    ProtectionKind, SpaceId, Trim,
};

fn config(path: &std::path::Path) -> PagerConfig {
    let mut config = crate::common::config(&MemoryDirectory::new(), 64);
    let directory: Arc<dyn Directory> = FileDirectory::open_or_create(path, FileOptions::default()).unwrap();
    config.data = directory.clone();
    config.log = directory.clone();
    config.rollback = directory.clone();
    config.temporary = directory.clone();
    config.control = directory;
    config.background = true;
    config.checkpoint.interval_ms = 20;
    config
}

/// Returns a configuration with log and pages in a region that a file emulates.
fn in_nvm(path: &std::path::Path) -> PagerConfig {
    let config = config(path);
    let nvm = NvmConfig { directory: config.data.clone(), size_bytes: 800 << 10, log_bytes: 512 << 10 };
    PagerConfig { nvm: Some(nvm), protection: ProtectionKind::Nvm, ..config }
}

#[test]
fn a_database_in_files_survives_restarts() {
    survives_restarts(config);
}

#[test]
fn a_database_in_a_mapped_region_survives_restarts() {
    survives_restarts(in_nvm);
    let path = tempfile::tempdir().unwrap();
    let pager = Pager::open(in_nvm(path.path()), Arc::new(NoOps)).unwrap();
    let warnings = pager.warnings().join("\n");
    assert!(warnings.contains("NVM is emulated by a file"), "{warnings}");
}

fn survives_restarts(config: fn(&std::path::Path) -> PagerConfig) {
    let path = tempfile::tempdir().unwrap();
    let mut ids: Vec<PageId> = Vec::new();
    for round in 0..3 {
        let pager = Pager::open(config(path.path()), Arc::new(NoOps)).unwrap();
        assert_eq!(pager.is_new(), round == 0);
        for (number, id) in ids.iter().enumerate() {
            assert_eq!(get(&pager, *id).unwrap(), number as u64 + round);
            set(&pager, *id, number as u64 + round + 1).unwrap();
        }
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        for _ in 0..150 {
            ids.push(add(&pager, owner, ids.len() as u64 + round + 1).unwrap());
        }
        pager.prefetch(&ids[..40]);
        pager.flush_log(pager.log().end()).unwrap();
        assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
        if round == 1 {
            pager.shutdown().unwrap();
        }
    }
}

/// Returns the number of bytes that the file system has given to the file of the data space, after a
/// shutdown.
fn room_of_compressed_pages(trim: Trim) -> Option<u64> {
    let path = tempfile::tempdir().unwrap();
    let mut config = config(path.path());
    (config.page_size, config.pool_bytes) = (16384, 64 * 16384);
    (config.log_segment_bytes, config.log_capacity_bytes) = (1 << 20, 8 << 20);
    (config.compression, config.trim) = (Compression::of(Algorithm::Lz4), trim);
    let hole_bytes = config.data.capabilities().hole_bytes;
    let pager = Pager::open(config, Arc::new(NoOps)).unwrap();
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<PageId> = (0..PAGES).map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.shutdown().unwrap();
    for (number, id) in (0..).zip(&ids) {
        assert_eq!(get(&pager, *id).unwrap(), number);
    }
    let blocks = std::fs::metadata(path.path().join("data.varve")).unwrap().blocks();
    (1..=8192).contains(&hole_bytes).then_some(blocks * 512)
}

const PAGES: u64 = 300;

#[test]
fn compressed_pages_leave_room_where_the_file_system_has_holes() {
    let [with, without] = [Trim::Auto, Trim::Off].map(room_of_compressed_pages);
    if let (Some(with), Some(without)) = (with, without) {
        assert!(with + PAGES * 8192 <= without, "{with} bytes with holes, {without} without");
    }
}

#[test]
fn an_idle_database_cleans_itself() {
    let path = tempfile::tempdir().unwrap();
    let pager = Pager::open(config(path.path()), Arc::new(NoOps)).unwrap();
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    for number in 0..20 {
        add(&pager, owner, number).unwrap();
    }
    let start = std::time::Instant::now();
    while pager.stats().dirty_frames > 0 {
        assert!(start.elapsed().as_secs() < 20, "{:?}", pager.stats());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(pager.stats().inline_writes, 0);
}

/// Directories of tablespaces, each locked as long as it is used.
struct Locked;

impl Locations for Locked {
    fn open(&self, location: &str) -> Result<Arc<dyn Directory>, BadLocation> {
        Ok(FileDirectory::open_locked(location.as_ref(), FileOptions::default())?)
    }
}

/// A dropped tablespace leaves none of its files open, and its directory is not locked any more.
#[test]
fn a_dropped_tablespace_is_closed() {
    let [path, place] = [0; 2].map(|_| tempfile::tempdir().unwrap());
    let pager =
        Pager::open(PagerConfig { locations: Arc::new(Locked), ..config(path.path()) }, Arc::new(NoOps))
            .unwrap();
    let open_files = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let files = all.filter_map(|one| std::fs::read_link(one.unwrap().path()).ok());
        files.filter(|file| file.starts_with(place.path())).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let new = NewTablespace {
            name: "a".into(),
            location: place.path().to_str().unwrap().into(),
            protection: ProtectionKind::DOUBLEWRITE,
            compression: None,
            note: Vec::new(),
        };
        let space = pager.create_tablespace(&new).unwrap();
        let second = FileDirectory::open_locked(place.path(), FileOptions::default()).err().unwrap();
        assert!(matches!(second.kind, ErrorKind::Locked { .. }), "{second}");
        let owner = pager.create_segment(space).unwrap();
        pager.reserve(space, 50).unwrap();
        let mut mtr = pager.begin().unwrap();
        for _ in 0..30 {
            let id = mtr.allocate(space, owner, None).unwrap();
            mtr.create(id, crate::common::KIND, owner).unwrap();
        }
        mtr.commit();
        pager.checkpoint_all().unwrap();
        assert!(open_files().len() >= 3, "pages, doublewrite copies and the lock: {:?}", open_files());
        pager.drop_segment(SpaceId::DATA, owner).unwrap();
        assert!(pager.drop_tablespace(space).unwrap());
        assert_eq!(open_files(), Vec::<std::path::PathBuf>::new());
    }
    pager.shutdown().unwrap();
}
