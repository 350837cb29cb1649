//! The buffer pool.

use std::marker::PhantomData;
use std::ops::Deref;

use crate::ids::PageId;

macro_rules! guard {
    ($name:ident, $doc:literal) => {
        #[doc = $doc]
        pub struct $name<'p> {
            _pool: PhantomData<(&'p (), *const ())>,
        }
        impl $name<'_> {
            /// Which page.
            pub fn id(&self) -> PageId {
                unimplemented!()
            }
        }
        impl Deref for $name<'_> {
            type Target = [u8];
            fn deref(&self) -> &[u8] {
                unimplemented!()
            }
        }
    };
}
guard!(PageS, "A page under its shared latch.");
guard!(PageSx, "A page under its shared-exclusive latch: readers go on, other SX and X holders wait.");
guard!(PageX, "A page under its exclusive latch.");

impl<'p> PageSx<'p> {
    /// Waits for the readers to leave.
    pub fn upgrade(self) -> PageX<'p> {
        unimplemented!()
    }
}

impl PageX<'_> {
    /// The bytes, for redo and mini-transactions.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        unimplemented!()
    }
    /// Tells the levels that the page is about to change; before the record is appended.
    pub(crate) fn announce(&mut self) {
        unimplemented!()
    }
    /// Inside the append section (or redo): page LSN := end; if the frame was clean: ledger.first_change(id, start).
    #[expect(unused_variables, reason = "skeleton")]
    pub(crate) fn stamp(&mut self, at: &crate::log::Appended) {
        unimplemented!()
    }
}
