//! Types of OIDs that are shown as names: regclass, regtype, regproc, regnamespace, regrole.
//!
//! Invariants
//! 1. OID 0 is shown as `-`, and an OID without an object as its number. Both texts are read back as the same
//!    OID.
//!
//! This module does not know which OID an object has (`system`).

use varve_engine::{Catalog, Datum, Named, TableId};

use super::Cx;
use crate::error::{Result, SqlError, SqlState};
use crate::names::split_name;
use crate::path::{Path, has_schema};
use crate::system::{self, SystemContext, ids, names, show, types};
use crate::text;
use crate::ty::Reg;

/// Returns the name of the object with an OID, as text.
pub fn shown<'a>(kind: Reg, value: Datum<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let Some(oid) = value.as_integer().and_then(|n| u32::try_from(n).ok()) else { return Ok(value) };
    if oid == 0 {
        return Ok(Datum::Text("-"));
    }
    let name = name_of(kind, oid, cx.env.world()?);
    Ok(cx.text(&name.unwrap_or_else(|| oid.to_string())))
}

fn name_of(kind: Reg, oid: u32, world: &SystemContext) -> Option<String> {
    let catalog = &*world.catalog;
    match kind {
        Reg::Class => show::relation_name(catalog, oid, &world.path),
        Reg::Type if oid == crate::oid::BPCHAR => Some("character".to_owned()),
        Reg::Type => Some(show::type_name(oid, -1)).filter(|name| name != "???"),
        Reg::Namespace => show::namespace_name(catalog, oid).map(|name| names::quoted(&name)),
        Reg::Role => {
            let role = catalog.role_by_id(varve_engine::ObjectId(oid))?;
            Some(names::quoted(&role.name))
        }
        Reg::Proc => {
            let functions = types().iter().flat_map(|t| t.functions);
            functions.into_iter().find(|(id, _)| *id == oid).map(|(_, name)| name.to_owned())
        }
    }
}

/// Reads a text as an OID.
pub fn read<'a>(kind: Reg, written: &str, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let world = cx.env.world()?;
    find(kind, written, &world.catalog, &world.path).map(|oid| Datum::Int8(i64::from(oid)))
}

/// Returns the OID that a text means: a number, `-`, or a name. Fails with 42P01 or a similar error if there
/// is no object of this name.
pub fn find(kind: Reg, written: &str, catalog: &Catalog, path: &Path) -> Result<u32> {
    if written == "-" {
        return Ok(0);
    }
    if !written.is_empty() && written.bytes().all(|b| b.is_ascii_digit()) {
        return text::parse_oid(written);
    }
    find_named(kind, written, catalog, path)
}

/// Returns the OID of the object of this name, which may look like a number.
pub fn find_named(kind: Reg, written: &str, catalog: &Catalog, path: &Path) -> Result<u32> {
    lookup(kind, written, catalog, path).ok_or_else(|| {
        let (schema, _) = split_name(written);
        match has_schema(written) && system::namespace(catalog, &schema) == 0 {
            // For a type, PostgreSQL first reports a missing schema.
            true if kind == Reg::Type => missing(Reg::Namespace, &schema),
            _ => missing(kind, written),
        }
    })
}

/// Returns the OID of the object of this name.
pub fn lookup(kind: Reg, written: &str, catalog: &Catalog, path: &Path) -> Option<u32> {
    match kind {
        Reg::Class => relation_oid(written, catalog, path),
        Reg::Type => type_oid(written),
        Reg::Namespace => {
            let (_, name) = split_name(written);
            Some(system::namespace(catalog, &name)).filter(|oid| *oid != 0)
        }
        Reg::Role => catalog.role(&split_name(written).1).map(|role| role.id.0),
        Reg::Proc => {
            let name = written.strip_prefix("pg_catalog.").unwrap_or(written);
            let functions = types().iter().flat_map(|t| t.functions);
            functions.into_iter().find(|(id, known)| *known == name && *id != 0).map(|(id, _)| id)
        }
    }
}

fn relation_oid(written: &str, catalog: &Catalog, path: &Path) -> Option<u32> {
    let (schema, name) = path.find_text(catalog, written);
    let is_public = path.number() == 0 && !has_schema(written);
    let system_schema = if is_public { "pg_catalog" } else { schema.as_str() };
    if let Some(table) = system::table(system_schema, &name) {
        return Some(table.oid);
    }
    Some(match catalog.resolve(&schema, &name)? {
        Named::Table(TableId(id)) => id,
        Named::Index(_, index) => index.0,
        Named::PrimaryKey(table) => ids::key_index(table),
        Named::Sequence(sequence) => sequence.0,
        Named::View(id) | Named::Part(_, id) => id.0,
    })
}

fn type_oid(written: &str) -> Option<u32> {
    crate::parse::type_name(written).map(|t| t.ty.oid()).or_else(|| {
        let (bare, is_array) = written.strip_suffix("[]").map_or((written, false), |bare| (bare, true));
        let (schema, name) = split_name(bare);
        let row = system::type_named(&name).filter(|_| schema == "pg_catalog" || !has_schema(bare))?;
        Some(if is_array { row.array } else { row.oid }).filter(|oid| *oid != 0)
    })
}

fn missing(kind: Reg, written: &str) -> SqlError {
    let (state, message) = match kind {
        Reg::Class => (SqlState::UNDEFINED_TABLE, format!("relation \"{written}\" does not exist")),
        Reg::Type => (SqlState::UNDEFINED_OBJECT, format!("type \"{written}\" does not exist")),
        Reg::Proc => (SqlState::UNDEFINED_FUNCTION, format!("function \"{written}\" does not exist")),
        Reg::Namespace => (SqlState::INVALID_SCHEMA, format!("schema \"{written}\" does not exist")),
        Reg::Role => (SqlState::UNDEFINED_OBJECT, format!("role \"{written}\" does not exist")),
    };
    SqlError::new(state, message)
}
