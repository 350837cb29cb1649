//! The list of tablespaces, the further spaces for tables and indexes.
//!
//! Each list is a file `tablespaces.N` beside the control file. The control file has the number N of the list
//! in force. A change writes the next list, and then the control file. So a change takes effect when the
//! control file is written, and a start reads exactly one list. A file is little endian, and filled with
//! zeros to a multiple of 4096 bytes:
//!
//! | at | bytes | what |
//! |---:|---:|---|
//! | 0 | 8 | magic "VARVETSP" |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | number of bytes up to the checksum |
//! | 16 | 8 | database id |
//! | 24 | 8 | number of the list |
//! | 32 | 4 | number of the next tablespace |
//! | 36 | 4 | number of entries |
//! | 40 | .. | entries: number (4), state (1: 1 being made, 2 in use, 3 dropped), protection (1, as in the control file), compression (2: 0 = that of the server, else algorithm + 1 and level), name, location, note (each 4 bytes of length and the bytes) |
//! | .. | 4 | crc32c over all bytes before |
//!
//! Invariants
//! 1. A number is never used for two tablespaces. So the pages and log records of a dropped tablespace are
//!    never mistaken for those of another one.
//! 2. A tablespace is in the list, in the state `BeingMade`, before its first file is made. It is `InUse`
//!    before its first change is logged, and `Dropped` before its files are removed.
//!
//! This module does not know what is in the files of a tablespace.

use varve_device::{AlignedBuf, Directory, Durability, OpenHow, Purpose, Space};

use super::{Control, InForce};
use crate::base::compression::{Algorithm, Compression};
use crate::base::error::{PagerError, Result};
use crate::base::ids::SpaceId;
use crate::log::format::{get_u32, get_u64, put_u32, put_u64};

const MAGIC: u64 = u64::from_le_bytes(*b"VARVETSP");
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 40;
const FILE_UNIT: usize = 4096;
/// A longer file is damaged.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The state of a tablespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TablespaceState {
    /// The files of the tablespace are being made. A start removes them.
    BeingMade,
    /// It is in use.
    InUse,
    /// Nothing in the tablespace is needed. A start removes its files.
    Dropped,
}

/// A tablespace in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) id: SpaceId,
    pub(crate) state: TablespaceState,
    /// The protection with which its pages are written. It never changes.
    pub(crate) protection: InForce,
    /// The compression of pages whose owner has none of its own. `None` means the default of the server.
    pub(crate) compression: Option<Compression>,
    pub(crate) name: String,
    pub(crate) location: String,
    /// Bytes that the pager stores for its caller.
    pub(crate) note: Vec<u8>,
}

/// All tablespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TablespaceList {
    /// The number of the list; 0 if there never was a tablespace.
    number: u64,
    next: u32,
    pub(crate) all: Vec<Listed>,
}

impl TablespaceState {
    const ALL: [TablespaceState; 3] =
        [TablespaceState::BeingMade, TablespaceState::InUse, TablespaceState::Dropped];

    fn code(self) -> u8 {
        match self {
            TablespaceState::BeingMade => 1,
            TablespaceState::InUse => 2,
            TablespaceState::Dropped => 3,
        }
    }
}

/// Kind of the log record with the tablespaces in use. Only a log that is archived has such records: a
/// restore to a later moment than the end of a backup needs the list of that moment (decision 0263).
pub(crate) const NOTE_TABLESPACES: u8 = 8;

/// The tablespaces in use at some moment, as backups and log records have them. Encoded, little endian:
/// number of the next tablespace (4), number of tablespaces (4), tablespaces: space (2), protection (1), compression
/// (2), name, location, note (each 4 bytes of length and the bytes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TablespacesInUse {
    /// The number of the next tablespace. Smaller numbers that are not in the list belong to dropped ones.
    pub(crate) next: u32,
    pub(crate) all: Vec<Listed>,
}

impl TablespacesInUse {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.next.to_le_bytes().to_vec();
        out.extend_from_slice(&(self.all.len() as u32).to_le_bytes());
        self.all.iter().for_each(|one| one.put(&mut out));
        out
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Option<TablespacesInUse> {
        let head = take(&mut bytes, 8)?;
        let next = get_u32(head, 0);
        let all = (0..get_u32(head, 4)).map(|_| Listed::take(&mut bytes, next)).collect::<Option<_>>()?;
        bytes.is_empty().then_some(TablespacesInUse { next, all })
    }
}

impl Listed {
    /// Appends a tablespace in use.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let (algorithm, level) = self.compression.map_or((0, 0), |how| (how.algorithm.code() + 1, how.level));
        out.extend_from_slice(&self.id.0.to_le_bytes());
        out.extend_from_slice(&[self.protection.code(), algorithm, level]);
        for bytes in [self.name.as_bytes(), self.location.as_bytes(), &self.note] {
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
    }

