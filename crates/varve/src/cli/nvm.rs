//! `varve nvm` shows what a stopped database has in persistent memory, and moves it to files.
//!
//! Invariants
//! 1. `varve nvm drain` opens the database with the storage that it was last used with, even if the
//!    configuration says something else. `varve nvm status` does not open the database.

use std::path::Path;
use std::sync::Arc;

use varve_engine::Database;
use varve_memory::TABLES_FILE;
use varve_pager::control::{Attached, Control};
use varve_pager::{NVM_FILE, NvmFlush, NvmFound, ProtectionKind, RegionFound};

use super::{CommandError, NvmArgs, NvmCommand, RegionArgs, say, warn};
use crate::config::{
    DeviceSettings, MAIN_DEVICE, NvmSettings, RegionSettings, Settings, TablesSettings, show_bytes,
};
use crate::data_directory::{DatabaseDevices, next_config};
use crate::error::OpenError;
use crate::tables_file::{StoppedTables, stays};

/// The name of the device that `--region` adds.
const REGION_DEVICE: &str = "--region";

pub fn run(arguments: &NvmArgs) -> Result<(), CommandError> {
    match &arguments.command {
        NvmCommand::Status(region) => status(region),
        NvmCommand::Drain(region) => drain(region),
    }
}

fn status(arguments: &RegionArgs) -> Result<(), CommandError> {
    let place = &arguments.place;
    let configured = place.settings_that_fit()?;
    let home = open(arguments, &configured)?;
    let mut config = home.options(&looking(arguments, &configured))?.pager;
    let Some(found) = config.as_found().map_err(OpenError::from)? else {
        return no_database(&place.directory);
    };
    say(format!("database: {}", if found.is_clean { "shut down cleanly" } else { "not shut down cleanly" }));
    let tables = stopped_tables(&home);
    let has_tables = tables.as_ref().is_ok_and(|it| it.as_ref().is_some_and(StoppedTables::has_tables));
    let parts = [found.attached.as_ref().map(Attached::parts), has_tables.then_some("tables")];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    say(format!(
        "in persistent memory: {}",
        if parts.is_empty() { "nothing".into() } else { parts.join(", ") }
    ));
    match &found.region {
        Some(Ok(region)) => say(format!("region: {}", described(region))),
        Some(Err(why)) => say(format!("region: {why}")),
        None => {}
    }
    if let Some(place) = &found.left_over {
        say(left_over(place));
    }
    if found.log_begins_empty {
        say("log: it was moved out of a region; the next start creates a new one");
    }
    let lines = tables.as_ref().map_or_else(|why| vec![why.to_string()], |it| about_tables(it, &configured));
    lines.iter().for_each(|line| say(format!("tables: {line}")));
    let fits = next_config(&configured, config.page_size).goes_with(&found);
    say(format!("configuration: {}", advice(&found, &configured, fits, &drain_command(arguments))));
    home.close();
    needed(arguments, &found)?;
    Ok(tables.map(drop)?)
}

fn drain(arguments: &RegionArgs) -> Result<(), CommandError> {
    let directory = &arguments.place.directory;
    let configured = arguments.place.settings_that_fit()?;
    let home = open(arguments, &configured)?;
    let mut options = home.options(&looking(arguments, &configured))?;
    let Some(found) = options.pager.as_found().map_err(OpenError::from)? else {
        return no_database(directory);
    };
    let region = needed(arguments, &found)?;
    let tables = stopped_tables(&home)?;
    let stay = tables.as_ref().map(|tables| stays(&tables.found));
    if region.is_none() && found.is_clean {
        let needs =
            if stay.is_some() { "nothing is in a region" } else { "the database needs no persistent memory" };
        say(format!("nothing to do: {needs}"));
        found.left_over.iter().for_each(|place| say(left_over(place)));
        stay.iter().for_each(say);
        return Ok(());
    }
    options.memory = tables.map(|tables| tables.memory);
    let database = Database::open(options).map_err(OpenError::from)?;
    database.warnings().iter().for_each(|warning| say(format!("warning: {warning}")));
    database.pager().leave_region_at_shutdown();
    database.shutdown().map_err(CommandError::Drain)?;
    home.close();
    if !found.is_clean {
        say("the database had not been shut down cleanly: recovered it and shut it down");
    }
    stay.iter().for_each(say);
    let Some(region) = region else { return Ok(()) };
    if region.used_slots > 0 {
        say(format!("{} slots were in use: their pages are in the data files now", region.used_slots));
    }
    let needs = if stay.is_some() { "no region" } else { "no persistent memory" };
    say(format!("{} needs {needs} any more; {} was removed", directory.display(), region.place));
    if region.log_bytes() > 0 {
        say("the next start begins an empty log");
    }
    if let Some(region) = configured.nvm.as_ref().and_then(|nvm| nvm.region) {
        let size = show_bytes(region.size_bytes);
        say(format!(
            "the configuration still has [nvm] of {size}: the next start makes a region of that again"
        ));
    }
    Ok(())
}

