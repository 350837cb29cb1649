//! Errors for a database that cannot be opened. Each message says what the user can do.

use std::path::PathBuf;

use varve_engine::Error;
use varve_pager::PagerError;

use crate::config::ConfigError;

/// The reason why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configuration is wrong.
    #[error("The configuration is wrong: {0}")]
    Config(#[from] ConfigError),
    /// The runner of general queries can't start.
    #[error("General queries can't be run: {0}.")]
    Queries(varve_sql::SqlError),
    /// The key or the profile of the smart device can't be used.
    #[error("The smart device can't be used: {0}. Correct the section [smart] of varve.toml.")]
    Smart(varve_smart::SmartError),
    /// A configuration file that the user named can't be read.
    #[error("Cannot read the configuration file {}: {error}.", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The directory can't be read or created.
    #[error("Cannot use the directory {}: {error}. Check the path and its permissions.", path.display())]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// A file has the name that was given for the directory.
    #[error("{} is a file. A database needs a directory: check the name.", path.display())]
    NotDirectory {
        /// The file.
        path: PathBuf,
    },
    /// The command only opens a database, and the directory has other files.
    #[error("There is no database in {}, but other files ({names}). Check the name of the directory.", path.display())]
    OtherFiles {
        /// The directory.
        path: PathBuf,
        /// A few of the files.
        names: String,
    },
    /// There is no database.
    #[error("There is no database in {}. `varve init {}` makes one.", path.display(), path.display())]
    NoDatabase {
        /// The directory.
        path: PathBuf,
    },
    /// The directory does not exist, and the command does not create one.
    #[error(
        "There is no directory {}, so no database in it. Check the name; `varve sql {} --create` makes a \
         new database there.",
        path.display(), path.display()
    )]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The directory already has a database.
    #[error(
        "There is a database in {} already; nothing was changed. Start it with `varve serve {}`, or \
         choose another directory.",
        path.display(), path.display()
    )]
    AlreadyDatabase {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has a database, and a measurement would drop its tables.
    #[error(
        "There is a database in {} already, and a measurement drops and makes tables: nothing was changed. Choose a new or an \
         empty directory, or say --no-load (bench run) or --reuse (the others) to measure tables that an earlier one left there.",
        path.display()
    )]
    NotForMeasuring {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has files of another program.
    #[error(
        "{} is not a Varve data directory: it holds other files ({names}), and Varve doesn't mix its \
         files with those of others. Choose an empty or a new directory.",
        path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// A few of the files.
        names: String,
    },
    /// The directory has files of a database, but not the control file that describes them.
    #[error(
        "{} holds files of a database, but its control file is missing. Restore the file \"control\" \
         from a backup of the whole directory; without it the other files can't be used. Nothing was changed.",
        path.display()
    )]
    ControlLost {
        /// The directory.
        path: PathBuf,
    },
    /// Other users may write in the directory.
    #[error(
        "The data directory \"{}\" has invalid permissions ({mode:04o}). Permissions should be u=rwx (0700) or u=rwx,g=rx (0750): others \
         could have changed what is in it. If nobody has, close it with `chmod 700 {}`.",
        path.display(), path.display()
    )]
    Permissions {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Another process uses the directory.
    #[error(
        "{} is in use by another process (number {pid}). One process at a time can open a database: \
         stop that one first, or connect to it.",
        path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process.
        pid: String,
    },
    /// The directory of a device does not exist.
    #[error(
        "The device \"{name}\" (space: {spaces}) has the directory {}, which doesn't exist. Mount it or \
         make it, or correct [devices.{name}] in varve.toml.",
        path.display()
    )]
    DeviceMissing {
        /// Name of the device.
        name: String,
        /// The spaces on it.
        spaces: String,
        /// Its directory.
        path: PathBuf,
    },
    /// The path of a device is not a directory.
    #[error(
        "The device \"{name}\" (space: {spaces}) has the path {}, which is no directory. Choose a \
         directory in [devices.{name}] of varve.toml.",
        path.display()
    )]
    DeviceNoDirectory {
        /// Name of the device.
        name: String,
        /// The spaces on it.
        spaces: String,
        /// Its path.
        path: PathBuf,
    },
    /// Two devices have the same directory.
    #[error(
        "The devices \"{other}\" and \"{name}\" have the same directory ({}). Put the spaces of both on \
         \"{other}\", or choose another directory for \"{name}\"; \"main\" is the data directory.",
        path.display()
    )]
    DeviceTwice {
        /// The second device.
        name: String,
        /// The first device.
        other: String,
        /// Their directory.
        path: PathBuf,
    },
    /// The directory is a link to nothing.
    #[error(
        "{} is a symbolic link to something that doesn't exist. Make or mount what it points to, or \
         remove the link.",
        path.display()
    )]
    Dangling {
        /// The link.
        path: PathBuf,
    },
    /// The directory of a device can't be written.
    #[error(
        "The device \"{name}\" (space: {spaces}) has the directory {}, which can't be written. Make it \
         writable for this user, mount it read-write, or choose another directory.",
        path.display()
    )]
    DeviceReadOnly {
        /// Name of the device.
        name: String,
        /// The spaces on it.
        spaces: String,
        /// Its directory.
        path: PathBuf,
    },
    /// A device failed.
    #[error("The device \"{name}\" (space: {spaces}) can't be used: {error}.")]
    Device {
        /// Name of the device.
        name: String,
        /// The spaces on it.
        spaces: String,
        /// The error of the device.
        error: varve_device::DeviceError,
    },
    /// The emulated profile doesn't exist.
    #[error("The profile of a device can't be used: {error}.")]
    Profile {
        /// The problem of the profile.
        error: varve_device::ProfileError,
    },
    /// The page size can't change.
    #[error(
        "{} was initialised with pages of {created}, the configuration asks for {wanted}. The page size \
         can't change later: remove page_size from section [pool], or initialise another directory.",
        path.display()
    )]
    PageSize {
        /// The directory.
        path: PathBuf,
        /// The value with which the database was created.
        created: String,
        /// The configured value.
        wanted: String,
    },
    /// The page layout can't change.
    #[error(
        "{} was initialised with layout \"{created}\", the configuration asks for \"{wanted}\". The layout can't \
         change later: remove layout from section [home], or initialise another directory.",
        path.display()
    )]
    Layout {
        /// The directory.
        path: PathBuf,
        /// The value with which the database was created.
        created: &'static str,
        /// The configured value.
        wanted: &'static str,
    },
    /// The path of `--region` is not a directory.
    #[error(
        "--region names {}, which is no directory. Name the directory in which the region's file, nvm.varve, lies.",
        path.display()
    )]
    NoRegionDirectory {
        /// The path.
        path: PathBuf,
    },
    /// The region is not in the configured directory, or no directory is configured.
    #[error(
        "Cannot open the database: {why}. Pass --region DIRECTORY if the region's file, nvm.varve, lies in one that the \
         configuration doesn't name: {command} --region DIRECTORY"
    )]
    RegionElsewhere {
        /// The reason why the region was not found.
        why: String,
        /// The command that drains the region.
        command: String,
    },
    /// The file with tables in persistent memory cannot be used.
    #[error("Cannot open the database: {0}.")]
    Tables(#[from] varve_memory::TablesFileError),
    /// The pool is larger than the memory.
    #[error(
        "The buffer pool is to have {pool}, but there are only {memory} of memory. Choose less with --pool \
         or with size in section [pool] of varve.toml; half of the memory is a good start."
    )]
    PoolTooLarge {
        /// The configured value.
        pool: String,
        /// The size of the memory.
        memory: String,
    },
    /// An error of the engine.
    #[error("Cannot open the database: {0}.")]
    Engine(#[from] Error),
    /// An error when an open database was closed.
    #[error(
        "Cannot end cleanly: {0}. Nothing that was committed is lost: what is missing the next start recovers from the log."
    )]
    Close(Error),
}

impl From<PagerError> for OpenError {
    fn from(error: PagerError) -> Self {
        OpenError::Engine(error.into())
    }
}