    /// Takes a tablespace in use off the front of `bytes`. Its number is below `next`.
    pub(crate) fn take(bytes: &mut &[u8], next: u32) -> Option<Listed> {
        let head = take(bytes, 5)?;
        let id = SpaceId(u16::from_le_bytes([head[0], head[1]]));
        let protection = InForce::of(head[2])?;
        let compression = match head[3].checked_sub(1) {
            None => None,
            Some(code) => Some(Compression { algorithm: Algorithm::of_code(code)?, level: head[4] }),
        };
        let (name, location) = (take_text(bytes)?, take_text(bytes)?);
        let note = take_bytes(bytes)?.to_vec();
        let state = TablespaceState::InUse;
        let is_known = id.is_tablespace() && u32::from(id.0) < next;
        is_known.then_some(Listed { id, state, protection, compression, name, location, note })
    }
}

fn file_name(number: u64) -> String {
    format!("tablespaces.{number}")
}

impl TablespaceList {
    /// Reads the list in force.
    pub(crate) fn read(directory: &dyn Directory, control: &Control) -> Result<TablespaceList> {
        let stored = control.get();
        let number = stored.tablespaces;
        if number == 0 {
            let next = u32::from(SpaceId::FIRST_TABLESPACE.0);
            return Ok(TablespaceList { number, next, all: Vec::new() });
        }
        let name = file_name(number);
        let place = format!("{}/{name}", directory.location());
        if !directory.exists(&name)? {
            let what = format!(
                "{place} is missing, the list of tablespaces that belongs to the control file: put it back, or restore a \
                 backup of all directories"
            );
            return Err(PagerError::Incompatible { what });
        }
        let file = directory.open(&name, OpenHow::existing(Space::Control))?;
        let damaged = || PagerError::Corrupt {
            what: format!("{place}, the list of tablespaces, is damaged: restore it from a backup"),
        };
        let len_bytes = file.len_bytes()?;
        if len_bytes == 0 || len_bytes > FILE_BYTES_MAX || !len_bytes.is_multiple_of(FILE_UNIT as u64) {
            return Err(damaged());
        }
        let mut bytes = AlignedBuf::new(len_bytes as usize);
        file.read_at(0, &mut bytes, Purpose::Control)?;
        // A killed process may have left the list in caches of the system. The control file is written
        // durably.
        file.flush()?;
        let list = TablespaceList::decode(&bytes, stored.database).ok_or_else(damaged)?;
        if list.number == number { Ok(list) } else { Err(damaged()) }
    }

    /// Takes the number for the next tablespace. Returns `None` if all numbers are used.
    pub(crate) fn take_number(&mut self) -> Option<SpaceId> {
        let id = u16::try_from(self.next).ok().map(SpaceId)?;
        self.next += 1;
        Some(id)
    }

    /// Returns the number that the next tablespace gets.
    pub(crate) fn next_number(&self) -> u32 {
        self.next
    }

    /// Takes over the tablespaces of a backup, with their numbers.
    pub(crate) fn take_over(&mut self, all: Vec<Listed>, next: u32) {
        self.all = all;
        self.next = self.next.max(next);
    }

    /// Returns the tablespaces in use, with the number of the next one.
    pub(crate) fn listed_in_use(&self) -> TablespacesInUse {
        TablespacesInUse { next: self.next, all: self.in_use().cloned().collect() }
    }

