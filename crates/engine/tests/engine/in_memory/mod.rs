//! Tables of the memory-oriented engines: helpers, and one test file for each promise.

mod crash;
mod damage;
mod definitions;
mod locks;
mod mixing;
mod model;
mod procedures;
mod rows;
mod spread;

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory};
use varve_engine::{
    ColumnType, Database, Datum, Error, MemoryTables, NewTable, Options, PrimaryKey, Result, TableDef,
    Transaction,
};

use crate::database::*;

/// The engines that every test runs with.
pub const ENGINES: [&str; 6] = ["nvm_inplace", "inplace", "nvm_cow", "cow", "nvm_log", "log"];
const REGION_BYTES: u64 = 16 << 20;

/// Returns the options of a database whose files and region are in one directory.
pub fn options_in(directory: &Arc<dyn Directory>, partitions: u16) -> Options {
    let mut options = options(&MemoryDirectory::new());
    let pager = &mut options.pager;
    pager.data = directory.clone();
    pager.log = directory.clone();
    pager.rollback = directory.clone();
    pager.temporary = directory.clone();
    pager.control = directory.clone();
    let directory = Arc::clone(directory);
    options.memory = Some(MemoryTables { directory, size_bytes: REGION_BYTES, partitions });
    options
}

pub fn open_in(directory: &Arc<dyn Directory>, partitions: u16) -> Result<Arc<Database>> {
    Database::open(options_in(directory, partitions))
}

/// Makes a new database with this many partitions of each engine.
pub fn empty(partitions: u16) -> (Arc<dyn Directory>, Arc<Database>) {
    let directory: Arc<dyn Directory> = MemoryDirectory::new();
    let database = open_in(&directory, partitions).unwrap();
    (directory, database)
}

/// `CREATE TABLE name (id int [PRIMARY KEY], v int, note text) USING engine`
pub fn make_in(txn: &mut Transaction, name: &str, engine: &str, keyed: bool) -> Result<Arc<TableDef>> {
    let columns =
        vec![column("id", ColumnType::Int4), column("v", ColumnType::Int4), column("note", ColumnType::Text)];
    let key = PrimaryKey { name: format!("{name}_pkey"), columns: vec![0] };
    let (primary_key, engine) = (keyed.then_some(key), Some(engine.to_owned()));
    txn.create_table(NewTable { primary_key, engine, ..NewTable::new("public", name, columns) })
}

/// Does the same, and commits.
pub fn make(database: &Arc<Database>, name: &str, engine: &str) -> Arc<TableDef> {
    let mut txn = database.begin(RC);
    let def = make_in(&mut txn, name, engine, true).unwrap();
    txn.commit().unwrap();
    def
}

/// Returns the present definition of a table.
pub fn find(database: &Arc<Database>, name: &str) -> Arc<TableDef> {
    database.begin(RC).catalog().table("public", name).unwrap()
}
