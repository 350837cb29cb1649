//! The order of the modules inside a crate. Each crate declares its order in a file `layers.toml`:
//!
//! ```toml
//! circle_files_max = 5                  # the largest circle of files that import each other
//! order = [                             # from lowest to highest
//!     "error",
//!     { circle = ["rows", "table"], because = "a table holds rows and a row names its table" },
//!     "lib",                            # src/lib.rs itself
//! ]
//!
//! [inside.table]                        # the same for the modules of the folder src/table
//! order = ["pages", "mod"]              # "mod" is src/table/mod.rs, or src/table.rs
//! ```
//!
//! 1. A module uses only modules that come earlier in the order, or that are in the same declared circle.
//! 2. The order has every module once, and has no other names.
//! 3. A declared circle states its reason, and its modules do import each other.
//! 4. No circle of files is larger than the limit of the crate.

use crate::circles;
use crate::imports::{self, CrateImports};
use crate::{SourceFile, circles::Edges};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the file that declares an order.
pub const DECLARATION: &str = "layers.toml";

/// Checks every crate below `crates/` that has a library.
pub fn check(files: &[SourceFile]) -> Vec<String> {
    let libraries = files.iter().filter_map(|file| file.path.strip_suffix("/src/lib.rs"));
    let folders = libraries.filter(|folder| folder.starts_with("crates/"));
    folders.flat_map(|folder| check_crate(files, folder)).collect()
}

