//! Binds partitions: how a table is partitioned, its partitions, and a statement that names a partition.
//!
//! Invariants
//! 1. A statement on a partition is a statement on the whole table with one more condition. So reading and
//!    changing a partition needs no other code.
//!
//! This module does not know which partition a row is in (`partition`).

use std::sync::Arc;

use varve_engine::{
    Bound, ColumnDef, Datum, Edge, ObjectId, Part, PartitionMethod, Partitions, TableDef, Value, is_hashable,
};

use super::order::check_orderable;
use super::scope::Scope;
use super::{Binder, storage};
use crate::ast::{self, CreateTable, Ident, PartitionBound, PartitionBy, PartitionOf, RangeEdge};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::eval::func::hash::IN_PART;
use crate::eval::func::range::IN_RANGE;
use crate::names::{fold, object_name, undefined_table};
use crate::partition::{is_before, placed};
use crate::system::definitions::edges;
use crate::ty::Typed;

/// Evaluates the expression of a bound.
pub type ValueOf<'a> = &'a dyn Fn(&Expr) -> Result<Value>;

const INVALID_OBJECT_DEFINITION: SqlState = SqlState("42P17");

impl Binder<'_> {
    /// Returns the condition for a row of the named part, if the statement names one.
    pub(super) fn part_condition(&mut self, scope: &Scope) -> Result<Option<Expr>> {
        let Some(part) = self.part.take() else { return Ok(None) };
        if scope.relations.len() != 1 {
            return Err(SqlError::unsupported("a join with a partition by its own name")
                .with_hint("Name the partitioned table."));
        }
        let table =
            self.uses.tables.iter().find(|t| {
                t.partitions.as_ref().is_some_and(|p| p.parts.iter().any(|other| other.id == part.id))
            });
        let partitions = table.and_then(|t| t.partitions.as_ref());
        let Some(partitions) = partitions else { return Err(SqlError::internal("a part of no table")) };
        Ok(Some(condition(partitions, &part.bound)))
    }

    /// Binds CREATE TABLE ... PARTITION OF. Returns the table and its new part. The bound is not yet checked
    /// against the other parts.
    pub fn create_part(
        &mut self,
        t: &CreateTable,
        of: &PartitionOf,
        value_of: ValueOf<'_>,
    ) -> Result<(Arc<TableDef>, Part)> {
        storage::of_new_table(&t.options)?;
        if let Some(option) = t.options.iter().find(|option| storage::is_own(&option.name)) {
            let hint = "Set it for the partitioned table: its partitions are stored together.";
            let what = format!("{} of a partition alone", option.name);
            return Err(SqlError::unsupported(what).with_hint(hint));
        }
        let (schema, name) = object_name(&t.name)?;
        let (parent_schema, parent) = object_name(&of.parent)?;
        if self.catalog.part(&parent_schema, &parent).is_some() {
            return Err(not_partitioned(&parent));
        }
        let table = self.catalog.table(&parent_schema, &parent).ok_or_else(|| undefined_table(&of.parent))?;
        let Some(partitions) = &table.partitions else { return Err(not_partitioned(&parent)) };
        let bound = match partitions.method {
            PartitionMethod::Hash => hash_bound(&of.bound)?,
            PartitionMethod::Range => self.range_bound(&table, partitions, &of.bound, value_of)?,
        };
        let part = Part { id: ObjectId(0), schema, name, bound };
        Ok((table, part))
    }

    fn range_bound(
        &mut self,
        table: &TableDef,
        partitions: &Partitions,
        written: &PartitionBound,
        value_of: ValueOf<'_>,
    ) -> Result<Bound> {
        let (from, to) = match written {
            PartitionBound::Default => return Ok(Bound::Default),
            PartitionBound::Range { from, to } => (from, to),
            _ => return Err(invalid("invalid bound specification for a range partition")),
        };
        for (side, edges) in [("FROM", from), ("TO", to)] {
            if edges.len() != partitions.columns.len() {
                let message = format!("{side} must specify exactly one value per partitioning column");
                return Err(invalid(message));
            }
        }
        let columns = || partitions.columns.iter().map(|c| &table.columns[*c]);
        let mut side = |edges: &[RangeEdge]| -> Result<Vec<Edge>> {
            let edges = edges.iter().zip(columns());
            let edges = edges.map(|(edge, column)| self.edge(edge, column, value_of));
            edges.collect::<Result<Vec<Edge>>>().and_then(only_like_it)
        };
        Ok(Bound::Range { from: side(from)?, to: side(to)? })
    }

    fn edge(&mut self, edge: &RangeEdge, column: &ColumnDef, value_of: ValueOf<'_>) -> Result<Edge> {
        let written = match edge {
            RangeEdge::Least => return Ok(Edge::Least),
            RangeEdge::Greatest => return Ok(Edge::Greatest),
            RangeEdge::At(e) => e,
        };
        let mut scope = Scope { no_aggregates: Some("partition bound"), ..Scope::default() };
        let bound = self.expression(written, &mut scope).map_err(|e| match e.sqlstate {
            SqlState::UNDEFINED_COLUMN => SqlError {
                sqlstate: SqlState::FEATURE_NOT_SUPPORTED,
                message: "cannot use column reference in partition bound expression".into(),
                ..e
            },
            _ => e,
        })?;
        let expr = self.assign(bound, &column.name, column.column_type).map_err(|e| match e.sqlstate {
            SqlState::DATATYPE_MISMATCH => {
                let type_name = Typed::of_column(column.column_type).ty.name();
                let message = format!(
                    "specified value cannot be cast to type {type_name} for column \"{}\"",
                    column.name
                );
                SqlError { message: message.into(), hint: None, ..e }
            }
            _ => e,
        })?;
        match value_of(&expr)? {
            Value::Null => {
                Err(SqlError::new(INVALID_OBJECT_DEFINITION, "cannot specify NULL in range bound"))
            }
            value => Ok(Edge::At(value)),
        }
    }
}

