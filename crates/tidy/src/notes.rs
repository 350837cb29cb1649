//! Checks the decision notes: each has a number of its own, has the number in its title, and is at most one
//! page long.

use crate::SourceFile;
use std::collections::BTreeMap;

/// The most lines of a note, which is about a page.
pub const NOTE_LINES_MAX: usize = 60;
const FOLDER: &str = "docs/decisions/";

/// Checks every file in `docs/decisions` except the README.
pub fn check(files: &[SourceFile]) -> Vec<String> {
    let notes =
        files.iter().filter(|file| file.path.starts_with(FOLDER) && !file.path.ends_with("/README.md"));
    let mut by_number: BTreeMap<&str, &str> = BTreeMap::new();
    let mut found = Vec::new();
    for note in notes {
        found.extend(check_note(note));
        let number = number_of(note);
        if let Some(other) = by_number.insert(number, &note.path) {
            found.push(format!("{}: number {number} is taken by {other}", note.path));
        }
    }
    found
}

fn number_of(note: &SourceFile) -> &str {
    note.path[FOLDER.len()..].split('-').next().unwrap_or_default()
}

fn check_note(note: &SourceFile) -> Vec<String> {
    let mut found = Vec::new();
    let number = number_of(note);
    if number.len() != 4 || !number.chars().all(|c| c.is_ascii_digit()) || !note.path.ends_with(".md") {
        found.push(format!("{}: a note is named NNNN-title.md", note.path));
    }
    if !note.text.starts_with(&format!("# {number}")) {
        found.push(format!("{}: the first line is not \"# {number}: title\"", note.path));
    }
    let line_count = note.text.lines().count();
    if line_count > NOTE_LINES_MAX {
        found.push(format!("{}: {line_count} lines, over one page of {NOTE_LINES_MAX}", note.path));
    }
    found
}
