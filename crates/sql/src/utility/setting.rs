//! Converts SET, RESET, SHOW and ALTER SYSTEM from the tree of PostgreSQL's parser.
//!
//! Invariants
//! 1. A value is converted to text as PostgreSQL's `flatten_set_variable_args` does it.
//!
//! This module does not know which settings exist or which values they accept (`crate::settings`).

use pg_query::NodeEnum;
use pg_query::protobuf::{AlterSystemStmt, Node, TypeCast, VariableSetKind, VariableSetStmt};

use super::node::{constant, unexpected};
use super::{Utility, transaction};
use crate::error::{Result, SqlError, SqlState};
use crate::parse::postgres;
use crate::system::names::quoted;
use crate::time::{IntervalStyle, parse_interval, write_interval};

/// Settings whose value is a list of names. Each name is quoted if necessary.
const LISTS_OF_NAMES: &[&str] = &["search_path", "temp_tablespaces", "local_preload_libraries"];

/// Settings whose value is a list.
const LISTS: &[&str] = &["datestyle", "log_destination", "listen_addresses", "synchronous_standby_names"];

/// Converts SET and RESET.
pub(super) fn set(s: &VariableSetStmt) -> Result<Utility> {
    let local = s.is_local;
    let name = s.name.to_ascii_lowercase();
    Ok(match s.kind() {
        VariableSetKind::VarSetMulti => return several(s),
        VariableSetKind::VarResetAll => Utility::Reset(None),
        VariableSetKind::VarSetCurrent => Utility::SetCurrent { name, local },
        VariableSetKind::VarReset => Utility::Reset(Some(name)),
        kind => {
            let is_value = kind == VariableSetKind::VarSetValue;
            let value = is_value.then(|| value(&name, &s.args)).transpose()?;
            match name.as_str() {
                "role" => Utility::SetRole(value.filter(|role| role != "none"), local),
                "session_authorization" => Utility::SetAuthorization(value, local),
                _ => Utility::Set { name, value, local },
            }
        }
    })
}

/// Converts SET TRANSACTION, SET SESSION CHARACTERISTICS.
fn several(s: &VariableSetStmt) -> Result<Utility> {
    match s.name.as_str() {
        "TRANSACTION" => transaction::modes(&s.args).map(Utility::SetTransaction),
        "SESSION CHARACTERISTICS" => transaction::modes(&s.args).map(Utility::SetCharacteristics),
        "TRANSACTION SNAPSHOT" => Err(SqlError::unsupported("SET TRANSACTION SNAPSHOT")),
        other => Err(SqlError::internal(format!("SET {other}"))),
    }
}

/// Returns the value as text.
fn value(name: &str, args: &[Node]) -> Result<String> {
    let are_names = LISTS_OF_NAMES.contains(&name);
    if args.len() > 1 && !are_names && !LISTS.contains(&name) {
        let message = format!("SET {name} takes only one argument");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    let values: Vec<String> = args.iter().map(|arg| one_value(arg, are_names)).collect::<Result<_>>()?;
    Ok(values.join(", "))
}

fn one_value(arg: &Node, is_name: bool) -> Result<String> {
    match &arg.node {
        Some(NodeEnum::AConst(c)) => {
            let text = constant(c).unwrap_or_default();
            Ok(if is_name { quoted(&text) } else { text })
        }
        Some(NodeEnum::TypeCast(cast)) => zone_interval(cast),
        other => Err(unexpected("a value", other.as_ref())),
    }
}

/// Converts SET TIME ZONE INTERVAL '...' [HOUR | MINUTE | HOUR TO MINUTE]. A number without a unit counts the
/// last field, and smaller units are dropped.
fn zone_interval(cast: &TypeCast) -> Result<String> {
    const HOUR: i64 = 1 << 10;
    const MINUTE: i64 = 1 << 11;
    const HOUR_TO_MINUTE: i64 = HOUR | MINUTE;
    let text = match cast.arg.as_ref().and_then(|arg| arg.node.as_ref()) {
        Some(NodeEnum::AConst(c)) => constant(c).unwrap_or_default(),
        other => return Err(unexpected("an interval", other)),
    };
    let numbers = match &cast.type_name {
        Some(name) => postgres::modifiers(&name.typmods)?,
        None => Vec::new(),
    };
    let (unit, unit_us) = match numbers.first() {
        Some(&HOUR) => (" hours", 3_600_000_000),
        Some(&(MINUTE | HOUR_TO_MINUTE)) => (" minutes", 60_000_000),
        _ => ("", 1),
    };
    let is_number = text.trim().trim_start_matches(['+', '-']).parse::<f64>().is_ok();
    let mut interval =
        parse_interval(&if is_number { format!("{text}{unit}") } else { text }, IntervalStyle::Postgres)?;
    interval.micros -= interval.micros % unit_us;
    let mut shown = Vec::new();
    write_interval(interval, IntervalStyle::Postgres, &mut shown);
    Ok(format!("INTERVAL '{}'", String::from_utf8_lossy(&shown)))
}

/// Converts ALTER SYSTEM.
pub(super) fn alter_system(s: &AlterSystemStmt) -> Result<Utility> {
    let Some(set) = &s.setstmt else { return Err(SqlError::internal("ALTER SYSTEM without a setting")) };
    let name = set.name.to_ascii_lowercase();
    Ok(match set.kind() {
        VariableSetKind::VarResetAll => Utility::AlterSystem(None, None),
        VariableSetKind::VarSetValue => {
            let value = value(&name, &set.args)?;
            Utility::AlterSystem(Some(name), Some(value))
        }
        _ => Utility::AlterSystem(Some(name), None),
    })
}
