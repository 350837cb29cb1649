//! Opening a database that crashed, whose pages say anything under a right checksum.
//!
//! The trees' nodes stay as they are: their search trusts the checksum (`engine/src/node/mod.rs`). All else is changed:
//! headers and maps of the spaces, the engine's root, undo pages, segment headers and their directory.
//!
//! Input: changes: page u8, runs.

use std::cell::OnceCell;
use std::sync::Arc;

use varve_device::{MemoryDirectory, MemoryImage};
use varve_engine::{Database, Isolation, Options};
use varve_pager::page;
use varve_sql::SqlDatabase;

use crate::database::{self, Shown};
use crate::input::{Input, PAGE_BYTES};

const NODE_KINDS: std::ops::Range<u8> = 16..40;
const CHANGES_MAX: usize = 8;
const PAGES_MAX: usize = 10_000;

type Files = Vec<(String, MemoryImage)>;

/// A crashed database, and its pages that are no node: file and page number.
struct Crashed {
    files: Files,
    pages: Vec<(usize, u64)>,
}

thread_local! {
    static CRASHED: OnceCell<Crashed> = const { OnceCell::new() };
}

/// The database opens or is refused; an open one can be checked and closed.
pub fn opening(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let files = CRASHED.with(|place| place.get_or_init(Crashed::new).changed(&mut input));
    let config = database::config(MemoryDirectory::from_images(files));
    let Ok(database) = Database::open(Options::new(config)) else { return };
    // Damage is reported either way.
    let _ = database.check();
    let shared = Arc::new(SqlDatabase::new(database.clone()));
    let _ = database::session(&shared).simple("insert into u (v) values ('after')", &mut Shown::default());
    let _ = database.tick();
    let _ = database.shutdown();
}

/// The files of the database that the target changes.
pub fn crashed_files() -> Files {
    Crashed::new().files
}

impl Crashed {
    /// Commits some changes, leaves others open, writes the pages, and keeps the files as they are then.
    fn new() -> Crashed {
        let directory = MemoryDirectory::new();
        let engine = Database::open(Options::new(database::config(directory.clone())));
        let shared = Arc::new(SqlDatabase::new(engine.expect("a database in memory opens")));
        let mut session = database::session(&shared);
        let statements = [
            database::TABLES,
            "update t set s = 'changed'; delete from u where k = 1",
            "begin; update t set n = 0; insert into u (v) values ('open')",
        ];
        for statement in statements {
            session.simple(statement, &mut Shown::default()).expect("the statement is right");
        }
        // An old snapshot keeps the undo of the committed ones from purge.
        let reader = shared.engine().begin(Isolation::RepeatableRead);
        shared.engine().pager().tick_write(PAGES_MAX).expect("memory has room");
        shared.engine().checkpoint().expect("memory has room");
        let files = directory.images();
        drop((reader, session));
        let pages =
            files.iter().enumerate().flat_map(|(file, (name, image))| pages(file, name, image)).collect();
        Crashed { files, pages }
    }

    fn changed(&self, input: &mut Input<'_>) -> Files {
        let mut files = self.files.clone();
        for _ in 0..CHANGES_MAX {
            if input.is_empty() {
                break;
            }
            let (file, no) = self.pages[usize::from(input.byte()) % self.pages.len()];
            let (image, offset) = (&mut files[file].1, no * PAGE_BYTES as u64);
            let mut bytes = vec![0; PAGE_BYTES];
            image.read(offset, &mut bytes);
            let id = page::page_identity(&bytes);
            input.runs(&mut bytes);
            let (identity, place) = (page::page_identity(&bytes), 4..8);
            if identity != id {
                bytes[place].copy_from_slice(&id.no().0.to_le_bytes());
                bytes[16..18].copy_from_slice(&id.space().0.to_le_bytes());
            }
            page::seal(&mut bytes);
            image.write(offset, &bytes);
        }
        files
    }
}

/// The pages of a file that a target may change.
fn pages(file: usize, name: &str, image: &MemoryImage) -> Vec<(usize, u64)> {
    if name != "data.varve" && name != "rollback.varve" {
        return Vec::new();
    }
    let mut bytes = vec![0; PAGE_BYTES];
    let mut is_open = |no: &u64| {
        image.read(no * PAGE_BYTES as u64, &mut bytes);
        page::verify_checksum(&bytes).is_ok() && !NODE_KINDS.contains(&page::page_kind(&bytes))
    };
    (0..image.len_bytes() / PAGE_BYTES as u64).filter(&mut is_open).map(|no| (file, no)).collect()
}
