//! The allowed dependencies between crates. The crates form layers, and a crate uses only crates below it.

use std::collections::BTreeSet;

use crate::SourceFile;

/// For each crate, the crates of this workspace that it may use. The tests of a crate may also use all crates
/// below these. Each crate must be in this list.
pub const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("varve-device", &[]),
    ("varve-pager", &["varve-device"]),
    ("varve-memory", &["varve-device"]),
    ("varve-spill", &["varve-device"]),
    ("varve-engine", &["varve-device", "varve-memory", "varve-pager"]),
    ("varve-smart", &["varve-device", "varve-engine", "varve-pager"]),
    ("varve-sql", &["varve-engine"]),
    ("varve-query", &["varve-device", "varve-engine", "varve-smart", "varve-spill", "varve-sql"]),
    ("varve-server", &["varve-engine", "varve-sql"]),
    ("varve-bench", &["varve-device", "varve-engine", "varve-pager", "varve-sql"]),
    (
        "varve",
        &[
            "varve-bench",
            "varve-device",
            "varve-engine",
            "varve-memory",
            "varve-pager",
            "varve-query",
            "varve-server",
            "varve-smart",
            "varve-sql",
        ],
    ),
    // Only the tests of this crate use the crate `varve`.
    (
        "varve-lab",
        &[
            "varve",
            "varve-bench",
            "varve-device",
            "varve-engine",
            "varve-memory",
            "varve-pager",
            "varve-query",
            "varve-smart",
            "varve-spill",
        ],
    ),
    (
        "varve-fuzzing",
        &[
            "varve",
            "varve-device",
            "varve-engine",
            "varve-pager",
            "varve-server",
            "varve-smart",
            "varve-spill",
            "varve-sql",
        ],
    ),
    ("varve-sim", &["varve-device", "varve-engine", "varve-pager"]),
    // This crate compiles sources of the pager and of the engine again, for a model checker.
    ("varve-models", &["varve-device", "varve-memory"]),
    ("varve-tidy", &[]),
];

/// Checks every manifest below `crates/` against [`MAY_DEPEND_ON`].
pub fn check(files: &[SourceFile]) -> Vec<String> {
    files.iter().filter(|file| is_manifest(&file.path)).flat_map(check_manifest).collect()
}

fn is_manifest(path: &str) -> bool {
    path.starts_with("crates/") && path.ends_with("/Cargo.toml")
}

fn check_manifest(file: &SourceFile) -> Vec<String> {
    let manifest: toml::Table = match file.text.parse() {
        Ok(table) => table,
        Err(error) => return vec![format!("{}: {error}", file.path)],
    };
    let name = package_name(&manifest);
    let Some(direct) = allowed(&name) else {
        return vec![format!("{}: crate {name} has no row in the dependency table", file.path)];
    };
    let below = everything_below(&name);
    let built =
        ["dependencies", "build-dependencies"].into_iter().flat_map(|table| house_names(&manifest, table));
    let wrong = built.filter(|dependency| !direct.contains(&dependency.as_str()));
    let tested = house_names(&manifest, "dev-dependencies").into_iter();
    wrong
        .chain(tested.filter(|dependency| !below.contains(dependency.as_str())))
        .map(|dependency| format!("{}: {name} may not depend on {dependency}", file.path))
        .collect()
}

fn allowed(name: &str) -> Option<&'static [&'static str]> {
    MAY_DEPEND_ON.iter().find(|(known, _)| *known == name).map(|(_, allowed)| *allowed)
}

/// Returns the crates that `name` uses, directly or indirectly. The tests of `name` may use any of them.
fn everything_below(name: &str) -> BTreeSet<&'static str> {
    let mut below = BTreeSet::new();
    let mut open = allowed(name).unwrap_or_default().to_vec();
    while let Some(next) = open.pop() {
        if below.insert(next) {
            open.extend(allowed(next).unwrap_or_default());
        }
    }
    below
}

fn package_name(manifest: &toml::Table) -> String {
    let name = manifest.get("package").and_then(|package| package.get("name"));
    name.and_then(|name| name.as_str()).unwrap_or_default().to_owned()
}

/// Returns the crates of this workspace that one table of the manifest names.
fn house_names(manifest: &toml::Table, table: &str) -> Vec<String> {
    let names =
        manifest.get(table).and_then(|table| table.as_table()).into_iter().flat_map(|table| table.keys());
    names.filter(|name| is_of_house(name)).cloned().collect()
}

fn is_of_house(name: &str) -> bool {
    name == "varve" || name.starts_with("varve-")
}
