//! Fuzzes the reading of the configuration file `varve.toml`.
//!
//! The input is the text of the file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use varve::config::{
    ArchiveSettings, CheckpointSettings, ConfigError, DeviceSettings, FlashSection, MAIN_DEVICE,
    MessageSettings, NvmSettings, PackedSettings, PoolSettings, RegionSettings, ServerSettings, Settings,
    SmartSettings, TablesSettings, TlsSettings, TraceSettings, UndoSettings,
};
use varve_engine::EngineKind;
use varve_pager::{FlashSettings, NvmFlush, Pacing, ProtectionKind, Replacement};
use varve_server::Proof;

const SECTIONS: [&str; 18] = [
    "archive",
    "metrics",
    "statements",
    "checkpoint",
    "devices",
    "spaces",
    "pool",
    "query",
    "log",
    "nvm",
    "flash",
    "home",
    "packed",
    "protection",
    "server",
    "smart",
    "trace",
    "undo",
];

/// Checks that a text is refused with line and key, or that its settings are the same after they are written
/// as a text and read again.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let home = Path::new("");
    let read = Settings::parse(text, home);
    match &read {
        Ok(settings) => {
            consistent(settings);
            let again = written(settings);
            assert_eq!(Settings::parse(&again, home).as_ref(), Ok(settings), "{again}");
        }
        Err(error) => named(error, text),
    }
    one_line_lower(text, read);
}

/// Checks conditions on which a server relies.
fn consistent(settings: &Settings) {
    let Settings { devices, spaces, pool, log, server, .. } = settings;
    let of_nvm = settings.nvm.as_ref().map(|nvm| &nvm.device);
    for device in [&spaces.data, &spaces.log, &spaces.rollback, &spaces.temporary].into_iter().chain(of_nvm) {
        assert!(device == MAIN_DEVICE || devices.contains_key(device), "no device {device}");
    }
    assert!(log.capacity_bytes / 2 >= log.segment_bytes && log.segment_bytes > 0, "{log:?}");
    assert!(
        pool.page_size_bytes.is_none_or(u64::is_power_of_two) && pool.page_writers != Some(0),
        "{pool:?}"
    );
    assert!(server.max_connections > 0);
}

/// Checks that an error has a line of the text and, if the text is valid TOML, the key with the error.
fn named(error: &ConfigError, text: &str) {
    let lines = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
    assert!((1..=lines).contains(&error.line), "{error}");
    assert!(!error.message.is_empty());
    if let Ok(table) = text.parse::<toml::Table>() {
        let mut keys = table.keys().map(String::as_str).chain(SECTIONS);
        assert!(keys.any(|key| error.message.starts_with(key)), "no key is named: {error}");
    }
}

/// Checks that an empty line before the text changes only the line of an error.
fn one_line_lower(text: &str, read: Result<Settings, ConfigError>) {
    if text.starts_with('\u{FEFF}') {
        return;
    }
    let lower = Settings::parse(&format!("\n{text}"), Path::new(""));
    let expected = read.map_err(|error| ConfigError { line: error.line + 1, ..error });
    assert_eq!(lower, expected);
}

/// Writes all settings as a text.
fn written(settings: &Settings) -> String {
    let Settings {
        devices,
        spaces,
        pool,
        log,
        nvm,
        flash,
        layout: _,
        packed: _,
        compression: _,
        trim: _,
        protection,
        server,
        query,
        checkpoint,
        archive,
        undo: UndoSettings { retention_seconds },
        trace: TraceSettings { entries, latencies },
        smart,
        metrics_listen,
        statements_max,
        main_endurance_bytes,
        accepts_copy: _,
    } = settings;
    let mut out = String::new();
    out.push_str(&of_devices(devices, *main_endurance_bytes));
    let _ = metrics_listen.map(|address| writeln!(out, "[metrics]\nlisten = '{address}'"));
    let _ = statements_max.map(|max| writeln!(out, "[statements]\nmax = {max}"));
    out.push_str("[spaces]\n");
    let places = [("data", &spaces.data), ("log", &spaces.log), ("rollback", &spaces.rollback)];
    for (space, device) in places.into_iter().chain([("temporary", &spaces.temporary)]) {
        let _ = writeln!(out, "{space} = {}", quoted(device));
    }
    out.push_str(&of_pool(pool));
    let kind = protection.name();
    let slots = match protection {
        ProtectionKind::Doublewrite { batch_slots, single_slots }
        | ProtectionKind::NvmDoublewrite { batch_slots, single_slots } => {
            format!("batch_slots = {batch_slots}\nsingle_slots = {single_slots}\n")
        }
        ProtectionKind::None
        | ProtectionKind::AtomicWrite
        | ProtectionKind::FullPageLog
        | ProtectionKind::Nvm => String::new(),
    };
    let _ = write!(
        out,
        "[log]\nsegment = {}\ncapacity = '{} B'\n[protection]\nkind = '{kind}'\n{slots}\
         [server]\nlisten = '{}'\nmax_connections = {}\nauthentication_timeout = {}\n",
        log.segment_bytes,
        log.capacity_bytes,
        server.listen,
        server.max_connections,
        server.authentication_timeout.as_secs()
    );
    out.push_str(&let_in(server));
    out.push_str(&of_messages(&server.messages));
    out.push_str(&of_checkpoint(checkpoint));
    let _ = writeln!(out, "[undo]\nretention = {retention_seconds}");
    let _ = writeln!(out, "[trace]\nentries = {entries}\nlatencies = {latencies}");
    out.push_str(&[of_archive(archive), of_smart(smart)].concat());
    out.push_str(&nvm.as_ref().map_or_else(String::new, of_nvm));
    out.push_str(&flash.as_ref().map_or_else(String::new, of_flash));
    let _ = writeln!(out, "{}[query]", of_home(settings));
    for (key, bytes) in [("memory", query.memory_bytes), ("temporary", query.temporary_bytes)] {
        let _ = bytes.map(|bytes| writeln!(out, "{key} = {bytes}"));
    }
    out
}

