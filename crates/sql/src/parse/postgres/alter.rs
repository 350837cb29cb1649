//! Converts ALTER TABLE with its actions, and commands that rename objects or move them to another schema.
//! The source is the tree of PostgreSQL's parser, the result is the syntax tree of `crate::ast`.
//!
//! This module does not know whether an action is possible (`bind::alter`).

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterObjectSchemaStmt, AlterTableCmd, AlterTableStmt, AlterTableType, Node, ObjectType, RenameStmt,
};
use varve_engine::Identity;

use super::definition::{is_cascade, is_only, refuse};
use super::node::{options, storage_options};
use super::place::{Reader, kind};
use super::table::identity_of;
use crate::ast::{
    AlterSequence, AlterTable, ColumnAction, Definition, MoveIndex, RenameIndex, SequenceAction,
    SequenceOptions, StorageOption, TableAction,
};
use crate::error::{Result, SqlError};
use crate::utility::tag;

/// The letter for ALWAYS in SET GENERATED, in PostgreSQL's tree.
const ALWAYS: i32 = b'a' as i32;

impl Reader<'_> {
    /// Converts ALTER TABLE, and ALTER INDEX ... SET TABLESPACE.
    pub(super) fn alter_relation(&self, a: &AlterTableStmt, statement: &NodeEnum) -> Result<Definition> {
        if a.objtype() == ObjectType::ObjectIndex
            && let [command] = a.cmds.as_slice()
            && let NodeEnum::AlterTableCmd(command) = kind(Some(command))?
            && command.subtype() == AlterTableType::AtSetTableSpace
        {
            let name = self.relation(a.relation.as_ref())?;
            let tablespace = command.name.clone();
            return Ok(Definition::MoveIndex(MoveIndex { name, if_exists: a.missing_ok, tablespace }));
        }
        self.alter_table(a, statement).map(Definition::AlterTable)
    }

    fn alter_table(&self, a: &AlterTableStmt, statement: &NodeEnum) -> Result<AlterTable> {
        let is_table = a.objtype() == ObjectType::ObjectTable;
        let mut actions = Vec::with_capacity(a.cmds.len());
        for command in &a.cmds {
            let NodeEnum::AlterTableCmd(command) = kind(Some(command))? else {
                return Err(SqlError::internal("an action of ALTER TABLE is none"));
            };
            let action = if is_table { self.table_action(command)? } else { None };
            actions.push(action.ok_or_else(|| refused(&tag::name(statement), command.subtype()))?);
        }
        let name = self.relation(a.relation.as_ref())?;
        Ok(AlterTable { name, only: is_only(a.relation.as_ref()), if_exists: a.missing_ok, actions })
    }

    /// Converts an action. Returns `None` if Varve does not support it.
    fn table_action(&self, c: &AlterTableCmd) -> Result<Option<TableAction>> {
        let name = || self.ident(&c.name, -1);
        let (if_exists, cascade) = (c.missing_ok, is_cascade(c.behavior()));
        Ok(Some(match c.subtype() {
            AlterTableType::AtAddColumn => match kind(c.def.as_deref())? {
                NodeEnum::ColumnDef(column) => TableAction::AddColumn {
                    column: Box::new(self.column_definition(column)?),
                    if_not_exists: c.missing_ok,
                },
                _ => return Err(SqlError::internal("ADD COLUMN without a column")),
            },
            AlterTableType::AtDropColumn => TableAction::DropColumn { name: name(), if_exists, cascade },
            AlterTableType::AtAddConstraint => match kind(c.def.as_deref())? {
                NodeEnum::Constraint(constraint) => {
                    TableAction::AddConstraint(self.constraint(constraint, None)?)
                }
                _ => return Err(SqlError::internal("ADD CONSTRAINT without a constraint")),
            },
            AlterTableType::AtValidateConstraint => TableAction::ValidateConstraint(name()),
            AlterTableType::AtDropConstraint => {
                TableAction::DropConstraint { name: name(), if_exists, cascade }
            }
            AlterTableType::AtSetRelOptions => TableAction::SetOptions(listed(c)?),
            AlterTableType::AtResetRelOptions => TableAction::ResetOptions(listed(c)?),
            AlterTableType::AtSetTableSpace => TableAction::SetTablespace(c.name.clone()),
            _ => match self.column_action(c)? {
                Some(action) => TableAction::AlterColumn { name: name(), action },
                None => return Ok(None),
            },
        }))
    }

    /// Converts an action on a column. Returns `None` if Varve does not support it.
    fn column_action(&self, c: &AlterTableCmd) -> Result<Option<ColumnAction>> {
        Ok(Some(match c.subtype() {
            AlterTableType::AtColumnDefault => match c.def.as_deref() {
                Some(default) => ColumnAction::SetDefault(self.kept(Some(default))?),
                None => ColumnAction::DropDefault,
            },
            AlterTableType::AtSetNotNull => ColumnAction::SetNotNull,
            AlterTableType::AtDropNotNull => ColumnAction::DropNotNull,
            AlterTableType::AtAlterColumnType => match kind(c.def.as_deref())? {
                NodeEnum::ColumnDef(column) => {
                    refuse(&[(column.coll_clause.is_some(), "COLLATE of a column")])?;
                    let to = column.type_name.as_ref();
                    let to = to.ok_or_else(|| SqlError::internal("ALTER COLUMN TYPE without a type"))?;
                    let using = self.maybe(column.raw_default.as_deref())?.map(Box::new);
                    ColumnAction::SetType { data_type: self.type_name(to)?, using }
                }
                _ => return Err(SqlError::internal("ALTER COLUMN TYPE without a column")),
            },
            AlterTableType::AtAddIdentity => match kind(c.def.as_deref())? {
                NodeEnum::Constraint(identity) => {
                    let options = Box::new(self.sequence_options(&identity.options)?);
                    ColumnAction::AddIdentity(identity_of(identity), options)
                }
                _ => return Err(SqlError::internal("an identity without its kind")),
            },
            AlterTableType::AtSetIdentity => self.set_identity(c.def.as_deref())?,
            AlterTableType::AtDropIdentity => ColumnAction::DropIdentity { if_exists: c.missing_ok },
            _ => return Ok(None),
        }))
    }

    fn set_identity(&self, list: Option<&Node>) -> Result<ColumnAction> {
        let NodeEnum::List(list) = kind(list)? else {
            return Err(SqlError::internal("SET of an identity without options"));
        };
        let (mut said, mut identity) = (SequenceOptions::default(), None);
        for option in options(&list.items)? {
            if option.name() != "generated" {
                self.take_option(&mut said, option)?;
                continue;
            }
            let is_always = option.number() == Some(ALWAYS);
            let new = if is_always { Identity::Always } else { Identity::ByDefault };
            if identity.replace(new).is_some() {
                return Err(super::node::redundant(None));
            }
        }
        Ok(ColumnAction::SetIdentity(identity, Box::new(said)))
    }

    pub(super) fn rename(&self, r: &RenameStmt, statement: &NodeEnum) -> Result<Definition> {
        let (from, to) = (|| self.ident(&r.subname, -1), || self.ident(&r.newname, -1));
        let of_table = r.relation_type() == ObjectType::ObjectTable;
        let action = match r.rename_type() {
            ObjectType::ObjectTable => TableAction::Rename(to()),
            ObjectType::ObjectColumn if of_table => TableAction::RenameColumn { from: from(), to: to() },
            ObjectType::ObjectTabconstraint => TableAction::RenameConstraint { from: from(), to: to() },
            ObjectType::ObjectIndex => {
                return Ok(Definition::RenameIndex(RenameIndex {
                    name: self.relation(r.relation.as_ref())?,
                    if_exists: r.missing_ok,
                    to: r.newname.clone(),
                }));
            }
            ObjectType::ObjectSequence => {
                return Ok(Definition::AlterSequence(AlterSequence {
                    name: self.relation(r.relation.as_ref())?,
                    if_exists: r.missing_ok,
                    action: SequenceAction::Rename(r.newname.clone()),
                }));
            }
            _ => return Err(tag::unsupported(statement)),
        };
        let name = self.relation(r.relation.as_ref())?;
        let only = is_only(r.relation.as_ref());
        Ok(Definition::AlterTable(AlterTable { name, only, if_exists: r.missing_ok, actions: vec![action] }))
    }

    pub(super) fn set_schema(&self, s: &AlterObjectSchemaStmt, statement: &NodeEnum) -> Result<Definition> {
        let (name, if_exists) = (|| self.relation(s.relation.as_ref()), s.missing_ok);
        Ok(match s.object_type() {
            ObjectType::ObjectTable => {
                let actions = vec![TableAction::SetSchema(self.ident(&s.newschema, -1))];
                let only = is_only(s.relation.as_ref());
                Definition::AlterTable(AlterTable { name: name()?, only, if_exists, actions })
            }
            ObjectType::ObjectSequence => {
                let action = SequenceAction::SetSchema(s.newschema.clone());
                Definition::AlterSequence(AlterSequence { name: name()?, if_exists, action })
            }
            _ => return Err(tag::unsupported(statement)),
        })
    }
}

