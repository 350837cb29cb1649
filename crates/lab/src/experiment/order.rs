//! Compares orders: the publication says which variants are better than others, and this module checks that
//! order for all measured points at once.
//!
//! 1. Two figures are tied if the ranges of their rounds overlap. If there was only one round, they are tied
//!    if they differ by less than [`ROUND_NOISE`]. A tie neither confirms nor contradicts the published
//!    order.
//! 2. One pair in the opposite order gives the verdict "not", even if other pairs could not be judged.

use super::claim::{Claim, Figure, PointPair};
use super::row::{Factors, Point};
use super::verdict::{TOLERANCE, Verdict};
use varve_bench::report::Spread;

/// If a point has a single round, its figure is taken to have this noise. Rounds of the same build differ by
/// about as much.
pub const ROUND_NOISE: f64 = 0.05;

/// A figure with the range of its rounds. A higher figure is better.
#[derive(Debug, Clone)]
pub struct RankedFigure {
    /// The name of the figure.
    pub name: String,
    /// The median of the rounds.
    pub median: f64,
    /// The least and the greatest value of the rounds.
    pub ends: (f64, f64),
    /// The published figure. Only its order among others counts, and equal figures are a tie.
    pub published: f64,
    /// The reason why the figure is not judged.
    pub spoilt: Option<String>,
}

impl RankedFigure {
    /// Returns a figure with this spread over the rounds.
    pub fn of_spread(name: &str, spread: Spread, rounds: usize, published: f64) -> Self {
        let ends = ends(spread, rounds);
        Self { name: name.to_owned(), median: spread.median, ends, published, spoilt: None }
    }

    /// Returns the throughput of a point. `published` is its published ratio to the throughput of the point
    /// `under`.
    pub fn throughput(name: &str, point: &Point, under: &Point, published: f64) -> Self {
        let spoilt = Figure::Throughput.not_judged(PointPair { over: point, under });
        Self { spoilt, ..Self::of_spread(name, point.tps, point.rounds, published) }
    }
}

/// Returns the least and the greatest value of a figure, with its noise if there was one round only.
pub fn ends(spread: Spread, rounds: usize) -> (f64, f64) {
    let noise = if rounds == 1 { ROUND_NOISE / 2.0 } else { 0.0 };
    (spread.min * (1.0 - noise), spread.max * (1.0 + noise))
}

/// Judges whether a pair has the published order. In the publication `one` is the better figure, or both are
/// tied.
fn judge_pair(one: &RankedFigure, other: &RankedFigure) -> Verdict {
    let is_tied = one.ends.0 <= other.ends.1 && other.ends.0 <= one.ends.1;
    let is_tied_there = one.published == other.published;
    let spoilt = one.spoilt.clone().or_else(|| other.spoilt.clone());
    let differ = || Verdict::Not(format!("{} and {} differ by more than a fifth", one.name, other.name));
    match (spoilt, is_tied_there) {
        (Some(reason), _) => Verdict::NotJudged(reason),
        (None, true) if (one.median / other.median - 1.0).abs() > TOLERANCE && !is_tied => differ(),
        (None, true) => Verdict::Reproduced,
        (None, false) if is_tied => {
            Verdict::NotJudged(format!("{} and {} are within the noise", one.name, other.name))
        }
        (None, false) if one.median < other.median => {
            Verdict::Not(format!("{} is above {}", other.name, one.name))
        }
        (None, false) => Verdict::Reproduced,
    }
}

/// Returns the claim about the order of several points' figures. Returns `None` if there are fewer than two
/// figures.
pub fn judge(says: &str, of: &Point, placed: Vec<RankedFigure>) -> Option<Claim> {
    let mut factors = of.factors.clone();
    ["design", "variant", "lambda"].iter().for_each(|name| drop(factors.remove(name)));
    judge_figures(says, &factors, of.rounds, placed)
}

/// Returns the claim, with these factors, about the order of several figures. Returns `None` if there are
/// fewer than two.
pub fn judge_figures(
    says: &str,
    factors: &Factors,
    rounds: usize,
    mut placed: Vec<RankedFigure>,
) -> Option<Claim> {
    placed.sort_by(|one, other| other.published.total_cmp(&one.published));
    let pairs: Vec<Verdict> = placed
        .iter()
        .enumerate()
        .flat_map(|(at, one)| placed[at + 1..].iter().map(move |other| judge_pair(one, other)))
        .collect();
    let in_order = pairs.iter().filter(|pair| **pair == Verdict::Reproduced).count();
    let share = (!pairs.is_empty()).then(|| in_order as f64 / pairs.len() as f64)?;
    let first = |is: fn(&&Verdict) -> bool| pairs.iter().find(is).cloned();
    let verdict = first(|pair| matches!(pair, Verdict::Not(_)))
        .or_else(|| first(|pair| matches!(pair, Verdict::NotJudged(_))))
        .unwrap_or(Verdict::Reproduced);
    let mut says = format!("{says}, part of the pairs: ");
    for (at, one) in placed.iter().enumerate() {
        let is_tied = at > 0 && placed[at - 1].published == one.published;
        says.push_str(if at == 0 {
            ""
        } else if is_tied {
            " = "
        } else {
            " > "
        });
        says.push_str(&one.name);
    }
    let claim = Claim::found(factors, says, share).of_rounds(rounds).beside(Some(1.0));
    Some(Claim { verdict, ..claim })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(name: &str, median: f64, published: f64) -> RankedFigure {
        let ends = (median * 0.99, median * 1.01);
        RankedFigure { name: name.to_owned(), median, ends, published, spoilt: None }
    }

    #[test]
    fn one_pair_in_the_other_order_is_enough() {
        let pair = |one: f64, other: f64| judge_pair(&placed("a", one, 8.0), &placed("b", other, 2.0));
        assert_eq!(pair(5.0, 4.0), Verdict::Reproduced);
        assert!(matches!(pair(4.0, 5.0), Verdict::Not(why) if why == "b is above a"));
        assert!(matches!(pair(4.0, 4.01), Verdict::NotJudged(why) if why.contains("noise")));
    }

    #[test]
    fn what_is_tied_there_is_tied_here() {
        let pair = |one: f64, other: f64| judge_pair(&placed("a", one, 3.0), &placed("b", other, 3.0));
        assert_eq!(pair(5.0, 4.5), Verdict::Reproduced);
        assert!(matches!(pair(5.0, 2.0), Verdict::Not(_)));
    }
}
