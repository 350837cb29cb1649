//! Entries of the LSM tree. Each change adds entries under keys. A read puts a row together from its entries.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 3 | id of the table |
//! | 3 | 1 | bits 0..4 kind, bits 4..8 index |
//! | 4 | 2 | length of the key |
//! | 6 | 2 | row: bytes of the secondary keys; patch: number of patches above the row, including this one |
//! | 8 | 4 | length of the value |
//! | 12 | 4 | row, patch: length of the row |
//! | 16 | | the key, then the value |
//!
//! | kind | stored under | value |
//! |---|---|---|
//! | 1 row | a primary key | the secondary keys (length in 2 bytes, then bytes), then the row |
//! | 2 patch | a primary key | pieces: position (4 bytes), length (4 bytes), bytes; a later piece wins |
//! | 3 tombstone | any key | none |
//! | 4 reference | a secondary key | the primary key |
//!
//! Invariants
//! 1. The newest entry under a key decides. If it is a row or a reference, the key exists. If it is a
//!    tombstone, the key does not exist. If it is a patch, the key exists, and a read needs the older
//!    entries, too, down to a row.
//! 2. A change of a row writes an entry for each index whose key changes. So references are never out of date.
//!
//! This module does not know where entries are kept, or in what order.

use super::key::{PREFIX_BYTES, SearchKey, TableId, prefix};
use super::media::{Location, Media, damaged};
use crate::pointer::Pointer;
use crate::store_error::StoreResult;
use crate::tuple::{INDEXES_MAX, KEY_BYTES_MAX, ROW_BYTES_MAX};

/// The number of bytes before the key.
pub(crate) const HEAD_BYTES: usize = 16;
/// The number of bytes of the position and the length of a piece, which come before its bytes.
const PIECE_HEAD_BYTES: usize = 8;
/// The longest value: a row with all secondary keys, or pieces that are shorter than a row.
const VALUE_BYTES_MAX: usize = 2 * ROW_BYTES_MAX;

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Row = 1,
    Patch = 2,
    Tombstone = 3,
    Reference = 4,
}

impl Kind {
    fn of(number: u8) -> Option<Kind> {
        [Kind::Row, Kind::Patch, Kind::Tombstone, Kind::Reference]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// The fields before the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryHead {
    pub(crate) table: TableId,
    pub(crate) index: u8,
    pub(crate) kind: Kind,
    pub(crate) key_bytes: usize,
    /// In a row entry, the bytes of the secondary keys. In a patch, the number of patches.
    pub(crate) extra: usize,
    pub(crate) value_bytes: usize,
    pub(crate) row_bytes: usize,
}

impl EntryHead {
    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let fields = self.table.0.to_le_bytes().into_iter().take(3);
        let fields = fields.chain([self.index << 4 | self.kind as u8]);
        let fields = fields.chain((self.key_bytes as u16).to_le_bytes());
        let fields = fields.chain((self.extra as u16).to_le_bytes());
        let fields = fields.chain((self.value_bytes as u32).to_le_bytes());
        let fields = fields.chain((self.row_bytes as u32).to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(place, byte)| *place = byte);
        bytes
    }

    /// Reads a head. Returns `None` if the bytes cannot be a head.
    pub(crate) fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<EntryHead> {
        let [t0, t1, t2, kind, k0, k1, e0, e1, v0, v1, v2, v3, r0, r1, r2, r3] = *bytes;
        let head = EntryHead {
            table: TableId(u32::from_le_bytes([t0, t1, t2, 0])),
            index: kind >> 4,
            kind: Kind::of(kind & 0xF)?,
            key_bytes: usize::from(u16::from_le_bytes([k0, k1])),
            extra: usize::from(u16::from_le_bytes([e0, e1])),
            value_bytes: u32::from_le_bytes([v0, v1, v2, v3]) as usize,
            row_bytes: u32::from_le_bytes([r0, r1, r2, r3]) as usize,
        };
        let is_possible = head.key_bytes <= KEY_BYTES_MAX
            && head.value_bytes <= VALUE_BYTES_MAX
            && (head.kind != Kind::Row || head.extra + head.row_bytes == head.value_bytes);
        is_possible.then_some(head)
    }

    /// Returns the number of bytes of the whole entry.
    pub(crate) fn entry_bytes(&self) -> usize {
        HEAD_BYTES + self.key_bytes + self.value_bytes
    }
}