/// Returns the condition that a row is in a part.
fn condition(partitions: &Partitions, bound: &Bound) -> Expr {
    let number = |n: i64| Expr::Const(Value::Int8(n));
    let columns = || partitions.columns.iter().map(|c| Expr::Column(*c));
    match bound {
        Bound::Hash { modulus, remainder } => {
            let mut arguments = vec![number(i64::from(*modulus)), number(i64::from(*remainder))];
            arguments.extend(columns());
            Expr::Call(&IN_PART, arguments.into())
        }
        Bound::Range { from, to } => {
            let ends = placed(from).zip(placed(to)).zip(columns());
            let arguments = ends.flat_map(|(((low, first), (high, end)), column)| {
                let value = |datum: Datum<'_>| Expr::Const(datum.to_value());
                [number(low), value(first), number(high), value(end), column]
            });
            Expr::Call(&IN_RANGE, arguments.collect())
        }
        Bound::Default => {
            let others = partitions.parts.iter().filter(|part| part.bound != Bound::Default);
            let others = others.map(|part| Expr::Not(Box::new(condition(partitions, &part.bound))));
            others.reduce(|a, b| Expr::And([a, b].into())).unwrap_or(Expr::Const(Value::Bool(true)))
        }
    }
}

fn hash_bound(written: &PartitionBound) -> Result<Bound> {
    let (modulus, remainder) = match written {
        PartitionBound::Hash { modulus, remainder } => (modulus, remainder),
        PartitionBound::Default => {
            return Err(invalid("a hash-partitioned table may not have a default partition"));
        }
        _ => return Err(invalid("invalid bound specification for a hash partition")),
    };
    match (u32::try_from(*modulus), u32::try_from(*remainder)) {
        (Ok(modulus), Ok(remainder)) => Ok(Bound::Hash { modulus, remainder }),
        _ => Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "modulus or remainder is out of range")),
    }
}

/// Fails with 42804 if a value follows MINVALUE or MAXVALUE.
fn only_like_it(edges: Vec<Edge>) -> Result<Vec<Edge>> {
    let word = |edge: &Edge| match edge {
        Edge::Least => Some("MINVALUE"),
        Edge::Greatest => Some("MAXVALUE"),
        Edge::At(_) => None,
    };
    let unlike = edges.windows(2).find(|pair| word(&pair[0]).is_some() && word(&pair[0]) != word(&pair[1]));
    match unlike.and_then(|pair| word(&pair[0])) {
        None => Ok(edges),
        Some(word) => {
            let message = format!("every bound following {word} must also be {word}");
            Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message))
        }
    }
}

/// Returns the error 42P16.
fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message)
}

/// Returns the error 42P17.
fn not_partitioned(name: &str) -> SqlError {
    SqlError::new(INVALID_OBJECT_DEFINITION, format!("\"{name}\" is not partitioned"))
}

/// Binds PARTITION BY HASH or RANGE (columns).
pub(super) fn partition_key(
    by: &PartitionBy,
    columns: &[ColumnDef],
) -> Result<(PartitionMethod, Vec<usize>)> {
    let method = match by.method {
        ast::PartitionMethod::Hash => PartitionMethod::Hash,
        ast::PartitionMethod::Range => PartitionMethod::Range,
        ast::PartitionMethod::List => {
            return Err(
                SqlError::unsupported("PARTITION BY LIST").with_hint("Varve has hash and range partitions.")
            );
        }
    };
    let keys = by.columns.iter().map(|column| key_column(column, columns, method));
    Ok((method, keys.collect::<Result<_>>()?))
}

