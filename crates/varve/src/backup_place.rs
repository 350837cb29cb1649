//! A directory with one backup: the file `backup.varve`, and `manifest.toml`, which says what the backup is.
//! The last line of the manifest is a comment with the CRC-32C of all bytes before it.
//!
//! Invariants
//! 1. The manifest is written last, and durably. So a directory without a manifest has no complete backup.
//! 2. A backup is only written into a directory that is missing, or empty, or has only the unfinished file of
//!    a backup that was interrupted. The directory is locked meanwhile.
//! 3. A backup that fails leaves none of its files. Only a process that is killed leaves an unfinished file.
//! 4. A manifest is used only if its checksum is right.
//! 5. Only the user of the process may read the files, because a backup has all data and the secrets of all
//!    roles.
//!
//! This module does not know the format of `backup.varve` (`varve_pager`).

use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use varve_device::DirLock;
use varve_pager::{
    BackupBase, BackupSource, BackupSummary, BackupVerifier, LogStart, LogState, Lsn, PagerError,
    verify_backup,
};

const DATA_FILE: &str = "backup.varve";
const DATA_NEW: &str = "backup.varve.new";
const MANIFEST_FILE: &str = "manifest.toml";
const MANIFEST_NEW: &str = "manifest.toml.new";
const LOCK_FILE: &str = "varve.lock";
/// The version of the manifest.
const FORMAT: i64 = 2;
const FILE_MODE: u32 = 0o600;

/// Why a backup cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The directory is not empty.
    #[error("{} is not empty (it holds {name}): a backup needs a directory of its own", .path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// One of its files.
        name: String,
    },
    /// The directory has no complete backup.
    #[error("{} has no complete backup: {why}", .path.display())]
    Incomplete {
        /// The directory.
        path: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// The backup is not what its manifest says.
    #[error("the backup in {} is damaged: {why}", .path.display())]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file could not be read or written.
    #[error("{}: {error}{}", .path.display(), advice(.error))]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The directory is in use.
    #[error(transparent)]
    Locked(#[from] varve_device::DeviceError),
    /// The bytes are no valid backup, or the database could not be copied.
    #[error(transparent)]
    Pager(#[from] PagerError),
}

type Result<T> = std::result::Result<T, BackupError>;

/// Returns what the user can do about an error of the system, for the end of a message.
fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            ". Free some space there, or choose another place, and run the command again"
        }
        ErrorKind::NotFound => ". Check the path, and whether the device is mounted",
        ErrorKind::PermissionDenied => ". Run the command as a user that may read and write there",
        ErrorKind::ReadOnlyFilesystem => ". Choose a place that can be written",
        _ => "",
    }
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> BackupError + '_ {
    move |error| BackupError::File { path: path.to_owned(), error }
}

fn create(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(FILE_MODE);
    options.open(path).map_err(file_error(path))
}

/// Makes renames and new files in a directory durable.
fn sync_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(file_error(path))
}

/// The files of a backup that is not complete. They are removed when this is dropped.
struct Unfinished {
    path: PathBuf,
    /// Whether the directory was made for this backup.
    is_made: bool,
    is_complete: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        for name in [DATA_NEW, DATA_FILE, MANIFEST_NEW, MANIFEST_FILE] {
            let _was_not_made = std::fs::remove_file(self.path.join(name));
        }
        if self.is_made {
            let _may_stay = std::fs::remove_file(self.path.join(LOCK_FILE));
            let _has_other_files = std::fs::remove_dir(&self.path);
        }
    }
}

/// A backup that is being written into a directory.
pub struct BackupWriter {
    unfinished: Unfinished,
    path: PathBuf,
    file: File,
    verifier: BackupVerifier,
    bytes: u64,
    checksum: u32,
    base: Option<PathBuf>,
    _lock: DirLock,
}

