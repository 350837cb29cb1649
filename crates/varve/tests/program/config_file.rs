//! Valid contents of `varve.toml`, and the error message for each mistake.

use std::path::Path;

use varve::config::Settings;

fn parse(text: &str) -> Result<Settings, String> {
    Settings::parse(text, Path::new("/home-of-file")).map_err(|error| error.to_string())
}

#[test]
fn an_empty_file_means_the_defaults() {
    assert_eq!(parse(""), Ok(Settings::default()));
    assert_eq!(parse("[pool]\n[server]\n"), Ok(Settings::default()));
}

/// The configuration that `varve help serve` shows. A new user found that it was not a valid file, because
/// wrapped comments continued on lines without a comment sign.
const SHOWN: &str = include_str!("../../src/config/settings.toml");

#[test]
fn the_settings_that_help_shows_are_a_file_with_the_defaults() {
    assert_eq!(parse(SHOWN), Ok(Settings::default()));
    let is_key =
        |line: &str| line.starts_with("#[") || line.split(" = ").next().is_some_and(|k| !k.contains(' '));
    let uncommented = SHOWN.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if line.contains(" = ") && is_key(line) || line.starts_with("#[") => rest,
        _ => line,
    });
    let settings = parse(&uncommented.collect::<Vec<_>>().join("\n")).unwrap();
    assert!(settings.devices.contains_key("fast") && settings.server.tls.is_some(), "{settings:?}");
    assert!(SHOWN.lines().all(|line| line.len() < 80), "a line is wrapped at 80 columns");
}

/// Every key, with a value that is not its default.
const FULL: &str = r#"
[devices.fast]
path = "nvme"
direct = false
[devices.slow]
path = "/mnt/slow"
profile = "fusion-io-160"
capacity = "160GiB"
[spaces]
data = "slow"
log = "fast"
rollback = "fast"
temporary = "main"
[pool]
size = "2GiB"
replacement = "lru2"
page_writers = 4
writer_interval_ms = 500
page_size = 16384
[query]
threads = 3
threads_rows = 0
[log]
segment = "16 MiB"
capacity = "256MiB"
[nvm]
device = "fast"
size = "1GiB"
log = "256 MiB"
tables = "2GiB"
partitions = 4
default_access_method = "nvm_log"
emulate = "nvm-8x"
flush_workers = 3
high_water = 90
low_water = 10
idle_flush = false
[checkpoint]
kind = "sharp"
interval = 2400
[flash]
device = "fast"
size = "10GiB"
design = "lazy-cleaning"
dirty_limit = 70
clean_order = "recovery-lsn"
restart = "none"
fill = "plain"
scans = "proximity"
daily_writes = "500GiB"
[home]
layout = "packed"
compression = "zstd"
compression_level = 19
trim = "off"
[packed]
fill = 75
extent = "256KiB"
[protection]
kind = "none"
[server]
listen = "[::1]:6000"
max_connections = 17
authentication = "scram-sha-256"
tls_certificate = "server.crt"
tls_key = "/etc/varve/server.key"
tls = "required"
"#;