    /// The tablespaces in use.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &Listed> {
        self.all.iter().filter(|one| one.state == TablespaceState::InUse)
    }

    /// The tablespace in use with this number.
    pub(crate) fn of(&self, id: SpaceId) -> Result<&Listed> {
        self.in_use().find(|one| one.id == id).ok_or(PagerError::NoSuchTablespace { id })
    }

    /// Sets the state of the tablespace with this number.
    pub(crate) fn set_state(&mut self, id: SpaceId, state: TablespaceState) {
        self.all.iter_mut().filter(|one| one.id == id).for_each(|one| one.state = state);
    }

    /// Changes the list durably. On failure the old list stays in force.
    ///
    /// Errors: `Stopped` if the control file may name the old or the new list. Then the caller must stop the
    /// pager. Otherwise a tablespace that the new list has ended could still be used, and a start would
    /// remove it.
    pub(crate) fn update<T>(
        &mut self,
        directory: &dyn Directory,
        control: &Control,
        change: impl FnOnce(&mut TablespaceList) -> T,
    ) -> Result<T> {
        let mut next = self.clone();
        let result = change(&mut next);
        next.number = self.number + 1;
        let bytes = next.encode(control.get().database);
        let file = directory.open(&file_name(next.number), OpenHow::or_create(Space::Control))?;
        file.set_len(bytes.len() as u64)?;
        file.write_at(0, &bytes, Purpose::Control, Durability::Later)?;
        file.flush()?;
        directory.sync()?;
        control.update(|superblock| superblock.tablespaces = next.number).map_err(|error| {
            let cause = format!("the control file may name the old or the new list of tablespaces: {error}");
            PagerError::Stopped { cause: cause.into() }
        })?;
        // The control file has two copies. Its older copy still names the list before this one, and a start
        // reads that copy if the newer one is damaged. So that list stays, and the list before it is removed.
        if let Some(older) = self.number.checked_sub(1).filter(|older| *older > 0) {
            let _not_needed = directory.remove(&file_name(older));
        }
        *self = next;
        Ok(result)
    }

    fn encode(&self, database: u64) -> AlignedBuf {
        let mut bytes = vec![0; HEAD_BYTES];
        put_u64(&mut bytes, 0, MAGIC);
        put_u32(&mut bytes, 8, VERSION);
        put_u64(&mut bytes, 16, database);
        put_u64(&mut bytes, 24, self.number);
        put_u32(&mut bytes, 32, self.next);
        put_u32(&mut bytes, 36, self.all.len() as u32);
        for one in &self.all {
            bytes.extend_from_slice(&u32::from(one.id.0).to_le_bytes());
            let (algorithm, level) =
                one.compression.map_or((0, 0), |how| (how.algorithm.code() + 1, how.level));
            bytes.extend_from_slice(&[one.state.code(), one.protection.code(), algorithm, level]);
            for text in [one.name.as_bytes(), one.location.as_bytes(), &one.note] {
                bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
                bytes.extend_from_slice(text);
            }
        }
        let end = bytes.len();
        put_u32(&mut bytes, 12, end as u32);
        let mut file = AlignedBuf::new((end + 4).next_multiple_of(FILE_UNIT));
        file[..end].copy_from_slice(&bytes);
        put_u32(&mut file, end, crc32c::crc32c(&bytes));
        file
    }

    /// Reads a list of this database. Returns `None` if it is damaged.
    fn decode(bytes: &[u8], database: u64) -> Option<TablespaceList> {
        let head = bytes.get(..HEAD_BYTES)?;
        if get_u64(head, 0) != MAGIC || get_u32(head, 8) != VERSION || get_u64(head, 16) != database {
            return None;
        }
        let end = get_u32(head, 12) as usize;
        let checksum = bytes.get(end..)?.get(..4)?;
        if end < HEAD_BYTES || get_u32(checksum, 0) != crc32c::crc32c(&bytes[..end]) {
            return None;
        }
        let mut rest = &bytes[HEAD_BYTES..end];
        let mut all = Vec::new();
        for _ in 0..get_u32(head, 36) {
            all.push(decode_one(&mut rest)?);
        }
        let (number, next) = (get_u64(head, 24), get_u32(head, 32));
        let is_known = |one: &Listed| one.id.is_tablespace() && u32::from(one.id.0) < next;
        let is_sound = rest.is_empty() && number > 0 && all.iter().all(is_known);
        is_sound.then_some(TablespaceList { number, next, all })
    }
}

fn decode_one(rest: &mut &[u8]) -> Option<Listed> {
    let head = take(rest, 8)?;
    let state = TablespaceState::ALL.into_iter().find(|state| state.code() == head[4])?;
    let compression = match head[6].checked_sub(1) {
        None => None,
        Some(code) => Some(Compression { algorithm: Algorithm::of_code(code)?, level: head[7] }),
    };
    Some(Listed {
        id: SpaceId(u16::try_from(get_u32(head, 0)).ok()?),
        state,
        protection: InForce::of(head[5])?,
        compression,
        name: take_text(rest)?,
        location: take_text(rest)?,
        note: take_bytes(rest)?.to_vec(),
    })
}

fn take<'b>(rest: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (head, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(head)
}

fn take_bytes<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let count = get_u32(take(rest, 4)?, 0) as usize;
    take(rest, count)
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    String::from_utf8(take_bytes(rest)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(number: u16, state: TablespaceState, compression: Option<Compression>) -> Listed {
        Listed {
            id: SpaceId(number),
            state,
            protection: InForce::AtomicWrite,
            compression,
            name: format!("name {number}"),
            location: "/somewhere".into(),
            note: vec![1, 2, 3],
        }
    }

    fn list() -> TablespaceList {
        let lz4 = Some(Compression::of(Algorithm::Lz4));
        let all = vec![
            listed(16, TablespaceState::InUse, lz4),
            listed(18, TablespaceState::BeingMade, None),
            listed(19, TablespaceState::Dropped, Some(Compression::NONE)),
        ];
        TablespaceList { number: 7, next: 20, all }
    }

    #[test]
    fn a_list_survives_encoding() {
        let bytes = list().encode(5);
        assert_eq!(TablespaceList::decode(&bytes, 5), Some(list()));
        assert_eq!(TablespaceList::decode(&bytes, 6), None, "another database");
    }

    /// The list is refused if any byte up to the checksum is changed.
    #[test]
    fn a_damaged_list_is_refused() {
        let bytes = list().encode(5);
        let end = get_u32(&bytes, 12) as usize + 4;
        for at in 0..end {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 0x10;
            assert_eq!(TablespaceList::decode(&damaged, 5), None, "byte {at}");
            assert_eq!(TablespaceList::decode(&bytes[..at], 5), None, "cut at {at}");
        }
    }
}
