//! Runs every fuzz target on all stored inputs. So a fault that a fuzzer once found is noticed if it comes
//! back.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use varve_fuzzing::{TARGETS, seeds};

/// The most stored inputs of a target: twice the number that `fuzz/run --keep` leaves. Some inputs were kept
/// by that command, and people have named others.
const NAMED_AND_KEPT_MAX: usize = 160;
/// The most bytes of all stored inputs. It is somewhat above what `fuzz/run --keep` leaves.
const CORPUS_BYTES_MAX: u64 = 700 << 10;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn kept_inputs_fail_nowhere() {
    for (target, run) in TARGETS {
        let folder = fuzz().join("corpus").join(target);
        for name in names(&folder) {
            // The name of an input that fails is the last line before the panic.
            eprintln!("{target}/{name}");
            run(&fs::read(folder.join(name)).unwrap());
        }
    }
}

/// Returns the programs that `cargo fuzz build` makes.
fn binaries() -> BTreeSet<String> {
    let manifest: toml::Table = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap().parse().unwrap();
    let bins = manifest["bin"].as_array().unwrap();
    bins.iter().map(|bin| bin["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_target_has_its_program_and_inputs() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let programs = names(&fuzz().join("fuzz_targets"));
    let programs: BTreeSet<String> = programs.iter().map(|name| name.replace(".rs", "")).collect();
    assert_eq!(programs, targets);
    assert_eq!(names(&fuzz().join("corpus")), targets);
    assert_eq!(binaries(), targets, "the [[bin]]s of fuzz/Cargo.toml");
    let seeded: BTreeSet<String> = seeds().into_iter().map(|(target, ..)| target.to_owned()).collect();
    assert_eq!(seeded, targets, "first inputs");
}

#[test]
fn the_corpus_stays_small() {
    let mut bytes = 0;
    for (target, _) in TARGETS {
        let folder = fuzz().join("corpus").join(target);
        let files = names(&folder);
        assert!(
            files.len() <= NAMED_AND_KEPT_MAX,
            "{target} has {} inputs, over {NAMED_AND_KEPT_MAX}",
            files.len()
        );
        bytes += files.iter().map(|name| fs::metadata(folder.join(name)).unwrap().len()).sum::<u64>();
    }
    assert!(bytes <= CORPUS_BYTES_MAX, "the inputs take {bytes} bytes, over {CORPUS_BYTES_MAX}");
}
