//! Fuzzes the opening of a database after a crash. The target changes some bytes of the database's files. It
//! then corrects the checksum over the changed bytes, or leaves it wrong.
//!
//! The target changes headers and maps of the spaces, the engine's root page, undo pages, rollback segment
//! headers and their directory, slots of the control file, and headers of log segments and log blocks. It
//! does not change tree nodes, because their reader trusts the checksum (`engine/src/node/mod.rs`). For the
//! same reason it changes log records only if it leaves the checksum wrong. The targets `log_records`,
//! `page_redo` and `node_redo` test these two.
//!
//! The input is a list of changes. A change has a place (u8), a number that leaves the old checksum if it is
//! odd (u8), and runs, which overwrite bytes at that place (see `input.rs`).

use std::cell::OnceCell;
use std::sync::Arc;

use varve_device::{MemoryDirectory, MemoryImage};
use varve_engine::{Database, Isolation, Options};
use varve_pager::control::CONTROL_FILE;
use varve_pager::log::format::{BLOCK_HEADER_BYTES, BlockHeader, SegmentHeader};
use varve_pager::page;
use varve_sql::SqlDatabase;

use crate::database::{self, Shown};
use crate::input::{Input, PAGE_BYTES};

const NODE_KINDS: std::ops::Range<u8> = 16..40;
const CHANGES_MAX: usize = 8;
const PAGES_MAX: usize = 10_000;
const SECTOR_BYTES: usize = 512;
const SLOT_BYTES: usize = 4096;
/// The number of blocks at the beginning and at the end of a segment that may be changed. The blocks between
/// them are similar.
const BLOCKS_MAX: usize = 20;

type Files = Vec<(String, MemoryImage)>;

/// A kind of block with one checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DamagedPart {
    /// A page that is not a node.
    Page,
    /// A slot of the control file.
    Slot,
    /// The header of a segment of the log.
    Segment,
    /// A block of the log.
    Block,
}

/// The position of such a block.
#[derive(Clone, Copy, Debug)]
struct DamagedRange {
    kind: DamagedPart,
    file: usize,
    offset: u64,
    len_bytes: usize,
}

/// A crashed database, and the places that may be changed.
struct Crashed {
    files: Files,
    places: Vec<DamagedRange>,
}

thread_local! {
    static CRASHED: OnceCell<Crashed> = const { OnceCell::new() };
}

/// Checks that the database opens or is refused, and that an open database can be checked and closed.
pub fn opening(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let files = CRASHED.with(|place| place.get_or_init(Crashed::new).changed(&mut input));
    let config = database::config(MemoryDirectory::from_images(files));
    let Ok(database) = Database::open(Options::new(config)) else { return };
    // The check may report damage, or return an error.
    let _ = database.check();
    let shared = Arc::new(SqlDatabase::new(database.clone()));
    let _ = database::session(&shared).simple("insert into u (v) values ('after')", &mut Shown::default());
    let _ = database.tick();
    let _ = database.shutdown();
}

/// Returns the files of the database that the target changes.
pub fn crashed_files() -> Files {
    Crashed::new().files
}

impl Crashed {
    /// Commits some changes, leaves others open, writes the pages, and stores the files in this state.
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
        // An old snapshot prevents the purge of the committed changes' undo.
        let reader = shared.engine().begin(Isolation::RepeatableRead);
        shared.engine().pager().tick_write(PAGES_MAX).expect("memory has room");
        shared.engine().checkpoint().expect("memory has room");
        let files = directory.images();
        drop((reader, session));
        let places =
            files.iter().enumerate().flat_map(|(file, (name, image))| places(file, name, image)).collect();
        Crashed { files, places }
    }

    fn changed(&self, input: &mut Input<'_>) -> Files {
        let mut files = self.files.clone();
        for _ in 0..CHANGES_MAX {
            if input.is_empty() {
                break;
            }
            let place = self.places[usize::from(input.byte()) % self.places.len()];
            let image = &mut files[place.file].1;
            let mut bytes = vec![0; place.len_bytes];
            image.read(place.offset, &mut bytes);
            let was = bytes.clone();
            let stays = input.byte() & 1 == 1;
            input.runs(&mut bytes);
            if !stays {
                place.kind.seal(&was, &mut bytes);
            }
            image.write(place.offset, &bytes);
        }
        files
    }
}

