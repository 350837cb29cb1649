//! SET, RESET, SHOW and ALTER SYSTEM.
//!
//! Invariants
//! 1. A value is put into text as PostgreSQL's `flatten_set_variable_args` does it.
//!
//! Does not know: which settings there are, and which values they take (`crate::settings`).

use pg_query::NodeEnum;
use pg_query::protobuf::{AlterSystemStmt, Node, VariableSetKind, VariableSetStmt};

use super::node::{constant, unexpected};
use super::{Utility, transaction};
use crate::error::{Result, SqlError, SqlState};
use crate::system::names::quoted;

/// Settings whose value is a list of names: each is quoted where it has to be.
const LISTS_OF_NAMES: &[&str] = &["search_path", "temp_tablespaces", "local_preload_libraries"];

/// Settings whose value is a list.
const LISTS: &[&str] = &["datestyle", "log_destination", "listen_addresses", "synchronous_standby_names"];

/// SET and RESET
pub(super) fn set(s: &VariableSetStmt) -> Result<Utility> {
    let local = s.is_local;
    let name = s.name.to_ascii_lowercase();
    Ok(match s.kind() {
        VariableSetKind::VarSetMulti => return several(s),
        VariableSetKind::VarResetAll => Utility::Reset(None),
        VariableSetKind::VarSetCurrent => Utility::SetCurrent { name, local },
        kind => {
            let value =
                if kind == VariableSetKind::VarSetValue { Some(value(&name, &s.args)?) } else { None };
            match name.as_str() {
                "role" => Utility::SetRole(value.filter(|role| role != "none"), local),
                "session_authorization" => Utility::SetAuthorization(value, local),
                _ if kind == VariableSetKind::VarReset => Utility::Reset(Some(name)),
                _ => Utility::Set { name, value, local },
            }
        }
    })
}

/// SET TRANSACTION, SET SESSION CHARACTERISTICS
fn several(s: &VariableSetStmt) -> Result<Utility> {
    match s.name.as_str() {
        "TRANSACTION" => transaction::modes(&s.args).map(Utility::SetTransaction),
        "SESSION CHARACTERISTICS" => transaction::modes(&s.args).map(Utility::SetCharacteristics),
        "TRANSACTION SNAPSHOT" => Err(SqlError::unsupported("SET TRANSACTION SNAPSHOT")),
        other => Err(SqlError::internal(format!("SET {other}"))),
    }
}

/// The value as text.
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
        // SET TIME ZONE INTERVAL '...'
        Some(NodeEnum::TypeCast(cast)) => match cast.arg.as_ref().and_then(|arg| arg.node.as_ref()) {
            Some(NodeEnum::AConst(c)) => Ok(format!("INTERVAL '{}'", constant(c).unwrap_or_default())),
            other => Err(unexpected("an interval", other)),
        },
        other => Err(unexpected("a value", other.as_ref())),
    }
}

/// ALTER SYSTEM
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
