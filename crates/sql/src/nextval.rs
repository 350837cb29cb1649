//! Finds calls of `nextval` in the text of a column's default. They show which sequences the default uses.
//!
//! This module does not know how a sequence produces its values.

use std::ops::Range;

use varve_engine::SequenceDef;

use crate::names::split_name;
use crate::parse;

/// Returns the sequences that a default uses by names which PostgreSQL stores as OIDs: `nextval('name')`, not
/// `nextval('name'::text)`.
pub fn drawn_from(default: &str) -> Vec<String> {
    draws(default).into_iter().map(|(name, _)| name).collect()
}

/// Returns the default with the name `new` for the sequences for which `is_it` returns true. `is_it` is
/// called with the name in the text.
pub fn drawing_from_another(default: &str, is_it: impl Fn(&str) -> bool, new: &str) -> String {
    let (mut out, mut copied) = (String::with_capacity(default.len()), 0);
    for (name, at) in draws(default) {
        if is_it(&name) {
            out.push_str(&default[copied..at.start]);
            out.push_str(&format!("'{new}'"));
            copied = at.end;
        }
    }
    out.push_str(&default[copied..]);
    out
}

/// Returns the names of sequences in calls of `nextval`, with their positions.
fn draws(default: &str) -> Vec<(String, Range<usize>)> {
    if !default.to_ascii_lowercase().contains("nextval") {
        return Vec::new();
    }
    let tokens = parse::tokens(default).unwrap_or_default();
    let drawn = |at: usize| {
        let [verb, open, name] = tokens.get(at..at + 3)? else { return None };
        let draws = verb.name().as_deref() == Some("nextval") && open.is("(");
        let is_text = tokens.get(at + 3).is_some_and(|t| t.is("::"))
            && tokens.get(at + 4).is_some_and(|t| t.name().as_deref() == Some("text"));
        let string = name.string().filter(|_| draws && !is_text)?;
        Some((string, name.start..name.end))
    };
    (0..tokens.len()).filter_map(drawn).collect()
}

/// Returns a sequence's name in the form for `nextval('...')`.
pub fn sequence_text(schema: &str, name: &str) -> String {
    let plain = |n: &str| n.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let quoted = |n: &str| if plain(n) { n.to_owned() } else { format!("\"{}\"", n.replace('"', "\"\"")) };
    let name = if schema == "public" { quoted(name) } else { format!("{}.{}", quoted(schema), quoted(name)) };
    name.replace('\'', "''")
}

/// Returns whether a default uses a sequence by a name that PostgreSQL stores as an OID: `nextval('name')`,
/// not `nextval('name'::text)`.
pub fn draws_from(default: &str, sequence: &SequenceDef) -> bool {
    // The text is scanned only if it may have the name, because the catalog compares each default with each
    // sequence.
    let is_plain = sequence.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let may_name = |name: &str| default.to_ascii_lowercase().contains(&name.to_ascii_lowercase());
    if is_plain && !may_name(&sequence.name) {
        return false;
    }
    let wanted = (sequence.schema.clone(), sequence.name.clone());
    drawn_from(default).iter().any(|name| split_name(name) == wanted)
}
