//! A claim compares the ratio of two measured points with the published ratio, or with a goal (a bar) of this
//! project. A point is one configuration that was measured. The result of the comparison is a verdict.
//!
//! 1. A claim about several points that fails for one of them has failed, even if other points could not be
//!    judged.
//! 2. Some figures depend on the speed of the processors. They are judged only if the emulated drive runs at
//!    its real speed (dilation 1). A larger dilation multiplies the drive's times, so the processors are
//!    faster in relation to the drive.
//! 3. The ratio of two times is judged only if the drive limits the slower configuration. If the slower one
//!    waits for something else, the emulated drive did not cause the difference. The faster configuration may
//!    leave the drive idle, because a lower load on the drive can be the reason for its speed.

use serde::Serialize;

use super::row::{Factors, Point, Subject};
use super::verdict::{Better, Verdict};

/// A figure of a point that claims compare.
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
    /// Bytes of pages written in place, for each transaction.
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

    /// Returns whether the figure depends on the speed of the drive.
    fn is_timed(self) -> bool {
        matches!(self, Figure::Throughput | Figure::Latency | Figure::SlowLatency)
    }

    /// Returns the reason why the figure is not judged for two points, if there is one.
    pub(super) fn not_judged(self, PointPair { over, under }: PointPair<'_>) -> Option<String> {
        let slower = if over.tps.median < under.tps.median { over } else { under };
        let idle = || slower.drive_idle().filter(|_| self.is_timed());
        over.not_judged().or_else(|| under.not_judged()).or_else(idle)
    }

    /// Returns the figure of the first point, divided by the figure of the second.
    pub fn ratio(self, PointPair { over, under }: PointPair<'_>) -> f64 {
        self.of(over) / self.of(under)
    }
}

/// Two points whose figures are compared.
#[derive(Debug, Clone, Copy)]
pub struct PointPair<'p> {
    /// The point whose figure is divided.
    pub over: &'p Point,
    /// The point by whose figure it is divided.
    pub under: &'p Point,
}

impl PointPair<'_> {
    /// Returns the pair with its points exchanged. A ratio is then greater than 1 if the figure became
    /// smaller.
    pub fn swapped(self) -> Self {
        Self { over: self.under, under: self.over }
    }
}

/// The value with which our figure is compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expects {
    /// The value that the publication states in its text or in a table. It is `None` if the publication
    /// states none.
    Published(Option<f64>, Better),
    /// The bar of this project: the least permitted value.
    AtLeast(f64),
    /// No value: neither the publication nor this project has one. The figure is only shown.
    Nothing,
}

/// A comparison to judge.
#[derive(Debug, Clone)]
pub struct Comparison<'p> {
    /// A description of the comparison, for people.
    pub says: String,
    /// Our figure.
    pub ours: f64,
    /// The points from which the figure was computed. The claim shows the factors of `under`.
    pub of: PointPair<'p>,
    /// The value with which the figure is compared.
    pub expects: Expects,
    /// Factors that the claim shows instead of the factors of `under`.
    place: Option<Factors>,
    /// The reason why the figure is not judged.
    spoilt: Option<String>,
    /// The reason why some points of the claim were not judged.
    hidden: Option<String>,
}

impl<'p> Comparison<'p> {
    /// Returns the comparison of one point's figure, divided by the same figure of another point.
    pub fn ratio(says: &str, figure: Figure, of: PointPair<'p>, expects: Expects) -> Self {
        let (ours, spoilt) = (figure.ratio(of), figure.not_judged(of));
        Self { says: says.to_owned(), ours, of, expects, place: None, spoilt, hidden: None }
    }

    /// Returns the comparison of a figure of one point.
    pub fn figure(says: &str, ours: f64, of: &'p Point, expects: Expects) -> Self {
        let (of, spoilt) = (PointPair { over: of, under: of }, of.not_judged());
        Self { says: says.to_owned(), ours, of, expects, place: None, spoilt, hidden: None }
    }

    /// Sets the reason why some points of a claim about several points were not judged.
    pub fn beside(mut self, hidden: Option<String>) -> Self {
        self.hidden = hidden;
        self
    }

    /// Marks the claim as one that depends on the speed of the processors, such as a claim about compression.
    pub fn of_processors(mut self) -> Self {
        let PointPair { over, under } = self.of;
        let dilation = |point: &Point| point.emulation.as_ref().map_or(1.0, |emulation| emulation.dilation);
        let most = dilation(over).max(dilation(under));
        let reason = || format!("dilation {most}: processors are as many times as fast beside the drive");
        self.spoilt = self.spoilt.or_else(|| (most > 1.0).then(reason));
        self
    }

    /// Sets the factors that the claim shows: those of the point that it is about.
    pub fn at(mut self, factors: &Factors) -> Self {
        self.place = Some(factors.clone());
        self
    }