fn listed(c: &AlterTableCmd) -> Result<Vec<StorageOption>> {
    match kind(c.def.as_deref())? {
        NodeEnum::List(list) => storage_options(&list.items),
        _ => Err(SqlError::internal("SET without options")),
    }
}

/// Returns the error 0A000: Varve does not support the action.
fn refused(statement: &str, action: AlterTableType) -> SqlError {
    let refused = SqlError::unsupported(format!("{statement} ... {}", named(action)));
    match action {
        AlterTableType::AtSetAccessMethod => refused.with_hint(
            "Make another table with the same columns and constraints: CREATE TABLE ... USING method. Fill it with INSERT INTO \
             ... SELECT. Then DROP TABLE the old one, and ALTER TABLE ... RENAME the new one.",
        ),
        _ => refused,
    }
}

/// Returns the name of an action that Varve does not support.
fn named(action: AlterTableType) -> &'static str {
    match action {
        AlterTableType::AtChangeOwner => "OWNER TO",
        AlterTableType::AtSetExpression => "ALTER COLUMN SET EXPRESSION",
        AlterTableType::AtDropExpression => "ALTER COLUMN DROP EXPRESSION",
        AlterTableType::AtSetStatistics => "ALTER COLUMN SET STATISTICS",
        AlterTableType::AtSetOptions | AlterTableType::AtResetOptions => "ALTER COLUMN SET (...)",
        AlterTableType::AtSetStorage => "ALTER COLUMN SET STORAGE",
        AlterTableType::AtSetCompression => "ALTER COLUMN SET COMPRESSION",
        AlterTableType::AtColumnDefault => "ALTER COLUMN SET DEFAULT",
        AlterTableType::AtAlterConstraint => "ALTER CONSTRAINT",
        AlterTableType::AtClusterOn => "CLUSTER ON",
        AlterTableType::AtDropCluster => "SET WITHOUT CLUSTER",
        AlterTableType::AtSetLogged => "SET LOGGED",
        AlterTableType::AtSetUnLogged => "SET UNLOGGED",
        AlterTableType::AtDropOids => "SET WITHOUT OIDS",
        AlterTableType::AtSetAccessMethod => "SET ACCESS METHOD",
        AlterTableType::AtSetTableSpace => "SET TABLESPACE",
        AlterTableType::AtSetRelOptions => "SET (...)",
        AlterTableType::AtResetRelOptions => "RESET (...)",
        AlterTableType::AtEnableTrig
        | AlterTableType::AtEnableAlwaysTrig
        | AlterTableType::AtEnableReplicaTrig
        | AlterTableType::AtEnableTrigAll
        | AlterTableType::AtEnableTrigUser => "ENABLE TRIGGER",
        AlterTableType::AtDisableTrig
        | AlterTableType::AtDisableTrigAll
        | AlterTableType::AtDisableTrigUser => "DISABLE TRIGGER",
        AlterTableType::AtEnableRule
        | AlterTableType::AtEnableAlwaysRule
        | AlterTableType::AtEnableReplicaRule => "ENABLE RULE",
        AlterTableType::AtDisableRule => "DISABLE RULE",
        AlterTableType::AtAddInherit => "INHERIT",
        AlterTableType::AtDropInherit => "NO INHERIT",
        AlterTableType::AtAddOf => "OF",
        AlterTableType::AtDropOf => "NOT OF",
        AlterTableType::AtReplicaIdentity => "REPLICA IDENTITY",
        AlterTableType::AtEnableRowSecurity => "ENABLE ROW LEVEL SECURITY",
        AlterTableType::AtDisableRowSecurity => "DISABLE ROW LEVEL SECURITY",
        AlterTableType::AtForceRowSecurity => "FORCE ROW LEVEL SECURITY",
        AlterTableType::AtNoForceRowSecurity => "NO FORCE ROW LEVEL SECURITY",
        AlterTableType::AtGenericOptions => "OPTIONS",
        AlterTableType::AtAttachPartition => "ATTACH PARTITION",
        AlterTableType::AtDetachPartition | AlterTableType::AtDetachPartitionFinalize => "DETACH PARTITION",
        _ => "this action",
    }
}
