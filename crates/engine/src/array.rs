//! Arrays of one dimension: lists of values of one type, or NULLs.
//!
//! Stored format (little endian)
//!
//! | bytes | what |
//! |---|---|
//! | 1 | type of the elements (`element_code`), bit 7 set for a vector, bit 6 if a first subscript is stored |
//! | 4 | number of elements, u32 |
//! | 4 | the first subscript, i32, if bit 6 is set |
//! | 4 + n each | length of the element in bytes, u32, all ones for NULL; the element as in a row |
//!
//! A vector is PostgreSQL's int2vector or oidvector: its subscripts begin at 0, and its text form only has
//! blanks between elements.
//!
//! Invariants
//! 1. An array is well formed: `ArrayRef::from_bytes` checks it, and other code builds it correctly.
//! 2. Equal arrays have equal bytes, because a first subscript is stored only if the array has elements and
//!    the subscript is not 1.
//! 3. The subscript after the last one is also an i32.
//!
//! This module does not know text forms or type names. Elements of type oid and similar types are stored as
//! bigint.

use std::cmp::Ordering;

use parking_lot::Mutex;

use crate::numeric::NumericRef;
use crate::row::{fixed, fixed_bytes, variable, variable_bytes};
use crate::types::{ColumnType, Datum};

const VECTOR: u8 = 0x80;
const BOUNDED: u8 = 0x40;
const HEAD_BYTES: usize = 5;
const BOUND_BYTES: usize = 4;
const NULL: u32 = u32::MAX;

/// An owned array.
#[derive(Clone, Debug)]
pub struct Array(Vec<u8>);

/// A borrowed array.
#[derive(Clone, Copy, Debug)]
pub struct ArrayRef<'a>(&'a [u8]);

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    element: ColumnType,
    rest: &'a [u8],
}

impl Array {
    /// Returns an empty array whose elements have the type `element` without its modifier.
    pub fn new(element: ColumnType) -> Self {
        Self(vec![element_code(element), 0, 0, 0, 0])
    }

    /// Returns an empty vector.
    pub fn vector(element: ColumnType) -> Self {
        Self(vec![element_code(element) | VECTOR, 0, 0, 0, 0])
    }

