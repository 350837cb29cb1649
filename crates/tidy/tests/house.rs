//! Tests that every tracked file keeps the rules of this repository.

use varve_tidy::{layering, layers, map, names, notes, safety, signatures, size, tracked_files, wording};

fn assert_clean(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn no_crate_looks_upwards() {
    assert_clean(layering::check(&tracked_files()));
}

#[test]
fn no_module_looks_upwards_within_its_crate() {
    assert_clean(layers::check(&tracked_files()));
}

#[test]
fn files_and_functions_are_of_readable_size_and_say_what_they_are_for() {
    assert_clean(size::check(&tracked_files()));
}

#[test]
fn names_of_types_say_what_they_hold() {
    assert_clean(names::check(&tracked_files()));
}

#[test]
fn arguments_and_results_have_names() {
    assert_clean(signatures::check(&tracked_files()));
}

#[test]
fn unsafe_code_stands_only_where_it_is_named() {
    assert_clean(safety::check(&tracked_files()));
}

#[test]
fn nothing_is_marked_unfinished_and_nothing_names_a_machine() {
    assert_clean(wording::check(&tracked_files()));
}

#[test]
fn decision_notes_are_numbered_once_and_one_page_long() {
    assert_clean(notes::check(&tracked_files()));
}

#[test]
fn architecture_names_no_path_that_is_not_there() {
    assert_clean(map::check(&tracked_files()));
}
