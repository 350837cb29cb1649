//! A long search through crash images of all engines and of the allocator, up to a given number of images.
//! `make crash` runs it.
//!
//! `IMAGES` is the number for the engines that work in persistent memory without files, and the allocator,
//! together. Each engine that uses files gets a quarter of one share on top. `SEED` is the first seed, and
//! `SUBJECT` is the only subject.

use std::sync::Arc;
use std::time::Instant;

use varve_device::MemoryDirectory;

use super::life::{self, Plan};
use super::{ENGINES, Engine, crash};
use crate::rng::Rng;
use crate::traced::Calls;

const IMAGES: u64 = 200_000;
/// One of this many images is recovered in a recorded life, which is crashed, too.
const AGAIN_ONE_IN: u64 = 400;

/// The images of one subject that were searched.
#[derive(Default)]
struct Searched {
    lives: u64,
    images: u64,
    again: u64,
    failures: Vec<String>,
}

impl Searched {
    fn count(&self) -> u64 {
        self.images + self.again
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Searches all images of one life of an engine.
fn search_life(engine: &Engine, seed: u64, searched: &mut Searched) -> Result<(), String> {
    let mut rng = Rng::new(seed ^ 0x5EED);
    // Few keys make small images; more keys make splits and merges.
    let keys = [12, 60, 200][seed as usize % 3];
    let before = [20, 120, 300][seed as usize % 3];
    let plan = Plan { seed, operations: 30, keys, traced: Calls::None };
    let life = crash::recorded(engine, before, &plan)?;
    searched.lives += 1;
    let mut again = 0;
    let mut first = 0;
    let seen = crash::search(engine, &life, seed, 1, |image, state| {
        first += 1;
        if rng.below(AGAIN_ONE_IN) > 0 {
            return Ok(());
        }
        let next = Plan { seed: rng.draw(), operations: 2, ..plan };
        let copy = MemoryDirectory::from_images(image.images());
        let next = life::live(engine, Arc::clone(&copy), state, &next)?;
        again += crash::search(engine, &next, rng.draw(), 1, |_, _| Ok(()))?.images;
        Ok(())
    });
    searched.images += first;
    searched.again += again;
    seen.map(drop)
}

fn search_engine(engine: &Engine, images: u64, first_seed: u64) -> Searched {
    let mut searched = Searched::default();
    for seed in first_seed.. {
        if searched.count() >= images || searched.failures.len() > 5 {
            break;
        }
        if let Err(error) = search_life(engine, seed, &mut searched) {
            searched.failures.push(format!("life {seed}: {error}"));
        }
    }
    searched
}

fn search_allocator(images: u64, first_seed: u64) -> Searched {
    let mut searched = Searched::default();
    for seed in first_seed.. {
        if searched.count() >= images || searched.failures.len() > 5 {
            break;
        }
        let region_bytes = 40_960 + [3, 6, 16][seed as usize % 3] * 66_000;
        searched.lives += 1;
        match crate::crash::crash(seed, region_bytes, 40) {
            Ok((seen, again)) => {
                searched.images += seen.images;
                searched.again += again;
            }
            Err(error) => searched.failures.push(format!("life {seed}: {error}")),
        }
    }
    searched
}

fn print(name: &str, searched: &Searched, begun: Instant) {
    let Searched { lives, images, again, failures } = searched;
    let seconds = begun.elapsed().as_secs_f64();
    let failed = failures.len();
    println!("{name:12} {lives:6} {images:9} {again:9} {failed:8} {seconds:8.1}");
    failures.iter().for_each(|failure| println!("  {failure}"));
}

/// Searches up to `images` images, and prints a row for each subject. Returns the number of images and the
/// number of failures.
fn search(images: u64, seed: u64) -> (u64, usize) {
    let share = images.div_ceil(4);
    println!("subject       lives    images    second failures  seconds");
    let wanted = std::env::var("SUBJECT").ok();
    let is_wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    let mut all = Vec::new();
    if is_wanted("allocator") {
        let begun = Instant::now();
        let searched = search_allocator(share, seed);
        print("allocator", &searched, begun);
        all.push(searched);
    }
    for engine in ENGINES.iter().filter(|engine| is_wanted(engine.name)) {
        let begun = Instant::now();
        let images = if engine.name.starts_with("nvm_") { share } else { share / 4 };
        let searched = search_engine(engine, images, seed);
        print(engine.name, &searched, begun);
        all.push(searched);
    }
    (all.iter().map(Searched::count).sum(), all.iter().map(|searched| searched.failures.len()).sum())
}

#[test]
#[ignore = "a long search, which `make crash` runs"]
fn many_crash_images_leave_what_was_acknowledged() {
    let (images, failures) = search(number("IMAGES", IMAGES), number("SEED", 1000));
    println!("{images} images, {failures} failures");
    assert_eq!(failures, 0, "of {images} images");
}
