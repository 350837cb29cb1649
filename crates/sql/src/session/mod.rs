//! The session of one client: it takes statements, and returns results and the state of the transaction.
//!
//! States of a session. Each edge is labelled with the function or command.
//!
//! ```text
//!             prepare, execute (no block)            sync, end of simple
//!     Idle ------------------------------> Implicit ---------------------> Idle
//!     Idle, Implicit --- BEGIN (command) ---> Open --- COMMIT, ROLLBACK ---> Idle
//!     Open --- after_error ---> Failed --- ROLLBACK TO ---> Open
//!                               Failed --- COMMIT, ROLLBACK ---> Idle
//! ```
//!
//! Invariants
//! 1. The engine's transaction begins with the first statement that needs one, not with BEGIN.
//! 2. After an error outside of a block, the implicit transaction is rolled back. After an error in a block,
//!    all changes since the last savepoint are undone at once. If there is no savepoint, all changes of the
//!    block are undone, and its locks are released.
//! 3. A statement's tag is sent only after the engine has acknowledged the commit. In the extended protocol
//!    the commit is made by `sync`.
//!
//! This module does not know sockets or message formats.

mod authorize;
mod base_backup;
mod block;
mod command;
mod copy;
mod create_as;
mod cursor;
mod damage;
mod database;
mod explain;
mod extension;
mod general;
mod guesses;
mod identity;
mod lock;
mod locked;
mod log;
mod maintain;
mod measured;
mod moment;
mod named;
mod owner;
mod panic;
mod path;
mod plan;
mod portals;
mod roles;
mod run;
mod tablespace;
mod view;
mod watch;
mod watchdog;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bumpalo::Bump;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use varve_engine::{
    BOOTSTRAP_NAME, BOOTSTRAP_NAME_BEFORE, BOOTSTRAP_ROLE, Catalog, Database, DatabaseDef, Datum, Isolation,
    ObjectId, POSTGRES_NAME, RoleDef, SavepointId, SessionLocks, TemporaryQuota, Transaction, WaitNotice,
};

use crate::activity::{Ender, Seat, State, Watched};
use crate::ast::AsOf;
use crate::cache::PlanCache;
use crate::encoding::Encoding;
use crate::error::{Result, SqlError, SqlState};
use crate::exec::reference::{Deferred, DeferredMark};
use crate::exec::{Facts, Scratch};
use crate::general::General;
use crate::oid::Oid;
use crate::path::Path;
use crate::prepared::{Portal, Prepared};
use crate::rights::Holder;
use crate::scram::Verifier;
use crate::sequence_memory::SequenceMemory;
use crate::settings::{self, InitialSource, Settings, is_role};
use crate::sink::{Progress, Severity, Sink};
use crate::statement_stats::StatementStats;
use crate::system_settings::{ProcessSettings, SystemSettings};
use crate::table_method;
use crate::time::{Reading, TimeForms};
use crate::utility::Level;
use authorize::Allowed;
use identity::Identity;
pub use measured::without_literals;
pub use watch::{SessionState, StatementState, TableState};
use watchdog::Watchdog;

/// The number of statements in the plan cache that all sessions of a database share.
const SHARED_PLANS: usize = 8192;
/// The number of statements in a session's own plan cache.
const OWN_PLANS: usize = 256;

/// The message of error 57014 after a time-out.
const TIMED_OUT: &str = "canceling statement due to statement timeout";

/// The plans that the sessions of a database share.
type SharedPlans = Arc<RwLock<PlanCache>>;

/// A server's databases as SQL sees them: the engine, and the data that sessions share.
pub struct SqlDatabase {
    engine: Arc<Database>,
    plans: Mutex<FxHashMap<ObjectId, SharedPlans>>,
    general: Option<Arc<dyn General>>,
    forced_general: bool,
    /// The value of `temp_file_limit` for new sessions.
    temporary_limit: Arc<TemporaryLimit>,
    process: ProcessSettings,
    watched: Arc<Watched>,
    statements: Arc<StatementStats>,
    /// The secret from which verifiers for missing roles are made, as long as the first role has no password.
    secret: [u8; 32],
}