/// Returns the section of checkpoints.
fn of_checkpoint(checkpoint: &CheckpointSettings) -> String {
    let CheckpointSettings { kind, interval_seconds, recovery_target_seconds } = checkpoint;
    let kind = kind.name();
    format!(
        "[checkpoint]\nkind = '{kind}'\ninterval = {interval_seconds}\nrecovery_target = {recovery_target_seconds}\n"
    )
}

/// Returns the section of the log archive.
fn of_archive(archive: &ArchiveSettings) -> String {
    let ArchiveSettings { directory, interval_seconds, compression } = archive;
    let mut out = format!("[archive]\ninterval = {interval_seconds}\ncompression = '{compression}'\n");
    let place = directory.as_ref().and_then(|directory| directory.to_str());
    let _ = place.map(|place| writeln!(out, "directory = {}", quoted(place)));
    out
}

/// Returns the sections of devices.
fn of_devices(devices: &BTreeMap<String, DeviceSettings>, main_endurance_bytes: Option<u64>) -> String {
    let mut out = String::new();
    for (name, DeviceSettings { path, profile, capacity_bytes, direct, endurance_bytes }) in devices {
        let path = quoted(path.to_str().unwrap_or_default());
        let profile = quoted(profile.as_deref().unwrap_or("none"));
        let name = quoted_key(name);
        let _ = writeln!(out, "[devices.{name}]\npath = {path}\nprofile = {profile}\ndirect = {direct}");
        let _ = capacity_bytes.map(|bytes| writeln!(out, "capacity = {bytes}"));
        let _ = endurance_bytes.map(|bytes| writeln!(out, "endurance = {bytes}"));
    }
    let _ = main_endurance_bytes.map(|bytes| writeln!(out, "[devices.main]\nendurance = {bytes}"));
    out
}

fn of_smart(smart: &SmartSettings) -> String {
    let SmartSettings { address, key_file, tls_root_certificate, profile, timeout_seconds, processor_factor } =
        smart;
    let address = address.as_ref().map(ToString::to_string);
    let text_of = |path: &PathBuf| path.to_string_lossy().into_owned();
    let (key_file, root) = (key_file.as_ref().map(text_of), tls_root_certificate.as_ref().map(text_of));
    let mut out = format!("[smart]\ntimeout = {timeout_seconds}\nprocessor_factor = {processor_factor}\n");
    let texts = [&address, &key_file, &root, profile];
    for (key, text) in ["address", "key_file", "tls_root_certificate", "profile"].into_iter().zip(texts) {
        let _ = text.as_ref().map(|text| writeln!(out, "{key} = {}", quoted(text)));
    }
    out
}

fn of_pool(pool: &PoolSettings) -> String {
    let mut out = String::new();
    let replacement = if pool.replacement == Replacement::Clock { "clock" } else { "lru2" };
    let writers = pool.page_writers.map_or_else(|| "'auto'".to_owned(), |writers| writers.to_string());
    let _ = writeln!(out, "[pool]\nreplacement = '{replacement}'\npage_writers = {writers}");
    if let Some(Pacing { interval_ms, free_frames }) = pool.pacing {
        let _ = writeln!(out, "writer_interval_ms = {interval_ms}\nwriter_frames = {free_frames}");
    }
    for (key, bytes) in [("size", pool.size_bytes), ("page_size", pool.page_size_bytes)] {
        let _ = bytes.map(|bytes| writeln!(out, "{key} = {bytes}"));
    }
    out
}

