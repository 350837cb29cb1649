//! Chooses which pending events a crash image keeps. A pending event is a write or another change of a file
//! that was not yet durable at the crash.
//!
//! If there are few pending events, all subsets of them are tried. If there are many, only the subsets that
//! find most faults are tried. These are: none, all, all but one, only the last event, only the later events
//! (as if the device had reversed the order), and random subsets. Each image that keeps writes has a second
//! version, in which some of these writes are torn or garbage.
//!
//! Invariants
//! 1. The same events, generator state and budget give the same choices, without repetition.
//! 2. One third of the choices has torn writes or garbage, even if the budget is small. If the budget cannot
//!    be divided by three, this third is rounded up or down at random.
//!
//! This module does not know events in detail: it asks only whether an event is a write.

use varve_device::{Change, Event, Fate, WORD_BYTES};

use crate::rng::Rng;

/// Up to this number of pending events, all subsets are tried, if the budget allows it.
const ENUMERATED_MAX: usize = 12;

/// The number of versions of each choice with torn writes or garbage. A write can be torn in several ways.
const SPOILED_OF_EACH: usize = 3;

/// Makes up to `budget` choices for these pending events.
pub fn choices(pending: &[&Event], rng: &mut Rng, budget: usize) -> Vec<Vec<Fate>> {
    if budget == 0 {
        return Vec::new();
    }
    let count = pending.len();
    let mut chosen = if count <= ENUMERATED_MAX && 1 << count <= budget {
        (0..1_u64 << count).map(|bits| (0..count).map(|no| keep(bits >> no & 1 == 1)).collect()).collect()
    } else {
        shapes(count, rng, budget)
    };
    // Versions with torn writes or garbage follow the choices with whole writes, as far as the budget allows.
    let siblings = (0..SPOILED_OF_EACH).flat_map(|_| &chosen);
    let siblings = siblings.map(|fates| spoil(pending, fates, rng)).collect::<Vec<_>>();
    let mut spoiled: Vec<Vec<Fate>> = one_torn(pending, rng).into_iter().chain(siblings).collect();
    if rng.one_in(3) {
        spoiled.rotate_left(1);
    }
    let third = (budget + rng.below(3) as usize) / 3;
    spoiled.truncate(budget.saturating_sub(chosen.len()).max(third));
    chosen.truncate(budget - spoiled.len().min(budget));
    let mut distinct = Vec::new();
    for fates in chosen.into_iter().chain(spoiled) {
        if !distinct.contains(&fates) {
            distinct.push(fates);
        }
    }
    distinct
}

fn keep(kept: bool) -> Fate {
    if kept { Fate::Present } else { Fate::Absent }
}

fn shapes(count: usize, rng: &mut Rng, budget: usize) -> Vec<Vec<Fate>> {
    let all_by = |test: &dyn Fn(usize) -> bool| (0..count).map(|no| keep(test(no))).collect();
    let (one, from) = (rng.below(count as u64) as usize, rng.below(count as u64) as usize);
    let upto = rng.below(count as u64) as usize;
    let mut shapes: Vec<Vec<Fate>> = vec![
        all_by(&|_| false),
        all_by(&|_| true),
        all_by(&|no| no != one),
        all_by(&|no| no + 1 == count),
        all_by(&|no| no >= from),
        all_by(&|no| no <= upto),
    ];
    while shapes.len() < budget {
        let odds = 2 + rng.below(6);
        let mostly = rng.one_in(2);
        shapes.push((0..count).map(|_| keep(rng.one_in(odds) != mostly)).collect());
    }
    // Their order is random, because a small budget uses only the first ones.
    for at in (1..shapes.len()).rev() {
        shapes.swap(at, rng.below(at as u64 + 1) as usize);
    }
    shapes
}

