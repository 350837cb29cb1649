//! "Did you mean ...": the known name nearest to a wrong one.

/// The known name with the smallest edit distance, if that is small against its length.
pub fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let scored = known.iter().map(|name| (distance(wrong, name), *name));
    scored.min().filter(|(edits, name)| *edits <= 1 + name.len() / 4).map(|(_, name)| name)
}

/// Levenshtein's distance, one row at a time; case and `-` against `_` cost nothing.
fn distance(a: &str, b: &str) -> usize {
    let fold = |text: &str| text.to_ascii_lowercase().replace('-', "_").into_bytes();
    let (a, b) = (fold(a), fold(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["size", "replacement", "page_writers"];
        assert_eq!(nearest("sise", &known), Some("size"));
        assert_eq!(nearest("Page-Writer", &known), Some("page_writers"));
        assert_eq!(nearest("replacment", &known), Some("replacement"));
        assert_eq!(nearest("colour", &known), None);
    }
}
