//! The configuration file `varve.toml`: its settings, their defaults, and the values that are refused.
//!
//! ```toml
#![doc = include_str!("settings.toml")]
//! ```
//!
//! Invariants
//! 1. Settings that `parse` accepts name only devices that exist.
//! 2. An empty file gives the defaults.
//!
//! This module does not know whether a path exists, or how much memory there is.

mod archive;
mod checkpoint;
pub(crate) mod declared;
pub(crate) mod fit;
mod flash;
mod foreign;
pub(crate) mod keys;
mod messages;
mod nvm;
mod packed;
mod reader;
mod smart;
mod suggest;
pub(crate) mod tell;
mod trace;
mod undo;
pub(crate) mod units;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use varve_device::Profile;
use varve_pager::{
    Algorithm, Compression, HomeLayout, Pacing, PackedConfig, ProtectionKind, Replacement, Trim,
};
use varve_server::Proof;
use varve_server::options::AUTHENTICATION_PATIENCE;
use varve_smart::{Address, DeviceProfile};

pub use archive::ArchiveSettings;
pub use checkpoint::CheckpointSettings;
pub use flash::FlashSection;
pub use messages::MessageSettings;
pub use nvm::{NvmSettings, RegionSettings, TablesSettings};
pub use packed::PackedSettings;
use reader::SectionReader;
pub use reader::{ConfigError, text_of};
pub use smart::SmartSettings;
pub use suggest::nearest;
pub use trace::TraceSettings;
pub use undo::UndoSettings;
pub use units::{parse_bytes, show_bytes};

/// The name of the configuration file within a data directory.
pub const FILE_NAME: &str = "varve.toml";
/// The name of the file that ALTER SYSTEM writes, within a data directory.
pub const AUTO_FILE_NAME: &str = "varve.auto.toml";
/// The name under which the next version of `varve.auto.toml` is written.
pub const AUTO_FILE_NEW: &str = "varve.auto.new";
/// The device that every configuration has: the data directory.
pub const MAIN_DEVICE: &str = "main";

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// The highest limit of sessions. Each session is a thread with a stack, and Linux allows a process 32,768
/// threads.
const CONNECTIONS_MAX: usize = 32_768;

/// The most pages of one doublewrite batch, and the most pages that threads with inline eviction write at the
/// same time.
const SLOTS_MAX: usize = 4096;

const NVM_FOR_NOTHING: &str = "holds nothing: give the log a part of it with log, or choose kind = \"nvm\" or \"nvm-dwb\" in [protection]";

const SIZE_FOR_NOTHING: &str = "has a size for the log and pages, and neither is there: remove size, give the log a part of it with log, or choose kind = \"nvm\" or \"nvm-dwb\" in [protection]";

/// The bytes that a drive may write in its life.
const ENDURANCE_BYTES: std::ops::RangeInclusive<u64> = MIB..=i64::MAX as u64;

/// The highest limit of entries of pg_stat_statements. An entry takes up to 8 KiB for its text.
const STATEMENTS_MAX: usize = 100_000;

/// The most threads of one query.
const THREADS_MAX: usize = 256;

/// The longest time limit of a login, in seconds, which is also PostgreSQL's limit.
const AUTHENTICATION_SECONDS_MAX: usize = 600;

