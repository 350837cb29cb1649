//! Figures are summed up the way a report says, and random choices are what the publications describe.

use varve_bench::random::{Keys, Random, Zipfian};
use varve_bench::report::Spread;

#[test]
fn median_and_ends() {
    assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
    assert_eq!(Spread::of(&[4.0, 1.0]).median, 2.5);
}

#[test]
fn a_seed_replays() {
    let draw = |seed| {
        let mut random = Random::seeded(seed);
        (0..100).map(|_| random.bits()).collect::<Vec<_>>()
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
}

fn share_of_hottest_tenth(keys: &Keys, count: u64) -> f64 {
    let (mut random, mut hits) = (Random::seeded(1), vec![0u32; count as usize]);
    for _ in 0..100_000 {
        hits[keys.next(&mut random) as usize] += 1;
    }
    hits.sort_unstable_by(|a, b| b.cmp(a));
    f64::from(hits[..count as usize / 10].iter().sum::<u32>()) / 100_000.0
}

#[test]
fn distributions_are_as_skewed_as_published() {
    let count = 1000;
    let uniform = share_of_hottest_tenth(&Keys::Uniform { count }, count);
    assert!((0.10..0.15).contains(&uniform), "uniform {uniform}");
    let special = share_of_hottest_tenth(&Keys::Special { count }, count);
    assert!((0.78..0.95).contains(&special), "special {special}");
    let zipfian = share_of_hottest_tenth(&Keys::Zipfian(Zipfian::new(count)), count);
    assert!((0.55..0.85).contains(&zipfian), "zipfian {zipfian}");
}

#[test]
fn digit_groups_look_like_those_of_sysbench() {
    let text = Random::seeded(1).digit_groups(119);
    assert_eq!(text.len(), 119);
    assert!(text.split('-').all(|group| group.len() == 11 && group.bytes().all(|b| b.is_ascii_digit())));
}
