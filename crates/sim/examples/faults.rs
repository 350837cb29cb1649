//! Injects each run-time fault of a device at each operation of a workload, and prints a table of the
//! outcomes.
//!
//!     cargo run --release -p varve-sim --example faults -- --subject pages --step 1
//!
//! Step 1 tries every operation, step 10 every tenth. `--fault "then room"` tries only faults whose name has
//! these words.

use std::process::ExitCode;

use varve_sim::engine::Engine;
use varve_sim::pages::Pages;
use varve_sim::sweep::{Make, Outcome, Row, kinds, sweep};
use varve_sim::{Part, Subject};

const USAGE: &str = "usage: faults [--subject pages|engine|frames|compressed|packed|full-page-log|nvm|nvm-packed|nvm-all-packed|packed-engine|packed-compressed|flash|nvm-flash|flash-lazy|flash-lazy-packed|move-in|move-out] [--fault PART OF A NAME] [--step N] [--seed S]";

fn of_part(part: Part) -> Box<dyn Subject + Send> {
    Box::new(Pages { part, ..Pages::new(700) })
}

struct Arguments {
    subjects: Vec<(&'static str, Make)>,
    fault: String,
    step: u64,
    seed: u64,
}

const SUBJECTS: [(&str, Make); 17] = [
    ("pages", || Box::new(Pages::new(700))),
    ("packed", || of_part(Part::Packed)),
    ("packed-engine", || Box::new(Engine { part: Part::PackedCompressed, ..Engine::new(100) })),
    ("engine", || Box::new(Engine::new(100))),
    // With few frames, pages are often evicted and read again, so that reads fail in the middle of many
    // operations.
    ("frames", || Box::new(Engine { pool_pages: 36, ..Engine::new(160) })),
    ("compressed", || of_part(Part::Compressed)),
    ("full-page-log", || of_part(Part::FullPageLog)),
    ("nvm", || of_part(Part::NvmPages)),
    ("nvm-packed", || of_part(Part::NvmPacked)),
    ("nvm-all-packed", || of_part(Part::NvmAllPacked)),
    ("packed-compressed", || of_part(Part::PackedCompressed)),
    ("flash", || of_part(Part::Flash)),
    ("nvm-flash", || of_part(Part::NvmFlash)),
    ("flash-lazy", || of_part(Part::FlashLazy)),
    ("flash-lazy-packed", || of_part(Part::FlashLazyPacked)),
    ("move-in", || of_part(Part::MoveIn)),
    ("move-out", || of_part(Part::MoveOut)),
];

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut parsed = Arguments { subjects: SUBJECTS.to_vec(), fault: String::new(), step: 1, seed: 1 };
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--subject" => parsed.subjects.retain(|(name, _)| *name == value),
            "--fault" => parsed.fault = value,
            "--step" => parsed.step = value.parse().ok().filter(|step| *step > 0)?,
            "--seed" => parsed.seed = value.parse().ok()?,
            _ => return None,
        }
    }
    (!parsed.subjects.is_empty()).then_some(parsed)
}

fn print(subject: &str, kind: &str, row: &Row) {
    let [right, error, went_on, made_again, stopped, noticed, deceived, failed, hung] = row.counts;
    let tried = row.tried();
    println!(
        "| {subject} | {kind} | {tried} | {right} | {error} | {went_on} | {made_again} | {stopped} | {noticed} | {deceived} | {failed} | {hung} |"
    );
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let wanted: Vec<_> = kinds().into_iter().filter(|kind| kind.name.contains(&arguments.fault)).collect();
    if wanted.is_empty() {
        eprintln!("no fault has \"{}\" in its name; without --fault all are tried", arguments.fault);
        return ExitCode::FAILURE;
    }
    std::panic::set_hook(Box::new(|_| ()));
    println!(
        "| subject | fault | runs | right | clean error | went on | made again | stopped | lie noticed | lie unnoticed | lost or wrong | hung |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut all = Row::default();
    for (subject, make) in &arguments.subjects {
        for kind in &wanted {
            let mut row = Row::default();
            for space in kind.spaces() {
                row.add(sweep(*make, kind, space, arguments.seed, 1, arguments.step));
            }
            print(subject, kind.name, &row);
            all.add(row);
        }
    }
    print("all", "", &all);
    all.failures.iter().for_each(|what| println!("{what}"));
    let bad = all.counts[Outcome::Failed as usize] + all.counts[Outcome::Hung as usize];
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
