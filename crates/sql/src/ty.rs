//! Types of expressions: PostgreSQL's names, OIDs and categories.
//!
//! Invariants
//! 1. Every expression has a `Typed`: a type and PostgreSQL's type modifier (-1 for none).
//! 2. `Ty::Unknown` is the type of an untyped literal, parameter or NULL. After binding, no expression has
//!    it.
//! 3. char(n) values are stored without trailing blanks, and padded when they are shown. The type modifier
//!    has the width. `bpchar` has no modifier, so a char(n) value gets its blanks when it becomes bpchar
//!    (`coerce::with_blanks`).
//!
//! This module does not know values, which types cast to which (`casts`), or how a cast is computed
//! (`eval::cast`).

mod casts;
mod written;

use varve_engine::{ColumnType, Moment};

use crate::error::{Result, SqlError};
use crate::oid::{self, Oid};
use crate::time::IntervalFields;

pub use casts::{CastLevel, cast_level, common};
pub use written::of_ast;

/// Type of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ty {
    /// A type that is not known yet.
    Unknown,
    /// boolean
    Bool,
    /// smallint
    Int2,
    /// integer
    Int4,
    /// bigint
    Int8,
    /// real
    Float4,
    /// double precision
    Float8,
    /// numeric
    Numeric,
    /// char(n), `bpchar`
    Char,
    /// character varying
    Varchar,
    /// text
    Text,
    /// name
    Name,
    /// "char": a string of one byte, or none
    Char1,
    /// bytea
    Bytea,
    /// date
    Date,
    /// timestamp without time zone
    Timestamp,
    /// timestamp with time zone
    TimestampTz,
    /// time without time zone
    Time,
    /// interval
    Interval,
    /// uuid
    Uuid,
    /// json, stored as text
    Json,
    /// oid, stored as bigint
    Oid,
    /// regclass and similar types, stored as oid
    Reg(Reg),
    /// An array of elements of a type that is not an array.
    Array(&'static Ty),
    /// int2vector, stored as an array
    Int2Vector,
    /// oidvector, stored as an array
    OidVector,
    /// void
    Void,
}

/// Kinds of objects whose OIDs are shown as names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reg {
    /// regclass
    Class,
    /// regtype
    Type,
    /// regproc
    Proc,
    /// regnamespace
    Namespace,
    /// regrole
    Role,
}

/// The types that elements of arrays may have, with the names of their arrays.
static ELEMENTS: [(Ty, &str); 21] = [
    (Ty::Bool, "boolean[]"),
    (Ty::Int2, "smallint[]"),
    (Ty::Int4, "integer[]"),
    (Ty::Int8, "bigint[]"),
    (Ty::Float4, "real[]"),
    (Ty::Float8, "double precision[]"),
    (Ty::Numeric, "numeric[]"),
    (Ty::Char, "character[]"),
    (Ty::Varchar, "character varying[]"),
    (Ty::Text, "text[]"),
    (Ty::Name, "name[]"),
    (Ty::Char1, "\"char\"[]"),
    (Ty::Bytea, "bytea[]"),
    (Ty::Date, "date[]"),
    (Ty::Timestamp, "timestamp without time zone[]"),
    (Ty::TimestampTz, "timestamp with time zone[]"),
    (Ty::Time, "time without time zone[]"),
    (Ty::Interval, "interval[]"),
    (Ty::Uuid, "uuid[]"),
    (Ty::Json, "json[]"),
    (Ty::Oid, "oid[]"),
];

/// A type with its modifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Typed {
    /// The type.
    pub ty: Ty,
    /// PostgreSQL's `atttypmod`, -1 for none.
    pub typmod: i32,
}