#[test]
fn every_key_is_read() {
    let settings = parse(FULL).unwrap();
    let fast = &settings.devices["fast"];
    assert_eq!((fast.path.as_path(), fast.direct), (Path::new("/home-of-file/nvme"), false));
    let slow = &settings.devices["slow"];
    assert_eq!(
        (slow.path.as_path(), slow.profile.as_deref(), slow.capacity_bytes),
        (Path::new("/mnt/slow"), Some("fusion-io-160"), Some(160 << 30))
    );
    let spaces = &settings.spaces;
    assert_eq!(
        [&spaces.data, &spaces.log, &spaces.rollback, &spaces.temporary],
        ["slow", "fast", "fast", "main"]
    );
    assert_eq!(settings.pool.size_bytes, Some(2 << 30));
    assert_eq!(settings.pool.replacement, varve::pager::Replacement::Lru2);
    let pacing = varve::pager::Pacing { interval_ms: 500, free_frames: 1024 };
    assert_eq!(settings.pool.pacing, Some(pacing));
    assert_eq!((settings.pool.page_writers, settings.pool.page_size_bytes), (Some(4), Some(16384)));
    assert_eq!((settings.query.threads, settings.query.threads_rows), (3, 0));
    assert_eq!((settings.log.segment_bytes, settings.log.capacity_bytes), (16 << 20, 256 << 20));
    let nvm = settings.nvm.unwrap();
    let region = varve::config::RegionSettings { size_bytes: 1 << 30, log_bytes: 256 << 20 };
    let default_engine = varve_memory::EngineKind::from_name("nvm_log");
    let tables = varve::config::TablesSettings { size_bytes: 2 << 30, partitions: 4, default_engine };
    assert_eq!((&*nvm.device, nvm.region, nvm.tables), ("fast", Some(region), tables));
    assert_eq!(nvm.emulate.as_deref(), Some("nvm-8x"));
    let flush = varve::pager::NvmFlush { workers: 3, high_water: 90, low_water: 10, when_idle: false };
    assert_eq!(nvm.flush, flush);
    let flash = varve::config::FlashSection {
        device: "fast".to_owned(),
        settings: varve::pager::FlashSettings {
            size_bytes: 10 << 30,
            design: varve::pager::FlashDesign::LazyCleaning,
            dirty_percent: 70,
            clean_order: varve::pager::CleanOrder::RecoveryLsn,
            restart: varve::pager::FlashRestart::None,
            fill: varve::pager::FlashFill::Plain,
            scans: varve::pager::FlashScans::Proximity,
            daily_write_bytes: Some(500 << 30),
        },
    };
    assert_eq!(settings.flash, Some(flash));
    let sharp = varve::pager::CheckpointKind::Sharp;
    assert_eq!((settings.checkpoint.kind, settings.checkpoint.interval_seconds), (sharp, 2400));
    let zstd = varve::pager::Compression { algorithm: varve::pager::Algorithm::Zstd, level: 19 };
    assert_eq!(settings.compression, zstd);
    assert_eq!(settings.trim, varve::pager::Trim::Off);
    let packed = varve::config::PackedSettings { fill_percent: 75, extent_bytes: Some(256 << 10) };
    assert_eq!(settings.packed, packed);
    assert_eq!(settings.layout.map(varve::pager::HomeLayout::name), Some("packed"));
    assert_eq!(settings.protection, varve::pager::ProtectionKind::None);
    assert_eq!((settings.server.listen.port(), settings.server.max_connections), (6000, 17));
    assert_eq!(settings.server.authentication, varve_server::Proof::Password);
    let tls = settings.server.tls.unwrap();
    assert!(tls.required && tls.certificate.ends_with("server.crt"), "{tls:?}");
    assert_eq!(tls.key, Path::new("/etc/varve/server.key"));
}

#[test]
fn mistakes_about_packed_files_are_named() {
    let check = |text: &str, expect: &str| assert_eq!(parse(text).err().as_deref(), Some(expect), "{text}");
    check("[packed]\nfill = 45", "line 2: packed.fill must be between 50 and 90");
    check("[packed]\nfill = 0.6", "line 2: packed.fill must be a whole number, not float value");
    check("[packed]\nextent = \"32KiB\"", "line 2: packed.extent must be between 64 KiB and 64 MiB");
    let power = "line 2: packed.extent must be a power of two, such as \"2MiB\"";
    check("[packed]\nextent = \"3MiB\"", power);
}

#[test]
fn a_size_without_a_unit_is_said_to_be_of_bytes() {
    let told = parse("[pool]\nsize = 5").unwrap_err();
    assert!(told.ends_with("1 MiB and 1 TiB; a number without a unit, such as MiB, is of bytes"), "{told}");
}

#[test]
fn lines_that_are_no_toml_are_explained() {
    let check = |text: &str, expect: &str| assert_eq!(parse(text).err().as_deref(), Some(expect), "{text}");
    check("[pool]\nsize = '1GiB'\nsize = '2GiB'", "line 3: size is set twice: remove one of the two");
    check("[pool]\n[nvm]\n[pool]", "line 3: [pool] is set twice: remove one of the two");
    let flag = "line 2: tls_required: a flag is true or false: write tls_required = true";
    check("[server]\ntls_required = on", flag);
}

