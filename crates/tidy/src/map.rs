//! Checks ARCHITECTURE.md, the map of the code: every path that it names must exist.
//!
//! Two kinds of paths are checked: paths in code spans, from the root of the repository or from `crates/`,
//! and targets of links.

use crate::SourceFile;
use std::collections::BTreeSet;

/// The page whose paths are checked.
pub const MAP: &str = "ARCHITECTURE.md";

/// Checks the paths of [`MAP`] against the files that git tracks.
pub fn check(files: &[SourceFile]) -> Vec<String> {
    let Some(map) = files.iter().find(|file| file.path == MAP) else {
        return vec![format!("{MAP}: there is no such file")];
    };
    let known = files_and_folders(files);
    let lines = map.text.lines().enumerate();
    let named = lines.flat_map(|(number, line)| paths_of(line).map(move |path| (number + 1, path)));
    named
        .filter(|(_, path)| !is_known(&known, path))
        .map(|(number, path)| format!("{MAP}:{number}: there is no file or folder {path}"))
        .collect()
}

/// Returns every tracked file, and every folder that holds one.
fn files_and_folders(files: &[SourceFile]) -> BTreeSet<&str> {
    let mut known = BTreeSet::new();
    for file in files {
        known.insert(file.path.as_str());
        known.extend(file.path.match_indices('/').map(|(at, _)| &file.path[..at]));
    }
    known
}

fn is_known(known: &BTreeSet<&str>, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    known.contains(path) || known.contains(format!("crates/{path}").as_str())
}

/// Returns the paths that a line names. A path within a code span or a link does not continue in the next
/// line.
fn paths_of(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2).filter(|span| is_path(span));
    spans.chain(line.split("](").skip(1).filter_map(link_target))
}

/// Returns whether a code span is meant as a path: it ends like a source file, or has a slash and only
/// letters of paths. The name of a source file without its folder counts, too. It is then reported as
/// missing, because it does not say where the file is.
fn is_path(span: &str) -> bool {
    let looks_like_path = span.contains('/') && !span.starts_with(['/', '.']);
    (looks_like_path || span.ends_with(".rs")) && span.chars().all(is_path_char)
}

fn is_path_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-')
}

/// Returns the file that a link leads to, without the position within it. Returns `None` if the link leads
/// out of the repository or stays on the page.
fn link_target(after_bracket: &str) -> Option<&str> {
    let target = after_bracket.split([')', '#']).next()?;
    (!target.is_empty() && !target.contains("://")).then_some(target)
}