/// Entries that will be added: the entries of one change, or the result of a merge.
#[derive(Default)]
pub(crate) struct EntryBuffer {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl EntryBuffer {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the entries, each as bytes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).filter_map(|(begin, end)| self.bytes.get(begin..*end))
    }

    fn begin(&mut self, key: &SearchKey<'_>, kind: Kind) -> EntryHead {
        let [high, middle, low, index] = key.prefix;
        let (table, key_bytes) = (TableId(u32::from_be_bytes([0, high, middle, low])), key.key.len());
        self.bytes.extend_from_slice(&[0; HEAD_BYTES]);
        self.bytes.extend_from_slice(key.key);
        EntryHead { table, index, kind, key_bytes, extra: 0, value_bytes: 0, row_bytes: 0 }
    }

    /// Writes the head, now that the value is there.
    fn finish(&mut self, mut head: EntryHead) {
        let begin = self.ends.last().copied().unwrap_or_default();
        head.value_bytes = self.bytes.len() - begin - HEAD_BYTES - head.key_bytes;
        let place = self.bytes.get_mut(begin..).and_then(|entry| entry.first_chunk_mut());
        if let Some(place) = place {
            *place = head.encode();
        }
        self.ends.push(self.bytes.len());
    }

    /// Adds a row with its secondary keys.
    pub(crate) fn add_row(&mut self, key: &SearchKey<'_>, secondary: &[&[u8]], row: &[u8]) {
        let mut head = self.begin(key, Kind::Row);
        for key in secondary {
            self.bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
            self.bytes.extend_from_slice(key);
            head.extra += 2 + key.len();
        }
        head.row_bytes = row.len();
        self.bytes.extend_from_slice(row);
        self.finish(head);
    }

    /// Adds a row whose secondary keys are encoded already.
    pub(crate) fn add_encoded_row(&mut self, key: &SearchKey<'_>, secondary: &[u8], row: &[u8]) {
        let mut head = self.begin(key, Kind::Row);
        (head.extra, head.row_bytes) = (secondary.len(), row.len());
        self.bytes.extend_from_slice(secondary);
        self.bytes.extend_from_slice(row);
        self.finish(head);
    }

    /// Adds a patch with one piece.
    pub(crate) fn add_patch(&mut self, key: &SearchKey<'_>, patch: &NewPatch<'_>) {
        let mut head = self.begin(key, Kind::Patch);
        (head.extra, head.row_bytes) = (patch.number, patch.row_bytes);
        self.bytes.extend_from_slice(&(patch.at as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(patch.bytes.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(patch.bytes);
        self.finish(head);
    }

    /// Adds a patch with the pieces of several patches, oldest first. `newest` is the head of the newest
    /// patch.
    pub(crate) fn add_pieces(&mut self, key: &SearchKey<'_>, newest: &EntryHead, pieces: &[u8]) {
        let mut head = self.begin(key, Kind::Patch);
        (head.extra, head.row_bytes) = (newest.extra, newest.row_bytes);
        self.bytes.extend_from_slice(pieces);
        self.finish(head);
    }

    pub(crate) fn add_tombstone(&mut self, key: &SearchKey<'_>) {
        let head = self.begin(key, Kind::Tombstone);
        self.finish(head);
    }

    pub(crate) fn add_reference(&mut self, key: &SearchKey<'_>, primary: &[u8]) {
        let head = self.begin(key, Kind::Reference);
        self.bytes.extend_from_slice(primary);
        self.finish(head);
    }
}

/// A patch that will be added.
pub(crate) struct NewPatch<'p> {
    pub(crate) row_bytes: usize,
    /// The byte of the row at which the bytes begin.
    pub(crate) at: usize,
    pub(crate) bytes: &'p [u8],
    /// The number of patches above the row, including this one.
    pub(crate) number: usize,
}

/// An entry in bytes: its head, key and value.
pub(crate) struct EntryBytes<'e> {
    pub(crate) head: EntryHead,
    pub(crate) key: &'e [u8],
    pub(crate) value: &'e [u8],
}

impl<'e> EntryBytes<'e> {
    /// Decodes the entry at the start of `bytes`. Returns `None` if there is none.
    pub(crate) fn decode(bytes: &'e [u8]) -> Option<EntryBytes<'e>> {
        let (head, rest) = bytes.split_first_chunk()?;
        let head = EntryHead::decode(head)?;
        let (key, rest) = rest.split_at_checked(head.key_bytes)?;
        Some(EntryBytes { head, key, value: rest.get(..head.value_bytes)? })
    }

    /// Returns the key of the entry, for a search.
    pub(crate) fn search_key(&self) -> SearchKey<'e> {
        SearchKey::of(self.head.table, usize::from(self.head.index), self.key)
    }
}