/// All settings of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The devices by name, without the data directory itself.
    pub devices: BTreeMap<String, DeviceSettings>,
    /// The devices of the spaces.
    pub spaces: SpaceSettings,
    /// The buffer pool.
    pub pool: PoolSettings,
    /// General queries.
    pub query: QuerySettings,
    /// A smart device.
    pub smart: SmartSettings,
    /// Checkpoints.
    pub checkpoint: CheckpointSettings,
    /// The log archive.
    pub archive: ArchiveSettings,
    /// How long undo records are kept.
    pub undo: UndoSettings,
    /// The trace of requests to the devices.
    pub trace: TraceSettings,
    /// The log.
    pub log: LogSettings,
    /// Persistent memory, if there is any.
    pub nvm: Option<NvmSettings>,
    /// The flash cache, if there is one.
    pub flash: Option<FlashSection>,
    /// The layout of the data files. `None`: in place for a new directory, the existing one for an old
    /// directory.
    pub layout: Option<HomeLayout>,
    /// The space of packed files.
    pub packed: PackedSettings,
    /// How pages are compressed in the data files.
    pub compression: Compression,
    /// The space that is returned to the devices as holes in files.
    pub trim: Trim,
    /// Protection against torn pages.
    pub protection: ProtectionKind,
    /// The server.
    pub server: ServerSettings,
    /// The address of the metrics and of the live page; `None` means that there is no such endpoint.
    pub metrics_listen: Option<SocketAddr>,
    /// The most entries of pg_stat_statements, 0 for none. `None`: some if there is the endpoint of metrics.
    pub statements_max: Option<usize>,
    /// The bytes that the drive of the data directory may write in its life, if they are known.
    pub main_endurance_bytes: Option<u64>,
    /// Whether the start opens a copy of a data directory that was taken while the database ran. Otherwise
    /// the start refuses such a copy. This setting is not in the file, because it applies to one start.
    pub accepts_copy: bool,
}

/// A device: a directory and how it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSettings {
    /// The directory.
    pub path: PathBuf,
    /// The emulated profile, if any.
    pub profile: Option<String>,
    /// The capacity of the emulated device in bytes; `None` means no limit.
    pub capacity_bytes: Option<u64>,
    /// Whether I/O bypasses the page cache of the operating system.
    pub direct: bool,
    /// The bytes that the drive may write in its life, as its data sheet says.
    pub endurance_bytes: Option<u64>,
}

/// Device names of the spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceSettings {
    /// Tables and indexes.
    pub data: String,
    /// The log.
    pub log: String,
    /// Older versions of rows, for undo.
    pub rollback: String,
    /// Sort runs and hash partitions.
    pub temporary: String,
}

/// The buffer pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    /// Bytes of memory; `None` means a quarter of the memory.
    pub size_bytes: Option<u64>,
    /// The replacement strategy.
    pub replacement: Replacement,
    /// The number of threads that write pages; `None` means one, or more if pages are compressed.
    pub page_writers: Option<usize>,
    /// The way in which page writers keep frames free. `None` means as needed.
    pub pacing: Option<Pacing>,
    /// Bytes of a page. `None`: the default for a new directory, the existing size for an old one.
    pub page_size_bytes: Option<u64>,
}

/// General queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuerySettings {
    /// Bytes of memory for all queries; `None` means an eighth of the memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of temporary files of one session; `None` means no limit.
    pub temporary_bytes: Option<u64>,
    /// The most threads for one query.
    pub threads: usize,
    /// A table with fewer rows is read by one thread.
    pub threads_rows: usize,
}

/// The log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// Bytes of one file.
    pub segment_bytes: u64,
    /// Bytes of all files together.
    pub capacity_bytes: u64,
}

/// The server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// The address on which the server listens.
    pub listen: SocketAddr,
    /// The limit of sessions.
    pub max_connections: usize,
    /// The time limit of a login.
    pub authentication_timeout: Duration,
    /// The proof that clients need.
    pub authentication: Proof,
    /// The server's messages.
    pub messages: MessageSettings,
    /// Encryption; `None` means no encryption.
    pub tls: Option<TlsSettings>,
}

