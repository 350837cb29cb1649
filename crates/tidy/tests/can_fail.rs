//! Tests that each rule finds the fault for which it was made. A check that can't fail proves nothing.

use varve_tidy::{SourceFile, layering, map, names, notes, safety, signatures, size, wording};

fn one(path: &str, text: &str) -> Vec<SourceFile> {
    vec![SourceFile::new(path, text)]
}

fn assert_finds(found: &[String], what: &str) {
    assert!(found.iter().any(|sentence| sentence.contains(what)), "{what:?} is not in {found:?}");
}

#[test]
fn upward_dependency() {
    let manifest = "[package]\nname = \"varve-pager\"\n[dependencies]\nvarve-engine.workspace = true\n";
    assert_finds(
        &layering::check(&one("crates/pager/Cargo.toml", manifest)),
        "may not depend on varve-engine",
    );
}

#[test]
fn tests_may_look_further_down_but_not_up() {
    let manifest = |name: &str| {
        format!("[package]\nname = \"varve-sql\"\n[dev-dependencies]\n{name}.workspace = true\n")
    };
    assert!(layering::check(&one("crates/sql/Cargo.toml", &manifest("varve-device"))).is_empty());
    assert_finds(
        &layering::check(&one("crates/sql/Cargo.toml", &manifest("varve-server"))),
        "may not depend on",
    );
}

#[test]
fn crate_without_a_row() {
    let manifest = "[package]\nname = \"varve-attic\"\n";
    assert_finds(&layering::check(&one("crates/attic/Cargo.toml", manifest)), "no row");
}

#[test]
fn missing_header_long_file_and_long_function() {
    assert_finds(&size::check(&one("a.rs", "fn f() {}\n")), "does not open with");
    let long_file = format!("//! A.\n{}", "// line\n".repeat(size::FILE_LINES_MAX));
    assert_finds(&size::check(&one("a.rs", &long_file)), "lines, over");
    let long_function = format!("//! A.\nfn f() {{\n{}}}\n", "    g();\n".repeat(size::FUNCTION_LINES_MAX));
    assert_finds(&size::check(&one("a.rs", &long_function)), "fn f has");
}

#[test]
fn name_that_could_be_any_types() {
    let found = |text: &str| names::check(&one("crates/tidy/src/a.rs", text));
    assert_finds(&found("fn f() {\n    enum Found {}\n}\n"), "a.rs:2: type Found: give it a name");
    assert_finds(
        &found("pub(crate) struct Place<'a>(&'a str);\n"),
        "crates/tidy: 1 types with vague names, over 0",
    );
    assert_eq!(found("struct FoundRow;\nimpl Deref for A { type Target = B; }\n"), [""; 0]);
}

#[test]
fn tuple_for_several_arguments() {
    let found = |text: &str| signatures::check(&one("crates/tidy/src/a.rs", text));
    assert_finds(&found("fn f((a, b): (u8, u8)) {}\n"), "a.rs:1: fn f has a tuple as a parameter");
    assert_finds(&found("impl A {\n    fn f(&self, pair: &(u8, u8)) {}\n}\n"), "a.rs:2: fn f has a tuple");
    assert_finds(
        &found("fn f() -> Option<(u8, u8, u8)> { None }\n"),
        "fn f gives a tuple of three or more parts",
    );
    assert_finds(&found("trait A { fn f(&self) -> Result<Vec<(u8, u8, u8)>>; }\n"), "fn f gives a tuple");
    assert_finds(&found("fn f((a, b): (u8, u8)) {}\n"), "crates/tidy: 1 signatures with tuples, over 0");
}

#[test]
fn tuple_that_stands_for_no_arguments() {
    for text in [
        "fn f() -> (u8, u8) { (1, 2) }\n",
        "fn f(_: &[(u8, u8)], _: impl Fn((u8, u8))) {}\n",
        "fn f() -> HashMap<u8, (u8, u8, u8)> { g(|(a, b)| a) }\n",
        "impl Iterator for A { fn f(&self, pair: (u8, u8)) {} }\n",
        "#[cfg(test)]\nmod tests { fn f(pair: (u8, u8)) {} }\n",
    ] {
        assert_eq!(signatures::check(&one("crates/tidy/src/a.rs", text)), [""; 0], "{text}");
    }
    assert_eq!(signatures::check(&one("crates/tidy/tests/a.rs", "fn f(pair: (u8, u8)) {}\n")), [""; 0]);
}

#[test]
fn unsafe_in_a_file_that_is_not_named() {
    let hidden = "//! A.\nfn f() { loop { if true { unsafe { g() } } } }\n";
    assert_finds(&safety::check(&one("crates/sql/src/a.rs", hidden)), "outside the files");
    let spoken_of = "//! A.\n// unsafe is only a word here\nconst S: &str = \"unsafe\";\n";
    assert!(safety::check(&one("crates/sql/src/a.rs", spoken_of)).is_empty());
}

#[test]
fn unfinished_work_and_machine_paths() {
    let unfinished = concat!("// TO", "DO: later\n");
    assert_finds(&wording::check(&one("a.rs", unfinished)), "unfinished");
    let path = concat!("cd /wo", "rk/somewhere\n");
    assert_finds(&wording::check(&one("Makefile", path)), "one machine");
    let innocent = "x/".to_owned() + concat!("wo", "rk/") + " is relative, and AUTODOC is a word\n";
    assert!(wording::check(&one("a.rs", &innocent)).is_empty());
}

#[test]
fn dependency_from_elsewhere() {
    let lock = "[[package]]\nsource = \"git+https://example.org/x\"\n";
    assert_finds(&wording::check(&one("Cargo.lock", lock)), "dependency from");
}

#[test]
fn notes_with_a_taken_number_a_bad_name_or_a_wrong_title() {
    let twice = [
        SourceFile::new("docs/decisions/0001-a.md", "# 0001: a\n"),
        SourceFile::new("docs/decisions/0001-b.md", "# 0001: b\n"),
    ];
    assert_finds(&notes::check(&twice), "is taken by");
    assert_finds(&notes::check(&one("docs/decisions/12-a.md", "# 12: a\n")), "is named");
    assert_finds(&notes::check(&one("docs/decisions/0002-a.md", "# Other\n")), "first line");
}

/// Checks a repository that has one file, and a map with this text.
fn mapped(text: &str) -> Vec<String> {
    map::check(&[
        SourceFile::new("ARCHITECTURE.md", text),
        SourceFile::new("crates/pager/src/pool/evict.rs", ""),
    ])
}

#[test]
fn path_of_the_map_that_is_not_there() {
    assert_finds(
        &mapped("first line\nLRU-2: `pager/src/pool/lru.rs`\n"),
        "ARCHITECTURE.md:2: there is no file",
    );
    assert_finds(&mapped("`pager/src/pools/`"), "pager/src/pools/");
    assert_finds(&mapped("`evict.rs` has no folder"), "evict.rs");
    assert_finds(&mapped("[why](docs/decisions/0000-gone.md#rejected)"), "docs/decisions/0000-gone.md");
    assert_finds(&map::check(&[]), "there is no such file");
}

#[test]
fn what_the_map_may_name() {
    assert_eq!(mapped("`pager/src/pool/evict.rs` in `crates/pager/src/pool/`, `crates/pager`"), [""; 0]);
    assert_eq!(
        mapped("[a](crates/pager/src/pool/evict.rs#L1), [b](#glossary), [c](https://example.org/x)"),
        [""; 0]
    );
    assert_eq!(mapped("`[home] layout`, `varve.toml`, `a / b`, `/dev/shm`"), [""; 0]);
}
