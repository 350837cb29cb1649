//! "Did you mean ...": finds the known name that is most similar to a wrong name.

/// Returns the known name with the smallest edit distance from the wrong name, if this distance is small
/// compared with the length of the name.
pub fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let scored = known.iter().map(|name| (distance(wrong, name), *name));
    scored.min().filter(|(edits, name)| *edits <= 1 + name.len() / 4).map(|(_, name)| name)
}

/// Returns Levenshtein's distance of two names. Upper and lower case count as equal, and so do `-` and `_`.
fn distance(a: &str, b: &str) -> usize {
    let fold = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    strsim::levenshtein(&fold(a), &fold(b))
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
