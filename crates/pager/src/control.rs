//! The control file: what has to be known before the log can be read.
//!
//! 1. Two slots are written in turn, each durably and under its own checksum, so the newer of the valid ones is
//!    either the last state or the one before it. A torn write loses nothing that was promised. A slot under a right
//!    checksum was written whole: if it says what cannot be, the other one is older than what was promised, and nothing is
//!    opened.
//! 2. The redo position only grows. The log is truncated only to what a durable slot says.
//! 3. A new incarnation is in the file before its first log block is written.
//! 4. While the state is `Creating` the database has no contents; opening it starts over.
//!
//! A slot is 4096 bytes, little endian; slot n starts at n x 4096:
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | magic "VARVECTL" |
//! | 8 | 4 | format version of the database: 2 if anything from 3904 on is not zero, else 1 |
//! | 12 | 4 | page size in bytes |
//! | 16 | 8 | sequence: counts the writes, the slot is sequence mod 2 |
//! | 24 | 8 | database id |
//! | 32 | 8 | log segment size in bytes |
//! | 40 | 8 | redo position: LSN of a log block |
//! | 48 | 8 | an LSN that was durable at this write |
//! | 56 | 4 | state: 1 creating, 2 open, 3 shut down cleanly |
//! | 60 | 4 | number of lives |
//! | 64 | 24 each | lives: incarnation (4), 0 (4), LSN after the life before (8), first LSN (8) |
//! | .. | .. | zeros |
//! | 3904 | 4 | features: 1 some pages are compressed (`stored.rs`), 2 the data and the rollback space are packed; others are refused |
//! | 3908 | 1 | layout of the data space: 0 in place, 1 packed |
//! | 3909 | 1 | layout of the rollback space, the same |
//! | 3910 | 2 | zeros |
//! | 3912 | 8 each | numbers of checkpoints of the data and the rollback space's map, one that was durable at this write; 0 if not packed |
//! | 3928 | 120 | zeros: kept for how pages are stored at home |
//! | 4048 | 8 | id of the attached NVM region, 0 = none |
//! | 4056 | 1 | flags: 1 newest pages are in the region, 2 the log is, 4 doublewrite copies are, 8 there is no log: it begins anew at the redo position |
//! | 4057 | 1 | protection in force: 0 doublewrite (or an older program wrote), 1 none, 2 full-page-log, 3 atomic writes, 4 doublewrite with copies in the region, 5 pages in the region |
//! | 4058 | 6 | zeros |
//! | 4064 | 8 | stamp: counts the checkpoints with the region |
//! | 4072 | 20 | zeros |
//! | 4092 | 4 | crc32c over bytes 0..4092 |
//!
//! What a program doesn't know in the features, the flags or the protection it refuses: it would ignore where pages are, or take
//! them for damaged.
//!
//! Not known here: what is in the log and in the spaces.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use varve_device::{AlignedBuf, BlockFile, Directory, Durability, OpenHow, Purpose, Space, planted};

use crate::error::{PagerError, Result};
use crate::log::Life;
use crate::log::format::{get_u32, get_u64, put_u32, put_u64};
use crate::lsn::{LSN_MAX, Lsn};

/// Newest version of the database's files as a whole.
pub const FORMAT_VERSION: u32 = 2;
/// Version of a database that has nothing of what came with version 2: older programs open it.
const FORMAT_VERSION_PLAIN: u32 = 1;
/// Name of the control file.
pub const CONTROL_FILE: &str = "control";

