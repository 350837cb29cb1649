//! A long search through crash images.
//!
//!     cargo run --release -p varve-sim --example crash -- --images 50000 --seed 1 --subject engine
//!
//! Seeds are consecutive numbers. Each seed runs one workload and tries its share of the images. A failure
//! reports its seed and image. The same seed with `--seeds 1` repeats it.
//!
//! `--files` uses real files in a temporary directory, not devices in memory.
//!
//! `--part` uses another configuration of the database: `nvm-log`, `full-page-log`, ... (`varve_sim::Part`).
//!
//! `--parts` runs all configurations with storage levels and protections, on raw pages, trees and the engine,
//! and prints a table. The images are divided among them; the default is 100,000.
//!
//! `--planted [NAME]` searches for the planted faults whose name contains NAME, and prints which check found
//! each one. `--seed` sets the first seed. The subject `faults` runs the engine with one run-time fault for
//! each seed.

use std::process::ExitCode;

use varve_sim::crowd::Crowd;
use varve_sim::engine::{Engine, search_throng};
use varve_sim::nvm::{Nvm, NvmFlaw};
use varve_sim::pages::Pages;
use varve_sim::planted::{Wrong, planted_faults};
use varve_sim::toy::{Flaw, Toy};
use varve_sim::trees::Trees;
use varve_sim::{Medium, Part, Plan, Rng, SearchResult, Subject, search, some_rule, try_fault};

const USAGE: &str = "usage: crash --planted [NAME] [--seed S] | crash --parts [--files] [--images N] [--seed S] | crash [--subject engine|throng|faults|crowd|trees|pages|toy|nvm] [--part PART] [--files] [--images N] [--seed S] [--seeds K] [--commits C] [--hoards] [--keep-going]";

struct Arguments {
    subject: String,
    /// Whether all parts are searched instead of one.
    parts: bool,
    part: Part,
    images: usize,
    seed: u64,
    seeds: Option<usize>,
    commits: usize,
    hoards: bool,
    medium: Medium,
    failures_max: usize,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
        let mut parsed = Arguments {
            subject: "engine".into(),
            parts: false,
            part: Part::Doublewrite,
            images: 0,
            seed: 1,
            seeds: None,
            commits: 150,
            hoards: false,
            medium: Medium::Memory,
            failures_max: 1,
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--subject" => parsed.subject = words.next()?,
                "--parts" => parsed.parts = true,
                "--part" => {
                    let name = words.next()?;
                    parsed.part = Part::ALL.into_iter().find(|part| part.name() == name)?;
                }
                "--images" => parsed.images = words.next()?.parse().ok()?,
                "--seed" => parsed.seed = words.next()?.parse().ok()?,
                "--seeds" => parsed.seeds = Some(words.next()?.parse().ok()?),
                "--commits" => parsed.commits = words.next()?.parse().ok()?,
                "--files" => parsed.medium = Medium::Files,
                "--hoards" => parsed.hoards = true,
                "--keep-going" => parsed.failures_max = usize::MAX,
                _ => return None,
            }
        }
        if parsed.images == 0 {
            parsed.images = if parsed.parts { IMAGES_OF_PARTS } else { IMAGES };
        }
        Some(parsed)
    }

    fn plan(&self, seed: u64, images: usize) -> Plan {
        Plan { failures_max: self.failures_max, medium: self.medium, ..Plan::new(seed, images) }
    }

    fn subject(&self) -> Option<Box<dyn Subject>> {
        let part = self.part;
        Some(match self.subject.as_str() {
            // The subject `throng` uses several threads on one engine, and `search_throng` runs it.
            "engine" | "throng" | "faults" => Box::new(Engine { part, ..Engine::new(self.commits) }),
            "pages" if self.hoards => Box::new(Pages { part, ..Pages::hoard(self.commits) }),
            "pages" => Box::new(Pages { part, ..Pages::new(self.commits) }),
            "crowd" => Box::new(Crowd { commits: self.commits, part }),
            "trees" => Box::new(Trees { part, ..Trees::new(self.commits) }),
            "nvm" => Box::new(Nvm { flaw: NvmFlaw::None, commits: self.commits as u64 }),
            "toy" => Box::new(Toy { flaw: Flaw::None, commits: self.commits as u64 }),
            _ => return None,
        })
    }
}

/// The number of images of one workload.
const IMAGES_PER_SEED: usize = 500;
/// The default numbers of images: for one part, and for all parts.
const IMAGES: usize = 20_000;
const IMAGES_OF_PARTS: usize = 100_000;

/// Returns the workload of a seed on a part. It is mostly raw pages, because they are fast and reach all
/// code. A part that changes during a run allows only raw pages.
fn some_subject(part: Part, seed: u64) -> Box<dyn Subject> {
    // Long runs reuse each log segment several times. Short runs test the beginning closely.
    let commits = [100, 600, 1500, 2500, 5000][seed as usize % 5];
    match seed % 4 {
        0 if part.moves() => Box::new(Engine { part, ..Engine::new(150) }),
        3 if !part.changes() || part.moves() => Box::new(Pages { part, ..Pages::hoard(commits.min(600)) }),
        _ if part.changes() => Box::new(Pages { part, ..Pages::new(commits) }),
        0 => Box::new(Engine { part, ..Engine::new(150) }),
        1 => Box::new(Trees { part, ..Trees::new(commits.min(2500)) }),
        _ => Box::new(Pages { part, ..Pages::new(commits) }),
    }
}