/// Encryption of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// File of the certificate.
    pub certificate: PathBuf,
    /// File of the certificate's key.
    pub key: PathBuf,
    /// Whether sessions without encryption are refused.
    pub required: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let main = || MAIN_DEVICE.to_owned();
        Self {
            devices: BTreeMap::new(),
            spaces: SpaceSettings { data: main(), log: main(), rollback: main(), temporary: main() },
            pool: PoolSettings {
                size_bytes: None,
                replacement: Replacement::Clock,
                page_writers: None,
                pacing: None,
                page_size_bytes: None,
            },
            query: QuerySettings {
                memory_bytes: None,
                temporary_bytes: None,
                threads: 1,
                threads_rows: 50_000,
            },
            smart: SmartSettings::DEFAULT,
            checkpoint: CheckpointSettings::DEFAULT,
            archive: ArchiveSettings::DEFAULT,
            undo: UndoSettings::DEFAULT,
            trace: TraceSettings::DEFAULT,
            log: LogSettings { segment_bytes: 64 * MIB, capacity_bytes: 1024 * MIB },
            nvm: None,
            flash: None,
            layout: None,
            packed: PackedSettings::default(),
            compression: Compression::NONE,
            trim: Trim::Auto,
            protection: ProtectionKind::DOUBLEWRITE,
            server: ServerSettings {
                listen: SocketAddr::from(([127, 0, 0, 1], 5433)),
                max_connections: 1000,
                authentication_timeout: AUTHENTICATION_PATIENCE,
                authentication: Proof::Nothing,
                messages: MessageSettings::DEFAULT,
                tls: None,
            },
            metrics_listen: None,
            statements_max: None,
            main_endurance_bytes: None,
            accepts_copy: false,
        }
    }
}

impl Settings {
    /// Reads the text of a configuration file. Relative paths begin at `home`.
    pub fn parse(text: &str, home: &Path) -> Result<Self, ConfigError> {
        Self::default().overlaid(text, home)
    }

    /// Returns these settings, overridden by those of the text.
    pub fn overlaid(mut self, text: &str, home: &Path) -> Result<Self, ConfigError> {
        let mut file = SectionReader::parse(text)?;
        self.devices(file.section("devices")?, home)?;
        self.spaces(file.section("spaces")?)?;
        self.pool(file.section("pool")?)?;
        self.query(file.section("query")?)?;
        self.smart(file.section("smart")?, home)?;
        self.log(file.section("log")?)?;
        self.checkpoint = self.checkpoint.overlaid(file.section("checkpoint")?)?;
        self.archive(file.section("archive")?, home)?;
        self.undo(file.section("undo")?)?;
        self.trace(file.section("trace")?)?;
        self.metrics(file.section("metrics")?)?;
        self.statements(file.section("statements")?)?;
        let (has_nvm, nvm_at) = (file.has("nvm"), file.key_position("nvm"));
        let nvm = file.section("nvm")?;
        self.nvm = match has_nvm {
            true => Some(NvmSettings::read(self.nvm.as_ref(), &self.devices, nvm)?),
            false => self.nvm,
        };
        let has_flash = file.has("flash");
        let flash = file.section("flash")?;
        self.flash = if has_flash { Some(self.flash(flash)?) } else { self.flash };
        self.home(file.section("home")?)?;
        self.packed = self.packed.overlaid(file.section("packed")?)?;
        self.protection(file.section("protection")?)?;
        if let Some(nvm) = &self.nvm
            && nvm.region.is_some_and(|region| region.log_bytes == 0)
            && !is_in_nvm(self.protection)
        {
            let what = if nvm.tables.size_bytes > 0 { SIZE_FOR_NOTHING } else { NVM_FOR_NOTHING };
            return Err(file.error("nvm", nvm_at, what));
        }
        self.server(file.section("server")?, home)?;
        file.finish()?;
        Ok(self)
    }

    fn devices(&mut self, section: SectionReader<'_>, home: &Path) -> Result<(), ConfigError> {
        for (name, mut section) in section.all_sections()? {
            if name != MAIN_DEVICE {
                self.devices.insert(name, device(section, home)?);
                continue;
            }
            if section.has("path") {
                let problem = "is the name of the data directory itself; choose another name";
                return Err(section.error("path", section.position("path"), problem));
            }
            let endurance = section.bytes("endurance", ENDURANCE_BYTES)?;
            self.main_endurance_bytes = endurance.or(self.main_endurance_bytes);
            section.finish()?;
        }
        Ok(())
    }

