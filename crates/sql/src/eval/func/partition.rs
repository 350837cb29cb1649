//! Functions about the partitions of a table. In Varve a partition has no partitions of its own.
//!
//! `pg_partition_tree` and `pg_partition_ancestors` return rows. They are built from array functions, one for
//! each column, whose names users cannot write. FROM makes rows of the arrays.

use varve_engine::{Array, ColumnType, Datum, Value};

use super::{Builtin, catalog, int};
use crate::error::Result;
use crate::eval::Cx;
use crate::system::{self, What};
use crate::ty::{Reg, Ty};

const CLASS: Ty = Ty::Reg(Reg::Class);
const OIDS: Ty = Ty::Array(&Ty::Oid);

pub(super) const TABLE: &[Builtin] = &[
    catalog("pg_partition_root", &[CLASS], CLASS, |a, cx| {
        let line = line_of(a, cx)?;
        Ok(line.last().map_or(Datum::Null, |oid| Datum::Int8(*oid)))
    }),
    catalog("pg_partition_ancestors.relid", &[CLASS], OIDS, |a, cx| {
        Ok(list(ColumnType::Int8, line_of(a, cx)?.into_iter().map(Datum::Int8), cx))
    }),
    catalog("pg_partition_tree.relid", &[CLASS], OIDS, |a, cx| {
        Ok(list(ColumnType::Int8, tree_of(a, cx)?.into_iter().map(|node| Datum::Int8(node.oid)), cx))
    }),
    catalog("pg_partition_tree.parentrelid", &[CLASS], OIDS, |a, cx| {
        let parents = tree_of(a, cx)?.into_iter().map(|node| node.parent.map_or(Datum::Null, Datum::Int8));
        Ok(list(ColumnType::Int8, parents, cx))
    }),
    catalog("pg_partition_tree.isleaf", &[CLASS], Ty::Array(&Ty::Bool), |a, cx| {
        let leaves = tree_of(a, cx)?.into_iter().map(|node| Datum::Bool(node.is_leaf));
        Ok(list(ColumnType::Bool, leaves, cx))
    }),
    catalog("pg_partition_tree.level", &[CLASS], Ty::Array(&Ty::Int4), |a, cx| {
        let levels = tree_of(a, cx)?.into_iter().map(|node| Datum::Int4(node.level));
        Ok(list(ColumnType::Int4, levels, cx))
    }),
];

/// A table of a partition tree.
struct Node {
    oid: i64,
    parent: Option<i64>,
    is_leaf: bool,
    level: i32,
}

fn list<'a>(element: ColumnType, values: impl Iterator<Item = Datum<'a>>, cx: &Cx<'a>) -> Datum<'a> {
    let mut array = Array::new(element);
    values.for_each(|value| array.push(value));
    cx.keep_value(Value::Array(array))
}

/// Returns the OIDs of a partition and its table, or of a partitioned table alone. The list is empty for
/// other relations.
fn line_of(a: &[Datum<'_>], cx: &Cx<'_>) -> Result<Vec<i64>> {
    let catalog = &cx.env.world()?.catalog;
    let Ok(oid) = u32::try_from(int(a, 0)) else { return Ok(Vec::new()) };
    Ok(match system::relation(catalog, oid).map(|r| r.what) {
        Some(What::Part(table, _)) => vec![i64::from(oid), i64::from(table.id.0)],
        Some(What::Table(table)) if table.partitions.is_some() => vec![i64::from(oid)],
        Some(What::Index(index)) if index.table.partitions.is_some() => vec![i64::from(oid)],
        _ => Vec::new(),
    })
}

/// Returns a relation and its partitions.
fn tree_of(a: &[Datum<'_>], cx: &Cx<'_>) -> Result<Vec<Node>> {
    let catalog = &cx.env.world()?.catalog;
    let line = line_of(a, cx)?;
    let Some(oid) = line.first().copied() else { return Ok(Vec::new()) };
    let below = system::parts_of(catalog, oid as u32);
    let top = Node { oid, parent: line.get(1).copied(), is_leaf: line.len() > 1, level: 0 };
    let part = |part: u32| Node { oid: i64::from(part), parent: Some(oid), is_leaf: true, level: 1 };
    Ok(std::iter::once(top).chain(below.into_iter().map(part)).collect())
}