impl SqlDatabase {
    /// Wraps an open engine.
    pub fn new(engine: Arc<Database>) -> SqlDatabase {
        let mut secret = [0; 32];
        let filled = getrandom::fill(&mut secret);
        assert!(filled.is_ok(), "the system gives no random bits: {filled:?}");
        let plans = Mutex::default();
        let (general, forced_general, temporary_limit) = (None, false, Arc::default());
        SqlDatabase {
            engine,
            plans,
            general,
            forced_general,
            temporary_limit,
            process: ProcessSettings::default(),
            watched: Arc::default(),
            statements: Arc::default(),
            secret,
        }
    }

    /// Adds a runner of general queries. Without one, general queries are refused (0A000).
    pub fn with_general(self, general: Arc<dyn General>) -> SqlDatabase {
        SqlDatabase { general: Some(general), ..self }
    }

    /// Adds a limit on the temporary files of each session. A superuser can change the limit with
    /// `temp_file_limit`.
    pub fn with_temporary_limit(self, limit: Arc<TemporaryLimit>) -> SqlDatabase {
        SqlDatabase { temporary_limit: limit, ..self }
    }

    /// Adds statistics of statements, whose limit the program can change. Without them, there are none.
    pub fn with_statements(self, statements: Arc<StatementStats>) -> SqlDatabase {
        SqlDatabase { statements, ..self }
    }

    /// Adds the settings of the process for ALTER SYSTEM. Without them, ALTER SYSTEM is refused (0A000).
    pub fn with_system(self, system: Arc<dyn SystemSettings>) -> SqlDatabase {
        SqlDatabase { process: ProcessSettings::of(system), ..self }
    }

    /// Adds a runner of general queries that gets every query that it can run. Tests use this to compare the
    /// runner with the executor.
    pub fn with_forced_general(self, general: Arc<dyn General>) -> SqlDatabase {
        SqlDatabase { forced_general: true, ..self.with_general(general) }
    }

    /// Returns the verifier for a role's password. If the role does not exist, or has no password, or its
    /// password has expired, the verifier accepts no password. So a client cannot find out which roles exist.
    pub fn verifier(&self, user: &str) -> Verifier {
        let catalog = self.engine.begin(Isolation::ReadCommitted).catalog();
        identity::verifier(&catalog, user).unwrap_or_else(|| {
            // The verifier is made from a secret that no client knows. If the first role has a password, its
            // verifier is this secret, so it stays the same after a restart.
            let kept = catalog.role_by_id(BOOTSTRAP_ROLE).and_then(|role| role.password.as_deref());
            Verifier::of_nobody(user, kept.map_or(&self.secret, str::as_bytes))
        })
    }

    /// Renames the first role of a database from an earlier version to the name that it has in new databases.
    /// Does nothing if the first role has a password, because clients log in under its old name, or if
    /// another role has the new name.
    pub fn rename_first_role(&self) -> Result<()> {
        let mut txn = self.engine.begin(Isolation::ReadCommitted);
        let catalog = txn.catalog();
        let is_old = |role: &RoleDef| role.name == BOOTSTRAP_NAME_BEFORE && role.password.is_none();
        if !catalog.role_by_id(BOOTSTRAP_ROLE).is_some_and(|role| is_old(role))
            || catalog.role(BOOTSTRAP_NAME).is_some()
        {
            return Ok(());
        }
        txn.alter_role(BOOTSTRAP_ROLE, |role| role.name = BOOTSTRAP_NAME.to_owned())?;
        Ok(txn.commit()?)
    }

    /// Returns the name of the first role.
    pub fn first_role(&self) -> String {
        let catalog = self.engine.begin(Isolation::ReadCommitted).catalog();
        catalog.role_by_id(BOOTSTRAP_ROLE).map_or_else(|| BOOTSTRAP_NAME.to_owned(), |role| role.name.clone())
    }

