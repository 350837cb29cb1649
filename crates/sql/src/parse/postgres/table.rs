//! Converts CREATE TABLE from the tree of PostgreSQL's parser to the syntax tree of `crate::ast`: columns,
//! constraints and partitions.
//!
//! Invariants
//! 1. DEFERRABLE and similar words belong to the constraint before them, as in PostgreSQL's
//!    `transformConstraintAttrs`.
//!
//! `bind::ddl` decides which clauses Varve supports.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    ColumnDef, ConstrType, Constraint as Written, CreateStmt, Node, PartitionBoundSpec,
    PartitionRangeDatumKind, PartitionSpec, PartitionStrategy,
};
use varve_engine::{Action, Identity};

use super::definition::{persistence, refuse, said, storage};
use super::node::{Source, storage_options, syntax};
use super::place::{Reader, kind};
use crate::ast::{
    ColumnDefinition, Constraint, ConstraintKind, CreateTable, ForeignKey, Ident, PartitionBound,
    PartitionBy, PartitionMethod, PartitionOf, RangeEdge,
};
use crate::error::{Result, SqlError};

impl Reader<'_> {
    pub(super) fn create_table(&self, t: &CreateStmt) -> Result<CreateTable> {
        let unlogged = persistence(t.relation.as_ref(), "a temporary table")?;
        let method = storage(&t.access_method, t.oncommit())?;
        let is_part = t.partbound.is_some();
        refuse(&[
            (t.of_typename.is_some(), "a table of a type"),
            (!is_part && !t.inh_relations.is_empty(), "INHERITS"),
            (is_part && !t.table_elts.is_empty(), "a column or constraint of a partition alone"),
            (is_part && t.partspec.is_some(), "a partition that is partitioned"),
        ])?;
        let (mut columns, mut constraints) = (Vec::new(), Vec::new());
        for element in &t.table_elts {
            match kind(Some(element))? {
                NodeEnum::ColumnDef(column) => columns.push(self.column_definition(column)?),
                NodeEnum::Constraint(c) => constraints.push(self.constraint(c, None)?),
                NodeEnum::TableLikeClause(_) => return Err(SqlError::unsupported("CREATE TABLE LIKE")),
                _ => return Err(SqlError::internal("an element of a table is none")),
            }
        }
        Ok(CreateTable {
            name: self.relation(t.relation.as_ref())?,
            if_not_exists: t.if_not_exists,
            unlogged,
            columns,
            constraints,
            partition_of: match &t.partbound {
                Some(bound) => Some(self.partition_of(t.inh_relations.first(), bound)?),
                None => None,
            },
            partition_by: t.partspec.as_ref().map(|by| self.partition_by(by)).transpose()?,
            options: storage_options(&t.options)?,
            method,
            tablespace: said(&t.tablespacename),
        })
    }

    pub(super) fn column_definition(&self, c: &ColumnDef) -> Result<ColumnDefinition> {
        refuse(&[
            (!c.compression.is_empty(), "COMPRESSION of a column"),
            (!c.storage_name.is_empty(), "STORAGE of a column"),
            (!c.fdwoptions.is_empty(), "OPTIONS of a column"),
            (c.coll_clause.is_some(), "COLLATE of a column"),
        ])?;
        let type_name = c.type_name.as_ref().ok_or_else(|| SqlError::internal("a column without a type"))?;
        let name = self.ident(&c.colname, c.location);
        let mut constraints = Vec::with_capacity(c.constraints.len());
        for constraint in self.with_attributes(&c.constraints)? {
            constraints.push(self.constraint(&constraint, Some(&name))?);
        }
        Ok(ColumnDefinition { data_type: self.type_name(type_name)?, name, constraints })
    }

    /// Returns the constraints of a column, to which DEFERRABLE and similar words after them are applied.
    fn with_attributes(&self, list: &[Node]) -> Result<Vec<Written>> {
        let mut out: Vec<Written> = Vec::with_capacity(list.len());
        let (mut is_deferrable, mut is_deferred) = (None, None);
        for node in list {
            let NodeEnum::Constraint(c) = kind(Some(node))? else {
                return Err(SqlError::internal("a constraint of a column is none"));
            };
            let (said, value, clause, both) = match c.contype() {
                ConstrType::ConstrAttrDeferrable => {
                    (&mut is_deferrable, true, "DEFERRABLE", "DEFERRABLE/NOT DEFERRABLE")
                }
                ConstrType::ConstrAttrNotDeferrable => {
                    (&mut is_deferrable, false, "NOT DEFERRABLE", "DEFERRABLE/NOT DEFERRABLE")
                }
                ConstrType::ConstrAttrDeferred => {
                    (&mut is_deferred, true, "INITIALLY DEFERRED", "INITIALLY IMMEDIATE/DEFERRED")
                }
                ConstrType::ConstrAttrImmediate => {
                    (&mut is_deferred, false, "INITIALLY IMMEDIATE", "INITIALLY IMMEDIATE/DEFERRED")
                }
                ConstrType::ConstrAttrNotEnforced => return Err(SqlError::unsupported("NOT ENFORCED")),
                ConstrType::ConstrAttrEnforced => continue,
                _ => {
                    (is_deferrable, is_deferred) = (None, None);
                    out.push((**c).clone());
                    continue;
                }
            };
            let at = Source { sql: self.text() }.position(c.location);
            let Some(last) = out.last_mut().filter(|last| takes_attributes(last.contype())) else {
                return Err(syntax(format!("misplaced {clause} clause")).at(at));
            };
            if said.replace(value).is_some() {
                return Err(syntax(format!("multiple {both} clauses not allowed")).at(at));
            }
            if is_deferrable == Some(false) && is_deferred == Some(true) {
                let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
                return Err(syntax(message).at(at));
            }
            last.initdeferred = is_deferred.unwrap_or(false);
            last.deferrable = is_deferrable.unwrap_or(last.initdeferred);
        }
        Ok(out)
    }

    /// Converts a constraint of a column or of a table.
    pub(super) fn constraint(&self, c: &Written, column: Option<&Ident>) -> Result<Constraint> {
        let name = (!c.conname.is_empty()).then(|| self.ident(&c.conname, c.location));
        Ok(Constraint { name, kind: self.constraint_kind(c, column)?, not_valid: c.skip_validation })
    }

    fn constraint_kind(&self, c: &Written, column: Option<&Ident>) -> Result<ConstraintKind> {
        let columns = |list: &[Node]| match column {
            Some(column) => Ok(vec![column.clone()]),
            None => self.idents(list, c.location),
        };
        Ok(match c.contype() {
            ConstrType::ConstrNull if column.is_some() => ConstraintKind::Null,
            ConstrType::ConstrNotnull if column.is_some() => ConstraintKind::NotNull,
            ConstrType::ConstrNull | ConstrType::ConstrNotnull => {
                return Err(SqlError::unsupported("NOT NULL as a constraint of a table"));
            }
            ConstrType::ConstrDefault => ConstraintKind::Default(self.kept(c.raw_expr.as_deref())?),
            ConstrType::ConstrIdentity => {
                ConstraintKind::Identity(identity_of(c), self.sequence_options(&c.options)?)
            }
            ConstrType::ConstrGenerated => return Err(SqlError::unsupported("a generated column")),
            ConstrType::ConstrCheck => {
                refuse(&[(c.is_no_inherit, "NO INHERIT"), (!c.is_enforced, "NOT ENFORCED")])?;
                ConstraintKind::Check(self.kept(c.raw_expr.as_deref())?)
            }
            ConstrType::ConstrPrimary => {
                check_key(c)?;
                ConstraintKind::PrimaryKey(columns(&c.keys)?)
            }
            ConstrType::ConstrUnique => {
                check_key(c)?;
                ConstraintKind::Unique(columns(&c.keys)?)
            }
            ConstrType::ConstrExclusion => return Err(SqlError::unsupported("EXCLUDE")),
            ConstrType::ConstrForeign => {
                ConstraintKind::ForeignKey(self.foreign_key(c, columns(&c.fk_attrs)?)?)
            }
            _ => return Err(SqlError::internal("a constraint of no kind")),
        })
    }

    fn foreign_key(&self, c: &Written, columns: Vec<Ident>) -> Result<ForeignKey> {
        refuse(&[
            (!c.is_enforced, "NOT ENFORCED"),
            (c.fk_matchtype == "p", "MATCH PARTIAL"),
            (!c.fk_del_set_cols.is_empty(), "ON DELETE SET of some columns"),
            (c.fk_with_period || c.pk_with_period, "PERIOD"),
        ])?;
        Ok(ForeignKey {
            columns,
            table: self.relation(c.pktable.as_ref())?,
            referred: self.idents(&c.pk_attrs, c.location)?,
            on_delete: action(&c.fk_del_action),
            on_update: action(&c.fk_upd_action),
            match_full: c.fk_matchtype == "f",
            deferrable: c.deferrable,
            initially_deferred: c.initdeferred,
        })
    }

    fn partition_of(&self, parent: Option<&Node>, b: &PartitionBoundSpec) -> Result<PartitionOf> {
        let NodeEnum::RangeVar(parent) = kind(parent)? else {
            return Err(SqlError::internal("a partition of no table"));
        };
        let bound = match (b.is_default, b.strategy.as_str()) {
            (true, _) => PartitionBound::Default,
            (false, "h") => PartitionBound::Hash { modulus: b.modulus, remainder: b.remainder },
            (false, "r") => {
                PartitionBound::Range { from: self.edges(&b.lowerdatums)?, to: self.edges(&b.upperdatums)? }
            }
            _ => PartitionBound::List,
        };
        Ok(PartitionOf { parent: self.relation_name(parent), bound })
    }

    /// Converts the bounds of FROM or TO. In the grammar's tree, MINVALUE and MAXVALUE are names of columns.
    fn edges(&self, list: &[Node]) -> Result<Vec<RangeEdge>> {
        let mut out = Vec::with_capacity(list.len());
        for node in list {
            out.push(match kind(Some(node))? {
                NodeEnum::PartitionRangeDatum(d) => match d.kind() {
                    PartitionRangeDatumKind::PartitionRangeDatumMinvalue => RangeEdge::Least,
                    PartitionRangeDatumKind::PartitionRangeDatumMaxvalue => RangeEdge::Greatest,
                    _ => RangeEdge::At(self.expr(d.value.as_deref())?),
                },
                NodeEnum::ColumnRef(c) => match c.fields.as_slice() {
                    [Node { node: Some(NodeEnum::String(s)) }] if s.sval == "minvalue" => RangeEdge::Least,
                    [Node { node: Some(NodeEnum::String(s)) }] if s.sval == "maxvalue" => RangeEdge::Greatest,
                    _ => RangeEdge::At(self.expr(Some(node))?),
                },
                _ => RangeEdge::At(self.expr(Some(node))?),
            });
        }
        Ok(out)
    }

    fn partition_by(&self, by: &PartitionSpec) -> Result<PartitionBy> {
        let method = match by.strategy() {
            PartitionStrategy::Hash => PartitionMethod::Hash,
            PartitionStrategy::Range => PartitionMethod::Range,
            _ => PartitionMethod::List,
        };
        let mut columns = Vec::with_capacity(by.part_params.len());
        for key in &by.part_params {
            let NodeEnum::PartitionElem(key) = kind(Some(key))? else {
                return Err(SqlError::internal("a part of a partition key is none"));
            };
            refuse(&[
                (key.expr.is_some(), "an expression in a partition key"),
                (!key.collation.is_empty(), "a collation of a partition key"),
                (!key.opclass.is_empty(), "an operator class of a partition key"),
            ])?;
            columns.push(self.ident(&key.name, key.location));
        }
        Ok(PartitionBy { method, columns })
    }
}