/// A piece of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The byte of the row at which the bytes begin.
    pub(crate) at: usize,
    pub(crate) len_bytes: usize,
}

impl Piece {
    /// Decodes the first piece in the value of a patch.
    pub(crate) fn decode(value: &[u8]) -> Option<Piece> {
        let (at, rest) = value.split_first_chunk()?;
        let len_bytes = rest.first_chunk()?;
        let number = |bytes: [u8; 4]| u32::from_le_bytes(bytes) as usize;
        Some(Piece { at: number(*at), len_bytes: number(*len_bytes) })
    }

    /// Returns the number of bytes of the piece, including its position and its length.
    pub(crate) fn whole_bytes(&self) -> usize {
        PIECE_HEAD_BYTES + self.len_bytes
    }
}

/// Puts the pieces of a patch into a row. Returns `None` if they are damaged.
pub(crate) fn apply_pieces(mut pieces: &[u8], row: &mut [u8]) -> Option<()> {
    while !pieces.is_empty() {
        let piece = Piece::decode(pieces)?;
        let (whole, rest) = pieces.split_at_checked(piece.whole_bytes())?;
        let to = row.get_mut(piece.at..piece.at.checked_add(piece.len_bytes)?)?;
        to.copy_from_slice(whole.get(PIECE_HEAD_BYTES..)?);
        pieces = rest;
    }
    Some(())
}

/// An entry in a MemTable or a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryAt {
    pub(crate) location: Location,
    /// Where it begins.
    pub(crate) at: u64,
    pub(crate) head: EntryHead,
    /// In a MemTable: the record with the next older entry under the same key.
    pub(crate) older: Pointer,
}

impl EntryAt {
    /// Reads the head of an entry in a run.
    pub(crate) fn read(media: &Media<'_>, location: Location, at: u64) -> StoreResult<EntryAt> {
        let mut bytes = [0; HEAD_BYTES];
        media.read(location, at, &mut bytes)?;
        let head = EntryHead::decode(&bytes).ok_or(damaged("the head of an entry", at))?;
        Ok(EntryAt { location, at, head, older: Pointer::NONE })
    }

    /// Returns where the value of the entry begins.
    pub(crate) fn value_at(&self) -> u64 {
        self.at + (HEAD_BYTES + self.head.key_bytes) as u64
    }

    fn read_into(&self, media: &Media<'_>, at: u64, len: usize, buf: &mut Vec<u8>) -> StoreResult<()> {
        buf.resize(len, 0);
        media.read(self.location, at, buf)
    }

    /// Copies the key of the entry, with table and index before it.
    pub(crate) fn whole_key(&self, media: &Media<'_>, key: &mut Vec<u8>) -> StoreResult<()> {
        key.clear();
        key.extend_from_slice(&prefix(self.head.table, self.head.index));
        key.resize(PREFIX_BYTES + self.head.key_bytes, 0);
        let bytes = key.get_mut(PREFIX_BYTES..).unwrap_or_default();
        media.read(self.location, self.at + HEAD_BYTES as u64, bytes)
    }

    /// Copies the value: the pieces of a patch, or the primary key of a reference.
    pub(crate) fn value(&self, media: &Media<'_>, value: &mut Vec<u8>) -> StoreResult<()> {
        self.read_into(media, self.value_at(), self.head.value_bytes, value)
    }

    /// Copies the row of a row entry.
    pub(crate) fn row(&self, media: &Media<'_>, row: &mut Vec<u8>) -> StoreResult<()> {
        self.read_into(media, self.value_at() + self.head.extra as u64, self.head.row_bytes, row)
    }

    /// Copies the encoded secondary keys of a row entry.
    pub(crate) fn secondary(&self, media: &Media<'_>, keys: &mut Vec<u8>) -> StoreResult<()> {
        self.read_into(media, self.value_at(), self.head.extra, keys)
    }
}

/// An iterator over encoded secondary keys.
pub(crate) struct SecondaryKeys<'k>(pub(crate) &'k [u8]);

impl<'k> Iterator for SecondaryKeys<'k> {
    type Item = &'k [u8];

    fn next(&mut self) -> Option<&'k [u8]> {
        let (len_bytes, rest) = self.0.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len_bytes)))?;
        self.0 = rest;
        Some(key)
    }
}

// The secondary keys of a row fit into their field.
const _: () = assert!((INDEXES_MAX - 1) * (2 + KEY_BYTES_MAX) < 1 << 16);
