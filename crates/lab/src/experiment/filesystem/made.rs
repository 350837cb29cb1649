//! Makes file systems on loop devices for an experiment, and removes them after it. A loop device without a
//! file system can be made, too.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde::Serialize;
use varve_device::{BlockFile, Directory, FileDirectory, FileOptions, OpenHow, Space};

use super::super::lab::Lab;
use super::super::row::{Factors, Subject};
use super::loop_device::{LoopDevice, PACKAGE, run};
use varve_bench::{BenchError, Result};

/// The name of the factor whose values are the names of [`FileSystem`].
pub const FILE_SYSTEM: &str = "file system";
/// mkfs.xfs refuses to make a smaller file system.
const BYTES_MIN: u64 = 512 << 20;
/// The unit of the size of an image.
const BYTES_UNIT: u64 = 1 << 20;
/// The name of the link to a device without a file system.
const DEVICE: &str = "device";

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// The file system of the experiment's directory.
    Here,
    /// A loop device without a file system.
    Raw,
    /// ext4 on a loop device.
    Ext4,
    /// xfs on a loop device.
    Xfs,
    /// btrfs on a loop device.
    Btrfs,
}

/// A program that makes a file system, and the Debian package that has it.
struct Maker {
    program: &'static str,
    options: &'static [&'static str],
    package: &'static str,
}

impl FileSystem {
    /// Returns the name of the kind in factors.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Here => "here",
            FileSystem::Raw => "raw",
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
            FileSystem::Btrfs => "btrfs",
        }
    }

    fn maker(self) -> Option<Maker> {
        let maker = |program, options, package| Some(Maker { program, options, package });
        match self {
            FileSystem::Here | FileSystem::Raw => None,
            // Without these options, the kernel would go on writing tables of inodes for minutes.
            FileSystem::Ext4 => {
                maker("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"], "e2fsprogs")
            }
            FileSystem::Xfs => maker("mkfs.xfs", &["-q", "-f"], "xfsprogs"),
            FileSystem::Btrfs => maker("mkfs.btrfs", &["-q", "-f"], "btrfs-progs"),
        }
    }

    fn factors(self) -> Factors {
        Factors::from([(FILE_SYSTEM, self.name().into())])
    }
}

/// A file system that was made. When it is dropped, it is unmounted and its image is removed.
#[derive(Debug)]
pub struct Mounted {
    kind: FileSystem,
    at: PathBuf,
    made: Option<OnLoop>,
}

/// The loop device of a file system, and the file that has its blocks.
#[derive(Debug)]
struct OnLoop {
    image: PathBuf,
    device: LoopDevice,
}

impl Mounted {
    /// Makes a file system of this many bytes below a directory. Its image is sparse: it takes only the bytes
    /// that are written to it.
    pub fn make(kind: FileSystem, below: &Path, bytes: u64) -> Result<Self> {
        let (at, image) = (below.join("mounted"), below.join("image"));
        std::fs::create_dir_all(&at)?;
        if kind == FileSystem::Here {
            return Ok(Self { kind, at, made: None });
        }
        check_root()?;
        File::create(&image)?.set_len(bytes.max(BYTES_MIN).next_multiple_of(BYTES_UNIT))?;
        let device = LoopDevice::attach(&image).inspect_err(|_| drop(std::fs::remove_file(&image)))?;
        match kind.maker() {
            None => symlink(device.path(), at.join(DEVICE))?,
            Some(Maker { program, options, package }) => {
                let made = run(Command::new(program).args(options).arg(device.path()), package);
                let mut mount = Command::new("mount");
                mount.args(["-t", kind.name()]).arg(device.path()).arg(&at);
                let mounted = made.and_then(|_| run(&mut mount, PACKAGE));
                mounted.inspect_err(|_| drop(std::fs::remove_file(&image)))?;
            }
        }
        Ok(Self { kind, at, made: Some(OnLoop { image, device }) })
    }

    /// Returns the kind.
    pub fn kind(&self) -> FileSystem {
        self.kind
    }

    /// Returns the directory on which the file system is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Opens the directory through Varve's device layer.
    pub fn directory(&self) -> Result<Arc<FileDirectory>> {
        Ok(FileDirectory::open_or_create(&self.at, FileOptions::default()).map_err(std::io::Error::other)?)
    }

    /// Makes a new file in the directory. Without a file system, it is the device itself.
    pub fn create(&self, directory: &FileDirectory, name: &str) -> Result<Arc<dyn BlockFile>> {
        let opened = match self.kind {
            FileSystem::Raw => directory.open(DEVICE, OpenHow::existing(Space::Data)),
            _ => directory.open(name, OpenHow::new_file(Space::Data)),
        };
        Ok(opened.map_err(std::io::Error::other)?)
    }

    /// Writes everything to the device that the file system still has in memory.
    pub fn sync(&self) -> Result<()> {
        let at = match &self.made {
            Some(made) if self.kind == FileSystem::Raw => File::open(made.device.path())?,
            _ => File::open(&self.at)?,
        };
        match self.kind {
            FileSystem::Raw => at.sync_all()?,
            _ => rustix::fs::syncfs(&at).map_err(std::io::Error::from)?,
        }
        Ok(())
    }

    /// Returns the bytes that were written to the loop device, or `None` if there is no loop device.
    pub fn written_bytes(&self) -> Result<Option<u64>> {
        self.made.as_ref().map(|made| made.device.written_bytes()).transpose()
    }

