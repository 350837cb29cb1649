//! PostgreSQL's `pg_type` for the types that Varve has, from `types.txt`.
//!
//! This module does not know values or which types expressions may have (`ty`).

use std::sync::LazyLock;

/// A row of `pg_type`.
pub struct TypeRow {
    /// `oid`
    pub oid: u32,
    /// `typname`
    pub name: &'static str,
    /// `typlen`
    pub len: i16,
    /// `typbyval`
    pub by_value: bool,
    /// `typtype`
    pub kind: char,
    /// `typcategory`
    pub category: char,
    /// `typispreferred`
    pub is_preferred: bool,
    /// `typelem`
    pub element: u32,
    /// `typarray`
    pub array: u32,
    /// `typalign`
    pub align: char,
    /// `typstorage`
    pub storage: char,
    /// `typcollation`
    pub collation: u32,
    /// OID and name of `typinput`, `typoutput`, `typreceive`, `typsend`, with 0 and `-` for none.
    pub functions: [(u32, &'static str); 4],
}

/// Returns all rows, sorted by OID.
pub fn types() -> &'static [TypeRow] {
    static TYPES: LazyLock<Vec<TypeRow>> =
        LazyLock::new(|| include_str!("types.txt").lines().filter_map(read).collect());
    &TYPES
}

/// Returns the type with this OID.
pub fn type_row(oid: u32) -> Option<&'static TypeRow> {
    types().iter().find(|t| t.oid == oid)
}

/// Returns the type of this name.
pub fn type_named(name: &str) -> Option<&'static TypeRow> {
    types().iter().find(|t| t.name == name)
}

/// Reads one line: the fields of `TypeRow`, separated by blanks.
fn read(line: &'static str) -> Option<TypeRow> {
    let words: Vec<&'static str> = line.split(' ').collect();
    let letter = |at: usize| words.get(at)?.chars().next();
    let number = |at: usize| words.get(at)?.parse::<u32>().ok();
    let function = |at: usize| Some((number(at)?, *words.get(at + 1)?));
    Some(TypeRow {
        oid: number(0)?,
        name: words.get(1)?,
        len: words.get(2)?.parse().ok()?,
        by_value: letter(3)? == 't',
        kind: letter(4)?,
        category: letter(5)?,
        is_preferred: letter(6)? == 't',
        element: number(7)?,
        array: number(8)?,
        align: letter(9)?,
        storage: letter(10)?,
        collation: number(11)?,
        functions: [function(12)?, function(14)?, function(16)?, function(18)?],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_types_is_read() {
        assert_eq!(types().len(), include_str!("types.txt").lines().count());
        assert_eq!(type_named("int4").map(|t| (t.oid, t.len, t.array)), Some((23, 4, 1007)));
        assert_eq!(
            type_row(1009).map(|t| (t.name, t.element, t.functions[0])),
            Some(("_text", 25, (750, "array_in")))
        );
    }
}
