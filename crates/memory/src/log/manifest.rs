//! The manifest: a file that lists the valid tables, log file and runs.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | magic "VLOGMAN1"; its last character is the version |
//! | 8 | 8 | number of the log file |
//! | 16 | 8 | number of the next run file |
//! | 24 | 8 | id of the next table |
//! | 32 | 8 | number of tables' words |
//! | 40 | 8 | number of runs |
//! | 48 | 8 each | the tables' words (`lsm/tables.rs`) |
//! | then | 72 each | runs |
//! | end | 8 | crc32c of everything before it |
//!
//! A run has nine words: number of its file, level, sequence, offset of the root node, offset of the Bloom
//! filter, bytes of the Bloom filter, bytes of the entries, number of keys, number of tombstones.
//!
//! A manifest is written under another name, made durable, and renamed. The renaming is the moment at which a
//! new set of files becomes valid. A start removes all other files.
//!
//! Invariants
//! 1. All files that the manifest names are whole. They were durable before the renaming, and are removed
//!    after it.
//!
//! This module does not know entries.

use crate::files::Files;
use crate::layout::get_u64;
use crate::lsm::bloom::Filter;
use crate::lsm::media::Location;
use crate::lsm::run::{self, PackedRun, Run, RunForm};
use crate::lsm::tables::Tables;
use crate::pointer::Pointer;
use crate::store::TABLES_MAX;
use crate::store_error::{StoreError, StoreResult};
use crate::wal;

/// The name of the valid manifest.
const NAME: &str = "manifest";
/// The name of a manifest that is being written.
const UNFINISHED: &str = "manifest.new";
const MAGIC: u64 = u64::from_le_bytes(*b"VLOGMAN1");
const HEAD_WORDS: usize = 6;
const RUN_WORDS: usize = 9;
/// The number of runs that a manifest can have.
const RUNS_MAX: u64 = 240;

/// Returns the name of a run's file.
pub(super) fn run_name(number: u64) -> String {
    format!("run.{number}")
}

/// The content of the manifest.
pub(super) struct Manifest {
    /// The number of the log file.
    pub(super) log: u64,
    /// The number of the next run file.
    pub(super) next_run: u64,
    pub(super) tables: Tables,
    /// The runs, newest first.
    pub(super) runs: Vec<Run>,
}

fn damaged(what: &'static str) -> StoreError {
    StoreError::Damaged { what, at: Pointer::NONE }
}

impl Manifest {
    /// Reads the manifest, opens the runs, and removes all other files but the log. If there is no manifest,
    /// the store is empty.
    pub(super) fn read(files: &mut Files) -> StoreResult<Manifest> {
        let names = files.names();
        let mut manifest = Manifest { log: 0, next_run: 0, tables: Tables::default(), runs: Vec::new() };
        if names.iter().any(|name| **name == *NAME) {
            let file = files.open_file(NAME)?;
            let mut bytes = vec![0; files.len_bytes(file)? as usize];
            files.read_at(file, 0, &mut bytes)?;
            manifest = Manifest::decode(files, &bytes)?;
        }
        let mut kept: Vec<String> = manifest.runs.iter().map(|run| run_name(run.id)).collect();
        kept.extend([NAME.to_owned(), wal::name_of(manifest.log)]);
        for name in names.iter().filter(|name| !kept.iter().any(|kept| **kept == ***name)) {
            files.remove(name)?;
        }
        Ok(manifest)
    }

    fn decode(files: &mut Files, bytes: &[u8]) -> StoreResult<Manifest> {
        let wrong = || damaged("the manifest");
        let (body, checksum) = bytes.split_last_chunk().ok_or_else(wrong)?;
        let word = |number: usize| get_u64(body, 8 * number);
        let (tables, runs) = (word(4), word(5));
        if tables > TABLES_MAX as u64 || runs > RUNS_MAX {
            return Err(wrong());
        }
        let words = HEAD_WORDS as u64 + tables + RUN_WORDS as u64 * runs;
        if u64::from_le_bytes(*checksum) != u64::from(crc32c::crc32c(body))
            || body.len() as u64 != 8 * words
            || word(0) != MAGIC
        {
            return Err(wrong());
        }
        let runs_from = HEAD_WORDS + tables as usize;
        let tables = Tables::decode((HEAD_WORDS..runs_from).map(word), word(3) as u32).ok_or_else(wrong)?;
        let mut manifest = Manifest { log: word(1), next_run: word(2), tables, runs: Vec::new() };
        for number in 0..runs as usize {
            let from = runs_from + RUN_WORDS * number;
            let mut words = [0; RUN_WORDS];
            words.iter_mut().enumerate().for_each(|(at, place)| *place = word(from + at));
            manifest.runs.push(open_run(files, words)?);
        }
        run::sort(&mut manifest.runs);
        Ok(manifest)
    }

    fn encode(&self) -> Vec<u8> {
        let tables: Vec<u64> = self.tables.words().collect();
        let next_id = u64::from(self.tables.next_id());
        let counts = [tables.len() as u64, self.runs.len() as u64];
        let head = [MAGIC, self.log, self.next_run, next_id].into_iter().chain(counts);
        let runs = self.runs.iter().flat_map(words_of);
        let mut bytes: Vec<u8> = head.chain(tables).chain(runs).flat_map(u64::to_le_bytes).collect();
        let checksum = u64::from(crc32c::crc32c(&bytes));
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Makes this the valid manifest, durably.
    ///
    /// Errors: the region is full. Then the old manifest stays valid.
    pub(super) fn write(&self, files: &mut Files) -> StoreResult<()> {
        let written = self.write_and_rename(files);
        written.inspect_err(|_| wal::remove_after_error(files, &[UNFINISHED]))
    }

    fn write_and_rename(&self, files: &mut Files) -> StoreResult<()> {
        let file = files.create(UNFINISHED)?;
        files.append(file, &self.encode())?;
        files.fsync(file)?;
        Ok(files.rename(UNFINISHED, NAME)?)
    }
}

/// Returns the nine words of a run in the manifest.
fn words_of(run: &Run) -> [u64; RUN_WORDS] {
    let Run { id, level, sequence, entry_bytes, keys, tombstones, .. } = *run;
    let root = if let RunForm::Packed(packed) = run.form { packed.root } else { 0 };
    let [filter_at, filter_bytes] = match &run.filter {
        Filter::File { at, bits } => [*at, bits.len() as u64],
        Filter::Region { .. } => [0, 0],
    };
    [id, u64::from(level), sequence, root, filter_at, filter_bytes, entry_bytes, keys, tombstones]
}

/// Opens the file of a run, and reads its Bloom filter.
fn open_run(files: &mut Files, words: [u64; RUN_WORDS]) -> StoreResult<Run> {
    let [id, level, sequence, root, at, filter_bytes, entry_bytes, keys, tombstones] = words;
    let file = files.open_file(&run_name(id))?;
    let end = at.checked_add(filter_bytes).filter(|end| Ok(*end) == files.len_bytes(file));
    end.ok_or(damaged("the Bloom filter of a run"))?;
    let mut bits = vec![0; filter_bytes as usize];
    files.read_at(file, at, &mut bits)?;
    let form = RunForm::Packed(PackedRun { location: Location::File(file), root });
    let filter = Filter::File { at, bits: bits.into() };
    Ok(Run { level: level as u8, sequence, id, form, filter, entry_bytes, keys, tombstones })
}