const UNFINISHED_FILE: &str = "control.new";
const SLOT_BYTES: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"VARVECTL");
const LIVES_AT: usize = 64;
const LIFE_BYTES: usize = 24;
const LIVES_MAX: usize = 160;
/// Bytes from here on say how pages are stored at home.
const STORED_AT: usize = 3904;
const LAYOUTS_AT: usize = 3908;
const MAPS_AT: usize = 3912;
const FEATURE_COMPRESSED: u32 = 1;
const FEATURE_PACKED: u32 = 2;
const FEATURES_KNOWN: u32 = FEATURE_COMPRESSED | FEATURE_PACKED;
const REGION_AT: usize = 4048;
const FLAGS_AT: usize = 4056;
const PROTECTION_AT: usize = 4057;
const STAMP_AT: usize = 4064;
const FLAG_PAGES: u8 = 1;
const FLAG_LOG: u8 = 2;
const FLAG_COPIES: u8 = 4;
const FLAG_LOG_BEGINS_ANEW: u8 = 8;
const FLAGS_KNOWN: u8 = FLAG_PAGES | FLAG_LOG | FLAG_COPIES | FLAG_LOG_BEGINS_ANEW;
const CHECKSUM_AT: usize = SLOT_BYTES - 4;
const SEGMENT_BYTES_MAX: u64 = 1 << 44;
/// With more lives than this since the redo position, opening takes a checkpoint first.
const LIVES_WANTED: usize = 32;

const _: () = assert!(LIVES_AT + LIVES_MAX * LIFE_BYTES <= STORED_AT);

/// How far the database has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Creation has not finished.
    Creating,
    /// In use, or crashed.
    Open,
    /// Shut down: everything is in the spaces.
    Clean,
}

impl State {
    fn code(self) -> u32 {
        match self {
            State::Creating => 1,
            State::Open => 2,
            State::Clean => 3,
        }
    }

    fn of(code: u32) -> Option<State> {
        [State::Creating, State::Open, State::Clean].into_iter().find(|state| state.code() == code)
    }
}

/// The protection under which pages were written last: what a crash left torn is mended by its means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InForce {
    /// Doublewrite; also what databases of older programs say, whatever they had.
    #[default]
    Doublewrite,
    /// None.
    Nothing,
    /// Images of clean pages in the log.
    FullPageLog,
    /// Atomic writes of the devices.
    AtomicWrite,
    /// Doublewrite with copies in the NVM region.
    NvmDoublewrite,
    /// Versions in the NVM region, which stay there until the page is home.
    Nvm,
}

impl InForce {
    const ALL: [InForce; 6] = [
        InForce::Doublewrite,
        InForce::Nothing,
        InForce::FullPageLog,
        InForce::AtomicWrite,
        InForce::NvmDoublewrite,
        InForce::Nvm,
    ];

    fn code(self) -> u8 {
        match self {
            InForce::Doublewrite => 0,
            InForce::Nothing => 1,
            InForce::FullPageLog => 2,
            InForce::AtomicWrite => 3,
            InForce::NvmDoublewrite => 4,
            InForce::Nvm => 5,
        }
    }

    fn of(code: u8) -> Option<InForce> {
        InForce::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// The NVM region without which the database is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Identity of the region, not 0; its header has it, too.
    pub region: u64,
    /// Newest versions of pages are in it.
    pub pages: bool,
    /// The log is in it.
    pub log: bool,
    /// Doublewrite copies are in it.
    pub copies: bool,
    /// Counts the checkpoints with it: the region's own stamp is not smaller.
    pub stamp: u64,
}

impl Attached {
    fn is_sound(&self) -> bool {
        let has_part = self.pages || self.log || self.copies;
        self.region != 0 && has_part && !(self.pages && self.copies) && self.stamp < u64::MAX
    }

