//! Syntax tree of statements that define something: tables, indexes, views, sequences, schemas and comments.
//!
//! Invariants
//! 1. The parser has refused every clause that this tree cannot hold. The error names the clause.
//!
//! This module does not know which objects exist or what names mean.

use varve_engine::{Action, ColumnType, Identity};

use super::{Expr, Ident, ObjectName, Query, TypeName};

/// A statement that defines something.
#[derive(Debug, Clone, PartialEq)]
pub enum Definition {
    /// CREATE TABLE
    CreateTable(CreateTable),
    /// CREATE TABLE AS, SELECT INTO
    CreateTableAs(CreateTableAs),
    /// CREATE INDEX
    CreateIndex(CreateIndex),
    /// CREATE VIEW
    CreateView(CreateView),
    /// CREATE SEQUENCE
    CreateSequence(CreateSequence),
    /// CREATE SCHEMA
    CreateSchema(CreateSchema),
    /// ALTER TABLE
    AlterTable(AlterTable),
    /// ALTER SEQUENCE
    AlterSequence(AlterSequence),
    /// ALTER INDEX ... RENAME TO
    RenameIndex(RenameIndex),
    /// ALTER INDEX ... SET TABLESPACE
    MoveIndex(MoveIndex),
    /// COMMENT ON
    Comment(Comment),
    /// TRUNCATE
    Truncate(Truncate),
    /// DROP
    Drop(Drop),
}

impl Definition {
    /// Returns the command's name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Definition::CreateTable(_) => "CREATE TABLE",
            Definition::CreateTableAs(_) => "CREATE TABLE AS",
            Definition::CreateIndex(_) => "CREATE INDEX",
            Definition::CreateView(_) => "CREATE VIEW",
            Definition::CreateSequence(_) => "CREATE SEQUENCE",
            Definition::CreateSchema(_) => "CREATE SCHEMA",
            Definition::AlterTable(_) => "ALTER TABLE",
            Definition::AlterSequence(_) => "ALTER SEQUENCE",
            Definition::RenameIndex(_) | Definition::MoveIndex(_) => "ALTER INDEX",
            Definition::Comment(_) => "COMMENT",
            Definition::Truncate(_) => "TRUNCATE TABLE",
            Definition::Drop(drop) => drop.kind.tag(),
        }
    }
}

/// An expression that the catalog stores.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptExpr {
    /// The expression in the statement, with its positions.
    pub expr: Expr,
    /// The text of the expression as PostgreSQL's parser writes it. The catalog stores this text.
    pub text: String,
}

/// CREATE TABLE.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateTable {
    /// The table.
    pub name: ObjectName,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// UNLOGGED
    pub unlogged: bool,
    /// Columns.
    pub columns: Vec<ColumnDefinition>,
    /// Constraints of the table.
    pub constraints: Vec<Constraint>,
    /// PARTITION OF
    pub partition_of: Option<PartitionOf>,
    /// PARTITION BY
    pub partition_by: Option<PartitionBy>,
    /// WITH (...)
    pub options: Vec<StorageOption>,
    /// USING
    pub method: Option<String>,
    /// TABLESPACE
    pub tablespace: Option<String>,
}

/// A column of CREATE TABLE or ADD COLUMN.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnDefinition {
    /// Its name.
    pub name: Ident,
    /// Its type.
    pub data_type: TypeName,
    /// Its constraints in the order of the text. Keys among them name the column.
    pub constraints: Vec<Constraint>,
}

/// A constraint of a column or of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Constraint {
    /// CONSTRAINT name
    pub name: Option<Ident>,
    /// The kind of the constraint.
    pub kind: ConstraintKind,
    /// NOT VALID: existing rows are not checked.
    pub not_valid: bool,
}