impl Ty {
    /// Returns PostgreSQL's name of the type, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Ty::Unknown => "unknown",
            Ty::Bool => "boolean",
            Ty::Int2 => "smallint",
            Ty::Int4 => "integer",
            Ty::Int8 => "bigint",
            Ty::Float4 => "real",
            Ty::Float8 => "double precision",
            Ty::Numeric => "numeric",
            Ty::Char => "character",
            Ty::Varchar => "character varying",
            Ty::Text => "text",
            Ty::Name => "name",
            Ty::Char1 => "\"char\"",
            Ty::Bytea => "bytea",
            Ty::Date => "date",
            Ty::Timestamp => "timestamp without time zone",
            Ty::TimestampTz => "timestamp with time zone",
            Ty::Interval => "interval",
            Ty::Time => "time without time zone",
            Ty::Uuid => "uuid",
            Ty::Json => "json",
            Ty::Oid => "oid",
            Ty::Reg(Reg::Class) => "regclass",
            Ty::Reg(Reg::Type) => "regtype",
            Ty::Reg(Reg::Proc) => "regproc",
            Ty::Reg(Reg::Namespace) => "regnamespace",
            Ty::Reg(Reg::Role) => "regrole",
            Ty::Array(element) => {
                ELEMENTS.iter().find(|(ty, _)| ty == element).map_or("anyarray", |(_, name)| name)
            }
            Ty::Int2Vector => "int2vector",
            Ty::OidVector => "oidvector",
            Ty::Void => "void",
        }
    }

    /// Returns the type's OID as clients see it.
    pub fn oid(self) -> Oid {
        match self {
            Ty::Unknown | Ty::Text => oid::TEXT,
            Ty::Bool => oid::BOOL,
            Ty::Int2 => oid::INT2,
            Ty::Int4 => oid::INT4,
            Ty::Int8 => oid::INT8,
            Ty::Float4 => oid::FLOAT4,
            Ty::Float8 => oid::FLOAT8,
            Ty::Numeric => oid::NUMERIC,
            Ty::Char => oid::BPCHAR,
            Ty::Varchar => oid::VARCHAR,
            Ty::Name => oid::NAME,
            Ty::Char1 => oid::CHAR,
            Ty::Bytea => oid::BYTEA,
            Ty::Date => oid::DATE,
            Ty::Timestamp => oid::TIMESTAMP,
            Ty::TimestampTz => oid::TIMESTAMPTZ,
            Ty::Time => oid::TIME,
            Ty::Interval => oid::INTERVAL,
            Ty::Uuid => oid::UUID,
            Ty::Json => oid::JSON,
            Ty::Oid => oid::OID,
            Ty::Reg(Reg::Class) => oid::REGCLASS,
            Ty::Reg(Reg::Type) => oid::REGTYPE,
            Ty::Reg(Reg::Proc) => oid::REGPROC,
            Ty::Reg(Reg::Namespace) => oid::REGNAMESPACE,
            Ty::Reg(Reg::Role) => oid::REGROLE,
            Ty::Array(element) => oid::array_of(element.oid()).unwrap_or(oid::TEXT),
            Ty::Int2Vector => oid::INT2VECTOR,
            Ty::OidVector => oid::OIDVECTOR,
            Ty::Void => oid::VOID,
        }
    }

    /// Returns the type's OID, even if the type is not known.
    pub fn told_oid(self) -> Oid {
        if self == Ty::Unknown { oid::UNKNOWN } else { self.oid() }
    }

    /// Returns the type with this OID, if expressions can have it. It is `Unknown` for 0 and 705.
    pub fn of_oid(oid: Oid) -> Option<Ty> {
        Some(match oid {
            oid::UNSPECIFIED | oid::UNKNOWN => Ty::Unknown,
            oid::BOOL => Ty::Bool,
            oid::INT2 => Ty::Int2,
            oid::INT4 => Ty::Int4,
            oid::INT8 => Ty::Int8,
            oid::FLOAT4 => Ty::Float4,
            oid::FLOAT8 => Ty::Float8,
            oid::NUMERIC => Ty::Numeric,
            oid::BPCHAR => Ty::Char,
            oid::VARCHAR => Ty::Varchar,
            oid::TEXT => Ty::Text,
            oid::NAME => Ty::Name,
            oid::BYTEA => Ty::Bytea,
            oid::DATE => Ty::Date,
            oid::TIMESTAMP => Ty::Timestamp,
            oid::TIMESTAMPTZ => Ty::TimestampTz,
            oid::TIME => Ty::Time,
            oid::INTERVAL => Ty::Interval,
            oid::UUID => Ty::Uuid,
            oid::JSON => Ty::Json,
            oid::CHAR => Ty::Char1,
            oid::OID => Ty::Oid,
            oid::REGCLASS => Ty::Reg(Reg::Class),
            oid::REGTYPE => Ty::Reg(Reg::Type),
            oid::REGPROC => Ty::Reg(Reg::Proc),
            oid::REGNAMESPACE => Ty::Reg(Reg::Namespace),
            oid::REGROLE => Ty::Reg(Reg::Role),
            oid::INT2VECTOR => Ty::Int2Vector,
            oid::OIDVECTOR => Ty::OidVector,
            array => return Ty::of_oid(oid::element(array)?)?.array(),
        })
    }

    /// Returns the type of arrays with elements of this type.
    pub fn array(self) -> Option<Ty> {
        ELEMENTS.iter().find(|(ty, _)| *ty == self).map(|(ty, _)| Ty::Array(ty))
    }

    /// Returns the type of the elements, or `None` if this is not an array.
    pub fn element(self) -> Option<Ty> {
        match self {
            Ty::Array(element) => Some(*element),
            Ty::Int2Vector => Some(Ty::Int2),
            Ty::OidVector => Some(Ty::Oid),
            _ => None,
        }
    }

    /// Returns the column type of elements of this type in a column of arrays.
    fn column_type_of_elements(self) -> ColumnType {
        if self == Ty::Oid { ColumnType::Oid } else { self.column_type() }
    }

    /// Returns whether values are character strings.
    pub fn is_text(self) -> bool {
        matches!(self, Ty::Char | Ty::Varchar | Ty::Text | Ty::Name | Ty::Char1)
    }

    /// Returns whether every text is a value without a change. This is false for "char" and name, which are
    /// shortened.
    pub fn keeps_text(self) -> bool {
        self.is_text() && !matches!(self, Ty::Char1 | Ty::Name)
    }

    /// Returns whether values are OIDs.
    pub fn is_oid(self) -> bool {
        matches!(self, Ty::Oid | Ty::Reg(_))
    }

    /// Returns whether values are numbers.
    pub fn is_number(self) -> bool {
        self.number_rank().is_some()
    }

    /// Returns whether values are whole numbers.
    pub fn is_integer(self) -> bool {
        matches!(self, Ty::Int2 | Ty::Int4 | Ty::Int8)
    }

    /// Returns the position in the order in which numbers are promoted.
    pub fn number_rank(self) -> Option<u8> {
        Some(match self {
            Ty::Int2 => 0,
            Ty::Int4 => 1,
            Ty::Int8 => 2,
            Ty::Numeric => 3,
            Ty::Float4 => 4,
            Ty::Float8 => 5,
            _ => return None,
        })
    }

    /// Returns whether values are points in time.
    pub fn is_moment(self) -> bool {
        matches!(self, Ty::Date | Ty::Timestamp | Ty::TimestampTz)
    }

    /// Returns the type that PostgreSQL prefers within the category of this one.
    pub fn preferred(self) -> Ty {
        match self {
            t if t.is_text() => Ty::Text,
            t if t.is_number() || t.is_oid() => Ty::Float8,
            t if t.is_moment() => Ty::TimestampTz,
            t => t,
        }
    }

    /// Returns whether both are in the same category.
    pub fn same_category(self, other: Ty) -> bool {
        self.preferred() == other.preferred()
    }

    /// Returns the column type for values of this type in expressions and for text input. It is bytea for
    /// arrays, whose text `text::parse_as` reads.
    pub fn column_type(self) -> ColumnType {
        match self {
            Ty::Bool => ColumnType::Bool,
            Ty::Int2 => ColumnType::Int2,
            Ty::Int4 => ColumnType::Int4,
            Ty::Int8 | Ty::Oid | Ty::Reg(_) => ColumnType::Int8,
            Ty::Float4 => ColumnType::Float4,
            Ty::Float8 => ColumnType::Float8,
            Ty::Numeric => ColumnType::Numeric { precision: None },
            Ty::Bytea => ColumnType::Bytea,
            Ty::Date => ColumnType::Date,
            Ty::Timestamp => ColumnType::Timestamp,
            Ty::TimestampTz => ColumnType::TimestampTz,
            Ty::Time => ColumnType::Time,
            Ty::Interval => ColumnType::Interval,
            Ty::Uuid => ColumnType::Uuid,
            Ty::Json => ColumnType::Json,
            Ty::Char => ColumnType::Char(1),
            Ty::Varchar => ColumnType::Varchar(None),
            Ty::Array(_) | Ty::Int2Vector | Ty::OidVector => ColumnType::Bytea,
            Ty::Unknown | Ty::Text | Ty::Name | Ty::Char1 | Ty::Void => ColumnType::Text,
        }
    }
}