    /// Returns a description: the program that made the file system, the mount, and where the image is.
    fn describe(&self) -> String {
        let maker = self.kind.maker();
        let maker = maker.map(|Maker { program, options, .. }| format!("{program} {}", options.join(" ")));
        let mount = mount_of(&self.at).filter(|_| self.kind != FileSystem::Raw);
        let image = self.made.as_ref().and_then(|made| mount_of(made.image.parent()?));
        let image = image.map(|image| format!("image in {image}"));
        [maker, mount, image].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// Fails if this process may not make loop devices.
fn check_root() -> Result<()> {
    if std::fs::metadata("/proc/self")?.uid() == 0 {
        return Ok(());
    }
    Err(BenchError::Arguments(
        "only root can make and mount loop devices: run the experiment as root".to_owned(),
    ))
}

/// Returns the type, the device and the options of the file system that a path is on.
fn mount_of(path: &Path) -> Option<String> {
    let path = std::fs::canonicalize(path).ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let words = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let [device, _, kind, options] = words
        .filter_map(|words| <[&str; 4]>::try_from(words.get(..4)?).ok())
        .filter(|[_, at, ..]| path.starts_with(at))
        .max_by_key(|[_, at, ..]| at.len())?;
    Some(format!("{kind} on {device} ({options})"))
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(OnLoop { image, .. }) = &self.made {
            if self.kind != FileSystem::Raw
                && let Err(error) = run(Command::new("umount").arg(&self.at), PACKAGE)
            {
                eprintln!("{error}: unmount {} by hand", self.at.display());
                return;
            }
            let _ = std::fs::remove_file(image);
        }
        let _ = std::fs::remove_dir_all(&self.at);
    }
}

/// The row of a file system that was made, or of one that can't be made here.
#[derive(Debug, Serialize)]
struct FileSystemRow {
    row: &'static str,
    experiment: &'static str,
    figure: &'static str,
    factors: Factors,
    kernel: String,
    /// How the file system was made and mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<String>,
    /// Why there is none. All rows of measurements on it are missing then.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
}

/// Makes all of these file systems that the user asked for, each in a directory of its own, and writes a row
/// for each. A file system that can't be made is left out. If none can be made, the result is the file system
/// of the directory.
pub fn make_all(lab: &mut Lab<'_>, kinds: &[FileSystem], below: &Path, bytes: u64) -> Result<Vec<Mounted>> {
    let wanted: Vec<FileSystem> = kinds.iter().filter(|kind| lab.wants(&kind.factors())).copied().collect();
    let mut all = Vec::new();
    for kind in wanted {
        let place = below.join(kind.name());
        match Mounted::make(kind, &place, bytes) {
            Ok(mounted) => {
                write_row(lab, kind, Ok(&mounted))?;
                all.push(mounted);
            }
            Err(error) => {
                lab.say(&format!("no {} on a loop device here: {error}", kind.name()))?;
                write_row(lab, kind, Err(&error))?;
            }
        }
    }
    if all.is_empty() {
        lab.say("the file system of the directory is measured")?;
        let here = Mounted::make(FileSystem::Here, &below.join(FileSystem::Here.name()), bytes)?;
        write_row(lab, FileSystem::Here, Ok(&here))?;
        all.push(here);
    }
    Ok(all)
}

fn write_row(
    lab: &mut Lab<'_>,
    kind: FileSystem,
    made: std::result::Result<&Mounted, &BenchError>,
) -> Result<()> {
    let Subject { experiment, figure } = lab.subject();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let (made, missing) = match made {
        Ok(mounted) => (Some(mounted.describe()), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let factors = kind.factors();
    lab.write_row(&FileSystemRow { row: "file-system", experiment, figure, factors, kernel, made, missing })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_is_there_needs_nothing() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let here = Mounted::make(FileSystem::Here, folder.path(), 1 << 20).expect("a directory");
        let path = here.path().to_owned();
        assert!(path.is_dir());
        assert_eq!(here.written_bytes().expect("no device"), None);
        drop(here);
        assert!(!path.exists());
    }

    /// Without root or without loop devices there is nothing to test.
    #[test]
    fn a_loop_device_counts_what_is_written_and_goes_away() {
        for kind in [FileSystem::Raw, FileSystem::Ext4] {
            let folder = tempfile::tempdir().expect("a temporary directory");
            let mounted = match Mounted::make(kind, folder.path(), 0) {
                Ok(mounted) => mounted,
                Err(error) => return eprintln!("not tested: {error}"),
            };
            let device = mounted.made.as_ref().expect("a loop device").device.path().to_owned();
            let before = mounted.written_bytes().expect("counters").expect("a device");
            let directory = mounted.directory().expect("a directory");
            let file = mounted.create(&directory, "file").expect("a file");
            let bytes = varve_device::AlignedBuf::new(1 << 20);
            let written =
                file.write_at(0, &bytes, varve_device::Purpose::DataPage, varve_device::Durability::Later);
            written.expect("written");
            mounted.sync().expect("synced");
            let written = mounted.written_bytes().expect("counters").expect("a device") - before;
            assert!((1 << 20..2 << 20).contains(&written), "{}: {written} bytes", kind.name());
            drop((file, directory, mounted));
            assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0, "nothing is left");
            let text = run(Command::new("losetup").arg("--all"), PACKAGE).expect("a list");
            let is_left = |line: &str| line.contains(&folder.path().display().to_string());
            assert!(!text.lines().any(is_left), "{} of {} is left: {text}", device.display(), kind.name());
        }
    }
}