    /// Returns whether any role can prove a password and log in.
    pub fn has_login(&self) -> bool {
        let catalog = self.engine.begin(Isolation::ReadCommitted).catalog();
        let mut roles = catalog.roles().filter(|role| role.may_log_in);
        roles.any(|role| identity::verifier(&catalog, &role.name).is_some())
    }

    /// Returns the shared plans of a database.
    fn plans_of(&self, database: ObjectId) -> SharedPlans {
        let mut plans = self.plans.lock();
        let new = || Arc::new(RwLock::new(PlanCache::new(SHARED_PLANS)));
        Arc::clone(plans.entry(database).or_insert_with(new))
    }

    /// Removes the shared plans of a database that is about to be dropped.
    fn forget_plans(&self, database: ObjectId) {
        self.plans.lock().remove(&database);
    }

    /// Returns the state of all sessions, and the results of ANALYZE.
    pub(crate) fn watched(&self) -> &Arc<Watched> {
        &self.watched
    }

    /// Returns the statistics of statements.
    pub(crate) fn statements(&self) -> &Arc<StatementStats> {
        &self.statements
    }

    /// Returns the storage engine.
    pub fn engine(&self) -> &Arc<Database> {
        &self.engine
    }
}

/// The largest size of a session's temporary files, in bytes. It may change. A session reads it when it
/// begins.
#[derive(Debug)]
pub struct TemporaryLimit(AtomicU64);

impl TemporaryLimit {
    /// Returns a limit in bytes. `None` means no limit.
    pub fn new(bytes: Option<u64>) -> TemporaryLimit {
        TemporaryLimit(AtomicU64::new(bytes.unwrap_or(u64::MAX)))
    }

    /// Changes the limit for sessions that begin from now on.
    pub fn set(&self, bytes: Option<u64>) {
        self.0.store(bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the current limit.
    pub fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|bytes| *bytes != u64::MAX)
    }
}

impl Default for TemporaryLimit {
    fn default() -> Self {
        TemporaryLimit::new(None)
    }
}

/// The parameters of a client's start-up packet.
#[derive(Debug, Clone)]
pub struct SessionParams {
    /// Role name.
    pub user: String,
    /// Database name.
    pub database: String,
    /// The verifier that has accepted the client's password. `None` if the server asks for no password.
    pub proved: Option<Verifier>,
    /// The result of `pg_backend_pid()`, which is the process id of the cancel key.
    pub process_id: i32,
    /// The address of the client, if there is a connection.
    pub peer: Option<SocketAddr>,
    /// Other start-up parameters and `-c` options, as pairs of name and value. They are applied like SET.
    pub settings: Vec<(String, String)>,
}

impl Default for SessionParams {
    /// Returns the parameters of a session without a role name, in the database that every server has.
    fn default() -> Self {
        SessionParams {
            user: String::new(),
            database: POSTGRES_NAME.to_owned(),
            proved: None,
            process_id: 0,
            peer: None,
            settings: Vec::new(),
        }
    }
}

/// Lets another thread cancel the running statement.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Asks the running statement, if any, to end with 57014.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether there was a cancel request that the session has not handled yet.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The state of a session's transaction block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    /// No transaction.
    Idle,
    /// A transaction that the end of the message sequence commits.
    Implicit,
    /// A transaction block between BEGIN and COMMIT.
    Open,
    /// A transaction block after an error.
    Failed,
}

/// A savepoint of the block.
struct Savepoint {
    name: String,
    id: SavepointId,
    deferred: DeferredMark,
    /// The mark that `Settings::mark` has returned.
    settings: usize,
    read_only: bool,
}

/// The settings that new transactions begin with.
#[derive(Debug, Clone)]
struct Defaults {
    level: Level,
    read_only: bool,
    deferrable: bool,
    /// The moment that new transactions read, or `None` for the present.
    as_of: Option<AsOf>,
    lock_timeout: Option<Duration>,
    statement_timeout: Option<Duration>,
    silence: Option<Duration>,
    silence_in_block: Option<Duration>,
    probing: Probing,
}

