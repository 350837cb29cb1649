//! The list of sessions, with functions to end one, and the row counts of ANALYZE. `pg_stat_activity`,
//! `pg_terminate_backend` and `pg_stat_user_tables` use them.
//!
//! Invariants
//! 1. A session is in the list from its start to its end.
//! 2. Nothing here is stored: counters start when the database is opened.
//!
//! This module does not know the inside of sessions or how rows are counted.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex, RwLock};
use rustc_hash::FxHashMap;
use varve_engine::{DatabaseStats, LogStats, ObjectId, PagerStats, TableId};

use crate::eval::func::clock_us;

/// The number of bytes of a statement that are shown, as in PostgreSQL (track_activity_query_size).
const QUERY_BYTES_MAX: usize = 1023;

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// Between statements, outside of a transaction block.
    #[default]
    Idle,
    /// Running a statement.
    Active,
    /// Between statements of a transaction block.
    InBlock,
    /// In a transaction block after an error.
    Failed,
}

impl State {
    /// Returns the word that PostgreSQL shows.
    pub fn word(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Active => "active",
            State::InBlock => "idle in transaction",
            State::Failed => "idle in transaction (aborted)",
        }
    }
}

/// The part of a session's activity that changes with each statement. Times are microseconds since 2000-01-01
/// UTC.
#[derive(Debug, Clone, Default)]
pub struct Now {
    /// The setting `application_name`.
    pub application_name: String,
    /// The state.
    pub state: State,
    /// The statement that runs or ran last.
    pub query: String,
    /// The time when the statement began.
    pub query_start_us: Option<i64>,
    /// The time when the transaction began.
    pub transaction_start_us: Option<i64>,
    /// The time when `state` changed.
    pub state_change_us: i64,
}

/// Wakes a session that must end.
pub type Ender = Box<dyn Fn() + Send + Sync>;

/// One session.
pub struct Activity {
    /// `pg_backend_pid()`
    pub process_id: i32,
    /// The role that logged in.
    pub user: String,
    /// The address of the client, if it is connected over a network.
    pub peer: Option<SocketAddr>,
    /// The database of the session.
    pub database: ObjectId,
    /// The time when the session began.
    pub start_us: i64,
    now: Mutex<Now>,
    /// A flag that ends the running statement.
    cancel: Arc<AtomicBool>,
    /// Whether the session must end.
    is_ending: AtomicBool,
    ender: OnceLock<Ender>,
}

impl std::fmt::Debug for Activity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session {} of {}", self.process_id, self.user)
    }
}

impl Activity {
    /// Cancels the running statement, if there is one.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::SeqCst);
    }

    /// Removes an old request to cancel, but not one to end the session. The session calls this when a
    /// statement begins.
    pub fn forget_cancel(&self) {
        self.cancel.store(false, Ordering::SeqCst);
        if self.is_ending.load(Ordering::SeqCst) {
            self.cancel();
        }
    }

    /// Ends the session. Returns false if it has no connection that could be ended.
    pub fn end(&self) -> bool {
        let Some(ender) = self.ender.get() else { return false };
        self.is_ending.store(true, Ordering::SeqCst);
        self.cancel();
        ender();
        true
    }

    /// Sets the function that wakes the session when it must end. This function is called once.
    pub fn set_ender(&self, ender: Ender) {
        let told = self.ender.set(ender);
        debug_assert!(told.is_ok(), "the end of {self:?} is told twice");
    }

    /// Returns the present activity.
    pub fn now(&self) -> Now {
        self.now.lock().clone()
    }

    /// Records the beginning of a statement.
    pub fn begin(&self, sql: &str) {
        let mut now = self.now.lock();
        let clock = clock_us();
        if now.state == State::Idle {
            now.transaction_start_us = Some(clock);
        }
        now.state = State::Active;
        now.query.clear();
        now.query.push_str(&sql[..sql.floor_char_boundary(QUERY_BYTES_MAX)]);
        now.query_start_us = Some(clock);
        now.state_change_us = clock;
    }

    /// Records the end of a statement.
    pub fn rest(&self, state: State) {
        let mut now = self.now.lock();
        if now.state != state {
            now.state = state;
            now.state_change_us = clock_us();
        }
        if state == State::Idle {
            now.transaction_start_us = None;
        }
    }

    /// Records a change of the setting `application_name`.
    pub fn rename(&self, application_name: &str) {
        let mut now = self.now.lock();
        if now.application_name != application_name {
            application_name.clone_into(&mut now.application_name);
        }
    }
}

/// The result of ANALYZE for a table.
#[derive(Debug, Clone, Copy)]
pub struct Count {
    /// The number of rows.
    pub rows: u64,
    /// The time when ANALYZE ran last.
    pub at_us: i64,
    /// The number of times that ANALYZE ran.
    pub times: i64,
}

/// The sessions, and the databases that are closed for new sessions.
#[derive(Debug, Default)]
struct Sessions {
    all: Vec<Arc<Activity>>,
    closed: Vec<ObjectId>,
    /// The number of sessions that have entered each database.
    entered: FxHashMap<ObjectId, u64>,
}

/// Counters at their last reset, which the views subtract.
#[derive(Debug, Default)]
struct Resets {
    database: Option<(DatabaseStats, i64)>,
    writer: Option<(PagerStats, i64)>,
    log: Option<(LogStats, i64)>,
}

