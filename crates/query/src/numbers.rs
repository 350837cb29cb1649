//! Numeric columns as machine words, for fast arithmetic. A numeric value has an integer (its digits without
//! the point) and a scale. If the integer fits into 64 bits, the whole value is stored inside its Arrow view.
//!
//! Invariants
//! 1. `view` and `small` store a numeric value in the engine's format (`engine/src/numeric.rs`), inside an
//!    Arrow view.
//! 2. `NumericBuilder` makes the arrays that Arrow's builder would make from the same bytes.

use std::sync::Arc;

use datafusion::arrow::array::builder::{NullBufferBuilder, make_view};
use datafusion::arrow::array::{Array, ArrayRef, BinaryViewArray};
use datafusion::arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use datafusion::common::Result;
use varve_engine::LeafColumn;

/// Returns the unscaled value and the scale in a view. Returns `None` for NaN and for values that need more
/// than 64 bits.
#[inline]
pub fn small(view: u128) -> Option<(i64, u16)> {
    let (bytes, scale) = (view as u32, (view >> 32) as u16);
    if !(2..=10).contains(&bytes) || scale > i16::MAX as u16 {
        return None;
    }
    let unused = 64 - (bytes - 2) * 8;
    let raw = (view >> 48) as i64;
    Some((raw.checked_shl(unused).unwrap_or(0) >> (unused & 63), scale))
}

/// Returns the view of a value.
#[inline]
pub fn view(unscaled: i64, scale: u16) -> u128 {
    let bits = 64 - (unscaled ^ (unscaled >> 63)).leading_zeros();
    let bytes = if unscaled == 0 { 0 } else { bits / 8 + 1 };
    let raw = unscaled as u64 & u64::MAX.checked_shr(64 - bytes * 8).unwrap_or(0);
    u128::from(bytes + 2) | u128::from(scale) << 32 | u128::from(raw) << 48
}

/// A column of numeric values that is being built, as views of their stored bytes.
pub struct NumericBuilder {
    views: Vec<u128>,
    nulls: NullBufferBuilder,
    /// The values that do not fit into their views.
    long: Vec<u8>,
    /// The full buffers of earlier values that do not fit into their views.
    full: Vec<Buffer>,
}

/// The bytes of a value that fits into its view.
const INLINE_BYTES: usize = 12;
/// The bytes of long values that lie together.
const BLOCK_BYTES: usize = 1 << 30;

impl Default for NumericBuilder {
    fn default() -> Self {
        let nulls = NullBufferBuilder::new(0);
        NumericBuilder { views: Vec::new(), nulls, long: Vec::new(), full: Vec::new() }
    }
}

impl NumericBuilder {
    /// Appends a value, which has these stored bytes.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.push_view(bytes);
        self.nulls.append_non_null();
    }

    /// Appends a NULL.
    pub fn push_null(&mut self) {
        self.views.push(0);
        self.nulls.append_null();
    }

    /// Appends the values of rows of a leaf, which are named by their numbers.
    pub fn push_column(&mut self, column: &LeafColumn<'_>, numbers: &[u16]) {
        let page = column.minipage();
        self.views.reserve(numbers.len());
        if !page.has_null(numbers) {
            for number in numbers.iter().map(|number| usize::from(*number)) {
                match page.short(number) {
                    Some(view) => self.views.push(view),
                    None => self.push_view(page.bytes(number)),
                }
            }
            self.nulls.append_n_non_nulls(numbers.len());
            return;
        }
        for number in numbers.iter().map(|number| usize::from(*number)) {
            if page.is_null(number) { self.push_null() } else { self.push(page.bytes(number)) }
        }
    }

    #[inline]
    fn push_view(&mut self, bytes: &[u8]) {
        let view = if bytes.len() <= INLINE_BYTES { make_view(bytes, 0, 0) } else { self.long_view(bytes) };
        self.views.push(view);
    }

    #[cold]
    fn long_view(&mut self, bytes: &[u8]) -> u128 {
        if !self.long.is_empty() && self.long.len() + bytes.len() > BLOCK_BYTES {
            self.full.push(Buffer::from_vec(std::mem::take(&mut self.long)));
        }
        let offset = self.long.len() as u32;
        self.long.extend_from_slice(bytes);
        make_view(bytes, self.full.len() as u32, offset)
    }

    /// Returns the array. The next one begins without values.
    pub fn finish(&mut self) -> ArrayRef {
        let NumericBuilder { views, mut nulls, long, mut full } = std::mem::take(self);
        if !long.is_empty() {
            full.push(Buffer::from_vec(long));
        }
        Arc::new(BinaryViewArray::new(views.into(), full, nulls.finish()))
    }
}

