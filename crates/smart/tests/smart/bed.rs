//! Helpers of the tests: a database in memory, a device that reads its data file, and tables.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, RecordBatch};
use varve_device::{Directory, MemoryDirectory};
use varve_engine::{
    Change, ColumnDef, ColumnType, Database, Datum, Isolation, LeafLayout, NewTable, Options, PrimaryKey,
    RowImage, ScanSpec, StorageOptions, TableDef, Transaction, key,
};
use varve_pager::PagerConfig;
use varve_smart::{
    Address, ColumnKind, Condition, Limits, Output, Program, Server, ServerOptions, SharedKey, SmartDevice,
    SmartScan,
};

pub const RC: Isolation = Isolation::ReadCommitted;
pub const RR: Isolation = Isolation::RepeatableRead;
pub const KEY: &[u8] = b"a key for tests, which is long enough";

/// A database and a device that reads its file.
pub struct Bed {
    pub database: Arc<Database>,
    pub server: Option<Server>,
    pub device: SmartDevice,
    pub _socket: tempfile::TempDir,
}

pub fn key() -> SharedKey {
    SharedKey::of(KEY).unwrap()
}

pub fn serve(directory: &dyn Directory, address: &Address, limits: Limits) -> Server {
    let options = ServerOptions { key: key(), certificate: None, limits, profile: None };
    Server::start(address, options, directory, &["data.varve".into()]).unwrap()
}

impl Bed {
    pub fn new() -> Bed {
        Bed::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Bed {
        Bed::with_pages(limits, 8192)
    }

    pub fn with_pages(limits: Limits, page_size: usize) -> Bed {
        let directory = MemoryDirectory::new();
        let mut pager = PagerConfig::new(directory.clone());
        pager.page_size = page_size;
        pager.pool_bytes = page_size << 10;
        pager.log_segment_bytes = 1 << 20;
        pager.log_capacity_bytes = 16 << 20;
        let database = Database::open(Options::new(pager)).unwrap();
        let socket = tempfile::tempdir().unwrap();
        let address = Address::Unix(socket.path().join("smart"));
        let server = serve(&*directory, &address, limits);
        let device = SmartDevice::new(address, key(), Duration::from_secs(20));
        Bed { database, server: Some(server), device, _socket: socket }
    }

    /// Runs `CREATE TABLE t (id int PRIMARY KEY, v int, note text) WITH (layout = ...)`.
    pub fn table(&self, layout: LeafLayout) -> Arc<TableDef> {
        let columns = vec![
            ColumnDef::new("id", ColumnType::Int4),
            ColumnDef::new("v", ColumnType::Int4),
            ColumnDef::new("note", ColumnType::Text),
        ];
        self.table_of("t", columns, layout)
    }

    pub fn table_of(&self, name: &str, columns: Vec<ColumnDef>, layout: LeafLayout) -> Arc<TableDef> {
        let mut txn = self.begin(RC);
        let primary_key = Some(PrimaryKey { name: format!("{name}_pkey"), columns: vec![0] });
        let storage = StorageOptions { layout, ..StorageOptions::default() };
        let new = NewTable { primary_key, storage, ..NewTable::new("public", name, columns) };
        let def = txn.create_table(new).unwrap();
        txn.commit().unwrap();
        def
    }

    pub fn begin(&self, isolation: Isolation) -> Transaction {
        let mut txn = self.database.begin(isolation);
        txn.start_statement();
        txn
    }

    pub fn load(&self, def: &TableDef, ids: impl IntoIterator<Item = i32>) {
        let mut txn = self.begin(RC);
        let table = txn.table(def).unwrap();
        for id in ids {
            let note = format!("note {id}");
            txn.insert(&table, &[Datum::Int4(id), Datum::Int4(id * 10), Datum::Text(&note)]).unwrap();
        }
        txn.commit().unwrap();
    }

    /// Writes all pages to the data file, and raises the floor past the finished transactions.
    pub fn settle(&self) {
        self.database.tick().unwrap();
        self.database.checkpoint_all().unwrap();
    }

    /// Returns the number of leaves that the device has read, and of leaves that the host has read, since the
    /// start.
    pub fn leaves(&self) -> (u64, u64) {
        let counts = self.device.counts();
        (counts.leaves.load(Ordering::Relaxed), counts.deferred.load(Ordering::Relaxed))
    }

    pub fn failures(&self) -> u64 {
        self.device.counts().failures.load(Ordering::Relaxed)
    }

    /// Runs a program in the transaction's statement.
    pub fn run(&self, txn: &mut Transaction, def: &TableDef, program: Program) -> Vec<RecordBatch> {
        let table = txn.table(def).unwrap();
        let mut batches = Vec::new();
        let scan = SmartScan::new(&self.device, &table, program).unwrap();
        let keep = &mut |batch| {
            batches.push(batch);
            Ok(())
        };
        scan.run(&mut txn.reader(), &table, keep).unwrap();
        batches
    }

    /// Returns (id, v) of all rows. The device scans the table.
    pub fn scanned(&self, txn: &mut Transaction, def: &TableDef) -> BTreeMap<i32, i32> {
        pairs(&self.run(txn, def, program(def, None, Output::Columns(vec![0, 1]))))
    }
}

pub fn program(def: &TableDef, condition: Option<Condition>, output: Output) -> Program {
    let columns = def.columns.iter().map(|column| ColumnKind::of(column.column_type)).collect();
    Program { columns, condition, output }
}

/// Returns the first two columns of batches. Panics if an id comes twice.
pub fn pairs(batches: &[RecordBatch]) -> BTreeMap<i32, i32> {
    let mut all = BTreeMap::new();
    for batch in batches {
        let (ids, values) = (batch.column(0).as_primitive::<Int32Type>(), batch.column(1));
        let values = values.as_primitive::<Int32Type>();
        for row in 0..batch.num_rows() {
            assert!(!ids.is_null(row));
            let before = all.insert(ids.value(row), values.value(row));
            assert_eq!(before, None, "row {} comes twice", ids.value(row));
        }
    }
    all
}

/// Returns (id, v) of all rows. The host scans the table alone, in the statement that runs.
pub fn by_host(txn: &mut Transaction, def: &TableDef) -> BTreeMap<i32, i32> {
    let table = txn.table(def).unwrap();
    let mut all = BTreeMap::new();
    let take = &mut |_: &[u8], row: varve_engine::RowRef<'_>| {
        let (Datum::Int4(id), Datum::Int4(v)) = (row.get(0), row.get(1)) else { panic!("no int4") };
        all.insert(id, v);
        Ok(ControlFlow::Continue(()))
    };
    txn.reader().scan(&table, &ScanSpec::ALL, take).unwrap();
    all
}

pub fn pk(id: i32) -> Vec<u8> {
    let mut out = Vec::new();
    key::push(&mut out, ColumnType::Int4, &Datum::Int4(id));
    out
}

pub fn set(txn: &mut Transaction, def: &TableDef, id: i32, v: i32) {
    let table = txn.table(def).unwrap();
    txn.modify(&table, &pk(id), &mut |row| {
        let data = [row.get(0), Datum::Int4(v), row.get(2)];
        Ok(Change::Replace(RowImage::encode(row.schema(), &data)?))
    })
    .unwrap();
}

pub fn remove(txn: &mut Transaction, def: &TableDef, id: i32) {
    let table = txn.table(def).unwrap();
    txn.modify(&table, &pk(id), &mut |_| Ok(Change::Delete)).unwrap();
}
