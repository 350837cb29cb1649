//! The guard of a transaction, which rolls back unless it is committed.

use std::ops::{Deref, DerefMut};

use varve_engine::Isolation;
use varve_sql::{SqlError, SqlState};

use super::session::SqlSession;

/// A transaction of a session. All calls of the session are possible through the guard.
///
/// If the guard is dropped, the transaction is rolled back, for example when `?` returns early.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let db = varve::Embedded::open(directory.path())?;
/// # let mut session = db.session()?;
/// session.run("create table account (id integer primary key, amount integer check (amount >= 0))")?;
/// session.run("insert into account values (1, 10), (2, 0)")?;
///
/// let mut transaction = session.transaction()?;
/// transaction.execute("update account set amount = amount - $1 where id = 1", &[&4])?;
/// transaction.execute("update account set amount = amount + $1 where id = 2", &[&4])?;
/// transaction.commit()?;
///
/// let mut transaction = session.transaction()?;
/// transaction.execute("delete from account", &[])?;
/// drop(transaction);
/// let row = session.query_one("select sum(amount) from account", &[])?;
/// assert_eq!(row.get::<i64>("sum")?, 10);
/// # Ok(())
/// # }
/// ```
pub struct SqlTransaction<'s> {
    session: &'s mut SqlSession,
    /// The number of transactions around this one. If it is not 0, this one is a savepoint.
    depth: u32,
    has_ended: bool,
}

/// Options of a new transaction.
pub struct TransactionBuilder<'s> {
    session: &'s mut SqlSession,
    isolation: Option<Isolation>,
    read_only: bool,
}

impl<'s> TransactionBuilder<'s> {
    pub(super) fn new(session: &'s mut SqlSession) -> TransactionBuilder<'s> {
        TransactionBuilder { session, isolation: None, read_only: false }
    }

    /// Sets the isolation level. The default is the setting `default_transaction_isolation`, READ COMMITTED.
    #[must_use]
    pub fn isolation_level(self, isolation: Isolation) -> Self {
        TransactionBuilder { isolation: Some(isolation), ..self }
    }

    /// Sets whether the transaction refuses changes (25006).
    #[must_use]
    pub fn read_only(self, read_only: bool) -> Self {
        TransactionBuilder { read_only, ..self }
    }

    /// Begins the transaction. The error is 25001 if one is open already.
    pub fn start(self) -> Result<SqlTransaction<'s>, SqlError> {
        if self.session.ready().transaction_status() != IDLE {
            let message = "a transaction is open already in this session";
            return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message)
                .with_hint("End it first, or call `transaction` of its guard, which makes a savepoint."));
        }
        let level = match self.isolation {
            None => "",
            Some(Isolation::ReadCommitted) => " isolation level read committed",
            Some(Isolation::RepeatableRead) => " isolation level repeatable read",
            Some(Isolation::Serializable) => " isolation level serializable",
        };
        let access = if self.read_only { " read only" } else { "" };
        self.session.run(&format!("begin{level}{access}"))?;
        Ok(SqlTransaction { session: self.session, depth: 0, has_ended: false })
    }
}

/// `Session::transaction_status` without a transaction, and after an error in one.
const IDLE: u8 = b'I';
const FAILED: u8 = b'E';

impl SqlTransaction<'_> {
    /// Commits. When it returns `Ok`, the changes are durable. If a statement of the transaction has failed,
    /// the transaction is rolled back, and the error is 25P02. For a nested transaction, its changes become
    /// part of the one around it.
    pub fn commit(mut self) -> Result<(), SqlError> {
        let status = self.session.ready().transaction_status();
        if status == IDLE {
            self.has_ended = true;
            let message = "the transaction has ended already";
            return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message).with_hint(
                "A statement such as COMMIT or ROLLBACK has ended it. Use the methods of the guard.",
            ));
        }
        if status == FAILED {
            self.undo()?;
            let message = "the transaction was rolled back, because a statement in it failed";
            return Err(SqlError::new(SqlState::IN_FAILED_TRANSACTION, message));
        }
        self.has_ended = true;
        let sql = if self.depth == 0 { "commit".to_owned() } else { format!("release {}", self.savepoint()) };
        self.session.run(&sql).map(drop)
    }

    /// Rolls back.
    pub fn rollback(mut self) -> Result<(), SqlError> {
        self.undo()
    }

    /// Begins a nested transaction: a savepoint. If it is rolled back, the changes before it stay.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let db = varve::Embedded::open(directory.path())?;
    /// # let mut session = db.session()?;
    /// session.run("create table item (id integer primary key)")?;
    /// let mut transaction = session.transaction()?;
    /// transaction.execute("insert into item values (1)", &[])?;
    /// let mut nested = transaction.transaction()?;
    /// assert!(nested.execute("insert into item values (1)", &[]).is_err());
    /// nested.rollback()?;
    /// transaction.commit()?;
    /// assert_eq!(session.query("select * from item")?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction(&mut self) -> Result<SqlTransaction<'_>, SqlError> {
        let nested = SqlTransaction { session: &mut *self.session, depth: self.depth + 1, has_ended: true };
        nested.begun()
    }

    fn begun(mut self) -> Result<Self, SqlError> {
        let sql = format!("savepoint {}", self.savepoint());
        self.session.run(&sql)?;
        self.has_ended = false;
        Ok(self)
    }

    fn savepoint(&self) -> String {
        format!("varve_{}", self.depth)
    }

    fn undo(&mut self) -> Result<(), SqlError> {
        self.has_ended = true;
        if self.session.ready().transaction_status() == IDLE {
            return Ok(());
        }
        let name = self.savepoint();
        let sql = match self.depth {
            0 => "rollback".to_owned(),
            _ => format!("rollback to {name}; release {name}"),
        };
        self.session.run(&sql).map(drop)
    }
}

impl Deref for SqlTransaction<'_> {
    type Target = SqlSession;

    fn deref(&self) -> &SqlSession {
        self.session
    }
}

impl DerefMut for SqlTransaction<'_> {
    fn deref_mut(&mut self) -> &mut SqlSession {
        self.session
    }
}

impl Drop for SqlTransaction<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            // If the rollback fails, the engine's health has the error, and the session refuses statements.
            let _ = self.undo();
        }
    }
}
