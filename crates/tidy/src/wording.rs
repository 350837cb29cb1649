//! Finds text that must not be in a published file: unfinished work, and traces of the machine on which the
//! file was written.

use crate::SourceFile;

/// Marks of unfinished work. They are cut in two, so that the check does not find them in this file.
const UNFINISHED: &[[&str; 2]] =
    &[["TO", "DO"], ["FIX", "ME"], ["XX", "X"], ["HA", "CK"], ["for ", "now"], ["not yet ", "implemented"]];

/// Paths that exist on one machine only. They are cut in two for the same reason.
const MACHINE_PATHS: &[[&str; 2]] =
    &[["/wo", "rk/"], ["/fa", "rm/"], ["/home", "/"], ["/ro", "ot/"], ["/Use", "rs/"]];

/// The only registry from which a dependency may come.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The most bytes of a tracked file. A larger file is data, not source.
const TRACKED_BYTES_MAX: usize = 1 << 20;

/// Checks every tracked text file.
pub fn check(files: &[SourceFile]) -> Vec<String> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        found.extend(check_line(line).map(|what| format!("{}:{}: {what}", file.path, number + 1)));
    }
    if file.path.ends_with("Cargo.lock") {
        found.extend(foreign_sources(file));
    }
    if file.text.len() > TRACKED_BYTES_MAX {
        found.push(format!("{}: {} bytes, over {TRACKED_BYTES_MAX}", file.path, file.text.len()));
    }
    found
}

fn check_line(line: &str) -> impl Iterator<Item = String> {
    let unfinished = UNFINISHED.iter().map(|halves| halves.concat()).filter(|word| has_word(line, word));
    let unfinished = unfinished.map(|word| format!("{word:?} marks unfinished work"));
    let paths = MACHINE_PATHS.iter().map(|halves| halves.concat()).filter(|path| has_path(line, path));
    unfinished.chain(paths.map(|path| format!("{path:?} is a path of one machine")))
}

/// Returns whether the line has `word` with no letter, digit or underscore on either side.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word_char) && !after.is_some_and(is_word_char)
    })
}

/// Returns whether the line has `path` as an absolute path, and not as a part of a longer path or URL.
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| is_word_char(c) || matches!(c, '/' | '.' | '-' | '}' | ')' | '*'))
    })
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn foreign_sources(file: &SourceFile) -> Vec<String> {
    let sources = file.text.lines().filter_map(|line| line.strip_prefix("source = "));
    let foreign = sources.filter(|source| source.trim_matches('"') != REGISTRY);
    foreign.map(|source| format!("{}: dependency from {source}", file.path)).collect()
}
