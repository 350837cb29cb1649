//! Tests of `varve.auto.toml` after varve.toml was changed.

use std::path::Path;

use varve::config::{AUTO_FILE_NAME, Settings};
use varve::sql::{SqlState, SystemSettings};
use varve::system_file::{Misfit, SystemFile};
use varve::{Embedded, OpenError};

const NVM: &str = "[nvm]\ndevice = 'main'\nsize = '4MiB'\n[protection]\nkind = 'nvm'\n";

fn read(directory: &Path, varve_toml: &str, misfit: Misfit) -> Result<SystemFile, OpenError> {
    SystemFile::read(directory, Settings::parse(varve_toml, directory).unwrap(), misfit)
}

fn file(directory: &Path) -> String {
    std::fs::read_to_string(directory.join(AUTO_FILE_NAME)).unwrap()
}

/// Found earlier: ignored settings were lost, because the next ALTER SYSTEM wrote only the settings that the
/// start had used.
#[test]
fn what_is_left_out_stays_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let system = read(place, NVM, Misfit::Told).unwrap();
    for (name, value) in [("nvm_high_water", "85"), ("protection_kind", "nvm"), ("pool_page_writers", "2")] {
        system.alter(name, Some(value)).unwrap();
    }
    let without = read(place, "", Misfit::Told).unwrap();
    assert_eq!(without.left_out().len(), 2, "{:?}", without.left_out());
    assert_eq!(without.altered(), ["pool_page_writers"]);
    without.alter("pool_page_writers", Some("3")).unwrap();
    without.alter("home_compression", Some("lz4")).unwrap();
    assert!(without.left_out().iter().any(|why| why.starts_with("nvm_high_water is left out: ")));
    let text = file(place);
    assert!(text.contains("high_water = 85") && text.contains("kind = \"nvm\""), "{text}");
    // When varve.toml fits the setting again, the setting is in force.
    let again = read(place, NVM, Misfit::Told).unwrap();
    assert_eq!(again.left_out(), [""; 0]);
    let altered = ["home_compression", "nvm_high_water", "pool_page_writers", "protection_kind"];
    let mut names = again.altered();
    names.sort_unstable();
    assert_eq!(names, altered);
    assert_eq!(again.settings().nvm.as_ref().unwrap().flush.high_water, 85);
}

#[test]
fn what_is_left_out_can_be_reset_and_not_altered() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let text = "[nvm]\nhigh_water = 85\nlow_water = 20\n[pool]\npage_writers = 2\n";
    std::fs::write(place.join(AUTO_FILE_NAME), text).unwrap();
    let system = read(place, "", Misfit::Told).unwrap();
    let before = file(place);
    for (name, value) in [("nvm_high_water", "90"), ("protection_kind", "nvm")] {
        let error = system.alter(name, Some(value)).unwrap_err();
        assert_eq!(error.sqlstate, SqlState::INVALID_PARAMETER_VALUE, "{name}: {error}");
        assert_eq!(file(place), before);
    }
    system.alter("nvm_high_water", None).unwrap();
    assert!(!file(place).contains("high_water") && file(place).contains("low_water = 20"), "{}", file(place));
    system.reset_all().unwrap();
    assert!(!file(place).contains('['), "{}", file(place));
    assert_eq!(read(place, "", Misfit::Told).unwrap().left_out(), [""; 0]);
}

/// Found earlier: unknown settings were dropped without a message.
#[test]
fn unknown_settings_beside_misfits_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    std::fs::write(place.join(AUTO_FILE_NAME), "[nvm]\nhigh_water = 85\n[pool]\nsise = 1\n").unwrap();
    let error = read(place, "", Misfit::Told).err().unwrap().to_string();
    assert!(error.contains("line"), "{error}");
    let system = read(place, "", Misfit::LeftOut).unwrap();
    let told = system.left_out().join("\n");
    assert!(told.contains("nvm_high_water is left out") && told.contains("pool.sise is left out"), "{told}");
}

#[test]
fn bytes_that_are_no_text_are_told_with_their_line() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    std::fs::write(place.join(AUTO_FILE_NAME), b"[pool]\n# \xff\n").unwrap();
    let error = read(place, "", Misfit::Told).err().unwrap().to_string();
    assert!(error.contains("varve.auto.toml, line 2: the byte 0xff is not UTF-8"), "{error}");
    let system = read(place, "", Misfit::LeftOut).unwrap();
    assert!(system.left_out()[0].contains("0xff"), "{:?}", system.left_out());
}

/// Found by a new user: ALTER SYSTEM answered as if the change were in force.
#[test]
fn where_there_is_no_cache_on_flash_a_change_of_it_is_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    Embedded::open(place).unwrap().close().unwrap();
    for has_cache in [true, false] {
        let toml = "[flash]\ndevice = 'main'\nsize = '4MiB'\n[pool]\nsize = '1MiB'\n";
        let settings = Settings::parse(toml, place).unwrap();
        let system = read(place, toml, Misfit::Told).unwrap();
        let database = Embedded::open_with(place, &settings).unwrap();
        let system = system.in_force(&settings).of(database.engine().clone());
        system.alter("flash_design", Some("lazy-cleaning")).unwrap();
        let setting = system.all().into_iter().find(|setting| setting.name == "flash_design");
        let warning = setting.unwrap().warning;
        assert_eq!(warning.is_none(), has_cache, "{warning:?}");
        drop(system);
        database.close().unwrap();
        if has_cache {
            // The file of the cache is gone.
            std::fs::remove_file(place.join("flash.varve")).unwrap();
            std::fs::create_dir(place.join("flash.varve")).unwrap();
        }
    }
}
