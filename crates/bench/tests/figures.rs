//! Tests that figures are summarized as reports state, and that random draws follow the published
//! distributions.

use varve_bench::random::{Keys, Permutation, Random, Zipfian};
use varve_bench::report::Spread;
use varve_bench::values::{Motif, Values, log_normal};

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

/// The share of the first rank must be 1 / zeta(n, theta), for each skew theta.
#[test]
fn a_skew_is_the_one_asked_for() {
    for theta in [0.606, 0.8, 0.99] {
        let (zipfian, mut random) = (Zipfian::with_theta(1000, theta), Random::seeded(1));
        let zeta: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-theta)).sum();
        let firsts = (0..100_000).filter(|_| zipfian.rank(&mut random) == 0).count() as f64 / 100_000.0;
        assert!((firsts * zeta - 1.0).abs() < 0.05, "theta {theta}: {firsts} is not 1 / {zeta}");
    }
}

#[test]
fn a_permutation_loses_nothing_and_goes_back() {
    for count in [1, 2, 3, 5, 64, 1000, 1025] {
        let permutation = Permutation::of(count, 7);
        let mut places: Vec<u64> = (0..count).map(|rank| permutation.place(rank)).collect();
        for (rank, place) in places.iter().enumerate() {
            assert_eq!(permutation.rank(*place), rank as u64, "{place} of {count}");
        }
        places.sort_unstable();
        assert!(places.iter().copied().eq(0..count), "{count}");
    }
    let (one, other) = (Permutation::of(1000, 1), Permutation::of(1000, 2));
    assert!((0..1000).filter(|rank| one.place(*rank) == other.place(*rank)).count() < 20);
}

/// Returns whether `value` occurs in the bytes `before`.
fn repeated(value: &[u8], before: &[u8]) -> bool {
    before.windows(value.len()).any(|window| window == value)
}

#[test]
fn motif_values_repeat_as_much_as_asked() {
    for uniqueness in [0.0, 0.45, 1.0] {
        let (motif, mut random) = (Motif::new(50, 220, uniqueness, 1), Random::seeded(1));
        let earlier: Vec<u8> = (0..200).flat_map(|_| motif.value(&mut random, 128)).collect();
        let later: Vec<Vec<u8>> = (0..1000).map(|_| motif.value(&mut random, 100)).collect();
        // The test looks for a part of the value, because the whole value may have been copied from two
        // places.
        let repeat = later.iter().filter(|value| repeated(&value[30..60], &earlier)).count() as f64 / 1000.0;
        assert!((repeat - (1.0 - uniqueness)).abs() < 0.06, "uniqueness {uniqueness}: {repeat} repeat");
        assert!(later.iter().flatten().all(|byte| (50..=220).contains(byte)));
    }
    assert!(Values::named("motif", 1.5).is_err());
    let text = Values::named("motif", 0.45).expect("a share").text(&mut Random::seeded(1), 100);
    assert!(text.len() == 100 && text.bytes().all(|byte| byte.is_ascii_lowercase()));
}

#[test]
fn sizes_are_log_normal() {
    let mut random = Random::seeded(1);
    let mut sizes: Vec<usize> = (0..10_001).map(|_| log_normal(&mut random, 128.0, 1 << 20)).collect();
    sizes.sort_unstable();
    assert!((120..=136).contains(&sizes[5000]), "median {}", sizes[5000]);
    // One deviation above the median is a factor of e. 84.1 % of the sizes must be below it.
    assert!((330..=367).contains(&sizes[8413]), "84.1 % are below {}", sizes[8413]);
    assert!((0..1000).all(|_| log_normal(&mut random, 8.0, 20) <= 20));
}
