//! The API for a program that embeds Varve: opens a database in the program's own process.
//!
//! | file | part |
//! |---|---|
//! | `session.rs` | statements with and without parameters |
//! | `rows.rs` | an iterator over the rows of a query that runs meanwhile |
//! | `row.rs`, `convert.rs` | columns and parameters as Rust types |
//! | `transaction.rs` | the guard of a transaction |
//!
//! Invariants
//! 1. The directory stays locked until the database is closed.
//! 2. A database may be dropped without `close`. Nothing is lost, because the next open recovers.

mod convert;
mod row;
mod rows;
mod session;
mod transaction;

use std::path::Path;
use std::sync::Arc;

use varve_engine::Database;
use varve_pager::StartProgress;
use varve_query::{Queries, QueryOptions};
use varve_sql::{Session, SessionParams, SqlDatabase, SqlError, TemporaryLimit};

pub use convert::{ConversionError, FromSql, ToSql};
pub use row::{Row, RowIndex};
pub use rows::Rows;
pub use session::{IntoStatement, SqlSession, Statement};
pub use transaction::{SqlTransaction, TransactionBuilder};

use crate::config::Settings;
use crate::data_directory::DatabaseDevices;
use crate::error::OpenError;
use crate::memory::default_query_bytes;
use crate::system_file::SystemFile;

/// An open database.
pub struct Embedded {
    engine: Arc<Database>,
    sql: Arc<SqlDatabase>,
    home: DatabaseDevices,
}

impl Embedded {
    /// Opens the database in a directory with the default settings. Creates it if there is none.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(directory, &Settings::default())
    }

    /// Opens the database in a directory. Creates it if there is none.
    pub fn open_with(directory: impl AsRef<Path>, settings: &Settings) -> Result<Self, OpenError> {
        let limit = Arc::new(TemporaryLimit::new(settings.query.temporary_bytes));
        Self::open_limited(directory.as_ref(), settings, limit, None, Arc::default())
    }

    /// Does the same as `open_with`, for a program whose settings ALTER SYSTEM may change.
    pub fn open_with_system(
        directory: impl AsRef<Path>,
        settings: &Settings,
        system: SystemFile,
    ) -> Result<Self, OpenError> {
        Self::open_watched(directory, settings, system, Arc::default())
    }

    /// Does the same as `open_with_system`. Other threads can read in `progress` how far the start has come.
    pub fn open_watched(
        directory: impl AsRef<Path>,
        settings: &Settings,
        system: SystemFile,
        progress: Arc<StartProgress>,
    ) -> Result<Self, OpenError> {
        let limit = Arc::clone(system.temporary_limit());
        Self::open_limited(directory.as_ref(), settings, limit, Some(system.in_force(settings)), progress)
    }

    fn open_limited(
        directory: &Path,
        settings: &Settings,
        limit: Arc<TemporaryLimit>,
        system: Option<SystemFile>,
        progress: Arc<StartProgress>,
    ) -> Result<Self, OpenError> {
        let mut home = DatabaseDevices::open(directory, settings)?;
        home.warn_of_small_levels(settings);
        let mut options = home.options(settings)?;
        options.pager.progress = progress;
        let engine = Database::open(options)?;
        engine.set_undo_retention(settings.undo.retention());
        engine.set_io_trace(settings.trace.entries);
        engine.set_io_latencies(settings.trace.latencies);
        engine.set_rated_bytes(home.rated_bytes(settings));
        let memory = settings.query.memory_bytes.unwrap_or_else(default_query_bytes);
        let queries = QueryOptions {
            memory_bytes: usize::try_from(memory).unwrap_or(usize::MAX),
            threads: settings.query.threads,
            threads_rows: settings.query.threads_rows as u64,
            spill: home.spill(settings),
            emulated_spill: home.emulated_spill(settings)?,
            spill_accounting: home.directory(&settings.spaces.temporary).accounting().clone(),
            smart: settings.smart.options().map_err(OpenError::Smart)?,
            ..QueryOptions::default()
        };
        let queries = Queries::new(&queries).map_err(OpenError::Queries)?;
        let sql = SqlDatabase::new(engine.clone()).with_general(Arc::new(queries));
        let statements = system.as_ref().map_or_else(Arc::default, |system| Arc::clone(system.statements()));
        statements.set_max(settings.statements_limit());
        let sql = sql.with_temporary_limit(limit).with_statements(statements);
        sql.rename_first_role().map_err(OpenError::Queries)?;
        let sql = match system {
            Some(system) => sql.with_system(Arc::new(system.of(engine.clone()))),
            None => sql,
        };
        Ok(Self { engine, sql: Arc::new(sql), home })
    }

    /// Makes a new session. Sessions may run in different threads.
    pub fn session(&self) -> Result<SqlSession, SqlError> {
        let params = SessionParams {
            user: "postgres".to_owned(),
            database: "postgres".to_owned(),
            ..SessionParams::default()
        };
        Session::new(self.sql.clone(), params).map(SqlSession::new)
    }

    /// Returns the engine below SQL.
    pub fn engine(&self) -> &Arc<Database> {
        &self.engine
    }

    /// Returns the SQL database, which a server needs.
    pub fn sql(&self) -> &Arc<SqlDatabase> {
        &self.sql
    }

    /// Returns the devices and their properties.
    pub fn home(&self) -> &DatabaseDevices {
        &self.home
    }

    /// Writes everything and closes the database. All sessions and transactions should have ended. If a
    /// device is full, nothing is lost, because the next opening recovers.
    pub fn close(self) -> Result<(), OpenError> {
        self.engine.shutdown().map_err(OpenError::Close)?;
        self.home.close();
        Ok(())
    }
}
