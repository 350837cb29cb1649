//! An image of a page: a private copy that is ready to be written.
//!
//! This module does not know where the image is written.

use std::sync::Arc;

use varve_device::AlignedBuf;

use crate::base::ids::{Access, PageId};
use crate::base::lsn::Lsn;
use crate::base::page::{self, PageDamage};

/// A private copy of a page whose checksum is not computed yet. It is made under the page's shared latch.
pub(crate) struct UnsealedImage {
    id: PageId,
    access: Access,
    bytes: AlignedBuf,
}

impl UnsealedImage {
    /// Copies a page.
    pub(crate) fn copy(id: PageId, page: &[u8], access: Access) -> UnsealedImage {
        UnsealedImage { id, access, bytes: AlignedBuf::copy_of(page) }
    }

    /// Computes the checksum. This needs no latch.
    pub(crate) fn seal(self) -> Image {
        let UnsealedImage { id, access, mut bytes } = self;
        assert_eq!(page::page_identity(&bytes), id, "a page was written without its identity");
        page::seal(&mut bytes);
        Image { id, lsn: page::page_lsn(&bytes), access, bytes: Arc::new(bytes) }
    }
}

/// A private copy of a page that is ready to be written. It is made under the page's shared latch, and its
/// checksum is set. A clone shares the bytes.
#[derive(Clone)]
pub struct Image {
    id: PageId,
    lsn: Lsn,
    access: Access,
    bytes: Arc<AlignedBuf>,
}

impl Image {
    /// Copies and seals a page.
    pub fn of(id: PageId, page: &[u8], access: Access) -> Image {
        UnsealedImage::copy(id, page, access).seal()
    }

    /// Makes an image of bytes that have a checksum already, and verifies them.
    pub(crate) fn of_sealed(
        id: PageId,
        bytes: AlignedBuf,
        access: Access,
    ) -> std::result::Result<Image, PageDamage> {
        page::verify(&bytes, id)?;
        Ok(Image { id, lsn: page::page_lsn(&bytes), access, bytes: Arc::new(bytes) })
    }

    /// Returns the id of the page.
    pub fn id(&self) -> PageId {
        self.id
    }

    /// Returns the page LSN of the copy.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Returns how the page was used last.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns the sealed bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
