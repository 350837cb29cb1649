//! Fuzzes pages of the rollback space (undo pages, segment headers, the directory), and undo records.
//!
//! The input of `undo_page` is a page and operations. An operation has its number (u8), the length of its
//! payload, and the payload. The input of `undo_record` is a record.

use varve_engine::fuzzing;
use varve_engine::redo::{EngineRedo, TREE_OPS_END};
use varve_pager::RedoOps;

use crate::input::Input;

const OPS: u8 = 9;

/// Checks that an operation fits its page or is refused, and that reading a page returns only bytes of the
/// page.
pub fn undo_page(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut page = input.page();
    read(&page);
    while !input.is_empty() {
        let op = TREE_OPS_END + input.byte() % OPS;
        // Both results are right, because the operation may not fit.
        let _ = EngineRedo.apply(op, &mut page, input.piece());
        read(&page);
    }
}

fn read(page: &[u8]) {
    let count = u32::from_le_bytes([page[40], page[41], page[42], page[43]]);
    let slots = [0, 1, 2, 3, 500, count.wrapping_sub(2), count.wrapping_sub(1), count, u32::MAX];
    std::hint::black_box(fuzzing::undo_page(page, &slots));
}

/// Checks that bytes are refused, or are the same after decoding and encoding.
pub fn undo_record(bytes: &[u8]) {
    std::hint::black_box(fuzzing::undo_record(bytes));
}