#[test]
fn mistakes_are_named() {
    let check = |text: &str, expect: &str| assert_eq!(parse(text).err().as_deref(), Some(expect), "{text}");
    check("[pool]\nsise = 1", "line 2: pool.sise is unknown; did you mean pool.size?");
    check("[pool]\nwriter_frames = 5", "line 2: pool.writer_frames needs a writer_interval_ms above 0");
    check("\n[poool]", "line 2: poool is unknown; did you mean pool?");
    let limit = "line 2: server.max_connections must be between 1 and 32768";
    check("[server]\nmax_connections = 32769", limit);
    check("[server]\nmax_connections = 0", limit);
    check(
        "[server]\nauthentication = \"md5\"",
        "line 2: server.authentication = \"md5\" is unknown; choose one of: trust, scram-sha-256",
    );
    check(
        "[server]\ntls = \"required\"",
        "line 2: server.tls_certificate is missing: the file of the certificate, PEM",
    );
    check(
        "[server]\ntls_certificate = \"a\"",
        "line 1: server.tls_key is missing: the file of the certificate's key, PEM",
    );
    check(
        "[pool]\ncolour = 1",
        "line 2: pool.colour is unknown; known here: size, replacement, page_writers, writer_interval_ms, writer_frames, page_size",
    );
    check("[pool]\nsize = true", "line 2: pool.size must be a size such as \"2GiB\", not boolean value");
    check(
        "[pool]\nsize = \"2 gigs\"",
        "line 2: pool.size = \"2 gigs\" is no size: write a whole number and a unit, such as \"512MiB\" or \"2GiB\"",
    );
    check("[pool]\nsize = \"5KiB\"", "line 2: pool.size must be between 1 MiB and 1 TiB");
    check("[pool]\npage_size = 5000", "line 2: pool.page_size must be 4, 8, 16, 32 or 64 KiB");
    check(
        "[pool]\nreplacement = \"fifo\"",
        "line 2: pool.replacement = \"fifo\" is unknown; choose one of: clock, lru2",
    );
    check(
        "[home]\ncompression = \"lz5\"",
        "line 2: home.compression = \"lz5\" is unknown; choose one of: none, lz4, lzo, snappy, zlib, bzip2, lzma, zstd",
    );
    check(
        "[home]\ncompression = \"zlib\"\ncompression_level = 10",
        "line 3: home.compression_level must be between 0 and 9: zlib has no more",
    );
    check("[pool]\npage_writers = 0", "line 2: pool.page_writers must be between 1 and 64");
    let word = "line 2: pool.page_writers = \"many\" is unknown; write a whole number or \"auto\"";
    check("[pool]\npage_writers = 'many'", word);
    check("pool = 3", "line 1: pool must be a table, not integer value");
    check(
        "[log]\nsegment=\"64MiB\"\ncapacity = \"64MiB\"",
        "line 3: log.capacity must hold at least two segments of 64 MiB",
    );
    check(
        "[spaces]\nlog = \"fats\"\n[devices.fast]\npath=\"x\"",
        "line 2: spaces.log names the device \"fats\", which doesn't exist; did you mean \"fast\"?",
    );
    check(
        "[devices.fast]\ndirect = true",
        "line 1: devices.fast.path is missing: the directory of this device",
    );
    check(
        "[devices.main]\npath = \"x\"",
        "line 2: devices.main.path is the name of the data directory itself; choose another name",
    );
    check(
        "[server]\nlisten = \"everywhere\"",
        "line 2: server.listen = \"everywhere\" is no address; write ADDRESS:PORT, such as \"127.0.0.1:5433\"",
    );
    assert!(parse("[pool\n").unwrap_err().starts_with("line 1: "));
    assert!(parse("[pool]\nsize=1\nsize=2").unwrap_err().starts_with("line 3: "));
}

/// Found by the fuzz target `config`: an error about a missing key named line 1 instead of the line of its
/// table.
#[test]
fn a_missing_key_is_said_at_its_table() {
    let missing = "devices.fast.path is missing: the directory of this device";
    assert_eq!(parse("[pool]\n\n[devices.fast]\ndirect = true"), Err(format!("line 3: {missing}")));
    assert_eq!(parse("[pool]\n[devices]\nfast = { direct = true }"), Err(format!("line 3: {missing}")));
}

