//! A [`UnitRun`] is the place of a stored page in a packed file: a run of units of 512 bytes.
//!
//! Map pages and the map in memory store a place as a u64:
//!
//! | bits | what |
//! |---|---|
//! | 0..40 | address of the first unit |
//! | 40..48 | length in units, less one |
//! | 48..64 | 0 |
//!
//! The number 0 means that the page was never written.
//!
//! Invariants
//! 1. A unit is 512 bytes on every device, so that a file can be moved to a device with larger sectors.
//! 2. No place begins at unit 0, because unit 0 is in the file's header block.
//!
//! This module does not know extents, or which page is at a place.

use std::num::NonZeroU64;

/// The unit in which places are counted, in bytes.
pub(crate) const UNIT_BYTES: usize = 512;
/// Longest place, in units: a plain page of 64 KiB.
pub(crate) const PLACE_UNITS_MAX: u32 = 128;

const ADDRESS_BITS: u32 = 40;
const LENGTH_BITS: u32 = 8;

/// The place of a stored page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UnitRun(NonZeroU64);

impl UnitRun {
    /// Returns the place of `units` units that begins at unit `address`. `None` means that the place is
    /// impossible.
    pub(crate) fn new(address: u64, units: u32) -> Option<UnitRun> {
        let fits = address >> ADDRESS_BITS == 0 && (1..=PLACE_UNITS_MAX).contains(&units);
        let address = NonZeroU64::new(address).filter(|_| fits)?;
        Some(UnitRun(address | u64::from(units - 1) << ADDRESS_BITS))
    }

    /// Decodes a stored place. `Some(None)` means that the page was never written, `None` that the number is
    /// not valid.
    pub(crate) fn of_stored(raw: u64) -> Option<Option<UnitRun>> {
        if raw == 0 {
            return Some(None);
        }
        let units = (raw >> ADDRESS_BITS) + 1;
        UnitRun::new(raw & ((1 << ADDRESS_BITS) - 1), u32::try_from(units).ok()?).map(Some)
    }

    /// Returns the stored form. A page that was never written has 0.
    pub(crate) fn to_stored(place: Option<UnitRun>) -> u64 {
        place.map_or(0, |place| place.0.get())
    }

    /// Returns the first unit.
    pub(crate) fn address(self) -> u64 {
        self.0.get() & ((1 << ADDRESS_BITS) - 1)
    }

    /// Returns the length in units.
    pub(crate) fn units(self) -> u32 {
        (self.0.get() >> ADDRESS_BITS) as u32 + 1
    }

    /// Returns the unit after the last one.
    pub(crate) fn end(self) -> u64 {
        self.address() + u64::from(self.units())
    }

    /// Returns the offset of the first byte.
    pub(crate) fn offset_bytes(self) -> u64 {
        self.address() * UNIT_BYTES as u64
    }

    /// Returns the length in bytes.
    pub(crate) fn len_bytes(self) -> usize {
        self.units() as usize * UNIT_BYTES
    }
}

impl std::fmt::Debug for UnitRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}", self.address(), self.units())
    }
}

const _: () = assert!(PLACE_UNITS_MAX <= 1 << LENGTH_BITS);
const _: () = assert!(PLACE_UNITS_MAX as usize * UNIT_BYTES == crate::base::page::PAGE_SIZE_MAX_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_snapshot_of_places() {
        let place = UnitRun::new(0x12_3456, 5).unwrap();
        assert_eq!(UnitRun::to_stored(Some(place)), 0x0004_0000_0012_3456 & !(0xF << 48) | 4 << 40);
        assert_eq!(UnitRun::to_stored(Some(place)), 0x0000_0400_0012_3456);
        assert_eq!((place.offset_bytes(), place.len_bytes(), place.end()), (0x2468_AC00, 2560, 0x12_345B));
        assert_eq!(UnitRun::to_stored(None), 0);
    }

    #[test]
    fn places_come_back_and_nonsense_does_not() {
        for (address, units) in [(1, 1), (8, 128), ((1 << 40) - 1, 1), (77, 16)] {
            let place = UnitRun::new(address, units).unwrap();
            assert_eq!((place.address(), place.units()), (address, units));
            assert_eq!(UnitRun::of_stored(UnitRun::to_stored(Some(place))), Some(Some(place)));
        }
        assert_eq!(UnitRun::of_stored(0), Some(None));
        for nonsense in [1 << 48, 4 << 40, 200 << 40 | 8, u64::MAX] {
            assert_eq!(UnitRun::of_stored(nonsense), None, "{nonsense:#x}");
        }
        assert_eq!((UnitRun::new(0, 1), UnitRun::new(1 << 40, 1)), (None, None));
        assert_eq!((UnitRun::new(8, 0), UnitRun::new(8, 129)), (None, None));
    }
}
