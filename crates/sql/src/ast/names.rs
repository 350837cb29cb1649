//! Syntax tree of names: of objects, of columns, and of types.

use super::TextPosition;

/// A name as PostgreSQL's parser gives it: in lower case unless it was quoted, and cut to its longest length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ident {
    /// The name.
    pub value: String,
    /// Where it begins.
    pub at: TextPosition,
}

impl Ident {
    /// A name that stands in no text.
    pub fn new(name: impl Into<String>) -> Ident {
        Ident { value: name.into(), at: TextPosition::NONE }
    }
}

/// A name that may have several parts, such as `schema.table`. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName(pub Vec<Ident>);

impl ObjectName {
    /// Its last part, which names the object itself; empty if it has no part.
    pub fn last(&self) -> &str {
        self.0.last().map_or("", |part| part.value.as_str())
    }
}

impl From<Ident> for ObjectName {
    fn from(name: Ident) -> ObjectName {
        ObjectName(vec![name])
    }
}

/// As messages show it: without quotes.
impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, part) in self.0.iter().enumerate() {
            f.write_str(if n > 0 { "." } else { "" })?;
            f.write_str(&part.value)?;
        }
        Ok(())
    }
}

/// A type as it is written: `numeric(10, 2)[]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeName {
    /// Its name. The types that SQL has words for are those of `pg_catalog`: `integer` is `pg_catalog.int4`.
    pub name: ObjectName,
    /// The type modifiers: the numbers in parentheses. For an interval the first one describes its fields.
    pub modifiers: Vec<i64>,
    /// Whether it is an array of this. How many dimensions are written does not matter.
    pub is_array: bool,
}

impl TypeName {
    /// The name of a type that is looked for in `pg_catalog`; `None` if it is one of another schema.
    pub fn system_name(&self) -> Option<&str> {
        match self.name.0.as_slice() {
            [name] => Some(&name.value),
            [schema, name] if schema.value == "pg_catalog" => Some(&name.value),
            _ => None,
        }
    }
}
