//! The definitions of a database. All names are written as in SQL: quoted if necessary, and relations with
//! their schemas.

/// The definitions of a database, in an order in which they can be made again.
#[derive(Debug, Default)]
pub struct Schema {
    /// Names of schemas.
    pub schemas: Vec<String>,
    /// Sequences, also those of identity columns.
    pub sequences: Vec<Sequence>,
    /// Tables. Partitions are with their tables.
    pub tables: Vec<Table>,
    /// Views. A view comes after those that it reads.
    pub views: Vec<View>,
    /// Comments.
    pub comments: Vec<Comment>,
}

/// A sequence.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// Qualified name.
    pub name: String,
    /// The type of its numbers.
    pub number_type: String,
    /// The options after the name in CREATE SEQUENCE, without the type.
    pub options: String,
    /// The column that owns it.
    pub owner: Option<SequenceOwner>,
}

/// The column to which a sequence belongs.
#[derive(Debug, Clone)]
pub struct SequenceOwner {
    /// OID of the table.
    pub table: String,
    /// Number of the column.
    pub column: String,
    /// Whether it makes the values of an identity column.
    pub is_identity: bool,
}

/// A table with everything that belongs to it alone.
#[derive(Debug, Clone)]
pub struct Table {
    /// OID.
    pub oid: String,
    /// Qualified name.
    pub name: String,
    /// Whether it is UNLOGGED.
    pub is_unlogged: bool,
    /// The key after PARTITION BY.
    pub partition_key: Option<String>,
    /// Partitions.
    pub partitions: Vec<Partition>,
    /// The tables from which it inherits columns.
    pub inherits: Vec<String>,
    /// Whether another table inherits from it.
    pub has_heirs: bool,
    /// Storage options for WITH.
    pub options: Vec<String>,
    /// The engine for USING, if it is not the default.
    pub method: Option<String>,
    /// The tablespace, if it is not the default.
    pub tablespace: Option<String>,
    /// Columns in order.
    pub columns: Vec<Column>,
    /// The primary key: its name, and its definition.
    pub primary_key: Option<Constraint>,
    /// CHECK constraints.
    pub checks: Vec<Constraint>,
    /// UNIQUE and EXCLUDE constraints.
    pub unique: Vec<Constraint>,
    /// Foreign keys.
    pub foreign_keys: Vec<Constraint>,
    /// Indexes that belong to no constraint.
    pub indexes: Vec<Index>,
}

/// A partition.
#[derive(Debug, Clone)]
pub struct Partition {
    /// Qualified name.
    pub name: String,
    /// FOR VALUES ..., or DEFAULT.
    pub bound: String,
    /// PARTITION BY ..., if it is partitioned itself.
    pub key: Option<String>,
}

/// A column.
#[derive(Debug, Clone)]
pub struct Column {
    /// Number in the table.
    pub number: String,
    /// Name.
    pub name: String,
    /// The type as it is declared.
    pub declared: String,
    /// The type's facts from `pg_type`.
    pub type_facts: TypeFacts,
    /// Whether NULL is refused.
    pub is_not_null: bool,
    /// The default, or the expression of a generated column.
    pub default: Option<String>,
    /// `a` ALWAYS or `d` BY DEFAULT for an identity column.
    pub identity: Option<char>,
    /// Whether it is a generated column.
    pub is_generated: bool,
    /// The collation, if it is not the default.
    pub collation: Option<String>,
}

/// What `pg_type` says about a column's type.
#[derive(Debug, Clone, Default)]
pub struct TypeFacts {
    /// OID.
    pub oid: String,
    /// `typtype`: `b` base, `e` enum, `d` domain, `c` composite, `r` range, `m` multirange.
    pub kind: String,
    /// Name without schema.
    pub name: String,
    /// The name of the element's type of an array.
    pub element: Option<String>,
    /// `typtype` of the element.
    pub element_kind: Option<String>,
    /// The declared type below a domain.
    pub base: Option<String>,
    /// The name of the type below a domain.
    pub base_name: Option<String>,
    /// The element's type below a domain over an array.
    pub base_element: Option<String>,
}

/// A constraint.
#[derive(Debug, Clone)]
pub struct Constraint {
    /// Name.
    pub name: String,
    /// The definition after the name.
    pub definition: String,
}

/// An index.
#[derive(Debug, Clone)]
pub struct Index {
    /// Qualified name.
    pub name: String,
    /// CREATE INDEX.
    pub definition: String,
}

/// A view.
#[derive(Debug, Clone)]
pub struct View {
    /// Qualified name.
    pub name: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The query.
    pub query: String,
    /// Options for WITH.
    pub options: Vec<String>,
}

/// A comment.
#[derive(Debug, Clone)]
pub struct Comment {
    /// The object, such as `COLUMN public.t.c`.
    pub on: String,
    /// The comment as a literal.
    pub literal: String,
}

impl Table {
    /// Returns the sequence of an identity column.
    pub fn identity<'s>(&self, column: &Column, schema: &'s Schema) -> Option<&'s Sequence> {
        schema.sequences.iter().find(|sequence| {
            sequence.owner.as_ref().is_some_and(|owner| {
                owner.is_identity && owner.table == self.oid && owner.column == column.number
            })
        })
    }
}
