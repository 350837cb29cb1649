//! The section `[nvm]`: persistent memory for the log and pages (the file `nvm.varve`), and for tables (the
//! file `tables.varve`). The pager declares when pages leave persistent memory.
//!
//! Invariants
//! 1. A section has at least one of the two files.

use std::collections::BTreeMap;
use std::iter;

use varve_device::NvmProfile;
use varve_memory::EngineKind;
use varve_pager::{Form, NvmFlush, Setting, Unit};

use super::reader::{ConfigError, SectionReader};
use super::{DeviceSettings, KIB, MAIN_DEVICE, MIB, TIB, show_bytes, unknown_device};

/// The smallest file for tables: the engines need some space for their logs.
const TABLES_BYTES_MIN: u64 = 4 * MIB;
/// The access method of tables in pages.
const HEAP: &str = "heap";
/// The most partitions, as a count.
const PARTITIONS_MAX: usize = varve_memory::PARTITIONS_MAX as usize;

/// Persistent memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmSettings {
    /// Name of the device whose directory has the files.
    pub device: String,
    /// The region for the log and pages, if there is one.
    pub region: Option<RegionSettings>,
    /// The region for tables.
    pub tables: TablesSettings,
    /// Name of the emulated medium, if any.
    pub emulate: Option<String>,
    /// When pages are written from persistent memory to the data files.
    pub flush: NvmFlush,
}

/// The region for the log and pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionSettings {
    /// Bytes of the region.
    pub size_bytes: u64,
    /// Bytes of the region for the log; 0 if the log is in files.
    pub log_bytes: u64,
}

/// The region for tables of the memory-oriented engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TablesSettings {
    /// Bytes of the region; 0 means none.
    pub size_bytes: u64,
    /// Number of partitions.
    pub partitions: usize,
    /// The engine of tables without USING; `None` means the one that stores rows in pages.
    pub default_engine: Option<EngineKind>,
}

impl TablesSettings {
    /// No tables.
    pub const DEFAULT: Self = Self { size_bytes: 0, partitions: 1, default_engine: None };

    /// All settings of these tables.
    pub(super) const TABLE: &'static [Setting<TablesSettings>] = &[
        Setting {
            key: "tables",
            form: Form::Bytes {
                bounds: 0..=TIB,
                get: |tables| tables.size_bytes,
                set: |tables, bytes| tables.size_bytes = bytes,
            },
            is_online: false,
            help: "The size of the file for tables in persistent memory; 0: there is none. Fixed while it has tables.",
        },
        Setting {
            key: "partitions",
            form: Form::Count {
                unit: Unit::None,
                bounds: 1..=PARTITIONS_MAX,
                get: |tables| tables.partitions,
                set: |tables, count| tables.partitions = count,
            },
            is_online: false,
            help: "Number of partitions of these tables. Fixed while there are tables.",
        },
        Setting {
            key: "default_access_method",
            form: Form::Word {
                words: || iter::once(HEAP).chain(EngineKind::ALL.map(EngineKind::name)).collect(),
                get: |tables| tables.default_engine.map_or(HEAP, EngineKind::name),
                set: |tables, word| tables.default_engine = EngineKind::from_name(word),
            },
            is_online: true,
            help: "Which table access method new sessions use for CREATE TABLE without USING.",
        },
    ];

    /// Returns the bytes and partitions of the region; `None` means no region.
    pub fn form(self) -> Option<(u64, u16)> {
        // The bounds of the setting are within those of the type.
        let partitions = u16::try_from(self.partitions).unwrap_or(u16::MAX);
        (self.size_bytes > 0).then_some((self.size_bytes, partitions))
    }

    /// Reads the section. The values of the section override those of `self`.
    fn read(mut self, section: &mut SectionReader<'_>) -> Result<Self, ConfigError> {
        let at = ["tables", "default_access_method"].map(|key| section.position(key));
        section.declared(Self::TABLE, &mut self)?;
        let bytes = self.size_bytes;
        if bytes != 0 && (bytes < TABLES_BYTES_MIN || !bytes.is_multiple_of(4 * KIB)) {
            let least = show_bytes(TABLES_BYTES_MIN);
            let problem = format!("must be 0, or at least {least} and a multiple of 4 KiB");
            return Err(section.error("tables", at[0], &problem));
        }
        if let (0, Some(engine)) = (bytes, self.default_engine) {
            let problem = format!("is {}, and there is no file for its tables: set tables", engine.name());
            return Err(section.error("default_access_method", at[1], &problem));
        }
        Ok(self)
    }
}

