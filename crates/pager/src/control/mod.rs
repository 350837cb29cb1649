//! The control file. It has what a start must know before it can read the log.
//!
//! Invariants
//! 1. The file has two slots, which are written in turn. Each write is durable, and each slot has a checksum.
//!    So the newer valid slot has either the last state or the state before it, and a torn write loses no
//!    acknowledged state. A slot with a right checksum was written whole. If its values are impossible, the
//!    database does not open, because the other slot is too old.
//! 2. The file has the position from which the log is read, and the position from which it is redone. Both
//!    only grow. The log is cut only up to the first position of a durable slot.
//! 3. The file has a new incarnation (life of the log) before the first log block of this incarnation is
//!    written.
//! 4. While the state is `Creating`, the database has no contents, and a start creates it again.
//! 5. While the state is `Restoring`, no start opens the database. Its contents are incomplete.
//! 6. The file has the id of a region of persistent memory that is not needed: before the region is made, and
//!    after it was left, until another region is made. A region is overwritten only if it has this id, or if
//!    its own header says that no database needs it.
//!
//! The format of a slot is in `control/format.rs`.
//!
//! This module does not know what is in the log and in the spaces.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use varve_device::{AlignedBuf, BlockFile, Directory, Durability, OpenHow, Purpose, Space, planted};

use crate::base::error::{PagerError, Result};
use crate::base::lsn::{LSN_MAX, Lsn};
use crate::log::Life;

mod format;
pub(crate) mod starts;
pub(crate) mod tablespaces;

pub use format::FORMAT_VERSION;
use format::{LIVES_MAX, SLOT_BYTES, Slot};
use starts::OpenHistory;
pub use starts::{LogStart, LogState, NotIncluded, STARTS_FILE, StartHistory};

/// Name of the control file.
pub const CONTROL_FILE: &str = "control";

const UNFINISHED_FILE: &str = "control.new";
const SEGMENT_BYTES_MAX: u64 = 1 << 44;
/// With more lives than this since the redo position, opening takes a checkpoint first.
const LIVES_WANTED: usize = 32;
/// The largest step from one incarnation to the next. Half of all numbers last for two million starts. Above
/// that the step is 1.
const INCARNATION_STEP_MAX: u32 = 1 << 11;

/// The state of the database: being created, open, or shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Creation has not finished.
    Creating,
    /// A server uses the database, or has crashed.
    Open,
    /// The database was shut down cleanly. The devices have everything.
    Clean,
    /// The database is being restored from a backup. If the restore is interrupted, it never opens.
    Restoring,
}

impl State {
    /// Returns the state that a checkpoint stores. `is_clean` means that it ends a clean shutdown.
    pub(crate) fn after_checkpoint(self, is_clean: bool) -> State {
        match self {
            _ if is_clean => State::Clean,
            State::Restoring => State::Restoring,
            _ => State::Open,
        }
    }
}

/// The protection with which pages were written last. After a crash, torn pages are repaired by this
/// protection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InForce {
    /// Doublewrite. Databases of older programs always have this value, whatever their protection was.
    #[default]
    Doublewrite,
    /// None.
    Nothing,
    /// Images of clean pages in the log, logged before the pages change.
    FullPageLog,
    /// Atomic writes of the devices.
    AtomicWrite,
    /// Doublewrite with copies in the NVM region.
    NvmDoublewrite,
    /// Page versions in the NVM region. They stay there until the data files have the page.
    Nvm,
}

impl InForce {
    /// Returns the name of the protection in the configuration file and in reports.
    pub fn name(self) -> &'static str {
        match self {
            InForce::Doublewrite => "doublewrite",
            InForce::Nothing => "none",
            InForce::FullPageLog => "full-page-log",
            InForce::AtomicWrite => "atomic-write",
            InForce::NvmDoublewrite => "nvm-dwb",
            InForce::Nvm => "nvm",
        }
    }
}