    fn flags(&self) -> u8 {
        let parts = [(self.pages, FLAG_PAGES), (self.log, FLAG_LOG), (self.copies, FLAG_COPIES)];
        parts.into_iter().filter(|(is_there, _)| *is_there).fold(0, |flags, (_, flag)| flags | flag)
    }
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
    /// How far the database has come.
    pub state: State,
    /// Where redo starts: LSN of a log block.
    pub redo: Lsn,
    /// An LSN up to which the log was durable.
    pub durable: Lsn,
    /// Incarnations since the redo position, oldest first.
    pub lives: Vec<Life>,
    /// The protection under which pages were written last.
    pub protection: InForce,
    /// The data and the rollback space are packed; settled at creation.
    pub packed: bool,
    /// Checkpoints of the maps of the data and the rollback space that were durable.
    pub map_checkpoints: [u64; 2],
    /// The NVM region that the database needs.
    pub attached: Option<Attached>,
    /// The log was left behind by a clean shutdown: the next one begins empty, at the redo position.
    pub log_begins_anew: bool,
    /// Some pages may be compressed: set before the first one is, and never taken back.
    pub has_compressed_pages: bool,
    sequence: u64,
}

impl Superblock {
    /// The first state of a new database.
    pub fn new(database: u64, page_size: u32, log_segment_bytes: u64) -> Superblock {
        Superblock {
            database,
            page_size,
            log_segment_bytes,
            state: State::Creating,
            redo: Lsn::ZERO,
            durable: Lsn::ZERO,
            lives: Vec::new(),
            protection: InForce::default(),
            packed: false,
            map_checkpoints: [0; 2],
            attached: None,
            log_begins_anew: false,
            has_compressed_pages: false,
            sequence: 0,
        }
    }

    /// The incarnation of the next life.
    pub fn next_incarnation(&self) -> u32 {
        self.lives.last().map_or(1, |life| life.incarnation + 1)
    }

    /// Adds a life; lives that left no block are dropped, and the new one follows whom they followed.
    pub fn begin_life(&mut self, mut life: Life) {
        while let Some(idle) = self.lives.pop_if(|old| old.start >= life.after) {
            life.after = life.after.min(idle.after);
        }
        if self.lives.is_empty() {
            // Nothing was written since the redo position; on larger sectors the life begins behind it.
            self.redo = self.redo.max(life.start);
        }
        self.lives.push(life);
    }

    /// Moves the redo position forward; lives that ended before it are dropped.
    pub fn advance_redo(&mut self, redo: Lsn, durable: Lsn) {
        self.redo = self.redo.max(redo);
        self.durable = self.durable.max(durable);
        let needed = self.lives.iter().rposition(|life| life.start <= self.redo);
        drop(self.lives.drain(..needed.unwrap_or(0)));
    }

    /// A clean shutdown that leaves the region: everything is at home, and nothing in the region is needed, nor anything of the
    /// log if that was there.
    pub fn leave_region(&mut self) {
        let Some(left) = self.attached.take() else { return };
        if left.log {
            self.log_begins_anew = true;
            self.redo = self.redo.max(self.durable);
            self.lives.clear();
        }
        if left.pages || left.copies {
            // Nothing is torn, and what protects pages next begins with files of its own.
            self.protection = InForce::Nothing;
        }
    }

    /// The log begins anew, empty, with this life, behind all that it had.
    pub fn begin_log_anew(&mut self, life: Life, segment_bytes: u64) {
        self.lives.clear();
        self.log_begins_anew = false;
        self.log_segment_bytes = segment_bytes;
        self.durable = self.durable.max(life.start);
        self.begin_life(life);
    }

    /// Whether a checkpoint should shorten the list of lives soon.
    pub fn wants_checkpoint(&self) -> bool {
        self.lives.len() > LIVES_WANTED
    }

    fn encode(&self, slot: &mut [u8]) {
        slot.fill(0);
        put_u64(slot, 0, MAGIC);
        let is_plain = !self.encode_parts(slot);
        put_u32(slot, 8, if is_plain { FORMAT_VERSION_PLAIN } else { FORMAT_VERSION });
        put_u32(slot, 12, self.page_size);
        put_u64(slot, 16, self.sequence);
        put_u64(slot, 24, self.database);
        put_u64(slot, 32, self.log_segment_bytes);
        put_u64(slot, 40, self.redo.get());
        put_u64(slot, 48, self.durable.get());
        put_u32(slot, 56, self.state.code());
        put_u32(slot, 60, self.lives.len() as u32);
        for (life, out) in self.lives.iter().zip(slot[LIVES_AT..].chunks_exact_mut(LIFE_BYTES)) {
            put_u32(out, 0, life.incarnation);
            put_u64(out, 8, life.after.get());
            put_u64(out, 16, life.start.get());
        }
        let crc = crc32c::crc32c(&slot[..CHECKSUM_AT]);
        put_u32(slot, CHECKSUM_AT, crc);
    }

