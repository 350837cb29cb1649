//! The search path: the schemas in which names without a schema are looked up.
//!
//! Invariants
//! 1. A path has only schemas that exist and that the role may use. The session computes its path again when
//!    the catalog, the setting or the role has changed.
//! 2. A search path has a number, by which the plan cache finds plans (decision 0617). In all sessions of a
//!    process, equal paths have equal numbers, and different paths have different numbers.
//! 3. `PUBLIC` is the search path that has only the schema `public`. Sessions that have not set a path use
//!    it, and texts that the catalog stores are read with it.
//!
//! This module does not know settings or sessions.

use std::sync::{Arc, LazyLock};

use crate::ast;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use varve_engine::{Catalog, Rights};

use crate::error::{Result, SqlError, SqlState};
use crate::names::{cannot_create, clipped, object_name, split_name};
use crate::rights::{Holder, Object, Who};
use crate::system;
use crate::system::names::quoted;

const SYSTEM: &str = "pg_catalog";
const INFORMATION: &str = "information_schema";

/// The schema for names that no object has.
pub const NOWHERE: &str = "";

/// The most paths with numbers. If there are more, all get new numbers, and plans are made again.
const PATHS_MAX: usize = 4096;

/// A search path. It is cheap to clone.
#[derive(Debug, Clone)]
pub struct Path(Arc<Schemas>);

#[derive(Debug)]
struct Schemas {
    number: u32,
    /// The schemas in the setting.
    named: Box<[String]>,
    /// The schemas in the order in which they are searched. `pg_catalog` is the first, unless the setting
    /// names it.
    searched: Box<[String]>,
}

/// Paths by their schemas, and the number that the next path gets.
struct NumberedPaths {
    paths: FxHashMap<Box<[String]>, Path>,
    next: u32,
}

static KNOWN: LazyLock<Mutex<NumberedPaths>> =
    LazyLock::new(|| Mutex::new(NumberedPaths { paths: FxHashMap::default(), next: 1 }));

static PUBLIC: LazyLock<Path> = LazyLock::new(|| {
    let public = varve_engine::catalog::PUBLIC.to_owned();
    Path(Arc::new(Schemas {
        number: 0,
        named: [public.clone()].into(),
        searched: [SYSTEM.to_owned(), public].into(),
    }))
});

impl Path {
    /// Returns the path that has only `public`.
    pub fn public() -> &'static Path {
        &PUBLIC
    }

    /// Returns the search path that the entries of the setting give for this role.
    pub fn of(entries: &[String], user: &str, who: Who, catalog: &Catalog) -> Path {
        let holder = Holder::of(catalog, who);
        let mut named: Vec<String> = Vec::with_capacity(entries.len());
        for entry in entries {
            let name = if entry == "$user" { user } else { entry };
            if !named.iter().any(|n| n == name) && is_usable(name, &holder, catalog) {
                named.push(name.to_owned());
            }
        }
        match named.as_slice() {
            [public] if public == varve_engine::catalog::PUBLIC => PUBLIC.clone(),
            _ => known(named),
        }
    }

    /// Returns the number of the path in the plan cache. 0 is the path that has only `public`.
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// Returns the schemas that the setting names, in their order.
    pub fn named(&self) -> &[String] {
        &self.0.named
    }

    /// Returns the schemas in the order in which they are searched.
    pub fn searched(&self) -> &[String] {
        &self.0.searched
    }

    /// Returns whether it is the path that has only `public`.
    pub fn is_public(&self) -> bool {
        self.0.number == 0
    }

    /// Returns the schema of the object to which a name without a schema refers.
    pub fn schema_of(&self, catalog: &Catalog, name: &str) -> Option<&str> {
        let holds = |schema: &&String| {
            catalog.resolve(schema, name).is_some() || system::table(schema, name).is_some()
        };
        self.0.searched.iter().find(holds).map(String::as_str)
    }

    /// Returns whether a name without a schema, as the client wrote it, refers to an object of `public`.
    pub fn is_in_public(&self, catalog: &Catalog, written: &str) -> bool {
        !has_schema(written)
            && self.schema_of(catalog, &split_name(written).1) == Some(varve_engine::catalog::PUBLIC)
    }

    /// Returns the schema and name of the object that a name refers to. If there is no such object, the
    /// schema is one that never exists.
    pub fn find(&self, catalog: &Catalog, name: &ast::ObjectName) -> Result<(String, String)> {
        let (schema, last) = object_name(name)?;
        if name.0.len() > 1 || self.is_public() {
            return Ok((schema, last));
        }
        Ok((self.schema_of(catalog, &last).unwrap_or(NOWHERE).to_owned(), last))
    }

    /// Does the same as `find` for a name in a string.
    pub fn find_text(&self, catalog: &Catalog, written: &str) -> (String, String) {
        let (schema, last) = split_name(written);
        if self.is_public() || has_schema(written) {
            return (schema, last);
        }
        (self.schema_of(catalog, &last).unwrap_or(NOWHERE).to_owned(), last)
    }

    /// Returns the schema in which a new object is made. The error is 3F000 if there is none.
    pub fn place(&self, name: &str) -> Result<&str> {
        let Some(schema) = self.0.named.first() else {
            let message = "no schema has been selected to create in";
            return Err(SqlError::new(SqlState::INVALID_SCHEMA, message));
        };
        if matches!(schema.as_str(), SYSTEM | INFORMATION) {
            return Err(cannot_create(schema, name));
        }
        Ok(schema)
    }

    /// Returns whether a name without a schema refers to the object in this schema.
    pub fn sees(&self, catalog: &Catalog, schema: &str, name: &str) -> bool {
        self.0.searched.iter().any(|s| s == schema) && self.schema_of(catalog, name) == Some(schema)
    }

    /// Returns a name as it is shown. It has its schema, unless the path finds it without the schema.
    pub fn shown(&self, catalog: &Catalog, schema: &str, name: &str) -> String {
        match self.sees(catalog, schema, name) {
            true => quoted(name),
            false => format!("{}.{}", quoted(schema), quoted(name)),
        }
    }
}