/// Reading a damaged file gives settings, or an error of one line that names the position.
#[test]
fn damaged_files_are_read_or_refused() {
    let mut state = 42_u64;
    let mut random = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    };
    let (mut read_count, mut refused_count) = (0, 0);
    for _ in 0..5000 {
        let mut bytes = FULL.as_bytes().to_vec();
        for _ in 0..=random(3) {
            let at = random(bytes.len());
            match random(3) {
                0 => bytes[at] = b"[]\"'=.#\n0-9_zG"[random(14)],
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"[]\"'=.#\n0-9_zG"[random(14)]),
            }
        }
        match parse(&String::from_utf8_lossy(&bytes)) {
            Ok(_) => read_count += 1,
            Err(message) => {
                assert!(message.starts_with("line "), "{message}");
                refused_count += 1;
            }
        }
    }
    assert!(read_count > 100 && refused_count > 100, "{read_count} were read, {refused_count} refused");
}

#[test]
fn mistakes_about_persistent_memory_are_named() {
    let check = |text: &str, expect: &str| assert_eq!(parse(text).err().as_deref(), Some(expect), "{text}");
    check(
        "[nvm]\nsize = '1GiB'",
        "line 1: nvm.device is missing: section [nvm] of varve.toml must name the device for the region's file",
    );
    check(
        "[nvm]\ndevice = 'main'",
        "line 1: nvm.size is missing: section [nvm] of varve.toml must give size (of nvm.varve) or tables (the size of \
         tables.varve, above 0), or both; without persistent memory, remove the section",
    );
    let nvm = "[nvm]\ndevice = 'main'\nsize = '4MiB'\n";
    let nothing = "line 1: nvm holds nothing: give the log a part of it with log, or choose kind = \"nvm\" or \"nvm-dwb\" in \
                   [protection]";
    check(nvm, nothing);
    let alone = "[protection]\nkind = 'nvm-dwb'";
    check(alone, "line 2: protection.kind = \"nvm-dwb\" needs a section [nvm]");
    assert_eq!(parse(&format!("{nvm}{alone}")).unwrap().protection.name(), "nvm-dwb");
    check(
        "[protection]\nkind = 'none'\nbatch_slots = 3",
        "line 3: protection.batch_slots is for doublewrite and nvm-dwb only",
    );
    check(&format!("{nvm}log = '4MiB'"), "line 4: nvm.log must be less than the size, 4 MiB");
    check(
        "[nvm]\ndevice = 'mainn'",
        "line 2: nvm.device names the device \"mainn\", which doesn't exist; did you mean \"main\"?",
    );
    check("[nvm]\ndevice = 'main'\nsize = 4194305", "line 3: nvm.size must be a multiple of 4 KiB");
}

#[test]
fn tables_need_no_other_region() {
    let tables = "[nvm]\ndevice = 'main'\ntables = '8MiB'\n";
    let nvm = parse(tables).unwrap().nvm.unwrap();
    assert_eq!((nvm.region, nvm.tables.size_bytes, nvm.tables.partitions), (None, 8 << 20, 1));
    let check = |text: &str, expect: &str| {
        let text = format!("{tables}{text}");
        assert_eq!(parse(&text).err().as_deref(), Some(expect), "{text}");
    };
    check(
        "log = '1MiB'",
        "line 1: nvm.size is missing: the log in persistent memory is a part of the file nvm.varve, whose size must be given",
    );
    check(
        "size = '4MiB'",
        "line 1: nvm has a size for the log and pages, and neither is there: remove size, give the log a part of it with \
         log, or choose kind = \"nvm\" or \"nvm-dwb\" in [protection]",
    );
    check("[protection]\nkind = 'nvm'", "line 5: protection.kind = \"nvm\" needs a size in section [nvm]");
    check("partitions = 33", "line 4: nvm.partitions must be between 1 and 32");
    for wrong in ["1MiB", "8388609"] {
        let text = format!("[nvm]\ndevice = 'main'\ntables = '{wrong}'");
        let expect = "line 3: nvm.tables must be 0, or at least 4 MiB and a multiple of 4 KiB";
        assert_eq!(parse(&text).err().as_deref(), Some(expect));
    }
    let none = parse("[nvm]\ndevice = 'main'\ntables = 0").err().unwrap();
    assert!(none.contains("nvm.size is missing"), "{none}");
}