/// Returns the text as a basic string of TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Returns the settings for logins in the section of the server.
fn let_in(server: &ServerSettings) -> String {
    let mut out = String::new();
    if server.authentication != Proof::Nothing {
        out.push_str("authentication = 'scram-sha-256'\n");
    }
    if let Some(TlsSettings { certificate, key, required }) = &server.tls {
        let [certificate, key] = [certificate, key].map(|p| quoted(p.to_str().unwrap_or_default()));
        let wish = if *required { "required" } else { "offered" };
        let _ = writeln!(out, "tls_certificate = {certificate}\ntls_key = {key}\ntls = '{wish}'");
    }
    out
}

/// Returns the settings of messages in the section of the server.
fn of_messages(messages: &MessageSettings) -> String {
    let MessageSettings {
        connections,
        disconnections,
        checkpoints,
        lock_waits,
        min_duration_ms,
        temp_files_kb,
        format,
        file,
    } = messages;
    let number = |number: &Option<u64>| number.map_or_else(|| "-1".to_owned(), |number| number.to_string());
    let (slow, large) = (number(min_duration_ms), number(temp_files_kb));
    let file = file.as_ref().map_or_else(String::new, |path| {
        format!("log_file = {}\n", quoted(path.to_str().unwrap_or_default()))
    });
    format!(
        "log_connections = {connections}\nlog_disconnections = {disconnections}\n\
         log_checkpoints = {checkpoints}\nlog_lock_waits = {lock_waits}\n\
         log_min_duration_statement = {slow}\nlog_temp_files = {large}\nlog_format = '{}'\n{file}",
        format.name()
    )
}

fn of_nvm(settings: &NvmSettings) -> String {
    let NvmSettings { device, region, tables, emulate, flush } = settings;
    let region = region.map_or_else(String::new, |region| {
        let RegionSettings { size_bytes, log_bytes } = region;
        format!("size = {size_bytes}\nlog = {log_bytes}\n")
    });
    let TablesSettings { size_bytes, partitions, default_engine } = tables;
    let method = default_engine.map_or("heap", EngineKind::name);
    let (device, emulate) = (quoted(device), emulate.as_deref().unwrap_or("none"));
    let NvmFlush { workers, high_water, low_water, when_idle } = flush;
    format!(
        "[nvm]\ndevice = {device}\n{region}tables = {size_bytes}\npartitions = {partitions}\ndefault_access_method = '{method}'\nemulate = '{emulate}'\n\
         flush_workers = {workers}\nhigh_water = {high_water}\nlow_water = {low_water}\nidle_flush = {when_idle}\n"
    )
}

fn of_flash(section: &FlashSection) -> String {
    let FlashSection { device, settings } = section;
    let FlashSettings {
        size_bytes,
        design,
        dirty_percent,
        clean_order,
        restart,
        fill,
        scans,
        daily_write_bytes,
    } = settings;
    let (device, design, clean_order) = (quoted(device), design.name(), clean_order.name());
    let (restart, fill, scans) = (restart.name(), fill.name(), scans.name());
    let daily = daily_write_bytes.map_or_else(String::new, |bytes| format!("daily_writes = {bytes}\n"));
    format!(
        "[flash]\ndevice = {device}\nsize = {size_bytes}\ndesign = '{design}'\n\
         dirty_limit = {dirty_percent}\nclean_order = '{clean_order}'\nrestart = '{restart}'\nfill = '{fill}'\nscans = '{scans}'\n{daily}"
    )
}

fn of_home(settings: &Settings) -> String {
    let (algorithm, level) = (settings.compression.algorithm, settings.compression.level);
    let layout = settings.layout.map_or_else(String::new, |layout| format!("layout = '{}'\n", layout.name()));
    let trim = settings.trim.name();
    format!(
        "[home]\ncompression = '{algorithm}'\ncompression_level = {level}\ntrim = '{trim}'\n{layout}{}",
        of_packed(settings.packed)
    )
}

fn of_packed(PackedSettings { fill_percent, extent_bytes }: PackedSettings) -> String {
    let extent = extent_bytes.map_or_else(String::new, |bytes| format!("extent = {bytes}\n"));
    format!("[packed]\nfill = {fill_percent}\n{extent}")
}

/// Returns any key as a basic string.
fn quoted_key(name: &str) -> String {
    let mut out = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => drop(write!(out, "\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