    /// Encodes what came with version 2. Whether there is anything of it.
    fn encode_parts(&self, slot: &mut [u8]) -> bool {
        if let Some(attached) = &self.attached {
            put_u64(slot, REGION_AT, attached.region);
            put_u64(slot, STAMP_AT, attached.stamp);
            slot[FLAGS_AT] = attached.flags();
        }
        if self.log_begins_anew {
            slot[FLAGS_AT] |= FLAG_LOG_BEGINS_ANEW;
        }
        slot[PROTECTION_AT] = self.protection.code();
        let compressed = if self.has_compressed_pages { FEATURE_COMPRESSED } else { 0 };
        put_u32(slot, STORED_AT, compressed | if self.packed { FEATURE_PACKED } else { 0 });
        if self.packed {
            slot[LAYOUTS_AT..LAYOUTS_AT + 2].fill(1);
            put_u64(slot, MAPS_AT, self.map_checkpoints[0]);
            put_u64(slot, MAPS_AT + 8, self.map_checkpoints[1]);
        }
        slot[STORED_AT..CHECKSUM_AT].iter().any(|byte| *byte != 0)
    }

    fn decode(slot: &[u8]) -> Slot {
        if get_u32(slot, CHECKSUM_AT) != crc32c::crc32c(&slot[..CHECKSUM_AT]) || get_u64(slot, 0) != MAGIC {
            return Slot::Invalid;
        }
        let version = get_u32(slot, 8);
        if !(FORMAT_VERSION_PLAIN..=FORMAT_VERSION).contains(&version) {
            return Slot::OtherVersion(version);
        }
        let protection = match InForce::of(slot[PROTECTION_AT]) {
            Some(protection) if slot[FLAGS_AT] & !FLAGS_KNOWN == 0 && has_known_layouts(slot) => protection,
            _ => return Slot::UnknownParts,
        };
        let lives_count = get_u32(slot, 60) as usize;
        let lives = slot[LIVES_AT..].chunks_exact(LIFE_BYTES).take(lives_count.min(LIVES_MAX));
        let Some(state) = State::of(get_u32(slot, 56)).filter(|_| lives_count <= LIVES_MAX) else {
            return Slot::Damaged;
        };
        let found = Superblock {
            page_size: get_u32(slot, 12),
            sequence: get_u64(slot, 16),
            database: get_u64(slot, 24),
            log_segment_bytes: get_u64(slot, 32),
            redo: Lsn::new(get_u64(slot, 40)),
            durable: Lsn::new(get_u64(slot, 48)),
            state,
            lives: lives.map(decode_life).collect(),
            protection,
            packed: get_u32(slot, STORED_AT) & FEATURE_PACKED != 0,
            map_checkpoints: [get_u64(slot, MAPS_AT), get_u64(slot, MAPS_AT + 8)],
            attached: decode_attached(slot),
            log_begins_anew: slot[FLAGS_AT] & FLAG_LOG_BEGINS_ANEW != 0,
            has_compressed_pages: get_u32(slot, STORED_AT) & FEATURE_COMPRESSED != 0,
        };
        let fits_version = version == FORMAT_VERSION || slot[STORED_AT..CHECKSUM_AT].iter().all(|b| *b == 0);
        if fits_version && found.is_sound() { Slot::Valid(found) } else { Slot::Damaged }
    }

    /// Whether a database can have come to this: everything can grow, and some life covers the redo position.
    fn is_sound(&self) -> bool {
        let positions = self.lives.iter().flat_map(|life| [life.after, life.start]);
        let can_grow = positions.chain([self.redo, self.durable]).all(|lsn| lsn.get() <= LSN_MAX)
            && self.log_segment_bytes <= SEGMENT_BYTES_MAX
            && self.sequence < u64::MAX
            && self.lives.iter().all(|life| life.incarnation < u32::MAX);
        let in_order = self.lives.windows(2).all(|pair| pair[0].start < pair[1].after)
            && self.lives.iter().all(|life| life.after <= life.start);
        let covered = self.lives.first().is_none_or(|life| life.start <= self.redo);
        can_grow && in_order && covered && self.has_sound_parts()
    }

