//! The database LMDB, through the crate heed. LMDB's defaults are durable, because no flag for speed is set.
//!
//! A group is one write transaction, in which later transactions of the group read what earlier ones wrote.
//!
//! This module does not know other databases.

use std::path::Path;

use heed::byteorder::BigEndian;
use heed::types::{Bytes, U64};
use heed::{Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, RwTxn};

use crate::Failure;
use crate::database::{Database, Kind, Sizes};
use crate::workload::{Operation, Workload};

/// LMDB.
pub const KIND: Kind = Kind {
    name: "LMDB",
    durable_by: "fdatasync, then the meta page",
    group_by: Some("one write transaction"),
    needs_memory: false,
    create: |path, sizes| Ok(Box::new(Lmdb::create(path, sizes)?)),
};

struct Lmdb {
    env: Env,
    rows: heed::Database<U64<BigEndian>, Bytes>,
    row: Vec<u8>,
}

impl Lmdb {
    fn create(path: &Path, sizes: Sizes) -> Result<Lmdb, Failure> {
        let map_bytes = usize::try_from(sizes.data_bytes * 4 + (1 << 30))?.next_multiple_of(1 << 20);
        let mut options = EnvOpenOptions::new();
        options.map_size(map_bytes);
        // SAFETY: the flag only keeps the kernel from reading ahead.
        unsafe { options.flags(EnvFlags::NO_READ_AHEAD) };
        // SAFETY: the directory is fresh and no other process knows it.
        let env = unsafe { options.open(path)? };
        let mut transaction = env.write_txn()?;
        let rows = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Lmdb { env, rows, row: Vec::new() })
    }

    /// Copies the row of an operation into `self.row`.
    fn fetch(&mut self, transaction: &RoTxn<'_>, key: u64) -> Result<(), Failure> {
        let row = self.rows.get(transaction, &key)?.ok_or("there is no such row")?;
        self.row.clear();
        self.row.extend_from_slice(row);
        Ok(())
    }

    /// Runs an operation in a write transaction.
    fn execute(
        &mut self,
        transaction: &mut RwTxn<'_>,
        load: &Workload,
        operation: Operation,
    ) -> Result<(), Failure> {
        self.fetch(transaction, operation.key)?;
        let Some(change) = operation.change else { return Ok(()) };
        load.apply(change, &mut self.row);
        Ok(self.rows.put(transaction, &operation.key, &self.row)?)
    }
}

impl Database for Lmdb {
    fn load(&mut self, load: &Workload) -> Result<(), Failure> {
        let mut transaction = self.env.write_txn()?;
        for key in 0..load.rows() {
            load.row(key, &mut self.row);
            self.rows.put_with_flags(&mut transaction, PutFlags::APPEND, &key, &self.row)?;
        }
        Ok(transaction.commit()?)
    }

    fn run(&mut self, load: &Workload, group: usize) -> Result<(), Failure> {
        let env = self.env.clone();
        let (mut open, mut pending) = (None, 0);
        for operation in load.operations() {
            match (open.take(), operation.change) {
                (None, None) => {
                    let transaction = env.read_txn()?;
                    self.fetch(&transaction, operation.key)?;
                }
                (writer, change) => {
                    let mut writer = match writer {
                        Some(writer) => writer,
                        None => env.write_txn()?,
                    };
                    self.execute(&mut writer, load, *operation)?;
                    pending += usize::from(change.is_some());
                    open = Some(writer);
                }
            }
            if pending >= group {
                open.take().map_or(Ok(()), RwTxn::commit)?;
                pending = 0;
            }
        }
        Ok(open.take().map_or(Ok(()), RwTxn::commit)?)
    }

    fn read(&mut self, key: u64, row: &mut Vec<u8>) -> Result<bool, Failure> {
        let env = self.env.clone();
        let transaction = env.read_txn()?;
        self.fetch(&transaction, key)?;
        row.clone_from(&self.row);
        Ok(true)
    }
}