/// Searches all parts and prints a row for each.
fn search_parts(arguments: &Arguments) -> ExitCode {
    let started = std::time::Instant::now();
    let mut all = SearchResult::default();
    let parts = Part::of_levels();
    let each = arguments.images.div_ceil(parts.len());
    let seeds = each.div_ceil(IMAGES_PER_SEED).max(1);
    println!(
        "| part | images | second crashes | went on | commits | failures | s |\n|---|---:|---:|---:|---:|---:|---:|"
    );
    for part in parts {
        let begun = std::time::Instant::now();
        let mut found = SearchResult::default();
        for seed in (arguments.seed..).take(seeds) {
            let plan = arguments.plan(seed, each.div_ceil(seeds));
            found.add(search(&*some_subject(part, seed), plan));
        }
        let SearchResult { images, second_crashes, lives, commits, failures, .. } = &found;
        let (name, failed, s) = (part.name(), failures.len(), begun.elapsed().as_secs_f64());
        println!("| {name} | {images} | {second_crashes} | {lives} | {commits} | {failed} | {s:.0} |");
        failures.iter().for_each(|failure| println!("{name}: {}", failure.what));
        all.add(found);
    }
    println!("all in {:.0} s: {}", started.elapsed().as_secs_f64(), all.summary());
    if all.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Searches for the planted faults whose names contain `part`, and prints a table.
fn hunt(part: &str, first: u64) -> ExitCode {
    let faults = planted_faults();
    let wanted: Vec<_> = faults.iter().filter(|fault| fault.name().contains(part)).collect();
    if wanted.is_empty() {
        eprintln!("no planted fault has \"{part}\" in its name; --planted alone lists them all");
        return ExitCode::FAILURE;
    }
    let mut missed = 0;
    println!("| fault | it breaks | caught by | images | seed | s |\n|---|---|---|---:|---:|---:|");
    for fault in wanted {
        // The rarest fault is a device that wrongly reports writes of rollback segments as durable. It has
        // needed more than 2,400 images.
        let hunted = fault.hunt(first, 96, 100);
        let never = matches!(fault.wrong, Wrong::Code(_)) && hunted.hits == 0;
        let by = if never { "NEVER CAME BY" } else { hunted.by() };
        let (name, images, seed) = (fault.name(), hunted.images, hunted.seed);
        println!(
            "| {name} | {} | {by} | {images} | {seed} | {:.1} |",
            fault.breaks,
            hunted.took.as_secs_f64()
        );
        if !part.is_empty() {
            let what = hunted.caught.as_deref().unwrap_or("nothing complained");
            println!("{what} (the wrong code ran {} times)", hunted.hits);
        }
        missed += usize::from(hunted.caught.is_none());
    }
    println!("{missed} not found");
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "--planted") {
        std::panic::set_hook(Box::new(|_| ()));
        let part = words.get(1).filter(|word| !word.starts_with("--"));
        let seed = words.iter().position(|word| word == "--seed").and_then(|at| words.get(at + 1));
        let first = seed.and_then(|seed| seed.parse().ok()).unwrap_or(1);
        return hunt(part.map_or("", String::as_str), first);
    }
    let arguments = Arguments::parse(std::env::args().skip(1));
    if let Some(arguments) = arguments.as_ref().filter(|arguments| arguments.parts) {
        return search_parts(arguments);
    }
    let Some((arguments, subject)) = arguments.and_then(|found| found.subject().map(|kind| (found, kind)))
    else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let seeds = arguments.seeds.unwrap_or(arguments.images.div_ceil(IMAGES_PER_SEED)).max(1);
    let started = std::time::Instant::now();
    let mut found = SearchResult::default();
    for seed in (arguments.seed..).take(seeds) {
        let images = arguments.images.div_ceil(seeds);
        let plan = arguments.plan(seed, images);
        let one = match arguments.subject.as_str() {
            "throng" => search_throng(seed, arguments.commits, images),
            "faults" => try_fault(&*subject, seed, &some_rule(&mut Rng::new(seed))).found,
            _ => search(&*subject, plan),
        };
        println!("seed {seed}: {}", one.summary());
        found.add(one);
        if found.failures.len() >= arguments.failures_max {
            break;
        }
    }
    println!("reached:");
    found.reached.iter().for_each(|(event, count)| println!("  {count:>9} {event}"));
    println!("all, {seeds} seeds in {:.0} s: {}", started.elapsed().as_secs_f64(), found.summary());
    for failure in &found.failures {
        println!("  {}", failure.what);
        println!(
            "  again: the same command with --seed S --seeds 1 --images {}",
            arguments.images.div_ceil(seeds)
        );
    }
    if found.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
