//! Errors that refuse a configuration, with the reason.
//!
//! This module does not know which settings there are.

use varve_device::Directory;

use crate::base::error::{PagerError, Result};

/// Returns an error with the text `what` if `holds` is false.
pub(crate) fn require(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(PagerError::Incompatible { what: what() }) }
}

/// Formats a size for messages, in the largest unit that gives a whole number or a number of three digits.
pub(crate) fn shown(bytes: u64) -> String {
    let units = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, factor)| bytes >= *factor) {
        None => format!("{bytes} bytes"),
        Some((unit, factor)) if bytes.is_multiple_of(*factor) || bytes / factor > 99 => {
            format!("{} {unit}", bytes / factor)
        }
        Some((unit, factor)) => format!("{:.1} {unit}", bytes as f64 / *factor as f64),
    }
}

/// Returns the message about a file that needs more space than its device has.
pub(crate) fn beyond_device(setting: &str, bytes: u64, directory: &dyn Directory) -> String {
    let (bytes, location) = (shown(bytes), directory.location());
    let free =
        directory.free_bytes().map_or("no room for that".to_owned(), |free| format!("{} free", shown(free)));
    format!("{setting} = {bytes}, but {location} has {free}")
}
