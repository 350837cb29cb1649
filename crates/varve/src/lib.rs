//! Varve, a transactional SQL database for the whole memory hierarchy, as a library.
//!
//! A program that embeds Varve opens a directory and runs SQL on it, or uses the engine below SQL directly.
//! There is no server and no other process.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let db = varve::Embedded::open(directory.path())?;
//! let mut session = db.session()?;
//! session.run("create table item (id integer primary key, name text not null)")?;
//! let insert = session.prepare("insert into item values ($1, $2)")?;
//! let mut transaction = session.transaction()?;
//! transaction.execute(&insert, &[&1, &"lamp"])?;
//! transaction.execute(&insert, &[&2, &"chair"])?;
//! transaction.commit()?;
//!
//! let row = session.query_one("select name from item where id = $1", &[&2])?;
//! assert_eq!(row.get::<String>("name")?, "chair");
//! for row in session.query_iter("select id, name from item order by id", &[])? {
//!     let row = row?;
//!     println!("{} {}", row.get::<i32>("id")?, row.get::<&str>("name")?);
//! }
//!
//! // The same data through the engine, without SQL text.
//! let mut transaction = db.engine().begin(varve::Isolation::ReadCommitted);
//! transaction.start_statement();
//! let catalog = transaction.catalog();
//! let item = catalog.table("public", "item").ok_or("no table")?;
//! let table = transaction.table(&item)?;
//! let mut count = 0;
//! transaction.scan(&table, &varve::ScanSpec::ALL, &mut |_key, _row| {
//!     count += 1;
//!     Ok(std::ops::ControlFlow::Continue(()))
//! })?;
//! assert_eq!(count, 2);
//! transaction.commit()?;
//!
//! drop(session);
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Stored procedures
//!
//! A table of a memory-oriented engine (`CREATE TABLE ... USING nvm_inplace`) is in partitions. A partition
//! runs its transactions one after the other. A stored procedure is a closure that runs in a partition,
//! beside the procedures of other partitions and the transactions of SQL.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! use varve::config::Settings;
//! use varve::{Change, Datum, LockMode, RowImage, key};
//!
//! let text = "[nvm]\ndevice = 'main'\ntables = '8MiB'\npartitions = 2";
//! let settings = Settings::parse(text, directory.path())?;
//! let db = varve::Embedded::open_with(directory.path(), &settings)?;
//! let mut session = db.session()?;
//! session.run("create table account (id integer primary key, amount integer) partition by hash (id)
//!     using nvm_inplace")?;
//! session.run("create table account_all partition of account for values with (modulus 1, remainder 0)")?;
//! session.run("insert into account values (7, 100)")?;
//!
//! let mut transaction = db.engine().begin(varve::Isolation::ReadCommitted);
//! let account = transaction.catalog().table("public", "account").ok_or("no table")?;
//! transaction.commit()?;
//! let partition = db.engine().partition_of(&account, &[Datum::Int4(7)])?;
//! db.engine().run_procedure(partition, |transaction| {
//!     let table = transaction.table_by_rows(&account, LockMode::RowExclusive)?;
//!     let mut id = Vec::new();
//!     key::push(&mut id, varve::ColumnType::Int4, &Datum::Int4(7));
//!     transaction.modify(&table, &id, &mut |row| {
//!         let Datum::Int4(amount) = row.get(1) else { return Ok(Change::Skip) };
//!         let changed = [row.get(0), Datum::Int4(amount + 5)];
//!         Ok(Change::Replace(RowImage::encode(row.schema(), &changed)?))
//!     })
//! })?;
//! assert_eq!(session.query("select amount from account")?[0].integer("amount"), Some(105));
//! # drop(session);
//! # db.close()?;
//! # Ok(())
//! # }
//! ```

mod archive_place;
mod backup_place;
pub mod cli;
pub mod config;
pub mod data_directory;
mod embedded;
mod error;
mod memory;
mod messages;
mod shell;
pub mod system_file;
mod tables_file;
mod tablespace_locations;
mod transfer;
mod watch;

pub use embedded::{
    ConversionError, Embedded, FromSql, IntoStatement, Row, RowIndex, Rows, SqlSession, SqlTransaction,
    Statement, ToSql, TransactionBuilder,
};
pub use error::OpenError;
pub use memory::default_pool_bytes;
pub use varve_engine::{
    Catalog, Change, ColumnType, Database, Datum, Error, Isolation, LockMode, Numeric, Options, Outcome,
    Partition, RowImage, RowRef, ScanIndex, ScanSpec, Table, TableDef, Transaction, Value, key,
};
/// Pages, log and recovery.
pub use varve_pager as pager;
/// Sessions, statements and their errors.
pub use varve_sql as sql;