/// Keepalive settings of the client's socket. 0 means the system's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Probing {
    /// Seconds of silence until the first probe (`tcp_keepalives_idle`).
    pub idle_s: u32,
    /// Seconds between probes (`tcp_keepalives_interval`).
    pub interval_s: u32,
    /// Unanswered probes after which the client is gone (`tcp_keepalives_count`).
    pub count: u32,
    /// Milliseconds that sent data may stay unacknowledged (`tcp_user_timeout`).
    pub unanswered_ms: u32,
}

/// One client's session. Dropping it rolls back an open transaction.
pub struct Session {
    shared: Arc<SqlDatabase>,
    /// The shared plans of the session's database.
    shared_plans: SharedPlans,
    block: Block,
    txn: Option<Transaction>,
    /// The session's identity for locks. The field follows `txn`, so that the transaction is dropped first.
    locks: Arc<SessionLocks>,
    /// The catalog that the transaction sees, if it was needed already.
    catalog: Option<Arc<Catalog>>,
    /// The foreign key checks that wait for COMMIT.
    deferred: Deferred,
    savepoints: Vec<Savepoint>,
    level: Level,
    read_only: bool,
    deferrable: bool,
    /// The setting and the catalog version from which the path in `facts` was made.
    path: path::Made,
    /// Whether the transaction has changed the catalog. Then its plans are not shared.
    defines: bool,
    settings: Settings,
    /// The kinds of the session's statements that are written to the server's log.
    logging: log::Logging,
    /// Logs long waits for locks, if the settings ask for it.
    wait_notice: Option<Arc<WaitNotice>>,
    /// Settings without effect for which the client has already got a notice.
    told_without_effect: BTreeSet<&'static str>,
    settings_changed: bool,
    defaults: Defaults,
    facts: Facts,
    identity: Identity,
    allowed: Allowed,
    scratch: Scratch,
    /// The values of literals that were replaced by parameters.
    literal_arena: Bump,
    sequences: Arc<SequenceMemory>,
    cursors: Vec<cursor::OpenCursor>,
    portals: portals::Portals,
    statements: named::Statements,
    /// The text of the client's message whose DECLARE or PREPARE runs.
    message: Box<str>,
    plans: PlanCache,
    notices: Vec<(Severity, SqlError)>,
    /// The watchdog, since the first statement with a time-out.
    watchdog: Option<Watchdog>,
    /// The session's entry that other sessions see.
    seat: Seat,
    /// The statistics of the session's statements.
    measuring: measured::Measuring,
    /// The session's quota for temporary files.
    temporary: Arc<TemporaryQuota>,
    /// The measurements of the running statement, if EXPLAIN ANALYZE runs it.
    analysis: Option<Box<explain::Analysis>>,
}

/// Returns the settings of a new session. First come the facts about it, then the settings of its database,
/// then those of its start-up packet.
fn first_settings(
    shared: &SqlDatabase,
    database: &DatabaseDef,
    params: &SessionParams,
    user: &str,
    is_superuser: bool,
) -> Result<Settings> {
    let mut settings = Settings::default();
    settings.set_fact("session_authorization", user);
    if !is_superuser {
        settings.set_fact("is_superuser", "off");
    }
    if let Some(bytes) = shared.temporary_limit.get() {
        settings.set_fact("temp_file_limit", &(bytes >> 10).to_string());
    }
    if let Some(general) = &shared.general {
        // Until the setting is changed, one query may use the memory that all queries have together.
        settings.set_fact("work_mem", &(general.memory_bytes() >> 10).to_string());
    }
    for name in ["log_checkpoints", "log_connections", "log_disconnections"] {
        if let Some(setting) = shared.process.find(name) {
            settings.set_fact(name, &setting.value);
        }
    }
    for name in ["log_lock_waits", "log_min_duration_statement", "log_temp_files"] {
        let setting = shared.process.find(name);
        if let Some(setting) = setting.filter(|setting| setting.value != setting.default) {
            settings.set_initial(name, &setting.value, InitialSource::File)?;
        }
    }
    let method = shared.process.find(table_method::SETTING);
    if let Some(setting) = method.filter(|setting| setting.value != setting.default) {
        settings.set_initial(table_method::SETTING, &setting.value, InitialSource::File)?;
    }
    for (name, value) in &database.settings {
        settings.set_initial(name, value, InitialSource::Database)?;
    }
    for (name, value) in &params.settings {
        if is_role(&name.to_ascii_lowercase()) {
            return Err(SqlError::unsupported(format!("{name} in a start-up packet")));
        }
        if !is_superuser {
            settings::check_for_all(name)?;
        }
        settings.set_initial(name, value, InitialSource::Client)?;
    }
    Ok(settings)
}