#[test]
fn mistakes_about_checkpoints_are_named() {
    let check = |text: &str, expected: &str| assert_eq!(parse(text).unwrap_err(), expected, "{text}");
    check(
        "[checkpoint]\nkind = 'blunt'",
        "line 2: checkpoint.kind = \"blunt\" is unknown; choose one of: indirect, fuzzy, sharp",
    );
    check("[checkpoint]\ninterval = 0", "line 2: checkpoint.interval must be between 1 and 86400");
    let told = parse("").unwrap().checkpoint;
    assert_eq!(told, varve::config::CheckpointSettings::DEFAULT);
    assert_eq!(varve::pager::CheckpointKind::of("sharp"), Some(varve::pager::CheckpointKind::Sharp));
}

#[test]
fn mistakes_about_the_cache_on_flash_are_named() {
    let check = |text: &str, expected: &str| assert_eq!(parse(text).unwrap_err(), expected, "{text}");
    let flash = "[flash]\ndevice = 'main'\nsize = '1GiB'\n";
    for wrong in ["0", "96", "-1"] {
        let text = format!("{flash}dirty_limit = {wrong}");
        check(&text, "line 4: flash.dirty_limit must be between 1 and 95");
    }
    check(
        &format!("{flash}clean_order = 'lru'"),
        "line 4: flash.clean_order = \"lru\" is unknown; choose one of: last-use, recovery-lsn",
    );
    check(
        &format!("{flash}restart = 'warm'"),
        "line 4: flash.restart = \"warm\" is unknown; choose one of: none, lazy-verification, memory-mapped, log-based",
    );
    check(
        &format!("{flash}fill = 'fast'"),
        "line 4: flash.fill = \"fast\" is unknown; choose one of: aggressive, plain",
    );
    check(
        &format!("{flash}scans = 'none'"),
        "line 4: flash.scans = \"none\" is unknown; choose one of: read-ahead, proximity",
    );
    assert_eq!(
        parse(flash).unwrap().flash.map(|flash| flash.settings.scans),
        Some(varve::pager::FlashScans::ReadAhead)
    );
    check(
        &format!("{flash}daily_writes = '1000KiB'"),
        "line 4: flash.daily_writes must be between 1 MiB and 1024 TiB",
    );
    assert_eq!(parse(flash).unwrap().flash.map(|flash| flash.settings.daily_write_bytes), Some(None));
    assert_eq!(
        parse(flash).unwrap().flash.map(|flash| flash.settings.fill),
        Some(varve::pager::FlashFill::Aggressive)
    );
    assert_eq!(
        parse(flash).unwrap().flash.map(|flash| flash.settings.restart),
        Some(varve::pager::FlashRestart::LazyVerification)
    );
    let told =
        parse(flash).unwrap().flash.map(|flash| (flash.settings.dirty_percent, flash.settings.clean_order));
    assert_eq!(told, Some((50, varve::pager::CleanOrder::LastUse)));
    for order in varve::pager::CleanOrder::ALL {
        let name = order.name();
        let read = parse(&format!("{flash}clean_order = '{name}'")).unwrap().flash;
        assert_eq!(read.map(|flash| flash.settings.clean_order), Some(order));
        assert_eq!(varve::pager::CleanOrder::of(name), Some(order));
    }
}

#[test]
fn doublewrite_takes_its_slots() {
    use varve::pager::ProtectionKind::Doublewrite;
    let slots = |text: &str| parse(text).unwrap().protection;
    let of_kang = "[protection]\nsingle_slots = 392";
    assert_eq!(slots(of_kang), Doublewrite { batch_slots: 120, single_slots: 392 });
}

#[test]
fn every_protection_has_its_word() {
    let nvm = "[nvm]\ndevice = 'main'\nsize = '4MiB'\nlog = '1MiB'\n";
    for kind in ["doublewrite", "nvm-dwb", "nvm", "full-page-log", "atomic-write", "none"] {
        let settings = parse(&format!("{nvm}[protection]\nkind = '{kind}'")).unwrap();
        assert_eq!(settings.protection.name(), kind);
    }
    let why = parse("[protection]\nkind = 'hope'").unwrap_err();
    assert!(why.contains("full-page-log"), "{why}");
}

#[test]
fn a_word_of_home_that_there_is_not_is_named() {
    let why = parse("[home]\nlayout = \"sideways\"").unwrap_err();
    assert!(why.contains("home.layout = \"sideways\" is unknown; choose one of: in-place, packed"), "{why}");
    let why = parse("[home]\ntrim = \"sideways\"").unwrap_err();
    assert!(why.contains("home.trim = \"sideways\" is unknown; choose one of: auto, on, off"), "{why}");
}
