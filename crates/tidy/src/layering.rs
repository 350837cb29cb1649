//! Who may depend on whom: data flows down and up one staircase, and no crate looks upwards.

use crate::SourceFile;

/// For each crate, the crates of this workspace it may name in its manifest. A crate that is missing here may not exist.
pub const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("varve-device", &[]),
    ("varve-pager", &["varve-device"]),
    ("varve-engine", &["varve-device", "varve-pager"]),
    ("varve-sql", &["varve-engine"]),
    ("varve-server", &["varve-engine", "varve-sql"]),
    ("varve-bench", &["varve-device", "varve-engine", "varve-pager", "varve-sql"]),
    ("varve", &["varve-bench", "varve-device", "varve-engine", "varve-pager", "varve-server", "varve-sql"]),
    ("varve-sim", &["varve-device", "varve-engine", "varve-pager"]),
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
    let Some((_, allowed)) = MAY_DEPEND_ON.iter().find(|(known, _)| *known == name) else {
        return vec![format!("{}: crate {name} has no row in the dependency table", file.path)];
    };
    house_dependencies(&manifest)
        .filter(|dependency| !allowed.contains(&dependency.as_str()))
        .map(|dependency| format!("{}: {name} may not depend on {dependency}", file.path))
        .collect()
}

fn package_name(manifest: &toml::Table) -> String {
    let name = manifest.get("package").and_then(|package| package.get("name"));
    name.and_then(|name| name.as_str()).unwrap_or_default().to_owned()
}

/// The crates of this workspace that the manifest names, in any of its dependency tables.
fn house_dependencies(manifest: &toml::Table) -> impl Iterator<Item = String> {
    let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
    let named = tables.into_iter().filter_map(|table| manifest.get(table)?.as_table());
    named
        .flat_map(|table| table.keys())
        .filter(|name| is_of_house(name))
        .cloned()
        .collect::<Vec<_>>()
        .into_iter()
}

fn is_of_house(name: &str) -> bool {
    name == "varve" || name.starts_with("varve-")
}
