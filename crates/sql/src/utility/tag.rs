//! PostgreSQL's names of statements, for errors about statements that Varve does not support.
//!
//! Invariants
//! 1. Every statement of PostgreSQL's grammar has an entry here. Its name is PostgreSQL's command tag.
//!
//! This module does not know which statements Varve supports.

use pg_query::NodeEnum;
use pg_query::protobuf::{ObjectType, RoleStmtType, TransactionStmtKind};

use crate::error::SqlError;

/// Returns the error 0A000: Varve does not support this statement.
pub(crate) fn unsupported(statement: &NodeEnum) -> SqlError {
    let error = SqlError::unsupported(name(statement));
    match hint(statement) {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// Returns a hint about what to use instead.
fn hint(statement: &NodeEnum) -> Option<&'static str> {
    Some(match statement {
        NodeEnum::CreateEnumStmt(_) => "Use text with CHECK (... IN (...)).",
        NodeEnum::CreateDomainStmt(_) => "Use the domain's type, and a CHECK constraint on each column.",
        NodeEnum::ClusterStmt(_) => {
            "Tables are kept in the order of their primary key. VACUUM FULL rewrites them."
        }
        _ => return None,
    })
}

/// Returns the name of a statement.
pub(crate) fn name(statement: &NodeEnum) -> String {
    match statement {
        NodeEnum::AlterTableStmt(s) => format!("ALTER {}", kind(s.objtype())),
        NodeEnum::AlterObjectDependsStmt(s) => {
            format!("ALTER {} DEPENDS ON EXTENSION", kind(s.object_type()))
        }
        NodeEnum::AlterObjectSchemaStmt(s) => format!("ALTER {} SET SCHEMA", kind(s.object_type())),
        NodeEnum::AlterOwnerStmt(s) => format!("ALTER {} OWNER TO", kind(s.object_type())),
        NodeEnum::RenameStmt(s) => renamed(s.rename_type(), s.relation_type()),
        NodeEnum::AlterFunctionStmt(s) => format!("ALTER {}", kind(s.objtype())),
        NodeEnum::CommentStmt(s) => format!("COMMENT ON {}", kind(s.objtype())),
        NodeEnum::SecLabelStmt(_) => "SECURITY LABEL".to_owned(),
        NodeEnum::DropStmt(s) => format!("DROP {}", kind(s.remove_type())),
        NodeEnum::DefineStmt(s) => format!("CREATE {}", kind(s.kind())),
        NodeEnum::CreateTableAsStmt(s) if s.is_select_into => "SELECT INTO".to_owned(),
        NodeEnum::CreateTableAsStmt(s) => format!("CREATE {} AS", kind(s.objtype())),
        NodeEnum::CreateFunctionStmt(s) if s.is_procedure => "CREATE PROCEDURE".to_owned(),
        NodeEnum::CreateTrigStmt(s) if s.isconstraint => "CREATE CONSTRAINT TRIGGER".to_owned(),
        NodeEnum::FetchStmt(s) if s.ismove => "MOVE".to_owned(),
        NodeEnum::GrantStmt(s) if !s.is_grant => "REVOKE".to_owned(),
        NodeEnum::GrantRoleStmt(s) if !s.is_grant => "REVOKE".to_owned(),
        NodeEnum::CreateRoleStmt(s) => match s.stmt_type() {
            RoleStmtType::RolestmtUser => "CREATE USER".to_owned(),
            RoleStmtType::RolestmtGroup => "CREATE GROUP".to_owned(),
            _ => "CREATE ROLE".to_owned(),
        },
        NodeEnum::TransactionStmt(s) => of_transaction(s.kind()).to_owned(),
        NodeEnum::VacuumStmt(s) if !s.is_vacuumcmd => "ANALYZE".to_owned(),
        other => fixed(other).to_owned(),
    }
}

fn renamed(what: ObjectType, of: ObjectType) -> String {
    match what {
        ObjectType::ObjectColumn | ObjectType::ObjectTabconstraint | ObjectType::ObjectAttribute => {
            format!("ALTER {} RENAME {}", kind(of), kind(what))
        }
        _ => format!("ALTER {} RENAME", kind(what)),
    }
}

fn of_transaction(kind: TransactionStmtKind) -> &'static str {
    match kind {
        TransactionStmtKind::TransStmtStart => "START TRANSACTION",
        TransactionStmtKind::TransStmtCommit => "COMMIT",
        TransactionStmtKind::TransStmtRollback | TransactionStmtKind::TransStmtRollbackTo => "ROLLBACK",
        TransactionStmtKind::TransStmtSavepoint => "SAVEPOINT",
        TransactionStmtKind::TransStmtRelease => "RELEASE",
        TransactionStmtKind::TransStmtPrepare => "PREPARE TRANSACTION",
        TransactionStmtKind::TransStmtCommitPrepared => "COMMIT PREPARED",
        TransactionStmtKind::TransStmtRollbackPrepared => "ROLLBACK PREPARED",
        TransactionStmtKind::TransStmtBegin | TransactionStmtKind::Undefined => "BEGIN",
    }
}

