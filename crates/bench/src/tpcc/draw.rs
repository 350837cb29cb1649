//! The random values of TPC-C: NURand [2.1.6], last names [4.3.2.3], and texts [4.3.2.2].

use super::Scale;
use crate::random::Random;

/// The constants A and C of NURand.
struct NuRand {
    a: i64,
    c: i64,
}

/// The constants C for last names: one for the load, one for the transactions. Their difference must be in
/// 65..=119, and neither 96 nor 112 [2.1.6.1].
const NAMES_LOADED: NuRand = NuRand { a: 255, c: 123 };
const NAMES_RUNNING: NuRand = NuRand { a: 255, c: 208 };
const CUSTOMERS: NuRand = NuRand { a: 1_023, c: 259 };
const ITEMS: NuRand = NuRand { a: 8_191, c: 7_911 };

/// The number of last names that exist.
const NAMES: i64 = 1_000;

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

impl NuRand {
    fn draw(&self, random: &mut Random, least: i64, most: i64) -> i64 {
        ((random.between(0, self.a) | random.between(least, most)) + self.c) % (most - least + 1) + least
    }
}

/// Returns a random customer number for a transaction.
pub fn customer(scale: &Scale, random: &mut Random) -> i64 {
    CUSTOMERS.draw(random, 1, scale.customers)
}

/// Returns a random item number for a transaction.
pub fn item(scale: &Scale, random: &mut Random) -> i64 {
    ITEMS.draw(random, 1, scale.items)
}

/// Returns a random last name for a transaction. Some customer has this name.
pub fn last_name(scale: &Scale, random: &mut Random) -> String {
    name(NAMES_RUNNING.draw(random, 0, NAMES.min(scale.customers) - 1))
}

/// Returns the last name of customer `number`, counted from 1. The first 1,000 customers get one name each,
/// in order. Further customers get random names.
pub fn loaded_last_name(number: i64, random: &mut Random) -> String {
    name(if number <= NAMES { number - 1 } else { NAMES_LOADED.draw(random, 0, NAMES - 1) })
}

fn name(number: i64) -> String {
    [number / 100, number / 10, number].iter().map(|place| SYLLABLES[(place % 10) as usize]).collect()
}

/// Returns a random text of `least` to `most` letters and digits.
pub fn text(random: &mut Random, least: i64, most: i64) -> String {
    const CHARACTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let length = random.between(least, most);
    (0..length).map(|_| char::from(CHARACTERS[random.below(CHARACTERS.len() as u64) as usize])).collect()
}

/// Returns a random text of `length` digits.
pub fn digits(random: &mut Random, length: i64) -> String {
    (0..length).map(|_| char::from(b'0' + random.below(10) as u8)).collect()
}

/// Returns a random text of 26 to 50 characters. One in ten of these texts contains the word ORIGINAL.
pub fn data(random: &mut Random) -> String {
    let mut text = text(random, 26, 50);
    if random.below(10) == 0 {
        let at = random.below(text.len() as u64 - 7) as usize;
        text.replace_range(at..at + 8, "ORIGINAL");
    }
    text
}

/// Returns the numbers `1..=count` in random order.
pub fn shuffled(random: &mut Random, count: i64) -> Vec<i64> {
    let mut numbers: Vec<i64> = (1..=count).collect();
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, random.below(at as u64 + 1) as usize);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_specification() {
        assert_eq!(name(371), "PRICALLYOUGHT");
        assert_eq!(name(40), "BARPRESBAR");
        assert!([96, 112].iter().all(|no| NAMES_RUNNING.c - NAMES_LOADED.c != *no));
        assert!((65..=119).contains(&(NAMES_RUNNING.c - NAMES_LOADED.c)));
    }

    #[test]
    fn draws_stay_in_range_and_reach_both_ends() {
        let (scale, mut random) = (Scale::small(1), Random::seeded(1));
        let drawn: Vec<i64> = (0..10_000).map(|_| item(&scale, &mut random)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&1), Some(&scale.items)));
    }

    #[test]
    fn shuffling_loses_nothing() {
        let mut numbers = shuffled(&mut Random::seeded(1), 100);
        assert_ne!(numbers, (1..=100).collect::<Vec<i64>>());
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=100).collect::<Vec<i64>>());
    }
}