    /// Appends an element. Panics if it is not of the array's type: the caller has coerced it.
    pub fn push(&mut self, value: Datum<'_>) {
        let element = self.as_ref().element();
        assert!(element.holds(&value), "an array of {element:?} given {value:?}");
        let count = self.as_ref().len() as u32 + 1;
        self.0[1..HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
        if value.is_null() {
            return self.0.extend_from_slice(&NULL.to_le_bytes());
        }
        let fixed = fixed_bytes(&value);
        let bytes = variable_bytes(&value).unwrap_or(&fixed[..element.fixed_width_bytes().unwrap_or(0)]);
        self.0.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    /// Returns the same elements, beginning with this subscript. An empty array has no subscripts, and a
    /// vector counts from 0, so both stay unchanged. Panics if the subscripts leave their range: see
    /// `ArrayRef::fits`.
    #[must_use]
    pub fn starting_at(mut self, lower_bound: i32) -> Self {
        let array = self.as_ref();
        if array.is_empty() || array.is_vector() || array.lower_bound() == lower_bound {
            return self;
        }
        assert!(array.fits(lower_bound), "{} elements from {lower_bound} on", array.len());
        let head = array.head_bytes();
        let bound = lower_bound.to_le_bytes();
        self.0.splice(HEAD_BYTES..head, if lower_bound == 1 { &[][..] } else { &bound[..] }.iter().copied());
        self.0[0] = if lower_bound == 1 { self.0[0] & !BOUNDED } else { self.0[0] | BOUNDED };
        self
    }

    /// Returns the same array, borrowed.
    pub fn as_ref(&self) -> ArrayRef<'_> {
        ArrayRef(&self.0)
    }
}

impl<'a> ArrayRef<'a> {
    /// Reads the stored format. `None` means that these bytes are no array.
    pub fn from_bytes(bytes: &'a [u8]) -> Option<Self> {
        let (head, mut rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let element = element_of(head[0])?;
        let array = Self(bytes);
        if head[0] & BOUNDED != 0 {
            rest = rest.split_at_checked(BOUND_BYTES)?.1;
            let bound = array.lower_bound();
            (bound != 1 && !array.is_empty() && !array.is_vector() && array.fits(bound)).then_some(())?;
        }
        for _ in 0..array.len() {
            let (value, next) = split(rest)?;
            if let Some(value) = value {
                is_sound(element, value).then_some(())?;
            }
            rest = next;
        }
        rest.is_empty().then_some(array)
    }

    /// Returns the bytes in the stored format.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the same array, owned.
    pub fn to_owned(self) -> Array {
        Array(self.0.to_vec())
    }

    /// Returns the type of the elements, without modifier.
    pub fn element(self) -> ColumnType {
        match element_of(self.0[0]) {
            Some(element) => element,
            None => unreachable!("an array of no type"),
        }
    }

    /// Returns whether this is a vector, whose subscripts begin at 0.
    pub fn is_vector(self) -> bool {
        self.0[0] & VECTOR != 0
    }

    /// Returns the subscript of the first element.
    pub fn lower_bound(self) -> i32 {
        match self.0[HEAD_BYTES..].first_chunk() {
            Some(bound) if self.0[0] & BOUNDED != 0 => i32::from_le_bytes(*bound),
            _ => i32::from(!self.is_vector()),
        }
    }

    /// Returns whether the subscripts of the elements stay in their range if the first one is `lower_bound`.
    pub fn fits(self, lower_bound: i32) -> bool {
        i64::from(lower_bound) + self.len() as i64 <= i64::from(i32::MAX)
    }

    fn head_bytes(self) -> usize {
        if self.0[0] & BOUNDED != 0 { HEAD_BYTES + BOUND_BYTES } else { HEAD_BYTES }
    }

    /// Returns the number of elements.
    pub fn len(self) -> usize {
        u32::from_le_bytes([self.0[1], self.0[2], self.0[3], self.0[4]]) as usize
    }

    /// Returns whether there are no elements.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the elements, in order.
    pub fn iter(self) -> Elements<'a> {
        Elements { element: self.element(), rest: &self.0[self.head_bytes()..] }
    }

    /// Returns the element with this subscript, or `None` beyond the bounds.
    pub fn get(self, subscript: i64) -> Option<Datum<'a>> {
        let at = usize::try_from(subscript - i64::from(self.lower_bound())).ok()?;
        self.iter().nth(at)
    }

    /// Returns the order of two arrays. They are compared by the first elements that differ (NULL is last),
    /// then by the number of elements, then by the first subscript. The first subscript 1 comes before all
    /// others, because the keys of arrays that begin at 1 end without it.
    pub fn order(self, other: ArrayRef<'_>) -> Ordering {
        let pairs = self.iter().zip(other.iter());
        let differing = pairs.map(|(a, b)| a.order(&b)).find(|order| order.is_ne());
        let bound = |array: ArrayRef<'_>| match array.lower_bound() {
            1 => None,
            bound => Some(bound),
        };
        let by_shape = || self.len().cmp(&other.len()).then_with(|| bound(self).cmp(&bound(other)));
        differing.unwrap_or_else(by_shape)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Datum<'a>;

    fn next(&mut self) -> Option<Datum<'a>> {
        let (value, rest) = split(self.rest)?;
        self.rest = rest;
        Some(match value {
            None => Datum::Null,
            Some(bytes) if self.element.fixed_width_bytes().is_some() => fixed(self.element, bytes),
            Some(bytes) => variable(self.element, bytes),
        })
    }
}