/// Returns the same choice with some of the kept writes torn or garbage.
fn spoil(pending: &[&Event], fates: &[Fate], rng: &mut Rng) -> Vec<Fate> {
    let odds = 1 + rng.below(4);
    let spoil_one = |(event, fate): (&&Event, &Fate)| {
        let tears = matches!(event.change, Change::Write { atomic: false, .. } | Change::Store { .. });
        if *fate == Fate::Absent || !tears || !rng.one_in(odds) {
            return *fate;
        }
        let seed = rng.draw();
        if matches!(event.change, Change::Store { .. }) {
            return Fate::Torn { unit_bytes: WORD_BYTES, seed };
        }
        match rng.below(3) {
            0 => Fate::Torn { unit_bytes: 512, seed },
            1 => Fate::Torn { unit_bytes: 4096, seed },
            _ => Fate::Garbage { seed },
        }
    };
    pending.iter().zip(fates).map(spoil_one).collect()
}

/// Returns a choice that keeps all events and tears one write, often the last one. Databases are built to
/// survive this crash.
fn one_torn(pending: &[&Event], rng: &mut Rng) -> Option<Vec<Fate>> {
    let tears = |no: &usize| matches!(pending[*no].change, Change::Write { atomic: false, .. });
    let torn: Vec<usize> = (0..pending.len()).filter(tears).collect();
    let last = *torn.last()?;
    let at = if rng.one_in(2) { last } else { torn[rng.below(torn.len() as u64) as usize] };
    let mut fates = vec![Fate::Present; pending.len()];
    fates[at] = Fate::Torn { unit_bytes: 512, seed: rng.draw() };
    Some(fates)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use varve_device::{DeviceNo, Durability, FileNo};

    use super::*;

    fn writes(count: usize) -> Vec<Event> {
        let write = Change::Write {
            file: FileNo(0),
            offset: 0,
            bytes: vec![0; 4096].into(),
            durability: Durability::Later,
            atomic: false,
        };
        let event = Event { device: DeviceNo(0), thread: 0, submitted: 1, completed: 2, change: write };
        vec![event; count]
    }

    fn chosen(count: usize, budget: usize) -> Vec<Vec<Fate>> {
        let events = writes(count);
        choices(&events.iter().collect::<Vec<_>>(), &mut Rng::new(7), budget)
    }

    #[test]
    fn few_events_are_enumerated() {
        let choices = chosen(5, 64);
        let whole: BTreeSet<Vec<bool>> = choices
            .iter()
            .filter(|fates| fates.iter().all(|fate| [Fate::Absent, Fate::Present].contains(fate)))
            .map(|fates| fates.iter().map(|fate| *fate == Fate::Present).collect())
            .collect();
        assert_eq!(whole.len(), 32);
        assert!(choices.len() > 32, "and some are torn");
    }

    #[test]
    fn many_events_get_the_shapes_within_the_budget() {
        let choices = chosen(100, 24);
        assert!(choices.len() <= 24 && choices.len() > 16, "{}", choices.len());
        let has = |shape: &dyn Fn(usize) -> bool| {
            choices.iter().any(|fates| fates.iter().enumerate().all(|(no, fate)| *fate == keep(shape(no))))
        };
        assert!(has(&|_| false) || has(&|_| true) || has(&|no| no == 99));
        assert_eq!(choices, chosen(100, 24), "the same seed gives the same choices");
    }

    /// Found earlier: two images of a cut had only whole writes, so a database that had crashed before never
    /// had a torn page.
    #[test]
    fn a_small_budget_tears_as_well() {
        let events = writes(20);
        let pending: Vec<&Event> = events.iter().collect();
        let is_torn =
            |fates: &Vec<Fate>| fates.iter().any(|fate| !matches!(fate, Fate::Absent | Fate::Present));
        for budget in [1, 2, 8] {
            let mut rng = Rng::new(3);
            let all: Vec<Vec<Fate>> = (0..300).flat_map(|_| choices(&pending, &mut rng, budget)).collect();
            let torn = all.iter().filter(|fates| is_torn(fates)).count();
            assert!(torn * 5 > all.len() && torn * 2 < all.len(), "{torn} of {} with {budget}", all.len());
        }
    }

    #[test]
    fn nothing_pending_leaves_one_image() {
        assert_eq!(chosen(0, 8), vec![Vec::new()]);
    }
}