impl BackupWriter {
    /// Begins a backup in a directory. The directory is made if it is missing. `base` is the directory of the
    /// earlier backup, if this one is incremental.
    pub fn create(path: &Path, base: Option<&Path>) -> Result<BackupWriter> {
        let is_made = !path.exists();
        varve_device::create_directory(path).map_err(file_error(path))?;
        let names = std::fs::read_dir(path).map_err(file_error(path))?;
        for name in names {
            let name = name.map_err(file_error(path))?.file_name().to_string_lossy().into_owned();
            if ![DATA_NEW, MANIFEST_NEW, LOCK_FILE, "lost+found"].contains(&name.as_str()) {
                return Err(BackupError::NotEmpty { path: path.to_owned(), name });
            }
        }
        let lock = DirLock::take(path)?;
        let unfinished = Unfinished { path: path.to_owned(), is_made, is_complete: false };
        let base = base.map(|base| base.canonicalize().map_err(file_error(base))).transpose()?;
        let file = create(&path.join(DATA_NEW))?;
        let (verifier, path) = (BackupVerifier::default(), path.to_owned());
        Ok(BackupWriter { unfinished, path, file, verifier, bytes: 0, checksum: 0, base, _lock: lock })
    }

    /// Verifies the next bytes of the backup, and writes them.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.verifier.take(bytes)?;
        self.file.write_all(bytes).map_err(file_error(&self.path.join(DATA_NEW)))?;
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Returns the number of pages that are done, and the number of pages in use when the backup began.
    pub fn progress(&self) -> (u64, u64) {
        let (pages, same) = self.verifier.pages();
        (pages + same, self.verifier.start().map_or(0, |start| start.pages))
    }

    /// Returns the number of bytes that were written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the backup. It is complete, and durable, when this returns.
    pub fn finish(mut self) -> Result<BackupSummary> {
        let (new, data) = (self.path.join(DATA_NEW), self.path.join(DATA_FILE));
        let summary = self.verifier.finish()?;
        self.file.sync_all().map_err(file_error(&new))?;
        std::fs::rename(&new, &data).map_err(file_error(&new))?;
        sync_directory(&self.path)?;
        let manifest = Manifest {
            summary: summary.clone(),
            bytes: self.bytes,
            checksum: self.checksum,
            base: self.base.clone(),
        };
        let new = self.path.join(MANIFEST_NEW);
        let mut file = create(&new)?;
        let written = file.write_all(manifest.text().as_bytes()).and_then(|()| file.sync_all());
        written.map_err(file_error(&new))?;
        std::fs::rename(&new, self.path.join(MANIFEST_FILE)).map_err(file_error(&new))?;
        sync_directory(&self.path)?;
        self.unfinished.is_complete = true;
        Ok(summary)
    }
}

/// The words before the checksum of a manifest.
const CHECKSUM_WORDS: &str = "# CRC-32C of the text above: ";

/// Returns the text with its checksum as the last line.
fn sealed(text: String) -> String {
    let checksum = crc32c::crc32c(text.as_bytes());
    format!("{text}{CHECKSUM_WORDS}{checksum:08x}\n")
}

/// Returns whether the last line of a manifest has the checksum of the text before it.
fn is_sealed(text: &str) -> bool {
    text.rfind(CHECKSUM_WORDS).is_some_and(|at| sealed(text[..at].to_owned()) == text)
}

/// A tablespace in the manifest.
pub struct ListedTablespace {
    /// Its name.
    pub name: String,
    /// The location that it had in the database.
    pub location: String,
}

/// What is in the manifest when it is written.
struct Manifest {
    summary: BackupSummary,
    bytes: u64,
    checksum: u32,
    base: Option<PathBuf>,
}