    fn spaces(&mut self, mut section: SectionReader<'_>) -> Result<(), ConfigError> {
        let places = [
            ("data", &mut self.spaces.data),
            ("log", &mut self.spaces.log),
            ("rollback", &mut self.spaces.rollback),
            ("temporary", &mut self.spaces.temporary),
        ];
        for (key, place) in places {
            let at = section.position(key);
            let Some(name) = section.text(key)? else { continue };
            if name != MAIN_DEVICE && !self.devices.contains_key(&name) {
                return Err(section.error(key, at, &unknown_device(&name, &self.devices)));
            }
            *place = name;
        }
        section.finish()
    }

    fn pool(&mut self, mut section: SectionReader<'_>) -> Result<(), ConfigError> {
        let replacements = [("clock", Replacement::Clock), ("lru2", Replacement::Lru2)];
        let pool = &mut self.pool;
        pool.size_bytes = section.bytes("size", MIB..=TIB)?.or(pool.size_bytes);
        pool.replacement = section.choice("replacement", &replacements)?.unwrap_or(pool.replacement);
        pool.page_writers = section.count_or("page_writers", 1..=64, "auto")?.unwrap_or(pool.page_writers);
        pool.pacing = pacing(&mut section, pool.pacing)?;
        let at = section.position("page_size");
        pool.page_size_bytes = section.bytes("page_size", 4 * KIB..=64 * KIB)?.or(pool.page_size_bytes);
        if pool.page_size_bytes.is_some_and(|bytes| !bytes.is_power_of_two()) {
            return Err(section.error("page_size", at, "must be 4, 8, 16, 32 or 64 KiB"));
        }
        section.finish()
    }

    fn query(&mut self, mut section: SectionReader<'_>) -> Result<(), ConfigError> {
        let query = &mut self.query;
        query.memory_bytes = section.bytes("memory", MIB..=TIB)?.or(query.memory_bytes);
        query.temporary_bytes = section.bytes("temporary", MIB..=TIB)?.or(query.temporary_bytes);
        query.threads_rows = section.count("threads_rows", 0..=usize::MAX)?.unwrap_or(query.threads_rows);
        query.threads = section.count("threads", 1..=THREADS_MAX)?.unwrap_or(query.threads);
        section.finish()
    }

    fn smart(&mut self, mut section: SectionReader<'_>, home: &Path) -> Result<(), ConfigError> {
        let (smart, at) = (&mut self.smart, section.position("address"));
        if let Some(text) = section.text("address")? {
            let address = text.parse::<Address>();
            smart.address = Some(address.map_err(|why| section.error("address", at, &format!(": {why}")))?);
        }
        smart.key_file = section.text("key_file")?.map(|path| home.join(path)).or(smart.key_file.take());
        let root = section.text("tls_root_certificate")?.map(|path| home.join(path));
        smart.tls_root_certificate = root.or(smart.tls_root_certificate.take());
        if let Some(name) = section.text("profile")? {
            let is_known = DeviceProfile::named(&name).is_some();
            let file = || home.join(&name).to_string_lossy().into_owned();
            smart.profile = Some(if is_known { name } else { file() });
        }
        if smart.address.is_some() && smart.key_file.is_none() {
            let missing = "is missing: the file with the key that the device knows";
            return Err(section.error("key_file", at, missing));
        }
        section.declared(SmartSettings::TABLE, smart)?;
        section.finish()
    }

    /// Reads the section of the log archive. Relative paths begin at `home`.
    fn archive(&mut self, mut section: SectionReader<'_>, home: &Path) -> Result<(), ConfigError> {
        let at = section.position("directory");
        if let Some(text) = section.text("directory")? {
            if text.is_empty() {
                return Err(section.error("directory", at, "is empty: write the directory of the archive"));
            }
            self.archive.directory = Some(home.join(text));
        }
        section.declared(ArchiveSettings::TABLE, &mut self.archive)?;
        section.finish()
    }

    fn undo(&mut self, mut section: SectionReader<'_>) -> Result<(), ConfigError> {
        section.declared(UndoSettings::TABLE, &mut self.undo)?;
        section.finish()
    }

