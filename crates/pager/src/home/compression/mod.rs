//! Page compression: the codecs, the stored form of a page, and which owner's pages are compressed how.
//!
//! What it does not know: where a stored page lies in its file.

pub(crate) mod by_owner;
pub(crate) mod codec;
pub(crate) mod encoder;
pub(crate) mod stored_page;
