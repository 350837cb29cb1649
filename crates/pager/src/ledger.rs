//! The ledger of recovery LSNs. (log engineer)
use crate::ids::{PageId, PageRange};
use crate::lsn::Lsn;

/// {oldest, newest first change} of every page with changes that are not stable.
pub struct Ledger {}

impl Ledger {
    /// A page goes from clean to dirty; inside the append section (or redo).
    pub fn first_change(&self, _id: PageId, _start: Lsn) {
        unimplemented!()
    }
    /// The page is stable up to (excluding changes that start at or after) `image_lsn`.
    pub fn stable(&self, _id: PageId, _image_lsn: Lsn) {
        unimplemented!()
    }
    /// The pages were discarded.
    pub fn forget(&self, _ids: PageRange) {
        unimplemented!()
    }
    /// The only source of truncation.
    pub fn oldest(&self) -> Option<Lsn> {
        unimplemented!()
    }
    /// Up to `n` pages with the oldest recovery LSNs, oldest first.
    pub fn next_to_clean(&self, _n: usize, _out: &mut Vec<PageId>) {
        unimplemented!()
    }
}
