//! Which type of Varve a column of PostgreSQL gets.
//!
//! A type that Varve lacks is stored as the type that is closest and loses no data, often text. The report
//! says so for each column.

use super::schema::Column;

/// The names in `pg_type` of the types that a column of Varve can have.
const KNOWN: [&str; 19] = [
    "bool",
    "bytea",
    "int2",
    "int4",
    "int8",
    "oid",
    "float4",
    "float8",
    "numeric",
    "bpchar",
    "varchar",
    "text",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "interval",
    "uuid",
    "json",
];

/// What a column becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnType {
    /// The type in Varve.
    pub name: String,
    /// The expression that reads the column from the source.
    pub select: String,
    /// What changes, for the report. `None` if the type stays.
    pub change: Option<String>,
}

/// Returns the type for a column. `has_dimensions` says whether its data has arrays of several dimensions.
pub fn column_type(column: &Column, has_dimensions: bool) -> ColumnType {
    let facts = &column.type_facts;
    let stays = |name: &str| ColumnType { name: name.to_owned(), select: column.name.clone(), change: None };
    let becomes = |name: &str, why: &str| ColumnType {
        name: name.to_owned(),
        select: column.name.clone(),
        change: Some(format!("the type {} becomes {name}{why}", column.declared)),
    };
    if has_dimensions {
        return becomes("text", ", because it has arrays of several dimensions");
    }
    let is_known = |name: &str| KNOWN.contains(&name);
    match facts.kind.as_str() {
        "e" => return becomes("text", " with a CHECK of its labels"),
        "d" => {
            let base = facts.base.as_deref().unwrap_or("text");
            let element = facts.base_element.as_deref();
            let is_plain = is_known(element.or(facts.base_name.as_deref()).unwrap_or_default());
            let name = if is_plain { base } else { "text" };
            return becomes(name, "; the conditions of the domain are left out");
        }
        "b" => {}
        _ => return becomes("text", ""),
    }
    if let Some(element) = &facts.element {
        let is_enum = facts.element_kind.as_deref() == Some("e");
        return match element.as_str() {
            // The element of this array has no length, which no column of Varve can have.
            "bpchar" if column.declared == "bpchar[]" => becomes("text[]", ""),
            element if is_known(element) => stays(&column.declared),
            _ if is_enum => becomes("text[]", ""),
            "name" | "char" | "citext" => becomes("text[]", ""),
            "jsonb" => becomes("json[]", ""),
            _ => becomes("text", ""),
        };
    }
    match facts.name.as_str() {
        "bpchar" if column.declared == "bpchar" => becomes("text", ""),
        name if is_known(name) => stays(&column.declared),
        "jsonb" => becomes("json", "; operators and indexes of jsonb are missing"),
        "money" => ColumnType { select: format!("{}::numeric", column.name), ..becomes("numeric", "") },
        _ => becomes("text", ""),
    }
}

/// Returns a default for a column whose type changes. A literal loses its cast to the old type.
pub fn default_for(default: &str) -> &str {
    let Some(rest) = default.strip_prefix('\'') else { return default };
    let mut end = 0;
    let bytes = rest.as_bytes();
    while let Some(quote) = rest.get(end..).and_then(|rest| rest.find('\'')) {
        end += quote + 1;
        if bytes.get(end) != Some(&b'\'') {
            let is_cast = rest
                .get(end..)
                .is_some_and(|tail| tail.starts_with("::") && !tail.contains(['\'', ' ', '(']));
            return if is_cast { &default[..=end] } else { default };
        }
        end += 1;
    }
    default
}

#[cfg(test)]
mod tests {
    use super::super::schema::TypeFacts;
    use super::*;

    fn column(declared: &str, kind: &str, name: &str, element: Option<&str>) -> Column {
        Column {
            number: "1".to_owned(),
            name: "c".to_owned(),
            declared: declared.to_owned(),
            type_facts: TypeFacts {
                kind: kind.to_owned(),
                name: name.to_owned(),
                element: element.map(str::to_owned),
                ..TypeFacts::default()
            },
            is_not_null: false,
            default: None,
            identity: None,
            is_generated: false,
            collation: None,
        }
    }

    #[test]
    fn types_that_varve_lacks_become_others() {
        for (declared, kind, name, element, expect) in [
            ("numeric(8,2)", "b", "numeric", None, "numeric(8,2)"),
            ("timestamp(3) without time zone", "b", "timestamp", None, "timestamp(3) without time zone"),
            ("integer[]", "b", "_int4", Some("int4"), "integer[]"),
            ("jsonb", "b", "jsonb", None, "json"),
            ("money", "b", "money", None, "numeric"),
            ("public.mood", "e", "mood", None, "text"),
            ("int4range", "r", "int4range", None, "text"),
            ("inet[]", "b", "_inet", Some("inet"), "text"),
            ("bpchar", "b", "bpchar", None, "text"),
        ] {
            let made = column_type(&column(declared, kind, name, element), false);
            assert_eq!(made.name, expect, "{declared}");
            assert_eq!(made.change.is_none(), declared == expect, "{declared}");
        }
        let text = column_type(&column("integer[]", "b", "_int4", Some("int4")), true);
        assert_eq!(text.name, "text");
    }

    #[test]
    fn a_default_loses_the_cast_to_its_old_type() {
        for (default, expect) in [
            ("'happy'::public.mood", "'happy'"),
            ("'it''s ok'::public.mood", "'it''s ok'"),
            ("now()", "now()"),
            ("'a'::text || 'b'::text", "'a'::text || 'b'::text"),
            ("'x'", "'x'"),
        ] {
            assert_eq!(default_for(default), expect);
        }
    }
}
