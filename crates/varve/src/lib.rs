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
//! session.run("insert into item values (1, 'lamp'), (2, 'chair')")?;
//!
//! let rows = session.query("select name from item where id = 2")?;
//! assert_eq!(rows[0].text("name"), Some("chair"));
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

pub mod cli;
pub mod config;
pub mod data_directory;
mod embedded;
mod error;
mod memory;
mod shell;
pub mod system_file;
mod tables_file;

pub use embedded::{Embedded, Row, SqlSession};
pub use error::OpenError;
pub use memory::default_pool_bytes;
pub use varve_engine::{
    Catalog, Change, ColumnType, Database, Datum, Error, Isolation, Numeric, Options, Outcome, RowRef,
    ScanIndex, ScanSpec, Table, TableDef, Transaction, Value,
};
/// Pages, log and recovery.
pub use varve_pager as pager;
/// Sessions, statements and their errors.
pub use varve_sql as sql;