/// The kind of a constraint.
#[derive(Debug, Clone, PartialEq)]
pub enum ConstraintKind {
    /// NULL
    Null,
    /// NOT NULL
    NotNull,
    /// DEFAULT
    Default(KeptExpr),
    /// GENERATED ... AS IDENTITY
    Identity(Identity, SequenceOptions),
    /// PRIMARY KEY (columns)
    PrimaryKey(Vec<Ident>),
    /// UNIQUE (columns)
    Unique(Vec<Ident>),
    /// CHECK
    Check(KeptExpr),
    /// FOREIGN KEY, REFERENCES
    ForeignKey(ForeignKey),
}

/// FOREIGN KEY (columns) REFERENCES table (columns).
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignKey {
    /// The referring columns.
    pub columns: Vec<Ident>,
    /// The referenced table.
    pub table: ObjectName,
    /// The referenced columns. An empty list means those of the primary key.
    pub referred: Vec<Ident>,
    /// ON DELETE
    pub on_delete: Action,
    /// ON UPDATE
    pub on_update: Action,
    /// MATCH FULL
    pub match_full: bool,
    /// DEFERRABLE
    pub deferrable: bool,
    /// INITIALLY DEFERRED
    pub initially_deferred: bool,
}

/// PARTITION OF parent FOR VALUES ...
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionOf {
    /// The partitioned table.
    pub parent: ObjectName,
    /// The rows of the partition.
    pub bound: PartitionBound,
}

/// The rows of a partition.
#[derive(Debug, Clone, PartialEq)]
pub enum PartitionBound {
    /// DEFAULT
    Default,
    /// WITH (MODULUS, REMAINDER)
    Hash {
        /// MODULUS
        modulus: i32,
        /// REMAINDER
        remainder: i32,
    },
    /// FROM (...) TO (...)
    Range {
        /// FROM
        from: Vec<RangeEdge>,
        /// TO
        to: Vec<RangeEdge>,
    },
    /// IN (...)
    List,
}

/// A value of FROM or TO.
#[derive(Debug, Clone, PartialEq)]
pub enum RangeEdge {
    /// MINVALUE
    Least,
    /// MAXVALUE
    Greatest,
    /// A value.
    At(Expr),
}

/// PARTITION BY method (keys)
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionBy {
    /// The method.
    pub method: PartitionMethod,
    /// Columns of the key.
    pub columns: Vec<Ident>,
}

/// The method of partitioning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionMethod {
    /// HASH
    Hash,
    /// RANGE
    Range,
    /// LIST
    List,
}

/// A storage parameter of WITH, SET or RESET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageOption {
    /// Its name, with its namespace (`toast.`) if it has one.
    pub name: String,
    /// Its value, if one is given.
    pub value: Option<String>,
}

/// CREATE TABLE ... AS query.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateTableAs {
    /// The table.
    pub name: ObjectName,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// UNLOGGED
    pub unlogged: bool,
    /// Names of its first columns.
    pub columns: Vec<Ident>,
    /// WITH (...)
    pub options: Vec<StorageOption>,
    /// USING
    pub method: Option<String>,
    /// TABLESPACE
    pub tablespace: Option<String>,
    /// The query.
    pub query: Box<Query>,
    /// Whether rows are inserted. WITH NO DATA prevents it.
    pub with_data: bool,
}

/// CREATE INDEX.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateIndex {
    /// Its name, if it has one in the statement.
    pub name: Option<Ident>,
    /// The table.
    pub table: ObjectName,
    /// Whether ONLY is before its name.
    pub only: bool,
    /// UNIQUE
    pub unique: bool,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// Parts of its key.
    pub keys: Vec<IndexKey>,
    /// WHERE
    pub predicate: Option<KeptExpr>,
    /// TABLESPACE
    pub tablespace: Option<String>,
}

/// A part of an index's key.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexKey {
    /// A column or an expression.
    pub kind: IndexKeyKind,
    /// The operator class, if one is named.
    pub operator_class: Option<String>,
}

/// The kind of a part of an index's key.
#[derive(Debug, Clone, PartialEq)]
pub enum IndexKeyKind {
    /// A column.
    Column(Ident),
    /// An expression.
    Expression(KeptExpr),
}