    fn trace(&mut self, mut section: SectionReader<'_>) -> Result<(), ConfigError> {
        section.declared(TraceSettings::TABLE, &mut self.trace)?;
        section.finish()
    }

    fn metrics(&mut self, mut section: SectionReader<'_>) -> Result<(), ConfigError> {
        let at = section.position("listen");
        if let Some(address) = section.text("listen")? {
            let address = parse_address(&address).map_err(|problem| section.error("listen", at, &problem))?;
            self.metrics_listen = Some(address);
        }
        section.finish()
    }

    fn statements(&mut self, mut section: SectionReader<'_>) -> Result<(), ConfigError> {
        let max = section.count_or("max", 0..=STATEMENTS_MAX, "auto")?;
        self.statements_max = max.unwrap_or(self.statements_max);
        section.finish()
    }

    /// Returns the limit of entries of pg_stat_statements. 0 means that there are none.
    pub fn statements_limit(&self) -> usize {
        let auto = if self.metrics_listen.is_some() { varve_sql::STATEMENT_ENTRIES } else { 0 };
        self.statements_max.unwrap_or(auto)
    }

    /// Returns the bytes that a drive may write in its life, if the configuration says so.
    pub fn endurance_bytes(&self, device: &str) -> Option<u64> {
        match device {
            MAIN_DEVICE => self.main_endurance_bytes,
            name => self.devices.get(name)?.endurance_bytes,
        }
    }

    fn log(&mut self, mut section: SectionReader<'_>) -> Result<(), ConfigError> {
        let log = &mut self.log;
        log.segment_bytes = section.bytes("segment", MIB..=64 * 1024 * MIB)?.unwrap_or(log.segment_bytes);
        let at = section.position("capacity");
        let given = section.bytes("capacity", 2 * MIB..=TIB)?;
        log.capacity_bytes = given.unwrap_or_else(|| log.capacity_bytes.max(4 * log.segment_bytes));
        if log.capacity_bytes < 2 * log.segment_bytes {
            let segment = show_bytes(log.segment_bytes);
            return Err(section.error(
                "capacity",
                at,
                &format!("must hold at least two segments of {segment}"),
            ));
        }
        section.finish()
    }

    fn flash(&self, mut section: SectionReader<'_>) -> Result<FlashSection, ConfigError> {
        let at = section.position("device");
        let flash = FlashSection::read(self.flash.as_ref(), &mut section)?;
        if flash.device != MAIN_DEVICE && !self.devices.contains_key(&flash.device) {
            return Err(section.error("device", at, &unknown_device(&flash.device, &self.devices)));
        }
        section.finish()?;
        Ok(flash)
    }