/// Returns whether a constraint of this kind may be deferrable in PostgreSQL.
fn takes_attributes(kind: ConstrType) -> bool {
    use ConstrType::{ConstrExclusion, ConstrForeign, ConstrPrimary, ConstrUnique};
    matches!(kind, ConstrPrimary | ConstrUnique | ConstrExclusion | ConstrForeign)
}

/// Refuses unsupported clauses of PRIMARY KEY and UNIQUE.
fn check_key(c: &Written) -> Result<()> {
    refuse(&[
        (!c.indexname.is_empty(), "a constraint USING INDEX"),
        (c.nulls_not_distinct, "NULLS NOT DISTINCT"),
        (!c.including.is_empty(), "INCLUDE"),
        (!c.options.is_empty(), "an option of a constraint's index"),
        (!c.indexspace.is_empty(), "a tablespace"),
        (c.without_overlaps, "WITHOUT OVERLAPS"),
        (c.deferrable || c.initdeferred, "a deferrable constraint"),
    ])
}

/// Converts GENERATED ALWAYS or BY DEFAULT.
pub(super) fn identity_of(c: &Written) -> Identity {
    if c.generated_when == "a" { Identity::Always } else { Identity::ByDefault }
}

/// Returns the foreign key action of a letter (PostgreSQL's parsenodes.h).
fn action(letter: &str) -> Action {
    match letter {
        "r" => Action::Restrict,
        "c" => Action::Cascade,
        "n" => Action::SetNull,
        "d" => Action::SetDefault,
        _ => Action::NoAction,
    }
}
