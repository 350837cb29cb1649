//! The format of the records of the log. A checkpoint consists of the same records.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 4 | length of the body in bytes |
//! | 4 | 4 | crc32c of the body |
//! | 8 | | body |
//!
//! A body begins with its kind (1 byte) and its table (2 bytes). After them come numbers (4 bytes, little
//! endian) and byte strings (their length in 4 bytes, then the bytes):
//!
//! | kind | fields |
//! |---|---|
//! | 1 create table | owner, number of indexes |
//! | 2 insert | number of keys, keys, row |
//! | 3 replace | number of keys, keys, row, the row before |
//! | 4 patch | primary key, position of the first changed byte, old bytes, new bytes |
//! | 5 delete | primary key, a byte string that is not used any more and has length 0 |
//! | 6 commit | none; the table is 0 |
//! | 7 drop table | none |
//!
//! This module does not know where records are kept.

use crate::store::TableNo;

const HEAD_BYTES: usize = 8;
/// The size of a commit, in bytes.
pub(super) const COMMIT_BYTES: usize = HEAD_BYTES + 3;

/// A change, or the end of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record<'r> {
    CreateTable { table: TableNo, owner: u16, indexes: usize },
    Insert { table: TableNo, keys: Vec<&'r [u8]>, row: &'r [u8] },
    Replace { table: TableNo, keys: Vec<&'r [u8]>, row: &'r [u8], before: &'r [u8] },
    Patch { table: TableNo, key: &'r [u8], at: usize, before: &'r [u8], after: &'r [u8] },
    Delete { table: TableNo, key: &'r [u8], before: &'r [u8] },
    Commit,
    DropTable { table: TableNo },
}

/// A record that was read, and the bytes after it.
pub(super) struct Decoded<'r> {
    pub(super) record: Record<'r>,
    pub(super) rest: &'r [u8],
}

fn put_number(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&(number as u32).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_keys(out: &mut Vec<u8>, keys: &[&[u8]]) {
    put_number(out, keys.len());
    keys.iter().for_each(|key| put_bytes(out, key));
}

impl<'r> Record<'r> {
    fn kind(&self) -> u8 {
        match self {
            Record::CreateTable { .. } => 1,
            Record::Insert { .. } => 2,
            Record::Replace { .. } => 3,
            Record::Patch { .. } => 4,
            Record::Delete { .. } => 5,
            Record::Commit => 6,
            Record::DropTable { .. } => 7,
        }
    }

    fn table(&self) -> TableNo {
        match self {
            Record::CreateTable { table, .. }
            | Record::Insert { table, .. }
            | Record::Replace { table, .. }
            | Record::Patch { table, .. }
            | Record::Delete { table, .. }
            | Record::DropTable { table } => *table,
            Record::Commit => TableNo(0),
        }
    }

    /// Adds the record to a buffer.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let from = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        out.push(self.kind());
        out.extend_from_slice(&self.table().0.to_le_bytes());
        match self {
            Record::CreateTable { owner, indexes, .. } => {
                put_number(out, usize::from(*owner));
                put_number(out, *indexes);
            }
            Record::Insert { keys, row, .. } => {
                put_keys(out, keys);
                put_bytes(out, row);
            }
            Record::Replace { keys, row, before, .. } => {
                put_keys(out, keys);
                put_bytes(out, row);
                put_bytes(out, before);
            }
            Record::Patch { key, at, before, after, .. } => {
                put_bytes(out, key);
                put_number(out, *at);
                put_bytes(out, before);
                put_bytes(out, after);
            }
            Record::Delete { key, before, .. } => {
                put_bytes(out, key);
                put_bytes(out, before);
            }
            Record::Commit | Record::DropTable { .. } => {}
        }
        let body = out.get(from + HEAD_BYTES..).unwrap_or_default();
        let head = [body.len() as u32, crc32c::crc32c(body)];
        let places = out.get_mut(from..).unwrap_or_default().chunks_exact_mut(4);
        places.zip(head).for_each(|(place, number)| place.copy_from_slice(&number.to_le_bytes()));
    }

    /// Returns the largest number of bytes that a record with these fields can take.
    pub(super) fn bytes_max(keys: &[&[u8]], parts_bytes: usize) -> usize {
        HEAD_BYTES + 32 + keys.iter().map(|key| 4 + key.len()).sum::<usize>() + parts_bytes
    }

    /// Reads the record at the start of a buffer. Returns `None` if it is damaged.
    pub(super) fn decode(bytes: &'r [u8]) -> Option<Decoded<'r>> {
        let mut head = Fields(bytes);
        let (len_bytes, checksum) = (head.number()?, head.number()?);
        let (body, rest) = head.0.split_at_checked(len_bytes)?;
        if crc32c::crc32c(body) as usize != checksum {
            return None;
        }
        let (kind, fields) = body.split_first()?;
        let (table, fields) = fields.split_first_chunk()?;
        let table = TableNo(u16::from_le_bytes(*table));
        let mut fields = Fields(fields);
        let record = match kind {
            1 => Record::CreateTable { table, owner: fields.number()? as u16, indexes: fields.number()? },
            2 => Record::Insert { table, keys: fields.keys()?, row: fields.bytes()? },
            3 => {
                Record::Replace { table, keys: fields.keys()?, row: fields.bytes()?, before: fields.bytes()? }
            }
            4 => Record::Patch {
                table,
                key: fields.bytes()?,
                at: fields.number()?,
                before: fields.bytes()?,
                after: fields.bytes()?,
            },
            5 => Record::Delete { table, key: fields.bytes()?, before: fields.bytes()? },
            6 => Record::Commit,
            7 => Record::DropTable { table },
            _ => return None,
        };
        fields.0.is_empty().then_some(Decoded { record, rest })
    }
}

/// The fields of a record that are still to be read.
struct Fields<'r>(&'r [u8]);

impl<'r> Fields<'r> {
    fn number(&mut self) -> Option<usize> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number) as usize)
    }

    fn bytes(&mut self) -> Option<&'r [u8]> {
        let len_bytes = self.number()?;
        let (bytes, rest) = self.0.split_at_checked(len_bytes)?;
        self.0 = rest;
        Some(bytes)
    }

    fn keys(&mut self) -> Option<Vec<&'r [u8]>> {
        let count = self.number()?;
        (0..count).map(|_| self.bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_damaged_ones_do_not() {
        let table = TableNo(7);
        let keys: Vec<&[u8]> = vec![b"key", b"", b"another"];
        let records = [
            Record::CreateTable { table, owner: 4095, indexes: 3 },
            Record::Insert { table, keys: keys.clone(), row: b"row" },
            Record::Replace { table, keys, row: b"row", before: b"before" },
            Record::Patch { table, key: b"key", at: 70_000, before: b"a", after: b"b" },
            Record::Delete { table, key: b"key", before: b"before" },
            Record::DropTable { table },
            Record::Commit,
        ];
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.encode(&mut bytes));
        let mut rest = &bytes[..];
        for record in &records {
            let Some(decoded) = Record::decode(rest) else { panic!("{record:?} is there") };
            assert_eq!(decoded.record, *record);
            rest = decoded.rest;
        }
        assert!(rest.is_empty());
        let mut one = Vec::new();
        records[3].encode(&mut one);
        for at in 0..one.len() {
            let mut damaged = one.clone();
            damaged[at] ^= 1;
            assert!(Record::decode(&damaged).is_none(), "byte {at}");
        }
        let mut commit = Vec::new();
        Record::Commit.encode(&mut commit);
        assert_eq!(commit.len(), COMMIT_BYTES);
    }
}
