//! Claims: a figure of one point over that of another, beside what the publication says or what this project demands.

use serde::Serialize;

use super::row::{Factors, Point};
use super::verdict::{Better, Verdict};

/// What of a point is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Median of transactions a second.
    Throughput,
    /// Mean latency.
    Latency,
    /// 99th percentile of latencies.
    SlowLatency,
    /// Bytes written to the drive for each transaction.
    Bytes,
    /// Bytes of pages written in their places for each transaction.
    PageBytes,
}

impl Figure {
    fn of(self, point: &Point) -> f64 {
        match self {
            Figure::Throughput => point.tps.median,
            Figure::Latency => point.latency_mean_us,
            Figure::SlowLatency => point.latency_p99_us,
            Figure::Bytes => point.written_bytes_all(),
            Figure::PageBytes => point.page_bytes(),
        }
    }

    /// Of one point over that of another.
    pub fn ratio(self, (over, under): (&Point, &Point)) -> f64 {
        self.of(over) / self.of(under)
    }
}

/// What a comparison is held against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expects {
    /// What the publication's text or a table states, if it does.
    Published(Option<f64>, Better),
    /// What this project demands.
    AtLeast(f64),
}

/// A comparison to judge.
#[derive(Debug, Clone)]
pub struct Asked<'p> {
    /// What is compared, for people.
    pub says: String,
    /// The figure that came of it.
    pub ours: f64,
    /// The points that it came of; the last one's factors tell where.
    pub of: (&'p Point, &'p Point),
    /// What it is held against.
    pub expects: Expects,
}

impl<'p> Asked<'p> {
    /// One point's figure over another's.
    pub fn ratio(says: &str, figure: Figure, of: (&'p Point, &'p Point), expects: Expects) -> Self {
        Self { says: says.to_owned(), ours: figure.ratio(of), of, expects }
    }

    /// A figure of one point.
    pub fn figure(says: &str, ours: f64, of: &'p Point, expects: Expects) -> Self {
        Self { says: says.to_owned(), ours, of: (of, of), expects }
    }

    /// The claim, of this experiment and figure.
    pub fn judge(self, (experiment, figure): (&'static str, &'static str)) -> Claim {
        let (over, under) = self.of;
        let spoilt = over.not_judged().or_else(|| under.not_judged());
        let (published, bar) = match self.expects {
            Expects::Published(published, _) => (published, None),
            Expects::AtLeast(bar) => (None, Some(bar)),
        };
        let verdict = match (self.expects, spoilt) {
            (Expects::Published(None, _), _) => Verdict::NotInText,
            (_, Some(reason)) => Verdict::NotJudged(reason),
            (Expects::Published(Some(published), better), None) => Verdict::of(self.ours, published, better),
            (Expects::AtLeast(bar), None) => Verdict::at_least(bar, self.ours),
        };
        let mut factors = under.factors.clone();
        factors.remove("variant");
        let (row, says, ours) = ("claim", self.says, self.ours);
        Claim { row, experiment, figure, factors, says, ours, published, bar, verdict }
    }
}

/// The pair with the greatest ratio, and that with the least: of those that count, if any do.
pub fn extremes<'p>(figure: Figure, pairs: &[(&'p Point, &'p Point)]) -> Option<[(&'p Point, &'p Point); 2]> {
    let counts =
        |(over, under): &&(&Point, &Point)| over.not_judged().is_none() && under.not_judged().is_none();
    let counting: Vec<_> = pairs.iter().filter(counts).copied().collect();
    let pairs = if counting.is_empty() { pairs } else { &counting };
    let by_ratio =
        |a: &&(&Point, &Point), b: &&(&Point, &Point)| figure.ratio(**a).total_cmp(&figure.ratio(**b));
    Some([*pairs.iter().max_by(by_ratio)?, *pairs.iter().min_by(by_ratio)?])
}

/// What the publication says about some points, or this project demands, and what we found.
#[derive(Debug, Clone, Serialize)]
pub struct Claim {
    /// `claim`.
    pub row: &'static str,
    /// The experiment.
    pub experiment: &'static str,
    /// Figure or table of the publication.
    pub figure: &'static str,
    /// Where it was found: what the points have in common.
    pub factors: Factors,
    /// What is compared.
    pub says: String,
    /// Our figure.
    pub ours: f64,
    /// The publication's, if its text or a table states it.
    pub published: Option<f64>,
    /// What this project demands of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bar: Option<f64>,
    /// What it came to.
    #[serde(flatten)]
    pub verdict: Verdict,
}