fn key_column(ident: &Ident, columns: &[ColumnDef], method: PartitionMethod) -> Result<usize> {
    let name = fold(ident);
    let ordinal = columns.iter().position(|c| c.name == name).ok_or_else(|| {
        let message = format!("column \"{name}\" named in partition key does not exist");
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    })?;
    let column_type = columns[ordinal].column_type;
    match method {
        PartitionMethod::Hash if is_hashable(column_type) => Ok(ordinal),
        PartitionMethod::Range => check_orderable(column_type).map(|()| ordinal),
        PartitionMethod::Hash => {
            Err(SqlError::unsupported(format!("a partition key of the type of column \"{name}\"")))
        }
    }
}

/// Fails with 0A000 if a unique key of a partitioned table omits a column of the partition key.
pub(super) fn check_unique_key(
    kind: &str,
    table: &str,
    partition_by: Option<&[usize]>,
    columns: &[ColumnDef],
    key: &[usize],
) -> Result<()> {
    let missing = partition_by.unwrap_or_default().iter().find(|c| !key.contains(c));
    let Some(missing) = missing else { return Ok(()) };
    let message = "unique constraint on partitioned table must include all partitioning columns";
    let detail = format!(
        "{kind} constraint on table \"{table}\" lacks column \"{}\" which is part of the partition key.",
        columns[*missing].name
    );
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_detail(detail))
}

/// Returns the partition key of an existing table.
pub(super) fn partition_by(table: &TableDef) -> Option<&[usize]> {
    table.partitions.as_ref().map(|p| p.columns.as_slice())
}

/// Checks that a bound accepts some row and does not overlap another bound.
pub fn check_bound(parts: &[Part], new: &Part) -> Result<()> {
    match &new.bound {
        Bound::Hash { modulus, remainder } => check_hash(parts, &new.name, (*modulus, *remainder)),
        Bound::Range { from, to } => check_range(parts, &new.name, from, to),
        Bound::Default => match parts.iter().find(|part| part.bound == Bound::Default) {
            None => Ok(()),
            Some(part) => {
                let message = format!(
                    "partition \"{}\" conflicts with existing default partition \"{}\"",
                    new.name, part.name
                );
                Err(SqlError::new(INVALID_OBJECT_DEFINITION, message))
            }
        },
    }
}

fn check_range(parts: &[Part], name: &str, from: &[Edge], to: &[Edge]) -> Result<()> {
    if !is_before(from, to) {
        let message = format!("empty range bound specified for partition \"{name}\"");
        let detail = format!(
            "Specified lower bound {} is greater than or equal to upper bound {}.",
            edges(from),
            edges(to)
        );
        return Err(SqlError::new(INVALID_OBJECT_DEFINITION, message).with_detail(detail));
    }
    let overlaps = |part: &&Part| match &part.bound {
        Bound::Range { from: first, to: end } => is_before(from, end) && is_before(first, to),
        _ => false,
    };
    parts.iter().find(overlaps).map_or(Ok(()), |part| Err(overlap(name, &part.name)))
}

fn overlap(new: &str, part: &str) -> SqlError {
    SqlError::new(
        INVALID_OBJECT_DEFINITION,
        format!("partition \"{new}\" would overlap partition \"{part}\""),
    )
}

/// Checks the rules of PostgreSQL's hash bounds. Each modulus divides the next larger one. No row fits two
/// parts.
fn check_hash(parts: &[Part], name: &str, (modulus, remainder): (u32, u32)) -> Result<()> {
    if modulus == 0 {
        return Err(invalid("modulus for hash partition must be an integer value greater than zero"));
    }
    if remainder >= modulus {
        return Err(invalid("remainder for hash partition must be less than modulus"));
    }
    let of_part = |part: &Part| match part.bound {
        Bound::Hash { modulus, remainder } => Some((modulus, remainder, part.name.clone())),
        _ => None,
    };
    let mut sorted: Vec<(u32, u32, String)> = parts.iter().filter_map(of_part).collect();
    sorted.sort();
    sorted.iter().rev().try_for_each(|(old, _, part)| check_factor(*old, part, modulus))?;
    let overlaps = |(old, left, _): &&(u32, u32, String)| {
        let small = modulus.min(*old);
        left % small == remainder % small
    };
    sorted.iter().find(overlaps).map_or(Ok(()), |(_, _, part)| Err(overlap(name, part)))
}

fn check_factor(old: u32, part: &str, new: u32) -> Result<()> {
    if old.max(new).is_multiple_of(old.min(new)) {
        return Ok(());
    }
    let message = "every hash partition modulus must be a factor of the next larger modulus";
    let relation = if new < old { "a factor of" } else { "divisible by" };
    let detail = format!(
        "The new modulus {new} is not {relation} {old}, the modulus of existing partition \"{part}\"."
    );
    Err(SqlError::new(INVALID_OBJECT_DEFINITION, message).with_detail(detail))
}