    /// Makes the claim of this experiment and figure, with its verdict.
    pub fn judge(self, subject: Subject) -> Claim {
        let Subject { experiment, figure } = subject;
        let PointPair { over, under } = self.of;
        let (published, bar) = match self.expects {
            Expects::Published(published, _) => (published, None),
            Expects::AtLeast(bar) => (None, Some(bar)),
            Expects::Nothing => (None, None),
        };
        let verdict = match (self.expects, self.spoilt) {
            (Expects::Published(None, _), _) => Verdict::NotInText,
            (Expects::Nothing, _) => Verdict::NoBar,
            (_, Some(reason)) => Verdict::NotJudged(reason),
            (Expects::Published(Some(published), better), None) => Verdict::of(self.ours, published, better),
            (Expects::AtLeast(bar), None) => Verdict::at_least(bar, self.ours).hidden_by(self.hidden),
        };
        let mut factors = self.place.unwrap_or_else(|| under.factors.clone());
        factors.remove("variant");
        let (row, says, ours) = ("claim", self.says, self.ours);
        let rounds = Some(over.rounds.min(under.rounds));
        Claim { row, experiment, figure, factors, says, ours, rounds, published, bar, verdict }
    }
}

/// The best and the worst of several pairs. A bar that must hold for all pairs must hold for the worst.
pub struct Extremes<'p> {
    /// The pair with the greatest ratio among the pairs that count. If none counts, it is chosen from all
    /// pairs.
    pub best: PointPair<'p>,
    /// The pair with the least ratio among the pairs that count. If none counts, it is chosen from all pairs.
    pub worst: PointPair<'p>,
    /// The reason why another pair does not count. That pair could be worse than `worst`.
    pub hidden: Option<String>,
}

/// Finds the best and the worst of these pairs. Returns `None` if there are no pairs.
pub fn extremes<'p>(figure: Figure, pairs: &[PointPair<'p>]) -> Option<Extremes<'p>> {
    let by_ratio = |a: &&PointPair<'_>, b: &&PointPair<'_>| figure.ratio(**a).total_cmp(&figure.ratio(**b));
    let counting: Vec<_> = pairs.iter().filter(|pair| figure.not_judged(**pair).is_none()).copied().collect();
    let judged = if counting.is_empty() { pairs } else { &counting };
    let (best, worst) = (judged.iter().max_by(by_ratio)?, judged.iter().min_by(by_ratio)?);
    let hidden = pairs.iter().find_map(|pair| figure.not_judged(*pair));
    let hidden = hidden.map(|reason| format!("another point is not judged ({reason})"));
    Some(Extremes { best: *best, worst: *worst, hidden })
}

/// A claim, with our figure and the verdict. It is a statement of the publication, or a bar of this project,
/// about some points.
#[derive(Debug, Clone, Serialize)]
pub struct Claim {
    /// The kind of the row: `claim`.
    pub row: &'static str,
    /// The name of the experiment.
    pub experiment: &'static str,
    /// The figure or table of the publication.
    pub figure: &'static str,
    /// The factors that the points have in common.
    pub factors: Factors,
    /// A description of the comparison.
    pub says: String,
    /// Our figure.
    pub ours: f64,
    /// The number of rounds. If two points are compared, it is the lower one of their numbers. It is missing
    /// for figures without rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<usize>,
    /// The value of the publication, if its text or a table states it.
    pub published: Option<f64>,
    /// The bar of this project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bar: Option<f64>,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
}

impl Claim {
    /// Returns a claim with a figure that is not the ratio of two points. It has no published value and no
    /// bar yet. [`super::lab::Lab::write_claim`] sets the experiment.
    pub fn found(factors: &Factors, says: String, ours: f64) -> Self {
        let (row, experiment, figure, factors) = ("claim", "", "", factors.clone());
        let (rounds, published, bar, verdict) = (Some(1), None, None, Verdict::NoBar);
        Self { row, experiment, figure, factors, says, ours, rounds, published, bar, verdict }
    }

    /// Sets the number of rounds.
    pub fn of_rounds(mut self, rounds: usize) -> Self {
        self.rounds = Some(rounds);
        self
    }

    /// Sets the value that the publication states. The claim shows it without a verdict on it.
    pub fn beside(mut self, published: Option<f64>) -> Self {
        self.published = published;
        self
    }

