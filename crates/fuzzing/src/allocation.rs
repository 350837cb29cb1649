//! Fuzzes the allocation of pages: the header page of a space, its descriptor page, and a sequence of
//! allocations and frees.
//!
//! The input has these fields, in this order. A run overwrites some bytes (see `input.rs`).
//!
//! | field | bytes |
//! |---|---|
//! | space: data or rollback | 1 |
//! | number of extents | 2 |
//! | runs over a valid header page | runs |
//! | runs over a valid descriptor page | runs |
//! | steps: kind, detail | 2 each |

use varve_pager::fuzzing::Allocation;
use varve_pager::{PageId, PageNo, SpaceId};

use crate::input::{Input, PAGE_BYTES};

const DATABASE: u64 = 7;
const EXTENTS_MAX: u32 = 200;

/// Checks that the pages are refused as damaged, or name the owner of every page, and that no page is
/// allocated twice.
pub fn allocation(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let space = if input.byte() & 1 == 0 { SpaceId::DATA } else { SpaceId::ROLLBACK };
    let extents = u32::from(input.u16()) % EXTENTS_MAX;
    let [mut header, mut descriptor] = Allocation::new_pages(space, PAGE_BYTES, DATABASE);
    input.runs(&mut header);
    input.runs(&mut descriptor);
    let Ok(mut allocation) = Allocation::read(space, [&header, &descriptor], DATABASE, extents) else {
        return;
    };
    let mut grown = extents;
    while !input.is_empty() {
        let (what, detail) = (input.byte(), u32::from(input.byte()));
        let owner = 16 + detail % 5;
        match what % 6 {
            0 => drop(allocation.take(owner, None)),
            1 => drop(allocation.take(owner, Some(PageId::new(space, PageNo(detail * 7))))),
            2 => drop(allocation.take_extent(owner)),
            3 => allocation.drop_owner(owner),
            4 if grown < EXTENTS_MAX => {
                grown += detail % 4;
                allocation.resize(detail % 4);
            }
            _ => allocation.check(),
        }
    }
}