/// Returns the names of statements with a single name.
fn fixed(statement: &NodeEnum) -> &'static str {
    match statement {
        NodeEnum::SelectStmt(_) => "SELECT",
        NodeEnum::InsertStmt(_) => "INSERT",
        NodeEnum::UpdateStmt(_) => "UPDATE",
        NodeEnum::DeleteStmt(_) => "DELETE",
        NodeEnum::MergeStmt(_) => "MERGE",
        NodeEnum::TruncateStmt(_) => "TRUNCATE TABLE",
        NodeEnum::CreateStmt(_) => "CREATE TABLE",
        NodeEnum::CreateSchemaStmt(_) => "CREATE SCHEMA",
        NodeEnum::CreateSeqStmt(_) => "CREATE SEQUENCE",
        NodeEnum::AlterSeqStmt(_) => "ALTER SEQUENCE",
        NodeEnum::IndexStmt(_) => "CREATE INDEX",
        NodeEnum::ViewStmt(_) => "CREATE VIEW",
        NodeEnum::RefreshMatViewStmt(_) => "REFRESH MATERIALIZED VIEW",
        NodeEnum::CreateStatsStmt(_) => "CREATE STATISTICS",
        NodeEnum::AlterStatsStmt(_) => "ALTER STATISTICS",
        NodeEnum::ReindexStmt(_) => "REINDEX",
        NodeEnum::ClusterStmt(_) => "CLUSTER",
        NodeEnum::AlterTableMoveAllStmt(_) => "ALTER TABLE ALL IN TABLESPACE",
        NodeEnum::GrantStmt(_) => "GRANT",
        NodeEnum::GrantRoleStmt(_) => "GRANT ROLE",
        NodeEnum::AlterDefaultPrivilegesStmt(_) => "ALTER DEFAULT PRIVILEGES",
        NodeEnum::AlterRoleStmt(_) | NodeEnum::AlterRoleSetStmt(_) => "ALTER ROLE",
        NodeEnum::DropRoleStmt(_) => "DROP ROLE",
        NodeEnum::DropOwnedStmt(_) => "DROP OWNED",
        NodeEnum::ReassignOwnedStmt(_) => "REASSIGN OWNED",
        NodeEnum::CreatePolicyStmt(_) => "CREATE POLICY",
        NodeEnum::AlterPolicyStmt(_) => "ALTER POLICY",
        other => of_programs(other).unwrap_or_else(|| of_session(other)),
    }
}