/// Returns whether a name in a string has a schema.
pub fn has_schema(written: &str) -> bool {
    let mut is_quoted = false;
    written.chars().any(|c| {
        is_quoted ^= c == '"';
        c == '.' && !is_quoted
    })
}

/// Returns whether a schema of the path can be used. A role that may not use `public` gets the error when a
/// table in it is opened. System schemas are usable by every role.
fn is_usable(name: &str, holder: &Holder, catalog: &Catalog) -> bool {
    if matches!(name, SYSTEM | INFORMATION | varve_engine::catalog::PUBLIC) {
        return name != varve_engine::catalog::PUBLIC || catalog.has_schema(name);
    }
    let schema = catalog.schemas().find(|s| s.name == name);
    schema.is_some_and(|s| holder.may_any(catalog, &Object::schema(s), &[Rights::USAGE]))
}

/// Returns the path with these schemas, which has its number.
fn known(named: Vec<String>) -> Path {
    let mut known = KNOWN.lock();
    if let Some(path) = known.paths.get(named.as_slice()) {
        return path.clone();
    }
    if known.paths.len() >= PATHS_MAX {
        known.paths.clear();
    }
    let mut searched = named.clone();
    if !named.iter().any(|n| n == SYSTEM) {
        searched.insert(0, SYSTEM.to_owned());
    }
    let number = known.next;
    known.next += 1;
    let named: Box<[String]> = named.into();
    let path = Path(Arc::new(Schemas { number, named: named.clone(), searched: searched.into() }));
    known.paths.insert(named, path.clone());
    path
}

/// Returns the entries of the setting's value, or `None` if it is not a list of names.
pub fn entries(value: &str) -> Option<Vec<String>> {
    let (mut entries, mut rest) = (Vec::new(), value.trim_start());
    if rest.is_empty() {
        return Some(entries);
    }
    loop {
        let (entry, behind) = entry(rest)?;
        entries.push(clipped(entry));
        rest = behind.trim_start();
        if rest.is_empty() {
            return Some(entries);
        }
        rest = rest.strip_prefix(',')?.trim_start();
    }
}

/// Returns the first entry of a list, and the text after it.
fn entry(list: &str) -> Option<(String, &str)> {
    let Some(mut rest) = list.strip_prefix('"') else {
        let end = list.find(|c: char| c == ',' || c.is_ascii_whitespace()).unwrap_or(list.len());
        return (end > 0).then(|| (list[..end].to_ascii_lowercase(), &list[end..]));
    };
    let mut entry = String::new();
    loop {
        let (part, behind) = rest.split_once('"')?;
        entry.push_str(part);
        match behind.strip_prefix('"') {
            Some(more) => {
                entry.push('"');
                rest = more;
            }
            None => return Some((entry, behind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_postgresql_reads_them() {
        let read = |value| entries(value).map(|list| list.join("|"));
        for (value, expected) in [
            ("", Some("")),
            ("a, B ,\"C d\"", Some("a|b|C d")),
            ("\"$user\", public", Some("$user|public")),
            ("$user", Some("$user")),
            ("\"\"", Some("")),
            ("\"a\"\"b\"", Some("a\"b")),
            ("a,", None),
            (",a", None),
            ("a b", None),
            ("\"a", None),
        ] {
            assert_eq!(read(value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn a_path_has_one_number() {
        let path = |names: &[&str]| known(names.iter().map(|n| (*n).to_owned()).collect()).number();
        assert_eq!(path(&["p_a", "p_b"]), path(&["p_a", "p_b"]));
        assert_ne!(path(&["p_a", "p_b"]), path(&["p_b", "p_a"]));
        assert_ne!(path(&[]), Path::public().number());
    }

    #[test]
    fn a_dot_in_quotes_is_no_schema() {
        assert!(has_schema("a.b") && has_schema("\"a\".b") && !has_schema("\"a.b\"") && !has_schema("b"));
    }
}