/// The NVM region that the database needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Identity of the region, not 0; its header has it, too.
    pub region: u64,
    /// Whether newest versions of pages are in the region.
    pub pages: bool,
    /// The log is in it.
    pub log: bool,
    /// Doublewrite copies are in it.
    pub copies: bool,
    /// The number of checkpoints with this region. The stamp in the region itself is never smaller.
    pub stamp: u64,
}

impl Attached {
    /// Returns the parts of the database that are in the region, for messages.
    pub fn parts(&self) -> &'static str {
        match (self.log, self.pages, self.copies) {
            (true, true, _) => "the log and the newest pages",
            (true, false, true) => "the log and the doublewrite copies",
            (true, false, false) => "the log",
            (false, true, _) => "the newest pages",
            (false, false, _) => "the doublewrite copies",
        }
    }

    fn is_sound(&self) -> bool {
        let has_part = self.pages || self.log || self.copies;
        self.region != 0 && has_part && !(self.pages && self.copies) && self.stamp < u64::MAX
    }
}

/// The positions from which a start reads the log: LSNs of log blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// The position at which reading starts. No older log is needed.
    pub read: Lsn,
    /// The position at which redo starts. It is not before `read`.
    pub redo: Lsn,
}

impl Positions {
    /// Returns positions of which both are `at`, so that reading and redo start together.
    pub fn both(at: Lsn) -> Positions {
        Positions { read: at, redo: at }
    }
}

/// A shutdown that left changed pages on flash. All pages that the data files lack are in the flash cache
/// with this seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// A random number, not 0, which is also in the header of the cache's file.
    pub seal: u64,
    /// The LSN at which the log continues: the start of a block.
    pub end: Lsn,
}

/// The contents of the control file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the database.
    pub database: u64,
    /// Page size of all spaces, in bytes.
    pub page_size: u32,
    /// Size of the log's segments, in bytes.
    pub log_segment_bytes: u64,
    /// The state of the database.
    pub state: State,
    /// The position from which the log is read: the LSN of a log block.
    pub redo: Lsn,
    /// The LSN of the log block where redo starts, if it is after `redo`. All changes before it are stable in
    /// the data files. The log before it is read only for the records of the flash cache.
    pub stable: Option<Lsn>,
    /// An LSN up to which the log was durable.
    pub durable: Lsn,
    /// The lives of the log since the redo position, oldest first.
    pub lives: Vec<Life>,
    /// The protection under which pages were written last.
    pub protection: InForce,
    /// Whether the data and the rollback space are packed. This is chosen when the database is created.
    pub packed: bool,
    /// For the page maps of the data and the rollback space: the number of a checkpoint that is durable.
    pub map_checkpoints: [u64; 2],
    /// The number of the list of tablespaces in force. Zero means that there never was a tablespace.
    pub tablespaces: u64,
    /// The NVM region that the database needs.
    pub attached: Option<Attached>,
    /// Identity of a region that is being made, or that a shutdown has left. The database needs nothing in
    /// it.
    pub unneeded_region: Option<u64>,
    /// Whether a clean shutdown has abandoned the log. The next log begins empty, at the redo position.
    pub log_begins_empty: bool,
    /// Whether some pages may be compressed. This is set before the first page is compressed, and never
    /// reset.
    pub has_compressed_pages: bool,
    /// Whether free extents of files with the in-place layout may have no disk blocks. This is set before the
    /// first hole is punched, and never reset.
    pub has_hollow_extents: bool,
    /// Whether the last start had a flash cache and kept its slot records. If so, the next start may find
    /// pages in the cache.
    pub has_cache: bool,
    /// The mark that the header pages of the data and rollback spaces have in the data files, unless they
    /// have `next_mark` already. Zero means unknown.
    pub mark: u64,
    /// The mark that the header pages will get next. Zero means none.
    pub next_mark: u64,
    /// The identities of the control file, the data file and the rollback file while a server runs. Zero
    /// means unknown, or that no server runs. After a crash they distinguish the directory from a copy of it
    /// (`open/copied.rs`).
    pub running: [u64; 3],
    /// A shutdown left pages on flash under a seal.
    pub sealed: Option<Sealed>,
    /// A random number that each start makes. Files that the last start used have this number. If it can't be
    /// written to such a file, the start makes a second number. Zero means unknown.
    pub start: u64,
    /// The id of the newest start in the history of starts (`control/starts.rs`). Zero means that there is no
    /// history.
    pub newest_start: u64,
    sequence: u64,
}

