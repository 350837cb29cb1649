//! The extensions of Varve. A listed extension is always installed, because all its functions are built in.
//!
//! This module does not know the functions (`eval::func`).

use varve_engine::{BOOTSTRAP_ROLE, Value};

use super::{Fill, Rows, SystemContext, ids, oid, text};

/// An extension of Varve.
pub struct Extension {
    oid: u32,
    /// Its name.
    pub name: &'static str,
    version: &'static str,
    comment: &'static str,
}

/// All extensions. Their OIDs are in the range of built-in objects, so that pg_dump does not dump them.
pub const ALL: &[Extension] = &[Extension {
    oid: 13_563,
    name: "uuid-ossp",
    version: "1.1",
    comment: "generate universally unique identifiers (UUIDs)",
}];

/// Returns the code for the tables of this file.
pub fn fill(name: &str) -> Option<Fill> {
    Some(match name {
        "pg_extension" => pg_extension,
        "pg_available_extensions" => available,
        "pg_available_extension_versions" => versions,
        _ => return None,
    })
}

fn pg_extension(_: &SystemContext, rows: &mut Rows<'_>) {
    for extension in ALL {
        rows.add([
            ("oid", oid(extension.oid)),
            ("extname", text(extension.name)),
            ("extowner", oid(BOOTSTRAP_ROLE.0)),
            ("extnamespace", oid(ids::PG_CATALOG)),
            ("extrelocatable", Value::Bool(false)),
            ("extversion", text(extension.version)),
        ]);
    }
}

fn available(_: &SystemContext, rows: &mut Rows<'_>) {
    for extension in ALL {
        rows.add([
            ("name", text(extension.name)),
            ("default_version", text(extension.version)),
            ("installed_version", text(extension.version)),
            ("comment", text(extension.comment)),
        ]);
    }
}

fn versions(_: &SystemContext, rows: &mut Rows<'_>) {
    for extension in ALL {
        rows.add([
            ("name", text(extension.name)),
            ("version", text(extension.version)),
            ("installed", Value::Bool(true)),
            ("superuser", Value::Bool(true)),
            ("trusted", Value::Bool(true)),
            ("relocatable", Value::Bool(false)),
            ("schema", text("pg_catalog")),
            ("comment", text(extension.comment)),
        ]);
    }
}
