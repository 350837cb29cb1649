//! Page compression: the codecs, the stored form of a page, and the table that says how each owner's pages
//! are compressed. An owner is, for example, the tree of a table.
//!
//! This module does not know where in its file a page is stored.

pub(crate) mod by_owner;
pub(crate) mod codec;
pub(crate) mod encoder;
pub(crate) mod stored_page;
