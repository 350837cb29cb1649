//! The identity of a file: its inode number and its time of creation. A copy of the file has another
//! identity. The identity is used only on file systems that keep both values as long as the file exists.
//!
//! Invariants
//! 1. A file keeps its identity after a reboot, another mount, or another device number.
//! 2. On other file systems a file has no identity, because its identity might change. With a changed
//!    identity, a start would be refused without a reason. This is worse than a copy that is not detected.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

use crate::sys;

/// The values that a file system keeps as long as a file exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeps {
    /// The number of an inode.
    Inode,
    /// The number of an inode, and the time at which the file was created.
    InodeAndBirth,
    /// No value that is known to be kept.
    Nothing,
}

/// Returns the kept values of a file system, which is identified by its number in `statfs`.
fn keeps(file_system: i64) -> Keeps {
    match file_system {
        // ext2 to ext4, xfs, btrfs, f2fs, tmpfs.
        0xEF53 | 0x5846_5342 | 0x9123_683E | 0xF2F5_2010 | 0x0102_1994 => Keeps::InodeAndBirth,
        // zfs, bcachefs, overlayfs, NFS.
        0x2FC1_2FC1 | 0xCA45_1A4E | 0x794C_7630 | 0x6969 => Keeps::Inode,
        _ => Keeps::Nothing,
    }
}

/// Returns a number that no copy of the file has, not 0. Returns `None` if the file system does not keep the
/// necessary values.
pub(crate) fn of(file: &File) -> io::Result<Option<u64>> {
    let keeps = keeps(sys::file_system(file.as_fd())?);
    if keeps == Keeps::Nothing {
        return Ok(None);
    }
    let metadata = file.metadata()?;
    let born = metadata.created().ok().filter(|_| keeps == Keeps::InodeAndBirth);
    let born_ns =
        born.and_then(|born| born.duration_since(UNIX_EPOCH).ok()).map_or(0, |born| born.as_nanos());
    Ok(Some(mix(metadata.ino(), born_ns as u64)))
}

/// Mixes two numbers into one (the last steps of SplitMix64).
fn mix(inode: u64, born_ns: u64) -> u64 {
    let mut z = inode.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ born_ns;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)).max(1)
}
