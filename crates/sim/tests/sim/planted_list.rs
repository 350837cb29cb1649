//! Every planted fault in the code is in one of the harness's lists, and every entry of the lists is in the
//! code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use varve_sim::planted::{HUNTED_ELSEWHERE, NOT_HUNTED, switches};

/// The crates in whose code faults are planted.
const CRATES: [&str; 3] = ["device", "pager", "engine"];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("the sources are there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn texts() -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    CRATES.iter().for_each(|name| sources(&crates.join(name).join("src"), &mut found));
    found.iter().map(|path| std::fs::read_to_string(path).expect("a source can be read")).collect()
}

/// Returns the texts between `before` and the next quotation mark.
fn quoted<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(|rest| rest.split('"').next())
}

#[test]
fn the_lists_have_what_is_in_the_code_and_nothing_else() {
    let texts = texts();
    let rooms: BTreeSet<&str> = switches().filter_map(|name| name.split(": ").next()).collect();
    let is_fault = |name: &&str| name.split_once(": ").is_some_and(|(room, _)| rooms.contains(room));
    // A switch that is used at several places is a constant with a name.
    let by_name =
        |text: &str| quoted(text, ": &str = \"").filter(is_fault).map(str::to_owned).collect::<Vec<_>>();
    let of = |text: &str| {
        quoted(text, "planted(\"").filter(|name| name.contains(": ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let in_code: BTreeSet<String> =
        texts.iter().flat_map(|text| [of(text), by_name(text)].concat()).collect();
    let not_hunted = NOT_HUNTED.iter().map(|(name, _)| *name);
    let elsewhere = HUNTED_ELSEWHERE.iter().copied();
    let listed: BTreeSet<String> = switches().chain(not_hunted).chain(elsewhere).map(str::to_owned).collect();
    assert!(in_code.len() > 50, "{in_code:?}");
    let missing: Vec<_> = in_code.difference(&listed).collect();
    assert!(missing.is_empty(), "planted and in no list of sim/src/planted.rs: {missing:?}");
    let gone: Vec<_> = listed.difference(&in_code).collect();
    assert!(gone.is_empty(), "in a list of sim/src/planted.rs and planted nowhere: {gone:?}");
}
