//! Fuzzes the reader of backups.
//!
//! The input has these fields:
//!
//! | field | bytes |
//! |---|---|
//! | 0: the rest is a backup; any other number: frames with right checksums follow | 1 |
//! | for each frame: kind, length, contents | 1, 2, length |

use std::sync::Arc;

use varve_device::MemoryDirectory;
use varve_pager::{
    BackupOptions, BackupVerifier, Compression, Pager, PagerConfig, RedoError, RedoOps, fuzzing,
    verify_backup,
};

use crate::input::{Input, PAGE_BYTES};

/// The bytes of a piece, so that frames begin and end within pieces.
const PIECE_BYTES: usize = 97;

/// Checks that reading a backup ends with a result, which is the same if the bytes come in pieces.
pub fn backup(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let file = match input.byte() {
        0 => input.rest().to_vec(),
        _ => framed(&mut input),
    };
    let whole = verify_backup(&mut &file[..]).ok();
    let mut verifier = BackupVerifier::default();
    let taken = file.chunks(PIECE_BYTES).try_for_each(|piece| verifier.take(piece));
    assert_eq!(whole, taken.and_then(|()| verifier.finish()).ok(), "in pieces");
}

pub(crate) fn framed(input: &mut Input<'_>) -> Vec<u8> {
    let mut frames = Vec::new();
    while !input.is_empty() {
        let (kind, length) = (input.byte(), input.u16());
        frames.push((kind, input.bytes(usize::from(length))));
    }
    fuzzing::backup_of(&frames, Compression::NONE)
}

struct NoOps;

impl RedoOps for NoOps {
    fn apply(&self, op: u8, _page: &mut [u8], _payload: &[u8]) -> Result<(), RedoError> {
        Err(RedoError(format!("no operation {op}")))
    }
}

/// Returns the backup of a new database, whose log is archived or not.
pub(crate) fn first_backup(archives: bool) -> Vec<u8> {
    let mut config = PagerConfig::new(MemoryDirectory::new());
    config.page_size = PAGE_BYTES;
    config.pool_bytes = 64 * PAGE_BYTES;
    config.log_segment_bytes = 1 << 20;
    config.log_capacity_bytes = 4 << 20;
    config.background = false;
    config.archives = archives;
    let pager = Pager::open(config, Arc::new(NoOps)).expect("a new database");
    let mut backup = pager.backup(BackupOptions::default()).expect("a backup");
    let mut bytes = Vec::new();
    while backup.next(&mut bytes).expect("a backup") {}
    bytes
}

/// Returns a first input: a backup.
pub(crate) fn first_input() -> Vec<u8> {
    let bytes = first_backup(false);
    let mut input = vec![1];
    for (kind, contents) in fuzzing::frames_of_backup(&bytes).expect("a backup") {
        input.push(kind);
        input.extend_from_slice(&(contents.len() as u16).to_le_bytes());
        input.extend_from_slice(&contents);
    }
    input
}
