//! Makes claims about figures that are not points of a database under load.

use super::super::claim::Claim;
use super::super::order::{ROUND_NOISE, RankedFigure};
use super::super::row::Factors;
use super::super::verdict::{Better, TOLERANCE, Verdict};
use varve_bench::report::Spread;

/// The data that the claims about one configuration have in common.
#[derive(Debug, Clone)]
pub struct ClaimPlace {
    /// The factors of the configuration.
    pub factors: Factors,
    /// The number of rounds of each figure.
    pub rounds: usize,
}

impl ClaimPlace {
    /// Returns the configuration of a row, without the factors that are compared.
    pub fn of(factors: &Factors, compared: &[&str], rounds: usize) -> Self {
        let mut factors = factors.clone();
        factors.retain(|name, _| !compared.contains(name));
        Self { factors, rounds }
    }

    fn claim(&self, says: impl Into<String>, ours: f64, published: Option<f64>, verdict: Verdict) -> Claim {
        let found = Claim::found(&self.factors, says.into(), ours).of_rounds(self.rounds);
        Claim { verdict, ..found.beside(published) }
    }

    /// Returns a claim that compares a ratio with the published one.
    pub fn published(&self, says: impl Into<String>, ours: f64, published: f64, better: Better) -> Claim {
        self.claim(says, ours, Some(published), Verdict::of(ours, published, better))
    }

    /// Returns a claim that shows a ratio and the published one without a verdict.
    pub fn shown(&self, says: impl Into<String>, ours: f64, published: f64, reason: &str) -> Claim {
        self.claim(says, ours, Some(published), Verdict::NotJudged(reason.to_owned()))
    }

    /// Returns the claim about a ratio of two figures that the publication's text calls equal.
    pub fn similar(&self, says: impl Into<String>, ours: f64) -> Claim {
        let is_similar = (1.0 / (1.0 + TOLERANCE)..=1.0 + TOLERANCE).contains(&ours);
        let differ = || Verdict::Not("they differ by more than a fifth".to_owned());
        let verdict = if is_similar { Verdict::Reproduced } else { differ() };
        self.claim(says, ours, Some(1.0), verdict)
    }

    /// Returns the claim about a statement that the publication makes without a number.
    pub fn in_words(&self, says: impl Into<String>, ours: f64, contradicts: Option<String>) -> Claim {
        self.claim(says, ours, None, contradicts.map_or(Verdict::Reproduced, Verdict::Not))
    }

    /// Returns the claim about a bar of this project.
    pub fn at_least(&self, says: impl Into<String>, ours: f64, bar: f64) -> Claim {
        self.claim(says, ours, None, Verdict::NoBar).judged(bar, Verdict::at_least(bar, ours))
    }

    /// Returns the claim about a bar of this project.
    pub fn at_most(&self, says: impl Into<String>, ours: f64, bar: f64) -> Claim {
        self.claim(says, ours, None, Verdict::NoBar).judged(bar, Verdict::at_most(bar, ours))
    }
}

/// Returns a figure that is ranked among others. A higher figure is better.
pub fn ranked(name: impl Into<String>, figure: Spread, rounds: usize, published: f64) -> RankedFigure {
    let noise = if rounds == 1 { ROUND_NOISE / 2.0 } else { 0.0 };
    let ends = (figure.min * (1.0 - noise), figure.max * (1.0 + noise));
    RankedFigure { name: name.into(), median: figure.median, ends, published, spoilt: None }
}

/// Returns the speeds that correspond to these times.
pub fn speed(seconds: Spread) -> Spread {
    Spread { median: 1.0 / seconds.median, min: 1.0 / seconds.max, max: 1.0 / seconds.min }
}