/// Returns the names of statements about functions, types, text search, foreign data, replication and
/// databases.
fn of_programs(statement: &NodeEnum) -> Option<&'static str> {
    Some(match statement {
        NodeEnum::CreateFunctionStmt(_) => "CREATE FUNCTION",
        NodeEnum::CreateTrigStmt(_) => "CREATE TRIGGER",
        NodeEnum::CreateEventTrigStmt(_) => "CREATE EVENT TRIGGER",
        NodeEnum::AlterEventTrigStmt(_) => "ALTER EVENT TRIGGER",
        NodeEnum::CreatePlangStmt(_) => "CREATE LANGUAGE",
        NodeEnum::DoStmt(_) => "DO",
        NodeEnum::CallStmt(_) => "CALL",
        NodeEnum::ReturnStmt(_) => "RETURN",
        NodeEnum::RuleStmt(_) => "CREATE RULE",
        NodeEnum::CompositeTypeStmt(_) | NodeEnum::CreateEnumStmt(_) | NodeEnum::CreateRangeStmt(_) => {
            "CREATE TYPE"
        }
        NodeEnum::AlterEnumStmt(_) | NodeEnum::AlterTypeStmt(_) => "ALTER TYPE",
        NodeEnum::CreateDomainStmt(_) => "CREATE DOMAIN",
        NodeEnum::AlterDomainStmt(_) => "ALTER DOMAIN",
        NodeEnum::CreateCastStmt(_) => "CREATE CAST",
        NodeEnum::CreateConversionStmt(_) => "CREATE CONVERSION",
        NodeEnum::CreateTransformStmt(_) => "CREATE TRANSFORM",
        NodeEnum::CreateOpClassStmt(_) => "CREATE OPERATOR CLASS",
        NodeEnum::CreateOpFamilyStmt(_) => "CREATE OPERATOR FAMILY",
        NodeEnum::AlterOpFamilyStmt(_) => "ALTER OPERATOR FAMILY",
        NodeEnum::AlterOperatorStmt(_) => "ALTER OPERATOR",
        NodeEnum::AlterCollationStmt(_) => "ALTER COLLATION",
        NodeEnum::CreateAmStmt(_) => "CREATE ACCESS METHOD",
        NodeEnum::AlterTsdictionaryStmt(_) => "ALTER TEXT SEARCH DICTIONARY",
        NodeEnum::AlterTsconfigurationStmt(_) => "ALTER TEXT SEARCH CONFIGURATION",
        NodeEnum::CreateExtensionStmt(_) => "CREATE EXTENSION",
        NodeEnum::AlterExtensionStmt(_) | NodeEnum::AlterExtensionContentsStmt(_) => "ALTER EXTENSION",
        NodeEnum::CreateFdwStmt(_) => "CREATE FOREIGN DATA WRAPPER",
        NodeEnum::AlterFdwStmt(_) => "ALTER FOREIGN DATA WRAPPER",
        NodeEnum::CreateForeignServerStmt(_) => "CREATE SERVER",
        NodeEnum::AlterForeignServerStmt(_) => "ALTER SERVER",
        NodeEnum::CreateForeignTableStmt(_) => "CREATE FOREIGN TABLE",
        NodeEnum::ImportForeignSchemaStmt(_) => "IMPORT FOREIGN SCHEMA",
        NodeEnum::CreateUserMappingStmt(_) => "CREATE USER MAPPING",
        NodeEnum::AlterUserMappingStmt(_) => "ALTER USER MAPPING",
        NodeEnum::DropUserMappingStmt(_) => "DROP USER MAPPING",
        NodeEnum::CreatePublicationStmt(_) => "CREATE PUBLICATION",
        NodeEnum::AlterPublicationStmt(_) => "ALTER PUBLICATION",
        NodeEnum::CreateSubscriptionStmt(_) => "CREATE SUBSCRIPTION",
        NodeEnum::AlterSubscriptionStmt(_) => "ALTER SUBSCRIPTION",
        NodeEnum::DropSubscriptionStmt(_) => "DROP SUBSCRIPTION",
        NodeEnum::CreatedbStmt(_) => "CREATE DATABASE",
        NodeEnum::AlterDatabaseStmt(_)
        | NodeEnum::AlterDatabaseSetStmt(_)
        | NodeEnum::AlterDatabaseRefreshCollStmt(_) => "ALTER DATABASE",
        NodeEnum::DropdbStmt(_) => "DROP DATABASE",
        NodeEnum::CreateTableSpaceStmt(_) => "CREATE TABLESPACE",
        NodeEnum::AlterTableSpaceOptionsStmt(_) => "ALTER TABLESPACE",
        NodeEnum::DropTableSpaceStmt(_) => "DROP TABLESPACE",
        _ => return None,
    })
}

