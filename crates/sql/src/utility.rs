//! Converts commands about the session, transactions and maintenance from the tree of PostgreSQL's parser.
//!
//! Invariants
//! 1. Each statement of PostgreSQL's grammar is converted here or in `parse`, or refused by its name (0A000,
//!    `tag`).
//!
//! This module does not know what the commands do (`session`).

pub mod base_backup;
mod copy;
pub mod cursor;
pub mod database;
pub mod explain;
mod inner;
pub mod lock;
pub mod maintain;
pub mod owner;
pub mod role;
mod setting;
pub mod tablespace;
pub(crate) mod tag;
mod transaction;
pub mod view;

use crate::ast;
use pg_query::NodeEnum;
use pg_query::protobuf::{DiscardMode, DiscardStmt, ObjectType};

use crate::copy::Copy;
use crate::error::{Result, SqlError};
use crate::parse::postgres::node::{self, Source};

/// Isolation level in a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// READ UNCOMMITTED or READ COMMITTED
    ReadCommitted,
    /// REPEATABLE READ
    RepeatableRead,
    /// SERIALIZABLE
    Serializable,
}

/// Transaction modes. A mode that is not given is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Modes {
    /// ISOLATION LEVEL
    pub level: Option<Level>,
    /// READ ONLY (true) or READ WRITE
    pub read_only: Option<bool>,
    /// DEFERRABLE. It has no effect, because any snapshot is suitable for a transaction that only reads.
    pub deferrable: Option<bool>,
}

/// The kind of DISCARD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discarded {
    /// ALL
    All,
    /// PLANS
    Plans,
    /// SEQUENCES: the values of `currval` and `lastval`.
    Sequences,
    /// TEMP, TEMPORARY
    Temporary,
}

/// A utility command.
#[derive(Debug, Clone)]
pub enum Utility {
    /// BEGIN, START TRANSACTION (true)
    Begin(Modes, bool),
    /// COMMIT, END
    Commit {
        /// Whether AND CHAIN is given. Then another transaction with the same modes begins.
        chain: bool,
    },
    /// ROLLBACK, ABORT
    Rollback {
        /// AND CHAIN
        chain: bool,
    },
    /// SAVEPOINT
    Savepoint(String),
    /// RELEASE
    Release(String),
    /// ROLLBACK TO
    RollbackTo(String),
    /// SET name = value; `None` is DEFAULT
    Set {
        /// Setting.
        name: String,
        /// Value.
        value: Option<String>,
        /// SET LOCAL
        local: bool,
    },
    /// SET TRANSACTION
    SetTransaction(Modes),
    /// SET SESSION CHARACTERISTICS
    SetCharacteristics(Modes),
    /// SET CONSTRAINTS: names, ALL is `None`; DEFERRED (true) or IMMEDIATE
    SetConstraints(Option<Vec<ast::ObjectName>>, bool),
    /// ALTER SYSTEM SET name = value; RESET name without a value, RESET ALL without both
    AlterSystem(Option<String>, Option<String>),
    /// SHOW name
    Show(String),
    /// RESET name, ALL is `None`
    Reset(Option<String>),
    /// SET name FROM CURRENT
    SetCurrent {
        /// Setting.
        name: String,
        /// SET LOCAL
        local: bool,
    },
    /// DISCARD
    Discard(Discarded),
    /// PREPARE name (types) AS text
    Prepare {
        /// The statement's name.
        name: String,
        /// The types of the parameters that are given.
        types: Vec<ast::TypeName>,
        /// The statement.
        text: String,
        /// The number of characters before it.
        before: u32,
    },
    /// EXECUTE name (arguments)
    Execute(String, Vec<ast::Expr>),
    /// DEALLOCATE name, ALL is `None`
    Deallocate(Option<String>),
    /// VACUUM and ANALYZE
    Maintain(Box<maintain::Maintain>),
    /// LOCK TABLE
    Lock(lock::LockTable),
    /// CHECKPOINT
    Checkpoint,
    /// BASE_BACKUP
    BaseBackup(Box<base_backup::BaseBackup>),
    /// EXPLAIN
    Explain(Box<explain::Explain>),
    /// DECLARE ... CURSOR
    Declare(Box<cursor::Declare>),
    /// FETCH, MOVE
    Fetch {
        /// The cursor.
        name: String,
        /// The rows.
        direction: cursor::Direction,
        /// MOVE: the rows are not returned.
        moves: bool,
    },
    /// CLOSE name, ALL is `None`
    Close(Option<String>),
    /// COPY
    Copy(Box<Copy>),
    /// CREATE ROLE, GRANT and similar commands
    Role(Box<role::RoleCommand>),
    /// ALTER VIEW ... SET, RESET
    View(Box<view::ViewOptions>),
    /// ALTER ... OWNER TO, REASSIGN OWNED
    Owner(Box<owner::OwnerChange>),
    /// CREATE, ALTER, DROP DATABASE
    Database(Box<database::DatabaseCommand>),
    /// CREATE, ALTER, DROP TABLESPACE
    Tablespace(Box<tablespace::TablespaceCommand>),
    /// CREATE EXTENSION; whether IF NOT EXISTS
    CreateExtension(String, bool),
    /// SET [LOCAL] ROLE, `None` is NONE; whether LOCAL
    SetRole(Option<String>, bool),
    /// SET [LOCAL] SESSION AUTHORIZATION, `None` is DEFAULT; whether LOCAL
    SetAuthorization(Option<String>, bool),
}

