//! Executes CREATE TABLE ... PARTITION OF, and drops partitions.
//!
//! This module does not know which rows belong to a partition (`partition`).

use std::ops::ControlFlow;

use bumpalo::Bump;
use varve_engine::{
    Bound, Change, Error as EngineError, ObjectId, Part, Partitions, ScanSpec, TableDef, TableId, Transaction,
};

use super::Facts;
use super::notice::{Notices, Result, notice};
use crate::ast::{CreateTable, PartitionOf};
use crate::bind::Binder;
use crate::bind::part::check_bound;
use crate::error::{SqlError, SqlState};
use crate::eval::{Cx, Expr, Input, NoSequences};
use crate::partition;
use crate::table_method::{PAGED, TableMethod};

pub(super) fn create_part(
    b: &mut Binder<'_>,
    t: &CreateTable,
    of: &PartitionOf,
    txn: &mut Transaction,
    facts: &Facts,
    notices: &mut Notices,
) -> Result<&'static str> {
    let value_of = |e: &Expr| {
        let arena = Bump::new();
        let env = facts.env(&NoSequences);
        let cx = Cx { params: &[], arena: &arena, env: &env };
        Ok(e.eval(&Input::None, &cx)?.to_value())
    };
    let (table, part) = b.create_part(t, of, &value_of)?;
    if b.catalog.resolve(&part.schema, &part.name).is_some() {
        let message = format!("relation \"{}\" already exists", part.name);
        if t.if_not_exists {
            notice(notices, SqlState::DUPLICATE_TABLE.0, format!("{message}, skipping"));
            return Ok("CREATE TABLE");
        }
        return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message).into());
    }
    check_method(t, &table)?;
    let catalog = txn.catalog();
    if let Some(name) = &t.tablespace
        && super::tablespace::named(name, txn, &catalog, facts)? != table.storage.tablespace
    {
        let hint = "Name it for the partitioned table: its partitions are stored together.";
        return Err(SqlError::unsupported("a tablespace of a partition alone").with_hint(hint).into());
    }
    check_bound(table.partitions.as_ref().map_or(&[], |p| &p.parts), &part)?;
    let is_default = part.bound == Bound::Default;
    let (schema, name) = (part.schema.clone(), part.name.clone());
    let def = txn.add_part(table.id, part)?;
    let Some(partitions) = &def.partitions else { return Ok("CREATE TABLE") };
    let new = partitions.parts.iter().find(|p| p.schema == schema && p.name == name);
    if let (Some(default), Some(new), false) = (partition::default(partitions), new, is_default) {
        let keys = keys_of(&def, partitions, new.id, 1, txn)?;
        return if keys.is_empty() { Ok("CREATE TABLE") } else { Err(taken_by_default(default).into()) };
    }
    Ok("CREATE TABLE")
}

/// Fails with 0A000 if USING names another engine than that of the table. The setting with the default engine
/// has no effect on a partition.
fn check_method(t: &CreateTable, table: &TableDef) -> Result<()> {
    let Some(method) = &t.method else { return Ok(()) };
    let engine = TableMethod::of_new_table(Some(method), TableMethod::Paged)?.engine();
    if engine.as_deref().unwrap_or(PAGED) == table.engine {
        return Ok(());
    }
    let hint = "Name it for the partitioned table: its partitions are stored together.";
    Err(SqlError::unsupported("an access method of a partition alone").with_hint(hint).into())
}

/// Returns the error 23514: a row in the default partition belongs in the new partition.
fn taken_by_default(default: &Part) -> SqlError {
    let message = format!(
        "updated partition constraint for default partition \"{}\" would be violated by some row",
        default.name
    );
    SqlError::new(SqlState::CHECK_VIOLATION, message).of_table(&default.schema, &default.name)
}

/// Drops a partition and deletes its rows. No other transaction can have a lock on the table meanwhile.
pub(super) fn drop_part(table: TableId, part: ObjectId, txn: &mut Transaction) -> Result<()> {
    let stale = || EngineError::StaleDefinition { table: format!("table {}", table.0) };
    let before = txn.catalog().table_by_id(table).ok_or_else(stale)?;
    if txn.catalog().children(table).next().is_some() {
        return Err(SqlError::unsupported("DROP TABLE of a partition that a foreign key may refer to").into());
    }
    let partitions = before.partitions.as_ref().ok_or_else(stale)?;
    let def = txn.drop_part(table, part)?;
    let keys = keys_of(&def, partitions, part, usize::MAX, txn)?;
    let opened = txn.table(&def)?;
    for key in keys {
        txn.modify(&opened, &key, &mut |_| Ok(Change::Delete))?;
    }
    Ok(())
}

/// Returns the keys of the rows in a partition, at most `count_max`.
fn keys_of(
    def: &TableDef,
    partitions: &Partitions,
    part: ObjectId,
    count_max: usize,
    txn: &mut Transaction,
) -> Result<Vec<Vec<u8>>> {
    let opened = txn.table(def)?;
    let mut keys = Vec::new();
    txn.newest_reader().scan(&opened, &ScanSpec::ALL, &mut |key, row| {
        if partition::of_row(partitions, |c| row.get(c)).is_some_and(|p| p.id == part) {
            keys.push(key.to_vec());
        }
        Ok(if keys.len() < count_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(keys)
}