fn check_crate(files: &[SourceFile], folder: &str) -> Vec<String> {
    let path = format!("{folder}/{DECLARATION}");
    let Some(declared) = files.iter().find(|file| file.path == path) else {
        return vec![format!(
            "{path}: there is no such file: declare the order of the crate's modules in it"
        )];
    };
    let declaration = match declared.text.parse::<toml::Table>() {
        Ok(table) => table,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    let read = imports::of_crate(files, folder);
    let mut found = read.faults.clone();
    found.extend(check_circles(&path, &declaration, &read));
    match Order::parse(&declaration) {
        Ok(order) => found.extend(order.check(&path, &[], &read)),
        Err(why) => found.push(format!("{path}: {why}")),
    }
    let inside = declaration.get("inside").and_then(toml::Value::as_table);
    for (module, table) in inside.into_iter().flatten() {
        match table.as_table().ok_or("not a table".to_owned()).and_then(Order::parse) {
            Ok(order) => found.extend(order.check(&path, &[module.as_str()], &read)),
            Err(why) => found.push(format!("{path}: inside {module}: {why}")),
        }
    }
    found
}

/// Reports a circle of files that is larger than the crate's limit.
fn check_circles(path: &str, declaration: &toml::Table, read: &CrateImports) -> Vec<String> {
    let Some(bound) = declaration.get("circle_files_max").and_then(toml::Value::as_integer) else {
        return vec![format!(
            "{path}: circle_files_max is missing: the largest circle of files that is allowed"
        )];
    };
    let circles = circles::of_files(read).into_iter();
    let too_large = circles.filter(|circle| i64::try_from(circle.len()).is_ok_and(|size| size > bound));
    let sentences = too_large.map(|circle| {
        let names: Vec<&str> = circle.iter().filter_map(|file| read.files.get(*file)).map(|f| &*f.path).collect();
        let size = names.len();
        format!(
            "{path}: {size} files import each other in a circle, over {bound}: cut an import between two of {}",
            names.join(", ")
        )
    });
    sentences.collect()
}

/// The modules of a crate or of a folder, from lowest to highest.
#[derive(Debug)]
struct Order {
    rows: Vec<Row>,
}

/// One module, or modules that form a circle.
#[derive(Debug)]
struct Row {
    modules: Vec<String>,
    because: Option<String>,
}

impl Order {
    fn parse(table: &toml::Table) -> Result<Self, String> {
        let rows = table.get("order").and_then(toml::Value::as_array).ok_or("there is no array order")?;
        Ok(Self { rows: rows.iter().map(Row::parse).collect::<Result<_, _>>()? })
    }

    fn check(&self, path: &str, prefix: &[&str], read: &CrateImports) -> Vec<String> {
        let mut found = Vec::new();
        let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
        for (number, row) in self.rows.iter().enumerate() {
            for module in &row.modules {
                if rows.insert(module, number).is_some() {
                    found.push(format!("{path}: {module} stands in the order twice"));
                }
            }
        }
        let modules: Vec<Option<&str>> =
            read.files.iter().map(|file| name_below(prefix, &file.module)).collect();
        let names: BTreeSet<&str> = modules.iter().copied().flatten().collect();
        let place = if prefix.is_empty() {
            "the order".to_owned()
        } else {
            format!("the order inside {}", prefix.join("::"))
        };
        let missing = names.iter().filter(|name| !rows.contains_key(**name));
        found.extend(missing.map(|name| format!("{path}: module {name} is missing in {place}")));
        let vain = rows.keys().filter(|name| !names.contains(*name));
        found.extend(vain.map(|name| format!("{path}: {place} names {name}, which is no module")));
        found.extend(self.check_imports(path, &rows, &modules, read));
        found.extend(self.check_rows(path, &rows, &modules, read));
        found
    }

    /// Checks rule 1.
    fn check_imports(
        &self,
        path: &str,
        rows: &BTreeMap<&str, usize>,
        modules: &[Option<&str>],
        read: &CrateImports,
    ) -> Vec<String> {
        let mut found = BTreeSet::new();
        for import in &read.imports {
            let (Some(user), Some(used)) = (named(modules, import.from), named(modules, import.to)) else {
                continue;
            };
            let (Some(own), Some(other)) = (rows.get(user), rows.get(used)) else { continue };
            if other > own {
                let file = read.files.get(import.from).map_or("", |file| &file.path);
                found.insert(format!(
                    "{file}:{}: {user} uses {used} ({}), which stands above it in {path}: move what is used down, \
                     pass it in from above, or change the order",
                    import.line, import.path
                ));
            }
        }
        found.into_iter().collect()
    }

    /// Checks rule 3.
    fn check_rows(
        &self,
        path: &str,
        rows: &BTreeMap<&str, usize>,
        modules: &[Option<&str>],
        read: &CrateImports,
    ) -> Vec<String> {
        let numbers: BTreeMap<&str, usize> =
            rows.keys().enumerate().map(|(number, name)| (*name, number)).collect();
        let mut edges = Edges::new();
        for import in &read.imports {
            let (Some(user), Some(used)) = (named(modules, import.from), named(modules, import.to)) else {
                continue;
            };
            let (Some(own), Some(other)) = (numbers.get(user), numbers.get(used)) else { continue };
            if user != used && rows.get(user) == rows.get(used) {
                edges.entry(*own).or_default().insert(*other);
            }
        }
        let circles = circles::of_graph(&edges);
        let groups = self.rows.iter().filter(|row| row.because.is_some());
        let apart = groups.filter(|row| {
            let mut members: Vec<usize> =
                row.modules.iter().filter_map(|module| numbers.get(module.as_str()).copied()).collect();
            members.sort_unstable();
            !circles.contains(&members)
        });
        apart
            .map(|row| format!("{path}: {} are no circle: give each a row", row.modules.join(", ")))
            .collect()
    }
}

impl Row {
    fn parse(value: &toml::Value) -> Result<Self, String> {
        if let Some(module) = value.as_str() {
            return Ok(Self { modules: vec![module.to_owned()], because: None });
        }
        let modules =
            value.get("circle").and_then(toml::Value::as_array).ok_or("a row is a name or a circle")?;
        let modules: Vec<String> =
            modules.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect();
        let because = value.get("because").and_then(toml::Value::as_str).filter(|why| !why.is_empty());
        let because = because.ok_or_else(|| format!("the circle {} has no reason", modules.join(", ")))?;
        Ok(Self { modules, because: Some(because.to_owned()) })
    }
}

fn named<'a>(modules: &[Option<&'a str>], file: usize) -> Option<&'a str> {
    modules.get(file).copied().flatten()
}

/// Returns the name of the module that a file belongs to, one level below `prefix`. Returns `None` for a file
/// elsewhere.
fn name_below<'a>(prefix: &[&str], module: &'a [String]) -> Option<&'a str> {
    let inner = prefix.iter().try_fold(module, |rest, name| {
        rest.split_first().filter(|(first, _)| first == name).map(|(_, rest)| rest)
    })?;
    let itself = if prefix.is_empty() { "lib" } else { "mod" };
    Some(inner.first().map_or(itself, String::as_str))
}