    /// Whether region and log can be where this says. A log that begins anew follows a clean shutdown, so it had no life yet.
    fn has_sound_parts(&self) -> bool {
        let has_log_there = self.attached.is_some_and(|attached| attached.log);
        let can_begin = self.state == State::Clean && self.lives.is_empty() && !has_log_there;
        let has_copies = self.attached.is_some_and(|attached| attached.copies);
        let has_pages = self.attached.is_some_and(|attached| attached.pages);
        self.attached.is_none_or(|attached| attached.is_sound())
            && (can_begin || !self.log_begins_anew)
            && (has_copies || self.protection != InForce::NvmDoublewrite)
            && (has_pages || self.protection != InForce::Nvm)
    }
}

/// Whether this program can find pages that are stored so.
fn has_known_layouts(slot: &[u8]) -> bool {
    let features = get_u32(slot, STORED_AT);
    let layout = u8::from(features & FEATURE_PACKED != 0);
    features & !FEATURES_KNOWN == 0 && slot[LAYOUTS_AT..LAYOUTS_AT + 2] == [layout; 2]
}

fn decode_life(bytes: &[u8]) -> Life {
    Life {
        incarnation: get_u32(bytes, 0),
        after: Lsn::new(get_u64(bytes, 8)),
        start: Lsn::new(get_u64(bytes, 16)),
    }
}

/// The attached region: none if nothing speaks of one.
fn decode_attached(slot: &[u8]) -> Option<Attached> {
    let has = |flag| slot[FLAGS_AT] & flag != 0;
    let found = Attached {
        region: get_u64(slot, REGION_AT),
        pages: has(FLAG_PAGES),
        log: has(FLAG_LOG),
        copies: has(FLAG_COPIES),
        stamp: get_u64(slot, STAMP_AT),
    };
    (found.region != 0 || found.flags() != 0 || found.stamp != 0).then_some(found)
}

enum Slot {
    /// Never written, torn or damaged.
    Invalid,
    /// The checksum is right and the contents are impossible.
    Damaged,
    OtherVersion(u32),
    /// A newer program has put pages, log or protection where this one doesn't look.
    UnknownParts,
    Valid(Superblock),
}

/// The open control file.
pub struct Control {
    file: Arc<dyn BlockFile>,
    current: Mutex<Superblock>,
}

impl Control {
    /// Makes the control file of a new database, in state `Creating`. It gets its name when it is whole.
    pub fn create(directory: &dyn Directory, first: Superblock) -> Result<Control> {
        let file = directory.open(UNFINISHED_FILE, OpenHow::or_create(Space::Control))?;
        file.set_len(2 * SLOT_BYTES as u64)?;
        file.write_at(0, &AlignedBuf::new(2 * SLOT_BYTES), Purpose::Control, Durability::Later)?;
        let unfinished = Control { file, current: Mutex::new(first) };
        unfinished.update(|_| ())?;
        unfinished.file.flush()?;
        let current = unfinished.current;
        drop(unfinished.file);
        directory.rename(UNFINISHED_FILE, CONTROL_FILE)?;
        directory.sync()?;
        let file = directory.open(CONTROL_FILE, OpenHow::existing(Space::Control))?;
        Ok(Control { file, current })
    }

    /// Opens the control file; `None` when there is none.
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
        // A killed process may have left its last write in caches; the next write goes over the other slot.
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
        Ok(Some(Control { file, current: Mutex::new(current) }))
    }

    /// A copy of the contents.
    pub fn get(&self) -> Superblock {
        self.current.lock().clone()
    }

    /// Changes the contents; durable on return. On failure the old contents stay in force.
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

/// An identity for a new database or region.
pub fn random_id() -> u64 {
    RandomState::new().hash_one(std::process::id()) | 1
}
