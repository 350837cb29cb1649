//! A loop device: a block device whose blocks are in a file, the image.
//!
//! 1. The kernel detaches the device when its last user closes it. So even a process that is killed leaves no
//!    device behind, unless a file system is mounted on it.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use varve_bench::{BenchError, Result};

/// The Debian package that has `losetup`, `mount` and `umount`.
pub const PACKAGE: &str = "mount";
/// The unit in which the kernel counts the sectors of all block devices.
const SECTOR_BYTES: u64 = 512;
/// The place of the written sectors among the counters of a block device
/// (Documentation/admin-guide/iostats.rst of Linux).
const WRITTEN_SECTORS_AT: usize = 6;

/// An attached loop device.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    /// An open handle, which keeps the device attached.
    _open: File,
}

impl LoopDevice {
    /// Attaches a device to an image.
    pub fn attach(image: &Path) -> Result<Self> {
        let mut attach = Command::new("losetup");
        attach.args(["--find", "--show", "--direct-io=on"]).arg(image);
        let path = PathBuf::from(run(&mut attach, PACKAGE)?.trim());
        let open = File::open(&path);
        // The kernel delays this until nobody has the device open.
        run(Command::new("losetup").arg("--detach").arg(&path), PACKAGE)?;
        Ok(Self { _open: open?, path })
    }

    /// Returns the path of the device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes that were written to the device since it was attached.
    pub fn written_bytes(&self) -> Result<u64> {
        let name = self.path.file_name().unwrap_or_default();
        let counters = Path::new("/sys/block").join(name).join("stat");
        let text = std::fs::read_to_string(&counters)?;
        written_bytes_in(&text).ok_or_else(|| {
            BenchError::Wrong(format!("{}: there is no number of written sectors in it", counters.display()))
        })
    }
}

/// Returns the written bytes from the text with a block device's counters.
fn written_bytes_in(counters: &str) -> Option<u64> {
    let sectors: u64 = counters.split_whitespace().nth(WRITTEN_SECTORS_AT)?.parse().ok()?;
    Some(sectors * SECTOR_BYTES)
}

/// Runs a program, which a Debian package has. Returns its output, or an error that names the program and
/// says why it failed.
pub fn run(command: &mut Command, package: &str) -> Result<String> {
    let what = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => BenchError::Arguments(format!(
            "there is no program {what}: install Debian's package {package}, or run scripts/setup bench"
        )),
        _ => BenchError::Arguments(format!("{what}: {error}")),
    })?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    Err(BenchError::Arguments(format!("{what}: {}", String::from_utf8_lossy(&done.stderr).trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_run_is_named() {
        let missing = run(&mut Command::new("no-such-program"), "a-package");
        let missing = missing.expect_err("it is not there").to_string();
        assert!(missing.contains("no-such-program") && missing.contains("a-package"), "{missing}");
        let refused = run(Command::new("mount").arg("--no-such-option"), PACKAGE);
        assert!(refused.is_err_and(|error| error.to_string().starts_with("mount: ")));
    }

    #[test]
    fn written_sectors_are_the_seventh_counter() {
        let counters = "     129        1     4898       37       62     1204     9972      103        0\n";
        assert_eq!(written_bytes_in(counters), Some(9972 * 512));
        assert_eq!(written_bytes_in("1 2 3"), None);
        assert_eq!(written_bytes_in("1 2 3 4 5 6 x"), None);
    }
}