/// Returns the first element (inner `None` for NULL) and the bytes after it. Returns `None` if the bytes end
/// too early.
fn split(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    match u32::from_le_bytes(*length) {
        NULL => Some((None, rest)),
        length => rest.split_at_checked(length as usize).map(|(value, rest)| (Some(value), rest)),
    }
}

fn is_sound(element: ColumnType, bytes: &[u8]) -> bool {
    match element {
        ColumnType::Numeric { .. } => NumericRef::from_bytes(bytes).is_some(),
        ColumnType::Bytea => true,
        _ => match element.fixed_width_bytes() {
            Some(width) => bytes.len() == width,
            None => std::str::from_utf8(bytes).is_ok(),
        },
    }
}

/// The types of elements, by their code.
static ELEMENTS: [ColumnType; 17] = [
    ColumnType::Bool,
    ColumnType::Int2,
    ColumnType::Int4,
    ColumnType::Int8,
    ColumnType::Float4,
    ColumnType::Float8,
    ColumnType::Numeric { precision: None },
    ColumnType::Char(1),
    ColumnType::Varchar(None),
    ColumnType::Text,
    ColumnType::Bytea,
    ColumnType::Date,
    ColumnType::Timestamp,
    ColumnType::TimestampTz,
    ColumnType::Time,
    ColumnType::Interval,
    ColumnType::Uuid,
];

/// Types that are stored as one of `ELEMENTS` within an array, and that clients see as another type.
static HELD_AS_ANOTHER: [ColumnType; 2] = [ColumnType::Json, ColumnType::Oid];

impl ColumnType {
    /// Returns the type of arrays of this one, without its modifier, or `None` for arrays.
    pub fn array(self) -> Option<ColumnType> {
        let same = |e: &&ColumnType| std::mem::discriminant(*e) == std::mem::discriminant(&self);
        let plain = match self {
            ColumnType::Rounded(moment, _) => return moment.unrounded().array(),
            _ => ELEMENTS.iter().chain(&HELD_AS_ANOTHER).find(same)?,
        };
        Some(ColumnType::Array(plain))
    }

    /// Returns the type of arrays of this one with its modifier, such as `varchar(10)[]`, or `None` for
    /// arrays.
    pub fn array_of_these(self) -> Option<ColumnType> {
        let ColumnType::Array(plain) = self.array()? else { return None };
        if *plain == self {
            return Some(ColumnType::Array(plain));
        }
        let mut known = MODIFIED.lock();
        if let Some(element) = known.iter().find(|element| ***element == self) {
            return Some(ColumnType::Array(element));
        }
        let element: &'static ColumnType = Box::leak(Box::new(self));
        known.push(element);
        Some(ColumnType::Array(element))
    }
}

/// Types of elements with modifiers that a column has or had. They are never freed, because a type is copied
/// freely, and there are only as many as definitions name.
static MODIFIED: Mutex<Vec<&'static ColumnType>> = Mutex::new(Vec::new());

/// Returns whether an array may be in a column of arrays of this type. A vector may not.
pub(crate) fn is_of(array: ArrayRef<'_>, element: ColumnType) -> bool {
    array.0[0] & !BOUNDED == element_code(element)
}

fn element_of(code: u8) -> Option<ColumnType> {
    ELEMENTS.get(usize::from(code & !(VECTOR | BOUNDED))).copied()
}

