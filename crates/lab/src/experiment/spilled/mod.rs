//! Experiments on the temporary space: joins of Do 2012 (chapter 2), and sorts and a hash join of Lee 2008
//! (section 6), with the crate `spill`.
//!
//! 1. Times of I/O are sums of the drive's modelled service times, so they do not depend on how busy the
//!    machine is. A request waits for the one before it, as with the synchronous I/O of Do.
//! 2. The time of a join is its I/O and then its processor time. Processors of today are faster than those of
//!    the publications. So the times of I/O are judged, and ratios of whole times are only shown.
//! 3. A join of Do is divided by a scale: inputs, buffers, and the access times of the drives. [`join`] says
//!    why ratios stay the same.
//!
//! This module does not know SQL. General queries sort and join with DataFusion.

mod bed;
mod buffer_claims;
mod hash;
mod join;
mod join_buffer;
mod join_pages;
mod join_rows;
mod judge;
mod sort;
mod sort_cluster;
mod sort_pattern;
mod traced;

pub use hash::hash_pattern;
pub use join_buffer::join_buffer;
pub use join_pages::{join_page_io, join_page_size};
pub use judge::{ClaimPlace, ranked, speed};
pub use sort_cluster::sort_cluster;
pub use sort_pattern::sort_pattern;
