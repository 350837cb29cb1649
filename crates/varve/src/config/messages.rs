//! The settings of the server's messages, in the section `[server]`. In SQL they have PostgreSQL's names, too.

use std::path::{Path, PathBuf};

use super::ConfigError;
use super::reader::SectionReader;
use super::units::{parse_kilobytes, parse_millis};
use crate::messages::MessageFormat;

/// Which messages the server writes, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageSettings {
    /// Whether connections are logged.
    pub connections: bool,
    /// Whether the ends of connections are logged.
    pub disconnections: bool,
    /// Whether checkpoints are logged.
    pub checkpoints: bool,
    /// Whether new sessions log long waits for locks.
    pub lock_waits: bool,
    /// The milliseconds from which on new sessions log a statement; `None` means never.
    pub min_duration_ms: Option<u64>,
    /// The kilobytes of temporary files from which on new sessions log a statement; `None` means never.
    pub temp_files_kb: Option<u64>,
    /// The format of all messages.
    pub format: MessageFormat,
    /// The file of the messages; `None` means stderr.
    pub file: Option<PathBuf>,
}

impl MessageSettings {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        connections: false,
        disconnections: false,
        checkpoints: false,
        lock_waits: false,
        min_duration_ms: None,
        temp_files_kb: None,
        format: MessageFormat::Text,
        file: None,
    };

    /// Reads the keys of the section that are about messages. Relative paths begin at `home`.
    pub(super) fn read(&mut self, section: &mut SectionReader<'_>, home: &Path) -> Result<(), ConfigError> {
        for (key, flag) in [
            ("log_connections", &mut self.connections),
            ("log_disconnections", &mut self.disconnections),
            ("log_checkpoints", &mut self.checkpoints),
            ("log_lock_waits", &mut self.lock_waits),
        ] {
            *flag = section.flag(key)?.unwrap_or(*flag);
        }
        let slow = section.number_or_none("log_min_duration_statement", "250 or \"2s\"", parse_millis)?;
        self.min_duration_ms = slow.unwrap_or(self.min_duration_ms);
        let large = section.number_or_none("log_temp_files", "1024 or \"10MB\"", parse_kilobytes)?;
        self.temp_files_kb = large.unwrap_or(self.temp_files_kb);
        let formats = MessageFormat::ALL.map(|format| (format.name(), format));
        self.format = section.choice("log_format", &formats)?.unwrap_or(self.format);
        self.file = section.text("log_file")?.map(|path| home.join(path)).or(self.file.take());
        Ok(())
    }
}
