//! Claims about rows of engines: ratios, parts that are saved, and orders.
//!
//! 1. A claim needs the rows of its engines. If one of these rows is missing, the claim is not made.

use super::super::claim::Claim;
use super::super::order;
use super::super::row::Factors;
use super::super::verdict::{Better, Verdict};
use super::rows::{Figure, StoreRow};

/// A value, or a range of values, that the paper states in its text.
#[derive(Debug, Clone, Copy)]
pub struct Stated {
    /// The least value.
    pub least: f64,
    /// The greatest value.
    pub most: f64,
    /// Whether a higher or a lower value is better.
    pub better: Better,
}

impl Stated {
    /// Returns a stated gain: a higher value is better.
    pub const fn gain(least: f64, most: f64) -> Self {
        Self { least, most, better: Better::Higher }
    }

    /// Returns a stated cost: a lower value is better.
    pub const fn cost(least: f64, most: f64) -> Self {
        Self { least, most, better: Better::Lower }
    }

    fn verdict(self, ours: f64) -> Verdict {
        Verdict::within(ours, (self.least, self.most), self.better)
    }

    /// Returns the range as text for people. It is empty if only one value is stated.
    fn range(self) -> String {
        if self.least == self.most {
            String::new()
        } else {
            format!(" (published: {} to {})", self.least, self.most)
        }
    }
}

/// Returns the factors of a claim about a row: the factors of the row without its engine, and the latency of
/// the figure's model.
pub fn factors_of(row: &StoreRow, figure: Figure) -> Factors {
    let mut factors = row.factors.clone();
    factors.remove("engine");
    if let Figure::Throughput(model) = figure {
        factors.insert("latency", model.into());
    }
    factors
}

/// A figure of one row, divided by the same figure of another row.
pub struct Ratio<'r> {
    /// The figure of both rows.
    pub figure: Figure,
    /// The row whose figure is divided.
    pub over: &'r StoreRow,
    /// The row whose figure is the divisor.
    pub under: &'r StoreRow,
}

impl Ratio<'_> {
    /// Returns the ratio of the medians of the two figures.
    pub fn value(&self) -> f64 {
        self.figure.of(self.over).median / self.figure.of(self.under).median
    }

    fn spoilt(&self) -> Option<String> {
        self.figure.not_judged(self.over).or_else(|| self.figure.not_judged(self.under))
    }

    fn claim(&self, says: String, ours: f64, stated: Stated) -> Claim {
        let verdict = match self.spoilt() {
            Some(reason) => Verdict::NotJudged(reason),
            None => stated.verdict(ours),
        };
        let factors = factors_of(self.under, self.figure);
        let rounds = self.over.rounds.min(self.under.rounds).max(1);
        let claim = Claim::found(&factors, format!("{says}{}", stated.range()), ours).of_rounds(rounds);
        Claim { published: Some(stated.least), verdict, ..claim }
    }

    /// Returns the claim that the ratio is as stated.
    pub fn judge(&self, what: &str, stated: Stated) -> Claim {
        let says = format!("{what}: {} / {}", self.over.spot.label(), self.under.spot.label());
        self.claim(says, self.value(), stated)
    }

    /// Returns the claim about the part of `under`'s figure that `over` saves.
    pub fn judge_saved(&self, what: &str, stated: Stated) -> Claim {
        let (over, under) = (self.over.spot.label(), self.under.spot.label());
        let says = format!("part of {what} that {over} saves of {under}");
        self.claim(says, 1.0 - self.value(), stated)
    }

    /// Returns the claim that the figure of `over` is above that of `under`, or that both are tied.
    pub fn judge_order(&self, what: &str, is_tied: bool) -> Option<Claim> {
        let (over, under) = if is_tied { (1.0, 1.0) } else { (2.0, 1.0) };
        let placed = vec![self.figure.ranked(self.over, over), self.figure.ranked(self.under, under)];
        order::judge_figures(what, &factors_of(self.under, self.figure), self.over.rounds.max(1), placed)
    }
}

/// Returns the claim about one engine's throughput under one model, divided by its throughput under another.
/// Such a ratio says, for example, what a longer latency costs.
pub fn judge_models(row: &StoreRow, over: &'static str, under: &'static str, stated: Stated) -> Claim {
    let figure = Figure::Throughput(under);
    let ours = Figure::Throughput(over).of(row).median / figure.of(row).median;
    let verdict = match figure.not_judged(row) {
        Some(reason) => Verdict::NotJudged(reason),
        None => stated.verdict(ours),
    };
    let says = format!("throughput at {over} / {under}: {}{}", row.spot.engine, stated.range());
    let claim = Claim::found(&factors_of(row, figure), says, ours).of_rounds(row.rounds);
    Claim { published: Some(stated.least), verdict, ..claim }
}
