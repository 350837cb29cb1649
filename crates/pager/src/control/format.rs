//! The layout of the control file's slots.
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
//! | 40 | 8 | redo position: LSN of a log block, from which on the log is read |
//! | 48 | 8 | an LSN that was durable at this write |
//! | 56 | 4 | state: 1 creating, 2 open, 3 shut down cleanly, 4 being restored from a backup (older programs call it damaged) |
//! | 60 | 4 | number of lives |
//! | 64 | 24 each | lives: incarnation (4), 0 (4), LSN after the life before (8), first LSN (8) |
//! | .. | .. | zeros |
//! | 3832 | 8 | id of the newest start in the history of starts (`control/starts.rs`), 0 = none: an older program's, or with all lives but two that there can be, or more |
//! | 3840 | 16 | zeros |
//! | 3856 | 8 each | while a server runs, and after its crash: identities of the control file, the data file and the rollback file; 0 = unknown: shut down, an older program's, or with all lives but one that there can be, or more |
//! | 3880 | 8 | mark of the header pages of the data and the rollback space, 0 = unknown; with as many lives as there can be the last one is here, and no mark is known |
//! | 3888 | 8 | mark that they are about to get, 0 = none |
//! | 3896 | 8 | a random number of the last start, which the file of its flash cache repeats, 0 = unknown: an older program's, or with as many lives as there can be |
//! | 3904 | 4 | features: 1 some pages are compressed (`home/compression/stored_page.rs`), 2 the data and the rollback space are packed, 4 there is a list of tablespaces (`control/tablespaces.rs`); others are refused |
//! | 3908 | 1 | layout of the data space: 0 in place, 1 packed |
//! | 3909 | 1 | layout of the rollback space, the same |
//! | 3910 | 1 | hints: 1 free extents of files in place may have holes, 2 the last start was to keep records of a flash cache; the rest is not looked at, it says nothing of where pages are |
//! | 3911 | 1 | zeros |
//! | 3912 | 8 each | numbers of checkpoints of the data and the rollback space's map, one that was durable at this write; 0 if not packed |
//! | 3928 | 8 | number of the list of tablespaces, 0 = there never was a tablespace |
//! | 3936 | 96 | zeros: kept for how pages are stored at home |
//! | 4032 | 8 | seal of the flash cache that has all that the spaces lack, 0 = none (older programs redo from the redo position) |
//! | 4040 | 8 | LSN at which the log continues after that shutdown |
//! | 4048 | 8 | id of the attached NVM region, 0 = none |
//! | 4056 | 1 | flags: 1 newest pages are in the region, 2 the log is, 4 doublewrite copies are, 8 there is no log: an empty one begins at the redo position |
//! | 4057 | 1 | protection in force: 0 doublewrite (or an older program wrote), 1 none, 2 full-page-log, 3 atomic writes, 4 doublewrite with copies in the region, 5 pages in the region |
//! | 4058 | 6 | zeros |
//! | 4064 | 8 | stamp: counts the checkpoints with the region |
//! | 4072 | 8 | id of a region that is not needed, 0 = none: it is being made, or was left; not beside an attached one |
//! | 4080 | 8 | LSN of a later log block, from which on it is redone, 0 = all that is read (older programs redo all) |
//! | 4088 | 4 | zeros |
//! | 4092 | 4 | crc32c over bytes 0..4092 |
//!
//! A program refuses a slot with features, flags or a protection that it does not know. Otherwise it would
//! not find pages, or would report them as damaged.
//!
//! This module does not know which slot is the newer one, or what a database can have come to.

use super::{Attached, InForce, Sealed, State, Superblock};
use crate::base::lsn::Lsn;
use crate::log::Life;
use crate::log::format::{get_u32, get_u64, put_u32, put_u64};

/// Newest version of the database's files as a whole.
pub const FORMAT_VERSION: u32 = 2;
/// The version of a database that uses nothing that version 2 has added. Older programs open such a database.
const FORMAT_VERSION_PLAIN: u32 = 1;

