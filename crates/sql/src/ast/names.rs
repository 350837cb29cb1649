//! Syntax tree of names: of objects, of columns, and of types.

use super::TextPosition;

/// A name from PostgreSQL's parser: in lower case unless it was quoted, and shortened to the length limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ident {
    /// The name.
    pub value: String,
    /// The position of its beginning.
    pub at: TextPosition,
}

impl Ident {
    /// Returns a name without a position in a text.
    pub fn new(name: impl Into<String>) -> Ident {
        Ident { value: name.into(), at: TextPosition::NONE }
    }
}

/// A name that may have several parts, such as `schema.table`. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName(pub Vec<Ident>);

impl ObjectName {
    /// Returns the last part, which names the object itself. The result is empty if the name has no part.
    pub fn last(&self) -> &str {
        self.0.last().map_or("", |part| part.value.as_str())
    }
}

impl From<Ident> for ObjectName {
    fn from(name: Ident) -> ObjectName {
        ObjectName(vec![name])
    }
}

/// The form in messages, without quotes.
impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, part) in self.0.iter().enumerate() {
            f.write_str(if n > 0 { "." } else { "" })?;
            f.write_str(&part.value)?;
        }
        Ok(())
    }
}

/// A type in a text: `numeric(10, 2)[]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeName {
    /// Its name. Types with a word in SQL are those of `pg_catalog`: `integer` is `pg_catalog.int4`.
    pub name: ObjectName,
    /// The type modifiers: the numbers in parentheses. For an interval the first one describes its fields.
    pub modifiers: Vec<i64>,
    /// Whether it is an array of this type. The number of dimensions in the text does not matter.
    pub is_array: bool,
}

impl TypeName {
    /// Returns the name of a type in `pg_catalog`, or `None` if it is in another schema.
    pub fn system_name(&self) -> Option<&str> {
        match self.name.0.as_slice() {
            [name] => Some(&name.value),
            [schema, name] if schema.value == "pg_catalog" => Some(&name.value),
            _ => None,
        }
    }
}