/// CREATE VIEW.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateView {
    /// The view.
    pub name: ObjectName,
    /// OR REPLACE
    pub or_replace: bool,
    /// Names of its first columns.
    pub columns: Vec<Ident>,
    /// WITH (...)
    pub options: Vec<StorageOption>,
    /// The query.
    pub query: Box<Query>,
    /// The query as PostgreSQL's parser writes it.
    pub text: String,
}

/// CREATE SEQUENCE.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateSequence {
    /// The sequence.
    pub name: ObjectName,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// Its options.
    pub options: SequenceOptions,
}

/// The options of a sequence. Each is `None` if it is not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SequenceOptions {
    /// AS
    pub data_type: Option<ColumnType>,
    /// INCREMENT
    pub increment: Option<i64>,
    /// MINVALUE, NO MINVALUE
    pub min: Option<Option<i64>>,
    /// MAXVALUE, NO MAXVALUE
    pub max: Option<Option<i64>>,
    /// START
    pub start: Option<i64>,
    /// RESTART [WITH]
    pub restart: Option<Option<i64>>,
    /// CACHE
    pub cache: Option<i64>,
    /// CYCLE, NO CYCLE
    pub cycle: Option<bool>,
    /// OWNED BY
    pub owned_by: Option<OwnedBy>,
    /// SEQUENCE NAME of an identity column: schema, if given, and name.
    pub name: Option<(Option<String>, String)>,
}

/// The argument of OWNED BY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnedBy {
    /// NONE
    Nothing,
    /// The names up to that of the table, and the name of the column.
    Column(Vec<String>, String),
}

/// CREATE SCHEMA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSchema {
    /// Its name.
    pub name: String,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
}

/// ALTER TABLE.
#[derive(Debug, Clone, PartialEq)]
pub struct AlterTable {
    /// The table.
    pub name: ObjectName,
    /// Whether ONLY is before its name.
    pub only: bool,
    /// IF EXISTS
    pub if_exists: bool,
    /// The actions, in the order of the text.
    pub actions: Vec<TableAction>,
}

/// An action of ALTER TABLE.
#[derive(Debug, Clone, PartialEq)]
pub enum TableAction {
    /// ADD COLUMN
    AddColumn {
        /// The column.
        column: Box<ColumnDefinition>,
        /// IF NOT EXISTS
        if_not_exists: bool,
    },
    /// DROP COLUMN
    DropColumn {
        /// The column.
        name: Ident,
        /// IF EXISTS
        if_exists: bool,
        /// CASCADE
        cascade: bool,
    },
    /// ALTER COLUMN
    AlterColumn {
        /// The column.
        name: Ident,
        /// What is done to it.
        action: ColumnAction,
    },
    /// ADD CONSTRAINT
    AddConstraint(Constraint),
    /// VALIDATE CONSTRAINT
    ValidateConstraint(Ident),
    /// DROP CONSTRAINT
    DropConstraint {
        /// The constraint.
        name: Ident,
        /// IF EXISTS
        if_exists: bool,
        /// CASCADE
        cascade: bool,
    },
    /// RENAME CONSTRAINT
    RenameConstraint {
        /// Its name.
        from: Ident,
        /// Its new name.
        to: Ident,
    },
    /// RENAME COLUMN
    RenameColumn {
        /// Its name.
        from: Ident,
        /// Its new name.
        to: Ident,
    },
    /// RENAME TO
    Rename(Ident),
    /// SET SCHEMA
    SetSchema(Ident),
    /// SET (...)
    SetOptions(Vec<StorageOption>),
    /// RESET (...)
    ResetOptions(Vec<StorageOption>),
    /// SET TABLESPACE
    SetTablespace(String),
}

