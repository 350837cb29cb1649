//! Creates file systems on loop devices for an experiment, and removes them after it. This needs root.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use varve_bench::{BenchError, Result};

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// The file system of the experiment's directory.
    Here,
    /// ext4 on a loop device.
    Ext4,
    /// xfs on a loop device.
    Xfs,
}

/// mkfs.xfs refuses to make a smaller file system.
const BYTES_MIN: u64 = 512 << 20;

impl FileSystem {
    /// Returns the name of the kind in factors.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Here => "here",
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        }
    }

    fn mkfs(self) -> Option<(&'static str, [&'static str; 2])> {
        match self {
            FileSystem::Here => None,
            FileSystem::Ext4 => Some(("mkfs.ext4", ["-q", "-F"])),
            FileSystem::Xfs => Some(("mkfs.xfs", ["-q", "-f"])),
        }
    }
}

/// A mounted file system. When it is dropped, it is unmounted and its image is removed.
#[derive(Debug)]
pub struct Mounted {
    at: PathBuf,
    image: Option<PathBuf>,
}

impl Mounted {
    /// Makes a file system of this many bytes below a directory. Its image is sparse: it takes only the bytes
    /// that are written to it.
    pub fn make(kind: FileSystem, below: &Path, bytes: u64) -> Result<Self> {
        let at = below.join("mounted");
        std::fs::create_dir_all(&at)?;
        let Some((mkfs, options)) = kind.mkfs() else { return Ok(Self { at, image: None }) };
        let image = below.join("image");
        File::create(&image)?.set_len(bytes.max(BYTES_MIN))?;
        run(Command::new(mkfs).args(options).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).args([&image, &at]))?;
        Ok(Self { at, image: Some(image) })
    }

    /// Returns the directory on which the file system is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(image) = &self.image {
            if let Err(error) = run(Command::new("umount").arg(&self.at)) {
                eprintln!("{error}: unmount {} by hand", self.at.display());
                return;
            }
            let _ = std::fs::remove_file(image);
        }
        let _ = std::fs::remove_dir(&self.at);
    }
}

fn run(command: &mut Command) -> Result<()> {
    let what = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|error| BenchError::Arguments(format!("{what}: {error}")))?;
    if done.status.success() {
        return Ok(());
    }
    Err(BenchError::Arguments(format!("{what}: {}", String::from_utf8_lossy(&done.stderr).trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_run_is_named() {
        let missing = run(&mut Command::new("no-such-program")).expect_err("it is not there").to_string();
        assert!(missing.contains("no-such-program"), "{missing}");
        let refused = run(Command::new("mount").arg("--no-such-option"));
        assert!(refused.is_err_and(|error| error.to_string().starts_with("mount: ")));
    }

    #[test]
    fn the_one_that_is_there_needs_nothing() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let here = Mounted::make(FileSystem::Here, folder.path(), 1 << 20).expect("a directory");
        let path = here.path().to_owned();
        assert!(path.is_dir());
        drop(here);
        assert!(!path.exists());
    }
}