fn element_code(element: ColumnType) -> u8 {
    let element = match element {
        ColumnType::Rounded(moment, _) => moment.unrounded(),
        other => other,
    };
    let same = |e: &ColumnType| std::mem::discriminant(e) == std::mem::discriminant(&element);
    // Within an array, json is stored as text, and oid as bigint.
    let other = if element == ColumnType::Oid { ColumnType::Int8 } else { ColumnType::Text };
    let other = ELEMENTS.iter().position(|e| *e == other);
    ELEMENTS.iter().position(same).or(other).map_or(0, |code| code as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Value;

    fn array(values: &[Value]) -> Array {
        let mut array = Array::new(ColumnType::Int4);
        values.iter().for_each(|value| array.push(value.as_datum()));
        array
    }

    #[test]
    fn elements_come_back_and_damage_is_noticed() {
        let made = array(&[Value::Int4(7), Value::Null, Value::Int4(-1)]);
        let bytes = made.as_ref().as_bytes();
        assert_eq!(bytes[..10], [2, 3, 0, 0, 0, 4, 0, 0, 0, 7]);
        let back = ArrayRef::from_bytes(bytes).unwrap();
        let shown: Vec<String> = back.iter().map(|datum| format!("{datum:?}")).collect();
        assert_eq!(shown, ["Int4(7)", "Null", "Int4(-1)"]);
        assert!(
            matches!(back.get(3), Some(Datum::Int4(-1))) && back.get(0).is_none() && back.get(4).is_none()
        );
        for cut in 0..bytes.len() {
            assert!(ArrayRef::from_bytes(&bytes[..cut]).is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn a_first_subscript_is_kept_and_damage_of_it_is_noticed() {
        let plain = array(&[Value::Int4(7), Value::Null]);
        let moved = plain.clone().starting_at(-3);
        let bytes = moved.as_ref().as_bytes();
        assert_eq!(bytes[..14], [0x42, 2, 0, 0, 0, 0xFD, 0xFF, 0xFF, 0xFF, 4, 0, 0, 0, 7]);
        let back = ArrayRef::from_bytes(bytes).unwrap();
        assert_eq!((back.lower_bound(), back.len()), (-3, 2));
        assert!(matches!(back.get(-3), Some(Datum::Int4(7))) && back.get(1).is_none());
        for cut in 0..bytes.len() {
            assert!(ArrayRef::from_bytes(&bytes[..cut]).is_none(), "cut at {cut}");
        }
        for (place, byte) in [(0, 0x82 | BOUNDED), (8, 0x7F)] {
            let mut damaged = bytes.to_vec();
            damaged[place] = byte;
            damaged[5..8].fill(0xFF);
            assert!(ArrayRef::from_bytes(&damaged).is_none(), "{damaged:?}");
        }
        let mut one = bytes.to_vec();
        one[5..9].copy_from_slice(&1_i32.to_le_bytes());
        assert!(ArrayRef::from_bytes(&one).is_none(), "1 is not stored");
        assert_eq!(moved.starting_at(5).starting_at(1).as_ref().as_bytes(), plain.as_ref().as_bytes());
        assert_eq!(array(&[]).starting_at(5).as_ref().as_bytes(), array(&[]).as_ref().as_bytes());
    }

    #[test]
    fn a_vector_counts_from_zero() {
        let mut vector = Array::vector(ColumnType::Int2);
        vector.push(Datum::Int2(5));
        assert!(matches!(vector.as_ref().get(0), Some(Datum::Int2(5))));
        assert_eq!(vector.as_ref().element(), ColumnType::Int2);
    }

    #[test]
    fn every_type_that_elements_may_have_has_its_code() {
        for (code, element) in ELEMENTS.iter().enumerate() {
            assert_eq!(usize::from(element_code(*element)), code);
        }
        assert_eq!(Array::new(ColumnType::Varchar(Some(3))).as_ref().element(), ColumnType::Varchar(None));
        assert_eq!(Array::new(ColumnType::Json).as_ref().element(), ColumnType::Text);
    }

    #[test]
    fn the_first_difference_decides_then_the_length() {
        let order = |a: &[i32], b: &[i32]| {
            let made = |n: &[i32]| array(&n.iter().map(|n| Value::Int4(*n)).collect::<Vec<_>>());
            made(a).as_ref().order(made(b).as_ref())
        };
        assert_eq!(order(&[1, 9], &[2]), Ordering::Less);
        assert_eq!(order(&[1], &[1, 0]), Ordering::Less);
        assert_eq!(order(&[], &[]), Ordering::Equal);
    }
}
