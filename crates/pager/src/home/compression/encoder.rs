//! Makes the stored form of each page before a layout writes it: plain, or compressed as the page's owner
//! demands. The encoder also counts the pages and bytes.
//!
//! Invariants
//! 1. While no owner's pages are compressed, a put looks into one table, and counts nothing.
//!
//! This module does not know where pages are stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use varve_device::reached;

use crate::base::compression::Compression;
use crate::base::image::Image;
use crate::home::compression::by_owner::Compressions;
use crate::home::compression::stored_page::{Form, Stored, StoredLengths};
use crate::level::meter;

/// Makes the stored forms of the pages of a layout.
pub(crate) struct Forms {
    compressions: Arc<Compressions>,
    /// The lengths that a stored page may have.
    lengths: StoredLengths,
    /// Number of pages that were written in compressed form.
    compressed: AtomicU64,
    /// Number of pages that were read in compressed form.
    decompressed: AtomicU64,
    /// Bytes, without compression, of the written pages whose owner demands compression.
    plain_bytes: AtomicU64,
    /// Bytes of the same pages as written.
    stored_bytes: AtomicU64,
}

impl Forms {
    pub(crate) fn new(compressions: Arc<Compressions>, lengths: StoredLengths) -> Forms {
        let [compressed, decompressed, plain_bytes, stored_bytes] = [0; 4].map(AtomicU64::new);
        Forms { compressions, lengths, compressed, decompressed, plain_bytes, stored_bytes }
    }

    /// Returns the stored forms of pages.
    pub(crate) fn encode<'i>(&self, images: &[&'i Image]) -> Vec<Stored<'i>> {
        let table = self.compressions.table();
        if table.is_idle() {
            return images.iter().map(|image| Stored::plain(image)).collect();
        }
        images.iter().map(|image| self.encode_one(image, table.of(image.bytes()))).collect()
    }

    fn encode_one<'i>(&self, image: &'i Image, how: Compression) -> Stored<'i> {
        if how.is_none() {
            return Stored::plain(image);
        }
        let stored = Stored::of(image, how, self.lengths);
        if stored.is_compressed() {
            reached("home: page compressed");
            self.compressed.fetch_add(1, Relaxed);
        }
        let [plain, written] = [image.bytes(), stored.bytes()].map(|bytes| bytes.len() as u64);
        self.plain_bytes.fetch_add(plain, Relaxed);
        self.stored_bytes.fetch_add(written, Relaxed);
        self.compressions.wrote(image.bytes(), written);
        stored
    }

    /// Reports that a page with this stored form was read.
    #[inline]
    pub(crate) fn read(&self, page: &[u8], form: Form) {
        if let Form::Compressed(algorithm, bytes) = form {
            self.decompressed.fetch_add(1, Relaxed);
            self.compressions.was_stored(page, algorithm);
            meter::decompressed(bytes as u64);
        }
    }

    pub(crate) fn counters(&self) -> [(&'static str, u64); 4] {
        [
            ("pages_compressed", &self.compressed),
            ("pages_decompressed", &self.decompressed),
            ("plain_bytes", &self.plain_bytes),
            ("stored_bytes", &self.stored_bytes),
        ]
        .map(|(name, count)| (name, count.load(Relaxed)))
    }
}