/// All sessions of a server, and its counts.
#[derive(Debug)]
pub struct Watched {
    /// The time when the database was opened.
    start_us: i64,
    sessions: Mutex<Sessions>,
    /// Signals that a database is open again, or dropped.
    reopened: Condvar,
    counts: RwLock<FxHashMap<TableId, Count>>,
    resets: Mutex<Resets>,
}

impl Default for Watched {
    fn default() -> Watched {
        Watched {
            start_us: clock_us(),
            sessions: Mutex::default(),
            reopened: Condvar::new(),
            counts: RwLock::default(),
            resets: Mutex::default(),
        }
    }
}

impl Watched {
    /// Returns the time when the database was opened.
    pub fn start_us(&self) -> i64 {
        self.start_us
    }

    /// Adds a session. While its database is closed, the call waits.
    pub fn enter(
        self: &Arc<Self>,
        process_id: i32,
        (user, peer, database): (&str, Option<SocketAddr>, ObjectId),
        cancel: Arc<AtomicBool>,
    ) -> Seat {
        let start_us = clock_us();
        let now = Mutex::new(Now { state_change_us: start_us, ..Now::default() });
        let activity = Arc::new(Activity {
            process_id,
            user: user.to_owned(),
            peer,
            database,
            start_us,
            now,
            cancel,
            is_ending: AtomicBool::new(false),
            ender: OnceLock::new(),
        });
        let mut sessions = self.sessions.lock();
        while sessions.closed.contains(&database) {
            self.reopened.wait(&mut sessions);
        }
        sessions.all.push(Arc::clone(&activity));
        *sessions.entered.entry(database).or_default() += 1;
        drop(sessions);
        Seat { watched: Arc::clone(self), activity }
    }

    /// Returns all sessions, in the order in which they started.
    pub fn sessions(&self) -> Vec<Arc<Activity>> {
        self.sessions.lock().all.clone()
    }

    /// Returns the number of sessions that have entered a database since it was opened.
    pub fn entered(&self, database: ObjectId) -> u64 {
        self.sessions.lock().entered.get(&database).copied().unwrap_or(0)
    }

    /// Returns the sessions of a database.
    fn sessions_in(&self, database: ObjectId) -> Vec<Arc<Activity>> {
        self.sessions.lock().all.iter().filter(|session| session.database == database).cloned().collect()
    }

    /// Closes a database for new sessions while the guard exists. Waits for another guard of this database.
    pub fn close(self: &Arc<Self>, database: ObjectId) -> Closing {
        let mut sessions = self.sessions.lock();
        while sessions.closed.contains(&database) {
            self.reopened.wait(&mut sessions);
        }
        sessions.closed.push(database);
        drop(sessions);
        Closing { watched: Arc::clone(self), database }
    }

    /// Sets the counters of databases to zero.
    pub fn reset_database(&self, now: DatabaseStats) {
        self.resets.lock().database = Some((now, clock_us()));
    }

    /// Sets the counters of checkpoints and page writers to zero.
    pub fn reset_writer(&self, now: PagerStats) {
        self.resets.lock().writer = Some((now, clock_us()));
    }

    /// Sets the counters of the redo log to zero.
    pub fn reset_log(&self, now: LogStats) {
        self.resets.lock().log = Some((now, clock_us()));
    }

    /// Returns the counters of databases at their last reset, and its time.
    pub fn database_base(&self) -> (DatabaseStats, i64) {
        self.resets.lock().database.clone().unwrap_or((DatabaseStats::default(), self.start_us))
    }

    /// Returns the counters of checkpoints and page writers at their last reset, and its time.
    pub fn writer_base(&self) -> (PagerStats, i64) {
        self.resets.lock().writer.clone().unwrap_or((PagerStats::default(), self.start_us))
    }

    /// Returns the counters of the redo log at their last reset, and its time.
    pub fn log_base(&self) -> (LogStats, i64) {
        self.resets.lock().log.unwrap_or((LogStats::default(), self.start_us))
    }

    /// Stores the result of ANALYZE.
    pub fn counted(&self, table: TableId, rows: u64) {
        let mut counts = self.counts.write();
        let times = counts.get(&table).map_or(0, |c| c.times) + 1;
        counts.insert(table, Count { rows, at_us: clock_us(), times });
    }

    /// Returns the result of ANALYZE for a table, if ANALYZE has counted it.
    pub fn count(&self, table: TableId) -> Option<Count> {
        self.counts.read().get(&table).copied()
    }
}

/// The guard of a database that is closed for new sessions.
#[derive(Debug)]
pub struct Closing {
    watched: Arc<Watched>,
    database: ObjectId,
}

impl Closing {
    /// Returns the sessions that are still in the database.
    pub fn sessions(&self) -> Vec<Arc<Activity>> {
        self.watched.sessions_in(self.database)
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.watched.sessions.lock().closed.retain(|database| *database != self.database);
        self.watched.reopened.notify_all();
    }
}

/// A session's place in the list.
#[derive(Debug)]
pub struct Seat {
    watched: Arc<Watched>,
    activity: Arc<Activity>,
}

impl Seat {
    /// Returns the session's activity.
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Returns the number of sessions in a database.
    pub fn sessions_in(&self, database: ObjectId) -> usize {
        self.watched.sessions_in(database).len()
    }
}

impl std::ops::Deref for Seat {
    type Target = Activity;

    fn deref(&self) -> &Activity {
        &self.activity
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.watched.sessions.lock().all.retain(|a| !Arc::ptr_eq(a, &self.activity));
    }
}