impl Superblock {
    /// Returns the first state of a new database.
    pub fn new(database: u64, page_size: u32, log_segment_bytes: u64) -> Superblock {
        Superblock {
            database,
            page_size,
            log_segment_bytes,
            state: State::Creating,
            redo: Lsn::ZERO,
            stable: None,
            durable: Lsn::ZERO,
            lives: Vec::new(),
            protection: InForce::default(),
            packed: false,
            map_checkpoints: [0; 2],
            tablespaces: 0,
            attached: None,
            unneeded_region: None,
            log_begins_empty: false,
            has_compressed_pages: false,
            has_hollow_extents: false,
            has_cache: false,
            mark: 0,
            next_mark: 0,
            running: [0; 3],
            sealed: None,
            start: 0,
            newest_start: 0,
            sequence: 0,
        }
    }

    /// Returns the incarnation (number) of the next life of the log. It is the last one plus a random step.
    /// If a database is continued from two copies of one backup, the steps almost always differ. So neither
    /// copy takes the other's log for its own.
    pub fn next_incarnation(&self) -> u32 {
        let last = self.lives.last().map_or(0, |life| life.incarnation);
        let wide = (random_id() >> 20) as u32 % INCARNATION_STEP_MAX;
        last + if last < u32::MAX / 2 { 1 + wide } else { 1 }
    }

    /// Adds a life. Earlier lives that have written no block are dropped, and the new life follows their
    /// predecessor.
    pub fn begin_life(&mut self, mut life: Life) {
        while let Some(idle) = self.lives.pop_if(|old| old.start >= life.after) {
            life.after = life.after.min(idle.after);
        }
        if self.lives.is_empty() {
            // Nothing was written since the redo position. If the sectors are larger now, the life begins
            // after this position.
            self.advance(life.start);
        }
        self.lives.push(life);
    }

    /// Moves the position from which the log is read forward.
    fn advance(&mut self, redo: Lsn) {
        self.redo = self.redo.max(redo);
        self.stable = self.stable.filter(|stable| *stable > self.redo);
    }

    /// Returns where redo starts.
    pub fn redo_start(&self) -> Lsn {
        self.stable.unwrap_or(self.redo)
    }

    /// Moves both positions forward. Drops the lives that ended before the new position of reading.
    pub fn advance_redo(&mut self, to: Positions, durable: Lsn) {
        self.stable = self.stable.max(Some(to.redo));
        self.advance(to.read);
        self.durable = self.durable.max(durable);
        let needed = self.lives.iter().rposition(|life| life.start <= self.redo);
        drop(self.lives.drain(..needed.unwrap_or(0)));
    }

    /// Returns an LSN up to which the log is known to reach at least. If an empty log begins, it is the LSN
    /// at which the log begins.
    pub fn log_end(&self) -> Lsn {
        self.redo.max(self.durable)
    }

    /// Announces the next mark of the header pages. If an unfinished start has announced a mark, that one
    /// stays, because the header pages may have it already.
    pub fn announce_mark(&mut self, mark: u64) {
        if self.next_mark == 0 {
            self.next_mark = mark;
        }
    }

    /// Records that all header pages in the data files have the announced mark, and that the log is durable
    /// up to `durable`.
    pub fn note_marked(&mut self, durable: Lsn) {
        self.mark = std::mem::take(&mut self.next_mark);
        self.durable = self.durable.max(durable);
    }

    /// Records that from now on the database needs this region.
    pub fn attach(&mut self, region: Attached) {
        self.attached = Some(region);
        self.unneeded_region = None;
    }

    /// Records a clean shutdown that leaves the region of persistent memory. All pages are in the data files,
    /// and nothing in the region is needed. If the log was in the region, it is not needed either.
    pub fn leave_region(&mut self) {
        let Some(left) = self.attached.take() else { return };
        self.unneeded_region = Some(left.region);
        if left.log {
            self.log_begins_empty = true;
            self.advance(self.durable);
            self.lives.clear();
        }
        if left.pages || left.copies {
            // No page is torn, and the next protection begins with new files.
            self.protection = InForce::Nothing;
        }
    }