    fn home(&mut self, mut section: SectionReader<'_>) -> Result<(), ConfigError> {
        let layouts = [HomeLayout::InPlace, HomeLayout::Packed(PackedConfig::DEFAULT)];
        self.layout =
            section.choice("layout", &layouts.map(|layout| (layout.name(), layout)))?.or(self.layout);
        let algorithms = Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm));
        let before = self.compression;
        let algorithm = section.choice("compression", &algorithms)?.unwrap_or(before.algorithm);
        let at = section.position("compression_level");
        let level = section.count("compression_level", 0..=usize::from(u8::MAX))?;
        // The levels of another algorithm differ, so the level is not kept.
        let kept = if algorithm == before.algorithm { before.level } else { 0 };
        self.compression = Compression { algorithm, level: level.map_or(kept, |level| level as u8) };
        if !self.compression.is_valid() {
            let levels = algorithm.levels();
            let most = match levels.end() {
                1 => format!("must be 0: {algorithm} has no levels (zlib, lzma and zstd have)"),
                most => format!("must be between 0 and {most}: {algorithm} has no more"),
            };
            return Err(section.error("compression_level", at, &most));
        }
        let trims = Trim::ALL.map(|trim| (trim.name(), trim));
        self.trim = section.choice("trim", &trims)?.unwrap_or(self.trim);
        section.finish()
    }

    fn protection(&mut self, mut section: SectionReader<'_>) -> Result<(), ConfigError> {
        let (batch, single) =
            slots(self.protection).or(slots(ProtectionKind::DOUBLEWRITE)).unwrap_or_default();
        let at = ["kind", "batch_slots", "single_slots"].map(|key| section.position(key));
        let has_slots = ["batch_slots", "single_slots"].map(|key| section.has(key));
        let batch_slots = section.count("batch_slots", 1..=SLOTS_MAX)?.map_or(batch, |count| count as u32);
        let single_slots = section.count("single_slots", 1..=SLOTS_MAX)?.map_or(single, |count| count as u32);
        let kinds = [
            ProtectionKind::Doublewrite { batch_slots, single_slots },
            ProtectionKind::NvmDoublewrite { batch_slots, single_slots },
            ProtectionKind::Nvm,
            ProtectionKind::FullPageLog,
            ProtectionKind::AtomicWrite,
            ProtectionKind::None,
        ];
        let named = kinds.map(|kind| (kind.name(), kind));
        let before = kinds.into_iter().find(|kind| kind.name() == self.protection.name());
        let kind = section.choice("kind", &named)?.or(before).unwrap_or(self.protection);
        if is_in_nvm(kind) && self.nvm.as_ref().is_none_or(|nvm| nvm.region.is_none()) {
            let needed = if self.nvm.is_none() { "a section [nvm]" } else { "a size in section [nvm]" };
            let problem = format!("= \"{}\" needs {needed}", kind.name());
            return Err(section.error("kind", at[0], &problem));
        }
        for (n, key) in ["batch_slots", "single_slots"].into_iter().enumerate() {
            if slots(kind).is_none() && has_slots[n] {
                return Err(section.error(key, at[n + 1], "is for doublewrite and nvm-dwb only"));
            }
        }
        self.protection = kind;
        section.finish()
    }

    fn server(&mut self, mut section: SectionReader<'_>, home: &Path) -> Result<(), ConfigError> {
        let at = section.position("listen");
        if let Some(address) = section.text("listen")? {
            self.server.listen =
                parse_address(&address).map_err(|problem| section.error("listen", at, &problem))?;
        }
        let count = section.count("max_connections", 1..=CONNECTIONS_MAX)?;
        self.server.max_connections = count.unwrap_or(self.server.max_connections);
        let seconds = section.count("authentication_timeout", 1..=AUTHENTICATION_SECONDS_MAX)?;
        let timeout = seconds.map(|seconds| Duration::from_secs(seconds as u64));
        self.server.authentication_timeout = timeout.unwrap_or(self.server.authentication_timeout);
        let proofs = [("trust", Proof::Nothing), ("scram-sha-256", Proof::Password)];
        let proof = section.choice("authentication", &proofs)?;
        self.server.authentication = proof.unwrap_or(self.server.authentication);
        self.server.messages.read(&mut section, home)?;
        self.server.tls = tls(&mut section, home, self.server.tls.take())?;
        section.finish()
    }
}

/// Reads the keys that say when page writers work.
fn pacing(section: &mut SectionReader<'_>, before: Option<Pacing>) -> Result<Option<Pacing>, ConfigError> {
    let at = section.position("writer_frames");
    let interval_ms = section.count("writer_interval_ms", 0..=60_000)?.map(|ms| ms as u64);
    let free_frames = section.count("writer_frames", 1..=1 << 20)?;
    let Some(interval_ms) = interval_ms.or(before.map(|p| p.interval_ms)).filter(|ms| *ms > 0) else {
        return match free_frames {
            None => Ok(None),
            Some(_) => Err(section.error("writer_frames", at, "needs a writer_interval_ms above 0")),
        };
    };
    let free_frames = free_frames.unwrap_or_else(|| before.unwrap_or(Pacing::INNODB).free_frames);
    Ok(Some(Pacing { interval_ms, free_frames }))
}

