//! Access rights of new files and directories: only the owner can read or write them, whatever the umask is.
//!
//! Invariants
//! 1. A new file is never open to other users, not even for a moment.
//! 2. An older version of the program may have made a file that others can access. Such a file gets mode 0600
//!    when it is opened. A file with mode 0640 keeps it, because an administrator has chosen to let the group
//!    read the file.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// Permission bits that a file must not have: all bits of other users, and the bits of the group except
/// reading.
const CLOSED: u32 = 0o027;

/// Options for opening files: only the owner can access a new file.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Removes the permissions of other users from an open file. If the user does not own the file, this fails
/// without an error: the owner has chosen to give access to this user.
pub(crate) fn tighten(file: &File) {
    let Ok(metadata) = file.metadata() else { return };
    let mode = metadata.mode();
    if metadata.is_file() && (mode & CLOSED != 0 || mode & FILE_MODE != FILE_MODE) {
        let _not_the_owner = file.set_permissions(Permissions::from_mode(FILE_MODE));
    }
}

/// Creates a directory and its missing parents, durably. (Files are not durable if the name of their
/// directory is not.) Only the owner can use the directory.
pub fn create_directory(path: &Path) -> io::Result<()> {
    let is_missing = |above: &&Path| !above.as_os_str().is_empty() && !above.exists();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        std::fs::create_dir_all(above)?;
    }
    // Another process may make the directory at the same time. That is no error here.
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
    restrict_directory(path)?;
    for made in missing {
        let above = made.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(above).and_then(|above| above.sync_all())?;
    }
    Ok(())
}

/// Removes all permissions of a directory except the owner's.
pub fn restrict_directory(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE))
}

/// Returns the permission bits of a directory.
pub fn directory_mode(path: &Path) -> io::Result<u32> {
    Ok(std::fs::metadata(path)?.mode() & 0o7777)
}