    /// Records that an empty log begins with this life, after all LSNs of the old log.
    pub fn begin_empty_log(&mut self, life: Life, segment_bytes: u64) {
        self.lives.clear();
        self.log_begins_empty = false;
        self.log_segment_bytes = segment_bytes;
        self.durable = self.durable.max(life.start);
        self.begin_life(life);
    }

    /// Returns the contents of the control file as if the data files had all changes up to `sealed.end`.
    pub fn behind(self, sealed: Sealed) -> Superblock {
        Superblock { redo: sealed.end, stable: None, state: State::Clean, ..self }
    }

    /// Returns whether a checkpoint should shorten the list of lives soon.
    pub fn wants_checkpoint(&self) -> bool {
        self.lives.len() > LIVES_WANTED
    }

    /// Returns whether the values are possible: all numbers can still grow, and one of the lives contains the
    /// redo position.
    fn is_sound(&self) -> bool {
        let positions = self.lives.iter().flat_map(|life| [life.after, life.start]);
        let can_grow = positions.chain([self.redo, self.durable]).all(|lsn| lsn.get() <= LSN_MAX)
            && self.log_segment_bytes <= SEGMENT_BYTES_MAX
            && self.sequence < u64::MAX
            && self.lives.iter().all(|life| life.incarnation < u32::MAX);
        let in_order = self.lives.windows(2).all(|pair| pair[0].start < pair[1].after)
            && self.lives.iter().all(|life| life.after <= life.start);
        let covered = self.lives.first().is_none_or(|life| life.start <= self.redo);
        let is_later = self.stable.is_none_or(|stable| self.redo < stable && stable.get() <= LSN_MAX);
        let is_behind = |sealed: Sealed| {
            let is_there = sealed.seal != 0 && sealed.end.get() <= LSN_MAX && self.redo_start() <= sealed.end;
            is_there && self.state == State::Open
        };
        can_grow
            && in_order
            && covered
            && is_later
            && self.sealed.is_none_or(is_behind)
            && self.has_sound_parts()
    }

    /// Returns whether region and log can be where this slot says. If an empty log begins, the shutdown
    /// before was clean, and the new log had no life yet.
    fn has_sound_parts(&self) -> bool {
        let has_log_there = self.attached.is_some_and(|attached| attached.log);
        let can_begin = self.state == State::Clean && self.lives.is_empty() && !has_log_there;
        let has_copies = self.attached.is_some_and(|attached| attached.copies);
        let has_pages = self.attached.is_some_and(|attached| attached.pages);
        self.attached.is_none_or(|attached| attached.is_sound() && self.unneeded_region.is_none())
            && (can_begin || !self.log_begins_empty)
            && (has_copies || self.protection != InForce::NvmDoublewrite)
            && (has_pages || self.protection != InForce::Nvm)
    }
}

/// The open control file.
pub struct Control {
    file: Arc<dyn BlockFile>,
    current: Mutex<Superblock>,
    starts: Mutex<OpenHistory>,
}

impl Control {
    /// Makes the control file of a new database, in state `Creating`. The file gets its final name
    /// when it is complete, so that a crash leaves no half of it under this name.
    pub fn create(directory: &dyn Directory, first: Superblock) -> Result<Control> {
        let file = directory.open(UNFINISHED_FILE, OpenHow::or_create(Space::Control))?;
        file.set_len(2 * SLOT_BYTES as u64)?;
        file.write_at(0, &AlignedBuf::new(2 * SLOT_BYTES), Purpose::Control, Durability::Later)?;
        let unfinished = Control { file, current: Mutex::new(first), starts: Mutex::default() };
        unfinished.update(|_| ())?;
        unfinished.file.flush()?;
        let current = unfinished.current;
        drop(unfinished.file);
        directory.rename(UNFINISHED_FILE, CONTROL_FILE)?;
        directory.sync()?;
        let file = directory.open(CONTROL_FILE, OpenHow::existing(Space::Control))?;
        Ok(Control { file, current, starts: Mutex::default() })
    }