/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"VARVECTL");
const LIVES_AT: usize = 64;
const LIFE_BYTES: usize = 24;
/// The largest number of lives in a slot.
pub(super) const LIVES_MAX: usize = 160;
/// The offset of the last life. The mark is stored there now, because older programs don't read these bytes.
const MARK_AT: usize = LIVES_AT + (LIVES_MAX - 1) * LIFE_BYTES;
/// The offset of the last but one life. Identities of files are stored there now, for the same reason.
const RUNNING_AT: usize = MARK_AT - LIFE_BYTES;
/// The offset of the life before that one. The newest start is stored there now, for the same reason.
const NEWEST_START_AT: usize = RUNNING_AT - LIFE_BYTES;
const NEXT_MARK_AT: usize = MARK_AT + 8;
const START_AT: usize = NEXT_MARK_AT + 8;
/// The bytes from this offset on say how pages are stored in the data files.
const STORED_AT: usize = 3904;
const LAYOUTS_AT: usize = 3908;
const HINTS_AT: usize = 3910;
const HINT_HOLLOW: u8 = 1;
const HINT_CACHE: u8 = 2;
const MAPS_AT: usize = 3912;
const FEATURE_COMPRESSED: u32 = 1;
const FEATURE_PACKED: u32 = 2;
const FEATURE_TABLESPACES: u32 = 4;
const FEATURES_KNOWN: u32 = FEATURE_COMPRESSED | FEATURE_PACKED | FEATURE_TABLESPACES;
const TABLESPACES_AT: usize = 3928;
const SEAL_AT: usize = 4032;
const REGION_AT: usize = 4048;
const FLAGS_AT: usize = 4056;
const PROTECTION_AT: usize = 4057;
const STAMP_AT: usize = 4064;
const UNNEEDED_AT: usize = 4072;
const STABLE_AT: usize = 4080;
const FLAG_PAGES: u8 = 1;
const FLAG_LOG: u8 = 2;
const FLAG_COPIES: u8 = 4;
const FLAG_LOG_BEGINS_EMPTY: u8 = 8;
const FLAGS_KNOWN: u8 = FLAG_PAGES | FLAG_LOG | FLAG_COPIES | FLAG_LOG_BEGINS_EMPTY;
const CHECKSUM_AT: usize = SLOT_BYTES - 4;

const _: () = assert!(LIVES_AT + LIVES_MAX * LIFE_BYTES <= STORED_AT);
const _: () = assert!(START_AT + 8 == LIVES_AT + LIVES_MAX * LIFE_BYTES);

/// What the bytes of a slot are.
#[expect(clippy::large_enum_variant, reason = "two are read at a start, and a box would only be in the way")]
pub(super) enum Slot {
    /// The slot was never written, or is torn or damaged.
    Invalid,
    /// The checksum is right and the contents are impossible.
    Damaged,
    OtherVersion(u32),
    /// A newer program has put pages, log or protection at places that this program does not know.
    UnknownParts,
    Valid(Superblock),
}

impl State {
    fn code(self) -> u32 {
        match self {
            State::Creating => 1,
            State::Open => 2,
            State::Clean => 3,
            State::Restoring => 4,
        }
    }

    fn of(code: u32) -> Option<State> {
        [State::Creating, State::Open, State::Clean, State::Restoring]
            .into_iter()
            .find(|state| state.code() == code)
    }
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

    pub(crate) fn code(self) -> u8 {
        match self {
            InForce::Doublewrite => 0,
            InForce::Nothing => 1,
            InForce::FullPageLog => 2,
            InForce::AtomicWrite => 3,
            InForce::NvmDoublewrite => 4,
            InForce::Nvm => 5,
        }
    }