/// Returns the region that the database needs. The user may not have named a region, and the needed one may
/// be missing or replaced by another one. Then the function returns an error that says how to name the
/// region.
fn needed<'f>(arguments: &RegionArgs, found: &'f NvmFound) -> Result<Option<&'f RegionFound>, CommandError> {
    match (&found.region, &arguments.region) {
        (Some(Err(why)), None) => {
            let command = drain_command(arguments);
            Err(OpenError::RegionElsewhere { why: why.clone(), command }.into())
        }
        _ => Ok(found.needed().map_err(OpenError::from)?),
    }
}

/// Returns the command line that drains the region, with the arguments of this one.
fn drain_command(arguments: &RegionArgs) -> String {
    let mut command = format!("varve nvm drain {}", arguments.place.directory.display());
    for (option, path) in [("--config", &arguments.place.config), ("--region", &arguments.region)] {
        if let Some(path) = path {
            command += &format!(" {option} {}", path.display());
        }
    }
    command
}

/// Returns the file with the tables of a stopped database, on any of its devices.
fn stopped_tables(home: &DatabaseDevices) -> Result<Option<StoppedTables>, OpenError> {
    let Some(control) = Control::open(&*home.directory(MAIN_DEVICE))? else { return Ok(None) };
    let devices = home.devices.iter().map(|device| Arc::clone(&device.directory));
    Ok(StoppedTables::find(devices, control.get().database)?)
}

/// Describes the file with the tables, and what the next start will do with the configuration.
fn about_tables(tables: &Option<StoppedTables>, configured: &Settings) -> Vec<String> {
    let nvm = configured.nvm.as_ref();
    let wanted = nvm.map_or(TablesSettings::DEFAULT, |nvm| nvm.tables);
    let Some(tables) = tables else {
        let size = show_bytes(wanted.size_bytes);
        let make = nvm.filter(|_| wanted.size_bytes > 0).map(|nvm| {
            format!(
                "none; the next start makes the file {TABLES_FILE} of {size} on device {}. If the database has \
                 memory-oriented tables, the start fails: bring their file back first",
                nvm.device
            )
        });
        return Vec::from_iter(make);
    };
    let mut lines = vec![tables.described()];
    if !tables.fits(wanted) {
        let says = match wanted.size_bytes {
            0 => "no such file".to_owned(),
            bytes => {
                let noun = if wanted.partitions == 1 { "partition" } else { "partitions" };
                format!("{} in {} {noun}", show_bytes(bytes), wanted.partitions)
            }
        };
        lines.push(format!(
            "the configuration says {says}, which a start refuses if the database has tables there"
        ));
    }
    lines
}

fn left_over(place: &str) -> String {
    format!("left over: {place}, which is not needed; the next region replaces it, or remove it")
}

fn no_database(directory: &Path) -> Result<(), CommandError> {
    Err(OpenError::NoDatabase { path: directory.to_owned() }.into())
}