/// The number of digits after the decimal point, for the values of a column.
#[derive(Debug, Clone)]
pub enum Scale {
    /// All values have this scale.
    Same(u16),
    /// Each value has its own scale.
    Each(Arc<[u16]>),
}

/// A column of numeric values in machine words. The value of a NULL is arbitrary.
#[derive(Debug, Clone)]
pub struct Numbers {
    /// The unscaled values.
    pub values: ScalarBuffer<i64>,
    /// The scales of the values.
    pub scale: Scale,
    /// Marks the values that are NULL.
    pub nulls: Option<NullBuffer>,
}

impl Numbers {
    /// Reads the values of an array. Returns `None` if a value does not fit into 64 bits.
    pub fn of(array: &BinaryViewArray) -> Option<Numbers> {
        let nulls = array.nulls().cloned();
        let is_null = |n: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(n));
        let mut values = Vec::with_capacity(array.len());
        let mut scales: Vec<u16> = Vec::new();
        let mut same: Option<u16> = None;
        for (n, view) in array.views().iter().enumerate() {
            let (value, scale) = match small(*view) {
                _ if is_null(n) => (0, same.unwrap_or(0)),
                found => found?,
            };
            let first = *same.get_or_insert(scale);
            if scales.is_empty() && scale != first {
                scales = vec![first; n];
            }
            if !scales.is_empty() {
                scales.push(scale);
            }
            values.push(value);
        }
        let scale = match scales.is_empty() {
            true => Scale::Same(same.unwrap_or(0)),
            false => Scale::Each(scales.into()),
        };
        Some(Numbers { values: values.into(), scale, nulls })
    }

    /// Returns the array of these values.
    pub fn array(&self) -> Result<ArrayRef> {
        let views: Vec<u128> = match &self.scale {
            Scale::Same(scale) => self.values.iter().map(|v| view(*v, *scale)).collect(),
            Scale::Each(scales) => self.values.iter().zip(scales.iter()).map(|(v, s)| view(*v, *s)).collect(),
        };
        Ok(Arc::new(BinaryViewArray::try_new(views.into(), Vec::new(), self.nulls.clone())?))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::BinaryViewBuilder;
    use varve_engine::Numeric;

    use super::{Numbers, Scale, small, view};

    #[test]
    fn views_hold_the_stored_form() {
        let values = [0, 1, -1, 127, 128, -128, -129, 32_767, 1 << 40, -(1 << 55), i64::MAX, i64::MIN];
        for (value, scale) in values.into_iter().flat_map(|v| [(v, 0), (v, 2), (v, 16_383)]) {
            let mut builder = BinaryViewBuilder::new();
            builder.append_value(Numeric::from_unscaled(value, scale).as_ref().as_bytes());
            let array = builder.finish();
            assert_eq!(array.views()[0], view(value, scale), "{value} {scale}");
            assert_eq!(small(array.views()[0]), Some((value, scale)));
        }
    }

    #[test]
    fn scales_are_kept_and_what_is_large_is_left_out() {
        let array = |texts: &[&str]| {
            let mut builder = BinaryViewBuilder::new();
            texts.iter().for_each(|t| match t.parse::<Numeric>() {
                Ok(n) => builder.append_value(n.as_ref().as_bytes()),
                Err(_) => builder.append_null(),
            });
            builder.finish()
        };
        let same = Numbers::of(&array(&["1.50", "null", "-0.07"])).unwrap();
        assert!(matches!(same.scale, Scale::Same(2)));
        assert_eq!(same.values[..], [150, 0, -7]);
        let mixed = Numbers::of(&array(&["1", "2", "1.50", "0"])).unwrap();
        assert!(matches!(&mixed.scale, Scale::Each(scales) if scales[..] == [0, 0, 2, 0]));
        assert_eq!(mixed.values[..], [1, 2, 150, 0]);
        assert!(Numbers::of(&array(&["1", "NaN"])).is_none());
        assert!(Numbers::of(&array(&["123456789012345678901234567890"])).is_none());
    }
}