/// Returns the first state of a session's random numbers.
fn seed(process_id: i32) -> u64 {
    let seed = crate::eval::func::clock_us() as u64 ^ (process_id as u64) << 32;
    (seed ^ u64::from(std::process::id())).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

impl Session {
    /// Starts a session. The error is 28000 if the role may not log in, and 28P01 if it has changed since it
    /// was authenticated. For a wrong start-up setting the error is 42704, 22023 or 0A000. `database::enter`
    /// decides who may use a database.
    pub fn new(shared: Arc<SqlDatabase>, params: SessionParams) -> Result<Session> {
        let catalog = shared.engine.begin(Isolation::ReadCommitted).catalog();
        let identity = Identity::of_login(&catalog, &params.user, params.proved.as_ref())?;
        let (who, user) = (identity.who(), identity.name().to_owned());
        let cancel = Arc::<AtomicBool>::default();
        let (database, seat) = database::enter(&shared, &catalog, &params, &identity, Arc::clone(&cancel))?;
        let is_superuser = Holder::of(&catalog, who).is_superuser();
        let settings = first_settings(&shared, &database, &params, &user, is_superuser)?;
        let facts = Facts {
            session_user: user.clone(),
            user,
            who,
            session_who: who,
            path: Path::public().clone(),
            database: params.database,
            database_id: database.id,
            process_id: params.process_id,
            read_only: false,
            now_us: Cell::new(None),
            forms: settings.forms(),
            encoding: settings.encoding(),
            table_method: settings.table_method(),
            default_tablespace: settings.get("default_tablespace").unwrap_or_default(),
            lock_timeout: block::defaults(&settings).lock_timeout,
            random: Cell::new(seed(params.process_id)),
            cancel,
            world: None,
        };
        seat.rename(&settings.get("application_name").unwrap_or_default());
        let locks = Arc::new(shared.engine.session_locks(facts.process_id.cast_unsigned()));
        Ok(Session {
            shared_plans: shared.plans_of(database.id),
            shared,
            block: Block::Idle,
            txn: None,
            locks,
            catalog: None,
            path: path::Made::default(),
            deferred: Deferred::default(),
            savepoints: Vec::new(),
            level: Level::ReadCommitted,
            read_only: false,
            deferrable: false,
            defines: false,
            defaults: block::defaults(&settings),
            logging: log::Logging::of(&settings),
            wait_notice: None,
            told_without_effect: BTreeSet::new(),
            settings,
            settings_changed: true,
            facts,
            identity,
            allowed: Allowed::default(),
            scratch: Scratch::default(),
            literal_arena: Bump::new(),
            sequences: Arc::default(),
            cursors: Vec::new(),
            portals: portals::Portals::default(),
            statements: Arc::default(),
            message: Box::default(),
            plans: PlanCache::new(OWN_PLANS),
            notices: Vec::new(),
            watchdog: None,
            seat,
            measuring: measured::Measuring::default(),
            temporary: Arc::default(),
            analysis: None,
        }
        .with_wait_notice())
    }

    /// Parses and binds one statement. `types[i]` is the declared type OID of `$i+1`, or 0. After an error
    /// the session is already in its failed state, until `sync`.
    pub fn prepare(&mut self, sql: &str, types: &[Oid]) -> Result<Arc<Prepared>> {
        self.enter_implicit();
        let prepared = self.caught(sql, |session| session.prepare_current(sql, types));
        self.log_failure(sql, &prepared);
        if prepared.is_err() {
            self.after_error();
        }
        prepared
    }

    /// Runs the text of a simple Query. Its statements are split at `;`, and run in one implicit transaction
    /// if no block is open. After an error the transaction state is already the right one. The caller sends
    /// ErrorResponse and ReadyForQuery.
    pub fn simple(&mut self, sql: &str, sink: &mut dyn Sink) -> Result<()> {
        self.seat.begin(sql);
        self.portals.end_running();
        self.arm();
        let began = self.log_statement("statement", sql);
        let result = self.caught(sql, |session| session.run_text(sql, sink));
        let result = self.disarm(result);
        self.log_end("statement", sql, began, &result);
        if result.is_err() {
            self.after_error();
        }
        self.flush_notices(sink);
        self.rest();
        result
    }

    /// Runs a bound statement (the extended protocol's Execute). `params` have the types that
    /// `param_column_type` returns, or are NULL. `max_rows` 0 means all. On an error the session is already
    /// in its failed state until `sync`.
    pub fn execute(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Datum<'_>],
        portal: &mut Portal,
        max_rows: usize,
        sink: &mut dyn Sink,
    ) -> Result<Progress> {
        self.seat.begin(prepared.sql());
        self.arm();
        self.enter_implicit();
        self.portals.begin(portal, prepared);
        let began = self.log_statement("execute", prepared.sql());
        let result = self
            .caught(prepared.sql(), |session| session.run_portal(prepared, params, portal, max_rows, sink));
        let mut result = self.disarm(result);
        let is_refusal = result.as_ref().is_err_and(|e| e.sqlstate == SqlState::ENOUGH_ROWS);
        if is_refusal && prepared.is_query() && sink.has_enough() {
            self.scratch.end_statement();
            result = Ok(Progress::Suspended);
        }
        self.log_end("execute", prepared.sql(), began, &result);
        if result.is_err() {
            self.after_error();
        }
        if !self.notices.is_empty() {
            self.flush_notices(sink);
        }
        self.rest();
        result
    }

    /// Does the work of the extended protocol's Sync: ends an implicit transaction. An error here is an error
    /// of the commit.
    pub fn sync(&mut self) -> Result<()> {
        let committed = match self.block {
            Block::Implicit => self.caught("(commit at Sync)", Session::commit),
            _ => Ok(()),
        };
        self.log_failure("(commit at Sync)", &committed);
        if self.block == Block::Implicit {
            // The commit has failed early.
            self.after_error();
        }
        self.rest();
        committed
    }

    /// Shows other sessions that a statement has ended. Another thread may make the next call.
    fn rest(&self) {
        if let Some(txn) = &self.txn {
            txn.hand_over();
        }
        self.seat.rest(match self.block {
            Block::Idle => State::Idle,
            // Until Sync the session stays active, which is the state that it got when its statement began.
            Block::Implicit => return,
            Block::Open => State::InBlock,
            Block::Failed => State::Failed,
        });
    }

    /// Reports an error of the connection itself (such as a bad Bind) to the session. An open block becomes
    /// failed. An implicit transaction is rolled back.
    pub fn fail(&mut self) {
        self.after_error();
    }

    /// Returns the byte of ReadyForQuery: `I` idle, `T` in a block, `E` in a failed block.
    pub fn transaction_status(&self) -> u8 {
        match self.block {
            Block::Idle | Block::Implicit => b'I',
            Block::Open => b'T',
            Block::Failed => b'E',
        }
    }

    /// Returns the current value of a setting, as SHOW prints it.
    pub fn setting(&self, name: &str) -> Option<String> {
        self.settings.get(name).ok()
    }

    /// Returns whether `take_reports` or `take_notices` has something to return.
    pub fn has_news(&self) -> bool {
        self.settings_changed || !self.notices.is_empty()
    }

    /// Returns the settings to report to the client by ParameterStatus. The first call returns all of them,
    /// later calls those that have changed since the last call.
    pub fn take_reports(&mut self) -> Vec<(&'static str, String)> {
        if !std::mem::take(&mut self.settings_changed) {
            return Vec::new();
        }
        self.settings.reports()
    }

    /// Returns warnings from calls that had no sink (`prepare`, `sync`).
    pub fn take_notices(&mut self) -> Vec<(Severity, SqlError)> {
        std::mem::take(&mut self.notices)
    }

    /// Sets a read-only value that SHOW shows to clients.
    pub fn set_fact(&mut self, name: &str, value: &str) {
        self.settings.set_fact(name, value);
    }

    /// Returns the time for which the client may be silent in the current state, and whether the state is an
    /// open transaction.
    pub fn silence_limit(&self) -> Option<(Duration, bool)> {
        let in_block = self.in_block();
        let limit = if in_block { self.defaults.silence_in_block } else { self.defaults.silence };
        limit.map(|limit| (limit, in_block))
    }

    /// Returns the keepalive settings for the client's socket.
    pub fn probing(&self) -> Probing {
        self.defaults.probing
    }

    /// Returns a handle by which another thread cancels the running statement.
    pub fn cancel_token(&self) -> CancelToken {
        CancelToken(self.facts.cancel.clone())
    }

    /// Sets the function by which `pg_terminate_backend` ends this session. It is called once, in another
    /// session's thread.
    pub fn set_ender(&self, ender: Ender) {
        self.seat.set_ender(ender);
    }

    /// Returns the session's time zone and styles of dates and intervals, for text results.
    pub fn forms(&self) -> &TimeForms {
        &self.facts.forms
    }

    /// Returns the settings for reading text parameters.
    pub fn reading(&self) -> Reading<'_> {
        self.facts.reading()
    }

    /// Returns the client's encoding.
    pub fn client_encoding(&self) -> Encoding {
        self.facts.encoding
    }

    /// Drops an old cancel request, and starts the clock of `statement_timeout`, when a statement begins.
    fn arm(&mut self) {
        // A panic may have ended a measured statement.
        self.measuring.is_active = false;
        self.seat.forget_cancel();
        self.start_watchdog();
    }

    /// Restarts the clock with the current `statement_timeout`, when the next statement of a message begins.
    /// A cancel request is kept, because it is for the whole message.
    fn arm_next(&mut self) -> Result<()> {
        // The time of the previous statement may have ended at the same moment as the statement.
        if self.watchdog.as_ref().is_some_and(Watchdog::stop) {
            return Err(SqlError::new(SqlState::QUERY_CANCELED, TIMED_OUT));
        }
        self.start_watchdog();
        Ok(())
    }

    fn start_watchdog(&mut self) {
        if let Some(timeout) = self.defaults.statement_timeout {
            let watchdog = self.watchdog.get_or_insert_with(|| Watchdog::new(self.facts.cancel.clone()));
            watchdog.start(timeout);
        }
    }

    /// Stops the clock when a statement has ended. After a time-out, the error gets another message than
    /// after a cancel request.
    fn disarm<T>(&mut self, result: Result<T>) -> Result<T> {
        let result = result.and_then(|done| self.still_sound().map(|()| done));
        let result = result.map_err(|error| self.of_damaged_page(error));
        let Some(watchdog) = &mut self.watchdog else { return result };
        let expired = watchdog.stop();
        result.map_err(|e| match e.sqlstate {
            SqlState::QUERY_CANCELED if expired => SqlError { message: TIMED_OUT.into(), ..e },
            _ => e,
        })
    }

    fn flush_notices(&mut self, sink: &mut dyn Sink) {
        for (severity, notice) in self.notices.drain(..) {
            sink.notice(severity, &notice);
        }
    }

    fn warn(&mut self, state: SqlState, message: &str) {
        self.notices.push((Severity::Warning, SqlError::new(state, message)));
    }
}