impl Utility {
    /// Returns the command's tag, if the command runs only outside of a transaction block.
    pub fn tag_if_alone(&self) -> Option<&'static str> {
        match self {
            Utility::Maintain(maintain) if maintain.is_vacuum => Some("VACUUM"),
            Utility::Database(command) => command.tag_if_alone(),
            Utility::Tablespace(command) => command.tag_if_alone(),
            Utility::AlterSystem(..) => Some("ALTER SYSTEM"),
            Utility::BaseBackup(_) => Some("BASE_BACKUP"),
            Utility::Discard(Discarded::All) => Some("DISCARD ALL"),
            _ => None,
        }
    }
}

/// Reads a command. Returns `None` for a statement on rows or a definition. The error is 0A000 for commands
/// that are not supported.
pub fn read(sql: &str, statement: &NodeEnum) -> Result<Option<Utility>> {
    let source = Source { sql };
    Ok(Some(match statement {
        NodeEnum::TransactionStmt(s) => transaction::transaction(s)?,
        NodeEnum::ConstraintsSetStmt(s) => transaction::constraints(s)?,
        NodeEnum::VariableSetStmt(s) => setting::set(s)?,
        NodeEnum::VariableShowStmt(s) => Utility::Show(s.name.to_ascii_lowercase()),
        NodeEnum::AlterSystemStmt(s) => setting::alter_system(s)?,
        NodeEnum::DiscardStmt(s) => discard(s)?,
        NodeEnum::PrepareStmt(s) => inner::prepare(source, s)?,
        NodeEnum::ExecuteStmt(s) => inner::execute(source, s)?,
        NodeEnum::DeallocateStmt(s) => Utility::Deallocate((!s.isall).then(|| s.name.clone())),
        NodeEnum::VacuumStmt(s) => maintain::maintain(source, s)?,
        NodeEnum::LockStmt(s) => lock::lock(s)?,
        NodeEnum::CheckPointStmt(_) => Utility::Checkpoint,
        NodeEnum::ExplainStmt(s) => explain::explain(source, s)?,
        NodeEnum::DeclareCursorStmt(s) => cursor::declare(source, s)?,
        NodeEnum::FetchStmt(s) => cursor::fetch(s)?,
        NodeEnum::ClosePortalStmt(s) => cursor::close(s),
        NodeEnum::CopyStmt(s) => copy::copy(source, s)?,
        NodeEnum::CreateRoleStmt(s) => role::create(source, s)?,
        NodeEnum::AlterRoleStmt(s) => role::alter(source, s)?,
        NodeEnum::AlterRoleSetStmt(_) => return Err(SqlError::unsupported("ALTER ROLE ... SET")),
        NodeEnum::DropRoleStmt(s) => role::drop(s)?,
        NodeEnum::RenameStmt(s) if s.rename_type() == ObjectType::ObjectRole => {
            role::rename(&s.subname, &s.newname)?
        }
        NodeEnum::CreatedbStmt(s) => database::create(source, s)?,
        NodeEnum::AlterDatabaseStmt(s) => database::alter(source, s)?,
        NodeEnum::AlterDatabaseSetStmt(s) => database::set(s)?,
        NodeEnum::DropdbStmt(s) => database::drop(source, s)?,
        NodeEnum::RenameStmt(s) if s.rename_type() == ObjectType::ObjectDatabase => database::rename(s),
        NodeEnum::CreateTableSpaceStmt(s) => tablespace::create(s)?,
        NodeEnum::AlterTableSpaceOptionsStmt(s) => tablespace::options(s)?,
        NodeEnum::DropTableSpaceStmt(s) => tablespace::drop(s),
        NodeEnum::RenameStmt(s) if s.rename_type() == ObjectType::ObjectTablespace => tablespace::rename(s),
        NodeEnum::GrantStmt(s) => role::grant(s)?,
        NodeEnum::GrantRoleStmt(s) => role::membership(s)?,
        NodeEnum::AlterTableStmt(s) => match (view::options(s)?, owner::of_relation(s)?) {
            (Some(options), _) => Utility::View(Box::new(options)),
            (_, Some(change)) => Utility::Owner(Box::new(change)),
            (None, None) => return Ok(None),
        },
        NodeEnum::AlterOwnerStmt(s) => owner::of_object(statement, s)?,
        NodeEnum::ReassignOwnedStmt(s) => owner::reassign(s)?,
        NodeEnum::CreateExtensionStmt(s) => Utility::CreateExtension(s.extname.clone(), s.if_not_exists),
        NodeEnum::SelectStmt(_)
        | NodeEnum::InsertStmt(_)
        | NodeEnum::UpdateStmt(_)
        | NodeEnum::DeleteStmt(_)
        | NodeEnum::TruncateStmt(_)
        | NodeEnum::CreateStmt(_)
        | NodeEnum::CreateTableAsStmt(_)
        | NodeEnum::CreateSchemaStmt(_)
        | NodeEnum::CreateSeqStmt(_)
        | NodeEnum::AlterSeqStmt(_)
        | NodeEnum::IndexStmt(_)
        | NodeEnum::ViewStmt(_)
        | NodeEnum::RenameStmt(_)
        | NodeEnum::AlterObjectSchemaStmt(_)
        | NodeEnum::CommentStmt(_)
        | NodeEnum::DropStmt(_) => return Ok(None),
        other => return Err(tag::unsupported(other)),
    }))
}

fn discard(d: &DiscardStmt) -> Result<Utility> {
    Ok(Utility::Discard(match d.target() {
        DiscardMode::DiscardAll => Discarded::All,
        DiscardMode::DiscardPlans => Discarded::Plans,
        DiscardMode::DiscardSequences => Discarded::Sequences,
        DiscardMode::DiscardTemp => Discarded::Temporary,
        DiscardMode::Undefined => return Err(SqlError::internal("DISCARD of nothing")),
    }))
}