    pub(crate) fn of(code: u8) -> Option<InForce> {
        InForce::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

impl Attached {
    fn flags(&self) -> u8 {
        let parts = [(self.pages, FLAG_PAGES), (self.log, FLAG_LOG), (self.copies, FLAG_COPIES)];
        parts.into_iter().filter(|(is_there, _)| *is_there).fold(0, |flags, (_, flag)| flags | flag)
    }
}

impl Superblock {
    pub(super) fn encode(&self, slot: &mut [u8]) {
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
        if self.lives.len() < LIVES_MAX - 2 {
            put_u64(slot, NEWEST_START_AT, self.newest_start);
        }
        if self.lives.len() < LIVES_MAX - 1 {
            let fields = slot[RUNNING_AT..MARK_AT].chunks_exact_mut(8);
            fields.zip(self.running).for_each(|(field, identity)| put_u64(field, 0, identity));
        }
        if self.lives.len() < LIVES_MAX {
            put_u64(slot, MARK_AT, self.mark);
            put_u64(slot, NEXT_MARK_AT, self.next_mark);
            put_u64(slot, START_AT, self.start);
        }
        let crc = crc32c::crc32c(&slot[..CHECKSUM_AT]);
        put_u32(slot, CHECKSUM_AT, crc);
    }

    /// Encodes the fields that version 2 has added. Returns whether any of them is used.
    fn encode_parts(&self, slot: &mut [u8]) -> bool {
        if let Some(attached) = &self.attached {
            put_u64(slot, REGION_AT, attached.region);
            put_u64(slot, STAMP_AT, attached.stamp);
            slot[FLAGS_AT] = attached.flags();
        }
        if let Some(sealed) = self.sealed {
            put_u64(slot, SEAL_AT, sealed.seal);
            put_u64(slot, SEAL_AT + 8, sealed.end.get());
        }
        put_u64(slot, STABLE_AT, self.stable.map_or(0, Lsn::get));
        put_u64(slot, UNNEEDED_AT, self.unneeded_region.unwrap_or_default());
        if self.log_begins_empty {
            slot[FLAGS_AT] |= FLAG_LOG_BEGINS_EMPTY;
        }
        slot[PROTECTION_AT] = self.protection.code();
        let compressed = if self.has_compressed_pages { FEATURE_COMPRESSED } else { 0 };
        let tablespaces = if self.tablespaces > 0 { FEATURE_TABLESPACES } else { 0 };
        let packed = if self.packed { FEATURE_PACKED } else { 0 };
        put_u32(slot, STORED_AT, compressed | packed | tablespaces);
        put_u64(slot, TABLESPACES_AT, self.tablespaces);
        let hollow = if self.has_hollow_extents { HINT_HOLLOW } else { 0 };
        slot[HINTS_AT] = hollow | if self.has_cache { HINT_CACHE } else { 0 };
        if self.packed {
            slot[LAYOUTS_AT..LAYOUTS_AT + 2].fill(1);
            put_u64(slot, MAPS_AT, self.map_checkpoints[0]);
            put_u64(slot, MAPS_AT + 8, self.map_checkpoints[1]);
        }
        slot[STORED_AT..CHECKSUM_AT].iter().any(|byte| *byte != 0)
    }

    pub(super) fn decode(slot: &[u8]) -> Slot {
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
        let has_marks = lives_count < LIVES_MAX;
        let has_running = lives_count < LIVES_MAX - 1;
        let has_newest_start = lives_count < LIVES_MAX - 2;
        let running = |at: usize| if has_running { get_u64(slot, RUNNING_AT + 8 * at) } else { 0 };
        let found = Superblock {
            page_size: get_u32(slot, 12),
            sequence: get_u64(slot, 16),
            database: get_u64(slot, 24),
            log_segment_bytes: get_u64(slot, 32),
            redo: Lsn::new(get_u64(slot, 40)),
            stable: Some(Lsn::new(get_u64(slot, STABLE_AT))).filter(|stable| *stable > Lsn::ZERO),
            durable: Lsn::new(get_u64(slot, 48)),
            state,
            lives: lives.map(decode_life).collect(),
            protection,
            packed: get_u32(slot, STORED_AT) & FEATURE_PACKED != 0,
            map_checkpoints: [get_u64(slot, MAPS_AT), get_u64(slot, MAPS_AT + 8)],
            tablespaces: get_u64(slot, TABLESPACES_AT),
            attached: decode_attached(slot),
            unneeded_region: Some(get_u64(slot, UNNEEDED_AT)).filter(|region| *region != 0),
            log_begins_empty: slot[FLAGS_AT] & FLAG_LOG_BEGINS_EMPTY != 0,
            has_compressed_pages: get_u32(slot, STORED_AT) & FEATURE_COMPRESSED != 0,
            has_hollow_extents: slot[HINTS_AT] & HINT_HOLLOW != 0,
            has_cache: slot[HINTS_AT] & HINT_CACHE != 0,
            mark: if has_marks { get_u64(slot, MARK_AT) } else { 0 },
            next_mark: if has_marks { get_u64(slot, NEXT_MARK_AT) } else { 0 },
            running: [0, 1, 2].map(running),
            start: if has_marks { get_u64(slot, START_AT) } else { 0 },
            newest_start: if has_newest_start { get_u64(slot, NEWEST_START_AT) } else { 0 },
            sealed: Some(Sealed { seal: get_u64(slot, SEAL_AT), end: Lsn::new(get_u64(slot, SEAL_AT + 8)) })
                .filter(|sealed| sealed.seal != 0),
        };
        let fits_version = version == FORMAT_VERSION || slot[STORED_AT..CHECKSUM_AT].iter().all(|b| *b == 0);
        if fits_version && found.is_sound() { Slot::Valid(found) } else { Slot::Damaged }
    }
}

/// Returns whether this program can find pages with the layouts of this slot.
fn has_known_layouts(slot: &[u8]) -> bool {
    let features = get_u32(slot, STORED_AT);
    let layout = u8::from(features & FEATURE_PACKED != 0);
    let has_list = features & FEATURE_TABLESPACES != 0;
    features & !FEATURES_KNOWN == 0
        && has_list == (get_u64(slot, TABLESPACES_AT) != 0)
        && slot[LAYOUTS_AT..LAYOUTS_AT + 2] == [layout; 2]
}

fn decode_life(bytes: &[u8]) -> Life {
    Life {
        incarnation: get_u32(bytes, 0),
        after: Lsn::new(get_u64(bytes, 8)),
        start: Lsn::new(get_u64(bytes, 16)),
    }
}

/// Returns the attached region, or none if the slot names no region.
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