impl NvmSettings {
    /// Reads the section. The values of the section override the earlier ones.
    pub(super) fn read(
        before: Option<&Self>,
        devices: &BTreeMap<String, DeviceSettings>,
        mut section: SectionReader<'_>,
    ) -> Result<Self, ConfigError> {
        let at = section.position("device");
        let device = section.text("device")?.or(before.map(|nvm| nvm.device.clone()));
        let device = device.ok_or_else(|| {
            let what = "is missing: section [nvm] of varve.toml must name the device for the region's file";
            section.error("device", at, what)
        })?;
        if device != MAIN_DEVICE && !devices.contains_key(&device) {
            return Err(section.error("device", at, &unknown_device(&device, devices)));
        }
        let tables = before.map_or(TablesSettings::DEFAULT, |nvm| nvm.tables).read(&mut section)?;
        let region =
            RegionSettings::read(before.and_then(|nvm| nvm.region), tables.size_bytes > 0, &mut section)?;
        let mut media: Vec<_> = NvmProfile::names().into_iter().map(|name| (name, Some(name))).collect();
        media.push(("none", None));
        let emulate = match section.choice("emulate", &media)? {
            Some(medium) => medium.map(str::to_owned),
            None => before.and_then(|nvm| nvm.emulate.clone()),
        };
        let flush = flush(&mut section, before.map_or(NvmFlush::DEFAULT, |nvm| nvm.flush))?;
        section.finish()?;
        Ok(NvmSettings { device, region, tables, emulate, flush })
    }

    /// Returns whether the log is in persistent memory.
    pub fn has_log(&self) -> bool {
        self.region.is_some_and(|region| region.log_bytes > 0)
    }
}

impl RegionSettings {
    /// Reads the section. The values of the section override the earlier ones. With `is_optional`, the region
    /// may be missing, because the section has another file.
    fn read(
        before: Option<Self>,
        is_optional: bool,
        section: &mut SectionReader<'_>,
    ) -> Result<Option<Self>, ConfigError> {
        let at = ["size", "log"].map(|key| section.position(key));
        let size = section.bytes("size", 2 * MIB..=TIB)?.or(before.map(|region| region.size_bytes));
        let log_bytes = section.bytes("log", 0..=TIB)?.or(before.map(|region| region.log_bytes)).unwrap_or(0);
        let Some(size_bytes) = size else {
            let what = match log_bytes {
                0 => {
                    "is missing: section [nvm] of varve.toml must give size (of nvm.varve) or tables (the size of tables.varve, above 0), or both; without persistent memory, remove the section"
                }
                _ => {
                    "is missing: the log in persistent memory is a part of the file nvm.varve, whose size must be given"
                }
            };
            let is_none = is_optional && log_bytes == 0;
            return if is_none { Ok(None) } else { Err(section.error("size", at[0], what)) };
        };
        if !size_bytes.is_multiple_of(4 * KIB) {
            return Err(section.error("size", at[0], "must be a multiple of 4 KiB"));
        }
        if log_bytes >= size_bytes {
            let size = show_bytes(size_bytes);
            return Err(section.error("log", at[1], &format!("must be less than the size, {size}")));
        }
        Ok(Some(RegionSettings { size_bytes, log_bytes }))
    }
}

/// Reads the keys that say when pages are written from persistent memory to the data files.
fn flush(section: &mut SectionReader<'_>, before: NvmFlush) -> Result<NvmFlush, ConfigError> {
    let at = section.position("high_water");
    let mut flush = before;
    section.declared(NvmFlush::TABLE, &mut flush)?;
    if flush.low_water >= flush.high_water {
        let problem = format!("must be above low_water, which is {}", flush.low_water);
        return Err(section.error("high_water", at, &problem));
    }
    Ok(flush)
}