/// Returns the numbers of batch slots and single-page slots of a doublewrite.
fn slots(protection: ProtectionKind) -> Option<(u32, u32)> {
    match protection {
        ProtectionKind::Doublewrite { batch_slots, single_slots }
        | ProtectionKind::NvmDoublewrite { batch_slots, single_slots } => Some((batch_slots, single_slots)),
        ProtectionKind::None
        | ProtectionKind::AtomicWrite
        | ProtectionKind::FullPageLog
        | ProtectionKind::Nvm => None,
    }
}

/// Returns whether the protection keeps its copies or pages in persistent memory.
fn is_in_nvm(protection: ProtectionKind) -> bool {
    matches!(protection, ProtectionKind::NvmDoublewrite { .. } | ProtectionKind::Nvm)
}

/// Reads the keys about TLS. If there are none, `before` stays.
fn tls(
    section: &mut SectionReader<'_>,
    home: &Path,
    before: Option<TlsSettings>,
) -> Result<Option<TlsSettings>, ConfigError> {
    let at = section.position("tls");
    let certificate = section.text("tls_certificate")?.map(|path| home.join(path));
    let key = section.text("tls_key")?.map(|path| home.join(path));
    let given =
        section.choice("tls", &[("off", None), ("offered", Some(false)), ("required", Some(true))])?;
    match (certificate, key, given) {
        (None, None, None) => Ok(before),
        (_, _, Some(None)) => Ok(None),
        (Some(certificate), Some(key), wish) => {
            let required = wish.flatten().unwrap_or(false);
            Ok(Some(TlsSettings { certificate, key, required }))
        }
        (None, _, _) => {
            Err(section.error("tls_certificate", at, "is missing: the file of the certificate, PEM"))
        }
        (_, None, _) => {
            Err(section.error("tls_key", at, "is missing: the file of the certificate's key, PEM"))
        }
    }
}

/// Reads an address: `127.0.0.1:5433`, `[::1]:5433`, `localhost:5433` or only a port. The text of an error
/// follows the key.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let loopback = |port: &str| port.parse().ok().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    let address = text.parse().ok();
    let address = address.or_else(|| loopback(text.strip_prefix("localhost:").unwrap_or(text)));
    address
        .ok_or_else(|| format!("= \"{text}\" is no address; write ADDRESS:PORT, such as \"127.0.0.1:5433\""))
}

/// Reads the section of a device.
fn device(mut device: SectionReader<'_>, home: &Path) -> Result<DeviceSettings, ConfigError> {
    let at = device.position("path");
    let path = device.text("path")?.filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| device.error("path", at, "is missing: the directory of this device"))?;
    let mut profiles: Vec<_> = Profile::names().into_iter().map(|name| (name, Some(name))).collect();
    profiles.push(("none", None));
    let profile = device.choice("profile", &profiles)?.flatten().map(str::to_owned);
    let at = device.position("capacity");
    let capacity_bytes = device.bytes("capacity", MIB..=TIB)?;
    if capacity_bytes.is_some() && profile.is_none() {
        return Err(device.error("capacity", at, "is for emulated devices: give it a profile"));
    }
    let direct = device.flag("direct")?.unwrap_or(true);
    let endurance_bytes = device.bytes("endurance", ENDURANCE_BYTES)?;
    device.finish()?;
    Ok(DeviceSettings { path: home.join(path), profile, capacity_bytes, direct, endurance_bytes })
}

fn unknown_device(name: &str, devices: &BTreeMap<String, DeviceSettings>) -> String {
    let mut known: Vec<&str> = devices.keys().map(String::as_str).collect();
    known.push(MAIN_DEVICE);
    match nearest(name, &known) {
        Some(near) => format!("names the device \"{name}\", which doesn't exist; did you mean \"{near}\"?"),
        None => format!(
            "names the device \"{name}\", which doesn't exist; add a section [devices.{name}] or use one of: {}",
            known.join(", ")
        ),
    }
}
