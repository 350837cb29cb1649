//! Experiments on file systems, which are made on loop devices and removed afterwards. This needs root.
//!
//! 1. Nothing is emulated. The loop device stores its blocks in an image file, so its speed is that of the
//!    drive below the image.
//! 2. The image is open without the page cache, if its file system allows this.

mod appends;
mod filled;
mod holes;
mod loop_device;
mod made;
mod tpcc;

pub use appends::filesystem_log;
pub use holes::filesystem_trim;
pub use made::{FileSystem, Mounted, make_all};
pub use tpcc::filesystem_tpcc;