/// Returns the locked devices of the database, including the one of its region.
fn open(arguments: &RegionArgs, configured: &Settings) -> Result<DatabaseDevices, CommandError> {
    let place = &arguments.place;
    place.must_be_database()?;
    if let Some(path) = arguments.region.as_ref().filter(|path| !path.is_dir()) {
        return Err(OpenError::NoRegionDirectory { path: path.clone() }.into());
    }
    let home = DatabaseDevices::open(&place.directory, &looking(arguments, configured))?;
    home.warnings.iter().for_each(|what| warn(what));
    Ok(home)
}

/// Returns the settings with the device that has a region's file: the device of `--region`, the configured
/// device, or any other.
fn looking(arguments: &RegionArgs, configured: &Settings) -> Settings {
    let mut settings = configured.clone();
    let main = (MAIN_DEVICE, arguments.place.directory.as_path());
    let others = configured.devices.iter().map(|(name, device)| (name.as_str(), device.path.as_path()));
    let devices: Vec<(&str, &Path)> = others.chain([main]).collect();
    let has = |name: &str, file: &str| {
        devices.iter().any(|(known, path)| *known == name && path.join(file).exists())
    };
    let wanted = configured.nvm.as_ref().map(|nvm| nvm.device.as_str());
    let with = |file: &str| devices.iter().map(|(name, _)| *name).find(|name| has(name, file));
    let found = wanted.filter(|name| has(name, NVM_FILE) || has(name, TABLES_FILE));
    let found = found.or_else(|| with(NVM_FILE)).or_else(|| with(TABLES_FILE));
    let known = match &arguments.region {
        None => found.or(wanted),
        Some(path) => {
            let is_it = |device: &&(&str, &Path)| device.1.canonicalize().ok() == path.canonicalize().ok();
            let device = DeviceSettings {
                path: path.clone(),
                profile: None,
                capacity_bytes: None,
                direct: true,
                endurance_bytes: None,
            };
            Some(devices.iter().find(is_it).map_or_else(
                || {
                    settings.devices.insert(REGION_DEVICE.to_owned(), device);
                    REGION_DEVICE
                },
                |(name, _)| *name,
            ))
        }
    };
    // The other settings are read from the region.
    let nvm = |device: &str| NvmSettings {
        device: device.to_owned(),
        region: Some(RegionSettings { size_bytes: 0, log_bytes: 0 }),
        tables: TablesSettings::DEFAULT,
        emulate: None,
        flush: NvmFlush::DEFAULT,
    };
    settings.nvm = known.map(nvm);
    settings
}

fn described(region: &RegionFound) -> String {
    let mut said = format!("{}, {}", region.place, show_bytes(region.size_bytes()));
    if region.log_bytes() > 0 {
        said += &format!(", log of {}", show_bytes(region.log_bytes()));
    }
    match region.protection {
        Some(ProtectionKind::Nvm) => {
            said += &format!(", {} slots for pages, {} of them in use", region.slots(), region.used_slots);
        }
        Some(ProtectionKind::NvmDoublewrite { batch_slots, single_slots }) => {
            said += &format!(", {batch_slots} and {single_slots} slots for copies");
        }
        _ => {}
    }
    said
}

/// Describes how the next start would use the configuration, and what the user can do.
fn advice(found: &NvmFound, configured: &Settings, fits: bool, drain: &str) -> String {
    let wants_log = configured.nvm.as_ref().is_some_and(NvmSettings::has_log);
    match (found.attached.is_some(), fits) {
        (true, true) => "says the same".into(),
        (true, false) if matches!(found.region, Some(Err(_))) => {
            "without the region, it is not known whether the configuration fits; restore the file of the region first".into()
        }
        (true, false) => format!(
            "[nvm] or [protection] differs from the database, so a start is refused; restore the old settings, or run: {drain}"
        ),
        (false, true) if configured.nvm.is_some() => "says the same".into(),
        (false, true) => "has no persistent memory, either".into(),
        (false, false) if wants_log && !found.is_clean => {
            format!(
                "wants the log in persistent memory, where it goes after a clean shutdown: stop the next start cleanly, or \
                 run: {drain}"
            )
        }
        (false, false) => "the next start puts persistent memory to use as [nvm] says".into(),
    }
}
