//! The check for copies of a running database. It decides whether these files are those of the server that
//! ran last, or a copy that was taken while the server ran.
//!
//! Files that change while they are copied are from different moments. So the log of such a copy may not fit
//! its pages, and no other check would find that.
//!
//! Invariants
//! 1. A start records the identity of its files (`Directory::identity`) in the control file, in the write
//!    that begins the log's new life. A copy has another identity. A clean shutdown removes the record, so a
//!    copy of a database that was shut down is valid.
//! 2. After a crash the files must have the recorded identity. A restart of the machine does not change an
//!    identity, so a crash is never taken for a copy. On a file system without stable identities, none is
//!    recorded.
//!
//! This module does not know what a copy lacks.

use varve_device::{Directory, reached};

use super::durable_spaces;
use crate::base::error::{PagerError, Result};
use crate::config::PagerConfig;
use crate::control::{CONTROL_FILE, State, Superblock};
use crate::home::files;

/// The warning about a copy that was accepted.
const ACCEPTED: &str =
    "a copy of a database that was not shut down was accepted: run `varve check`, and keep the original";

/// Returns the identities that are stored in the control file while a server uses these files. The identity
/// is zero if the file system gives a file no identity that its copy lacks.
pub(super) fn running(config: &PagerConfig) -> Result<[u64; 3]> {
    let [data, rollback] =
        durable_spaces(config).map(|(space, directory)| (directory, files::file_name(space)));
    let control = (&config.control, CONTROL_FILE.to_owned());
    let mut found = [0; 3];
    for (identity, (directory, name)) in found.iter_mut().zip([control, data, rollback]) {
        *identity = identity_of(&**directory, &name)?;
    }
    Ok(found)
}

/// Returns the identity of a file, or zero if it is missing. A later step reports a missing file.
fn identity_of(directory: &dyn Directory, name: &str) -> Result<u64> {
    if !directory.exists(name)? {
        return Ok(0);
    }
    Ok(directory.identity(name)?.unwrap_or(0))
}

/// Refuses a copy that was taken while a server ran. If the configuration accepts such a copy, returns the
/// warning.
pub(super) fn refuse_copy(config: &PagerConfig, stored: &Superblock) -> Result<Option<String>> {
    if stored.state == State::Clean || stored.running == [0; 3] {
        return Ok(None);
    }
    let now = running(config)?;
    let is_other = |at: &usize| stored.running[*at] != 0 && now[*at] != 0 && stored.running[*at] != now[*at];
    let Some(copied) = (0..now.len()).find(is_other) else { return Ok(None) };
    reached("open: a copy of a database that ran");
    if config.accepts_copy {
        return Ok(Some(ACCEPTED.to_owned()));
    }
    let [(data, in_data), (rollback, in_rollback)] = durable_spaces(config);
    let (name, place) = match copied {
        0 => (CONTROL_FILE.to_owned(), &config.control),
        1 => (files::file_name(data), in_data),
        _ => (files::file_name(rollback), in_rollback),
    };
    let what = format!(
        "{}/{name} is a copy that was taken while the database was running, or before it had recovered from a crash. Files that are copied \
         while they change are of many moments: rows may be missing or wrong, and nothing would say so. Restore a copy that was taken when \
         the database was shut down. If nothing ran while it was copied (as when the directory of a crashed server was moved), or if there is \
         no other copy, start once with --accept-copy, and run `varve check`",
        place.location()
    );
    Err(PagerError::Incompatible { what })
}
