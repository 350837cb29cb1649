//! Integers at fixed offsets in pages and records.
//!
//! The integers are read and written as arrays. `copy_from_slice` of so few bytes can be a call of `memcpy`
//! in a build without link-time optimisation.
//!
//! This module does not know what the integers mean.

/// Returns the bytes at `offset` as an array. Panics if they are not all in `bytes`.
#[inline(always)]
pub fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    match bytes[offset..].first_chunk::<N>() {
        Some(found) => *found,
        None => beyond(bytes.len(), offset, N),
    }
}

/// Writes an array at `offset`. Panics if it does not fit.
#[inline(always)]
pub fn put_at<const N: usize>(bytes: &mut [u8], offset: usize, value: [u8; N]) {
    let len = bytes.len();
    match bytes[offset..].first_chunk_mut::<N>() {
        Some(place) => *place = value,
        None => beyond(len, offset, N),
    }
}

#[cold]
fn beyond(len: usize, offset: usize, wanted: usize) -> ! {
    panic!("{wanted} bytes at {offset} are beyond the end of {len} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_there() {
        let mut page = [0; 16];
        put_at(&mut page, 12, 7u32.to_le_bytes());
        assert_eq!(u32::from_le_bytes(bytes_at(&page, 12)), 7);
        assert_eq!(bytes_at::<2>(&page, 11), [0, 7]);
    }

    #[test]
    #[should_panic(expected = "4 bytes at 13 are beyond the end of 16 bytes")]
    fn nothing_is_read_beyond_the_end() {
        bytes_at::<4>(&[0; 16], 13);
    }

    #[test]
    #[should_panic(expected = "2 bytes at 15 are beyond the end of 16 bytes")]
    fn nothing_is_written_beyond_the_end() {
        put_at(&mut [0; 16], 15, [1, 2]);
    }
}