impl DamagedPart {
    /// Corrects the checksum, and restores the bytes that the target must not change.
    fn seal(self, was: &[u8], bytes: &mut [u8]) {
        match self {
            DamagedPart::Page => {
                if page::page_identity(bytes) != page::page_identity(was) {
                    bytes[4..8].copy_from_slice(&was[4..8]);
                    bytes[16..18].copy_from_slice(&was[16..18]);
                }
                page::seal(bytes);
            }
            DamagedPart::Slot => {
                let crc = crc32c::crc32c(&bytes[..SLOT_BYTES - 4]);
                bytes[SLOT_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
            }
            DamagedPart::Segment => {
                let crc = crc32c::crc32c(&bytes[4..48]);
                bytes[..4].copy_from_slice(&crc.to_le_bytes());
            }
            DamagedPart::Block => {
                bytes[BLOCK_HEADER_BYTES..].copy_from_slice(&was[BLOCK_HEADER_BYTES..]);
                let claimed = BlockHeader::peek(bytes).map_or(0, |header| header.length_bytes as usize);
                let crc = crc32c::crc32c(&bytes[4..claimed.clamp(BLOCK_HEADER_BYTES, bytes.len())]);
                bytes[..4].copy_from_slice(&crc.to_le_bytes());
            }
        }
    }
}

/// Returns the places of a file that the target may change.
fn places(file: usize, name: &str, image: &MemoryImage) -> Vec<DamagedRange> {
    let place = |kind, offset, len_bytes| DamagedRange { kind, file, offset, len_bytes };
    match name {
        "data.varve" | "rollback.varve" => {
            pages(image).into_iter().map(|offset| place(DamagedPart::Page, offset, PAGE_BYTES)).collect()
        }
        CONTROL_FILE => [0, SLOT_BYTES as u64]
            .into_iter()
            .map(|offset| place(DamagedPart::Slot, offset, SLOT_BYTES))
            .collect(),
        name if name.starts_with("log.") => {
            let header = place(DamagedPart::Segment, 0, SECTOR_BYTES);
            let blocks = blocks(image).into_iter();
            let blocks = blocks.map(|(offset, len_bytes)| place(DamagedPart::Block, offset, len_bytes));
            std::iter::once(header).chain(blocks).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the offsets of the pages that are not nodes.
fn pages(image: &MemoryImage) -> Vec<u64> {
    let mut bytes = vec![0; PAGE_BYTES];
    let mut is_open = |offset: &u64| {
        image.read(*offset, &mut bytes);
        page::verify_checksum(&bytes).is_ok() && !NODE_KINDS.contains(&page::page_kind(&bytes))
    };
    (0..image.len_bytes()).step_by(PAGE_BYTES).filter(&mut is_open).collect()
}

/// Returns the offsets and lengths of the first and the last blocks of a segment.
fn blocks(image: &MemoryImage) -> Vec<(u64, usize)> {
    let mut bytes = vec![0; image.len_bytes() as usize];
    image.read(0, &mut bytes);
    if SegmentHeader::decode(&bytes).is_none() {
        return Vec::new();
    }
    let sealed = |at: usize| {
        let header = BlockHeader::peek(&bytes[at..])?;
        let len_bytes = header.length_bytes as usize;
        let is_one = len_bytes >= BLOCK_HEADER_BYTES && header.is_sealed(&bytes[at..]);
        is_one.then_some((at as u64, len_bytes))
    };
    let all: Vec<_> = (SLOT_BYTES..bytes.len()).step_by(SECTOR_BYTES).filter_map(sealed).collect();
    let last = all.len().saturating_sub(BLOCKS_MAX);
    let chosen = all.iter().enumerate().filter(|(no, _)| *no < BLOCKS_MAX || *no >= last);
    chosen.map(|(_, block)| *block).collect()
}