    /// Sets a bar and the verdict on it.
    pub fn judged(mut self, bar: f64, verdict: Verdict) -> Self {
        (self.bar, self.verdict) = (Some(bar), verdict);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use varve_device::EmulationReport;

    use super::super::row::Emulation;
    use super::*;
    use varve_bench::report::Spread;

    const SUBJECT: Subject = Subject { experiment: "e", figure: "f" };

    fn point(tps: f64, model_error_share: f64) -> Point {
        let report = EmulationReport {
            profile: "p".to_owned(),
            dilation: 1.0,
            operations: 1,
            model_error_share,
            modelled_ns: 1,
            busy_share: 1.0,
            cpu_share: 0.1,
            flash: None,
        };
        Point {
            row: "point",
            experiment: "e",
            figure: "f",
            factors: Factors::new(),
            configuration: String::new(),
            scale: String::new(),
            rounds: 1,
            tps: Spread { median: tps, min: tps, max: tps },
            latency_mean_us: 1.0,
            latency_p99_us: 1.0,
            kinds: BTreeMap::new(),
            written_bytes: BTreeMap::new(),
            written_over_time: Vec::new(),
            nvm_bytes: BTreeMap::new(),
            levels: BTreeMap::new(),
            pages_read: 0.0,
            pages_written_inline: 0.0,
            pages_written_ahead: 0.0,
            time_share: BTreeMap::new(),
            database_bytes: 1,
            emulation: Emulation::worst(&[report], 0.0),
            drives: BTreeMap::new(),
            warmth: None,
            cache: None,
        }
    }

    /// Such ratios were judged once, although both configurations waited for something else than the drive.
    #[test]
    fn ratios_of_times_want_a_busy_drive_under_the_slower_point() {
        let idle = |mut point: Point| {
            let emulation = point.emulation.as_mut().expect("emulated");
            (emulation.busy_share, emulation.device_limits) = (0.42, false);
            point
        };
        let judge = |figure, over: &Point, under: &Point| {
            Comparison::ratio("a / b", figure, PointPair { over, under }, Expects::AtLeast(1.0))
                .judge(SUBJECT)
                .verdict
        };
        let (fast, slow) = (point(2.0, 0.0), point(1.0, 0.0));
        let (fast_idle, slow_idle) = (idle(point(2.0, 0.0)), idle(point(1.0, 0.0)));
        for figure in [Figure::Throughput, Figure::Latency, Figure::SlowLatency] {
            assert_eq!(judge(figure, &fast_idle, &slow), Verdict::Met);
            for (over, under) in [(&fast, &slow_idle), (&slow_idle, &fast)] {
                let verdict = judge(figure, over, under);
                assert!(
                    matches!(&verdict, Verdict::NotJudged(why) if why.contains("drive idle") && why.contains("42 %")),
                    "{verdict}"
                );
            }
        }
        assert!(!matches!(judge(Figure::PageBytes, &fast, &slow_idle), Verdict::NotJudged(_)));
    }

    #[test]
    fn a_point_that_does_not_count_hides_no_miss() {
        let under = point(1.0, 0.0);
        let of = |points: &[Point], bar: f64| {
            let pairs: Vec<_> = points.iter().map(|over| PointPair { over, under: &under }).collect();
            let Extremes { best, worst, hidden } = extremes(Figure::Throughput, &pairs)?;
            let asked = Comparison::ratio("all", Figure::Throughput, worst, Expects::AtLeast(bar));
            let verdict = asked.beside(hidden).judge(SUBJECT).verdict;
            Some((best.over.tps.median, worst.over.tps.median, verdict))
        };
        let all_count = [point(3.0, 0.0), point(5.0, 0.0), point(4.0, 0.0)];
        assert_eq!(of(&all_count, 3.0), Some((5.0, 3.0, Verdict::Met)));
        let one_does_not = [point(3.0, 0.0), point(5.0, 0.5), point(4.0, 0.0)];
        assert!(matches!(of(&one_does_not, 3.0), Some((4.0, 3.0, Verdict::NotJudged(_)))));
        assert!(matches!(of(&one_does_not, 3.5), Some((4.0, 3.0, Verdict::Missed(_)))));
        assert!(matches!(of(&[point(2.0, 0.5)], 3.0), Some((2.0, 2.0, Verdict::NotJudged(_)))));
        assert!(of(&[], 3.0).is_none());
    }

    /// A bar for lz4 was met once at dilation 2. There, processors are twice as fast in relation to the
    /// drive.
    #[test]
    fn processors_are_judged_at_dilation_one_only() {
        let dilated = |dilation: f64| {
            let mut point = point(1.0, 0.0);
            point.emulation.as_mut().expect("emulated").dilation = dilation;
            point
        };
        let judge = |over: &Point, under: &Point| {
            let asked = Comparison::ratio(
                "lz4 / none",
                Figure::Throughput,
                PointPair { over, under },
                Expects::AtLeast(0.95),
            );
            asked.of_processors().judge(SUBJECT).verdict
        };
        assert_eq!(judge(&dilated(1.0), &dilated(1.0)), Verdict::Met);
        let verdict = judge(&dilated(2.0), &dilated(2.0));
        assert!(matches!(&verdict, Verdict::NotJudged(why) if why.contains("dilation 2")), "{verdict}");
    }
}
