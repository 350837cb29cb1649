//! Hash partitions: how a table is cut, its parts, and a part in the place of a table.
//!
//! Invariants
//! 1. A part is the table with one more condition: reading and changing it need no other code.
//!
//! Does not know: which part a row is in (`eval::func::hash`).

use sqlparser::ast::{self, Expr as Ast, ForValues, FunctionArg, FunctionArgExpr, FunctionArguments};
use varve_engine::{ColumnDef, HashPart, ObjectId, TableDef, TableId, Value};

use super::scope::Scope;
use super::{Binder, clauses_ddl, fold, object_name, undefined_table};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::eval::func::hash::{IN_PART, is_hashable};

const INVALID_OBJECT_DEFINITION: SqlState = SqlState("42P17");

impl Binder<'_> {
    /// The condition that a row is in the part that was named, if one was.
    pub(super) fn part_condition(&mut self, scope: &Scope) -> Result<Option<Expr>> {
        let Some(part) = self.part.take() else { return Ok(None) };
        if scope.relations.len() != 1 {
            return Err(SqlError::unsupported("a join with a partition by its own name")
                .with_hint("Name the partitioned table."));
        }
        let table = self
            .met_tables
            .iter()
            .find(|t| t.partitions.as_ref().is_some_and(|p| p.parts.iter().any(|other| other.id == part.id)));
        let columns = table.and_then(|t| t.partitions.as_ref()).map_or(&[][..], |p| &p.columns);
        let number = |n: u32| Expr::Const(Value::Int8(i64::from(n)));
        let mut arguments = vec![number(part.modulus), number(part.remainder)];
        arguments.extend(columns.iter().map(|c| Expr::Column(*c)));
        Ok(Some(Expr::Call(&IN_PART, arguments.into())))
    }

    /// CREATE TABLE ... PARTITION OF: the table and its new part.
    pub fn create_part(&mut self, t: &ast::CreateTable, of: &ast::ObjectName) -> Result<(TableId, HashPart)> {
        clauses_ddl::check_create_part(t)?;
        super::ddl::check_options(&t.table_options)?;
        let (schema, name) = object_name(&t.name)?;
        let (parent_schema, parent) = object_name(of)?;
        if self.catalog.part(&parent_schema, &parent).is_some() {
            return Err(not_partitioned(&parent));
        }
        let table = self.catalog.table(&parent_schema, &parent).ok_or_else(|| undefined_table(of))?;
        let Some(partitions) = &table.partitions else { return Err(not_partitioned(&parent)) };
        let Some(ForValues::With { modulus, remainder }) = &t.for_values else {
            let message = "invalid bound specification for a hash partition";
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        };
        let (Ok(modulus), Ok(remainder)) = (u32::try_from(*modulus), u32::try_from(*remainder)) else {
            return Err(SqlError::new(
                SqlState::NUMERIC_OUT_OF_RANGE,
                "modulus or remainder is out of range",
            ));
        };
        let part = HashPart { id: ObjectId(0), schema, name, modulus, remainder };
        check_bounds(&partitions.parts, &part)?;
        Ok((table.id, part))
    }
}

/// 42P17
fn not_partitioned(name: &str) -> SqlError {
    SqlError::new(INVALID_OBJECT_DEFINITION, format!("\"{name}\" is not partitioned"))
}

/// PARTITION BY HASH (columns)
pub(super) fn partition_key(by: &Ast, columns: &[ColumnDef]) -> Result<Vec<usize>> {
    let Ast::Function(f) = by else { return Err(SqlError::unsupported(format!("PARTITION BY {by}"))) };
    let (_, method) = object_name(&f.name)?;
    let FunctionArguments::List(list) = &f.args else {
        return Err(SqlError::unsupported(format!("PARTITION BY {by}")));
    };
    if method != "hash" {
        return Err(SqlError::unsupported(format!("PARTITION BY {}", method.to_uppercase()))
            .with_hint("Varve has hash partitions."));
    }
    list.args.iter().map(|argument| key_column(argument, columns)).collect()
}

fn key_column(argument: &FunctionArg, columns: &[ColumnDef]) -> Result<usize> {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(Ast::Identifier(ident))) = argument else {
        return Err(SqlError::unsupported("an expression in a partition key"));
    };
    let name = fold(ident);
    let ordinal = columns.iter().position(|c| c.name == name).ok_or_else(|| {
        let message = format!("column \"{name}\" named in partition key does not exist");
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    })?;
    match is_hashable(columns[ordinal].column_type) {
        true => Ok(ordinal),
        false => Err(SqlError::unsupported(format!("a partition key of the type of column \"{name}\""))),
    }
}

/// 0A000 if a unique key of a partitioned table leaves out a column of the partition key.
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

/// The partition key of a table that exists.
pub(super) fn partition_by(table: &TableDef) -> Option<&[usize]> {
    table.partitions.as_ref().map(|p| p.columns.as_slice())
}

/// The rules of PostgreSQL's hash bounds: each modulus divides the next larger one, no row fits two parts.
fn check_bounds(parts: &[HashPart], new: &HashPart) -> Result<()> {
    if new.modulus == 0 {
        let message = "modulus for hash partition must be an integer value greater than zero";
        return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
    }
    if new.remainder >= new.modulus {
        let message = "remainder for hash partition must be less than modulus";
        return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
    }
    let mut sorted: Vec<&HashPart> = parts.iter().collect();
    sorted.sort_by_key(|p| (p.modulus, p.remainder));
    sorted.iter().rev().try_for_each(|part| check_factor(part, new))?;
    let overlaps = |p: &&&HashPart| {
        let small = p.modulus.min(new.modulus);
        p.remainder % small == new.remainder % small
    };
    match sorted.iter().find(overlaps) {
        None => Ok(()),
        Some(part) => {
            let message = format!("partition \"{}\" would overlap partition \"{}\"", new.name, part.name);
            Err(SqlError::new(INVALID_OBJECT_DEFINITION, message))
        }
    }
}

fn check_factor(part: &HashPart, new: &HashPart) -> Result<()> {
    let (small, large) = (part.modulus.min(new.modulus), part.modulus.max(new.modulus));
    if large.is_multiple_of(small) {
        return Ok(());
    }
    let message = "every hash partition modulus must be a factor of the next larger modulus";
    let relation = if new.modulus < part.modulus { "a factor of" } else { "divisible by" };
    let detail = format!(
        "The new modulus {} is not {relation} {}, the modulus of existing partition \"{}\".",
        new.modulus, part.modulus, part.name
    );
    Err(SqlError::new(INVALID_OBJECT_DEFINITION, message).with_detail(detail))
}