/// An action of ALTER COLUMN.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnAction {
    /// SET DEFAULT
    SetDefault(KeptExpr),
    /// DROP DEFAULT
    DropDefault,
    /// SET NOT NULL
    SetNotNull,
    /// DROP NOT NULL
    DropNotNull,
    /// TYPE
    SetType {
        /// The new type.
        data_type: TypeName,
        /// USING
        using: Option<Box<Expr>>,
    },
    /// ADD GENERATED ... AS IDENTITY
    AddIdentity(Identity, Box<SequenceOptions>),
    /// SET GENERATED, SET options of its sequence, RESTART
    SetIdentity(Option<Identity>, Box<SequenceOptions>),
    /// DROP IDENTITY
    DropIdentity {
        /// IF EXISTS
        if_exists: bool,
    },
}

/// ALTER SEQUENCE.
#[derive(Debug, Clone, PartialEq)]
pub struct AlterSequence {
    /// The sequence.
    pub name: ObjectName,
    /// IF EXISTS
    pub if_exists: bool,
    /// What is done to it.
    pub action: SequenceAction,
}

/// The action of ALTER SEQUENCE.
#[derive(Debug, Clone, PartialEq)]
pub enum SequenceAction {
    /// Other options.
    SetOptions(SequenceOptions),
    /// RENAME TO
    Rename(String),
    /// SET SCHEMA
    SetSchema(String),
}

/// ALTER INDEX ... RENAME TO.
#[derive(Debug, Clone, PartialEq)]
pub struct RenameIndex {
    /// The index.
    pub name: ObjectName,
    /// IF EXISTS
    pub if_exists: bool,
    /// Its new name.
    pub to: String,
}

/// ALTER INDEX ... SET TABLESPACE
#[derive(Debug, Clone, PartialEq)]
pub struct MoveIndex {
    /// The index.
    pub name: ObjectName,
    /// IF EXISTS
    pub if_exists: bool,
    /// Its new tablespace.
    pub tablespace: String,
}

/// COMMENT ON.
#[derive(Debug, Clone, PartialEq)]
pub struct Comment {
    /// The kind of the object.
    pub kind: CommentKind,
    /// The name of the object. The name of a column or constraint follows the name of its table.
    pub name: ObjectName,
    /// The comment. `None` removes the old comment.
    pub text: Option<String>,
}

/// The kinds of objects that can have a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentKind {
    /// COLUMN
    Column,
    /// CONSTRAINT ... ON a table
    Constraint,
    /// INDEX
    Index,
    /// ROLE
    Role,
    /// DATABASE
    Database,
    /// SCHEMA
    Schema,
    /// SEQUENCE
    Sequence,
    /// TABLE
    Table,
    /// VIEW
    View,
}

/// TRUNCATE.
#[derive(Debug, Clone, PartialEq)]
pub struct Truncate {
    /// Tables.
    pub tables: Vec<ObjectName>,
    /// For each of them: whether its name has ONLY.
    pub only: Vec<bool>,
    /// RESTART IDENTITY
    pub restart_identity: bool,
    /// CASCADE
    pub cascade: bool,
}

/// DROP.
#[derive(Debug, Clone, PartialEq)]
pub struct Drop {
    /// The kind of the objects.
    pub kind: DropKind,
    /// Their names.
    pub names: Vec<ObjectName>,
    /// IF EXISTS
    pub if_exists: bool,
    /// CASCADE
    pub cascade: bool,
}

/// The kinds of objects of DROP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropKind {
    /// INDEX
    Index,
    /// SCHEMA
    Schema,
    /// SEQUENCE
    Sequence,
    /// TABLE
    Table,
    /// VIEW
    View,
}

impl DropKind {
    /// Returns the command tag of its DROP.
    pub fn tag(self) -> &'static str {
        match self {
            DropKind::Index => "DROP INDEX",
            DropKind::Schema => "DROP SCHEMA",
            DropKind::Sequence => "DROP SEQUENCE",
            DropKind::Table => "DROP TABLE",
            DropKind::View => "DROP VIEW",
        }
    }

    /// Returns the name in error messages.
    pub fn name(self) -> &'static str {
        match self {
            DropKind::Index => "index",
            DropKind::Schema => "schema",
            DropKind::Sequence => "sequence",
            DropKind::Table => "table",
            DropKind::View => "view",
        }
    }
}