impl Typed {
    /// Returns a type without modifier.
    pub const fn plain(ty: Ty) -> Typed {
        Typed { ty, typmod: -1 }
    }

    /// Returns the type of a column.
    pub fn of_column(t: ColumnType) -> Typed {
        let (oid, typmod) = oid::of_column(&t);
        Typed { ty: Ty::of_oid(oid).unwrap_or(Ty::Text), typmod }
    }

    /// Returns whether its values may end with blanks that comparisons ignore. This is so for a char(n) that
    /// has lost its length.
    pub fn may_have_blanks(&self) -> bool {
        self.ty == Ty::Char && self.length().is_none()
    }

    /// Returns the declared length in characters of char(n) or varchar(n).
    pub fn length(self) -> Option<usize> {
        match self.ty {
            Ty::Char | Ty::Varchar if self.typmod >= 4 => Some(self.typmod as usize - 4),
            _ => None,
        }
    }

    /// Returns the declared precision and scale of numeric(p,s).
    pub fn precision(self) -> Option<(u16, i16)> {
        if self.ty != Ty::Numeric || self.typmod < 4 {
            return None;
        }
        let packed = self.typmod - 4;
        let scale = ((packed & 0x7ff) ^ 1024) - 1024;
        Some(((packed >> 16) as u16, scale as i16))
    }