fn of_session(statement: &NodeEnum) -> &'static str {
    match statement {
        NodeEnum::VariableSetStmt(_) => "SET",
        NodeEnum::VariableShowStmt(_) => "SHOW",
        NodeEnum::AlterSystemStmt(_) => "ALTER SYSTEM",
        NodeEnum::CopyStmt(_) => "COPY",
        NodeEnum::ExplainStmt(_) => "EXPLAIN",
        NodeEnum::PrepareStmt(_) => "PREPARE",
        NodeEnum::ExecuteStmt(_) => "EXECUTE",
        NodeEnum::DeallocateStmt(_) => "DEALLOCATE",
        NodeEnum::DeclareCursorStmt(_) => "DECLARE CURSOR",
        NodeEnum::FetchStmt(_) => "FETCH",
        NodeEnum::ClosePortalStmt(_) => "CLOSE CURSOR",
        NodeEnum::LockStmt(_) => "LOCK TABLE",
        NodeEnum::ConstraintsSetStmt(_) => "SET CONSTRAINTS",
        NodeEnum::VacuumStmt(_) => "VACUUM",
        NodeEnum::CheckPointStmt(_) => "CHECKPOINT",
        NodeEnum::DiscardStmt(_) => "DISCARD",
        NodeEnum::ListenStmt(_) => "LISTEN",
        NodeEnum::UnlistenStmt(_) => "UNLISTEN",
        NodeEnum::NotifyStmt(_) => "NOTIFY",
        NodeEnum::LoadStmt(_) => "LOAD",
        _ => "this statement",
    }
}

/// Returns PostgreSQL's word for a kind of objects.
pub(crate) fn kind(kind: ObjectType) -> &'static str {
    match kind {
        ObjectType::ObjectAccessMethod => "ACCESS METHOD",
        ObjectType::ObjectAggregate => "AGGREGATE",
        ObjectType::ObjectAttribute => "ATTRIBUTE",
        ObjectType::ObjectCast => "CAST",
        ObjectType::ObjectCollation => "COLLATION",
        ObjectType::ObjectColumn => "COLUMN",
        ObjectType::ObjectConversion => "CONVERSION",
        ObjectType::ObjectDatabase => "DATABASE",
        ObjectType::ObjectDefault => "DEFAULT",
        ObjectType::ObjectDefacl => "DEFAULT PRIVILEGES",
        ObjectType::ObjectDomain => "DOMAIN",
        ObjectType::ObjectDomconstraint | ObjectType::ObjectTabconstraint => "CONSTRAINT",
        ObjectType::ObjectEventTrigger => "EVENT TRIGGER",
        ObjectType::ObjectExtension => "EXTENSION",
        ObjectType::ObjectFdw => "FOREIGN DATA WRAPPER",
        ObjectType::ObjectForeignServer => "SERVER",
        ObjectType::ObjectForeignTable => "FOREIGN TABLE",
        ObjectType::ObjectFunction => "FUNCTION",
        ObjectType::ObjectIndex => "INDEX",
        ObjectType::ObjectLanguage => "LANGUAGE",
        ObjectType::ObjectLargeobject => "LARGE OBJECT",
        ObjectType::ObjectMatview => "MATERIALIZED VIEW",
        ObjectType::ObjectAmop | ObjectType::ObjectAmproc | ObjectType::ObjectOpfamily => "OPERATOR FAMILY",
        ObjectType::ObjectOpclass => "OPERATOR CLASS",
        ObjectType::ObjectOperator => "OPERATOR",
        ObjectType::ObjectParameterAcl => "PARAMETER",
        ObjectType::ObjectPolicy => "POLICY",
        ObjectType::ObjectProcedure => "PROCEDURE",
        ObjectType::ObjectPublication
        | ObjectType::ObjectPublicationNamespace
        | ObjectType::ObjectPublicationRel => "PUBLICATION",
        ObjectType::ObjectRole => "ROLE",
        ObjectType::ObjectRoutine => "ROUTINE",
        ObjectType::ObjectRule => "RULE",
        ObjectType::ObjectSchema => "SCHEMA",
        ObjectType::ObjectSequence => "SEQUENCE",
        ObjectType::ObjectSubscription => "SUBSCRIPTION",
        ObjectType::ObjectStatisticExt => "STATISTICS",
        ObjectType::ObjectTable => "TABLE",
        ObjectType::ObjectTablespace => "TABLESPACE",
        ObjectType::ObjectTransform => "TRANSFORM",
        ObjectType::ObjectTrigger => "TRIGGER",
        ObjectType::ObjectTsconfiguration => "TEXT SEARCH CONFIGURATION",
        ObjectType::ObjectTsdictionary => "TEXT SEARCH DICTIONARY",
        ObjectType::ObjectTsparser => "TEXT SEARCH PARSER",
        ObjectType::ObjectTstemplate => "TEXT SEARCH TEMPLATE",
        ObjectType::ObjectType => "TYPE",
        ObjectType::ObjectUserMapping => "USER MAPPING",
        ObjectType::ObjectView => "VIEW",
        ObjectType::Undefined => "OBJECT",
    }
}
