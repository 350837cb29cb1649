//! Tests the rules about the order of modules within a crate: each rule finds its fault.

use varve_tidy::{SourceFile, circles, imports, layers};

const LIB: &str = "pub mod high;\npub mod low;\n";

/// Checks a crate of two modules with this declaration and these texts. Returns the faults.
fn faults(declaration: &str, low: &str, high: &str) -> Vec<String> {
    layers::check(&[
        SourceFile::new("crates/sql/layers.toml", declaration),
        SourceFile::new("crates/sql/src/lib.rs", LIB),
        SourceFile::new("crates/sql/src/low.rs", low),
        SourceFile::new("crates/sql/src/high/mod.rs", high),
    ])
}

const ORDER: &str = "circle_files_max = 1\norder = [\"low\", \"high\", \"lib\"]\n";
const HIGH: &str = "pub struct High;\npub fn run() -> crate::low::Low { crate::low::Low }\n";

fn assert_finds(found: &[String], what: &str) {
    assert!(found.iter().any(|sentence| sentence.contains(what)), "{what:?} is not in {found:?}");
}

#[test]
fn downward_use_is_allowed() {
    assert_eq!(faults(ORDER, "pub struct Low;\n", HIGH), Vec::<String>::new());
}

#[test]
fn upward_use_in_every_form() {
    for low in [
        "pub struct Low;\n\nuse crate::high::High;\n",
        "pub struct Low;\n\nuse super::high::High as Other;\n",
        "pub struct Low;\n\nfn f(_: crate::high::High) {}\n",
        "pub struct Low;\nuse crate::high;\nfn f() { high::run(); }\n",
        "pub struct Low;\n\nfn f() { println!(\"{}\", crate::high::run()); }\n",
        "pub struct Low;\nuse crate::high::*;\nfn f() { run(); }\n",
    ] {
        let found = faults(ORDER, low, HIGH);
        assert_finds(&found, "crates/sql/src/low.rs:3: low uses high (");
        assert_finds(&found, "2 files import each other");
    }
}

#[test]
fn tests_may_look_upwards() {
    let low = "pub struct Low;\n#[cfg(test)]\nmod tests {\n    use crate::high::High;\n}\n";
    assert_eq!(faults(ORDER, low, HIGH), Vec::<String>::new());
}

#[test]
fn reexport_hides_no_upward_use() {
    let found = layers::check(&[
        SourceFile::new("crates/sql/layers.toml", ORDER),
        SourceFile::new("crates/sql/src/lib.rs", "mod high;\nmod low;\npub use high::High;\n"),
        SourceFile::new("crates/sql/src/low.rs", "use crate::High;\n"),
        SourceFile::new("crates/sql/src/high.rs", "pub struct High;\n"),
    ]);
    assert_finds(&found, "low uses high (crate::High)");
}

#[test]
fn order_names_every_module_and_nothing_else() {
    let found =
        faults("circle_files_max = 1\norder = [\"low\", \"attic\", \"lib\"]\n", "pub struct Low;\n", HIGH);
    assert_finds(&found, "module high is missing");
    assert_finds(&found, "names attic, which is no module");
    let none = faults("circle_files_max = 2\norder = [\"lib\"]\n", "use crate::high::High;\n", HIGH);
    assert_finds(&none, "module low is missing");
    let with_circle =
        "circle_files_max = 2\norder = [{ circle = [\"low\", \"attic\"], because = \"old\" }, \"lib\"]\n";
    assert_finds(&faults(with_circle, "use crate::high::High;\n", HIGH), "module high is missing");
    let twice = faults("circle_files_max = 1\norder = [\"low\", \"high\", \"lib\", \"low\"]\n", "", "");
    assert_finds(&twice, "stands in the order twice");
    assert_finds(&layers::check(&[SourceFile::new("crates/sql/src/lib.rs", "")]), "there is no such file");
}

#[test]
fn circle_of_modules_has_a_reason_and_is_one() {
    let row = "circle_files_max = 2\norder = [{ circle = [\"low\", \"high\"], because = \"they meet\" }, \"lib\"]\n";
    assert_eq!(faults(row, "pub struct Low;\nuse crate::high::High;\n", HIGH), Vec::<String>::new());
    assert_finds(&faults(row, "pub struct Low;\n", HIGH), "are no circle");
    let unargued = "circle_files_max = 2\norder = [{ circle = [\"low\", \"high\"] }, \"lib\"]\n";
    assert_finds(&faults(unargued, "pub struct Low;\n", HIGH), "has no reason");
}

#[test]
fn order_inside_a_folder() {
    let files = |one: &str| {
        [
            SourceFile::new(
                "crates/sql/layers.toml",
                "circle_files_max = 1\norder = [\"high\", \"lib\"]\n[inside.high]\norder = [\"one\", \"two\", \"mod\"]\n",
            ),
            SourceFile::new("crates/sql/src/lib.rs", "mod high;\n"),
            SourceFile::new("crates/sql/src/high/mod.rs", "mod one;\nmod two;\nfn f() { two::run(); }\n"),
            SourceFile::new("crates/sql/src/high/one.rs", one),
            SourceFile::new("crates/sql/src/high/two.rs", "pub fn run() {}\n"),
        ]
    };
    assert_eq!(layers::check(&files("")), Vec::<String>::new());
    assert_finds(
        &layers::check(&files("use super::two::run;\n")),
        "one.rs:1: one uses two (super::two::run)",
    );
}

#[test]
fn circles_are_found_and_a_folders_own_file_makes_none() {
    let edges = [(1, [2].into()), (2, [3].into()), (3, [1, 4].into()), (4, [5].into()), (5, [4].into())];
    assert_eq!(circles::of_graph(&edges.into()), [vec![1, 2, 3], vec![4, 5]]);
    let read = imports::of_crate(
        &[
            SourceFile::new("crates/sql/src/lib.rs", "mod high;\n"),
            SourceFile::new("crates/sql/src/high/mod.rs", "mod part;\npub struct High(part::Part);\n"),
            SourceFile::new("crates/sql/src/high/part.rs", "pub struct Part;\nimpl super::High {}\n"),
        ],
        "crates/sql",
    );
    assert_eq!(read.imports.len(), 2);
    assert!(circles::of_files(&read).is_empty());
}
