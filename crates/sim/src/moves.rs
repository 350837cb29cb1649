//! The steps by which an administrator moves a database into persistent memory, out of it, or into another
//! region.
//!
//! ```text
//!   start as configured --refused: `varve nvm drain`--> open as it is found
//!          |                                                  |
//!          +------------- work, leave, shut down -------------+--> start as configured
//! ```
//!
//! Invariants
//! 1. A start may be refused only with a message that names the command to run. Any other refusal is a test
//!    failure.

use varve_device::Space;
use varve_pager::{NvmConfig, PagerConfig};

use crate::devices::Devices;

/// The command that a refusal names.
const DRAIN: &str = "varve nvm drain";

/// Opens a database with `config`. If the database must first leave its region, opens it with the
/// configuration that the existing database has.
pub(crate) fn open_or_drain<T>(
    config: PagerConfig,
    devices: &Devices,
    open: impl Fn(PagerConfig) -> Result<T, String>,
) -> Result<T, String> {
    match open(config.clone()) {
        Err(refusal) if refusal.contains(DRAIN) => {
            let found = as_found(config, devices).map_err(|why| format!("{refusal}; as found: {why}"))?;
            open(found).map_err(|why| format!("as found: {why}"))
        }
        opened => opened,
    }
}

/// Returns the configuration of the existing database.
fn as_found(mut config: PagerConfig, devices: &Devices) -> Result<PagerConfig, String> {
    let directory = devices.of(Space::Nvm);
    // The directory in which a region would be, so that an existing region is found.
    config.nvm.get_or_insert(NvmConfig { directory, size_bytes: 0, log_bytes: 0 });
    let found = config.as_found().map_err(|error| error.to_string())?;
    let found = found.ok_or("there is no database, and it was refused")?;
    found.needed().map_err(|error| error.to_string())?;
    Ok(config)
}