impl Manifest {
    fn text(&self) -> String {
        let BackupSummary { start, end, .. } = &self.summary;
        let mut table = toml::Table::new();
        let mut put = |name: &str, value: toml::Value| drop(table.insert(name.to_owned(), value));
        let number = |value: u64| toml::Value::Integer(i64::try_from(value).unwrap_or(i64::MAX));
        let hex = |value: u64| toml::Value::String(format!("{value:016x}"));
        put("format", toml::Value::Integer(FORMAT));
        put("id", hex(start.backup));
        put("database", hex(start.database));
        put("start_lsn", start.start.to_string().into());
        put("end_lsn", end.end.to_string().into());
        put("newest_start", hex(start.newest.id));
        put("newest_start_lsn", start.newest.after.to_string().into());
        put("pages", number(end.pages));
        put("unchanged_pages", number(end.same));
        put("page_size", number(start.page_size.into()));
        put("layout", if start.is_packed { "packed" } else { "in-place" }.into());
        put("began_unix_seconds", number(start.time_us / 1_000_000));
        put("program", start.program.as_str().into());
        put("file", DATA_FILE.into());
        put("bytes", number(self.bytes));
        put("crc32c", toml::Value::String(format!("{:08x}", self.checksum)));
        if let (Some(base), Some(place)) = (start.base, &self.base) {
            put("base_id", hex(base.backup));
            put("base_directory", place.to_string_lossy().as_ref().into());
        }
        let tablespaces: Vec<toml::Value> = end
            .tablespaces()
            .map(|(name, location)| {
                let fields = [("name", name), ("location", location)];
                toml::Value::Table(
                    fields.map(|(key, value)| (key.to_owned(), value.into())).into_iter().collect(),
                )
            })
            .collect();
        if !tablespaces.is_empty() {
            put("tablespaces", tablespaces.into());
        }
        sealed(table.to_string())
    }
}

/// A complete backup in a directory.
pub struct StoredBackup {
    path: PathBuf,
    manifest: toml::Table,
}

impl StoredBackup {
    /// Reads the manifest of a backup.
    pub fn open(path: &Path) -> Result<StoredBackup> {
        let incomplete = |why| BackupError::Incomplete { path: path.to_owned(), why };
        let file = path.join(MANIFEST_FILE);
        if !file.exists() {
            let is_begun = path.join(DATA_NEW).exists() || path.join(DATA_FILE).exists();
            return Err(incomplete(if is_begun {
                "it was interrupted, or it is being written"
            } else {
                "there is no manifest.toml"
            }));
        }
        let text = std::fs::read_to_string(&file).map_err(file_error(&file))?;
        let manifest = text.parse::<toml::Table>().map_err(|error| BackupError::Damaged {
            path: path.to_owned(),
            why: format!("its manifest cannot be read: {}", error.message()),
        })?;
        let stored = StoredBackup { path: path.to_owned(), manifest };
        let is_whole = is_sealed(&text);
        match stored.manifest.get("format").and_then(toml::Value::as_integer) {
            Some(FORMAT) if is_whole => Ok(stored),
            Some(FORMAT) => Err(stored.damaged(format!("{MANIFEST_FILE} was changed: its checksum is wrong"))),
            Some(other) => Err(stored.damaged(format!(
                "its manifest has format {other}, and this program knows format {FORMAT}: use the program that made it"
            ))),
            None => Err(stored.damaged("its manifest does not name a format".into())),
        }
    }

    fn damaged(&self, why: String) -> BackupError {
        BackupError::Damaged { path: self.path.clone(), why }
    }

    fn text(&self, name: &str) -> Result<&str> {
        let found = self.manifest.get(name).and_then(toml::Value::as_str);
        found.ok_or_else(|| self.damaged(format!("its manifest has no \"{name}\"")))
    }

    fn hex(&self, name: &str) -> Result<u64> {
        let text = self.text(name)?;
        u64::from_str_radix(text, 16)
            .map_err(|_| self.damaged(format!("{name} {text} is no hexadecimal number")))
    }

    fn lsn(&self, name: &str) -> Result<Lsn> {
        let text = self.text(name)?;
        let parsed = Lsn::parse(text);
        parsed.ok_or_else(|| self.damaged(format!("{name} {text} is no LSN")))
    }