    /// Opens the control file. Returns `None` when there is none.
    pub fn open(directory: &dyn Directory) -> Result<Option<Control>> {
        if !directory.exists(CONTROL_FILE)? {
            return Ok(None);
        }
        let file = directory.open(CONTROL_FILE, OpenHow::existing(Space::Control))?;
        let mut bytes = AlignedBuf::new(2 * SLOT_BYTES);
        if file.len_bytes()? < bytes.len() as u64 {
            return Err(unreadable(directory));
        }
        file.read_at(0, &mut bytes, Purpose::Control)?;
        // A killed process may have left its last write in caches of the system. It must be durable before
        // the next write overwrites the other slot.
        file.flush()?;
        let mut newest: Option<Superblock> = None;
        for slot in bytes.chunks_exact(SLOT_BYTES) {
            match Superblock::decode(slot) {
                Slot::Invalid => {}
                Slot::Damaged => return Err(impossible(directory)),
                Slot::OtherVersion(version) => return Err(other_version(directory, version)),
                Slot::UnknownParts => return Err(unknown_parts(directory)),
                Slot::Valid(found) if newest.as_ref().is_none_or(|best| best.sequence < found.sequence) => {
                    newest = Some(found);
                }
                Slot::Valid(_) => {}
            }
        }
        let current = newest.ok_or_else(|| unreadable(directory))?;
        Ok(Some(Control { file, current: Mutex::new(current), starts: Mutex::default() }))
    }

    /// Returns a copy of the contents.
    pub fn get(&self) -> Superblock {
        self.current.lock().clone()
    }

    /// Changes the contents, and makes them durable before it returns. On failure
    /// the old contents stay in force.
    pub fn update(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut current = self.current.lock();
        let mut next = current.clone();
        change(&mut next);
        next.sequence += 1;
        if next.lives.len() > LIVES_MAX {
            let what = format!(
                "the database was opened {LIVES_MAX} times without a checkpoint: free the log's device"
            );
            return Err(PagerError::Corrupt { what });
        }
        if !next.is_sound() {
            let what =
                "the control file would say what no database can have come to: restore a backup".into();
            return Err(PagerError::Corrupt { what });
        }
        let mut slot = AlignedBuf::new(SLOT_BYTES);
        next.encode(&mut slot);
        let turn = if planted("control: one slot is always written") { 0 } else { next.sequence % 2 };
        let when =
            if planted("control: slots are not durable") { Durability::Later } else { Durability::Now };
        self.file.write_at(turn * SLOT_BYTES as u64, &slot, Purpose::Control, when)?;
        *current = next;
        Ok(())
    }
}

fn unreadable(directory: &dyn Directory) -> PagerError {
    PagerError::Corrupt {
        what: format!(
            "{}/{CONTROL_FILE} is no valid control file (neither of its two copies can be read): restore it from a backup",
            directory.location()
        ),
    }
}

fn impossible(directory: &dyn Directory) -> PagerError {
    PagerError::Corrupt {
        what: format!(
            "{}/{CONTROL_FILE} is damaged: a copy with a right checksum says what cannot be: restore it from a backup",
            directory.location()
        ),
    }
}

fn other_version(directory: &dyn Directory, version: u32) -> PagerError {
    PagerError::Incompatible {
        what: format!(
            "{} holds a database of format {version}, this program knows formats up to {FORMAT_VERSION}: \
             use the program that wrote it",
            directory.location()
        ),
    }
}

fn unknown_parts(directory: &dyn Directory) -> PagerError {
    PagerError::Incompatible {
        what: format!(
            "{} holds a database with a page protection or an NVM region of a kind that this program doesn't know: \
             use the program that wrote it",
            directory.location()
        ),
    }
}

/// Returns a random identity for a new database or region.
pub fn random_id() -> u64 {
    RandomState::new().hash_one(std::process::id()) | 1
}