    /// Returns the declared fields and digits of an interval.
    pub fn fields(self) -> Option<IntervalFields> {
        if self.ty == Ty::Interval { IntervalFields::of_typmod(self.typmod) } else { None }
    }

    /// Returns the declared number of digits of a second. For an interval it is `IntervalFields::code`.
    pub fn digits(self) -> Option<(Moment, u8)> {
        let moment = match self.ty {
            Ty::Timestamp => Moment::Timestamp,
            Ty::TimestampTz => Moment::TimestampTz,
            Ty::Time => Moment::Time,
            Ty::Interval => return self.fields().map(|fields| (Moment::Interval, fields.code())),
            _ => return None,
        };
        (self.typmod >= 0).then_some((moment, (self.typmod & 0xff) as u8))
    }

    /// Returns the column type for a table. Returns an error for types that columns cannot have.
    pub fn storage(self) -> Result<ColumnType> {
        Ok(match self.ty {
            Ty::Numeric => ColumnType::Numeric { precision: self.precision() },
            Ty::Char => match self.length() {
                Some(n) => ColumnType::Char(n as u32),
                None => {
                    let error = SqlError::unsupported("a column of type bpchar without a length");
                    return Err(error.with_hint("Use char(n) or text."));
                }
            },
            Ty::Varchar => ColumnType::Varchar(self.length().map(|n| n as u32)),
            Ty::Oid => ColumnType::Oid,
            Ty::Timestamp | Ty::TimestampTz | Ty::Time | Ty::Interval => match self.digits() {
                Some((moment, digits)) => ColumnType::Rounded(moment, digits),
                None => self.ty.column_type(),
            },
            Ty::Array(element) if self.typmod >= 0 => {
                let element = Typed { ty: *element, typmod: self.typmod }.storage()?;
                element.array_of_these().ok_or_else(|| SqlError::internal("a type without arrays"))?
            }
            Ty::Array(element) if !matches!(element, Ty::Name | Ty::Char1) => {
                let element = element.column_type_of_elements();
                element.array().ok_or_else(|| SqlError::internal("a type without arrays"))?
            }
            Ty::Unknown
            | Ty::Name
            | Ty::Char1
            | Ty::Reg(_)
            | Ty::Void
            | Ty::Array(_)
            | Ty::Int2Vector
            | Ty::OidVector => {
                return Err(SqlError::unsupported(format!("a column of type {}", self.ty.name())));
            }
            t => t.column_type(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifiers_round_trip() {
        let t = Typed::of_column(ColumnType::Numeric { precision: Some((12, -3)) });
        assert_eq!(t.precision(), Some((12, -3)));
        assert_eq!(Typed::of_column(ColumnType::Char(7)).length(), Some(7));
        assert_eq!(Typed::of_column(ColumnType::Varchar(None)).storage().unwrap(), ColumnType::Varchar(None));
    }

    #[test]
    fn array_types_are_found_by_oid() {
        for (element, name) in &ELEMENTS {
            assert_eq!(Ty::of_oid(Ty::Array(element).oid()), Some(Ty::Array(element)), "{name}");
            assert_eq!(Ty::Array(element).name(), format!("{}[]", element.name()));
        }
        assert_eq!(Ty::of_oid(oid::INT2VECTOR), Some(Ty::Int2Vector));
        assert_eq!(Ty::of_oid(2205), Some(Ty::Reg(Reg::Class)));
        assert_eq!(Ty::of_oid(600), None);
    }
}