    /// Returns what a later incremental backup must know about this one.
    pub fn as_base(&self) -> Result<BackupBase> {
        let (backup, database) = (self.hex("id")?, self.hex("database")?);
        let newest = LogStart { id: self.hex("newest_start")?, after: self.lsn("newest_start_lsn")? };
        let state = LogState { newest, end: self.lsn("end_lsn")? };
        Ok(BackupBase { backup, database, start: self.lsn("start_lsn")?, state })
    }

    /// Returns the directory of the backup.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the tablespaces that the backup has.
    pub fn tablespaces(&self) -> Result<Vec<ListedTablespace>> {
        let listed = self.manifest.get("tablespaces").and_then(toml::Value::as_array);
        let of =
            |entry: &toml::Value, key: &str| entry.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        let each = listed.into_iter().flatten().map(|entry| {
            Some(ListedTablespace { name: of(entry, "name")?, location: of(entry, "location")? })
        });
        let all = each.collect::<Option<Vec<_>>>();
        all.ok_or_else(|| {
            self.damaged("its manifest has an entry of a tablespace without name or location".into())
        })
    }

    /// Returns the id of the backup.
    pub fn id(&self) -> Result<u64> {
        self.hex("id")
    }

    /// Returns whether the data and the rollback space were packed.
    pub fn is_packed(&self) -> Result<bool> {
        Ok(self.text("layout")? == "packed")
    }

    /// Returns the page size in bytes.
    pub fn page_size(&self) -> Result<u64> {
        let found = self.manifest.get("page_size").and_then(toml::Value::as_integer);
        let found = found.and_then(|size| u64::try_from(size).ok());
        found.ok_or_else(|| self.damaged("its manifest has no \"page_size\"".into()))
    }

    /// Returns the id and the directory of the earlier backup, if this one is incremental.
    pub fn base(&self) -> Result<Option<(u64, PathBuf)>> {
        if !self.manifest.contains_key("base_id") {
            return Ok(None);
        }
        Ok(Some((self.hex("base_id")?, self.text("base_directory")?.into())))
    }

    /// Reads the whole backup, and checks it against its checksums and its manifest.
    pub fn verify(&self) -> Result<BackupSummary> {
        let path = self.path.join(DATA_FILE);
        let mut file = Summed { inner: self.open_data()?, bytes: 0, checksum: 0 };
        let summary = verify_backup(&mut file).map_err(|error| match error {
            PagerError::Corrupt { what } | PagerError::Backup { what } => {
                self.damaged(format!("{}: {what}", path.display()))
            }
            PagerError::DamagedPage { id, damage } => self.damaged(format!("page {id}: {damage}")),
            other => other.into(),
        })?;
        let bytes = self.manifest.get("bytes").and_then(toml::Value::as_integer);
        let is_listed = bytes.and_then(|bytes| u64::try_from(bytes).ok()) == Some(file.bytes)
            && self.hex("crc32c")? == u64::from(file.checksum)
            && self.as_base()? == summary.as_base();
        if is_listed {
            return Ok(summary);
        }
        Err(self.damaged("its file is not the one that the manifest describes".into()))
    }

    fn open_data(&self) -> Result<BufReader<File>> {
        let path = self.path.join(DATA_FILE);
        File::open(&path).map(|file| BufReader::with_capacity(1 << 20, file)).map_err(file_error(&path))
    }
}

impl BackupSource for StoredBackup {
    fn name(&self) -> String {
        format!("the backup in {}", self.path.display())
    }

    fn open(&self) -> std::io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(BufReader::with_capacity(1 << 20, File::open(self.path.join(DATA_FILE))?)))
    }
}

/// Counts the bytes that are read, and computes their checksum.
struct Summed<R> {
    inner: R,
    bytes: u64,
    checksum: u32,
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(out)?;
        self.bytes += count as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, &out[..count]);
        Ok(count)
    }
}
